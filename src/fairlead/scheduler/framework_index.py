"""Frameworks by id: what is known of them beside the tables, and the tasks they launched.

A role is a queue. Its frameworks share the queue ``ROLE/.``, a sibling of the queues below the role. There each framework has a
leaf of its own (``ROLE/./1``, ...), and jobs submitted to the role are in ``ROLE/./jobs``. So the usual keys decide among the
frameworks of a role, and between them and its jobs; kernels only know that a group may want whatever is free. The leaf of a
framework that is gone is reused, so that a thousand short-lived ones do not leave a thousand queues.
"""

from collections.abc import Container
from math import inf

from msgspec import Struct, field

from fairlead.model.specs import OWN, USERS, Framework, Quantities, Ranges

ANYBODYS = "default"
"""The queue of Mesos' role ``*``: of those who name no other."""
MOST_UPDATE_IDS = 100
"""Ids of updates remembered per task."""
MOST_GONE = 1000
"""Ids of removed frameworks remembered, so that one that subscribes again is refused."""


class Update(Struct, frozen=True):
    """A status update of a task, sent to its framework until acknowledged.

    number : of the task's updates, from 1
    what : "starting", "running", or its end: "finished", "failed", "killed", "lost" or "revoked"
    outcome, code : of an end, as in TasksFinished
    said : the executor's message; empty for none
    """

    number: int
    what: str
    at: float
    outcome: int = 0
    code: int = 0
    said: str = ""


class Launched(Struct):
    """A task that a framework launched: its job and node, and the updates that are not acknowledged.

    demand : what it takes
    told : number of the last update
    over : no update follows
    executor : name of the framework's executor that runs it; empty for a command
    last_words : message for its end, which is still to come
    heard : ids of the last updates received
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
    """Resources of a node reserved for a role: only offered to frameworks of the role and of roles below it.

    Its mark identifies it, including its role; opaque to the scheduler.

    amount : in total, of which tasks have `taken` some, and some is `offered`
    said, whole, account : as in ResourcesReserved
    since : when what is idle of it became idle, on average
    there : False while it does not count: its node is lost, or came back with too little
    """

    role: str
    amount: Quantities
    taken: Quantities = field(default_factory=dict)
    offered: Quantities = field(default_factory=dict)
    said: str = ""
    whole: bool = False
    there: bool = True
    account: str = ""
    since: float = 0.0

    @property
    def idle(self) -> Quantities:
        """What is neither taken nor offered."""
        gone = plus(self.taken, self.offered)
        found = {name: amount - gone.get(name, 0) for name, amount in self.amount.items()}
        return {name: amount for name, amount in found.items() if amount}


class RefusedReservation(Struct, frozen=True):
    """What a framework refused of the reservations of a node, by mark, until a time."""

    node: str
    apart: dict[str, Quantities]
    until: float


class Executor(Struct):
    """The job and node of a program that runs tasks of its framework: its unfinished `tasks`; and whether it has ended."""

    job: int
    framework: str
    name: str
    node: str
    tasks: list[int] = field(default_factory=list)
    over: bool = False


class Charge(Struct, frozen=True):
    """What a task owes for the offer it was launched in, until it has run as long as that was held.

    even_at : when it has
    cost : seconds that its framework goes last for each second less than that
    account : who answers for it; see `account_of`
    """

    even_at: float
    cost: float
    account: str


class Member(Struct):
    """A framework that is subscribed, or may come back.

    leaves : its leaf queue by role
    suppressed : roles for which it wants no offers
    since : when it first subscribed
    away_since : when its connection was lost; None while connected
    not_before : when it is removed at the earliest
    unanswered : offers it let expire since its last answer
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
        """When it is removed unless it comes back; inf while connected."""
        if self.away_since is None:
            return inf
        return max(self.not_before, self.away_since + self.framework.failover_timeout)


class Frameworks(Struct, dict=True, forbid_unknown_fields=True):
    """All known frameworks.

    members : by id, in the order they came
    tasks : by framework and its name for the task: those with unfinished or unacknowledged updates
    gone : ids of the last frameworks that were removed
    last_offer : id of the last offer
    void : offers that are void because their node is lost or shrank, by id, with the reason; not yet rescinded
    at : by leaf queue, its framework and role
    executors : by job, those that run or have unfinished tasks
    role_reservations : by node and mark
    offered_apart : by offer, what it includes of reservations, by mark
    refused_apart : by the leaf of the framework that refused
    ports, offered_ports : by node: the ports that tasks have, by job; and those that are offered, by offer
    graces : by job, seconds to end, for tasks and executors stopped by their framework
    charges : by job of a task or executor
    last_until : by account: until when frameworks that come to a role go after all others
    yielding : offers to rescind, since others may use what they hold
    task_of : by job, the framework and the name in `tasks`
    inside : by job of an unfinished task in an executor, the executor's job
    """

    members: dict[str, Member] = field(default_factory=dict)
    tasks: dict[str, dict[str, Launched]] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    last_offer: int = 0
    void: dict[int, str] = field(default_factory=dict)
    executors: dict[int, Executor] = field(default_factory=dict)
    role_reservations: dict[str, dict[str, RoleReservation]] = field(default_factory=dict, name="parcels")
    offered_apart: dict[int, dict[str, Quantities]] = field(default_factory=dict)
    refused_apart: dict[str, list[RefusedReservation]] = field(default_factory=dict)
    ports: dict[str, dict[int, Ranges]] = field(default_factory=dict)
    offered_ports: dict[str, dict[int, Ranges]] = field(default_factory=dict)
    graces: dict[int, float] = field(default_factory=dict)
    charges: dict[int, Charge] = field(default_factory=dict)
    last_until: dict[str, float] = field(default_factory=dict)
    yielding: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.inside = {task: number for number, executor in self.executors.items() for task in executor.tasks}
        self.at = {leaf: (who, role) for who, m in self.members.items() for role, leaf in m.leaves.items()}
        self._lowest: dict[str, int] = {}  # by the queue of a role: all leaves with lower numbers are taken
        self.task_of = {t.job: (who, task) for who, tasks in self.tasks.items() for task, t in tasks.items()}

    @property
    def have_tasks(self) -> bool:
        """True if any job may be a framework's task or executor, or use reservations or ports."""
        return bool(self.task_of or self.executors or self.role_reservations or self.ports or self.graces)

    def leave(self, who: str) -> None:
        """Remove a framework, and its updates."""
        member = self.members.pop(who)
        for leaf in member.leaves.values():
            self.free(leaf)
        for launched in self.tasks.pop(who, {}).values():
            self.task_of.pop(launched.job, None)
        self.gone = [*self.gone, who][-MOST_GONE:]

    def note(self, job: int, what: str, at: float, said: str = "", outcome: int = 0, code: int = 0) -> None:
        """Add an update for a task of a framework, if it still expects any."""
        who, task = self.task_of.get(job, ("", ""))
        if who:
            launched = self.tasks[who][task]
            launched.told += 1
            launched.updates.append(Update(launched.told, what, at, outcome, code, said))

    def end(self, job: int, what: str, at: float, outcome: int, code: int) -> None:
        """Note the end of a framework's task or executor; a task's update includes its last words."""
        self.graces.pop(job, None)
        who, task = self.task_of.get(job, ("", ""))
        if who:
            launched = self.tasks[who][task]
            self.note(job, what, at, launched.last_words, outcome, code)
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
        """Return the job of a framework's executor on a node, if any."""
        named = ((job, (each.framework, each.name, each.node)) for job, each in self.executors.items())
        return next((job for job, names in named if names == (who, name, node)), None)

    def acknowledge(self, job: int, update: int) -> None:
        """Remove an acknowledged update; and the task, if it has ended and has no other."""
        who, task = self.task_of[job]
        launched = self.tasks[who][task]
        launched.updates = [each for each in launched.updates if each.number != update]
        if launched.over and not launched.updates:
            del self.tasks[who][task], self.task_of[job]

    def free_leaf(self, role: str, busy: Container[str]) -> str:
        """Return a free name for a framework's leaf in a role; `busy` leaves are free, but still have tasks."""
        own = own_queue(role)
        number = self._lowest.get(own, 1)
        while f"{own}/{number}" in self.at:
            number += 1
        self._lowest[own] = number
        while (leaf := f"{own}/{number}") in self.at or leaf in busy:
            number += 1
        return leaf

    def free(self, leaf: str) -> None:
        self.at.pop(leaf, None)
        self._lowest.pop(leaf.rpartition("/")[0], None)


def account_of(framework: Framework) -> str:
    """Return who answers for a framework: its principal and the account of its connection, whatever it calls itself."""
    return f"{framework.principal}@{framework.uid}"


def plus(one: Quantities, other: Quantities, sign: int = 1) -> Quantities:
    """Return the sum or difference of amounts, without zeros."""
    found = {name: one.get(name, 0) + sign * other.get(name, 0) for name in one | other}
    return {name: amount for name, amount in found.items() if amount}


def queue_of(role: str) -> str:
    return ANYBODYS if role == USERS else role


def own_queue(role: str) -> str:
    """Return the queue that stands for a role itself."""
    return f"{queue_of(role)}/{OWN}"
