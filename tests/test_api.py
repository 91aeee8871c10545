"""The HTTP API of a running scheduler: submission in bulk and under keys, streams, long polls, pages, health, metrics, bounds."""

import contextlib
import html
import itertools
import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fairlead.people.accounts import myself
from fairlead.people.rules import Caller, Rules
from fairlead.scheduler.effects import new_state


@pytest.fixture(scope="module")
def world(shared):
    return shared


def ask(world, path, body=None, method=None, headers=()):
    return world.http(method or ("GET" if body is None else "POST"), path, body, headers)


def job(**more):
    return {"argv": ["true"], "demand": {"cpu": 1, "memory": "64Mi"}, "queue": "A", **more}


def stream(world, path, headers=()):
    """A connection on which the answer's lines can be read as they come."""
    connection = world.wire()
    connection.request("GET", path, headers=dict(headers))
    return connection, connection.getresponse()


def events(response, count):
    """So many events of a server-sent stream: (id, type, data)."""
    found, event = [], {}
    while len(found) < count:
        line = response.readline().decode().rstrip("\n")
        if line.startswith(":"):
            continue
        if not line:
            if event:
                found.append((int(event["id"]), event["event"], json.loads(event["data"])))
            event = {}
            continue
        name, _, value = line.partition(": ")
        event[name] = value
    return found


def test_ten_thousand_tasks_in_one_request(world):
    jobs = [job(name=f"n{i}", tasks=2, argv=["echo", "{index}"], demand={"cpu": 9}) for i in range(5000)]
    code, answer = ask(world, "/v1/bulk", {"jobs": jobs})
    assert code == 201
    ids = [each["id"] for each in answer["jobs"]]
    assert ids == list(range(ids[0], ids[0] + 5000))
    assert ask(world, f"/v1/jobs/{ids[4321]}")[1]["name"] == "n4321"
    position = ask(world, "/v1/status")[1]["position"]
    later = []
    with ThreadPoolExecutor(1) as beside:
        cancelling = beside.submit(ask, world, "/v1/cancel", {"queue": "A", "jobs": ids[:300]})
        while not cancelling.done():
            later.append(ask(world, "/v1/jobs", job(demand={"cpu": 10**6}, name="later"))[1]["id"])
    code, answer = cancelling.result()
    assert code == 200
    assert len(answer["cancelled"]) > 4900
    assert answer["cancelled"] == sorted({*answer["cancelled"]})
    assert {ask(world, f"/v1/jobs/{number}")[1]["status"] for number in ids[::500]} <= {"cancelled", "succeeded"}
    last = ask(world, "/v1/status")[1]["position"]
    connection, response = stream(world, f"/v1/facts?follow=false&after={position}")
    kinds = [kind for _, kind, _ in events(response, last - position) if kind in ("JobCancelled", "JobSubmitted")]
    connection.close()
    assert [kind for kind, _ in itertools.groupby(kinds)].count("JobCancelled") > 1, "others' submissions happen in between"
    ask(world, "/v1/cancel", {"jobs": later})


def test_all_of_a_bulk_or_none(world):
    before = ask(world, "/v1/jobs?limit=1")[1]["jobs"]
    code, answer = ask(world, "/v1/bulk", {"jobs": [job(), job(queue="nowhere"), job()]})
    assert code == 400
    assert answer["error"].startswith("jobs.1: there is no queue 'nowhere'")
    code, answer = ask(world, "/v1/bulk", {"jobs": [job(), job(demand={"cpu": -1})]})
    assert code == 422
    assert answer["error"].startswith("jobs.1.demand: cpu: -1 is negative")
    code, answer = ask(world, "/v1/bulk", {"jobs": [job(), job(array="5-1")]})
    assert code == 422
    assert answer["error"].startswith("jobs.1: array: '5-1' ends before it begins: write FIRST-LAST")
    code, answer = ask(world, "/v1/bulk", {"jobs": [job(array="1-600000:2"), *[job(array="0-399999")] * 9]})
    assert code == 400
    assert answer["error"] == "jobs.2: array: the arrays of one request have more than 1,000,000 tasks"
    assert [j["id"] for j in ask(world, "/v1/jobs?limit=1")[1]["jobs"]] == [j["id"] for j in before]


def test_a_key_submits_once(world):
    marks = world.folder / "once"
    body = job(argv=["sh", "-c", f"echo x >> {marks}"])
    answers = [ask(world, "/v1/jobs", body, headers={"Idempotency-Key": "k1"}) for _ in range(3)]
    assert len({answer["id"] for _, answer in answers}) == 1
    code, answer = ask(world, "/v1/jobs", job(name="other"), headers={"Idempotency-Key": "k1"})
    assert code == 409
    assert "this key was used for another submission" in answer["error"]
    many = {"jobs": [job(), job()]}
    first, again = (ask(world, "/v1/bulk", many, headers={"Idempotency-Key": "k2"})[1]["jobs"] for _ in range(2))
    assert first == again
    number = answers[0][1]["id"]
    assert ask(world, f"/v1/jobs/{number}?wait=30")[1]["status"] == "succeeded"
    assert marks.read_text() == "x\n"
    assert ask(world, "/v1/jobs", job(), headers={"Idempotency-Key": "x" * 300})[0] == 422


def test_a_key_is_known_after_a_restart(live):
    first = ask(live, "/v1/jobs", job(demand={"cpu": 99}), headers={"Idempotency-Key": "k"})[1]["id"]
    live.kill()
    live.up()
    assert ask(live, "/v1/jobs", job(demand={"cpu": 99}), headers={"Idempotency-Key": "k"})[1]["id"] == first
    assert ask(live, "/v1/jobs", job(demand={"cpu": 99}))[1]["id"] == first + 1


def test_a_key_gives_its_jobs_whatever_has_changed_since(live):
    """Who is told that it may not be would submit it again, under another key."""
    many, one = {"jobs": [job(demand={"cpu": 99}), job()]}, job(argv=["sleep", "60"])
    asked = [("/v1/jobs", one, "k1"), ("/v1/bulk", many, "k2"), ("/v1/jobs/1/rerun", {}, "k3")]
    first = [ask(live, path, body, headers={"Idempotency-Key": key})[1] for path, body, key in asked]
    live.config.write_text(live.config.read_text().replace('name = "A"', 'name = "A"\ndraining = true'))
    live.ok("reload")
    assert "is draining" in ask(live, "/v1/jobs", one)[1]["error"]
    found = [ask(live, path, body, headers={"Idempotency-Key": key}) for path, body, key in asked]
    assert [code for code, _ in found] == [201, 201, 201]
    numbers = lambda answer: [each["id"] for each in answer.get("jobs", [answer])]  # noqa: E731
    assert [numbers(answer) for _, answer in found] == [numbers(answer) for answer in first]
    assert ask(live, "/v1/jobs", job(), headers={"Idempotency-Key": "k1"})[0] == 409


def test_a_long_poll_answers_when_the_job_ends(world):
    number = ask(world, "/v1/jobs", job(argv=["sleep", "0.5"]))[1]["id"]
    assert ask(world, f"/v1/jobs/{number}?wait=0.01")[1]["status"] in ("waiting", "running")
    found = ask(world, f"/v1/jobs/{number}?wait=30")[1]
    assert found["status"] == "succeeded"
    held = ask(world, "/v1/jobs", job(demand={"cpu": 999}))[1]["id"]
    found = []
    waiting = threading.Thread(target=lambda: found.append(ask(world, f"/v1/jobs/{held}?wait=30")[1]["status"]))
    waiting.start()
    time.sleep(0.3)
    assert not found
    ask(world, f"/v1/jobs/{held}/cancel", {})
    waiting.join(timeout=60)
    assert found == ["cancelled"]
    assert ask(world, f"/v1/jobs/{number}?wait=61")[0] == 422


def test_jobs_and_tasks_come_in_pages(world):
    ids = [each["id"] for each in ask(world, "/v1/bulk", {"jobs": [job(queue="B") for _ in range(25)]})[1]["jobs"]]
    found, before = [], ""
    while True:
        page = ask(world, f"/v1/jobs?queue=B&limit=10{before}")[1]
        found += [each["id"] for each in page["jobs"]]
        if page["next"] is None:
            break
        before = f"&before={page['next']}"
    assert found[:25] == ids[::-1]
    assert len(found) == len(set(found))
    number = ask(world, "/v1/jobs", job(tasks=25, demand={"cpu": 9}))[1]["id"]
    page = ask(world, f"/v1/jobs/{number}/tasks?limit=20")[1]
    assert (len(page["tasks"]), page["next"]) == (20, 20)
    page = ask(world, f"/v1/jobs/{number}/tasks?first=20&limit=20")[1]
    assert ([each["index"] for each in page["tasks"]], page["next"]) == (list(range(20, 25)), None)
    ask(world, f"/v1/jobs/{number}/cancel", {})


def test_facts_are_streamed_from_any_past_position(world):
    position = ask(world, "/v1/status")[1]["position"]
    number = ask(world, "/v1/jobs", job(name="streamed"))[1]["id"]
    ask(world, f"/v1/jobs/{number}?wait=30")
    connection, response = stream(world, f"/v1/facts?after={position}")
    found, mine = [], []
    while "TasksFinished" not in mine:
        found += events(response, 1)
        _, kind, data = found[-1]
        if number in (data.get("id"), *data.get("job", [])):
            mine.append(kind)
    assert mine == ["JobSubmitted", "TasksPlaced", "TasksStarted", "TasksFinished"]
    assert [at for at, _, _ in found] == list(range(position + 1, position + 1 + len(found)))
    later = ask(world, "/v1/jobs", job(name="later", demand={"cpu": 999}))[1]["id"]
    while events(response, 1)[0][2].get("id") != later:  # it goes on with what happens now
        pass
    connection.close()
    ask(world, f"/v1/jobs/{later}/cancel", {})
    connection, response = stream(world, "/v1/facts?follow=false&after=0", {"Last-Event-ID": str(position)})
    assert events(response, 1)[0][0] == position + 1, "a stream that broke off goes on where it did"
    connection.close()


def test_a_stream_that_is_not_read_costs_nothing(world):
    connection, response = stream(world, "/v1/facts?after=0")
    for _ in range(3):
        answer = ask(world, "/v1/bulk", {"jobs": [job(env={"A": "x" * 1000}) for _ in range(1000)]})
        assert answer[0] == 201
    ask(world, "/v1/cancel", {"queue": "A"})
    assert response.readline()
    connection.close()


def test_whose_a_submission_is_is_in_the_journal(world):
    from fairlead.journal.sql import SqlStore

    asked = [[job(user="ada")], [job(user="ada"), job(user="bo")], [job()]]
    me = ask(world, "/v1/status")[1]["you"]
    expected = {}
    for jobs in asked:
        status, answer = ask(world, "/v1/bulk", {"jobs": jobs})
        assert status == 201
        expected |= {one["id"]: me for one in answer["jobs"]}
    with contextlib.closing(SqlStore(world.home / "journal.db", to_read=True)) as store:
        records, last = [], 0
        while page := store.read(last, 100_000):  # as much at once as is good for memory
            last = page[-1][0].sequence
            records += [(envelope.by, json.loads(body)) for envelope, body in page]
    submitted = [(by, fact) for by, fact in records if fact["type"] == "JobSubmitted"]
    found = {fact["id"] + k: by for by, fact in submitted for k in range(1 + len(fact.get("more", [])))}
    assert {number: found[number] for number in expected} == expected
    assert {by for by, fact in records if fact["type"] == "TasksFinished"} <= {"(engine)"}


def test_facts_that_are_gone_are_said_to_be(tmp_path, monkeypatch):
    from fairlead.journal import Forgotten, Journal
    from fairlead.journal.sql import SqlStore
    from fairlead.scheduler.facts import NodeDrained

    monkeypatch.setattr("fairlead.journal.journal.KEEP_HISTORY", 200)
    journal = Journal(SqlStore(tmp_path / "journal.db"))
    try:
        for count in (1, 3):  # what is dropped is what a snapshot before the rest covers
            journal.append([NodeDrained(at=1.0, node="n" * 100)] * count)
            list(journal.save(new_state()))
        with pytest.raises(Forgotten, match="facts before 2 are no longer kept: ask for those after 1"):
            journal.look(0, 10)
        assert [position for position, _ in journal.look(1, 10)] == [2, 3, 4]
        assert journal.look(4, 10) == []
    finally:
        journal.close()


def test_health_and_metrics(world):
    assert ask(world, "/healthz") == (200, {"ok": True})
    status, ready = ask(world, "/readyz")
    assert (status, ready["ok"], ready["journal"]) == (200, True, 0.0)
    assert 0 <= ready["step"] < 5
    assert 0 <= ready["engine"] < 10
    text = ask(world, "/metrics")[1]
    metrics = {family.name: family for family in text_string_to_metric_families(text)}
    shares = {s.labels["queue"]: s.value for s in metrics["fairlead_queue_dominant_share"].samples}
    assert {"/", "A", "B"} <= set(shares)
    capacity = {s.labels["resource"]: s.value for s in metrics["fairlead_node_capacity"].samples}
    assert capacity == {"cpu": 9, "memory": 18 * 2**30}
    for name in ("decide_seconds", "commit_seconds", "step_seconds", "start_seconds", "tasks_placed", "journal_lag_seconds"):
        assert f"fairlead_{name}" in metrics


def test_a_full_queue_of_questions_is_429_and_the_scheduler_goes_on(world):
    connections = []
    number = ask(world, "/v1/jobs", job(demand={"cpu": 999}))[1]["id"]
    for _ in range(60):
        connections.append(stream_later(world, f"/v1/jobs/{number}?wait=60"))
    assert ask(world, "/v1/status")[0] == 200
    ask(world, f"/v1/jobs/{number}/cancel", {})
    assert {json.loads(c.getresponse().read())["status"] for c in connections} == {"cancelled"}


def stream_later(world, path):
    connection = world.wire()
    connection.request("GET", path)
    return connection


def test_too_many_that_wait_are_turned_away():
    from fairlead.service.api import state_client as api
    from fairlead.service.loop import Busy
    from fairlead.service.wakeups import Wakeups

    authenticator = SimpleNamespace(rules=Rules({}, personal=True))
    client, me = api.StateClient(None, Wakeups(), authenticator, None), Caller(myself())
    waiters = [client.waiter(me) for _ in range(api.MOST_WAITERS)]
    for waiter in waiters:
        waiter.__enter__()
    with pytest.raises(Busy, match="try again"), client.waiter(me):
        pass
    for waiter in waiters:
        waiter.__exit__(None, None, None)
    with client.waiter(me):
        pass


def test_any_bytes_can_be_said(world):
    argument = bytes(range(1, 256))
    body = job(argv=["printf", "%s", argument.decode("latin-1")], encoding="latin-1")
    number = ask(world, "/v1/jobs", body)[1]["id"]
    assert ask(world, f"/v1/jobs/{number}?wait=30")[1]["status"] == "succeeded"
    assert (world.home / "output" / str(number) / "0.out").read_bytes() == argument
    assert ask(world, "/v1/jobs", job(argv=["echo", "\u20ac"], encoding="latin-1"))[0] == 422


def test_a_body_is_read_as_it_is_meant_or_not_at_all(world):
    long = "9" * 5000
    for body, said in (
        (b'{"argv": ["a"], "argv": ["b"]}', "argv: is given twice: keep one of them"),
        (b'{"argv": [""], "demand": {"cpu": 1}}', "argv: names no program: its first word is empty"),
        (b'{"argv": ["a"', "line 1: not JSON: column 14: a comma or a closing bracket is missing here"),
        (f'{{"argv": ["a"], "tasks": {long}}}'.encode(), "a number has more digits than can be read"),
        (b'{"argv": ["a"], "demand": {"cpu": 1.0}, "tasks": 1.0}', "tasks: write a whole number"),
        (b'{"argv": ["a"], "demand": {"cpu": 1.0}, "tasks": "1"}', "tasks: write a whole number"),
    ):
        code, answer = ask(world, "/v1/jobs", body)
        assert code == 422
        assert said in answer["error"]
    for path in ("/v1/jobs?limit=1_0", "/v1/jobs/1_0", "/v1/jobs/1/tasks/1_0/output/out"):
        code, answer = ask(world, path)
        assert (code, answer["error"].partition(": ")[2]) == (422, "write a number with the digits 0 to 9, not '1_0'")
    code, answer = ask(world, "/v1/tokens/x", method="DELETE")
    assert (code, answer["error"]) == (422, "token: 'x' is not a token's id: `fairlead token list` shows them")


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1])
@pytest.mark.parametrize("name", ["retries", "priority", "tasks", "at_most"])
def test_numbers_of_more_than_64_bits_are_refused_by_name(world, name, number):
    code, answer = ask(world, "/v1/jobs", job(**{name: number}))
    assert (code, answer["error"].partition(" use ")[0]) == (422, f"{name}: {number}:")


def test_sessions_and_leases_are_checked(world):
    none = "0" * 32
    assert ask(world, f"/v1/sessions/{none}/events")[0] == 404
    assert ask(world, "/v1/sessions/..%2F..%2Fx/events")[0] in (404, 422)
    session = ask(world, "/v1/sessions", {"argv": ["python3", "-c", "1"]})[1]["id"]
    for lease in (0, "x", None):
        job = {"demand": {"cpu": 1}, "queue": "A", "lease": lease}
        assert ask(world, f"/v1/sessions/{session}/leases", {"jobs": [job]})[0] == 422
    assert ask(world, f"/v1/sessions/{session}", method="DELETE") == (200, {"cancelled": []})
    assert ask(world, f"/v1/sessions/{session}", method="DELETE")[0] == 404


def test_the_documents_of_the_api(world):
    document = ask(world, "/openapi.json")[1]
    assert document["paths"]["/v1/bulk"]["post"]["summary"]
    page = ask(world, "/docs")[1]
    for path in document["paths"]:
        assert html.escape(path) in page
    assert not re.search(r"""(src|href)\s*=\s*["'](?!/openapi.json)""", page), "it needs nothing from anywhere else"
