"""YARN's fair policy: who has least memory for its weight, those below their minimum first. See :mod:`fairlead.policies.yarn`."""

from fairlead.policies.yarn import AsYarn


def policy() -> AsYarn:
    """Make it."""
    return AsYarn("yarn-fair", "below its minimum first, then least memory: as YARN has it")
