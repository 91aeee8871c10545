"""Tables made smaller: the rows of forgotten jobs are taken out, and the buckets and shapes that only they had."""

from typing import TYPE_CHECKING

import numpy as np

from fairlead.scheduler.growth import set_ended
from fairlead.scheduler.kernel.scheduling import link_tasks
from fairlead.scheduler.tables import I64, NONE
from fairlead.scheduler.view import ENDED

if TYPE_CHECKING:
    from fairlead.scheduler.state import State


def compact(state: "State") -> None:
    """Take the rows of forgotten jobs, and the buckets and shapes that only they had, out of the tables."""
    jobs, tasks, buckets, shapes = state.jobs, state.tasks, state.buckets, state.shapes
    live = np.flatnonzero(jobs.id[: jobs.n] != NONE)
    counts = jobs.tasks[live]
    starts = np.concatenate([[0], np.cumsum(counts)])
    new_job = renumbering(live, jobs.n)
    tasks.keep(np.repeat(jobs.first[live] - starts[:-1], counts) + np.arange(starts[-1]))
    jobs.keep(live)
    jobs.first[: jobs.n] = starts[:-1]
    for links in (jobs.after, jobs.before, buckets.head, buckets.tail):
        links[:] = new_job[links]

    used = np.zeros(buckets.n, np.bool_)
    used[(buckets.head[: buckets.n] != NONE) | buckets.wants[: buckets.n]] = True
    used[jobs.home[: jobs.n][jobs.home[: jobs.n] != NONE]] = True
    live = np.flatnonzero(used)
    new_bucket = renumbering(live, buckets.n)
    buckets.keep(live)
    jobs.bucket[:] = new_bucket[jobs.bucket]
    jobs.home[:] = new_bucket[jobs.home]
    state.holds.bucket[: state.holds.n] = new_bucket[state.holds.bucket[: state.holds.n]]

    live = np.union1d(jobs.shape_row[: jobs.n], buckets.shape_row[: buckets.n])
    new_shape = renumbering(live, shapes.n)
    shapes.keep(live)
    jobs.shape_row[: jobs.n] = new_shape[jobs.shape_row[: jobs.n]]
    buckets.shape_row[: buckets.n] = new_shape[buckets.shape_row[: buckets.n]]
    state.shape_keys = [state.shape_keys[row] for row in live]

    rows = state.held_rows()
    link_tasks(state.view(), rows, state.job_rows_of(rows))
    ended = state.ended_jobs()
    state.order.counts[ENDED] = len(ended)
    set_ended(state, ended)
    state.forgotten = state.dead_tasks = 0
    state.index.renumber(jobs)
    find_kinds(state)


def find_kinds(state: "State") -> None:
    """Work out where shapes and buckets are, from the tables and parts. The order is made anew when it is needed."""
    fits = state.shapes.fit[: state.shapes.n].tolist()
    state.shape_rows = {key: row for row, key in enumerate(zip(state.shape_keys, fits, strict=True))}
    b = state.buckets
    columns = (b.leaf[: b.n], b.priority[: b.n], b.shape_row[: b.n], b.gang[: b.n], b.revocable[: b.n])
    keys = zip(*(column.tolist() for column in columns), strict=True)
    state.bucket_rows = {key: row for row, key in enumerate(keys)}
    state.any_revocable = bool(b.revocable[: b.n].any())
    state.order.spoil()


def renumbering(live: I64, count: int) -> I64:
    """Map old rows to new ones, NONE for those that go; NONE itself, the last element, stays NONE."""
    new = np.full(count + 1, NONE, np.int64)
    new[live] = np.arange(len(live))
    return new
