"""The state as plain dictionaries for people and programs: jobs, tasks, queues, nodes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf, isfinite, nan
from signal import SIGXFSZ, Signals
from typing import NamedTuple

import numpy as np

from fairlead.model.api_types import CardInfo, JobInfo, NodeInfo, QueueInfo, RevokedInfo, TaskInfo, TaskPage, TaskStatus
from fairlead.model.cards import cards_of
from fairlead.model.quantity import round_quantity
from fairlead.model.ranges import ranges_of, written_ranges
from fairlead.model.specs import Job, Work, holds_jobs_of, path_to_root, written
from fairlead.policies import drf
from fairlead.policies.drf import dominant_share
from fairlead.scheduler.admission import Unknown, job_row, rows_below
from fairlead.scheduler.facts import Claim, Outcome
from fairlead.scheduler.forecasts import CAUTIOUS, EXPECTED, ends
from fairlead.scheduler.history import share_over_time
from fairlead.scheduler.preemption.claims import claims_by_leaf
from fairlead.scheduler.reports.fair_shares import fair_shares, listed_queues
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import JOB_STATUSES, OVER, PLACED, REVOKING, STATUS_NAMES
from fairlead.scheduler.tables import GUARANTEE, NONE, PRIORITY, UNLIMITED, WHY, Bools

COMMAND_CHARACTERS = 1000
"""Maximum characters of a command in a listing; a single job has all of it."""
MOST_RANGES = 20
"""Maximum ranges of indices in a description of a job."""
BLOCK = 4096
"""Rows of jobs that are looked through at a time."""
SIGNAL_NAMES = {signal.value: signal.name for signal in Signals}
PAGE_CHARACTERS = 2**20
"""Characters of text in a page of a listing after which no job is added."""


def describe_job(state: State, job: int) -> JobInfo:
    """Return a job: what was asked for, and how many of its tasks have which status. Raises Unknown."""
    return _jobs(state, [job_row(state, job)])[0]


@dataclass(frozen=True)
class Selection:
    """Jobs of a queue and those below it, of some statuses (none: all), submitted since a time, for which `where` is true.

    A job that only notifies is selected if it failed.
    """

    queue: str | None = None
    statuses: Sequence[str] = ()
    since: float = -inf
    where: Callable[[Job], bool] = lambda job: True

    def next(self, state: State, before: float | None, most: int) -> tuple[list[int], int | None]:
        """Look through a block of rows of jobs with numbers below `before`, newest first, for at most `most` selected jobs.

        Returns their rows, and the `before` of the next block; None after the last.
        """
        jobs, below = state.jobs, None if self.queue is None else rows_below(state, self.queue)
        end = NONE if before is None or not isfinite(before) else state.index.find(int(before))
        end, rows = jobs.n if end == NONE else end, list[int]()
        while end > 0 and not rows:
            block = slice(max(0, end - BLOCK), end)
            chosen = (jobs.id[block] != NONE) & (jobs.submitted_at[block] >= self.since)
            if before is not None:
                chosen &= jobs.id[block] < before
            if below is not None:
                chosen &= np.isin(jobs.queue[block], below)
            if self.statuses:
                chosen &= np.isin(jobs.statuses(block), [JOB_STATUSES.index(status) for status in self.statuses])
            end, rows = block.start, (block.start + np.flatnonzero(chosen)[::-1]).tolist()
        specs = ((row, state.index.specs[int(jobs.id[row])]) for row in rows)
        found = [*islice((row for row, spec in specs if (not spec.note or jobs.failed[row] > 0) and self.where(spec)), most)]
        return found, int(jobs.id[found[-1] if len(found) == most else rows[-1]]) if rows else None


class Listing:
    """The newest jobs of a :class:`Selection`, newest first, with numbers below `before`.

    Long commands are cut, and the listing ends early if its texts are large.

    found : jobs found so far
    next : the `before` of the next page; None if there is none, or the listing is not complete
    is_over : True if the listing is complete
    """

    def __init__(self, selection: Selection, before: int | None = None, limit: int = 100) -> None:
        self.found: list[JobInfo] = []
        self.next: int | None = None
        self.is_over = False
        self._selection, self._before, self._limit = selection, before, limit
        self._size = 0

    def read(self, state: State, most: int) -> None:
        """Read the next jobs, at most `most`; what is found is as of now."""
        chosen, following = self._selection.next(state, self._before, min(most, self._limit + 1 - len(self.found)))
        for job in _jobs(state, chosen, COMMAND_CHARACTERS):
            if len(self.found) == self._limit or self._size > PAGE_CHARACTERS:
                self.next, self.is_over = self.found[-1]["id"], True
                return
            self.found.append(job)
            self._size += _size_of_texts(job)
        self.is_over, self._before = following is None, following


def describe_tasks(
    state: State, job: int, now: float, first: int = 0, limit: int = 1000, status: TaskStatus | None = None
) -> TaskPage:
    """Return tasks of a job by index, from `first` on, as they are now; optionally of one status."""
    row = job_row(state, job)
    begin, count = int(state.jobs.first[row]), int(state.jobs.tasks[row])
    indices = np.arange(first, count if status is not None else min(count, first + limit + 1))
    if status is not None:
        indices = indices[state.tasks.status[begin + indices] == STATUS_NAMES.index(status)]
    following = int(indices[limit]) if len(indices) > limit else None
    indices = indices[:limit]
    expected, cautious = (ends(state, begin + indices, now, chance) for chance in (EXPECTED, CAUTIOUS))
    columns = zip(indices.tolist(), expected.tolist(), cautious.tolist(), strict=True)
    work = state.index.specs[job].work
    found = [describe_task(state, begin, work, *column) for column in columns]
    return {"tasks": found, "next": following}


def find_task(state: State, job: int, index: int) -> TaskInfo:
    """Return one task of a job, without forecasts. Raises Unknown."""
    row = job_row(state, job)
    if not 0 <= index < state.jobs.tasks[row]:
        raise Unknown(f"job {job} has no task {index}: its tasks are 0 to {state.jobs.tasks[row] - 1}")
    return describe_task(state, int(state.jobs.first[row]), state.index.specs[job].work, index)


def describe_task(state: State, begin: int, work: Work, index: int, expected: float = nan, cautious: float = nan) -> TaskInfo:
    """Return the task at `index` of the job whose first task row is `begin`, with its forecasts if given."""
    tasks, t = state.tasks, begin + index
    status = int(tasks.status[t])
    placed = PLACED <= status <= REVOKING
    over = status in OVER and tasks.attempt[t] > 0
    return {
        "index": index, "known_as": work.known_as(index), "status": STATUS_NAMES[status], "attempt": int(tasks.attempt[t]),
        "node": state.cluster.specs[tasks.node[t]].name if placed or over else None,
        "cards": cards_of(tasks.cards[t].tolist()) if placed or over else [],
        "exit": exit_status(int(tasks.outcome[t]), int(tasks.code[t])) if over else None,
        "reason": reason_of(Outcome(int(tasks.outcome[t])), int(tasks.code[t])) if over else None,
        "cpu_seconds": _known(tasks.cpu[t], 3), "peak_memory": _whole(tasks.peak[t]),
        "started_at": _time(tasks.started_at[t]), "finished_at": _time(tasks.finished_at[t]),
        "checkpointed_at": _time(tasks.kept_at[t]) if placed and tasks.kept_at[t] >= tasks.started_at[t] else None,
        "expected_end": _time(expected), "cautious_end": _time(cautious),
    }  # fmt: skip


def reason_of(outcome: Outcome, code: int) -> str:
    """Return in a few words how a task ended."""
    if outcome == Outcome.SIGNALLED and code == SIGXFSZ:
        return "output limit"
    if outcome == Outcome.UNUSED:
        return "idle"
    return outcome.name.lower().replace("_", " ")


def exit_status(outcome: int, code: int) -> int:
    """Return a shell's exit status: 128 + signal, 126 or 127 for what could not be run, 124 for the time limit, 1 if lost."""
    if outcome == Outcome.LOST:
        return 1
    if outcome == Outcome.TIME_LIMIT:
        return 124
    if outcome == Outcome.NOT_STARTED:
        return 127 if code == 2 else 126
    return 128 + code if outcome in (Outcome.SIGNALLED, Outcome.OUT_OF_MEMORY) else code


def list_queues(state: State) -> list[QueueInfo]:
    """Return the queue tree, parents before children, siblings by name; removed queues while they have anything."""
    waiting = np.zeros(state.queues.n, np.int64)
    known = state.jobs.id[: state.jobs.n] != NONE
    np.add.at(waiting, state.jobs.queue[: state.jobs.n][known], state.jobs.waiting[: state.jobs.n][known])
    for row in range(state.queues.n - 1, 0, -1):
        waiting[state.queues.parent[row]] += waiting[row]
    q = state.queues
    fair, claims, strict = fair_shares(state), claims_by_leaf(state), q.strict[: q.n].copy()
    there, removed = listed_queues(state)
    for leaf, above in _merged_leaves(state, there):
        claims[above], strict[above] = claims.get(leaf, []), strict[leaf]
        there[[leaf, q.parent[leaf]]] = False
    inner = {int(q.parent[row]) for row in np.flatnonzero(there)}
    found: list[QueueInfo] = []
    for row in sorted(range(q.n), key=lambda row: state.tree.names[row].split("/")):
        name = state.tree.names[row]
        if not there[row]:
            continue
        draining = any(state.tree.spec_of(path).draining for path in path_to_root(name))
        weight = q.divisor(int(row))
        column = drf.dominant_resource(q.used[row], state.cluster.total, weight)
        own, whose = q.limit[row] != UNLIMITED, state.frameworks.at.get(name)
        found.append(
            {
                "name": written(name),
                "status": "removed" if removed[row] else "draining" if draining else "open",
                "policy": state.tree.policy_of(name) if row in inner else None,
                "used": state.quantities(q.used[row]),
                "offered": state.quantities(q.offered[row]),
                "framework": None if whose is None else state.frameworks.members[whose[0]].framework.name,
                "dominant_share": float(dominant_share(q.used[row], state.cluster.total, weight)),
                "share_over_time": share_over_time(q, int(row), state.grain, state.cluster.total),
                "dominant_resource": state.resources[column] if column >= 0 else None,
                "weight": dict(zip(state.resources, map(float, q.weight[row] * (not q.weightless[row])), strict=True)),
                "guarantee": state.quantities(q.guarantee[row]),
                "declared_guarantee": state.quantities(q.declared[row]),
                "limit": {name: int(v) for name, v, o in zip(state.resources, q.limit[row], own, strict=True) if o},
                "fair_share": {
                    "steady": state.quantities(fair.steady[row]),
                    "instantaneous": state.quantities(fair.instantaneous[row]),
                    "within_demand": state.quantities(fair.within_demand[row]),
                },
                "max_tasks": _count(q.max_tasks[row]),
                "max_jobs": _count(q.max_jobs[row]),
                "strict": bool(strict[row]),
                "claims": claims.get(int(row), []),
                "running": int(q.tasks[row]),
                "waiting": int(waiting[row]),
            }
        )
    return found


def _merged_leaves(state: State, there: Bools) -> list[tuple[int, int]]:
    """Return leaves for queues' own jobs that have no siblings now, each with its queue's row, as which it is listed."""
    names, rows, parent = state.tree.names, state.tree.rows, state.queues.parent
    leaves = [row for row, name in enumerate(names) if holds_jobs_of(name) != name]
    others = {int(parent[row]) for row in {*np.flatnonzero(there).tolist()} - {*leaves}}
    return [(leaf, rows[holds_jobs_of(names[leaf])]) for leaf in leaves if parent[leaf] not in others]


def list_nodes(state: State) -> list[NodeInfo]:
    """Return the nodes, in the order they joined."""
    nodes = state.nodes
    held = state.tasks.node[state.held_rows()]
    tasks = np.bincount(held, minlength=nodes.n)
    return [
        {
            "name": spec.name,
            "status": "lost" if not nodes.up[row] else "draining" if nodes.draining[row] else "up",
            "capacity": state.quantities(nodes.capacity[row]),
            "used": state.quantities(nodes.capacity[row] - nodes.free[row]),
            "labels": spec.labels,
            "tasks": int(tasks[row]),
        }
        for row, spec in enumerate(state.cluster.specs)
        if not nodes.forgotten[row]
    ]


def list_cards(state: State, there: Mapping[str, Sequence[int]]) -> dict[str, list[CardInfo]]:
    """Return the cards of each node; `there` has their numbers."""
    rows = state.held_rows()
    rows = rows[state.tasks.cards[rows].any(axis=1)]
    job, index, _ = state.attempts_of(rows)
    columns = (column.tolist() for column in (job, index, state.tasks.node[rows], state.tasks.cards[rows]))
    whose = {(node, card): (job, index) for job, index, node, words in zip(*columns, strict=True) for card in cards_of(words)}
    found: dict[str, list[CardInfo]] = {}
    for row, spec in enumerate(state.cluster.specs):
        drained = state.drained_cards(row)
        cards = there.get(spec.name, ()) if state.nodes.up[row] else ()
        found[spec.name] = [_card(state, card, whose.get((row, card)), card in drained) for card in cards]
    return found


def _card(state: State, card: int, task: tuple[int, int] | None, drained: bool) -> CardInfo:
    found: CardInfo = {
        "card": card, "status": "drained" if drained else "free", "job": None, "task": None, "queue": None, "user": None,
        "busy": None, "memory_used": None, "memory": None,
    }  # fmt: skip
    if task is not None:
        spec = state.index.specs[task[0]]
        found |= {
            "status": "draining" if drained else "used", "job": task[0], "task": spec.work.known_as(task[1]),
            "queue": state.display_name(spec.queue), "user": spec.user,
        }  # fmt: skip
    return found


def _beginning(work: Work, most: int | None) -> list[str]:
    """Return the words of a command, cut to `most` characters."""
    if most is None:
        return [work.readable(word) for word in work.argv]
    words: list[str] = []
    for word in work.argv:
        if most <= 0:
            return [*words, "..."]
        cut = work.readable(word[:most]) + "..." * (len(word) > most)
        words.append(cut)
        most -= len(word) + 1
    return words


def _size_of_texts(job: JobInfo) -> int:
    given = (*job["on"].items(), *job["prefer"].items())
    labels = (len(word) for name, values in given for word in (name, *values))
    return sum(map(len, job["argv"])) + len(job["cwd"]) + len(job["name"]) + sum(labels) + 32 * len(job["after"])


def _jobs(state: State, rows: Sequence[int], longest_command: int | None = None) -> list[JobInfo]:
    jobs, which = state.jobs, np.asarray(rows, np.int64)
    first, counts = jobs.first[which], jobs.tasks[which]
    cpu, peak = state.tasks.cpu[first].astype(np.float64), state.tasks.peak[first].astype(np.float64)
    for place in np.flatnonzero(counts > 1).tolist():
        own = slice(int(first[place]), int(first[place] + counts[place]))
        cpu[place], peak[place] = state.tasks.cpu[own].sum(dtype=np.float64), state.tasks.peak[own].max()
    columns = (jobs.statuses(which), cpu, peak, *(getattr(jobs, name)[which] for name in _Columns._fields[3:]))
    each = zip(*(column.tolist() for column in columns), strict=True)
    return [_job(state, _Columns(*values), longest_command) for values in each]


class _Columns(NamedTuple):
    """What the tables have of a job: its status, as a place in JOB_STATUSES, and use; then columns by name."""

    status: int
    cpu: float
    peak: float
    id: int
    tasks: int
    waiting: int
    holding: int
    failed: int
    cancelled: int
    submitted_at: float
    finished_at: float


def _job(state: State, job: _Columns, longest_command: int | None) -> JobInfo:
    spec, made = state.index.specs[job.id], state.calls.get(job.id)
    return {
        "id": job.id, "name": spec.name, "group": spec.group, "queue": state.display_name(spec.queue),
        "user": spec.user, "status": JOB_STATUSES[job.status], "tasks": job.tasks,
        "indices": written_ranges(spec.work.array or ranges_of(spec.work.indices[:MOST_RANGES]), MOST_RANGES),
        "waiting": job.waiting, "running": job.holding,
        "succeeded": job.tasks - job.waiting - job.holding - job.failed - job.cancelled,
        "failed": job.failed, "cancelled": job.cancelled, "demand": spec.demand, "on": spec.on, "prefer": spec.prefer,
        "priority": spec.priority, "gang": spec.gang, "retries": spec.retries, "retry_delay": spec.retry_delay,
        "time_limit": spec.time_limit, "at_most": spec.at_most, "exit_done": spec.exit_done, "grace": spec.grace,
        "signal": SIGNAL_NAMES[spec.signal], "revocable": spec.revocable, "fit": spec.fit, "ray": spec.work.ray,
        "revoked": _revoked(state, job.id), "begin": spec.begin, "singleton": spec.singleton,
        "after": [{"job": after.job, "how": after.how} for after in spec.after],
        "cpu_seconds": _known(job.cpu, 3), "peak_memory": _whole(job.peak), "calls": made[0] if made is not None else None,
        "call_seconds": made[1] / 1000 if made is not None else None, "argv": _beginning(spec.work, longest_command),
        "cwd": spec.work.readable(spec.work.cwd), "submitted_at": job.submitted_at, "finished_at": _time(job.finished_at),
    }  # fmt: skip


def _revoked(state: State, job: int) -> RevokedInfo | None:
    found = state.revocations.get(job)
    if found is None:
        return None
    text = f"revoked {whom(state, found.claim)}"
    return {"at": found.at, "tasks": found.tasks, "queue": state.display_name(found.claim.queue), "text": text}


def whom(state: State, claim: Claim) -> str:
    """Return for whom tasks were revoked, as text."""
    queue = state.display_name(claim.queue)
    if not claim.resource:
        why = "has a higher priority" if claim.why == WHY[PRIORITY] else "reclaims idle resources"
        return f"for {f'job {claim.job}' if claim.job else 'a framework'} of {queue}, which {why}"
    has, of = (round_quantity(claim.resource, amount) for amount in (claim.has, claim.of))
    if claim.why == WHY[GUARANTEE]:
        return f"for {queue}, which had {has} of its {of} guaranteed {claim.resource}"
    return f"for {queue}, which had {has} of its fair share of {of} {claim.resource}"


def _count(value: int) -> int | None:
    return None if value == UNLIMITED else int(value)


def _known(value: float, digits: int) -> float | None:
    return round(float(value), digits) if value > 0 else None


def _whole(value: float) -> int | None:
    return int(value) if value > 0 else None


def _time(value: float) -> float | None:
    return float(value) if isfinite(value) else None
