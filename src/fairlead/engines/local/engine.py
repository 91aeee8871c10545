"""The scheduler's side of the local engine: columns to messages for the supervisor, and back."""

import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from fairlead.data_folder import NotPlain, drop_folder
from fairlead.engines import contract
from fairlead.engines.local import reports
from fairlead.engines.local.checkpoints import make_checkpoints
from fairlead.engines.local.instructions import Folders, gpu_indices, limits, message, rows, starts
from fairlead.engines.local.output import next_data, read_piece
from fairlead.engines.local.questions import Questions
from fairlead.engines.local.supervisor_connections import LocalEndpoint, SupervisorConnections
from fairlead.failure import failing
from fairlead.model.specs import Node, Quantities
from fairlead.scheduler.cluster import OLDER

log = logging.getLogger("fairlead")

MOST_UNSENT = 64 * 2**20
"""Bytes of messages that wait for the supervisor."""
ASK_EVERY = 2.0
"""Seconds of silence after which the supervisor is polled."""
SILENT = 10.0
"""Seconds of silence after which the supervisor counts as stopped."""

SUPERVISOR = "supervisor"
"""The name of its connection."""


class LocalEngine:
    """Tasks as processes of this machine; see :class:`fairlead.engines.contract.Engine`.

    folder : the scheduler's data folder; the supervisor's files go to `folder`/supervisor, output to `folder`/output
    nodes : the nodes that this machine appears as
    wake : called from another thread when there is something to poll
    as_people : True if tasks run as the people who submitted them, which takes root; else as this process's user
    checkpoints : a folder that people may enter, for checkpoint pipes. By default one in `folder`.

    paused : tasks stopped until the disk has room for their output
    """

    elastic, ray = False, False

    def __init__(
        self,
        folder: Path,
        nodes: Sequence[Node],
        wake: Callable[[], None] = lambda: None,
        as_people: bool = False,
        checkpoints: Path | None = None,
    ) -> None:
        self.folder = folder / "supervisor"
        self.output = folder / "output"
        self._folders = Folders(folder / "calls", folder / "exports")
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.output.mkdir(exist_ok=True, mode=0o700)
        make_checkpoints(self.folder / "checkpoints", checkpoints)
        self.nodes: Sequence[Node] = list(nodes)
        self.limits: Mapping[str, bool] = {}
        self.paused = 0
        self._wake, self._as_people = wake, as_people
        self._lock = threading.Lock()  # guards what follows; never held for long
        self._seen = reports.Reports()
        self._questions = Questions()
        self._forgotten: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._forgetting = threading.Thread(target=self._forget, name="forgetting", daemon=True)
        self._forgetting.start()
        self._superseded = self._unfit = self._journal = self._older = ""
        self._card_use: Mapping[int, contract.CardUse] = {}
        self._connections: SupervisorConnections | None = None
        self._heard_at = self._asked_at = 0.0

    @property
    def gpus(self) -> Mapping[str, Sequence[int]]:
        return gpu_indices(self.nodes)

    def card_use(self, node: str) -> Mapping[int, contract.CardUse]:
        """Return how busy all cards of the machine are: its nodes number them in turn."""
        return self._card_use

    @property
    def silent_for(self) -> float:
        """Seconds since the supervisor's last message; an idle one is polled."""
        return time.monotonic() - self._heard_at if self._connections else 0.0

    @property
    def silence(self) -> Mapping[str, float]:
        """All nodes, as they share one supervisor."""
        silent_for = self.silent_for
        return {node.name: silent_for for node in self.nodes} if silent_for > SILENT else {}

    @property
    def trouble(self) -> str | None:
        """Why the supervisor cannot be reached; None if it can."""
        trouble = self._unfit or (self._connections.trouble_of(SUPERVISOR) if self._connections else "")
        if not trouble and self.silent_for > SILENT:
            return f"no message from the supervisor for {self.silent_for:.0f} s: is it stopped? see {self.folder}/log"
        return trouble or None

    def serve(self, journal: str, epoch: int) -> None:
        self._journal, inventory = journal, message("inventory")
        greeting = message("greet", journal=journal, epoch=epoch, start=uuid.uuid4().hex) + inventory
        self._heard_at = self._asked_at = time.monotonic()
        self._connections = SupervisorConnections(
            greeting, inventory, self._hear, self._broken, self._ask, ASK_EVERY, MOST_UNSENT, accept_at_once=True
        )
        self._connections.begin()
        self._connections.connect(SUPERVISOR, LocalEndpoint(self.folder))

    @property
    def own_nodes(self) -> Sequence[Node]:
        """Nodes of this machine, which the scheduler's configuration describes: all."""
        return self.nodes

    def change_nodes(self, changed: Iterable[Node]) -> None:
        """Replace nodes by others of the same names. For the scheduler's thread, which records the change."""
        new = {node.name: node for node in changed}
        with self._lock:
            self.nodes = [new.get(node.name, node) for node in self.nodes]
            if self._seen.nodes:
                self._seen.nodes = self._up()

    def _up(self) -> list[contract.NodeEvent]:
        gpus, more = self.gpus, {OLDER: self._older} if self._older else {}
        return [contract.NodeUp(replace(node, labels={**node.labels, **more}), gpus[node.name]) for node in self.nodes]

    def _send(self, message: bytes, now: bool = True) -> None:
        assert self._connections is not None, "call serve() first"
        self._connections.send(SUPERVISOR, message, now)

    def start(self, launches: contract.Launches) -> None:
        for _, line, _ in starts(launches, self.gpus, self._folders, self._as_people, lambda node: "127.0.0.1", self._journal):
            self._send(line)

    def stop(self, attempts: contract.Attempts, grace: float, where: contract.Where = contract.NOWHERE) -> None:
        self._send(message("stop", tasks=rows(attempts), grace=grace))

    def poll(self) -> contract.Seen:
        if self._superseded:
            raise contract.Superseded(self._superseded)
        if self._connections is not None and self._connections.failure is not None:
            raise RuntimeError("the thread of the connection to the supervisor failed") from self._connections.failure
        with self._lock:
            seen, self._seen = self._seen, reports.Reports()
        return seen.seen()

    def acknowledge(self, attempts: contract.Attempts) -> None:
        self._send(message("acknowledge", tasks=rows(attempts)), now=False)

    def limit(self, attempts: contract.Attempts, demands: Sequence[Quantities]) -> None:
        for _, line in limits(attempts, demands):
            self._send(line)

    def take_inventory(self) -> None:
        self._send(message("inventory"))

    def forget(self, jobs: Iterable[int]) -> None:
        for job in jobs:
            self._forgotten.put(job)

    def read_output(self, job: int, index: int, stream: str, offset: int, most: int, node: str = "") -> bytes | None:
        try:
            return read_piece(self.output, job, index, stream, offset, most)
        except NotPlain as error:
            log.warning("the output of task %d.%d cannot be shown: %s", job, index, error)
            return None
        except OSError as error:
            raise contract.Unreachable(str(error)) from None

    def next_data(self, job: int, index: int, stream: str, offset: int, node: str = "") -> int:
        with failing("", OSError, to=contract.Unreachable):
            return next_data(self.output, job, index, stream, offset)

    def ask_stream(self, task: reports.Task, do: str, **what: Any) -> Future[Any]:
        return self._questions.ask(self._send, SUPERVISOR, do, task=task, **what)

    def close(self, leave: bool = False) -> None:
        if self._connections is not None:
            if leave:
                self._send(message("leave"))
            self._connections.close()
        self._forgotten.put(None)

    def join(self, timeout: float) -> None:
        if self._connections is not None:
            self._connections.join(timeout)
        self._forgetting.join(timeout)

    def _ask(self) -> None:
        """Poll a silent supervisor."""
        now = time.monotonic()
        if now - max(self._asked_at, self._heard_at) >= ASK_EVERY:
            self._asked_at = now
            self._send(message("inventory" if self._older else "answer"))

    def _broken(self, name: str) -> None:
        log.warning("the connection to the supervisor broke: connecting again")

    def _hear(self, name: str, lines: list[bytes]) -> None:
        self._heard_at = time.monotonic()
        new, messages = reports.Reports(), reports.read_lines(lines)
        for heard in messages:
            match heard:
                case reports.Refused(why):
                    self._superseded = (
                        f"{self.folder.parent}: the supervisor of the tasks obeys another scheduler ({why}): this one ends, "
                        "and its tasks continue; if this journal is the right one, stop the other, then `fairlead journal adopt`"
                    )
                    self.close()
                case reports.Paused(tasks):
                    self.paused = len(tasks)
                case reports.CardsMeasured():
                    self._card_use = heard.use()
                case reports.StreamAnswer():
                    self._questions.answer(name, heard)
                case reports.Inventory(limits=limits):
                    self.limits, self._older = limits, heard.older()
                    if why := heard.cannot_talk():
                        self._unfit = f"{self.folder}: {why}: run `fairlead down` with that one, then start this one"
                    else:
                        new.add(heard)
                        if self._older and not heard.tasks:  # one of this fairlead takes its place
                            self._send(message("leave"))
                        if any(self.gpus.values()):
                            self._send(message("watch"))
                case _:
                    new.add(heard)
        with self._lock:
            if new.known is not None:
                self._seen.nodes, new.nodes = [], self._up()
            self._seen.join(new)
        if sum(isinstance(each, reports.Quiet) for each in messages) < len(lines):  # also for what cannot be read
            self._wake()

    def _forget(self) -> None:
        for job in iter(self._forgotten.get, None):
            drop_folder(self.output / str(job), f"the output of job {job}", log.warning)
