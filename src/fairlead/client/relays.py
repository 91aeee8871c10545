"""The program's end of relays: a thread that sends to all of them, and one that receives. See docs/calls.md."""

import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPException

from fairlead.calls.stream import ENVELOPE, Frame
from fairlead.client.connection import Connection
from fairlead.client.lease import RelayedWorker
from fairlead.client.leases import Leases
from fairlead.client.service_error import ServiceError
from fairlead.client.session import Session

MOST_BYTES = 4 * 2**20
"""Bytes of messages sent together, unless one is larger."""
SEEN_SECONDS = 0.1
"""How soon a relay hears what was received, if nothing else is sent."""
PAUSE_SECONDS = 0.2
PATIENCE_SECONDS = 60.0


class Relays:
    """Both threads begin when the first relay waits for this program, and end with the leases.

    `guard` does a thread's work, and fails all calls if that fails.
    """

    def __init__(
        self, connection: Connection, session: Session, leases: Leases, guard: Callable[[Callable[[], None]], None]
    ) -> None:
        self._connection, self._session, self._leases, self._guard = connection, session, leases, guard
        self.threads: list[threading.Thread] = []

    def begin(self) -> bool:
        """Begin; return False if both threads run already."""
        if self.threads:
            return False
        for name, work in (("send", self._send), ("receive", self._receive)):
            self.threads.append(threading.Thread(target=self._guard, args=(work,), name=f"fairlead-relays-{name}", daemon=True))
            self.threads[-1].start()
        return True

    def _send(self) -> None:
        while not self._leases.are_over():
            self._leases.to_send.wait(SEEN_SECONDS)
            for lease, worker, frames in self._leases.outgoing(MOST_BYTES):
                try:
                    self._connection.put(f"/v1/sessions/{self._session.id}/relays/{lease}", _Frames(worker, frames))
                except ServiceError:
                    if not self._leases.are_over():
                        raise

    def _receive(self) -> None:
        heard_at, path = time.monotonic(), f"/v1/sessions/{self._session.id}/relays"
        while not self._leases.are_over():
            try:
                waiting = b""
                for data in self._connection.stream(path):
                    waiting, heard_at = self._take(waiting + data), time.monotonic()
            except (OSError, HTTPException) as error:
                if time.monotonic() - heard_at > PATIENCE_SECONDS:
                    raise ServiceError(f"the scheduler does not answer: {error}") from None
            except ServiceError as error:
                if not self._leases.are_over() and error.status not in (429, 503):
                    raise
            self._leases.cut()
            time.sleep(PAUSE_SECONDS)

    def _take(self, data: bytes) -> bytes:
        """Take what came from relays; return what is incomplete."""
        place = 0
        while len(data) - place >= ENVELOPE.size:
            lease, size = ENVELOPE.unpack_from(data, place)
            if len(data) - place < ENVELOPE.size + size:
                break
            place += ENVELOPE.size + size
            if lease:  # else it only says that the scheduler is there
                self._leases.relayed(lease, data[place - size : place])
        return data[place:]


class _Frames:
    """Messages as the body of a request."""

    def __init__(self, worker: RelayedWorker, frames: list[Frame]) -> None:
        self._worker, self._frames = worker, frames

    def __len__(self) -> int:
        return sum(frame.size() for frame in self._frames)

    def __iter__(self) -> Iterator[bytes]:
        return self._worker.pieces(self._frames)
