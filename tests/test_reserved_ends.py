"""Reservations: ends that a guarantee takes back, queues whose turn never comes, and reservations that ended without a start."""

import contextlib
import random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fairlead.model.specs import Node, Queue, Settings
from fairlead.scheduler.facts import JobSubmitted, NodesReserved, TasksPlaced
from fairlead.scheduler.reports.explain import explain
from fairlead.simulate.run import simulate
from fairlead.simulate.workload import Jobs

GIB = 1 << 30


class History:
    """A simulation until somebody's first task starts, or a moment: when that was, by queue, and who had reservations."""

    def __init__(self, jobs, nodes, queues, until, of, watch=None, **more):
        self.begun, self.reserved, self.jobs, self.last, self.of = {}, [], {}, until, of
        case = jobs.workload("ends", [Node(f"n{k}", node) for k, node in enumerate(nodes)], queues)
        with contextlib.suppress(StopIteration):
            given = Settings(revoke=False, **more)
            self.run = simulate(case, settings=given, samples=20, record=self._note, watch=watch)

    def _note(self, facts):
        for fact in facts:
            if isinstance(fact, JobSubmitted):
                self.jobs[fact.id] = fact.job.queue
            elif isinstance(fact, NodesReserved):
                self.reserved.append(self.jobs[fact.id])
            elif isinstance(fact, TasksPlaced):
                for job in fact.job.tolist():
                    self.begun.setdefault(self.jobs[job], fact.at)
            if self.of in self.begun or fact.at > self.last:
                raise StopIteration


def beside_a_guarantee(node, guaranteed, guarantee, small, need, budget, seed):
    """Somebody needs CPUs of a node full of a guarantee's tasks, (CPUs, GiB), and smaller ones: history, most idle, answers."""
    rng, jobs, answers, idle = random.Random(seed), Jobs(), set(), [0.0]
    for queue, (cpu, memory) in {"a": guaranteed, **({"d": small} if small else {})}.items():
        lasts = [rng.uniform(50.0, 150.0) for _ in range(3000 * node // cpu // 100)]
        jobs.add(0.0, queue, {"cpu": 1000 * cpu, "memory": memory * GIB}, lasts, tasks=len(lasts))
    jobs.add(500.0, "b", {"cpu": 1000 * need}, 60.0)
    queues = [Queue("a", guarantee={"memory": guarantee * GIB}), Queue("*")]

    def watch(state, facts):
        idle[0] = max(idle[0], float(state.holds.idle[: state.holds.n].sum()))
        if facts and facts[-1].at > 1000.0 and len(answers) < 3:
            answers.add(explain(state, 3 if small else 2)["text"])

    ends = {"cpu": 1000 * node, "memory": 64 * GIB}
    return History(jobs, [ends], queues, 2000.0, "b", watch, idle_budget=budget), idle[0], answers


@settings(max_examples=12, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(st.data())
def test_room_is_reserved_beside_a_guarantee_exactly_if_it_can_be_had(data):
    """The most tasks that fit into the guarantee stay: who needs more than the rest gets no reservation, and nothing idles."""
    node, cpu, memory = data.draw(st.sampled_from([6, 8, 12])), data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    guarantee, small = data.draw(st.integers(0, 8)), data.draw(st.sampled_from([(), (1, 1)]))
    stays = min(guarantee // memory, node // cpu) * cpu
    need, budget = data.draw(st.integers(cpu + 1, node)), data.draw(st.sampled_from([0.02, 1.0]))
    history, idle, answers = beside_a_guarantee(node, (cpu, memory), guarantee, small, need, budget, data.draw(st.integers(0, 9)))
    if need <= node - stays:
        assert history.begun["b"] <= 500.0 + 3 * 150.0
    else:
        assert "b" not in history.begun
        assert "b" not in history.reserved
        assert idle == 0.0 or small, "for b; the others may have reservations"
        assert all("tasks of a within a guarantee go first" in text for text in answers)


def test_a_gang_gets_no_room_that_a_guarantee_takes_back_on_one_of_its_nodes():
    """Any one of two nodes can be had, but not both: the guarantee's tasks must run somewhere."""
    begun = {}
    for size in (6, 7):
        jobs = Jobs()
        jobs.add(0.0, "a", {"cpu": 2000, "memory": 2 * GIB}, [50.0 + 17 * k % 100 for k in range(400)], tasks=400)
        jobs.add(500.0, "b", {"cpu": 1000 * size}, 60.0, tasks=2, gang=True)
        nodes = [{"cpu": 8000, "memory": 8 * GIB}] * 2
        history = History(jobs, nodes, [Queue("a", guarantee={"memory": 2 * GIB}), Queue("b")], 3000.0, "b")
        begun[size] = history.begun.get("b"), "b" in history.reserved
    assert begun[6][0] <= 500.0 + 3 * 150.0
    assert begun[7] == (None, False)


def tree(seed):
    """A random tree whose leaves all have work, and one newcomer: how many of the longest tasks it waits, without its turn."""
    rng, jobs = random.Random(seed), Jobs()
    cpus = rng.choice([4, 6, 8, 16, 24])
    nodes = rng.randint(1, max(1, min(6, 48 // cpus)))
    weights = {}
    for p in range(rng.randint(2, 4)):
        weights[f"p{p}"] = rng.choice([1.0, 2.0, 5.0])
        weights |= {f"p{p}/l{k}": rng.choice([1.0, 2.0, 5.0, 10.0]) for k in range(rng.randint(1, 3))}
    leaves = [name for name in weights if "/" in name]
    seconds, new, turns = rng.uniform(20, 300), rng.choice(leaves), {}
    longest = 1.5 * seconds
    for leaf in leaves:
        cpu = rng.choice([2, max(1, cpus // 2), cpus] if leaf == new else [1, 1, 2, max(1, cpus // 2), cpus])
        lasts = seconds * rng.choice([0.3, 1.0])
        count = int(30 * longest / lasts * cpus * nodes / cpu) + cpus * nodes
        at = 3 * longest if leaf == new else 0.0
        jobs.add(at, leaf, {"cpu": 1000 * cpu}, [rng.uniform(0.5, 1.5) * lasts for _ in range(count)], tasks=count)
        turns[leaf] = cpu * lasts
    parent = new.split("/")[0]
    part = cpus * nodes * weights[parent] / sum(w for name, w in weights.items() if "/" not in name)
    part *= weights[new] / sum(w for name, w in weights.items() if name.startswith(f"{parent}/"))
    queues = [Queue(name, weight=weight) for name, weight in weights.items()]
    history = History(jobs, [{"cpu": 1000 * cpus}] * nodes, queues, 12 * longest + turns[new] / part, new)
    return (history.begun.get(new, 1e9) - 3 * longest - turns[new] / part) / longest


@pytest.mark.parametrize("seed", [32, 46, 228, 298, *range(12)])
def test_who_has_nothing_starts_by_its_turn_in_any_tree(seed):
    """Also beside a sibling that uses more than their parent's part, which the order does not serve before other parents."""
    assert tree(seed) <= 4


def test_who_has_nothing_starts_below_a_queue_that_lacks_less_than_the_task():
    """Its parent is entitled to 13.3 CPUs and has 12 or 13: once a task of its sibling has ended, the other parent goes first."""
    rng, jobs = random.Random(1), Jobs()
    for at, leaf, cpu in ((0.0, "a/old", 1), (0.0, "b/x", 2), (1000.0, "a/new", 2)):
        lasts = [rng.uniform(30.0, 90.0) for _ in range(2000 // cpu)]
        jobs.add(at, leaf, {"cpu": 1000 * cpu}, lasts, tasks=len(lasts))
    queues = [Queue("a", weight=5.0), Queue("b"), Queue("a/old"), Queue("a/new")]
    history = History(jobs, [{"cpu": 16_000}], queues, 3000.0, "a/new")
    assert history.begun["a/new"] <= 1000.0 + 4 * 90.0 + 2 * 60.0 / (16 * 5 / 12)


@pytest.mark.parametrize("seed", range(6))
def test_who_drains_nodes_for_short_gangs_keeps_no_newcomer_from_its_part(seed):
    """What two queues with gangs of a second idle is charged to them: else they are owed more for ever."""
    rng, jobs = random.Random(seed), Jobs()
    jobs.add(0.0, "small", {"cpu": 1000}, [rng.uniform(10.0, 20.0) for _ in range(3000)], tasks=3000)
    for queue, size in (("a", 24), ("b", 20)):
        for _ in range(2000):
            jobs.add(0.0, queue, {"cpu": 1000}, [rng.uniform(0.5, 1.0) for _ in range(size)], tasks=size, gang=True)
    jobs.add(140.0, "new", {"cpu": 12_000}, [rng.uniform(10.0, 20.0) for _ in range(50)], tasks=50)
    history = History(jobs, [{"cpu": 12_000}] * 4, [Queue("*")], 140.0 + 25 * 20.0, "new")
    assert history.begun["new"] <= 140.0 + 15 * 20.0


def test_a_gang_as_large_as_the_cluster_starts_once_what_it_may_idle_has_doubled_often_enough():
    """Beside tasks of one to forty thousand seconds. A reservation may idle as much as one that ended before, or twice that."""
    rng, jobs, failed, idled = random.Random(2), Jobs(), [], {}
    lasts = [min(40_000.0, 1000.0 * rng.paretovariate(1.1)) for _ in range(900)]
    jobs.add(0.0, "a", {"cpu": 1000}, lasts, tasks=len(lasts))
    jobs.add(2000.0, "g", {"cpu": 1000}, 600.0, tasks=8, gang=True)

    def watch(state, facts):
        holds, total = state.holds, int(state.cluster.total[0])
        rows = {int(holds.number[h]): h for h in range(holds.n) if state.groups.gang[holds.group[h]]}
        if not any(isinstance(fact, TasksPlaced) and 2 in fact.job for fact in facts):
            failed.extend(idled[number] for number in idled if number not in rows)
        for number, h in rows.items():
            cost, allowance = float(holds.cost[h, 0]) / total, float(holds.allowance[h])
            assert number in idled or max(allowance / 2, cost) >= max(failed, default=0.0)
            assert not allowance or float(holds.idled[h, 0]) / total <= allowance + 2.0
        idled.clear()
        idled.update({number: float(holds.idled[h, 0]) / total for number, h in rows.items()})

    history = History(jobs, [{"cpu": 8000}], [], 400_000.0, "g", watch, idle_budget=0.15)
    assert history.begun["g"] < 400_000.0
    assert 1 <= len(failed) <= 3
