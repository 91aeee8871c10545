"""Where the page is served: under the scheduler's own name with TLS, else on a port of this machine that opens on first use.

That port is open on both loopback addresses. A browser may try either for a name below ``localhost``, so an account that had
the other one would get the cookies.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence

from fairlead.people.rules import Caller
from fairlead.people.visits import Visits
from fairlead.scheduler.admission import Refused
from fairlead.service.connections.listening import LOOPBACK, CannotListen, Listener, Where, certified_names, name_in, open_port
from fairlead.service.connections.web_server import WebServer

MOST_TRIES = 20
"""Ports tried until one is free on both addresses."""


class Door:
    """Makes codes, and serves the page where they are used.

    setting : False turns the page off; a number is its port on this machine; True picks a free one
    own : the URL of the scheduler's own name with TLS; empty without TLS
    make_server : makes a server of the page, for one listener
    """

    def __init__(self, setting: bool | int, own: str, make_server: Callable[[], WebServer]) -> None:
        self.visits = Visits()
        self._setting, self.own, self._make_server = setting, own, make_server
        self._port: int | None = None
        self._servers: list[WebServer] = []
        self._serving: list[asyncio.Task[None]] = []

    @property
    def is_open(self) -> bool:
        """False if the page is turned off."""
        return self._setting is not False

    def code(self, caller: Caller) -> tuple[str, str]:
        """Return the URL of the page and a code for it. Raises Refused where there is no page."""
        if not self.is_open:
            raise Refused("there is no page here: fairlead.toml has `page = false`")
        if self.own:
            return self.own, self.visits.new_code(caller, name_in(self.own.partition("://")[2]))[0]
        if self._port is None:
            self._port = self._listen()
        code, host = self.visits.new_code(caller)
        return f"http://{host}:{self._port}", code

    def _listen(self) -> int:
        try:
            listeners = open_loopback(0 if self._setting is True else self._setting)
        except CannotListen as error:
            raise Refused(f"the page: {error}") from None
        for listener in listeners:
            self._servers.append(self._make_server())
            self._serving.append(asyncio.create_task(self._servers[-1].serve(listener)))
        return int(listeners[0].getsockname()[1])

    def stop(self) -> None:
        """Stop serving soon. Thread-safe."""
        for server in self._servers:
            server.stop()

    async def stopped(self) -> None:
        await asyncio.gather(*self._serving, return_exceptions=True)


def open_loopback(port: int) -> list[socket.socket]:
    """Listen on a port of 127.0.0.1, and of ::1 if this machine has it; 0 for any port free on both. Raises CannotListen."""
    try:
        open_port("::1", 0).close()
    except OSError:
        return [open_port("127.0.0.1", port)]
    for tries_left in range(MOST_TRIES, 0, -1):
        first = open_port("127.0.0.1", port)
        try:
            return [first, open_port("::1", first.getsockname()[1])]
        except CannotListen:
            first.close()
            if port or tries_left == 1:
                raise
    raise AssertionError


def own_url(where: Where, listeners: Sequence[Listener]) -> str:
    """Return the URL of the TLS port under a name that is not of this machine alone; empty without one."""
    if where.certificate is None or where.port is None:
        return ""
    names = [*where.names, *certified_names(where.certificate)]
    hosts = [name.lower().rstrip(".") for name in names if not name.startswith("*") and name not in LOOPBACK]
    port = next(each.url for each in listeners if each.tls is not None).rpartition(":")[2]
    return f"https://{f'[{hosts[0]}]' if ':' in hosts[0] else hosts[0]}:{port}" if hosts else ""
