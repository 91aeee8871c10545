"""Facts: what can happen, in the past tense. Only facts change the state.

A fact about many tasks has columns of equal length: task k is (job[k], index[k], attempt[k]). An attempt is one placement of a
task, counted from 1. An engine never runs the same attempt twice, and the state accepts only the end of the current attempt.
Nodes and jobs are numbered in the order they came.

`encode` and `decode` write and read a fact as JSON, for the journal and for streams of facts. A fact of an unknown type or with
an unknown field is refused, never half understood; docs/journal.md says what may be added and how.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple, Union

import msgspec
import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from fairlead.model.job_columns import JobColumns, columns_of
from fairlead.model.specs import Framework, Job, Node, Offer, Quantities, Queue, Settings
from fairlead.outcomes import Outcome as Outcome  # noqa: PLC0414 part of the vocabulary of facts

Ints = NDArray[np.int64]


def _unknown() -> Ints:
    return np.zeros(0, np.int64)


class Attempts(NamedTuple):
    """Placements of tasks, as columns of equal length: attempt k is (job[k], index[k], number[k])."""

    job: Ints
    index: Ints  # type: ignore[assignment]  # hides tuple.index, which columns do not need
    number: Ints


class Contradiction(RuntimeError):
    """A fact that is impossible in the state it is applied to."""


class Fact(Struct, frozen=True, tag=True, kw_only=True, eq=False, forbid_unknown_fields=True):
    """Something that happened `at` seconds since the epoch, or of the virtual clock."""

    at: float


class Configured(Fact, frozen=True):
    """The whole queue tree and the settings. Parents come before children."""

    queues: list[Queue]
    settings: Settings


class NodeJoined(Fact, frozen=True):
    node: Node


class NodeDrained(Fact, frozen=True):
    """It takes no more tasks, or if any are named, only these accelerator `cards`; those on it continue."""

    node: str
    cards: list[int] = []


class NodeResumed(Fact, frozen=True):
    """It takes tasks again, or if any are named, only these accelerator `cards` do."""

    node: str
    cards: list[int] = []


class NodeLost(Fact, frozen=True):
    """Lost, with all that ran on it."""

    node: str


class NodeForgotten(Fact, frozen=True):
    """A lost node is no longer listed, until it joins again; its machine may not connect any more."""

    node: str


class NodeTokenMade(Fact, frozen=True):
    """A machine may join once, before `until`, by a secret with this SHA-256; as `node`, or as any new one if empty."""

    hash: str
    until: float
    node: str = ""


class NodeAdmitted(Fact, frozen=True):
    """A machine may connect as this node, with this certificate and no other: it joined, or has a new key.

    certificate : as PEM; its key never leaves the machine
    token : hash of the token that it used up; empty if its last key signed this certificate
    """

    node: str
    certificate: str
    token: str = ""


class NodeLeft(Fact, frozen=True):
    """The machine of this node may not connect any more."""

    node: str


class JobSubmitted(Fact, frozen=True, omit_defaults=True, dict=True):
    """A job, and `more` that came with it, numbered from `id` on: all of them or none.

    columns, written : what follows from the jobs alone, and what the journal has of them: computed once
    """

    id: int
    job: Job
    more: list[Job] = []

    @cached_property
    def columns(self) -> JobColumns:
        return columns_of([self.job, *self.more])

    @cached_property
    def written(self) -> dict[str, msgspec.Raw]:
        jobs = {"job": self.job, "more": self.more} if self.more else {"job": self.job}
        return {name: msgspec.Raw(_encoder.encode(value)) for name, value in jobs.items()}

    def numbered_from(self, first: int, at: float) -> "JobSubmitted":
        """Return the fact of the same jobs with other numbers, at another time."""
        found = replace(self, id=first, at=at)
        found.__dict__.update(self.__dict__)
        return found

    def numbered(self) -> Iterator[tuple[int, Job]]:
        return enumerate([self.job, *self.more], self.id)


class JobCancelled(Fact, frozen=True):
    """Waiting tasks never start; running tasks are stopped. `indices` None means all.

    grace : seconds they have to end, if their framework stops them; None for that of job and queue
    by_admin : an administrator of the queue cancels, so no framework is charged for the end of its task
    """

    id: int
    indices: list[int] | None = None
    grace: float | None = None
    by_admin: bool = False


class JobHeld(Fact, frozen=True):
    """No task of it starts until it is released; running tasks continue."""

    id: int


class JobReleased(Fact, frozen=True):
    id: int


class JobsDue(Fact, frozen=True):
    """A time came that these jobs waited for, or failed tasks of them that start again later."""

    ids: list[int]


class JobEdited(Fact, frozen=True):
    """A request is changed; None leaves a field as it is. A `time_limit` or `at_most` of 0 removes it.

    While a job holds resources, its queue, demand, constraints, time limit and time to begin are fixed.
    """

    id: int
    queue: str | None = None
    demand: Quantities | None = None
    on: dict[str, list[str]] | None = None
    priority: int | None = None
    retries: int | None = None
    time_limit: float | None = None
    at_most: int | None = None
    begin: float | None = None

    def edited(self, job: Job) -> Job:
        """Return the job after this change."""
        changes = {name: value for name in EDITABLE if (value := getattr(self, name)) is not None}
        for name in ("time_limit", "at_most"):
            if name in changes:
                changes[name] = changes[name] or None
        return replace(job, **changes)


EDITABLE = ("queue", "demand", "on", "priority", "retries", "time_limit", "at_most", "begin")
FIXED_WHILE_RUNNING = ("queue", "demand", "on", "time_limit", "begin")


class TasksFact(Fact, frozen=True):
    """A fact about attempts of tasks."""

    job: Ints
    index: Ints
    attempt: Ints

    @property
    def attempts(self) -> Attempts:
        """The columns as engines take them."""
        return Attempts(self.job, self.index, self.attempt)


class TasksPlaced(TasksFact, frozen=True):
    """Decided: these tasks start on these nodes.

    more : True if others may start as well: the decisions of this moment go on
    """

    node: Ints
    more: bool = False


class TasksStarted(TasksFact, frozen=True):
    """They run; each started `ago` milliseconds before. Empty: at once.

    cards : the words of each one's cards (see :mod:`fairlead.model.cards`), one after another; empty if none has any
    """

    ago: Ints = field(default_factory=_unknown)
    cards: Ints = field(default_factory=_unknown)


class TasksFinished(TasksFact, frozen=True):
    """They have ended, with all processes they started.

    cpu, peak : CPU milliseconds and peak memory in bytes of each attempt; empty, or 0, if unknown
    ran : milliseconds each ran; empty, or 0, if unknown: then since its start
    calls, called : how many calls of a program each lease's worker made, and their milliseconds; empty: none
    """

    outcome: Ints
    code: Ints
    cpu: Ints = field(default_factory=_unknown)
    peak: Ints = field(default_factory=_unknown)
    ran: Ints = field(default_factory=_unknown)
    calls: Ints = field(default_factory=_unknown)
    called: Ints = field(default_factory=_unknown)

    def began(self, noted: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return when each attempt began: `ran` before the end if known, else the start that was noted (NaN: none).

        An end counts from when it was reported, since only then are the resources free.
        """
        return np.where(self.ran > 0, self.at - self.ran / 1000, noted) if len(self.ran) else noted


class TasksCheckpointed(TasksFact, frozen=True):
    """They saved their work `ago` milliseconds before. Work lost if they end now counts from then."""

    ago: Ints


class Claim(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What tasks are revoked for.

    job : whose next task, or whole gang, gets the resources; 0: they are offered to a framework of role `queue`
    why : "guarantee", "fair share", "priority" or "idle"
    queue : whose guarantee or fair share it is, or the leaf whose priorities count
    resource, has, of : how much the queue had of which resource, and its guarantee or fair share; base units
    oversized : for a guarantee, tasks may be among them that their own queues could not claim, though they fall below theirs
    """

    job: int
    why: str
    queue: str
    resource: str = ""
    has: int = 0
    of: int = 0
    oversized: bool = False


class Revocation(Struct, frozen=True, forbid_unknown_fields=True):
    """The last time tasks of a job were revoked for a claim: when, and for whom; and how many tasks so far."""

    at: float
    tasks: int
    claim: Claim


class TasksRevoked(TasksFact, frozen=True):
    """Decided: these tasks are stopped and go back to their jobs to start again.

    claim : for whom; None for the rest of a gang that lost a task, or if the scheduler is shutting down
    """

    claim: Claim | None = None


class TasksExpired(TasksFact, frozen=True):
    """Decided: these tasks reached their time limit; they are stopped, and have failed."""


class JobsPassedOver(Fact, frozen=True):
    """Decided: no room can be kept for these jobs now, though their queues are owed it; it is tried again later."""

    ids: list[int]


class NodesReserved(Fact, frozen=True):
    """Decided: resources for `tasks[k]` tasks of the job are reserved on `nodes[k]`.

    start : expected start, seconds; None (in older journals) means at once
    slips : how often the start was postponed
    apart : leaves whose tasks it does not rely on: what they free, other jobs of the leaf take
    number : which of the reservations of jobs like this one it is, or replaces; -1 (in older journals): it replaces all
    """

    id: int
    nodes: list[int]
    tasks: list[int]
    start: float | None = None
    slips: int = 0
    apart: list[str] = []
    number: int = -1


class ReservationDropped(Fact, frozen=True):
    """Decided: the job's reservation of this number (-1: all), or what is held for its claim, is dropped."""

    id: int
    number: int = -1


class NodesClaimed(Fact, frozen=True):
    """Decided: resources for `tasks[k]` tasks of the job's claim are held on `nodes[k]`, where victims free them.

    why : as in :class:`Claim`
    """

    id: int
    nodes: list[int]
    tasks: list[int]
    why: str


class SharesLooked(Fact, frozen=True):
    """Computed: the complete list of leaves with pending jobs that are below their fair share, or below a queue that is."""

    short: list[str]


class ClaimsPutOff(Fact, frozen=True):
    """No possible victims make room for the claims of these jobs; they are tried again at `until`.

    why : the first class of claims put off, as in :class:`Claim`; earlier classes are not. Empty: all
    """

    ids: list[int]
    until: float
    why: str = ""


class JobsForgotten(Fact, frozen=True):
    """Ended jobs that are removed from the state."""

    ids: list[int]


class FactsLost(Fact, frozen=True):
    """`count` facts were lost from a damaged journal that was repaired.

    Each may have been a job's, so as many job numbers are skipped: none is used twice.
    """

    count: int


class FrameworkSubscribed(Fact, frozen=True):
    """A framework subscribed, for the first time, again, or with a changed description. Its offers were rescinded before.

    suppressed : roles for which it wants no offers
    """

    id: str
    framework: Framework
    suppressed: list[str]


class FrameworkDisconnected(Fact, frozen=True):
    """Its tasks live on for its failover timeout. Its offers were rescinded before.

    not_before : it is not removed before this time, since it could not reconnect yet
    """

    id: str
    not_before: float = 0.0


class FrameworkGone(Fact, frozen=True):
    """It is removed. Its offers were rescinded before; facts that follow cancel its tasks."""

    id: str


class RolesSuppressed(Fact, frozen=True):
    """The framework wants no offers for these roles; it keeps those it has."""

    id: str
    roles: list[str]


class RolesRevived(Fact, frozen=True):
    """The framework wants offers for these roles again, also of what it refused."""

    id: str
    roles: list[str]


class OffersMade(Fact, frozen=True):
    """Decided: these resources are held for frameworks until they answer, and count as used by their roles."""

    offers: list[Offer]


class OffersAccepted(Fact, frozen=True):
    """A framework launches tasks in offers; JobSubmitted and TasksPlaced follow for them.

    ids : the offers, all of one node and role
    jobs : the numbers of the launched jobs
    parts : of the offers together, that each of these jobs takes of the resource of which it takes most
    left : what is left over; it is refused until `until`, or not at all if that is not after `at`
    left_apart : what is left over of reservations, by mark; likewise
    """

    framework: str
    ids: list[int]
    jobs: list[int]
    left: Quantities
    until: float
    left_apart: dict[str, Quantities] = field(default_factory=dict)
    parts: list[float] = field(default_factory=list)


class ResourcesReserved(Fact, frozen=True, tag="RoomSetApart"):
    """Resources of a node are reserved for a role, or unreserved, until the next such fact (Mesos: a reservation).

    amount : what moves from one reservation to another
    of, mark : the reservation it leaves, and the one it joins; empty for unreserved resources
    role : whose reservation it is; empty if unreserved
    said : its description; opaque to the scheduler
    whole : True for a volume, which one task at a time gets whole
    account : who answers for the framework that reserves it; empty for an operator, or where it is unreserved
    """

    node: int
    amount: Quantities
    of: str = ""
    mark: str = ""
    role: str = ""
    said: str = ""
    whole: bool = False
    account: str = ""


class OffersDeclined(Fact, frozen=True):
    """Offers were declined; until `until` the framework is offered no part of them in that role."""

    framework: str
    ids: list[int]
    until: float


class OffersRescinded(Fact, frozen=True):
    """Offers are withdrawn.

    why : "expired", "disconnected", "subscribed", "gone", "node lost", "node drained", "node changed", "others first",
        "limit" or "claimed"
    until : of expired ones, their framework is offered nothing of these nodes until then; 0 in older journals
    """

    ids: list[int]
    why: str
    until: float = 0.0


class TaskSaid(Fact, frozen=True):
    """The executor of a framework's task sent an update, which is forwarded to the framework.

    what : "starting" or "running"; or "ending", details of an end that is a fact of its own
    said, uuid : the update as sent, opaque to the scheduler, and its id, by which a repeated one is recognised
    """

    job: int
    what: str
    said: str
    uuid: str


class UpdatesAcknowledged(Fact, frozen=True):
    """Frameworks acknowledged update `updates[k]` of the task that is job `jobs[k]`: it is not sent again."""

    jobs: list[int]
    updates: list[int]


def _kinds_of(fact: type[Fact]) -> list[type[Fact]]:
    """Return the classes of facts, without those that only others derive from."""
    return [kind for below in fact.__subclasses__() for kind in _kinds_of(below)] or [fact]


AnyFact: Any = Union[tuple(_kinds_of(Fact))]  # noqa: UP007 of classes that are known at run time


_encoder = msgspec.json.Encoder(enc_hook=np.ndarray.tolist)
_decoder = msgspec.json.Decoder(AnyFact, dec_hook=lambda kind, value: np.asarray(value, dtype=np.int64))


def encode(fact: Fact) -> bytes:
    """Write a fact as one JSON object; its ``type`` is the tag of its class."""
    if isinstance(fact, JobSubmitted) and "written" in fact.__dict__:
        return _encoder.encode(replace(fact, **fact.written))
    return _encoder.encode(fact)


def decode(body: bytes) -> Fact:
    """Read what :func:`encode` wrote.

    Raises msgspec.ValidationError for JSON that is not a known fact (an unknown type or field, a value of the wrong type), and
    its base class DecodeError for anything that is not JSON.
    """
    return _decoder.decode(body)
