"""Bounds on what one person may take of the scheduler itself. Pure functions over rules and loads.

The bounds of a queue apply to what a person has in it and below. The bounds of ``@default`` apply to what they have in total.
All of them apply at once, except the output limit of a task, where the nearest decides. Root and the owner of a personal
scheduler have no bounds except output limits that are configured.

Requests have a rate per second with a burst. A refusal states when to retry.
"""

import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import reduce
from typing import NamedTuple

from msgspec.structs import asdict, replace

from fairlead.model.specs import EVERYWHERE, ROOT, Bounds, ancestors, holds_jobs_of, path_to_root, settings_for
from fairlead.people.rules import Caller, Rules, rules_all
from fairlead.scheduler.admission import Refused

DEFAULT = Bounds(
    requests=500.0, streams=200, programs=100, jobs=50_000, tasks=2_000_000, environment=256 * 2**20, output_limit=10 * 2**30
)
"""The bounds that apply unless the configuration sets others. Busy users normally stay below them."""
BURST_SECONDS = 4.0
"""The burst is this many seconds' worth of requests."""
MOST_REMEMBERED = 10_000


class Load(NamedTuple):
    """What a person has in the scheduler: unfinished jobs, their tasks, and the bytes of their commands and environments."""

    jobs: int = 0
    tasks: int = 0
    bytes: int = 0

    def plus(self, other: "Load", sign: int = 1) -> "Load":
        return Load(self.jobs + sign * other.jobs, self.tasks + sign * other.tasks, self.bytes + sign * other.bytes)


def default_bounds(rules: Rules, caller: Caller) -> Bounds:
    """Return a person's total bounds; all None for callers without bounds."""
    if rules_all(rules, caller):
        return Bounds()
    said = asdict(rules.bounds.get(EVERYWHERE, Bounds()))
    return replace(DEFAULT, **{name: bound for name, bound in said.items() if bound is not None})


def output_limit(rules: Rules, leaf: str) -> int | None:
    """Return the bytes of output that one task of a leaf may write; None for no limit."""
    if not rules.bounds:  # the common case
        return None if rules.personal else DEFAULT.output_limit
    said = [bounds.output_limit for _, bounds in _said(rules, leaf)] + [rules.bounds.get(EVERYWHERE, Bounds()).output_limit]
    nearest = next((limit for limit in said if limit is not None), None)
    return nearest if nearest is not None or rules.personal else DEFAULT.output_limit


def check_load(rules: Rules, caller: Caller, has: Callable[[str], Load], new: Mapping[str, Load]) -> None:
    """Raise Refused if new jobs would exceed a person's bounds.

    has : returns what they have in a queue and below it
    new : what they submit, by leaf queue
    """
    if rules_all(rules, caller):
        return
    bounded = {queue: bounds for leaf in new for queue, bounds in _said(rules, leaf)}
    _check(default_bounds(rules, caller), has(ROOT), new.values(), "")
    for queue, bounds in bounded.items():
        asked = [load for leaf, load in new.items() if queue in path_to_root(leaf)]
        _check(bounds, has(queue), asked, f" in queue {queue!r}")


def _said(rules: Rules, leaf: str) -> list[tuple[str, Bounds]]:
    """Return the bounds that apply to a leaf, nearest first: its own or its ``*`` sibling's, then its ancestors'."""
    leaf = holds_jobs_of(leaf)
    said = [(leaf, settings_for(leaf, rules.bounds)), *((name, rules.bounds.get(name)) for name in ancestors(leaf))]
    return [(name, bounds) for name, bounds in said if bounds is not None]


def _check(bounds: Bounds, has: Load, new: Iterable[Load], where: str) -> None:
    total = reduce(Load.plus, new, has)
    for most, count, what in (
        (bounds.jobs, total.jobs, "jobs that have not ended"),
        (bounds.tasks, total.tasks, "tasks of jobs that have not ended"),
        (bounds.environment, total.bytes, "bytes of commands, environments and labels of jobs that have not ended"),
    ):
        if most is not None and count > most:
            raise Refused(f"that would be {count:,} {what}{where}, and one person has {most:,} at most: wait until some end")


class Rates:
    """Counts requests by caller. For one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._full_at: dict[Hashable, float] = {}  # when a caller could use the whole burst again

    def wait(self, who: Hashable, a_second: float | None, count: int = 1) -> float:
        """Count a request with weight `count`; return 0 if it is allowed now, otherwise the seconds to wait.

        Without a limit `a_second`, all are allowed. A request heavier than the whole burst is allowed after a pause.
        """
        if a_second is None:
            return 0.0
        now, takes = self._clock(), count / a_second
        full_at = max(self._full_at.get(who, now), now)
        wait = full_at - now - max(0.0, BURST_SECONDS - takes)
        if wait > 0:
            return wait
        if len(self._full_at) >= MOST_REMEMBERED:
            self._full_at = {each: at for each, at in self._full_at.items() if at > now}
        self._full_at[who] = full_at + takes
        return 0.0
