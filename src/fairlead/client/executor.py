"""A `concurrent.futures.Executor` whose calls run as tasks of the scheduler, in warm worker processes."""

import itertools
import json
import os
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, Unpack

from fairlead.client.caller import Caller
from fairlead.client.calls_under_way import CallFuture
from fairlead.client.connection import Connection
from fairlead.client.environment import needed_environment
from fairlead.client.jobs import SubmittedJob
from fairlead.client.options import CallOptions, Options, names_options
from fairlead.interrupts import wait_until
from fairlead.model.quantity import parse_quantities

if TYPE_CHECKING:
    from fairlead.client.code_folder import PackedCode

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
        self, home: Path | str | None = None, *, working_dir: Path | str | None = None, **options: Unpack[CallOptions]
    ) -> None:
        self.options = Options(**options)
        self._connection = Connection(Path(home) if home is not None else None, retry_seconds=60.0)
        self._connection.get("/v1/status")
        self._caller = Caller(self._connection, _packed(working_dir) if working_dir is not None else None)

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
            Its ``stop()`` also stops a running call. It raises ServiceError for a call that no node that is up could hold.

        Raises
        ------
        RuntimeError
            After :meth:`shutdown`.
        """
        given = {"cpu": cpu, "memory": memory, "gpu": gpu, "queue": queue}
        given = {name: value for name, value in given.items() if value is not None}
        options = replace(self.options, **given) if given else self.options  # type: ignore[arg-type]
        return self._caller.call(options, fn, args, kwargs)

    @names_options
    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        **options: Unpack[CallOptions],
    ) -> Iterator[T]:
        """Call the function with an element of each iterable; see :meth:`concurrent.futures.Executor.map`.

        `chunksize` calls form one task. All options are allowed.
        """
        if chunksize < 1:
            raise ValueError("chunksize: at least 1")
        executor = self.executor(**options)
        if chunksize == 1:
            return executor.map(fn, *iterables, timeout=timeout)
        pieces = executor.map(partial(_call_all, fn), _chunks(zip(*iterables, strict=False), chunksize), timeout=timeout)
        return itertools.chain.from_iterable(pieces)

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
        exit_done: bool = False,
        grace: float | None = None,
        signal: str = "SIGTERM",
        revocable: bool = False,
        fit: Literal["", "pack", "spread"] = "",
        ray: bool = False,
        after: Iterable["int | SubmittedJob | tuple[int, str]"] = (),
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
        after : iterable
            Jobs that must have succeeded first; (job, "failure") or (job, "end") for other ends.
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
        sent = needed_environment() if env is None else env
        exported = {name: value for name, value in os.environ.items() if export_all and name not in sent}
        body = replace(self.options, **options).request()
        body |= {"argv": _words(argv), "cwd": str(cwd) if cwd is not None else str(Path.cwd()), "env": sent}
        body |= {"exported": exported, "name": name, "gang": gang, "strict": strict}
        body |= {"exit_done": exit_done, "grace": grace, "signal": signal, "revocable": revocable, "fit": fit, "ray": ray}
        body["after"] = [_after(each) for each in after]
        if tasks is not None:
            body["tasks"] = tasks
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


def _packed(folder: Path | str) -> "PackedCode":
    from fairlead.client.code_folder import pack_folder

    return pack_folder(folder)


def _words(argv: Iterable[str]) -> list[str]:
    if isinstance(argv, str):
        raise TypeError(f'a command is a list of words: ["sh", "-c", {json.dumps(argv)}] runs a line for the shell')
    return list(argv)


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
