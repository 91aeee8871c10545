"""`fairlead up`: put journal, engine, loop and HTTP together, run, and stop cleanly.

Ctrl-C stops what runs (it goes back to its jobs, and starts again with the next `up`) and leaves nothing behind. SIGTERM, as from
a service manager that restarts the scheduler, leaves the tasks running under their supervisor, to be adopted.
"""

import asyncio
import contextlib
import logging
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path

import numpy as np
import uvicorn
import uvloop

from fairlead.data_folder import forget_address, make_home, make_token, write_address
from fairlead.engines.local.engine import EngineError, LocalEngine
from fairlead.engines.local.machine import this_machine
from fairlead.engines.step import GRACE, Scheduler, Stalled
from fairlead.journal import Journal, JournalFull
from fairlead.journal.memory import MemoryStore
from fairlead.journal.sql import SqlStore
from fairlead.model.documents import Configuration
from fairlead.model.specs import Job, Node, Queue, Settings
from fairlead.scheduler.decide import decide
from fairlead.scheduler.facts import (
    Configured,
    Fact,
    JobSubmitted,
    NodeJoined,
    TasksFinished,
    TasksRevoked,
    TasksStarted,
)
from fairlead.scheduler.live_audit import audit_state
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import PLACED, RUNNING
from fairlead.service import metrics
from fairlead.service.api.app import TooLargeInJson, make_api
from fairlead.service.api.asking import Asker
from fairlead.service.api.calls import close_silent_sessions
from fairlead.service.api.cluster import configure
from fairlead.service.loop import Loop
from fairlead.service.over_time import Audits
from fairlead.service.sessions import Sessions
from fairlead.service.wakeups import Wakeups

log = logging.getLogger("fairlead")

DEFAULT_PORT = 7373
HEAR_WITHIN = 30.0
"""Seconds in which the engine must have told what it knows of, for the scheduler to start."""
HANG_UP_WITHIN = 5.0
"""Seconds that the engine is given to pass on what it was told, before the process ends."""
MOST_CONNECTIONS = 4000
"""Connections, or requests in the making, at once; others are answered 503."""


class SchedulerFailed(RuntimeError):
    """A fault of fairlead's own ended the scheduler."""


class PortInUse(OSError):
    """Somebody else answers there."""


def warm_up() -> None:
    """Compile the kernels, or load them: let one task live through a little history in memory."""
    journal = Journal(MemoryStore())
    one = np.zeros(1, np.int64)
    facts: list[Fact] = [
        Configured(at=0, queues=[Queue("a"), Queue("b")], settings=Settings()),
        NodeJoined(at=0, node=Node("n", {"cpu": 1000})),
        JobSubmitted(at=0, id=1, job=Job("a", {"cpu": 1000})),
    ]
    journal.append(facts)
    state = journal.recover()
    for fact in decide(state, 0.0).facts:
        state.apply(fact)
    task = {"job": one + 1, "index": one, "attempt": one + 1}
    state.apply(TasksStarted(at=0, **task))
    audit_state(state)
    state.apply(TasksFinished(at=0, **task, outcome=one, code=one))


def open_port(host: str, port: int | None) -> socket.socket:
    """Take a port to listen on: the one that is asked for, else the default one, else any."""
    for candidate in [port] if port is not None else [DEFAULT_PORT, 0]:
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, candidate))
            listener.listen(1024)
            return listener
        except OSError as error:
            listener.close()
            reason = error.strerror
    raise PortInUse(f"cannot listen on {host}:{port}: {reason}: name another port with --port, or none for any")


def serve(
    home: Path,
    configuration: Configuration,
    *,
    host: str,
    port: int | None,
    read_again: Callable[[], Configuration],
    on_ready: Callable[[str, LocalEngine], None],
    on_stopping: Callable[[int], None],
) -> None:
    """Run the scheduler until it is told to stop.

    Long because all parts are put together here, in the one order in which each finds what it needs of the others.

    Parameters
    ----------
    home : Path
        Its data folder.
    configuration : Configuration
        The queues, the nodes (this machine, where there are none) and the settings.
    host, port : str, int or None
        Where to answer; without a port, on the default one or, where that is taken, any.
    read_again : callable
        Reads the configuration anew, when the scheduler is told to.
    on_ready : callable
        Told the URL and the engine when requests are answered.
    on_stopping : callable
        Told how many tasks still run when the scheduler begins to stop.

    Raises
    ------
    JournalError, EngineError, PortInUse, Refused, OSError
        It cannot start; the message says why and what to do.
    SchedulerFailed
        It ended by a fault of its own.
    """
    make_home(home)
    journal = Journal(SqlStore(home / "journal.db"))
    try:
        token = make_token(home)
        listener = open_port(host, port)
        nodes = configuration.nodes or [this_machine()]
        engines: list[LocalEngine] = []

        def make(wake: Callable[[], None]) -> Scheduler:
            engine = LocalEngine(home, nodes, wake)
            engines.append(engine)
            scheduler = _start(journal, engine, configuration)
            sessions.recover(scheduler.state)  # what is recorded from now on it is told
            return scheduler

        wakeups = Wakeups()
        sessions = Sessions(home / "calls", wakeups)
        loop = Loop(make, _announcing(wakeups, sessions))
        loop.start()
        loop.ready.result()
        engine = engines[0]
        stop = _Stop(loop, on_stopping)
        address = listener.getsockname()
        url = f"http://{host if ':' not in host else f'[{host}]'}:{address[1]}"
        asker = Asker(loop, wakeups)
        api = make_api(
            asker, journal, sessions, engine.read_output, token, stop, read_again, Audits(home / "journal.db")
        )
        server = _Server(
            uvicorn.Config(
                TooLargeInJson(api),
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=2,
                lifespan="off",
                http="httptools",
                limit_concurrency=MOST_CONNECTIONS,
            )
        )

        async def main() -> None:
            running = asyncio.get_running_loop()
            wakeups.attach(running)

            def ended() -> None:
                running.call_soon_threadsafe(setattr, server, "should_exit", True)
                wakeups.wake()

            loop.on_stop = ended
            running.add_signal_handler(signal.SIGINT, stop.at_once)
            running.add_signal_handler(signal.SIGTERM, loop.stop)
            write_address(home, url)
            watching = running.create_task(close_silent_sessions(asker, sessions))
            try:
                running.call_soon(on_ready, url, engine)
                if not loop.stopped.is_set():
                    await server.serve(sockets=[listener])
            finally:
                watching.cancel()
                forget_address(home)

        uvloop.run(main())
        loop.stop()
        loop.join(timeout=30)
        engine.close(leave=stop.leave)
        engine.join(timeout=HANG_UP_WITHIN)
        if loop.failure is not None:
            raise SchedulerFailed(f"the scheduler failed: {loop.failure!r}: see {home}/log") from loop.failure
    finally:
        journal.close()


def _start(journal: Journal, engine: LocalEngine, configuration: Configuration) -> Scheduler:
    """Make a scheduler that is configured and knows what runs; raises EngineError where the engine does not tell."""
    scheduler = Scheduler(journal, engine, time.time, [node.name for node in engine.nodes], metrics.timed)
    scheduler.on_record = metrics.count
    until = time.monotonic() + HEAR_WITHIN
    try:
        scheduler.step([lambda state, now: [fact for fact in [configure(state, configuration, now)] if fact]])
        while not scheduler.reconciled:
            if engine.trouble:
                raise EngineError(engine.trouble)
            if time.monotonic() > until:
                raise EngineError(f"{engine.folder}: the supervisor does not answer: see {engine.folder}/log")
            time.sleep(0.005)
            scheduler.step()
    except BaseException as error:
        engine.close()
        if isinstance(error, Stalled):
            raise JournalFull(str(error)) from None
        raise
    return scheduler


def _announcing(wakeups: Wakeups, sessions: Sessions) -> Callable[[State, Sequence[Fact]], None]:
    """Ring for the jobs that ended, and that there are more facts; tell programs what happened to their calls."""
    last: int | None = None

    def announce(state: State, facts: Sequence[Fact]) -> None:
        nonlocal last
        sessions.recorded(state, facts)
        ended = list(takewhile(lambda job: job != last, reversed(state.ended_jobs().tolist())))
        if ended:
            last = ended[0]
        wakeups.wake([("job", job) for job in ended] + ["facts"])

    return announce


class _Stop:
    """How the scheduler ends: when what runs has ended, or at once."""

    def __init__(self, loop: Loop, on_stopping: Callable[[int], None]) -> None:
        self.leave = False
        self._loop, self._on_stopping = loop, on_stopping
        self._pressed = 0

    def __call__(self, now: bool) -> None:
        """Stop placing tasks, and end the loop when none is left; `now` has those that run stopped first."""
        self.leave = True

        def revoke(state: State, at: float) -> tuple[list[Fact], None]:
            rows = state.held_rows()
            self._on_stopping(len(rows))
            status = state.tasks.status[rows]
            rows = rows[(status == PLACED) | (status == RUNNING)]
            if not now or not len(rows):
                return [], None
            return [TasksRevoked(at=at, **state.task_columns(rows))], None

        self._loop.stop(when=lambda state: not len(state.held_rows()))
        self._loop.ask(revoke, changes=True)

    def at_once(self) -> None:
        """Ctrl-C: stop what runs and end; pressed again, end without waiting for it."""
        self._pressed += 1
        if self._pressed == 1:
            self(now=True)
        else:
            log.warning("leaving: tasks that still run are stopped within %g seconds", GRACE)
            self._loop.stop()


class _Server(uvicorn.Server):
    """uvicorn, with the signals left to us."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
