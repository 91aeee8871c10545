"""The simulated cluster keeps an engine's promises: it starts once, stops within its grace, loses machines and tells again."""

import numpy as np
import pytest
from tests.memory_store import MemoryStore

from fairlead.engines.contract import Attempts, Launches, NodeDown, NodeUp
from fairlead.engines.simulated import SimulatedCluster
from fairlead.engines.step import Scheduler
from fairlead.journal import Journal
from fairlead.model.specs import Job, Node, Queue, Settings
from fairlead.outcomes import Outcome
from fairlead.scheduler import admission
from fairlead.scheduler.statuses import SUCCEEDED
from fake_engine import columns, rows


def one(job, index=0, number=1):
    return columns([(job, index, number)])


@pytest.fixture
def cluster():
    """Two machines of 2 CPUs; four jobs of two tasks of 1 CPU, which take 10 seconds."""
    four = np.arange(4)
    return SimulatedCluster(
        [Node("n0", {"cpu": 2}), Node("n1", {"cpu": 2})], np.array([[2], [2]]), np.ones((4, 1), np.int64),
        np.zeros(4, np.int64), 1, np.full(4, 2), np.full(4, 10.0), four, np.zeros(4, np.int64), False,
    )  # fmt: skip


def start(cluster, attempts, node="n0"):
    cluster.start(Launches(attempts, np.zeros(len(attempts.job), np.int64), [node], {}))


def submit_all(cluster):
    for job in range(4):
        cluster.submit(job, 2)


def test_it_tells_of_its_machines_starts_and_ends(cluster):
    submit_all(cluster)
    assert cluster.poll().nodes == [NodeUp(node) for node in cluster.nodes]
    start(cluster, one(1))
    assert cluster.next_event() == 0.0
    assert rows(cluster.poll().started) == rows(one(1))
    assert cluster.next_event() == 10.0
    cluster.now = 10.0
    ended = cluster.poll().ended
    assert (rows(ended.attempts), ended.outcome.tolist(), ended.code.tolist()) == (rows(one(1)), [Outcome.EXITED], [0])
    assert cluster.completed == 1


def test_an_attempt_starts_once_however_often_it_is_told(cluster):
    submit_all(cluster)
    for _ in range(3):
        start(cluster, one(1))
    assert rows(cluster.poll().started) == rows(one(1))
    cluster.now = 10.0
    assert len(cluster.poll().ended.outcome) == 1
    start(cluster, one(1))
    assert len(cluster.poll().started.job) == 0


def test_told_to_stop_it_ends_within_its_grace_unless_it_was_done_before(cluster):
    submit_all(cluster)
    start(cluster, one(1))
    cluster.now = 3.0
    start(cluster, one(2))
    cluster.now = 8.0
    cluster.poll()
    cluster.stop(Attempts(np.array([1, 2]), np.zeros(2, np.int64), np.ones(2, np.int64)), 4.0)
    cluster.now = 10.0
    assert cluster.poll().ended.outcome.tolist() == [Outcome.EXITED], "it was done before"
    cluster.now = 12.0
    seen = cluster.poll().ended
    assert (rows(seen.attempts), seen.outcome.tolist(), seen.code.tolist()) == (rows(one(2)), [Outcome.SIGNALLED], [15])


def test_what_was_never_started_never_starts_after_it_was_told_to_stop(cluster):
    submit_all(cluster)
    cluster.poll()
    cluster.stop(one(3), 4.0)
    assert cluster.poll().ended.outcome.tolist() == [Outcome.SIGNALLED]
    start(cluster, one(3))
    assert len(cluster.poll().started.job) == 0
    start(cluster, one(3, number=2))
    assert rows(cluster.poll().started) == rows(one(3, number=2))


def test_an_inventory_is_all_that_runs_and_all_that_is_not_acknowledged_which_is_told_again(cluster):
    submit_all(cluster)
    start(cluster, one(1))
    cluster.now = 5.0
    start(cluster, one(2))
    cluster.now = 10.0
    first = cluster.poll().ended.attempts
    cluster.take_inventory()
    seen = cluster.poll()
    assert sorted(rows(seen.known)) == sorted([*rows(one(1)), *rows(one(2))])
    assert rows(seen.ended.attempts) == rows(first), "once more"
    assert len(seen.nodes) == 2
    cluster.acknowledge(first)
    cluster.take_inventory()
    seen = cluster.poll()
    assert (rows(seen.known), len(seen.ended.outcome)) == (rows(one(2)), 0)


def test_a_lost_machine_takes_what_runs_on_it_along_and_starts_nothing(cluster):
    submit_all(cluster)
    start(cluster, one(1))
    cluster.poll()
    cluster.lose("n0")
    start(cluster, one(2))
    assert cluster.poll().nodes == [NodeDown("n0")]
    assert cluster.next_event() == np.inf
    cluster.join(cluster.nodes[0], cluster.truth.capacity[0])
    assert cluster.poll().nodes == [NodeUp(cluster.nodes[0])]
    start(cluster, one(2, number=2))
    assert len(cluster.poll().started.job) == 1


def test_the_live_step_drives_it_through_the_loss_of_a_machine(cluster):
    """The scheduler that runs live, with this for an engine: what was lost runs again, and all is done once."""
    journal = Journal(MemoryStore())
    scheduler = Scheduler(journal, cluster, lambda: cluster.now)
    scheduler.step([lambda state, now: [admission.configure(state, [Queue("a")], Settings(), now)]])
    while not scheduler.reconciled or scheduler.more or cluster.next_event() == 0.0:
        scheduler.step()
    for job in range(4):
        cluster.submit(job, 2)
    scheduler.step([lambda state, now: admission.submit(state, [Job("a", {"cpu": 1}, 2)] * 4, now)])
    for moment in range(1, 80):
        cluster.now = float(moment)
        if moment == 4:
            cluster.lose("n1")
        if moment == 20:
            cluster.join(cluster.nodes[1], cluster.truth.capacity[1])
        scheduler.step()
        while scheduler.more or cluster.next_event() <= cluster.now:
            scheduler.step()
    state = scheduler.state
    assert set(state.tasks.status[: state.tasks.n].tolist()) == {SUCCEEDED}
    assert cluster.completed == 8
    assert state.tasks.attempt[: state.tasks.n].max() == 2
    assert not cluster.truth.load.any()
