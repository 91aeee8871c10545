"""A `concurrent.futures.Executor` whose calls run as tasks of the scheduler, in warm worker processes."""

import itertools
import json
import os
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, ParamSpec, TypeVar, Unpack

from fairlead.calls import wire
from fairlead.client.call_future import CallFuture
from fairlead.client.caller import Caller
from fairlead.client.connection import Connection
from fairlead.client.environment import needed_environment
from fairlead.client.jobs import SubmittedJob
from fairlead.client.options import CallOptions, Options, names_options
from fairlead.interrupts import wait_until
from fairlead.model.quantity import parse_quantities

P = ParamSpec("P")
T = TypeVar("T")


class Client(Executor):
    """A client of the scheduler: an executor of Python calls that also submits jobs.

    Parameters
    ----------
    home : Path or str, optional
        The scheduler's data folder. Default: ``$FAIRLEAD_URL`` (with ``$FAIRLEAD_TOKEN`` for a port), then ``$FAIRLEAD_HOME``,
        then your own scheduler if it runs, then the machine-wide one.
    working_dir : Path or str, optional
        A folder of code. A copy of its present content is sent, and calls run in that copy. By default, calls import code
        from this program's paths on their node.
    progress : bool
        Show a bar on standard error: how many calls have ended, of how many.
    preload : sequence of str
        Modules that each worker imports before it takes calls. The first worker starts with the client, not with the first call.
    **options
        Default options of calls: see :class:`Options`.

    Raises
    ------
    ServiceError
        No scheduler runs there.
    ValueError
        The folder of code does not exist or is too large.

    Examples
    --------
    >>> with fairlead.Client(queue="vision") as client:      # doctest: +SKIP
    ...     future = client.submit(pow, 2, 10, cpu=1, memory="512MiB")
    ...     future.result()
    1024
    """

    @names_options
    def __init__(
        self,
        home: Path | str | None = None,
        *,
        working_dir: Path | str | None = None,
        progress: bool = False,
        preload: Sequence[str] = (),
        **options: Unpack[CallOptions],
    ) -> None:
        if isinstance(preload, str):
            raise TypeError(f"preload={preload!r}: a list of modules: preload=[{preload!r}]")
        self.options = Options(**options)
        self._connection = Connection(Path(home) if home is not None else None, retry_seconds=60.0)
        self._connection.get("/v1/status")
        code = None
        if working_dir is not None:
            from fairlead.client.code_folder import pack_folder  # slow to import

            code = pack_folder(working_dir)
        self._caller = Caller(self._connection, code, progress, preload)
        if preload:
            self._caller.start(self.options)

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
    ) -> CallFuture[T]:
        """Call ``fn(*args, **kwargs)`` as a task.

        `cpu`, `memory`, `gpu` and `queue` are options of the call. To call a function with arguments of these names, use
        :meth:`executor` or :func:`functools.partial`. Function, arguments and result are pickled by cloudpickle.

        Returns
        -------
        concurrent.futures.Future
            Its ``stop()`` also stops a running call; ``task`` is the job and index that runs it, and `fairlead logs` takes its
            ``log`` to print what it wrote. It raises ServiceError for a call that no node that is up could hold.

        Raises
        ------
        RuntimeError
            After :meth:`shutdown`.
        """
        given = _given(cpu=cpu, memory=memory, gpu=gpu, queue=queue)
        options = replace(self.options, **given) if given else self.options
        return self._caller.call(options, fn, args, kwargs)

    @names_options
    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
        **options: Unpack[CallOptions],
    ) -> Iterator[T]:
        """Call the function with an element of each iterable; see :meth:`concurrent.futures.Executor.map`.

        By default, calls that take some 20 ms together are sent together. With `chunksize`, that many calls form one, which
        fails if any of them does. All options are allowed.
        """
        return self.executor(**options).map(fn, *iterables, timeout=timeout, **_given(chunksize=chunksize))

    @names_options
    def executor(self, **options: Unpack[CallOptions]) -> Executor:
        """Return an executor over this client with its own options; its ``submit`` passes all arguments to the function."""
        return _View(self, replace(self.options, **options))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls. With `wait`, return when all have ended; see :meth:`concurrent.futures.Executor.shutdown`."""
        self._caller.shutdown(wait, cancel_futures)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self._caller.abandon()
        else:
            self.shutdown()

    def put(self, value: Any) -> wire.Kept:
        """Keep a value at workers: calls that the handle is given to, also in other arguments, get the value.

        It is sent once to each worker that needs it, and kept there until the lease ends. Calls share it and must not change it;
        arrays of more than 1 MiB in it are read-only. Raises ValueError for more than 512 MiB, or 8 GiB with the other handles
        that exist.
        """
        return self._caller.put(value)

    def capacity(self) -> int:
        """Return how many calls with this client's options fit on the empty nodes; at least 1."""
        demand = parse_quantities(self.options.request()["demand"])
        nodes = self._connection.get("/v1/nodes")["nodes"]
        fits = [
            min(node["capacity"].get(name, 0) // amount for name, amount in demand.items())
            for node in nodes
            if node["status"] == "up"
        ]
        return max(1, sum(fits))

    # -- jobs ------------------------------------------------------------------------------------------------------

    @names_options
    def submit_job(
        self,
        argv: Iterable[str],
        *,
        tasks: int | None = None,
        name: str = "",
        cwd: str | Path | None = None,
        env: dict[str, str] | None = None,
        export_all: bool = False,
        gang: bool = False,
        nodes: int | None = None,
        exit_done: bool = False,
        grace: float | None = None,
        signal: str = "SIGTERM",
        revocable: bool = False,
        fit: Literal["", "pack", "spread"] = "",
        ray: bool = False,
        begin: datetime | float | None = None,
        retry_delay: float = 0.0,
        singleton: bool = False,
        after: Iterable["int | str | SubmittedJob | tuple[int | str, str]"] = (),
        strict: bool = False,
        **options: Unpack[CallOptions],
    ) -> SubmittedJob:
        """Submit a command, as `fairlead submit` does.

        Long because it documents each option.

        Parameters
        ----------
        argv : iterable of str
            The command and its arguments; with `tasks`, ``{index}`` in them is the task's index.
        tasks : int, optional
            Number of tasks; ``FAIRLEAD_INDEX`` is the index of each.
        cwd : optional
            Working folder. Default: this program's.
        env : optional
            Environment variables. Default: those that programs need, and those that `client.toml` names.
        export_all : bool
            Send the rest of this program's environment too; it is deleted when the job ends.
        gang : bool
            Start all tasks at once, or none.
        nodes : int, optional
            Instead of `tasks`: a gang with a task on each of this many nodes.
        exit_done : bool
            A task that is preempted and then exits 0 has succeeded; otherwise it starts again.
        grace, signal : float, optional, and str
            The stop signal, and the seconds between it and SIGKILL, up to the queue's maximum.
        revocable : bool
            Run on idle resources beyond the queue's limits, and be preempted before other jobs.
        fit : str
            Choice among nodes with room: "" for the first, "pack" for the fullest, "spread" for the emptiest.
        ray : bool
            The command is a Ray program, and `tasks` are the bundles of its placement group: see :mod:`fairlead.ray`.
        begin : datetime or float, optional
            Time before which it does not start; a number is seconds since the epoch.
        retry_delay : float
            Seconds before a failed task starts again; they double with each failure, up to an hour.
        singleton : bool
            Start once all your earlier jobs of its name have ended.
        after : iterable
            Jobs that must have succeeded first, by number or name; (job, "failure") or (job, "end") for other ends. With
            (job, "index"), each task waits for the success of the task of the same index.
        strict : bool
            Refuse a job that no node could hold.
        **options
            See :class:`Options`.

        Returns
        -------
        SubmittedJob
            The job, with its ``id``.

        Raises
        ------
        ServiceError
            The scheduler refused the job.
        TypeError
            The command is a string, not a list of words.
        """
        if isinstance(argv, str):
            raise TypeError(f'a command is a list of words: ["sh", "-c", {json.dumps(argv)}] runs a line for the shell')
        sent = needed_environment() if env is None else env
        exported = {name: value for name, value in os.environ.items() if export_all and name not in sent}
        body = replace(self.options, **options).request()
        body |= {"argv": list(argv), "cwd": str(cwd) if cwd is not None else str(Path.cwd()), "env": sent}
        body |= {"exported": exported, "name": name, "gang": gang, "strict": strict}
        body |= {"exit_done": exit_done, "grace": grace, "signal": signal, "revocable": revocable, "fit": fit, "ray": ray}
        body |= {"retry_delay": retry_delay, "singleton": singleton, "after": [_after(each) for each in after]}
        body["begin"] = begin.timestamp() if isinstance(begin, datetime) else begin
        body |= {key: value for key, value in (("tasks", tasks), ("nodes", nodes)) if value is not None}
        answer = self._connection.submit("/v1/jobs", body)
        if answer["warning"]:
            warnings.warn(f"fairlead: {answer['warning']}", stacklevel=2)
        return SubmittedJob(self._connection, answer["id"])

    def job(self, number: int) -> SubmittedJob:
        """Return the job of a number. Raises ServiceError if it does not exist."""
        found = SubmittedJob(self._connection, number)
        found.info()
        return found


class _View(Executor):
    """An executor over a client, with its own options; its shutdown does not affect the client."""

    def __init__(self, client: Client, options: Options) -> None:
        self._client, self._options = client, options
        self._mine: weakref.WeakSet[CallFuture[Any]] = weakref.WeakSet()
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> CallFuture[T]:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = self._client._caller.call(self._options, fn, args, kwargs)
        self._mine.add(future)
        return future

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
        **more: Any,
    ) -> Iterator[T]:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if chunksize is not None and chunksize < 1:
            raise ValueError("chunksize: at least 1")
        caller, elements = self._client._caller, zip(*iterables, strict=False)
        if chunksize is None and not more and not self._options.are_counted():
            mapped = caller.map(self._options, fn, elements)
            self._mine.add(mapped.whole)
            return mapped.results(timeout)
        if (chunksize or 1) == 1:
            return super().map(fn, *iterables, timeout=timeout, **more)
        pieces = super().map(partial(_call_all, fn), _chunks(elements, chunksize or 1), timeout=timeout, **more)
        return itertools.chain.from_iterable(pieces)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        from concurrent.futures import wait as wait_for

        self._closed = True
        mine = list(self._mine)
        if cancel_futures:
            for future in mine:
                future.cancel()
        if wait:
            wait_until(lambda seconds: not wait_for(mine, seconds).not_done)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self._closed = True
            self._client._caller.stop_all(self._mine)
        else:
            self.shutdown()


def _after(each: "int | str | SubmittedJob | tuple[int | str, str]") -> dict[str, Any]:
    if isinstance(each, tuple):
        return {"job": each[0], "how": each[1]}
    return {"job": each.id if isinstance(each, SubmittedJob) else each}


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _call_all(fn: Callable[..., T], chunk: list[tuple[Any, ...]]) -> list[T]:
    return [fn(*arguments) for arguments in chunk]


def _chunks(elements: Iterable[T], size: int) -> Iterator[list[T]]:
    elements = iter(elements)
    while chunk := list(itertools.islice(elements, size)):
        yield chunk
