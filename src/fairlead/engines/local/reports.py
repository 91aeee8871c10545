"""The messages of a supervisor to a scheduler, parsed into records and gathered until the next poll."""

import logging
import time
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from fairlead.engines.contract import NO_ATTEMPTS, NO_ENDS, Attempts, CardUse, Ends, NodeEvent, Seen
from fairlead.engines.local.messages import OLDEST_PROTOCOL, PROTOCOL
from fairlead.model.cards import words_of
from fairlead.scheduler.facts import Outcome

log = logging.getLogger("fairlead")

Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Task = tuple[Number, Number, Number]
Name = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}$")]
"""The id of a session, a plain file name."""
Short = Annotated[str, msgspec.Meta(max_length=253)]
Resource = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9._/-]{0,62}$")]


class Started(msgspec.Struct, tag_field="saw", tag="started"):
    """It runs, since `ago` milliseconds, on `cards`; 0 and none if unknown, as from an older supervisor."""

    task: Task
    ago: Number = 0
    cards: list[Annotated[int, msgspec.Meta(ge=0, lt=2**16)]] = []


class Checkpointed(msgspec.Struct, tag_field="saw", tag="checkpointed"):
    """It took a checkpoint, `ago` milliseconds before."""

    task: Task
    ago: Number


class Ended(msgspec.Struct, tag_field="saw", tag="ended"):
    """It ended, and used what :class:`fairlead.engines.contract.Ends` has. With a `session`, its result is to be collected."""

    task: Task
    outcome: Outcome
    code: Number
    cpu: Number
    peak: Number
    ran: Number = 0
    calls: Number = 0
    called: Number = 0
    session: Name | Literal[""] = ""


class About(msgspec.Struct):
    """What a node says of itself.

    capacity, labels : what it shares; None if others decide that.
    only : the user whose tasks alone it runs; empty if everybody's.
    host : its address on the way to the scheduler.
    clock : its wall clock; seconds since the epoch.
    leaving : "drain" if it leaves when its tasks have ended, "now" if it ends them; empty if it stays.
    keeper : the protocol of the supervisors that `fairlead node join` would start there; 0 if nothing says so.
    place : its machine, and the inode of its data folder; None if nothing says so.
    """

    version: str = ""
    capacity: dict[Resource, Number] | None = None
    only: Short = ""
    labels: dict[Short, Short] = {}
    host: Short = ""
    clock: float = 0.0
    leaving: Literal["", "drain", "now"] = ""
    keeper: int = 0
    place: tuple[Short, int] | None = None


class Inventory(msgspec.Struct, tag_field="saw", tag="inventory"):
    """All tasks and fetched sessions that the supervisor knows; and its node, if it has one of its own.

    speaks : the oldest and the newest protocol that it understands; older ones do not say.
    """

    tasks: list[Task]
    limits: dict[str, bool]
    sessions: list[Name] = []
    about: About = msgspec.field(default_factory=About)
    speaks: tuple[Number, Number] = (1, 1)

    def older(self) -> str:
        """Return what supervisor it is if it speaks only an older protocol; else nothing."""
        if self.speaks[1] >= PROTOCOL:
            return ""
        return f"fairlead {self.about.version}" if self.about.version else "an older fairlead"

    def cannot_talk(self) -> str:
        """Return why this scheduler cannot talk to the supervisor; empty if it can."""
        oldest, newest = self.speaks
        if oldest <= PROTOCOL and newest >= OLDEST_PROTOCOL:
            return ""
        return (
            f"its supervisor, of {'an older' if newest < PROTOCOL else 'a newer'} fairlead, speaks protocol {newest}, and this "
            f"scheduler {OLDEST_PROTOCOL} to {PROTOCOL}"
        )


class Paused(msgspec.Struct, tag_field="saw", tag="paused"):
    """All tasks stopped until the disk has room for their output."""

    tasks: list[Task]


class CardsMeasured(msgspec.Struct, tag_field="saw", tag="cards"):
    """How busy its accelerator cards are: of each the percentage of a second, None if it does not say, and bytes of memory."""

    cards: list[
        tuple[Annotated[int, msgspec.Meta(ge=0, lt=2**16)], Annotated[int, msgspec.Meta(ge=0, le=100)] | None, Number, Number]
    ]

    def use(self) -> dict[int, CardUse]:
        now = time.monotonic()
        return {card: CardUse(now, None if busy is None else busy / 100, used, size) for card, busy, used, size in self.cards}


class Closed(msgspec.Struct, tag_field="saw", tag="closed"):
    """All users whose tasks cannot run there, and why."""

    to: Annotated[dict[Short, Literal["no account", "another uid"]], msgspec.Meta(max_length=10_000)]


class Refused(msgspec.Struct, tag_field="saw", tag="refused"):
    """It obeys another scheduler."""

    why: str


class StreamAnswer(msgspec.Struct, tag_field="saw", tag="stream"):
    """The answer to a question about input or a stream: why it cannot begin; bytes taken; or a piece of output, in base64."""

    ask: Number
    wrong: str = ""
    taken: Number = 0
    over: bool = False
    number: Number = 0
    out: str = ""
    err: str = ""
    exit: Number | None = None


class Alive(msgspec.Struct, tag_field="saw", tag="here"):
    """An answer with nothing else to report."""


class Heartbeat(msgspec.Struct, tag_field="saw", tag="number"):
    """A number to echo, which renews the lease."""

    number: Number


class Fenced(msgspec.Struct, tag_field="saw", tag="fenced"):
    """Nothing runs there, and nothing will."""


class OutputPiece(msgspec.Struct, tag_field="saw", tag="read"):
    """A requested piece of output, in base64; None if there is none. `wrong` is why it cannot be read; empty if it can."""

    ask: Number
    data: str | None
    wrong: str = ""


class PieceRequest(msgspec.Struct, tag_field="saw", tag="wanted"):
    """Requests a piece of a session's file, or of call `at` in it; -1 for the whole file."""

    session: Name
    name: Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{32}|setup\.json)$")]
    at: Annotated[int, msgspec.Meta(ge=-1, le=2**53)]
    offset: Number


Quiet = Heartbeat | StreamAnswer | OutputPiece | CardsMeasured
"""Messages after which there is nothing new to poll."""
Message = Started | Checkpointed | Ended | Inventory | Alive | Paused | Closed | Refused | Fenced | PieceRequest | Quiet
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def read_lines(lines: list[bytes]) -> list[Message]:
    """Parse lines. One that cannot be parsed is logged and ignored."""
    messages = []
    for line in lines:
        try:
            messages.append(_decoder.decode(line))
        except msgspec.MsgspecError as error:
            log.warning("cannot parse a message of the supervisor, %r: %s", line[:200], error)
    return messages


class Reports:
    """What was reported and not polled yet. `known` are all tasks there, if an inventory came since the last poll."""

    def __init__(self) -> None:
        self.known: list[Task] | None = None
        self.started: list[int] = []  # 4 numbers each: the attempt, and its start in milliseconds of the monotonic clock
        self.cards: list[list[int]] = []  # of each that started, as words
        self.checkpointed: dict[Task, int] = {}  # time in the same clock
        self.ended: list[int] = []  # 10 numbers each: the attempt, outcome, code, usage, run time, calls
        self.nodes: list[NodeEvent] = []

    def add(self, message: Message) -> None:
        """Add a message about tasks; ignore others."""
        match message:
            case Started(task, ago, cards):
                self.started += (*task, _now() - ago)
                self.cards.append(words_of(cards))
            case Ended(task, outcome, code, cpu, peak, ran, calls, called):
                self.ended += (*task, outcome, code, cpu, peak, ran, calls, called)
            case Checkpointed(task, ago):
                self.checkpointed[task] = _now() - ago
            case Inventory(tasks):
                # Running tasks are reported again after an inventory; others that started before it are over.
                self.known, self.started, self.cards = tasks, [], []

    def join(self, later: "Reports") -> None:
        """Add later reports, of the same supervisor or another."""
        if later.known is not None:
            self.known, self.started, self.cards = later.known, [], []
        self.started += later.started
        self.cards += later.cards
        self.checkpointed |= later.checkpointed
        self.ended += later.ended
        self.nodes += later.nodes

    def seen(self) -> Seen:
        """Return them as columns."""
        job, index, number, began = columns(self.started, 4)
        ended = columns(self.ended, 10)
        words = max(map(len, self.cards), default=0)
        return Seen(
            None if self.known is None else Attempts(*columns(self.known, 3)),
            Attempts(job, index, number) if self.started else NO_ATTEMPTS,
            Ends(Attempts(*ended[:3]), *ended[3:]) if self.ended else NO_ENDS,
            self.nodes,
            Attempts(*columns(list(self.checkpointed), 3)) if self.checkpointed else NO_ATTEMPTS,
            _now() - np.array(list(self.checkpointed.values()), np.int64),
            since=_now() - began,
            cards=np.array([each + [0] * (words - len(each)) for each in self.cards], np.int64),
        )


def columns(rows: list[Any], width: int) -> np.ndarray:
    """Turn rows, flat or nested, into columns."""
    return np.array(rows, np.int64).reshape(-1, width).T.copy()


def _now() -> int:
    return time.monotonic_ns() // 10**6
