"""What can happen, in the past tense. The state changes by these and by nothing else.

A fact about many tasks carries them as columns of equal length: task k is (job[k], index[k], attempt[k]). An attempt is
one placement of a task, counted from 1; an engine never runs the same attempt twice, and the state accepts an end of the
current attempt only. Nodes and jobs are numbered in the order they came.

`encode` and `decode` write a fact as JSON, which is how the journal keeps it and how a stream of facts is read. A fact of an
unknown type or with an unknown field is refused, never half understood; docs/journal.md says what may be added and how.
"""

from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from fairlead.model.specs import Framework, Job, Node, Offer, Quantities, Queue, Settings
from fairlead.outcomes import Outcome as Outcome  # noqa: PLC0414 a word of the facts, for all who read them

Ints = NDArray[np.int64]


def _unknown() -> Ints:
    return np.zeros(0, np.int64)


class Attempts(NamedTuple):
    """Placements of tasks, as columns of equal length: attempt k is (job[k], index[k], number[k])."""

    job: Ints
    index: Ints  # type: ignore[assignment]  # a tuple's `index` looks for a value, which nobody wants of columns
    number: Ints


class Contradiction(RuntimeError):
    """A fact that cannot be true in the state that it is to happen in."""


class Fact(Struct, frozen=True, tag=True, kw_only=True, eq=False, forbid_unknown_fields=True):
    """Something that happened.

    at : seconds since the epoch, or of the virtual clock.
    """

    at: float


class Configured(Fact, frozen=True):
    """The queue tree and the settings, whole. Parents come before children."""

    queues: list[Queue]
    settings: Settings


class NodeJoined(Fact, frozen=True):
    node: Node


class NodeDrained(Fact, frozen=True):
    """Takes no more tasks; those on it go on."""

    node: str


class NodeResumed(Fact, frozen=True):
    node: str


class NodeLost(Fact, frozen=True):
    """Gone with all that ran on it."""

    node: str


class NodeForgotten(Fact, frozen=True):
    """A lost node is told of no more, until it joins again."""

    node: str


class JobSubmitted(Fact, frozen=True):
    id: int
    job: Job


class JobCancelled(Fact, frozen=True):
    """Tasks that wait never start; tasks that run are to be stopped. `indices` None means all.

    grace : seconds that they have to end, where their framework stops them; None for what job and queue say
    """

    id: int
    indices: list[int] | None = None
    grace: float | None = None


class JobHeld(Fact, frozen=True):
    """None of its tasks starts until it is released; those that run go on."""

    id: int


class JobReleased(Fact, frozen=True):
    id: int


class JobEdited(Fact, frozen=True):
    """Another is asked for in some ways; what is None stays as it is. A time limit of 0, or 0 at most, is none.

    Of a job that holds resources, what it takes and where, and how long it may, stays.
    """

    id: int
    queue: str | None = None
    demand: Quantities | None = None
    on: dict[str, list[str]] | None = None
    priority: int | None = None
    retries: int | None = None
    time_limit: float | None = None
    at_most: int | None = None

    def edited(self, job: Job) -> Job:
        """What is asked for then."""
        said = {name: value for name in EDITABLE if (value := getattr(self, name)) is not None}
        for name in ("time_limit", "at_most"):
            if name in said:
                said[name] = said[name] or None
        return replace(job, **said)


EDITABLE = ("queue", "demand", "on", "priority", "retries", "time_limit", "at_most")
FIXED_WHILE_RUNNING = ("queue", "demand", "on", "time_limit")


class TasksFact(Fact, frozen=True):
    """Something that happened to attempts of tasks."""

    job: Ints
    index: Ints
    attempt: Ints

    @property
    def attempts(self) -> Attempts:
        """The same columns as one thing, which is how engines take them."""
        return Attempts(self.job, self.index, self.attempt)


class TasksPlaced(TasksFact, frozen=True):
    """Decided: these tasks start on these nodes."""

    node: Ints


class TasksStarted(TasksFact, frozen=True):
    """They run; `ago` milliseconds before, each began. Empty: at once."""

    ago: Ints = field(default_factory=_unknown)


class TasksFinished(TasksFact, frozen=True):
    """They are over, with all that they started.

    cpu : milliseconds of CPU that each attempt used; `peak` is the most memory that it had, in bytes. Empty, or 0, where that is
    not known.
    ran : for how many milliseconds each did; likewise, and then since its start.
    """

    outcome: Ints
    code: Ints
    cpu: Ints = field(default_factory=_unknown)
    peak: Ints = field(default_factory=_unknown)
    ran: Ints = field(default_factory=_unknown)

    def began(self, noted: NDArray[np.float64]) -> NDArray[np.float64]:
        """When each attempt began, of which a start was noted then (NaN: none was): as long ago as it ran, where that is known.

        An end counts from when it was heard of, for it is then that others may have the room.
        """
        return np.where(self.ran > 0, self.at - self.ran / 1000, noted) if len(self.ran) else noted


class TasksCheckpointed(TasksFact, frozen=True):
    """They have kept what they did so far: `ago` milliseconds before, each. What they do in vain if they end counts from then."""

    ago: Ints


class Claim(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What tasks are revoked for.

    job : whose next task, or whole gang, takes their room
    why : "guarantee", "fair share" or "priority"
    queue : whose guarantee or fair share it is, or in which leaf priorities count
    resource, has, of : of what it had how much, and how much is its; in base units
    """

    job: int
    why: str
    queue: str
    resource: str = ""
    has: int = 0
    of: int = 0


class Revocation(Struct, frozen=True, forbid_unknown_fields=True):
    """The last time that tasks of a job were revoked for a claim: when, and for whom; and how many were in all."""

    at: float
    tasks: int
    claim: Claim


class TasksRevoked(TasksFact, frozen=True):
    """Decided: these tasks are stopped and go back to their jobs to start again.

    claim : for whom; None where it is the rest of a gang that lost a task, or the scheduler itself that is stopped
    """

    claim: Claim | None = None


class TasksExpired(TasksFact, frozen=True):
    """Decided: these tasks ran for as long as they may; they are stopped, and have failed."""


class JobsPassedOver(Fact, frozen=True):
    """It is their turn, no node has room, and others are served."""

    ids: list[int]


class NodesReserved(Fact, frozen=True):
    """Decided: room for `tasks[k]` tasks of the job is kept on `nodes[k]`, and nowhere else any more.

    start : when they are expected to start, in seconds; None, which older facts have, is at once
    slips : how often that was put off
    apart : leaves, the tasks of which were not counted on: what they give back, others of the leaf take
    """

    id: int
    nodes: list[int]
    tasks: list[int]
    start: float | None = None
    slips: int = 0
    apart: list[str] = []


class ReservationDropped(Fact, frozen=True):
    """Decided: what was reserved for the job could not be used."""

    id: int


class NodesClaimed(Fact, frozen=True):
    """Decided: room for `tasks[k]` tasks of the job's claim is kept on `nodes[k]`, and nowhere else; it is coming back there.

    why : as of :class:`Claim`
    """

    id: int
    nodes: list[int]
    tasks: list[int]
    why: str


class SharesLooked(Fact, frozen=True):
    """Worked out: these leaf queues, where somebody waits, are short of their fair share, or below one that is; no other is."""

    short: list[str]


class ClaimsPutOff(Fact, frozen=True):
    """Nothing that may be revoked makes room for the claims of these jobs: they are looked at again at `until`.

    why : as of :class:`Claim`; a job's claims of classes before that are none of these. Empty: all
    """

    ids: list[int]
    until: float
    why: str = ""


class JobsForgotten(Fact, frozen=True):
    """Finished jobs that nobody will ask for any more."""

    ids: list[int]


class FactsLost(Fact, frozen=True):
    """So many facts that happened are not known any more: the journal was damaged, and repaired.

    Each may have been a job's, so as many numbers of jobs are passed over: none is given twice.
    """

    count: int


class FrameworkSubscribed(Fact, frozen=True):
    """A framework is there: new, come back, or with another description of itself. What it was offered was rescinded before.

    suppressed : the roles for which it wants no offers
    """

    id: str
    framework: Framework
    suppressed: list[str]


class FrameworkDisconnected(Fact, frozen=True):
    """Its tasks live on for its failover timeout. What it was offered was rescinded before.

    not_before : a time before which it is not gone for that, since it could not come back yet
    """

    id: str
    not_before: float = 0.0


class FrameworkGone(Fact, frozen=True):
    """It does not come back. What it was offered was rescinded before; its tasks are cancelled by facts that follow."""

    id: str


class RolesSuppressed(Fact, frozen=True):
    """The framework wants no offers for these roles; those that it has stay."""

    id: str
    roles: list[str]


class RolesRevived(Fact, frozen=True):
    """The framework wants offers for these roles, and what it refused before as well."""

    id: str
    roles: list[str]


class OffersMade(Fact, frozen=True):
    """Decided: these resources are kept for frameworks until they answer, and count as used by their roles."""

    offers: list[Offer]


class OffersAccepted(Fact, frozen=True):
    """A framework launches tasks in what it was offered; JobSubmitted and TasksPlaced follow for them.

    ids : of the offers, all of one node and role
    jobs : the numbers of what is launched
    left : what is left over, which is refused until `until`; there and before `at`, it may be offered again at once
    left_apart : what is left over of role_reservations, by their marks, likewise
    """

    framework: str
    ids: list[int]
    jobs: list[int]
    left: Quantities
    until: float
    left_apart: dict[str, Quantities] = field(default_factory=dict)


class ResourcesReserved(Fact, frozen=True, tag="RoomSetApart"):
    """Room of a node is set apart for a role, or for all again, until the next such fact: what Mesos calls a reservation.

    amount : what becomes another reservation's
    of, mark : the reservation that it was of, and the one that it is of now; empty for room that is free for all
    role : whose reservation it is; empty where it is free for all
    said : what is said of it; the scheduler does not look at it
    whole : it is a volume, which is given to one task at a time
    """

    node: int
    amount: Quantities
    of: str = ""
    mark: str = ""
    role: str = ""
    said: str = ""
    whole: bool = False


class OffersDeclined(Fact, frozen=True):
    """What was offered is not wanted; until `until` the framework is offered nothing in that role that is a part of it."""

    framework: str
    ids: list[int]
    until: float


class OffersRescinded(Fact, frozen=True):
    """Offers hold no longer, and nobody refused anything.

    why : "expired", "disconnected", "subscribed", "gone", "node lost", "node drained", "node changed", "limit" or "claimed"
    """

    ids: list[int]
    why: str


class TaskSaid(Fact, frozen=True):
    """What runs a framework's task says something of it, which the framework is to be told.

    what : "starting" or "running"; its end is a fact of its own, and then this is what goes with it: "ending"
    said : as it was said, by the name `uuid`, by which it is known when it is said again; the scheduler does not look at it
    """

    job: int
    what: str
    said: str
    uuid: str


class UpdatesAcknowledged(Fact, frozen=True):
    """Frameworks know these updates of their tasks, update `updates[k]` of job `jobs[k]`: they are not told again."""

    jobs: list[int]
    updates: list[int]


AnyFact = (
    Configured
    | NodeJoined
    | NodeDrained
    | NodeResumed
    | NodeLost
    | NodeForgotten
    | JobSubmitted
    | JobCancelled
    | JobHeld
    | JobReleased
    | JobEdited
    | TasksPlaced
    | TasksStarted
    | TasksFinished
    | TasksCheckpointed
    | TasksRevoked
    | TasksExpired
    | JobsPassedOver
    | NodesReserved
    | ReservationDropped
    | NodesClaimed
    | SharesLooked
    | ClaimsPutOff
    | JobsForgotten
    | FactsLost
    | FrameworkSubscribed
    | FrameworkDisconnected
    | FrameworkGone
    | RolesSuppressed
    | RolesRevived
    | OffersMade
    | OffersAccepted
    | OffersDeclined
    | OffersRescinded
    | ResourcesReserved
    | TaskSaid
    | UpdatesAcknowledged
)


def _encode_array(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise NotImplementedError(f"facts hold no {type(value).__name__}")


def _decode_array(kind: type, value: Any) -> Any:
    return np.asarray(value, dtype=np.int64)


_encoder = msgspec.json.Encoder(enc_hook=_encode_array)
_decoder = msgspec.json.Decoder(AnyFact, dec_hook=_decode_array)


def encode(fact: Fact) -> bytes:
    """Write a fact as one JSON object; its ``type`` is the class's name."""
    return _encoder.encode(fact)


def decode(body: bytes) -> AnyFact:
    """Read what :func:`encode` wrote.

    Raises
    ------
    msgspec.ValidationError
        For JSON that is no fact that is known here: an unknown type, an unknown field, another kind of value.
    msgspec.DecodeError
        For anything else, of which that is one.
    """
    return _decoder.decode(body)
