"""Strict priority: the child whose next task has the highest priority goes next; then who was submitted first.

Within a leaf queue this is the order of its jobs.
"""


def key(priority: int, submitted: int) -> tuple[int, float]:
    """Order by priority, highest first, then by submission; see :func:`fairlead.policies.fifo.key`."""
    return -priority, float(submitted)
