"""Create rows for new resources, queues, shapes, groups, jobs and tasks; compact them when jobs are forgotten."""

from collections.abc import Iterable, Sequence
from math import inf, nan
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fairlead.model.job_columns import JobColumns, family_of
from fairlead.model.specs import JOBS, Job, as_constraints, path_to_root
from fairlead.scheduler.framework_index import own_queue, queue_of
from fairlead.scheduler.history import begin_ticks, share_evenly
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.kernel.scheduling import link_tasks
from fairlead.scheduler.kernel.view import BEGAN, ENDED, NEXT_TICK
from fairlead.scheduler.queue_tree import DECLARED, beside, mark_exact
from fairlead.scheduler.state import GroupKey, State
from fairlead.scheduler.tables import FITS, I64, NONE, TABLES, Jobs, Tasks, vector

MOST_KINDS = 10_000
"""Kinds of jobs whose rows are remembered."""
MANY_KINDS = 100
"""New kinds of jobs from which on the order is rebuilt instead of updated for each."""

# Rows as raw memory: numpy copies these several times as fast as field by field.
_JOB, _TASK = (np.dtype((np.void, table.FIELDS.itemsize)) for table in (Jobs, Tasks))

# The rows of a new job and a new task, and what differs between kinds of jobs, as a part of a job's row.
NEW_JOB = np.zeros((), Jobs.FIELDS)
NEW_JOB["group"], NEW_JOB["after"], NEW_JOB["before"], NEW_JOB["finished_at"] = NONE, NONE, NONE, nan
_KIND = NEW_JOB[[
    "queue", "shape_row", "priority", "retries", "tasks", "waiting", "home", "time_limit", "at_most", "gang", "held", "plain",
    "exit_done", "revocable", "once", "family",
]].dtype  # fmt: skip
NEW_TASK = np.zeros((), Tasks.FIELDS)
NEW_TASK["node"], NEW_TASK["started_at"], NEW_TASK["finished_at"] = NONE, nan, nan


def ensure_resources(state: State, names: Iterable[str]) -> None:
    """Add missing columns for these resources."""
    new = [name for name in names if name not in state.resources]
    if new:
        before, b = len(state.resources), state.groups
        state.resources += sorted({*new})
        state.named = None
        state.grain = np.concatenate([state.grain, np.zeros(len(state.resources) - len(state.grain), np.int64)])
        for name in TABLES:
            getattr(state, name).widen(len(state.resources))
        state.cluster.count(state.nodes)
        state.order.invalidate()
        frameworks = np.bincount(b.leaf[: b.n][b.is_framework[: b.n]], minlength=state.queues.n)
        state.queues.needing[: state.queues.n, before:] += frameworks[:, np.newaxis]  # they may need any
        for row in range(state.queues.n):
            write_queue(state, row)
        mark_exact(state.queues)
        state.tree.write_guarantees(state.queues, state.cluster.open)


def ensure_queue(state: State, name: str) -> int:
    """Return the row of a queue, created with its ancestors if needed."""
    if name not in state.tree.rows:
        _create(state, [name])
    return state.tree.rows[name]


def ensure_queues(state: State, names: Iterable[str]) -> None:
    """Create missing queues with their ancestors."""
    new = [name for name in dict.fromkeys(names) if name not in state.tree.rows]
    for batch in [new] if len(new) > MANY_KINDS else [[name] for name in new]:
        _create(state, batch)


def _create(state: State, names: list[str]) -> None:
    """Create missing queues. The order is rebuilt when next needed if there are several, or others' keys change."""
    tree, queues, before = state.tree, state.queues, state.queues.n
    batches = tree.add(names, queues)
    stays, more = queues.n == before + 1, list[int]()
    for up, begin, end, are_first in batches:
        if NONE < up < before and are_first:
            write_queue(state, up)  # it has children now, which share by its policy
            stays = False
        elif up != NONE:
            more.append(up)
        _write_siblings(state, up, begin, end)
        if up != NONE and queues.exact[up] and not queues.part[begin:end].all():
            queues.exact[up] = stays = False
    share_evenly(queues, state.cluster.total, more)
    if queues.declared[before : queues.n].any():
        stays &= not (tree.write_guarantees(queues, state.cluster.open) < before).any()
    elif queues.has_nonlendable[:1].any():
        queues.never_lent[: queues.n] = beside(queues.nonlendable[: queues.n], queues.parent[: queues.n])
    if not stays:
        state.order.invalidate()
    elif before:
        state.order.add_queue(state, before)


def _write_siblings(state: State, up: int, begin: int, end: int) -> None:
    """Write the declarations of new siblings; one is written for all leaves that have none of their own."""
    tree, names = state.tree, enumerate(state.tree.names[begin:end], begin)
    own = {row for row, name in names if row in tree.children or tree.declares(name)}
    pattern = tree.undeclared.get(up, NONE)
    if len(own) < end - begin:
        if pattern == NONE or pattern in tree.children:
            pattern = tree.undeclared[up] = next(row for row in range(begin, end) if row not in own)
            write_queue(state, pattern)
        for column in (getattr(state.queues, name) for name in DECLARED):
            column[begin:end] = column[pattern]
    for row in sorted(own):
        write_queue(state, row)


def write_queue(state: State, row: int) -> None:
    ensure_resources(state, state.tree.needed_resources(state.tree.names[row]))
    state.tree.write(row, state.queues, state.resources, state.cluster.total)
    most = state.tree.inherited(state.tree.names[row], "offer_most", state.settings.offer_most or 0.0)
    state.queues.offer_most[row] = most / 100
    if not state.settings.revoke:
        state.queues.guarantee_timeout[row] = state.queues.share_timeout[row] = inf
        state.queues.priority_revokes[row] = state.queues.revocable[row] = False
    if state.queues.tick[row] > 0:
        state.times[NEXT_TICK] = -inf  # the next fact recomputes it


def ensure_shape(state: State, job: Job) -> int:
    """Return the row of a job's shape, created if needed."""
    constraints = state.cluster.constraints_of(job)
    key = (tuple(sorted([amount for amount in job.taken.items() if amount[1]])), constraints)
    fit, masks = FITS.index(job.fit), state.cluster.masks
    prefers = state.cluster.mask_of(as_constraints(job.prefer))  # 0 for all
    row = state.shape_rows.get((key, fit, prefers))
    if row is None:
        row = state.shape_rows[key, fit, prefers] = state.shapes.extend(1)
        state.shape_keys.append(key)
        state.shapes.fit[row], state.shapes.prefers[row] = fit, prefers
        state.shapes.demand[row] = vector(job.taken, state.resources)
        state.shapes.mask[row] = state.cluster.mask_of(constraints)
        if state.cluster.masks is not masks:
            state.moves[0] += 1
        state.order.add_shape()
    return row


def write_rows(state: State, numbers: I64, rows: NDArray[Any], which: I64) -> int:
    """Create the rows of new jobs and their tasks; they are in no group yet. Return the first new row of jobs.

    numbers : int64, shape (jobs,): ascending, and higher than all before
    rows : structured array: from :func:`rows_of_kinds`
    which : int64, shape (jobs,): index of each job's kind
    """
    jobs, tasks = state.jobs, state.tasks
    sizes = rows["tasks"][which]
    count, total = len(which), int(sizes.sum())
    row, task = jobs.extend(count), tasks.extend(total)
    new = jobs.rows[row : row + count]
    rows.view(_JOB).take(which, out=new.view(_JOB), mode="clip")  # else numpy takes to a copy first
    new["id"], new["first"] = numbers, task + sizes.cumsum() - sizes
    tasks.rows.view(_TASK)[task : task + total] = NEW_TASK.view(_TASK)
    if len(state.ended) < len(jobs.rows):
        set_ended(state, state.ended[: state.order.counts[ENDED]], len(jobs.rows))
    return row


def rows_of_kinds(state: State, kinds: Sequence[Job]) -> tuple[NDArray[Any], I64]:
    """Return rows for kinds of jobs, without numbers and tasks, and their groups. Valid until the tables are compacted."""
    for job in kinds:
        ensure_resources(state, job.demand)
    ensure_queues(state, (job.queue for job in kinds))
    keys: list[GroupKey] = [
        (ensure_queue(state, job.queue), job.priority, ensure_shape(state, job), job.tasks * job.gang, job.revocable)
        for job in kinds
    ]
    if len(kinds) > MANY_KINDS and sum(key not in state.group_rows for key in keys) > MANY_KINDS:
        state.order.invalidate()  # to place all groups at once
    groups = [ensure_group(state, key) for key in keys]
    rows = np.empty(len(kinds), Jobs.FIELDS)
    rows.view(_JOB)[:] = NEW_JOB.view(_JOB)
    rows.view(_KIND)[:] = [
        (
            queue, shape, priority, job.retries, job.tasks, job.tasks, NONE if job.gang else group,
            inf if job.time_limit is None else job.time_limit, job.at_most or 0, job.gang, job.held,
            not job.gang and not job.retry_delay, job.exit_done, job.revocable, bool(job.framework),
            family_of(job),
        )
        for job, (queue, priority, shape, *_), group in zip(kinds, keys, groups, strict=True)
    ]  # fmt: skip
    return rows, np.array(groups, np.int64)


def rows_of_jobs(state: State, columns: JobColumns) -> tuple[NDArray[Any], I64, I64]:
    """Like :func:`rows_of_kinds`, for jobs many of which are alike, also those of earlier submissions; and each job's index."""
    if state.cluster.older:  # then the work counts, too
        return *rows_of_kinds(state, columns.jobs), np.arange(len(columns.jobs))
    known = state.kinds
    if len(known) > MOST_KINDS:
        known.clear()
    if new := {kind: job for kind, job in columns.kinds.items() if kind not in known}:
        rows, groups = rows_of_kinds(state, [*new.values()])
        known.update(zip(new, zip((row.tobytes() for row in rows), groups.tolist(), strict=True), strict=True))
    found = [known[kind] for kind in columns.kinds]
    rows = np.frombuffer(bytearray().join([row for row, _ in found]), Jobs.FIELDS)
    return rows, np.array([group for _, group in found], np.int64), columns.which


def set_ended(state: State, ended: I64, length: int = 0) -> None:
    """Replace the list of ended jobs, with space for all jobs."""
    state.ended, old = np.zeros(max(length, len(state.jobs.rows), len(ended)), np.int64), ended
    state.ended[: len(old)] = old
    state.moves[0] += 1


def ensure_group(state: State, key: GroupKey) -> int:
    """Return the group of a key, created if needed: leaf, priority, shape, gang size (0: not a gang), revocable."""
    group = state.group_rows.get(key)
    if group is None:
        b = state.groups
        group = state.group_rows[key] = b.extend(1)
        b.leaf[group], b.priority[group], b.shape_row[group], b.gang[group], b.revocable[group] = key
        state.any_revocable |= key[-1]
        b.head[group] = b.tail[group] = NONE
        state.order.add_group(state, group)
    return group


def group_of(state: State, row: int) -> int:
    """Return the group that a job waits in."""
    jobs = state.jobs
    gang = int(jobs.waiting[row]) if jobs.gang[row] else 0
    key = (int(jobs.queue[row]), int(jobs.priority[row]), int(jobs.shape_row[row]), gang, bool(jobs.revocable[row]))
    return ensure_group(state, key)


def compact(state: State) -> None:
    """Remove the rows of forgotten jobs; and of the groups and shapes that only they used, if groups outnumber the jobs left.

    Else their rows stay as they are: new jobs are often like those before.
    """
    jobs, tasks, groups, shapes = state.jobs, state.tasks, state.groups, state.shapes
    live = np.flatnonzero(jobs.id[: jobs.n] != NONE)
    counts = jobs.tasks[live]
    starts = np.concatenate([[0], np.cumsum(counts)])
    new_job = renumbering(live, jobs.n)
    tasks.keep(np.repeat(jobs.first[live] - starts[:-1], counts) + np.arange(starts[-1]))
    jobs.keep(live)
    jobs.first[: jobs.n] = starts[:-1]
    for links in (jobs.after, jobs.before, groups.head, groups.tail):
        links[:] = new_job[links]

    used = np.full(groups.n, groups.n <= jobs.n)
    used[(groups.head[: groups.n] != NONE) | groups.is_framework[: groups.n]] = True
    used[jobs.home[: jobs.n][jobs.home[: jobs.n] != NONE]] = True
    live = np.flatnonzero(used)
    new_group = renumbering(live, groups.n)
    groups.keep(live)
    jobs.group[:] = new_group[jobs.group]
    jobs.home[:] = new_group[jobs.home]
    state.holds.group[: state.holds.n] = new_group[state.holds.group[: state.holds.n]]

    live = np.union1d(jobs.shape_row[: jobs.n], groups.shape_row[: groups.n])
    new_shape = renumbering(live, shapes.n)
    shapes.keep(live)
    jobs.shape_row[: jobs.n] = new_shape[jobs.shape_row[: jobs.n]]
    groups.shape_row[: groups.n] = new_shape[groups.shape_row[: groups.n]]
    state.shape_keys = [state.shape_keys[row] for row in live]

    rows = state.held_rows()
    link_tasks(state.view(), rows, state.job_rows_of(rows))
    ended = state.ended_jobs()
    state.order.counts[ENDED] = len(ended)
    set_ended(state, ended)
    state.forgotten = state.dead_tasks = 0
    state.index.renumber(jobs)
    rebuild_row_maps(state)
    scheduling.count_pending(state.view())  # who waits has another row


def rebuild_row_maps(state: State) -> None:
    """Rebuild the row maps of shapes and groups from the tables, and forget kinds. The order is rebuilt when next needed."""
    fits, prefers = (column[: state.shapes.n].tolist() for column in (state.shapes.fit, state.shapes.prefers))
    state.shape_rows = {key: row for row, key in enumerate(zip(state.shape_keys, fits, prefers, strict=True))}
    b = state.groups
    columns = (b.leaf[: b.n], b.priority[: b.n], b.shape_row[: b.n], b.gang[: b.n], b.revocable[: b.n])
    keys = zip(*(column.tolist() for column in columns), strict=True)
    state.group_rows = {key: row for row, key in enumerate(keys)}
    state.kinds.clear()
    state.any_revocable = bool(b.revocable[: b.n].any())
    state.order.invalidate()


def renumbering(live: I64, count: int) -> I64:
    """Map old rows to new ones, NONE for removed rows; NONE itself, the last element, stays NONE."""
    new = np.full(count + 1, NONE, np.int64)
    new[live] = np.arange(len(live))
    return new


ROLE_COLUMNS = (
    "used", "spare", "claimed", "tasks", "jobs", "spare_tasks", "served", "owed", "allocations", "trusted", "overran",
)  # fmt: skip
"""Columns that a queue has because of its jobs: copied to the new queues when it becomes a role."""
LEAF_COLUMNS = (
    "idled_before", "apart", "wants", "debt", "debt_at", "due_at", "lasts", "beyond", "owed_since", "idled_then",
    "put_off", "wasted",
)  # fmt: skip
"""Columns that only leaves have: they move to the new leaf."""


def make_role(state: State, role: str, at: float) -> None:
    """Move the jobs of a role's queue, and of those above it, to leaves of their own."""
    for name in reversed(path_to_root(queue_of(role))):
        row = state.tree.rows.get(name)
        if name and row is not None and row not in state.tree.children and _has_live_jobs(state, row):
            _move_jobs(state, row, at)


def _has_live_jobs(state: State, row: int) -> bool:
    jobs, n = state.jobs, state.jobs.n
    return bool(((jobs.queue[:n] == row) & (jobs.id[:n] != NONE) & np.isnan(jobs.finished_at[:n])).any())


def _move_jobs(state: State, row: int, at: float) -> None:
    queues, tick = state.queues, state.queues.tick[: state.queues.n].copy()
    own = own_queue(state.tree.names[row])
    leaf = ensure_queue(state, f"{own}/{JOBS}")
    begin_ticks(queues, tick, at - state.times[BEGAN])
    for new in (state.tree.rows[own], leaf):
        if queues.tick[queues.parent[new]] > 0:
            scheduling.count_use(state.view(), new, at)  # nothing so far
        for name in ROLE_COLUMNS:
            getattr(queues, name)[new] = getattr(queues, name)[row]
    for name in LEAF_COLUMNS:
        column = getattr(queues, name)
        column[leaf], column[row] = column[row], 0
    jobs, leaves = state.jobs, state.groups.leaf[: state.groups.n]
    mine = np.flatnonzero(jobs.queue[: jobs.n] == row)
    jobs.queue[mine] = leaf
    leaves[leaves == row] = leaf
    for number in jobs.id[mine][jobs.id[mine] != NONE].tolist():
        state.index.specs[number] = replace(state.index.specs[number], queue=state.tree.names[leaf])
    state.tree.write_nonlendable(queues)
    scheduling.count_pending(state.view())
    rebuild_row_maps(state)
