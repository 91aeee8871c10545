"""What a supervisor says, read into records, and gathered until the scheduler asks what was seen."""

import logging
import time
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from fairlead.engines.contract import NO_ATTEMPTS, NO_ENDS, Attempts, Ends, NodeDown, NodeDraining, NodeUp, Seen
from fairlead.scheduler.facts import Outcome

log = logging.getLogger("fairlead")

Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Task = tuple[Number, Number, Number]
Name = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}$")]
"""The id of a session: no more than the name of a folder."""


class Started(msgspec.Struct, tag_field="saw", tag="started"):
    """It runs, for so many milliseconds; 0 also from an older supervisor, which does not say."""

    task: Task
    ago: Number = 0


class Checkpointed(msgspec.Struct, tag_field="saw", tag="checkpointed"):
    """It has kept what it did, so many milliseconds ago."""

    task: Task
    ago: Number


class Ended(msgspec.Struct, tag_field="saw", tag="ended"):
    """It is over; what it came to is to be collected where it was a call of a session that was fetched."""

    task: Task
    outcome: Outcome
    code: Number
    cpu: Number
    peak: Number
    ran: Number = 0
    session: Name | Literal[""] = ""


class Inventory(msgspec.Struct, tag_field="saw", tag="inventory"):
    """All that it knows of: tasks, and sessions that were fetched."""

    tasks: list[Task]
    limits: dict[str, bool]
    sessions: list[Name] = []


class Paused(msgspec.Struct, tag_field="saw", tag="paused"):
    """All that wait until there is room for their output."""

    tasks: list[Task]


class Refused(msgspec.Struct, tag_field="saw", tag="refused"):
    """It obeys another scheduler."""

    why: str


class Fed(msgspec.Struct, tag_field="saw", tag="fed"):
    """So much of a task's standard input was taken; `over` if no more will be."""

    task: Task
    taken: Number
    over: bool


class Alive(msgspec.Struct, tag_field="saw", tag="here"):
    """It is there, and has nothing else to say."""


class Heartbeat(msgspec.Struct, tag_field="saw", tag="number"):
    """A number that is to be said back, so that its lease lasts."""

    number: Number


class Fenced(msgspec.Struct, tag_field="saw", tag="fenced"):
    """Nothing runs there, and nothing will."""


class OutputPiece(msgspec.Struct, tag_field="saw", tag="read"):
    """A piece of what a task wrote, in base64; None where there is nothing."""

    ask: Number
    data: str | None


class PieceRequest(msgspec.Struct, tag_field="saw", tag="wanted"):
    """A piece is wanted of a session's file, or of the so-manieth call in it; -1 for the file."""

    session: Name
    name: Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{32}|setup\.json)$")]
    at: Annotated[int, msgspec.Meta(ge=-1, le=2**53)]
    offset: Number


Message = (
    Started
    | Checkpointed
    | Ended
    | Inventory
    | Fed
    | Alive
    | Paused
    | Refused
    | Heartbeat
    | Fenced
    | OutputPiece
    | PieceRequest
)
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def read_lines(lines: list[bytes]) -> list[Message]:
    """Read what came; a line that cannot be read is noted in the log, and passed over."""
    messages = []
    for line in lines:
        try:
            messages.append(_decoder.decode(line))
        except msgspec.MsgspecError as error:
            log.warning("the supervisor said what cannot be read, %r: %s", line[:200], error)
    return messages


class Reports:
    """What was seen and nobody has asked for yet.

    Attributes
    ----------
    known : list of Task or None
        All that the supervisor knows of, where it has told since the last look.
    """

    def __init__(self) -> None:
        self.known: list[Task] | None = None
        self.started: list[int] = []  # four numbers: the attempt, and when, in milliseconds of the monotonic clock
        self.checkpointed: dict[Task, int] = {}  # when, by the same clock
        self.ended: list[int] = []  # eight: the attempt, its outcome and code, what it used, how long it ran
        self.nodes: list[NodeUp | NodeDown | NodeDraining] = []

    def add(self, message: Message) -> None:
        """Take a message in, where it tells of tasks."""
        match message:
            case Started(task, ago):
                self.started += (*task, _now() - ago)
            case Ended(task, outcome, code, cpu, peak, ran):
                self.ended += (*task, outcome, code, cpu, peak, ran)
            case Checkpointed(task, ago):
                self.checkpointed[task] = _now() - ago
            case Inventory(tasks):
                # What started before it and runs is told again after it; what does not run any more did not last.
                self.known, self.started = tasks, []

    def join(self, later: "Reports") -> None:
        """Take in what was seen after that: by the same supervisor, or by another."""
        if later.known is not None:
            self.known, self.started = later.known, []
        self.started += later.started
        self.checkpointed |= later.checkpointed
        self.ended += later.ended
        self.nodes += later.nodes

    def seen(self) -> Seen:
        """As the scheduler takes it."""
        job, index, number, began = columns(self.started, 4)
        return Seen(
            None if self.known is None else Attempts(*columns(self.known, 3)),
            Attempts(job, index, number) if self.started else NO_ATTEMPTS,
            _ends(self.ended) if self.ended else NO_ENDS,
            self.nodes,
            Attempts(*columns(list(self.checkpointed), 3)) if self.checkpointed else NO_ATTEMPTS,
            _now() - np.array(list(self.checkpointed.values()), np.int64),
            since=_now() - began,
        )


def columns(rows: list[Any], width: int) -> np.ndarray:
    """Rows, in one list of numbers or each in one, as columns."""
    return np.array(rows, np.int64).reshape(-1, width).T.copy()


def _ends(rows: list[int]) -> Ends:
    job, index, number, *rest = columns(rows, 8)
    return Ends(Attempts(job, index, number), *rest)


def _now() -> int:
    return time.monotonic_ns() // 10**6
