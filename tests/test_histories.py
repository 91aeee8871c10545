"""Histories of a scheduler that looked at everything anew for each placement, fed to the state as it is now.

tests/data/histories-by-scan.jsonl.gz holds six, fact by fact, an empty line between two: nine leaves in three groups under
DRF, with weights, guarantees, limits, priorities and reservations, recorded before there was an order that is kept. Each of their
placements must be one that the rules allow still, worked out here in fractions from the definition; only exact ties are free.
"""

import gzip
from fractions import Fraction
from pathlib import Path

import pytest

from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import TasksPlaced, decode
from fairlead.scheduler.reports.reservations import holds_by_job
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import UNLIMITED

STORED = Path(__file__).parent / "data" / "histories-by-scan.jsonl.gz"
HISTORIES = [
    [decode(line) for line in part.splitlines()] for part in gzip.decompress(STORED.read_bytes()).split(b"\n\n") if part.strip()
]


def fits(state: State, job: int, n: int) -> bool:
    """Whether a node has room for a task of a job, beside what is kept there for others."""
    demand, room = state.shapes.demand[state.jobs.shape_row[job]], state.nodes.free[n].copy()
    for kept in holds_by_job(state, 0.0):
        if kept.group != state.jobs.group[job] and n in kept.nodes:
            room -= kept.tasks[kept.nodes.index(n)] * state.shapes.demand[state.groups.shape_row[kept.group]]
    return bool(((demand == 0) | (demand <= room)).all())


def path(state: State, q: int) -> list[int]:
    return [q] if q == 0 else [q, *path(state, int(state.queues.parent[q]))]


def servable(state: State, job: int) -> bool:
    demand, queues = state.shapes.demand[state.jobs.shape_row[job]], state.queues
    for q in path(state, int(state.jobs.queue[job])):
        limited = (queues.limit[q] != UNLIMITED) & (demand > 0)
        if (limited & (queues.used[q] + demand > queues.limit[q])).any():
            return False
    return any(fits(state, job, n) for n in range(state.nodes.n))


def share(state: State, q: int) -> Fraction:
    """A queue's dominant share over its weights."""
    return max(
        Fraction(int(state.queues.used[q, r]), int(total)) / Fraction(repr(float(state.queues.weight[q, r])))
        for r, total in enumerate(state.cluster.total)
        if total
    )


def allowed(state: State, q: int) -> set[int]:
    """The jobs below a queue that may be served next: one, but for exact ties between queues."""
    children = [c for c in range(1, state.queues.n) if state.queues.parent[c] == q]
    if not children:
        jobs = [j for j in range(state.jobs.n) if state.jobs.queue[j] == q and state.jobs.waiting[j] and servable(state, j)]
        return set(sorted(jobs, key=lambda j: (-state.jobs.priority[j], state.jobs.id[j]))[:1])
    offers = []
    for child in children:
        for job in allowed(state, child):
            demand = state.shapes.demand[state.jobs.shape_row[job]]
            below = bool(((demand > 0) & (state.queues.used[child] < state.queues.guarantee[child])).any())
            offers.append(((not below, share(state, child)), job))
    return {job for key, job in offers if key == min(offers)[0]}


def one_by_one(fact: TasksPlaced) -> list[TasksPlaced]:
    columns = [fact.job, fact.index, fact.attempt, fact.node]
    return [
        TasksPlaced(at=fact.at, job=j, index=i, attempt=a, node=n)
        for j, i, a, n in zip(*([column[k : k + 1] for k in range(len(fact.job))] for column in columns), strict=True)
    ]


@pytest.mark.parametrize("number", range(len(HISTORIES)))
def test_what_was_placed_by_looking_at_everything_is_what_the_keys_allow(number: int) -> None:
    state, placed = new_state(), 0
    for fact in HISTORIES[number]:
        for part in one_by_one(fact) if isinstance(fact, TasksPlaced) else [fact]:
            if isinstance(part, TasksPlaced):
                job = state.index.find(int(part.job[0]))
                assert job in allowed(state, 0), f"job {part.job[0]} at {part.at}"
                placed += 1
            apply(state, part)
    assert placed > 300
