"""Quantities, and fairlead.toml."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.cards import cards_of, words_of
from fairlead.model.documents import DocumentError, read_configuration
from fairlead.model.quantity import LARGEST, format_quantity, format_share, parse_quantity
from fairlead.model.specs import Queue
from fairlead.policies.registry import find_policy


@pytest.mark.parametrize(
    ("resource", "text", "base"),
    [
        ("cpu", "500m", 500),
        ("cpu", 9, 9000),
        ("cpu", 0.5, 500),
        ("cpu", "0.001", 1),
        ("gpu", "1", 1000),
        ("memory", "4Gi", 4 << 30),
        ("memory", "4GiB", 4 << 30),
        ("memory", "1.5Gi", 3 << 29),
        ("memory", "2G", 2 * 10**9),
        ("memory", "1e3", 1000),
        ("memory", 10**18, 10**18),
        ("licence", "3k", 3_000_000),
        ("disk", "0", 0),
    ],
)
def test_quantities_are_read_as_kubernetes_writes_them(resource, text, base):
    assert parse_quantity(resource, text) == base


@pytest.mark.parametrize(
    ("resource", "text", "says"),
    [
        ("cpu", "-1", "negative"),
        ("cpu", -1, "negative"),
        ("cpu", "x", "not a quantity"),
        ("cpu", "", "not a quantity"),
        ("cpu", "1 2", "not a quantity"),
        ("cpu", True, "not a quantity"),
        ("cpu", None, "not a quantity"),
        ("cpu", float("nan"), "not a quantity"),
        ("cpu", float("inf"), "not a quantity"),
        ("cpu", "0.0001", "finer than one thousandth"),
        ("memory", "500m", "did you mean 500M?"),
        ("memory", "0.5", "finer than one byte"),
        ("memory", "1e99", "too large"),
        ("cpu", 10**18, "too large"),
        ("CPU", "1", "not a resource name"),
    ],
)
def test_wrong_quantities_are_refused_with_the_reason(resource, text, says):
    with pytest.raises(ValueError, match=says.replace("?", r"\?")):
        parse_quantity(resource, text)


@given(st.sampled_from(["cpu", "memory", "gpu"]), st.integers(0, LARGEST - 1))
def test_what_is_written_is_read_back(resource, base):
    assert parse_quantity(resource, format_quantity(resource, base)) == base


GOOD = """
[[queue]]
name = "research"
policy = "fifo"
guarantee = { gpu = 2 }

[[queue]]
name = "research/vision"
weight = { cpu = 1, gpu = 3 }
guarantee = { gpu = 2 }
limit = { cpu = 64, memory = "256Gi" }
max_tasks = 10
max_jobs = 3

[[queue]]
name = "research/*"
weight = 2

[[node]]
name = "n"
count = 3
capacity = { cpu = 9, memory = "18Gi" }
labels = { disk = "ssd" }

[scheduler]
reserve_after = "2min"
"""


@given(st.sets(st.integers(0, 2**16 - 1), max_size=20))
def test_a_set_of_cards_is_read_back_from_words_that_fit_into_int64(cards):
    words = words_of(cards)
    assert cards_of(words) == sorted(cards)
    assert all(0 <= word < 2**63 for word in words)


def test_a_configuration_is_read_whole(tmp_path):
    path = tmp_path / "fairlead.toml"
    path.write_text(GOOD)
    configuration = read_configuration(path, find_policy)
    assert [q.name for q in configuration.queues] == ["research", "research/*", "research/vision"]
    vision = configuration.queues[2]
    assert vision == Queue(
        "research/vision",
        weight={"cpu": 1.0, "gpu": 3.0},
        guarantee={"gpu": 2000},
        limit={"cpu": 64000, "memory": 256 << 30},
        max_jobs=3,
        max_tasks=10,
    )
    assert [n.name for n in configuration.nodes] == ["n-0", "n-1", "n-2"]
    assert configuration.nodes[0].capacity == {"cpu": 9000, "memory": 18 << 30}
    assert configuration.settings.reserve_after == 120


@pytest.mark.parametrize(("text", "seconds"), [("7d", 604800.0), ("90min", 5400.0), ("none", 0.0)])
def test_a_half_life_is_read(tmp_path, text, seconds):
    path = tmp_path / "fairlead.toml"
    path.write_text(f'[[queue]]\nname = "/"\nhistory = "{text}"\n[[queue]]\nname = "a"\n')
    root, leaf = read_configuration(path, find_policy).queues
    assert (root.history, leaf.history) == (seconds, None)


def test_a_queue_that_is_fair_between_its_users_has_a_leaf_for_each(tmp_path):
    path = tmp_path / "fairlead.toml"
    path.write_text('[[queue]]\nname = "lab"\norder = "fair"\nstrict = true\nhistory = "7d"\npolicy = "drf"\n')
    lab, users = read_configuration(path, find_policy).queues
    assert (lab.name, lab.history, lab.strict) == ("lab", 604800.0, False)
    assert users == Queue("lab/*", strict=True, submit=[]), "nobody is named: it is for nobody"
    path.write_text('[[queue]]\nname = "/"\nsubmit = ["ada"]\n[[queue]]\nname = "lab"\norder = "fair"\n')
    assert read_configuration(path, find_policy).queues[-1] == Queue("lab/*"), "for whom it says above"
    path.write_text('[[queue]]\nname = "lab"\norder = "fair"\n[[queue]]\nname = "lab/*"\nmax_jobs = 3\n')
    assert read_configuration(path, find_policy).queues[1] == Queue("lab/*", max_jobs=3)


def test_the_same_document_as_json_is_the_same(tmp_path):
    import json
    import tomllib

    (tmp_path / "a.toml").write_text(GOOD)
    (tmp_path / "a.json").write_text(json.dumps(tomllib.loads(GOOD)))
    one, other = (read_configuration(tmp_path / "a.toml", find_policy), read_configuration(tmp_path / "a.json", find_policy))
    assert (one.queues, one.nodes, one.settings) == (other.queues, other.nodes, other.settings)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[queue]\nname = "a"\n', ":1: queue: write a list: begin each with [[queue]], not [queue]"),
        (
            '[queue]\nname = "a"\n[queue]\nname = "b"\n',
            ":3: not TOML: Cannot declare ('queue',) twice: begin each with [[queue]], not [queue]",
        ),
        ('queue = ["a"]\n', ":1: queue[0]: write a table: begin each with [[queue]]"),
        ("[[bounds]]\nrequests = 3\n", ":1: bounds: write a table: begin it with [bounds], not [[bounds]]"),
        ("[scheduler]\n[scheduler]\n", ":2: not TOML: Cannot declare ('scheduler',) twice"),
    ],
)
def test_a_table_for_a_list_of_tables_and_the_other_way_round_is_refused_with_how_it_begins(tmp_path, text, says):
    path = tmp_path / "fairlead.toml"
    path.write_text(text)
    with pytest.raises(DocumentError) as refused:
        read_configuration(path, find_policy)
    assert str(refused.value) == f"{path}{says}"
    (tmp_path / "a.json").write_text('{"queue": {"name": "a"}}')
    with pytest.raises(DocumentError, match=r"a\.json: queue: write a list$"):
        read_configuration(tmp_path / "a.json", find_policy)


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ('limit = { cpu = 64, memory = "256Gi" }', "limit = { cpu = -1 }", 11, "cpu: -1 is negative"),
        ('limit = { cpu = 64, memory = "256Gi" }', "limit = 3", 11, "write a table"),
        ("weight = 2", "weight = 0", 17, "not a weight"),
        ("weight = 2", "weight = nan", 17, "finite|not a weight"),
        ("weight = 2", "wieght = 2", 17, r"no such key here: did you mean weight\?"),
        ("weight = 2", "page = false", 17, r"no such key here: it stands below \[\[queue\]\]: move it above the first table"),
        ("reserve_after", "operators", 26, r"no such key here: it stands below \[scheduler\]: move it above the first table"),
        ("reserve_after", "policy", 26, r"no such key here: it is a key of \[\[queue\]\]"),
        ("[scheduler]", "[sheduler]", 25, r"sheduler: no such key here: did you mean scheduler\?"),
        ('name = "research/*"', 'name = "research/vision"', 16, "already exists"),
        ('name = "research/*"', 'name = "reserch/x"', 16, "has no parent queue"),
        ('name = "research/*"', 'name = "research/*/x"', 16, "only come last"),
        ('name = "research/*"', 'name = "a b"', 16, "not a queue path"),
        ('policy = "fifo"', 'policy = "lifo"', 4, "there is no policy 'lifo': use one of drf, hdrf"),
        ("weight = 2", 'policy = "drf"', 17, "no queues below it"),
        ('policy = "fifo"', "history = 0", 4, 'history: 0 is not a half-life: write "1d", .*"none", past use does not count'),
        ('policy = "fifo"', 'history = "-1d"', 4, "not a half-life"),
        ('policy = "fifo"', 'history = "0.5s"', 4, "not a half-life"),
        ('policy = "fifo"', 'history = "5000d"', 4, "not a half-life"),
        ('policy = "fifo"', 'history = "never"', 4, 'not a half-life: write "1d", or another from 1 s to 3650d; with "none"'),
        ('policy = "fifo"', "history = true", 4, "not a half-life"),
        ('policy = "fifo"', "strict = true", 4, "has queues below it: set strict in the leaves"),
        ("weight = 2", 'strict = "yes"', 17, "write true or false"),
        ("weight = 2", 'order = "fair"', 17, "leave order out"),
        ("weight = 2", 'order = "fifo"', 17, "'priority' or 'fair'"),
        ("weight = 2", 'history = "1d"', 17, "no queues below it whose past use could count"),
        ("guarantee = { gpu = 2 }\nlimit", "guarantee = { gpu = 3 }\nlimit", 5, "guaranteed 3 gpu"),
        ("limit = { cpu = 64,", "limit = { gpu = 1,", 10, "above its limit"),
        ("max_tasks = 10", "max_tasks = -1", 12, "use [01] or more"),
        ("count = 3", "count = 0", 21, "use [01] or more"),
        ('capacity = { cpu = 9, memory = "18Gi" }', "capacity = { cpu = 0 }", 22, "has no capacity"),
        ('reserve_after = "2min"', 'reserve_after = "soon"', 26, "not a duration"),
        ('reserve_after = "2min"', 'history = "never"', 26, 'not a history: write "90d", or another from 1d to 3650d'),
        ('reserve_after = "2min"', "idle_budget = true", 26, "idle_budget: write a number"),
        ("[[node]]", "[[node]", 19, "not TOML"),
        ("[[node]]", "[node]", 19, r"node: write a list: begin each with \[\[node\]\], not \[node\]$"),
        ("[scheduler]", "[[scheduler]]", 25, r"scheduler: write a table: begin it with \[scheduler\], not \[\[scheduler\]\]$"),
        ("[[queue]]", "[queue]", 7, r"not TOML: Cannot .*: begin each with \[\[queue\]\], not \[queue\]$"),
        ('name = "n"\n', "", 19, "missing"),
    ],
)
def test_a_wrong_configuration_is_refused_with_line_and_reason(tmp_path, old, new, line, says):
    assert old in GOOD
    path = tmp_path / "fairlead.toml"
    path.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(DocumentError, match=says) as refused:
        read_configuration(path, find_policy)
    assert str(refused.value).startswith(f"{path}:{line}: "), refused.value


@pytest.mark.parametrize("port", ['"x"', "0", "99999", "1.5"])
def test_a_wrong_port_of_the_page_is_one_mistake(tmp_path, port):
    path = tmp_path / "fairlead.toml"
    path.write_text(f"page = {port}\n{GOOD}")
    with pytest.raises(DocumentError) as refused:
        read_configuration(path, find_policy)
    assert str(refused.value) == f"{path}:1: page: write true, false, or a port from 1 to 65535"


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0.0%"), (0.123, "12.3%"), (0.0005, "0.1%"), (0.0004, "0.04%"), (4.6e-6, "0.0005%"), (2e-9, "<0.0001%")],
)
def test_a_small_share_does_not_read_as_nothing(share, text):
    assert format_share(share) == text


def test_a_policy_of_the_root_alone_is_refused_with_the_queue_that_is_missing(tmp_path):
    path = tmp_path / "fairlead.toml"
    path.write_text('[[queue]]\nname = "/"\npolicy = "fairtree"\n')
    with pytest.raises(DocumentError, match=r'"/" has no queues below it .*: declare them, or \[\[queue\]\] name = "\*"'):
        read_configuration(path, find_policy)


def test_nodes_that_have_more_together_than_can_be_counted_are_refused(tmp_path):
    path = tmp_path / "fairlead.toml"
    node = '[[node]]\nname = "n"\ncount = 8\ncapacity = { cpu = 4, disk = "1048576Ti" }\n'
    path.write_text(node)
    with pytest.raises(DocumentError, match="too much disk together") as refused:
        read_configuration(path, find_policy)
    assert str(refused.value).startswith(f"{path}:")
    path.write_text(node.replace("8", "3"))
    assert len(read_configuration(path, find_policy).nodes) == 3


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[[queue]]\nname = 1", b"queue = 3"])
def test_what_is_no_configuration_at_all_is_refused_in_a_line(tmp_path, content):
    path = tmp_path / "x.toml"
    path.write_bytes(content)
    with pytest.raises(DocumentError, match=r"x\.toml"):
        read_configuration(path, find_policy)
    with pytest.raises(DocumentError, match="cannot be read"):
        read_configuration(tmp_path / "none.toml", find_policy)


def test_a_url_for_output_has_no_password(tmp_path):
    """It is told to everybody: in `why`, in the log."""
    file = tmp_path / "fairlead.toml"
    file.write_text('output = "ftp://me:secret@host/folder"\n')
    with pytest.raises(DocumentError, match="leave out the password"):
        read_configuration(file, find_policy)
    file.write_text('output = "sftp://me@host/folder"\n')
    assert read_configuration(file, find_policy).output == "sftp://me@host/folder"
