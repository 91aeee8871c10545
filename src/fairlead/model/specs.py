"""What queues, nodes and jobs are, as plain immutable data in base units.

These travel inside facts, so they are msgspec structs: written to the journal and read back as they are. Nothing here
checks its input; :mod:`fairlead.model.documents` does, where it comes from outside.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct, field

Quantities = dict[str, int]
"""Resource name to base units (see :mod:`fairlead.model.quantity`)."""

Policy = str
"""How an inner queue chooses among its children: drf, asset, fifo, priority, or maxmin:RESOURCE."""

ROOT = ""
"""The name of the root of the queue tree; written "/" for people."""

HALF_LIFE = 86400.0
"""Seconds after which half as much of what a queue used before counts, where nothing else is said."""

USERS = "*"
"""A last path segment that stands for each user: ``lab/*`` gives everybody a leaf of their own under ``lab``."""


class Spec(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is written without its defaults, and read back by who knows each of its fields or not at all."""


class Queue(Spec, frozen=True):
    """One queue of the tree, by its path.

    A weight is one number or one per resource; a resource not named weighs 1. An absent limit is none. Without a policy
    its children share by drf, or by hdrf where it is itself one of those who do. What these used before counts with a
    half-life of ``history`` seconds; not at all where that is 0, and as among the children of the queue above where it is None.
    A queue that is ``draining`` takes no more jobs, nor do those below it; the jobs that it has go on.

    ``submit`` and ``admin`` name people, groups (``@vision``) or everybody (``*``): who may submit here, and who may change
    others' jobs; ``private`` hides whose the jobs are. :mod:`fairlead.people.rules` says how they are inherited. The
    scheduler looks at none.
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
    ``numbered``, ``{index}`` in an argument stands for the task's index. A ``call`` runs in a worker process.
    """

    argv: list[str] = field(default_factory=list)
    cwd: str = ""
    env: dict[str, str] = field(default_factory=dict)
    encoding: Literal["utf-8", "latin-1"] = "utf-8"
    numbered: bool = False
    call: Call | None = None

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


class Settings(Spec, frozen=True):
    """How the scheduler behaves, whoever shares.

    reserve_after : seconds that a task may be passed over, for want of a hole, before a node is kept for it.
    max_losses : a task lost this many times, with its node or its engine, has failed.
    keep_jobs : finished jobs that are remembered.
    operators : people and groups who may do everything that concerns the whole, besides root.
    root_tasks : whether root may submit as others may, to have tasks run as root, where tasks run as people.
    """

    reserve_after: float = 30.0
    max_losses: int = 3
    keep_jobs: int = 10_000
    operators: list[str] = field(default_factory=list)
    root_tasks: bool = False


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
    if name in queues:
        return queues[name]
    parent, _, _ = name.rpartition("/")
    return queues.get(f"{parent}/{USERS}" if parent else USERS)
