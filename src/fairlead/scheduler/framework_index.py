"""Frameworks by their ids: what is known of them beside the tables, and of the tasks that they launched.

A role is a queue. What frameworks have in it is in the queue ``ROLE/.``, which stands beside the queues below the role as one
of them; each framework has a leaf of its own in it, ``ROLE/./1`` and so on, and jobs that are submitted to the role are in
``ROLE/./jobs``. So among the frameworks of a role, and between them and its jobs, the same keys decide as everywhere; all that
kernels know of frameworks is that a bucket may want whatever there is. The leaf of a framework that is gone is another's later:
else a thousand short-lived ones would leave a thousand queues.
"""

from collections.abc import Iterable

from msgspec import Struct, field

from fairlead.model.specs import USERS, Framework, Quantities

OWN = "."
"""The last part of the name of the queue that stands for a role itself, beside those below it."""
JOBS = "jobs"
"""The last part of the name of the leaf for the jobs of a queue that is a role of frameworks as well."""
ANYBODYS = "default"
"""The queue that Mesos' role ``*`` is: of those who name no other."""
MOST_GONE = 1000
"""So many ids of frameworks that are gone are remembered, at most; who comes back with one is told so."""


class Update(Struct, frozen=True):
    """What became of a task, as its framework is told until it says that it knows.

    number : from 1 on, of the task's updates
    what : "starting", "running", or its end: "finished", "failed", "killed", "lost" or "revoked"
    outcome, code : of an end, as in TasksFinished
    """

    number: int
    what: str
    at: float
    outcome: int = 0
    code: int = 0


class Launched(Struct):
    """A task that a framework launched: the job that it is, where, and the updates that are not acknowledged.

    demand : what it takes
    told : the number of the last update that there was
    over : there will be no more
    """

    job: int
    node: str
    role: str
    demand: Quantities
    at: float
    updates: list[Update] = field(default_factory=list)
    told: int = 0
    over: bool = False


class Member(Struct):
    """A framework that is subscribed, or may come back.

    leaves : by role, its leaf queue
    suppressed : roles for which it wants no offers
    since : when it came
    away_since : when its connection was lost; None while it is there
    unanswered : offers that it let expire since it answered one last
    """

    framework: Framework
    leaves: dict[str, str]
    suppressed: list[str]
    since: float
    away_since: float | None = None
    unanswered: int = 0


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
    task_of : dict of int to tuple of str and str
        By the number of the job, the framework and the name of the task in `tasks`.
    """

    members: dict[str, Member] = field(default_factory=dict)
    tasks: dict[str, dict[str, Launched]] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    last_offer: int = 0
    void: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.at = {leaf: (who, role) for who, m in self.members.items() for role, leaf in m.leaves.items()}
        self.task_of = {t.job: (who, task) for who, tasks in self.tasks.items() for task, t in tasks.items()}

    def copy(self) -> "Frameworks":
        """Another that knows the same."""
        members = {
            who: Member(m.framework, dict(m.leaves), list(m.suppressed), m.since, m.away_since, m.unanswered)
            for who, m in self.members.items()
        }
        tasks = {
            who: {
                task: Launched(t.job, t.node, t.role, t.demand, t.at, list(t.updates), t.told, t.over)
                for task, t in of.items()
            }
            for who, of in self.tasks.items()
        }
        return Frameworks(members, tasks, list(self.gone), self.last_offer, dict(self.void))

    def leave(self, who: str) -> None:
        """A framework is gone, and so is what it was to be told."""
        member = self.members.pop(who)
        for leaf in member.leaves.values():
            self.at.pop(leaf, None)
        for launched in self.tasks.pop(who, {}).values():
            self.task_of.pop(launched.job, None)
        self.gone = [*self.gone, who][-MOST_GONE:]

    def note(self, job: int, what: str, at: float, outcome: int = 0, code: int = 0, over: bool = False) -> None:
        """Something became of a task of a framework; nothing where nobody is to be told."""
        who, task = self.task_of.get(job, ("", ""))
        if who:
            launched = self.tasks[who][task]
            launched.told += 1
            launched.updates.append(Update(launched.told, what, at, outcome, code))
            launched.over = over

    def acknowledge(self, job: int, update: int) -> None:
        """A framework knows an update; a task that is over, of which it knows all, is kept no longer."""
        who, task = self.task_of[job]
        launched = self.tasks[who][task]
        launched.updates = [each for each in launched.updates if each.number != update]
        if launched.over and not launched.updates:
            del self.tasks[who][task], self.task_of[job]

    def free_leaf(self, role: str, taken: Iterable[str]) -> str:
        """A name for the leaf of a framework more in a role; `taken` are leaves that are nobody's and still have tasks."""
        used, number = {*self.at, *taken}, 1
        while (leaf := f"{own_queue(role)}/{number}") in used:
            number += 1
        return leaf


def queue_of(role: str) -> str:
    """The queue that a role is."""
    return ANYBODYS if role == USERS else role


def own_queue(role: str) -> str:
    """The queue that stands for a role itself."""
    return f"{queue_of(role)}/{OWN}"
