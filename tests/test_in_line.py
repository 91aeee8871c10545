"""The baselines without queues: held against a plain event loop on random cases, and against the strict leaf of the scheduler."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.specs import Node, Queue, Settings
from fairlead.policies.contract import PolicyError
from fairlead.simulate import baselines
from fairlead.simulate.measure import summary
from fairlead.simulate.run import simulate
from fairlead.simulate.workload import Jobs, Workload
from random_cases import cases


def workload(jobs, nodes) -> Workload:
    """Jobs as (submit, cpu, memory, duration, tasks, gang); nodes as (cpu, memory)."""
    found = Jobs()
    for k, (submit, cpu, memory, lasts, tasks, gang) in enumerate(jobs):
        found.add(submit, "ab"[k % 2], {"cpu": cpu, "memory": memory}, lasts, tasks, gang=gang)
    machines = [Node(f"n{k}", {"cpu": cpu, "memory": memory}, {}) for k, (cpu, memory) in enumerate(nodes)]
    return found.workload("jobs", machines, [])


def fits(room, cpu, memory) -> int:
    return max(0, min(room[0] // cpu, room[1] // memory))


def gangs(jobs, processors: int, nodes: int, memory: int = 0) -> Workload:
    """Jobs as (submit, processors, seconds, time limit), on nodes with as many of the processors each."""
    found = Jobs()
    for k, (submit, size, lasts, limit) in enumerate(jobs):
        demand = {"cpu": 1000, **({"memory": 1 + k % memory} if memory else {})}
        found.add(submit, "ab"[k % 2], demand, lasts, size, gang=True, time_limit=limit)
    each = {"cpu": 1000 * processors // nodes, **({"memory": memory * processors // nodes} if memory else {})}
    return found.workload("gangs", [Node(f"n{k}", each, {}) for k in range(nodes)], [])


def easy(jobs, processors: int) -> list[float]:
    """EASY by its definition, for jobs as above in order of submission: when each starts."""
    free, running, line, coming, begun = processors, [], [], list(range(len(jobs))), [0.0] * len(jobs)

    def start(j: int, now: float) -> int:
        _, size, lasts, limit = jobs[j]
        running.append((now + lasts, now + limit, size))
        begun[j] = now
        return size

    while coming or running:
        now = min([r[0] for r in running] + [jobs[j][0] for j in coming[:1]])
        free += sum(size for end, _, size in running if end == now)
        running = [r for r in running if r[0] > now]
        while coming and jobs[coming[0]][0] == now:
            line.append(coming.pop(0))
        while line and jobs[line[0]][1] <= free:
            free -= start(line.pop(0), now)
        if not line:
            continue
        shadow = min(at for _, at, _ in running if free + sum(r[2] for r in running if r[1] <= at) >= jobs[line[0]][1])
        extra = free + sum(r[2] for r in running if r[1] <= shadow) - jobs[line[0]][1]
        for j in line[1:]:
            _, size, _, limit = jobs[j]
            beyond = now + limit > shadow
            if size <= free and (not beyond or size <= extra):
                free -= start(j, now)
                extra -= size if beyond else 0
                line.remove(j)
    return begun


def conservative(jobs, processors: int) -> list[float]:
    """Conservative backfilling by its definition: each job has an interval of its own from its submission on."""
    held: dict[int, tuple[float, float]] = {}
    running, coming, begun = {}, list(range(len(jobs))), [0.0] * len(jobs)

    def reserve(j: int, now: float) -> None:
        held.pop(j, None)
        for begin in sorted({now, *(end for _, end in held.values() if end > now)}):
            ends = begin + jobs[j][3]
            moments = [begin, *(other for other, _ in held.values() if begin < other < ends)]
            if all(jobs[j][1] + sum(jobs[k][1] for k, (b, e) in held.items() if b <= at < e) <= processors for at in moments):
                held[j] = begin, ends
                return

    while coming or held:
        now = min([*running.values(), *(held[j][0] for j in held if j not in running), *(jobs[j][0] for j in coming[:1])])
        over = [j for j, end in running.items() if end == now]
        early = any(held[j][1] > now for j in over)
        for j in over:
            del running[j], held[j]
        if early:
            for j in sorted(held):
                if j not in running and held[j][0] > now:
                    reserve(j, now)
        while coming and jobs[coming[0]][0] == now:
            reserve(coming.pop(0), now)
        for j in sorted(held):
            if j not in running and held[j][0] == now:
                running[j], begun[j] = now + jobs[j][2], now
    return begun


def loads(size: int, most: int):
    """Jobs for a number of processors, many at once, with time limits of one to several times their durations."""
    job = st.tuples(
        st.integers(0, size).map(float), st.integers(1, most), st.integers(1, 30).map(float), st.sampled_from([1, 1, 1.5, 3, 10])
    )
    return st.lists(job, min_size=1, max_size=size).map(
        lambda jobs: [(at, count, lasts, lasts * times) for at, count, lasts, times in sorted(jobs)]
    )


CLUSTERS = [(8, 1, 0), (40, 10, 0), (120, 120, 0), (30, 10, 0), (120, 120, 5)]
"""Processors, nodes, and kinds of memory demands, as users of one processor ask for."""


@pytest.mark.parametrize("rule", ["easy", "conservative"])
@settings(deadline=None, max_examples=cases(8))
@given(data=st.data(), cluster=st.sampled_from(CLUSTERS))
def test_gangs_start_when_the_definition_has_them_start(rule, cluster, data):
    """On one node or many, exactly: nodes are chosen when a gang starts, not when its start is found."""
    processors, nodes, memory = cluster
    jobs = data.draw(loads(60, processors))
    case, oracle = gangs(jobs, processors, nodes, memory), {"easy": easy, "conservative": conservative}[rule]
    known = [(at, size, lasts, lasts) for at, size, lasts, _ in jobs]
    tripled = [(at, size, lasts, 3 * lasts) for at, size, lasts, _ in jobs]
    for suffix, asked in (("", known), (":true", known), (":3", tripled), (":requested", jobs)):
        assert simulate(case, rule + suffix).begun.tolist() == oracle(asked, processors), suffix


def naive(jobs, nodes, backfill: bool, longer: float = 1.0):
    """Start times of tasks by job, and what was kept free: all is looked at anew, at each moment."""
    free, running, waiting, begun = [list(n) for n in nodes], [], [], [[] for _ in jobs]
    coming = sorted(range(len(jobs)), key=lambda j: jobs[j][0])
    now = 0.0

    def place(j, head, spare, wanted) -> bool:
        """Start a unit on the first nodes where enough of `head` still fits into what is spare at its start, if it is given."""
        _, cpu, memory, lasts, tasks, gang = jobs[j]
        chosen, room, later = [], [list(f) for f in free], [list(s) for s in spare]
        for n in [k for k in range(len(nodes)) for _ in range(fits(free[k], cpu, memory))]:
            without = [[s[0] - cpu * (n == k), s[1] - memory * (n == k)] for k, s in enumerate(later)]
            if len(chosen) < (tasks if gang else 1) and sum(fits(w, *head) for w in without) >= wanted:
                chosen.append(n)
                later = without
                room[n] = [room[n][0] - cpu, room[n][1] - memory]
        if len(chosen) < (tasks if gang else 1):
            return False
        free[:], spare[:] = room, later
        running.extend((now + lasts, now + longer * lasts, j, n) for n in chosen)
        begun[j].extend(now for _ in chosen)
        waiting[waiting.index(j) : waiting.index(j) + len(chosen)] = []
        return True

    while coming or running:
        now = min([r[0] for r in running] + [jobs[j][0] for j in coming])
        for run in [r for r in running if r[0] == now]:
            running.remove(run)
            free[run[3]] = [free[run[3]][0] + jobs[run[2]][1], free[run[3]][1] + jobs[run[2]][2]]
        while coming and jobs[coming[0]][0] == now:
            waiting += [coming[0]] * jobs[coming[0]][4]
            coming.pop(0)
        while waiting and place(waiting[0], (1, 1), [[0, 0]], 0):
            pass
        if not waiting or not backfill:
            continue
        first, *head = waiting[0], *jobs[waiting[0]][1:3]
        wanted = jobs[first][4] if jobs[first][5] else 1
        for promised in sorted({r[1] for r in running}):
            spare = [list(f) for f in free]
            for _, limit, other, n in running:
                if limit <= promised:
                    spare[n] = [spare[n][0] + jobs[other][1], spare[n][1] + jobs[other][2]]
            if sum(fits(s, *head) for s in spare) >= wanted:
                break
        # Tasks of the first are no candidates, and nobody like one that found no room.
        stopped, late = {(*head, wanted)}, set()
        for j in waiting[wanted:]:
            _, cpu, memory, lasts, tasks, gang = jobs[j]
            kind, beyond = (cpu, memory, tasks if gang else 1), now + longer * lasts > promised
            if kind in stopped or j not in waiting or (kind in late and beyond):
                continue
            if not (place(j, head, spare, wanted) if beyond else place(j, head, [[0, 0]], 0)):
                (late if beyond else stopped).add(kind)
    return begun


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
    begun = naive(jobs, nodes, backfill, longer)
    run = simulate(workload(jobs, nodes), policy)
    assert run.begun.tolist() == [min(each) for each in begun]
    assert run.waited.tolist() == [sum(each) - job[0] * job[4] for each, job in zip(begun, jobs, strict=True)]
    assert run.completed == sum(job[4] for job in jobs)
    assert run.decisions == run.completed


@settings(deadline=None)
@given(NODES, JOBS)
def test_one_line_is_a_strict_leaf(nodes, jobs):
    """Other code comes to the same: the live scheduler's, with all jobs in one leaf that nobody passes the first of.

    Nodes are alike: else the scheduler weighs what a task strands, and the baseline takes the first.
    """
    nodes = nodes[:1] * len(nodes)
    jobs = sorted(job for job in jobs if not job[5] or sum(fits(n, *job[1:3]) for n in nodes) >= job[4])
    if not jobs:
        return
    case = workload(jobs, nodes)
    in_a_leaf = simulate(
        replace(case, leaf=np.zeros_like(case.leaf), leaves=["all"], queues=[Queue("all", strict=True)]),
        settings=Settings(idle_budget=0.0),
    )
    run = simulate(case, "fifo-strict")
    assert run.begun.tolist() == in_a_leaf.begun.tolist()
    assert run.ended.tolist() == in_a_leaf.ended.tolist()


def test_easy_starts_others_where_that_does_not_delay_the_first():
    """Of four CPUs two are free until 10; the first needs all, so what ends by then goes before it, and nothing else does."""
    case = workload(
        [(0.0, 2, 1, 10.0, 1, False), (1.0, 4, 1, 5.0, 1, False), (2.0, 1, 1, 9.0, 1, False), (3.0, 1, 1, 7.0, 1, False)],
        [(4, 8)],
    )
    easy, strict = simulate(case, "easy"), simulate(case, "fifo-strict")
    assert easy.begun.tolist() == [0.0, 10.0, 15.0, 3.0]
    assert strict.begun.tolist() == [0.0, 10.0, 15.0, 15.0]
    assert easy.idled[0] == 2 * 2 + 1 * 7  # thousandths of a CPU: two from 1 to 3, one from 3 to 10
    assert summary(strict)["idle for promises"]["cpu"] == 0


def test_who_could_never_start_is_refused_and_stops_nobody():
    case = workload([(0.0, 4, 1, 5.0, 3, True), (1.0, 9, 1, 5.0, 1, False), (2.0, 1, 1, 5.0, 2, True)], [(4, 8), (7, 8)])
    run = simulate(case, "easy")
    assert run.refused.tolist() == [True, True, False]
    assert run.begun[2] == 2.0
    assert any("refused" in note for note in run.notes)


@settings(deadline=None)
@given(NODES, JOBS, st.integers(0, 25))
def test_who_comes_later_delays_nobody_who_has_a_reservation(nodes, jobs, count):
    """Of conservative backfilling, with tasks of any size on any nodes: the first jobs start as if no others came."""
    jobs = sorted(job for job in jobs if not job[5] or sum(fits(n, *job[1:3]) for n in nodes) >= job[4])
    if not jobs[:count]:
        return
    alone, all_of_them = (simulate(workload(which, nodes), "conservative") for which in (jobs[:count], jobs))
    assert alone.begun.tolist() == all_of_them.begun[: len(jobs[:count])].tolist()
    assert all_of_them.completed == sum(job[4] for job in jobs)


@settings(deadline=None)
@given(NODES, JOBS, st.sampled_from(["easy", "conservative"]), st.sampled_from([":1.5", ":requested"]), st.data())
def test_whatever_the_limits_all_run(nodes, jobs, rule, suffix, data):
    jobs = sorted(job for job in jobs if not job[5] or sum(fits(n, *job[1:3]) for n in nodes) >= job[4])
    known = data.draw(st.lists(st.booleans(), min_size=len(jobs), max_size=len(jobs)))
    if any(known):
        limits = np.where(known, [2.0 * job[3] for job in jobs], np.inf)
        run = simulate(replace(workload(jobs, nodes), time_limit=limits), rule + suffix)
        assert run.completed == sum(job[4] for job in jobs)
        if suffix == ":requested" and not all(known):
            assert any(f"{known.count(False)} job" in note and "without end" in note for note in run.notes)


def test_conservative_keeps_what_it_reserved():
    """One of four CPUs is free, and not needed by the first; but the second needs all of them."""
    jobs = [(0.0, 3, 10.0, 20.0), (1.0, 3, 5.0, 10.0), (2.0, 4, 5.0, 10.0), (3.0, 1, 30.0, 60.0)]
    for policy in ("conservative", "conservative:2", "conservative:requested"):
        assert simulate(gangs(jobs, 4, 1), policy).begun.tolist() == [0.0, 10.0, 15.0, 20.0], policy
    assert simulate(gangs(jobs, 4, 1), "easy").begun.tolist() == [0.0, 10.0, 33.0, 3.0]


def test_more_reservations_than_there_is_memory_for_are_refused(monkeypatch):
    monkeypatch.setattr(baselines, "MOST_BYTES", 160)
    with pytest.raises(PolicyError, match="jobs: conservative: more than 3 tasks and gangs wait or run at once"):
        simulate(workload([(0.0, 3 - k % 2, 1, 9.0, 1, False) for k in range(20)], [(4, 8)]), "conservative")


@pytest.mark.parametrize(
    "policy", ["easy:", "easy:0.5", "easy:x", "easy:inf", "easy:nan", "conservative:Requested", "fifo-strict:2"]
)
def test_another_word_is_refused(policy):
    with pytest.raises(PolicyError, match=policy.partition(":")[0]):
        simulate(workload([(0.0, 1, 1, 1.0, 1, False)], [(4, 8)]), policy)


def test_limits_that_nobody_declared_are_refused():
    case = workload([(0.0, 1, 1, 1.0, 1, False)], [(4, 8)])
    with pytest.raises(PolicyError, match="easy:requested: no job of jobs has a time limit: write easy, or easy:2"):
        simulate(case, "easy:requested")


def test_what_a_line_cannot_do_is_refused():
    case = workload([(0.0, 1, 1, 1.0, 1, False)], [(4, 8)])
    with pytest.raises(PolicyError, match="easy: cannot guarantee or limit"):
        simulate(replace(case, queues=[Queue("a", limit={"cpu": 1})]), "easy")
    with pytest.raises(PolicyError, match="no facts"):
        simulate(case, "easy", record=lambda facts: None)
