"""Simulated frameworks: what becomes of a workload when its tasks are launched in offers."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import forked
from fairlead.model.specs import Node, Queue, Settings
from fairlead.policies.contract import PolicyError
from fairlead.scheduler.facts import OffersMade, TasksRevoked
from fairlead.simulate.measure import summary
from fairlead.simulate.offers import Answers, parse_answers
from fairlead.simulate.report import runs_text
from fairlead.simulate.run import simulate
from fairlead.simulate.workload import Jobs, TraceError, synthetic_nodes
from random_cases import cases
from test_simulate import two_users, workloads
from worlds import check_invariants

AT_ONCE = Answers(hold=0.0)


def test_offers_that_are_fine_and_answered_at_once_place_as_the_scheduler_does():
    direct = simulate(two_users())
    fine = simulate(two_users(), offers=AT_ONCE._replace(most=25.0))
    assert fine.ended.tolist() == direct.ended.tolist() == [30.0, 40.0]
    assert fine.offers["made"] == fine.offers["accepted"] == 16
    whole = simulate(two_users(), offers=AT_ONCE)
    assert whole.ended.tolist() == [30.0, 40.0] or whole.ended.tolist() == [20.0, 40.0]


def test_what_is_thought_about_lies_idle_and_what_was_refused_is_not_offered():
    """A machine of 4 CPUs: A takes 3 after two seconds and refuses one, which B is offered, who thinks as long."""
    jobs = Jobs()
    jobs.add(0.0, "A", {"cpu": 3000}, 10.0, 1)
    jobs.add(0.0, "B", {"cpu": 1000}, 10.0, 1)
    run = simulate(jobs.workload("w", synthetic_nodes(1, "cpu=4"), []), offers=Answers(hold=2.0))
    assert run.begun.tolist() == [2.0, 4.0]
    assert run.ended.tolist() == [12.0, 14.0]
    assert run.offered == {"cpu": 2 * 4000 + 2 * 1000}
    told = summary(run)
    assert told["offered"]["cpu"] == pytest.approx(10 / (4 * 14))
    assert re.search(r"offered, not answered +17.86%\noffers made +2\noffers accepted +2\n", runs_text([told]))


def test_who_hoards_keeps_others_waiting_until_offers_expire():
    """A has nothing to do from 1 on, and keeps what it is offered all the same."""
    jobs = Jobs()
    jobs.add(0.0, "A", {"cpu": 1000}, 1.0, 1)
    jobs.add(5.0, "B", {"cpu": 3000}, 10.0, 1)
    workload = jobs.workload("w", synthetic_nodes(1, "cpu=4"), [])
    begun = {
        (hoards, only): simulate(workload, offers=Answers(only, 0.0, 0.5, hoards, 60.0)).begun[1]
        for hoards in (False, True)
        for only in (None, frozenset({"A"}))
    }
    assert begun[False, None] == begun[False, frozenset({"A"})] == 5.0
    assert begun[True, None] > 50.0
    assert begun[True, frozenset({"A"})] > 50.0, "a job of a queue waits for offers as well"


def test_a_task_that_is_revoked_is_launched_again():
    jobs = Jobs()
    jobs.add(0.0, "A", {"cpu": 1000}, 100.0, 4)
    jobs.add(10.0, "B", {"cpu": 1000}, 5.0, 2)
    queues = [Queue("A"), Queue("B", guarantee={"cpu": 2000}, guarantee_timeout=5.0)]
    revoked = []

    def watch(_, facts):
        revoked.extend(fact for fact in facts if isinstance(fact, TasksRevoked))

    run = simulate(jobs.workload("w", synthetic_nodes(1, "cpu=4"), queues), offers=Answers(frozenset({"A"})), watch=watch)
    assert run.revoked == sum(len(fact.job) for fact in revoked) == 2
    assert run.completed == 6
    assert run.lost > 0
    assert run.ended[1] < 50 < 100 < run.ended[0]


def larger(workload):
    """In amounts that are worth an offer, without gangs and dependencies."""
    demands = [{name: 100 * amount for name, amount in demand.items()} for demand in workload.demands]
    nodes = [Node(n.name, {name: 100 * c for name, c in n.capacity.items()}, n.labels) for n in workload.nodes]
    return replace(workload, demands=demands, nodes=nodes, gang=np.zeros_like(workload.gang), after={})


@settings(max_examples=cases(13), deadline=None)
@given(
    workload=workloads().map(larger),
    policy=st.sampled_from(["drf", "fifo", "mesos"]),
    only=st.sampled_from([None, ["a/x"], ["a/x", "b"]]),
    times=st.sampled_from([(0.0, 2.0), (1.0, 0.0), (1.0, 2.0), (7.0, 2.0)]),
    hoards=st.booleans(),
    most=st.sampled_from([None, 60.0]),
)
def test_each_task_ends_once_whoever_launches_it(workload, policy, only, times, hoards, most):
    names = None if only is None else frozenset(only) & {*workload.queue}
    answers, offered = Answers(names, *times, hoards, 10.0, most), set()

    def watch(state, facts):
        check_invariants(state)
        for fact in facts:
            for offer in fact.offers if isinstance(fact, OffersMade) else []:
                offered.add(offer.role)

    run = simulate(workload, policy, settings=Settings(idle_budget=0.02), history=2.0, watch=watch, offers=answers)
    assert offered <= (names if names is not None else {*workload.queue})
    total = int(workload.tasks[~run.refused].sum())
    left = workload.tasks[~run.refused & np.isnan(run.ended)].sum()
    assert run.completed + run.withdrawn <= total <= run.completed + run.withdrawn + left
    if most is None and not hoards:
        assert run.completed == total
    again = simulate(workload, policy, settings=Settings(idle_budget=0.02), history=2.0, offers=answers)
    assert summary(run) | {"seconds": 0} == summary(again) | {"seconds": 0}


def test_what_cannot_be_launched_in_offers_is_refused():
    def refused(why, kind=TraceError, queue="A", policy="drf", only=None, after=(), **more):
        jobs = Jobs()
        jobs.add(0.0, queue, more.pop("demand", {"cpu": 1000}), 1.0, 2, **more)
        if after:
            jobs.add(0.0, queue, {"cpu": 1000}, 1.0, 1, after=after)
        workload = jobs.workload("w", synthetic_nodes(1, "cpu=4,gpu=4"), [])
        with pytest.raises(kind, match=why):
            simulate(workload, policy, offers=Answers(only))

    refused("queue 'A' has gangs, and an offer is of one machine: leave it out", gang=True)
    refused("queue 'A' has job dependencies", after=[0])
    refused("no job is in queue 'X'", only=frozenset({"X"}))
    refused("queue 'a b' cannot be a role", queue="a b")
    refused("no machine has cpu or memory", policy="slots:2")
    refused("easy: makes no offers", kind=PolicyError, policy="easy")
    for text, why in (
        ("hord", "'hord': write hold=1s"),
        ("hold=0,refuse=0", "not both 0"),
        ("timeout=0", "use less than timeout"),
        ("most=0%", "write more than 0%"),
    ):
        with pytest.raises(ValueError, match=why):
            parse_answers("all", text)
    assert parse_answers("A,B", "hold=2min,hoard,most=25%,timeout=1h") == Answers(frozenset("AB"), 120.0, 5.0, True, 3600.0, 25.0)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        (
            ["--offers", "all", "--framework", "refuse=x"],
            '--framework: \'x\' is not a duration: write seconds, or "30s", "5min", "2h", "1d", "1:30:00"',
        ),
        (["--framework", "hoard"], "--framework hoard: needs --offers, or none are made: add --offers all or queue names"),
    ],
)
def test_the_command_says_what_is_wrong(options, wrong):
    done = forked.run(["simulate", "examples/trace.csv", "--nodes", "4", *options])
    assert (done.returncode, done.stderr) == (2, f"fairlead: {wrong}\n")
