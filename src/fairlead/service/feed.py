"""The stream of facts: each page is made once for all readers of a position, at a pace that leaves room for other requests.

One thread reads pages from the journal and turns them into server-sent events. The newest pages are cached, so a thousand
followers share the same bytes. A slow reader delays only itself. The more readers there are, the longer each waits for its next
page, which then holds more facts.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import msgspec
from msgspec.structs import replace

from fairlead.journal import Journal
from fairlead.model.specs import Job, Work, holds_jobs_of
from fairlead.people.authenticator import Authenticator
from fairlead.people.rules import Caller, Rules, acts_on, seen_queue, sees_names
from fairlead.scheduler.facts import JobEdited, JobSubmitted, SharesLooked, TasksRevoked, decode, encode
from fairlead.service.loop import Loop
from fairlead.service.wakeups import Wakeups, heard_within

PAGE = 500
"""Facts per page."""
MOST_KEPT = 32 * 2**20
"""Bytes of cached pages."""
PACE_SECONDS = 0.0005
"""The pause between two pages of a reader, multiplied by the number of readers."""
PING_SECONDS = 15.0
"""How often an idle stream sends a ping."""
_PING = b": ping\n\n"

PageKey = tuple[int, Caller]


class Feed:
    """All readers of facts. For the event loop."""

    def __init__(self, journal: Journal, authenticator: Authenticator, wakeups: Wakeups, loop: Loop) -> None:
        self._journal, self._authenticator, self._wakeups, self._loop = journal, authenticator, wakeups, loop
        self._reading = ThreadPoolExecutor(1, "facts")
        self._rules: Rules | None = None
        self._pages: OrderedDict[PageKey, tuple[bytes, int, int]] = OrderedDict()
        self._kept = 0
        self._making: dict[PageKey, asyncio.Task[tuple[bytes, int, int]]] = {}
        self._readers = 0

    async def check(self, after: int) -> None:
        await asyncio.get_running_loop().run_in_executor(self._reading, self._journal.look, after, 1)

    async def read(self, caller: Caller, after: int, follow: bool) -> AsyncIterator[bytes]:
        """Yield the visible facts after a position as the text of events; `follow` waits for more.

        Permissions are checked again for each page. The stream ends when the caller's token or account becomes invalid.
        """
        self._readers += 1
        try:
            with self._wakeups.listen(["facts", ("token", caller.token)]) as heard:
                while True:
                    now = await self._authenticator.reauthenticate(caller)
                    if now is None:
                        return
                    # Without the token, so that all with the same rights share a page.
                    page, count, after = await self._page(after, now._replace(token=None))
                    if page:
                        yield page
                    if self._loop.stopped.is_set() or (not follow and count == 0):
                        return
                    await asyncio.sleep(PACE_SECONDS * self._readers)
                    if count == 0 and not await heard_within(heard, PING_SECONDS):
                        yield _PING
        finally:
            self._readers -= 1

    async def _page(self, after: int, caller: Caller) -> tuple[bytes, int, int]:
        """Return the text of the page after a position, its number of facts, and the position of the last."""
        if self._authenticator.rules is not self._rules:  # new configuration: visibility may differ
            self._rules = self._authenticator.rules
            self._pages.clear()
            self._kept = 0
        key = (after, caller)
        if key in self._pages:
            self._pages.move_to_end(key)
            return self._pages[key]
        if key not in self._making:
            self._making[key] = asyncio.create_task(self._make(key, self._authenticator.rules))
        return await asyncio.shield(self._making[key])  # a reader that leaves must not cancel it for others

    async def _make(self, key: PageKey, rules: Rules) -> tuple[bytes, int, int]:
        try:
            made = await asyncio.get_running_loop().run_in_executor(self._reading, self._text, key, rules)
        finally:
            del self._making[key]
        if made[1] and rules is self._rules:
            self._pages[key] = made
            self._kept += len(made[0])
            while self._kept > MOST_KEPT:
                self._kept -= len(self._pages.popitem(last=False)[1][0])
        return made

    def _text(self, key: PageKey, rules: Rules) -> tuple[bytes, int, int]:
        after, caller = key
        text = bytearray()
        page = self._journal.look(after, PAGE)
        for position, body in page:
            kind = msgspec.json.decode(body, type=_Tagged).type
            if kind in TELLING:
                body = fact_as_seen(rules, caller, body)  # noqa: PLW2901
            text += b"event: %s\ndata: %s\nid: %d\n\n" % (kind.encode(), body, position)
        return bytes(text), len(page), page[-1][0] if page else after


TELLING = {kind.__name__ for kind in (JobSubmitted, JobEdited, TasksRevoked, SharesLooked)}
"""The kinds of facts that name people or queues."""


class _Tagged(msgspec.Struct):
    type: str


def fact_as_seen(rules: Rules, caller: Caller, body: bytes) -> bytes:
    """Remove what the caller may not see of jobs and queues from a fact."""
    fact = decode(body)
    if isinstance(fact, TasksRevoked) and fact.claim is not None:
        return encode(replace(fact, claim=replace(fact.claim, queue=seen_queue(rules, caller, fact.claim.queue))))
    if isinstance(fact, SharesLooked):
        return encode(replace(fact, short=list(dict.fromkeys(seen_queue(rules, caller, name) for name in fact.short))))
    if isinstance(fact, JobEdited) and fact.queue is not None:
        return encode(replace(fact, queue=seen_queue(rules, caller, fact.queue)))
    if not isinstance(fact, JobSubmitted):
        return body
    job, *more = (_submitted_as_seen(rules, caller, job) for _, job in fact.numbered())
    return encode(replace(fact, job=job, more=more))


def _submitted_as_seen(rules: Rules, caller: Caller, job: Job) -> Job:
    job = replace(job, queue=holds_jobs_of(job.queue))
    if acts_on(rules, caller, job):
        return job
    job = replace(job, work=Work(), key="", digest="")
    if sees_names(rules, caller, job):
        return job
    return replace(job, name="", user="", uid=None, gid=None, queue=seen_queue(rules, caller, job.queue))
