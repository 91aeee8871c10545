"""The naive tree of DRF, which starves: see :mod:`fairlead.policies.tree`."""

from fairlead.policies.tree import Tree


def policy() -> Tree:
    """DRF at each inner queue over all that is used below its children."""
    return Tree("naive", "drf at each inner queue as if it were a user: starves", rescale=False)
