"""Streams of a view's regions: rendered once for all browsers that see the same, and sent to each if they changed."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import msgspec

from fairlead.people.rules import Caller
from fairlead.service.api.state_client import StateClient
from fairlead.service.loop import Busy
from fairlead.service.page.asking import Declined
from fairlead.service.wakeups import heard_within

LEAST_SECONDS, MOST_SECONDS = 5.0, 15.0
"""Between two renderings: after something happened, and when nothing did."""
STREAM_SECONDS = 600.0
"""After which a browser connects again, and is authenticated again."""
MOST_VIEWS = 50
"""Different views that one person may follow at once: each is rendered by itself."""
_EVENT = b"event: region\ndata: %s\n\n"

Regions = dict[str, tuple[str, str]]
"""HTML by the name of a region, each after its version."""
Make = Callable[[], Awaitable[Regions]]
Visit = Callable[[], Caller | None]
"""Returns whose visit a browser's is; None once it is over."""


@dataclass
class _Followed:
    """What browsers follow: who did first, its regions now, and how many follow.

    one : held while it is rendered; the same for all that a person follows.
    """

    uid: int
    one: asyncio.Lock
    regions: Regions = field(default_factory=dict)
    readers: int = 0
    task: asyncio.Task[None] | None = None


class Following:
    """All views that browsers follow. For the event loop."""

    def __init__(self, client: StateClient) -> None:
        self._client = client
        self._all: dict[Hashable, _Followed] = {}

    async def stream(
        self, caller: Caller, visit: Visit, key_of: Callable[[Caller], Hashable], make: Make, has: dict[str, str]
    ) -> AsyncGenerator[bytes]:
        """Yield regions that differ from what a browser has, as events, while it visits and the caller may see the same.

        Raises Busy at the first if a person may have no further stream, or follows too many different views.

        key_of : returns what is the same for all callers who see the same; it changes if a queue becomes private
        make : renders the regions
        has : the versions that the browser has, by region
        """
        client, running, key = self._client, asyncio.get_running_loop(), key_of(caller)
        until = running.time() + STREAM_SECONDS
        with client.listening(caller, ("page", key)) as heard, self._followed(caller, key, make) as followed:
            while running.time() < until and not client.loop.stopped.is_set():
                now = await client.authenticator.reauthenticate(caller)
                if now is None or visit() is None or key_of(now) != key:
                    return
                sent = b""
                for name, (version, text) in followed.regions.items():
                    if has.get(name) != version:
                        has[name] = version
                        sent += _EVENT % msgspec.json.encode({"id": name, "v": version, "html": str(text)})
                yield sent or b": ping\n\n"
                await heard_within(heard, MOST_SECONDS)

    @contextmanager
    def _followed(self, caller: Caller, key: Hashable, make: Make) -> Iterator[_Followed]:
        uid = caller.person.uid
        theirs = [each for each in self._all.values() if each.uid == uid]
        if key not in self._all and len(theirs) >= MOST_VIEWS:
            raise Busy(f"you follow {MOST_VIEWS} different pages, the maximum: close some of them")
        followed = self._all.setdefault(key, _Followed(uid, theirs[0].one if theirs else asyncio.Lock()))
        followed.readers += 1
        if followed.task is None:
            followed.task = asyncio.create_task(self._keep(key, followed, make))
        try:
            yield followed
        finally:
            followed.readers -= 1
            if not followed.readers:
                followed.task.cancel()
                del self._all[key]

    async def _keep(self, key: Hashable, followed: _Followed, make: Make) -> None:
        with self._client.wakeups.listen(["facts"]) as heard:
            while True:
                with suppress(Declined):  # the scheduler is busy, or what is shown is gone
                    async with followed.one:
                        regions = await make()
                    if regions != followed.regions:
                        followed.regions = regions
                        self._client.wakeups.wake([("page", key)])
                await asyncio.sleep(LEAST_SECONDS)
                await heard_within(heard, MOST_SECONDS - LEAST_SECONDS)
