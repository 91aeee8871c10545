"""Read the journal of a live scheduler into a workload, to be simulated as it happened or under another configuration.

What people and machines did is replayed at its time: jobs with all that they asked for, cancellations, holds and edits; nodes
that join, are drained and lost; the configuration, and those that replaced it. What the scheduler decided is not, except that the
real starts are kept for comparison.

A task's duration is the time that it held resources, from placement to end, added up over attempts. Attempts that were revoked or
lost with their node do not count, since these end so in the simulation; but a task is longer than each of them. Where tasks have
not ended, it is the median of the others of the job, or of all, and at least what was seen of it.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from fairlead.failure import failing
from fairlead.journal import JournalError, read_history
from fairlead.journal.sql import SqlStore
from fairlead.model.specs import Job, Node, Settings, holds_jobs_of
from fairlead.scheduler import facts
from fairlead.scheduler.facts import Fact
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import CANCELLED, PLACED, SUCCEEDED
from fairlead.simulate.workload import Jobs, TraceError, Workload

KEPT = ("name", "user", "retries", "exit_done", "at_most", "grace", "revocable", "fit")
"""What is simulated of a job beside a workload's columns."""
AT_ITS_TIME = ("priority", "retries", "at_most")
"""What an edit changes when it was made; all else is as if it had been submitted so."""
LONGER = 1e-3
"""Seconds by which a task is longer than an attempt that was lost with its node."""
Task = tuple[int, int]


class _Past:
    """What a journal says happened.

    jobs : by number, time of submission and the job
    changes : what happens beside jobs, in order
    begun : first placement of tasks
    took : seconds that tasks held resources
    least : longest time that an attempt held them that was revoked or lost with its node
    exited : how long the last revoked attempt held them, if it ended by itself
    running : when and on which node, by its row, running tasks were placed
    revoked : those of them that were revoked
    rows : names of nodes, in the order they joined
    began, at : time of the first fact and of the last
    """

    def __init__(self) -> None:
        self.jobs: dict[int, tuple[float, Job]] = {}
        self.changes: list[Fact] = []
        self.begun: dict[Task, float] = {}
        self.took: dict[Task, float] = {}
        self.least: dict[Task, float] = {}
        self.exited: dict[Task, float] = {}
        self.running: dict[Task, tuple[float, int]] = {}
        self.revoked: set[Task] = set()
        self.rows: list[str] = []
        self.at, self.began = 0.0, np.inf

    def begin(self, known: State) -> None:
        """Take what a snapshot knows."""
        self.at = known.at
        self.changes.append(facts.Configured(at=-np.inf, queues=list(known.tree.declared.values()), settings=known.settings))
        self.rows = [node.name for node in known.cluster.specs]
        for row, node in enumerate(known.cluster.specs):
            if known.nodes.up[row]:
                self.changes.append(facts.NodeJoined(at=-np.inf, node=node))
            if known.nodes.draining[row]:
                self.changes.append(facts.NodeDrained(at=-np.inf, node=node.name))
        for number, job in sorted(known.index.specs.items()):
            row = known.job_row(number)
            submitted = max(float(known.jobs.submitted_at[row]), job.begin or -np.inf)
            self.jobs[number] = submitted, job
            if known.jobs.held[row]:
                self.changes.append(facts.JobHeld(at=submitted, id=number))
            self._tasks_of(known, number, slice(int(known.jobs.first[row]), int(known.jobs.first[row] + job.tasks)))

    def _tasks_of(self, known: State, number: int, rows: slice) -> None:
        columns = (getattr(known.tasks, name)[rows].tolist() for name in ("status", "started_at", "finished_at", "node"))
        for index, (status, started, finished, node) in enumerate(zip(*columns, strict=True)):
            if started < finished:  # neither is NaN
                self.took[number, index] = finished - started
            elif PLACED <= status < SUCCEEDED:
                self.running[number, index] = known.at if np.isnan(started) else started, node
            elif status == CANCELLED:
                self.changes.append(facts.JobCancelled(at=finished, id=number, indices=[index]))

    def take(self, fact: Fact) -> None:
        self.at, self.began = fact.at, min(self.began, fact.at)
        match fact:
            case facts.JobSubmitted():
                for number, job in fact.numbered():
                    self.jobs[number] = max(fact.at, job.begin or -np.inf), job
                    self.changes += [facts.JobHeld(at=fact.at, id=number)] if job.held else []
            case facts.JobEdited(id=number) if number in self.jobs:
                submitted, job = self.jobs[number]
                edited = fact.edited(job)
                submitted = submitted if fact.begin is None else max(fact.at, fact.begin)
                before = {name: getattr(job, name) for name in AT_ITS_TIME}
                self.jobs[number] = submitted, msgspec.structs.replace(edited, **before)
                then = {name: getattr(fact, name) for name in AT_ITS_TIME}
                if any(value is not None for value in then.values()):
                    self.changes.append(facts.JobEdited(at=fact.at, id=number, **then))
            case facts.Configured() | facts.NodeDrained() | facts.NodeResumed():
                self.changes.append(fact)
            case facts.JobHeld() | facts.JobReleased() | facts.JobCancelled():
                self.changes.append(fact)
            case facts.NodeJoined(node=node):
                self.changes.append(fact)
                self.rows += [node.name] if node.name not in self.rows else []
            case facts.NodeLost(node=name):
                self.changes.append(fact)
                row = self.rows.index(name)
                for task in [task for task, (_, node) in self.running.items() if node == row]:
                    self.end(task, fact.at + LONGER, by_itself=False)
            case facts.TasksPlaced():
                for task, node in zip(_tasks(fact), fact.node.tolist(), strict=True):
                    self.running[task] = fact.at, node
                    self.begun.setdefault(task, fact.at)
            case facts.TasksRevoked():
                self.revoked.update(_tasks(fact))
            case facts.TasksFinished():
                for task, outcome in zip(_tasks(fact), fact.outcome.tolist(), strict=True):
                    exited = outcome in (facts.Outcome.EXITED, facts.Outcome.UNUSED)
                    self.end(task, fact.at, by_itself=task not in self.revoked, exited=exited)

    def end(self, task: Task, at: float, by_itself: bool, exited: bool = False) -> None:
        self.revoked.discard(task)
        if task in self.running:
            held = at - self.running.pop(task)[0]
            if by_itself:
                self.took[task] = self.took.get(task, 0.0) + held
            else:
                self.least[task] = max(self.least.get(task, 0.0), held)
                self.exited |= {task: held} if exited else {}


def _tasks(fact: facts.TasksFact) -> Iterator[Task]:
    return zip(fact.job.tolist(), fact.index.tolist(), strict=True)


def read_journal(path: Path, skip_bad: bool = False) -> Workload:
    """Read a journal. Raises TraceError if it cannot be read, or no task has ended in it."""
    past, notes = _Past(), []
    with failing("", JournalError, to=TraceError), closing(SqlStore(path, to_read=True)) as store:
        known, _, found = read_history(store)
        if known is not None:
            past.begin(known)
            missing = "jobs that it had forgotten are missing, with what they used and how long they took"
            notes.append(f"{path}: begins with a snapshot: {missing}")
        for fact in found:
            past.take(fact)
    if not past.took:
        raise TraceError(f"{path}: no job has an ended task")
    return _workload(past, path, notes)


def _workload(past: _Past, path: Path, notes: list[str]) -> Workload:
    order = sorted(past.jobs, key=lambda number: (past.jobs[number][0], number))
    place = {number: k for k, number in enumerate(order)}
    first = past.jobs[order[0]][0]
    began = min(past.began, first)
    durations, guessed = _durations(past)
    jobs, begun, last = Jobs(), list[float](), dict[str, int]()
    for number in order:
        submitted, job = past.jobs[number]
        after = {place[after.job] for after in job.after if place.get(after.job, len(order)) < place[number]}
        if job.singleton:
            after |= {last[job.line]} if job.line in last else set()
            last[job.line] = place[number]
        begun += [past.begun.get((number, index), np.nan) - began for index in range(job.tasks)]
        jobs.add(
            submitted - began, holds_jobs_of(job.queue), job.demand,
            durations[number] if job.tasks > 1 else durations[number][0], job.tasks, job.on, job.gang, job.priority,
            time_limit=np.inf if job.time_limit is None else job.time_limit, after=sorted(after),
            like=Job(queue="", demand={}, **{name: getattr(job, name) for name in KEPT}),
        )  # fmt: skip
    if guessed:
        tasks, they = (f"{guessed:,} tasks have", "they take") if guessed > 1 else ("1 task has", "it takes")
        notes.append(f"{path}: {tasks} not ended: {they} as long as the median of the others of the job, or of all")
    configured, nodes, changes = _over_time(past, place, began, first)
    found = jobs.workload(path.stem, nodes, configured.queues, notes=notes)
    return replace(found, settings=configured.settings, changes=changes, begun=np.array(begun), origin=began)


def _durations(past: _Past) -> tuple[dict[int, list[float]], int]:
    """Return how long the tasks of each job take, and of how many that is a guess that matters."""
    cancelled = {fact.id for fact in past.changes if isinstance(fact, facts.JobCancelled)}
    of_all = float(np.median(list(past.took.values())))
    guessed, found = 0, dict[int, list[float]]()
    for number, (_, job) in past.jobs.items():
        tasks = [(number, index) for index in range(job.tasks)]
        ended = [past.took[task] for task in tasks if task in past.took and task not in past.running]
        usual = float(np.median(ended)) if ended else of_all
        found[number] = []
        for task in tasks:
            took = past.took.get(task, 0.0)
            if task in past.running:
                took = max(usual, took + past.at - past.running[task][0])
            elif task not in past.took:
                took = past.exited.get(task, usual)
            guessed += task in past.running or not (task in past.took or number in cancelled)
            found[number].append(max(0.0, took, past.least.get(task, 0.0)))
    return found, guessed


def _over_time(past: _Past, place: dict[int, int], began: float, first: float) -> tuple[facts.Configured, list[Node], list[Fact]]:
    """Return the configuration when the first job came, all nodes from then on, and what changed later; seconds from `began`."""
    configured = facts.Configured(at=0.0, queues=[], settings=Settings())
    nodes, up = dict[str, Node](), set[str]()
    drained: dict[str, list[Fact]] = {}
    later: list[Fact] = []
    for fact in past.changes:
        then = msgspec.structs.replace(fact, at=max(0.0, fact.at - began))
        if isinstance(fact, facts.JobCancelled | facts.JobHeld | facts.JobReleased | facts.JobEdited):
            if fact.id in place:  # it counts as submitted when it is to begin
                at = max(then.at, past.jobs[fact.id][0] - began)
                later.append(msgspec.structs.replace(then, id=place[fact.id] + 1, at=at))
        elif fact.at > first:
            later.append(then)
            if isinstance(fact, facts.NodeJoined):
                nodes.setdefault(fact.node.name, fact.node)
        elif isinstance(fact, facts.Configured):
            configured = fact
        elif isinstance(fact, facts.NodeJoined):
            nodes[fact.node.name] = fact.node
            up.add(fact.node.name)
            drained.pop(fact.node.name, None)
        elif isinstance(fact, facts.NodeLost):
            up.discard(fact.node)
            drained.pop(fact.node, None)
        elif isinstance(fact, facts.NodeDrained | facts.NodeResumed):
            drained.setdefault(fact.node, []).append(then)
    coming = {fact.node.name for fact in later if isinstance(fact, facts.NodeJoined)}
    there = [node for name, node in nodes.items() if name in up | coming]
    early = [facts.NodeLost(at=0.0, node=node.name) for node in there if node.name not in up]
    changes = [*early, *(fact for found in drained.values() for fact in found), *later]
    return configured, there, sorted(changes, key=lambda fact: fact.at)
