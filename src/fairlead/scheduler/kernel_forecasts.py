"""How long tasks last, from how long others lasted.

Of tasks that have run for `age` seconds, the part that goes on beyond t seconds is, by a sketch with n(t) durations longer than
t and by what is believed without it,

    part(t) = (n(t) + w * believed(t)) / (n(age) + w)

so what is believed counts as much as w durations, all of them longer than the age. A job's own sketch is taken so with what its
family's says, that with what its queue's says, and that with the rule for where nothing is known: what has lasted longer than all
that was seen, L, goes on beyond t with chance L / t, so by even odds it lasts as long again. (That is the mean of Dirichlet
processes one above the other, Teh et al., JASA 2006, here of what is longer than the age.)

As n(age) never rises with the age, no part(t) falls: what goes on is never expected to end earlier than it was before.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from fairlead.kernel_cache import compiled
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.kernel_sketches import EDGES, bin_of, find, usual
from fairlead.scheduler.tables import BINS, F64, I64, NONE, OF_FAMILY, OF_JOB, OF_QUEUE

BELIEF: Final = np.array([4.0, 4.0, 1.0])
"""How many durations of the job's own, its family's and its queue's are outweighed by what is believed without those."""


FAR: Final = 4.0
"""A forecast goes no further than so many times the longest that is known; beyond, nothing is known, which is infinity."""


@compiled
def set_tails(v: View, j: int, tails: NDArray[np.float64]) -> float:
    """Set `tails[about, b]` to how many durations in each sketch of job row j are in bin b or longer ones.

    Returns what none is longer than.
    """
    longest = 0
    for about in range(3):
        key = v.jobs.id[j] if about == OF_JOB else v.jobs.family[j] if about == OF_FAMILY else v.jobs.queue[j]
        row = find(v, about, key)
        tails[about, BINS] = 0.0
        for b in range(BINS - 1, -1, -1):
            count = v.sketches.counts[row, b] if row != NONE else 0
            tails[about, b] = tails[about, b + 1] + count
            if count > 0:
                longest = max(longest, b + 1)
    return float(EDGES[longest])


@compiled
def duration(tails: F64, longest: float, age: float, part: float, far: float) -> float:
    """The seconds that only a part of those last longer than that last longer than `age`, by tails as `set_tails` makes them.

    Infinite where it would be more than `far` times as long as anything that was seen.
    """
    b = bin_of(age)
    within = max(0.0, (EDGES[b + 1] - age) / (EDGES[b + 1] - EDGES[b]))
    rest, weight = 1.0, np.empty(3)
    for about in range(3):
        longer = tails[about, b + 1] + within * (tails[about, b] - tails[about, b + 1])
        weight[about] = rest / (longer + BELIEF[about])
        rest *= BELIEF[about] / (longer + BELIEF[about])
    if rest >= part:
        return max(age, longest) * rest / part if rest <= far * part else np.inf
    begin, before = age, 1.0
    while before > part:
        end, after = EDGES[b + 1], rest
        for about in range(3):
            after += weight[about] * tails[about, b + 1]
        if after <= part:
            return begin + (end - begin) * (before - part) / (before - after)
        begin, before, b = end, after, b + 1
    return begin


@compiled
def durations(v: View, jobs: I64, ages: F64, parts: F64, far: float) -> F64:
    """`duration` of tasks of these job rows, never beyond their time limit. Cheapest where tasks of a job lie together."""
    found, tails = np.empty(len(jobs)), np.empty((3, BINS + 1))
    known, longest = NONE, 0.0
    for k in range(len(jobs)):
        if jobs[k] != known:
            known, longest = jobs[k], set_tails(v, jobs[k], tails)
        most = min(v.jobs.time_limit[jobs[k]], duration(tails, longest, ages[k], parts[k], far))
        found[k] = max(ages[k], most)
    return found


@compiled
def usual_duration(v: View, j: int) -> float:
    """How long a task of job row j lasts in nine of ten cases, or at most; infinite: not known.

    By its job's own, else by its family's, else by its queue's: the first of them that have as many as it takes to say it. It
    changes only when one of few numbers does, so that those who wait can be told when it has; `duration` with every end.
    """
    seconds = usual(v, OF_JOB, v.jobs.id[j]) if v.jobs.tasks[j] > 1 else np.nan
    if np.isnan(seconds) and v.jobs.family[j] != 0:
        seconds = usual(v, OF_FAMILY, v.jobs.family[j])
    if np.isnan(seconds):
        seconds = usual(v, OF_QUEUE, v.jobs.queue[j])
    return float(v.jobs.time_limit[j] if np.isnan(seconds) else min(v.jobs.time_limit[j], seconds))
