"""Queues that share by the rules of others over time: what their history is made of, stories in virtual time, what is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.documents import DocumentError, read_configuration
from fairlead.model.specs import Job, Node, Queue, Settings
from fairlead.policies import HALF_LIVES, fairtree, htcondor
from fairlead.policies.contract import PolicyError
from fairlead.policies.registry import find_policy
from fairlead.scheduler import snapshot
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import Configured, JobSubmitted, NodeJoined, TasksFinished, TasksPlaced
from random_cases import cases
from test_history import Story
from worlds import same

HOUR, DAY = 3600.0, 86400.0
CPU, MEMORY = 48_000, 48 * 2**20  # all pieces fit at once


# -- what history is made of -----------------------------------------------------------------------------------------

WEIGHTS = [1.0, 2.0, 3.0, 18.0]
HALF_LIFE = 50.0
pieces = st.tuples(st.integers(0, 800), st.integers(1, 800), st.integers(1, 4), st.integers(1, 4))
lives = st.lists(st.lists(pieces, max_size=4), min_size=3, max_size=3)
"""Of three queues, when each used how much: (begin, how long, cpu, memory), in eighths of a second. A fourth uses nothing."""


def lived(policy, used):
    """A state in which queues used that, and the whole seconds that have passed."""
    state = new_state()
    queues = [Queue("", policy=policy, history=HALF_LIFE), *(Queue(f"q{k}", weight=w) for k, w in enumerate(WEIGHTS))]
    apply(state, Configured(at=0.0, queues=queues, settings=Settings()))
    apply(state, NodeJoined(at=0.0, node=Node("n", {"cpu": CPU, "memory": MEMORY})))
    events = []
    for k, mine in enumerate(used):
        for begin, eighths, cpu, memory in mine:
            job = state.index.last + 1
            apply(state, JobSubmitted(at=0.0, id=job, job=Job(f"q{k}", {"cpu": cpu * 1000, "memory": memory * 2**20})))
            events += [(begin, 0, job), (begin + eighths, 1, job)]
    for at, ends, job in sorted(events):
        columns = {"job": np.array([job]), "index": np.array([0]), "attempt": np.array([1])}
        zero = np.array([0])
        if ends:
            apply(state, TasksFinished(at=at / 8, **columns, outcome=zero, code=zero))
        else:
            apply(state, TasksPlaced(at=at / 8, **columns, node=zero))
    seconds = max((at for at, _, _ in events), default=0) // 8 + 3
    apply(state, JobSubmitted(at=float(seconds), id=state.index.last + 1, job=Job("q0", {"cpu": 1})))
    return state, seconds


def mean_by_definition(mine, seconds, tick, left, beyond):
    """Tick for tick: what was used beyond something, on average over the tick, and what is left of the mean before."""
    mean = np.zeros(2)
    eighths = np.zeros((seconds * 8, 2))
    for begin, long, cpu, memory in mine:
        eighths[begin : begin + long] += (cpu * 1000, memory * 2**20)
    for k in range(int(seconds // tick)):
        now = np.maximum(eighths[int(k * tick * 8) : int((k + 1) * tick * 8)] - beyond, 0).mean(axis=0)
        mean = left * mean + (1 - left) * now
    return mean


@pytest.mark.parametrize("policy", sorted(HALF_LIVES))
@settings(max_examples=cases(13), deadline=None)
@given(used=lives)
def test_history_is_what_the_policy_goes_by(policy, used):
    """The mean of what is used; under sdrf, of what is used beyond an even part, by weight, of the whole."""
    state, seconds = lived(policy, used)
    tick, left = (HALF_LIFE, 1 - 0.693 / HALF_LIFE) if policy == "fairtree" else (1.0, 0.5 ** (1 / HALF_LIFE))
    for k, mine in enumerate([*used, []]):
        even = np.array([CPU, MEMORY]) * WEIGHTS[k] / sum(WEIGHTS) if policy == "sdrf" else np.zeros(2)
        expected = mean_by_definition(mine, seconds, tick, left**tick, even)
        row = state.tree.rows[f"q{k}"]
        found = state.queues.mean[row] / 2**12
        rounded = np.array([1000, 2**20]) * (2 * sum(piece[2] + piece[3] for piece in mine) / 2**12 if tick > 1 else 0)
        assert (abs(found - expected) <= 2 + rounded).all(), "in thousandths of a CPU, and bytes; a tick has 4096 moments"
    assert same(snapshot.load(snapshot.dump(state))) == same(state)


def test_history_that_is_made_of_something_else_begins_anew():
    """After a reload: what was used is no commitment; but under another policy that goes by what was used, it stays."""
    state, seconds = lived("htcondor", [[(0, 80, 4, 4)]] * 3)
    queues = [Queue(f"q{k}", weight=w) for k, w in enumerate(WEIGHTS)]
    kept = state.queues.mean.copy()
    for policy, counts in (("drf", True), ("sdrf", False)):
        fact = Configured(at=seconds, queues=[Queue("", policy=policy, history=HALF_LIFE), *queues], settings=Settings())
        apply(state, fact)
        assert kept[state.tree.rows["q0"]].all()
        assert (state.queues.mean == kept).all() == counts
        assert state.queues.mean.any() == counts


# -- stories ---------------------------------------------------------------------------------------------------------


class OneCpuStory(Story):
    """People with tasks of one CPU each on a machine of so many."""

    def __init__(self, cpus, queues=()):
        super().__init__({"cpu": cpus * 1000}, list(queues))

    def works(self, who, seconds, tasks, at=0.0):
        super().works(who, {"cpu": 1000}, seconds, tasks, at)

    def first_served(self, at):
        """Who began how many tasks at a moment or later, in order."""
        return [who for who, begin, *_ in sorted(self.pieces, key=lambda piece: piece[1]) if begin >= at]


def test_htcondor_a_newcomer_beside_one_who_had_all_for_two_days():
    """As the manual tells it: nearly all at once, then in inverse proportion to the priorities, in the end a half each."""
    story = OneCpuStory(10)
    story.works("a", 180.0, 10 * 20 * 24 * 5)
    story.works("b", 180.0, 10 * 20 * 24 * 5, at=2 * DAY)
    story.run("htcondor")
    assert story.used(DAY, 2 * DAY)["a"] == pytest.approx(10)
    assert story.used(2 * DAY + 120, 2 * DAY + 600)["b"] >= 9
    a, b = 10 * 0.75, htcondor.FLOOR
    for hour in range(48):
        cores = [float(each) for each in htcondor.slots([a, b], 10)]
        had = story.used(2 * DAY + hour * HOUR, 2 * DAY + (hour + 1) * HOUR)
        if hour:
            assert had["a"] == pytest.approx(cores[0], abs=0.6), hour
        for _ in range(60):
            cores = [float(each) for each in htcondor.slots([a, b], 10)]
            a, b = htcondor.real_priority(a, cores[0], 60), htcondor.real_priority(b, cores[1], 60)
    assert story.used(6 * DAY, 7 * DAY)["a"] == pytest.approx(5, abs=0.15)


def test_fairtree_an_account_that_had_less_goes_first_with_all_its_users():
    queues = [Queue("phys"), Queue("bio"), *(Queue(name) for name in ("phys/ann", "phys/bob", "bio/cat", "bio/dan"))]
    story = OneCpuStory(10, queues)
    story.works("phys/ann", 300.0, 4000)
    for who in ("bio/cat", "bio/dan", "phys/bob"):
        story.works(who, 300.0, 1000, at=DAY)
    story.run("fairtree")
    after = story.used(DAY + 900, DAY + 5 * HOUR)
    assert after["bio/cat"] + after["bio/dan"] == pytest.approx(10), "all of an account that had nothing, before any of the other"
    assert after["bio/cat"] == pytest.approx(after["bio/dan"], rel=0.1)
    assert story.used(DAY + 900, 1.5 * DAY)["phys/ann"] == 0, "in her own account, bob has had less"


def test_fairtree_serves_in_the_order_of_its_ranks():
    """What was used on the first day decides who is served on the second, as `fairtree.rank` says; it fades as Slurm has it."""
    rng = np.random.default_rng(5)
    names = ["a", "a/u", "a/v", "b", "b/u", "b/v", "c"]
    shares = [3.0, 1.0, 2.0, 2.0, 1.0, 1.0, 1.0]
    parent = [fairtree.TOP, 0, 0, fairtree.TOP, 3, 3, fairtree.TOP]
    is_user = [name in ("c",) or "/" in name for name in names]
    queues = [Queue(name, weight=weight) for name, weight in zip(names, shares, strict=True)]
    for _ in range(6):
        story, used = OneCpuStory(1, queues), np.zeros(len(names))
        at = 0.0
        for k in rng.permutation([1, 2, 4, 5, 6]):
            seconds = 300.0 * rng.integers(1, 40)
            story.works(names[k], seconds, 1, at=at)
            for row in (k, parent[k]) if parent[k] != fairtree.TOP else (k,):
                used[row] += seconds  # fades by far less than what they differ by
            at += seconds
        at = np.ceil((at + 1) / 300) * 300
        for k in (1, 2, 4, 5, 6):
            story.works(names[k], 1.0, 1, at=at)
        order = fairtree.rank(parent, shares, used, is_user).order
        story.run("fairtree", history=3650 * DAY)
        assert story.first_served(at) == [names[row] for row in order]


def test_sdrf_who_took_more_than_an_even_part_goes_later():
    def newcomers_part(policy, **more):
        story = OneCpuStory(10)
        story.works("hog", 120.0, 10 * 30 * 24 * 4)
        story.works("new", 120.0, 10 * 30 * 24, at=2 * DAY)
        story.run(policy, **more)
        return story.used(2 * DAY + 300, 2 * DAY + 3 * HOUR)["new"]

    assert newcomers_part("drf", history=0.0) == pytest.approx(5, abs=0.1)
    assert newcomers_part("sdrf") > 6.5


@pytest.mark.parametrize("policy", sorted(HALF_LIVES))
def test_many_steps_at_once_come_to_the_same_facts(policy):
    queues = [Queue("x"), Queue("x/a", weight=2.0), Queue("x/b"), Queue("y")]
    told = []
    for compiled in (True, False):
        story, rng = OneCpuStory(8, queues), np.random.default_rng(3)
        for k in range(150):
            story.works(["x/a", "x/b", "y"][rng.integers(3)], float(rng.integers(20, 4000)), int(rng.integers(1, 6)), at=k * 90.0)
        told.append(story.run(policy, history=HOUR, compiled=compiled).pieces)
    assert told[0] == told[1]
    assert len(told[0]) > 300


# -- what is refused -------------------------------------------------------------------------------------------------


TREE = '[[queue]]\nname = "/"\npolicy = "{}"\n{}[[queue]]\nname = "a"\n'


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        (TREE.format("sdrf", 'history = "none"\n'), 4, "sdrf counts past use"),
        (TREE.format("fairtree", "") + 'history = "none"\n[[queue]]\nname = "a/b"', 6, "leave history out"),
        (TREE.format("htcondor", 'history = "0s"\n'), 4, "not a half-life"),
        (TREE.format("fairtree:gpu", "") + '[[node]]\nname = "n"\ncapacity = { cpu = 1 }', 3, "no node has any"),
        (TREE.format("sdrf:0.9", ""), 3, "sdrf is written sdrf"),
    ],
)
def test_what_would_turn_fairness_off_is_refused_with_line_and_reason(tmp_path, text, line, says):
    path = tmp_path / "fairlead.toml"
    path.write_text(text)
    with pytest.raises(DocumentError, match=says) as refused:
        read_configuration(path, find_policy)
    assert str(refused.value).startswith(f"{path}:{line}: "), refused.value


def test_a_half_life_may_be_none_below_where_another_policy_goes_by_the_moment(tmp_path):
    path = tmp_path / "fairlead.toml"
    path.write_text(
        '[[queue]]\nname = "/"\npolicy = "htcondor"\n[[queue]]\nname = "a"\nhistory = "none"\n[[queue]]\nname = "a/b"\n'
        '[[queue]]\nname = "c"\npolicy = "fairtree"\nhistory = "2d"\n[[queue]]\nname = "c/d"'
    )
    queues = read_configuration(path, find_policy).queues
    state = new_state()
    apply(state, Configured(at=0.0, queues=queues, settings=Settings()))
    half_lives = {name: state.tree.half_life_of(name) for name in ("", "a", "c")}
    assert half_lives == {"": DAY, "a": 0.0, "c": 2 * DAY}


@pytest.mark.parametrize("policy", sorted(HALF_LIVES))
def test_a_simulation_without_history_is_refused(policy):
    story = OneCpuStory(1)
    story.works("a", 1.0, 1)
    with pytest.raises(PolicyError, match="name a half-life such as 7d, not none"):
        story.run(policy, history=0.0)


def test_a_resource_that_nobody_has_is_refused():
    story = OneCpuStory(1)
    story.works("a", 1.0, 1)
    with pytest.raises(PolicyError, match="fairtree:gpu: unknown resource 'gpu'"):
        story.run("fairtree:gpu")


@pytest.mark.parametrize(("above", "half_life"), [(None, 7 * DAY), (0.0, 7 * DAY), (HOUR, HOUR)])
def test_a_half_life_is_inherited_and_none_above_switches_nothing_off_that_needs_one(above, half_life):
    queues = [Queue("", history=above), Queue("x", policy="fairtree"), Queue("x/y"), Queue("x/y/z"), Queue("w"), Queue("w/*")]
    state = new_state()
    apply(state, Configured(at=0.0, queues=queues, settings=Settings()))
    assert [state.tree.half_life_of(name) for name in ("x", "x/y")] == [half_life] * 2
    assert state.tree.half_life_of("w") == (DAY if above is None else above)
