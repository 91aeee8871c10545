"""The collapsed hierarchy: see :mod:`fairlead.policies.tree`."""

from fairlead.policies.tree import Collapsed


def policy() -> Collapsed:
    """DRF over the leaves alone, with weights multiplied down the tree."""
    return Collapsed()
