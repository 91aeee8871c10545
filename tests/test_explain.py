"""`why`: each reason is made to happen."""

import pytest

from fairlead.model.specs import After, Job, Node, Queue
from fairlead.scheduler import admission
from fairlead.scheduler.admission import Refused
from fairlead.scheduler.facts import JobHeld, JobReleased, NodeDrained, NodeJoined, NodesReserved
from fairlead.scheduler.reports.audits import audit_history, audit_state
from fairlead.scheduler.reports.explain import explain
from fairlead.simulate.outlook import outlook
from test_scheduling import World


def why(world, job):
    world.decide()
    found = explain(world.state, job)
    assert found["job"] == job
    return found["reason"], found["text"]


def test_over_and_running():
    world = World([Queue("A")], {"cpu": 2000})
    job = world.submit("A", {"cpu": 1000})
    assert explain(world.state, job)["reason"] == "about to start"
    assert why(world, job) == ("running", "all its tasks run")
    (name,) = (spec.name for spec in world.state.cluster.specs)
    said = explain(world.state, job, unheard={name: 12.3, "other": 50.0})["text"]
    assert said == f"all its tasks ran when the scheduler restarted, 12 s ago; {name} has not been heard since"
    assert explain(world.state, job, unheard={"other": 50.0})["text"] == "all its tasks run"
    world.end(job)
    assert why(world, job)[0] == "over"
    with pytest.raises(Refused, match="no job 9"):
        explain(world.state, 9)


def test_a_hold():
    world = World([Queue("A")], {"cpu": 2000})
    job = world.submit("A", {"cpu": 1000}, 2)
    world.happen(admission.hold(world.state, job, 0.0))
    assert admission.hold(world.state, job, 0.0) is None
    assert why(world, job) == ("held", "it is held: `fairlead release 1` releases it")
    assert world.running() == {}
    assert isinstance(admission.release(world.state, job, 0.0), JobReleased)
    world.happen(JobReleased(at=0.0, id=job))
    assert why(world, job)[0] == "running"
    with pytest.raises(Refused, match="nothing to hold"):
        admission.hold(world.state, job, 0.0)


def test_a_hold_lets_what_runs_go_on():
    world = World([Queue("A")], {"cpu": 1000})
    job = world.submit("A", {"cpu": 1000}, 2)
    world.decide()
    world.happen(JobHeld(at=0.0, id=job))
    world.end(job)
    assert why(world, job)[0] == "held"
    assert world.running() == {}


def test_a_dependency():
    world = World([Queue("A")], {"cpu": 1000})
    world.submit("A", {"cpu": 1000})
    job = world.submit("A", {"cpu": 1000}, after=[After(1, "failure")])
    assert why(world, job) == ("dependency", "it comes after job 1, which has to fail first")


def test_a_limit_of_its_queue_or_of_one_above():
    world = World([Queue("a", limit={"cpu": 3000}), Queue("a/x"), Queue("a/y")], {"cpu": 9000})
    world.submit("a/x", {"cpu": 1000}, 2)
    world.decide()
    job = world.submit("a/y", {"cpu": 2000})
    assert why(world, job) == ("limit", "queue a is limited to 3 cpu: it uses 2; the job needs 2 more")


def test_a_bound_on_running_tasks_and_jobs():
    world = World([Queue("A", max_tasks=1), Queue("B", max_jobs=1)], {"cpu": 9000})
    one = world.submit("A", {"cpu": 1000}, 2)
    world.submit("B", {"cpu": 1000})
    two = world.submit("B", {"cpu": 2000})
    assert why(world, one) == ("max tasks", "queue A may run 1 task at once, and 1 runs")
    assert why(world, two) == ("max jobs", "queue B may run 1 job at once, and 1 runs")


@pytest.mark.parametrize("bound", ["max_tasks", "max_jobs"])
def test_a_bound_that_those_before_it_reach(bound):
    world = World([Queue("a", **{bound: 1})], {"cpu": 4000})
    world.submit("a", {"cpu": 1000}, priority=1)
    second = world.submit("a", {"cpu": 1000})
    found = explain(world.state, second)
    assert found["text"] == f"others are served first, and with them its queue runs as many {bound[4:]} as it may"


def test_no_node_with_room_and_whose_turn_it_is():
    world = World([Queue("A"), Queue("B"), Queue("C")], {"cpu": 4000, "gpu": 8000}, {"cpu": 2000})
    world.submit("A", {"cpu": 1000}, 9)
    b = world.submit("B", {"cpu": 1000}, 9)
    world.decide()
    world.end(b)
    world.submit("C", {"cpu": 1000}, 9)
    world.decide()
    found = explain(world.state, 1)
    assert found["reason"] == "no room"
    assert found["text"].startswith("no node has room: n0, the closest, lacks 1 cpu; served first when there is room")
    assert ": C at 16.7%" in found["text"]
    assert found["missing"] == {"cpu": 1000}
    assert found["ahead"][0] == {"queue": "C", "dominant_share": pytest.approx(1 / 6), "share_over_time": 0.0}


def test_a_constraint_that_no_node_meets():
    world = World([Queue("A")], ({"cpu": 1000}, {"zone": "a"}))
    job = world.submit("A", {"cpu": 1000}, on={"zone": ["b", "c"]})
    assert why(world, job) == ("constraint", "no node has zone=b|c")


def test_a_demand_larger_than_any_node():
    world = World([Queue("A")], {"cpu": 1000, "memory": 8 << 30}, {"cpu": 3000, "memory": 2 << 30})
    job = world.submit("A", {"cpu": 4000})
    text = "no node is large enough, even empty: n1, the closest, lacks 1 cpu"
    assert why(world, job) == ("too large", text)
    world.happen(NodeDrained(at=0.0, node="n0"))
    world.happen(NodeDrained(at=0.0, node="n1"))
    assert why(world, job) == ("no room", "there is no node that takes tasks")


def test_a_drained_node_is_named_if_no_other_could_hold_a_task():
    world = World([Queue("A")], {"cpu": 4000}, {"cpu": 1000})
    job = world.submit("A", {"cpu": 2000})
    world.happen(NodeDrained(at=0.0, node="n0"))
    back = "; n0, which could hold it, is drained: `fairlead resume n0`"
    text = f"no node is large enough, even empty: n1, the closest, lacks 1 cpu{back}"
    assert why(world, job) == ("too large", text)
    world.happen(NodeDrained(at=0.0, node="n1"))
    assert why(world, job) == ("no room", f"there is no node that takes tasks{back}")


def test_drained_nodes_are_named_if_a_gang_needs_them_beside_the_others():
    world = World([Queue("A")], {"cpu": 2000}, {"cpu": 1000}, {"cpu": 1000}, {"cpu": 1000})
    gang = world.submit("A", {"cpu": 1000}, 4, gang=True)
    world.happen(NodeDrained(at=0.0, node="n1"))
    assert "drained" not in why(world, gang)[1], "the others are enough"
    world.end(gang)
    gang = world.submit("A", {"cpu": 1000}, 4, gang=True)
    world.happen(NodeDrained(at=0.0, node="n2"))
    reason, text = why(world, gang)
    assert (reason, text) == (
        "too large",
        "can never start as things are: a gang of 4, and all nodes, even empty, hold at most 3 of its tasks; n1 and n2, which "
        "could hold a task of it, are drained; with them the gang could start: `fairlead resume n1`",
    )
    huge = world.submit("A", {"cpu": 1000}, 6, gang=True)
    assert "drained" not in why(world, huge)[1], "not even with them"
    for name in ("n0", "n3"):
        world.happen(NodeDrained(at=0.0, node=name))
    assert why(world, gang)[1].endswith(
        "n0, n1, n2 and 1 more, which could hold a task of it, are drained; with them the gang could start: `fairlead resume n0`"
    )
    assert why(world, huge)[1].endswith("which could hold a task of it, are drained: `fairlead resume n0`")


def test_a_gang_that_does_not_fit_at_once_and_one_that_stops():
    world = World([Queue("A"), Queue("B")], {"cpu": 4000})
    other = world.submit("B", {"cpu": 2000})
    world.decide()
    gang = world.submit("A", {"cpu": 1000}, 3, gang=True)
    text = "a gang of 3 needs room for all its tasks at once: there is room for 2"
    assert why(world, gang) == ("gang does not fit", text + "; room on n0 is reserved for it")
    world.end(other)
    assert why(world, gang)[0] == "running"
    world.end(gang, 1, outcome=4)
    assert why(world, gang)[0] == "gang is stopping"


def test_one_like_it_that_was_submitted_before():
    world = World([Queue("A")], {"cpu": 1000})
    world.submit("A", {"cpu": 1000}, 2)
    job = world.submit("A", {"cpu": 1000})
    reason, text = why(world, job)
    assert reason == "behind"
    assert text.startswith("job 1 of the same shape was submitted earlier and goes first: no node has room: n0")


def test_room_that_is_kept_for_another():
    world = World([Queue("A"), Queue("B")], {"cpu": 2000})
    world.submit("B", {"cpu": 1000})
    world.decide()
    large = world.submit("A", {"cpu": 2000})
    world.happen(NodesReserved(at=0.0, id=large, nodes=[0], tasks=[1]))
    small = world.submit("B", {"cpu": 1000})
    found = explain(world.state, small)  # the next decision drops what nobody is owed
    assert found["reason"] == "no room"
    assert "lacks 1 cpu" in found["text"]
    world.happen(NodeJoined(at=0.0, node=Node("n1", {"cpu": 1000})))
    world.decide()  # what is kept is planned anew first
    world.decide(0.0)
    assert explain(world.state, small)["reason"] == "running"


def test_for_whom_room_is_kept_and_until_when():
    """Room that is free is named before room that is nearly so, with the job that it is kept for."""
    world = World([Queue("A"), Queue("B"), Queue("C")], {"cpu": 4000}, {"cpu": 1000})
    world.submit("B", {"cpu": 2000}, time_limit=100.0)
    world.submit("B", {"cpu": 500})
    world.decide()
    large = world.submit("A", {"cpu": 4000}, time_limit=50.0)
    world.happen(NodesReserved(at=0.0, id=large, nodes=[0], tasks=[1], start=100.0))
    waits = world.submit("C", {"cpu": 1500})
    found = explain(world.state, waits)
    assert found["text"].startswith("no node has room: n0, the closest, lacks 1.5 cpu, not counting what is held for job 3 of A")
    (kept,) = found["kept"]
    assert (kept["job"], kept["queue"], kept["why"], kept["nodes"]) == (large, "A", "reservation", ["n0"])
    assert (kept["start"], kept["end"]) == (100.0, 150.0)
    gang = world.submit("C", {"cpu": 1000}, 3, gang=True)
    found = explain(world.state, gang)
    assert "there is room for 1, not counting what is held for job 3 of A" in found["text"]
    assert [each["job"] for each in found["kept"]] == [large]
    assert explain(world.state, large)["kept"] == [], "what is kept for a job does not keep it out"


def test_behind_the_first_of_a_strict_leaf():
    world = World([Queue("A", strict=True)], {"cpu": 2000})
    world.submit("A", {"cpu": 1000}, name="runs")
    large, small = world.submit("A", {"cpu": 2000}), world.submit("A", {"cpu": 1000})
    assert why(world, large) == ("no room", "no node has room: n0, the closest, lacks 1 cpu")
    text = f"queue A is strict, and job {large} goes first: no node has room: n0, the closest, lacks 1 cpu"
    assert why(world, small) == ("behind", text)
    assert explain(world.state, small)["first"] == large


def test_jobs_that_go_first_in_the_same_queue():
    world = World([Queue("A")], {"cpu": 2000})
    world.submit("A", {"cpu": 2000})
    world.decide()
    first, job = world.submit("A", {"cpu": 1500}), world.submit("A", {"cpu": 1000})
    reason, text = why(world, job)
    assert (reason, text.partition("; ")[2]) == ("no room", f"in its own queue job {first} would go first")
    other = world.submit("A", {"cpu": 2000}, priority=5)
    assert f"in its own queue job {other}, of priority 5, and 1 more would go first" in why(world, job)[1]
    assert explain(world.state, job)["ahead_in_queue"] == [other, first]
    assert explain(world.state, other)["ahead_in_queue"] == []


def test_a_gang_that_can_never_start():
    world = World([Queue("A")], {"cpu": 2000}, {"cpu": 2000})
    job = world.submit("A", {"cpu": 1500}, 3, gang=True)
    text = "can never start as things are: a gang of 3, and all nodes, even empty, hold at most 2 of its tasks"
    assert why(world, job) == ("too large", text)


def test_cancelled_for_what_became_of_another():
    world = World([Queue("A")], {"cpu": 2000})
    first = world.submit("A", {"cpu": 1000})
    job = world.submit("A", {"cpu": 1000}, after=[After(first)])
    other = world.submit("A", {"cpu": 1000}, after=[After(first, "failure")])
    world.decide()
    world.end(first, outcome=1, code=3)
    world.decide()
    assert why(world, job) == ("over", f"it was cancelled: it came after job {first}, which had to succeed, and failed")
    assert why(world, other)[0] == "running"


def test_what_cannot_start_hides_from_no_audit_who_is_below():
    """Within one task: the largest that runs or may start, or a gang as a whole. A held one as large as a node excuses nobody."""
    world = World([Queue("q"), Queue("r")], {"cpu": 10_000})
    world.submit("q", {"cpu": 1000}, 10)
    world.decide()
    world.submit("r", {"cpu": 1000}, 5)
    assert [each["status"] for each in audit_state(world.state, 5.0)["queues"]] == ["fair", "below"]
    held = world.submit("r", {"cpu": 9000})
    world.happen(admission.hold(world.state, held, 5.0))
    world.submit("r", {"cpu": 3000}, 5, gang=True)  # it never fits
    assert [each["status"] for each in audit_state(world.state, 5.0)["queues"]] == ["fair", "below"]


HALVES = {"gpu": 4000, "cpu": 32_000}


@pytest.mark.parametrize(
    ("node", "guarantees", "task", "part"),
    [
        ({"cpu": 64_000, "gpu": 8000}, (HALVES, HALVES), {"gpu": 1000, "cpu": 2000}, 0.5),
        ({"cpu": 16_000, "memory": 32}, ({"cpu": 8000, "memory": 16},) * 2, {"cpu": 1000, "memory": 1}, 0.5),
        ({"cpu": 16_000, "memory": 32}, ({"cpu": 16_000}, {"cpu": 16_000, "memory": 16}), {"cpu": 1000, "memory": 1}, 0.5),
        ({"cpu": 64_000, "gpu": 8000}, ({"gpu": 1000, "cpu": 64_000}, {"gpu": 7000}), {"gpu": 1000}, 7 / 8),
        ({"cpu": 64_000, "gpu": 8000}, ({"gpu": 4000},) * 2, {"gpu": 1000, "cpu": 10_000}, 0.5),
    ],
    ids=["filled in one", "two that fit", "scaled", "unequal", "not named"],
)
def test_a_guarantee_need_not_be_filled_in_each_resource(node, guarantees, task, part):
    """It is a bound of what a queue may claim: an audit says how much that is, and who lacks it."""
    world = World([Queue(name, guarantee=each) for name, each in zip("ab", guarantees, strict=True)], node, revoke=False)
    world.submit("a", {"cpu": 2000, **task}, 40)
    world.decide()
    world.submit("b", task, 40)
    found = audit_state(world.state, 5.0)
    assert [(queue["status"], queue["entitled"]) for queue in found["queues"]][1] == ("below", pytest.approx(part))
    assert (found["findings"][0]["holds"], found["fair"]) == (False, False)


@pytest.mark.parametrize(("above", "of"), [("", "b"), ("lab", "lab")], ids=["its own", "of a queue above"])
def test_who_has_waited_for_one_task_of_a_guarantee_for_longer_than_the_timeout_is_below(above, of):
    """Within one task is no excuse then. Before it is."""
    name = f"{above}/b".lstrip("/")
    queues = [Queue(each, guarantee={"cpu": 1000} if each == of else {}) for each in ["a", above, name] if each]
    world = World(queues, {"cpu": 2000})
    world.submit("a", {"cpu": 1000}, 2)
    world.decide()
    world.submit(name, {"cpu": 1000})
    begun = world.now
    found = audit_state(world.state, begun + 20.0)
    assert ([queue["status"] for queue in found["queues"]], found["findings"][0]["holds"]) == (["fair", "fair"], True)
    found = audit_state(world.state, begun + 40.0)
    assert ([queue["status"] for queue in found["queues"]], found["fair"]) == (["fair", "below"], False)
    assert found["findings"][0]["text"] == f"{name} has waited for a task within its guarantee for longer than its timeout"


def test_who_is_alone_and_waits_for_its_own_gang_is_not_wronged():
    world = World([Queue("q"), Queue("r")], {"cpu": 10_000})
    world.submit("q", {"cpu": 1000}, 4)
    world.decide()
    world.submit("q", {"cpu": 3000}, 3, gang=True)
    assert [each["status"] for each in audit_state(world.state, 5.0)["queues"]] == ["fair"]


def test_a_gang_that_can_never_fit_is_in_nobodys_way():
    """It counts as no work, now and over time, and is not named as first in turn."""
    world = World([Queue("q"), Queue("r")], {"cpu": 2000})
    world.submit("q", {"cpu": 1000}, 2)
    world.decide()
    gang = world.submit("r", {"cpu": 1000}, 5, gang=True)
    waits = world.submit("q", {"cpu": 1000})
    text = "can never start as things are: a gang of 5, and all nodes, even empty, hold at most 2 of its tasks"
    assert why(world, gang) == ("too large", text)
    assert why(world, waits) == ("no room", "no node has room: n0, the closest, lacks 1 cpu")
    found = audit_state(world.state, 5.0)
    assert (found["fair"], [queue["name"] for queue in found["queues"]]) == (True, ["q"])
    over = audit_history(world.state, [], 0.0, 100.0, 0)
    assert (over["fair"], [queue["name"] for queue in over["queues"]]) == (True, ["q"])


@pytest.mark.parametrize(
    "queue", [Queue("r", limit={"cpu": 6}), Queue("r", max_tasks=6), Queue("r", max_jobs=1), Queue("r", strict=True)]
)
def test_a_gang_that_can_never_fit_is_told_so_at_once_whatever_else_stops_it(queue):
    world = World([queue], {"cpu": 4})
    world.submit("r", {"cpu": 1}, 2)
    world.decide()
    world.submit("r", {"cpu": 1}, 6)
    gang = world.submit("r", {"cpu": 1}, 5, gang=True)
    text = "can never start as things are: a gang of 5, and all nodes, even empty, hold at most 4 of its tasks"
    assert why(world, gang) == ("too large", text)


def test_who_waits_behind_a_gang_that_can_never_fit_is_told_so_though_another_of_its_shape_goes_first():
    world = World([Queue("s", strict=True)], {"cpu": 4})
    for tasks, gang in ((4, False), (1, False), (5, True), (1, False)):
        last = world.submit("s", {"cpu": 1}, tasks, gang=gang)
        world.decide()
    assert why(world, last)[1].startswith("can never start as things are: queue s is strict, and job 3 goes first: a gang of 5")


def test_in_a_strict_leaf_nobody_starts_behind_a_gang_that_can_never_fit():
    world = World([Queue("s", strict=True), Queue("t")], {"cpu": 2000})
    before = world.submit("s", {"cpu": 2000}, priority=1)
    world.decide()
    gang = world.submit("s", {"cpu": 1000}, 5, gang=True)
    behind = world.submit("s", {"cpu": 1000})
    ahead = world.submit("s", {"cpu": 1000}, priority=1)
    text = f"can never start as things are: queue s is strict, and job {gang} goes first: a gang of 5, and all nodes"
    assert why(world, behind) == ("behind", f"{text}, even empty, hold at most 2 of its tasks")
    assert "never" not in why(world, ahead)[1]
    said = outlook(world.state, behind, 5.0)
    assert (said.reason, said.text.partition(":")[0]) == ("never", f"never while job {gang} is ahead in the strict queue s")
    doubt = admission.doubt(world.state, Job("s", {"cpu": 1000}))
    assert doubt.startswith(f"queue s is strict, and job {gang}, which goes first there, is too large for all nodes")
    assert admission.doubt(world.state, Job("s", {"cpu": 1000}, priority=1)) is None
    world.end(before)
    world.decide()
    world.end(ahead)
    assert audit_state(world.state, 5.0)["queues"] == [], "what can never start is no work"


def test_behind_one_that_never_starts_where_earlier_jobs_have_ended():
    """The job that is named is the one that is in the way, whatever rows those before it have left."""
    world = World([Queue("s", strict=True)], {"cpu": 2000})
    world.submit("s", {"cpu": 1000})
    world.decide()
    world.end(1)
    gang = world.submit("s", {"cpu": 1000}, 3, gang=True, priority=7)
    behind = world.submit("s", {"cpu": 1000}, priority=1)
    assert f"and job {gang} goes first" in why(world, behind)[1]
    assert outlook(world.state, behind, 5.0).text.startswith(f"never while job {gang} is ahead in the strict queue s")


@pytest.mark.parametrize("queues", [[Queue("m", max_tasks=1)], [Queue("m", max_tasks=1), Queue("m/x", strict=True)]])
def test_a_gang_that_no_bound_of_its_queues_lets_start(queues):
    """Whoever submits it is told, nobody waits for it, and it entitles to nothing."""
    leaf = queues[-1].name
    world = World([*queues, Queue("r")], {"cpu": 9000})
    spec = Job(leaf, {"cpu": 1000}, 2, gang=True)
    said = "a gang of 2 tasks, and queue m may run 1 at once"
    assert admission.doubt(world.state, spec) == f"{said}: the job waits until the bound is raised"
    assert admission.never_starts(world.state, Job(leaf, {"cpu": 1000}, 2)) is None
    gang = world.submit(leaf, {"cpu": 1000}, 2, gang=True)
    assert why(world, gang) == ("max tasks", f"can never start as things are: {said}")
    assert outlook(world.state, gang, 5.0).text == f"never: {said}"
    assert audit_state(world.state, 5.0)["queues"] == []
    assert audit_history(world.state, [], 0.0, 100.0, 0)["queues"] == []
    behind = world.submit(leaf, {"cpu": 1000})
    if world.state.tree.spec_of(leaf).strict:
        text = f"can never start as things are: queue {leaf} is strict, and job {gang} goes first: {said}"
        assert why(world, behind) == ("behind", text)
        assert outlook(world.state, behind, 5.0).text == (
            f"never while job {gang} is ahead in the strict queue {leaf}: job {gang} can never start ({said})"
        )
        assert f"job {gang}, which goes first there, can never start ({said})" in admission.doubt(
            world.state, Job(leaf, {"cpu": 1000})
        )
    else:
        assert why(world, behind)[0] == "running"


def test_a_gang_over_a_limit_that_was_lowered_never_starts():
    queues = [Queue("m", limit={"cpu": 4000})]
    world = World(queues, {"cpu": 9000})
    running = world.submit("m", {"cpu": 4000})
    world.decide()
    gang = world.submit("m", {"cpu": 2000}, 2, gang=True)
    world.happen(admission.configure(world.state, [Queue("m", limit={"cpu": 3000})], world.state.settings, 0.0))
    said = "a gang of 2 tasks needs 4 cpu at once, and queue m is limited to 3"
    assert why(world, gang) == ("limit", f"can never start as things are: {said}")
    world.end(running)
    assert audit_state(world.state, 5.0)["queues"] == []


def test_what_comes_after_a_job_that_never_starts_never_does():
    world = World([Queue("A")], {"cpu": 2000})
    large = world.submit("A", {"cpu": 3000})
    after = world.submit("A", {"cpu": 1000}, after=[After(large)])
    last = world.submit("A", {"cpu": 1000}, after=[After(after, "end")])
    for job in (after, last):
        found = outlook(world.state, job, 5.0)
        assert (found.reason, found.runs) == ("never", 0)
        assert found.text.startswith(f"never: it comes after job {large}, which can never start on the nodes")


def test_what_room_is_kept_for_it():
    """Whoever a reservation is for is told of it, and not of others' turns, who do not have that room."""
    world = World([Queue("A"), Queue("B")], {"cpu": 4000})
    world.submit("B", {"cpu": 2000}, time_limit=100.0)
    world.decide()
    large = world.submit("A", {"cpu": 4000}, time_limit=50.0)
    world.submit("B", {"cpu": 1000})
    world.happen(NodesReserved(at=7.0, id=large, nodes=[0], tasks=[1], start=100.0))
    found = explain(world.state, large)
    assert found["text"] == ("no node has room: n0, the closest, lacks 2 cpu; room on n0 is reserved for it")
    reserved = {"nodes": ["n0"], "made": 7.0, "start": 100.0, "end": 150.0, "slips": 0, "idle": {"cpu": 2000}}
    assert found["reserved"] == reserved
    assert [(queue["name"], queue["why"]) for queue in audit_state(world.state, 8.0)["queues"]] == [
        ("A", "not yet converged"),
        ("B", "reservations"),
    ]


@pytest.mark.parametrize("limit", [None, 100.0])
def test_a_start_that_nobody_was_told_does_not_slip(limit):
    world = World([Queue("A"), Queue("B")], {"cpu": 4000})
    world.submit("B", {"cpu": 2000}, time_limit=limit)
    world.decide()
    large = world.submit("A", {"cpu": 4000})
    later = [NodesReserved(at=7.0 + n, id=large, nodes=[0], tasks=[1], start=8.0 + n, slips=n) for n in range(4)]
    (kept,) = audit_history(world.state, later, 0.0, 20.0, 4)["reservations"]
    assert kept["slips"] == (3 if limit else 0)


def test_a_node_with_two_reservations_of_a_job_is_named_once():
    world = World([Queue("A"), Queue("B")], {"cpu": 8000})
    world.submit("B", {"cpu": 4000}, 2)
    world.decide()
    large = world.submit("A", {"cpu": 3000}, 5)
    for number in range(2):
        world.happen(NodesReserved(at=7.0, id=large, nodes=[0], tasks=[1], start=100.0, number=number))
    assert explain(world.state, large)["reserved"]["nodes"] == ["n0"]
    (kept,) = audit_state(world.state, 8.0)["reservations"]
    assert (kept["nodes"], kept["tasks"]) == (1, 2)


def test_that_no_room_is_kept_without_a_budget():
    world = World([Queue("A"), Queue("B")], {"cpu": 4000}, idle_budget=0.0)
    world.submit("B", {"cpu": 1000})
    world.decide()
    assert why(world, world.submit("A", {"cpu": 4000}))[1] == (
        "no node has room: n0, the closest, lacks 1 cpu; no room is kept for it, since `idle_budget` is 0"
    )


def test_room_that_another_is_about_to_have_is_not_called_kept():
    world = World([Queue("A"), Queue("B"), Queue("C")], {"cpu": 1000})
    first = world.submit("A", {"cpu": 1000})
    world.decide()
    world.submit("B", {"cpu": 1000})
    world.submit("C", {"cpu": 1000})
    world.end(first)
    assert explain(world.state, 2)["reason"] == "about to start"
    text = explain(world.state, 3)["text"]
    assert text.startswith("no node has room: n0, the closest, lacks 1 cpu, not counting tasks that start there now"), text


@pytest.mark.parametrize("policy", ["fairtree", "drf"])
def test_how_little_was_used_before_is_told_where_that_alone_decides(policy):
    world = World([Queue("", policy=policy, history=7 * 86400.0), Queue("A"), Queue("B")], {"cpu": 4000})
    world.submit("A", {"cpu": 4000})
    world.decide()
    world.now = 5.0
    world.end(1)
    world.now = 500.0
    world.submit("B", {"cpu": 4000})
    world.decide()
    world.submit("A", {"cpu": 1000})
    world.now = 610.0
    last = world.submit("B", {"cpu": 2000})
    text = explain(world.state, last)["text"]
    told = "A at 0.0% (0.0005% of past use); its own queue had 0.01% of past use"
    assert (told in text, "past use" in text) == ((True, True) if policy == "fairtree" else (False, False)), text


def test_a_job_that_another_one_leaves_no_room_beside_quota_that_is_not_lent_waits_its_turn():
    """The dry run places the other one, whose room is not used yet."""
    world = World([Queue("z", guarantee={"cpu": 2000}, lend={"cpu": 0}), Queue("a"), Queue("b")], {"cpu": 4000})
    one, two = world.submit("a", {"cpu": 2000}), world.submit("b", {"cpu": 2000})
    assert explain(world.state, one, world.now)["reason"] == "about to start"
    assert explain(world.state, two, world.now)["reason"] == "turn"
    world.decide()
    assert "2 is quota that other queues do not lend" in explain(world.state, two, world.now)["text"]


def test_quota_that_is_not_lent_is_no_part_of_what_is_free_once_others_run_in_it_and_no_reason_where_nothing_is_free():
    world = World([Queue("own", guarantee={"cpu": 4000}, lend={"cpu": 0}), Queue("a"), Queue("b")], {"cpu": 4000})
    one, two = world.submit("a", {"cpu": 1000}), world.submit("b", {"cpu": 1000})
    assert world.placed() == [(one, 0)]
    said = explain(world.state, two, world.now)["text"]
    assert said.startswith("3 cpu is free, and 4 is quota that other queues do not lend; the job needs 1"), said
    world.submit("own", {"cpu": 1000}, 4)
    world.decide()
    assert explain(world.state, two, world.now)["text"].startswith("no node has room: n0, the closest, lacks 1 cpu")
