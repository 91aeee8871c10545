"""A leaf with jobs becomes a role: its jobs go on in a leaf of their own, beside what frameworks have in it.

Nothing of the jobs changes but the queue that they are in: ``ROLE/./jobs`` instead of ``ROLE``, which has others below it from
now on. What they use and wait for, what is kept for them and whose turn it was goes with them. What they used before is held
against the role as a whole, as until now; within it, jobs and frameworks begin with none.
"""

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from fairlead.model.specs import path_to_root
from fairlead.scheduler.compaction import find_kinds
from fairlead.scheduler.framework_index import JOBS, own_queue, queue_of
from fairlead.scheduler.growth import ensure_queue
from fairlead.scheduler.history import begin_ticks
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.tables import NONE
from fairlead.scheduler.view import BEGAN

if TYPE_CHECKING:
    from fairlead.scheduler.state import State

TAKEN_ALONG = (
    "used", "spare", "promised", "claimed", "tasks", "jobs", "spare_tasks", "served", "allocations", "trusted", "overran",
)  # fmt: skip
"""What a queue has because of its jobs: what the new queues have from the first, as the role does."""


def make_role(state: "State", role: str, at: float) -> None:
    """Have the jobs of the queue that a role is, and of those above it, in leaves of their own."""
    for name in reversed(path_to_root(queue_of(role))):
        row = state.tree.rows.get(name)
        if name and row is not None and row not in state.tree.inner_rows and _has_live_jobs(state, row):
            _move_jobs(state, row, at)


def _has_live_jobs(state: "State", row: int) -> bool:
    jobs, n = state.jobs, state.jobs.n
    return bool(((jobs.queue[:n] == row) & (jobs.id[:n] != NONE) & np.isnan(jobs.finished_at[:n])).any())


def _move_jobs(state: "State", row: int, at: float) -> None:
    queues, tick = state.queues, state.queues.tick[: state.queues.n].copy()
    own = own_queue(state.tree.names[row])
    leaf = ensure_queue(state, f"{own}/{JOBS}")
    begin_ticks(queues, tick, at - state.times[BEGAN])
    for new in (state.tree.rows[own], leaf):
        if queues.tick[queues.parent[new]] > 0:
            scheduling.count_use(state.view(), new, at)  # which is nothing until now
        for name in TAKEN_ALONG:
            getattr(queues, name)[new] = getattr(queues, name)[row]
    for name, none in (
        ("idled_before", 0),
        ("in_line_since", 0.0),
        ("in_line_at", -np.inf),
        ("apart", 0),
    ):  # of leaves only
        column = getattr(queues, name)
        column[leaf], column[row] = column[row], none
    jobs, leaves = state.jobs, state.buckets.leaf[: state.buckets.n]
    mine = np.flatnonzero(jobs.queue[: jobs.n] == row)
    jobs.queue[mine] = leaf
    leaves[leaves == row] = leaf
    for number in jobs.id[mine][jobs.id[mine] != NONE].tolist():
        state.index.specs[number] = replace(state.index.specs[number], queue=state.tree.names[leaf])
    state.tree.write_withheld(queues)
    find_kinds(state)
