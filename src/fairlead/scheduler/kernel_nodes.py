"""Where there is room: first fit over the nodes, past blocks of them that have none; and which of those that have a job chose.

A bound is at least what any node of its block has of each resource. It is raised when room comes back, and brought down to what
is true when a block was looked through in vain.
"""

import numpy as np

from fairlead.kernel_cache import compiled
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.tables import FIRST, NONE, PACK, SPREAD
from fairlead.scheduler.view import BLOCK, BUCKETS, CYCLE, FRESH, NODES


@compiled
def holds_task(v: View, n: int, shape: int) -> bool:
    """Whether a node takes tasks of a shape, and has room for one now."""
    if not v.nodes.up[n] or v.nodes.draining[n] or not v.masks[v.shapes.mask[shape], n]:
        return False
    for r in range(v.total.shape[0]):
        if v.demand[shape, r] > 0 and v.demand[shape, r] > v.free[n, r] - v.held[n, r]:
            return False
    return True


@compiled
def _may_hold(v: View, bound: np.ndarray, shape: int) -> bool:
    for r in range(v.total.shape[0]):
        if v.demand[shape, r] > 0 and v.demand[shape, r] > bound[r]:
            return False
    return True


@compiled
def first_fit(v: View, shape: int) -> int:
    """Find the first node with room for a task of a shape; the number of nodes if there is none.

    Within a cycle room only shrinks, so a shape goes on from where it was.
    """
    n, count = 0, v.counts[NODES]
    if v.shape_seats.cycle[shape] == v.counts[CYCLE]:
        n = v.shape_seats.cursor[shape]
    whole = -1  # the block that was looked through from its first node on
    while n < count:
        if n % (BLOCK * BLOCK) == 0 and not _may_hold(v, v.large_bounds[n // (BLOCK * BLOCK)], shape):
            n += BLOCK * BLOCK
            continue
        if n % BLOCK == 0:
            if not _may_hold(v, v.bounds[n // BLOCK], shape):
                n += BLOCK
                continue
            whole = n // BLOCK
        if holds_task(v, n, shape):
            break
        n += 1
        if n % BLOCK == 0 and whole == n // BLOCK - 1:
            _lower(v, whole)
    n = min(n, count)
    v.shape_seats.cycle[shape], v.shape_seats.cursor[shape] = v.counts[CYCLE], n
    return int(n)


@compiled
def by_fit(v: View, shape: int, first: int) -> int:
    """Where a task of a shape goes, when `first` is the first node with room for it.

    The nodes are compared by how much of the resource that the task needs most of, by its part of all that there is, lies open.
    """
    fit, r = v.shapes.fit[shape], _dominant(v, shape)
    if fit == FIRST or r == NONE:
        return first
    n, best, least = first, first, _open_part(v, first, r)
    while n < v.counts[NODES]:
        if n % BLOCK == 0 and not _may_hold(v, v.bounds[n // BLOCK], shape):
            n += BLOCK
            continue
        part = _open_part(v, n, r)
        if ((fit == PACK and part < least) or (fit == SPREAD and part > least)) and holds_task(v, n, shape):
            best, least = n, part
        n += 1
    return int(best)


@compiled
def _dominant(v: View, shape: int) -> int:
    """The resource that a task of a shape needs most of, by its part of all that there is; NONE where it needs nothing."""
    found, most = NONE, 0.0
    for r in range(v.total.shape[0]):
        if v.demand[shape, r] > 0 and v.demand[shape, r] / max(1, v.total[r]) > most:
            found, most = r, v.demand[shape, r] / max(1, v.total[r])
    return int(found)


@compiled
def _open_part(v: View, n: int, r: int) -> float:
    """The part of what a node has of a resource that nobody has, and that is kept for nobody."""
    return float((v.free[n, r] - v.held[n, r]) / max(1, v.capacity[n, r]))


@compiled
def _lower(v: View, block: int) -> None:
    """Have a block's bound say what is true, and that of the large block which it is in."""
    bound = v.bounds[block]
    bound[:] = -1
    for n in range(block * BLOCK, min((block + 1) * BLOCK, v.counts[NODES])):
        if v.nodes.up[n] and not v.nodes.draining[n]:
            for r in range(v.total.shape[0]):
                bound[r] = max(bound[r], v.free[n, r] - v.held[n, r])
    large = block // BLOCK
    last = min((large + 1) * BLOCK, (v.counts[NODES] + BLOCK - 1) // BLOCK)
    v.large_bounds[large] = -1
    for k in range(large * BLOCK, last):
        for r in range(v.total.shape[0]):
            v.large_bounds[large, r] = max(v.large_bounds[large, r], v.bounds[k, r])


@compiled
def set_bounds(v: View) -> None:
    """Work out all bounds."""
    for block in range((v.counts[NODES] + BLOCK - 1) // BLOCK):
        _lower(v, block)


@compiled
def raise_bounds(v: View, n: int) -> None:
    """Have the bounds of a node's blocks hold for it, that has more room than it had; or has it again, that had less on paper."""
    block, large = n // BLOCK, n // (BLOCK * BLOCK)
    for r in range(v.total.shape[0]):
        room = v.free[n, r] - v.held[n, r]
        if room > v.bounds[block, r]:
            v.bounds[block, r] = room
            v.large_bounds[large, r] = max(v.large_bounds[large, r], room)


@compiled
def room_came_back(v: View, n: int) -> None:
    """Note that a node has more room than it had."""
    raise_bounds(v, n)
    if not v.node_seats.is_fresh[n]:
        v.node_seats.is_fresh[n] = True
        v.node_seats.fresh[v.counts[FRESH]] = n
        v.counts[FRESH] += 1


@compiled
def could_hold(v: View, n: int, shape: int) -> int:
    """How many tasks of a shape a node could hold, were it empty; 0 where it takes none of them."""
    if not v.nodes.up[n] or v.nodes.draining[n] or not v.masks[v.shapes.mask[shape], n]:
        return 0
    most = np.int64(2**62)
    for r in range(v.total.shape[0]):
        if v.demand[shape, r] > 0:
            most = min(most, v.capacity[n, r] // v.demand[shape, r])
    return int(most)


@compiled
def could_ever_hold(v: View, shape: int, count: int) -> bool:
    """Whether the nodes that there are could hold so many tasks of a shape at once, were they empty."""
    for n in range(v.counts[NODES]):
        count -= min(count, could_hold(v, n, shape))
        if count <= 0:
            return True
    return False


@compiled
def mark_hopeless(v: View) -> None:
    """Say of each bucket whether the nodes that there are could never hold its task or gang."""
    for b in range(v.counts[BUCKETS]):
        v.bucket_seats.hopeless[b] = not could_ever_hold(v, v.buckets.shape_row[b], max(1, v.buckets.gang[b]))


@compiled
def room_for(v: View, n: int, shape: int, count: int) -> int:
    """How many of so many tasks of a shape a node has room for now."""
    if not holds_task(v, n, shape):
        return 0
    most = count
    for r in range(v.total.shape[0]):
        if v.demand[shape, r] > 0:
            most = min(most, (v.free[n, r] - v.held[n, r]) // v.demand[shape, r])
    return most
