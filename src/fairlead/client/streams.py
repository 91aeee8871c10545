"""Streams of running tasks: programs that are attached to them, and connections to their ports."""

import base64
import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

from fairlead.client.connection import Connection
from fairlead.client.service_error import ServiceError

WAIT_SECONDS = 20.0
"""How long the scheduler delays an answer while there is no output."""


class Stream:
    """A stream of a task; with no `argv`, a connection to its port. Raises ServiceError."""

    def __init__(self, connection: Connection, job: int, index: int, **program: Any) -> None:
        self._connection, self._task = connection, f"/v1/jobs/{job}/tasks/{index}"
        self.id, self._sent = uuid.uuid4().hex, 0
        self.attempt = connection.post(f"{self._task}/streams", {**program, "stream": self.id})["attempt"]

    def pieces(self) -> Iterator[tuple[bytes, bytes, Any]]:
        """Yield its output and errors, piece by piece, and with the last one the exit status."""
        number, over = 1, False
        while not over:
            found = self._connection.get(f"{self._task}/streams/{self.id}", number=number, wait=WAIT_SECONDS)
            if found["number"] == number:
                yield base64.b64decode(found["out"]), base64.b64decode(found["err"]), found["exit"]
            number, over = number + bool(found["number"]), found["over"]

    def send(self, data: bytes) -> bool:
        """Send input, or the end of it if there is none; return False if no more is taken."""
        ends = not data
        while True:
            found = self._connection.put(f"{self._task}/input", data, offset=self._sent, end=ends, stream=self.id)
            taken = max(0, found["taken"] - self._sent)
            self._sent, data = self._sent + taken, data[taken:]
            if found["over"] or found["attempt"] != self.attempt:
                return False
            if not data and not ends:
                return True

    def close(self) -> None:
        with contextlib.suppress(ServiceError):
            self._connection.delete(f"{self._task}/streams/{self.id}")
