"""The state: what follows from the facts so far. `apply` is the only way to change it.

Two states that saw the same facts are the same. A fact that contradicts the state (a task placed twice, an end of an
attempt that is not the current one) is a fault of whoever made it: `apply` raises :class:`Contradiction`.

It is made of parts, each with its own file: the tables (:mod:`~fairlead.scheduler.tables`), the queue tree, the cluster, the
index of jobs, which jobs come after which, and the moments at which time is over. Beside it lies the order
(:mod:`~fairlead.scheduler.order`), a cache: it speeds deciding up and changes nothing that is decided.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import singledispatchmethod
from math import inf, nan
from typing import Any

import numpy as np

from fairlead.model.specs import ROOT, Job, Policy, Quantities, Queue, Settings
from fairlead.outcomes import Outcome
from fairlead.policies.codes import SDRF
from fairlead.scheduler import kernel_account, kernel_cycle, kernel_history
from fairlead.scheduler.cluster import Cluster, Constraints
from fairlead.scheduler.deadlines import Attempt, Deadlines
from fairlead.scheduler.dependencies import Dependencies
from fairlead.scheduler.facts import (
    Configured,
    Fact,
    Ints,
    JobCancelled,
    JobHeld,
    JobReleased,
    JobsForgotten,
    JobsPassedOver,
    JobSubmitted,
    NodeDrained,
    NodeJoined,
    NodeLost,
    NodeResumed,
    NodesReserved,
    ReservationDropped,
    TasksExpired,
    TasksFinished,
    TasksPlaced,
    TasksRevoked,
    TasksStarted,
)
from fairlead.scheduler.history import begin_ticks, coarsen, forget_what_is_made_otherwise, share_evenly
from fairlead.scheduler.job_index import JobIndex
from fairlead.scheduler.order import Order
from fairlead.scheduler.queue_tree import QueueTree, mark_exact, vector
from fairlead.scheduler.statuses import (
    CANCEL,
    EXPIRE,
    IMPOSSIBLE,
    PLACED,
    REVOKE,
    REVOKING,
    RUNNING,
    TRANSITIONS,
    WAITING,
)
from fairlead.scheduler.tables import (
    F64,
    I64,
    NONE,
    RESERVATION,
    TABLES,
    Buckets,
    Holds,
    Jobs,
    Nodes,
    Queues,
    Shapes,
    Tasks,
)
from fairlead.scheduler.view import BEGAN, ENDED, HOLDS, NEXT_TICK

ShapeKey = tuple[tuple[tuple[str, int], ...], Constraints]
BucketKey = tuple[int, int, int, int]

COMPACT_FROM = 100_000
"""Rows of tasks that nobody asks for any more, from which on the tables are made smaller."""

MANY_KINDS = 100
"""Kinds of new jobs, so many at once that the order is rather made anew than changed for each."""

_AFTER = np.array(TRANSITIONS, np.int8)


class Contradiction(RuntimeError):
    """A fact that cannot be true in this state."""


@dataclass(frozen=True)
class Reservation:
    """Room for `tasks[k]` tasks of the job on node row `nodes[k]`, until its bucket uses it."""

    job: int
    bucket: int
    nodes: list[int]
    tasks: list[int]


class State:
    """Everything the scheduler knows.

    Attributes
    ----------
    settings : Settings
    resources : list of str
        The columns of every array of quantities.
    nodes, queues, shapes, buckets, jobs, tasks, holds
        Tables (see :mod:`fairlead.scheduler.tables`).
    tree, cluster, index, dependencies
        What is known beside the tables.
    shape_keys : list
        Of each shape, its demand and its constraints.
    broken_gangs : set of int
        Job numbers: a task was lost while others run.
    ended : int64 array
        The numbers of the jobs that have ended, in that order; those that are remembered are `ended_jobs()`.
    times : float64 array
        When the first fact happened, and when history changes next: see :mod:`fairlead.scheduler.view`.
    grain : int64 array
        Of each resource, the binary digits that its history does without: see :mod:`fairlead.scheduler.kernel_history`.
    """

    def __init__(self) -> None:
        self.settings = Settings()
        self.resources: list[str] = []
        self.moves = [0]
        self.nodes, self.queues, self.shapes = Nodes(self.moves), Queues(self.moves), Shapes(self.moves)
        self.buckets, self.jobs, self.tasks = Buckets(self.moves), Jobs(self.moves), Tasks(self.moves)
        self.holds = Holds(self.moves)
        self.tree, self.cluster, self.index, self.dependencies = QueueTree(), Cluster(), JobIndex(), Dependencies()
        self.shape_keys: list[ShapeKey] = []
        self.broken_gangs: set[int] = set()
        self.ended: I64 = np.zeros(0, np.int64)
        self.deadlines = Deadlines()
        self.times: F64 = np.array([nan, -inf])
        self.grain: I64 = np.zeros(0, np.int64)
        self.order = Order(self.moves)
        self.learned: tuple[int, Any] | None = None  # see fairlead.scheduler.decide
        self.version = 0  # counts facts
        self._forgotten = 0  # of `ended`
        self._dead_tasks = 0
        self._shape_rows: dict[ShapeKey, int] = {}
        self._bucket_rows: dict[BucketKey, int] = {}
        self._ensure_queue(ROOT)

    # -- facts ---------------------------------------------------------------------------------------------------

    def apply(self, fact: Fact) -> None:
        """Let a fact happen. Raises Contradiction if it cannot have."""
        self.version += 1
        if not fact.at < self.times[NEXT_TICK]:
            if np.isnan(self.times[BEGAN]):
                self.times[BEGAN] = fact.at
            kernel_history.fade(self.view(), fact.at)
        self._apply(fact)

    @singledispatchmethod
    def _apply(self, fact: Fact) -> None:
        raise Contradiction(f"{type(fact).__name__} is no fact of the scheduler")

    @_apply.register
    def _(self, fact: Configured) -> None:
        self.settings = fact.settings
        before, policies = self.queues.tick[: self.queues.n].copy(), self.queues.policy[: self.queues.n].copy()
        self.tree.configure(fact.queues)
        for queue in fact.queues:
            if not queue.name.endswith("*"):
                self.tree.add(queue.name, self.queues)
        for row in range(self.queues.n):
            self._write_queue(row)
        begin_ticks(self.queues, before, fact.at - self.times[BEGAN])
        forget_what_is_made_otherwise(self.queues, policies)
        share_evenly(self.queues, self.cluster.total)
        mark_exact(self.queues)
        self.order.spoil()

    @_apply.register
    def _(self, fact: NodeJoined) -> None:
        self.ensure_resources(fact.node.capacity)
        self.cluster.join(fact.node, self.nodes, self.resources)
        self._moved_nodes()

    @_apply.register
    def _(self, fact: NodeDrained) -> None:
        row = self._node_row(fact.node)
        self.nodes.draining[row] = True
        kernel_account.drop_holds(self.view(), NONE, row)
        self._count_holds()
        self.order.spoil()

    @_apply.register
    def _(self, fact: NodeResumed) -> None:
        self.nodes.draining[self._node_row(fact.node)] = False
        self.order.spoil()

    @_apply.register
    def _(self, fact: NodeLost) -> None:
        row = self._node_row(fact.node)
        if not self.nodes.up[row]:
            raise Contradiction(f"node {fact.node} is lost already")
        kernel_account.drop_holds(self.view(), NONE, row)
        rows = self.held_rows()
        rows = rows[self.tasks.node[rows] == row]
        columns = self.task_columns(rows)
        outcome, code = np.full(len(rows), Outcome.LOST, np.int64), np.zeros(len(rows), np.int64)
        self._finish(self.job_rows_of(rows), columns["index"], columns["attempt"], outcome, code, fact)
        self.nodes.up[row] = False
        self.cluster.count(self.nodes)
        self._moved_nodes()

    @_apply.register
    def _(self, fact: JobSubmitted) -> None:
        job = fact.job
        if fact.id <= self.index.last or job.tasks < 1:
            raise Contradiction(f"job {fact.id} with {job.tasks} tasks after job {self.index.last}")
        row, _ = self.write_jobs(np.array([fact.id]), [job], np.zeros(1, np.int64))
        self.jobs.submitted_at[row] = fact.at
        self.index.add(fact.id, job, row)
        others = [after.job for after in job.after]
        if others:
            self.dependencies.add(fact.id, others)
            self.jobs.plain[row] = False
            for other in dict.fromkeys(others):
                before = self.job_row(other)
                self.jobs.plain[before] = False
                if not np.isnan(self.jobs.finished_at[before]):
                    self._follow(other)
        self._enter_bucket_if_ready(row)

    @_apply.register
    def _(self, fact: JobCancelled) -> None:
        row = self.job_row(fact.id)
        first, count = self.jobs.first[row], self.jobs.tasks[row]
        index = np.arange(count) if fact.indices is None else np.asarray(fact.indices, np.int64)
        if len(index) and (index.min() < 0 or index.max() >= count):
            raise Contradiction(f"job {fact.id} has {count} tasks, not index {index.min()} to {index.max()}")
        chosen = first + index
        status = self.tasks.status
        never = chosen[status[chosen] == WAITING]
        held = chosen[(status[chosen] >= PLACED) & (status[chosen] <= REVOKING)]
        status[never], status[held] = _AFTER[status[never], CANCEL], _AFTER[status[held], CANCEL]
        self.tasks.finished_at[never] = fact.at
        self.jobs.waiting[row] -= len(never)
        self.jobs.cancelled[row] += len(never)
        if len(never):
            self.jobs.irregular[row] = True
            self._leave_bucket(row)  # the size of a gang changed
            self._after_change(row, fact.at)

    @_apply.register
    def _(self, fact: JobHeld) -> None:
        row = self.job_row(fact.id)
        self.jobs.held[row] = True
        self._leave_bucket(row)

    @_apply.register
    def _(self, fact: JobReleased) -> None:
        row = self.job_row(fact.id)
        self.jobs.held[row] = False
        self._after_change(row, fact.at)

    @_apply.register
    def _(self, fact: TasksPlaced) -> None:
        rows = self.job_rows(fact.job)
        view = self.view()
        bad = kernel_account.placed(view, rows, fact.index, fact.attempt, fact.node, fact.at)
        self._refuse(bad, fact.job, fact.index, "been placed")
        learned, self.learned = self.learned, None
        if learned is not None and learned[0] == self.version - 1 and learned[1].led_to(rows, fact):
            kernel_cycle.settle(view, learned[1].more)

    @_apply.register
    def _(self, fact: TasksStarted) -> None:
        rows = self.job_rows(fact.job)
        bad = kernel_account.started(self.view(), rows, fact.index, fact.attempt, fact.at)
        self._refuse(bad, fact.job, fact.index, "been started")
        until = fact.at + self.jobs.time_limit[rows]
        for k in np.flatnonzero(until < inf):
            self.deadlines.add(float(until[k]), (int(fact.job[k]), int(fact.index[k]), int(fact.attempt[k])))

    @_apply.register
    def _(self, fact: TasksFinished) -> None:
        self._finish(self.job_rows(fact.job), fact.index, fact.attempt, fact.outcome, fact.code, fact)

    @_apply.register
    def _(self, fact: TasksRevoked) -> None:
        self._change_status(fact, REVOKE, "been revoked")
        self.broken_gangs.difference_update(fact.job.tolist())

    @_apply.register
    def _(self, fact: TasksExpired) -> None:
        self._change_status(fact, EXPIRE, "run out of time")

    @_apply.register
    def _(self, fact: JobsPassedOver) -> None:
        for job in fact.ids:
            bucket = self.jobs.bucket[self.job_row(job)]
            if bucket != NONE:
                self.buckets.passed_since[bucket] = fact.at

    @_apply.register
    def _(self, fact: NodesReserved) -> None:
        bucket = int(self.jobs.bucket[self.job_row(fact.id)])
        nodes, tasks = np.asarray(fact.nodes, np.int64), np.asarray(fact.tasks, np.int64)
        n = self.holds.n
        if bucket == NONE or bucket in self.holds.bucket[:n] or np.isin(nodes, self.holds.node[:n]).any():
            raise Contradiction(f"nodes {fact.nodes} cannot be reserved for job {fact.id}")
        self.holds.extend(len(nodes))
        kernel_account.keep_nodes(self.view(), bucket, fact.id, nodes, tasks, RESERVATION, fact.at)

    @_apply.register
    def _(self, fact: ReservationDropped) -> None:
        for bucket in np.unique(self.holds.bucket[: self.holds.n][self.holds.job[: self.holds.n] == fact.id]):
            kernel_account.drop_holds(self.view(), bucket, NONE)
        self._count_holds()

    @_apply.register
    def _(self, fact: JobsForgotten) -> None:
        ids = np.asarray(fact.ids, np.int64)
        rows = self.job_rows(ids)
        if (rows == NONE).any() or np.isnan(self.jobs.finished_at[rows]).any():
            raise Contradiction(
                f"jobs from {fact.ids[:1]} on are forgotten, of which some are not known or have not ended"
            )
        self._dead_tasks += int(self.jobs.tasks[rows].sum())
        self.jobs.id[rows] = NONE
        self.index.forget(ids)
        ended = self.ended_jobs()
        if not np.array_equal(ended[: len(ids)], ids):
            self.set_ended(np.concatenate([ids, ended[~np.isin(ended, ids)]]))
            self._forgotten = 0
        self._forgotten += len(ids)
        if self._dead_tasks > COMPACT_FROM and 2 * self._dead_tasks > self.tasks.n:
            self._compact()

    # -- looking up ----------------------------------------------------------------------------------------------

    def job_row(self, job: int) -> int:
        """The row of a job; raises Contradiction for one that is not known (any more)."""
        row = self.index.find(job)
        if row == NONE:
            raise Contradiction(f"there is no job {job}")
        return row

    def job_rows(self, job: Ints) -> I64:
        """The rows of jobs, -1 where there is none."""
        return kernel_account.rows_of(job, self.index.first, self.index.row_of)

    def job_rows_of(self, tasks: I64) -> I64:
        """The job rows of task rows. Tasks lie in the order of their jobs."""
        return np.searchsorted(self.jobs.first[: self.jobs.n], tasks, side="right") - 1

    def held_rows(self) -> I64:
        """The rows of the tasks that hold resources."""
        status = self.tasks.status[: self.tasks.n]
        return np.flatnonzero((status >= PLACED) & (status <= REVOKING))

    def task_columns(self, tasks: I64) -> dict[str, Ints]:
        """Task rows as the columns of a fact: job, index and the current attempt."""
        rows = self.job_rows_of(tasks)
        return {
            "job": self.jobs.id[rows],
            "index": tasks - self.jobs.first[rows],
            "attempt": self.tasks.attempt[tasks].astype(np.int64),
        }

    def runs(self, attempt: Attempt) -> bool:
        """Whether an attempt runs now, and was not told to stop."""
        job, index, number = attempt
        row = self.index.find(job)
        task = self.jobs.first[row] + index
        return row != NONE and bool(self.tasks.attempt[task] == number and self.tasks.status[task] == RUNNING)

    @property
    def reservations(self) -> dict[int, Reservation]:
        """What is kept for jobs that found no room, by bucket."""
        found: dict[int, Reservation] = {}
        for h in range(self.holds.n):
            bucket, job = int(self.holds.bucket[h]), int(self.holds.job[h])
            kept = found.setdefault(bucket, Reservation(job, bucket, [], []))
            kept.nodes.append(int(self.holds.node[h]))
            kept.tasks.append(int(self.holds.tasks[h]))
        return found

    def ended_jobs(self) -> I64:
        """The numbers of the jobs that have ended and are remembered, oldest end first."""
        return self.ended[self._forgotten : int(self.order.counts[ENDED])]

    def policy_of(self, row: int) -> Policy:
        """The policy among a queue's children."""
        return self.tree.policy_of(self.tree.names[row])

    def spec_of(self, queue: str) -> Queue:
        """What holds for a queue: what was declared, or nothing in particular."""
        return self.tree.spec_of(queue)

    def quantities(self, vector: I64) -> Quantities:
        """An array of quantities by name, without the zeros."""
        return {name: int(value) for name, value in zip(self.resources, vector, strict=True) if value}

    def view(self) -> Any:
        """What kernels see."""
        return self.order.view(self)

    # -- keeping the tables --------------------------------------------------------------------------------------

    def _refuse(self, bad: int, job: Ints, index: Ints, what: str) -> None:
        self._count_holds()
        if bad >= 0:
            raise Contradiction(f"task {job[bad]}.{index[bad]} cannot have {what} in this state")

    def _count_holds(self) -> None:
        self.holds.n = int(self.order.counts[HOLDS])

    def _change_status(self, fact: TasksRevoked | TasksExpired, event: int, what: str) -> None:
        rows = self.job_rows(fact.job)
        tasks = self.jobs.first[rows] + fact.index
        after = _AFTER[self.tasks.status[tasks], event]
        wrong = (after == IMPOSSIBLE) | (self.tasks.attempt[tasks] != fact.attempt)
        self._refuse(int(np.argmax(wrong)) if wrong.any() else -1, fact.job, fact.index, what)
        self.tasks.status[tasks] = after
        self.deadlines.clean(self.runs)

    def ensure_resources(self, names: Iterable[str]) -> None:
        """Have a column for each of these."""
        new = sorted(set(names).difference(self.resources))
        if new:
            self.resources += new
            self.grain = np.concatenate([self.grain, np.zeros(len(new), np.int64)])
            for name in TABLES:
                getattr(self, name).widen(len(self.resources))
            self.cluster.count(self.nodes)
            self.order.spoil()
            for row in range(self.queues.n):
                self._write_queue(row)
            mark_exact(self.queues)

    def _moved_nodes(self) -> None:
        """The nodes are others than they were: so is what their order was made from."""
        self.moves[0] += 1
        self._count_holds()
        coarsen(self.queues, self.grain, self.cluster.total)
        share_evenly(self.queues, self.cluster.total)
        self.order.spoil()

    def _node_row(self, name: str) -> int:
        if name not in self.cluster.rows:
            raise Contradiction(f"there is no node {name}")
        return self.cluster.rows[name]

    def _ensure_queue(self, name: str) -> int:
        if name not in self.tree.rows:
            for row in self.tree.add(name, self.queues):
                fresh = row >= self.order.queues.n
                self._write_queue(row)
                if fresh and row:
                    parent = self.queues.parent[row]
                    if self.queues.policy[parent] == SDRF:
                        share_evenly(self.queues, self.cluster.total)
                    self.queues.exact[row] = True
                    if self.queues.exact[parent] and not self.queues.part[row].all():
                        self.queues.exact[parent] = False
                        self.order.spoil()  # the keys of its siblings are others now
                    self.order.add_queue(self, row)
                elif row < self.order.queues.n:
                    self.order.spoil()  # it has queues below it from now on, which share by a policy of its own
        return self.tree.rows[name]

    def _write_queue(self, row: int) -> None:
        self.ensure_resources(self.tree.needed_resources(self.tree.names[row]))
        self.tree.write(row, self.queues, self.resources)
        if self.queues.tick[row] > 0:
            self.times[NEXT_TICK] = -inf  # the next fact finds it

    def _ensure_shape(self, job: Job) -> int:
        """The row of a job's shape."""
        constraints = tuple(sorted((label, tuple(sorted(values))) for label, values in job.on.items()))
        key = (tuple(sorted((name, q) for name, q in job.demand.items() if q)), constraints)
        row = self._shape_rows.get(key)
        if row is None:
            row = self._shape_rows[key] = self.shapes.extend(1)
            self.shape_keys.append(key)
            self.shapes.demand[row] = vector(job.demand, self.resources)
            masks = self.cluster.masks
            self.shapes.mask[row] = self.cluster.mask_of(constraints)
            if self.cluster.masks is not masks:
                self.moves[0] += 1
            self.order.add_shape()
        return row

    def write_jobs(self, numbers: I64, kinds: Sequence[Job], which: I64) -> tuple[int, I64]:
        """Give new jobs their rows, and their tasks theirs; they wait nowhere yet.

        Parameters
        ----------
        numbers : int64, shape (jobs,)
            Rising, and higher than all before.
        kinds : sequence of Job
        which : int64, shape (jobs,)
            Of each job, which of the kinds it is.

        Returns
        -------
        row : int
            The first of the rows.
        buckets : int64, shape (jobs,)
            Where they wait when they do, all their tasks waiting.
        """
        for job in kinds:
            self.ensure_resources(job.demand)
        table = self.jobs
        row = table.extend(len(numbers))
        mine = slice(row, row + len(numbers))
        table.id[mine] = numbers
        queues = [self._ensure_queue(job.queue) for job in kinds]
        shapes = [self._ensure_shape(job) for job in kinds]
        columns: dict[str, list[Any]] = {
            "queue": queues,
            "shape_row": shapes,
            "priority": [job.priority for job in kinds],
            "gang": [job.gang for job in kinds],
            "plain": [not job.gang for job in kinds],
            "exit_done": [job.exit_done for job in kinds],
            "retries": [job.retries for job in kinds],
            "time_limit": [inf if job.time_limit is None else job.time_limit for job in kinds],
            "tasks": [job.tasks for job in kinds],
        }
        for name, values in columns.items():
            table.rows[name][mine] = values[0] if len(kinds) == 1 else np.array(values)[which]
        sizes = table.waiting[mine] = table.tasks[mine]
        gangs = [job.tasks if job.gang else 0 for job in kinds]
        alike = list(zip(queues, columns["priority"], shapes, gangs, strict=True))
        if len(kinds) > MANY_KINDS and sum(key not in self._bucket_rows for key in alike) > MANY_KINDS:
            self.order.spoil()  # to give all buckets their places at once
        buckets = np.array([self._bucket(key) for key in alike], np.int64)[which]
        table.home[mine] = np.where(table.gang[mine], NONE, buckets)
        table.bucket[mine] = table.after[mine] = table.before[mine] = NONE
        table.finished_at[mine] = nan
        total = int(sizes.sum())
        first = self.tasks.extend(total)
        table.first[mine] = first + np.cumsum(sizes) - sizes
        self.tasks.node[first : first + total] = NONE
        self.tasks.started_at[first : first + total] = nan
        self.tasks.finished_at[first : first + total] = nan
        if len(self.ended) < len(table.rows):
            self.set_ended(self.ended, len(table.rows))
        return row, buckets

    def set_ended(self, ended: I64, length: int = 0) -> None:
        """Have this for the list of jobs that ended, with room for all."""
        self.ended, old = np.zeros(max(length, len(self.jobs.rows), len(ended)), np.int64), ended
        self.ended[: len(old)] = old
        self.moves[0] += 1

    def _bucket(self, key: BucketKey) -> int:
        """The bucket for tasks of a leaf, a priority and a shape, so many of them at once; 0 for one by one."""
        bucket = self._bucket_rows.get(key)
        if bucket is None:
            b = self.buckets
            bucket = self._bucket_rows[key] = b.extend(1)
            b.leaf[bucket], b.priority[bucket], b.shape_row[bucket], b.gang[bucket] = key
            b.head[bucket] = b.tail[bucket] = NONE
            b.passed_since[bucket] = nan
            self.order.add_bucket(self, bucket)
        return bucket

    def bucket_of(self, row: int) -> int:
        """The bucket that a job waits in when it does."""
        jobs = self.jobs
        gang = int(jobs.waiting[row]) if jobs.gang[row] else 0
        return self._bucket((int(jobs.queue[row]), int(jobs.priority[row]), int(jobs.shape_row[row]), gang))

    def _enter_bucket_if_ready(self, row: int) -> None:
        """Let a job wait in its bucket, unless it is there, has nothing that waits, is held, or comes after another."""
        jobs = self.jobs
        waits = int(jobs.id[row]) in self.dependencies.waits_for
        if jobs.bucket[row] != NONE or not jobs.waiting[row] or jobs.held[row] or waits:
            return
        bucket = self.bucket_of(row)
        kernel_account.enter_bucket(self.view(), row, bucket)

    def _leave_bucket(self, row: int) -> None:
        if self.jobs.bucket[row] != NONE:
            kernel_account.leave_bucket(self.view(), row)
            self._count_holds()

    def _finish(self, rows: I64, index: Ints, attempt: Ints, outcome: Ints, code: Ints, fact: Fact) -> None:
        touched = np.empty(len(rows), np.int64)
        losses = self.settings.max_losses
        bad = kernel_account.finished(self.view(), rows, index, attempt, outcome, code, fact.at, losses, touched)
        self._refuse(bad, self.jobs.id[rows], index, "ended")
        self.deadlines.clean(self.runs)
        for row in sorted(set(touched[touched != NONE].tolist())):
            self._after_change(row, fact.at)

    def _after_change(self, row: int, at: float) -> None:
        """Tasks of a job ended, came back or were cancelled: it is finished, waits in its bucket, or is a broken gang."""
        jobs = self.jobs
        job = int(jobs.id[row])
        if jobs.waiting[row] == 0:
            self.broken_gangs.discard(job)
            if jobs.holding[row] == 0 and np.isnan(jobs.finished_at[row]):
                kernel_account.end_job(self.view(), row, at)
                self._follow(job)
        elif jobs.gang[row] and jobs.holding[row]:
            self.broken_gangs.add(job)
        else:
            self.broken_gangs.discard(job)
            self._enter_bucket_if_ready(row)

    def _follow(self, ended: int) -> None:
        """A job has ended: those that come after it may start, or never will."""
        row = self.job_row(ended)
        success = bool(self.jobs.failed[row] == 0 and self.jobs.cancelled[row] == 0)
        for job in self.dependencies.ended(ended, success, self.index.specs):
            self._enter_bucket_if_ready(self.job_row(job))

    def _compact(self) -> None:
        """Take the rows of forgotten jobs, and the buckets and shapes that only they had, out of the tables."""
        jobs, tasks, buckets, shapes = self.jobs, self.tasks, self.buckets, self.shapes
        live = np.flatnonzero(jobs.id[: jobs.n] != NONE)
        counts = jobs.tasks[live]
        starts = np.concatenate([[0], np.cumsum(counts)])
        new_job = _renumbering(live, jobs.n)
        tasks.keep(np.repeat(jobs.first[live] - starts[:-1], counts) + np.arange(starts[-1]))
        jobs.keep(live)
        jobs.first[: jobs.n] = starts[:-1]
        for links in (jobs.after, jobs.before, buckets.head, buckets.tail):
            links[:] = new_job[links]

        used = np.zeros(buckets.n, np.bool_)
        used[buckets.head[: buckets.n] != NONE] = True
        used[jobs.home[: jobs.n][jobs.home[: jobs.n] != NONE]] = True
        live = np.flatnonzero(used)
        new_bucket = _renumbering(live, buckets.n)
        buckets.keep(live)
        jobs.bucket[:] = new_bucket[jobs.bucket]
        jobs.home[:] = new_bucket[jobs.home]
        self.holds.bucket[: self.holds.n] = new_bucket[self.holds.bucket[: self.holds.n]]

        live = np.unique(jobs.shape_row[: jobs.n])
        new_shape = _renumbering(live, shapes.n)
        shapes.keep(live)
        jobs.shape_row[: jobs.n] = new_shape[jobs.shape_row[: jobs.n]]
        buckets.shape_row[: buckets.n] = new_shape[buckets.shape_row[: buckets.n]]
        self.shape_keys = [self.shape_keys[row] for row in live]

        ended = self.ended_jobs()
        self.order.counts[ENDED] = len(ended)
        self.set_ended(ended)
        self._forgotten = self._dead_tasks = 0
        self.index.renumber(jobs)
        self.derive()

    def derive(self) -> None:
        """Work out where shapes and buckets are, from the tables and parts. The order is made anew when it is needed."""
        self._shape_rows = {key: row for row, key in enumerate(self.shape_keys)}
        b = self.buckets
        columns = (b.leaf[: b.n], b.priority[: b.n], b.shape_row[: b.n], b.gang[: b.n])
        keys = zip(*(column.tolist() for column in columns), strict=True)
        self._bucket_rows = {key: row for row, key in enumerate(keys)}
        self.order.spoil()

    def restore(self, ended: Sequence[int]) -> None:
        """After the tables and parts were set: what follows from them."""
        self.index.renumber(self.jobs)
        self.cluster.count(self.nodes)
        self.order.counts[ENDED], self.order.counts[HOLDS] = len(ended), self.holds.n
        self.set_ended(np.asarray(ended, np.int64))
        gone = self.jobs.tasks[: self.jobs.n][self.jobs.id[: self.jobs.n] == NONE]
        self._forgotten, self._dead_tasks = 0, int(gone.sum())
        mark_exact(self.queues)
        rows = self.held_rows()
        until = self.tasks.started_at[rows] + self.jobs.time_limit[self.job_rows_of(rows)]
        limited = until < inf
        columns = (column[limited].tolist() for column in self.task_columns(rows).values())
        self.deadlines.refill(zip(until[limited].tolist(), zip(*columns, strict=True), strict=True))
        self.derive()


def _renumbering(live: I64, count: int) -> I64:
    """Map old rows to new ones, NONE for those that go; NONE itself, the last element, stays NONE."""
    new = np.full(count + 1, NONE, np.int64)
    new[live] = np.arange(len(live))
    return new
