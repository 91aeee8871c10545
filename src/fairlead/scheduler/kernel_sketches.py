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
from fairlead.scheduler.view import SKETCHES

EDGES: Final = np.array([0.0, *(math.ldexp(1 + (b % 4) / 4, b // 4 - 4) for b in range(1, BINS + 1))])
"""Seconds: bin b holds what is from EDGES[b] on and below EDGES[b + 1]; the last all that is longer, too."""

FULL: Final = 1024
"""Durations in a sketch at which it is halved."""

OF_ONE_JOB: Final = 32
"""Tasks of one job that count for its family and its queue; up to twice as many."""

_SPREAD: Final = -7046029254386353131  # 2**64 over the golden ratio


@compiled
def bin_of(seconds: float) -> int:
    """The bin of a duration, from the digits of the number, so that it is the same on every machine."""
    if seconds < EDGES[1] or seconds >= EDGES[BINS]:
        return 0 if seconds < EDGES[1] else BINS - 1
    fraction, octave = math.frexp(seconds)  # seconds == fraction * 2**octave, and 0.5 <= fraction < 1
    return 4 * (octave + 3) + int(8 * fraction) - 4


@compiled
def note_duration(v: View, j: int, index: int, seconds: float, at: float) -> None:
    """A task of job row j ended by itself after so many seconds, NaN where it never ran."""
    if not seconds >= 0.0:
        return
    jobs = v.jobs
    b = bin_of(seconds)
    if jobs.tasks[j] > 1:
        _count(v, _row_for(v, OF_JOB, jobs.id[j], at), b, at)
    if index % max(1, jobs.tasks[j] // OF_ONE_JOB) == 0:
        if jobs.family[j] != 0:
            _count(v, _row_for(v, OF_FAMILY, jobs.family[j], at), b, at)
        _count(v, _row_for(v, OF_QUEUE, jobs.queue[j], at), b, at)


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
    sketches.about[victim], sketches.key[victim], sketches.total[victim] = about, key, 0
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
def _count(v: View, row: int, b: int, at: float) -> None:
    sketches = v.sketches
    if sketches.total[row] == FULL:
        _halve(v, row)
    sketches.counts[row, b] += 1
    sketches.total[row] += 1
    sketches.used[row] = at


@compiled
def _halve(v: View, row: int) -> None:
    """Keep half of the durations; of those longer than any, half as well, but for one."""
    counts, rest = v.sketches.counts, 0
    for b in range(BINS - 1, -1, -1):
        both = counts[row, b] + rest
        counts[row, b] = both // 2
        rest = both % 2
    v.sketches.total[row] //= 2


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
