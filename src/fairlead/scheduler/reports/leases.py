"""Which leases of workers end between two calls, because others are due: docs/calls.md has the rule."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from heapq import heappop, heappush
from itertools import islice
from typing import NamedTuple

import numpy as np

from fairlead.policies.codes import DRF
from fairlead.scheduler.entitlements import Parts, parts_of
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import RUNNING
from fairlead.scheduler.tables import NONE

TOLERANCE = 1e-9
"""Levels that differ by less are equal."""


class _Lease(NamedTuple):
    """A lease that runs: its job and attempt, its leaf's place among the parts, its session, and its share of the cluster."""

    name: tuple[int, int]
    leaf: int
    session: str
    share: float


def due_leases(state: State, session_of: Mapping[int, str], ending: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Return the leases that run and are due, as job and attempt; those in `ending` were so before.

    `session_of` has the session of each lease, by job.
    """
    jobs, tasks = state.jobs, state.tasks
    rows = {job: row for job in session_of if (row := state.index.find(job)) != NONE}
    runs = [job for job, row in rows.items() if tasks.status[jobs.first[row]] == RUNNING]
    if not runs:
        return set()
    parts = parts_of(state)
    place = {queue: k for k, queue in enumerate(parts.queues.tolist())}
    own = Counter[tuple[int, str]]()  # waiting leases by leaf and session
    for job, row in rows.items():
        own[place.get(int(jobs.queue[row]), NONE), session_of[job]] += int(jobs.waiting[row])
    total = np.maximum(state.cluster.total, 1)
    runs.sort(key=lambda job: float(tasks.started_at[jobs.first[rows[job]]]))
    leases = [
        _Lease(
            (job, int(tasks.attempt[jobs.first[rows[job]]])),
            place[int(jobs.queue[rows[job]])],
            session_of[job],
            float((state.shapes.demand[jobs.shape_row[rows[job]]] / total).max(initial=0.0)),
        )
        for job in runs
    ]
    found = {each.name for each in leases if parts.waiting[each.leaf] > own[each.leaf, each.session]}
    if (state.queues.policy[np.unique(state.queues.parent[1 : state.queues.n])] == DRF).all():
        found |= _due_to_others(parts, leases, ending)
    else:  # what leaves have does not say who is next
        of_session = Counter[str]()
        for (_, session), count in own.items():
            of_session[session] += count
        waiting = parts.waiting.sum()
        found |= {each.name for each in leases if waiting > of_session[each.session]}
    return found.union(each.name for each in leases if each.name in ending)


def _due_to_others(parts: Parts, leases: list[_Lease], ending: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Give leases up one by one, while the leaf with the least of its part has no more of it than the one that gives keeps.

    If demands differ, there may be none: then the oldest one, so that the policy can settle whose turn it is; but
    not if its leaf alone waits.
    """
    has, entitled = parts.has.copy(), np.maximum(parts.entitled, 1e-12)
    due, gains, freed = {each.name for each in leases if each.name in ending}, set[int](), 0.0
    # By leaf: share and place of the leases that stay so far, the smallest last.
    left = defaultdict[int, list[tuple[float, int]]](list)
    # A heap: of each leaf what it lacks of its part without a lease, and that lease's place.
    givers: list[tuple[float, int]] = []

    def offer(leaf: int) -> None:
        if left[leaf]:
            share, place = left[leaf].pop()
            heappush(givers, ((share - has[leaf]) / entitled[leaf], place))

    for place, each in enumerate(leases):
        if each.name in due:
            has[each.leaf] -= each.share
            freed += each.share
        else:
            left[each.leaf].append((each.share, place))
    for leaf, those in left.items():
        those.sort(reverse=True)
        offer(leaf)
    while True:
        short = np.flatnonzero((parts.waiting > 0) & (has < parts.entitled * (1 - TOLERANCE)))
        if not len(short):
            return due
        needy = int(short[np.argmin((has / entitled)[short])])
        gains.add(needy)
        if freed > 0:
            lacks = parts.entitled[needy] - has[needy]
            has[needy], freed = has[needy] + min(lacks, freed), freed - lacks
            continue
        while givers and leases[givers[0][1]].leaf in gains:
            heappop(givers)
        if not givers or -givers[0][0] < has[needy] / entitled[needy] - TOLERANCE:
            waits = np.flatnonzero(parts.waiting > 0)
            return due or set(islice((each.name for each in leases if (waits != each.leaf).any()), 1))
        gives = leases[heappop(givers)[1]]
        due.add(gives.name)
        has[gives.leaf] -= gives.share
        has[needy] += gives.share
        offer(gives.leaf)
