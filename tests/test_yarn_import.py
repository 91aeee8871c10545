"""fairlead import yarn, and fairlead diff: what a fair-scheduler.xml becomes, and who gains by another configuration."""

import json
import re
import tomllib
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.imports.yarn import import_yarn
from fairlead.imports.yarn_amounts import read_amounts, read_people
from fairlead.model.documents import DocumentError, read_configuration
from fairlead.model.quantity import Percent
from fairlead.policies.registry import find_policy
from random_cases import cases
from test_yarn import CASES

ALLOCATIONS = """<?xml version="1.0"?>
<allocations>
  <queue name="queueA"><minResources>1024mb,0vcores</minResources><maxResources>2048mb,10vcores</maxResources></queue>
  <queue name="queueB">
    <minResources>2048mb,0vcores</minResources><maxResources>5120mb,110vcores</maxResources>
    <aclAdministerApps>alice,bob admins</aclAdministerApps><schedulingPolicy>fair</schedulingPolicy>
  </queue>
  <queue name="queueC"><minResources>5120mb,0vcores</minResources><aclSubmitApps>alice,bob admins</aclSubmitApps></queue>
  <queue name="queueD"><maxRunningApps>3</maxRunningApps><maxAMShare>0.4</maxAMShare></queue>
  <queue name="queueE"><minSharePreemptionTimeout>60</minSharePreemptionTimeout></queue>
  <queue name="queueF" type="parent"><maxChildResources>2048mb,64vcores</maxChildResources></queue>
  <queue name="queueG">
    <maxChildResources>2048mb,64vcores</maxChildResources>
    <fairSharePreemptionTimeout>120</fairSharePreemptionTimeout>
    <minSharePreemptionTimeout>50</minSharePreemptionTimeout>
    <fairSharePreemptionThreshold>0.6</fairSharePreemptionThreshold>
    <maxContainerAllocation>vcores=16, memory-mb=512, a-custom-resource=10</maxContainerAllocation>
    <queue name="queueH">
      <fairSharePreemptionTimeout>180</fairSharePreemptionTimeout>
      <minSharePreemptionTimeout>40</minSharePreemptionTimeout>
      <fairSharePreemptionThreshold>0.7</fairSharePreemptionThreshold>
      <maxContainerAllocation>1024mb,8vcores</maxContainerAllocation>
    </queue>
  </queue>
  <queueMaxAppsDefault>15</queueMaxAppsDefault>
  <queueMaxResourcesDefault>4096mb,100vcores</queueMaxResourcesDefault>
  <userMaxAppsDefault>5</userMaxAppsDefault>
  <queueMaxAMShareDefault>0.5</queueMaxAMShareDefault>
  <user name="user1"><maxRunningApps>10</maxRunningApps></user>
  <defaultMinSharePreemptionTimeout>120</defaultMinSharePreemptionTimeout>
  <defaultFairSharePreemptionTimeout>300</defaultFairSharePreemptionTimeout>
  <defaultFairSharePreemptionThreshold>.4</defaultFairSharePreemptionThreshold>
  <defaultQueueSchedulingPolicy>drf</defaultQueueSchedulingPolicy>
</allocations>
"""


def imported(tmp_path, xml, site=None):
    """What becomes of a file: the queues by name as they are written, all of the document, and what is left out."""
    found = import_yarn(*written_files(tmp_path, xml, site))
    document = tomllib.loads(found.text)
    (tmp_path / "fairlead.toml").write_text(found.text)
    read_configuration(tmp_path / "fairlead.toml", find_policy)  # what is printed is a valid file
    return {queue["name"]: queue for queue in document["queue"]}, document, found.left_out


def written_files(tmp_path, xml, site):
    path, other = tmp_path / "fair-scheduler.xml", tmp_path / "yarn-site.xml"
    path.write_text(xml if xml.startswith("<?") else f"<allocations>\n{xml}\n</allocations>")
    if site is not None:
        properties = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in site.items())
        other.write_text(f"<configuration>{properties}</configuration>")
    return path, other if site is not None else None


def in_megabytes(amounts):
    return [amounts["memory"] // 2**20, amounts["cpu"] // 1000]


def test_allocation_file_of_the_conformance_case(tmp_path):
    """YARN's own example. Where it says -1, to be inherited, nothing is written, for it is inherited here as well."""
    expected = CASES["yarn-alloc-file"]["expected"]
    queues, document, left = imported(tmp_path, ALLOCATIONS)
    limits = {name: in_megabytes(read_amounts_of(queue["limit"])) for name, queue in queues.items() if "limit" in queue}
    names = {name: next(n for n in queues if n.endswith(f"queue{name}")) for name in "ABCDEFGH"}
    for some, limit in expected["maxResources"].items():
        assert [limits[names[name]] for name in some.split(",")] == [limit] * len(some.split(","))
    for some, count in expected["maxApps"].items():
        assert all(queues[names.get(name, name)]["max_jobs"] == count for name in some.split(","))
    for key, word in (("guarantee_timeout", "minShare"), ("fair_share_timeout", "fairShare")):
        found = {name: queue[key] for name, queue in queues.items() if key in queue}
        said = {k: v for k, v in expected[f"{word}PreemptionTimeout_ms"].items() if v != -1}
        assert found == {("/" if name == "root" else names[name]): f"{ms // 1000}s" for name, ms in said.items()}
    thresholds = {name: queue["fair_share_threshold"] for name, queue in queues.items() if "fair_share_threshold" in queue}
    assert thresholds == {"/": 0.4, names["G"]: 0.6, names["H"]: 0.7}
    assert queues["/"]["policy"] == "yarn-drf"
    assert in_megabytes(read_amounts_of(queues[names["G"]]["largest_task"])) == [512, 16]
    assert in_megabytes(read_amounts_of(queues["queueF/*"]["limit"])) == [2048, 64]
    assert (queues["queueB"]["order"], queues["queueB"]["policy"]) == ("fair", "yarn-fair")
    assert queues["queueB"]["admin"] == ["alice", "bob", "@admins"]
    inner = {name.rpartition("/")[0] for name in queues if "/" in name.strip("/")}
    leaves = [name for name in queues if name not in inner and "*" not in name and name != "/"]
    assert len(leaves) - 1 == expected["leaf queues"], "and root.default, which YARN adds later"
    assert [line.split(":")[1].strip() for line in left] == [
        "maxAMShare", "queueMaxAMShareDefault",
    ]  # fmt: skip
    assert document["scheduler"]["max_jobs_of"] == {"*": 5, "user1": 10}


@pytest.mark.parametrize(("seconds", "said"), [(31536000, "31536000s"), (31536001, "never"), (2**63 - 1, "never")])
def test_a_time_that_is_never_over_is_never(tmp_path, seconds, said):
    words = ("minSharePreemptionTimeout", "fairSharePreemptionTimeout")
    queues, _, _ = imported(tmp_path, f'<queue name="q">{"".join(f"<{w}>{seconds}</{w}>" for w in words)}</queue>')
    assert (queues["q"]["guarantee_timeout"], queues["q"]["fair_share_timeout"]) == (said, said)


def read_amounts_of(table):
    from fairlead.model.documents import read_amounts as read

    return read(table)


def test_policies_of_the_conformance_case(tmp_path):
    """What YARN refuses, with all below it, is listed and not there; root.default is there in any case."""
    created = CASES["yarn-policy-violation"]["expected"]["queue created"]
    files = [
        '<queue name="root"><schedulingPolicy>fair</schedulingPolicy>{}</queue>'.format(
            '<queue name="child1"><schedulingPolicy>drf</schedulingPolicy></queue>'
        ),
        """<queue name="root"><schedulingPolicy>fair</schedulingPolicy><queue name="level2">
           <schedulingPolicy>fair</schedulingPolicy><queue name="level3"><schedulingPolicy>drf</schedulingPolicy>
           <queue name="leaf"><schedulingPolicy>fair</schedulingPolicy></queue></queue></queue></queue>""",
        '<queue name="inner"><schedulingPolicy>fifo</schedulingPolicy><queue name="child"/></queue>',
        '<queue name="inner"><queue name="leaf"><schedulingPolicy>fifo</schedulingPolicy></queue></queue>',
    ]
    there = []
    for xml in files:
        queues, _, left = imported(tmp_path, xml)
        there.append(
            (
                {name for name in queues if "*" not in name} - {"/", "default"},
                [line.split(":")[1] for line in left if "refuses" in line],
            )
        )
    assert created == ["child1: no", "level2 yes, level3 no, leaf no", "no", "yes"]
    assert there == [
        (set(), [" queue 'child1'"]),
        ({"level2"}, [" queue 'level2/level3'"]),
        (set(), [" queue 'inner'"]),
        ({"inner", "inner/leaf"}, []),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1024 mb, 4 vcores", {"memory": 2**30, "cpu": 4000}),
        ("4 vcores 1024 mb", {"memory": 2**30, "cpu": 4000}),
        ("1024MB,4VCores", {"memory": 2**30, "cpu": 4000}),
        ("50%", {"*": Percent(50)}),
        ("25% cpu, 12.5% memory", {"memory": Percent(12.5), "cpu": Percent(25)}),
        ("vcores=4, memory-mb=50, yarn.io/gpu=2", {"cpu": 4000, "memory": 50 * 2**20, "gpu": 2000}),
        ("vcores=25%, memory-mb = 12.5 %", {"cpu": Percent(25), "memory": Percent(12.5)}),
        (" 5120.3 mb, 2.35 vcores ", {"memory": 5 * 2**30, "cpu": 2000}),
        ("5120. mb, 2. vcores", {"memory": 5 * 2**30, "cpu": 2000}),
        ("50.% memory, 50.% cpu", {"memory": Percent(50), "cpu": Percent(50)}),
        ("memory-mb=1024", {"memory": 2**30}),
    ],
)
def test_amounts_in_each_of_yarns_ways(text, expected):
    assert read_amounts(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "1024", "1024 mb", "-1 mb, 2 vcores", "10% mb, 2 vcores", "101%", "x=y", "cpu=-1", "vcores=3.5", "vcores=3.",
        "vcores=4, memory-mb=50%", "50% cpu, 1024 mb", "2 vcores 5120 mb 555 mb",
    ],
)  # fmt: skip
def test_what_is_no_amount(text):
    with pytest.raises(ValueError, match=r"amount|number|both|percentage|part of the cluster|partly in %|twice"):
        read_amounts(text)


def test_fractions_are_dropped_where_yarn_drops_them_and_that_is_said(tmp_path):
    (tmp_path / "fair-scheduler.xml").write_text(
        """<allocations><queue name="a"><minResources>1.9 vcores, 1024 mb</minResources>
        <maxResources>2.0 vcores, 2048 mb</maxResources></queue></allocations>"""
    )
    text = import_yarn(tmp_path / "fair-scheduler.xml").text
    assert 'guarantee = { cpu = 1, memory = "1Gi" }  # line 1: minResources, whose fractions YARN drops\n' in text
    assert 'limit = { cpu = 2, memory = "2Gi" }  # line 2: maxResources\n' in text


def test_all_that_is_to_be_mended_is_told_at_once(tmp_path):
    """A line each, in the order of the file, and of the other file with its name."""
    body = """<queue name="a.b"><minResources>vcores=3.5,memory-mb=1</minResources></queue>
        <queue name="c"><weight>much</weight><maxRunningApps>x</maxRunningApps>
        <maxResources>half</maxResources></queue><queue name="c"/>
        <queueMaxResourcesDefault>7</queueMaxResourcesDefault>
        <queuePlacementPolicy><rule name="mine"/><rule name="user"/><rule name="default" queue="root.!"/>
        </queuePlacementPolicy>"""
    with pytest.raises(DocumentError) as refused:
        imported(tmp_path, body, {"yarn.scheduler.maximum-allocation-mb": "8Gi"})
    told = [line.removeprefix(f"{tmp_path}/") for line in str(refused.value).splitlines()]
    assert [line.split(": ")[:2] for line in told] == [
        ["fair-scheduler.xml:2", "minResources"],
        ["fair-scheduler.xml:2", "queue name 'a.b'"],
        ["fair-scheduler.xml:3", "maxRunningApps"],
        ["fair-scheduler.xml:3", "weight"],
        ["fair-scheduler.xml:4", "maxResources"],
        ["fair-scheduler.xml:4", "queue 'c' is declared twice"],
        ["fair-scheduler.xml:5", "queueMaxResourcesDefault"],
        ["fair-scheduler.xml:6", "'mine' is not a rule"],
        ["fair-scheduler.xml:6", "queue '!'"],
        ["yarn-site.xml:1", "yarn.scheduler.maximum-allocation-mb"],
    ]
    assert told[0].endswith("YARN accepts only whole numbers here: write vcores=3")
    many = "\n".join(f"<queue name='q{k}'><weight>x</weight></queue>" for k in range(70))
    with pytest.raises(DocumentError, match=r"\n\(and 20 more\)$"):
        imported(tmp_path, many)


def test_lists_of_people():
    assert read_people("alice,bob admins,ops") == (["alice", "bob", "@admins", "@ops"], [])
    assert read_people(" admins") == (["@admins"], [])
    assert read_people(" ") == ([], [])
    assert read_people("*") == (["*"], [])
    assert read_people("al!ce x") == (["@x"], ["al!ce"])


def test_a_grant_above_holds_below(tmp_path):
    """In YARN the lists of a queue and of those above it add up; here the nearest says it, so they are added up in it."""
    queues, _, left = imported(
        tmp_path,
        """<queue name="root"><aclSubmitApps> ops</aclSubmitApps><queue name="a"><aclSubmitApps>ann</aclSubmitApps>
           <queue name="b"/><queue name="c"><aclSubmitApps> </aclSubmitApps></queue></queue></queue>""",
    )
    submit = {name: queue.get("submit") for name, queue in queues.items()}
    assert submit["/"] == submit["*"] == ["@ops"]
    assert submit["a"] == submit["a/c"] == submit["a/*"] == ["@ops", "ann"]
    assert submit["a/b"] is None
    assert left == []


def test_the_site_says_what_is_checked_made_and_taken_back(tmp_path):
    fair = "yarn.scheduler.fair."
    site = {
        f"{fair}allow-undeclared-pools": "false",
        f"{fair}sizebasedweight": "true",
        "yarn.scheduler.maximum-allocation-mb": "8192",
    }
    queues, document, left = imported(tmp_path, '<queue name="a"><aclSubmitApps>ann</aclSubmitApps></queue>', site)
    assert set(queues) == {"/", "a", "default"}, "nothing is made on the fly"
    assert queues["/"]["submit"] == ["*"], "without yarn.acl.enable nobody is asked"
    assert queues["/"]["largest_task"] == {"memory": "8Gi"}
    assert document["scheduler"] == {"revoke": False}
    assert [rule.get("by") for rule in document["placement"]] == ["asked", "user", None]
    assert [rule.get("create", True) for rule in document["placement"]] == [False, False, True]
    assert left == [f"yarn-site.xml: {fair}sizebasedweight = true: it has no counterpart here"]
    site = {
        "yarn.acl.enable": "true",
        f"{fair}preemption": "true",
        f"{fair}waitTimeBeforeKill": "15000",
        "yarn.admin.acl": "olga ops",
    }
    queues, document, left = imported(tmp_path, '<queue name="a"><aclSubmitApps>ann</aclSubmitApps></queue>', site)
    assert "scheduler" not in document
    assert document["operators"] == ["olga", "@ops"]
    assert (queues["/"]["grace"], queues["/"]["guarantee_timeout"], left) == ("15s", "never", [])


def test_placement_rules(tmp_path):
    queues, document, left = imported(
        tmp_path,
        """<queue name="g" type="parent"/><queuePlacementPolicy><rule name="specified" create="false"/>
           <rule name="nestedUserQueue"><rule name="primaryGroup" create="false"/></rule>
           <rule name="nestedUserQueue" create="false"><rule name="default" queue="root.p"/></rule>
           <rule name="secondaryGroupExistingQueue"/><rule name="default" queue="x.y"/></queuePlacementPolicy>""",
    )
    assert document["placement"] == [
        {"by": "asked", "not_asked": ["default"], "create": False},
        {"by": "group", "dot": "_dot_", "create": False, "own": True},
        {"queue": "p", "own": True, "create_own": False},
        {"by": "groups", "dot": "_dot_", "create": False},
        {"queue": "x/y"},
    ]
    assert {"g", "g/*", "p", "p/*", "x", "x/y"} <= set(queues)
    assert left == []


@pytest.mark.parametrize(
    ("xml", "says"),
    [
        ("<queue>", r":\d+: not XML"),
        ("<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b 'c'>]><allocations>&b;</allocations>", "document type or entities"),
        ("<?xml version='1.0'?><configuration/>", "its outermost element is <allocations>"),
        ('<queue name="a.b"/>', ":2: queue name 'a.b': YARN refuses empty names and names with a period"),
        ('<queue name="a"/><queue name="a"/>', "is declared twice"),
        ('<queue name="root"/><queue name="a"/>', "a root queue contains all others"),
        ('<queue name="a"><weight>1,5</weight></queue>', ":2: weight: '1,5' is not a number"),
        ('<queue name="a"><weight>nan</weight></queue>', "weight: 'nan' is not a number"),
        ('<queue name="a"><minResources>5</minResources></queue>', ":2: minResources: '5' is not an amount"),
        ("<defaultQueueSchedulingPolicy>fifo</defaultQueueSchedulingPolicy>", "YARN accepts fifo only for leaf queues"),
        ('<queuePlacementPolicy><rule name="specified"/></queuePlacementPolicy>', "YARN needs a last rule"),
        ('<queuePlacementPolicy><rule name="user"/><rule name="default"/></queuePlacementPolicy>', "YARN refuses rules after"),
        ('<queuePlacementPolicy><rule name="mine"/></queuePlacementPolicy>', "'mine' is not a rule"),
        ("<queue name='q'>" * 120 + "</queue>" * 120, "more than 100 nested elements"),
    ],
)
def test_what_yarn_or_we_refuse_is_said_with_its_line(tmp_path, xml, says):
    with pytest.raises(DocumentError, match=says):
        imported(tmp_path, xml)


def test_what_yarn_takes_and_cannot_be_said_here_is_listed(tmp_path):
    policies = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fair.policies"
    queues, document, left = imported(
        tmp_path,
        f"""<queue name="a"><schedulingPolicy>{policies}.DominantResourceFairnessPolicy</schedulingPolicy>
            <queue name="x"/><queue name="y"/></queue>
           <queue name="b"><maxContainerAllocation>50%</maxContainerAllocation><weight>-1</weight>
             <schedulingPolicy>com.example.Best</schedulingPolicy>
             <fairSharePreemptionThreshold>-0.3</fairSharePreemptionThreshold></queue>
           <user name=""><maxRunningApps>3</maxRunningApps></user>
           <user name="😀"><maxRunningApps>4</maxRunningApps></user>
           <defaultQueueSchedulingPolicy>drf</defaultQueueSchedulingPolicy>""",
        site={
            "yarn.resource-types.memory-mb.increment-allocation": "512",
            "yarn.scheduler.increment-allocation-vcores": "2",
            "yarn.scheduler.minimum-allocation-mb": "1024",
            "yarn.resource-types.gpu.maximum-allocation": "4",
        },
    )
    assert (queues["a"]["policy"], queues["b"].keys() & {"weight", "largest_task", "fair_share_threshold"}) == ("yarn-drf", set())
    assert document["scheduler"]["max_jobs_of"] == {"😀": 4}
    told = ["maxContainerAllocation", "weight", "com.example.Best", "fairSharePreemptionThreshold", "user ''"]
    told += ["memory-mb.increment", "increment-allocation-vcores", "minimum-allocation-mb", "gpu.maximum"]
    assert [sum(each in one for one in left) for each in told] == [1] * len(told), left


_NUMBERS = st.sampled_from(["0", "3", "-1", "0.5", "-0.3", "1e12", "NaN", "5f", "", "99999999999", "1_0", ".4"])
_AMOUNTS = st.sampled_from(
    ["1024 mb, 4 vcores", "50%", "50% cpu, 20% memory", "vcores=4, memory-mb=50%, a=2", "a b=1", "-1", "0 mb, 0 vcores"]
)
_SAID = {
    "minResources": _AMOUNTS, "maxResources": _AMOUNTS, "maxChildResources": _AMOUNTS, "maxContainerAllocation": _AMOUNTS,
    "maxRunningApps": _NUMBERS, "weight": _NUMBERS, "minSharePreemptionTimeout": _NUMBERS,
    "fairSharePreemptionTimeout": _NUMBERS, "fairSharePreemptionThreshold": _NUMBERS,
    "schedulingPolicy": st.sampled_from(["fair", "drf", "fifo", "a.b.FairSharePolicy", "a.b.Other", ""]),
    "aclSubmitApps": st.sampled_from(["*", " ", "ada,bo admins", "a b c", "\U0001f600"]),
    "aclAdministerApps": st.sampled_from(["*", " ", "ada,bo admins", "\x7f"]),
    "allowPreemptionFrom": st.sampled_from(["false", "true", "?"]), "maxAMShare": _NUMBERS,
}  # fmt: skip
_SOME = st.sets(st.sampled_from(sorted(_SAID)), max_size=3).flatmap(
    lambda words: st.fixed_dictionaries({word: _SAID[word] for word in sorted(words)})
)
_QUEUES = st.recursive(st.tuples(_SOME, st.just([])), lambda below: st.tuples(_SOME, st.lists(below, max_size=2)), max_leaves=5)
_NAMES = st.sampled_from(["", "ada", "*", "a.b", "\x7f", "\U0001f600", "a" * 101, '"'])
_SITE = st.dictionaries(
    st.sampled_from(
        [
            "yarn.acl.enable", "yarn.admin.acl", "yarn.scheduler.fair.preemption", "yarn.scheduler.fair.waitTimeBeforeKill",
            "yarn.scheduler.maximum-allocation-mb", "yarn.scheduler.minimum-allocation-mb",
            "yarn.resource-types.memory-mb.increment-allocation", "yarn.scheduler.fair.assignmultiple",
        ]
    ),
    st.sampled_from(["true", "false", "512", "-1", "x", "1e3", "99999999999999"]), max_size=3,
)  # fmt: skip


def as_xml(queue, name):
    said, below = queue
    inside = "".join(f"<{word}>{escape(text)}</{word}>" for word, text in said.items())
    inside += "".join(as_xml(each, f"q{k}") for k, each in enumerate(below))
    return f"<queue name={quoteattr(name)}>{inside}</queue>"


@settings(max_examples=cases(75))
@given(_QUEUES, _NAMES, _NUMBERS, _SITE)
def test_whatever_is_printed_can_be_read(tmp_path_factory, root, user, apps, site):
    xml = as_xml(root, "root") + f"<user name={quoteattr(user)}><maxRunningApps>{apps}</maxRunningApps></user>"
    folder = tmp_path_factory.mktemp("yarn")
    try:
        found = import_yarn(*written_files(folder, xml, site))
    except DocumentError:
        return  # YARN refuses it
    (folder / "fairlead.toml").write_text(found.text)
    assert read_configuration(folder / "fairlead.toml", find_policy).queues


def test_the_commands(tmp_path, command):
    (tmp_path / "fs.xml").write_text('<allocations><queue name="a"><weight>3</weight></queue><queue name="b"/></allocations>')
    done = command("import", "yarn", str(tmp_path / "fs.xml"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "weight = 3  # line 1: weight" in done.stdout
    new = done.stdout + '\n[[node]]\nname = "n"\ncapacity = { cpu = 10 }\n'
    (tmp_path / "new.toml").write_text(new)
    (tmp_path / "old.toml").write_text(new.replace("weight = 3", "weight = 0"))
    done = command("diff", str(tmp_path / "old.toml"), str(tmp_path / "new.toml"), "--json")
    found = [change for change in json.loads(done.stdout)["changes"] if change["resource"] == "cpu"]
    changes = {change["queue"]: (change["before"], change["after"]) for change in found}
    assert changes == {"/": (10_000, 10_000), "a": (0, 6000), "b": (5000, 2000), "default": (5000, 2000)}
    text = command("diff", str(tmp_path / "old.toml"), str(tmp_path / "new.toml")).stdout
    assert re.search(r"a +cpu +0 +0\.0% +6 +60\.0% +gains\n", text), text
    assert re.search(r"b +cpu +5 +50\.0% +2 +20\.0% +loses\n", text), text
    assert command("diff", str(tmp_path / "new.toml"), str(tmp_path / "new.toml")).stdout == "nobody gains and nobody loses\n"
    plain = '[[queue]]\nname = "a"\nguarantee = { cpu = 5 }\n[[node]]\nname = "n"\ncapacity = { cpu = 10 }\n'
    (tmp_path / "new.toml").write_text(plain)
    (tmp_path / "beyond.toml").write_text(plain.replace("cpu = 5", "cpu = 20"))
    said = command("diff", str(tmp_path / "new.toml"), str(tmp_path / "beyond.toml")).stderr
    assert "all queues together are guaranteed 20 cpu, but usable nodes have 10: each has 50% of its guarantee" in said
    (tmp_path / "fs.xml").write_text("<allocations><queueMaxAMShareDefault>1</queueMaxAMShareDefault></allocations>")
    done = command("import", "yarn", str(tmp_path / "fs.xml"))
    assert done.returncode == 3
    assert "# Left out:\n#   line 1: queueMaxAMShareDefault: fairlead has no application masters\n" in done.stdout


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ('[[queue]]\nname = "a"\nweight = 0', ":3: queue.0..weight: 0 is not a weight under the policy of '/'"),
        ('[[queue]]\nname = "a"\nlimit = { cpu = "120%" }', "not a percentage"),
        ('[[queue]]\nname = "a"\nlimit = "x"', "not a percentage"),
        (
            '[[queue]]\nname = "a"\nguarantee = { cpu = "50%" }\nlimit = { cpu = "20%" }',
            "guarantees 50% cpu, above its limit of 20%",
        ),
        (
            '[[queue]]\nname = "a"\nguarantee = "10%"\n[[queue]]\nname = "a/b"\nguarantee = "20%"',
            "its children are guaranteed 20% of everything, the queue itself only 10%",
        ),
        (
            '[[queue]]\nname = "a"\nguarantee = { cpu = 4 }\n'
            '[[queue]]\nname = "a/b"\n[[queue]]\nname = "a/b/c"\nguarantee = { cpu = 8 }',
            ":3: queue.0..guarantee: queues below it are guaranteed 8 cpu, the queue itself only 4",
        ),
        ('[[queue]]\nname = "a"\n[[placement]]\nby = "user"\nqueue = "a"', "write either by"),
        ('[[queue]]\nname = "a"\n[[placement]]\nqueue = "b"', "there is no queue 'b' here"),
        ('[[queue]]\nname = "a"\n[[placement]]\nqueue = "a"\n[[placement]]\nby = "user"', "is never reached: rule 1"),
        ('[[queue]]\nname = "a"\n[[placement]]\nby = "user"\nnot_asked = ["a"]', 'needs by = "asked"'),
    ],
)
def test_faults_of_a_configuration(tmp_path, toml, says):
    (tmp_path / "fairlead.toml").write_text(toml)
    with pytest.raises(DocumentError, match=says):
        read_configuration(tmp_path / "fairlead.toml", find_policy)
