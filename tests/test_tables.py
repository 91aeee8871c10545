"""Tables at 80 columns: what must be read whole is, whatever stands beside it."""

import io

import pytest
from rich.console import Console

from fairlead.cli.tables import job_table, log_table, queue_table
from fairlead.text_tables import folded, printed


def test_the_log_is_readable_with_a_long_refusal_in_it():
    entries = [
        {"at": 0.0, "by": "olga", "what": "drained node n1", "outcome": "done", "why": ""},
        {"at": 60.0, "by": "bob", "what": "POST /v1/jobs/1/cancel", "outcome": "refused", "why": "job 1 is " + "alice's " * 20},
    ]
    out = io.StringIO()
    Console(file=out, width=80, highlight=False).print(log_table(entries))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["when", "who", "what"]
    assert any("1970" in line and "olga  drained node n1" in line for line in lines)
    assert any("bob" in line and "POST /v1/jobs/1/cancel" in line for line in lines)
    assert out.getvalue().count("alice's") == 20, "nothing is cut off"


def test_whose_jobs_are_is_said_where_they_are_of_several():
    job = {"id": 1, "name": "n", "queue": "q", "status": "running", "tasks": 1, "demand": {"cpu": 1000}, "submitted_at": 0.0}
    job |= {"argv": [], "succeeded": 0, "failed": 0, "cancelled": 0, "cpu_seconds": None, "peak_memory": None}
    for users, shown in ((["ann"], False), (["ann", "ann"], False), (["ann", "bob"], True)):
        table = job_table([job | {"user": user} for user in users])
        assert ("user" in [str(column.header) for column in table.columns]) is shown


@pytest.mark.parametrize("width", [60, 70, 80, 100, 200])
def test_no_number_of_a_queue_is_ever_cut(width):
    used = {"cpu": 3000, "memory": 1536 * 2**20}
    more = {
        "status": "open",
        "policy": None,
        "dominant_share": 0.1,
        "dominant_resource": "memory",
        "share_over_time": 0.1,
        "running": 12345,
    }
    more |= {
        "waiting": 7,
        "max_tasks": 54321,
        "max_jobs": None,
        "strict": False,
        "offered": {},
        "framework": None,
        "used": used,
        "claims": [],
    }
    bounds = {"guarantee": {"cpu": 4000}, "limit": {"cpu": 6000, "memory": 12 * 2**30}}
    queues = [{"name": name, **more, **bounds} for name in ("/", "people", "people/somebody")]
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(queue_table(queues, width))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    words = set(" ".join(lines[2:]).split())
    whole = {"/", "people", "somebody", "10.0%", "memory", "cpu=3", "memory=1.5Gi", "12345", "7", "cpu=4", "cpu=6", "memory=12Gi"}
    assert {"people", "somebody", "10.0%", "cpu=3", "memory=1.5Gi", "12345", "7"} <= words <= whole | {"54321", "tasks"}
    assert ("memory=12Gi" in words) is ("54321" in words) is (width >= 70)


@pytest.mark.parametrize(("policy", "shown"), [("fairtree:cpu", True), ("drf", False), (None, False)])
def test_how_little_was_used_before_is_shown_where_some_policy_goes_by_that(policy, shown):
    queue = {
        "status": "open", "dominant_share": 0.1, "dominant_resource": "cpu", "share_over_time": 0.00004, "running": 1,
        "waiting": 0, "max_tasks": None, "max_jobs": None, "strict": False, "offered": {}, "framework": None, "claims": [],
        "used": {"cpu": 1000}, "guarantee": {}, "limit": {},
    }  # fmt: skip
    out = io.StringIO()
    queues = [{**queue, "name": "/", "policy": policy}, {**queue, "name": "lab", "policy": None}]
    Console(file=out, width=80, highlight=False).print(queue_table(queues, 80))
    assert ("past use" in out.getvalue()) is ("0.004%" in out.getvalue()) is shown


def test_a_queue_that_wraps_stays_below_its_first_word():
    columns = {"queue": ["/", "  a-quite-long-name-of-a-department", "    group"], ">tasks": ["3", "2", "1"]}
    lines = printed(*folded(columns, 30, wraps=["queue"]), width=30).splitlines()
    assert [len(line) - len(line.lstrip()) for line in lines[2:]] == [0, 2, 2, 4]
