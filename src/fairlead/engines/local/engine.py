"""The scheduler's side of the local engine: it starts the supervisor, and passes messages to and fro."""

import contextlib
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from fairlead.engines.contract import Attempt, Ended, Event, Launch, NodeUp, Started
from fairlead.engines.local.supervisor import address
from fairlead.model.specs import Job, Node
from fairlead.scheduler.facts import Outcome

log = logging.getLogger("fairlead")

GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""


class EngineError(RuntimeError):
    """The engine cannot work here; the message says why."""


class LocalEngine:
    """Tasks as processes of this machine; see :class:`fairlead.engines.contract.Engine`.

    Parameters
    ----------
    folder : Path
        The scheduler's data folder; the supervisor's files go to `folder`/supervisor, output to `folder`/output.
    nodes : sequence of Node
        What this machine is to be seen as.
    wake : callable
        Called, from another thread, when there is something to poll.
    """

    def __init__(self, folder: Path, nodes: Sequence[Node], wake: Callable[[], None] = lambda: None) -> None:
        self.folder = folder / "supervisor"
        self.output = folder / "output"
        self.calls = folder / "calls"
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.output.mkdir(exist_ok=True, mode=0o700)
        self.nodes = list(nodes)
        self.limits: dict[str, bool] = {}
        self._gpus: dict[str, list[int]] = {}
        for node in nodes:
            first = sum(map(len, self._gpus.values()))
            self._gpus[node.name] = list(range(first, first + node.capacity.get("gpu", 0) // 1000))
        self._wake = wake
        self._events: deque[Event] = deque(NodeUp(node) for node in nodes)
        self._known: set[Attempt] | None = None
        self._heard = threading.Condition()
        self._closing = False
        self._lock = threading.Lock()
        self._socket = self._connect()
        threading.Thread(target=self._listen, name="supervisor", daemon=True).start()

    def start(self, launches: Sequence[Launch]) -> None:
        for batch in _alike(launches):
            job, demand = batch[0].job, batch[0].job.demand
            limits = {
                "cpu": demand.get("cpu", 0),
                "memory": demand.get("memory", 0),
                "gpus": -(-demand.get("gpu", 0) // 1000),
                "gpu_indices": self._gpus.get(batch[0].node, []),
            }
            self._tell("start", work=self._work(job, limits), limits=limits, tasks=[launch.attempt for launch in batch])

    def _work(self, job: Job, limits: dict[str, Any]) -> dict[str, Any]:
        work, call = job.work, job.work.call
        if call is None:
            return {
                "argv": work.argv,
                "cwd": work.cwd or "/",
                "env": work.env,
                "encoding": work.encoding,
                "numbered": work.numbered,
            }
        shape = [call.session, job.queue, limits["cpu"], limits["memory"], limits["gpus"]]
        return {"session": str(self.calls / call.session), "payload": call.payload, "pool": json.dumps(shape)}

    def stop(self, attempts: Iterable[Attempt]) -> None:
        self._tell("stop", tasks=list(attempts), grace=GRACE)

    def poll(self) -> list[Event]:
        return [self._events.popleft() for _ in range(len(self._events))]

    def acknowledge(self, attempts: Iterable[Attempt]) -> None:
        self._tell("acknowledge", tasks=list(attempts))

    def inventory(self) -> set[Attempt]:
        with self._heard:
            self._known = None
            self._tell("inventory")
            if not self._heard.wait_for(lambda: self._known is not None, timeout=30):
                raise EngineError(f"{self.folder}: the supervisor does not answer: see {self.folder}/log")
            assert self._known is not None
            return self._known

    def forget(self, jobs: Iterable[int]) -> None:
        for job in jobs:
            shutil.rmtree(self.output / str(job), ignore_errors=True)

    def close(self, leave: bool = False) -> None:
        """Hang up. With `leave`, the supervisor goes too as soon as nothing runs."""
        self._closing = True
        if leave:
            self._tell("leave")
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _tell(self, do: str, **what: Any) -> None:
        line = json.dumps({"do": do, **what}).encode("utf-8", "surrogateescape") + b"\n"
        with self._lock, contextlib.suppress(OSError):  # a supervisor that is gone is seen by the listener
            self._socket.sendall(line)

    def _listen(self) -> None:
        while not self._closing:
            try:
                for line in self._socket.makefile("rb"):
                    self._hear(json.loads(line))
            except OSError:
                pass
            if not self._closing:
                log.warning("the supervisor ended: starting another")
                with self._lock:
                    self._socket.close()
                    try:
                        self._socket = self._connect()
                    except EngineError as error:
                        log.error("%s", error)
                        time.sleep(1)
                self._tell("inventory")

    def _hear(self, message: dict[str, Any]) -> None:
        match message["saw"]:
            case "started":
                self._events.append(Started(Attempt(*message["task"])))
            case "ended":
                outcome = Outcome(message["outcome"])
                self._events.append(Ended(Attempt(*message["task"]), outcome, message["code"]))
            case "inventory":
                with self._heard:
                    self.limits = message["limits"]
                    self._known = {Attempt(*task) for task in message["tasks"]}
                    self._heard.notify_all()
        self._wake()

    def _connect(self) -> socket.socket:
        """Connect to the supervisor that is there, or start one."""
        started = False
        until = time.monotonic() + 10
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            where = address(self.folder)
            try:
                connection.connect(where)
                return connection
            except OSError as error:
                connection.close()
                if time.monotonic() > until:
                    raise EngineError(f"no supervisor could be started: {error}: see {self.folder}/log") from None
                if not started:
                    started = True
                    self._spawn()
                time.sleep(0.01)
            finally:
                os.close(int(where.split("/")[4]))

    def _spawn(self) -> None:
        fd = os.open(self.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            subprocess.Popen(
                [sys.executable, "-I", "-m", "fairlead.engines.local.supervisor", str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=fd,
                stderr=fd,
                start_new_session=True,
                cwd="/",
            )
        finally:
            os.close(fd)


def _alike(launches: Sequence[Launch]) -> list[list[Launch]]:
    """Group launches of the same job on the same node, so that its environment is sent once."""
    groups: dict[tuple[int, str], list[Launch]] = {}
    for launch in launches:
        groups.setdefault((launch.attempt.job, launch.node), []).append(launch)
    return list(groups.values())
