"""What the page shows and does: views made of regions, and forms that call the API."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Hashable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from fairlead.html_page import blocks, render
from fairlead.people.rules import Caller, operates
from fairlead.service.api.state_client import StateClient
from fairlead.service.loop import Busy
from fairlead.service.page.acting import find_action
from fairlead.service.page.asking import Asking, Declined
from fairlead.service.page.following import Following, Regions, Visit
from fairlead.service.page.past import Past
from fairlead.service.page.views import VIEWS, Look, View

STILL = ("head", "forms")
"""Blocks of a view that are not sent again."""


class Site:
    """All views, for all visitors. For the event loop."""

    def __init__(self, asking: Asking, client: StateClient) -> None:
        self._asking, self._client = asking, client
        self._past, self._following = Past(asking), Following(client)

    async def show(self, caller: Caller, path: str, query: dict[str, str], visit: Visit) -> Response:
        """Answer a request for a view, or for the stream of its regions. Raises Declined."""
        if path == "/page/events":
            return await self._stream(caller, query, visit)
        view, args = _find(path)
        values = await self._values(caller, view, args, query, streams=False)
        return HTMLResponse(await asyncio.to_thread(_page, view, path, values))

    async def _stream(self, caller: Caller, query: dict[str, str], visit: Visit) -> Response:
        path, _, rest = query.get("view", "").partition("?")
        view, args = _find(path)
        given = {name: value for name, value in parse_qsl(rest) if name in view.reads}
        has = dict(each.split(".", 1) for each in query.get("seen", "").split(",") if "." in each)

        async def make() -> Regions:
            values = await self._values(caller, view, args, given, streams=True)
            return await asyncio.to_thread(_regions, view, values)

        def key_of(caller: Caller) -> Hashable:
            return path, tuple(sorted(given.items())), self._rights(caller) if view.shared else caller

        events = self._following.stream(caller, visit, key_of, make, has)
        try:
            first = await anext(events, b"")  # from here on it counts
        except Busy as busy:
            raise Declined(429, str(busy)) from None

        async def text() -> AsyncIterator[bytes]:
            async with aclosing(events):
                yield first
                async for each in events:
                    yield each

        return StreamingResponse(text(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def _values(
        self, caller: Caller, view: View, args: dict[str, str], query: dict[str, str], streams: bool
    ) -> dict[str, Any]:
        look = Look(partial(self._asking, caller), partial(self._past, self._rights(caller), caller, streams), query)
        rules = self._client.authenticator.rules
        changes = not caller.read_only
        about = {"you": caller.person.name, "changes": changes, "operates": changes and operates(rules, caller)}
        return {**about, "query": query, "args": args, **await view.look(look, **args)}

    def _rights(self, caller: Caller) -> Hashable:
        """Return what tells apart callers who may not see the same of queues and people: nothing where no queue is private."""
        private = any(queue.private for queue in self._client.authenticator.rules.queues.values())
        return caller._replace(token=None) if private else None

    async def act(self, caller: Caller, path: str, form: Mapping[str, str]) -> Response:
        """Do what a form asks for, and go on to what it is about. Raises Declined."""
        action, args = find_action(path)
        answer = await self._asking(caller, action.path.format(**args), body=action.body(form))
        return RedirectResponse(action.then(args, answer), 303)

    def failure(self, declined: Declined) -> Response:
        return HTMLResponse(render("failure.html", text=str(declined), status=declined.status), declined.status)


def _find(path: str) -> tuple[View, dict[str, str]]:
    for view in VIEWS:
        if found := view.pattern.fullmatch(path):
            return view, found.groupdict()
    raise Declined(404, "there is no such page")


def _regions(view: View, values: Mapping[str, Any]) -> Regions:
    found = blocks(view.template, values, but=STILL)
    return {name: (hashlib.sha256(text.encode()).hexdigest()[:12], text) for name, text in found.items()}


def _page(view: View, path: str, values: dict[str, Any]) -> str:
    still = {name: blocks(view.template, values, only=(name,)).get(name, "") for name in STILL}
    title, regions = view.title.format(**values["args"]), _regions(view, values)
    more = {name: values[name] for name in ("commands", "you")}
    return render("page.html", **still, **more, regions=regions, title=title, path=path)
