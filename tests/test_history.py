"""Fair over time: what queues used before is a part of their keys. Stories in virtual time, and the rule against fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.specs import Job, Node, Queue, Settings
from fairlead.scheduler import snapshot
from fairlead.scheduler.decide import decide
from fairlead.scheduler.facts import Configured, JobSubmitted, NodeJoined, TasksFinished, TasksPlaced
from fairlead.scheduler.state import State
from fairlead.simulate.run import simulate
from fairlead.simulate.workload import Jobs
from worlds import same

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


class Story:
    """People with work for ever on one machine, and what they have had of it."""

    def __init__(self, capacity: dict[str, int], queues: list[Queue] | None = None) -> None:
        self.jobs, self.nodes, self.queues = Jobs(), [Node("n", capacity)], queues or []

    def works(self, who: str, demand: dict[str, int], seconds: float, tasks: int, at: float = 0.0) -> None:
        self.jobs.add(at, who, demand, seconds, tasks)

    def run(self, **more) -> None:
        """Have it happen."""
        self.facts = []
        workload = self.jobs.workload("story", self.nodes, self.queues)
        self.who = dict(enumerate(workload.queue, 1))
        self.demand = {job: workload.demands[workload.shape[job - 1]] for job in self.who}
        simulate(workload, record=self.facts.extend, samples=1, **more)

    def served(self, begin: float, end: float) -> dict[str, int]:
        """How many tasks of each ended in a while."""
        found = dict.fromkeys(self.who.values(), 0)
        for fact in self.facts:
            if isinstance(fact, TasksFinished) and begin <= fact.at < end:
                for job in fact.job.tolist():
                    found[self.who[job]] += 1
        return found

    def used(self, begin: float, end: float, resource: str = "cpu") -> dict[str, float]:
        """How many CPUs each had on average."""
        began: dict[tuple[int, int], float] = {}
        found = dict.fromkeys(self.who.values(), 0.0)
        for fact in self.facts:
            if isinstance(fact, TasksPlaced | TasksFinished):
                for task in zip(fact.job.tolist(), fact.index.tolist(), strict=True):
                    if isinstance(fact, TasksPlaced):
                        began[task] = fact.at
                    else:
                        seconds = max(0.0, min(end, fact.at) - max(begin, began[task]))
                        found[self.who[task[0]]] += seconds * self.demand[task[0]][resource]
        return {who: amount / (end - begin) / 1000 for who, amount in found.items()}


def test_who_comes_last_by_name_has_as_much_as_the_others():
    story = Story({"cpu": 2000, "memory": 2**33})
    for k, who in enumerate(("zoe", "bob", "alice")):
        story.works(who, {"cpu": 1000, "memory": 2**26}, 0.3, 2000, at=0.05 * k)
    story.run()
    for begin, end in ((0.0, 30.0), (0.0, 420.0), (390.0, 420.0)):
        served = story.served(begin, end)
        assert max(served.values()) - min(served.values()) <= 2, served


def test_a_weight_counts_among_more_people_than_slots():
    story = Story({"cpu": 2000}, [Queue("ann", weight=10.0), Queue("bob"), Queue("cid")])
    for who in ("ann", "bob", "cid"):
        story.works(who, {"cpu": 1000}, 60.0, 6000)
    story.run()
    used = story.used(0.5 * DAY, 1.5 * DAY)
    assert used["ann"] > 0.99, used
    assert used["bob"] == pytest.approx(used["cid"], rel=0.02)


def test_asking_for_a_little_less_gains_a_little_only():
    story = Story({"cpu": 3000})
    story.works("less", {"cpu": 999}, 100.0, 5000)
    story.works("more", {"cpu": 1000}, 100.0, 5000)
    story.run()
    used = story.used(0.0, 2 * DAY)
    assert abs(used["less"] - used["more"]) < 0.03, used
    without = Story({"cpu": 3000})
    without.works("less", {"cpu": 999}, 100.0, 5000)
    without.works("more", {"cpu": 1000}, 100.0, 5000)
    without.run(history=0.0)
    assert without.used(0.0, DAY)["less"] > 1.99, "the knife's edge that history is there for"


def test_a_newcomer_gets_ahead_for_a_while_and_shuts_nobody_out():
    story = Story({"cpu": 12000})
    week = 7 * DAY
    for who in ("ann", "bob"):
        story.works(who, {"cpu": 1000}, 600.0, 12_000)
    story.works("new", {"cpu": 1000}, 600.0, 6000, at=week)
    story.run()
    first = story.used(week + HOUR, week + 4 * HOUR)
    assert first["new"] > 4.5, first
    assert min(first["ann"], first["bob"]) >= 2.0, first
    later = story.used(week + 5 * DAY, week + 7 * DAY)
    assert max(later.values()) - min(later.values()) < 0.3, later


def test_a_former_hog_among_ten_newcomers_keeps_half_of_what_it_is_entitled_to():
    story = Story({"cpu": 44000})
    story.works("hog", {"cpu": 1000}, 600.0, 80_000)
    for k in range(10):
        story.works(f"new{k}", {"cpu": 1000}, 600.0, 1500, at=7 * DAY)
    story.run()
    for hour in range(1, 24):
        used = story.used(7 * DAY + hour * HOUR, 7 * DAY + (hour + 1) * HOUR)
        assert used["hog"] >= 1.99, (hour, used)
    assert used["hog"] < min(used[f"new{k}"] for k in range(10))


def test_turns_go_by_hours_and_not_by_the_number_of_tasks():
    story = Story({"cpu": 1000})
    story.works("short", {"cpu": 1000}, 10.0, 20_000)
    story.works("long", {"cpu": 1000}, 1000.0, 200)
    story.run()
    used = story.used(0.0, DAY)
    assert used["short"] == pytest.approx(used["long"], rel=0.1), used
    assert story.served(0.0, DAY)["short"] > 50 * story.served(0.0, DAY)["long"]
