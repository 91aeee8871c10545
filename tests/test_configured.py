"""A simulation runs the configuration: every key of it, from a file, from --set, and from a journal."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.failure import WrongUsage
from fairlead.model import documents
from fairlead.model.assignments import as_document, with_changes
from fairlead.model.documents import DocumentError, configuration_of
from fairlead.model.specs import NEVER, ROOT, Job, Queue, Settings
from fairlead.policies.registry import find_policy
from fairlead.scheduler.facts import Configured
from fairlead.service.configuration_warnings import configuration_warnings
from fairlead.simulate import run as simulator
from fairlead.simulate.configured import configured
from fairlead.simulate.run import simulate
from fairlead.simulate.workload import Jobs, TraceError, synthetic_nodes
from random_cases import cases

OF_QUEUE = {
    "weight": "2",
    "guarantee": "{ cpu = 1, memory = '25%' }",
    "limit": "{ cpu = 2, memory = '75%' }",
    "largest_task": "{ cpu = 2 }",
    "max_jobs": "3",
    "max_tasks": "4",
    "policy": "fifo",
    "history": "2d",
    "draining": "true",
    "submit": "['ada', '@vision']",
    "admin": "['bob']",
    "private": "true",
    "order": "fair",
    "strict": "true",
    "guarantee_timeout": "7s",
    "fair_share_timeout": "never",
    "fair_share_threshold": "0.25",
    "revocable": "false",
    "min_runtime": "10min",
    "grace": "3s",
    "priority_revokes": "true",
    "borrow": "{ cpu = 1 }",
    "lend": "{ cpu = 0.5 }",
    "offer": "{ most = '12.5%' }",
}
"""A value for each key of a queue that is not its default."""
OF_SCHEDULER = {
    "reserve_after": "1min",
    "idle_budget": "0.5",
    "max_losses": "7",
    "keep_jobs": "5",
    "history": "5d",
    "revoke": "false",
    "offer_timeout": "9s",
    "offer": "{ most = '20%' }",
    "ports": "1000-1999,2500",
    "max_jobs_of": "{ ada = 1, '*' = 5 }",
}
REFUSED = {"/": {"weight", "guarantee", "limit", "lend", "strict"}, "b": {"strict"}, "b/x": {"policy", "history"}}
"""Keys that the root, an inner queue or a leaf does not take."""
ELSEWHERE = {
    "operators": "['ada']",
    "root_tasks": "true",
    "bounds": "{ '@default' = { requests = 5, environment = '1Mi' }, a = { jobs = 3 } }",
    "placement": "[{ by = 'user' , create = false, own = true }, { queue = 'a' }]",
}
NOT_SCHEDULED = {"queue", "node", "scheduler", "system", "output", "page"}
"""What a document has beside: the queues and the settings themselves, the machines, where output is kept, and the page."""

BASE = {"queue": [{"name": "a"}, {"name": "b"}, {"name": "b/x", "guarantee": {"cpu": 1}}, {"name": "b/y"}]}


def the_base():
    return msgspec.json.decode(msgspec.json.encode(BASE))


def two_jobs(user="ada"):
    jobs = Jobs()
    for queue in ("a", "b/y"):
        jobs.add(0.0, queue, {"cpu": 1000}, 5.0, like=Job(queue="", demand={}, user=user))
    return jobs.workload("two", synthetic_nodes(2, "cpu=4,memory=4G"), [])


def reached(workload, **more):
    """The settings and the declared tree of the scheduler that simulates this."""
    states = []
    simulate(workload, watch=lambda state, facts: states.append(state), **more)
    return states[-1].settings, states[-1].tree.declared


@pytest.mark.parametrize("key", documents.QueueTable.model_fields)
@pytest.mark.parametrize("of", ["/", "b", "b/x"])
def test_each_key_of_a_queue_reaches_the_scheduler(of, key):
    if key == "name":
        return
    base = the_base()
    before = configuration_of(the_base(), find_policy, "base")
    if key == "lend" and of == "b":
        base["queue"][1]["guarantee"] = {"cpu": 1}
    if key in REFUSED[of]:
        with pytest.raises(DocumentError, match=r": queue\[\d\]\."):
            with_changes(base, [f"queue.{of}.{key}={OF_QUEUE[key]}"], find_policy)
        return
    found = with_changes(base, [f"queue.{of}.{key}={OF_QUEUE[key]}"], find_policy)
    assert found.queues != before.queues, "the value is another than the default"
    own, tree = reached(replace(two_jobs(), queues=found.queues, settings=found.settings))
    declared = {queue.name: queue for queue in found.queues}
    assert {**{ROOT: Queue(ROOT)}, **declared} == tree
    assert own == msgspec.structs.replace(found.settings, keep_jobs=simulator.KEEP_JOBS)


@pytest.mark.parametrize("key", [*documents.SchedulerTable.model_fields, *documents.Document.model_fields])
def test_each_setting_reaches_the_scheduler(key):
    if key in NOT_SCHEDULED:
        return
    change = f"scheduler.{key}={OF_SCHEDULER[key]}" if key in OF_SCHEDULER else f"{key}={ELSEWHERE[key]}"
    found = with_changes(the_base(), [change], find_policy)
    assert found.settings != Settings()
    own, _ = reached(replace(two_jobs(), queues=found.queues, settings=found.settings))
    assert own == msgspec.structs.replace(found.settings, keep_jobs=simulator.KEEP_JOBS)


def test_a_key_that_is_ignored_is_named():
    found = with_changes(the_base(), ["scheduler.reserve_after=1min"], find_policy)
    text = "scheduler.reserve_after is deprecated and ignored: idle_budget bounds what reservations keep idle"
    assert configuration_warnings(found, {"cpu": 9000}, None) == [text]


def test_each_field_has_a_key():
    """So that the two tests above have walked over all that a scheduler may be told."""
    everything = {f"scheduler.{key}={value}" for key, value in OF_SCHEDULER.items()}
    everything |= {f"{key}={value}" for key, value in ELSEWHERE.items()}
    own = with_changes(the_base(), sorted(everything), find_policy).settings
    same = [name for name in Settings.__struct_fields__ if getattr(own, name) == getattr(Settings(), name)]
    assert not same
    changed = set()
    for key, value in OF_QUEUE.items():
        for of in ("b", "b/x"):
            base = the_base()
            base["queue"][1]["guarantee"] = {"cpu": 1}
            try:
                found = with_changes(base, [f"queue.{of}.{key}={value}"], find_policy)
            except DocumentError:
                continue
            queue = next(queue for queue in found.queues if queue.name == of)
            changed |= {name for name in Queue.__struct_fields__ if getattr(queue, name) != getattr(Queue(of), name)}
    assert changed == set(Queue.__struct_fields__) - {"name"}


def test_a_tree_and_settings_are_written_as_the_document_that_they_come_from():
    """What --set does to a journal's configuration: written as a document, changed, and read as any other."""
    changes = [f"scheduler.{key}={value}" for key, value in OF_SCHEDULER.items()]
    changes += [f"{key}={value}" for key, value in ELSEWHERE.items()]
    for of, leave_out in (("/", ()), ("b", ("strict",)), ("b/x", ("policy", "history", "order"))):
        for key, value in OF_QUEUE.items():
            if key in leave_out or (of == "/" and key in ("weight", "guarantee", "limit", "lend", "strict")):
                continue
            changes.append(f"queue.{of}.{key}={value}")
    changes += ["queue.b.guarantee_timeout=never", "queue.b.history=none", "queue.b.weight={ cpu = 2.5 }"]
    first = with_changes(the_base(), changes, find_policy)
    again = configuration_of(as_document(first.queues, first.settings), find_policy, "again")
    assert again.queues == first.queues
    assert again.settings == first.settings
    assert next(q for q in again.queues if q.name == "b").guarantee_timeout == NEVER


@given(
    st.dictionaries(st.sampled_from(["cpu", "memory", "gpu", "x-y"]), st.integers(0, 2**61)),
    st.dictionaries(st.sampled_from(["cpu", "memory"]), st.decimals(0, 100, places=9).map(float)),
    st.floats(1e-9, 1e9),
)
def test_amounts_are_written_exactly(limit, percent, weight):
    percent = {name: amount for name, amount in percent.items() if name not in limit}
    queue = Queue("a", weight=weight, limit=limit, limit_percent=percent)
    assert configuration_of(as_document([queue], Settings()), find_policy, "again").queues == [queue]


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ("scheduler.reserve_after=soon", "scheduler.reserve_after: 'soon' is not a duration"),
        ("scheduler.reserve=5", "scheduler.reserve: "),
        ("queue.a.wieght=2", "queue[0].wieght: "),
        ("queue.a.weight=-1", "queue[0].weight: -1 is not a weight"),
        ("queue.a=2", "names no key"),
        ("queue.z.weight=2", "there is no queue 'z': choose one of a, b, b/x, b/y"),
        ("queue.b/z.weight=2", "there is no queue 'b/z'"),
        ("queue.b/x.limit.cpu=0.5", "queue[2].guarantee: guarantees 1 cpu, above its limit of 500m"),
        ("node.n.capacity.cpu=9", "there is no node 'n': there are no [[node]] tables"),
        ("scheduler.revoke", "write KEY=VALUE"),
        ("scheduler.revoke.x=1", "scheduler.revoke: "),
        ("=1", "write KEY=VALUE"),
        ("policy=drf", "policy: "),
    ],
)
def test_what_cannot_be_set_is_one_line(change, wrong):
    with pytest.raises((DocumentError, WrongUsage)) as caught:
        with_changes(the_base(), [change], find_policy)
    assert isinstance(caught.value, WrongUsage) == wrong.endswith(("KEY=VALUE", "no key"))
    assert str(caught.value).startswith(f"--set {change}: ")
    assert len(str(caught.value).splitlines()) == 1
    assert wrong in str(caught.value)


def test_names_with_dots_and_users():
    base = {"queue": [{"name": "a.b"}, {"name": "lab"}, {"name": "lab/*"}]}
    found = with_changes(base, ["queue.a.b.limit.cpu=2", "queue.lab/ann.weight=3", "queue.lab/*.weight=2"], find_policy)
    declared = {queue.name: queue for queue in found.queues}
    assert declared["a.b"].limit == {"cpu": 2000}
    assert (declared["lab/ann"].weight, declared["lab/*"].weight) == (3, 2)


def test_set_without_a_configuration_declares_the_queues_of_the_trace():
    found = configured(two_jobs(), changes=["queue.b/y.weight=3", "scheduler.revoke=false"])
    assert [queue.name for queue in found.queues] == ["a", "b", "b/y"]
    assert not found.settings.revoke
    assert simulate(found).completed == 2


def test_machines_beside_a_configuration(tmp_path):
    file = tmp_path / "lab.toml"
    file.write_text('[scheduler]\nrevoke = false\n[[queue]]\nname = "*"\n[[queue]]\nname = "b"\n[[queue]]\nname = "b/*"\n')
    found = configured(two_jobs(), 3, "cpu=2", file, ["queue.b.weight=2"])
    assert [node.capacity for node in found.nodes] == [{"cpu": 2000}] * 3
    assert [queue.weight for queue in found.queues if queue.name == "b"] == [2]
    assert not found.settings.revoke
    own = configured(two_jobs(), config=file)
    assert own.nodes == two_jobs().nodes, "which names none, so those of the trace stay"
    file.write_text('[[queue]]\nname = "a"\n')
    with pytest.raises(TraceError, match="has no leaf queue for 'b/y' of the trace: declare it, or b/\\*"):
        configured(two_jobs(), config=file)


def test_the_policy_of_the_root_is_the_configured_one_unless_another_is_asked_for():
    found = configured(two_jobs(), changes=["queue./.policy=fifo", "queue./.history=none", "queue./.min_runtime=600"])
    run = simulate(found)
    assert run.policy == "fifo"
    assert run.workload.queues[0] == Queue(ROOT, policy="fifo", history=0.0, min_runtime=600.0)
    assert simulate(found, "drf", history=5.0).workload.queues[0] == Queue(ROOT, policy="drf", history=5.0, min_runtime=600.0)


def test_what_is_not_used_is_named():
    changes = ["operators=['ada']", "queue.a.private=true", "scheduler.offer_timeout=5", "scheduler.max_jobs_of={ '*' = 1 }"]
    changes.append("scheduler.reserve_after=30s")
    found = simulate(configured(two_jobs(user=""), changes=changes))
    assert found.notes == [
        "configuration: a simulation does not use operators, private, offer_timeout, max_jobs_of, since no job names its user, "
        "reserve_after, which is deprecated: idle_budget bounds what reservations keep idle"
    ]
    assert simulate(configured(two_jobs(), changes=["queue.a.weight=2"])).notes == []


def test_jobs_that_the_scheduler_would_not_take_are_refused():
    run = simulate(configured(two_jobs(), changes=["queue.b.draining=true"]))
    assert run.refused.tolist() == [False, True]
    assert run.notes[0] == "1 of the jobs of b/y were refused: queue 'b' is draining: it takes no more jobs"
    run = simulate(configured(two_jobs(), changes=["queue./.largest_task.cpu=0.5"]))
    assert run.refused.all()


@pytest.mark.parametrize("compiled", [True, False])
def test_caps_on_the_jobs_of_a_user(compiled):
    jobs = Jobs()
    for user in ("ada", "ada", "bob"):
        jobs.add(0.0, user, {"cpu": 1000}, 5.0, like=Job(queue="", demand={}, user=user))
    workload = jobs.workload("caps", synthetic_nodes(2, "cpu=4"), [])
    run = simulate(configured(workload, changes=["scheduler.max_jobs_of.ada=1"]), compiled=compiled)
    assert run.begun.tolist() == [0.0, 5.0, 0.0]


@settings(deadline=None, max_examples=cases(10))
@given(st.integers(0, 10**6))
def test_how_many_ended_jobs_are_remembered_changes_nothing(seed):
    rng = np.random.default_rng(seed)
    jobs = Jobs()
    submits = np.sort(rng.integers(0, 60, 60)).astype(float)
    for k in range(60):
        after = [int(rng.integers(k))] if k and rng.random() < 0.2 else []
        duration = [float(rng.integers(1, 9)) for _ in range(rng.integers(1, 4))]
        like = Job(queue="", demand={}, name=str(rng.integers(3)), user=str(rng.integers(3)))
        jobs.add(
            submits[k], str(rng.integers(3)), {"cpu": int(rng.integers(1, 4)) * 1000},
            duration if len(duration) > 1 else duration[0], len(duration), gang=rng.random() < 0.3, like=like,
            after=after,
        )  # fmt: skip
    workload = configured(jobs.workload("w", synthetic_nodes(2, "cpu=4"), []), changes=["scheduler.reserve_after=2"])
    starts = []
    for keep in (0, 3, 20_000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(simulator, "KEEP_JOBS", keep)
            run = simulate(workload, samples=2)
            starts.append(repr((run.begun.tolist(), run.ended.tolist(), run.decisions)))
    assert starts[0] == starts[1] == starts[2]


def test_a_configuration_that_changes_while_it_runs():
    jobs = Jobs()
    for queue in ("a", "b"):
        jobs.add(0.0, queue, {"cpu": 1000}, 1.0, 400)
    workload = jobs.workload("w", synthetic_nodes(1, "cpu=4"), [])
    later = Configured(at=50.0, queues=[Queue("a", weight=3.0), Queue("b")], settings=Settings(revoke=False))
    states = []
    run = simulate(
        replace(workload, changes=[later]), "drf", history=0.0, samples=200, watch=lambda state, facts: states.append(state)
    )
    before, after = run.shares[(run.at > 1) & (run.at < 49)], run.shares[(run.at > 60) & (run.at < 100)]
    assert before.mean(axis=0).round(3).tolist() == [0.5, 0.5]
    assert after.mean(axis=0).round(3).tolist() == [0.75, 0.25]
    assert run.fair[(run.at > 60) & (run.at < 100)].mean(axis=0).round(3).tolist() == [0.75, 0.25]
    assert states[-1].settings == Settings(revoke=False, keep_jobs=simulator.KEEP_JOBS)
    fixed = configured(replace(workload, changes=[later]), changes=["scheduler.revoke=true"])
    assert fixed.changes[0].settings.revoke, "which is for all of the time"
