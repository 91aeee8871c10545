"""How the supervisor of a node reaches its scheduler: it dials until a connection stands, and again when that breaks.

So a node may be behind a firewall or NAT; only the scheduler needs an address that others reach. A change of the membership
(:mod:`fairlead.engines.local.member`) renews the connection. Standard library only.
"""

import errno
import os
import random
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairlead import tls
from fairlead.engines.local.member import UNHEARD, read_membership

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Seconds between attempts, doubled each time, with jitter."""
OBEYS_WITHIN = 10.0
"""Seconds from an attempt until the scheduler's greeting."""
SILENT = 10.0
"""Seconds of silence after which the connection is renewed: a scheduler echoes each heartbeat."""


class Dialer:
    """Dials the scheduler.

    reached : called with each connection that was made; its handshake is still to come

    about : what the node says of itself, as of the last attempt; with `host`, its address on that connection
    heard_at : when the scheduler was heard last, in seconds of the monotonic clock
    """

    def __init__(self, folder: Path, selector: selectors.BaseSelector, reached: Callable[[tls.TLSConnection], None]) -> None:
        self._folder, self._selector, self._reached = folder, selector, reached
        self._membership = str(folder / "member.json")
        self.about: dict[str, Any] = {}
        self.heard_at = 0.0
        self._changed: object = None  # of the membership that was used last
        self._pause, self._next_at, self._attempts = 0.0, 0.0, 0
        self._line: socket.socket | None = None

    def is_stale(self) -> bool:
        """Return whether a connection that stands should be renewed."""
        return self._stamp() != self._changed or time.monotonic() - self.heard_at > SILENT

    def succeeded(self) -> None:
        """Reset the pauses: the scheduler was obeyed."""
        self._pause, self._next_at, self.heard_at = 0.0, 0.0, time.monotonic()
        with suppress(OSError):
            (self._folder / UNHEARD).unlink()

    def dial(self) -> None:
        """Begin an attempt; the last one has failed by then."""
        now = time.monotonic()
        self._close()
        self._pause = min(LONGEST_PAUSE, max(FIRST_PAUSE, 2 * self._pause))
        self._next_at = now + self._pause * random.uniform(0.7, 1.3)  # noqa: S311
        try:
            self._changed = self._stamp()
            membership = read_membership(self._folder)
            if membership is None or not membership.hosts:
                return
            (self._folder / UNHEARD).touch()
            host = membership.hosts[self._attempts % len(membership.hosts)]
            self._attempts += 1
            context = tls.dialing(self._folder / "own.pem", membership.scheduler)
            self.about = membership.about
            self._line = line = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            line.setblocking(False)
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if line.connect_ex((host, membership.port)) not in (0, errno.EINPROGRESS):
                self._close()
                return
        except (OSError, ValueError, KeyError, TypeError):  # no descriptor, or the files are being written
            return
        self._next_at = max(self._next_at, now + OBEYS_WITHIN)
        self._selector.register(line, selectors.EVENT_WRITE, lambda: self._connected(context))

    def failed(self) -> None:
        """The last attempt has come to nothing: make the next one after the pause, instead of later."""
        self._next_at = min(self._next_at, time.monotonic() + self._pause * random.uniform(0.7, 1.3))  # noqa: S311

    def until_due(self) -> float:
        """Return the seconds until an attempt is due: at once if the membership changed since the last."""
        return 0.0 if self._stamp() != self._changed else max(0.0, self._next_at - time.monotonic())

    def _connected(self, context: Any) -> None:
        line, self._line = self._line, None
        assert line is not None
        self._selector.unregister(line)
        try:
            if line.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError
            self.about = {**self.about, "host": line.getsockname()[0]}
            connection = tls.TLSConnection(line, context)
        except OSError:
            line.close()
            self.failed()
            return
        self._reached(connection)

    def _close(self) -> None:
        if self._line is not None:
            with suppress(KeyError, ValueError):  # not registered yet
                self._selector.unregister(self._line)
            self._line.close()
            self._line = None

    def _stamp(self) -> object:
        try:
            found = os.stat(self._membership)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino
