"""The server for Mesos frameworks: all its parts, and its background tasks."""

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

from fairlead.people.principals import Principals
from fairlead.scheduler.facts import Fact
from fairlead.scheduler.state import State
from fairlead.service.api.state_client import StateClient
from fairlead.service.clock import Clock
from fairlead.service.connections.listening import Listener, Where, accepted_names
from fairlead.service.connections.slots import ConnectionSlots, Kind
from fairlead.service.connections.web_server import WebServer
from fairlead.service.loop import Busy
from fairlead.service.mesos.app import MesosApp
from fairlead.service.mesos.authenticator import FrameworkAuthenticator
from fairlead.service.mesos.calls import Calls
from fairlead.service.mesos.cluster_view import Completed
from fairlead.service.mesos.events import VERSION, failure
from fairlead.service.mesos.executors import ExecutorCalls, Executors
from fairlead.service.mesos.messages.mesos_pb2 import MasterInfo
from fairlead.service.mesos.operators import Operators
from fairlead.service.mesos.sandboxes import ASIDE, Sandboxes
from fairlead.service.mesos.subscriptions import RESEND_SECONDS, Subscriptions
from fairlead.service.unfinished_jobs import UnfinishedJobs
from fairlead.sockets import is_loopback

log = logging.getLogger("fairlead")

KEEP_ALIVE_SECONDS = 86_400
"""How long a connection may be silent: clients keep one for all their calls, and expect it to last."""
ROOM = {Kind.READ: 100, Kind.CHANGE: 4000, Kind.WAIT: 4000}
"""Concurrent requests by kind; each stream counts as one while it lasts."""
MOST_WAIT_SECONDS = 10.0
"""How long a connection may wait to be admitted: of all refusals, clients retry only after a 503."""
SWEEP_SECONDS = 600.0
"""Between two searches for sandboxes of forgotten jobs."""


class MesosServer:
    """The server for frameworks. It is made before the scheduler runs, to get all facts, and opened once it does.

    where : for principals and host names
    personal : True if the scheduler belongs to one person
    """

    def __init__(self, where: Where, listener: Listener, personal: bool, clock: Clock) -> None:
        self.listener, self._where, self._personal = listener, where, personal
        self._principals = Principals(where.principals, personal) if where.principals is not None else None
        self._subscriptions, self._executors, self._completed = Subscriptions(clock), Executors(), Completed()
        self._executors.on_ended = lambda who, *how: self._subscriptions.tell(who, [failure(*how)])

    def recorded(self, state: State, facts: Sequence[Fact]) -> None:
        """Send what was recorded to frameworks and executors."""
        self._executors.recorded(state, facts)
        self._subscriptions.recorded(state, facts)
        self._completed.recorded(state, facts)

    def end(self) -> None:
        self._executors.end()
        self._subscriptions.end()

    def open(self, client: StateClient, unfinished: UnfinishedJobs, home: Path, most: int) -> WebServer:
        """Make the web server, with `most` slots for connections."""
        self._client = client
        folder, volumes = (
            home / name if self._personal else home.with_name(f"{home.name}-{name}") for name in ("sandboxes", "volumes")
        )
        self._sandboxes = Sandboxes(folder, volumes, not self._personal, home / "output")
        master = master_info(self.listener)
        certificate = _certificate(self._where.certificate) if self._where.certificate is not None else ""
        self._calls = Calls(client, self._subscriptions, self._executors, unfinished, self._sandboxes, master, certificate)
        self._executor_calls = ExecutorCalls(client, self._executors, self._subscriptions)
        authenticator = FrameworkAuthenticator(client.authenticator, self._principals)
        operators = Operators(client, master, self._completed, self._calls.set_apart)
        app = MesosApp(authenticator, self._calls, self._executor_calls, operators, self._names())
        knows = client.authenticator.knows
        slots = ConnectionSlots(
            most, self._personal, knows, room=ROOM, most_of_one=most // 2, full=503, max_wait=MOST_WAIT_SECONDS
        )
        return WebServer(app, self.listener.tls, slots, KEEP_ALIVE_SECONDS)

    def _names(self) -> set[str]:
        """Return the accepted host names; empty for all."""
        host, port = self.listener.socket.getsockname()[:2]
        if self._principals is not None and not is_loopback(host):
            return set()  # a web page does not know the secret
        # Without principals the caller is the owner of the calling process. By a name under a certificate's `*`, a web page could
        # make a browser call.
        certificate = None if self._principals is None else self._where.certificate
        return accepted_names(self._where._replace(host=host, port=port, certificate=certificate))

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._subscriptions.attach(loop)
        self._executors.attach(loop)

    def beside(self) -> list[Coroutine[Any, Any, None]]:
        return [
            self._client.record(self._calls.disconnect_those_gone),
            self._client.record(self._calls.end_groups_of_before),
            self._executor_calls.go_on(),
            self._tell_again(),
            self._sweep(),
        ]

    async def _tell_again(self) -> None:
        while True:
            await asyncio.sleep(RESEND_SECONDS / 2)
            await self._look(self._subscriptions.tell_again)

    async def _look(self, view: Any) -> Any:
        try:
            return await self._client.read(view)
        except (Busy, TimeoutError):  # try again next time
            return None

    async def _sweep(self) -> None:
        while True:
            known = await self._look(partial(_sandboxes_of, self._sandboxes))
            if known is not None:
                try:
                    await asyncio.to_thread(self._sandboxes.drop_but, known[0])
                    for name in await asyncio.to_thread(self._sandboxes.set_aside, known[1]):
                        log.warning("volume %s has no reservation: moved to %s", name, ASIDE)
                except OSError as error:
                    log.warning("sandboxes: cannot remove one: %s", error)
            await asyncio.sleep(SWEEP_SECONDS)


def _sandboxes_of(sandboxes: Sandboxes, state: State) -> tuple[set[str], set[str]]:
    """Return the names of the sandboxes of known jobs, and of the existing volumes."""
    paths = (Path(job.work.cwd) for job in state.index.specs.values() if job.framework)
    volumes = (sandboxes.volume(node, mark) for node, here in state.frameworks.role_reservations.items() for mark in here)
    return {path.name for path in paths if path.parent == sandboxes.folder}, {path.name for path in volumes}


def master_info(listener: Listener) -> MasterInfo:
    """Describe the scheduler to frameworks, as a Mesos master."""
    address, port = listener.socket.getsockname()[:2]
    host = address if is_loopback(address) else socket.getfqdn()
    found = ip_address("127.0.0.1" if ":" in address or address == "0.0.0.0" else address)  # noqa: S104 only compared
    assert isinstance(found, IPv4Address)
    return MasterInfo(
        id=str(uuid.uuid4()), ip=int.from_bytes(found.packed, "little"), port=port, pid=f"master@{found}:{port}", hostname=host,
        version=VERSION, address={"hostname": host, "ip": str(found), "port": port},
    )  # fmt: skip


def _certificate(path: Path) -> str:
    """Return the first certificate in a file, the server's own, without a key that the file may contain."""
    found = re.search("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", path.read_text(), re.DOTALL)
    return found[0] if found else ""
