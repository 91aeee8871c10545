"""How many jobs of one person wait for room or run at once, over all queues."""

from types import SimpleNamespace

import numpy as np
import pytest
from msgspec.structs import replace

from fairlead.model.documents import read_configuration
from fairlead.model.specs import After, Job, Queue
from fairlead.scheduler import admission, snapshot
from fairlead.scheduler.decide import decide
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import Configured, JobCancelled, JobSubmitted, TasksFinished, TasksPlaced
from fairlead.scheduler.reports.explain import explain
from fairlead.service.reloading import Reloading
from fairlead.simulate.outlook import outlook
from test_claims import Story
from worlds import check_invariants, replay, same

CPU = {"cpu": 1}


def crowd(**bounds: int) -> Story:
    """Ann has three jobs in two queues, ben one; there is room for two tasks in a, and for one in b."""
    story = Story([{"cpu": 8}], [Queue("a", limit={"cpu": 2}), Queue("b", limit={"cpu": 1})], max_jobs_of=bounds)
    story.coming += [
        (float(k), Job(queue, CPU, user=user), 10.0)
        for k, (queue, user) in enumerate([("a", "ann"), ("b", "ann"), ("a", "ann"), ("a", "ben")])
    ]
    return story


def test_a_person_has_so_many_jobs_in_all_queues_and_the_next_comes_in_when_one_has_ended():
    story = crowd(ann=2).until(5.0)
    assert story.began == {1: [0.0], 2: [1.0], 4: [3.0]}
    assert explain(story.state, 3)["reason"] == "max jobs"
    assert explain(story.state, 3)["text"] == ("ann may have 2 admitted jobs at once: jobs 1 and 2 are admitted")
    assert outlook(story.state, 3, 5.0).reason == "unknown"
    assert same(replay(story.facts)) == same(story.state)
    assert snapshot.load(snapshot.dump(story.state)).job_caps == story.state.job_caps
    story.until(30.0)
    assert story.began[3] == [10.0]


def test_who_is_not_named_has_what_is_said_of_all_others():
    story = crowd(**{"*": 1, "ann": 3}).until(30.0)
    assert story.began == {1: [0.0], 2: [1.0], 3: [2.0], 4: [10.0]}
    story = crowd(**{"*": 1}).until(30.0)
    assert story.began == {1: [0.0], 2: [10.0], 4: [3.0], 3: [20.0]}


@pytest.mark.parametrize(("bounds", "began"), [({"ann": 2}, [6.0]), ({}, [6.0]), ({"ann": 0}, None)])
def test_who_waits_comes_in_when_the_bound_is_another(bounds, began):
    """Whom it is lowered for keeps what is inside."""
    story = crowd(ann=1).until(5.0)
    assert list(story.began) == [1, 4]
    queues = list(story.state.tree.declared.values())
    story.happen(Configured(at=6.0, queues=queues, settings=replace(story.state.settings, max_jobs_of=bounds)))
    story.now = 6.0
    story.decide()
    assert story.began.get(2) == began
    story.until(40.0)
    assert (story.runs("a"), len(story.began)) == (0, 4 if bounds != {"ann": 0} else 2)


def test_who_is_cancelled_or_held_makes_room_for_the_next():
    story = crowd(ann=1).until(5.0)
    story.happen(admission.cancel(story.state, 2, None, 5.0))
    story.until(12.0)
    assert story.began[3] == [10.0]
    story = crowd(ann=1)
    story.coming[0] = (0.0, Job("a", {"cpu": 9}, user="ann"), 1.0)
    story.until(5.0)
    story.happen(admission.hold(story.state, 1, 5.0))
    story.decide()
    assert story.began[2] == [5.0]
    story.happen(admission.release(story.state, 1, 5.0))
    check_invariants(story.state)
    assert explain(story.state, 3)["text"].endswith("at once: job 2 is admitted; 1 more of the same user is ahead")


def test_the_key_is_read(tmp_path):
    file = tmp_path / "fairlead.toml"
    file.write_text('[scheduler]\nmax_jobs_of = { "*" = 5, dora = 20 }\n')
    assert read_configuration(file, lambda policy: None).settings.max_jobs_of == {"*": 5, "dora": 20}


def test_a_gang_whose_leader_has_ended_counts_only_while_tasks_of_it_run():
    """Also where a scheduler starts again before the gang is cancelled."""
    story = Story([{"cpu": 4}], [Queue("*")], max_jobs_of={"*": 1})
    story.happen(JobSubmitted(at=0.0, id=1, job=Job("a", {"cpu": 1}, 2, gang=True, led=True, retries=1, user="ann")))
    story.happen(JobSubmitted(at=0.0, id=2, job=Job("a", {"cpu": 1}, user="ann")))
    both = {"job": np.array([1, 1]), "index": np.array([0, 1]), "attempt": np.array([1, 1])}
    story.happen(TasksPlaced(at=0.0, **both, node=np.array([0, 0])))
    assert story.state.job_caps.inside == {"ann": {1}}
    story.happen(TasksFinished(at=1.0, **both, outcome=np.array([0, 1]), code=np.array([0, 9])))
    for state in (story.state, snapshot.load(snapshot.dump(story.state))):
        check_invariants(state)
        assert state.job_caps.inside == {"ann": {2}}
        cancelled, *placed = decide(state, 2.0).facts
        assert isinstance(cancelled, JobCancelled)
        apply(state, cancelled)
        assert [job for fact in placed or decide(state, 2.0).facts for job in fact.job.tolist()] == [2]


def test_a_waiting_gang_whose_leader_is_cancelled_takes_nobodys_place():
    story = Story([{"cpu": 4}], [Queue("*")], max_jobs_of={"*": 1})
    story.happen(JobSubmitted(at=0.0, id=1, job=Job("a", {"cpu": 1}, user="ben")))
    gang = Job("a", {"cpu": 1}, 3, gang=True, led=True, user="ann", after=[After(1)])
    story.happen(JobSubmitted(at=0.0, id=2, job=gang))
    story.happen(admission.cancel(story.state, 2, [0], 1.0))
    for state in (story.state, snapshot.load(snapshot.dump(story.state))):
        check_invariants(state)
        assert "ann" not in {user for user, jobs in state.job_caps.inside.items() if jobs}


def test_on_ray_a_reload_names_what_has_changed_of_the_file_and_only_that(tmp_path):
    """The engine is none of this machine's alone, so its nodes are not changed by the file."""

    def with_cpus(cpu):
        file = tmp_path / "fairlead.toml"
        file.write_text(f'[[node]]\nname = "n"\ncapacity = {{ cpu = {cpu} }}\n')
        return read_configuration(file, lambda policy: None)

    before, after = with_cpus(8), with_cpus(4)
    reloading = Reloading(before, SimpleNamespace(elastic=True, nodes=before.nodes))
    assert reloading.apply(new_state(), before, before.nodes, 0.0)[1] == []
    missing = ["[[node]]: with --engine ray, only the start reads these"]
    assert reloading.apply(new_state(), after, after.nodes, 0.0)[1] == missing
