"""What the scheduler may tell the supervisor, read from a line of JSON into records; whatever else it says is a ValueError.

    {"do": "start", "work": {...}, "limits": {...}, "person": {"name": ..., "uid": ...}, "tasks": [[job, index, number], ...]}
        work: argv, cwd, env, encoding, numbered; or session, payload and pool for calls of Python functions
        person: as whom it runs; null for whose process the supervisor is
    {"do": "stop", "tasks": [...], "grace": seconds}      {"do": "acknowledge", "tasks": [...]}
    {"do": "inventory"}          {"do": "answer"}          {"do": "leave"}

Keys that are not known are passed over. Only the standard library: the supervisor stays small.
"""

import json
from typing import Any, NamedTuple, TypeVar, get_origin

Task = tuple[int, int, int]
"""An attempt: job, index, number."""
Record = TypeVar("Record", bound=tuple[Any, ...])


class Program(NamedTuple):
    """What a process executes. Text is given to the system in the encoding of the machine where it was written."""

    argv: list[str]
    cwd: str
    env: dict[str, str]
    encoding: str


class Person(NamedTuple):
    """Somebody, by the name and the uid of their account, which must still be each other's when they are to act."""

    name: str
    uid: int


class Command(NamedTuple):
    """A program that is the task; `numbered` if {index} in its arguments stands for the task's."""

    program: Program
    numbered: bool


class Call(NamedTuple):
    """A Python function to call, in a worker of its pool: those of one session, queue and shape."""

    session: str
    payload: str
    pool: str


class Limits(NamedTuple):
    """What one task may use: thousandths of a CPU and bytes, 0 for no limit; how many GPUs, and of which."""

    cpu: int
    memory: int
    gpus: int
    gpu_indices: list[int]


class Start(NamedTuple):
    """Attempts to start, all with the same work, limits and person."""

    tasks: list[Task]
    work: Command | Call
    limits: Limits
    person: Person | None


class Stop(NamedTuple):
    tasks: list[Task]
    grace: float


class Acknowledge(NamedTuple):
    tasks: list[Task]


class Inventory(NamedTuple):
    pass


class Answer(NamedTuple):
    pass


class Leave(NamedTuple):
    pass


Message = Start | Stop | Acknowledge | Inventory | Answer | Leave


def read(line: bytes | bytearray) -> Message:
    """Read a line; raises ValueError, which says what is wrong with it."""
    message = _json(line)
    if not isinstance(message, dict):
        raise ValueError("not an object")
    match message.get("do"):
        case "start":
            work, limits = _work(message.get("work")), record(Limits, message.get("limits"))
            return Start(_tasks(message), work, limits, _person(message))
        case "stop":
            return Stop(_tasks(message), _number(message.get("grace")))
        case "acknowledge":
            return Acknowledge(_tasks(message))
        case "inventory":
            return Inventory()
        case "answer":
            return Answer()
        case "leave":
            return Leave()
    raise ValueError(f"no such thing to do: {message.get('do')!r}")


def read_program(text: str) -> Program:
    """Read a program that is written as JSON; raises ValueError."""
    return _program(_json(text))


def record(kind: type[Record], said: Any) -> Record:
    """Make a record of what was said, if each of its fields is there and of its type."""
    if not isinstance(said, dict):
        raise ValueError(f"{kind.__name__} is no object")
    for name, declared in kind.__annotations__.items():
        expected: Any = get_origin(declared) or declared
        if not isinstance(said.get(name), expected):
            raise ValueError(f"{kind.__name__} has no good {name!r}")
    return kind(**{name: said[name] for name in kind.__annotations__})


def _json(text: str | bytes | bytearray) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _work(said: Any) -> Command | Call:
    if isinstance(said, dict) and "session" in said:
        return record(Call, said)
    program = _program(said)
    return Command(program, bool(said.get("numbered")))


def _program(said: Any) -> Program:
    program = record(Program, said)
    words = [*program.argv, *program.env.values()]
    if not program.argv or not all(isinstance(word, str) for word in words):
        raise ValueError("a program is words, at least one, and so is its environment")
    return program


def _person(message: dict[str, Any]) -> Person | None:
    """Whom a message names. One that names nobody is refused: that must be said, for it may mean root."""
    if "person" not in message:
        raise ValueError("it does not say as whom")
    return None if message["person"] is None else record(Person, message["person"])


def _number(said: Any) -> float:
    if not isinstance(said, int | float):
        raise ValueError(f"{said!r} is not a number")
    return said


def _tasks(message: dict[str, Any]) -> list[Task]:
    said = message.get("tasks")
    if not isinstance(said, list) or not all(_is_task(task) for task in said):
        raise ValueError("tasks are [job, index, number]")
    return [(job, index, number) for job, index, number in said]


def _is_task(said: Any) -> bool:
    return isinstance(said, list) and len(said) == 3 and all(type(number) is int for number in said)
