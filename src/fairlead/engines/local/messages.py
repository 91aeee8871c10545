"""The messages of a scheduler to a supervisor: lines of JSON, parsed into records. Anything else raises ValueError.

    {"do": "greet", "journal": id, "epoch": 3, "start": id}      which scheduler this is: see
    fairlead.engines.local.fence
    {"do": "start", "work": {...}, "limits": {...}, "person": {"name": ..., "uid": ...}, "signal": 15,
     "tasks": [[job, index, number], ...]}
        work: argv, cwd, env, encoding, numbered, export, input, known_as; or session, payload and pool for Python calls,
            and `fetched` if the scheduler, on another machine, sends them. A command in a folder that was sent has the latter as
            `sent`, and `fetch`
        person: the user to run as; null for the supervisor's own
        signal: sent to stop the task; by default SIGTERM
        gang: {"size": tasks, "master": host, "hosts": "host,...", "port": number, "apart": bool}, only if all tasks of the job
            run at once
    {"do": "stop", "tasks": [...], "grace": seconds}      {"do": "acknowledge", "tasks": [...]}
    {"do": "feed", "ask": id, "task": [...], "stream": id, "offset": bytes, "data": base64, "end": bool, "size": null or [rows,
        columns]}: without a stream's id, its standard input
    {"do": "limit", "tasks": [...], "cpu": millicores, "memory": bytes}
    {"do": "stream", "ask": id, "what": "open", "take" or "shut", "task": [...], "stream": id, "argv": [...], "env": {...},
        "size": [] or [rows, columns], "number": of a piece}
    {"do": "inventory"}          {"do": "answer"}          {"do": "leave"}

To a supervisor with a lease also:

    {"do": "lease", "lost_after": seconds, "grace": seconds}      {"do": "renew", "number": as received}      {"do":
    "fence"}
    {"do": "read", "ask": id, "job": 1, "task": 0, "stream": "out", "offset": bytes, "most": bytes}, if 0
        asks where data follows, answered in digits
    {"do": "forget", "jobs": [...]}

and if it fetches Python calls:

    {"do": "piece", "session": id, "name": ..., "at": -1, "offset": bytes, "data": base64 or null, "last": bool}
    {"do": "collect", "ask": id, "session": id, "job": 1, "task": 0, "offset": bytes, "most": bytes}
    {"do": "close", "sessions": [...]}

Unknown keys are ignored. Standard library only: the supervisor stays small.
"""

import base64
import json
import signal
from typing import Any, NamedTuple, TypeVar, get_origin

PROTOCOL, OLDEST_PROTOCOL = 2, 1
"""Of the messages between scheduler and supervisors, both ways: ours, and the oldest that is understood.

A change that the other side would misunderstand raises PROTOCOL. One that a side which ignores it survives does not.
Since 2 there are folders that are sent, leases of workers, ports and idle ends, and what tasks of a gang know of each other.
"""
Task = tuple[int, int, int]
"""An attempt: job, index, number."""
Record = TypeVar("Record", bound=tuple[Any, ...])


class Program(NamedTuple):
    """What a process executes. Text is encoded as on the machine where it was written."""

    argv: list[str]
    cwd: str
    env: dict[str, str]
    encoding: str


class Person(NamedTuple):
    """A user: the name and uid of an account, which must match when a process changes to it."""

    name: str
    uid: int


class Command(NamedTuple):
    """A program as a task; `numbered` if {index} in its arguments stands for the task's index.

    `export` is the path of a JSON file with more environment variables; empty for none. `input` is "pipe" or "terminal" if
    standard input is fed; else empty. `known_as` maps an index to the one that the task sees, if it differs. `sent` is the
    session with the folder that it runs in, if one was sent; `fetch` has patterns of files that come back. `port` is the number
    that it would like to listen on, 0 for any, None if it has none; unused for `idle` seconds, it ends, unless that is 0.
    `size` has the rows and columns of its terminal, if known.
    """

    program: Program
    numbered: bool
    export: str
    input: str
    known_as: dict[str, int]
    sent: "Call | None" = None
    fetch: tuple[str, ...] = ()
    port: int | None = None
    idle: float = 0.0
    size: tuple[int, ...] = ()


class Call(NamedTuple):
    """A call of a Python function, in a worker of its pool: one per session, queue and shape.

    `session` is its folder. For a `fetched` call it is the session's id until all is here; then the call has a file of its own.
    """

    session: str
    payload: str
    pool: str
    fetched: bool


class Limits(NamedTuple):
    """Limits of one task: millicores, bytes of memory and of output (0 for none); how many GPUs, and which to choose from."""

    cpu: int
    memory: int
    output: int
    gpus: int
    gpu_indices: list[int]


class Greet(NamedTuple):
    """Which scheduler this is: its journal, the number of this start, and an id of the start."""

    journal: str
    epoch: int
    start: str


class Gang(NamedTuple):
    """How many tasks run at once; the host of the first, and of all, by commas; a port of the first, which nobody may use.

    `apart` if each is on a node of its own. A scheduler of protocol 1 sends only the first two.
    """

    size: int
    master: str
    hosts: str = ""
    port: int = 0
    apart: bool = False


class Start(NamedTuple):
    """Attempts to start, with the same work, limits and person; the signal that stops them; their gang, if any."""

    tasks: list[Task]
    work: Command | Call
    limits: Limits
    person: Person | None
    signal: int
    gang: Gang | None


class Stop(NamedTuple):
    tasks: list[Task]
    grace: float


class Acknowledge(NamedTuple):
    tasks: list[Task]


class Feed(NamedTuple):
    """A piece of a task's standard input, or of a stream's, at an offset; `end` if it is the last; `size` of the terminal in rows
    and columns. It is answered when it is taken.
    """

    ask: int
    task: Task
    stream: str
    offset: int
    data: bytes
    end: bool
    size: tuple[int, int] | None


class OnStream(NamedTuple):
    """A question about a stream of a task: "open", "take" a piece of its output, or "shut"; or the number of its "port".

    Opened with a command, it attaches a program, with a terminal if `size` is not empty; else it connects to the task's port.
    """

    ask: int
    what: str
    task: list[int]
    stream: str
    argv: list[str]
    env: dict[str, str]
    size: list[int]
    number: int


class Limit(NamedTuple):
    """New limits of tasks: millicores, bytes of memory; 0 for none."""

    tasks: list[Task]
    cpu: int
    memory: int


class Inventory(NamedTuple):
    pass


class Answer(NamedTuple):
    pass


class Watch(NamedTuple):
    """Measure how busy the cards are, until the next greeting."""


class Leave(NamedTuple):
    pass


class LeaseTerms(NamedTuple):
    """Duration of the lease, and the grace of tasks when it expires, in seconds."""

    lost_after: float
    grace: float


class Renew(NamedTuple):
    """Echoes a heartbeat's number."""

    number: int


class Fence(NamedTuple):
    """End all tasks and start no more: they are to run elsewhere."""


class Read(NamedTuple):
    """Request a piece of a task's output."""

    ask: int
    job: int
    task: int
    stream: str
    offset: int
    most: int


class Forget(NamedTuple):
    """The output of these jobs is no longer needed."""

    jobs: list[int]


class Piece(NamedTuple):
    """A requested piece of a session's file, or of call `at` in it, at an offset; `last` if no more follows.

    `data` is None if there is no such file.
    """

    session: str
    name: str
    at: int
    offset: int
    data: bytes | None
    last: bool


class Collect(NamedTuple):
    """Request a piece of a call's result."""

    ask: int
    session: str
    job: int
    task: int
    offset: int
    most: int


class Close(NamedTuple):
    """These sessions were closed: remove their files."""

    sessions: list[str]


Message = (
    Greet
    | Start
    | Stop
    | Acknowledge
    | Feed
    | OnStream
    | Limit
    | Inventory
    | Answer
    | Watch
    | Leave
    | LeaseTerms
    | Renew
    | Fence
    | Read
    | Forget
    | Piece
    | Collect
    | Close
)


def read(line: bytes | bytearray) -> Message:
    """Parse a line; raises ValueError with the reason."""
    message = _json(line)
    if not isinstance(message, dict):
        raise ValueError("not an object")
    match message.get("do"):
        case "greet":
            return record(Greet, message)
        case "start":
            work, limits = _work(message.get("work")), record(Limits, message.get("limits"))
            sent, gang = _signal(message.get("signal", signal.SIGTERM)), message.get("gang")
            gang = None if gang is None else record(Gang, {**Gang._field_defaults, **gang} if isinstance(gang, dict) else gang)
            return Start(_tasks(message), work, limits, _person(message), sent, gang)
        case "stop":
            return Stop(_tasks(message), _number(message.get("grace")))
        case "acknowledge":
            return Acknowledge(_tasks(message))
        case "feed":
            return _feed(message)
        case "stream":
            return record(OnStream, message)
        case "limit":
            return record(Limit, message)._replace(tasks=_tasks(message))
        case "inventory":
            return Inventory()
        case "answer":
            return Answer()
        case "watch":
            return Watch()
        case "leave":
            return Leave()
        case "fence":
            return Fence()
        case "lease":
            return LeaseTerms(_number(message.get("lost_after")), _number(message.get("grace")))
        case "renew":
            return record(Renew, message)
        case "read":
            return _read(message)
        case "forget":
            return Forget(_numbers(message.get("jobs")))
        case "piece":
            return _piece(message)
        case "collect":
            asked = record(Collect, message)
            return asked._replace(session=_session(asked.session))
        case "close":
            return Close([_session(each) for each in record(Close, message).sessions])
    raise ValueError(f"unknown message: {message.get('do')!r}")


def read_program(text: str) -> Program:
    """Parse a program from JSON; raises ValueError."""
    return _program(_json(text))


def record(kind: type[Record], value: Any) -> Record:
    """Make a record from a dict that has each of its fields, of the right type."""
    if not isinstance(value, dict):
        raise ValueError(f"{kind.__name__} is not an object")
    for name, declared in kind.__annotations__.items():
        expected: Any = get_origin(declared) or declared
        if not isinstance(value.get(name), expected):
            raise ValueError(f"{kind.__name__} has no valid {name!r}")
    return kind(**{name: value[name] for name in kind.__annotations__})


def _json(text: str | bytes | bytearray) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _work(value: Any) -> Command | Call:
    if isinstance(value, dict) and "session" in value:
        return _call(value)
    program, export, given = _program(value), value.get("export", ""), value.get("input", "")
    if not isinstance(export, str):
        raise ValueError(f"{export!r} is not the name of a file")
    if given not in ("", "pipe", "terminal"):
        raise ValueError(f"{given!r} is not a kind of input")
    known_as = value.get("known_as", {})
    if not isinstance(known_as, dict) or not all(type(index) is int for index in known_as.values()):
        raise ValueError("known_as maps indices to numbers")
    sent, fetch = value.get("sent"), value.get("fetch", [])
    if not isinstance(fetch, list) or not all(isinstance(pattern, str) for pattern in fetch):
        raise ValueError("fetch is a list of patterns")
    sent = None if sent is None else _call(sent)
    port, idle = value.get("port"), _number(value.get("idle", 0))
    if port is not None and not _is_size(port):
        raise ValueError(f"{port!r} is not a port")
    size = value.get("size", [])
    if not isinstance(size, list) or len(size) not in (0, 2) or not all(map(_is_size, size)):
        raise ValueError(f"{size!r} is not the size of a terminal")
    return Command(program, bool(value.get("numbered")), export, given, known_as, sent, tuple(fetch), port, idle, tuple(size))


def _call(value: dict[str, Any]) -> Call:
    call = record(Call, {**value, "fetched": bool(value.get("fetched"))})
    return call._replace(session=_session(call.session), payload=_session(call.payload)) if call.fetched else call


def _feed(value: dict[str, Any]) -> Feed:
    ask, task, stream, offset, data, size = (value.get(name) for name in ("ask", "task", "stream", "offset", "data", "size"))
    if type(ask) is not int or type(offset) is not int or not isinstance(data, str) or not isinstance(stream, str):
        raise ValueError("a piece of input has a question, a stream, an offset and data")
    if size is not None and not (isinstance(size, list) and len(size) == 2 and all(_is_size(each) for each in size)):
        raise ValueError(f"{size!r} is not a terminal size")
    shape = None if size is None else (size[0], size[1])
    return Feed(ask, _tasks({"tasks": [task]})[0], stream, offset, base64.b64decode(data), bool(value.get("end")), shape)


def _read(value: dict[str, Any]) -> Read:
    asked = record(Read, value)
    if asked.stream not in ("out", "err", "attempts") or min(asked.offset, asked.most) < 0:
        raise ValueError("only pieces of out, err and attempts can be read")
    return asked


def _piece(value: dict[str, Any]) -> Piece:
    session, name, at, offset, data, last = (value.get(field) for field in Piece._fields)
    if not (isinstance(session, str) and isinstance(name, str) and isinstance(last, bool)):
        raise ValueError("a piece has a session, a name and last")
    if type(at) is not int or type(offset) is not int or not isinstance(data, str | None):
        raise ValueError("a piece has an offset and data")
    return Piece(session, name, at, offset, None if data is None else base64.b64decode(data), last)


def _session(value: Any) -> str:
    """Check the id of a session or payload, which is a file name and never a path."""
    if not isinstance(value, str) or not value.isalnum():
        raise ValueError(f"{value!r} is not an id")
    return value


def _numbers(value: Any) -> list[int]:
    if not isinstance(value, list) or not all(type(number) is int for number in value):
        raise ValueError("jobs are numbers")
    return value


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**16


def _program(value: Any) -> Program:
    program = record(Program, value)
    words = [*program.argv, *program.env.values()]
    if not program.argv or not all(isinstance(word, str) for word in words):
        raise ValueError("a program is at least one word, and its environment is text")
    return program


def _person(message: dict[str, Any]) -> Person | None:
    """Return the user a message names. One without the key is refused, since no user may mean root."""
    if "person" not in message:
        raise ValueError("it has no person")
    return None if message["person"] is None else record(Person, message["person"])


def _signal(value: Any) -> int:
    if type(value) is not int or not 0 < value < signal.NSIG:
        raise ValueError(f"{value!r} is not a signal")
    return value


def _number(value: Any) -> float:
    if not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number")
    return value


def _tasks(message: dict[str, Any]) -> list[Task]:
    value = message.get("tasks")
    if not isinstance(value, list) or not all(_is_task(task) for task in value):
        raise ValueError("tasks are [job, index, number]")
    return [(job, index, number) for job, index, number in value]


def _is_task(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(type(number) is int for number in value)
