"""Room for a bucket's next task, or whole gang: on which nodes, those included that are kept for it. Written to `chosen`."""

from fairlead.kernel_cache import compiled
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.kernel_nodes import first_fit, raise_bounds
from fairlead.scheduler.kernel_order import tasks_left
from fairlead.scheduler.tables import NONE
from fairlead.scheduler.view import HOLDS, NODES

# Rows of `chosen`: of what was placed, job and node rows, the task's index counted on from the job's `next`, whether the job ran
# nothing before, and of the hold that was used, the row.
JOB, INDEX, NODE, FRESH_JOB, HOLD = range(5)


@compiled
def find_room(v: View, b: int, count: int, placed: int) -> bool:
    """Find nodes for all of so many tasks of a bucket and take their room, or change nothing."""
    shape = v.buckets.shape_row[b]
    found = 0
    if v.bucket_seats.keeping[b]:
        found = _use_holds(v, b, count, placed)
        if found < 0:
            return False
    cursor, cycle = v.shape_seats.cursor[shape], v.shape_seats.cycle[shape]
    while found < count:
        n = first_fit(v, shape)
        if n == v.counts[NODES]:
            v.shape_seats.cursor[shape], v.shape_seats.cycle[shape] = cursor, cycle
            give_room_back(v, b, found, placed)
            return False
        take_room(v, n, shape, 1)
        v.chosen[NODE, placed + found], v.chosen[HOLD, placed + found] = n, NONE
        found += 1
    return True


@compiled
def _use_holds(v: View, b: int, count: int, placed: int) -> int:
    """Place tasks where room is kept for them: how many. A gang uses what is kept as a whole, or not at all (-1)."""
    shape, gang = v.buckets.shape_row[b], v.buckets.gang[b] > 0
    found = 0
    if gang:
        for h in range(v.counts[HOLDS]):
            if v.holds.bucket[h] == b and not _is_free(v, h, shape):
                return -1
    for h in range(v.counts[HOLDS]):
        if v.holds.bucket[h] == b and v.holds.tasks[h] > 0 and found < count and _is_free(v, h, shape):
            for r in range(v.total.shape[0]):
                v.held[v.holds.node[h], r] -= v.amount[h, r]
            tasks = v.holds.tasks[h]
            v.holds.tasks[h] = -tasks  # used
            for _ in range(min(tasks, count - found)):
                v.chosen[NODE, placed + found], v.chosen[HOLD, placed + found] = v.holds.node[h], h
                take_room(v, v.holds.node[h], shape, 1)
                found += 1
    return found


@compiled
def _is_free(v: View, h: int, shape: int) -> bool:
    """Whether all that a hold keeps is there by now."""
    n = v.holds.node[h]
    if not v.nodes.up[n] or v.nodes.draining[n] or not v.masks[v.shapes.mask[shape], n]:
        return False
    for r in range(v.total.shape[0]):
        if v.demand[shape, r] > 0 and v.free[n, r] < v.held[n, r]:
            return False
    return True


@compiled
def unuse(v: View, h: int) -> None:
    if v.holds.tasks[h] < 0:
        v.holds.tasks[h] = -v.holds.tasks[h]
        for r in range(v.total.shape[0]):
            v.held[v.holds.node[h], r] += v.amount[h, r]


@compiled
def take_room(v: View, n: int, shape: int, sign: int) -> None:
    for r in range(v.total.shape[0]):
        v.free[n, r] -= sign * v.demand[shape, r]


@compiled
def give_room_back(v: View, b: int, count: int, placed: int) -> None:
    """Undo :func:`find_room`; the shape's cursor is the caller's."""
    for k in range(count):
        take_room(v, v.chosen[NODE, placed + k], v.buckets.shape_row[b], -1)
        raise_bounds(v, v.chosen[NODE, placed + k])
    for k in range(count):
        if v.chosen[HOLD, placed + k] != NONE:
            unuse(v, v.chosen[HOLD, placed + k])


@compiled
def has_room(v: View, b: int) -> bool:
    """Whether there is room for a bucket's next task, or whole gang; for a single task :func:`take_found` can take it then."""
    if is_single(v, b):
        return bool(first_fit(v, v.buckets.shape_row[b]) < v.counts[NODES])
    count, end = tasks_left(v, b) if v.buckets.gang[b] > 0 else 1, v.chosen.shape[1]
    shape = v.buckets.shape_row[b]
    cursor, cycle = v.shape_seats.cursor[shape], v.shape_seats.cycle[shape]
    if not find_room(v, b, count, end - count):
        return False
    give_room_back(v, b, count, end - count)
    v.shape_seats.cursor[shape], v.shape_seats.cycle[shape] = cursor, cycle
    return True


@compiled
def is_single(v: View, b: int) -> bool:
    """Whether a bucket's tasks start one by one, and no nodes are kept for them."""
    return v.buckets.gang[b] == 0 and not v.bucket_seats.keeping[b]


@compiled
def take_found(v: View, b: int, placed: int) -> None:
    """Take the room for a single task that :func:`has_room` found: its shape's cursor stands there."""
    shape = v.buckets.shape_row[b]
    n = v.shape_seats.cursor[shape]
    v.chosen[NODE, placed], v.chosen[HOLD, placed] = n, NONE
    take_room(v, n, shape, 1)
