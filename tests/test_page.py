"""The page: each view as plain HTML, that all it links to is there, what its forms do, and the stream of its regions."""

import asyncio
import html
import http.client
import json
import re
import threading
import time
from collections import Counter
from types import SimpleNamespace
from urllib.parse import quote, urlencode

import pytest

from browser import Page, region, signed_in
from fairlead.html_page import blocks, linked, moment, render, short_span
from fairlead.people.accounts import Person
from fairlead.people.rules import Caller, Rules
from fairlead.service.api.state_client import StateClient
from fairlead.service.loop import Busy
from fairlead.service.page.asking import Past
from fairlead.service.page.following import MOST_VIEWS, Following
from fairlead.service.page.views import VIEWS, bar
from fairlead.service.wakeups import Wakeups


@pytest.fixture(scope="module")
def world(shared):
    """A scheduler with jobs of every status, of which one has tasks that failed and another a long log."""
    shared.submit("-q", "A", "--name", "<b>train</b>", "-n", "9", "--", "sh", "-c", "exit $((FAIRLEAD_INDEX % 2))")
    shared.submit("-q", "lab/ada", "--", "sh", "-c", "seq 100000; echo the last line")
    shared.ok("wait", "2")
    shared.submit("-q", "A", "--cpu", "8", "--", "sleep", "600")
    shared.submit("-q", "B", "-n", "3", "--cpu", "4", "--", "sleep", "600")
    shared.submit("-q", "B", "--cpu", "1", "--after", "4", "--", "true")
    shared.ok("hold", str(shared.submit("-q", "lab/ada", "--cpu", "3", "--", "true")))
    shared.call("wait", "1")
    yield shared
    shared.ok("cancel", "--queue", "A")
    shared.ok("cancel", "--queue", "B")


@pytest.fixture(scope="module")
def browser(world):
    return signed_in(world)


def test_all_that_pages_link_to_is_there_and_each_page_is_whole(browser):
    """From the first page on: no link leads nowhere, each field has a label, and the policy of content refuses nothing."""
    todo, seen, kinds = ["/"], set(), set()
    while todo:
        path = todo.pop()
        status, head, text = browser.ask(path)
        assert status == 200, (path, text)
        assert head["Content-Type"] == "text/html; charset=utf-8"
        page = Page(text)
        assert not page.refused, path
        assert len(page.ids) == len(set(page.ids)), path
        assert set(page.fields) <= page.labels, path
        assert text.count("<h1>") == 1
        assert "<code>fairlead " in text  # the command that says the same
        kinds |= {view.template for view in VIEWS if view.pattern.fullmatch(path.partition("?")[0])}
        for link in page.links:
            if link.startswith("#"):
                assert link[1:] in page.ids
                continue
            target = (path.partition("?")[0] + link if link.startswith("?") else link).partition("#")[0]
            assert target.startswith(("/page/", "/?")), link
            if target not in seen and len(seen) < 70:
                seen.add(target)
                todo.insert(0, target) if "?" in target else todo.append(target)
    assert kinds == {view.template for view in VIEWS}


def test_each_page_names_commands_with_its_range_and_its_filters(browser):
    """What the footer names says the same as the page; names are quoted for a shell."""
    for path, expected in {
        "people?over=1h": ["fairlead usage --since=1h", "fairlead audit --over=1h"],
        "history": ["fairlead audit --over=24h"],
        "history?over=7d": ["fairlead audit --over=7d"],
        "jobs?queue=lab/ada&user=me%3B%20ls&status=held": ["fairlead jobs --queue=lab/ada '--user=me; ls' --status=held"],
        "jobs/1?task=3": ["fairlead job 1", "fairlead why 1", "fairlead logs 1.3"],
        "queues?find=a%20b": ["fairlead queues --all | grep -iF 'a b'", "fairlead queues --shares --all | grep -iF 'a b'"],
        "nodes?find=N1": ["fairlead nodes | grep -iF N1", "fairlead doctor"],
    }.items():
        footer = browser.ask(f"/page/{path}")[2].partition("<footer>")[2]
        assert [html.unescape(each) for each in re.findall("<code>(.*?)</code>", footer)] == expected


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("history?over=2h", 400, "over: '2h' is none of 1h, 24h, 7d"), ("people?over=x", 400, "none of 1h"),
        ("queues/A?over=1", 400, "none of 1h"), ("now?resource=beer", 400, "resource: 'beer' is none of cpu, memory"),
        ("queues?resource=beer", 400, "none of cpu, memory"), ("jobs?status=asleep", 400, "none of waiting, held"),
        ("jobs?queue=none", 404, "there is no queue 'none'"), ("queues/none", 404, "there is no queue 'none'"),
        ("jobs?before=x", 400, "before: 'x' is not a number"),
        ("jobs/1?task=9", 404, "task: 9 is too large: use a number below 9"),
        ("jobs/1?task=x", 400, "task: 'x' is not a number"), ("jobs/1?status=asleep", 400, "none of waiting"),
        ("jobs/1?stream=both", 400, "none of out, err"), ("jobs/999", 404, "999"), ("nodes?status=odd", 400, "none of up"),
        ("nodes?first=100", 404, "first: 100 is too large"), ("nodes/none", 404, "there is no node 'none'"),
        ("nowhere", 404, "no such page"),
    ],
)  # fmt: skip
def test_a_wrong_question_is_refused_in_one_line(browser, path, status, says):
    found, _, text = browser.ask(f"/page/{path}")
    assert (found, html.unescape(text).count(says)) == (status, 1), text


def test_people_who_wait_and_got_nothing_are_listed_and_nothing_is_called_even_that_is_not_known(world, browser):
    job = world.submit("-q", "lab/nobody", "--cpu", "3", "--memory", "17Gi", "-n", "2", "--", "true")
    world.until(lambda: ">lab/nobody<" in browser.ask("/page/queues/lab/nobody?over=1h")[2])
    answers = []  # refused while the page's own report is made
    world.until(lambda: answers.append(world.call("usage", "--json")) or answers[-1].returncode == 0)
    usage = json.loads(answers[-1].stdout)["usage"]
    mine = next(each for each in usage if each["queue"] == "lab/nobody")
    assert (mine["tasks"], mine["asked"]["cpu"], mine["waiting"]) == (0, 0.0, 2)
    world.until(lambda: "as of <time" in browser.ask("/page/people?over=1h")[2])
    world.ok("cancel", str(job))
    rows = [{**mine, "user": "ada", "queues": {"lab/nobody": None}, "over": [], "limits": []}]
    values = {"people": rows, "more": 0, "usage": {"at": 0.0}, "period": "1h", "query": {}}
    assert "not known yet" in blocks("people.html", {**values, "past": None})["list"]
    assert "not known yet" in blocks("people.html", {**values, "past": {"failed": "no journal"}})["list"]
    known = blocks("people.html", {**values, "past": {"queues": []}})["list"]
    assert "no demand" in known
    assert "even" not in known


def test_what_takes_long_is_shown_when_it_is_there_and_says_of_when_it_is():
    """A page does not wait for a forecast that is slow; each answer is made once while it is fresh, for each caller."""
    caller, other = (Caller(Person(name, uid, uid)) for uid, name in enumerate(("ada", "ben"), 1001))
    gate, asked = asyncio.Event(), []

    async def asking(caller, path, query):
        asked.append(caller)
        await gate.wait()
        return {"text": "soon"}

    async def run():
        past = Past(asking)
        first = await past(None, caller, False, "/v1/jobs/1/when")
        gate.set()
        begin = time.time()
        found = [await past(None, each, True, "/v1/jobs/1/when") for each in (caller, caller, other)]
        assert all(begin <= each.pop("at") <= time.time() for each in {id(each): each for each in found}.values())
        return first, found

    assert asyncio.run(run()) == (None, [{"text": "soon"}] * 3)
    assert asked == [caller, other]


def test_a_failed_job_opens_on_its_errors_where_it_has_no_output(world, browser):
    failed = world.submit("-q", "lab/ada", "--", "sh", "-c", "echo what was wrong >&2; exit 3")
    spoke = world.submit("-q", "lab/ada", "--", "sh", "-c", "echo first; echo wrong >&2; exit 3")
    world.call("wait", str(failed))
    world.call("wait", str(spoke))
    assert "what was wrong" in region(browser.ask(f"/page/jobs/{failed}")[2], "log")
    assert "(nothing yet)" in region(browser.ask(f"/page/jobs/{failed}?stream=out")[2], "log")
    assert "first" in region(browser.ask(f"/page/jobs/{spoke}")[2], "log")


def test_a_task_is_called_by_the_index_it_was_given(world, browser):
    job = world.submit("-q", "lab/ada", "--array", "10,20", "--", "sh", "-c", "echo it is {index}; test {index} = 10")
    world.call("wait", str(job))
    text = browser.ask(f"/page/jobs/{job}")[2]
    assert "Log of task 20" in text
    assert f"fairlead logs {job}.20" in text
    assert "it is 20" in region(text, "log")
    assert re.findall(r'title="task (\d+): (\w+)"', text) == [("10", "succeeded"), ("20", "failed")]
    assert world.ok("logs", f"{job}.20") == "it is 20\n"


def test_a_job_s_page_says_until_when_room_is_kept():
    kept = {"job": 2, "queue": "B", "start": 1000.0, "end": 2000.0}
    why = {"text": "no room", "ahead": [], "reserved": {"made": 0.0, "start": 500.0, "slips": 1, "end": 700.0}, "kept": [kept]}
    job = {"waiting": 1, "status": "waiting"}
    text = blocks("job.html", {"job": job, "over": False, "why": why, "when": None}, only=("why",))["why"]
    assert re.search(
        "kept for it since .*until it starts. All of it should be free at .*postponed 1 time; it may start before, ", text
    )
    assert re.search("job 2</a> of .*which should start at .* and end at ", text)
    assert "being forecast" in text
    why = {**why, "reserved": {**why["reserved"], "start": None, "end": None}, "kept": [{**kept, "start": None, "end": None}]}
    text = blocks("job.html", {"job": job, "over": False, "why": why, "when": None}, only=("why",))["why"]
    assert "until it starts." in text, "nobody knows when"
    assert "should" not in text


def test_names_are_text_and_no_markup(browser):
    text = browser.ask("/page/jobs/1")[2]
    assert "&lt;b&gt;train&lt;/b&gt;" in text
    assert "<b>train" not in text
    assert linked("see job 7, <i>\x1b[1m") == 'see <a href="/page/jobs/7">job 7</a>, &lt;i&gt;\\x1b[1m'


def test_a_job_s_page_says_why_it_waits_until_when_and_what_failed(world, browser):
    text = browser.ask("/page/jobs/4")[2]
    assert "Why it waits" in text
    assert re.search("no node has room: n1, the closest, lacks", text)
    world.until(lambda: re.search("Start: |Expected to start", browser.ask("/page/jobs/4")[2]))
    assert "as of <time" in browser.ask("/page/jobs/4")[2]
    after = browser.ask("/page/jobs/5")[2]
    assert 'it comes after <a href="/page/jobs/4">job 4</a>, which has to succeed first' in after
    failed = browser.ask("/page/jobs/1")[2]
    assert len(re.findall('<li class="failed">', failed)) == 4
    assert len(re.findall('<li class="succeeded">', failed)) == 5
    assert "Rerun failed" in failed
    log = browser.ask("/page/jobs/2")[2]
    assert "the last line\n</pre>".replace("\n", "") in log.replace("\n", "")
    assert "fairlead logs 2.0" in log
    assert len(log) < 80_000


def test_the_end_of_an_output_is_its_last_bytes(world):
    output = "/v1/jobs/2/tasks/0/output/out"
    whole = world.http("GET", output)[1]
    for count in (1, 7, 4096, 100_000, 262_144):
        assert world.http("GET", f"{output}?last={count}")[1] == whole[-count:]
    assert world.http("GET", "/v1/jobs/2/tasks/0/output/err?last=9")[1] == ""


def test_forms_do_what_commands_do(world, browser):
    job = world.submit("-q", "A", "--cpu", "100", "--", "true")
    posts = Page(browser.ask(f"/page/jobs/{job}")[2]).posts
    assert posts == ["/page/leave", *(f"/page/jobs/{job}/{what}" for what in ("cancel", "hold", "edit"))]
    for what, then in (("hold", "held"), ("release", "waiting"), ("cancel", "cancelled")):
        assert browser.ask(f"/page/jobs/{job}/{what}", {})[0] == 303
        assert world.job(job)["status"] == then
        if then == "waiting":
            given = {"priority": "3", "at_most": "", "retries": "2", "time_limit": "2h", "queue": "B"}
            assert browser.ask(f"/page/jobs/{job}/edit", given)[0] == 303
            found = world.ask(f"jobs/{job}")
            assert [found[name] for name in ("priority", "retries", "time_limit", "queue")] == [3, 2, 7200, "B"]
            status, _, text = browser.ask(f"/page/jobs/{job}/edit", {"priority": "much"})
            assert (status, "much" in text) == (422, True)
    status, head, _ = browser.ask("/page/jobs/1/rerun", {"failed": "1"})
    again = int(head["Location"].rpartition("/")[2])
    assert (status, world.job(again)["tasks"]) == (303, 4)
    for what, then in (("drain", "draining"), ("resume", "up")):
        assert browser.ask(f"/page/nodes/n1/{what}", {})[0] == 303
        assert world.ask("nodes")["nodes"][0]["status"] == then
    for path in ("/page/jobs/999/cancel", "/page/nodes/none/drain", "/page/none", "/v1/down", "/page/jobs/1/down"):
        assert browser.ask(path, {})[0] == 404, path


@pytest.mark.parametrize("odd", ["²", "١", "9" * 5000, "-1", "http://[", "http://x/\x00"])
def test_odd_parameters_are_no_internal_errors(browser, odd):
    """What is not a number is none, or is refused: a card that is none is not the whole node."""
    for path in ("nodes?first=", "jobs/1?task=", "queues?find=", "jobs?before=", "events?view=", "jobs?status="):
        assert browser.ask(f"/page/{path}{quote(odd)}")[0] in (200, 400, 404, 422), path
    assert browser.ask("/page/nodes/n1/drain", {"gpu": odd})[0] == 422
    assert browser.ask("/page/jobs/1/edit", {"priority": odd})[0] in (400, 404, 409, 422)
    assert browser.ask("/page/leave", {}, Origin=quote(odd, safe=":/["))[0] == 403


def following(browser, view, seen=""):
    """A stream of a view: its connection and its answer."""
    wire = http.client.HTTPConnection("127.0.0.1", browser.parts.port, timeout=60)
    headers = {"Host": browser.parts.netloc, "Cookie": browser.cookie}
    wire.request("GET", f"/page/events?{urlencode({'view': view, 'seen': seen})}", headers=headers)
    return wire, wire.getresponse()


def test_signing_out_ends_the_streams_of_the_visit_alone(world):
    """What happens afterwards is not sent: the stream ends instead."""
    browser, other = signed_in(world), signed_in(world)
    view = f"/page/jobs/{world.submit('-q', 'A', '--cpu', '100', '--', 'true')}"
    (wire, answer), (others, goes_on) = (following(each, view) for each in (browser, other))
    while b'"log"' not in answer.readline():
        pass
    assert browser.ask("/page/leave", {})[0] == 401
    world.ok("cancel", view.rpartition("/")[2])
    assert b"cancelled" not in answer.read()
    while b"cancelled" not in goes_on.readline():
        pass
    wire.close()
    others.close()


def following_of(rights):
    """Streams of views without a scheduler, for callers who all are accepted."""

    async def same(caller):
        return caller

    wakeups = Wakeups()
    wakeups.attach(asyncio.get_running_loop())
    authenticator = SimpleNamespace(reauthenticate=same, rules=Rules({}))
    following = Following(StateClient(SimpleNamespace(stopped=threading.Event()), wakeups, authenticator, None))

    def stream(caller, key, make):
        return following.stream(caller, lambda: caller, lambda caller: (key, rights[0]), make, {})

    return wakeups, stream


def test_a_stream_ends_when_its_reader_may_no_longer_see_the_same():
    """A queue becomes private while one stream is of what all see: what another may see of it is not sent."""
    caller, rights, shown = Caller(Person("ada", 1001, 1001)), ["all"], {"queues": ("1", "public")}

    async def make():
        return dict(shown)

    async def run():
        wakeups, stream = following_of(rights)
        events = stream(caller, "now", make)
        sent = [await anext(events), await anext(events)]
        shown["queues"], rights[0] = ("2", "whose it is"), "ada"
        wakeups.wake([("page", ("now", "all"))])
        return sent, [each async for each in events]

    before, after = asyncio.run(run())
    assert b"public" in before[1]
    assert after == []


def test_of_one_person_one_view_is_rendered_at_a_time_and_none_over_the_limit():
    """Streams that begin at once are all counted; what one person follows delays nobody else's."""
    callers = [Caller(Person(name, uid, uid)) for uid, name in enumerate(("ada", "ben"), 1001)]
    now, most = Counter(), Counter()

    async def run():
        _, stream = following_of(["all"])

        def make_of(caller):
            async def make():
                now[caller] += 1
                most[caller], most["all"] = max(most[caller], now[caller]), max(most["all"], now.total())
                await asyncio.sleep(0)
                now[caller] -= 1
                return {"queues": ("1", "text")}

            return make

        streams = [stream(callers[k % 2], (k % 2, k), make_of(callers[k % 2])) for k in range(2 * MOST_VIEWS + 6)]
        first = await asyncio.gather(*map(anext, streams), return_exceptions=True)
        await asyncio.gather(*(anext(each) for each, found in zip(streams, first, strict=True) if found == b": ping\n\n"))
        for each in streams:
            await each.aclose()
        return [type(each) for each in first]

    assert Counter(asyncio.run(run())) == {bytes: 2 * MOST_VIEWS, Busy: 6}
    assert [most[caller] for caller in (*callers, "all")] == [1, 1, 2]


def test_a_change_is_sent_to_those_who_look_and_nothing_else(world, browser):
    """The stream sends a region if it differs from what the browser has; a browser that has all hears nothing."""
    view = f"/page/jobs/{world.submit('-q', 'A', '--cpu', '100', '--', 'true')}"
    text = browser.ask(view)[2]
    versions = dict(re.findall(r'<section id="(\w+)" data-region data-v="(\w+)"', text))
    assert list(versions) == ["state", "why", "used", "tasks", "log"]
    seen = ",".join(f"{name}.{version}" for name, version in versions.items())
    wire, answer = following(browser, view, seen)
    assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert answer.readline() == b": ping\n"
    world.ok("hold", view.rpartition("/")[2])
    sent = {}
    while "it is held" not in sent.get("why", {}).get("html", ""):
        line = answer.readline()
        if line.startswith(b"data: "):
            found = json.loads(line[6:])
            sent[found["id"]] = found
    assert set(sent) <= {"state", "why"}
    wire.close()
    assert browser.ask("/page/events?view=/page/none")[0] == 404
    world.ok("cancel", view.rpartition("/")[2])


def test_a_bar_says_what_is_used_borrowed_guaranteed_and_limited():
    queue = {"used": {"cpu": 6}, "guarantee": {"cpu": 2}, "limit": {"cpu": 8}, "fair_share": {"steady": {"cpu": 4}}}
    found = bar(queue, {"cpu": 10}, "cpu")
    assert [found[name] for name in ("used", "steady", "guarantee", "limit", "borrowed")] == [6, 4, 2, 8, 2]
    assert [found[f"{name}_part"] for name in ("used", "borrowed", "limit")] == [0.6, 0.2, 0.8]
    assert bar(queue, {"cpu": 10}, "gpu")["total"] == 0


def test_times_are_written_to_be_read():
    assert [short_span(x) for x in (0, 59.6, 61, 3660, 90000, 864000)] == [
        "0 s",
        "1 min",
        "1 min 1 s",
        "1 h 1 min",
        "1 d 1 h",
        "10 d",
    ]
    assert re.fullmatch(r"\d\d:\d\d:\d\d", moment(time.time()))
    assert re.fullmatch(r"\d\d \w{3} \d\d:\d\d", moment(86400.0))


def test_pages_for_strangers_need_nothing_of_the_scheduler():
    assert not Page(render("enter.html", why="you are not signed in", path="/")).refused
    assert not Page(render("failure.html", status=404, text="<i>")).refused
    assert "<i>" not in blocks("nodes.html", {"find": "<i>"}, only=("head",))["head"]


def test_each_s_load_of_pages_is_bounded(world):
    """So many different views may be followed at once; those who follow the same one are as many as like."""
    browser = signed_in(world)

    def follow(query):
        wire, answer = following(browser, f"/page/jobs?user={query}")
        wires.append(wire)
        return answer.status if answer.status != 200 else (answer.readline(), 200)[1]

    wires = []
    try:
        assert [follow(f"u{k}") for k in range(MOST_VIEWS)] == [200] * MOST_VIEWS
        assert [follow("u1"), follow("u1&odd=1"), follow("another")] == [200, 200, 429]  # no view reads `odd`
    finally:
        for wire in wires:
            wire.close()
