"""Simulate many steps at once in compiled code.

Jobs are written into the state's tables in chunks, when the first of a chunk arrives. The compiled loop
(:mod:`fairlead.simulate.kernel.advance`) returns for more jobs, for a sample of shares, for cancellations, for a decision on
claims, or for a division among queues. Forgotten jobs leave the tables when others are written.
"""

from collections.abc import Iterator

import msgspec
import numpy as np

from fairlead.engines.kernel import simulated
from fairlead.engines.step import with_graces
from fairlead.model.specs import USERS, After, Job, Queue
from fairlead.scheduler import facts
from fairlead.scheduler.decide import MOST_PLACEMENTS, decide_without_forgetting
from fairlead.scheduler.effects import apply, enter_group_if_ready
from fairlead.scheduler.entitlements import write_entitled
from fairlead.scheduler.facts import Fact
from fairlead.scheduler.growth import rows_of_kinds, write_rows
from fairlead.scheduler.invariants import check_invariants
from fairlead.scheduler.kernel.constants import MAX_RESERVATIONS
from fairlead.scheduler.kernel.scheduling import fade
from fairlead.scheduler.reports.preemptions import RevocationCheck
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import I64, NONE, Jobs
from fairlead.simulate.kernel import tape as kernel
from fairlead.simulate.kernel.advance import Tape, advance, forget
from fairlead.simulate.steps import Simulation, job_of, jobs_of
from fairlead.simulate.workload import most_at_once

CHUNK_JOBS, CHUNK_TASKS = 16_384, 1_000_000
"""Maximum size of a chunk, in jobs and in tasks; at least one job. The rows of ended jobs are used again by later chunks."""


class Kinds:
    """The distinct jobs of a workload, and their rows in the state.

    jobs : list of Job
    which : int64, shape (jobs of the workload,): index into `jobs`
    rows, groups : as from :func:`fairlead.scheduler.growth.rows_of_kinds`, where `written`
    alone : int64: jobs that begin a chunk, since they bring a queue that changes what others are entitled to
    """

    def __init__(self, jobs: list[Job], which: I64, alone: I64) -> None:
        self.jobs, self.which, self.alone = jobs, which, alone
        self.rows, self.groups = np.zeros(len(jobs), Jobs.FIELDS), np.full(len(jobs), NONE)
        self.written = np.zeros(len(jobs), np.bool_)

    def write(self, state: State, chosen: I64) -> None:
        """Write missing rows for the kinds of these jobs."""
        needed = np.zeros(len(self.jobs), np.bool_)
        needed[self.which[chosen]] = True
        new = np.flatnonzero(needed & ~self.written)
        if len(new):
            self.rows[new], self.groups[new] = rows_of_kinds(state, [self.jobs[k] for k in new.tolist()])
            self.written[new] = True


def by_many_steps(s: Simulation) -> int:
    """Run a simulation; return the number of moments."""
    state, cluster = s.scheduler.state, s.cluster
    recorded = s.recorder.wants_facts
    kinds = _kinds(s)
    jobs = len(s.workload.submit)
    pairs = [(other, job) for job, others in s.workload.after.items() if not s.refused[job] for other in others]
    after = np.unique(np.array(pairs, np.int64).reshape(-1, 2), axis=0)  # sorted, by job
    tape = Tape(
        row=np.full(jobs, NONE), group=np.full(jobs, NONE), submit=s.workload.submit,
        at=np.array([cluster.now] * 3), after=after,
        before=np.unique(after[:, ::-1], axis=0), paired=np.zeros((0, 2), np.int64), lacks=np.zeros(jobs, np.int64),
        ends=np.zeros((5, 0), np.int64), rows=np.zeros(0, np.int64), attempts=np.zeros(0, np.int64),
        log=np.zeros(0, np.int64), moments=np.zeros(0), starts=np.zeros(0),
        returned=np.zeros(0, np.int64), numbers=np.zeros(kernel.NUMBERS, np.int64),
    )  # fmt: skip
    tape = _with_room(s, tape)
    numbers = tape.numbers
    numbers[kernel.SERVES_CLAIMS] = 1
    _make_room_for_holds(state)
    settings = state.settings
    while True:
        view = state.order.ready(state, MOST_PLACEMENTS)
        why = advance(
            view, cluster.truth, cluster.runs, tape, s.sampler.pause, MOST_PLACEMENTS,
            settings.max_losses, settings.keep_jobs,
        )  # fmt: skip
        state.version += 1
        state.count_rows()
        cluster.now = float(tape.at[0])
        if recorded:
            s.recorder(list(_facts(s, tape)))
        if why == kernel.OVER:
            break
        if why == kernel.GANGS_BACK:
            _take_gangs_back(state, tape)
            continue
        if why == kernel.DIVIDES:
            write_entitled(state, strict=True)
            numbers[kernel.ENTITLED] = 1
            continue
        if why == kernel.CLAIMS:
            _decide(s, tape)
            tape = _with_room(s, tape)
            _make_room_for_holds(state)
            continue
        if why == kernel.UNTIL:
            s.sampler.advance(float(tape.at[1]))
        elif why == kernel.MORE_JOBS:
            if s.scheduler.checking and not tape.lacks.any():  # the state does not know who is held back
                check_invariants(state)
            if _forget(s, tape):
                kinds.written[:] = False  # their rows have changed
            _write_jobs(s, tape, kinds)
            tape = _with_room(s, tape)
        s.on_progress()
    s.recorder.decisions = int(numbers[kernel.DECISIONS])
    return int(numbers[kernel.STEPS])


def _make_room_for_holds(state: State) -> None:
    """Allocate rows for all reservations and one that is replanned, beside the holds for claims."""
    state.holds.have_room((MAX_RESERVATIONS + 1) * state.nodes.n)


def _take_gangs_back(state: State, tape: Tape) -> None:
    """Queue preempted gangs again, with the tasks that did not end by themselves."""
    count = int(tape.numbers[kernel.RETURNED])
    for row in sorted(tape.returned[:count].tolist()):
        enter_group_if_ready(state, row, float(tape.at[0]))
    tape.numbers[kernel.RETURNED] = 0


def _decide(s: Simulation, tape: Tape) -> None:
    """Make one decision as the live scheduler does, to serve claims, and carry it out."""
    state, cluster, numbers = s.scheduler.state, s.cluster, tape.numbers
    now = cluster.now
    decision = decide_without_forgetting(state, now, strict=True)
    check = RevocationCheck() if s.scheduler.checking else None
    for fact in decision.facts:
        if check is None:
            apply(state, fact)
        elif fault := check.happen(state, fact):
            raise AssertionError(fault)
    # Some rows are not pending yet, or are held back: the state does not know that.
    if check is not None and numbers[kernel.ARRIVED] == numbers[kernel.COMING] and not tape.lacks.any():
        check_invariants(state)
    forget(state.order.ready(state, MOST_PLACEMENTS), tape, now, state.settings.keep_jobs)
    found = [*decision.facts, *_facts(s, tape)]
    numbers[kernel.GOES_ON] = decision.more
    for fact in decision.facts:
        if isinstance(fact, facts.TasksRevoked):
            for attempts, grace in with_graces(state, fact.attempts):
                cluster.stop(attempts, grace)
        elif isinstance(fact, facts.TasksPlaced):
            found.append(_start(s, fact))
            numbers[kernel.DECISIONS] += len(fact.job)
            numbers[kernel.GOES_ON] = 1
    s.recorder(found)
    numbers[kernel.STEPS] += not numbers[kernel.GOES_ON]


def _start(s: Simulation, fact: facts.TasksPlaced) -> facts.TasksStarted:
    s.cluster.make_room(len(fact.job))
    simulated.start_all(s.cluster.truth, s.cluster.runs, fact.job - 1, fact.index, fact.attempt, fact.node, fact.at)
    started = facts.TasksStarted(at=fact.at, job=fact.job, index=fact.index, attempt=fact.attempt)
    apply(s.scheduler.state, started)
    return started


def _with_room(s: Simulation, tape: Tape) -> Tape:
    """Return a tape with room for all tasks that may end or be placed in one step."""
    tasks = len(s.cluster.runs.heap)
    if tasks <= tape.ends.shape[1]:
        return tape
    most = max(tasks, MOST_PLACEMENTS + int(s.workload.tasks[s.workload.gang].max(initial=0)))
    log = 4 * kernel.MAX_LOG_NUMBERS * (most + len(tape.submit) + 2 * len(tape.before)) if s.recorder.wants_facts else 0
    return Tape(
        **{
            **tape.arrays, "ends": np.zeros((5, tasks), np.int64), "rows": np.zeros(max(most, len(tape.before)), np.int64),
            "returned": np.zeros(tasks + len(tape.after), np.int64), "attempts": np.zeros(most, np.int64),
            "log": np.zeros(log, np.int64), "moments": np.zeros(log // 4), "starts": np.zeros(log // 4),
        }
    )  # fmt: skip


def _kinds(s: Simulation) -> Kinds:
    seen = s.seen
    which = s.cluster.truth.queue * len(seen.demands) + seen.shape
    for column in (seen.tasks, seen.priority, seen.gang, seen.time_limit, seen.like):
        if (column != column[0]).any():
            _, which = np.unique(which, return_inverse=True)
            values, place = np.unique(column, return_inverse=True)
            which = which * len(values) + place
    _, first, which = np.unique(which, return_index=True, return_inverse=True)
    alone = np.zeros(0, np.int64)
    if any(_counts_siblings(queue) for queue in s.scheduler.state.tree.declared.values()):
        there = np.flatnonzero(~s.refused)
        alone = np.sort(there[np.unique(s.cluster.truth.queue[there], return_index=True)[1]])
    return Kinds(list(jobs_of(seen, first)), which, alone)


def _counts_siblings(queue: Queue) -> bool:
    """True if a new queue by this declaration, or below it, changes what its siblings are entitled to."""
    each_user = queue.name.endswith(USERS)
    return queue.policy == "sdrf" or (each_user and bool(queue.guarantee or queue.guarantee_percent))


def _write_jobs(s: Simulation, tape: Tape, kinds: Kinds) -> None:
    """Write the next chunk of jobs into the state."""
    state, begin = s.scheduler.state, int(tape.numbers[kernel.COMING])
    tasks = np.cumsum(s.workload.tasks[begin : begin + CHUNK_JOBS])
    end = begin + max(1, int(np.searchsorted(tasks, CHUNK_TASKS, side="right")))
    end = min(end, int(np.append(kinds.alone, end)[np.searchsorted(kinds.alone, begin, side="right")]))
    tape.numbers[kernel.COMING] = end
    chosen = begin + np.flatnonzero(~s.refused[begin:end])
    if not len(chosen):
        return
    numbers = chosen + 1
    if chosen[0] == begin:
        fade(state.view(), s.cluster.now)  # before new queues change what history counts
    kinds.write(state, chosen)
    which = kinds.which[chosen]
    first = write_rows(state, numbers, kinds.rows, which)
    rows = np.arange(first, first + len(chosen))
    state.index.add(numbers, [kinds.jobs[k] for k in which.tolist()], rows)
    tape.row[chosen] = rows
    tape.group[chosen] = kinds.groups[which]
    # All waiting tasks may start at one moment, over several decisions.
    waiting = int(s.cluster.truth.left.sum() + s.workload.tasks[chosen].sum())
    s.cluster.make_room(min(waiting, most_at_once(state.shapes.demand[: state.shapes.n], state.cluster.total)))


def _forget(s: Simulation, tape: Tape) -> bool:
    """Drop forgotten jobs from the tables; all written ones have arrived. True if groups or shapes left, too."""
    state, numbers = s.scheduler.state, tape.numbers
    before = state.groups.n, state.shapes.n
    count = int(numbers[kernel.FORGOTTEN]) - state.forgotten
    if count:
        rows = state.jobs.rows
        apply(state, facts.JobsForgotten(at=s.cluster.now, ids=state.ended_jobs()[:count].tolist()))
        numbers[kernel.FORGOTTEN] = state.forgotten
        if state.jobs.rows is not rows:
            came = int(numbers[kernel.ARRIVED])
            tape.row[:came] = state.job_rows(np.arange(1, came + 1))
    return (state.groups.n, state.shapes.n) != before


def _facts(s: Simulation, tape: Tape) -> Iterator[Fact]:
    """Read and clear the log."""
    numbers, log = tape.numbers, tape.log
    at = 0
    count = numbers[kernel.FACTS]
    for moment, start in zip(tape.moments[:count].tolist(), tape.starts[:count].tolist(), strict=True):
        kind, about, count, width = log[at : at + 4].tolist()
        columns = log[at + 4 : at + 4 + count * width].reshape(width, count).copy()
        at += 4 + count * width
        yield _fact(s, kind, moment, about, columns, start)
    numbers[kernel.FACTS] = numbers[kernel.LOGGED] = 0


def _fact(s: Simulation, kind: int, at: float, about: int, columns: I64, start: float) -> Fact:
    if kind == kernel.FINISHED:
        job, index, attempt, outcome, code = columns
        return facts.TasksFinished(at=at, job=job, index=index, attempt=attempt, outcome=outcome, code=code)
    if kind == kernel.PLACED:
        job, index, attempt, node = columns
        return facts.TasksPlaced(at=at, job=job, index=index, attempt=attempt, node=node, more=bool(about))
    if kind == kernel.STARTED:
        job, index, attempt = columns
        return facts.TasksStarted(at=at, job=job, index=index, attempt=attempt)
    if kind == kernel.SUBMITTED:
        job = job_of(s.seen, about)
        after = [After(other + 1, "end") for other in columns[0].tolist()]
        return facts.JobSubmitted(at=at, id=about + 1, job=msgspec.structs.replace(job, after=after))
    if kind == kernel.RESERVED:
        nodes, tasks, (slips, number, *_), apart = ([each for each in column.tolist() if each != NONE] for column in columns)
        more = {"apart": [s.scheduler.state.tree.names[q] for q in apart], "number": number}
        return facts.NodesReserved(at=at, id=about, nodes=nodes, tasks=tasks, start=start, slips=slips, **more)
    if kind == kernel.DROPPED:
        return facts.ReservationDropped(at=at, id=about, number=int(columns[0, 0]))
    if kind == kernel.FORGOT:
        return facts.JobsForgotten(at=at, ids=columns[0].tolist())
    return facts.JobsPassedOver(at=at, ids=columns[0].tolist())
