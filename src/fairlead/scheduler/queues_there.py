"""Which queues there are. A queue that was once has its row for ever, with what it used before; people are told of it while it is
declared, or has something: else each role that a framework ever was in would be told of for ever.
"""

from typing import NamedTuple

import numpy as np

from fairlead.scheduler.framework_index import queue_of
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import NONE, Bools


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
    declared = np.array([tree.is_declared(name) for name in tree.names], np.bool_)
    roles = np.zeros(n, np.bool_)
    roles[[tree.rows[leaf] for leaf in state.frameworks.at]] = True
    has = (queues.tasks[:n] > 0) | queues.used[:n].any(axis=1) | queues.offered[:n].any(axis=1)
    has[jobs.queue[: jobs.n][(jobs.id[: jobs.n] != NONE) & (jobs.waiting[: jobs.n] > 0)]] = True
    apart = {queue_of(parcel.role) for here in state.frameworks.parcels.values() for parcel in here.values()}
    has[[tree.rows[name] for name in apart if name in tree.rows]] = True
    for row in range(n - 1, 0, -1):  # parents come before their children
        roles[queues.parent[row]] |= roles[row]
        has[queues.parent[row]] |= has[row]
    once = np.array([name in tree.removed for name in tree.names], np.bool_)
    there = declared | roles | has
    return There(there, there & once & ~declared & ~roles)
