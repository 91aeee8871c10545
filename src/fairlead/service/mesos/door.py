"""Mesos' door: all that answers frameworks, put together, with what goes on beside it."""

import asyncio
import logging
import re
import socket
import uuid
from collections.abc import Coroutine, Sequence
from functools import partial
from ipaddress import IPv4Address, ip_address
from pathlib import Path
from typing import Any

import uvicorn

from fairlead.people.principals import Principals
from fairlead.scheduler.facts import Fact
from fairlead.scheduler.state import State
from fairlead.service.api.asking import Asker
from fairlead.service.clock import Clock
from fairlead.service.listening import LOOPBACK, Listener, Where, make_server
from fairlead.service.loop import Busy
from fairlead.service.mesos.app import MesosApp
from fairlead.service.mesos.callers import Callers
from fairlead.service.mesos.calls import Calls
from fairlead.service.mesos.events import VERSION
from fairlead.service.mesos.executor_calls import ExecutorCalls
from fairlead.service.mesos.executors import Executors
from fairlead.service.mesos.messages.mesos_pb2 import MasterInfo
from fairlead.service.mesos.operators import Operators
from fairlead.service.mesos.sandboxes import ASIDE, Sandboxes
from fairlead.service.mesos.subscriptions import TELL_AGAIN, Subscriptions
from fairlead.service.places import Kind, Places
from fairlead.service.unfinished import Unfinished
from fairlead.sockets import is_loopback

log = logging.getLogger("fairlead")

KEEP_ALIVE = 86_400
"""Seconds that a connection may be silent: clients keep one for all their calls, and do not expect it to be gone."""
ROOM = {Kind.LOOK: 100, Kind.CHANGE: 4000, Kind.WAIT: 4000}
"""Requests at once: each stream is one for as long as it lasts."""
PATIENCE = 10.0
"""Seconds that a connection may wait to be let in: clients take it for an error to be told to come back, but for 503."""
SWEEP_EVERY = 600.0
"""Seconds between two looks for sandboxes of jobs that are forgotten."""


class MesosDoor:
    """What answers frameworks: made before the scheduler runs, since it is told from the first fact on, and opened when it does.

    Parameters
    ----------
    where : Where
        Says where their principals are, and what the machine is called by.
    listener : Listener
    personal : bool
        Whether all is one person's.
    clock : Clock
    """

    def __init__(self, where: Where, listener: Listener, personal: bool, clock: Clock) -> None:
        self.listener, self._where, self._personal = listener, where, personal
        self._principals = Principals(where.principals, personal) if where.principals is not None else None
        self._subscriptions, self._executors = Subscriptions(clock), Executors()
        self._executors.on_ended = self._subscriptions.executor_ended

    def recorded(self, state: State, facts: Sequence[Fact]) -> None:
        """Tell what was recorded."""
        self._executors.recorded(state, facts)
        self._subscriptions.recorded(state, facts)

    def end(self) -> None:
        """Nobody is told anything any more."""
        self._executors.end()
        self._subscriptions.end()

    def open(self, asker: Asker, unfinished: Unfinished, home: Path, most: int) -> uvicorn.Server:
        """Make what answers, with places for so many connections."""
        self._asker = asker
        folder, volumes = (
            home / name if self._personal else home.with_name(f"{home.name}-{name}")
            for name in ("sandboxes", "volumes")
        )
        self._sandboxes = Sandboxes(folder, volumes, not self._personal, home / "output")
        master = master_info(self.listener)
        certificate = _certificate(self._where.certificate) if self._where.certificate is not None else ""
        self._calls = Calls(
            asker, self._subscriptions, self._executors, unfinished, self._sandboxes, master, certificate
        )
        self._executor_calls = ExecutorCalls(asker, self._executors, self._subscriptions, self._calls.until_taken)
        callers = Callers(asker.door, self._principals)
        app = MesosApp(
            callers, self._calls, self._executor_calls, Operators(asker, master, self._calls.set_apart), self._names()
        )
        places = Places(
            most, self._personal, asker.door.knows, room=ROOM, most_of_one=most // 2, full=503, patience=PATIENCE
        )
        return make_server(app, self.listener.tls, places, KEEP_ALIVE)

    def _names(self) -> set[str]:
        """The hosts that requests may be for; none where all will do."""
        host = self.listener.socket.getsockname()[0]
        names = {host, *LOOPBACK, *self._where.names}
        if not is_loopback(host):
            if self._principals is not None:
                return set()  # no page has a browser send a secret that it does not know
            names |= {socket.gethostname(), socket.getfqdn()}
        return {name.lower().rstrip(".") for name in names}

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Say in which event loop it all is."""
        self._subscriptions.attach(loop)
        self._executors.attach(loop)

    def beside(self) -> list[Coroutine[Any, Any, None]]:
        """What goes on for ever, or for a while, beside the answers."""
        return [
            self._calls.disconnect_those_gone(),
            self._calls.end_groups_of_before(),
            self._executor_calls.go_on(),
            self._tell_again(),
            self._sweep(),
        ]

    async def _tell_again(self) -> None:
        while True:
            await asyncio.sleep(TELL_AGAIN / 2)
            await self._look(self._subscriptions.tell_again)

    async def _look(self, view: Any) -> Any:
        try:
            return await self._asker.read(view)
        except (Busy, TimeoutError):  # the next time
            return None

    async def _sweep(self) -> None:
        while True:
            known = await self._look(partial(_sandboxes_of, self._sandboxes))
            if known is not None:
                try:
                    await asyncio.to_thread(self._sandboxes.drop_but, known[0])
                    for name in await asyncio.to_thread(self._sandboxes.set_aside, known[1]):
                        log.warning("volume %s is none that is reserved: it is kept in %s", name, ASIDE)
                except OSError as error:
                    log.warning("sandboxes: one cannot be removed: %s", error)
            await asyncio.sleep(SWEEP_EVERY)


def _sandboxes_of(sandboxes: Sandboxes, state: State) -> tuple[set[str], set[str]]:
    """The sandboxes of the jobs that are remembered, and the volumes that there are."""
    paths = (Path(job.work.cwd) for job in state.index.specs.values() if job.framework)
    volumes = (
        sandboxes.volume(node, mark) for node, here in state.frameworks.role_reservations.items() for mark in here
    )
    return {path.name for path in paths if path.parent == sandboxes.folder}, {path.name for path in volumes}


def master_info(listener: Listener) -> MasterInfo:
    """What frameworks are told of the scheduler: as which of Mesos' masters, and where it answers."""
    address, port = listener.socket.getsockname()[:2]
    host = address if is_loopback(address) else socket.getfqdn()
    found = ip_address("127.0.0.1" if ":" in address or address == "0.0.0.0" else address)  # noqa: S104 it is only compared
    assert isinstance(found, IPv4Address)
    told = MasterInfo(id=str(uuid.uuid4()), ip=int.from_bytes(found.packed, "little"), port=port)
    told.pid, told.hostname, told.version = f"master@{found}:{port}", host, VERSION
    told.address.hostname, told.address.ip, told.address.port = host, str(found), port
    return told


def _certificate(path: Path) -> str:
    """The first certificate in a file, which is that of whom it is for, without a key that may be there as well."""
    found = re.search("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", path.read_text(), re.DOTALL)
    return found[0] if found else ""
