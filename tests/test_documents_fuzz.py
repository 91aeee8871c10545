"""Whatever stands in a document, it is read, or refused in lines that name the place: never a traceback."""

import json
import math
import os
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fairlead.model.documents import DocumentError, read_configuration
from fairlead.model.problems import read_problem
from fairlead.policies.allocation import allocate
from fairlead.policies.contract import PolicyError
from fairlead.policies.registry import find_policy

CASES = max(100, int(os.environ.get("FAIRLEAD_FUZZ", "0")) // 2)

odd = st.sampled_from(
    [
        0, 1, -1, 2.5, True, False, None, "", "4Gi", "500m", "1e3", "1e400", "NaN", "a/b", "a/*", "*", "/", "ä", "\x1b[31m",
        "x" * 5000, 10**18, 2**62, 2**63, 10**30, 1e300, 5e-324, math.inf, math.nan, [], {}, [[]], {"cpu": 1}, {"": 1},
        {"cpu": "x"}, [1], ["a"],
    ]
)  # fmt: skip
amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "gpu", "CPU", ""]), st.integers(0, 9) | odd, max_size=3)
anything = st.recursive(odd, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2))


def table(**keys):
    """A table of a document with most of its keys, in which any may be odd."""
    return st.fixed_dictionaries({}, optional={name: right | odd for name, right in keys.items()} | {"odd": odd})


names = st.sampled_from(["A", "B", "a/b", "c"])
demand = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.integers(1, 5), min_size=1)
user = table(
    name=names, demand=demand, tasks=st.integers(0, 9), weight=st.floats(0.1, 9), guarantee=amounts, limit=amounts,
    priority=st.integers(-3, 3), queue=names, on=st.dictionaries(st.just("zone"), st.sampled_from(["a", "b"]), max_size=1),
)  # fmt: skip
good_user = st.fixed_dictionaries({"name": names, "demand": demand}, optional={"weight": st.floats(0.1, 9) | odd, "tasks": odd})
node = table(
    name=names, count=st.integers(1, 3), capacity=demand, labels=st.dictionaries(st.just("zone"), st.just("a"), max_size=1)
)
queue = table(
    name=names, weight=st.floats(0.1, 9), guarantee=amounts, limit=amounts, max_jobs=st.integers(0, 3), policy=st.just("drf"),
    history=st.just("1d"), submit=st.just(["*"]), private=st.booleans(),
)  # fmt: skip
problems = st.fixed_dictionaries(
    {"user": st.lists(good_user | user, max_size=3) | anything},
    optional={"capacity": demand | amounts | anything, "node": st.lists(node, max_size=2) | anything, "odd": odd},
)
bounds = st.dictionaries(st.sampled_from(["jobs", "requests"]), odd, max_size=1)
configurations = st.fixed_dictionaries(
    {},
    optional={
        "queue": st.lists(queue, max_size=3) | anything,
        "node": st.lists(node, max_size=2) | anything,
        "scheduler": st.dictionaries(st.sampled_from(["reserve_after", "max_losses", "keep_jobs"]), odd, max_size=2) | anything,
        "operators": st.just(["ada"]) | anything,
"bounds": st.dictionaries(names, bounds, max_size=1) | anything,
    },
)  # fmt: skip


def test_what_may_be_of_several_kinds_is_wrong_in_one_line(tmp_path):
    path = tmp_path / "fairlead.toml"
    path.write_text('[[queue]]\nname = "a"\nweight = { cpu = "x" }\n')
    with pytest.raises(DocumentError) as refused:
        read_configuration(path, find_policy)
    assert str(refused.value) == f"{path}:3: queue[0].weight.cpu: write a number"
    path.write_text('[[queue]]\nname = "a"\nmax_jobs = -1\norder = "x"\n')
    with pytest.raises(DocumentError) as refused:
        read_configuration(path, find_policy)
    assert str(refused.value).splitlines() == [
        f"{path}:3: queue[0].max_jobs: use 0 or more", f"{path}:4: queue[0].order: write 'priority' or 'fair'"
    ]  # fmt: skip


def said(read, document, folder):
    """The message of a refusal; None where the document is taken. Whatever else is raised is a fault."""
    path = folder / "document.json"
    path.write_text(json.dumps(document))
    try:
        return None, read(path)
    except (DocumentError, PolicyError) as error:
        return str(error), None


def check(message):
    for line in message.splitlines():
        assert len(line) < 1000, line
        assert line.startswith(("(and ", "/")), line
        assert "should be" not in line
        assert "should have" not in line
        assert "Traceback" not in line


long = settings(max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck))


@long
@given(problems)
@example({"capacity": {"cpu": 9}, "user": [{"name": "A", "demand": {"cpu": 1}, "tasks": 10**400}]})
def test_a_problem_is_read_or_refused_in_lines_that_name_the_place(tmp_path_factory, document):
    message, problem = said(read_problem, document, tmp_path_factory.getbasetemp())
    if message is not None:
        check(message)
        return
    message, found = said(lambda path: allocate(problem, "drf"), document, tmp_path_factory.getbasetemp())
    if message is not None:
        assert len(message.splitlines()) == 1
    else:
        assert all(tasks >= 0 for tasks in found.tasks.tolist())


@long
@given(configurations)
def test_a_configuration_is_read_or_refused_in_lines_that_name_the_place(tmp_path_factory, document):
    message, _ = said(lambda path: read_configuration(path, find_policy), document, tmp_path_factory.getbasetemp())
    if message is not None:
        check(message)


RIGHT = 'capacity = { cpu = 9 }\n[[user]]\nname = "A"\ndemand = { cpu = 1 }\n'
WRONG = {
    "digits": (f"capacity = {{ cpu = {'9' * 5000} }}\n", ":1: a number has more digits than can be read"),
    "many tasks": (RIGHT + f"tasks = {'9' * 400}\n", "user[0].tasks"),
    "tasks as text": (RIGHT + 'tasks = "2"\n', ":5: user[0].tasks: write a number"),
    "half a task less": (RIGHT + "tasks = -0.5\n", "is not a number of tasks"),
    "a weight as text": (RIGHT + 'weight = "2"\n', ":5: user[0].weight: write a number"),
    "tasks that are none": (RIGHT + "tasks = nan\n", ":5: user[0].tasks: write a finite number"),
    "a weight that is true": (RIGHT + "weight = true\n", ":5: user[0].weight: write a number"),
    "a weight of nothing": (RIGHT + "weight = { gpu = 2 }\n", ":5: user[0].weight: there is no 'gpu' to weigh: use cpu"),
    "a queue for all": (RIGHT + 'queue = "a/*"\n', ":5: user[0].queue: 'a/*': a user of a problem is in one queue"),
    "a deep queue": (RIGHT + f'queue = "{"/".join("a" * 1000)}"\n', "a queue path of 1000 levels: use at most 100"),
    "a name that steers": (RIGHT.replace('"A"', '"A\\u001b[31m"'), "has characters that cannot be printed"),
    "a long value": (RIGHT.replace("cpu = 1", f'cpu = "{"x" * 100_000}"'), "is not a quantity"),
    "too fine": (RIGHT.replace("cpu = 9", 'memory = "1.00000000000000000000000000001Gi"'), "is finer than one byte"),
    "nothing": ("capacity = {}\n" + RIGHT.partition("\n")[2], "there is nothing to share: name a resource"),
    "a table": ("capacity = { cpu = 9 }\n[user]\n", ":2: user: write a list: begin each with [[user]], not [user]"),
    "no list": ("capacity = { cpu = 9 }\nuser = 3\n", ":2: user: write a list"),
    "nowhere": (
        '[[node]]\nname = "n"\ncapacity = { cpu = 9 }\n[[user]]\nname = "A"\ndemand = { cpu = 1 }\non = { zone = "b" }\n',
        ":7: user[0].on: no [[node]] has these labels",
    ),
    "two nodes": ('[[node]]\nname = "n"\ncapacity = { cpu = 9 }\n' * 2 + RIGHT.partition("\n")[2], "a node 'n' already exists"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_was_taken_or_raised_is_refused_with_its_place(tmp_path, what):
    text, expected = WRONG[what]
    path = tmp_path / "problem.toml"
    path.write_text(text)
    with pytest.raises(DocumentError) as error:
        read_problem(path)
    assert expected in str(error.value)
    assert str(error.value).startswith(f"{path}:")
    assert len(str(error.value).splitlines()[0]) < 600
    assert len(str(error.value).splitlines()) == 1


def test_a_byte_order_mark_is_no_matter_and_a_key_twice_is(tmp_path):
    path = tmp_path / "problem.toml"
    path.write_text(RIGHT, "utf-8-sig")
    assert tomllib.loads(RIGHT)
    assert read_problem(path).users == ["A"]
    path = tmp_path / "problem.json"
    for text, place in (
        ('{"capacity": {"cpu": 9, "cpu": 5}, "user": []}', "capacity.cpu"),
        ('{"user": [{"name": "A"}, {"name": "B", "demand": {"cpu": 1}, "d\\u0065mand": {}}]}', "user[1].demand"),
        ('{"user": [], "user": []}', "user"),
    ):
        path.write_text(text)
        with pytest.raises(DocumentError) as error:
            read_problem(path)
        assert str(error.value) == f"{path}: {place}: is given twice: keep one of them"


@pytest.mark.parametrize("price", ["1e999", "0", "-1", "nan", "1e-400"])
def test_a_price_is_a_number_that_can_be_reckoned_with(price):
    with pytest.raises(PolicyError, match="asset: 'cpu="):
        find_policy(f"asset:cpu={price}")


@pytest.mark.parametrize("depth", [99])
@pytest.mark.parametrize("policy", ["drf", "hdrf", "naive", "collapsed"])
def test_as_deep_as_queues_may_be_all_policies_divide(policy, depth):
    document = {"capacity": {"cpu": 9}, "user": [{"name": "A", "demand": {"cpu": 1}, "queue": "/".join("q" * depth)}]}
    assert allocate(read_problem(document), policy).tasks.tolist() == [9]


@pytest.mark.parametrize(
    "words",
    ["simulate t.csv --nodes 2", "sweep t.csv --nodes 2 --out o", "audit t.csv", "properties", "audit --over 1h --journal t.csv"],
)
def test_a_report_is_never_written_over_what_is_no_page(command, words):
    Path("t.csv").write_text("mine")
    refused = command(*words.split(), "--report", "t.csv")
    assert refused.stderr == "fairlead: --report t.csv: writes HTML: name a file that ends in .html\n"
    assert (refused.returncode, Path("t.csv").read_text()) == (2, "mine")


def test_a_page_is_written_to_what_a_browser_opens(command):
    Path("problem.toml").write_text(RIGHT)
    refused = command("allocate", "problem.toml", "--plot", "x.txt")
    assert refused.stderr == "fairlead: --plot x.txt: writes HTML: name a file that ends in .html\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("submit,duration,cpu,gang\n0,1,1,yes\n", ":2: gang: write true or false, not 'yes'"),
        ("submit,duration,cpu,tasks\n0,1,1,2.7\n", ":2: tasks: write a whole number, not '2.7'"),
        ("submit,duration,cpu,tasks\n0,1,1,1_0\n", ":2: tasks: write a number, in the digits 0 to 9, not '1_0'"),
        ("submit,duration,cpu\n０,1,1\n", ":2: submit: write a number, in the digits 0 to 9, not '０'"),
        ("submit,duration,cpu\n0,1,1_0\n", ":2: cpu: '1_0' is not a quantity"),
        ("submit,duration,cpu\n0,1,1,9\n", ":2: has more cells than the first line"),
        ("submit;duration;cpu\n0;1;1\n", ":1: has semicolons between its cells: write commas"),
        ("submit,duration,cpu,weight\n0,1,1,2\n", ":1: weight: is neither a resource"),
        ("submit,duration,cpu,queue\n0,1,1,a/*\n", ":2: queue: 'a/*': a job is in one queue"),
        ("submit,duration,cpu,cpu\n0,1,1,1\n", ":1: there are two columns 'cpu': keep one of them"),
        (f"submit,duration,cpu,tasks\n0,1,1,{'9' * 5000}\n", " ... "),
    ],
)
def test_a_trace_says_where_it_is_wrong(tmp_path, text, expected):
    from fairlead.simulate.traces import TraceError, read_trace

    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(TraceError) as error:
        read_trace(path)
    assert expected in str(error.value)
    assert len(str(error.value)) < 600
    path.write_text("\ufeffsubmit,duration,cpu\n0,1,1\n", "utf-8")
    assert len(read_trace(path).submit) == 1
    with pytest.raises(TraceError, match="is a folder without openb_pod_list_default"):
        read_trace(tmp_path)
