"""Which queues there are. A queue that was once has its row for ever, with what it used before; people are told of it while it is
declared, or has something: else each role that a framework ever was in would be told of for ever.
"""

from typing import NamedTuple

import numpy as np

from fairlead.scheduler.framework_index import queue_of
from fairlead.scheduler.queue_tree import QueueTree
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import I64, NONE, Bools


class There(NamedTuple):
    """Of each queue, by its row: whether there is one; whether it was declared once, and neither is now nor is anybody's role."""

    there: Bools
    removed: Bools


def queues_there(state: State) -> There:
    """Find the queues that there are: those that are declared, the roles of frameworks, and wherever something waits, runs, is
    offered or set apart; and all above those.
    """
    tree, queues, jobs = state.tree, state.queues, state.jobs
    n = queues.n
    declared = np.array([_is_declared(tree, name) for name in tree.names], np.bool_)
    roles = np.zeros(n, np.bool_)
    roles[[tree.rows[leaf] for leaf in state.frameworks.at]] = True
    has = (queues.tasks[:n] > 0) | queues.used[:n].any(axis=1) | queues.offered[:n].any(axis=1)
    has[jobs.queue[: jobs.n][(jobs.id[: jobs.n] != NONE) & (jobs.waiting[: jobs.n] > 0)]] = True
    apart = {queue_of(parcel.role) for here in state.frameworks.parcels.values() for parcel in here.values()}
    has[[tree.rows[name] for name in apart if name in tree.rows]] = True
    roles, has = _with_all_above(roles, queues.parent[:n]), _with_all_above(has, queues.parent[:n])
    once = np.array([name in tree.removed for name in tree.names], np.bool_)
    there = declared | roles | has
    return There(there, there & once & ~declared & ~roles)


def _is_declared(tree: QueueTree, name: str) -> bool:
    """Whether a queue is declared by name, or is the leaf of one person where a ``*`` is: what has others below it is a role."""
    by_name = name in tree.declared or name in tree.inner
    return by_name or (tree.is_declared(name) and tree.rows[name] not in tree.inner_rows)


def _with_all_above(those: Bools, parent: I64) -> Bools:
    """Some queues, and all above them; parents come before their children."""
    found, above = those.tolist(), parent.tolist()
    for row in range(len(found) - 1, 0, -1):
        if found[row]:
            found[above[row]] = True
    return np.array(found, np.bool_)
