"""The baselines without queues: held against a plain event loop on random cases, and against the strict leaf of the scheduler."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.specs import Node, Queue
from fairlead.policies.contract import PolicyError
from fairlead.simulate.measure import summary
from fairlead.simulate.run import simulate
from fairlead.simulate.workload import Jobs, Workload


def workload(jobs, nodes) -> Workload:
    """Jobs as (submit, cpu, memory, duration, tasks, gang); nodes as (cpu, memory)."""
    found = Jobs()
    for k, (submit, cpu, memory, lasts, tasks, gang) in enumerate(jobs):
        found.add(submit, "ab"[k % 2], {"cpu": cpu, "memory": memory}, lasts, tasks, gang=gang)
    machines = [Node(f"n{k}", {"cpu": cpu, "memory": memory}, {}) for k, (cpu, memory) in enumerate(nodes)]
    return found.workload("jobs", machines, [])


def fits(room, cpu, memory) -> int:
    return min(room[0] // cpu, room[1] // memory)


def naive(jobs, nodes, backfill: bool, longer: float = 1.0):
    """Start times of tasks by job, and what was kept free: all is looked at anew, at each moment."""
    free, running, waiting, begun = [list(n) for n in nodes], [], [], [[] for _ in jobs]
    coming = sorted(range(len(jobs)), key=lambda j: jobs[j][0])
    idled, kept, promised, before = 0.0, {}, np.inf, 0.0

    def start(j, chosen):
        _, cpu, memory, lasts, *_ = jobs[j]
        for n in chosen:
            free[n] = [free[n][0] - cpu, free[n][1] - memory]
            running.append((now + lasts, now + longer * lasts, j, n))
            begun[j].append(now)
        waiting[waiting.index(j) : waiting.index(j) + len(chosen)] = []

    while coming or running:
        now = min([r[0] for r in running] + [jobs[j][0] for j in coming])
        idled += sum(max(0, free[n][0] - spare[0]) for n, spare in kept.items()) * (now - before)
        before = now
        for run in [r for r in running if r[0] == now]:
            running.remove(run)
            free[run[3]] = [free[run[3]][0] + jobs[run[2]][1], free[run[3]][1] + jobs[run[2]][2]]
        while coming and jobs[coming[0]][0] == now:
            waiting += [coming[0]] * jobs[coming[0]][4]
            coming.pop(0)
        kept, first, units = {}, True, []
        for j in waiting:  # a gang, or a task
            if not (jobs[j][5] and j in units):
                units.append(j)
        for j in units:
            _, cpu, memory, lasts, tasks, gang = jobs[j]
            chosen, room, spare = [], [list(f) for f in free], {n: list(s) for n, s in kept.items()}
            for n in [k for k in range(len(nodes)) for _ in range(fits(free[k], cpu, memory))]:
                beyond = n in spare and now + longer * lasts > promised
                if len(chosen) < (tasks if gang else 1) and not (beyond and fits(spare[n], cpu, memory) < 1):
                    chosen.append(n)
                    if beyond:
                        spare[n] = [spare[n][0] - cpu, spare[n][1] - memory]
            if len(chosen) == (tasks if gang else 1):
                kept = spare
                start(j, chosen)
            elif first and backfill:
                first, count = False, tasks if gang else 1
                for promised in sorted({r[1] for r in running}):
                    room = [list(f) for f in free]
                    for _, limit, other, n in running:
                        if limit <= promised:
                            room[n] = [room[n][0] + jobs[other][1], room[n][1] + jobs[other][2]]
                    if sum(fits(r, cpu, memory) for r in room) >= count:
                        break
                for n in range(len(nodes)):
                    here = min(count, fits(room[n], cpu, memory))
                    count -= here
                    if here:
                        kept[n] = [room[n][0] - here * cpu, room[n][1] - here * memory]
            elif not backfill:
                break
    return begun, idled


NODES = st.lists(st.tuples(st.integers(4, 8), st.integers(4, 8)), min_size=1, max_size=4)
JOBS = st.lists(
    st.tuples(
        st.integers(0, 12).map(float), st.integers(1, 4), st.integers(1, 4), st.integers(1, 9).map(float), st.integers(1, 4),
        st.booleans(),
    ),
    min_size=1, max_size=25,
)  # fmt: skip


def comes_to(case: Workload, policy: str):
    run = simulate(case, policy)
    return run.begun, run.ended, run.waited, run.idled[0]


@settings(deadline=None)
@given(NODES, JOBS, st.sampled_from([("fifo-strict", False, 1.0), ("easy", True, 1.0), ("easy:2", True, 2.0)]))
def test_each_starts_when_a_plain_event_loop_has_it_start(nodes, jobs, which):
    policy, backfill, longer = which
    jobs = sorted(job for job in jobs if not job[5] or sum(fits(n, *job[1:3]) for n in nodes) >= job[4])
    if not jobs:
        return
    begun, idled = naive(jobs, nodes, backfill, longer)
    run = simulate(workload(jobs, nodes), policy)
    assert run.begun.tolist() == [min(each) for each in begun]
    assert run.waited.tolist() == [sum(each) - job[0] * job[4] for each, job in zip(begun, jobs, strict=True)]
    assert run.completed == sum(job[4] for job in jobs)
    assert run.idled[0] == pytest.approx(idled)
    assert run.decisions == run.completed


@settings(deadline=None)
@given(NODES, JOBS)
def test_one_line_is_a_strict_leaf(nodes, jobs):
    """Other code comes to the same: the live scheduler's, with all jobs in one leaf that nobody passes the first of."""
    jobs = sorted(job for job in jobs if not job[5] or sum(fits(n, *job[1:3]) for n in nodes) >= job[4])
    if not jobs:
        return
    case = workload(jobs, nodes)
    in_a_leaf = simulate(
        replace(case, leaf=np.zeros_like(case.leaf), leaves=["all"], queues=[Queue("all", strict=True)]),
        reserve_after=1e9,
    )
    run = simulate(case, "fifo-strict")
    assert run.begun.tolist() == in_a_leaf.begun.tolist()
    assert run.ended.tolist() == in_a_leaf.ended.tolist()


def test_easy_starts_others_where_that_does_not_delay_the_first():
    """Of four CPUs two are free until 10; the first needs all, so what ends by then goes before it, and nothing else does."""
    case = workload(
        [
            (0.0, 2, 1, 10.0, 1, False),
            (1.0, 4, 1, 5.0, 1, False),
            (2.0, 1, 1, 9.0, 1, False),
            (3.0, 1, 1, 7.0, 1, False),
        ],
        [(4, 8)],
    )
    easy, strict = simulate(case, "easy"), simulate(case, "fifo-strict")
    assert easy.begun.tolist() == [0.0, 10.0, 15.0, 3.0]
    assert strict.begun.tolist() == [0.0, 10.0, 15.0, 15.0]
    assert easy.idled[0] == 2 * 2 + 1 * 7  # thousandths of a CPU: two from 1 to 3, one from 3 to 10
    assert summary(strict)["idle for promises"]["cpu"] == 0


def test_who_could_never_start_is_refused_and_stops_nobody():
    case = workload(
        [(0.0, 4, 1, 5.0, 3, True), (1.0, 9, 1, 5.0, 1, False), (2.0, 1, 1, 5.0, 2, True)], [(4, 8), (7, 8)]
    )
    run = simulate(case, "easy")
    assert run.refused.tolist() == [True, True, False]
    assert run.begun[2] == 2.0
    assert any("refused" in note for note in run.notes)


@pytest.mark.parametrize("policy", ["easy:", "easy:0.5", "easy:x", "easy:inf", "fifo-strict:2"])
def test_another_word_is_refused(policy):
    with pytest.raises(PolicyError, match=policy.partition(":")[0]):
        simulate(workload([(0.0, 1, 1, 1.0, 1, False)], [(4, 8)]), policy)


def test_what_a_line_cannot_do_is_refused():
    case = workload([(0.0, 1, 1, 1.0, 1, False)], [(4, 8)])
    with pytest.raises(PolicyError, match="easy: cannot guarantee or limit"):
        simulate(replace(case, queues=[Queue("a", limit={"cpu": 1})]), "easy")
    with pytest.raises(PolicyError, match="cancelled while"):
        simulate(replace(case, withdrawn=np.array([5.0])), "fifo-strict")
    with pytest.raises(PolicyError, match="no facts"):
        simulate(case, "easy", record=lambda facts: None)
