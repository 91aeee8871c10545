"""All jobs in one line, as kernels see it; see `fairlead.scheduler.kernel.declarations`."""

from typing import Final

from fairlead.scheduler.kernel.arrays import Declared

LINE: Final[Declared] = {
    "submit": ("f8", 1), "comes": ("?", 1), "tasks": ("i8", 1), "shape": ("i8", 1), "allowed": ("?", 2), "gang": ("?", 1),
    "left": ("i8", 1), "after": ("i8", 1), "node": ("i8", 1), "one": ("i8", 2), "ends": ("i8", 2), "spare": ("i8", 2),
    "kept": ("?", 1), "at": ("f8", 1), "idled": ("f8", 1), "tried": ("i8", 1), "numbers": ("i8", 1),
}  # fmt: skip
"""The line, and the reservation of its first.

submit : float64, shape (jobs,): arrivals, seconds, rising. comes : False if refused
tasks, shape : int64, shape (jobs,): number of tasks, and the row of `allowed`, shape (shapes, nodes), that says where
they may
    run
gang : bool, shape (jobs,): True if all tasks start at once
left, after : int64, shape (jobs,): tasks that wait, and the next job in the line; NONE
node, one : int64: scratch for the nodes of a gang, and for the columns of its start
ends : int64, shape (5, n): scratch for what ends at one moment
kept, spare : shape (nodes,), (nodes, resources): nodes of the reservation, and what may run there beyond its start
at : float64, shape (3,): the moment reached, the next moment, and the reservation's start
idled : float64, shape (resources,): free room that was kept, times seconds
tried : int64, shape (shapes,): the last pass in which a shape fit on no node
numbers : int64: see below
"""

# Indices of `numbers`: jobs arrived, first and last of the line, 1 if it has a reservation, passes over the line so far, tasks
# started, moments over.
CAME, HEAD, TAIL, PROMISED, PASS, DECISIONS, STEPS = range(7)
NUMBERS = 7
NOW, NEXT, PROMISE = range(3)
