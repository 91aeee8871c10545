"""A simulation many steps at once, in compiled code, where all that happens is plain: jobs arrive, tasks end.

Jobs are written into the state's tables some thousands at a time, before they arrive. What is compiled
(:mod:`fairlead.simulate.kernel_advance`) goes through moment after moment, and comes back for more of them, for more room, for a
moment at which shares are to be looked at, or for a step that forgets jobs, which is taken as every step is.
"""

from collections.abc import Iterator

import numpy as np

from fairlead.model.specs import Job
from fairlead.scheduler.decide import MOST_PLACEMENTS
from fairlead.scheduler.facts import (
    Fact,
    JobsPassedOver,
    JobSubmitted,
    NodesReserved,
    ReservationDropped,
    TasksFinished,
    TasksPlaced,
    TasksStarted,
)
from fairlead.scheduler.growth import bucket_of, write_jobs
from fairlead.scheduler.tables import I64, NONE
from fairlead.scheduler.view import ENDED, HOLDS
from fairlead.simulate import kernel_advance as kernel
from fairlead.simulate.kernel_advance import Course
from fairlead.simulate.steps import Simulation, job_of

CHUNK_JOBS, CHUNK_TASKS = 20_000, 1_000_000
"""Jobs that are written before they arrive, at most; and their tasks, but for one job."""


def by_many_steps(s: Simulation) -> int:
    """Run a simulation; returns how many moments there were."""
    state, cluster = s.scheduler.state, s.cluster
    recorded = s.tally.wants_facts
    most = MOST_PLACEMENTS + int(s.workload.tasks[s.workload.gang].max(initial=0))
    jobs = len(s.workload.submit)
    course = Course(
        row=np.full(jobs, NONE), bucket=np.full(jobs, NONE), submit=s.workload.submit, at=np.zeros(2),
        ends=np.zeros((5, 1024), np.int64), rows=np.zeros(most, np.int64), attempts=np.zeros(most, np.int64),
        log=np.zeros(0, np.int64), moments=np.zeros(0), numbers=np.zeros(8, np.int64),
    )  # fmt: skip
    course = _longer(course, 1024, recorded)
    numbers = course.numbers
    state.holds.extend(state.nodes.n)  # each is kept for one at most
    state.holds.n = 0
    while True:
        numbers[kernel.FORGOTTEN] = int(state.order.counts[ENDED]) - len(state.ended_jobs())
        numbers[kernel.KEEP_JOBS] = state.settings.keep_jobs
        view = state.order.ready(state, MOST_PLACEMENTS)
        settings = state.settings
        why = kernel.advance(
            view, cluster.truth, cluster.runs, course, s.sampler.next, MOST_PLACEMENTS, settings.reserve_after,
            settings.max_losses,
        )  # fmt: skip
        state.learned = None
        state.version += 1
        state.holds.n = int(state.order.counts[HOLDS])
        cluster.now = float(course.at[0])
        if recorded:
            s.tally(list(_facts(s, course)))
        if why == kernel.OVER:
            break
        if why == kernel.UNTIL:
            s.sampler.until(float(course.at[1]))
        elif why == kernel.MORE_JOBS:
            _write_jobs(s, course)
        elif why == kernel.MORE_ROWS:
            course = _longer(course, len(cluster.runs.heap), recorded)
        elif why == kernel.FORGET:
            rows = state.jobs.rows
            s.scheduler.step()
            while s.scheduler.more or cluster.next_event() == cluster.now:
                s.scheduler.step()
            numbers[kernel.STEPS] += 1
            if state.jobs.rows is not rows:
                _find_again(s, course)
        s.tell()
    s.tally.decisions += int(numbers[kernel.DECISIONS]) if not recorded else 0
    return int(numbers[kernel.STEPS])


def _longer(course: Course, tasks: int, recorded: bool) -> Course:
    """The same with room for so many tasks that end at one moment."""
    length = max(tasks, len(course.rows))
    at_once = 4 * kernel.LONGEST * (length + len(course.submit)) if recorded else 0
    return Course(
        **{
            **course.arrays,
            "ends": np.zeros((5, tasks), np.int64),
            "rows": np.zeros(length, np.int64),
            "attempts": np.zeros(length, np.int64),
            "log": np.zeros(at_once, np.int64),
            "moments": np.zeros(at_once // 3),
        }
    )


def _write_jobs(s: Simulation, course: Course) -> None:
    """Write the next jobs into the state, before they arrive."""
    state, begin = s.scheduler.state, int(course.numbers[kernel.COMING])
    tasks = np.cumsum(s.workload.tasks[begin : begin + CHUNK_JOBS])
    end = begin + max(1, int(np.searchsorted(tasks, CHUNK_TASKS, side="right")))
    course.numbers[kernel.COMING] = end
    chosen = begin + np.flatnonzero(~s.refused[begin:end])
    if not len(chosen):
        return
    # All that waits may start at one moment, decision after decision.
    s.cluster.make_room(int(s.cluster.truth.waiting.sum() + s.workload.tasks[chosen].sum()))
    kinds, which = _kinds(s, chosen)
    numbers = chosen + 1
    first, buckets = write_jobs(state, numbers, kinds, which)
    rows = np.arange(first, first + len(chosen))
    state.index.add_many(numbers, [kinds[k] for k in which.tolist()], rows)
    course.row[chosen] = rows
    course.bucket[chosen] = buckets


def _find_again(s: Simulation, course: Course) -> None:
    """The state's tables were made smaller: find the rows of jobs anew, and the buckets of those that are still to arrive."""
    state, coming = s.scheduler.state, int(course.numbers[kernel.COMING])
    course.row[:coming] = state.job_rows(np.arange(1, coming + 1))
    for job in range(int(course.numbers[kernel.ARRIVED]), coming):
        if not s.refused[job]:
            course.bucket[job] = bucket_of(state, int(course.row[job]))


def _kinds(s: Simulation, chosen: I64) -> tuple[list[Job], I64]:
    """The distinct ones of jobs, and which each is."""
    seen = s.seen
    columns = [s.cluster.truth.queue, seen.shape, seen.tasks, seen.priority, seen.gang]
    alike = np.stack([column[chosen] for column in columns], axis=1).astype(np.int64)
    _, first, which = np.unique(alike, axis=0, return_index=True, return_inverse=True)
    return [job_of(seen, int(chosen[k])) for k in first], which.reshape(-1)


def _facts(s: Simulation, course: Course) -> Iterator[Fact]:
    """Read the log, and empty it."""
    numbers, log = course.numbers, course.log
    at = 0
    for moment in course.moments[: numbers[kernel.FACTS]].tolist():
        kind, count, width = log[at : at + 3].tolist()
        columns = log[at + 3 : at + 3 + count * width].reshape(width, count).copy()
        at += 3 + count * width
        yield _fact(s, kind, moment, count, columns)
    numbers[kernel.FACTS] = numbers[kernel.LOGGED] = 0


def _fact(s: Simulation, kind: int, at: float, about: int, columns: I64) -> Fact:
    if kind == kernel.FINISHED:
        job, index, attempt, outcome, code = columns
        return TasksFinished(at=at, job=job, index=index, attempt=attempt, outcome=outcome, code=code)
    if kind == kernel.PLACED:
        job, index, attempt, node = columns
        return TasksPlaced(at=at, job=job, index=index, attempt=attempt, node=node)
    if kind == kernel.STARTED:
        job, index, attempt = columns
        return TasksStarted(at=at, job=job, index=index, attempt=attempt)
    if kind == kernel.SUBMITTED:
        return JobSubmitted(at=at, id=about + 1, job=job_of(s.seen, about))
    if kind == kernel.RESERVED:
        return NodesReserved(at=at, id=int(columns[0, 0]), nodes=columns[1].tolist(), tasks=columns[2].tolist())
    if kind == kernel.DROPPED:
        return ReservationDropped(at=at, id=about)
    return JobsPassedOver(at=at, ids=[about])
