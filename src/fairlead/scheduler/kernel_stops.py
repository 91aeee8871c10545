"""What stops a bucket: which bound of a queue above it its next task, or whole gang, would break."""

from fairlead.kernel_cache import compiled
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.kernel_order import is_started, tasks_left
from fairlead.scheduler.tables import NONE

NOT_REACHED, EXHAUSTED, NO_NODE, LIMIT, MAX_TASKS, MAX_JOBS = range(6)
"""Why a bucket was not served on in a cycle."""


@compiled
def over_limits(v: View, b: int) -> int:
    """Which bound of a queue on the path to the root a bucket's next task, or whole gang, would break; NOT_REACHED for none."""
    demand, started = v.demand[v.buckets.shape_row[b]], is_started(v, b)
    count = tasks_left(v, b) if v.buckets.gang[b] > 0 else 1
    why = NOT_REACHED
    q = v.buckets.leaf[b]
    while q != NONE:
        for r in range(demand.shape[0]):
            if demand[r] > 0 and demand[r] > (v.limit[q, r] - v.used[q, r]) // count:  # a product might be too large
                why = LIMIT
        if why == NOT_REACHED and v.queues.tasks[q] + count > v.queues.max_tasks[q]:
            why = MAX_TASKS
        if why == NOT_REACHED and not started and v.queues.jobs[q] >= v.queues.max_jobs[q]:
            why = MAX_JOBS
        q = v.queues.parent[q]
    return why
