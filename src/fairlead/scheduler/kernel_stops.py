"""What stops a bucket: which bound of a queue above it its next task, or whole gang, would break."""

from fairlead.kernel_cache import compiled
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.kernel_claims import served_tasks
from fairlead.scheduler.kernel_lending import withheld_from
from fairlead.scheduler.kernel_order import is_started, tasks_left
from fairlead.scheduler.tables import NONE
from fairlead.scheduler.view import BEYOND

NOT_REACHED, EXHAUSTED, NO_NODE, LIMIT, MAX_TASKS, MAX_JOBS, WITHHELD = range(7)
"""Why a bucket was not served on in a cycle."""


@compiled
def over_limits(v: View, b: int) -> int:
    """Which bound of a queue on the path to the root a bucket's next task, or whole gang, would break; NOT_REACHED for none.

    A limit is named before a bound on how many tasks or jobs there are. What revocable jobs use is nothing to others' limits; and
    in a cycle for these alone, limits are nothing to them. What is kept for others' claims counts as used.
    """
    demand, beyond = v.demand[v.buckets.shape_row[b]], v.counts[BEYOND] and v.buckets.revocable[b]
    count = tasks_left(v, b) if v.buckets.gang[b] > 0 else 1
    q = NONE if beyond else v.buckets.leaf[b]
    while q != NONE:
        for r in range(demand.shape[0]):
            if demand[r] > 0:
                room = v.limit[q, r] - v.used[q, r] + (0 if v.buckets.revocable[b] else v.spare[q, r])
                if demand[r] > (room - _kept_for_others(v, b, q, r)) // count:  # a product might be too large
                    return LIMIT
        q = v.queues.parent[q]
    why = over_counts(v, b)
    if why == NOT_REACHED and v.queues.lends[0] and _is_withheld(v, b, count):
        why = WITHHELD
    return why


@compiled
def _kept_for_others(v: View, b: int, q: int, r: int) -> int:
    """How much of a resource is kept for claims below a queue that are not a bucket's own, it being below that queue."""
    kept = v.claimed[q, r]
    if kept > 0:
        kept -= served_tasks(v, b) * v.demand[v.buckets.shape_row[b], r]
    return int(kept)


@compiled
def over_counts(v: View, b: int) -> int:
    """Which bound on how many tasks or jobs there are a bucket's next task, or whole gang, would break; NOT_REACHED for none."""
    started = is_started(v, b)
    count = tasks_left(v, b) if v.buckets.gang[b] > 0 else 1
    q = v.buckets.leaf[b]
    while q != NONE:
        if v.queues.tasks[q] + count > v.queues.max_tasks[q]:
            return MAX_TASKS
        if not started and v.queues.jobs[q] >= v.queues.max_jobs[q]:
            return MAX_JOBS
        q = v.queues.parent[q]
    return NOT_REACHED


@compiled
def _is_withheld(v: View, b: int, count: int) -> bool:
    """Whether so many tasks of a bucket would use what others do not lend."""
    demand = v.demand[v.buckets.shape_row[b]]
    for r in range(demand.shape[0]):
        if demand[r] > 0:
            room = v.total[r] - v.used[0, r] - withheld_from(v, v.buckets.leaf[b], r)
            if demand[r] > (room - _kept_for_others(v, b, 0, r)) // count:
                return True
    return False
