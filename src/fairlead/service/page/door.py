"""Where the page is served: under the scheduler's own name with TLS, else on a port of this machine that opens on first use.

That port is open on both loopback addresses. A browser may try either for a name below ``localhost``, so an account that had
the other one would get the cookies.

Visits: browsers that are signed in to the page. They are kept in memory only, so they end with the scheduler.

An authenticated caller gets a code, which a browser exchanges for a cookie once. A visit is bound to one host name. Browsers
send cookies to every port of a host, so on this machine each visit has a host name of its own that nobody can guess.
"""

import asyncio
import hmac
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fairlead.failure import failing
from fairlead.people.rules import Caller
from fairlead.people.tokens import hash_of
from fairlead.scheduler.admission import Refused
from fairlead.service.connections.listening import LOOPBACK, CannotListen, Listener, Where, certified_names, name_in, open_port
from fairlead.service.connections.web_server import WebServer

CODE_SECONDS = 60.0
IDLE_SECONDS = 12 * 3600.0
"""A visit without a request for this long ends."""
MOST_CODES, MOST_VISITS = 5, 20
"""Unused codes, and visits, of one person; a new one ends the oldest."""
MOST_TRIES = 20
"""Ports tried until one is free on both addresses."""


@dataclass
class _Visit:
    """A visit, or a code that is not used yet; `hash` is that of its secret, `until` when it ends without a further request."""

    caller: Caller
    host: str
    hash: str
    until: float


class Visits:
    """All codes and visits. For the event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._codes: dict[str, _Visit] = {}
        self._visits: dict[str, _Visit] = {}

    def new_code(self, caller: Caller, host: str = "") -> tuple[str, str]:
        """Return a code for a caller, and the host name at which to use it: a fresh one below ``localhost`` by default."""
        code, host = secrets.token_urlsafe(16), host or f"{secrets.token_hex(12)}.localhost"
        self._codes, key = self._with_room(self._codes, caller, MOST_CODES), hash_of(code)
        self._codes[key] = _Visit(caller, host, key, self._clock() + CODE_SECONDS)
        return code, host

    def _with_room(self, kept: dict[str, _Visit], caller: Caller, most: int) -> dict[str, _Visit]:
        """Return what is not over, without the oldest of this caller if there are `most`."""
        now = self._clock()
        left = {key: each for key, each in kept.items() if each.until > now}
        mine = [key for key, each in left.items() if each.caller.person.uid == caller.person.uid]
        for key in sorted(mine, key=lambda key: left[key].until)[: max(0, len(mine) - most + 1)]:
            del left[key]
        return left

    def code_of(self, code: str, host: str) -> Caller | None:
        """Return whose code it is, if it may be used at this host now."""
        found = self._codes.get(hash_of(code))
        return found.caller if found is not None and found.host == host and found.until > self._clock() else None

    def enter(self, code: str, host: str) -> str | None:
        """Exchange a code for a cookie; None for one that is wrong, used, too old, or for another host."""
        caller = self.code_of(code, host)
        if caller is None:
            return None
        del self._codes[hash_of(code)]
        return self.begin(caller, host)

    def begin(self, caller: Caller, host: str) -> str:
        number, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        self._visits = self._with_room(self._visits, caller, MOST_VISITS)
        self._visits[number] = _Visit(caller, host, hash_of(secret), self._clock() + IDLE_SECONDS)
        return f"{number}.{secret}"

    def find(self, cookie: str, host: str) -> Caller | None:
        """Return whose visit a cookie is, and prolong it; None if it is wrong, over, or for another host."""
        number, _, secret = cookie.partition(".")
        found, now = self._visits.get(number), self._clock()
        if found is None or found.until <= now or found.host != host:
            return None
        if not hmac.compare_digest(hash_of(secret), found.hash):
            return None
        found.until = now + IDLE_SECONDS
        return found.caller

    def leave(self, cookie: str, host: str) -> None:
        if self.find(cookie, host) is not None:
            del self._visits[cookie.partition(".")[0]]

    def knows(self, host: str) -> bool:
        now = self._clock()
        return any(each.host == host and each.until > now for each in (*self._codes.values(), *self._visits.values()))


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

    def code(self, caller: Caller) -> tuple[str, str]:
        """Return the URL of the page and a code for it. Raises Refused where there is no page."""
        if self._setting is False:
            raise Refused("there is no page here: fairlead.toml has `page = false`")
        if self.own:
            return self.own, self.visits.new_code(caller, name_in(self.own.partition("://")[2]))[0]
        if self._port is None:
            self._port = self._listen()
        code, host = self.visits.new_code(caller)
        return f"http://{host}:{self._port}", code

    def _listen(self) -> int:
        with failing("the page: ", CannotListen, to=Refused):
            listeners = open_loopback(0 if self._setting is True else self._setting)
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
