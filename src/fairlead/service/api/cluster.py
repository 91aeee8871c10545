"""Requests about the cluster as a whole: queues, nodes, configuration, metrics, health, and the stream of facts."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, HTTPException, Query, Response
from fastapi.responses import PlainTextResponse, StreamingResponse

import fairlead
from fairlead.audit.over_time import LONGEST, STARVED_AFTER
from fairlead.engines.contract import LiveEngine
from fairlead.model.api_types import (
    Changed,
    FairnessInfo,
    FrameworkInfo,
    FrameworkList,
    Health,
    NodeList,
    OverTimeInfo,
    QueueList,
    Reloaded,
    Status,
    UsageInfo,
)
from fairlead.model.documents import Configuration, DocumentError
from fairlead.model.specs import Job
from fairlead.people.deeds import Deeds
from fairlead.people.rules import sees_framework, sees_names
from fairlead.people.telling import used_as_seen
from fairlead.scheduler import admission
from fairlead.scheduler.admission import Refused
from fairlead.scheduler.facts import Configured
from fairlead.scheduler.reports import listings as report
from fairlead.scheduler.reports.audits import audit_state
from fairlead.scheduler.reports.frameworks import list_frameworks
from fairlead.scheduler.reports.reservations import describe_kept, idled_queues
from fairlead.scheduler.state import State
from fairlead.service import metrics
from fairlead.service.api.access import Known
from fairlead.service.api.asking import Asker, Json, NodeName, by_wall_clock, errors, retry_after
from fairlead.service.api.requests import DownRequest
from fairlead.service.doubts import doubts
from fairlead.service.feed import Feed
from fairlead.service.kept_output import KeptOutput
from fairlead.service.loop import Loop
from fairlead.service.over_time import AuditFailed, Audits, OneAtATime

SLOW, STUCK = 10.0, 60.0
"""Seconds that a step takes when something is wrong, and when nobody should wait for it any more."""

LookBack = Annotated[float, Query(gt=0, le=LONGEST, description="How long a time is looked back on.")]


def add_cluster(api: APIRouter, asker: Asker, engine: LiveEngine, urls: list[str], kept: KeptOutput | None) -> None:
    @api.get("/v1/status", response_model=Status)
    async def status(caller: Known) -> Response:
        """Whether the scheduler is well: its version, how much it knows, and why it is stalled, if it is."""
        counts = await asker.read(
            lambda s: {
                "nodes": int(s.nodes.up[: s.nodes.n].sum()),
                "jobs": len(s.index.specs),
                "running": int(s.queues.tasks[0]),
            }
        )
        loop = asker.loop
        about = {
            "version": fairlead.__version__,
            "pid": os.getpid(),
            "urls": urls,
            "you": caller.person.name,
            "stalled": loop.takes_nothing_on,
            "stalled_for": loop.stalled_for,
            "output": kept.describe() if kept is not None else None,
            "position": loop.position,
        }
        return Json({**about, **counts})

    @api.get("/v1/queues", response_model=QueueList)
    async def queues(caller: Known) -> Response:
        """The queue tree with what each uses; of a private queue not the leaves of others, but what they use together."""
        return Json({"queues": await asker.read_seen(caller, report.list_queues)})

    @api.get("/v1/frameworks", response_model=FrameworkList)
    async def frameworks(caller: Known) -> Response:
        """The frameworks that take offers: what each has, and why it gets nothing more. In private queues only one's own."""

        def view(state: State, now: float) -> list[FrameworkInfo]:
            rules, members = asker.door.rules, state.frameworks.members
            found = list_frameworks(state, now)
            return [each for each in found if sees_framework(rules, caller, members[each["id"]].framework)]

        found = await asker.read_seen_at(caller, view)
        return Json({"frameworks": [by_wall_clock(each, asker.clock) for each in found]})

    @api.get("/v1/nodes", response_model=NodeList)
    async def nodes() -> Response:
        """The nodes with what is used of each, and for how long those are silent that are not heard."""
        found, silence = await asker.read(report.list_nodes), engine.silence
        return Json({"nodes": [{**node, "silent": silence.get(node["name"])} for node in found]})

    @api.get("/metrics", response_class=PlainTextResponse)
    async def prometheus(caller: Known) -> Response:
        """What Prometheus reads."""
        metrics.paused.set(engine.paused)
        if kept is not None:
            metrics.output_waiting.set(kept.describe()["waiting"])
            metrics.output_away.set(kept.away_for)
        shown = await asker.read_seen(caller, report.list_queues)
        reserved = await asker.read_seen_at(caller, lambda s, now: [idled_queues(s, now), describe_kept(s, now)])
        idled, promised = reserved[0], [by_wall_clock(each, asker.clock) for each in reserved[1]]
        text = metrics.exposition(shown, await asker.read(report.list_nodes), idled, promised)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def add_operating(
    api: APIRouter,
    asker: Asker,
    deeds: Deeds,
    down: Callable[[bool, str], None],
    read_again: Callable[[], Configuration],
) -> None:
    @api.post("/v1/nodes/{node}/drain", response_model=Changed)
    async def drain(node: NodeName, caller: Known) -> Response:
        """Let a node finish what it has and take no more."""
        return Json({"changed": await asker.change(caller, lambda s, now: admission.drain(s, node, now))})

    @api.post("/v1/nodes/{node}/resume", response_model=Changed)
    async def resume(node: NodeName, caller: Known) -> Response:
        """Undo a drain."""
        return Json({"changed": await asker.change(caller, lambda s, now: admission.resume(s, node, now))})

    @api.post("/v1/nodes/{node}/forget", response_model=Changed)
    async def forget(node: NodeName, caller: Known) -> Response:
        """Tell no more of a node that is lost."""
        return Json({"changed": await asker.change(caller, lambda s, now: admission.forget(s, node, now))})

    @api.post("/v1/reload", response_model=Reloaded)
    async def reload_configuration(caller: Known) -> Response:
        """Read the configuration file again: its queues and settings. One that is wrong is refused whole; of one that is
        doubtful it is told why.
        """
        try:
            configuration = await asyncio.to_thread(read_again)
        except DocumentError as error:
            raise Refused(str(error)) from None
        door = asker.door
        door.accounts.forget()
        changed = await asker.change(caller, lambda s, now: configure(s, configuration, now))
        has = await asker.read(lambda s: s.quantities(s.cluster.total))
        accounts = None if door.personal else door.accounts
        found = await asyncio.to_thread(doubts, configuration, has, accounts)
        return Json({"changed": changed, "looked_up": not door.personal, "doubts": found})

    @api.post("/v1/down", status_code=202, response_model=Changed)
    async def stop(request: DownRequest, caller: Known) -> Response:
        """Stop the scheduler: when what runs has ended, or now, and then what runs is stopped and will start again."""
        what = "stopped the scheduler" + (" at once" if request.now else "")
        await asyncio.to_thread(deeds.done, caller.person.name, what)
        down(request.now, caller.person.name)
        return Json({"changed": True}, 202)


@contextmanager
def _refusing(done: str) -> Iterator[None]:
    """Refuse, in HTTP's words, what looks back on the journal where that is not to be `done`."""
    try:
        yield
    except OneAtATime as error:
        raise HTTPException(429, str(error), retry_after(5)) from None
    except AuditFailed as error:
        raise HTTPException(503, f"the journal cannot be {done}: {error}") from None


def add_audits(api: APIRouter, asker: Asker, audits: Audits) -> None:
    @api.get("/v1/audit", response_model=FairnessInfo)
    async def audit(caller: Known) -> Response:
        """Whether what runs now is fair, within one task: who is below its part, and why; what is kept for whom, and idles."""
        found = await asker.read_seen_at(caller, audit_state)
        rows = {name: [by_wall_clock(row, asker.clock) for row in found[name]] for name in ("queues", "reservations")}
        return Json({**found, **rows})

    @api.get("/v1/audit/over-time", response_model=OverTimeInfo)
    async def audit_over_time(
        caller: Known,
        seconds: LookBack = 86400.0,
        starved_after: Annotated[
            float, Query(gt=0, le=LONGEST, description="Seconds without a start after which a queue starves.")
        ] = STARVED_AFTER,
    ) -> Response:
        """What each queue was entitled to and got while it had work: who was wronged, by how much, through what; who starved."""
        with _refusing("audited"):
            found: OverTimeInfo = msgspec.json.decode(await audits(caller.person.uid, seconds, starved_after))
        return Json(await asker.told_to(caller, found, [queue["name"] for queue in found["queues"]]))

    @api.get("/v1/usage", response_model=UsageInfo)
    async def usage(
        caller: Known,
        seconds: LookBack = 86400.0,
    ) -> Response:
        """What was used, by each user in each queue: what was asked for times how long, and what they really used of it."""
        with _refusing("read"):
            found: UsageInfo = msgspec.json.decode(await audits.usage(caller.person.uid, seconds))
        rules = asker.door.rules
        for each in found["usage"]:
            if not sees_names(rules, caller, Job(each["queue"], {}, user=each["user"])):
                each["user"] = ""
        moments = {name: asker.clock.wall(found[name]) for name in ("since", "until")}
        return Json({**found, **moments, "usage": used_as_seen(rules, caller, found["usage"])})


def configure(state: State, configuration: Configuration, now: float) -> Configured | None:
    """The fact that a configuration comes to; None if it is in force already."""
    same = list(state.tree.declared.values()) == configuration.queues and state.settings == configuration.settings
    return None if same else admission.configure(state, configuration.queues, configuration.settings, now)


EVENT = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("event", "data", "id")},
    "required": ["event", "data", "id"],
}


def add_facts(api: APIRouter, asker: Asker, feed: Feed) -> None:
    told: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {"itemSchema": EVENT}}}}

    @api.get("/v1/facts", response_class=StreamingResponse, responses=errors(410) | told)
    async def facts(
        caller: Known,
        after: Annotated[
            int | None, Query(ge=0, le=2**53, description="Those after this position. Default: new ones.")
        ] = None,
        last_event_id: Annotated[
            int | None, Header(ge=0, le=2**53, description="As `after`: where a stream broke off.")
        ] = None,
        follow: Annotated[bool, Query(description="Whether to wait for more at the end.")] = True,
    ) -> Response:
        """A stream of facts: everything that happened, in order, each with its position as its id.

        Of other people's jobs it tells what everybody may know.

        It is read from the journal as fast as the reader takes it, so that a slow reader costs nothing. The oldest facts are
        dropped from the journal after a while: 410 then.
        """
        chosen = last_event_id if last_event_id is not None else after
        position = chosen if chosen is not None else asker.loop.position
        with asker.waiter(caller):  # what refuses it is told before it begins
            await feed.check(position)

        async def text() -> AsyncIterator[bytes]:
            with asker.waiter(caller):
                async for page in feed.read(caller, position, follow):
                    yield page

        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        return StreamingResponse(text(), media_type="text/event-stream", headers=headers)


def add_health(api: APIRouter, loop: Loop, engine: LiveEngine, kept: KeptOutput | None = None) -> None:
    @api.get("/healthz", responses=errors(503))
    async def healthy() -> dict[str, bool]:
        """Whether the scheduler runs, and its thread goes on. Needs no token."""
        if loop.stopped.is_set():
            raise HTTPException(503, "the scheduler has ended")
        if (since := time.monotonic() - loop.stepped_at) > STUCK:
            raise HTTPException(503, f"the scheduler's thread has been at one step for {since:.0f} s")
        return {"ok": True}

    @api.get("/readyz", responses=errors(503), response_model=Health)
    async def ready() -> Health:
        """Whether it takes work on: its thread steps, its engine answers, its journal can be written. Needs no token."""
        step = time.monotonic() - loop.stepped_at
        if loop.stalled:
            raise HTTPException(503, f"for {loop.stalled_for:.0f} s: {loop.stalled}")
        if loop.stopped.is_set() or loop.stopping:
            raise HTTPException(503, "the scheduler is stopping: it takes nothing on")
        if loop.low:
            raise HTTPException(503, f"{loop.low}; {engine.paused} tasks are paused")
        if step > SLOW:
            raise HTTPException(503, f"the scheduler's thread has been at one step for {step:.0f} s")
        if engine.trouble:
            raise HTTPException(503, engine.trouble)
        away = kept.away_for if kept is not None else 0.0
        return {"ok": True, "step": step, "engine": engine.silent_for, "journal": loop.stalled_for, "output": away}
