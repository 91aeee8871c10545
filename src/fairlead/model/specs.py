"""Queues, nodes and jobs as plain immutable data in base units.

Facts contain them, so they are msgspec structs, and the journal stores them unchanged. Nothing here checks its input;
:mod:`fairlead.model.documents` checks outside input.
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Literal, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from fairlead.model.ranges import Range, number_at, ranges_of

T = TypeVar("T")
Constraints = tuple[tuple[str, tuple[str, ...]], ...]
"""Labels of nodes, each with the values that it may have; sorted."""
Quantities = dict[str, int]
"""Resource name to base units (see :mod:`fairlead.model.quantity`)."""
JobStatus = Literal["waiting", "held", "running", "succeeded", "failed", "cancelled"]

Ranges = list[tuple[int, int]]
"""Ranges of ports in order, each (first, last)."""
Policy = str
"""How an inner queue chooses among its children, such as drf, fifo or maxmin:RESOURCE."""
MOST_RANGES = 100
"""Ranges of a job's indices that are stored as such, at most."""
LEAST_WEIGHT = 1e-9
"""Least weight other than 0."""
Percent = dict[str, float]
"""Resource name to percent of the cluster's capacity."""
ALL = "*"
"""In such a table: all resources that are not named."""
ROOT = ""
"""Name of the root of the queue tree; shown as "/"."""
HALF_LIFE = 86400.0
"""Default half-life of past use, in seconds."""
NEVER = 2.0**62
"""Infinitely many seconds; JSON has no infinity."""
TERM = 15
"""SIGTERM, on all systems: the default signal to stop a task."""
OWN = "."
"""Last part of the name of the queue that stands for a role itself, beside those below it."""
JOBS = "jobs"
"""Last part of the name of the leaf for the jobs of a queue that is also a role."""
_JOBS_LEAF = f"/{OWN}/{JOBS}"
USERS = "*"
"""Last path segment that stands for each user: ``lab/*`` gives each user a leaf under ``lab``."""


class Spec(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A struct that is stored without its defaults. A reader refuses unknown fields."""


class Queue(Spec, frozen=True):
    """One queue of the tree, by its path.

    weight : one number, or one per resource (default 1); 0 only under YARN's policies.
    guarantee, limit : an absent limit is none. Percentages are of the cluster's current capacity, rounded down.
    largest_task : most that one task may demand; None inherits.
    policy : among the children; by default drf, or hdrf if the queue is itself a child of such a queue.
    history : half-life in seconds of the children's past use; 0 ignores it, None inherits.
    draining : True if neither this queue nor those below take new jobs. Their jobs continue.
    strict : True if no job of this leaf may pass the first pending one, by priority and then by number.

    The scheduler ignores the access rules; :mod:`fairlead.people.rules` says how they are inherited. They name people, groups
    (``@vision``) or everybody (``*``):

    submit : who may submit here.
    admin : who may change others' jobs.
    private : True hides the owners of jobs.

    The rest controls preemption; see :mod:`fairlead.scheduler.preemption.claims`. Seconds may be `NEVER`; None inherits.

    guarantee_timeout : seconds of pending below its guarantee before others are preempted for it.
    fair_share_timeout : the same, below `fair_share_threshold` times its fair share.
    revocable : True if tasks of this queue and those below may be preempted.
    min_runtime : seconds after their start for which its tasks are not preempted.
    grace : most seconds that its preempted tasks have to end.
    priority_revokes : True if a job preempts jobs of lower priority in the same leaf.
    borrow : most that it may use above its guarantee.
    lend : most of its unused guarantee that others may use; an absent resource: all of it.
    offer_most : most that one framework may be offered at once here, in percent of the capacity; None inherits.
    """

    name: str
    weight: float | dict[str, float] = 1.0
    guarantee: Quantities = field(default_factory=dict)
    limit: Quantities = field(default_factory=dict)
    max_jobs: int | None = None
    max_tasks: int | None = None
    policy: Policy = ""
    history: float | None = None
    draining: bool = False
    submit: list[str] | None = None
    admin: list[str] = field(default_factory=list)
    private: bool = False
    strict: bool = False
    guarantee_percent: Percent = field(default_factory=dict)
    limit_percent: Percent = field(default_factory=dict)
    largest_task: Quantities | None = None
    guarantee_timeout: float | None = None
    fair_share_timeout: float | None = None
    fair_share_threshold: float | None = None
    revocable: bool = True
    min_runtime: float | None = None
    grace: float | None = None
    priority_revokes: bool | None = None
    borrow: Quantities = field(default_factory=dict)
    lend: Quantities = field(default_factory=dict)
    offer_most: float | None = None


class Node(Spec, frozen=True):
    """A machine: its capacity and labels."""

    name: str
    capacity: Quantities
    labels: dict[str, str] = field(default_factory=dict)


class Call(Spec, frozen=True):
    """A worker that a program leases for calls of Python functions; or a folder that was sent.

    session : the program's session.
    payload : the program's number for the lease; or the file with the packed folder in the session's.
    fetch : None for a lease. Else patterns of files that come back: the work's command runs in the folder.
    """

    session: str
    payload: str
    fetch: list[str] | None = None


class Work(Spec, frozen=True):
    """What a task runs. The scheduler passes it to the engine unread.

    argv, cwd, env : their characters stand for bytes in ``encoding``; latin-1 can hold any bytes.
    numbered : True replaces ``{index}`` in arguments by the task's index.
    call : a leased worker, or a sent folder.
    export : name of the rest of the environment, which the journal does not store; empty for none.
    input : kind of the standard input that each task gets; empty for none.
    indices, array : the tasks' own indices, if not 0, 1, ...: as written, or those of failed tasks of another job that run again;
        one by one, or as a few ranges.
    values : lists of words. ``{1}``, ``{2}``, ... in arguments are words of them, as ``{}`` is of a single list: task 0 has the
        first of each, and the last list varies fastest.
    ray : True for a Ray program, run by the first task in a placement group over all tasks' resources.
    port : the port that it would like to listen on, 0 for any; None if people are not to reach it.
    idle : seconds without use after which a task ends; 0 for never.
    size : rows and columns of its terminal as it begins; empty for any.
    """

    argv: list[str] = field(default_factory=list)
    cwd: str = ""
    env: dict[str, str] = field(default_factory=dict)
    encoding: Literal["utf-8", "latin-1"] = "utf-8"
    numbered: bool = False
    call: Call | None = None
    export: str = ""
    input: Literal["", "pipe", "terminal"] = ""
    indices: list[int] = field(default_factory=list)
    array: list[Range] = field(default_factory=list)
    values: list[list[str]] = field(default_factory=list)
    ray: bool = False
    port: int | None = None
    idle: float = 0.0
    size: list[int] = field(default_factory=list)

    def with_indices(self, numbers: list[int]) -> "Work":
        """Return it with these own indices of its tasks."""
        ranges = ranges_of(numbers)
        if ranges == [(0, len(numbers) - 1, 1)]:
            return replace(self, indices=[], array=[])
        few = len(ranges) <= MOST_RANGES  # each look-up goes through them
        return replace(self, indices=[] if few else numbers, array=ranges if few else [])

    @property
    def own_indices(self) -> bool:
        """True if its tasks' own indices are not 0, 1, ...."""
        return bool(self.array or self.indices)

    def known_as(self, place: int) -> int:
        """Return the own index of the task at a place."""
        return number_at(self.array, place) if self.array else self.indices[place] if self.indices else place

    def places_of(self, numbers: Iterable[int], tasks: int) -> list[int]:
        """Return the places of the tasks with these own indices; -1 for those that it does not have."""
        if not self.own_indices:
            return [number if number < tasks else -1 for number in numbers]
        places = {self.known_as(place): place for place in range(tasks)}
        return [places.get(number, -1) for number in numbers]

    def values_of(self, index: int) -> list[str]:
        """Return the words of a task by its own index: one of each list."""
        found = []
        for words in reversed(self.values):
            index, place = divmod(index, len(words))
            found.append(words[place])
        return found[::-1]

    def readable(self, text: str) -> str:
        """Decode one of its strings for people."""
        return text.encode(self.encoding).decode("utf-8", "replace")


class After(Spec, frozen=True):
    """A dependency: another job that must end first, with success, with failure, or in any way; or start or end.

    With ``index``, each task waits only for the success of the other job's task of the same own index.
    """

    job: int
    how: Literal["success", "failure", "end", "start", "index"] = "success"


class Job(Spec, frozen=True):
    """A number of identical tasks in one leaf queue.

    on : node label to the accepted values. prefer : the same, for nodes that go before others.
    gang : True if all tasks start at once or none.
    retries : how often a failed task starts again.
    retry_delay : seconds before it starts again, which double with each failure, up to an hour.
    begin : time before which no task starts.
    singleton : True if it waits for all earlier jobs of its user and name to end.
    time_limit : seconds after which a task is stopped, and has failed.
    exit_done : True if a preempted task that exits 0 is done; by default it starts again.
    key, digest : the submitter's name for the submission, and a digest of its content: they identify a repeated submission.
    user : name that it is submitted under.
    uid, gid : account of the submitter; None if unknown.
    output_limit : bytes of output after which a task is stopped; None for no limit.
    at_most : most tasks that run at once; None for no bound.
    held : True if it waits to be released.
    grace, signal : seconds (at most the queue's) that a task has to end after it gets the signal; None: the queue's.
    revocable : True if it may use idle resources above its queues' limits; its tasks are the first victims.
    fit : node among those with room: the first, the fullest (``pack``) or the emptiest (``spread``). ``apart``: a node of its own
        for each task of a gang.
    led : True for a gang that ends with its first task. The others only hold resources, and then end well.
    group : a name that several jobs share, by which their owner selects them.
    note : True for a job that reports how others ended. Cancelling its queue spares it; cancelling it by number does not.

    Jobs of frameworks have one task, which starts at most once:

    framework, task : who launched it in an offer, and the framework's own name for it. executor : the framework's program that
    runs it; no engine starts it. The program is a job with this ``executor`` and no ``task``. info : the framework's
    description of either; the scheduler does not read it. apart : the part of the demand taken from reservations of its role,
    by their marks. ports : ports of its node that it has.
    """

    queue: str
    demand: Quantities
    tasks: int = 1
    on: dict[str, list[str]] = field(default_factory=dict)
    priority: int = 0
    gang: bool = False
    retries: int = 0
    retry_delay: float = 0.0
    time_limit: float | None = None
    exit_done: bool = False
    begin: float | None = None
    singleton: bool = False
    after: list[After] = field(default_factory=list)
    name: str = ""
    user: str = ""
    key: str = ""
    digest: str = ""
    work: Work = field(default_factory=Work)
    uid: int | None = None
    gid: int | None = None
    output_limit: int | None = None
    at_most: int | None = None
    held: bool = False
    grace: float | None = None
    signal: int = TERM
    revocable: bool = False
    framework: str = ""
    task: str = ""
    executor: str = ""
    info: str = ""
    fit: Literal["", "pack", "spread", "apart"] = ""
    prefer: dict[str, list[str]] = field(default_factory=dict)
    led: bool = False
    note: bool = False
    group: str = ""
    apart: dict[str, Quantities] = field(default_factory=dict)
    ports: Ranges = field(default_factory=list)

    @property
    def line(self) -> str:
        """Name the line of jobs in which a singleton waits."""
        return f"{self.user}\0{self.name}"

    @property
    def taken(self) -> Quantities:
        """A task's demand without what it takes from reservations."""
        if not self.apart:
            return self.demand
        found = dict(self.demand)
        for amounts in self.apart.values():
            for name, amount in amounts.items():
                found[name] -= amount
        return found

    @property
    def size(self) -> int:
        """Bytes of its command, folder, environment and labels."""
        work = self.work
        text = "".join(work.argv) + work.cwd
        if work.env or work.values or self.on or self.prefer:
            labels = (word for name, values in (*self.on.items(), *self.prefer.items()) for word in (name, *values))
            text += "".join((*work.env, *work.env.values(), *labels, *chain(*work.values)))
        return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))

    @property
    def is_led(self) -> bool:
        """True for a gang that ends with its first task."""
        return self.gang and self.led

    @property
    def runs_in_executor(self) -> bool:
        """True for a task inside a framework's executor, which no engine starts."""
        return bool(self.executor and self.task)


class Framework(Spec, frozen=True):
    """A program that takes offers and launches its own tasks in them.

    roles : the queues for which it gets offers; ``*`` if it names none
    revocable : True if its offers may exceed limits; its tasks are then the first victims
    failover_timeout : seconds that its tasks outlive its connection
    partition_aware : True if it gets more detailed statuses of lost tasks; the scheduler does not read it
    info : its own description, as JSON; the scheduler does not read it
    """

    name: str
    user: str = ""
    uid: int | None = None
    gid: int | None = None
    principal: str = ""
    roles: list[str] = field(default_factory=lambda: ["*"])
    revocable: bool = False
    failover_timeout: float = 0.0
    partition_aware: bool = False
    info: str = ""


class Offer(Spec, frozen=True):
    """Resources of one node (a row), promised to a framework in one of its roles until it answers. Ids count up.

    apart : resources from reservations, by their marks, in addition
    ports : ports of the node
    cost : seconds that its framework goes after all others, for each that it keeps all of the cluster from others; 0 if
        it does already: the offer gives way to others
    """

    id: int
    framework: str
    role: str
    node: int
    amount: Quantities
    apart: dict[str, Quantities] = field(default_factory=dict)
    ports: Ranges = field(default_factory=list)
    cost: float = 0.0


EVERYWHERE = "@default"
"""Key of the bounds on a person in all queues together."""


class Bounds(Spec, frozen=True):
    """Bounds on one person; None for no bound. The scheduler ignores them; :mod:`fairlead.people.bounds` applies them.

    requests : per second.
    streams : requests that wait for events, at once.
    programs : programs with Python calls, at once.
    jobs, tasks : jobs that have not ended, and their tasks.
    environment : bytes of these jobs' commands and environments.
    output_limit : bytes of output of one task.
    """

    requests: float | None = None
    streams: int | None = None
    programs: int | None = None
    jobs: int | None = None
    tasks: int | None = None
    environment: int | None = None
    output_limit: int | None = None


class Placement(Spec, frozen=True):
    """A rule for the queue of a job. The first rule that finds a queue decides; see :mod:`fairlead.people.placing`.

    by : the queue that was asked for, or the one named after the person, their first group, or another of their groups; empty:
        always ``queue``.
    create : True if the queue need not exist yet.
    own : True for the person's own queue below; with ``create_own`` it need not exist yet.
    not_asked : queue names that count as if no queue was asked for.
    dot : replacement in queue names for a dot in the name of a person or group.
    """

    by: Literal["", "asked", "user", "group", "groups"] = ""
    queue: str = ""
    create: bool = True
    own: bool = False
    create_own: bool = True
    not_asked: list[str] = field(default_factory=list)
    dot: str = "."


class Settings(Spec, frozen=True):
    """Settings of the scheduler that concern no single queue.

    reserve_after : deprecated, ignored; None if not given.
    max_losses : a task that is lost this often, with its node or its engine, has failed.
    keep_jobs : number of finished jobs to remember.
    operators : people and groups who may operate the whole scheduler, besides root.
    root_tasks : True if root may submit, and its tasks run as root, if tasks run as their users.
    bounds : by queue, and ``@default``.
    placement : rules for the queues of jobs, in order; without any, jobs go to the queue that they name.
    revoke : True if tasks are preempted for others below their share.
    offer_timeout : seconds that a framework has to answer an offer.
    offer_most : most that one framework may be offered at once, in percent of the cluster; None for no bound.
    ports : ports of each node to offer to frameworks.
    idle_budget : part of the cluster that may idle in room that is kept free for reservations, over a day; 0 for none.
    max_jobs_of : most jobs pending or running at once, by person, and ``*`` for all others.
    history : seconds for which the use of each day is remembered.
    """

    reserve_after: float | None = None
    max_losses: int = 3
    keep_jobs: int = 10_000
    operators: list[str] = field(default_factory=list)
    root_tasks: bool = False
    bounds: dict[str, Bounds] = field(default_factory=dict)
    placement: list[Placement] = field(default_factory=list)
    revoke: bool = True
    offer_timeout: float = 60.0
    offer_most: float | None = None
    max_jobs_of: dict[str, int] = field(default_factory=dict)
    ports: Ranges = field(default_factory=lambda: [(31000, 32000)])
    idle_budget: float = 0.02
    history: float = 90 * 86400.0


def path_to_root(name: str) -> list[str]:
    """Return a queue and those above it, up to the root."""
    return [name, *ancestors(name)]


def ancestors(name: str) -> list[str]:
    """Return the paths above a queue, nearest first, ending with the root: ``a/b/c`` gives ``a/b``, ``a``, ````."""
    parts = name.split("/") if name else []
    return ["/".join(parts[:i]) for i in range(len(parts) - 1, -1, -1)]


def parent_of(name: str) -> str:
    """Return the queue above a queue other than the root."""
    return name.rpartition("/")[0]


def with_ancestors(names: Iterable[str]) -> set[str]:
    """Return queues and all above them, the root included."""
    found, more = {ROOT}, {*names}
    while more:
        found |= more
        more = {parent_of(name) for name in more} - found
    return found


def inner_names(names: Iterable[str]) -> set[str]:
    """Return the queues with queues below them, and always the root."""
    return {ROOT, *map(parent_of, names)}


def written(name: str) -> str:
    """Return a queue's name for people."""
    return name or "/"


def settings_for(name: str, queues: Mapping[str, T]) -> T | None:
    """Find what is declared for a queue: its own, or that of the ``*`` beside it that stands for each user."""
    if name in queues or name == ROOT:
        return queues.get(name)
    return queues.get(f"{parent_of(name)}/{USERS}".lstrip("/"))


def holds_jobs_of(leaf: str) -> str:
    """Return the queue whose jobs a leaf holds: itself, or the role of a ``ROLE/./jobs``."""
    return leaf.removesuffix(_JOBS_LEAF)


def as_constraints(labels: dict[str, list[str]]) -> Constraints:
    """Return labels with the values that each may have as constraints."""
    return tuple(sorted([(label, tuple(sorted(values))) for label, values in labels.items()])) if labels else ()
