"""One scheduling cycle: who is served next, and where, until nobody can be.

The tree is served through one heap an inner queue, of its children that can still be served; a leaf queue is the same
thing over its buckets, by priority. Queue q is entity q, bucket b is entity (queues + b), and an entity's key is

    (0 while below its guarantee else 1,  the policy's whole number,  the policy's real number,  rank among its siblings)

compared left to right. A placement changes the keys on one path of the tree only. Within a cycle room only shrinks and use
only grows, so a bucket that was stopped once stays out, and a shape's cursor into the nodes only moves forward. Nodes before a
cursor have no room for the shape, but for those where room came back since (`fresh`); they are few, and are looked at first.

Under hdrf (:mod:`fairlead.policies.tree`) the children that can still be served count as if all had the least of their
shares, the others as they are, and resources that are saturated do not count: when one is, all keys are worked out again.
"""

import numpy as np

from fairlead.compiled import compiled
from fairlead.policies import asset, drf, fifo, priority
from fairlead.scheduler.tables import F64, I8, I64, NONE, UNLIMITED, Bools, Buckets, Jobs, Nodes, Queues, Shapes

# What stopped a bucket in this cycle.
NOT_REACHED, EXHAUSTED, NO_NODE, LIMIT, MAX_TASKS, MAX_JOBS = range(6)

DRF, FIFO, PRIORITY, ASSET, HDRF, DIVIDED, MAXMIN = 0, 1, 2, 3, 4, 5, 16  # as in fairlead.policies

_dominant_share = compiled(drf.dominant_share)
_aggregate_share = compiled(asset.aggregate_share)
_fifo_key = compiled(fifo.key)
_priority_key = compiled(priority.key)


@compiled
def _goes_before(a: int, b: int, below: I8, whole: I64, real: F64, rank: I64) -> bool:
    if below[a] != below[b]:
        return below[a] < below[b]
    if whole[a] != whole[b]:
        return whole[a] < whole[b]
    if real[a] != real[b]:
        return real[a] < real[b]
    return rank[a] < rank[b]


@compiled
def _sift(
    heap: I64, start: int, size: int, position: int, slot: I64, below: I8, whole: I64, real: F64, rank: I64
) -> None:
    """Move one entity of a heap up or down to where its key belongs; `slot` says where each entity is."""
    entity = heap[start + position]
    while position > 0:
        up = (position - 1) // 2
        other = heap[start + up]
        if not _goes_before(entity, other, below, whole, real, rank):
            break
        heap[start + position] = other
        slot[other] = position
        position = up
    while True:
        down = 2 * position + 1
        if down >= size:
            break
        if down + 1 < size and _goes_before(heap[start + down + 1], heap[start + down], below, whole, real, rank):
            down += 1
        other = heap[start + down]
        if not _goes_before(other, entity, below, whole, real, rank):
            break
        heap[start + position] = other
        slot[other] = position
        position = down
    heap[start + position] = entity
    slot[entity] = position


@compiled
def _set_key(
    q: int, policy: int, priority: int, submitted: int, demand: I64, shape: int, guarantee: I64, used: I64, total: I64,
    weight: F64, below: I8, whole: I64, real: F64,
) -> None:  # fmt: skip
    """Work out the key of queue q among its siblings, given the job that it would serve next."""
    below[q] = 1
    for r in range(total.shape[0]):
        if demand[shape, r] > 0 and used[q, r] < guarantee[q, r]:
            below[q] = 0
    if policy == DRF:
        whole[q] = 0
        real[q] = _dominant_share(used[q], total, weight[q])
    elif policy == ASSET:
        whole[q], real[q] = 0, _aggregate_share(used[q], total, weight[q])
    elif policy >= MAXMIN:
        r = policy - MAXMIN
        whole[q], real[q] = 0, used[q, r] / max(1, total[r]) / weight[q, r]
    elif policy == FIFO:
        whole[q], real[q] = _fifo_key(priority, submitted)
    else:
        whole[q], real[q] = _priority_key(priority, submitted)


@compiled
def _set_level(
    q: int, policy: int, used: I64, total: I64, weight: F64, entitled: F64, counts_as: F64, counted: Bools, whole: I64, real: F64
) -> None:  # fmt: skip
    """The rest of the key under policies that look at more than what queue q uses: hdrf, and those that divide."""
    level = 0.0
    if policy == HDRF:
        for r in range(total.shape[0]):
            if total[r] > 0 and counted[r]:
                level = max(level, counts_as[q, r] / total[r] / weight[q, r])
    else:
        level = np.inf
        if entitled[q] > 0:
            level = _dominant_share(used[q], total, weight[q]) / entitled[q]
    whole[q], real[q] = 0, level


@compiled
def _count_up(
    q: int, policy: I64, first_child: I64, child: I64, slot: I64, used: I64, real: F64, counts_as: F64,
) -> None:  # fmt: skip
    """Work out what queue q counts as among siblings under hdrf, from its children's levels."""
    for r in range(used.shape[1]):
        counts_as[q, r] = used[q, r]
    if policy[q] != HDRF:
        return
    least = np.inf
    for k in range(first_child[q], first_child[q + 1]):
        c = child[k]
        if slot[c] != NONE:
            least = min(least, real[c])
    for r in range(used.shape[1]):
        others = used[q, r]
        for k in range(first_child[q], first_child[q + 1]):
            if slot[child[k]] != NONE:
                others -= used[child[k], r]
        amount = float(others)
        for k in range(first_child[q], first_child[q + 1]):
            c = child[k]
            if slot[c] != NONE:
                if real[c] > least:
                    amount += counts_as[c, r] * (least / real[c])
                else:
                    amount += counts_as[c, r]
        counts_as[q, r] = amount


@compiled
def _leave_out_saturated(
    counted: Bools, room: I64, usable: Bools, n_queues: int, slot: I64, shape: I64, demand: I64, stopped: int
) -> bool:
    """Count no resource of which no node has what anybody needs who can still be served; whether that is news.

    `stopped` is a bucket that was just found to have no room, or NONE.
    """
    news = False
    for r in range(room.shape[1]):
        if counted[r]:
            most = np.int64(0)
            for n in range(room.shape[0]):
                if usable[n]:
                    most = max(most, room[n, r])
            least = np.int64(UNLIMITED)
            for b in range(shape.shape[0]):
                if slot[n_queues + b] != NONE and demand[shape[b], r] > 0:
                    least = min(least, demand[shape[b], r])
            if least == UNLIMITED and stopped != NONE and demand[shape[stopped], r] > 0:
                least = demand[shape[stopped], r]
            if most == 0 or (least < UNLIMITED and most < least):
                counted[r] = False
                news = True
    return news


@compiled
def _build_tree(
    queues: Queues, shapes: Shapes, buckets: Buckets, jobs: Jobs, current: I64, used: I64, total: I64, entitled: F64,
    hdrf: bool, counts_as: F64, counted: Bools, first_child: I64, child: I64, all_count: Bools,
    heap: I64, start: I64, size: I64, slot: I64, upcoming: I64, below: I8, whole: I64, real: F64, rank: I64,
) -> None:  # fmt: skip
    """Make the heaps of queues anew, from the leaves' heaps of buckets up. Parents come before their children."""
    for q in range(queues.n):
        slot[q] = NONE
        if first_child[q + 1] > first_child[q]:
            size[q] = 0
    for q in range(queues.n - 1, 0, -1):
        if hdrf:
            _count_up(q, queues.policy, first_child, child, slot, used, real, counts_as)
        if size[q] > 0:
            upcoming[q] = upcoming[heap[start[q]]]
            b = upcoming[q]
            p = queues.parent[q]
            leaf = first_child[q + 1] == first_child[q]
            _set_key(
                q, queues.policy[p], buckets.priority[b], jobs.id[current[b]], shapes.demand, buckets.shape[b],
                queues.guarantee, used, total, queues.weight, below, whole, real,
            )  # fmt: skip
            if queues.policy[p] == HDRF or queues.policy[p] == DIVIDED:
                _set_level(
                    q, queues.policy[p], used, total, queues.weight, entitled, counts_as,
                    all_count if leaf else counted, whole, real,
                )  # fmt: skip
            heap[start[p] + size[p]] = q
            size[p] += 1
            _sift(heap, start[p], size[p], size[p] - 1, slot, below, whole, real, rank)


@compiled
def _next_node(room: I64, demand: I64, usable: Bools, mask: Bools, cursor: int) -> int:
    """First fit: the first usable node from the cursor on with room for the demand; the number of nodes if none."""
    for n in range(cursor, room.shape[0]):
        if usable[n] and mask[n]:
            fits = True
            for r in range(demand.shape[0]):
                if demand[r] > room[n, r] and demand[r] > 0:
                    fits = False
                    break
            if fits:
                return n
    return int(room.shape[0])


@compiled
def _next_fresh(
    room: I64, demand: I64, usable: Bools, mask: Bools, shape: int, fresh: I64, seen: I64, behind: I64
) -> int:
    """The first node behind a shape's cursor where room came back, and enough of it; NONE if there is none."""
    while seen[shape] < behind[shape]:
        n = fresh[seen[shape]]
        if _next_node(room[: n + 1], demand, usable, mask, n) == n:
            return int(n)
        seen[shape] += 1
    return NONE


@compiled
def _place_gang(
    count: int, demand: I64, room: I64, usable: Bools, mask: Bools, cursor: I64, fresh: I64, seen: I64, behind: I64, shape: int,
    reserved_node: I64, reserved_bucket: I64, reserved_tasks: I64, bucket: int, out_node: I64, first: int,
) -> bool:  # fmt: skip
    """Find nodes for all the tasks of a gang, or change nothing. Its reserved nodes count with what is kept on them."""
    before, seen_before = cursor[shape], seen[shape]
    placed = 0
    for k in range(reserved_node.shape[0]):
        if reserved_bucket[k] == bucket:
            n = reserved_node[k]
            for r in range(demand.shape[0]):
                # What is kept here for this gang was taken off the room before; it is used up as a whole or not at all.
                if demand[r] > 0 and room[n, r] < 0:
                    placed = -1
            if placed < 0 or not usable[n] or not mask[n]:
                return False
    for k in range(reserved_node.shape[0]):
        if reserved_bucket[k] == bucket:
            for _ in range(min(reserved_tasks[k], count - placed)):
                out_node[first + placed] = reserved_node[k]
                placed += 1
    kept = placed
    while placed < count:
        n = NONE
        if seen[shape] < behind[shape]:
            n = _next_fresh(room, demand, usable, mask, shape, fresh, seen, behind)
        if n == NONE:
            n = cursor[shape] = _next_node(room, demand, usable, mask, cursor[shape])
        if n == room.shape[0]:
            for k in range(kept, placed):
                room[out_node[first + k]] += demand
            cursor[shape], seen[shape] = before, seen_before
            return False
        room[n] -= demand
        out_node[first + placed] = n
        placed += 1
    return True


@compiled
def cycle(
    nodes: Nodes, queues: Queues, shapes: Shapes, buckets: Buckets, jobs: Jobs, masks: Bools, total: I64,
    reserved_node: I64, reserved_bucket: I64, reserved_tasks: I64, entitled: F64, most: int,
) -> tuple[I64, I64, I64, I64, I64, I64, I64, I64, bool]:  # fmt: skip
    """Serve the queues until nothing more can be placed, or `most` tasks are.

    Parameters
    ----------
    nodes, queues, shapes, buckets, jobs
        The state's tables, seen through :func:`fairlead.scheduler.tables.view`. Read only.
    masks : bool array, shape (masks, at least nodes)
        Which nodes meet a shape's constraints.
    total : int64 array, shape (resources,)
        The cluster's capacity.
    reserved_node, reserved_bucket, reserved_tasks : int64 array
        Room kept on a node for so many tasks of a bucket; a node is reserved once at most.
    entitled : float64 array, shape (queues,)
        The dominant share that a queue should have, where its siblings share by a division.

    Returns
    -------
    job, index, node : int64 array, shape (placed,)
        Job rows and node rows; the index counts on from the job's `next` (true where the job is regular).
    stop, stop_at, stop_order, stop_job : int64 array, shape (buckets,)
        Why the bucket was not served on, how many placements and how many other buckets' ends came before that, and the
        job that was tried.
    cursors : int64 array
        The shapes' cursors at the end, for the next cycle to begin with once the placements have happened: no node
        before them has room.
    more : bool
        Whether `most` ended the cycle.
    """
    n_queues, n_buckets, n_nodes = queues.n, buckets.n, nodes.n
    resources = total.shape[0]

    room = nodes.free[:n_nodes].copy()
    usable = nodes.up[:n_nodes] & ~nodes.draining[:n_nodes]
    for k in range(reserved_node.shape[0]):
        room[reserved_node[k]] -= reserved_tasks[k] * shapes.demand[buckets.shape[reserved_bucket[k]]]
    is_reserved = np.zeros(n_buckets, np.bool_)
    for k in range(reserved_node.shape[0]):
        is_reserved[reserved_bucket[k]] = True
    cursor = shapes.cursor[: shapes.n].copy()
    fresh = np.flatnonzero(nodes.fresh[:n_nodes])
    seen = np.zeros(shapes.n, np.int64)  # how many of them each shape has looked at
    behind = np.searchsorted(fresh, cursor)  # of so many: those before its cursor
    used = queues.used[:n_queues].copy()
    running = queues.tasks[:n_queues].copy()
    running_jobs = queues.jobs[:n_queues].copy()

    # Heaps of children: queue q's is heap[start[q] : start[q] + size[q]]; a leaf's are buckets.
    first_child = np.zeros(n_queues + 1, np.int64)
    for q in range(1, n_queues):
        first_child[queues.parent[q] + 1] += 1
    start = first_child.copy()
    for b in range(n_buckets):
        if buckets.head[b] != NONE:
            start[buckets.leaf[b] + 1] += 1
    most_gang = np.int64(0)
    hdrf = False
    for q in range(n_queues):
        first_child[q + 1] += first_child[q]
        start[q + 1] += start[q]
        hdrf |= queues.policy[q] == HDRF
    child = np.empty(first_child[n_queues], np.int64)
    filled = first_child.copy()
    for q in range(1, n_queues):
        p = queues.parent[q]
        child[filled[p]] = q
        filled[p] += 1
    heap = np.empty(start[n_queues], np.int64)
    size = np.zeros(n_queues, np.int64)
    slot = np.full(n_queues + n_buckets, NONE, np.int64)
    upcoming = np.full(n_queues + n_buckets, NONE, np.int64)  # the bucket that the entity would serve next
    below = np.ones(n_queues + n_buckets, np.int8)
    whole = np.zeros(n_queues + n_buckets, np.int64)
    real = np.zeros(n_queues + n_buckets, np.float64)
    rank = np.zeros(n_queues + n_buckets, np.int64)
    rank[:n_queues] = queues.rank[:n_queues]

    current = buckets.head[:n_buckets].copy()  # the job being served of each bucket
    left = np.zeros(n_buckets, np.int64)  # its tasks that still wait
    for b in range(n_buckets):
        if current[b] != NONE:
            left[b] = jobs.waiting[current[b]]
            most_gang = max(most_gang, buckets.gang[b])
            e = n_queues + b
            whole[e], real[e] = _priority_key(buckets.priority[b], jobs.id[current[b]])
            upcoming[e] = b
            q = buckets.leaf[b]
            heap[start[q] + size[q]] = e
            size[q] += 1
            _sift(heap, start[q], size[q], size[q] - 1, slot, below, whole, real, rank)
    counts_as = np.zeros((n_queues if hdrf else 1, resources))
    counted, all_count = np.ones(resources, np.bool_), np.ones(resources, np.bool_)
    if hdrf:
        _leave_out_saturated(counted, room, usable, n_queues, slot, buckets.shape[:n_buckets], shapes.demand, NONE)
    _build_tree(
        queues, shapes, buckets, jobs, current, used, total, entitled, hdrf, counts_as, counted, first_child, child,
        all_count, heap, start, size, slot, upcoming, below, whole, real, rank,
    )  # fmt: skip

    out_job = np.empty(most + most_gang, np.int64)
    out_index = np.empty(most + most_gang, np.int64)
    out_node = np.empty(most + most_gang, np.int64)
    stop = np.zeros(n_buckets, np.int64)
    stop_at = np.zeros(n_buckets, np.int64)
    stop_job = np.full(n_buckets, NONE, np.int64)
    stop_order = np.zeros(n_buckets, np.int64)
    stopped = 0
    placed = 0

    while placed < most and size[0] > 0:
        b = upcoming[heap[start[0]]]
        e = n_queues + b
        leaf = buckets.leaf[b]
        job = current[b]
        shape = buckets.shape[b]
        demand = shapes.demand[shape]
        mask = masks[shapes.mask[shape]]
        count = left[b] if buckets.gang[b] > 0 else 1
        started = jobs.holding[job] > 0 or left[b] < jobs.waiting[job]

        why = NOT_REACHED
        q = leaf
        while q != NONE:
            for r in range(resources):
                if demand[r] > 0 and used[q, r] + count * demand[r] > queues.limit[q, r]:
                    why = LIMIT
            if why == NOT_REACHED and running[q] + count > queues.max_tasks[q]:
                why = MAX_TASKS
            if why == NOT_REACHED and not started and running_jobs[q] >= queues.max_jobs[q]:
                why = MAX_JOBS
            q = queues.parent[q]

        if why == MAX_JOBS and buckets.started[b] > 0:
            # No more jobs may start, but one that runs already may go on.
            following = jobs.after[job]
            while following != NONE and jobs.holding[following] == 0:
                following = jobs.after[following]
            if following != NONE:
                current[b] = following
                left[b] = jobs.waiting[following]
                whole[e], real[e] = _priority_key(buckets.priority[b], jobs.id[following])
                _sift(heap, start[leaf], size[leaf], slot[e], slot, below, whole, real, rank)
                why = EXHAUSTED  # of this job, not of the bucket

        if why == NOT_REACHED and buckets.gang[b] > 0:
            if _place_gang(
                count, demand, room, usable, mask, cursor, fresh, seen, behind, shape,
                reserved_node, reserved_bucket, reserved_tasks, b, out_node, placed,
            ):  # fmt: skip
                for k in range(reserved_node.shape[0]):
                    if reserved_bucket[k] == b:
                        reserved_bucket[k] = NONE
            else:
                why = NO_NODE
        elif why == NOT_REACHED:
            n = NONE
            if is_reserved[b]:
                for k in range(reserved_node.shape[0]):
                    # A kept node's room is what is left when the kept part is taken off: not negative means it is free.
                    if reserved_bucket[k] == b and n == NONE:
                        m = reserved_node[k]
                        enough = usable[m] and mask[m]
                        for r in range(resources):
                            if demand[r] > 0 and room[m, r] < 0:
                                enough = False
                        if enough:
                            n = m
                            room[n] += demand
                            reserved_bucket[k] = NONE
                            is_reserved[b] = False
            if n == NONE and seen[shape] < behind[shape]:
                n = _next_fresh(room, demand, usable, mask, shape, fresh, seen, behind)
            if n == NONE:
                n = cursor[shape] = _next_node(room, demand, usable, mask, cursor[shape])
            if n == n_nodes:
                why = NO_NODE
            else:
                for r in range(resources):
                    room[n, r] -= demand[r]
                out_node[placed] = n

        if why == NOT_REACHED:
            first = jobs.next[job] + jobs.waiting[job] - left[b]
            for k in range(count):
                out_job[placed + k] = job
                out_index[placed + k] = first + k
            placed += count
            left[b] -= count
            q = leaf
            while q != NONE:
                for r in range(resources):
                    used[q, r] += count * demand[r]
                running[q] += count
                if not started:
                    running_jobs[q] += 1
                q = queues.parent[q]
            if left[b] == 0:
                job = jobs.after[job]
                current[b] = job
                if job == NONE:
                    why = EXHAUSTED
                else:
                    left[b] = jobs.waiting[job]
                    whole[e], real[e] = _priority_key(buckets.priority[b], jobs.id[job])
                    _sift(heap, start[leaf], size[leaf], slot[e], slot, below, whole, real, rank)
        if why != NOT_REACHED and (why != EXHAUSTED or current[b] == NONE):
            stop[b] = why
            stop_at[b] = placed
            stop_job[b] = current[b]
            stop_order[b] = stopped
            stopped += 1
            _remove(heap, start[leaf], size, leaf, slot[e], slot, below, whole, real, rank)
            if size[leaf] > 0:
                upcoming[leaf] = upcoming[heap[start[leaf]]]
            if (
                hdrf
                and why == NO_NODE
                and _leave_out_saturated(
                    counted, room, usable, n_queues, slot, buckets.shape[:n_buckets], shapes.demand, b
                )
            ):
                _build_tree(
                    queues, shapes, buckets, jobs, current, used, total, entitled, hdrf, counts_as, counted,
                    first_child, child, all_count, heap, start, size, slot, upcoming, below, whole, real, rank,
                )  # fmt: skip
                continue

        # The keys on the path to the root.
        q = leaf
        while q != 0:
            p = queues.parent[q]
            if size[q] == 0:
                if slot[q] != NONE:
                    _remove(heap, start[p], size, p, slot[q], slot, below, whole, real, rank)
            else:
                if hdrf:
                    _count_up(q, queues.policy, first_child, child, slot, used, real, counts_as)
                b = upcoming[heap[start[q]]]
                upcoming[q] = b
                _set_key(
                    q, queues.policy[p], buckets.priority[b], jobs.id[current[b]], shapes.demand, buckets.shape[b],
                    queues.guarantee, used, total, queues.weight, below, whole, real,
                )  # fmt: skip
                if queues.policy[p] == HDRF or queues.policy[p] == DIVIDED:
                    _set_level(
                        q, queues.policy[p], used, total, queues.weight, entitled, counts_as,
                        all_count if q == leaf else counted, whole, real,
                    )  # fmt: skip
                _sift(heap, start[p], size[p], slot[q], slot, below, whole, real, rank)
            q = p

    for k in range(shapes.n):
        if seen[k] < behind[k]:
            cursor[k] = fresh[seen[k]]
    return (
        out_job[:placed], out_index[:placed], out_node[:placed], stop, stop_at, stop_order, stop_job, cursor, size[0] > 0
    )  # fmt: skip


@compiled
def _remove(
    heap: I64,
    start: int,
    size: I64,
    q: int,
    position: int,
    slot: I64,
    below: I8,
    whole: I64,
    real: F64,
    rank: I64,
) -> None:
    """Take one entity out of the heap of queue q."""
    size[q] -= 1
    last = heap[start + size[q]]
    slot[heap[start + position]] = NONE
    if position < size[q]:
        heap[start + position] = last
        slot[last] = position
        _sift(heap, start, size[q], position, slot, below, whole, real, rank)
