"""The line to the supervisor: messages go out and come in, and nobody who uses it waits.

One thread does all that may take time: it connects, starts a supervisor where there is none, sends, hears, and begins again
when the line breaks. Messages that the supervisor does not read wait in memory up to a bound; beyond it they are dropped, and
so are those that wait when the line breaks. After either the greeting is sent, which asks for everything anew.
"""

import contextlib
import logging
import os
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fairlead.sockets import socket_name

log = logging.getLogger("fairlead")

MOST_UNSENT = 64 * 2**20
"""Bytes of messages that wait to be sent."""
START_WITHIN = 10.0
"""Seconds that a new supervisor is given until it answers."""
HANG_UP_WITHIN = 2.0
"""Seconds that a closed line is given to send what it was told."""
ASK_EVERY = 2.0
"""Seconds after which a supervisor that says nothing is asked whether it is there."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0
"""Seconds between tries to reach a supervisor that cannot be started; each is twice the one before."""


class SupervisorConnection:
    """A line that mends itself.

    Parameters
    ----------
    folder : Path
        The supervisor's.
    greeting : bytes
        Messages that are sent first on each connection.
    again : bytes
        The message that is sent after some were dropped.
    are_you_there : bytes
        The message that it always answers.
    hear : callable
        Given lines that came, whole ones, in the line's thread.

    Attributes
    ----------
    trouble : str or None
        Why the supervisor cannot be reached.
    heard_at : float
        When it was last heard, in seconds of the monotonic clock; before that, when the line was made.
    """

    def __init__(
        self, folder: Path, greeting: bytes, again: bytes, are_you_there: bytes, hear: Callable[[list[bytes]], None]
    ) -> None:
        self.trouble: str | None = None
        self.heard_at = time.monotonic()
        self._folder, self._greeting, self._again = folder, greeting, again
        self._are_you_there, self._hear = are_you_there, hear
        self._closing = threading.Event()
        self._lock = threading.Lock()  # held for moments, never while anything is waited for
        self._outbox = bytearray()
        self._sending = bytearray()  # the thread's own
        self._dropped = False
        self._over = False
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)
        self._thread.start()

    def tell(self, message: bytes) -> None:
        """Send a message, sooner or later or, where too many wait, never."""
        with self._lock:
            if len(self._outbox) + len(self._sending) > MOST_UNSENT:
                self._dropped = True
                return
            self._outbox += message
        self._ring()

    def close(self) -> None:
        """Send what waits, if that is soon done, and hang up."""
        self._closing.set()
        self._ring()

    def join(self, timeout: float) -> None:
        """Wait until a closed line has hung up."""
        self._thread.join(timeout)

    def _ring(self) -> None:
        """Have the thread look at the outbox."""
        with self._lock, contextlib.suppress(BlockingIOError):  # it was rung often and will look
            if not self._over:
                self._bell.send(b".")

    def _run(self) -> None:
        pause = 0.0
        while not self._closing.wait(pause):
            heard = False
            try:
                connection = self._reach()
            except OSError as error:
                self._complain(error)
            else:
                with connection:
                    heard = self._converse(connection)
                if not self._closing.is_set():
                    log.warning("the supervisor ended: starting another")
            pause = 0.0 if heard else min(LONGEST_PAUSE, max(FIRST_PAUSE, 2 * pause))
        with self._lock:
            self._over = True
            self._bell.close()
            self._ear.close()

    def _complain(self, error: OSError) -> None:
        reason = f"no supervisor could be started: {error}: see {self._folder}/log"
        if self.trouble is None and not self._closing.is_set():
            log.error("%s; retrying", reason)
        self.trouble = reason

    def _reach(self) -> socket.socket:
        """Connect to the supervisor that is there, or start one; raises OSError where neither can be done."""
        with contextlib.suppress(OSError):  # there is none
            return _dial(self._folder)
        started = _spawn(self._folder)
        until = time.monotonic() + START_WITHIN
        while True:
            try:
                return _dial(self._folder)
            except OSError:
                if started.poll() or time.monotonic() > until or self._closing.wait(0.01):
                    raise
                if started.poll() == 0:  # another one was there, which may be about to go
                    started = _spawn(self._folder)

    def _converse(self, connection: socket.socket) -> bool:
        """Send and hear until the line breaks or is closed; returns whether anything was heard."""
        with self._lock:
            self._outbox, self._sending, self._dropped = bytearray(self._greeting), bytearray(), False
        connection.setblocking(False)
        heard, torn, hang_up_at, asked_at = False, b"", None, time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self._ear, selectors.EVENT_READ)
            selector.register(connection, selectors.EVENT_READ)
            while True:
                self._take()
                if self._closing.is_set():
                    hang_up_at = hang_up_at or time.monotonic() + HANG_UP_WITHIN
                    if not self._sending or time.monotonic() > hang_up_at:
                        return heard
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._sending else 0)
                selector.modify(connection, wanted)
                ready = selector.select(0.1 if hang_up_at else ASK_EVERY)
                if not ready and not self._sending and time.monotonic() - max(asked_at, self.heard_at) > ASK_EVERY:
                    asked_at = time.monotonic()
                    self._sending += self._are_you_there
                if any(key.fileobj is self._ear for key, _ in ready):
                    self._ear.recv(4096)
                try:
                    data = _receive(connection)
                    self._send(connection)
                except (
                    OSError
                ):  # as when it hangs up in good order: whoever comes after it will be asked for everything
                    return heard
                if data is None:
                    continue
                if not data:
                    return heard
                *lines, torn = (torn + data).split(b"\n")
                if lines:
                    heard, self.trouble, self.heard_at = True, None, time.monotonic()
                    self._hear(lines)

    def _take(self) -> None:
        """Take what is to be sent next, when all that was taken before is gone."""
        with self._lock:
            if self._sending:
                return
            self._sending, self._outbox = self._outbox, self._sending
            if self._dropped and not self._sending:
                self._dropped = False
                self._sending += self._again

    def _send(self, connection: socket.socket) -> None:
        if self._sending:
            with contextlib.suppress(BlockingIOError):  # it does not read now: the selector tells when it does
                del self._sending[: connection.send(self._sending)]


def _receive(connection: socket.socket) -> bytes | None:
    """What came; None for nothing yet, no bytes for the end."""
    try:
        return connection.recv(1 << 20)
    except BlockingIOError:
        return None


def _dial(folder: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(1.0)
        with socket_name(folder / "socket") as name:
            connection.connect(name)
    except OSError:
        connection.close()
        raise
    return connection


def _spawn(folder: Path) -> "subprocess.Popen[bytes]":
    folder.mkdir(mode=0o700, exist_ok=True)  # somebody may have taken it away
    fd = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-m", "fairlead.engines.local.supervisor", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=fd,
            stderr=fd,
            start_new_session=True,
            cwd="/",
        )
    finally:
        os.close(fd)
