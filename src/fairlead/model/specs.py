"""What queues, nodes and jobs are, as plain immutable data in base units.

These travel inside facts, so they are msgspec structs: written to the journal and read back as they are. Nothing here
checks its input; :mod:`fairlead.model.documents` does, where it comes from outside.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct, field

Quantities = dict[str, int]
JobStatus = Literal["waiting", "held", "running", "succeeded", "failed", "cancelled"]
"""Resource name to base units (see :mod:`fairlead.model.quantity`)."""

Ranges = list[tuple[int, int]]
"""Numbers of ports, from the first to the last of each, in order."""

Policy = str
"""How an inner queue chooses among its children: drf, asset, fifo, priority, or maxmin:RESOURCE."""

LEAST_WEIGHT = 1e-9
"""But for 0, where that may be."""

Percent = dict[str, float]
"""Resource name to so many hundredths of what the cluster has of it."""

ALL = "*"
"""In such a table: each resource that is not named."""

ROOT = ""
"""The name of the root of the queue tree; written "/" for people."""

HALF_LIFE = 86400.0
"""Seconds after which half as much of what a queue used before counts, where nothing else is said."""

NEVER = 2.0**62
"""Seconds that are never over; JSON has no infinite numbers."""

TERM = 15
"""The number of SIGTERM, on all systems: what a task gets when it is told to stop, unless its job says another."""

USERS = "*"
"""A last path segment that stands for each user: ``lab/*`` gives everybody a leaf of their own under ``lab``."""


class Spec(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is written without its defaults, and read back by who knows each of its fields or not at all."""


class Queue(Spec, frozen=True):
    """One queue of the tree, by its path.

    A weight is one number or one per resource; a resource not named weighs 1. Under YARN's policies it may be 0. An absent
    limit is none. Guarantees and limits in percent are of what the cluster has at the moment, rounded down. A task of a job here
    may ask for ``largest_task`` at most, or for what the nearest queue above says. Without a policy its children share by drf, or
    by hdrf where it is itself one of those who do. What these used before counts with a
    half-life of ``history`` seconds; not at all where that is 0, and as among the children of the queue above where it is None.
    A queue that is ``draining`` takes no more jobs, nor do those below it; the jobs that it has go on.
    In a leaf that is ``strict`` no job passes the first that waits, by priority and then by number.

    ``submit`` and ``admin`` name people, groups (``@vision``) or everybody (``*``): who may submit here, and who may change
    others' jobs; ``private`` hides whose the jobs are. :mod:`fairlead.people.rules` says how they are inherited. The
    scheduler looks at none.

    The rest says when what others run is revoked for it, and what of its own may be: see
    :mod:`fairlead.scheduler.preemption`.
    Seconds are `NEVER` for never, and None as the queue above has them.

    guarantee_timeout : seconds below its guarantee, waiting, after which others are revoked for it.
    fair_share_timeout : the same below `fair_share_threshold` times its fair share.
    revocable : whether what it runs, or a queue below it, may be revoked for others.
    min_runtime : seconds that what it runs is left alone after its start.
    grace : seconds that what it runs has to end when it is revoked, at most.
    priority_revokes : whether a job of higher priority has others of the same leaf revoked.
    borrow : what it may use above its guarantee.
    lend : what others may use of its guarantee while it does not; None of a resource for all of it.
    offer_most : hundredths of what there is that one framework may be offered at once here; None as the queue above has it.
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
    """A machine: what it has, and what is known of it."""

    name: str
    capacity: Quantities
    labels: dict[str, str] = field(default_factory=dict)


class Call(Spec, frozen=True):
    """Python functions to call, one a task, for a program that waits for their results.

    session : the program's own; it has a folder, where the pickled functions are in a file named ``payload``.
    """

    session: str
    payload: str


class Work(Spec, frozen=True):
    """What a task runs. The scheduler carries it to the engine and never looks inside.

    The characters of ``argv``, ``cwd`` and ``env`` stand for bytes in ``encoding``; latin-1 stands for any bytes. Where it is
    ``numbered``, ``{index}`` in an argument stands for the task's index. A ``call`` runs in a worker process. ``export`` names
    what holds more of the environment, which is in no journal; empty for nothing. ``input`` is what each task reads as its
    standard input, where that is handed on to it. ``indices`` are what the tasks know themselves by, where that is not 0 and on:
    those of another job that failed there and run again. With ``ray`` it is a program of Ray, which the first task runs, in a
    placement group of the places of all.
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
    ray: bool = False

    def readable(self, text: str) -> str:
        """One of its strings as people read it."""
        return text.encode(self.encoding).decode("utf-8", "replace")


class After(Spec, frozen=True):
    """Another job that must have ended before: with success, with failure, or in any way."""

    job: int
    how: Literal["success", "failure", "end"] = "success"


class Job(Spec, frozen=True):
    """A number of identical tasks, in one leaf queue.

    ``on`` maps a node label to the values that will do. A ``gang`` starts all its tasks at once or none. A task that fails
    starts again up to ``retries`` times; one that runs for ``time_limit`` seconds is stopped and has failed.

    A task that is stopped to make room, and then exits 0, starts again, unless the job says ``exit_done``: then it is done.

    ``key`` is the submitter's own name for the submission, and ``digest`` a digest of all that was submitted by it: so it is
    known again when it is repeated.

    ``user`` is the name that it is submitted under, ``uid`` and ``gid`` are the account of who submitted it; None where that
    was not known.

    At most ``at_most`` of its tasks run at once; None for no such bound. One that is submitted ``held`` waits to be released.
    A task that is told to stop gets ``signal``, and has ``grace`` seconds to end, if its queue gives it as many; None as the
    queue has it. One that is ``revocable`` may go above the limits of its queues into what is idle, and is revoked before others.

    A task that writes more than ``output_limit`` bytes as its output is stopped; None for no limit.

    A gang that is ``led`` is over when its first task is: the others only hold room, and have ended well then.

    Its tasks go to the first node with room; by ``fit`` to the fullest of those (``pack``) or the emptiest (``spread``).

    What a ``framework`` launches in what it was offered is a job of one task, known to it as ``task``. It starts at most once.
    One with an ``executor`` runs within that program of the framework's: no engine starts it. The program itself is a job with
    the same ``executor`` and no ``task``. ``info`` is what the framework said of either; the scheduler does not look at it.

    A ``note`` tells somebody how others ended: it is not cancelled with all of its queue, but by its number only.
    Of its demand, ``apart`` is what it takes of parcels, by their marks: room that was set apart for its role before. Of its node
    it has these ``ports``.
    """

    queue: str
    demand: Quantities
    tasks: int = 1
    on: dict[str, list[str]] = field(default_factory=dict)
    priority: int = 0
    gang: bool = False
    retries: int = 0
    time_limit: float | None = None
    exit_done: bool = False
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
    fit: Literal["", "pack", "spread"] = ""
    led: bool = False
    note: bool = False
    apart: dict[str, Quantities] = field(default_factory=dict)
    ports: Ranges = field(default_factory=list)

    @property
    def taken(self) -> Quantities:
        """What a task takes of room that is free for all."""
        if not self.apart:
            return self.demand
        found = dict(self.demand)
        for amounts in self.apart.values():
            for name, amount in amounts.items():
                found[name] -= amount
        return found


class Framework(Spec, frozen=True):
    """A program that takes offers and launches tasks of its own in them.

    roles : the queues that it is offered for; ``*`` is a role of those who name none
    revocable : what it is offered may be above limits, and what it launches is revoked before others
    failover_timeout : seconds that its tasks live on after its connection is lost
    partition_aware : told more of tasks that are lost; the scheduler does not look at it
    info : what it says of itself, as JSON; the scheduler does not look at it
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
    """Resources of one node, by its row, promised to a framework in one of its roles until it answers. The ids count up.

    apart : what is promised of parcels besides, by their marks
    ports : of the node
    """

    id: int
    framework: str
    role: str
    node: int
    amount: Quantities
    apart: dict[str, Quantities] = field(default_factory=dict)
    ports: Ranges = field(default_factory=list)


EVERYWHERE = "@default"
"""Where bounds are said of what a person has in all queues together."""


class Bounds(Spec, frozen=True):
    """What one person may take; None where nothing is said. The scheduler looks at none; :mod:`fairlead.people.bounds` does.

    requests : a second.
    streams : requests that wait for something to happen, at once.
    programs : with Python calls, at once.
    jobs, tasks : jobs that have not ended, and their tasks.
    environment : bytes of the commands and environments of these.
    output_limit : bytes that one task may write as its output.
    """

    requests: float | None = None
    streams: int | None = None
    programs: int | None = None
    jobs: int | None = None
    tasks: int | None = None
    environment: int | None = None
    output_limit: int | None = None


class Placement(Spec, frozen=True):
    """A rule for the queue of a job; the first that finds one decides. :mod:`fairlead.people.placing` follows them.

    by : the queue that was asked for, the one named after the person, after their first group, or after another of their groups;
        empty for ``queue``, whoever it is.
    create : whether a queue will do that is not there yet.
    own : the person's own queue below the one that is found; with ``create_own`` also where that is not there yet.
    not_asked : names that count as if no queue was asked for.
    dot : what stands in the name of a queue for a dot in that of a person or group.
    """

    by: Literal["", "asked", "user", "group", "groups"] = ""
    queue: str = ""
    create: bool = True
    own: bool = False
    create_own: bool = True
    not_asked: list[str] = field(default_factory=list)
    dot: str = "."


class Settings(Spec, frozen=True):
    """How the scheduler behaves, whoever shares.

    reserve_after : seconds that a task may be passed over, for want of a hole, before a node is kept for it.
    max_losses : a task lost this many times, with its node or its engine, has failed.
    keep_jobs : finished jobs that are remembered.
    operators : people and groups who may do everything that concerns the whole, besides root.
    root_tasks : whether root may submit as others may, to have tasks run as root, where tasks run as people.
    bounds : by queue, and ``@default``.
    placement : rules for the queues of jobs, in order; without any, jobs go where they ask to.
    revoke : whether tasks are revoked for others who are below what is theirs.
    offer_timeout : seconds that a framework has to answer an offer.
    offer_most : hundredths of what the cluster has that one framework may be offered at once; None for any part.
    ports : of each node, those that frameworks are offered.
    max_jobs_of : by the name of a person, and ``*`` for all others: how many of their jobs may wait for room or run at once.
    """

    reserve_after: float = 30.0
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


def path_to_root(name: str) -> list[str]:
    """A queue and those above it, up to the root."""
    return [name, *ancestors(name)]


def ancestors(name: str) -> list[str]:
    """The paths above a queue, nearest first, ending with the root: ``a/b/c`` gives ``a/b``, ``a``, ````."""
    parts = name.split("/") if name else []
    return ["/".join(parts[:i]) for i in range(len(parts) - 1, -1, -1)]


def inner_names(names: Iterable[str]) -> set[str]:
    """The queues that have others below them; the root is one always."""
    return {ROOT, *(ancestors(name)[0] for name in names if name != ROOT)}


def written(name: str) -> str:
    """A queue's name as people read it."""
    return name or "/"


def settings_for(name: str, queues: Mapping[str, Queue]) -> Queue | None:
    """Find what was declared for a queue: itself, or the ``*`` beside it that stands for each user."""
    if name in queues or name == ROOT:
        return queues.get(name)
    parent, _, _ = name.rpartition("/")
    return queues.get(f"{parent}/{USERS}" if parent else USERS)
