"""The scheduler's side of the local engine: columns become messages to the supervisor, and its messages columns."""

import base64
import contextlib
import json
import logging
import os
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from fairlead.data_folder import NotPlain, open_plain, remove_folder
from fairlead.engines.contract import NO_ATTEMPTS, NO_ENDS, Attempts, Ends, Launches, NodeDown, NodeUp, Seen, Superseded
from fairlead.engines.local.supervisor_line import SupervisorLine
from fairlead.model.specs import Job, Node
from fairlead.scheduler.facts import Outcome

log = logging.getLogger("fairlead")

Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Task = tuple[Number, Number, Number]


SILENT = 10.0
"""Seconds after which a supervisor that says nothing is taken for stopped."""


class EngineError(RuntimeError):
    """The engine cannot work here; the message says why."""


class Started(msgspec.Struct, tag_field="saw", tag="started"):
    task: Task


class Checkpointed(msgspec.Struct, tag_field="saw", tag="checkpointed"):
    """It has kept what it did, so many milliseconds ago."""

    task: Task
    ago: Number


class Ended(msgspec.Struct, tag_field="saw", tag="ended"):
    task: Task
    outcome: Outcome
    code: Number
    cpu: Number
    peak: Number


class Inventory(msgspec.Struct, tag_field="saw", tag="inventory"):
    tasks: list[Task]
    limits: dict[str, bool]


class Paused(msgspec.Struct, tag_field="saw", tag="paused"):
    """All that wait until there is room for their output."""

    tasks: list[Task]


class Refused(msgspec.Struct, tag_field="saw", tag="refused"):
    """It obeys another scheduler."""

    why: str


class Fed(msgspec.Struct, tag_field="saw", tag="fed"):
    """So much of a task's standard input was taken; `over` if no more will be."""

    task: Task
    taken: Number
    over: bool


class Here(msgspec.Struct, tag_field="saw", tag="here"):
    """It is there, and has nothing else to say."""


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
    as_people : bool
        Whether tasks run as the people who submitted them, which takes root; else as whose process this is.
    checkpoints : Path, optional
        A folder that people may enter, for the files by which their tasks say that they have kept what they did. Default: one
        in `folder`.

    Attributes
    ----------
    paused : int
        Tasks that wait until there is room on the disk for their output.
    """

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
        self.calls, self.exports = folder / "calls", folder / "exports"
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.output.mkdir(exist_ok=True, mode=0o700)
        _make_checkpoints(self.folder / "checkpoints", checkpoints)
        self.nodes = list(nodes)
        self.limits: Mapping[str, bool] = {}
        self.paused = 0
        self._gpus: dict[str, list[int]] = {}
        for node in nodes:
            first = sum(map(len, self._gpus.values()))
            self._gpus[node.name] = list(range(first, first + node.capacity.get("gpu", 0) // 1000))
        self._wake, self._as_people = wake, as_people
        self._lock = threading.Lock()  # of what follows; held for moments
        self._known: list[Task] | None = None
        self._started: list[int] = []  # three numbers an attempt
        self._checkpointed: dict[Task, int] = {}  # when, in milliseconds of the monotonic clock
        self._ended: list[int] = []  # seven: the attempt, its outcome and code, what it used
        self._news: list[NodeUp | NodeDown] = []
        self._fed: dict[Task, Fed | None] = {}  # of those that are being fed
        self._forgotten: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._forgetting = threading.Thread(target=self._remove_output, name="forgetting", daemon=True)
        self._forgetting.start()
        self._superseded = ""
        self._line: SupervisorLine | None = None

    @property
    def silent_for(self) -> float:
        """Seconds since the supervisor was heard; it is asked when it says nothing."""
        return time.monotonic() - self._line.heard_at if self._line else 0.0

    @property
    def trouble(self) -> str | None:
        """Why the supervisor cannot be reached, while it cannot."""
        trouble = self._line.trouble if self._line else None
        if trouble is None and self.silent_for > SILENT:
            return f"the supervisor was not heard for {self.silent_for:.0f} s: is it stopped? see {self.folder}/log"
        return trouble

    def serve(self, journal: str, epoch: int) -> None:
        inventory = _message("inventory")
        greeting = _message("greet", journal=journal, epoch=epoch, start=uuid.uuid4().hex) + inventory
        self._line = SupervisorLine(self.folder, greeting, inventory, _message("answer"), self._hear)

    def _tell(self, message: bytes) -> None:
        assert self._line is not None, "it is said first whom it serves"
        self._line.tell(message)

    def start(self, launches: Launches) -> None:
        for number, node, tasks in _alike(launches):
            job = launches.jobs[number]
            limits = {
                "cpu": job.demand.get("cpu", 0),
                "memory": job.demand.get("memory", 0),
                "output": job.output_limit or 0,
                "gpus": -(-job.demand.get("gpu", 0) // 1000),
                "gpu_indices": self._gpus.get(node, []),
            }
            work, person = self._work(job, limits, [index for _, index, _ in tasks]), self._person(job)
            self._tell(_message("start", work=work, limits=limits, person=person, signal=job.signal, tasks=tasks))

    def _person(self, job: Job) -> dict[str, Any] | None:
        """As whom the tasks of a job run. Where it is not known who submitted it, nobody's account will do."""
        if not self._as_people:
            return None
        return {"name": job.user, "uid": job.uid if job.uid is not None else -1}

    def _work(self, job: Job, limits: dict[str, Any], indices: list[int]) -> dict[str, Any]:
        work, call = job.work, job.work.call
        if call is None:
            return {
                "argv": work.argv,
                "cwd": work.cwd or "/",
                "env": work.env,
                "encoding": work.encoding,
                "numbered": work.numbered,
                "export": str(self.exports / work.export) if work.export else "",
                "input": work.input,
                "known_as": {str(index): work.indices[index] for index in indices if work.indices},
            }
        shape = [call.session, job.queue, limits["cpu"], limits["memory"], limits["gpus"]]
        return {"session": str(self.calls / call.session), "payload": call.payload, "pool": json.dumps(shape)}

    def stop(self, attempts: Attempts, grace: float) -> None:
        self._tell(_message("stop", tasks=_rows(attempts), grace=grace))

    def poll(self) -> Seen:
        if self._superseded:
            raise Superseded(self._superseded)
        with self._lock:
            known, self._known = self._known, None
            started, self._started = self._started, []
            checkpointed, self._checkpointed = self._checkpointed, {}
            ended, self._ended = self._ended, []
            news, self._news = self._news, []
        return Seen(
            None if known is None else Attempts(*_columns(known, 3)),
            Attempts(*_columns(started, 3)) if started else NO_ATTEMPTS,
            _ends(ended) if ended else NO_ENDS,
            news,
            Attempts(*_columns(list(checkpointed), 3)) if checkpointed else NO_ATTEMPTS,
            _now() - np.array(list(checkpointed.values()), np.int64),
        )

    def acknowledge(self, attempts: Attempts) -> None:
        self._tell(_message("acknowledge", tasks=_rows(attempts)))

    def take_inventory(self) -> None:
        self._tell(_message("inventory"))

    def forget(self, jobs: Iterable[int]) -> None:
        for job in jobs:
            self._forgotten.put(job)

    def read_output(self, job: int, index: int, stream: str, offset: int, most: int) -> bytes | None:
        try:
            with open_plain(self.output / str(job) / f"{index}.{stream}") as file:
                if offset >= os.fstat(file.fileno()).st_size:  # it may be more than a disk can have
                    return b""
                file.seek(offset)
                return file.read(most)
        except FileNotFoundError:  # it has not started
            return None
        except NotPlain as error:
            log.warning("the output of task %d.%d is not told: %s", job, index, error)
            return None

    @contextlib.contextmanager
    def feeding(
        self, task: Task, offset: int, data: bytes, end: bool, size: tuple[int, int] | None = None
    ) -> Iterator[Callable[[], Fed | None]]:
        """Send a piece of a task's standard input, and the size of its terminal; what this gives says what came of it so far.

        From any thread; no two at once for one task.
        """
        text = base64.b64encode(data).decode()
        with self._lock:
            self._fed[task] = None
        try:
            self._tell(_message("feed", task=task, offset=offset, data=text, end=end, size=size))
            yield lambda: self._fed.get(task)
        finally:
            with self._lock:
                self._fed.pop(task, None)

    def close(self, leave: bool = False) -> None:
        """Hang up. With `leave`, the supervisor goes too as soon as nothing runs."""
        if self._line is not None:
            if leave:
                self._tell(_message("leave"))
            self._line.close()
        self._forgotten.put(None)

    def join(self, timeout: float) -> None:
        """Wait until what was told before `close` is done; for one who ends the process, and no part of the contract."""
        if self._line is not None:
            self._line.join(timeout)
        self._forgetting.join(timeout)

    def _hear(self, lines: list[bytes]) -> None:
        known: list[Task] | None = None
        started: list[int] = []
        checkpointed: dict[Task, int] = {}
        ended: list[int] = []
        fed: list[Fed] = []
        for line in lines:
            try:
                message = _decoder.decode(line)
            except msgspec.MsgspecError as error:
                log.warning("the supervisor said what cannot be read, %r: %s", line[:200], error)
                continue
            match message:
                case Started(task):
                    started += task
                case Checkpointed(task, ago):
                    checkpointed[task] = _now() - ago
                case Refused(why):
                    self._superseded = (
                        f"{self.folder.parent}: the supervisor of the tasks obeys another scheduler ({why}): this one ends, "
                        "and they go on; where this journal is to be the right one, stop the other, then `fairlead journal adopt`"
                    )
                    self.close()
                case Paused(tasks):
                    self.paused = len(tasks)
                case Ended(task, outcome, code, cpu, peak):
                    ended += (*task, outcome, code, cpu, peak)
                case Fed():
                    fed.append(message)
                case Inventory(tasks, limits):
                    # What started before it and runs is told again after it; what does not run any more did not last.
                    known, started, self.limits = tasks, [], limits
        with self._lock:
            if known is not None:
                self._known, self._started = known, []
                self._news = [NodeUp(node) for node in self.nodes]
            self._started += started
            self._checkpointed |= checkpointed
            self._ended += ended
            self._fed |= {each.task: each for each in fed if each.task in self._fed}
        if len(fed) < len(lines):
            self._wake()

    def _remove_output(self) -> None:
        for job in iter(self._forgotten.get, None):
            try:
                remove_folder(self.output / str(job))
            except FileNotFoundError:  # it never started
                pass
            except OSError as error:
                log.warning("the output of job %d cannot be removed: %s: remove %s", job, error, self.output / str(job))


_decoder = msgspec.json.Decoder(Started | Checkpointed | Ended | Inventory | Fed | Here | Paused | Refused)


def _now() -> int:
    return time.monotonic_ns() // 10**6


def _make_checkpoints(place: Path, elsewhere: Path | None) -> None:
    """Have a folder for the files by which tasks say that they have kept what they did: there, or elsewhere with a link there."""
    if place.is_symlink():
        place.unlink()
    if elsewhere is None:
        place.mkdir(exist_ok=True, mode=0o711)
        return
    if place.exists():
        remove_folder(place)
    elsewhere.mkdir(exist_ok=True, mode=0o711)
    if elsewhere.is_symlink() or elsewhere.stat().st_uid != os.geteuid():
        raise PermissionError(f"{elsewhere}: is not a folder of this scheduler's: move it away")
    elsewhere.chmod(0o711)
    place.symlink_to(elsewhere.resolve())


def _message(do: str, **what: Any) -> bytes:
    return json.dumps({"do": do, **what}).encode("utf-8", "surrogateescape") + b"\n"


def _alike(launches: Launches) -> Iterator[tuple[int, str, list[list[int]]]]:
    """Launches of the same job on the same node together, so that its environment is sent once: job, node, attempts.

    They come in the order of the first of each.
    """
    attempts, node = launches.attempts, launches.node
    if not len(node):
        return
    _, first, group = np.unique(attempts.job * len(launches.nodes) + node, return_index=True, return_inverse=True)
    order = np.argsort(first[group], kind="stable")
    rows = np.stack(attempts, axis=1)[order]
    begins = np.flatnonzero(np.diff(first[group][order], prepend=-1))
    for at, tasks in zip(order[begins].tolist(), np.split(rows, begins[1:]), strict=True):
        yield int(attempts.job[at]), launches.nodes[node[at]], tasks.tolist()


def _rows(attempts: Attempts) -> list[list[int]]:
    return np.stack(attempts, axis=1).tolist()


def _columns(rows: list[Any], width: int) -> np.ndarray:
    return np.array(rows, np.int64).reshape(-1, width).T.copy()


def _ends(rows: list[int]) -> Ends:
    job, index, number, *columns = _columns(rows, 7)
    return Ends(Attempts(job, index, number), *columns)
