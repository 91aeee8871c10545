"""The state: what follows from the facts so far. `apply` is the only way to change it.

Two states that saw the same facts are the same. A fact that contradicts the state (a task placed twice, an end of an
attempt that is not the current one) is a fault of whoever made it: `apply` raises :class:`Contradiction`.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import singledispatchmethod
from math import inf, nan

import numpy as np

from fairlead.model.specs import (
    ROOT,
    USERS,
    Job,
    Node,
    Policy,
    Quantities,
    Queue,
    Settings,
    ancestors,
    inner_names,
    settings_for,
)
from fairlead.policies import code_of, resources_of
from fairlead.scheduler import kernel_account
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
    Outcome,
    ReservationDropped,
    TasksExpired,
    TasksFinished,
    TasksPlaced,
    TasksRevoked,
    TasksStarted,
)
from fairlead.scheduler.tables import (
    CANCELLED,
    EXPIRING,
    I64,
    NONE,
    PLACED,
    REVOKING,
    RUNNING,
    STOPPING,
    UNLIMITED,
    WAITING,
    Buckets,
    Jobs,
    Nodes,
    Queues,
    Shapes,
    Tasks,
    view,
)

ShapeKey = tuple[tuple[tuple[str, int], ...], tuple[tuple[str, tuple[str, ...]], ...]]
BucketKey = tuple[int, int, int, int]


class Contradiction(RuntimeError):
    """A fact that cannot be true in this state."""


@dataclass
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
    resources : list of str
        The columns of every array of quantities.
    nodes, queues, shapes, buckets, jobs, tasks
        Arrays (see :mod:`fairlead.scheduler.tables`).
    total : int64 array
        The capacity of the nodes that are up.
    specs : dict of int to Job
        What was submitted, by job number.
    """

    def __init__(self) -> None:
        self.resources: list[str] = []
        self.settings = Settings()
        self.declared: dict[str, Queue] = {}
        self.inner: set[str] = {ROOT}

        self.nodes, self.queues, self.shapes = Nodes(), Queues(), Shapes()
        self.buckets, self.jobs, self.tasks = Buckets(), Jobs(), Tasks()
        self.node_specs: list[Node] = []
        self.node_rows: dict[str, int] = {}
        self.queue_names: list[str] = []
        self.queue_rows: dict[str, int] = {}
        self.specs: dict[int, Job] = {}
        self.total: I64 = np.zeros(0, np.int64)
        self.reservations: dict[int, Reservation] = {}  # by bucket
        self.broken_gangs: set[int] = set()  # job numbers: a task was lost while others run
        self.finished_jobs: dict[int, None] = {}  # job numbers, oldest end first
        self.last_job = 0
        self.waits_for: dict[int, set[int]] = {}  # by job: the jobs before it that have not ended as they should
        self.followers: dict[int, list[int]] = {}  # the other way round
        self.doomed: set[int] = set()  # jobs that wait for what can no longer be
        self.has_time_limits = False
        self.keys: dict[str, int] = {}  # job numbers by the submitters' keys
        self.removed: dict[str, Queue] = {}  # queues that are declared no more, as they were

        self._first_row = 1  # the job number that row_of_job[0] is for
        self._row_of_job: I64 = np.zeros(0, np.int64)
        self._shape_rows: dict[ShapeKey, int] = {}
        self._bucket_rows: dict[BucketKey, int] = {}
        self._mask_rows: dict[tuple[tuple[str, tuple[str, ...]], ...], int] = {(): 0}
        self.masks = np.ones((1, 0), np.bool_)
        self._dead_tasks = 0
        self.expected: tuple[TasksPlaced, I64] | None = None  # see fairlead.scheduler.decide
        self._inner_rows: set[int] = set()  # of queues with others below them
        self._ensure_queue(ROOT)

    # -- facts ---------------------------------------------------------------------------------------------------

    @singledispatchmethod
    def apply(self, fact: Fact) -> None:
        """Let a fact happen. Raises Contradiction if it cannot have."""
        raise Contradiction(f"{type(fact).__name__} is no fact of the scheduler")

    @apply.register
    def _(self, fact: Configured) -> None:
        self.settings = fact.settings
        before, self.declared = self.declared, {queue.name: queue for queue in fact.queues}
        for name in self.queue_names:
            if settings_for(name, self.declared):
                self.removed.pop(name, None)
            elif name != ROOT and name not in self.removed:  # the jobs that it has go on under what held for them
                self.removed[name] = settings_for(name, before) or Queue(name)
        self.inner = inner_names(self.declared)
        for queue in fact.queues:
            if not queue.name.endswith(USERS):
                self._add_queues(queue.name)
        for row, name in enumerate(self.queue_names):
            self._set_queue(row, self.spec_of(name))

    @apply.register
    def _(self, fact: NodeJoined) -> None:
        spec = fact.node
        self._ensure_resources(spec.capacity)
        row = self.node_rows.get(spec.name)
        if row is None:
            row = self.nodes.extend(1)
            self.node_specs.append(spec)
            self.node_rows[spec.name] = row
            if row >= self.masks.shape[1]:
                wider = np.zeros((len(self.masks), max(16, 2 * row)), np.bool_)
                wider[:, :row] = self.masks[:, :row]
                self.masks = wider
        else:
            self.node_specs[row] = spec
            self.nodes.free[row] -= self.nodes.capacity[row]
        if self.nodes.up[row]:
            self.total = self.total - self.nodes.capacity[row]
        capacity = self._vector(spec.capacity)
        self.nodes.capacity[row] = capacity
        self.nodes.free[row] += capacity
        self.nodes.up[row] = True
        self.nodes.draining[row] = False
        for constraints, mask in self._mask_rows.items():
            self.masks[mask, row] = _meets(spec.labels, constraints)
        self._room_came_back(row)
        self.total = self.total + capacity

    @apply.register
    def _(self, fact: NodeDrained) -> None:
        row = self._node_row(fact.node)
        self.nodes.draining[row] = True
        self._drop_reservations_on(row)

    @apply.register
    def _(self, fact: NodeResumed) -> None:
        row = self._node_row(fact.node)
        self.nodes.draining[row] = False
        self._room_came_back(row)

    @apply.register
    def _(self, fact: NodeLost) -> None:
        row = self._node_row(fact.node)
        if not self.nodes.up[row]:
            raise Contradiction(f"node {fact.node} is lost already")
        self._drop_reservations_on(row)
        rows = self.held_rows()
        rows = rows[self.tasks.node[rows] == row]
        columns = self.task_columns(rows)
        outcome, code = np.full(len(rows), Outcome.LOST, np.int64), np.zeros(len(rows), np.int64)
        self._finish(self.job_rows_of(rows), columns["index"], columns["attempt"], outcome, code, fact)
        self.nodes.up[row] = False
        self.total = self.total - self.nodes.capacity[row]

    @apply.register
    def _(self, fact: JobSubmitted) -> None:
        job = fact.job
        if fact.id <= self.last_job or job.tasks < 1:
            raise Contradiction(f"job {fact.id} with {job.tasks} tasks after job {self.last_job}")
        self._ensure_resources(job.demand)
        self.last_job = fact.id
        self.specs[fact.id] = job
        if job.key:
            self.keys[job.key] = fact.id
        jobs = self.jobs
        row = jobs.extend(1)
        missing = fact.id - self._first_row + 1 - len(self._row_of_job)
        if missing > 0:
            more = np.full(max(missing, len(self._row_of_job), 16), NONE, np.int64)
            self._row_of_job = np.concatenate([self._row_of_job, more])
        self._row_of_job[fact.id - self._first_row] = row
        jobs.id[row] = fact.id
        jobs.queue[row] = self._ensure_queue(job.queue)
        jobs.shape[row] = self._ensure_shape(job)
        jobs.priority[row] = job.priority
        jobs.gang[row] = job.gang
        jobs.retries[row] = job.retries
        jobs.time_limit[row] = inf if job.time_limit is None else job.time_limit
        self.has_time_limits |= job.time_limit is not None
        jobs.tasks[row] = jobs.waiting[row] = job.tasks
        jobs.bucket[row] = jobs.after[row] = jobs.before[row] = NONE
        jobs.submitted_at[row] = fact.at
        jobs.finished_at[row] = nan
        first = jobs.first[row] = self.tasks.extend(job.tasks)
        self.tasks.node[first : first + job.tasks] = NONE
        self.tasks.started_at[first : first + job.tasks] = nan
        self.tasks.finished_at[first : first + job.tasks] = nan
        for other in dict.fromkeys(after.job for after in job.after):
            self.waits_for.setdefault(fact.id, set()).add(other)
            self.followers.setdefault(other, []).append(fact.id)
            if not np.isnan(jobs.finished_at[self.job_row(other)]):
                self._follow(other)
        self._enter_bucket_if_ready(row)

    @apply.register
    def _(self, fact: JobCancelled) -> None:
        row = self.job_row(fact.id)
        first, count = self.jobs.first[row], self.jobs.tasks[row]
        index = np.arange(count) if fact.indices is None else np.asarray(fact.indices, np.int64)
        if len(index) and (index.min() < 0 or index.max() >= count):
            raise Contradiction(f"job {fact.id} has {count} tasks, not index {index.min()} to {index.max()}")
        chosen = first + index
        status = self.tasks.status
        never = chosen[status[chosen] == WAITING]
        status[never] = CANCELLED
        self.tasks.finished_at[never] = fact.at
        held = chosen[(status[chosen] >= PLACED) & (status[chosen] <= REVOKING)]
        status[held] = STOPPING
        self.jobs.waiting[row] -= len(never)
        self.jobs.cancelled[row] += len(never)
        if len(never):
            self.jobs.irregular[row] = True
            self._leave_bucket(row)  # the size of a gang changed
            self._after_change(row, fact.at)

    @apply.register
    def _(self, fact: JobHeld) -> None:
        row = self.job_row(fact.id)
        self.jobs.held[row] = True
        self._leave_bucket(row)

    @apply.register
    def _(self, fact: JobReleased) -> None:
        row = self.job_row(fact.id)
        self.jobs.held[row] = False
        self._after_change(row, fact.at)

    @apply.register
    def _(self, fact: TasksPlaced) -> None:
        rows = self.job_rows(fact.job)
        served = set(self.jobs.bucket[rows].tolist()) if self.reservations else set()
        bad = kernel_account.placed(
            view(self.nodes), view(self.queues), view(self.shapes), view(self.buckets), view(self.jobs),
            view(self.tasks), rows, fact.index, fact.attempt, fact.node,
        )  # fmt: skip
        self._refuse(bad, fact.job, fact.index, "been placed")
        if self.expected is not None and self.expected[0] is fact:
            self.move_cursors(self.expected[1])
        self.expected = None
        for bucket in served:
            self._drop_reservation(bucket)

    @apply.register
    def _(self, fact: TasksStarted) -> None:
        rows = self.job_rows(fact.job)
        bad = kernel_account.started(view(self.jobs), view(self.tasks), rows, fact.index, fact.attempt, fact.at)
        self._refuse(bad, fact.job, fact.index, "been started")

    @apply.register
    def _(self, fact: TasksFinished) -> None:
        self._finish(self.job_rows(fact.job), fact.index, fact.attempt, fact.outcome, fact.code, fact)

    @apply.register
    def _(self, fact: TasksRevoked) -> None:
        rows = self.job_rows(fact.job)
        tasks = self.jobs.first[rows] + fact.index
        status = self.tasks.status[tasks]
        if not np.all(((status == PLACED) | (status == RUNNING)) & (self.tasks.attempt[tasks] == fact.attempt)):
            raise Contradiction(f"tasks of job {fact.job[:1]} were revoked that do not run")
        self.tasks.status[tasks] = REVOKING
        self.broken_gangs.difference_update(fact.job.tolist())

    @apply.register
    def _(self, fact: TasksExpired) -> None:
        rows = self.job_rows(fact.job)
        tasks = self.jobs.first[rows] + fact.index
        if not np.all((self.tasks.status[tasks] == RUNNING) & (self.tasks.attempt[tasks] == fact.attempt)):
            raise Contradiction(f"tasks of job {fact.job[:1]} have expired that do not run")
        self.tasks.status[tasks] = EXPIRING

    @apply.register
    def _(self, fact: JobsPassedOver) -> None:
        for job in fact.ids:
            bucket = self.jobs.bucket[self.job_row(job)]
            if bucket != NONE:
                self.buckets.passed_since[bucket] = fact.at

    @apply.register
    def _(self, fact: NodesReserved) -> None:
        bucket = int(self.jobs.bucket[self.job_row(fact.id)])
        taken = {n for r in self.reservations.values() for n in r.nodes}
        if bucket == NONE or bucket in self.reservations or taken.intersection(fact.nodes):
            raise Contradiction(f"nodes {fact.nodes} cannot be reserved for job {fact.id}")
        self.reservations[bucket] = Reservation(fact.id, bucket, fact.nodes, fact.tasks)

    @apply.register
    def _(self, fact: ReservationDropped) -> None:
        for bucket in [b for b, r in self.reservations.items() if r.job == fact.id]:
            self._drop_reservation(bucket)

    @apply.register
    def _(self, fact: JobsForgotten) -> None:
        for job in fact.ids:
            row = self.job_row(job)
            if np.isnan(self.jobs.finished_at[row]):
                raise Contradiction(f"job {job} is forgotten but not finished")
            self._row_of_job[job - self._first_row] = NONE
            self._dead_tasks += int(self.jobs.tasks[row])
            self.jobs.id[row] = NONE
            self.keys.pop(self.specs.pop(job).key, None)
            self.finished_jobs.pop(job, None)
        if self._dead_tasks > 100_000 and 2 * self._dead_tasks > self.tasks.n:
            self._compact()

    # -- looking up ----------------------------------------------------------------------------------------------

    def job_row(self, job: int) -> int:
        """The row of a job; raises Contradiction for one that is not known (any more)."""
        place = job - self._first_row
        row = int(self._row_of_job[place]) if 0 <= place < len(self._row_of_job) else NONE
        if row == NONE:
            raise Contradiction(f"there is no job {job}")
        return row

    def job_rows(self, job: Ints) -> I64:
        """The rows of jobs, -1 where there is none."""
        return kernel_account.rows_of(job, self._first_row, self._row_of_job)

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

    def move_cursors(self, cursors: I64) -> None:
        """First fit may go on from here: no node before a shape's cursor has room. A cache, which no decision depends on."""
        self.shapes.cursor[: self.shapes.n] = cursors
        self.nodes.fresh[: self.nodes.n] = False

    def policy_of(self, row: int) -> Policy:
        """The policy among a queue's children: its own, else hdrf where it is one of those who share by that, else drf."""
        up = int(self.queues.parent[row])
        return self.spec_of(self.queue_names[row]).policy or (
            "hdrf" if up != NONE and self.policy_of(up) == "hdrf" else "drf"
        )

    def spec_of(self, queue: str) -> Queue:
        """What holds for a queue: what was declared, or nothing in particular."""
        return settings_for(queue, self.declared) or self.removed.get(queue) or Queue(queue)

    def quantities(self, vector: I64) -> Quantities:
        """An array of quantities by name, without the zeros."""
        return {name: int(value) for name, value in zip(self.resources, vector, strict=True) if value}

    # -- keeping the arrays --------------------------------------------------------------------------------------

    def _refuse(self, bad: int, job: Ints, index: Ints, what: str) -> None:
        if bad >= 0:
            raise Contradiction(f"task {job[bad]}.{index[bad]} cannot have {what} in this state")

    def _vector(self, quantities: Quantities, fill: int = 0) -> I64:
        return np.array([quantities.get(name, fill) for name in self.resources], np.int64)

    def _ensure_resources(self, names: Iterable[str]) -> None:
        new = sorted(set(names).difference(self.resources))
        if new:
            self.resources += new
            width = len(self.resources)
            self.nodes.widen(width, {"capacity": 0, "free": 0})
            self.shapes.widen(width, {"demand": 0})
            self.queues.widen(width, {"weight": 1.0, "guarantee": 0, "limit": UNLIMITED, "used": 0})
            self._count_total()
            for row, name in enumerate(self.queue_names):
                self._set_queue(row, self.spec_of(name))

    def _count_total(self) -> None:
        n = self.nodes.n
        self.total = self.nodes.capacity[:n][self.nodes.up[:n]].sum(axis=0, dtype=np.int64)

    def _node_row(self, name: str) -> int:
        if name not in self.node_rows:
            raise Contradiction(f"there is no node {name}")
        return self.node_rows[name]

    def _room_came_back(self, row: int) -> None:
        self.nodes.fresh[row] = True

    def _ensure_queue(self, name: str) -> int:
        if name not in self.queue_rows:
            self._add_queues(name)
        return self.queue_rows[name]

    def _add_queues(self, name: str) -> None:
        """Add a queue and those above it, where they are not there."""
        for path in [*reversed(ancestors(name)), name]:
            if path not in self.queue_rows:
                row = self.queues.extend(1)
                up = self.queue_rows[ancestors(path)[0]] if path else NONE
                self.queue_names.append(path)
                self.queue_rows[path] = row
                self.queues.parent[row] = up
                self._rank(row)
                self._set_queue(row, self.spec_of(path))
                if path and up not in self._inner_rows:
                    self._inner_rows.add(up)
                    self._set_queue(up, self.spec_of(self.queue_names[up]))

    def _rank(self, row: int) -> None:
        """Put the last queue where it belongs among the others, by name."""
        rank = self.queues.rank[:row]
        place = bisect_left(
            np.argsort(rank), self.queue_names[row].split("/"), key=lambda other: self.queue_names[other].split("/")
        )
        rank[rank >= place] += 1
        self.queues.rank[row] = place

    def _set_queue(self, row: int, spec: Queue) -> None:
        q = self.queues
        self._check_known(spec)
        q.policy[row] = code_of(self.policy_of(row) if row in self._inner_rows else "priority", self.resources)
        weight = spec.weight
        if isinstance(weight, dict):
            q.weight[row] = [weight.get(name, 1.0) for name in self.resources]
        else:
            q.weight[row] = weight
        q.guarantee[row] = self._vector(spec.guarantee)
        q.limit[row] = self._vector(spec.limit, UNLIMITED)
        q.max_tasks[row] = UNLIMITED if spec.max_tasks is None else spec.max_tasks
        q.max_jobs[row] = UNLIMITED if spec.max_jobs is None else spec.max_jobs

    def _check_known(self, spec: Queue) -> None:
        weighed = spec.weight if isinstance(spec.weight, dict) else {}
        names = {*resources_of(spec.policy), *spec.guarantee, *spec.limit, *weighed}
        self._ensure_resources(names)

    def _ensure_shape(self, job: Job) -> int:
        constraints = tuple(sorted((label, tuple(sorted(values))) for label, values in job.on.items()))
        key = (tuple(sorted((name, q) for name, q in job.demand.items() if q)), constraints)
        row = self._shape_rows.get(key)
        if row is None:
            row = self._shape_rows[key] = self.shapes.extend(1)
            self.shapes.demand[row] = self._vector(job.demand)
            mask = self._mask_rows.get(constraints)
            if mask is None:
                mask = self._mask_rows[constraints] = len(self.masks)
                more = np.zeros((1, self.masks.shape[1]), np.bool_)
                more[0, : len(self.node_specs)] = [_meets(n.labels, constraints) for n in self.node_specs]
                self.masks = np.vstack([self.masks, more])
            self.shapes.mask[row] = mask
        return row

    def _enter_bucket_if_ready(self, row: int) -> None:
        """Let a job wait in its bucket, unless it is there, has nothing that waits, is held, or comes after another."""
        jobs = self.jobs
        if jobs.bucket[row] != NONE or not jobs.waiting[row] or jobs.held[row] or int(jobs.id[row]) in self.waits_for:
            return
        gang = int(jobs.waiting[row]) if jobs.gang[row] else 0
        key = (int(jobs.queue[row]), int(jobs.priority[row]), int(jobs.shape[row]), gang)
        bucket = self._bucket_rows.get(key)
        if bucket is None:
            bucket = self._bucket_rows[key] = self.buckets.extend(1)
            b = self.buckets
            b.leaf[bucket], b.priority[bucket], b.shape[bucket], b.gang[bucket] = key
            b.head[bucket] = b.tail[bucket] = NONE
            b.passed_since[bucket] = nan
        kernel_account.enter_bucket(view(self.buckets), view(jobs), row, bucket)

    def _leave_bucket(self, row: int) -> None:
        bucket = int(self.jobs.bucket[row])
        if bucket != NONE:
            kernel_account.leave_bucket(view(self.buckets), view(self.jobs), row)
            if self.buckets.head[bucket] == NONE:
                self.buckets.passed_since[bucket] = nan
            if self.buckets.head[bucket] == NONE or self.buckets.gang[bucket]:
                self._drop_reservation(bucket)

    def _finish(self, rows: I64, index: Ints, attempt: Ints, outcome: Ints, code: Ints, fact: Fact) -> None:
        touched = np.empty(len(rows), np.int64)
        bad = kernel_account.finished(
            view(self.nodes), view(self.queues), view(self.shapes), view(self.buckets), view(self.jobs),
            view(self.tasks), rows, index, attempt, outcome, code, fact.at, self.settings.max_losses, touched,
        )  # fmt: skip
        self._refuse(bad, self.jobs.id[rows], index, "ended")
        for row in sorted(set(touched[touched != NONE].tolist())):
            self._after_change(row, fact.at)

    def _after_change(self, row: int, at: float) -> None:
        """Tasks of a job ended, came back or were cancelled: it is finished, waits in its bucket, or is a broken gang."""
        jobs = self.jobs
        job = int(jobs.id[row])
        if jobs.waiting[row] == 0:
            self.broken_gangs.discard(job)
            if jobs.holding[row] == 0 and np.isnan(jobs.finished_at[row]):
                jobs.finished_at[row] = at
                self.finished_jobs[job] = None
                for other in self.waits_for.pop(job, ()):
                    if other in self.followers:
                        self.followers[other].remove(job)
                self.doomed.discard(job)
                self._follow(job)
        elif jobs.gang[row] and jobs.holding[row]:
            self.broken_gangs.add(job)
        else:
            self.broken_gangs.discard(job)
            self._enter_bucket_if_ready(row)

    def _follow(self, ended: int) -> None:
        """A job has ended: those that come after it may start, or never will."""
        row = self.job_row(ended)
        success = self.jobs.failed[row] == 0 and self.jobs.cancelled[row] == 0
        for job in self.followers.pop(ended, []):
            wanted = {after.how for after in self.specs[job].after if after.job == ended}
            if wanted <= {"end", "success" if success else "failure"}:
                self.waits_for[job].discard(ended)
                if not self.waits_for[job]:
                    del self.waits_for[job]
                    self._enter_bucket_if_ready(self.job_row(job))
            else:
                self.doomed.add(job)

    def _drop_reservation(self, bucket: int) -> None:
        reservation = self.reservations.pop(bucket, None)
        if reservation:
            self.buckets.passed_since[bucket] = nan
            for node in reservation.nodes:
                self._room_came_back(node)

    def _drop_reservations_on(self, node: int) -> None:
        for bucket in [b for b, r in self.reservations.items() if node in r.nodes]:
            self._drop_reservation(bucket)

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

        live = np.flatnonzero(buckets.head[: buckets.n] != NONE)
        new_bucket = _renumbering(live, buckets.n)
        buckets.keep(live)
        jobs.bucket[:] = new_bucket[jobs.bucket]
        self.reservations = {int(new_bucket[b]): r for b, r in self.reservations.items()}
        for bucket, reservation in self.reservations.items():
            reservation.bucket = bucket

        live = np.unique(jobs.shape[: jobs.n])
        new_shape = _renumbering(live, shapes.n)
        shapes.keep(live)
        jobs.shape[: jobs.n] = new_shape[jobs.shape[: jobs.n]]
        buckets.shape[: buckets.n] = new_shape[buckets.shape[: buckets.n]]
        self._shape_rows = {key: int(new_shape[r]) for key, r in self._shape_rows.items() if new_shape[r] != NONE}
        b = buckets
        columns = (b.leaf[: b.n], b.priority[: b.n], b.shape[: b.n], b.gang[: b.n])
        self._bucket_rows = {
            (int(leaf), int(priority), int(shape), int(gang)): row
            for row, (leaf, priority, shape, gang) in enumerate(zip(*columns, strict=True))
        }

        self._first_row = int(jobs.id[0]) if jobs.n else self.last_job + 1
        self._row_of_job = np.full(self.last_job - self._first_row + 1, NONE, np.int64)
        self._row_of_job[jobs.id[: jobs.n] - self._first_row] = np.arange(jobs.n)
        self._dead_tasks = 0
        self.expected = None


def _renumbering(live: I64, count: int) -> I64:
    """Map old rows to new ones, NONE for those that go; NONE itself, the last element, stays NONE."""
    new = np.full(count + 1, NONE, np.int64)
    new[live] = np.arange(len(live))
    return new


def _meets(labels: dict[str, str], constraints: tuple[tuple[str, tuple[str, ...]], ...]) -> bool:
    return all(labels.get(label) in values for label, values in constraints)
