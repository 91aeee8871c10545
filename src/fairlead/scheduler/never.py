"""Which jobs that wait can never start, as things are: nobody's part is less for them, and they are nobody's turn.

What no node could hold, were all that take tasks empty, never starts; nor does what is behind such a job in a leaf whose first
nobody passes.
"""

from typing import TYPE_CHECKING

import numpy as np

from fairlead.scheduler.tables import NONE, Bools

if TYPE_CHECKING:
    from fairlead.scheduler.state import State


def never_starting(state: "State") -> Bools:
    """Of each job, whether it waits in a bucket and can never start."""
    jobs, n = state.jobs, state.jobs.n
    state.order.ready(state, 1)
    waits = jobs.bucket[:n] != NONE
    found: Bools = waits.copy()
    found[waits] = state.order.buckets.hopeless[jobs.bucket[:n][waits]]
    for leaf in np.unique(jobs.queue[:n][found & state.queues.strict[jobs.queue[:n]]]).tolist():
        first = first_of_never(state, leaf, found)
        mine = waits & (jobs.queue[:n] == leaf)
        priority, number = jobs.priority[:n], jobs.id[:n]
        found |= mine & ((priority < priority[first]) | ((priority == priority[first]) & (number > number[first])))
    return found


def first_of_never(state: "State", leaf: int, found: Bools) -> int:
    """Of the jobs of a leaf that are among some, the row of the one that goes first; NONE where there is none."""
    rows = np.flatnonzero(found & (state.jobs.queue[: state.jobs.n] == leaf))
    if not len(rows):
        return NONE
    return int(min(rows.tolist(), key=lambda row: (-state.jobs.priority[row], state.jobs.id[row])))


def stopped_for_ever(state: "State", leaf: int, priority: int, number: int) -> int:
    """The row of the job that never starts and that a job of this priority and number of a strict leaf waits behind, or NONE."""
    if not state.queues.strict[leaf]:
        return NONE
    first = first_of_never(state, leaf, never_starting(state))
    if first == NONE or (-state.jobs.priority[first], state.jobs.id[first]) >= (-priority, number):
        return NONE
    return first
