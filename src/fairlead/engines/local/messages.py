"""The messages of a scheduler to a supervisor: lines of JSON, parsed into records. Anything else raises ValueError.

    {"do": "stop", "tasks": [[job, index, number], ...], "grace": seconds}

`do` is the record's name in lower case, but "stream" for :class:`OnStream` and "lease" for :class:`LeaseTerms`. The other keys
are its fields: tuples are lists, bytes are base64. The fields of a program are among those of its command, and work with a
session is a call. Unknown keys are ignored.

Standard library only: the supervisor stays small.
"""

import base64
import json
from collections.abc import Callable
from functools import cache
from signal import NSIG, SIGTERM
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

PROTOCOL, OLDEST_PROTOCOL = 2, 1
"""Of the messages between scheduler and supervisors, both ways: ours, and the oldest that is understood.

A change that the other side would misunderstand raises PROTOCOL. One that a side which ignores it survives does not.
Since 2 there are folders that are sent, leases of workers, ports and idle ends, and what tasks of a gang know of each other.
"""
Task = tuple[int, int, int]
"""An attempt: job, index, number."""
Record = TypeVar("Record", bound=tuple[Any, ...])
Short = Annotated[int, range(2**16)]
"""A port, or a number of rows or columns."""
Natural = Annotated[int, range(2**63)]
Id = Annotated[str, str.isalnum]
"""Of a session or payload: the name of a file, and never a path."""


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
    numbered: bool = False
    export: str = ""
    input: Literal["", "pipe", "terminal"] = ""
    known_as: dict[str, int] = {}  # noqa: RUF012 never modified
    sent: "Call | None" = None
    fetch: tuple[str, ...] = ()
    port: Short | None = None
    idle: float = 0.0
    size: tuple[Short, ...] = ()


class Call(NamedTuple):
    """A call of a Python function, in a worker of its pool: one per session, queue and shape.

    `session` is its folder. For a `fetched` call it is the session's id until all is here; then the call has a file of its own.
    """

    session: str
    payload: str
    pool: str
    fetched: bool = False


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
    """Attempts to start, with the same work, limits and person; the signal that stops them; their gang, if all run at once.

    `person` is None for the supervisor's own user. A message without one is refused, since no user may mean root.
    """

    tasks: list[Task]
    work: Command | Call
    limits: Limits
    person: Person | None
    signal: Annotated[int, range(1, NSIG)] = SIGTERM
    gang: Gang | None = None


class Stop(NamedTuple):
    tasks: list[Task]
    grace: float


class Acknowledge(NamedTuple):
    tasks: list[Task]


class Feed(NamedTuple):
    """A piece of a stream's input at an offset, or of the task's standard input if `stream` is empty; `end` if it is the last;
    `size` of the terminal in rows and columns. It is answered when it is taken.
    """

    ask: int
    task: Task
    stream: str
    offset: int
    data: bytes
    end: bool = False
    size: tuple[Short, Short] | None = None


class OnStream(NamedTuple):
    """A question about a stream of a task: "open", "take" a piece of its output, or "shut"; or the number of its "port".

    Opened with a command, it attaches a program, with a terminal if `size` is not empty; else it connects to the task's port.
    """

    ask: int
    what: str
    task: Task
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
    """Report all that runs, or ended without acknowledgement."""


class Answer(NamedTuple):
    """Show that you are there."""


class Watch(NamedTuple):
    """Measure how busy the cards are, until the next greeting."""


class Leave(NamedTuple):
    """End as soon as nothing runs."""


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
    """Request a piece of a task's output; if `most` is 0, where data follows, which is answered in digits."""

    ask: int
    job: int
    task: int
    stream: Literal["out", "err", "attempts"]
    offset: Natural
    most: Natural


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
    session: Id
    job: int
    task: int
    offset: int
    most: int


class Close(NamedTuple):
    """These sessions were closed: remove their files."""

    sessions: list[Id]


ToNode = LeaseTerms | Renew | Fence | Read | Forget | Piece | Collect | Close
"""Messages to a supervisor with a lease, or one that fetches."""
Message = Greet | Start | Stop | Acknowledge | Feed | OnStream | Limit | Inventory | Answer | Watch | Leave | ToNode

_KINDS: dict[str, type[Message]] = {kind.__name__.lower(): kind for kind in get_args(Message)}
_KINDS |= {"stream": OnStream, "lease": LeaseTerms}
"""By what a message says to do."""


def read(line: bytes | bytearray) -> Message:
    """Parse a line; raises ValueError with the reason."""
    message = _json(line)
    if not isinstance(message, dict):
        raise ValueError("not an object")
    kind = _KINDS.get(str(message.get("do")))
    if kind is None:
        raise ValueError(f"unknown message: {message.get('do')!r}")
    return _record(kind, message)


def read_program(text: str) -> Program:
    """Parse a program from JSON; raises ValueError."""
    return _record(Program, _json(text))


def _record(kind: type[Record], value: Any) -> Record:
    """Make a record from a dict that has each of its fields, of the right type; those with a default may be absent."""
    if not isinstance(value, dict):
        raise ValueError(f"{kind.__name__} is not an object")
    if kind is Command:  # the fields of its program are among its own
        value = {**value, "program": value}
    fields, defaults = _fields(kind), kind._field_defaults  # type: ignore[attr-defined]
    if missing := [name for name in fields if name not in value and name not in defaults]:
        raise ValueError(f"{kind.__name__} has no {missing[0]!r}")
    return _checked(kind(**{name: of(value[name]) for name, of in fields.items() if name in value}))


def _checked(record: Record) -> Record:
    """Return a record. Raises ValueError for what its types do not exclude."""
    match record:
        case Program(argv=[]):
            raise ValueError("a program is at least one word")
        case Call(session, payload, fetched=True) if not (session.isalnum() and payload.isalnum()):
            raise ValueError(f"{session!r} or {payload!r} is not an id")
        case Command(size=size) if len(size) not in (0, 2):
            raise ValueError(f"{size!r} is not the size of a terminal")
    return record


@cache
def _fields(kind: type[Any]) -> dict[str, Callable[[Any], Any]]:
    return {name: _reader(declared) for name, declared in get_type_hints(kind, include_extras=True).items()}


@cache
def _reader(declared: Any) -> Callable[[Any], Any]:
    """Return what makes a value of JSON one of a declared type, or raises ValueError. The type is looked at once."""
    origin, args = get_origin(declared), get_args(declared)
    if hasattr(declared, "_fields"):
        return lambda value: _record(declared, value)
    if origin is Literal:
        return lambda value: value if value in args else _wrong(value, declared)
    if origin is None:
        return lambda value: value if type(value) is declared else _converted(value, declared)
    readers = [_reader(each) for each in (args[:1] if origin is Annotated else args) if each is not ...]
    of, single = readers[0], len(readers) == 1
    if args == (Command, Call):
        return lambda value: _record(Call if isinstance(value, dict) and "session" in value else Command, value)
    if origin in (Union, UnionType):  # with None
        return lambda value: None if value is None else of(value)
    if origin is Annotated:
        holds = args[1].__contains__ if isinstance(args[1], range) else args[1]
        return lambda value: found if holds(found := of(value)) else _wrong(value, declared)

    def read_dict(value: Any) -> Any:
        if type(value) is not dict:
            _wrong(value, declared)
        if {*map(type, value.values())} == {args[1]}:  # as nearly always
            return value
        return {name: readers[1](each) for name, each in value.items()}

    def read_list(value: Any) -> Any:
        if not isinstance(value, list) or not (single or len(value) == len(readers)):
            _wrong(value, declared)
        return origin(map(of, value) if single else [read(each) for read, each in zip(readers, value, strict=True)])

    return read_dict if origin is dict else read_list


def _converted(value: Any, declared: Any) -> Any:
    """Return a value of JSON that stands for one of a type which JSON does not have."""
    if declared is float and type(value) is int:
        return value
    if declared is bytes and isinstance(value, str):
        return base64.b64decode(value)
    return _wrong(value, declared)


def _wrong(value: Any, declared: Any) -> NoReturn:
    raise ValueError(f"{value!r} is not {declared}")


def _json(text: str | bytes | bytearray) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
