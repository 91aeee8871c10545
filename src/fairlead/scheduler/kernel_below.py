"""How many queues are below what they are guaranteed, and have somebody waiting whom that is for."""

import numpy as np

from fairlead.kernel_cache import compiled
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.kernel_claims import guarded_part, tasks_at_once, waiting_tasks
from fairlead.scheduler.kernel_stops import may_start
from fairlead.scheduler.tables import I64, NONE
from fairlead.scheduler.view import BUCKETS, QUEUES


@compiled
def below_guarantee(v: View) -> int:
    """How many queues miss what they are guaranteed: a claim for it is open in them, whether room is coming back for it or not.

    It is so of the lowest queue on the way from a claim's leaf that is guaranteed some of what it needs; one with others below
    it counts where none of those does. What could not start whatever were revoked is no claim: what no node could hold, what is
    not the first of a strict leaf, and what a bound on how many tasks or jobs there are keeps waiting. With the order made.
    """
    queues = v.counts[QUEUES]
    below, nothing = np.zeros(queues, np.bool_), np.zeros((queues, v.total.shape[0]), np.int64)
    nowhere, first = np.zeros(0, np.int64), _first_in_line(v)
    for b in range(v.counts[BUCKETS]):
        leaf = v.buckets.leaf[b]
        if (
            v.buckets.head[b] == NONE
            or not v.queues.guarded[leaf]
            or v.buckets.revocable[b]
            or v.bucket_seats.hopeless[b]
        ):
            continue
        if (v.queues.strict[leaf] and first[leaf] != b) or waiting_tasks(v, b, 1) == 0:
            continue
        q, tasks = guarded_part(v, b, nothing)[0], tasks_at_once(v, b)
        if q != NONE and not below[q] and may_start(v, b, tasks, nowhere) == tasks:
            below[q] = True
    count = 0
    above = np.zeros(queues, np.bool_)
    for q in range(queues - 1, 0, -1):  # the rows of queues below come after it
        count += int(below[q] and not above[q])
        above[v.queues.parent[q]] |= below[q] or above[q]
    return int(count)


@compiled
def _first_in_line(v: View) -> I64:
    """Of each strict leaf, the bucket of the first that waits: by priority, then by number."""
    found = np.full(v.counts[QUEUES], NONE, np.int64)
    for b in range(v.counts[BUCKETS]):
        leaf = v.buckets.leaf[b]
        if v.queues.strict[leaf] and v.buckets.head[b] != NONE:
            other = found[leaf]
            ahead = other == NONE or v.buckets.priority[b] > v.buckets.priority[other]
            if not ahead and v.buckets.priority[b] == v.buckets.priority[other]:
                ahead = v.jobs.id[v.buckets.head[b]] < v.jobs.id[v.buckets.head[other]]
            if ahead:
                found[leaf] = b
    return found
