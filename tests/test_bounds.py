"""What one person may take of the scheduler itself: as rules, and on a machine with real accounts."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fairlead.model.documents import DocumentError, read_configuration
from fairlead.model.specs import EVERYWHERE, Bounds, Queue
from fairlead.people.bounds import BURST_SECONDS, DEFAULT, Load, Rates, check_load, default_bounds, output_limit
from fairlead.people.rules import Rules
from fairlead.policies.registry import find_policy
from fairlead.scheduler.admission import Refused
from fairlead.service.api import large_bodies
from fairlead.service.api.jobs import BATCH, SHORT, add_listing
from fairlead.service.api.large_bodies import LARGE, LargeBody
from fairlead.service.api.requests import JobsRequest, Selection
from fairlead.service.api.state_client import OnePerPerson
from fairlead.service.loop import Busy
from machine import CONFIG, SOCKET, Machine, why_not
from test_rules import ALICE, BOB, ROOT
from test_scheduling import World

BOUNDS = """
[bounds."@default"]
requests = 40
streams = 3
programs = 2
jobs = 30

[bounds."people/*"]
tasks = 50
output_limit = "1Mi"

[bounds.vision]
jobs = 2
environment = "2Ki"
"""


@pytest.fixture(scope="module")
def bounded():
    """A machine with narrow bounds."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    there = Machine(CONFIG + BOUNDS)
    try:
        there.up()
        yield there
    finally:
        there.close()


def rules(personal=False, **bounds):
    queues = {name: Queue(name) for name in ("a", "a/b", "a/*", "c")}
    names = {"default": EVERYWHERE, "a": "a", "ab": "a/b", "star": "a/*"}
    return Rules(queues, personal=personal, bounds={names[key]: said for key, said in bounds.items()})


def refused(there, has, new, who=ALICE):
    """Whether so much more is refused, where `has` is what is there by leaf."""

    def load(queue):
        total = Load()
        for leaf, each in has.items():
            if not queue or f"{leaf}/".startswith(f"{queue}/"):
                total = total.plus(each)
        return total

    try:
        check_load(there, who, load, new)
    except Refused:
        return True
    return False


def test_all_that_is_said_holds_and_each_queue_for_itself():
    there = rules(default=Bounds(jobs=10), a=Bounds(tasks=20), star=Bounds(jobs=2), ab=Bounds(environment=100))
    one = Load(1, 1, 10)
    assert not refused(there, {}, {"c": Load(10, 1000, 1000)})
    assert refused(there, {}, {"c": Load(11, 11, 11)})
    assert refused(there, {"c": Load(5)}, {"a/b": Load(3), "a/x": Load(2), "c": Load(1)}), "in all"
    assert not refused(there, {"a/x": Load(2), "a/y": Load(2)}, {"a/z": Load(2)}), "each leaf under a star for itself"
    assert refused(there, {"a/x": Load(2)}, {"a/x": one})
    assert refused(there, {"a/x": Load(1, 10), "a/b": Load(1, 9)}, {"a/y": Load(1, 2)}), "all below the queue"
    assert not refused(there, {"a/b": Load(7, 7, 90)}, {"a/b": one}), "it is declared: the star is not for it"
    assert refused(there, {"a/b": Load(8, 8, 95)}, {"a/b": one})
    assert not refused(there, {}, {"a/x": Load(1000, 1000, 1000)}, ROOT)
    assert not refused(rules(personal=True, default=Bounds(jobs=1)), {}, {"c": Load(2)})


def test_what_is_not_said_is_as_is_usual():
    assert default_bounds(rules(), ALICE) == DEFAULT
    assert default_bounds(rules(default=Bounds(streams=7)), ALICE).streams == 7
    assert default_bounds(rules(default=Bounds(streams=7)), ALICE).jobs == DEFAULT.jobs
    assert default_bounds(rules(), ROOT) == default_bounds(rules(personal=True), ALICE) == Bounds()


def test_the_nearest_says_how_much_a_task_may_write():
    there = rules(default=Bounds(output_limit=1), a=Bounds(output_limit=2), star=Bounds(output_limit=3), ab=Bounds(jobs=1))
    assert [output_limit(there, leaf) for leaf in ("c", "a", "a/x", "a/b")] == [1, 2, 3, 2]
    assert output_limit(rules(), "c") == DEFAULT.output_limit
    assert output_limit(rules(personal=True), "c") is None
    assert output_limit(rules(personal=True, a=Bounds(output_limit=2)), "a/x") == 2


@given(st.lists(st.tuples(st.floats(0, 5), st.sampled_from("ab")), max_size=200), st.floats(1, 50))
def test_nobody_makes_more_requests_than_they_may_and_whoever_waits_as_told_may(asked, a_second):
    """In any stretch of time: so many a second, and those of `BURST_SECONDS` seconds besides."""
    now = 0.0
    rates = Rates(lambda: now)
    made = {"a": [], "b": []}
    for pause, who in asked:
        now += pause * (pause > 2) / 10
        wait = rates.wait(who, a_second)
        if wait:
            now += wait + 1e-9
            assert rates.wait(who, a_second) == 0
        made[who].append(now)
    for times in made.values():
        for first, begin in enumerate(times):
            for count, end in enumerate(times[first:], 1):
                assert count <= (end - begin + BURST_SECONDS) * a_second + 1e-6


def test_what_counts_as_many_requests_leaves_room_for_so_many_less():
    now = 0.0
    rates = Rates(lambda: now)
    assert [rates.wait("a", 50, 100) for _ in range(2)] == [0, 0], "those of four seconds"
    assert rates.wait("a", 50, 100) == pytest.approx(2.0)
    assert rates.wait("a", 50) > 0
    now = 2.0
    assert rates.wait("a", 50, 100) == 0
    assert rates.wait("b", 10, 100) == 0, "more than may ever come together: by itself"
    assert rates.wait("b", 10) == pytest.approx(10 - BURST_SECONDS + 0.1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[bounds.nowhere]\njobs = 1", "there is no queue 'nowhere' here"),
        ("[bounds.a]\nrequests = 5", 'requests cannot be bounded per queue: write them under "@default"'),
        ('[bounds."@default"]\nrequests = 0', "use 1 or more"),
        ('[bounds."@default"]\noutput_limit = "lots"', "output_limit"),
        ('[bounds."@default"]\njob = 5', "no such key here"),
    ],
)
def test_bounds_that_will_not_do(text, why, tmp_path):
    path = tmp_path / "fairlead.toml"
    path.write_text(f'[[queue]]\nname = "a"\n{text}\n')
    with pytest.raises(DocumentError, match="bounds") as error:
        read_configuration(path, find_policy)
    assert why in str(error.value)


def large(*jobs):
    """A body of many jobs, and these."""
    usual = {"argv": ["true", "x" * 1000], "demand": {"cpu": 1}}
    return json.dumps({"jobs": [usual] * (2 * LARGE // 1000) + list(jobs)}).encode()


@pytest.mark.parametrize(
    "body",
    [
        large(),
        large({"argv": ["true"], "demand": {"cpu": 1}, "bla": 1}),
        large({"argv": ["true"]}, {"argv": []}),
        large(7),
        b'{"jobs": 7}',
        b'{"jobs": []}',
        b"[]",
        b'{"more": []}',
    ],
)
def test_what_is_read_piece_by_piece_is_what_is_read_at_once(body):
    """The same model, or the same error."""
    found = []
    for read in (lambda: large_bodies.read(JobsRequest, body), lambda: JobsRequest.model_validate(json.loads(body))):
        try:
            found.append(read())
        except (ValidationError, RequestValidationError) as error:
            found.append(large_bodies.in_one_line(error.errors()))
    assert found[0] == found[1]


def test_large_bodies_are_read_one_at_a_time_for_each():
    def request_of(caller, body):
        async def receive():
            return {"type": "http.request", "body": body, "more_body": False}

        return Request({"type": "http", "method": "POST", "headers": [], "caller": caller}, receive)

    one_each = OnePerPerson("a large request of yours is being read already")

    async def main():
        asked = [(ALICE, large()), (ALICE, large()), (BOB, large()), (ALICE, b"{}")]
        bodies = [LargeBody(request_of(who, body), JobsRequest, one_each).json() for who, body in asked]
        found = await asyncio.gather(*bodies, return_exceptions=True)
        return [*found, await LargeBody(request_of(ALICE, large()), JobsRequest, one_each).json()]

    first, second, other, small, later = asyncio.run(main())
    assert first == other == later == JobsRequest.model_validate(json.loads(large()))
    assert (second.status_code, small) == (429, {})


def test_long_listings_are_made_one_at_a_time_for_each_and_others_are_asked_for_in_between():
    world = World([Queue("A")], {"cpu": 10})
    for _ in range(BATCH + 1):
        world.submit("A", {"cpu": 1})

    class Asked:
        authenticator, loop = SimpleNamespace(rules=rules()), SimpleNamespace(takes_nothing_on=False)
        clock = SimpleNamespace(wall=lambda at: at)
        questions = 0

        async def read(self, view):
            self.questions += 1
            await asyncio.sleep(0)
            return view(world.state)

    api, client = APIRouter(), Asked()
    add_listing(api, client)
    (listed,) = (route.endpoint for route in api.routes if route.name == "jobs")

    async def main():
        asked = [(ALICE, SHORT + 1), (ALICE, SHORT + 1), (BOB, SHORT + 1), (ALICE, SHORT), (ALICE, SHORT)]
        found = await asyncio.gather(*(listed(who, Selection(), limit=limit) for who, limit in asked), return_exceptions=True)
        return [*found, await listed(ALICE, Selection(), limit=SHORT + 1)]

    first, second, other, *short, later = asyncio.run(main())
    assert isinstance(second, Busy)
    told = [json.loads(each.body) for each in (first, other, later, *short)]
    assert [len(each["jobs"]) for each in told] == [SHORT + 1] * 3 + [SHORT] * 2
    assert client.questions >= 2 * 5, "each is more than one question"


# -- on a machine -------------------------------------------------------------------------------------------------------


def test_more_requests_than_one_may_make_are_told_when_to_come_again_and_others_are_answered(bounded):
    flood = f"""
import http.client, json, socket, time
wire = http.client.HTTPConnection("localhost")
wire.sock = socket.socket(socket.AF_UNIX)
wire.sock.connect({SOCKET!r})
found = []
for _ in range(400):
    wire.request("GET", "/v1/status")
    answer = wire.getresponse()
    answer.read()
    found.append((answer.status, answer.headers.get("Retry-After")))
print(json.dumps(found))
"""
    found = [tuple(each) for each in json.loads(bounded["bob"].python(flood).stdout)]
    assert set(found) == {(200, None), (429, "1")}
    assert sum(status == 200 for status, _ in found) >= 40 * BURST_SECONDS
    assert bounded["alice"].http("GET", "/v1/status")[0] == 200
    assert "people" in bounded["bob"].ok("queues"), "a command waits as it is told"


def test_streams_and_programs_are_so_many(bounded):
    hold = f"""
import socket, time
wires = []
for _ in range(4):
    wire = socket.socket(socket.AF_UNIX)
    wire.connect({SOCKET!r})
    wire.sendall(b"GET /v1/facts HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
    wire.settimeout(20)
    wires.append(wire)
    print(wire.recv(4096).split()[1].decode())
"""
    assert bounded["carol"].python(hold).stdout.split() == ["200"] * 3 + ["429"]
    opened = [bounded["carol"].http("POST", "/v1/sessions", {"argv": ["true"]}) for _ in range(3)]
    assert [status for status, _ in opened] == [201, 201, 400]
    assert "you have 2 programs" in opened[2][1]["error"]
    assert bounded["alice"].http("POST", "/v1/sessions", {"argv": ["true"]})[0] == 201


def test_jobs_tasks_and_environments_are_so_many_and_so_large_until_some_end(bounded):
    alice = bounded["alice"]
    waits = ["--cpu", "100", "--", "true"]
    jobs = [alice.ok("submit", "-q", "vision", *waits).strip() for _ in range(2)]
    full = alice.run("submit", "-q", "vision", *waits)
    assert (full.returncode, full.stderr.count("\n")) == (1, 1)
    assert "would be 3 jobs that have not ended in queue 'vision', and one person has 2 at most" in full.stderr
    alice.ok("submit", "-q", "people", *waits)
    alice.ok("cancel", jobs[0])
    large = alice.run("submit", "-q", "vision", "--env", f"X={'x' * 2048}", *waits)
    assert "bytes of commands, environments and labels" in large.stderr
    job = {"argv": ["true"], "demand": {"cpu": 10**6}, "queue": "vision"}
    for more in ({"exported": {"X": "x" * 2048}}, {"on": {"zone": ["é" * 1024]}}):
        code, told = alice.http("POST", "/v1/jobs", {**job, **more})
        assert (code, "bytes of commands, environments and labels" in told["error"]) == (400, True)
    alice.ok("submit", "-q", "vision", *waits)
    many = alice.run("submit", "-q", "people", "--tasks", "50", *waits)
    assert "would be 51 tasks of jobs that have not ended in queue 'people/alice'" in many.stderr
    bulk = {"jobs": [{"argv": ["true"], "demand": {"cpu": 10**6}, "queue": "people"}] * 40}
    assert "43 jobs" in bounded["alice"].http("POST", "/v1/bulk", bulk)[1]["error"]
    assert bounded["bob"].http("POST", "/v1/bulk", {"jobs": bulk["jobs"][:30]})[0] == 201
    for who in ("alice", "bob"):
        bounded[who].ok("cancel", "-q", "/")


def test_a_task_that_writes_more_than_it_may_is_stopped_and_says_so(bounded):
    alice = bounded["alice"]
    modest = alice.task("--", "sh", "-c", "head -c 500000 /dev/zero | tr '\\0' x; sleep 1.2")
    assert (modest[0], len(modest[1])) == (0, 500000)
    job = alice.ok("submit", "-q", "people", "--", "sh", "-c", "head -c 3000000 /dev/zero >&2; sleep 600").strip()
    alice.run("wait", job)
    (task,) = alice.http("GET", f"/v1/jobs/{job}/tasks")[1]["tasks"]
    assert (task["status"], task["reason"], task["exit"]) == ("failed", "output limit", 128 + 25)
    assert (
        "it exceeded the output limit"
        in alice.run("run", "-q", "people", "--", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; sleep 600").stderr
    )
