"""What a simulation by kernels has before it, and has come to; see `fairlead.scheduler.kernel.declarations`."""

from typing import Final

from fairlead.scheduler.kernel.arrays import Declared

TAPE: Final[Declared] = {
    "row": ("i8", 1), "group": ("i8", 1), "submit": ("f8", 1), "at": ("f8", 1), "ends": ("i8", 2), "after": ("i8", 2),
    "lacks": ("i8", 1),
    "rows": ("i8", 1), "attempts": ("i8", 1), "log": ("i8", 1), "moments": ("f8", 1), "starts": ("f8", 1),
    "returned": ("i8", 1), "numbers": ("i8", 1),
}  # fmt: skip
"""What is to come, and how far it has.

row, group, submit : of each job, in the order of arrival, its row, its group, and when; NONE where it is refused
after : shape (n, 2): rows of jobs, and of one that comes after each, sorted; `lacks` is how many jobs a row's comes after yet
at : float64, shape (3,): the moment that has been reached, the next one, and when something happened last
ends : int64, shape (5, n): room for what ends at one moment
rows, attempts : int64: room for rows of jobs and numbers of attempts, of what ends or is placed in one step
log : int64: facts as their kind, what they are about, how many rows and columns, and these; empty where nobody asks for them
moments, starts : float64: when each of them happened, and when what is reserved is to start
returned : int64: room for the rows of gangs that wait again
numbers : int64: see below
"""

# Numbers in `numbers`: jobs that have arrived, jobs that may; how many facts and whole numbers are in the log; tasks placed,
# moments that are over; how many of the jobs that ended are forgotten; whether there is more to do at the moment reached; how
# many gangs are in `returned`; whether the caller serves claims: else nothing is revoked;
# whether revocable jobs go above their limits into what is idle.
ARRIVED, COMING, FACTS, LOGGED, DECISIONS, STEPS, FORGOTTEN, GOES_ON, RETURNED, SERVES_CLAIMS, GOES_OVER_LIMITS = range(
    11
)
NUMBERS = 11

LONGEST = 16
"""Whole numbers in the log for each task or job that something happens to in one step, at most."""

# Why it came back.
OVER, UNTIL, LOG_FULL, MORE_JOBS, GANGS_BACK, CLAIMS = range(6)

# Kinds of facts in the log.
FINISHED, SUBMITTED, PLACED, PASSED_OVER, RESERVED, DROPPED, STARTED, FORGOT = range(8)
