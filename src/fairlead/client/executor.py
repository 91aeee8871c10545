"""A `concurrent.futures.Executor` whose calls are tasks of the scheduler: they wait for their turn, are held to what they asked
for, and run in warm worker processes on whatever the scheduler shares.
"""

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
from fairlead.client.options import Asked, Options, names_options
from fairlead.interrupts import wait_until
from fairlead.model.quantity import parse_quantities

if TYPE_CHECKING:
    from fairlead.client.code_folder import PackedCode

P = ParamSpec("P")
T = TypeVar("T")


class Client(Executor):
    """The scheduler, from a Python program: an executor, and more.

    Parameters
    ----------
    home : Path or str, optional
        The scheduler's data folder. Default: what ``$FAIRLEAD_URL`` names (with ``$FAIRLEAD_TOKEN``, elsewhere), or
        ``$FAIRLEAD_HOME``; else one's own scheduler, where one runs, else the one for all of this machine.
    working_dir : Path or str, optional
        A folder of code that goes along, as it is now: calls find a copy of it, and are made in that. Without it they find what
        their machine has at this program's paths.
    **options
        What every call asks for unless it says otherwise: see :class:`Options`.

    Raises
    ------
    ServiceError
        No scheduler runs there.
    ValueError
        The folder of code is not there, or too large.

    Examples
    --------
    >>> with fairlead.Client(queue="vision") as client:      # doctest: +SKIP
    ...     future = client.submit(pow, 2, 10, cpu=1, memory="512MiB")
    ...     future.result()
    1024
    """

    @names_options
    def __init__(
        self, home: Path | str | None = None, *, working_dir: Path | str | None = None, **options: Unpack[Asked]
    ) -> None:
        self.options = Options(**options)
        self._connection = Connection(Path(home) if home is not None else None, patience=60.0)
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
        """Call ``fn(*args, **kwargs)`` when it is its turn.

        `cpu`, `memory`, `gpu` and `queue` are what the call asks for; a function that has arguments of these names is called
        through :meth:`executor`, or with :func:`functools.partial`. Function, arguments and result are pickled, by cloudpickle.

        Returns
        -------
        concurrent.futures.Future
            Its ``stop()`` stops the call also while it runs; a call that no node that is up could hold raises ServiceError.

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
        **options: Unpack[Asked],
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

    @names_options
    def executor(self, **options: Unpack[Asked]) -> Executor:
        """Make an executor with options of its own, over this client: its ``submit`` passes on every argument as it is."""
        return _View(self, replace(self.options, **options))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. With `wait`, return when those that were submitted have ended; see the standard library's."""
        self._caller.shutdown(wait, cancel_futures)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self._caller.abandon()
        else:
            self.shutdown()

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
        **options: Unpack[Asked],
    ) -> SubmittedJob:
        """Submit a command, as `fairlead submit` does.

        Long because it says what each option is.

        Parameters
        ----------
        argv : iterable of str
            The command and its arguments; with `tasks`, ``{index}`` in them is the task's index.
        tasks : int, optional
            So many tasks; each has its index in ``FAIRLEAD_INDEX``.
        cwd : optional
            Where it runs. Default: this program's folder.
        env : optional
            Variables that are set. Default: what programs need of this program's, and what `client.toml` names.
        export_all : bool
            The rest of this program's environment goes as well; it is kept apart until the job has ended.
        gang : bool
            All tasks start at once or none.
        exit_done : bool
            A task that is stopped to make room and then exits 0 is done; else it starts again.
        grace, signal : float, optional, and str
            When a task is told to stop: seconds to end in, if its queue gives as many, and what it gets.
        revocable : bool
            It may go above the limits of its queues into what is idle, and is revoked before others.
        fit : str
            Of the nodes with room, tasks go to the first; by "pack" to the fullest, by "spread" to the emptiest.
        ray : bool
            It is a program of Ray, and `tasks` are the bundles of its placement group: see :mod:`fairlead.ray`.
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
        ServiceError, TypeError
            It was refused, and why; the command is one text, not a list of words.
        """
        sent = needed_environment() if env is None else env
        exported = {name: value for name, value in os.environ.items() if export_all and name not in sent}
        body = replace(self.options, **options).request()
        body |= {"argv": _words(argv), "cwd": str(cwd) if cwd is not None else str(Path.cwd()), "env": sent}
        body |= {"exported": exported, "name": name, "gang": gang, "strict": strict}
        body |= {
            "exit_done": exit_done,
            "grace": grace,
            "signal": signal,
            "revocable": revocable,
            "fit": fit,
            "ray": ray,
        }
        body["after"] = [_after(each) for each in after]
        if tasks is not None:
            body["tasks"] = tasks
        answer = self._connection.submit("/v1/jobs", body)
        if answer["warning"]:
            warnings.warn(f"fairlead: {answer['warning']}", stacklevel=2)
        return SubmittedJob(self._connection, answer["id"])

    def job(self, number: int) -> SubmittedJob:
        """A job by its number. Raises ServiceError where there is none."""
        found = SubmittedJob(self._connection, number)
        found.info()
        return found


class _View(Executor):
    """An executor over a client, with options of its own; shutting it down leaves the client as it is."""

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
