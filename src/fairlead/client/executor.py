"""A `concurrent.futures.Executor` whose calls are tasks of the scheduler: they wait for their turn, are held to what they asked
for, and run in warm worker processes on whatever the scheduler shares.

Two threads do the work: one sends what was submitted, as much as there is in one request; one asks for what happened. No future
is settled while the client's lock is held, since its callbacks may submit more.
"""

import atexit
import base64
import itertools
import os
import pickle
import sys
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from fairlead.client.connection import Connection, ServiceError
from fairlead.client.jobs import SubmittedJob, encoded, job_request
from fairlead.engines import calls
from fairlead.engines.local import worker
from fairlead.model.quantity import parse_quantities

P = ParamSpec("P")
T = TypeVar("T")

MOST_AT_ONCE = 1000
"""Calls in one request, at most."""
LARGEST_IN_BODY = 4 * 2**20
"""Bytes of pickled calls that are sent with their request; larger ones go before it."""
POLL = 50.0
"""Seconds that the scheduler is asked to wait for something to happen."""


class CallFailed(RuntimeError):
    """The process that called the function ended before the function did."""


class SchedulerGone(BrokenExecutor):
    """The scheduler went away, and did not come back."""


class RemoteTraceback(Exception):
    """The traceback of an exception in its worker, as the cause of that exception."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


@dataclass(frozen=True)
class Options:
    """What is asked for with a call. Quantities are numbers or text such as ``"500m"`` and ``"4Gi"``.

    queue : the queue; None for the one that is everybody's own.
    resources : further resources by name.
    on : node labels, each with the value or values that will do.
    retries, time_limit, priority : as for any job; a call that raises has failed.
    """

    queue: str | None = None
    cpu: float | str = 1
    memory: float | str = "1GiB"
    gpu: int = 0
    resources: dict[str, float | str] = field(default_factory=dict)
    priority: int = 0
    retries: int = 0
    time_limit: float | None = None
    on: dict[str, str | list[str]] = field(default_factory=dict)

    def request(self) -> dict[str, Any]:
        """As the API takes it."""
        return job_request(**{name: getattr(self, name) for name in self.__dataclass_fields__})

    def key(self) -> str:
        """The same for options that are the same."""
        return repr(self)


class CallFuture(Future[T]):
    """A future of a call; see :class:`concurrent.futures.Future`."""

    def __init__(self, client: "Client") -> None:
        super().__init__()
        self._client = client
        self.place: tuple[int, int] | None = None  # job and index, once it was submitted
        self.sent = False

    def cancel(self) -> bool:
        """Cancel the call if it has not started; whether it could be."""
        return self._client._cancel(self)

    def cancel_here(self) -> bool:
        return super().cancel()


@dataclass
class _Waiting:
    """A call that is to be sent."""

    future: CallFuture[Any]
    call: bytes
    options: Options
    name: str


class Client(Executor):
    """The scheduler, from a Python program: an executor, and more.

    Parameters
    ----------
    home : Path or str, optional
        The scheduler's data folder. Default: ``$FAIRLEAD_HOME``, or the user's data folder; ``$FAIRLEAD_URL`` and
        ``$FAIRLEAD_TOKEN`` name one elsewhere.
    **options
        What every call asks for unless it says otherwise: see :class:`Options`.

    Raises
    ------
    ServiceError
        No scheduler runs there.

    Examples
    --------
    >>> with fairlead.Client(queue="vision") as client:      # doctest: +SKIP
    ...     future = client.submit(pow, 2, 10, cpu=1, memory="512MiB")
    ...     future.result()
    1024
    """

    def __init__(self, home: Path | str | None = None, **options: Any) -> None:
        self.options = Options(**options)
        self._connection = Connection(Path(home) if home is not None else None, patience=60.0)
        self._connection.get("/v1/status")
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._to_send: list[_Waiting] = []
        self._unanswered: set[CallFuture[Any]] = set()
        self._by_place: dict[tuple[int, int], CallFuture[Any]] = {}
        self._newest = 0  # the newest job whose submission was answered; they are numbered in their order
        self._session: str | None = None
        self._closing = self._closed = False
        self._broken: str | None = None
        self._threads: list[threading.Thread] = []
        atexit.register(_shut_down, weakref.ref(self))

    # -- the executor ----------------------------------------------------------------------------------------------

    def submit(  # type: ignore[override]
        self,
        fn: Callable[..., T],
        /,
        *args: Any,
        cpu: float | str | None = None,
        memory: float | str | None = None,
        gpu: int | None = None,
        queue: str | None = None,
        **kwargs: Any,
    ) -> Future[T]:
        """Call ``fn(*args, **kwargs)`` when it is its turn.

        `cpu`, `memory`, `gpu` and `queue` are what the call asks for; a function that has arguments of these names is called
        through :meth:`executor`, or with :func:`functools.partial`. Function, arguments and result are pickled, by cloudpickle.

        Returns
        -------
        concurrent.futures.Future

        Raises
        ------
        RuntimeError
            After :meth:`shutdown`.
        """
        given = {"cpu": cpu, "memory": memory, "gpu": gpu, "queue": queue}
        given = {name: value for name, value in given.items() if value is not None}
        return self._submit(replace(self.options, **given) if given else self.options, fn, args, kwargs)  # type: ignore[arg-type]

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        **options: Any,
    ) -> Iterator[T]:
        """Call the function with an element of each iterable; results in order, as :meth:`concurrent.futures.Executor.map`.

        `chunksize` calls are one task; any option may be given.
        """
        if chunksize < 1:
            raise ValueError("chunksize: at least 1")
        executor = self.executor(**options)
        if chunksize == 1:
            return executor.map(fn, *iterables, timeout=timeout)
        pieces = executor.map(
            partial(_call_all, fn), _chunks(zip(*iterables, strict=False), chunksize), timeout=timeout
        )
        return itertools.chain.from_iterable(pieces)

    def executor(self, **options: Any) -> Executor:
        """Make an executor with options of its own, over this client: its ``submit`` passes on every argument as it is."""
        return _View(self, replace(self.options, **options))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. With `wait`, return when those that were submitted have ended; see the standard library's."""
        with self._lock:
            self._closing = True
            self._changed.notify_all()
            pending = [*(w.future for w in self._to_send), *self._unanswered, *self._by_place.values()]
        if cancel_futures:
            for future in pending:
                future.cancel()
        self._close_if_over()
        if wait and threading.current_thread() not in self._threads:  # a callback cannot wait for what runs it
            for thread in self._threads:
                thread.join()

    def capacity(self) -> int:
        """How many calls, as this client asks for them, the nodes hold when they are empty; at least 1."""
        demand = parse_quantities(self.options.request()["demand"])
        nodes = self._connection.get("/v1/nodes")["nodes"]
        fits = [
            min(node["capacity"].get(name, 0) // amount for name, amount in demand.items())
            for node in nodes
            if node["status"] == "up"
        ]
        return max(1, sum(fits))

    # -- jobs ------------------------------------------------------------------------------------------------------

    def submit_job(
        self,
        argv: Iterable[str],
        *,
        tasks: int | None = None,
        name: str = "",
        cwd: str | Path | None = None,
        env: dict[str, str] | None = None,
        gang: bool = False,
        after: Iterable["int | SubmittedJob | tuple[int, str]"] = (),
        strict: bool = False,
        **options: Any,
    ) -> SubmittedJob:
        """Submit a command, as `fairlead submit` does.

        Parameters
        ----------
        argv : iterable of str
            The command and its arguments; with `tasks`, ``{index}`` in them is the task's index.
        tasks : int, optional
            So many tasks; each has its index in ``FAIRLEAD_INDEX``.
        cwd, env : optional
            Where and with which environment it runs. Default: this program's.
        gang : bool
            All tasks start at once or none.
        after : iterable
            Jobs that must have succeeded before; (job, "failure") or (job, "end") for other ends.
        strict : bool
            Refuse what no node could hold.
        **options
            See :class:`Options`.

        Returns
        -------
        SubmittedJob
            With its ``id``, and ways to wait for it, to cancel it and to read its output.

        Raises
        ------
        ServiceError
            It was refused; the message says why.
        """
        body = replace(self.options, **options).request()
        body |= {
            "argv": list(argv),
            "cwd": str(cwd) if cwd is not None else str(Path.cwd()),
            "env": dict(os.environ) if env is None else env,
            "name": name,
            "gang": gang,
            "strict": strict,
            "after": [_after(each) for each in after],
        }
        if tasks is not None:
            body["tasks"] = tasks
        return SubmittedJob(self._connection, self._connection.submit("/v1/jobs", body)["id"])

    def job(self, number: int) -> SubmittedJob:
        """A job by its number. Raises ServiceError where there is none."""
        found = SubmittedJob(self._connection, number)
        found.info()
        return found

    # -- inside ----------------------------------------------------------------------------------------------------

    def _submit(
        self, options: Options, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Future[T]:
        import cloudpickle

        future: CallFuture[T] = CallFuture(self)
        call = cloudpickle.dumps((fn, args, kwargs))
        if len(call) > calls.LARGEST_PAYLOAD // 2:
            raise ValueError(
                f"a call of {len(call) >> 20} MiB: pass a file's name, at most {calls.LARGEST_PAYLOAD >> 21} MiB go"
            )
        name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
        with self._lock:
            if self._broken:
                raise SchedulerGone(self._broken)
            if self._closing:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._to_send.append(_Waiting(future, call, options, name[:256]))
            if not self._threads:
                self._threads = [
                    threading.Thread(target=self._guard, args=(target,), name=f"fairlead-{name}", daemon=True)
                    for name, target in (("send", self._send), ("hear", self._hear))
                ]
                for thread in self._threads:
                    thread.start()
            self._changed.notify_all()
        return future

    def _cancel(self, future: CallFuture[Any]) -> bool:
        with self._lock:
            kept = [waiting for waiting in self._to_send if waiting.future is not future]
            sent = len(kept) == len(self._to_send)
            self._to_send = kept
            while sent and future.place is None and not future.done():
                self._changed.wait()
        if sent and not future.done():
            assert future.place is not None
            job, index = future.place
            body = {"indices": [index], "only_waiting": True}
            try:
                if future.running() or not self._connection.post(f"/v1/jobs/{job}/cancel", body)["changed"]:
                    return future.cancelled()
            except ServiceError:  # nobody can say: what it comes to is told as for any call
                return future.cancelled()
        self._cancelled(future)
        return future.cancelled()

    def _cancelled(self, future: CallFuture[Any]) -> None:
        """It will never run."""
        if future.cancel_here():
            with self._lock:
                if future.place is not None:
                    self._by_place.pop(future.place, None)
                if future._state == "CANCELLED":
                    future.set_running_or_notify_cancel()
                self._changed.notify_all()

    def _guard(self, work: Callable[[], None]) -> None:
        """Run a thread; where it ends by a fault, no future waits for ever."""
        try:
            work()
        except ServiceError as error:
            self._break(str(error))
        except BaseException as error:
            self._break(f"a fault of fairlead's own: {error!r}")
            raise

    def _break(self, why: str) -> None:
        with self._lock:
            self._broken = why
            pending = {w.future for w in self._to_send} | self._unanswered | set(self._by_place.values())
            self._to_send, self._unanswered = [], set()
            self._by_place.clear()
            self._changed.notify_all()
        for future in pending:
            _fail(future, SchedulerGone(why))

    def _send(self) -> None:
        while True:
            with self._lock:
                while not self._to_send and not self._broken and not self._is_over():
                    self._changed.wait()
                if self._broken or not self._to_send:
                    return
                batch = _first(self._to_send)
                self._to_send = self._to_send[len(batch) :]
                for waiting in batch:
                    waiting.future.sent = True
                self._unanswered |= {waiting.future for waiting in batch}
            if self._session is None:
                session = self._connection.post("/v1/sessions", _setup())["id"]
                with self._lock:
                    self._session = session
                    self._changed.notify_all()
            groups = [list(group) for _, group in itertools.groupby(batch, key=lambda w: (w.options.key(), w.name))]
            try:
                self._submit_groups(groups)
            except ServiceError:
                if len(groups) == 1:
                    raise
                for group in groups:  # one of them is refused: find out which
                    self._submit_groups([group])

    def _submit_groups(self, groups: list[list[_Waiting]]) -> None:
        jobs = []
        for group in groups:
            payload, packed = uuid.uuid4().hex, calls.pack([waiting.call for waiting in group])
            job = {**group[0].options.request(), "name": group[0].name, "payload": payload}
            if len(packed) <= LARGEST_IN_BODY:
                job["data"] = base64.b64encode(packed).decode()
            else:
                self._connection.put(f"/v1/sessions/{self._session}/payloads/{payload}", packed)
            jobs.append(job)
        try:
            answers = self._connection.submit(f"/v1/sessions/{self._session}/calls", {"jobs": jobs})["jobs"]
        except ServiceError as error:
            if error.status is None or len(groups) > 1:
                raise
            with self._lock:
                self._unanswered -= {waiting.future for waiting in groups[0]}
                self._changed.notify_all()
            for waiting in groups[0]:
                _fail(waiting.future, error)
            return
        with self._lock:
            for answer, group in zip(answers, groups, strict=True):
                self._newest = answer["id"]
                for index, waiting in enumerate(group):
                    place = waiting.future.place = (answer["id"], index)
                    self._unanswered.discard(waiting.future)
                    self._by_place[place] = waiting.future
            self._changed.notify_all()

    def _hear(self) -> None:
        with self._lock:
            while self._session is None and not self._broken and not self._is_over():
                self._changed.wait()
        epoch, after = "", 0
        while not self._broken and not self._close_if_over():
            path = f"/v1/sessions/{self._session}"
            try:
                answer = self._connection.get(f"{path}/events", epoch=epoch, after=after, wait=POLL)
            except ServiceError:
                if self._closed:
                    return
                raise
            epoch, after = answer["epoch"], answer["next"]
            ready: list[tuple[CallFuture[Any], dict[str, Any]]] = []
            for event in answer["events"]:
                place = event["job"], event["index"]
                if event["result"] is not None:
                    event["body"] = base64.b64decode(event["result"])
                elif event["size"] is not None:
                    event["body"] = self._connection.get_bytes(f"{path}/results/{place[0]}/{place[1]}")
                with self._lock:
                    while place[0] > self._newest and self._unanswered:  # the answer to its submission is on its way
                        self._changed.wait()
                    future = self._by_place.get(place)
                if future is not None:
                    ready.append((future, event))
            self._happened(ready)

    def _is_over(self) -> bool:
        return self._closing and not self._to_send and not self._unanswered and not self._by_place

    def _close_if_over(self) -> bool:
        """Give the session back when nothing more is to come; whether that is so."""
        with self._lock:
            over, first = self._is_over() or bool(self._broken), not self._closed
            self._closed = over
        if over and first:
            if self._session is not None and not self._broken:
                with suppress(ServiceError):  # then it is closed for not being heard of
                    self._connection.delete(f"/v1/sessions/{self._session}")
            if not self._threads:
                self._connection.close()
        return over

    def _happened(self, ready: list[tuple[CallFuture[Any], dict[str, Any]]]) -> None:
        for future, event in ready:
            if future.done():
                continue
            if event["status"] == "cancelled":
                self._cancelled(future)
            elif not future.running() and not future.set_running_or_notify_cancel():
                continue
            if event["status"] == "cancelled" and not future.done():
                future.set_exception(CancelledError(f"call {event['job']}.{event['index']} was cancelled while it ran"))
            elif event["status"] in ("succeeded", "failed"):
                _settle(future, event)
        with self._lock:
            for future, event in ready:
                if event["status"] != "running" and future.place is not None:
                    self._by_place.pop(future.place, None)
            self._changed.notify_all()


class _View(Executor):
    """An executor over a client, with options of its own; shutting it down leaves the client as it is."""

    def __init__(self, client: Client, options: Options) -> None:
        self._client, self._options = client, options
        self._mine: weakref.WeakSet[Future[Any]] = weakref.WeakSet()
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = self._client._submit(self._options, fn, args, kwargs)
        self._mine.add(future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        from concurrent.futures import wait as wait_for

        self._closed = True
        mine = list(self._mine)
        if cancel_futures:
            for future in mine:
                future.cancel()
        if wait:
            wait_for(mine)


def _first(waiting: list[_Waiting]) -> list[_Waiting]:
    """As many as go in one request."""
    size = 0
    for place, each in enumerate(waiting):
        size += len(each.call)
        if place and (size > LARGEST_IN_BODY or place >= MOST_AT_ONCE):
            return waiting[:place]
    return waiting


def _setup() -> dict[str, Any]:
    """How this program's functions are called: as it would itself."""
    here = str(Path.cwd())
    argv, path = [sys.executable, "-P", worker.__file__], [str(Path(entry or here).absolute()) for entry in sys.path]
    return {**encoded({"argv": argv, "cwd": here, "env": dict(os.environ)}), "path": path}


def _settle(future: CallFuture[Any], event: dict[str, Any]) -> None:
    body = event.get("body")
    name = f"call {event['job']}.{event['index']}"
    if body is None or (event["status"] == "failed" and body[:1] == b"+"):
        reasons = {"out of memory": "used more memory than it asked for", "time limit": "was stopped at its time limit"}
        how = f"ended with status {event['exit']} ({event['reason']})"
        future.set_exception(
            CallFailed(f"{name}: its process {reasons.get(event['reason'], how)}: see `fairlead logs {name[5:]}`")
        )
        return
    try:
        told = pickle.loads(memoryview(body)[1:])
    except BaseException as why:
        future.set_exception(why)
        return
    if body[:1] == b"+":
        future.set_result(told)
    else:
        future.set_exception(_raised(*told))


def _raised(pickled: bytes, trace: str) -> BaseException:
    """The exception of a call, with its traceback as its cause."""
    try:
        raised: BaseException = pickle.loads(pickled)
    except BaseException as why:
        raised = RuntimeError(f"{trace.splitlines()[-1]} (the exception itself cannot be read here: {why!r})")
    raised.__cause__ = RemoteTraceback(trace)
    return raised


def _fail(future: CallFuture[Any], error: BaseException) -> None:
    if future.running() or (not future.done() and future.set_running_or_notify_cancel()):
        future.set_exception(error)


def _after(each: "int | SubmittedJob | tuple[int, str]") -> dict[str, Any]:
    if isinstance(each, tuple):
        return {"job": each[0], "how": each[1]}
    return {"job": each.id if isinstance(each, SubmittedJob) else each}


def _call_all(fn: Callable[..., T], chunk: list[tuple[Any, ...]]) -> list[T]:
    return [fn(*arguments) for arguments in chunk]


def _chunks(elements: Iterable[T], size: int) -> Iterator[list[T]]:
    elements = iter(elements)
    while chunk := list(itertools.islice(elements, size)):
        yield chunk


def _shut_down(client: "weakref.ref[Client]") -> None:
    there = client()
    if there is not None:
        there.shutdown()
