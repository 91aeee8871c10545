"""Hierarchical DRF: see :mod:`fairlead.policies.tree`."""

from fairlead.policies.tree import Tree


def policy() -> Tree:
    """Hierarchical DRF, in whole tasks."""
    return Tree("hdrf", "drf down a tree of queues, so that no leaf starves; whole tasks", rescale=True)
