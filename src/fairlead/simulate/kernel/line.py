"""All jobs in one line, as kernels see it; see `fairlead.scheduler.kernel.declarations`."""

from typing import Final

from fairlead.scheduler.kernel.arrays import Declared

LINE: Final[Declared] = {
    "submit": ("f8", 1), "comes": ("?", 1), "tasks": ("i8", 1), "shape": ("i8", 1), "allowed": ("?", 2), "gang": ("?", 1),
    "left": ("i8", 1), "after": ("i8", 1), "node": ("i8", 1), "one": ("i8", 2), "ends": ("i8", 2), "spare": ("i8", 2),
    "kept": ("?", 1), "at": ("f8", 1), "idled": ("f8", 1), "tried": ("i8", 1), "numbers": ("i8", 1),
}  # fmt: skip
"""The line, and what is promised to its first.

submit : float64, shape (jobs,): when each comes, in that order; `comes`: whether it does, or is refused
tasks, shape : int64, shape (jobs,): how many tasks, and which row of `allowed`, shape (shapes, nodes), says where they may
    run
gang : bool, shape (jobs,): whether all tasks start at once
left, after : int64, shape (jobs,): tasks that wait, and who is next in the line; NONE
node, one : int64, room for the nodes of a gang and for the columns of its start
ends : int64, shape (5, n): room for what ends at one moment
spare : int64, shape (nodes, resources): of a node that is `kept`, what may run beyond the promised moment
at : float64, shape (3,): the moment that has been reached, the next one, and the promised one
idled : float64, shape (resources,): free room that was kept, times seconds
tried : int64, shape (shapes,): the last pass in which it had room on no node
numbers : int64: see below
"""

# Numbers in `numbers`: jobs that have come, the first and the last of the line, whether it has a promise, passes over the line so
# far, tasks started, moments that are over.
CAME, HEAD, TAIL, PROMISED, PASS, DECISIONS, STEPS = range(7)
NUMBERS = 7
NOW, NEXT, PROMISE = range(3)
