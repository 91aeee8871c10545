"""What the scheduler tells about jobs, tasks, queues and nodes: dictionaries with these keys, on every way out of it.

Quantities are in base units (bytes for memory and disk, thousandths for the rest), times are seconds since the epoch. Keys are
added in later versions, never renamed or taken away.
"""

from typing import Any, Literal

from typing_extensions import TypedDict  # pydantic reads those of `typing` from Python 3.12 on only

from fairlead.model.specs import JobStatus as JobStatus
from fairlead.model.specs import Quantities

TaskStatus = Literal[
    "waiting", "starting", "running", "stopping", "expiring", "revoking", "succeeded", "failed", "cancelled"
]


class AfterInfo(TypedDict):
    """A job that comes before, and how it must end."""

    job: int
    how: Literal["success", "failure", "end"]


class RevokedInfo(TypedDict):
    """When tasks of a job were revoked for others last, for which queue and why; `tasks` counts all of them so far."""

    at: float
    tasks: int
    queue: str
    text: str


class JobInfo(TypedDict):
    """A job: what was asked for, and how many of its tasks do what.

    `cpu_seconds` is what its tasks that ended have used together, `peak_memory` the most that one of them had, in bytes; None
    where that is not known.
    """

    id: int
    name: str
    queue: str
    user: str
    status: JobStatus
    tasks: int
    waiting: int
    running: int
    succeeded: int
    failed: int
    cancelled: int
    demand: Quantities
    on: dict[str, list[str]]
    priority: int
    gang: bool
    retries: int
    time_limit: float | None
    at_most: int | None
    exit_done: bool
    grace: float | None
    signal: str
    revocable: bool
    fit: str
    ray: bool
    revoked: "RevokedInfo | None"
    after: list[AfterInfo]
    cpu_seconds: float | None
    peak_memory: int | None
    argv: list[str]
    cwd: str
    submitted_at: float
    finished_at: float | None


class JobPage(TypedDict):
    """Jobs, newest first; `next` is the `before` of the page of older ones, None where this is the last."""

    jobs: list[JobInfo]
    next: int | None


class JobList(JobPage):
    """A page of jobs; `stalled` says why the scheduler takes nothing on, while it does not."""

    stalled: str | None


class TaskInfo(TypedDict):
    """A task of a job. `exit` and `reason` tell how its last attempt ended, as a shell would.

    `known_as` is what it finds in FAIRLEAD_INDEX and {index}: its index, or, where it repeats a task of another job, that one's.

    `cpu_seconds` and `peak_memory` are what its attempts that ended have used, and the most bytes that one of them had; None
    where that is not known. Of one that holds resources `expected_end` is when it will have ended, by even odds, and
    `cautious_end` by nine in ten; None where nothing is known. `checkpointed_at` is when one that runs has said last that it kept
    what it did.
    """

    index: int
    known_as: int
    status: TaskStatus
    attempt: int
    node: str | None
    exit: int | None
    reason: str | None
    cpu_seconds: float | None
    peak_memory: int | None
    started_at: float | None
    finished_at: float | None
    checkpointed_at: float | None
    expected_end: float | None
    cautious_end: float | None


class Health(TypedDict):
    """That it is ready, and how many seconds ago its thread ended a step and its engine was heard; `journal` is for how long
    that could not be written, and `output` for how long nothing could be kept where `output` in the configuration says, 0 while
    it can.
    """

    ok: bool
    step: float
    engine: float
    journal: float
    output: float


class TaskPage(TypedDict):
    """Tasks by index; `next` is the `first` of the next page, None where this is the last."""

    tasks: list[TaskInfo]
    next: int | None


class FairShare(TypedDict):
    """What a queue should have by weights, guarantees and limits, each resource by itself, in base units, rounded down.

    `steady` is among all queues; `instantaneous` among those that run or wait for something; `within_demand` as well, but nobody
    gets more than all that it runs and waits for, which leaves more to others.
    """

    steady: Quantities
    instantaneous: Quantities
    within_demand: Quantities


class QueueInfo(TypedDict):
    """A queue of the tree. Shares are of the whole cluster, divided by the queue's weight; over time, of what was used before.

    `offered` is what of the use is offered to frameworks, who have not answered; a leaf of a framework has its name.

    `claims` say of a leaf why others may be revoked for what waits there: guarantee, fair share, priority, idle; and "coming
    back" where they were.
    """

    name: str
    status: Literal["open", "draining", "removed"]
    policy: str | None
    used: Quantities
    offered: Quantities
    framework: str | None
    dominant_share: float
    share_over_time: float
    dominant_resource: str | None
    weight: dict[str, float]
    guarantee: Quantities
    limit: Quantities
    fair_share: FairShare
    max_tasks: int | None
    max_jobs: int | None
    strict: bool
    claims: list[str]
    running: int
    waiting: int


class QueueList(TypedDict):
    """The queue tree, parents before children."""

    queues: list[QueueInfo]


class FrameworkInfo(TypedDict):
    """A framework that is subscribed, or may come back: what its tasks use, and what it is offered and has not answered since.

    It `hoards` where others wait for what it does not answer. The text says what it waits for, in a line.
    """

    id: str
    name: str
    user: str
    principal: str
    roles: list[str]
    suppressed: list[str]
    status: Literal["connected", "away"]
    since: float
    away_since: float | None
    tasks: int
    used: Quantities
    offers: int
    offered: Quantities
    offered_since: float | None
    hoards: bool
    text: str


class FrameworkList(TypedDict):
    """The frameworks, in the order in which they came."""

    frameworks: list[FrameworkInfo]


class FairQueue(TypedDict):
    """A leaf queue that runs or waits for something. Shares are of the whole cluster.

    Where others, who had no less before it, were served while it waited, they are in `passed_over_for`; it waits since
    `waits_since`.
    """

    name: str
    dominant_share: float
    dominant_resource: str | None
    entitled: float | None
    status: Literal["fair", "below"]
    why: str
    running: int
    waiting: int
    waits_since: float | None
    passed_over_for: list[str]


class ReservationInfo(TypedDict):
    """Room that is kept for a job, for so many `tasks` on so many `nodes`, since `made`; at `start` they are expected to start.

    `why` is "reservation", or for what others are revoked: "guarantee", "fair share" or "priority". `slips` is how often the
    start was put off. `idle` is the free room that is kept from others now, in base units; `idled`, that over time: base units x
    hours.
    """

    job: int
    queue: str
    why: str
    made: float
    start: float
    slips: int
    nodes: int
    tasks: int
    idle: dict[str, int]
    idled: dict[str, float]


class FairnessInfo(TypedDict):
    """Whether what runs now is fair, within one task; `findings` name the property, whether it holds, and a witness.

    `fair` is null where it is at this moment, but some have waited while others, who had no less, were served: see the audit
    over time. `reservations` are what is kept for whom, and what that idles.
    """

    fair: bool | None
    queues: list[FairQueue]
    findings: list[dict[str, Any]]
    reservations: list[ReservationInfo]


class Amounts(TypedDict):
    """In hours of the whole cluster: half of it for two hours is one."""

    entitled: float
    short: float


class QueueOverTime(TypedDict):
    """What a leaf queue was entitled to and got while it had work: base units x hours of `resource`.

    `short` is the first less the second; `through` says of what it had less than its part, when it had, through what; so much
    of that as `made_up` was made up for at other times. `worked` and `waited` are seconds with work, and with work that waited.
    """

    name: str
    resource: str | None
    entitled: float
    got: float
    short: float
    status: Literal["wronged", "ahead", "even"]
    through: dict[str, float]
    made_up: float
    share_hours: Amounts
    worked: float
    waited: float


class StarvedInfo(TypedDict):
    """Nothing of `queue` was started from `since` to `until`; `others`, who had no less, were served all the same."""

    queue: str
    since: float
    until: float
    seconds: float
    through: str
    others: list[str]


class RevocationFault(TypedDict):
    """A revocation that was not as it must be: when, and how."""

    at: float
    text: str


class RevocationsInfo(TypedDict):
    """What was revoked for others: tasks by why, for how many claims, and seconds of the whole cluster that were lost by it."""

    claims: int
    tasks: dict[str, int]
    lost: float
    faults: list[RevocationFault]


class PromisesInfo(TypedDict):
    """All that was kept for somebody: how often, and the free room that lay idle for it, base units x hours and, as parts of the
    whole cluster, in hours of that.
    """

    count: int
    idled: dict[str, float]
    share_hours: float


class ReservationOverTime(TypedDict):
    """What was kept for a job from `made` to `until`, null while it is; `start` is when it was expected to start, as said last.

    `used` is whether the job started in it, false where it was dropped; `why`, `slips` and `idled` are as in ReservationInfo.
    """

    job: int
    queue: str
    why: str
    made: float
    until: float | None
    start: float
    slips: int
    used: bool | None
    idled: dict[str, float]
    share_hours: float


class OverTimeInfo(TypedDict):
    """Whether it was fair over time: each queue, most wronged first, who starved, and the shares over time of some.

    `promises` says what lay idle for all reservations, `reservations` tells those of them that idled most.

    `asked` are the seconds that were asked for; `complete` is false where facts before `since` are not kept any more. There
    were `looks`, one in each `every` seconds; 0: one at every moment. `error` is how far what was used, as looked at, is from
    what was used.
    """

    fair: bool
    since: float
    until: float
    asked: float
    complete: bool
    starved_after: float
    looks: int
    every: float
    error: float
    queues: list[QueueOverTime]
    starved: list[StarvedInfo]
    revocations: RevocationsInfo
    promises: PromisesInfo
    reservations: list[ReservationOverTime]
    series: dict[str, Any]


class UsedBy(TypedDict):
    """What one user's tasks in one queue used: of each resource what was asked for, base units x hours; `lost` of it by attempts
    that came to nothing. `tasks` attempts ended, `failed` of them by themselves; `cpu_hours` is what they really used,
    `peak_memory` the most that one had, in bytes.
    """

    queue: str
    user: str
    tasks: int
    failed: int
    asked: dict[str, float]
    lost: dict[str, float]
    cpu_hours: float
    peak_memory: int | None


class UsageInfo(TypedDict):
    """What was used from `since` to `until`; `complete` is false where the journal does not go back as far as was asked."""

    since: float
    until: float
    complete: bool
    usage: list[UsedBy]


class NodeInfo(TypedDict):
    """A node, and what is used of it."""

    name: str
    status: Literal["up", "draining", "lost"]
    capacity: Quantities
    used: Quantities
    labels: dict[str, str]
    tasks: int


class NodeListed(NodeInfo):
    """A node, and for how many seconds it is silent, where that is long: what is up, and not heard, is not known to be lost."""

    silent: float | None


class NodeList(TypedDict):
    """The nodes, in the order they joined."""

    nodes: list[NodeListed]


class OutputInfo(TypedDict):
    """Where what tasks wrote is kept beyond their nodes, of how many it is to be, and why nothing can be just now, if so."""

    url: str
    waiting: int
    trouble: str


class Status(TypedDict):
    """Whether the scheduler is well; `stalled` says why it takes nothing on, `position` is that of the last fact.

    `stalled_for` says for how many seconds the journal could not be written, 0 while it can.

    `urls` are where it answers, `you` is who it takes the caller for, `output` is None where none is kept beyond its node.
    """

    version: str
    pid: int
    urls: list[str]
    you: str
    stalled: str | None
    stalled_for: float
    output: OutputInfo | None
    position: int
    nodes: int
    jobs: int
    running: int


class Submitted(TypedDict):
    """The number of a job, its queue, and what its submitter should know."""

    id: int
    queue: str
    warning: str | None


class SubmittedMany(TypedDict):
    """One answer a job, in the order of the request."""

    jobs: list[Submitted]


class Changed(TypedDict):
    """Whether something changed by what was asked for; if not, it was so already."""

    changed: bool


class Edited(Changed):
    """Also what whoever changed a job should look at again, such as that no node could hold it now."""

    warning: str | None


class Reloaded(Changed):
    """Whether the configuration changed; whether accounts and groups are looked up anew; what in it is most likely not meant."""

    looked_up: bool
    doubts: list[str]


class InputTaken(TypedDict):
    """So many bytes of a task's standard input have come to its attempt `attempt`; `over` if it takes no more."""

    attempt: int
    taken: int
    over: bool


class Cancelled(TypedDict):
    """The jobs of which something was cancelled."""

    cancelled: list[int]


class TokenInfo(TypedDict):
    """A token, but for its secret: whose it is, until when it holds, what it is for (all where `queues` is None)."""

    id: str
    user: str
    created_at: float
    expires_at: float | None
    queues: list[str] | None
    read_only: bool


class NewToken(TokenInfo):
    """A token with its secret, which is told this once."""

    token: str


class TokenList(TypedDict):
    """Tokens, the oldest first."""

    tokens: list[TokenInfo]


class AuditEntry(TypedDict):
    """What somebody did, or was refused and why; about which job and queue, where it was about one that is still known."""

    at: float
    by: str
    what: str
    outcome: Literal["done", "refused"]
    why: str
    job: int | None
    queue: str | None


class AuditPage(TypedDict):
    """Who did what, the newest last; `next` is the `before` of what was earlier, None where nothing was."""

    log: list[AuditEntry]
    next: str | None


class Event(TypedDict):
    """What happened to a call: it runs, or how it ended, with its pickled result in base64 where that is small."""

    job: int
    index: int
    status: Literal["running", "succeeded", "failed", "cancelled"]
    exit: int | None
    reason: str | None
    size: int | None
    result: str | None


class Events(TypedDict):
    """Events of a session; ask on with this `epoch` and `next`."""

    epoch: str
    next: int
    events: list[Event]


class SessionInfo(TypedDict):
    """A session that was opened."""

    id: str


class WhenInfo(TypedDict):
    """When a job is expected to start, or would be, were it submitted; nothing bounds it where a moment is null.

    `queue` is the one that a job which is not submitted would go to; null for one that is.
    """

    job: int | None
    queue: str | None
    reason: Literal["expected", "never", "unknown", "running", "over"]
    text: str
    earliest: float | None
    latest: float | None
    runs: int
    held: list[int]
    warning: str | None


class Why(TypedDict):
    """What a job waits for; more keys with what the text is made of, by reason."""

    job: int
    reason: str
    text: str
    ahead: list[dict[str, Any]]
