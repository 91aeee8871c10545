"""Unfinished jobs: their load by person and queue, and the files to remove when they end.

For the scheduler's thread only, except the files. A job is counted in the question that submits it, so the next question of the
same step includes it.
"""

import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from fairlead.data_folder import write_private
from fairlead.model.specs import Job, path_to_root
from fairlead.people.accounts import Person
from fairlead.people.bounds import Load, check_load
from fairlead.people.rules import Caller, Rules, rules_all
from fairlead.scheduler.facts import Fact, JobsForgotten
from fairlead.scheduler.job_index import ByNumber
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import NONE


class Exports:
    """Environments stored outside the journal: a file in a folder for each job, owned by its person, deleted when the job ends.

    The supervisor reads the file when it starts a task. Only the scheduler can write to the folder, so the files can be trusted.
    Thread-safe.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)

    def keep(self, environment: Mapping[str, str], person: Person) -> str:
        """Write an environment for a person durably; return the name of its file."""
        name = uuid.uuid4().hex
        write_private(self.folder / name, msgspec.json.encode(environment).decode(), durable=True)
        if os.geteuid() != person.uid:
            os.chown(self.folder / name, person.uid, person.gid)
        return name

    def size(self, name: str) -> int:
        """Return the size of a file in bytes; 0 if it no longer exists."""
        try:
            return (self.folder / name).stat().st_size
        except FileNotFoundError:
            return 0

    def drop(self, names: Iterable[str]) -> None:
        for name in names:
            (self.folder / name).unlink(missing_ok=True)

    def drop_but(self, names: Iterable[str]) -> None:
        """Remove all other files: leftovers of a scheduler that was killed."""
        self.drop({path.name for path in self.folder.iterdir()} - set(names))


class Unfinished(NamedTuple):
    """What is known of an unfinished job."""

    uid: int | None
    leaf: str
    load: Load
    export: str


Loads = dict[tuple[int | None, str], Load]
"""By person and leaf queue."""


class UnfinishedJobs:
    """All unfinished jobs.

    exports : environments to remove when their jobs end
    """

    def __init__(self, exports: Exports) -> None:
        self.exports = exports
        self._jobs = ByNumber[Unfinished]()
        self._loads: dict[int | None, dict[str, Load]] = {}  # by uid and leaf, without zeros
        self._last: int | None = None  # the last noted job that ended

    def recover(self, state: State) -> None:
        jobs = state.jobs
        live = np.isnan(jobs.finished_at[: jobs.n]) & (jobs.id[: jobs.n] != NONE)
        for number in jobs.id[: jobs.n][live].tolist():
            self.add(number, [unfinished(state.index.specs[number], self.exports)])
        self.exports.drop_but(known.export for known in self._jobs.values())

    def add(self, first: int, jobs: Sequence[Unfinished], loads: Loads | None = None) -> None:
        """Count new jobs, numbered from `first` on; `loads` is what :func:`totals` returns of them."""
        self._jobs.add(range(first, first + len(jobs)), jobs)
        for (uid, leaf), load in (totals(jobs) if loads is None else loads).items():
            self._count(uid, leaf, load)

    def _count(self, uid: int | None, leaf: str, load: Load, sign: int = 1) -> None:
        """Add to the load of a person in a leaf, or with -1 take it off."""
        leaves = self._loads.setdefault(uid, {})
        leaves[leaf] = leaves.get(leaf, Load()).plus(load, sign)
        if not leaves[leaf].jobs:
            del leaves[leaf]
            if not leaves:
                del self._loads[uid]

    def moved(self, number: int, leaf: str) -> None:
        known = self._jobs[number]
        self._count(known.uid, known.leaf, known.load, -1)
        self.add(number, [known._replace(leaf=leaf)])

    def recorded(self, state: State, facts: Sequence[Fact]) -> list[int]:
        """Note the jobs that have ended; return them."""
        ended = _newest(state, self._last)
        if ended:
            self._last = ended[0]
        forgotten = [number for fact in facts if isinstance(fact, JobsForgotten) for number in fact.ids]
        for number in (*ended, *forgotten):
            known = self._jobs.pop(number, None)
            if known is not None:  # else noted before
                if known.export:
                    self.exports.drop([known.export])
                self._count(known.uid, known.leaf, known.load, -1)
        return ended

    def check(self, rules: Rules, caller: Caller, asked: Loads) -> None:
        """Raise Refused if new jobs would exceed a caller's bounds."""
        if not rules_all(rules, caller):
            new = {leaf: load for (_, leaf), load in asked.items()}
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


def unfinished(job: Job, exports: Exports) -> Unfinished:
    export = job.work.export
    load = Load(1, job.tasks, job.size + (exports.size(export) if export else 0))
    return Unfinished(job.uid, job.queue, load, export)


def totals(jobs: Iterable[Unfinished]) -> Loads:
    by: dict[tuple[int | None, str], list[Load]] = {}
    for uid, leaf, load, _ in jobs:
        by.setdefault((uid, leaf), []).append(load)
    return {whose: Load(*map(sum, zip(*loads, strict=True))) for whose, loads in by.items()}


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
