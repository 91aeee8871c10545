"""How long tasks of jobs last in one run on paper, drawn.

Tasks of one job are alike, whether much is known of it or not. So of a job each draw is, with the chance that its own durations
have against what is believed without them (see :mod:`fairlead.scheduler.kernel_forecasts`), one of those that were drawn for it
before: an urn to which each draw is added (Blackwell and MacQueen, Annals of Statistics 1973).
"""

import numpy as np

from fairlead.kernel_cache import unlocked
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.kernel_forecasts import BELIEF, duration, set_tails
from fairlead.scheduler.tables import BINS, F64, I64, NONE, OF_JOB


@unlocked
def draw(v: View, jobs: I64, ages: F64, chances: F64, found: F64) -> None:
    """Draw how long tasks last in all that have run so long.

    Parameters
    ----------
    v : View
    jobs : int64, shape (n,)
        Rows of their jobs, those of the same job together.
    ages : float64, shape (n,)
        Seconds; 0 for one that does not run yet.
    chances : float64, shape (n, 3)
        Even between 0 and 1.
    found : float64, shape (n,)
        Is set: seconds. 0 where nothing is known of such tasks, and they do not run yet.
    """
    tails = np.empty((3, BINS + 1))
    known, begin, longest = NONE, 0, 0.0
    for k in range(len(jobs)):
        if jobs[k] != known:
            known, begin, longest = jobs[k], k, set_tails(v, jobs[k], tails)
        before, limit = k - begin, v.jobs.time_limit[jobs[k]]
        found[k] = -1.0
        if chances[k, 0] * (before + tails[OF_JOB, 0] + BELIEF[OF_JOB]) < before:
            found[k] = found[begin + int(chances[k, 1] * before)]
        if found[k] < ages[k] or (ages[k] > 0.0 and found[k] == ages[k]):
            found[k] = max(ages[k], min(limit, duration(tails, longest, ages[k], 1.0 - chances[k, 2], np.inf)))


@unlocked
def fill_in(v: View, jobs: I64, chances: F64, pool: F64, found: F64) -> None:
    """Where nothing is known, tasks last as others of their job were drawn to, or as one of a pool, or for ever."""
    begin = 0
    for k in range(len(jobs)):
        if jobs[k] != jobs[begin]:
            begin = k
        if found[k] == 0.0:
            lasts = np.inf
            if k > begin and found[begin] > 0.0:
                lasts = found[begin + int(chances[k, 1] * (k - begin))]
            elif len(pool) > 0:
                lasts = pool[int(chances[k, 0] * len(pool))]
            found[k] = min(v.jobs.time_limit[jobs[k]], lasts)
