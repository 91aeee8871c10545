"""Hierarchical DRF: see :mod:`fairlead.policies.tree`."""

from fairlead.policies.tree import Tree


def policy() -> Tree:
    """Hierarchical DRF."""
    return Tree("hdrf", "drf down a tree of queues, so that no leaf starves", rescale=True)
