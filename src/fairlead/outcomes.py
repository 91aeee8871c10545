"""How an attempt at a task can end. It imports little, because the parent process of all tasks uses it and must stay small."""

from enum import IntEnum


class Outcome(IntEnum):
    """How an attempt ended, as the engine reports it; the state decides what happens to the task."""

    EXITED = 0  # `code` is the exit status
    SIGNALLED = 1  # `code` is the signal
    OUT_OF_MEMORY = 2  # a process of it was killed for exceeding the requested memory; `code` is SIGKILL
    NOT_STARTED = 3  # could not be executed; `code` is the errno
    LOST = 4  # its node or engine was lost
    TIME_LIMIT = 5  # stopped at its time limit; set by the state, never by an engine
    STOPPED = 6  # exited after a stop signal; `code` is the exit status
    UNUSED = 7  # ended because nobody used it for as long as its job says; `code` is 0
