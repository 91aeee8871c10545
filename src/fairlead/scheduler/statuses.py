"""What a task is doing, what can happen to it, and what it does then: one table, which the kernels, the tests and a page read.

Only numbers here: kernels compile them in.
"""

from typing import Final

# From PLACED to REVOKING a task holds resources; from SUCCEEDED on it is over.
WAITING, PLACED, RUNNING, STOPPING, EXPIRING, REVOKING, SUCCEEDED, FAILED, CANCELLED = range(9)
STATUS_NAMES: Final = (
    "waiting",
    "starting",
    "running",
    "stopping",
    "expiring",
    "revoking",
    "succeeded",
    "failed",
    "cancelled",
)

# What can happen. An end is one of the last six: the engine tells how the attempt ended, the state whether it may start again.
PLACE, START, CANCEL, EXPIRE, REVOKE, DONE, YIELDED, FAIL, RETRY, LOSE, GIVE_UP, NOT_BEGUN = range(12)
EVENT_NAMES: Final = (
    "placed",
    "started",
    "cancelled",
    "out of time",
    "revoked",
    "exits 0 by itself",
    "exits 0 after its signal",
    "fails",
    "fails, with retries left",
    "is lost",
    "is lost once too often",
    "cannot be started",
)

IMPOSSIBLE: Final = -1
_X: Final = IMPOSSIBLE

TRANSITIONS: Final = (
    # placed, started, cancelled, out of time, revoked, done, yielded, fails, retry, lost, too often, not begun
    (PLACED, _X, CANCELLED, _X, _X, _X, _X, _X, _X, _X, _X, _X),  # waiting
    (_X, RUNNING, STOPPING, _X, REVOKING, SUCCEEDED, FAILED, FAILED, WAITING, WAITING, FAILED, FAILED),  # starting
    (_X, RUNNING, STOPPING, EXPIRING, REVOKING, SUCCEEDED, FAILED, FAILED, WAITING, WAITING, FAILED, FAILED),  # running
    (
        _X,
        STOPPING,
        STOPPING,
        _X,
        _X,
        SUCCEEDED,
        CANCELLED,
        CANCELLED,
        CANCELLED,
        CANCELLED,
        CANCELLED,
        CANCELLED,
    ),  # stopping
    (_X, EXPIRING, STOPPING, _X, _X, SUCCEEDED, FAILED, FAILED, FAILED, FAILED, FAILED, FAILED),  # expiring
    (_X, REVOKING, STOPPING, _X, _X, SUCCEEDED, WAITING, WAITING, WAITING, WAITING, FAILED, WAITING),  # revoking
    (_X,) * 12,  # succeeded
    (_X,) * 12,  # failed
    (_X,) * 12,  # cancelled
)
"""TRANSITIONS[status][event] is the status after it; IMPOSSIBLE means that it cannot happen then.

A revoked task whose job says that it is done when it then exits 0 (``exit_done``) has YIELDED taken for DONE.
"""
