"""Unfinished jobs: their load by person and queue, and the files to remove when they end.

For the scheduler's thread only. A job is counted in the question that submits it, so the next question of the same step includes
it.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from fairlead.model.specs import Job, path_to_root
from fairlead.people.bounds import Load, check_load
from fairlead.people.rules import Caller, Rules
from fairlead.scheduler.facts import Fact, JobsForgotten
from fairlead.scheduler.job_index import size_of
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import NONE
from fairlead.service.exports import Exports


class _Known(NamedTuple):
    uid: int | None
    leaf: str
    load: Load
    export: str


class UnfinishedJobs:
    """All unfinished jobs.

    Parameters
    ----------
    exports : Exports
        Environments to remove when their jobs end.
    """

    def __init__(self, exports: Exports) -> None:
        self.exports = exports
        self._jobs: dict[int, _Known] = {}
        self._loads: dict[int | None, dict[str, Load]] = {}  # by uid and leaf, without zeros
        self._last: int | None = None  # the last noted job that ended

    def recover(self, state: State) -> None:
        jobs = state.jobs
        live = np.isnan(jobs.finished_at[: jobs.n]) & (jobs.id[: jobs.n] != NONE)
        for number in jobs.id[: jobs.n][live].tolist():
            job = state.index.specs[number]
            self.begin(number, job, load_of(job, self.exports))
        self.exports.drop_but(known.export for known in self._jobs.values())

    def begin(self, number: int, job: Job, load: Load) -> None:
        known = self._jobs[number] = _Known(job.uid, job.queue, load, job.work.export)
        self._more(known)

    def _more(self, known: _Known) -> None:
        leaves = self._loads.setdefault(known.uid, {})
        leaves[known.leaf] = leaves.get(known.leaf, Load()).plus(known.load)

    def moved(self, number: int, leaf: str) -> None:
        known = self._jobs[number]
        self._less(known)
        self._jobs[number] = moved = known._replace(leaf=leaf)
        self._more(moved)

    def recorded(self, state: State, facts: Sequence[Fact]) -> list[int]:
        """Note the jobs that have ended; return them."""
        ended = _newest(state, self._last)
        if ended:
            self._last = ended[0]
        forgotten = [number for fact in facts if isinstance(fact, JobsForgotten) for number in fact.ids]
        self._end([*ended, *forgotten])
        return ended

    def check(self, rules: Rules, caller: Caller, asked: Iterable[tuple[str, Load]]) -> None:
        """Raise Refused if what a caller asks for, as loads by leaf, would exceed their bounds."""
        new: dict[str, Load] = {}
        for leaf, load in asked:
            new[leaf] = new.get(leaf, Load()).plus(load)
        check_load(rules, caller, lambda queue: self.load(caller.person.uid, queue), new)

    def load(self, uid: int | None, queue: str, but: int | None = None) -> Load:
        """Return what a person has in a queue and below it, without the job `but`."""
        total = Load()
        for leaf, load in self._loads.get(uid, {}).items():
            if queue in path_to_root(leaf):
                total = total.plus(load)
        left_out = self._jobs.get(but) if but is not None else None
        if left_out is not None and queue in path_to_root(left_out.leaf):
            total = total.plus(left_out.load, -1)
        return total

    def _end(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            known = self._jobs.pop(number, None)
            if known is None:  # noted before
                continue
            if known.export:
                self.exports.drop([known.export])
            self._less(known)

    def _less(self, known: _Known) -> None:
        leaves = self._loads[known.uid]
        left = leaves[known.leaf].plus(known.load, -1)
        if left.jobs:
            leaves[known.leaf] = left
        else:
            del leaves[known.leaf]
            if not leaves:
                del self._loads[known.uid]


def load_of(job: Job, exports: Exports) -> Load:
    export = job.work.export
    return Load(1, job.tasks, size_of(job) + (exports.size(export) if export else 0))


def _newest(state: State, last: int | None) -> list[int]:
    """Return the jobs that ended after job `last`, newest first; all remembered ones if `last` is not among them."""
    ended = state.ended_jobs()
    if len(ended) and ended[-1] == last:  # the common case
        return []
    looked_at = 64
    while True:
        newest: list[int] = ended[-looked_at:][::-1].tolist()
        if last in newest:
            return newest[: newest.index(last)]
        if looked_at >= len(ended):
            return newest
        looked_at *= 8
