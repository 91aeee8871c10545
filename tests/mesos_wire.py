"""A client of Mesos' scheduler API over plain sockets: every byte of an answer is looked at."""

from __future__ import annotations

import base64
import json
import socket
import time
from contextlib import contextmanager
from functools import cached_property

JSON = {"Content-Type": "application/json"}


class Answer:
    """A status, the headers as they came, by lower-case name, and the body; `raw` is all of it."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        head, _, self.body = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split()[1])
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}

    def json(self):
        return json.loads(self.body)


class Wire:
    """A master, by its port."""

    def __init__(self, port: int, auth: tuple[str, str] | None = None) -> None:
        self.port = port
        self.auth = {"Authorization": "Basic " + base64.b64encode(":".join(auth).encode()).decode()} if auth else {}

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def send(self, connection, method: str, path: str, body: bytes = b"", headers=()) -> None:
        said = {"Host": f"127.0.0.1:{self.port}", "Connection": "close", **self.auth, **dict(headers)}
        said = {name: value for name, value in said.items() if value is not None}
        if body or method == "POST":
            said.setdefault("Content-Length", str(len(body)))
        head = "".join(f"{name}: {value}\r\n" for name, value in said.items())
        connection.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body)

    def ask(self, method: str, path: str, body: bytes = b"", headers=()) -> Answer:
        """A request, and all that comes until the other end hangs up."""
        with self.connect() as connection:
            self.send(connection, method, path, body, headers)
            raw = bytearray()
            while piece := connection.recv(65536):
                raw += piece
        return Answer(bytes(raw))

    def get(self, path: str):
        answer = self.ask("GET", path)
        assert answer.status == 200, answer.raw
        return answer.json()

    def post(self, call: dict, headers=(), path: str = "/api/v1/scheduler") -> Answer:
        return self.ask("POST", path, json.dumps(call).encode(), {**JSON, **dict(headers)})

    @contextmanager
    def subscribed(self, info: dict | None = None, headers=(), **more):
        """A framework that is subscribed, until the end of the block."""
        with self.connect() as connection:
            framework = Subscribed(self, connection, info or {}, headers, more)
            yield framework


class Subscribed:
    """A framework that is subscribed: it reads its stream, and calls."""

    def __init__(self, wire: Wire, connection: socket.socket, info: dict, headers, more: dict) -> None:
        self.wire, self.connection = wire, connection
        said = {"user": "", "name": "test", "roles": ["A"], "capabilities": [{"type": "MULTI_ROLE"}], **info}
        call = {"type": "SUBSCRIBE", "subscribe": {"framework_info": said, **more}}
        if "id" in said:
            call["framework_id"] = said["id"]
        body = json.dumps(call).encode()
        wire.send(connection, "POST", "/api/v1/scheduler", body, {**JSON, "Accept": "application/json", **dict(headers)})
        self.buffer = bytearray()
        self.pieces = bytearray()
        self.events, self.others = [], []
        self.id = None

    @cached_property
    def head(self) -> Answer:
        """The head of the answer, which is read when it is first asked for."""
        return Answer(self.until(b"\r\n\r\n"))

    @property
    def stream(self) -> str:
        return self.head.headers["mesos-stream-id"]

    def until(self, mark: bytes) -> bytes:
        while mark not in self.buffer:
            piece = self.connection.recv(65536)
            if not piece:
                raise EOFError
            self.buffer += piece
        end = self.buffer.index(mark) + len(mark)
        found = bytes(self.buffer[:end])
        del self.buffer[:end]
        return found

    def exactly(self, count: int) -> bytes:
        while len(self.buffer) < count:
            piece = self.connection.recv(65536)
            if not piece:
                raise EOFError
            self.buffer += piece
        found = bytes(self.buffer[:count])
        del self.buffer[:count]
        return found

    def chunk(self) -> bytes:
        """The next chunk; empty for the last."""
        size = int(self.until(b"\r\n"), 16)
        data = self.exactly(size)
        assert self.exactly(2) == b"\r\n"
        return data

    def record(self) -> bytes:
        """The next record, of one chunk of its own."""
        assert self.head.status == 200, self.head.raw
        data = self.chunk()
        if not data:
            raise EOFError
        length, _, body = data.partition(b"\n")
        assert int(length) == len(body)
        return body

    def event(self) -> dict:
        found = json.loads(self.record())
        if found["type"] == "SUBSCRIBED":
            self.id = found["subscribed"]["framework_id"]["value"]
        return found

    def wait_for(self, kind: str, seconds: float = 60) -> dict:
        """The next event of a type; others are kept for who waits for those."""
        deadline = time.monotonic() + seconds
        while True:
            for found in self.events:
                if found["type"] == kind:
                    self.events.remove(found)
                    return found.get(kind.lower(), {})
            assert time.monotonic() < deadline, kind
            self.events.append(self.event())

    def welcome(self) -> Subscribed:
        """Read what comes first."""
        assert self.event()["type"] == "SUBSCRIBED"
        assert self.event() == {"type": "HEARTBEAT"}
        return self

    def ends(self) -> bool:
        """Read to the end; whether it ends."""
        while self.chunk():
            pass
        return True

    def call(self, kind: str, headers=(), **body) -> Answer:
        said = {"type": kind, "framework_id": {"value": self.id}}
        if body:
            said[kind.lower()] = body
        return self.wire.post(said, {"Mesos-Stream-Id": self.stream, **dict(headers)})

    def offer(self) -> dict:
        return self.wait_for("OFFERS")["offers"][0]

    def launch(self, offer: dict, *tasks: dict, **filters) -> Answer:
        more = {"filters": {"refuse_seconds": 0, **filters}}
        operation = {"type": "LAUNCH", "launch": {"task_infos": list(tasks)}}
        return self.call("ACCEPT", offer_ids=[offer["id"]], operations=[operation], **more)

    def status(self, task: str, *, acknowledge: bool = True) -> dict:
        """The next status of a task; those of others are kept."""
        while True:
            for found in self.others:
                if found["task_id"]["value"] == task:
                    self.others.remove(found)
                    return found
            found = self.wait_for("UPDATE")["status"]
            if acknowledge and "uuid" in found:
                assert self.acknowledge(found).status == 202
            self.others.append(found)

    def acknowledge(self, status: dict) -> Answer:
        return self.call("ACKNOWLEDGE", agent_id=status["agent_id"], task_id=status["task_id"], uuid=status["uuid"])

    def last(self, task: str) -> dict:
        """The status with which a task ends."""
        while True:
            found = self.status(task)
            if found["state"] not in ("TASK_STARTING", "TASK_RUNNING"):
                return found


def task(name: str, command: str | dict, offer: dict, cpus: float = 0.1, mem: float = 16, **more) -> dict:
    """A TaskInfo of a command."""
    return {
        "name": name,
        "task_id": {"value": name},
        "agent_id": offer["agent_id"],
        "resources": [
            {"name": "cpus", "type": "SCALAR", "scalar": {"value": cpus}},
            {"name": "mem", "type": "SCALAR", "scalar": {"value": mem}},
        ],
        "command": {"value": command} if isinstance(command, str) else command,
        **more,
    }
