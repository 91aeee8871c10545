"""All jobs in one line, in compiled code: first come, first served, and EASY backfill, the baselines of the literature.

Nobody passes the first of the line; but under EASY (Lifka 1995; Mu'alem and Feitelson 2001) it has a reservation, at the earliest
moment at which by the limits of what runs all of it fits, and others start before it where that does not delay it: they end by
then, or take nothing there that it needs. Nobody behind the first is promised anything. What the first is: its next task, or all
of it where it is a gang. Tasks go where they first fit.

It drives the same simulated machines as the scheduler does, and shares none of its code.
"""

from typing import ClassVar

import numpy as np

from fairlead.engines.kernel_simulated import RUNNING, Runs, Truth, end_into, next_end, start, submit
from fairlead.kernel_cache import compiled, unlocked
from fairlead.scheduler.compiled_view import Arrays
from fairlead.scheduler.tables import F64, I64, NONE


class Line(Arrays):
    """The line, and what is promised to its first.

    submit : float64, shape (jobs,): when each comes, in that order; `comes`: whether it does, or is refused
    tasks, shape : int64, shape (jobs,): how many tasks, and which row of `allowed`, shape (shapes, nodes), says where they may
        run
    gang : bool, shape (jobs,): whether all tasks start at once
    left, after : int64, shape (jobs,): tasks that wait, and who is next in the line; NONE
    node, one : int64, room for the nodes of a gang and for the columns of its start
    ends : int64, shape (5, n): room for what ends at one moment
    spare : int64, shape (nodes, resources): of a node that is `kept`, what may run beyond the promised moment
    at : float64, shape (3,): the moment that has been reached, the next one, and the promised one
    idled : float64, shape (resources,): free room that was kept, times seconds
    tried : int64, shape (shapes,): the last pass in which it had room on no node
    numbers : int64: see below
    """

    ARRAYS: ClassVar = {
        "submit": ("f8", 1), "comes": ("?", 1), "tasks": ("i8", 1), "shape": ("i8", 1), "allowed": ("?", 2), "gang": ("?", 1),
        "left": ("i8", 1), "after": ("i8", 1), "node": ("i8", 1), "one": ("i8", 2), "ends": ("i8", 2), "spare": ("i8", 2),
        "kept": ("?", 1), "at": ("f8", 1), "idled": ("f8", 1), "tried": ("i8", 1), "numbers": ("i8", 1),
    }  # fmt: skip


# Numbers in `numbers`: jobs that have come, the first and the last of the line, whether it has a promise, passes over the line so
# far, tasks started, moments that are over.
CAME, HEAD, TAIL, PROMISED, PASS, DECISIONS, STEPS = range(7)
NUMBERS = 7
NOW, NEXT, PROMISE = range(3)


@unlocked
def advance(truth: Truth, runs: Runs, line: Line, until: float, backfill: bool, longer: float) -> bool:
    """Go on to the last moment at or before `until`; whether there is anything after that. Limits are `longer` than durations."""
    numbers = line.numbers
    while True:
        came = numbers[CAME]
        now = min(line.submit[came] if came < line.submit.shape[0] else np.inf, next_end(truth, runs))
        line.at[NEXT] = now
        if now == np.inf:
            return False
        if now > until:
            return True
        _count_idle(truth, line, now - line.at[NOW])
        line.at[NOW] = now
        ended = end_into(truth, runs, now, line.ends)
        while numbers[CAME] < line.submit.shape[0] and line.submit[numbers[CAME]] <= now:
            _come(truth, line, numbers[CAME], now)
        if ended > 0 and longer != 1.0:
            numbers[PROMISED] = 0  # it ended before its limit
        _start_first(truth, runs, line, now)
        if backfill and numbers[HEAD] != NONE:
            if not numbers[PROMISED]:
                _promise(truth, runs, line, now, longer)
            _start_others(truth, runs, line, now, longer)
        numbers[STEPS] += 1


@compiled
def _count_idle(truth: Truth, line: Line, seconds: float) -> None:
    """Add up what is free and kept for the first, and so for nobody who would run beyond the promised moment."""
    if not line.numbers[PROMISED]:
        return
    for n in np.flatnonzero(line.kept):
        for r in range(line.idled.shape[0]):
            free = truth.capacity[n, r] - truth.load[n, r]
            line.idled[r] += seconds * max(0, free - line.spare[n, r])


@compiled
def _come(truth: Truth, line: Line, j: int, now: float) -> None:
    """A job comes, and stands behind all others."""
    line.numbers[CAME] += 1
    if not line.comes[j]:
        return
    submit(truth, j, line.tasks[j], now)
    line.left[j], line.after[j] = line.tasks[j], NONE
    if line.numbers[HEAD] == NONE:
        line.numbers[HEAD] = j
    else:
        line.after[line.numbers[TAIL]] = j
    line.numbers[TAIL] = j


@compiled
def _start_first(truth: Truth, runs: Runs, line: Line, now: float) -> None:
    """Start whoever is first, as long as there is room for that."""
    numbers = line.numbers
    while numbers[HEAD] != NONE:
        j = numbers[HEAD]
        if not _start_where_free(truth, runs, line, j, now, np.inf, False):
            return
        numbers[PROMISED] = 0
        if line.left[j] == 0:
            numbers[HEAD] = line.after[j]


@compiled
def _start_others(truth: Truth, runs: Runs, line: Line, now: float, longer: float) -> None:
    """Start, in the order of the line, whoever does not delay the first."""
    line.numbers[PASS] += 1
    before = line.numbers[HEAD]
    if not line.gang[before]:
        line.tried[line.shape[before]] = line.numbers[PASS]
    j = line.after[before]
    while j != NONE:
        while line.left[j] > 0 and line.tried[line.shape[j]] != line.numbers[PASS]:
            if not _start_where_free(truth, runs, line, j, now, longer, True):
                break
        if line.left[j] == 0:
            line.after[before] = line.after[j]
            if line.numbers[TAIL] == j:
                line.numbers[TAIL] = before
        else:
            before = j
        j = line.after[j]


@compiled
def _start_where_free(truth: Truth, runs: Runs, line: Line, j: int, now: float, longer: float, beside: bool) -> bool:
    """Start a job's next task, or the whole gang, perhaps beside what is promised; or nothing, where not all of it has room."""
    count = line.left[j] if line.gang[j] else 1
    index = line.tasks[j] - line.left[j]
    found = 0
    while found < count:
        until = now + longer * _duration(truth, j, index + found) if beside else np.inf
        n = _first_fit(truth, line, j, until, beside)
        if n == NONE:
            break
        line.node[found] = n
        _take(truth, line, j, n, until, beside, 1)
        found += 1
    for k in range(found):
        until = now + longer * _duration(truth, j, index + k) if beside else np.inf
        _take(truth, line, j, line.node[k], until, beside and found < count, -1)
    if found < count:
        return False
    for k in range(count):
        line.one[0, k], line.one[1, k], line.one[2, k] = j, index + k, 1
    start(truth, runs, line.one[0, :count], line.one[1, :count], line.one[2, :count], line.node[:count], now)
    line.left[j] -= count
    line.numbers[DECISIONS] += count
    return True


@compiled
def _duration(truth: Truth, j: int, index: int) -> float:
    return float(truth.duration[truth.first[j] + index % truth.several[j]])


@compiled
def _first_fit(truth: Truth, line: Line, j: int, until: float, beside: bool) -> int:
    """The first node that has room for a task of a job, perhaps beside what is promised; NONE."""
    free_somewhere = False
    for n in range(line.kept.shape[0]):
        if not line.allowed[line.shape[j], n]:
            continue
        fits, spares = True, not (beside and line.kept[n]) or until <= line.at[PROMISE]
        for r in range(truth.demand.shape[1]):
            fits &= truth.demand[j, r] <= truth.capacity[n, r] - truth.load[n, r]
        if fits and not spares:
            spares = True
            for r in range(truth.demand.shape[1]):
                spares &= truth.demand[j, r] <= line.spare[n, r]
        if fits and spares:
            return n
        free_somewhere |= fits
    if beside and not free_somewhere and not line.gang[j]:
        line.tried[line.shape[j]] = line.numbers[PASS]
    return NONE


@compiled
def _take(truth: Truth, line: Line, j: int, n: int, until: float, beside: bool, sign: int) -> None:
    """A task takes room on a node, or gives it back (-1); and, running beyond the promised moment, of what is to spare then."""
    runs_beyond = beside and line.kept[n] and until > line.at[PROMISE]
    for r in range(truth.demand.shape[1]):
        truth.load[n, r] += sign * truth.demand[j, r]
        if runs_beyond:
            line.spare[n, r] -= sign * truth.demand[j, r]


@compiled
def _promise(truth: Truth, runs: Runs, line: Line, now: float, longer: float) -> None:
    """Find the earliest moment at which, by the limits of what runs, all of the first fits; and where that is."""
    j = line.numbers[HEAD]
    count = line.left[j] if line.gang[j] else 1
    free = truth.capacity - truth.load
    running = runs.heap[: truth.size[RUNNING]].copy()
    limits = runs.since[running] + longer * runs.work[running]
    fits = np.zeros(len(line.kept), np.int64)
    for n in range(len(fits)):
        fits[n] = _how_many(truth, line, j, n, free)
    total, left = fits.sum(), len(running)
    _make_heap(limits, running)
    while total < count:
        moment = limits[0]
        line.at[PROMISE] = moment
        while left > 0 and limits[0] <= moment:
            run = running[0]
            n = runs.node[run]
            for r in range(free.shape[1]):
                free[n, r] += truth.demand[runs.job[run], r]
            total -= fits[n]
            fits[n] = _how_many(truth, line, j, n, free)
            total += fits[n]
            left -= 1
            limits[0], running[0] = limits[left], running[left]
            _sink(limits, running, 0, left)
    line.kept[:] = False
    for n in range(len(fits)):
        here = min(fits[n], count)
        count -= here
        if here > 0:
            line.kept[n] = True
            for r in range(free.shape[1]):
                line.spare[n, r] = free[n, r] - here * truth.demand[j, r]
    line.numbers[PROMISED] = 1


@compiled
def _how_many(truth: Truth, line: Line, j: int, n: int, free: I64) -> int:
    """How many tasks of a job a node has room for, of so many that it has."""
    if not line.allowed[line.shape[j], n]:
        return 0
    most = line.tasks[j]
    for r in range(free.shape[1]):
        if truth.demand[j, r] > 0:
            most = min(most, free[n, r] // truth.demand[j, r])
    return int(most)


@compiled
def _make_heap(keys: F64, rows: I64) -> None:
    for place in range(len(keys) // 2 - 1, -1, -1):
        _sink(keys, rows, place, len(keys))


@compiled
def _sink(keys: F64, rows: I64, place: int, size: int) -> None:
    """Move what is at a place of a heap, whose least is first, down to where it belongs."""
    while 2 * place + 1 < size:
        down = 2 * place + 1
        if down + 1 < size and keys[down + 1] < keys[down]:
            down += 1
        if keys[place] <= keys[down]:
            return
        keys[place], keys[down] = keys[down], keys[place]
        rows[place], rows[down] = rows[down], rows[place]
        place = down
