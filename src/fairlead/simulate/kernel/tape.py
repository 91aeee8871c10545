"""The tape of a simulation in kernels: what is to come, and its results; see `declarations`."""

from typing import Final

from fairlead.scheduler.kernel.arrays import Declared

TAPE: Final[Declared] = {
    "row": ("i8", 1), "group": ("i8", 1), "submit": ("f8", 1), "at": ("f8", 1), "ends": ("i8", 2), "after": ("i8", 2),
    "before": ("i8", 2), "paired": ("i8", 2), "lacks": ("i8", 1),
    "rows": ("i8", 1), "attempts": ("i8", 1), "log": ("i8", 1), "moments": ("f8", 1), "starts": ("f8", 1),
    "returned": ("i8", 1), "numbers": ("i8", 1),
}  # fmt: skip
"""What is to come, and how far the simulation is.

row, group, submit : of each job in order of arrival, its row (NONE if refused), its group, and its arrival in seconds
after : shape (n, 2): pairs of jobs, the second depending on the first, sorted; `before`: the same pairs the other way round
paired : shape (n, 2): such pairs, where each task of the second waits for one of the first
lacks : by job, how many jobs it waits for
at : float64, shape (4,): the moment reached, the next moment, when something last happened, and the next cancellation
ends : int64, shape (5, n): scratch for what ends at one moment
rows, attempts : int64: scratch for job rows and attempt numbers of what ends or is placed in one step
log : int64: facts as kind, subject, numbers of rows and columns, and the columns; empty if not wanted
moments, starts : float64: the time of each fact, and the start of each reservation
returned : int64: scratch for the rows of gangs that wait again
numbers : int64: see below
"""

# Indices of `numbers`: jobs arrived, jobs loaded; facts and integers in the log; tasks placed, moments over; ended jobs
# that are forgotten; 1 if more is to do at the moment reached; gangs in `returned`; 1 if the caller serves claims and
# divides, else nothing is preempted, and entitlements stay; 1 if revocable jobs may exceed their limits into what is idle;
# 1 if entitlements are up to date.
(
    ARRIVED, COMING, FACTS, LOGGED, DECISIONS, STEPS, FORGOTTEN, GOES_ON, RETURNED, SERVES_CLAIMS, GOES_OVER_LIMITS, ENTITLED,
) = range(12)  # fmt: skip
NUMBERS = 12

# Indices of `at`.
NOW, NEXT, HAPPENED = range(3)

MAX_LOG_NUMBERS = 16
"""Integers in the log for each task or job that something happens to in one step, at most."""

# Why the kernel returned.
OVER, UNTIL, LOG_FULL, MORE_JOBS, GANGS_BACK, CLAIMS, DIVIDES = range(7)

# Kinds of facts in the log.
FINISHED, SUBMITTED, PLACED, PASSED_OVER, RESERVED, DROPPED, STARTED, FORGOT = range(8)
