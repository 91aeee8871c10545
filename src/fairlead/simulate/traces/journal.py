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

from fairlead.journal import JournalError, read_history
from fairlead.journal.sql import SqlStore
from fairlead.model.specs import Job, Node, Settings
from fairlead.scheduler.facts import (
    Configured,
    Fact,
    JobCancelled,
    JobEdited,
    JobHeld,
    JobReleased,
    JobSubmitted,
    NodeDrained,
    NodeJoined,
    NodeLost,
    NodeResumed,
    Outcome,
    TasksFact,
    TasksFinished,
    TasksPlaced,
    TasksRevoked,
)
from fairlead.scheduler.framework_index import holds_jobs_of
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
        self.changes.append(Configured(at=-np.inf, queues=list(known.tree.declared.values()), settings=known.settings))
        self.rows = [node.name for node in known.cluster.specs]
        for row, node in enumerate(known.cluster.specs):
            if known.nodes.up[row]:
                self.changes.append(NodeJoined(at=-np.inf, node=node))
            if known.nodes.draining[row]:
                self.changes.append(NodeDrained(at=-np.inf, node=node.name))
        for number, job in sorted(known.index.specs.items()):
            row = known.job_row(number)
            submitted = float(known.jobs.submitted_at[row])
            self.jobs[number] = submitted, job
            if known.jobs.held[row]:
                self.changes.append(JobHeld(at=submitted, id=number))
            self._tasks_of(known, number, slice(int(known.jobs.first[row]), int(known.jobs.first[row] + job.tasks)))

    def _tasks_of(self, known: State, number: int, rows: slice) -> None:
        columns = (getattr(known.tasks, name)[rows].tolist() for name in ("status", "started_at", "finished_at", "node"))
        for index, (status, started, finished, node) in enumerate(zip(*columns, strict=True)):
            if started < finished:  # neither is NaN
                self.took[number, index] = finished - started
            elif PLACED <= status < SUCCEEDED:
                self.running[number, index] = known.at if np.isnan(started) else started, node
            elif status == CANCELLED:
                self.changes.append(JobCancelled(at=finished, id=number, indices=[index]))

    def take(self, fact: Fact) -> None:
        """Take a fact."""
        self.at, self.began = fact.at, min(self.began, fact.at)
        match fact:
            case JobSubmitted(id=number, job=job):
                self.jobs[number] = fact.at, job
                self.changes += [JobHeld(at=fact.at, id=number)] if job.held else []
            case JobEdited(id=number) if number in self.jobs:
                submitted, job = self.jobs[number]
                edited = fact.edited(job)
                before = {name: getattr(job, name) for name in AT_ITS_TIME}
                self.jobs[number] = submitted, msgspec.structs.replace(edited, **before)
                then = {name: getattr(fact, name) for name in AT_ITS_TIME}
                self.changes += [JobEdited(at=fact.at, id=number, **then)] if any(v is not None for v in then.values()) else []
            case Configured() | NodeDrained() | NodeResumed() | JobHeld() | JobReleased() | JobCancelled():
                self.changes.append(fact)
            case NodeJoined(node=node):
                self.changes.append(fact)
                self.rows += [node.name] if node.name not in self.rows else []
            case NodeLost(node=name):
                self.changes.append(fact)
                row = self.rows.index(name)
                for task in [task for task, (_, node) in self.running.items() if node == row]:
                    self.end(task, fact.at + LONGER, by_itself=False)
            case TasksPlaced():
                for task, node in zip(_tasks(fact), fact.node.tolist(), strict=True):
                    self.running[task] = fact.at, node
                    self.begun.setdefault(task, fact.at)
            case TasksRevoked():
                self.revoked.update(_tasks(fact))
            case TasksFinished():
                for task, outcome in zip(_tasks(fact), fact.outcome.tolist(), strict=True):
                    self.end(task, fact.at, by_itself=task not in self.revoked, exited=outcome == Outcome.EXITED)

    def end(self, task: Task, at: float, by_itself: bool, exited: bool = False) -> None:
        """Count an attempt of a task that has ended."""
        self.revoked.discard(task)
        if task in self.running:
            held = at - self.running.pop(task)[0]
            if by_itself:
                self.took[task] = self.took.get(task, 0.0) + held
            else:
                self.least[task] = max(self.least.get(task, 0.0), held)
                self.exited |= {task: held} if exited else {}


def _tasks(fact: TasksFact) -> Iterator[Task]:
    return zip(fact.job.tolist(), fact.index.tolist(), strict=True)


def read_journal(path: Path, skip_bad: bool = False) -> Workload:
    """Read a journal.

    Raises
    ------
    TraceError
        It cannot be read, or no task has ended in it.
    """
    past, notes = _Past(), []
    try:
        with closing(SqlStore(path, to_read=True)) as store:
            known, _, facts = read_history(store)
            if known is not None:
                past.begin(known)
                missing = "jobs that it had forgotten are missing, with what they used and how long they took"
                notes.append(f"{path}: begins with a snapshot: {missing}")
            for fact in facts:
                past.take(fact)
    except JournalError as error:
        raise TraceError(str(error)) from None
    if not past.took:
        raise TraceError(f"{path}: no job has an ended task")
    return _workload(past, path, notes)


def _workload(past: _Past, path: Path, notes: list[str]) -> Workload:
    order = sorted(past.jobs, key=lambda number: (past.jobs[number][0], number))
    place = {number: k for k, number in enumerate(order)}
    first = past.jobs[order[0]][0]
    began = min(past.began, first)
    durations, guessed = _durations(past)
    jobs, begun = Jobs(), list[float]()
    for number in order:
        submitted, job = past.jobs[number]
        begun += [past.begun.get((number, index), np.nan) - began for index in range(job.tasks)]
        jobs.add(
            submitted - began,
            holds_jobs_of(job.queue),
            job.demand,
            durations[number] if job.tasks > 1 else durations[number][0],
            job.tasks,
            job.on,
            job.gang,
            job.priority,
            time_limit=np.inf if job.time_limit is None else job.time_limit,
            after=[place[after.job] for after in job.after if place.get(after.job, len(order)) < place[number]],
            like=Job(queue="", demand={}, **{name: getattr(job, name) for name in KEPT}),
        )
    if guessed:
        tasks, they = (f"{guessed:,} tasks have", "they take") if guessed > 1 else ("1 task has", "it takes")
        notes.append(f"{path}: {tasks} not ended: {they} as long as the median of the others of the job, or of all")
    configured, nodes, changes = _over_time(past, place, began, first)
    found = jobs.workload(path.stem, nodes, configured.queues, notes=notes)
    return replace(found, settings=configured.settings, changes=changes, begun=np.array(begun), origin=began)


def _durations(past: _Past) -> tuple[dict[int, list[float]], int]:
    """Return how long the tasks of each job take, and of how many that is a guess that matters."""
    cancelled = {fact.id for fact in past.changes if isinstance(fact, JobCancelled)}
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


def _over_time(past: _Past, place: dict[int, int], began: float, first: float) -> tuple[Configured, list[Node], list[Fact]]:
    """Return the configuration when the first job came, all nodes from then on, and what changed later; seconds from `began`."""
    configured = Configured(at=0.0, queues=[], settings=Settings())
    nodes, up = dict[str, Node](), set[str]()
    drained: dict[str, list[Fact]] = {}
    later: list[Fact] = []
    for fact in past.changes:
        then = msgspec.structs.replace(fact, at=max(0.0, fact.at - began))
        if isinstance(fact, JobCancelled | JobHeld | JobReleased | JobEdited):
            later += [msgspec.structs.replace(then, id=place[fact.id] + 1)] if fact.id in place else []
        elif fact.at > first:
            later.append(then)
            if isinstance(fact, NodeJoined):
                nodes.setdefault(fact.node.name, fact.node)
        elif isinstance(fact, Configured):
            configured = fact
        elif isinstance(fact, NodeJoined):
            nodes[fact.node.name] = fact.node
            up.add(fact.node.name)
            drained.pop(fact.node.name, None)
        elif isinstance(fact, NodeLost):
            up.discard(fact.node)
            drained.pop(fact.node, None)
        elif isinstance(fact, NodeDrained | NodeResumed):
            drained.setdefault(fact.node, []).append(then)
    coming = {fact.node.name for fact in later if isinstance(fact, NodeJoined)}
    there = [node for name, node in nodes.items() if name in up | coming]
    early = [NodeLost(at=0.0, node=node.name) for node in there if node.name not in up]
    changes = [*early, *(fact for facts in drained.values() for fact in facts), *later]
    return configured, there, sorted(changes, key=lambda fact: fact.at)
