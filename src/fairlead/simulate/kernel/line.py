"""All jobs in one line, as kernels see it; see `fairlead.scheduler.kernel.declarations`."""

from typing import Final

import numpy as np

from fairlead.scheduler.kernel.arrays import Declared

LINE: Final[Declared] = {
    "submit": ("f8", 1), "comes": ("?", 1), "tasks": ("i8", 1), "shape": ("i8", 1), "allowed": ("?", 2), "gang": ("?", 1),
    "limit": ("f8", 1), "need": ("i8", 2), "room": ("i8", 2), "total": ("i8", 1), "left": ("i8", 1), "node": ("i8", 1),
    "one": ("i8", 2), "ends": ("i8", 2), "spare": ("i8", 2), "fits": ("i8", 1), "at": ("f8", 1), "idled": ("f8", 1),
    "kind": ("i8", 1), "begin": ("i8", 1), "place": ("i8", 1), "job": ("i8", 1), "waits": ("i8", 1), "least": ("f8", 1),
    "pinned": ("i8", 1), "steps": ("f8", 1), "free": ("i8", 2), "numbers": ("i8", 1),
}  # fmt: skip
"""The line, and what is reserved in it. A unit is what starts at once: a whole gang, or one task.

submit : float64, shape (jobs,): arrivals, seconds, rising. comes : False if refused
tasks, shape : int64, shape (jobs,): number of tasks, and the row of `need` and `allowed`
gang : bool, shape (jobs,): True if all tasks start at once
limit : float64, indexed as the machines' durations: time limits, one for all tasks of a gang
allowed, need : shape (shapes, nodes), (shapes, resources): where a task may run, and what it takes of a node
room, total : int64, shape (nodes, resources), (resources,): what is free now, by node and in all. If nodes count in slots, these
    are the only resource
left : int64, shape (jobs,): tasks that wait
node, one : int64: scratch for the nodes of a unit, and for the columns of its start
ends : int64, shape (5, n): scratch for what ends at one moment
spare, fits : int64, shape (nodes, resources), (nodes,): room at the start of the first, and how many of its tasks fit there
at : float64, shape (4,): the moment reached, the next moment, the start of the first, and from when on `idled` counts
idled : float64, shape (resources,): free room that was kept, times seconds
kind : int64, shape (jobs,): jobs of a kind have the same shape and tasks per unit
begin, waits : int64, shape (kinds + 1,), (kinds,): the first place of each kind, and how many of its jobs wait
place, job : int64, shape (jobs,): places by kind and then by arrival, and the job at each place
least : float64, shape (2 * a power of two,): a tree of minima. By place, the time limit of the next unit of a job that waits;
    under `conservative`, by task, the start reserved for a unit that waits. Infinite for others
pinned : int64, shape (tasks,): the node reserved for each task
steps, free : float64, shape (n,), int64, shape (n, nodes * resources): from each time on, what running and reserved tasks leave
numbers : int64: see below
"""

# Indices of `numbers`: jobs arrived, first of the line, 1 if it has a reservation, its tasks, how many of these fit at its
# start, tasks started, moments over, 1 if limits are durations, 1 if nodes count in slots, steps in use, 1 if these are full.
CAME, HEAD, PROMISED, WANTED, FITTING, DECISIONS, STEPS, EXACT, SLOTS, USED, FULL = range(11)
NUMBERS = 11
NOW, NEXT, PROMISE, SINCE = range(4)
STRICT, EASY, CONSERVATIVE = range(3)
"""Rules: nobody bypasses the first; others do if they do not delay it; each has a reservation."""
NEVER: Final = float(np.finfo(np.float64).max)
"""Stands in `least` for a time limit or a start that is infinite."""
