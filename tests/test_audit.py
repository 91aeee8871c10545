"""The audit: every checker on allocations that have the property and on ones made to violate it; the paper's Table 2, found."""

import json
import subprocess
from dataclasses import replace
from fractions import Fraction as F  # noqa: N817 written a hundred times

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fairlead
from conftest import FAIRLEAD
from fairlead.audit import PROPERTIES, audit_allocation, audit_policy, search
from fairlead.audit.counterexamples import Case
from fairlead.audit.given import give
from fairlead.audit.properties import search_all
from fairlead.model.problems import Machines
from fairlead.policies.contract import Division
from fairlead.policies.filling import ByFilling
from fairlead.policies.registry import find_policy
from random_cases import cases
from test_policies import paper, problems

make = fairlead.Problem.from_arrays


def held(findings):
    return {f.property: f.holds for f in findings}


def finding(findings, name):
    return next(f for f in findings if f.property == name)


def allocation(problem, *tasks, **more):
    return audit_allocation(problem, dict(zip(problem.users, tasks, strict=True)), **more)


# -- one allocation --------------------------------------------------------------------------------------------------


def test_the_papers_allocation_is_fair():
    found = allocation(paper(), 3, 2)
    assert held(found) == {"sharing-incentive": True, "envy-freeness": True, "pareto-efficiency": True, "gap": None}
    assert "same dominant share, 66.7%" in found[-1].text


def test_who_has_less_than_its_own_part():
    """Half of <9, 18> would give A 9/4 tasks and B 3/2."""
    wronged = finding(allocation(paper(), 2, F(7, 3)), "sharing-incentive")
    assert (wronged.holds, wronged.user, wronged.has, wronged.against) == (False, "A", 2, F(9, 4))
    assert wronged.text == "A has 2 tasks; its own part of everything would give 9/4, 1/4 tasks, 12.5%, more"
    assert finding(allocation(paper(), F(9, 4), F(3, 2)), "sharing-incentive").holds


def test_who_envies_whom():
    """B's <6, 2> would run 1/2 of A's tasks, A's <4, 16> 4/3 of B's."""
    envy = finding(allocation(paper(), 4, 1), "envy-freeness")
    assert (envy.holds, envy.user, envy.other, envy.against) == (False, "B", "A", F(4, 3))
    assert finding(allocation(paper(), 3, 2), "envy-freeness").holds


def test_what_is_left_that_somebody_could_use():
    left = finding(allocation(paper(), 3, F(3, 2)), "pareto-efficiency")
    assert (left.holds, left.user, left.against) == (False, "A", F(33, 8)), "4.5 of 18 GB are left, and A's tasks need 4"
    assert finding(allocation(paper(), F(9, 2), F(0)), "pareto-efficiency").holds
    impossible = finding(allocation(paper(), 9, 9), "pareto-efficiency")
    assert impossible.holds is None
    assert "more cpu than exists" in impossible.text


def test_weights_count():
    """A brought twice as much: two thirds of the CPUs are its own part, and B's third is not envied."""
    problem = make([9], [[1], [1]], weight=[2, 1], users=["A", "B"])
    assert held(allocation(problem, 6, 3)) == {
        "sharing-incentive": True,
        "envy-freeness": True,
        "pareto-efficiency": True,
        "gap": None,
    }
    equal = allocation(problem, F(9, 2), F(9, 2))
    assert (finding(equal, "sharing-incentive").user, finding(equal, "envy-freeness").user) == ("A", "A")
    assert finding(equal, "envy-freeness").against == 9, "B's 9/2, for one who weighs twice as much"


def test_who_has_all_that_it_can_use_is_not_wronged():
    problem = make([9], [[1], [1]], tasks=[2, -1], users=["A", "B"])
    assert all(f.holds for f in allocation(problem, 2, 7)[:3])
    assert finding(allocation(problem, 1, 8), "sharing-incentive").against == 2
    assert finding(allocation(problem, 2, 6), "pareto-efficiency").user == "B"


def test_what_is_promised_is_neither_envied_nor_split():
    problem = make([10], [[1], [1], [1]], guarantee=[[6], [0], [0]], users=["A", "B", "C"])
    assert all(f.holds for f in allocation(problem, 6, 2, 2)[:3])
    assert finding(allocation(problem, 4, 3, 3), "sharing-incentive").user == "A"
    more = allocation(problem, 7, F(3, 2), F(3, 2))
    assert finding(more, "envy-freeness").other == "A"
    assert finding(more, "sharing-incentive").against == 2
    impossible = make([10], [[1], [1]], guarantee=[[6], [6]], users=["A", "B"])
    assert finding(allocation(impossible, 5, 5), "sharing-incentive").holds, "it is scaled down, as for an allocation"
    assert finding(allocation(impossible, 6, 4), "sharing-incentive").user == "B"
    both = make([8, 64], [[1, 2], [1, 2]], guarantee=[[4, 32], [4, 32]], users=["A", "B"])
    assert finding(allocation(both, 8, 0), "sharing-incentive").against == 4, "of cpu it needs less than it is guaranteed"


def test_a_queues_part_is_its_part_of_its_parents():
    problem = make([12], [[1], [1], [1]], users=["A", "B", "C"], queues=["x", "x", "y"])
    assert all(f.holds for f in allocation(problem, 3, 3, 6)[:3])
    assert finding(allocation(problem, 4, 4, 4), "sharing-incentive").user == "C"
    assert finding(allocation(problem, 2, 4, 6), "envy-freeness").other == "B"


def two_kinds():
    """A can use the first machine only, of 6; B both, of 6 and 2."""
    kinds = Machines(np.array([[6.0], [2.0]]), np.array([1, 1]), np.array([[True, False], [True, True]]))
    return make([8], [[1], [1]], users=["A", "B"], machines=kinds)


def test_machines_that_differ():
    fair = audit_policy(two_kinds(), "drf")
    assert [f.holds for f in fair[:5]] == [True, True, True, True, True]
    wasteful = finding(allocation(two_kinds(), 4, 3), "pareto-efficiency")
    assert (wasteful.holds, round(float(wasteful.against), 6)) == (False, 4.0 if wasteful.user == "B" else 5.0)
    uneven = ByFilling("uneven", "", lambda p: p.tasks * 0 + np.arange(1, 2 * len(p.users), 2))
    alone = finding(audit_policy(two_kinds(), uneven), "single-resource")
    assert (alone.holds, alone.user, alone.has, alone.against) == (False, "A", 2, 4), "in fractions"
    less = finding(allocation(two_kinds(), 2, 6), "sharing-incentive")
    assert (less.user, less.against) == ("A", 3)
    assert finding(allocation(two_kinds(), 4, 4), "envy-freeness").holds is None, "whose tasks are where was not said"
    assert finding(allocation(two_kinds(), 7, 1), "pareto-efficiency").holds is None


def test_whole_tasks_are_fair_within_one():
    found = audit_policy(paper(), "drf", discrete=True)
    assert [f.holds for f in found[:3]] == [True, True, True]
    problem = make([10], [[3], [2]], users=["A", "B"])
    assert all(f.holds for f in allocation(problem, 2, 2, discrete=True)[:3])
    assert all(f.holds for f in allocation(problem, 1, 3, discrete=True)[:3]), "apart by A's task, and no more"
    assert finding(allocation(problem, 0, 5, discrete=True), "envy-freeness").user == "A"
    assert finding(allocation(problem, 0, 5, discrete=True), "sharing-incentive").user == "A"
    assert finding(allocation(problem, 1, 2, discrete=True), "pareto-efficiency").user == "A"


@settings(max_examples=cases(25), deadline=None)
@given(problem=problems(), data=st.data())
def test_drf_has_what_it_should_and_loses_it_when_something_is_taken(problem, data):
    """DRF's own allocation passes on any problem; taking a quarter from one who wants more is waste, at the least."""
    problem = problem.exact()
    fair = fairlead.allocate(problem, exact=True)
    found = allocation(problem, *fair.tasks)
    assert all(f.holds for f in found[:3]), [f.text for f in found]
    rich = [i for i in range(len(fair.tasks)) if fair.tasks[i] > 0]
    if rich:
        i = data.draw(st.sampled_from(rich))
        tasks = fair.tasks.copy()
        tasks[i] = tasks[i] * F(3, 4)
        assert finding(allocation(problem, *tasks), "pareto-efficiency").holds is False


@settings(max_examples=cases(25), deadline=None)
@given(problem=problems(), data=st.data())
def test_the_checks_agree_with_their_definitions_written_out(problem, data):
    """Against loops over users and resources that follow the paper's words."""
    problem = problem.exact()
    n, m = problem.demand.shape
    tasks = [F(data.draw(st.integers(0, 12)), 4) for _ in range(n)]
    most, _ = problem.most()

    def worth(i, amounts):
        found = min(amounts[j] / problem.demand[i, j] for j in range(m) if problem.demand[i, j] > 0)
        return found if most[i] < 0 else min(found, most[i])

    weight = problem.weight
    own = [worth(i, [problem.capacity[j] * weight[i, j] / sum(weight[:, j]) for j in range(m)]) for i in range(n)]
    swaps = [
        worth(i, [problem.demand[k, j] * tasks[k] * weight[i, j] / weight[k, j] for j in range(m)]) - tasks[i]
        for i in range(n)
        for k in range(n)
        if i != k
    ]
    found = allocation(problem, *tasks)
    assert finding(found, "sharing-incentive").holds == all(own[i] <= tasks[i] for i in range(n))
    assert finding(found, "envy-freeness").holds == all(swap <= 0 for swap in swaps)
    left = [problem.capacity[j] - sum(problem.demand[i, j] * tasks[i] for i in range(n)) for j in range(m)]
    pareto = finding(found, "pareto-efficiency")
    if min(left) < 0:
        assert pareto.holds is None
    else:
        stuck = [0 <= most[i] <= tasks[i] or any(left[j] == 0 for j in range(m) if problem.demand[i, j] > 0) for i in range(n)]
        assert pareto.holds == all(stuck)


# -- one policy on one case --------------------------------------------------------------------------------------------


def test_the_papers_cases_of_what_policies_lack():
    """Ghodsi et al., NSDI 2011: section 5.1.1 and Theorem 5 for asset fairness, Theorem 6 for CEEI's lie."""
    incentive = finding(audit_policy(make([30, 30], [[1, 3], [1, 1]]), "asset"), "sharing-incentive")
    assert (incentive.holds, incentive.user, incentive.has, incentive.against) == (False, "u1", 12, 15)
    lie = finding(audit_policy(make([100, 100], [[16, 1], [1, 2]]), "ceei"), "strategy-proofness")
    assert (lie.holds, lie.user) == (False, "u0")
    assert lie.against > F(25, 6), "no worse than the paper's lie of <16, 8>"
    bottleneck = finding(audit_policy(make([21, 21], [[3, 2], [4, 1]]), "asset"), "bottleneck")
    assert bottleneck.holds is False
    assert finding(audit_policy(make([21, 21], [[3, 2], [4, 1]]), "drf"), "bottleneck").holds


class Odd:
    """A policy made to lack one thing after another: `tasks` from the problem."""

    name, summary = "odd", ""

    def __init__(self, divide):
        self._divide = divide

    def divide(self, problem):
        return Division(self._divide(problem), None, None)


def test_each_checker_of_a_policy_finds_one_made_to_violate_it():
    drf = find_policy("drf")
    problem = make([12, 12], [[2, 1], [1, 3]], users=["A", "B"])
    greedy = audit_policy(problem, Odd(lambda p: drf.divide(p).tasks * (p.demand[:, 0] / sum(p.demand[:, 0])) / 2))
    assert finding(greedy, "strategy-proofness").holds is False, "who asks for more gets more"
    assert finding(greedy, "single-resource").holds is False
    grudge = Odd(lambda p: drf.divide(p).tasks * F(len(p.users), 4))
    left = finding(audit_policy(problem, grudge), "population-monotonicity")
    assert (left.holds, left.other) == (False, "B" if left.user == "A" else "A")
    shrinking = Odd(lambda p: drf.divide(p).tasks * 6 / sum(p.capacity))
    assert finding(audit_policy(problem, shrinking), "resource-monotonicity").holds is False
    alike = make([12, 12], [[2, 1], [3, 1]], users=["A", "B"])
    assert finding(audit_policy(alike, grudge), "bottleneck").holds is False
    for case in (problem, alike):
        good = held(audit_policy(case, "drf"))
        assert all(good[name] is not False for name in PROPERTIES if name != "resource-monotonicity")


def test_properties_that_say_nothing_about_a_case():
    one = held(audit_policy(make([4, 4], [[1, 2]]), "drf"))
    assert one["population-monotonicity"] is None
    assert held(audit_policy(paper(), "drf"))["bottleneck"] is None
    assert held(audit_policy(two_kinds(), "drf"))["bottleneck"] is None


# -- certainty -----------------------------------------------------------------------------------------------------------


def test_the_bounds_of_ceei_hold_the_papers_fractions():
    found = give(paper().exact(), find_policy("ceei"))
    for low, high, exact in zip(found.low, found.high, (F(45, 11), F(18, 11)), strict=True):
        assert low <= exact <= high
        assert high - low < F(1, 10**6)


@settings(max_examples=cases(37), deadline=None)
@given(problem=problems())
def test_the_bounds_of_ceei_are_narrow_and_right(problem):
    """No proof, or bounds around what Newton's method finds; a proof is mostly found."""
    problem = replace(problem, weight=np.broadcast_to(problem.weight[:, :1], problem.weight.shape)).exact()
    found = give(problem, find_policy("ceei"))
    if found is not None:
        tasks = fairlead.allocate(problem, "ceei").tasks
        assert (found.low.astype(float) <= tasks * (1 + 1e-6) + 1e-9).all()
        assert (found.high.astype(float) >= tasks * (1 - 1e-6) - 1e-9).all()
        assert all(high - low <= F(1, 10**5) * max(1, high) for low, high in zip(found.low, found.high, strict=True))
        used = (problem.demand * found.low[:, None]).sum(axis=0)
        assert all(used <= problem.capacity)


def test_a_proof_is_found_for_most_cases_of_ceei():
    rng = np.random.default_rng(1)
    cases = [make(rng.integers(5, 30, 2), rng.integers(1, 9, (3, 2))).exact() for _ in range(60)]
    assert sum(give(case, find_policy("ceei")) is not None for case in cases) > 50


def test_rounding_is_never_reported_as_unfair():
    """Thirds in decimals: what is short by less than a millionth is not a violation, what is short by more is."""
    problem = make([1, 1], [[3, 1], [3, 1], [3, 1]], users=["A", "B", "C"])
    third = 1 / 9
    assert all(f.holds for f in allocation(problem, third, third, third)[:3])
    assert finding(allocation(problem, third - 1e-3, third, third), "sharing-incentive").user == "A"


# -- search --------------------------------------------------------------------------------------------------------------

LACKING = {
    "asset": {"sharing-incentive", "bottleneck", "resource-monotonicity"},
    "ceei": {"strategy-proofness", "population-monotonicity", "resource-monotonicity"},
    "drf": {"resource-monotonicity"},
}
"""Table 2 of Ghodsi et al., NSDI 2011."""


@pytest.mark.parametrize("policy", LACKING)
def test_the_papers_table_2_is_found_by_search(policy):
    verdicts = {name: search(find_policy(policy), name, cases=70) for name in PROPERTIES}
    assert {name for name, verdict in verdicts.items() if verdict.found} == LACKING[policy]
    for name in LACKING[policy]:
        small = verdicts[name].case
        numbers = [*small.capacity, *(x for row in small.demand for x in row)]
        assert max(numbers) <= 30, "small integers"
        assert len(small.demand) <= 3
    for name in set(PROPERTIES) - LACKING[policy]:
        assert verdicts[name].cases > 50
        assert verdicts[name].lies > 500 or name != "strategy-proofness"


def test_what_the_search_found_is_true_without_the_audit():
    """Asset fairness: divided again, the loser of the shrunk case has less than its half. CEEI: the lie pays."""
    verdict = search(find_policy("asset"), "sharing-incentive", cases=100)
    case = verdict.case.problem()
    tasks = fairlead.allocate(case, "asset", exact=True).tasks
    loser = case.users.index(verdict.found.user)
    half = min(c / len(case.users) / d for c, d in zip(case.capacity, case.demand[loser], strict=True))
    assert tasks[loser] < half
    verdict = search(find_policy("ceei"), "strategy-proofness", cases=100)
    honest, (liar, claimed) = verdict.case.problem(), verdict.case.lie
    lied = replace(verdict.case, demand=(*verdict.case.demand[:liar], claimed, *verdict.case.demand[liar + 1 :])).problem()
    got = fairlead.allocate(lied, "ceei").tasks[liar] * np.array(claimed, float)
    true = honest.demand[liar].astype(float)
    assert min(got / true) > fairlead.allocate(honest, "ceei").tasks[liar] * (1 + 1e-6)


def test_with_users_who_need_nothing_of_a_resource_even_drf_loses_population_monotonicity():
    """Worked by hand: A leaves memory to B, whose CPUs C then lacks: 3/4 before, 2/3 after."""
    case = make([1, 1], [[0, 1], [1, 2], [1, 0]], users=["A", "B", "C"])
    lost = finding(audit_policy(case, "drf"), "population-monotonicity")
    assert (lost.user, lost.other, lost.against, lost.has) == ("C", "A", F(3, 4), F(2, 3))
    assert search(find_policy("drf"), "population-monotonicity", cases=200, zeros=True).found is not None


def test_the_same_seed_gives_the_same_answer_on_any_number_of_cores(monkeypatch):
    def told(verdicts):
        return [{key: value for key, value in v.to_dict().items() if key != "seconds"} for v in verdicts]

    here = [search(find_policy("asset"), name, seed=7, cases=20) for name in PROPERTIES]
    there = search_all(["asset"], seed=7, cases=20)
    assert told(here) == told(there)
    assert told([search(find_policy("asset"), "bottleneck", seed=8, cases=20)]) != told(here[5:6])


def test_a_shrunk_case_cannot_lose_a_user_or_a_unit():
    """Shrunk as far as it goes: no smaller capacity of one resource keeps the violation."""
    verdict = search(find_policy("asset"), "sharing-incentive", cases=100)
    case = verdict.case
    assert len(case.demand) == 2
    for j, capacity in enumerate(case.capacity):
        if capacity > 1:
            smaller = replace(case, capacity=(*case.capacity[:j], capacity - 1, *case.capacity[j + 1 :]))
            assert finding(audit_policy(smaller.problem(), "asset"), "sharing-incentive").holds


def test_a_policy_of_ones_own_is_searched_and_one_that_fails_is_told_of(other_package, monkeypatch):
    folder = other_package(
        "from fairlead.policies.filling import ByFilling\n"
        "def mine():\n"
        "    return ByFilling('mine', 'as many tasks for each', lambda problem: problem.tasks * 0 + 1)\n"
        "def broken():\n"
        "    return ByFilling('broken', '', lambda problem: 1 / 0)\n",
        "mine",
        "broken",
    )
    monkeypatch.setenv("PYTHONPATH", str(folder))
    result = subprocess.run(
        [FAIRLEAD, "properties", "--policy", "mine,broken", "--cases", "30"],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    lines = {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}
    assert lines["mine"].split()[1] == "✗", "equal numbers of tasks are no sharing incentive"
    assert "failed" in lines["broken"]
    assert "ZeroDivisionError" in result.stdout


# -- commands ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def problem_file(tmp_path):
    document = {
        "capacity": {"cpu": 9, "memory": "18Gi"},
        "user": [
            {"name": "A", "demand": {"cpu": 1, "memory": "4Gi"}},
            {"name": "<b>B</b>", "demand": {"cpu": 3, "memory": "1Gi"}},
        ],
    }
    (tmp_path / "problem.json").write_text(json.dumps(document))


@pytest.fixture
def call(command, problem_file):
    return command


def test_the_audit_of_policies(call, tmp_path):
    found = json.loads(call("audit", "problem.json", "-p", "drf,ceei", "--json").stdout)["results"]
    lacking = [{f["property"] for f in each["findings"] if f["holds"] is False} for each in found]
    assert lacking == [{"resource-monotonicity"}, {"strategy-proofness", "resource-monotonicity"}]
    lie = next(f for f in found[1]["findings"] if f["property"] == "strategy-proofness")
    assert lie["percent"] > 20
    result = call("audit", "problem.json", "--policy", "ceei", "--report", "out.html")
    assert "✗  strategy-proofness" in result.stdout
    page = (tmp_path / "out.html").read_text()
    assert "&lt;b&gt;B" in page
    assert page.count('<svg class="chart"') == 4, "two violations, each before and after"


def test_the_audit_of_a_file(call, tmp_path):
    (tmp_path / "given.toml").write_text('[tasks]\nA = "9/4"\n"<b>B</b>" = 1\n')
    result = call("audit", "problem.json", "--allocation", "given.toml")
    assert "its own part of everything would give 3/2" in " ".join(result.stdout.split())
    (tmp_path / "out.json").write_text(call("allocate", "problem.json", "--json").stdout)
    assert "✗" not in call("audit", "problem.json", "--allocation", "out.json").stdout
    (tmp_path / "whole.json").write_text('{"tasks": {"A": 3, "<b>B</b>": 2}}')
    assert "✗" not in call("audit", "problem.json", "--allocation", "whole.json", "--discrete").stdout


def test_the_table_and_a_counterexample(call, tmp_path):
    result = call("properties", "-p", "asset", "--cases", "40", "--report", "out.html")
    row = next(line for line in result.stdout.splitlines() if line.startswith("asset"))
    assert [cell[0] for cell in row.replace("✓ ", "✓").split()[1:]] == list("✗✓✓✓✓✗✓✗")
    assert max(map(len, result.stdout.splitlines())) <= 100
    assert 'href="#asset/bottleneck"' in (tmp_path / "out.html").read_text()
    shown = call("properties", "--show", "asset/sharing-incentive", "--cases", "40").stdout
    assert shown.startswith("asset/sharing-incentive: ")
    assert "capacity  " in shown
    assert "none found in 40 cases" in call("properties", "--show", "drf/envy-freeness", "--cases", "40").stdout
    found = json.loads(call("properties", "-p", "drf", "--cases", "40", "--json").stdout)["properties"]
    assert [each["holds"] for each in found] == [True] * 7 + [False]


@pytest.mark.parametrize(
    ("arguments", "status", "wrong"),
    [
        (["audit"], 2, "audit what? Name a problem file, --live, or --over with a period"),
        (["audit", "problem.json", "--live"], 2, "audit one thing at a time: a problem file, --live, or --over with a period"),
        (["audit", "--live", "--report", "out.html"], 2, "--report: has no effect with --live: omit it"),
        (["audit", "--over", "1d", "--lies", "3"], 2, "--lies: has no effect with --over: omit it"),
        (["audit", "problem.json", "--all"], 2, "--all: has no effect with a problem file: omit it"),
        (["audit", "problem.json", "--allocation", "few.json", "-p", "drf"], 2, "--policy: has no effect with --allocation"),
        (["audit", "none.toml"], 1, "none.toml: cannot be read"),
        (["audit", "problem.json", "-p", "fair"], 2, "there is no policy 'fair'"),
        (["audit", "problem.json", "-p", "ceei", "--discrete"], 1, "leave out discrete"),
        (["audit", "problem.json", "--allocation", "problem.json"], 1, "no allocation: use the output"),
        (["audit", "problem.json", "--allocation", "odd.json"], 1, "'much' is not a number of tasks"),
        (["audit", "problem.json", "--allocation", "few.json"], 1, "user '<b>B</b>' has no number"),
        (["audit", "problem.json", "--allocation", "many.json"], 1, "the problem has no user 'C'"),
        (["audit", "problem.json", "--report", "nowhere/out.html"], 1, "nowhere/out.html: cannot be written"),
        (["properties", "--show", "asset"], 2, "write POLICY/PROPERTY"),
        (["properties", "--show", "asset/fair"], 2, "there is no property 'fair'"),
        (["properties", "--show", "fair/bottleneck"], 2, "there is no policy 'fair'"),
        (["properties", "-p", "fair"], 2, "there is no policy 'fair'"),
        (["properties", "--show", "drf/bottleneck", "-p", "drf"], 2, "--policy: has no effect with --show"),
    ],
)
def test_wrong_input_is_one_line(call, tmp_path, arguments, status, wrong):
    (tmp_path / "odd.json").write_text('{"tasks": {"A": "much", "<b>B</b>": 2}}')
    (tmp_path / "few.json").write_text('{"tasks": {"A": 1}}')
    (tmp_path / "many.json").write_text('{"tasks": {"A": 1, "<b>B</b>": 2, "C": 3}}')
    result = call(*arguments)
    assert result.returncode == status
    assert wrong in result.stderr
    assert result.stderr.count("\n") == 1


def test_an_audit_and_wrong_input_in_a_process_of_their_own(tmp_path, problem_file):
    found, refused = (
        subprocess.run([FAIRLEAD, "audit", name], capture_output=True, text=True, cwd=tmp_path, timeout=100, check=False)
        for name in ("problem.json", "none.toml")
    )
    assert (found.returncode, found.stderr) == (0, "")
    assert "✗  resource-monotonicity" in found.stdout
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == "fairlead: none.toml: cannot be read: No such file or directory\n"


def test_a_case_is_a_problem():
    case = Case((9, 18), ((1, 4), (3, 1)), (-1, 2), (1, 2), ("", "x"))
    problem = case.problem()
    assert (problem.resources, problem.users, problem.queues) == (("cpu", "memory"), ["A", "B"], ["", "x"])
    assert fairlead.allocate(problem, exact=True).tasks.tolist() == [F(3), F(2)]
