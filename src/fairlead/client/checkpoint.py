"""Reports from inside a task that its progress is saved."""

import os

from fairlead.client.service_error import ServiceError


def checkpointed() -> None:
    """Report that this task's progress is saved, so that a preemption loses only what it does from now on.

    Preemption chooses the victims that lose least work. Like `fairlead checkpointed`, this touches the file that
    ``FAIRLEAD_CHECKPOINT`` names, and does not call the scheduler.

    Raises
    ------
    ServiceError
        This process is no task of fairlead, or its file is gone.
    """
    path = os.environ.get("FAIRLEAD_CHECKPOINT")
    if not path:
        raise ServiceError("FAIRLEAD_CHECKPOINT is not set: run this in a task of fairlead")
    try:
        os.utime(path)
    except OSError as error:
        why = f"{path}: {error.strerror}: use FAIRLEAD_CHECKPOINT as fairlead set it, while the task runs"
        raise ServiceError(why) from None
