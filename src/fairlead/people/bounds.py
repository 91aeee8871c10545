"""What one person may take of the scheduler itself, so that nobody crowds the others out. Pure functions over rules and loads.

What is said of a queue bounds what a person has in it and below; what is said of ``@default``, what they have in all. All that is
said holds; but of a task's output the nearest says how much it may be. Root, and the one person of a personal scheduler, are
bounded by nothing but what is said of output.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import asdict, replace

from fairlead.model.specs import EVERYWHERE, ROOT, Bounds, ancestors, path_to_root
from fairlead.people.rules import Caller, Rules, rules_all, star_of
from fairlead.scheduler.admission import Refused
from fairlead.scheduler.framework_index import holds_jobs_of

DEFAULT = Bounds(
    requests=500.0,
    streams=200,
    programs=100,
    jobs=50_000,
    tasks=2_000_000,
    environment=256 * 2**20,
    output_limit=10 * 2**30,
)
"""Where nothing else is said; somebody who is busy does not meet it."""


class Load(NamedTuple):
    """What somebody has with the scheduler: jobs that have not ended, their tasks, and the bytes of what these are to run."""

    jobs: int = 0
    tasks: int = 0
    bytes: int = 0

    def plus(self, other: "Load", sign: int = 1) -> "Load":
        return Load(*(a + sign * b for a, b in zip(self, other, strict=True)))


def default_bounds(rules: Rules, caller: Caller) -> Bounds:
    """What somebody may take in all; nothing is None but for those who are not bounded."""
    if rules_all(rules, caller):
        return Bounds()
    said = asdict(rules.bounds.get(EVERYWHERE, Bounds()))
    return replace(DEFAULT, **{name: bound for name, bound in said.items() if bound is not None})


def output_limit(rules: Rules, leaf: str) -> int | None:
    """The bytes that one task of a leaf may write as its output; None for as many as there is room for."""
    said = [bounds.output_limit for _, bounds in _said(rules, leaf)] + [
        rules.bounds.get(EVERYWHERE, Bounds()).output_limit
    ]
    nearest = next((limit for limit in said if limit is not None), None)
    return nearest if nearest is not None or rules.personal else DEFAULT.output_limit


def check_load(rules: Rules, caller: Caller, has: Callable[[str], Load], new: Mapping[str, Load]) -> None:
    """Refuse more jobs than somebody may have.

    Parameters
    ----------
    has : function
        What they have in a queue and below it already.
    new : mapping of str to Load
        By leaf queue, what they ask for.
    """
    if rules_all(rules, caller):
        return
    bounded = {queue: bounds for leaf in new for queue, bounds in _said(rules, leaf)}
    _check(default_bounds(rules, caller), has(ROOT), new.values(), "")
    for queue, bounds in bounded.items():
        asked = [load for leaf, load in new.items() if queue in path_to_root(leaf)]
        _check(bounds, has(queue), asked, f" in queue {queue!r}")


def _said(rules: Rules, leaf: str) -> list[tuple[str, Bounds]]:
    """What is said of a leaf, itself or by the ``*`` that stands for it, and of the queues above; the nearest first."""
    leaf = holds_jobs_of(leaf)
    names = [leaf] if leaf in rules.bounds else [star_of(leaf)]
    found = [(leaf, rules.bounds[name]) for name in names if name in rules.bounds]
    return found + [(name, rules.bounds[name]) for name in ancestors(leaf) if name in rules.bounds]


def _check(bounds: Bounds, has: Load, new: Iterable[Load], where: str) -> None:
    total = has
    for load in new:
        total = total.plus(load)
    for most, count, what in (
        (bounds.jobs, total.jobs, "jobs that have not ended"),
        (bounds.tasks, total.tasks, "tasks of jobs that have not ended"),
        (bounds.environment, total.bytes, "bytes of commands, environments and labels of jobs that have not ended"),
    ):
        if most is not None and count > most:
            raise Refused(
                f"that would be {count:,} {what}{where}, and one person has {most:,} at most: wait until some end"
            )
