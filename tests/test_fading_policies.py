"""Policies that look at the past: the numbers that those who run them have published, and what they decide over 20,000 jobs.

Tests whose names end in a case's are of the conformance cases of Slurm, HTCondor and Kueue; see each one's source.
"""

import doctest
import hashlib
import heapq
import itertools
import json
import math
import random
from collections import deque
from fractions import Fraction as F  # noqa: N817 written a hundred times

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.policies import fading, fairtree, htcondor, sdrf
from fairlead.policies.contract import PolicyError
from fairlead.policies.fairtree import TOP
from random_cases import FUZZ

DAY = 86_400.0
times = st.floats(0, 1e7)
half_lives = st.floats(1, 1e7)
amounts = st.floats(0, 1e6)


# -- how usage fades -------------------------------------------------------------------------------------------------


def test_kueue_afs_decay():
    """TestCalculateDecayedConsumedConvergesToUsage, kubernetes-sigs/kueue ff69552e79: 2 CPUs, sampled every 5 minutes."""
    consumed, seen = 0.0, []
    for sample in range(1, 3 * 168 * 12 + 1):
        consumed = fading.average(consumed, 2.0, 300, 168 * 3600)
        assert consumed <= 2
        if sample % (168 * 12) == 0:
            seen.append(consumed)
    assert seen == pytest.approx([1.0, 1.5, 1.75], abs=1e-9)


def test_what_is_smaller_than_a_thousandth_adds_up():
    """The regression beside kueue-afs-decay: one milli-cpu, sampled each second of a day."""
    consumed = 0.0
    for _ in range(86_400):
        consumed = fading.average(consumed, 0.001, 1, DAY)
    assert consumed == pytest.approx(0.0005, rel=1e-9)


@given(amounts, amounts, times, times, half_lives)
def test_an_average_does_not_hang_on_how_time_is_cut(before, used, first, second, half_life):
    whole = fading.average(before, used, first + second, half_life)
    parts = fading.average(fading.average(before, used, first, half_life), used, second, half_life)
    assert parts == pytest.approx(whole, rel=1e-9, abs=1e-9)
    assert min(before, used) - 1e-9 <= whole <= max(before, used) + 1e-9


@pytest.mark.parametrize("half_life", [0, -1, math.inf, -math.inf, math.nan])
def test_a_half_life_by_which_nothing_fades_is_refused(half_life):
    calls = [
        lambda: fading.average(1.0, 2.0, 10, half_life),
        lambda: htcondor.real_priority(1.0, 2.0, 10, half_life),
        lambda: fairtree.usage(1.0, 2.0, 10, half_life),
        lambda: sdrf.commitment(np.zeros(2), np.ones(2), np.ones(2) / 2, 10, half_life),
    ]
    for call in calls:
        with pytest.raises(PolicyError, match=r"half-life of .* turns fairness over time off: write 1 s or more"):
            call()


def test_time_does_not_go_back():
    for call in (lambda: fading.left(-1, DAY), lambda: fairtree.usage(1.0, 1.0, -1), lambda: fading.left(math.nan, DAY)):
        with pytest.raises(PolicyError, match="time does not go back"):
            call()


# -- Slurm's Fair Tree -----------------------------------------------------------------------------------------------


def test_slurm_fairtree_derived_1():
    """SchedMD/slurm 284c3b95f0, fair_tree.c: all users of B before all users of A."""
    tree = ["A", "B", "u1", "u2", "u3", "u4"]
    found = fairtree.rank([TOP, TOP, 0, 0, 1, 1], [40, 60, 1, 1, 1, 1], [60, 40, 50, 10, 40, 0], [0, 0, 1, 1, 1, 1])
    assert dict(zip(tree, found.level, strict=True)) == {
        "A": F(2, 3), "B": F(3, 2), "u1": F(3, 5), "u2": 3, "u3": F(1, 2), "u4": math.inf,
    }  # fmt: skip
    assert found.fairshare[2:] == [F(1, 4), F(1, 2), F(3, 4), 1]
    assert [tree[row] for row in found.order] == ["u4", "u3", "u2", "u1"]


def test_slurm_fairtree_derived_2():
    """SchedMD/slurm 284c3b95f0, fair_tree.c: A and B tie, so their users are ranked together, and u1 and u2 tie."""
    found = fairtree.rank([TOP, TOP, 0, 0, 1, 1], [1] * 6, [50, 50, 25, 25, 10, 40], [0, 0, 1, 1, 1, 1])
    assert found.level == [1, 1, 1, 1, F(5, 2), F(5, 8)]
    assert found.fairshare[2:] == [F(3, 4), F(3, 4), 1, F(1, 4)]


def test_a_user_ties_with_an_account_and_its_first_user():
    """Slurm's documentation, "Ties": the user goes first, and the account's highest ranked user has the same rank."""
    found = fairtree.rank([TOP, TOP, 0, 0], [1, 1, 1, 1], [7, 7, 4, 3], [0, 1, 1, 1])
    assert found.order == [1, 3, 2]
    assert found.fairshare == [0, 1, F(1, 3), 1]


def test_floats_that_are_equal_in_fractions_only_are_no_tie():
    found = fairtree.rank([TOP, TOP, TOP], [1, 1, 1], [0.1 + 0.2, 0.3, 0.3], [1, 1, 1])
    assert found.fairshare == [F(1, 3), 1, 1]


@st.composite
def trees(draw):
    """A tree of up to 12 rows: parents, shares, whole usage of users (what an account used is its children's), who is a user."""
    n = draw(st.integers(1, 12))
    parent, is_user = [], []
    for row in range(n):
        accounts = [TOP, *(k for k in range(row) if not is_user[k])]
        parent.append(draw(st.sampled_from(accounts)))
        is_user.append(draw(st.booleans()))
    used = [draw(st.integers(0, 3)) if each else 0 for each in is_user]
    for row in reversed(range(n)):
        if parent[row] != TOP:
            used[parent[row]] += used[row]
    return parent, draw(st.lists(st.integers(1, 3), min_size=n, max_size=n)), used, is_user


def path_of(row, parent, level, is_user):
    """What decides a user's place, from the top down: the level at each step, and at the end that users go before accounts."""
    path = []
    while row != TOP:
        path.append((-level[row], not is_user[row]))
        row = parent[row]
    return path[::-1]


@given(trees())
def test_ranks_follow_the_levels_from_the_top_down(case):
    """The definition, told without a walk: who is before whom is decided by the first level at which their paths differ."""
    parent, shares, used, is_user = case
    found = fairtree.rank(*case)
    for row, level in enumerate(found.level):
        siblings = [k for k in range(len(parent)) if parent[k] == parent[row]]
        if used[row]:
            assert level == F(shares[row], sum(shares[k] for k in siblings)) / F(used[row], sum(used[k] for k in siblings))
        else:
            assert level == math.inf
    users = [row for row in range(len(parent)) if is_user[row]]
    assert sorted(found.order) == users
    paths = {row: path_of(row, parent, found.level, is_user) for row in users}
    assert [paths[row] for row in found.order] == sorted(paths.values())
    ranks = [found.fairshare[row] * len(users) for row in found.order]
    assert ranks == sorted(ranks, reverse=True)
    for place, (row, rank) in enumerate(zip(found.order, ranks, strict=True)):
        untied = len(users) - place
        before = found.order[place - 1] if place else None
        assert rank == untied or (before is not None and rank == ranks[place - 1]), row
        if before is not None and paths[before] == paths[row]:
            assert rank == ranks[place - 1], "equals in everything have the same rank"


def test_usage_fades_each_period_as_slurm_has_it():
    """priority_multifactor.c: all times (1 - 0.693 / half-life) to the seconds, what was used since the last time as well."""
    left = (1 - 0.693 / 3600) ** 300
    first = fairtree.usage(0.0, 1.0, 300, 3600)
    assert first == pytest.approx(300 * left)
    assert fairtree.usage(first, 1.0, 300, 3600) == pytest.approx(300 * left**2 + 300 * left)
    assert fairtree.usage(1000.0, 0.0, 7 * DAY) == pytest.approx(500, rel=1e-3)
    assert fairtree.usage(np.array([8.0, 0.0]), np.array([0.0, 2.0]), 300, 3600) == pytest.approx([8 * left, 600 * left])


def test_a_tree_that_is_none_is_refused():
    for shares in (0, -1, math.nan):
        with pytest.raises(PolicyError, match=f"row 1 has {shares} shares: write a number above 0"):
            fairtree.rank([TOP, TOP], [1, shares], [0, 0], [1, 1])
    for used in (-1, math.inf, math.nan):
        with pytest.raises(PolicyError, match=f"row 0 used {used}: write 0 or more"):
            fairtree.rank([TOP], [1], [used], [1])
    for parent in ([0], [1, TOP], [-2], [TOP, 0]):
        with pytest.raises(PolicyError, match="its account must come before it"):
            fairtree.rank(parent, [1] * len(parent), [0] * len(parent), [1] * len(parent))


def test_a_tree_of_nobody():
    assert fairtree.rank([], [], [], []).order == []
    assert fairtree.rank([TOP], [1], [0], [0]).order == []


# -- HTCondor's user priorities --------------------------------------------------------------------------------------


def test_htcondor_rup():
    """htcondor/htcondor 7491a145f6, docs/admin-manual/cm-configuration.rst: 10 is 5 a day later, then 2.5; 100 cores for 48 h."""
    assert htcondor.real_priority(10.0, 0.0, DAY) == 5.0
    assert htcondor.real_priority(htcondor.real_priority(10.0, 0.0, DAY), 0.0, DAY) == 2.5
    assert htcondor.real_priority(0.0, 100.0, 2 * DAY) == 75.0
    hourly = 0.0
    for _ in range(48):
        hourly = htcondor.real_priority(hourly, 100.0, 3600)
    assert hourly == pytest.approx(75.0)
    assert htcondor.real_priority(htcondor.FLOOR, 0.0, 30 * DAY) == htcondor.FLOOR


def test_htcondor_eup():
    """htcondor/htcondor 7491a145f6, the same page: EUP 5, 10 and 20; RUP 75 beside .5."""
    assert htcondor.slots([5, 10, 20], 7) == [4, 2, 1]
    assert htcondor.effective_priority(0.5) == 500
    a, b = htcondor.slots([htcondor.effective_priority(75.0), htcondor.effective_priority(0.5)], 151)
    assert (a, b) == (1, 150)


def test_a_newcomer_beside_one_who_had_all_for_two_days():
    """The manual's story: A has less than one core of 100 at once, a handful soon, and in the end a half, as B."""
    a, b, cores_of_a = htcondor.real_priority(htcondor.FLOOR, 100.0, 2 * DAY), htcondor.FLOOR, []
    for _ in range(20 * 24 * 12):
        cores = [float(each) for each in htcondor.slots([a, b], 100)]
        cores_of_a.append(cores[0])
        a, b = htcondor.real_priority(a, cores[0], 300), htcondor.real_priority(b, cores[1], 300)
    assert cores_of_a[0] < 1
    assert 3 < cores_of_a[2 * 12] < 10, "two hours later"
    assert all(x <= y + 1e-9 for x, y in itertools.pairwise(cores_of_a))
    assert 49.9 < cores_of_a[-1] <= 50


def test_what_one_does_not_want_is_divided_by_the_same_rule():
    """The manual: if A does not use what it may be given, the rest is repartitioned by the inverse ratio rule."""
    assert htcondor.slots([5, 10, 20], 7, [1, 9, 9]) == [1, 4, 2]
    assert htcondor.slots([5, 10, 20], 7, [0, 1, 2]) == [0, 1, 2]


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 30)), min_size=1, max_size=8), st.integers(0, 100))
def test_slots_are_a_fixed_point_of_the_inverse_ratio_rule(users, total):
    effective, wanted = zip(*users, strict=True)
    found = htcondor.slots(effective, total, wanted)
    assert sum(found) == min(total, sum(wanted))
    hungry = [i for i in range(len(users)) if found[i] < wanted[i]]
    level = {found[i] * effective[i] for i in hungry}
    assert len(level) <= 1, "whoever wants more has slots in inverse proportion"
    for i in set(range(len(users))) - set(hungry):
        assert found[i] == wanted[i]
        assert all(found[i] * effective[i] <= each for each in level), "nobody who is content has more than the rule gives"


def test_priorities_that_are_none_are_refused():
    for factor in (0, 0.5, -1, math.inf, math.nan):
        with pytest.raises(PolicyError, match=r"a priority factor of .* is not valid: write a number from 1 up"):
            htcondor.effective_priority(1.0, factor)
    for priority in (0, -1, math.inf, math.nan):
        with pytest.raises(PolicyError, match="user 1 has the effective priority"):
            htcondor.slots([1, priority], 10)
    for amount in (-1, math.inf, math.nan):
        with pytest.raises(PolicyError, match=f"{amount} slots are wanted by user 0: write 0 or more"):
            htcondor.slots([1, 1], 10, [amount, 1])
        with pytest.raises(PolicyError, match=f"{amount} slots are available: write 0 or more"):
            htcondor.slots([1, 1], amount)


# -- Stateful DRF ----------------------------------------------------------------------------------------------------

CAPACITY = (40_000, 80_000)
DELTA = 0.9999
USERS = 20
AUTHORS = {
    4_000: "6529a5b6727173dfce97a0bbdecfabbbe977bb4bde02face430fdf253345ea7a",
    20_000: "3dcc4035da0546316113e56e15bcea822e9eaad3062bbd5fbba4c94ad7b39629",
}
"""Sha256 of what the authors' program (hsadok/sdrf f0159ee, `SDRF`, where users bring nothing) started and when, as JSON.

By the number of jobs; of what starts before the last of them comes.
"""


def workload(jobs):
    """Jobs in the order in which they come: (microsecond, user, microseconds that it runs, (cpu, memory)).

    Whole numbers from `random.random`, which is the same everywhere. Users come in bursts, and some much more than others.
    """
    rng, at = random.Random(11), 0
    for _ in range(jobs):
        at += int(-math.log2(1 - rng.random()) * 2_900_000)
        hour = at // 3_600_000_000
        user = int(rng.random() ** 2 * USERS) if rng.random() < 0.4 else (hour * 7 + int(rng.random() * 3)) % USERS
        runs = 1_000_000 + int(rng.random() ** 4 * 600_000_000)
        heavy = user % 2
        yield (at, user, runs, (100 + int(rng.random() * 2000 * (2 - heavy)), 100 + int(rng.random() * 4000 * (1 + heavy))))


def as_published(jobs, delta):
    """The rules of the authors' simulator (hsadok/sdrf f0159ee), told again: what starts, and when.

    Whoever has the smallest priority starts a task if it fits, and if it does not, nobody does. Of equals the one whose priority
    grows least, then the first by number.
    """
    tau = -1e6 / math.log(delta)
    taken = [[0, 0] for _ in range(USERS)]
    committed, at = [[0.0, 0.0] for _ in range(USERS)], [0] * USERS
    waiting, ends, free, started = [deque() for _ in range(USERS)], [], list(CAPACITY), []

    def over(user, r):
        return max(taken[user][r] - CAPACITY[r] / USERS, 0.0)

    def catch_up(user, now):
        for r in range(2):
            kept = math.exp(-(now - at[user]) / tau)
            committed[user][r] = over(user, r) + (committed[user][r] - over(user, r)) * kept
        at[user] = now

    def key(user, now):
        catch_up(user, now)
        shares = [taken[user][r] / CAPACITY[r] for r in range(2)]
        dominant = 0 if shares[0] > shares[1] else 1
        grows = (over(user, dominant) - committed[user][dominant]) / CAPACITY[dominant]
        return shares[dominant] + max(committed[user][r] / CAPACITY[r] for r in range(2)), grows, user

    def take(user, need, sign, now):
        catch_up(user, now)
        for r in range(2):
            taken[user][r] += sign * need[r]
            free[r] -= sign * need[r]

    def start_all(now):
        while queued := [user for user in range(USERS) if waiting[user]]:
            user = min(queued, key=lambda user: key(user, now))
            job, runs, need = waiting[user][0]
            if any(need[r] > free[r] for r in range(2)):
                return
            waiting[user].popleft()
            take(user, need, 1, now)
            started.append((job, now))
            heapq.heappush(ends, (now + runs, job, user, need))

    def end_until(limit):
        while ends and ends[0][0] <= limit:
            now, _, user, need = heapq.heappop(ends)
            take(user, need, -1, now)
            start_all(now)

    for submit, arrivals in itertools.groupby(enumerate(jobs), key=lambda each: each[1][0]):
        end_until(submit)
        for job, (_, user, runs, need) in arrivals:
            waiting[user].append((job, runs, need))
        start_all(submit)
    end_until(math.inf)
    return started


class ByPolicy:
    """The same jobs, where :mod:`fairlead.policies.sdrf` says who goes next, and how commitments grow and fade."""

    def __init__(self, jobs, half_life):
        self.jobs, self.half_life = jobs, half_life
        self.capacity = np.array(CAPACITY, float)
        self.even = self.capacity / USERS
        self.taken, self.committed = np.zeros((USERS, 2)), np.zeros((USERS, 2))
        self.now, self.started, self.history = 0, [], []

    def until(self, now):
        """Let time pass."""
        if now > self.now:
            elapsed = (now - self.now) / 1e6
            self.history.append((elapsed, self.taken.copy()))
            self.committed = sdrf.commitment(self.committed, self.taken, self.even, elapsed, self.half_life)
            self.now = now

    def run(self):
        coming = deque(enumerate(self.jobs))
        waiting, ends = [deque() for _ in range(USERS)], []
        while coming or ends:
            ended = bool(ends) and (not coming or ends[0][0] <= coming[0][1][0])
            if ended:
                at, job = heapq.heappop(ends)
                self.until(at)
                self.taken[self.jobs[job][1]] -= self.jobs[job][3]
            else:
                self.until(coming[0][1][0])
                while coming and coming[0][1][0] == self.now:
                    job, (_, user, _, _) = coming.popleft()
                    waiting[user].append(job)
            while (job := self.next(waiting)) is not None:
                waiting[self.jobs[job][1]].popleft()
                self.taken[self.jobs[job][1]] += self.jobs[job][3]
                self.started.append((job, self.now))
                heapq.heappush(ends, (self.now + self.jobs[job][2], job))
        return self.started

    def next(self, waiting):
        """The job that starts now; None where nobody waits, or the first's does not fit."""
        order = sdrf.goes_first(self.committed, self.taken, self.even, self.capacity)
        job = next((waiting[user][0] for user in order if waiting[user]), None)
        fits = job is not None and (self.taken.sum(axis=0) + self.jobs[job][3] <= self.capacity).all()
        return job if fits else None


def test_sdrf_decides_as_the_authors_simulator_does():
    """4,000 jobs, in `make fuzz` 20,000, decision for decision; and the authors' own program, on these jobs, decided so too."""
    count = 20_000 if FUZZ else 4_000
    jobs = list(workload(count))
    expected = as_published(jobs, DELTA)
    found = ByPolicy(jobs, sdrf.half_life_of(DELTA)).run()
    assert len(found) == count
    assert found == expected
    early = [each for each in found if each[1] < jobs[-1][0]]
    assert hashlib.sha256(json.dumps(early).encode()).hexdigest() == AUTHORS[count]
    assert sum(at > jobs[job][0] for job, at in found) > count / 2, "there is something to decide"
    some = jobs[:4000]
    fades_at_once = as_published(some, 1e-300)
    assert sum(a != b for a, b in zip(as_published(some, DELTA), fades_at_once, strict=True)) > 2000, "the past matters"


def test_commitments_are_what_the_definition_says():
    """The integral of what was taken beyond the even part, each moment weighed by how far it is away."""
    run = ByPolicy(list(workload(600)), sdrf.half_life_of(DELTA))
    run.run()
    tau, back, integral = -1 / math.log(DELTA), 0.0, np.zeros((USERS, 2))
    for elapsed, taken in reversed(run.history):
        integral += np.maximum(taken - run.even, 0) * (math.exp(-back / tau) - math.exp(-(back + elapsed) / tau))
        back += elapsed
    assert (integral > 0).any()
    assert run.committed == pytest.approx(integral, rel=1e-9, abs=1e-9)


def test_a_resource_that_there_is_nothing_of_is_refused():
    with pytest.raises(PolicyError, match="resource 1 has a capacity that is not above 0: leave it out"):
        sdrf.priority(np.zeros((2, 2)), np.zeros((2, 2)), np.array([1.0, 0.0]))


def test_the_examples_in_the_docstrings():
    for module in (fading, fairtree, htcondor, sdrf):
        assert doctest.testmod(module).failed == 0


def test_without_overuse_sdrf_is_drf():
    """No commitment: by dominant share, then by row."""
    taken = np.array([[2.0, 0], [1, 0], [0, 2], [0, 1]])
    assert sdrf.goes_first(np.zeros((4, 2)), taken, np.array([5.0, 5]), np.array([10.0, 10])).tolist() == [1, 3, 0, 2]


def test_who_overused_goes_after_who_has_more_now():
    committed = np.array([[3.0, 0], [0, 0]])
    taken = np.array([[1.0, 0], [0, 3.0]])
    capacity = np.array([10.0, 10])
    assert sdrf.priority(committed, taken, capacity) == pytest.approx([0.4, 0.3])
    assert sdrf.goes_first(committed, taken, capacity / 2, capacity).tolist() == [1, 0]


def test_of_equals_the_one_that_grows_least_goes_first():
    """Both stand at 0.875; the first's commitment grows, the second's fades."""
    committed, taken = np.array([[1.0, 0], [3, 0]]), np.array([[6.0, 0], [4, 0]])
    capacity = np.array([8.0, 8])
    assert sdrf.priority(committed, taken, capacity).tolist() == [0.875, 0.875]
    assert sdrf.growth(committed, taken, capacity / 2, capacity).tolist() == [0.125, -0.375]
    assert sdrf.goes_first(committed, taken, capacity / 2, capacity).tolist() == [1, 0]


def test_of_equal_shares_the_last_resource_is_the_dominant_one():
    """Which one it is decides who grows: the authors' simulator takes memory, the last."""
    committed, capacity = np.array([[1.0, 2.0]]), np.array([8.0, 8.0])
    assert sdrf.growth(committed, np.array([[6.0, 6.0]]), capacity / 2, capacity).tolist() == [0.0]
    assert sdrf.growth(committed, np.array([[6.1, 6.0]]), capacity / 2, capacity) == pytest.approx([1.1 / 8])


def test_a_delta_that_turns_the_past_off_is_refused():
    assert sdrf.half_life_of(0.5) == 1
    assert 0.5 ** (1 / sdrf.half_life_of(DELTA)) == pytest.approx(DELTA, rel=1e-15)
    for delta in (0, 1, -0.5, 2, math.nan):
        with pytest.raises(PolicyError, match=r"a delta of .* turns the past off"):
            sdrf.half_life_of(delta)
