"""How an attempt at a task can end. Nothing is imported: the parent of all tasks reads this too, and has to stay small."""

from enum import IntEnum


class Outcome(IntEnum):
    """How an attempt ended, as the engine saw it. What becomes of the task is the state's business."""

    EXITED = 0  # by itself; `code` is its exit status
    SIGNALLED = 1  # `code` is the signal
    OUT_OF_MEMORY = 2  # it, or a part of it, was killed for using more memory than it had asked for; `code` is SIGKILL
    NOT_STARTED = 3  # could not be executed; `code` is the errno
    LOST = 4  # its node or its engine went away
    TIME_LIMIT = 5  # stopped because it ran for too long; the state's own word, no engine's
    STOPPED = 6  # ended by itself after it was told to stop; `code` is its exit status
