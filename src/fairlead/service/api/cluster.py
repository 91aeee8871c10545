"""Routes for the cluster as a whole: queues, nodes, configuration, metrics, health, and the stream of facts."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager
from math import inf
from typing import Annotated, Any

from fastapi import APIRouter, Header, HTTPException, Query, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

import fairlead
from fairlead.audit.over_time import LONGEST, STARVED_AFTER
from fairlead.engines.contract import CardUse, LiveEngine
from fairlead.engines.remote.engine import RemoteEngine
from fairlead.engines.remote.joined import JoinedEngine
from fairlead.failure import failing
from fairlead.model import api_types
from fairlead.model.documents import Configuration, DocumentError
from fairlead.model.specs import Job
from fairlead.people.audit_log import AuditRecords
from fairlead.people.rules import Caller, acts_on, sees_framework, sees_names, used_as_seen
from fairlead.scheduler import admission
from fairlead.scheduler.admission import Refused
from fairlead.scheduler.facts import Fact
from fairlead.scheduler.forecasts import any_end_known
from fairlead.scheduler.reports import listings as report
from fairlead.scheduler.reports.audits import audit_state
from fairlead.scheduler.reports.frameworks import list_frameworks
from fairlead.scheduler.reports.reservations import describe_holds, idled_queues
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import NONE
from fairlead.service import metrics
from fairlead.service.api.access import Known
from fairlead.service.api.answers import Json, by_wall_clock, errors, promised, retry_after
from fairlead.service.api.requests import CardsRequest, DownRequest, NodeName, NodeTokenRequest
from fairlead.service.api.state_client import StateClient
from fairlead.service.configuration_warnings import configuration_warnings
from fairlead.service.feed import Feed
from fairlead.service.journal_reports import JournalReports, ReportFailed
from fairlead.service.loop import Busy, Loop
from fairlead.service.output.archive import OutputArchive
from fairlead.service.reloading import Reloading, dropped

SLOW_SECONDS, STUCK_SECONDS = 10.0, 60.0
"""Duration of a step at which the scheduler is not ready, and at which it is not healthy."""

WHOLE_NODE = CardsRequest()
MEASURED_SECONDS = 30.0
"""How old a measurement of a card may be: it is made every 5 s."""

LookBack = Annotated[float, Query(gt=0, le=LONGEST, description="Seconds to look back.")]


def _counts(state: State) -> dict[str, int]:
    """Count the nodes that are up, the jobs, and the running and waiting tasks."""
    known = state.jobs.id[: state.jobs.n] != NONE
    return {
        "nodes": int(state.nodes.up[: state.nodes.n].sum()),
        "jobs": len(state.index.specs),
        "running": int(state.queues.tasks[0]),
        "waiting": int(state.jobs.waiting[: state.jobs.n][known].sum()),
    }


def add_cluster(api: APIRouter, client: StateClient, engine: LiveEngine, urls: list[str], archive: OutputArchive | None) -> None:
    @api.get("/v1/status", response_model=api_types.Status)
    async def status(caller: Known) -> Response:
        """The scheduler's state: version, counts, and why it is stalled, if it is."""
        counts = await client.read(_counts)
        loop = client.loop
        about = {
            "version": fairlead.__version__,
            "pid": os.getpid(),
            "elastic": engine.elastic,
            "urls": urls,
            "you": caller.person.name,
            "stalled": loop.takes_nothing_on,
            "stalled_for": loop.stalled_for,
            "output": archive.describe() if archive is not None else None,
            "position": loop.position,
        }
        return Json({**about, **counts})

    @api.get("/v1/queues", response_model=api_types.QueueList)
    async def queues(caller: Known) -> Response:
        """The queue tree with usage. In a private queue, other people's leaves are summed up."""
        return Json({"queues": await client.read_seen(caller, lambda s, _: report.list_queues(s))})

    @api.get("/v1/frameworks", response_model=api_types.FrameworkList)
    async def frameworks(caller: Known) -> Response:
        """Frameworks that take offers: what each has, and why it gets nothing more. In private queues only the caller's own."""

        def view(state: State, now: float) -> list[api_types.FrameworkInfo]:
            rules, members = client.authenticator.rules, state.frameworks.members
            found = list_frameworks(state, now)
            return [each for each in found if sees_framework(rules, caller, members[each["id"]].framework)]

        found = await client.read_seen(caller, view)
        return Json({"frameworks": [by_wall_clock(each, client.clock) for each in found]})

    @api.get("/v1/nodes", response_model=api_types.NodeList)
    async def nodes(caller: Known) -> Response:
        """The nodes with their usage, and whose their cards are; for silent ones, how long."""
        return Json({"nodes": await _nodes_as_seen(caller, client, engine)})

    @api.get("/metrics", response_class=PlainTextResponse)
    async def prometheus(caller: Known) -> Response:
        """Metrics in Prometheus' text format."""
        metrics.paused.set(engine.paused)
        if archive is not None:
            metrics.output_waiting.set(archive.describe()["waiting"])
            metrics.output_away.set(archive.away_for)
        shown = await client.read_seen(caller, lambda s, _: report.list_queues(s))
        idled, reserved, known = await client.read_seen(
            caller, lambda s, now: [idled_queues(s, now), describe_holds(s, now), any_end_known(s, now)]
        )
        reservations = [promised(each, known, client.clock) for each in reserved]
        text = metrics.exposition(shown, await _nodes_as_seen(caller, client, engine), idled, reservations)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


async def _nodes_as_seen(caller: Caller, client: StateClient, engine: LiveEngine) -> list[api_types.NodeListed]:
    """Return the nodes, their cards, and what the engine knows of its connections to them."""
    found, cards = await client.read(lambda state: (report.list_nodes(state), cards_as_seen(state, caller, client, engine)))
    silence, unheard, unknown = engine.silence, unheard_of(engine), dict.fromkeys(("heard", "version", "clock_ahead"))
    nodes: list[Any] = []
    for node in found:
        name = node["name"]
        known = engine.known_of(name) if isinstance(engine, RemoteEngine) else {}
        quiet = {"silent": silence.get(name), "unheard": unheard.get(name)}
        nodes.append({**node, **quiet, **unknown, **known, "cards": cards.get(name, [])})
    return nodes


def unheard_of(engine: LiveEngine) -> Mapping[str, float]:
    """Return the seconds since the scheduler's start, by node, of nodes that have not said since then what runs there."""
    return engine.unheard if isinstance(engine, RemoteEngine) else {}


def cards_as_seen(state: State, caller: Caller, client: StateClient, engine: LiveEngine) -> dict[str, list[api_types.CardInfo]]:
    """Return the cards of each node, with the jobs that the caller may act on, and how busy they are."""
    rules, hidden = client.authenticator.rules, dict.fromkeys(("job", "task", "queue", "user"))
    found: dict[str, list[Any]] = {**report.list_cards(state, engine.gpus)}
    for name, cards in found.items():
        use = engine.card_use(name)
        found[name] = [
            (card if card["job"] is None or acts_on(rules, caller, state.index.specs[card["job"]]) else card | hidden)
            | _use_of(use.get(card["card"]))
            for card in cards
        ]
    return found


def _use_of(use: CardUse | None) -> dict[str, Any]:
    """Return how busy a card is, if that was measured lately."""
    known = use is not None and time.monotonic() - use.at < MEASURED_SECONDS
    return {name: getattr(use, name) if known else None for name in ("busy", "memory_used", "memory")}


def add_operating(
    api: APIRouter,
    client: StateClient,
    engine: LiveEngine,
    audit_records: AuditRecords,
    down: Callable[[bool, str], None],
    read_again: Callable[[], Configuration],
    reloading: Reloading,
) -> None:
    @api.post("/v1/nodes/{node}/drain", response_model=api_types.Changed)
    async def drain(node: NodeName, caller: Known, request: CardsRequest = WHOLE_NODE) -> Response:
        """Drain a node, or some of its cards: running tasks finish, no new ones start."""
        cards = request.gpus, engine.gpus.get(node, ())
        return Json({"changed": await client.change(caller, lambda s, now: admission.drain(s, node, now, *cards))})

    @api.post("/v1/nodes/{node}/resume", response_model=api_types.Changed)
    async def resume(node: NodeName, caller: Known, request: CardsRequest = WHOLE_NODE) -> Response:
        """Undo a drain of a node, or of some of its cards."""
        cards = request.gpus, engine.gpus.get(node, ())
        return Json({"changed": await client.change(caller, lambda s, now: admission.resume(s, node, now, *cards))})

    @api.post("/v1/nodes/{node}/forget", response_model=api_types.Changed)
    async def forget(node: NodeName, caller: Known) -> Response:
        """Forget a lost node."""
        return Json({"changed": await client.change(caller, lambda s, now: admission.forget(s, node, now))})

    @api.post("/v1/nodes/tokens", status_code=201, response_model=api_types.NewNodeToken)
    async def new_node_token(request: NodeTokenRequest, caller: Known) -> Response:
        """Make a token that one machine may join with, once. It is shown only this once."""
        if not isinstance(engine, JoinedEngine):
            raise Refused("this scheduler takes no nodes: start it with `fairlead up --nodes HOST:PORT`")
        name = request.name or ""
        token, hashed = engine.new_token(name)
        await client.change(caller, lambda s, now: admission.make_node_token(s, hashed, name, now + request.seconds, now))
        return Json({"token": token, "address": engine.address}, 201)

    @api.post("/v1/reload", response_model=api_types.Reloaded)
    async def reload_configuration(caller: Known) -> Response:
        """Reload the configuration file: queues, settings, and what known nodes have. An invalid file is refused as a whole; a
        suspicious one gives warnings. `not_taken` is what takes a restart.
        """
        with failing("", DocumentError, to=Refused):
            configuration = await asyncio.to_thread(read_again)
            nodes = await asyncio.to_thread(reloading.nodes, configuration)
        authenticator = client.authenticator
        authenticator.accounts.forget()

        def question(state: State, now: float) -> tuple[list[Fact], tuple[bool, list[str], list[str]]]:
            gone = dropped(state, configuration)
            facts, not_taken = reloading.apply(state, configuration, nodes, now)
            return facts, (bool(facts), not_taken, gone)

        changed, not_taken, gone = await client.ask(question, changes=True, by=caller.person.name)
        has = await client.read(lambda s: s.quantities(s.cluster.open))
        accounts = None if authenticator.personal else authenticator.accounts
        found = await asyncio.to_thread(configuration_warnings, configuration, has, accounts)
        return Json({"changed": changed, "looked_up": accounts is not None, "doubts": gone + found, "not_taken": not_taken})

    @api.post("/v1/down", status_code=202, response_model=api_types.Changed)
    async def stop(request: DownRequest, caller: Known) -> Response:
        """Stop the scheduler: once running tasks have ended, or with `now` at once; stopped tasks start again later."""
        what = "stopped the scheduler" + (" at once" if request.now else "")
        await asyncio.to_thread(audit_records.done, caller.person.name, what)
        down(request.now, caller.person.name)
        return Json({"changed": True}, 202)


def add_reports(api: APIRouter, client: StateClient, reports: JournalReports) -> None:
    async def report(done: str, *asked: Any) -> Any:
        """Return a report; `done` is what else cannot be done with the journal."""
        try:
            return await reports(*asked)
        except Busy as error:
            raise HTTPException(429, str(error), retry_after(5)) from None
        except ReportFailed as error:
            raise HTTPException(503, f"the journal cannot be {done}: {error}") from None

    @api.get("/v1/audit", response_model=api_types.FairnessInfo)
    async def audit(caller: Known) -> Response:
        """Audit current fairness, to within one task: who is below their share, and why; what reservations idle."""
        found, known = await client.read_seen(caller, lambda s, now: [audit_state(s, now), any_end_known(s, now)])
        queues = [by_wall_clock(row, client.clock) for row in found["queues"]]
        reservations = [promised(row, known, client.clock) for row in found["reservations"]]
        return Json({**found, "queues": queues, "reservations": reservations})

    @api.get("/v1/audit/over-time", response_model=api_types.OverTimeInfo)
    async def audit_over_time(
        caller: Known,
        seconds: LookBack = 86400.0,
        starved_after: Annotated[
            float, Query(gt=0, le=LONGEST, description="Seconds without a start after which a queue counts as starved.")
        ] = STARVED_AFTER,
    ) -> Response:
        """Audit past fairness: what each queue was entitled to and got while it had work, who was wronged, and who starved."""
        found: api_types.OverTimeInfo = await report("audited", caller, "over-time", seconds, starved_after)
        return Json(await client.told_to(caller, found, [queue["name"] for queue in found["queues"]]))

    @api.get("/v1/usage", response_model=api_types.UsageInfo)
    async def usage(
        caller: Known,
        seconds: LookBack = 86400.0,
        until: Annotated[
            float | None, Query(ge=0, le=1e12, description="The end, seconds since the epoch; by default now.")
        ] = None,
        days: Annotated[bool, Query(description="Each day by itself.")] = False,
        jobs: Annotated[bool, Query(description="Each job by itself, as far as facts are kept.")] = False,
    ) -> Response:
        """Usage by user and queue: requested resources times time, and what was really used of them."""
        end = inf if until is None else until - client.clock.wall(0.0)
        found: api_types.UsageInfo = await report("read", caller, "usage", seconds, end, days, jobs)
        rules = client.authenticator.rules
        for each in found["usage"]:
            if not sees_names(rules, caller, Job(each["queue"], {}, user=each["user"])):
                each["user"] = ""
        moments = {name: client.clock.wall(found[name]) for name in ("since", "until")}
        return Json({**found, **moments, "usage": used_as_seen(rules, caller, found["usage"])})


EVENT = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("event", "data", "id")},
    "required": ["event", "data", "id"],
}


class _Events(StreamingResponse):
    """A stream of events that counts as a waiting request from before its head, when it can still be refused, to its end."""

    media_type = "text/event-stream"

    def __init__(self, text: AsyncIterator[bytes], waiter: AbstractContextManager[None]) -> None:
        super().__init__(text, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._waiter = waiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._waiter:
            await super().__call__(scope, receive, send)


def add_facts(api: APIRouter, client: StateClient, feed: Feed) -> None:
    told: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {"itemSchema": EVENT}}}}

    @api.get("/v1/facts", response_class=StreamingResponse, responses=errors(410) | told)
    async def facts(
        caller: Known,
        after: Annotated[
            int | None, Query(ge=0, le=2**53, description="Only facts after this position. Default: new ones.")
        ] = None,
        last_event_id: Annotated[
            int | None, Header(ge=0, le=2**53, description="Like `after`: where a stream broke off.")
        ] = None,
        follow: Annotated[bool, Query(description="Wait for more at the end.")] = True,
    ) -> Response:
        """A stream of all facts in order, each with its position as its id.

        Facts about other people's jobs contain only what everybody may see.

        Facts are read from the journal as fast as the client reads, so a slow client costs nothing. The journal drops the oldest
        facts after a while; asking for those returns 410.
        """
        chosen = last_event_id if last_event_id is not None else after
        position = chosen if chosen is not None else client.loop.position
        with client.waiter(caller):
            await feed.check(position)
        return _Events(feed.read(caller, position, follow), client.waiter(caller))


def add_health(api: APIRouter, loop: Loop, engine: LiveEngine, archive: OutputArchive | None = None) -> None:
    @api.get("/healthz", responses=errors(503))
    async def healthy() -> dict[str, bool]:
        """Whether the scheduler runs and its thread makes progress. Needs no token."""
        if loop.stopped.is_set():
            raise HTTPException(503, "the scheduler has ended")
        if (since := time.monotonic() - loop.stepped_at) > STUCK_SECONDS:
            raise HTTPException(503, f"the scheduler's thread has spent {since:.0f} s in one step")
        return {"ok": True}

    @api.get("/readyz", responses=errors(503), response_model=api_types.Health)
    async def ready() -> api_types.Health:
        """Whether the scheduler accepts work: its thread steps, its engine answers, its journal is writable. Needs no token."""
        step = time.monotonic() - loop.stepped_at
        if loop.stalled:
            raise HTTPException(503, f"for {loop.stalled_for:.0f} s: {loop.stalled}")
        if loop.stopped.is_set() or loop.stopping:
            raise HTTPException(503, "the scheduler is stopping: it accepts no work")
        if loop.low:
            raise HTTPException(503, f"{loop.low}; {engine.paused} tasks are paused")
        if step > SLOW_SECONDS:
            raise HTTPException(503, f"the scheduler's thread has spent {step:.0f} s in one step")
        if engine.trouble:
            raise HTTPException(503, engine.trouble)
        away = archive.away_for if archive is not None else 0.0
        return {"ok": True, "step": step, "engine": engine.silent_for, "journal": loop.stalled_for, "output": away}
