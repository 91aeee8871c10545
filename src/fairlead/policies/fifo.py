"""First in, first out: the child whose next task was submitted first goes next, whatever its priority."""


def key(priority: int, submitted: int) -> tuple[int, float]:
    """Order by submission alone.

    Parameters
    ----------
    priority : int
        Of the job that the child would serve next.
    submitted : int
        That job's number; jobs are numbered as they are submitted.
    """
    return 0, float(submitted)
