"""The dictionaries in which the scheduler reports jobs, tasks, queues and nodes, in the API, the commands and Python.

Quantities are in base units (bytes for memory and disk, thousandths for the rest); times are seconds since the epoch. Later
versions add keys, and never rename or remove one.
"""

from typing import Any, Literal

from typing_extensions import TypedDict  # pydantic reads those of `typing` only from Python 3.12 on

from fairlead.model import specs
from fairlead.model.specs import Quantities

JobStatus = specs.JobStatus
TaskStatus = Literal["waiting", "starting", "running", "stopping", "expiring", "revoking", "succeeded", "failed", "cancelled"]


class AfterInfo(TypedDict):
    """A job that must end first, and how."""

    job: int
    how: Literal["success", "failure", "end", "start", "index"]


class RevokedInfo(TypedDict):
    """The last preemption of a job's tasks: when, for which queue, and why; `tasks` counts all preempted so far."""

    at: float
    tasks: int
    queue: str
    text: str


class JobInfo(TypedDict):
    """A job: its specification, and its number of tasks by status.

    `indices` are the tasks' own indices as ranges such as `1-10,15`, cut if there are many; empty if they are 0, 1, ....

    `cpu_seconds` is the sum over its ended tasks; `peak_memory` is their maximum, in bytes. None if unknown.
    `calls` and `call_seconds` are those that the worker of a lease made until it ended; None for other jobs.
    """

    id: int
    name: str
    group: str
    queue: str
    user: str
    status: JobStatus
    tasks: int
    indices: str
    waiting: int
    running: int
    succeeded: int
    failed: int
    cancelled: int
    demand: Quantities
    on: dict[str, list[str]]
    prefer: dict[str, list[str]]
    priority: int
    gang: bool
    retries: int
    retry_delay: float
    time_limit: float | None
    at_most: int | None
    exit_done: bool
    grace: float | None
    signal: str
    revocable: bool
    fit: str
    ray: bool
    revoked: "RevokedInfo | None"
    begin: float | None
    singleton: bool
    after: list[AfterInfo]
    cpu_seconds: float | None
    peak_memory: int | None
    calls: int | None
    call_seconds: float | None
    argv: list[str]
    cwd: str
    submitted_at: float
    finished_at: float | None


class JobList(TypedDict):
    """A page of jobs, newest first; `stalled` says why the scheduler accepts no work, else None.

    `next` is the `before` of the next, older page; None on the last.
    """

    jobs: list[JobInfo]
    next: int | None
    stalled: str | None


class TaskInfo(TypedDict):
    """A task of a job.

    - `exit`, `reason`: how its last attempt ended, as a shell reports it.
    - `known_as`: its own index, as it was submitted: its FAIRLEAD_INDEX, and {index}.
    - `cpu_seconds`, `peak_memory`: sum and maximum (bytes) over its ended attempts; None if unknown.
    - `expected_end`, `cautious_end`: p50 and p90 of its end while it holds resources; None if unknown.
    - `checkpointed_at`: when the running task last reported a checkpoint.
    - `cards`: the accelerator cards of its node that its last attempt has, or had.
    """

    index: int
    known_as: int
    status: TaskStatus
    attempt: int
    node: str | None
    cards: list[int]
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
    """Health of the scheduler, in seconds.

    - `step`, `engine`: time since its thread ended a step, and since its engine answered.
    - `journal`, `output`: how long the journal could not be written, and output not be kept; 0 while they can.
    """

    ok: bool
    step: float
    engine: float
    journal: float
    output: float


class TaskPage(TypedDict):
    """Tasks by index; `next` is the `first` of the next page; None on the last."""

    tasks: list[TaskInfo]
    next: int | None


class FairShare(TypedDict):
    """A queue's fair share by weights, guarantees and limits, for each resource by itself; base units, rounded down.

    - `steady`: among all queues.
    - `instantaneous`: among queues with running or pending tasks.
    - `within_demand`: the same, but no queue gets more than its demand, which leaves more to others.
    """

    steady: Quantities
    instantaneous: Quantities
    within_demand: Quantities


class QueueInfo(TypedDict):
    """A queue of the tree. Shares are of the whole cluster, over the queue's weight; `share_over_time` is that of past use.

    - `offered`: the part of the use that is in open offers.
    - `guarantee`: `declared_guarantee`, scaled down if all together exceed what there is.
    - `framework`: the name of the framework whose leaf this is.
    - `claims`: why others may be preempted for a leaf's pending tasks: guarantee, fair share, priority, idle; "coming back" if
      they were.
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
    declared_guarantee: Quantities
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
    """A framework that is subscribed, or may come back: the use of its tasks, and its open offers.

    `hoards` is true if others wait for resources that it leaves unanswered. `text` says what it waits for, in one line.
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
    """The frameworks, in the order of their subscription."""

    frameworks: list[FrameworkInfo]


class FairQueue(TypedDict):
    """A leaf queue with running or pending tasks. Shares are of the whole cluster.

    `status` is "below" if it is short of what it is entitled to by more than the largest task, "envies" if it could run more with
    what another has, and "startable" if its tasks wait and a node has room.

    `turn` is its place among the queues that wait for room: 1 goes next; None if it waits for none.

    `passed_over_for` are queues with no smaller share that were served while this one waited, since `waits_since`.
    """

    name: str
    dominant_share: float
    dominant_resource: str | None
    entitled: float | None
    status: Literal["fair", "below", "envies", "startable"]
    why: str
    running: int
    waiting: int
    turn: int | None
    waits_since: float | None
    passed_over_for: list[str]


class ReservationInfo(TypedDict):
    """Resources kept since `made` for a job's `tasks` on `nodes` nodes. All should be free at `start`: null if nobody knows.

    - `why`: "reservation", or the reason to preempt others: "guarantee", "fair share" or "priority".
    - `slips`: how often the start was postponed; `status`: planned, or kept for a claim.
    - `idle`: free resources kept from others now, in base units; `idled`: the same over time, base units x hours.
    """

    job: int
    queue: str
    why: str
    made: float
    start: float | None
    slips: int
    status: str
    nodes: int
    tasks: int
    idle: dict[str, int]
    idled: dict[str, float]


class FairnessInfo(TypedDict):
    """The audit of the running tasks, within one task.

    - `fair`: null if the moment is fair, but some waited while others with no smaller share were served: see the audit over time.
    - `findings`: the property, whether it holds, and a witness.
    - `reservations`: the kept resources, their owners, and what they idle.
    """

    fair: bool | None
    queues: list[FairQueue]
    findings: list[dict[str, Any]]
    reservations: list[ReservationInfo]


class Amounts(TypedDict):
    """Amounts in hours of the whole cluster: half of it for two hours is 1."""

    entitled: float
    short: float


class QueueOverTime(TypedDict):
    """What a leaf queue was entitled to and got while it had work: base units x hours of `resource`.

    - `short`: `entitled` less `got`.
    - `through`: by cause, what it had less than its share; `made_up`: how much of that it got back at other times.
    - `worked`, `waited`: seconds with work, and with pending work.
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
    """Nothing of `queue` started from `since` to `until`, while `others` with no smaller share were served."""

    queue: str
    since: float
    until: float
    seconds: float
    through: str
    others: list[str]


class RevocationFault(TypedDict):
    """A preemption that broke a rule: when, and which."""

    at: float
    text: str


class RevocationsInfo(TypedDict):
    """Preemptions: the number of claims, the tasks by reason, and the loss in seconds of the whole cluster."""

    claims: int
    tasks: dict[str, int]
    lost: float
    faults: list[RevocationFault]


class PromisesInfo(TypedDict):
    """All reservations: their number, and the free resources that they idled, in base units x hours and in cluster hours."""

    count: int
    idled: dict[str, float]
    share_hours: float


class ReservationOverTime(TypedDict):
    """Resources kept for a job from `made` to `until` (null: still); `start` is its last expected start.

    `used` is true if the job started in them, false if they were dropped; `why`, `slips` and `idled` are as in ReservationInfo.
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
    """The audit over time.

    - `queues`: the most wronged first; `starved`: queues without starts; `series`: shares over time of some queues.
    - `promises`: what all reservations idled; `reservations`: those that idled most.
    - `asked`: seconds asked for; `complete`: false if facts before `since` are no longer kept.
    - `looks`, `every`: number of samples, and seconds between them (0: every moment); `error`: error of the sampled use.
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
    """Use of one user's tasks in one queue; `day` (such as 2026-11-25, UTC) and `job` are None unless asked for.

    - `tasks`: ended attempts; `failed`: those that failed by themselves; `waiting`: pending tasks at the end of the time.
    - `asked`: requested resources, base units x hours; `lost`: the part of attempts without a result.
    - `cpu_hours`: CPU time really used; `peak_memory`: the maximum of one attempt, in bytes.
    - `calls`, `call_hours`: Python calls that leased workers made, and their time.
    - `entitled`, `got`: of the queue, in dominant shares of the cluster x hours; in one of its rows.
    """

    queue: str
    user: str
    day: str | None
    job: int | None
    tasks: int
    failed: int
    waiting: int
    asked: dict[str, float]
    lost: dict[str, float]
    cpu_hours: float
    peak_memory: int | None
    calls: int
    call_hours: float
    entitled: float
    got: float


class UsageInfo(TypedDict):
    """Use from `since` to `until`; `complete` is false if it is not known from when it was asked for.

    A time before the facts that are kept is known by whole days.
    """

    since: float
    until: float
    complete: bool
    usage: list[UsedBy]


class NodeInfo(TypedDict):
    """A node and its use."""

    name: str
    status: Literal["up", "draining", "lost"]
    capacity: Quantities
    used: Quantities
    labels: dict[str, str]
    tasks: int


class CardInfo(TypedDict):
    """An accelerator card of a node, by the number that tasks see, and the task that has it.

    `draining` cards take no more tasks; `drained` ones are free of any. The job is None where the caller may not see it.

    `busy` is the part of a second in which it worked, measured a few seconds before, and its memory is in bytes, as NVML reports
    both; None if unknown.
    """

    card: int
    status: Literal["free", "used", "draining", "drained"]
    job: int | None
    task: int | None
    queue: str | None
    user: str | None
    busy: float | None
    memory_used: int | None
    memory: int | None


class NodeListed(NodeInfo):
    """A node and its cards; `silent` is for how many seconds it has not answered, if that is long. It need not be lost.
    `unheard` is how many seconds ago the scheduler started, if the node has not said since then what runs there.

    Of a node that connects to the scheduler also the seconds since its last message, the version of fairlead there, and the
    seconds that its clock is ahead of the scheduler's; else None.
    """

    silent: float | None
    unheard: float | None
    heard: float | None
    version: str | None
    clock_ahead: float | None
    cards: list[CardInfo]


class NodeList(TypedDict):
    """The nodes, in the order in which they joined."""

    nodes: list[NodeListed]


class OutputInfo(TypedDict):
    """Where tasks' output is kept beyond their nodes, how many tasks wait for that, and what prevents it, if anything."""

    url: str
    waiting: int
    trouble: str


class Status(TypedDict):
    """The status of the scheduler.

    - `urls`: its addresses; `you`: the caller's name.
    - `stalled`: why it accepts no work, else None; `stalled_for`: seconds for which the journal could not be written, 0 while
      it can.
    - `output`: None if no output is kept beyond its node.
    - `position`: number of the last fact.
    - `elastic`: whether other machines may be nodes.
    """

    version: str
    pid: int
    elastic: bool
    urls: list[str]
    you: str
    stalled: str | None
    stalled_for: float
    output: OutputInfo | None
    position: int
    nodes: int
    jobs: int
    running: int
    waiting: int


class Submitted(TypedDict):
    """The number of a job, its queue, and a warning for its submitter."""

    id: int
    queue: str
    warning: str | None


class SubmittedMany(TypedDict):
    """One answer per job, in the order of the request."""

    jobs: list[Submitted]


class Changed(TypedDict):
    """`changed` is false if the requested state existed already."""

    changed: bool


class Edited(Changed):
    """Also a warning about the changed job, such as that no node can hold it."""

    warning: str | None


class Reloaded(Changed):
    """Also `looked_up`: accounts and groups are looked up again; `doubts`: probable mistakes in the configuration; `not_taken`:
    what of it takes a restart.
    """

    looked_up: bool
    doubts: list[str]
    not_taken: list[str]


class InputTaken(TypedDict):
    """`taken` bytes of a task's standard input have reached its attempt `attempt`; `over` if it accepts no more."""

    attempt: int
    taken: int
    over: bool


class TaskPort(TypedDict):
    """The port of a running task, or 0."""

    port: int


class StreamPiece(TypedDict):
    """A piece of a stream's output, in base64; the last one is `over`, with the exit status of a program."""

    number: int
    out: str
    err: str
    over: bool
    exit: int | None


class Cancelled(TypedDict):
    """The jobs with cancelled tasks."""

    cancelled: list[int]


class TokenInfo(TypedDict):
    """A token without its secret: its user, its expiry, and its queues (None: all)."""

    id: str
    user: str
    created_at: float
    expires_at: float | None
    queues: list[str] | None
    read_only: bool


class NewToken(TokenInfo):
    """A token with its secret, which is shown only once."""

    token: str


class NewNodeToken(TypedDict):
    """A token for a machine that joins, and where it joins, as HOST:PORT."""

    token: str
    address: str


class TokenList(TypedDict):
    """Tokens, oldest first."""

    tokens: list[TokenInfo]


class PageCode(TypedDict):
    """A code that signs a browser in to the page at `url`, once, within `seconds`."""

    url: str
    code: str
    seconds: float


class AuditEntry(TypedDict):
    """An entry of the audit log: what a person did, or was refused and why; `job` and `queue` if they are still known."""

    at: float
    by: str
    what: str
    outcome: Literal["done", "refused"]
    why: str
    job: int | None
    queue: str | None


class AuditPage(TypedDict):
    """The audit log, newest last; `next` is the `before` of the earlier page; None on the first."""

    log: list[AuditEntry]
    next: str | None


class Event(TypedDict):
    """An event of a lease: it runs, waits again, is due to end between two calls, or how it ended.

    If it runs or waits again, `reason` is how its last attempt ended: "lost" or "preempted". One that is `preempted` will be
    cancelled: its program did not hear in time that it or others of its leases are due.
    """

    job: int
    index: int
    status: Literal["running", "waiting", "due", "preempted", "succeeded", "failed", "cancelled"]
    exit: int | None
    reason: str | None


class Events(TypedDict):
    """Events of a session; pass `epoch` and `next` to the next request. `relays` is True if some wait for the program."""

    epoch: str
    next: int
    events: list[Event]
    relays: bool


class SessionInfo(TypedDict):
    """A new session."""

    id: str


class WhenInfo(TypedDict):
    """When a job, submitted or not, is expected to start; a null moment is unbounded.

    `queue` is the queue that an unsubmitted job would go to; null for a submitted one.
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
    """Why a job is pending; by `reason`, more keys with the values in the text."""

    job: int
    reason: str
    text: str
    ahead: list[dict[str, Any]]
