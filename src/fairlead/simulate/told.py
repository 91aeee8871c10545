"""What was told of when jobs start, and what came of it: by how much the intervals of late were too narrow.

How far outside of its interval each start was is the logarithm of a factor, negative where it was inside. The interval that is
told next is wider by what eight in ten of the last ones would have needed: conformal quantile regression (Romano, Patterson and
Candès, NeurIPS 2019), which holds whatever is wrong with the runs on paper, as long as it goes on being wrong alike.
"""

import json
from collections import deque
from math import ceil, inf, log
from typing import NamedTuple

from fairlead.simulate.outlook import Outlook, widened

INSIDE = 0.8
"""Of the starts, so many are to be in their intervals."""
MOST_OPEN = 1000
"""Jobs whose starts are waited for, at most: more than that, and the oldest is let go."""
LATEST = 200
"""Starts that are looked back on."""
ENOUGH = 20
"""With fewer of them, nothing is made wider."""


class _Open(NamedTuple):
    """What was told of a job that has not started: when, the waits, and those as they were before they were widened."""

    at: float
    first: float
    last: float
    low: float
    high: float


class Told:
    """Outlooks that were told, the first of each job, and how far off they were."""

    def __init__(self) -> None:
        self._open: dict[int, _Open] = {}
        self._factors: deque[float] = deque(maxlen=LATEST)

    def as_text(self) -> str:
        """All of it as JSON, for :meth:`from_text`."""
        return json.dumps({"open": list(self._open.items()), "factors": list(self._factors)})

    @classmethod
    def from_text(cls, text: str) -> "Told":
        """Read what :meth:`as_text` wrote. Raises ValueError, TypeError or KeyError for anything else."""
        told, found = json.loads(text), cls()
        found._open = {int(job): _Open(*map(float, each)) for job, each in told["open"][-MOST_OPEN:]}
        found._factors.extend(map(float, told["factors"]))
        return found

    def waits_for(self) -> list[int]:
        """The jobs of which something was told, and that have not started."""
        return list(self._open)

    def note(self, told: Outlook, now: float, widen: float) -> None:
        """Remember what was told of a job, by how much it was made wider."""
        if told.earliest is None or told.held or told.job in self._open:
            return
        if len(self._open) == MOST_OPEN:
            self.forget(next(iter(self._open)))
        first, last = told.earliest - now, inf if told.latest is None else told.latest - now
        self._open[told.job] = _Open(now, first, last, widened(first, widen), widened(last, -widen))

    def __bool__(self) -> bool:
        return bool(self._open)

    def started(self, job: int, now: float) -> bool | None:
        """A task of a job has started: whether within what was told of it, if anything was."""
        told = self._open.pop(job, None)
        if told is None:
            return None
        wait = now - told.at
        self._factors.append(_outside(told.low, told.high, wait))
        return told.first - 1 <= wait <= told.last + 1  # to the second

    def forget(self, job: int) -> None:
        """A job will not start any more, or nobody asks when."""
        self._open.pop(job, None)

    def widen(self, now: float) -> float:
        """By how much the next interval is to be wider: the logarithm of a factor. Who is late already counts as well."""
        late = [
            _outside(told.low, told.high, now - told.at) for told in self._open.values() if now - told.at > told.high
        ]
        factors = sorted([*self._factors, *late])
        if len(factors) < ENOUGH:
            return 0.0
        place = ceil(INSIDE * (len(factors) + 1)) - 1
        return max(0.0, factors[min(place, len(factors) - 1)])


def _outside(low: float, high: float, wait: float) -> float:
    """The logarithm of the factor by which a wait is outside of an interval; negative inside."""
    above = log((wait + 1) / (high + 1)) if high < inf else -inf
    return max(log((low + 1) / (wait + 1)), above)
