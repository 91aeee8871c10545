"""Frameworks by their ids: what is known of them beside the tables, and of the tasks that they launched.

A role is a queue. What frameworks have in it is in the queue ``ROLE/.``, which stands beside the queues below the role as one
of them; each framework has a leaf of its own in it, ``ROLE/./1`` and so on, and jobs that are submitted to the role are in
``ROLE/./jobs``. So among the frameworks of a role, and between them and its jobs, the same keys decide as everywhere; all that
kernels know of frameworks is that a group may want whatever there is. The leaf of a framework that is gone is another's later:
else a thousand short-lived ones would leave a thousand queues.
"""

from collections.abc import Container
from math import inf

from msgspec import Struct, field
from msgspec.structs import replace

from fairlead.model.specs import USERS, Framework, Quantities, Ranges

OWN = "."
"""The last part of the name of the queue that stands for a role itself, beside those below it."""
JOBS = "jobs"
"""The last part of the name of the leaf for the jobs of a queue that is a role of frameworks as well."""
ANYBODYS = "default"
"""The queue that Mesos' role ``*`` is: of those who name no other."""
MOST_HEARD = 100
"""So many names of what was said of a task are remembered."""
MOST_GONE = 1000
"""So many ids of frameworks that are gone are remembered, at most; who comes back with one is told so."""


class Update(Struct, frozen=True):
    """What became of a task, as its framework is told until it says that it knows.

    number : from 1 on, of the task's updates
    what : "starting", "running", or its end: "finished", "failed", "killed", "lost" or "revoked"
    outcome, code : of an end, as in TasksFinished
    said : what was said of it by what runs the task; empty for nothing
    """

    number: int
    what: str
    at: float
    outcome: int = 0
    code: int = 0
    said: str = ""


class Launched(Struct):
    """A task that a framework launched: the job that it is, where, and the updates that are not acknowledged.

    demand : what it takes
    told : the number of the last update that there was
    over : there will be no more
    executor : the program of the framework's that it runs in; empty for a command
    last_words : what was said of its end, which has not come yet
    heard : names of what was said of it, the last ones
    """

    job: int
    node: str
    role: str
    demand: Quantities
    at: float
    updates: list[Update] = field(default_factory=list)
    told: int = 0
    over: bool = False
    executor: str = ""
    last_words: str = ""
    heard: list[str] = field(default_factory=list)


class RoleReservation(Struct):
    """Room of a node that is set apart for a role: it is offered to the role's frameworks only, and to those of roles below.

    The mark that it is known by says whose it is, and what else tells it from others; the scheduler does not look into it.

    amount : in all, of which tasks have `taken` some, and some is `offered`
    said, whole : as in ResourcesReserved
    there : whether it counts; not while its node is lost, or has come back with too little
    """

    role: str
    amount: Quantities
    taken: Quantities = field(default_factory=dict)
    offered: Quantities = field(default_factory=dict)
    said: str = ""
    whole: bool = False
    there: bool = True

    @property
    def idle(self) -> Quantities:
        """What nobody has of it, nor is offered."""
        gone = plus(self.taken, self.offered)
        found = {name: amount - gone.get(name, 0) for name, amount in self.amount.items()}
        return {name: amount for name, amount in found.items() if amount}


class RefusedApart(Struct, frozen=True):
    """What a framework does not want of the role_reservations of a node, by their marks, until a moment."""

    node: str
    apart: dict[str, Quantities]
    until: float


class Executor(Struct):
    """A program of a framework's that runs tasks in itself: the job that it is, where, and whether it has ended.

    tasks : the jobs of those that are not over
    """

    job: int
    framework: str
    name: str
    node: str
    tasks: list[int] = field(default_factory=list)
    over: bool = False


class Member(Struct):
    """A framework that is subscribed, or may come back.

    leaves : by role, its leaf queue
    suppressed : roles for which it wants no offers
    since : when it came
    away_since : when its connection was lost; None while it is there
    not_before : when it is gone for that at the soonest
    unanswered : offers that it let expire since it answered one last
    """

    framework: Framework
    leaves: dict[str, str]
    suppressed: list[str]
    since: float
    away_since: float | None = None
    unanswered: int = 0
    not_before: float = 0.0

    @property
    def gone_at(self) -> float:
        """When it is gone unless it comes back; for ever while it is there."""
        if self.away_since is None:
            return inf
        return max(self.not_before, self.away_since + self.framework.failover_timeout)


class Frameworks(Struct, dict=True, forbid_unknown_fields=True):
    """All frameworks that are known.

    Attributes
    ----------
    members : dict of str to Member
        By id, in the order in which they came.
    tasks : dict of str to dict of str to Launched
        By framework and the framework's own name for the task: those that are not over, or of which it has not acknowledged all.
    gone : list of str
        Ids that nobody has any more, the last ones.
    last_offer : int
        The id of the last offer that was made.
    void : dict of int to str
        Offers on nodes that are lost or have less than they had, by id, with the reason: nobody was told yet.
    at : dict of str to tuple of str and str
        By leaf queue, whose it is: the framework and the role.
    executors : dict of int to Executor
        By the number of the job, those that run, or have tasks yet that are not over.
    role_reservations : dict of str to dict of str to RoleReservation
        By node and mark.
    offered_apart : dict of int to dict of str to Quantities
        By the id of an offer that has some, what it offers of role_reservations, by their marks.
    refused_apart : dict of str to list of RefusedApart
        By the leaf of the framework that refused it.
    ports, offered_ports : dict of str to dict of int to Ranges
        By node, the ports that tasks have, by the number of the job; and those that are offered, by the id of the offer.
    graces : dict of int to float
        By the number of the job, the seconds that tasks and executors have to end which their framework stopped.
    task_of : dict of int to tuple of str and str
        By the number of the job, the framework and the name of the task in `tasks`.
    inside : dict of int to int
        By the number of the job of a task that runs within an executor and is not over, the number of the executor's.
    """

    members: dict[str, Member] = field(default_factory=dict)
    tasks: dict[str, dict[str, Launched]] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    last_offer: int = 0
    void: dict[int, str] = field(default_factory=dict)
    executors: dict[int, Executor] = field(default_factory=dict)
    role_reservations: dict[str, dict[str, RoleReservation]] = field(default_factory=dict, name="parcels")
    offered_apart: dict[int, dict[str, Quantities]] = field(default_factory=dict)
    refused_apart: dict[str, list[RefusedApart]] = field(default_factory=dict)
    ports: dict[str, dict[int, Ranges]] = field(default_factory=dict)
    offered_ports: dict[str, dict[int, Ranges]] = field(default_factory=dict)
    graces: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.inside = {task: number for number, executor in self.executors.items() for task in executor.tasks}
        self.at = {leaf: (who, role) for who, m in self.members.items() for role, leaf in m.leaves.items()}
        self._lowest: dict[str, int] = {}  # by the queue of a role, a number below which all leaves are somebody's
        self.task_of = {t.job: (who, task) for who, tasks in self.tasks.items() for task, t in tasks.items()}

    def copy(self) -> "Frameworks":
        """Another that knows the same."""
        members = {
            who: replace(m, leaves=dict(m.leaves), suppressed=list(m.suppressed)) for who, m in self.members.items()
        }
        tasks = {
            who: {task: replace(t, updates=list(t.updates), heard=list(t.heard)) for task, t in of.items()}
            for who, of in self.tasks.items()
        }
        executors = {number: replace(each, tasks=list(each.tasks)) for number, each in self.executors.items()}
        role_reservations = {
            node: {mark: replace(p, taken=dict(p.taken), offered=dict(p.offered)) for mark, p in here.items()}
            for node, here in self.role_reservations.items()
        }
        offered, refused = dict(self.offered_apart), {leaf: list(each) for leaf, each in self.refused_apart.items()}
        known = list(self.gone), self.last_offer, dict(self.void)
        taken, promised = (
            {node: dict(each) for node, each in held.items()} for held in (self.ports, self.offered_ports)
        )
        graces = dict(self.graces)
        return Frameworks(
            members, tasks, *known, executors, role_reservations, offered, refused, taken, promised, graces
        )

    def executors_by_place(self) -> dict[tuple[str, str], list[str]]:
        """The names of the executors that each framework has on each node."""
        found: dict[tuple[str, str], list[str]] = {}
        for each in self.executors.values():
            found.setdefault((each.framework, each.node), []).append(each.name)
        return found

    @property
    def have_tasks(self) -> bool:
        """Whether any job that is not over, or of which a framework is told, is one's, or may have room of a reservation, or ports."""
        return bool(self.task_of or self.executors or self.role_reservations or self.ports or self.graces)

    def leave(self, who: str) -> None:
        """A framework is gone, and so is what it was to be told."""
        member = self.members.pop(who)
        for leaf in member.leaves.values():
            self.free(leaf)
        for launched in self.tasks.pop(who, {}).values():
            self.task_of.pop(launched.job, None)
        self.gone = [*self.gone, who][-MOST_GONE:]

    def note(self, job: int, what: str, at: float, said: str = "") -> None:
        """Something became of a task of a framework; nothing where nobody is to be told."""
        who, task = self.task_of.get(job, ("", ""))
        if who:
            launched = self.tasks[who][task]
            launched.told += 1
            launched.updates.append(Update(launched.told, what, at, said=said))

    def end(self, job: int, what: str, at: float, outcome: int, code: int) -> None:
        """A task of a framework has ended, or an executor; the task with what was said of that before."""
        self.graces.pop(job, None)
        who, task = self.task_of.get(job, ("", ""))
        if who:
            launched = self.tasks[who][task]
            launched.told += 1
            launched.updates.append(Update(launched.told, what, at, outcome, code, launched.last_words))
            launched.over, launched.last_words = True, ""
        if job in self.executors:
            self.executors[job].over = True
        within = self.inside.pop(job, job)
        executor = self.executors.get(within)
        if executor is not None:
            executor.tasks = [each for each in executor.tasks if each != job]
            if executor.over and not executor.tasks:
                del self.executors[within]

    def executor_on(self, who: str, name: str, node: str) -> int | None:
        """The number of the job that a framework's executor is on a node; None where there is none."""
        return next(
            (
                job
                for job, each in self.executors.items()
                if (each.framework, each.name, each.node) == (who, name, node)
            ),
            None,
        )

    def acknowledge(self, job: int, update: int) -> None:
        """A framework knows an update; a task that is over, of which it knows all, is kept no longer."""
        who, task = self.task_of[job]
        launched = self.tasks[who][task]
        launched.updates = [each for each in launched.updates if each.number != update]
        if launched.over and not launched.updates:
            del self.tasks[who][task], self.task_of[job]

    def free_leaf(self, role: str, busy: Container[str]) -> str:
        """A name for the leaf of a framework more in a role; those that are `busy` are nobody's, and still have tasks."""
        own = own_queue(role)
        number = self._lowest.get(own, 1)
        while f"{own}/{number}" in self.at:
            number += 1
        self._lowest[own] = number
        while (leaf := f"{own}/{number}") in self.at or leaf in busy:
            number += 1
        return leaf

    def free(self, leaf: str) -> None:
        """A leaf is nobody's any more."""
        self.at.pop(leaf, None)
        self._lowest.pop(leaf.rpartition("/")[0], None)


def holds_jobs_of(leaf: str) -> str:
    """The queue whose jobs a leaf is for: itself, but for one that a queue has for its jobs beside others below it."""
    return leaf.removesuffix(f"/{OWN}/{JOBS}")


def plus(one: Quantities, other: Quantities, sign: int = 1) -> Quantities:
    """The sum of amounts, or their difference, without what is nothing."""
    found = {name: one.get(name, 0) + sign * other.get(name, 0) for name in one | other}
    return {name: amount for name, amount in found.items() if amount}


def queue_of(role: str) -> str:
    """The queue that a role is."""
    return ANYBODYS if role == USERS else role


def own_queue(role: str) -> str:
    """The queue that stands for a role itself."""
    return f"{queue_of(role)}/{OWN}"
