"""The stream of facts: everybody gets all of them in order, and a thousand readers cost little more than one."""

import asyncio
import contextlib
import json
import threading
from types import SimpleNamespace

import pytest
from fastapi import APIRouter, FastAPI
from tests.memory_store import MemoryStore

from fairlead.journal import Journal
from fairlead.model.specs import Job, Queue, Work
from fairlead.people.accounts import Person, myself
from fairlead.people.authenticator import Authenticator
from fairlead.people.rules import Caller, Rules
from fairlead.people.tokens import Tokens
from fairlead.scheduler.facts import JobSubmitted, NodeDrained
from fairlead.service import feed as feeds
from fairlead.service.api import app as apps
from fairlead.service.api import jobs, state_client
from fairlead.service.api.calls import add_calls
from fairlead.service.api.cluster import add_facts
from fairlead.service.api.people import add_tokens
from fairlead.service.api.state_client import StateClient
from fairlead.service.feed import Feed
from fairlead.service.wakeups import Wakeups

ADA, BOB = (Caller(Person(name, uid, uid)) for name, uid in (("ada", 1001), ("bob", 1002)))


class Looking(Journal):
    """Counts how often it is read."""

    looks = 0

    def look(self, after, most):
        self.looks += 1
        return super().look(after, most)


@pytest.fixture
def journal():
    journal = Looking(MemoryStore())
    journal.append([NodeDrained(at=float(k), node=f"n{k}") for k in range(1200)])
    return journal


def make(journal, rules=None):
    loop = SimpleNamespace(stopped=threading.Event())

    async def again(caller):
        return caller

    authenticator = SimpleNamespace(rules=rules or Rules({"q": Queue("q")}), reauthenticate=again)
    wakeups = Wakeups()
    return Feed(journal, authenticator, wakeups, loop), wakeups, loop, authenticator


def events(text):
    """Number, kind and fact of each event."""
    found = []
    for event in text.decode().split("\n\n")[:-1]:
        if not event.startswith(":"):
            kind, data, number = (line.partition(": ")[2] for line in event.split("\n"))
            found.append((int(number), kind, json.loads(data)))
    return found


async def text_of(reader):
    return b"".join([page async for page in reader])


async def all_of(reader):
    return events(await text_of(reader))


def test_everything_is_told_once_and_in_order(journal):
    feed, *_ = make(journal)
    found = asyncio.run(all_of(feed.read(ADA, 3, False)))
    assert [number for number, *_ in found] == list(range(4, 1201))
    assert {kind for _, kind, _ in found} == {"NodeDrained"}
    assert found[0][2]["node"] == "n3"


def test_a_thousand_readers_read_the_journal_as_often_as_one(journal, monkeypatch):
    monkeypatch.setattr(feeds, "PACE_SECONDS", 0)

    async def main(count):
        feed, *_ = make(journal)
        return await asyncio.gather(*(text_of(feed.read(ADA, 0, False)) for _ in range(count)))

    asyncio.run(main(1))
    alone, journal.looks = journal.looks, 0
    found = asyncio.run(main(1000))
    assert journal.looks == alone
    assert all(each == found[0] for each in found)
    assert len(events(found[0])) == 1200


def test_who_follows_is_told_what_happens_and_one_that_leaves_disturbs_nobody(journal, monkeypatch):
    monkeypatch.setattr(feeds, "PACE_SECONDS", 0)

    async def main():
        feed, wakeups, loop, _ = make(journal)
        wakeups.attach(asyncio.get_running_loop())
        readers = [feed.read(ADA, 1199, True) for _ in range(3)]
        first = await asyncio.gather(*(anext(each) for each in readers))
        assert [events(each)[0][0] for each in first] == [1200] * 3
        waiting = [asyncio.create_task(anext(each)) for each in readers]
        await asyncio.sleep(0.05)
        waiting[0].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting[0]
        journal.append([NodeDrained(at=2000.0, node="late")])
        wakeups.wake(["facts"])
        later = await asyncio.wait_for(asyncio.gather(*waiting[1:]), 60)
        assert [[number for number, *_ in events(each)] for each in later] == [[1201]] * 2
        loop.stopped.set()
        wakeups.wake()
        for each in readers[1:]:
            assert [page async for page in each] == []

    asyncio.run(main())


def test_each_is_told_what_they_may_know_and_a_new_configuration_counts_at_once(journal):
    work = Work(["secret"], "/", {"KEY": "x"})
    journal.append([JobSubmitted(at=1300.0, id=1, job=Job("q", {"cpu": 1}, user="ada", uid=1001, work=work))])

    async def main():
        feed, _, _, authenticator = make(journal)
        seen = [await all_of(feed.read(who, 1200, False)) for who in (ADA, BOB, ADA)]
        authenticator.rules = Rules({"q": Queue("q", admin=["bob"])})
        return [*seen, await all_of(feed.read(BOB, 1200, False))]

    ada, bob, again, admin = asyncio.run(main())
    assert ada == again == admin
    assert ada[0][2]["job"]["work"]["argv"] == ["secret"]
    assert "secret" not in json.dumps(bob)
    assert bob[0][2]["job"]["user"] == "ada"


def test_a_stream_ends_with_its_token_and_tells_nothing_that_happened_since(journal, monkeypatch):
    monkeypatch.setattr("fairlead.service.feed.PING_SECONDS", 0.01)
    good = {"t1", "t2"}

    async def main():
        feed, wakeups, _, authenticator = make(journal)

        async def again(caller):
            return caller if caller.token in good else None

        authenticator.reauthenticate = again
        one, two = (feed.read(ADA._replace(token=token), 1190, True) for token in ("t1", "t2"))
        first = [await anext(one), await anext(two)]
        looks = journal.looks
        good.remove("t1")
        journal.append([NodeDrained(at=1300.0, node="secret")])
        wakeups.wake(["facts"])
        rest = [page async for page in one]
        told = await anext(two)
        good.remove("t2")
        return first, looks, rest, told, [page async for page in two]

    first, looks, rest, told, silent = asyncio.run(main())
    assert first[0] == first[1]
    assert looks == 1, "the same person's streams are made once, whatever their tokens"
    assert rest == silent == []
    assert b"secret" in told


def test_a_stream_tells_what_its_person_may_know_now_and_ends_with_their_account(journal, monkeypatch, tmp_path):
    def submitted(secret):
        work = Work([secret])
        return JobSubmitted(at=1300.0, id=len(secret), job=Job("q", {"cpu": 1}, user="ada", uid=1001, work=work))

    bob = Caller(Person("bob", 1002, 1002, frozenset({"crew"})))
    accounts = {1002: bob.person}

    async def main():
        feed, wakeups, _, _ = make(journal)
        wakeups.attach(asyncio.get_running_loop())
        authenticator = feed._authenticator = Authenticator(Tokens(tmp_path / "tokens"), personal=False)
        authenticator.rules = Rules({"q": Queue("q", admin=["@crew"])})
        monkeypatch.setattr(authenticator.accounts, "remembered", lambda uid: None)
        monkeypatch.setattr(authenticator.accounts, "by_uid", accounts.get)
        journal.append([submitted("plain")])
        reader = feed.read(bob, 1200, True)
        found = [await anext(reader)]
        accounts[1002] = Person("bob", 1002, 1002)  # is in the group no more
        journal.append([submitted("secret")])
        wakeups.wake(["facts"])
        found.append(await anext(reader))
        accounts[1002] = Person("zoe", 1002, 1002)  # the account is gone, and its number is another's
        journal.append([submitted("another")])
        wakeups.wake(["facts"])
        return found, [page async for page in reader]

    (first, second), rest = asyncio.run(main())
    assert b"plain" in first
    assert b"JobSubmitted" in second
    assert b"secret" not in second
    assert rest == []


def test_a_page_that_is_kept_hides_nothing_that_happened_since(journal):
    async def main():
        feed, *_ = make(journal)
        before = await all_of(feed.read(ADA, 1000, False))
        journal.append([NodeDrained(at=2000.0, node="late")])
        return before, await all_of(feed.read(ADA, 1000, False))

    before, after = asyncio.run(main())
    assert [number for number, *_ in after] == [number for number, *_ in before] + [1201]


def test_what_is_kept_is_bounded(journal, monkeypatch):
    monkeypatch.setattr(feeds, "MOST_KEPT", 20_000)
    feed, *_ = make(journal)
    asyncio.run(all_of(feed.read(ADA, 0, False)))
    assert sum(len(page) for page, *_ in feed._pages.values()) == feed._kept <= 20_000


def test_one_who_waits_hears_that_the_line_is_there(journal, monkeypatch):
    monkeypatch.setattr(feeds, "PING_SECONDS", 0.01)

    async def main():
        feed, *_ = make(journal)
        reader = feed.read(ADA, 1200, True)
        assert await asyncio.wait_for(anext(reader), 60) == b": ping\n\n"
        await reader.aclose()

    asyncio.run(main())


RECORDS = SimpleNamespace(refused=lambda *_, **more: None, done=lambda *_: None)
"""An audit log that keeps nothing."""


async def request(app, path, caller=ADA, on_head=None, method="GET"):
    """Make a request without a web server; return the status and the body."""
    sent, gone = [], asyncio.Event()

    async def send(message):
        sent.append(message)
        if on_head is not None and message["type"] == "http.response.start":
            await on_head()

    path, _, query = path.partition("?")
    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": [], "caller": caller}
    scope |= {"asgi": {"version": "3.0", "spec_version": "2.4"}, "audit_records": RECORDS}
    await app(scope, gone.wait, send)
    head = next(message for message in sent if message["type"] == "http.response.start")
    return head["status"], b"".join(message.get("body", b"") for message in sent[1:])


def test_a_stream_beyond_the_limit_is_refused_before_its_head(journal, monkeypatch):
    monkeypatch.setattr(state_client, "MOST_WAITERS", 1)
    feed, wakeups, loop, authenticator = make(journal, Rules({}, personal=True))
    client = StateClient(loop, wakeups, authenticator, None)
    app, api = FastAPI(), APIRouter()
    apps._answer_errors_in_one_line(app)
    add_facts(api, client, feed)
    app.include_router(api)
    path, refused = "/v1/facts?after=1000&follow=false", []

    async def ask_too():
        refused.append(await request(app, path))

    status, text = asyncio.run(request(app, path, on_head=ask_too))
    assert (status, len(events(text))) == (200, 200)
    ((status, text),) = refused
    assert status == 429
    assert "long polls are pending" in json.loads(text)["error"]
    assert not client._waiters


class Sessions:
    """Sessions without events."""

    epoch, relays = "", SimpleNamespace(wait_for=lambda session: False)

    def touch(self, session, uid):
        return None

    def events(self, *asked):
        return 0, []


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/v1/facts?after=1200", 200, b""),
        ("/v1/jobs/1?wait=50", 401, b"is revoked or expired"),
        (f"/v1/sessions/{'0' * 32}/events?wait=50", 401, b"is revoked or expired"),
    ],
)
def test_what_waits_ends_when_its_token_is_revoked(journal, monkeypatch, tmp_path, path, status, says):
    monkeypatch.setattr(feeds, "PING_SECONDS", 3600)
    feed, wakeups, loop, _ = make(journal)
    feed._authenticator = authenticator = Authenticator(Tokens(tmp_path / "tokens.json"), personal=True)
    client = StateClient(loop, wakeups, authenticator, None)
    app, api = FastAPI(), APIRouter()
    apps._answer_errors_in_one_line(app)
    add_facts(api, client, feed)
    add_tokens(api, client, RECORDS)
    add_calls(api, client, None, Sessions())
    jobs.add_looking(api, client, None, None)
    app.include_router(api)

    async def read_job(caller, job):
        return {"finished_at": None}

    client.read_job = read_job
    mine, other = (Caller(myself(), None, False, authenticator.tokens.new(myself())[0].id) for _ in range(2))

    async def main():
        wakeups.attach(asyncio.get_running_loop())
        waiting, goes_on = (asyncio.create_task(request(app, path, caller)) for caller in (mine, other))
        while client._waiters.total() < 2:
            await asyncio.sleep(0)
        revoked, _ = await request(app, f"/v1/tokens/{mine.token}", other, method="DELETE")
        assert revoked == 200
        found = await asyncio.wait_for(waiting, 60)
        assert not goes_on.done(), "another token's request waits on"
        goes_on.cancel()
        return found

    found, text = asyncio.run(main())
    assert found == status
    assert text == says or (says and says in text)
