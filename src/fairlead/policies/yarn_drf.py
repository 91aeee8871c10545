"""YARN's DRF: by dominant share, then by the next; those below their minimum first. See :mod:`fairlead.policies.yarn`."""

from fairlead.policies.yarn import AsYarn


def policy() -> AsYarn:
    """Make it."""
    return AsYarn("yarn-drf", "below its minimum first, then drf: as YARN has it")
