"""What the page shows and does: views made of regions, and forms, each of which is a request of the API."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, quote

from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from fairlead.html_page import blocks, render
from fairlead.model.quantity import parse_seconds
from fairlead.people.rules import Caller, operates
from fairlead.service.api.state_client import StateClient
from fairlead.service.loop import Busy
from fairlead.service.page.asking import Asking, Declined, Past, number_in
from fairlead.service.page.following import Following, Regions, Visit
from fairlead.service.page.views import VIEWS, Look, View

Form = Mapping[str, str]
NUMBERS = ("priority", "retries", "at_most")
STILL = ("head", "forms")
"""Blocks of a view that are not sent again."""


class Action(NamedTuple):
    """A form: the path that it posts to, the API's path, its body, and the next page."""

    pattern: re.Pattern[str]
    path: str
    body: Callable[[Form], Any]
    then: Callable[[dict[str, str], Any], str]


def _edited(form: Form) -> dict[str, Any]:
    found: dict[str, Any] = {}
    try:
        found |= {name: int(form[name]) for name in NUMBERS if form.get(name, "").strip()}
        if text := form.get("time_limit", "").strip():
            found["time_limit"] = parse_seconds(text)
    except ValueError as error:
        raise Declined(422, f"edit: {error}") from None
    if queue := form.get("queue", "").strip():
        found["queue"] = queue
    return found


def _cards(form: Form) -> dict[str, Any]:
    """Return the card that the form is about; without one it is about the whole node."""
    if not (text := form.get("gpu", "").strip()):
        return {}
    if (card := number_in(text)) is None:
        raise Declined(422, f"gpu: {text[:20]!r} is not the number of a card")
    return {"gpus": [card]}


def _job(args: dict[str, str], answer: Any) -> str:
    return f"/page/jobs/{answer.get('id', args['job'])}"


def _node(args: dict[str, str], answer: Any) -> str:
    return "/page/nodes" if args["what"] == "forget" else f"/page/nodes/{quote(args['node'])}"


AnyPattern = TypeVar("AnyPattern", View, Action)

ACTIONS = (
    Action(
        re.compile(r"/page/jobs/(?P<job>\d{1,16})/(?P<what>cancel|hold|release)"), "/v1/jobs/{job}/{what}",
        lambda form: {}, _job,
    ),
    Action(
        re.compile(r"/page/jobs/(?P<job>\d{1,16})/rerun"), "/v1/jobs/{job}/rerun",
        lambda form: {"failed": "failed" in form}, _job,
    ),
    Action(re.compile(r"/page/jobs/(?P<job>\d{1,16})/edit"), "/v1/jobs/{job}/edit", _edited, _job),
    Action(
        re.compile(r"/page/nodes/(?P<node>.+)/(?P<what>drain|resume|forget)"), "/v1/nodes/{node}/{what}", _cards, _node
    ),
)  # fmt: skip


class Site:
    """All views, for all visitors. For the event loop."""

    def __init__(self, asking: Asking, client: StateClient) -> None:
        self._asking, self._client = asking, client
        self._past, self._following = Past(asking), Following(client)

    async def show(self, caller: Caller, path: str, query: dict[str, str], visit: Visit) -> Response:
        """Answer a request for a view, or for the stream of its regions. Raises Declined."""
        if path == "/page/events":
            return await self._stream(caller, query, visit)
        view, args = _find(VIEWS, path)
        values = await self._values(caller, view, args, query, streams=False)
        return HTMLResponse(await asyncio.to_thread(_page, view, path, values))

    async def _stream(self, caller: Caller, query: dict[str, str], visit: Visit) -> Response:
        path, _, rest = query.get("view", "").partition("?")
        view, args = _find(VIEWS, path)
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
        action, args = _find(ACTIONS, path, "form")
        answer = await self._asking(caller, action.path.format(**args), body=action.body(form))
        return RedirectResponse(action.then(args, answer), 303)

    def failure(self, declined: Declined) -> Response:
        return HTMLResponse(render("failure.html", text=str(declined), status=declined.status), declined.status)


def _find(among: Iterable[AnyPattern], path: str, what: str = "page") -> tuple[AnyPattern, dict[str, str]]:
    """Return the view or action of a path, and what the path names. Raises Declined."""
    for each in among:
        if found := each.pattern.fullmatch(path):
            return each, found.groupdict()
    raise Declined(404, f"there is no such {what}")


def _regions(view: View, values: Mapping[str, Any]) -> Regions:
    found = blocks(view.template, values, but=STILL)
    return {name: (hashlib.sha256(text.encode()).hexdigest()[:12], text) for name, text in found.items()}


def _page(view: View, path: str, values: dict[str, Any]) -> str:
    still = {name: blocks(view.template, values, only=(name,)).get(name, "") for name in STILL}
    title, regions = view.title.format(**values["args"]), _regions(view, values)
    more = {name: values[name] for name in ("commands", "you")}
    return render("page.html", **still, **more, regions=regions, title=title, path=path)
