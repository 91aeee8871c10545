"""What a task says of itself: that it has kept what it did so far."""

import os

from fairlead.client.service_error import ServiceError


def checkpointed() -> None:
    """Say that this task has kept what it did so far, so that ending it now would be in vain for nothing before this.

    Of those that may be revoked for somebody, those go first that would lose least. It is what `fairlead checkpointed` does, and
    asks no scheduler: it touches the file that ``FAIRLEAD_CHECKPOINT`` names.

    Raises
    ------
    ServiceError
        This is no task of fairlead, or its file is gone.
    """
    path = os.environ.get("FAIRLEAD_CHECKPOINT")
    if not path:
        raise ServiceError("FAIRLEAD_CHECKPOINT is not set: say this in a task that fairlead runs")
    try:
        os.utime(path)
    except OSError as error:
        why = f"{path}: {error.strerror}: FAIRLEAD_CHECKPOINT is to be as fairlead has set it, and the task to run yet"
        raise ServiceError(why) from None
