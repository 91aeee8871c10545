"""What is kept of how long tasks lasted: counts by duration, of a job, of a family of jobs, of a leaf queue.

Of a job with very many tasks only some count for its family and its queue, evenly chosen by their index: not those that end
first, which are the short ones. A sketch that is full is halved, so that old durations weigh less and less.

Only so many sketches are kept. Each has its place in one set of a few, and a new one takes there that of a job that has ended,
or one that is free, or of the one that was added to longest ago; a queue's goes last. All of it follows from the facts alone.
"""

import math
from typing import Final

import numpy as np

from fairlead.kernel_cache import compiled
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.tables import BINS, NONE, OF_FAMILY, OF_JOB, OF_QUEUE, SETS, WAYS
from fairlead.scheduler.view import FORGOTTEN_SKETCHES, SKETCHES

EDGES: Final = np.array([0.0, *(math.ldexp(1 + (b % 4) / 4, b // 4 - 4) for b in range(1, BINS + 1))])
"""Seconds: bin b holds what is from EDGES[b] on and below EDGES[b + 1]; the last all that is longer, too."""

FULL: Final = 1024
"""Durations in a sketch at which it is halved."""

OF_ONE_JOB: Final = 32
"""Tasks of one job that count for its family and its queue; up to twice as many."""

IN_TEN: Final = 10
"""Of so many durations one is allowed to be longer than `usual`."""

NOBODYS, FAMILYS, QUEUES, FORGIVEN, EVERYBODYS = range(5)

_SPREAD: Final = -7046029254386353131  # 2**64 over the golden ratio


@compiled
def bin_of(seconds: float) -> int:
    """The bin of a duration, from the digits of the number, so that it is the same on every machine."""
    if seconds < EDGES[1] or seconds >= EDGES[BINS]:
        return 0 if seconds < EDGES[1] else BINS - 1
    fraction, octave = math.frexp(seconds)  # seconds == fraction * 2**octave, and 0.5 <= fraction < 1
    return 4 * (octave + 3) + int(8 * fraction) - 4


@compiled
def note_duration(v: View, j: int, index: int, seconds: float, at: float) -> int:
    """A task of job row j ended by itself after so many seconds, NaN where it never ran.

    Returns whose usual duration may be another now: NOBODYS, FAMILYS (or the job's own), QUEUES or EVERYBODYS; FORGIVEN,
    where the queue may be trusted again as well.
    """
    whose = NOBODYS
    if not seconds >= 0.0:
        return whose
    jobs, forgotten = v.jobs, v.counts[FORGOTTEN_SKETCHES]
    b = bin_of(seconds)
    if jobs.tasks[j] > 1 and _count(v, _row_for(v, OF_JOB, jobs.id[j], at), b, at):
        whose = FAMILYS
    if index % max(1, jobs.tasks[j] // OF_ONE_JOB) == 0:
        if jobs.family[j] != 0 and _count(v, _row_for(v, OF_FAMILY, jobs.family[j], at), b, at):
            whose = FAMILYS
        row = _row_for(v, OF_QUEUE, jobs.queue[j], at)
        full = v.sketches.total[row] == FULL
        if _count(v, row, b, at):
            whose = FORGIVEN if full else QUEUES
    return EVERYBODYS if v.counts[FORGOTTEN_SKETCHES] > forgotten else whose


@compiled
def let_go(v: View, job: int) -> None:
    """A job has ended: its own sketch makes room first."""
    row = find(v, OF_JOB, job)
    if row != NONE:
        v.sketches.used[row] = -np.inf


@compiled
def find(v: View, about: int, key: int) -> int:
    """The row of a sketch, NONE where there is none."""
    sketches, places, s = v.sketches, v.sketch_places, set_of(about, key)
    for way in range(WAYS):
        row = places[s, way]
        if row != NONE and sketches.key[row] == key and sketches.about[row] == about:
            return int(row)
    return NONE


@compiled
def set_of(about: int, key: int) -> int:
    """The set that a sketch has its place in."""
    return (((4 * key + about) * _SPREAD) >> 40) & (SETS - 1)


@compiled
def _row_for(v: View, about: int, key: int, at: float) -> int:
    """The row of a sketch, which is made where there is none."""
    row = find(v, about, key)
    if row != NONE:
        return row
    sketches, places, s = v.sketches, v.sketch_places, set_of(about, key)
    free, victim = NONE, NONE
    for way in range(WAYS):
        other = places[s, way]
        if other == NONE:
            free = way
        elif victim == NONE or _goes_before(v, other, victim):
            victim = other
    if victim == NONE or (free != NONE and sketches.used[victim] > -np.inf):
        victim = v.counts[SKETCHES]
        v.counts[SKETCHES] += 1
        places[s, free] = victim
    elif sketches.used[victim] > -np.inf:
        v.counts[FORGOTTEN_SKETCHES] += int(sketches.usual[victim] != NONE)
    sketches.about[victim], sketches.key[victim], sketches.total[victim] = about, key, 0
    sketches.usual[victim], sketches.beyond[victim] = NONE, 0
    for b in range(BINS):
        sketches.counts[victim, b] = 0
    return int(victim)


@compiled
def _goes_before(v: View, row: int, other: int) -> bool:
    """Whether a sketch makes room before another."""
    sketches = v.sketches
    last, other_last = sketches.about[row] == OF_QUEUE, sketches.about[other] == OF_QUEUE
    if last != other_last:
        return bool(other_last)
    if sketches.used[row] != sketches.used[other]:
        return bool(sketches.used[row] < sketches.used[other])
    return row < other


@compiled
def _count(v: View, row: int, b: int, at: float) -> bool:
    """Count a duration in a sketch; whether what is usual is another now, or who did not keep to it is forgiven."""
    sketches, full = v.sketches, v.sketches.total[row] == FULL
    if full:
        _halve(v, row)
    sketches.counts[row, b] += 1
    sketches.total[row] += 1
    sketches.used[row] = at
    was = sketches.usual[row]
    if was != NONE and b > was:
        sketches.beyond[row] += 1
    _set_usual(v, row)
    return bool(full or sketches.usual[row] != was)


@compiled
def _set_usual(v: View, row: int) -> None:
    """Go from what was usual to what is.

    Of N durations and one to come each is equally likely to be the k-th longest, so the next is longer than the k-th longest of N
    with a chance of k in N + 1, whatever they are like; k is the most for which that is no more than one in ten.
    """
    sketches, counts = v.sketches, v.sketches.counts
    allowed = (sketches.total[row] + 1) // IN_TEN
    if allowed == 0:
        sketches.usual[row], sketches.beyond[row] = NONE, 0
        return
    b, beyond = sketches.usual[row], sketches.beyond[row]
    if b == NONE:
        b, beyond = BINS - 1, 0
    while beyond >= allowed:
        b += 1
        beyond -= counts[row, b]
    while beyond + counts[row, b] < allowed:
        beyond += counts[row, b]
        b -= 1
    sketches.usual[row], sketches.beyond[row] = b, beyond


@compiled
def find_usual(v: View) -> None:
    """Work out what is usual in all sketches."""
    for row in range(v.counts[SKETCHES]):
        v.sketches.usual[row], v.sketches.beyond[row] = NONE, 0
        _set_usual(v, row)


@compiled
def usual(v: View, about: int, key: int) -> float:
    """The seconds that nine in ten of a sketch lasted no longer than; NaN where there are too few, or none."""
    row = find(v, about, key)
    if row == NONE or v.sketches.usual[row] == NONE:
        return np.nan
    return float(EDGES[v.sketches.usual[row] + 1]) if v.sketches.usual[row] < BINS - 1 else np.inf


@compiled
def _halve(v: View, row: int) -> None:
    """Keep half of the durations; of those longer than any, half as well, but for one."""
    counts, rest = v.sketches.counts, 0
    for b in range(BINS - 1, -1, -1):
        both = counts[row, b] + rest
        counts[row, b] = both // 2
        rest = both % 2
    v.sketches.total[row] //= 2
    v.sketches.usual[row], v.sketches.beyond[row] = NONE, 0
    if v.sketches.about[row] == OF_QUEUE:  # who did not keep to forecasts that were made of them is forgiven by and by
        q = v.sketches.key[row]
        v.queues.trusted[q] //= 2
        v.queues.overran[q] //= 2


@compiled
def find_places(v: View) -> None:
    """Give all sketches their places anew."""
    places = v.sketch_places
    places[:] = NONE
    for row in range(v.counts[SKETCHES]):
        s, way = set_of(v.sketches.about[row], v.sketches.key[row]), 0
        while places[s, way] != NONE:
            way += 1
        places[s, way] = row
