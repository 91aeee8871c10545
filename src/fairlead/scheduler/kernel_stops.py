"""What stops a bucket: which bound of a queue above it its next task, or whole gang, would break."""

from fairlead.kernel_cache import compiled
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.kernel_claims import served_tasks
from fairlead.scheduler.kernel_lending import withheld_from
from fairlead.scheduler.kernel_order import current_job, is_started, startable, tasks_left
from fairlead.scheduler.tables import I64, NONE, RESERVATION, UNLIMITED
from fairlead.scheduler.view import BEYOND, HOLDS, NOBODY

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
            if demand[r] > 0 and v.limit[q, r] != UNLIMITED:
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
    """Which bound on how many tasks or jobs there are a bucket's next task, or whole gang, would break; NOT_REACHED for none.

    What room is kept for, for the claims of others, counts as if it ran.
    """
    started, kept = is_started(v, b), v.counts[HOLDS] > 0
    count = tasks_left(v, b) if v.buckets.gang[b] > 0 else 1
    q = v.buckets.leaf[b]
    while q != NONE:
        tasks, jobs = v.queues.tasks[q], v.queues.jobs[q]
        if kept and _is_counted(v, q):
            more = kept_beside(v, b, q)
            tasks, jobs = tasks + more[0], jobs + more[1]
        if tasks + count > v.queues.max_tasks[q]:
            return MAX_TASKS
        if not started and jobs >= v.queues.max_jobs[q]:
            return MAX_JOBS
        q = v.queues.parent[q]
    return NOT_REACHED


@compiled
def _is_counted(v: View, q: int) -> bool:
    """Whether there is a bound on how many tasks or jobs of a queue run."""
    return bool(v.queues.max_tasks[q] < UNLIMITED or v.queues.max_jobs[q] < UNLIMITED)


@compiled
def kept_beside(v: View, b: int, q: int) -> tuple[int, int]:
    """How many tasks and new jobs below a queue room is kept for, for claims of other buckets than this."""
    tasks, jobs = 0, 0
    for h in range(v.counts[HOLDS]):
        other = v.holds.bucket[h]
        if other != b and v.holds.kind[h] != RESERVATION and _is_below(v, v.buckets.leaf[other], q):
            tasks += v.holds.tasks[h]
            if h == 0 or v.holds.bucket[h - 1] != other:  # the holds of a bucket lie together
                jobs += _jobs_to_begin(v, other, served_tasks(v, other))
    return tasks, jobs


@compiled
def _is_below(v: View, leaf: int, q: int) -> bool:
    """Whether a leaf is a queue, or below it."""
    while leaf != NONE and leaf != q:
        leaf = v.queues.parent[leaf]
    return bool(leaf != NONE)


@compiled
def _jobs_to_begin(v: View, b: int, tasks: int) -> int:
    """How many jobs begin with so many tasks of a bucket, from its next on."""
    count, j = 0, current_job(v, b)
    left, started = tasks_left(v, b), is_started(v, b)
    while j != NONE and tasks > 0:
        count += int(not started)
        tasks -= left
        j = v.jobs.after[j]
        if j != NONE:
            left, started = startable(v, j), v.jobs.holding[j] > 0
    return count


@compiled
def may_start(v: View, b: int, most: int, kept: I64) -> int:
    """How many tasks of a bucket may start, at most so many, by bounds on how many tasks and jobs there are.

    `kept`, shape (buckets,), says for how many tasks of each room is kept for claims: those of others count as if they ran.
    Not to be asked in a cycle.
    """
    tasks, jobs, q = most, NOBODY, v.buckets.leaf[b]
    while q != NONE:
        if _is_counted(v, q):
            others, begun = 0, 0
            for other in range(kept.shape[0]):
                if kept[other] > 0 and other != b and _is_below(v, v.buckets.leaf[other], q):
                    others += kept[other]
                    begun += _jobs_to_begin(v, other, kept[other])
            tasks = min(tasks, v.queues.max_tasks[q] - v.queues.tasks[q] - others)
            jobs = min(jobs, v.queues.max_jobs[q] - v.queues.jobs[q] - begun)
        q = v.queues.parent[q]
    found, j = 0, v.buckets.head[b]
    while j != NONE and found < tasks:
        if v.jobs.holding[j] > 0 or jobs > 0:
            jobs -= int(v.jobs.holding[j] == 0)
            found += startable(v, j)
        elif v.queues.strict[v.buckets.leaf[b]]:
            break
        j = v.jobs.after[j]
    return int(max(0, min(found, tasks)))


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
