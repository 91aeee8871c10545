"""What a simulation in compiled code has before it, and has come to; see `fairlead.scheduler.kernel.declarations`."""

from typing import Final

from fairlead.scheduler.kernel.arrays import Declared

COURSE: Final[Declared] = {
    "row": ("i8", 1), "bucket": ("i8", 1), "submit": ("f8", 1), "at": ("f8", 1), "ends": ("i8", 2), "after": ("i8", 2),
    "lacks": ("i8", 1),
    "rows": ("i8", 1), "attempts": ("i8", 1), "log": ("i8", 1), "moments": ("f8", 1), "starts": ("f8", 1),
    "returned": ("i8", 1), "numbers": ("i8", 1),
}  # fmt: skip
"""What is to come, and how far it has.

row, bucket, submit : of each job, in the order of arrival, its row, its bucket, and when; NONE where it is refused
after : shape (n, 2): rows of jobs, and of one that comes after each, sorted; `lacks` is how many jobs a row's comes after yet
at : float64, shape (3,): the moment that has been reached, the next one, and when something happened last
ends : int64, shape (5, n): room for what ends at one moment
rows, attempts : int64: room for rows of jobs and numbers of attempts, of what ends or is placed in one step
log : int64: facts as their kind, what they are about, how many rows and columns, and these; empty where nobody asks for them
moments, starts : float64: when each of them happened, and when what is reserved is to start
returned : int64: room for the rows of gangs that wait again
numbers : int64: see below
"""

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
