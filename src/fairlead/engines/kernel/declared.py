"""The arrays of a simulated cluster, as kernels take them; see `fairlead.scheduler.kernel.declarations`."""

from typing import Final

from fairlead.outcomes import Outcome
from fairlead.scheduler.kernel.arrays import Declared
from fairlead.scheduler.tables import NONE

EXITED, SIGNALLED = int(Outcome.EXITED), int(Outcome.SIGNALLED)
SIGTERM = 15

# Indices of `Truth.size`: running tasks, tasks started so far, 1 if nodes may be overcommitted, tasks completed.
RUNNING, STARTED, OVERCOMMITTED, COMPLETED = range(4)

TRUTH: Final[Declared] = {
    "capacity": ("i8", 2), "demand": ("i8", 2), "queue": ("i8", 1), "duration": ("f8", 1), "first": ("i8", 1),
    "several": ("i8", 1), "load": ("i8", 2), "down": ("?", 1), "pace": ("f8", 1), "first_run": ("i8", 1), "used": ("i8", 2),
    "waits": ("i8", 2), "running": ("i8", 1), "waiting": ("i8", 1), "begun": ("f8", 1), "ended": ("f8", 1),
    "submitted": ("f8", 1), "waited": ("f8", 1), "left": ("i8", 1), "task": ("i8", 1), "last": ("i4", 1), "size": ("i8", 1),
    "never": ("?", 1), "total": ("i8", 1), "got": ("f8", 1), "held": ("f8", 2), "since": ("f8", 1),
}  # fmt: skip
"""Nodes, jobs, and the simulation's results.

capacity, load : shape (nodes, resources): what nodes have, and what the tasks on them need
demand, queue, duration, first : see fairlead.engines.simulated
several : shape (jobs,): number of durations of a job; task k takes duration k modulo that
down : shape (nodes,): True if lost
pace : shape (nodes,): seconds per second of work; `first_run` is the first task running there, a row of Runs
used, waits : shape (queues, resources): resources of running and pending tasks; `running` and `waiting` count them
begun, ended, submitted : shape (jobs,): start of the first task, end of the last, submission; NaN before
waited : shape (jobs,): total seconds that its tasks waited; `left` counts tasks not ended
task, last : index of each job's first task; and per task the last attempt started, or never to be started
never : shape (jobs,): True if it can never start: it counts as left, not as pending
total : shape (resources,): capacity of all nodes
got, held : shape (queues,) and (queues, resources): integrals over seconds of the dominant share and of the resources used,
    until `since`, the last change
"""

RUNS: Final[Declared] = {
    "heap": ("i8", 1), "place": ("i8", 1), "time": ("f8", 1), "since": ("f8", 1), "work": ("f8", 1), "stopped": ("f8", 1),
    "order": ("i8", 1), "job": ("i8", 1), "index": ("i8", 1), "attempt": ("i8", 1), "node": ("i8", 1), "after": ("i8", 1),
    "before": ("i8", 1),
}  # fmt: skip
"""Running tasks, a row each. The first entries of `heap` are rows in use, ordered by time and order; the rest are free.

place : index of the row in the heap
time, order : when the task ends; how many were started before it
since, work : at `since` it had `work` seconds of work left
stopped : when it must end because of a stop; inf if not stopped
after, before : others on the same node
"""

CONSTANTS = {
    "simulated_constants": {
        "NONE": NONE, "EXITED": EXITED, "SIGNALLED": SIGNALLED, "SIGTERM": SIGTERM, "RUNNING": RUNNING, "STARTED": STARTED,
        "OVERCOMMITTED": OVERCOMMITTED, "COMPLETED": COMPLETED,
    },
}  # fmt: skip
TYPES = {"simulated": {"Truth": TRUTH, "Runs": RUNS}}
