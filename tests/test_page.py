"""The page: each view as plain HTML, that all it links to is there, what its forms do, and the stream of its regions."""

import asyncio
import http.client
import json
import re
import threading
import time
from collections import Counter
from types import SimpleNamespace
from urllib.parse import quote, urlencode

import pytest

from browser import Page, signed_in
from fairlead.html_page import blocks, linked, moment, render, short_span
from fairlead.people.accounts import Person
from fairlead.people.rules import Caller, Rules
from fairlead.service.api.state_client import StateClient
from fairlead.service.loop import Busy
from fairlead.service.page.following import LEAST_SECONDS, MOST_VIEWS, Following
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
            target = path.partition("?")[0] + link if link.startswith("?") else link
            assert target.startswith(("/page/", "/?")), link
            if target not in seen and len(seen) < 70:
                seen.add(target)
                todo.insert(0, target) if "?" in target else todo.append(target)
    assert kinds == {view.template for view in VIEWS}


def test_names_are_text_and_no_markup(browser):
    text = browser.ask("/page/jobs/1")[2]
    assert "&lt;b&gt;train&lt;/b&gt;" in text
    assert "<b>train" not in text
    assert linked("see job 7, <i>\x1b[1m") == 'see <a href="/page/jobs/7">job 7</a>, &lt;i&gt;\\x1b[1m'


def test_a_job_s_page_says_why_it_waits_until_when_and_what_failed(browser):
    text = browser.ask("/page/jobs/4")[2]
    assert "Why it waits" in text
    assert re.search("no node has room: n1, the closest, lacks", text)
    assert "Start: " in text or "Expected to start" in text
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
    """What is no number is none, or is refused: a card that is none is not the whole node."""
    for path in ("nodes?first=", "jobs/1?task=", "queues?find=", "jobs?before=", "events?view=", "jobs?status="):
        assert browser.ask(f"/page/{path}{quote(odd)}")[0] in (200, 400, 404, 422), path
    assert browser.ask("/page/nodes/n1/drain", {"gpu": odd})[0] == 422
    assert browser.ask("/page/jobs/1/edit", {"priority": odd})[0] in (400, 404, 409, 422)
    assert browser.ask("/page/leave", {}, Origin=quote(odd, safe=":/["))[0] == 403


def following(browser, view, seen=""):
    """A stream of a view: its connection and its answer."""
    wire = http.client.HTTPConnection("127.0.0.1", browser.parts.port, timeout=30)
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
    begin = time.monotonic()
    world.ok("hold", view.rpartition("/")[2])
    sent = {}
    while "it is held" not in sent.get("why", {}).get("html", ""):
        line = answer.readline()
        if line.startswith(b"data: "):
            found = json.loads(line[6:])
            sent[found["id"]] = found
    assert time.monotonic() - begin < 10 * LEAST_SECONDS
    assert set(sent) <= {"state", "why"}
    wire.close()
    assert browser.ask("/page/events?view=/page/none")[0] == 404
    world.ok("cancel", view.rpartition("/")[2])


def test_a_bar_says_what_is_used_borrowed_guaranteed_and_limited():
    queue = {"used": {"cpu": 6}, "guarantee": {"cpu": 2}, "limit": {"cpu": 8}, "fair_share": {"steady": {"cpu": 4}}}
    found = bar(queue, {"cpu": 10}, "cpu")
    assert [found[name] for name in ("used", "fair", "guarantee", "limit", "borrowed")] == [6, 4, 2, 8, 2]
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
