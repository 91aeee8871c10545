"""What runs on a simulated cluster, in arrays that kernels take; see `fairlead.scheduler.kernel.declarations`."""

from typing import Final

from fairlead.outcomes import Outcome
from fairlead.scheduler.kernel.arrays import Declared
from fairlead.scheduler.tables import NONE

EXITED, SIGNALLED = int(Outcome.EXITED), int(Outcome.SIGNALLED)
SIGTERM = 15

# Numbers in `Truth.size`: tasks that run, tasks started so far, whether machines may be given more than they have, tasks done.
RUNNING, STARTED, OVERCOMMITTED, COMPLETED = range(4)

TRUTH: Final[Declared] = {
    "capacity": ("i8", 2), "demand": ("i8", 2), "queue": ("i8", 1), "duration": ("f8", 1), "first": ("i8", 1),
    "several": ("i8", 1), "load": ("i8", 2), "down": ("?", 1), "pace": ("f8", 1), "first_run": ("i8", 1), "used": ("i8", 2),
    "waits": ("i8", 2), "running": ("i8", 1), "waiting": ("i8", 1), "begun": ("f8", 1), "ended": ("f8", 1),
    "submitted": ("f8", 1), "waited": ("f8", 1), "left": ("i8", 1), "task": ("i8", 1), "last": ("i4", 1), "size": ("i8", 1),
    "never": ("?", 1), "total": ("i8", 1), "got": ("f8", 1), "since": ("f8", 1),
}  # fmt: skip
"""What machines have, what jobs do, and what came of it.

capacity, load : shape (nodes, resources): what machines have, and what runs on them needs
demand, queue, duration, first : see fairlead.engines.simulated
several : shape (jobs,): how many durations a job has; task k takes as long as its duration k, counted around
down : shape (nodes,): whether it is lost
pace : shape (nodes,): seconds that a second's work takes; `first_run` is the first of the tasks that run on it, a row of Runs
used, waits : shape (queues, resources): what really runs and waits; `running` and `waiting` are numbers of tasks
begun, ended, submitted : shape (jobs,): when the first task started, the last one ended, the job came; NaN before
waited : shape (jobs,): seconds that its tasks waited, added up; `left` is how many have not ended
task, last : the first task of each job among all; and of each task the last attempt that was told to start, or never to
never : shape (jobs,): whether it can never start, so that it counts as left, and does not count as waiting
total : shape (resources,): what all machines have
got, since : shape (queues,): dominant share x seconds of what it used until `since`, when that changed last
"""

RUNS: Final[Declared] = {
    "heap": ("i8", 1), "place": ("i8", 1), "time": ("f8", 1), "since": ("f8", 1), "work": ("f8", 1), "stopped": ("f8", 1),
    "order": ("i8", 1), "job": ("i8", 1), "index": ("i8", 1), "attempt": ("i8", 1), "node": ("i8", 1), "after": ("i8", 1),
    "before": ("i8", 1),
}  # fmt: skip
"""Tasks that run, a row each; the first so many of `heap` are rows that are in use, by time and order, the rest are free.

place : where in the heap the row is
time, order : when the task ends, and how many were started before it
since, work : at `since` it had so many seconds of work left
stopped : when it ends at the latest, for it was told to; infinite
after, before : others on the same machine
"""

CONSTANTS = {
    "simulated_constants": {
        "NONE": NONE, "EXITED": EXITED, "SIGNALLED": SIGNALLED, "SIGTERM": SIGTERM, "RUNNING": RUNNING, "STARTED": STARTED,
        "OVERCOMMITTED": OVERCOMMITTED, "COMPLETED": COMPLETED,
    },
}  # fmt: skip
TYPES = {"simulated": {"Truth": TRUTH, "Runs": RUNS}}
