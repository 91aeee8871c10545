"""The queues to list."""

from typing import NamedTuple

import numpy as np

from fairlead.scheduler.framework_index import queue_of
from fairlead.scheduler.queue_tree import QueueTree
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import NONE, Bools, with_all_above


class ListedQueues(NamedTuple):
    """Per queue row, whether to list it; and whether it was declared once, and is neither declared nor a role now."""

    there: Bools
    removed: Bools


def listed_queues(state: State) -> ListedQueues:
    """Find the queues to list, and those above: declared ones, roles, and those with tasks, offers or reservations."""
    tree, queues, jobs = state.tree, state.queues, state.jobs
    n = queues.n
    declared = np.array([_is_declared(tree, name) for name in tree.names], np.bool_)
    roles = np.zeros(n, np.bool_)
    roles[[tree.rows[leaf] for leaf in state.frameworks.at]] = True
    has = (queues.tasks[:n] > 0) | queues.used[:n].any(axis=1) | queues.offered[:n].any(axis=1)
    has[jobs.queue[: jobs.n][(jobs.id[: jobs.n] != NONE) & (jobs.waiting[: jobs.n] > 0)]] = True
    apart = {queue_of(reservation.role) for here in state.frameworks.role_reservations.values() for reservation in here.values()}
    has[[tree.rows[name] for name in apart if name in tree.rows]] = True
    roles, has = with_all_above(roles, queues.parent[:n]), with_all_above(has, queues.parent[:n])
    once = np.array([name in tree.removed for name in tree.names], np.bool_)
    there = declared | roles | has
    return ListedQueues(there, there & once & ~declared & ~roles)


def _is_declared(tree: QueueTree, name: str) -> bool:
    """True if a queue is declared by name, or is a user's leaf under a ``*``; one with others below it is a role."""
    by_name = name in tree.declared or name in tree.inner
    return by_name or (tree.is_declared(name) and tree.rows[name] not in tree.children)
