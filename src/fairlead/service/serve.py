"""`fairlead up`: assemble journal, engine, loop and HTTP servers, run them, and stop cleanly.

Ctrl-C stops running tasks, which go back to their jobs and start again with the next `up`, and leaves nothing behind. SIGTERM, as
from a service manager that restarts the scheduler, leaves tasks running under their supervisor, to be adopted.
"""

import asyncio
import gc
import itertools
import logging
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from math import inf
from pathlib import Path

import numpy as np
import uvloop

from fairlead.data_folder import make_home
from fairlead.disk_room import Reserve
from fairlead.engines.contract import EngineError, LiveEngine, Superseded
from fairlead.engines.local.reports import Task
from fairlead.engines.remote.engine import RemoteEngine
from fairlead.engines.remote.joined import JoinedEngine
from fairlead.engines.step import GRACE, Request, Scheduler, Stalled
from fairlead.journal import Journal, JournalFull
from fairlead.journal.repair import check_outputs, highest_output
from fairlead.journal.sql import SqlStore
from fairlead.journal.store import TakenOver
from fairlead.model.documents import Configuration
from fairlead.people.audit_log import AuditRecords
from fairlead.people.authenticator import Authenticator
from fairlead.people.rules import rules_of
from fairlead.people.tokens import Tokens
from fairlead.scheduler.facts import Configured, Fact, FactsLost, TasksRevoked
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import PLACED, RUNNING
from fairlead.service import metrics
from fairlead.service.api.access import Entrance
from fairlead.service.api.app import Parts, make_api, too_large_in_json
from fairlead.service.api.calls import close_silent_sessions, report_due_leases
from fairlead.service.api.state_client import StateClient
from fairlead.service.clock import Clock
from fairlead.service.connections.listening import Where, accepted_names, listening, listening_for_frameworks, make_room
from fairlead.service.connections.slots import ConnectionSlots
from fairlead.service.connections.web_server import WebServer
from fairlead.service.journal_reports import JournalReports
from fairlead.service.loop import Loop
from fairlead.service.outlooks import Outlooks
from fairlead.service.output.archive import OutputArchive
from fairlead.service.page.asking import Asking
from fairlead.service.page.door import Door, own_url
from fairlead.service.page.entrance import PageEntrance, beside
from fairlead.service.page.site import Site
from fairlead.service.reloading import Reloading, configure, dropped
from fairlead.service.sessions import Sessions
from fairlead.service.unfinished_jobs import Exports, UnfinishedJobs
from fairlead.service.wakeups import Wakeups

log = logging.getLogger("fairlead")

ENGINE_START_SECONDS = 30.0
"""For the engine to report what it runs, at the start."""
HANG_UP_SECONDS = 5.0
"""For the engine to pass on pending requests, at the end."""
UNWRITTEN_SECONDS = 10.0
"""How long `down --now` waits for a journal that cannot be written."""
GARBAGE_SECONDS, WHOLE_EVERY = 60.0, 60
"""Between two collections of cyclic garbage, and which of them looks through all that is known."""
YOUNG_OBJECTS = 50_000
"""New objects after which Python looks through them for garbage, for 3 ms: more than the requests in progress have."""

EngineMaker = Callable[[Callable[[], None]], LiveEngine]


class SchedulerFailed(RuntimeError):
    """An internal error ended the scheduler."""


SWITCH_SECONDS = 0.0005
"""For how long one thread runs while another waits: the scheduler's, which waits a dozen times in a commit, or the one that
answers requests. Python's default is ten times that."""


def serve(
    home: Path,
    configuration: Configuration,
    where: Where,
    *,
    personal: bool,
    drop: Sequence[str] = (),
    make_engine: EngineMaker,
    read_again: Callable[[], Configuration],
    on_ready: Callable[[list[str], LiveEngine], None],
    on_stopping: Callable[[int], None],
) -> None:
    """Run the scheduler until it is stopped.

    Long because it assembles all parts, in the one order in which each finds those it needs.

    home : its data folder
    configuration : queues, nodes (by default this machine) and settings
    where : where to listen
    personal : True for a scheduler of one person, the owner of this process; False for everybody with an account here
    drop : nodes that may be removed with tasks on them, which are stopped and go back to their jobs
    make_engine : makes the engine, given the function that wakes the scheduler
    read_again : reloads the configuration
    on_ready : called with the URLs and the engine when requests are answered
    on_stopping : called with the number of running tasks when the scheduler begins to stop

    Raises
    ------
    JournalError, EngineError, CannotListen, Refused, OSError
        It cannot start; the message states why and what to do.
    SchedulerFailed
        An internal error.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    make_home(home)
    reserve = Reserve(home)
    reserve.make_way()
    journal = Journal(SqlStore(home / "journal.db"), reserve.release)
    with ExitStack() as closing:
        closing.callback(journal.close)
        listeners = closing.enter_context(listening(where))
        for_frameworks = closing.enter_context(listening_for_frameworks(where))
        authenticator = Authenticator(Tokens(home / "tokens.json"), personal)
        audit_records = AuditRecords(home / "deeds")
        clock = Clock(home / "clock.json", journal.last_at())
        engines: list[LiveEngine] = []

        def make(wake: Callable[[], None]) -> Scheduler:
            engine = make_engine(wake)
            engines.append(engine)
            if isinstance(engine, JoinedEngine):
                engine.ask = loop.ask
            scheduler = _start(journal, engine, clock, configuration, home, authenticator.owner.name, drop)
            authenticator.rules = rules_of(scheduler.state, personal)
            sessions.recover(scheduler.state)  # before any further fact is recorded
            unfinished.recover(scheduler.state)
            outlooks.recover(scheduler.state)
            if archive is not None:
                archive.recover(scheduler.state, journal.id, engine)
                scheduler.on_forget = archive.forget
            return scheduler

        wakeups = Wakeups()
        sessions, outlooks = Sessions(home / "calls", wakeups, shared=not personal), Outlooks(home / "outlooks.json")
        closing.callback(outlooks.close)
        archive = OutputArchive(configuration.output, home) if configuration.output else None
        if archive is not None:
            closing.callback(archive.close)
        unfinished = UnfinishedJobs(Exports(home / "exports"))
        mesos = None
        if for_frameworks is not None:
            from fairlead.service.mesos.server import MesosServer

            mesos = MesosServer(where, for_frameworks, personal, clock)
        recorders = [part.recorded for part in (sessions, outlooks, archive, mesos) if part is not None]

        def recorded(state: State, facts: Sequence[Fact]) -> None:
            if any(isinstance(fact, Configured) for fact in facts):
                authenticator.rules = rules_of(state, personal)
            if isinstance(engines[0], JoinedEngine):
                engines[0].recorded(facts)
            for record in recorders:
                record(state, facts)
            wakeups.wake([("job", job) for job in unfinished.recorded(state, facts)] + ["facts"])

        loop = Loop(make, recorded, reserve)
        loop.start()
        loop.ready.result()
        engine = engines[0]
        if isinstance(engine, RemoteEngine):
            engine.admit_relay = sessions.relays.admit
        most = make_room()
        client = StateClient(loop, wakeups, authenticator, clock)
        stop = _Stop(client, engine, on_stopping)
        urls = [listener.url for listener in listeners]
        reports = JournalReports(home / "journal.db", clock)
        door = Door(configuration.page, own_url(where, listeners), lambda: WebServer(page, None, slots))
        parts = Parts(
            journal, sessions, unfinished, engine, audit_records, stop, read_again, Reloading(configuration, engine), urls,
            reports, outlooks, door, archive,
        )  # fmt: skip
        api, names = too_large_in_json(make_api(client, parts)), accepted_names(where)
        app = Entrance(api, authenticator, audit_records, names)
        site = Site(Asking(api, authenticator, audit_records), client)
        page = PageEntrance(door, authenticator, names, site, audit_records)
        slots = ConnectionSlots(most, personal, authenticator.knows)
        servers = [WebServer(beside(page, app) if door.own and each.tls else app, each.tls, slots) for each in listeners]
        if mesos is not None:
            listeners.append(mesos.listener)
            servers.append(mesos.open(client, unfinished, home, most))

        async def main() -> None:
            running = asyncio.get_running_loop()
            wakeups.attach(running)
            await sessions.relays.listen(sessions.address)
            if mesos is not None:
                mesos.attach(running)

            def ended() -> None:
                sessions.relays.stop()
                if mesos is not None:
                    mesos.end()
                for server in servers:
                    server.stop()
                door.stop()
                wakeups.wake()

            loop.on_stop = ended
            running.add_signal_handler(signal.SIGINT, stop.at_once)
            running.add_signal_handler(signal.SIGTERM, loop.stop)
            beside = (
                close_silent_sessions(client, sessions),
                report_due_leases(client, sessions),
                outlooks.learn(loop),
                _collect_garbage(),
                *(mesos.beside() if mesos else ()),
            )
            tasks = [running.create_task(each) for each in beside]
            try:
                running.call_soon(on_ready, urls if mesos is None else [*urls, mesos.listener.url], engine)
                if not loop.stopped.is_set():
                    serving = (s.serve(each.socket) for s, each in zip(servers, listeners, strict=True))
                    await asyncio.gather(*serving)
                    await door.stopped()
            finally:
                for task in tasks:
                    task.cancel()

        uvloop.run(main())
        loop.stop()
        loop.join(timeout=30)
        if isinstance(engine, RemoteEngine) and loop.failure is None and not stop.leave:
            engine.go_away()
        engine.close(leave=stop.leave)
        engine.join(timeout=HANG_UP_SECONDS)
        if isinstance(loop.failure, (Superseded, TakenOver)):
            raise EngineError(str(loop.failure)) from None
        if loop.failure is not None:
            raise SchedulerFailed(f"the scheduler failed: {loop.failure!r}: see {home}/log") from loop.failure


async def _collect_garbage() -> None:
    """Collect cyclic garbage among what is new, and now and then among all that is known, which holds up answers."""
    gc.set_threshold(YOUNG_OBJECTS, 10**9, 10**9)
    for turn in itertools.count(1):
        gc.freeze()
        await asyncio.sleep(GARBAGE_SECONDS)
        if turn % WHOLE_EVERY == 0:
            gc.unfreeze()
        gc.collect()


def _start(
    journal: Journal, engine: LiveEngine, clock: Clock, configuration: Configuration, home: Path, by: str, drop: Sequence[str]
) -> Scheduler:
    """Make a configured scheduler that knows what runs; raises EngineError if the engine does not answer."""
    there = None if engine.elastic else [node.name for node in engine.nodes]
    scheduler = Scheduler(journal, engine, clock, there, metrics.timed)
    state = scheduler.state
    scheduler.on_record, scheduler.placing = metrics.count, False  # the loop places, which looks at the disk first
    if isinstance(engine, RemoteEngine):
        engine.expect(_attempts_by_node(state))
    if isinstance(engine, JoinedEngine):
        engine.know(state.cluster.members)
    until = time.monotonic() + ENGINE_START_SECONDS
    try:
        if journal.position:
            check_outputs(home / "journal.db", scheduler.state)
        _refuse_unknown(scheduler.state, drop)
        if there is not None:
            _refuse_to_lose(scheduler.state, {*drop, *there})
        for gone in dropped(scheduler.state, configuration):
            log.warning("%s", gone)
        begins: list[Request] = [lambda state, now: [fact for fact in [configure(state, configuration, now)] if fact]]
        if not journal.position and (used := highest_output(home)):
            begins.insert(0, lambda state, now: [FactsLost(at=now, count=used)])  # so that no job reuses old outputs
        scheduler.step(begins, [by] * len(begins))
        while not scheduler.reconciled:
            if engine.trouble:
                raise EngineError(engine.trouble)
            if time.monotonic() > until:
                raise EngineError(f"{home}/supervisor: the supervisor does not answer: see {home}/supervisor/log")
            time.sleep(0.005)
            scheduler.step()
        if isinstance(engine, RemoteEngine):
            engine.wait_for_nodes()
    except BaseException as error:
        engine.close()
        if isinstance(error, Stalled):
            raise JournalFull(str(error)) from None
        if isinstance(error, Superseded):
            raise EngineError(str(error)) from None
        raise
    return scheduler


def _attempts_by_node(state: State) -> dict[str, list[Task]]:
    """Return the attempts that hold resources, by the name of their node; of each node that is up."""
    names, held = [spec.name for spec in state.cluster.specs], state.held_rows()
    found: dict[str, list[Task]] = {names[row]: [] for row in np.flatnonzero(state.nodes.up).tolist()}
    columns = (each.tolist() for each in (*state.attempts_of(held), state.tasks.node[held]))
    for job, index, number, row in zip(*columns, strict=True):
        found[names[row]].append((job, index, number))
    return found


def _refuse_unknown(state: State, drop: Sequence[str]) -> None:
    """Refuse to drop a node that never was: its name is probably misspelt."""
    for name in drop:
        if name not in state.cluster.rows:
            known = sorted(spec.name for spec, gone in zip(state.cluster.specs, state.nodes.forgotten, strict=False) if not gone)
            some = ", ".join(known[:8]) + " and others" * (len(known) > 8) if known else "none"
            message = f"there is no node {name} to drop: the journal knows {some}; name one of these, or leave out --drop-node"
            raise EngineError(message)


def _refuse_to_lose(state: State, known: Collection[str]) -> None:
    """Refuse to stop running tasks only because the configuration lacks their node, which may have been renamed."""
    rows = state.held_rows()
    for node, count in Counter(state.tasks.node[rows].tolist()).items():
        name = state.cluster.specs[node].name
        if name not in known:
            run = f"{count} task{'s run' if count > 1 else ' runs'} on it"
            raise EngineError(
                f"node {name!r} is gone from the configuration, and {run}: put it back, and drain it before removing it; or "
                f"stop what runs there, to start again elsewhere: fairlead up --drop-node {name}"
            )


class _Stop:
    """Ends the scheduler: when running tasks have ended, or at once."""

    def __init__(self, client: StateClient, engine: LiveEngine, on_stopping: Callable[[int], None]) -> None:
        self.leave = False
        self._client, self._engine, self._on_stopping = client, engine, on_stopping
        self._asking: asyncio.Task[None] | None = None
        self._pressed = 0

    def __call__(self, now: bool, by: str = "") -> None:
        """Stop placing tasks, and end the loop when none is left; `now` first stops the running ones, on behalf of `by`.

        With `now` the loop does not wait for silent nodes: the next scheduler handles what was to stop there. It waits only
        `UNWRITTEN_SECONDS` for a journal that cannot be written: running tasks then go on, since nothing unrecorded is done.
        """
        self.leave = True
        told = False  # running tasks were asked to stop, if that is wanted

        def revoke(state: State, at: float) -> list[Fact]:
            nonlocal told
            told = True
            rows = state.held_rows()
            self._on_stopping(len(rows))
            status = state.tasks.status[rows]
            rows = rows[(status == PLACED) | (status == RUNNING)]
            if not now or not len(rows):
                return []
            return [TasksRevoked(at=at, **state.task_columns(rows), claim=None)]

        def is_over(state: State) -> bool:
            left = {state.cluster.specs[node].name for node in np.unique(state.tasks.node[state.held_rows()]).tolist()}
            if not left:
                return True
            if not (now and told and left <= self._engine.silence.keys()):
                return False
            log.warning("not waiting for tasks on silent nodes: %s", ", ".join(sorted(left)))
            return True

        self._client.loop.stop(when=is_over, patience=UNWRITTEN_SECONDS if now else inf)
        self._asking = asyncio.create_task(self._client.record(revoke, by))

    def at_once(self) -> None:
        """Handle Ctrl-C: stop running tasks and end; the second time, end without waiting."""
        self._pressed += 1
        if self._pressed == 1:
            self(now=True)
        else:
            log.warning("leaving: running tasks are stopped within %g seconds", GRACE)
            self._client.loop.stop()
