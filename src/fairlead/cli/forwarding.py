"""`fairlead run --port`: a port of this machine that leads to the port of a task, wherever that runs.

Each connection is a stream of the task. On a machine of many people, only this account and root get through.
"""

import contextlib
import os
import re
import socket
import threading
import time
from typing import Any

from fairlead.cli.scheduler import say
from fairlead.client.connection import Connection
from fairlead.client.service_error import ServiceError
from fairlead.client.streams import Stream
from fairlead.failure import WrongUsage, failing
from fairlead.sockets import account_of_caller, uid_of_caller

MOST_CONNECTIONS = 64
"""At once; more wait."""
PIECE_BYTES = 2**18
PAUSE_SECONDS = 0.1


def read_port(text: str) -> tuple[int, int]:
    """Read --port: the port here, and the one that the task would like. Raises Failure."""
    match = re.fullmatch(r"([0-9]{1,5})(?::([0-9]{1,5}))?", text)
    here, there = (int(match[1]), int(match[2] or match[1])) if match else (-1, -1)
    if match is None or max(here, there) >= 2**16:
        raise WrongUsage(f"--port {text}: write the port here, such as 8888, or with the program's own, 8888:80; 0 for any")
    return here, there


class Forwarder:
    """Listens on a port of 127.0.0.1 from the beginning, and connects from :meth:`begin` on. Raises Failure."""

    def __init__(self, connection: Connection, port: int) -> None:
        self._connection, self._job = connection, 0
        with failing(f"127.0.0.1:{port} cannot be used here: ", OSError, after=": name another --port"):
            self._listener = socket.create_server(("127.0.0.1", port), backlog=128)
        self._room = threading.Semaphore(MOST_CONNECTIONS)
        self._told: set[str] = set()

    def begin(self, task: dict[str, Any], job: int) -> None:
        """Connect to a job's task once it runs, and print the address."""
        if task["status"] == "running" and not self._job:
            self._job = job
            here = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
            port = self._connection.get(f"/v1/jobs/{job}/tasks/0/port")["port"]
            self._tell(f"{here} leads to {f'port {port}' if port else 'the port'} of job {job} on {task['node']}")
            threading.Thread(target=self._accept, name="port", daemon=True).start()

    def _accept(self) -> None:
        while True:
            self._room.acquire()
            try:
                line, there = self._listener.accept()
            except OSError:  # no descriptor is free
                self._room.release()
                time.sleep(PAUSE_SECONDS)
                continue
            uid = account_of_caller(line.getsockname(), there)
            uid = uid_of_caller(line.getsockname(), there) if uid is None else uid
            if uid in (os.geteuid(), 0):
                threading.Thread(target=self._serve, args=(line,), daemon=True).start()
            else:
                self._tell(f"refused a connection of {'an unknown account' if uid is None else f'uid {uid}'}")
                self._hang_up(line)

    def _serve(self, line: socket.socket) -> None:
        stream = None
        try:
            stream = Stream(self._connection, self._job, 0)
            threading.Thread(target=self._send, args=(line, stream), daemon=True).start()
            for out, _, _ in stream.pieces():
                line.sendall(out)
        except ServiceError as error:
            self._tell(str(error))
        except OSError:  # the program that connected here is gone
            pass
        finally:
            self._hang_up(line)
            if stream is not None:
                stream.close()

    def _send(self, line: socket.socket, stream: Stream) -> None:
        with contextlib.suppress(OSError, ServiceError):  # the other thread learns of it
            while stream.send(data := line.recv(PIECE_BYTES)):
                assert data

    def _hang_up(self, line: socket.socket) -> None:
        with contextlib.suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)
        line.close()
        self._room.release()

    def _tell(self, text: str) -> None:
        """Print a sentence, each once."""
        if text not in self._told and len(self._told) < 10:
            self._told.add(text)
            say(text)
