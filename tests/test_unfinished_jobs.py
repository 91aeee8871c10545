"""What is known of jobs that have not ended: counts by person and queue, and the files that go with them."""

import numpy as np
import pytest

from fairlead.model.specs import Job, Node, Queue, Settings, Work
from fairlead.people.accounts import myself
from fairlead.people.bounds import Load
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import Configured, JobCancelled, JobsForgotten, JobSubmitted, NodeJoined
from fairlead.service import unfinished_jobs
from fairlead.service.unfinished_jobs import Exports, UnfinishedJobs


@pytest.fixture
def exports(tmp_path):
    return Exports(tmp_path / "exports")


def history(state, unfinished, *facts):
    for fact in facts:
        apply(state, fact)
        if isinstance(fact, JobSubmitted):
            unfinished.add(fact.id, [unfinished_jobs.unfinished(fact.job, unfinished.exports)])
    return unfinished.recorded(state, facts)


def test_loads_are_those_of_the_jobs_that_have_not_ended(exports):
    """Against all of them, added up anew after every fact; and what is recovered counts as what was counted on the way."""
    rng = np.random.default_rng(5)
    state, unfinished = new_state(), UnfinishedJobs(exports)
    queues = [Queue("a"), Queue("a/b"), Queue("a/b/*"), Queue("c")]
    history(state, unfinished, Configured(at=0, queues=queues, settings=Settings()), NodeJoined(at=0, node=Node("n", {"cpu": 1})))
    going, ended, forgotten = {}, [], set()
    for number in range(1, 400):
        leaf, uid = str(rng.choice(["a/b/x", "a/b/y", "c"])), int(rng.choice([1, 2]))
        work = Work(["x" * int(rng.integers(5))], "/", {"A": "b"}, export=exports.keep({"A": "1"}, myself()))
        job = Job(leaf, {"cpu": 1000}, int(rng.integers(1, 5)), uid=uid, work=work)
        facts = [JobSubmitted(at=0, id=number, job=job)]
        going[number] = job
        chosen = [k for k in going if k != number and rng.random() < 0.1 + 0.8 * (number % 50 == 0)]
        facts += [JobCancelled(at=0, id=k) for k in chosen]
        if number % 20 == 0:
            facts.append(JobsForgotten(at=0, ids=sorted(set(ended[:5]) - forgotten)))
            forgotten |= set(ended[:5])
            ended = ended[5:]
        told = history(state, unfinished, *facts)
        assert sorted(told) == chosen
        ended += chosen
        for k in chosen:
            del going[k]
        for who in (1, 2, 3):
            for queue in ("", "a", "a/b/x", "c"):
                below = [j for j in going.values() if j.uid == who and (not queue or f"{j.queue}/".startswith(f"{queue}/"))]
                right = Load()
                for j in below:
                    right = right.plus(unfinished_jobs.unfinished(j, exports).load)
                assert unfinished.load(who, queue) == right
    assert {path.name for path in exports.folder.iterdir()} == {job.work.export for job in going.values()}
    exports.keep({"left": "behind"}, myself())
    again = UnfinishedJobs(exports)
    again.recover(state)
    assert [again.load(who, "") for who in (1, 2)] == [unfinished.load(who, "") for who in (1, 2)]
    assert {path.name for path in exports.folder.iterdir()} == {job.work.export for job in going.values()}
