"""Where tasks run, and what the scheduler and an engine say to each other.

The scheduler tells an engine to start and stop attempts of tasks; the engine tells what it saw. Attempts travel as columns,
so that a hundred thousand of them are a few arrays. No call blocks, ever: not on a socket, not on a lock that is held over
I/O, not on a disk; each passes a message on. Neither side trusts the line between them: a message may come late, twice or
never, and either side may die and come back. So

- an engine never runs the same attempt twice, however often it is told to start it; one that is over is reported as ended;
- told to stop an attempt that it does not know, it will never start it, and reports it as ended;
- it reports each end again until that is acknowledged, which happens once the journal has it;
- it reports the loss of a machine together with, or after, every end that it knows of there;
- a machine that was lost starts nothing that it was told to start before `poll` reported the loss;
- what it knows of, once it was asked or has come back by itself, is true after all that earlier polls told, and every machine
  is reported once more with it or after it, there or gone; it may be told of some machines at a time;
- the scheduler repeats what it was not answered to;
- an engine obeys one scheduler: the one of the latest start of a journal. It tells another one so, at its next `poll`, and does
  nothing that it says.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import numpy as np

from fairlead.model.specs import Job, Node, Quantities
from fairlead.scheduler.facts import Attempts, Ints

__all__ = [
    "NOWHERE",
    "NO_ATTEMPTS",
    "NO_ENDS",
    "Attempts",
    "Ends",
    "Engine",
    "Launches",
    "NodeDown",
    "NodeDraining",
    "NodeUp",
    "Seen",
    "Superseded",
    "Unreachable",
    "Where",
]


_NONE = np.zeros(0, np.int64)
_NONE.flags.writeable = False
NO_ATTEMPTS = Attempts(_NONE, _NONE, _NONE)


class Launches(NamedTuple):
    """Attempts to start: which, where, and what they run with which demand.

    attempts : Attempts
    node : int64 array
        For each the place of its machine in `nodes`.
    nodes : sequence of str
        Names of machines.
    jobs : mapping of int to Job
        By number, those of the attempts and maybe others. The scheduler's own: read it in the call, do not keep it.
    """

    attempts: Attempts
    node: Ints
    nodes: Sequence[str]
    jobs: Mapping[int, Job]


class Where(NamedTuple):
    """Where some attempts are: for each the place of its machine in `nodes`; both empty where that is not known."""

    node: Ints
    nodes: Sequence[str]


class Ends(NamedTuple):
    """Attempts that are over, with all that they started; outcomes are :class:`fairlead.scheduler.facts.Outcome`.

    cpu : milliseconds of CPU that each used; `peak` is the most memory that it had, in bytes. 0 where that is not known; empty
        where it is of none.
    ran : milliseconds from its first process to its last; likewise.
    """

    attempts: Attempts
    outcome: Ints
    code: Ints
    cpu: Ints = _NONE
    peak: Ints = _NONE
    ran: Ints = _NONE


class NodeUp(NamedTuple):
    """A machine is there, or has changed."""

    node: Node


class NodeDown(NamedTuple):
    """A machine is gone, with all that ran on it."""

    node: str


class NodeDraining(NamedTuple):
    """A machine is to go: it takes no more tasks, and those on it go on."""

    node: str


class Seen(NamedTuple):
    """What an engine saw since it was last asked: `known` was true before the rest; then starts, checkpoints, ends, machines.

    known : Attempts or None
        The answer to `take_inventory`, once; also given unasked by an engine that lost its memory or its line and is back.
        All that it knows of: running, or ended and not acknowledged.
    started : Attempts
        They run.
    checkpointed : Attempts
        They have kept what they did; `ago` milliseconds before, each. Of one that has ended it means nothing.
    ended : Ends
    nodes : list of NodeUp, NodeDown and NodeDraining
        In order.
    of : set of str or None
        The machines that `known` is of, where it is not of all: of the others nothing is said.
    since : int64 array
        For how many milliseconds each of `started` has run; empty where that is not known.
    """

    known: Attempts | None
    started: Attempts
    ended: Ends
    nodes: list[NodeUp | NodeDown | NodeDraining]
    checkpointed: Attempts = NO_ATTEMPTS
    ago: Ints = _NONE
    of: Set[str] | None = None
    since: Ints = _NONE


NOWHERE = Where(_NONE, ())
NO_ENDS = Ends(NO_ATTEMPTS, _NONE, _NONE)


class Superseded(RuntimeError):
    """The engine obeys another scheduler than this one: a later start of the same journal, or another journal's."""


class Unreachable(RuntimeError):
    """A machine does not answer, or is not there any more; the message says which."""


class EngineError(RuntimeError):
    """The engine cannot work here; the message says why."""


class Engine(Protocol):
    """Where tasks run. No call blocks; all but `read_output` are made by one thread."""

    @property
    def limits(self) -> Mapping[str, bool]:
        """What it holds tasks to: "cpu", "memory", "tracking" (of all that a task starts); empty until that is known."""

    def serve(self, journal: str, epoch: int) -> None:
        """Obey a scheduler from now on: that of the journal with this id, in its so-manieth start. Said before all else."""

    def start(self, launches: Launches) -> None:
        """Start attempts; those that are known already stay as they are."""

    def stop(self, attempts: Attempts, grace: float, where: Where = NOWHERE) -> None:
        """Stop attempts: the signal that their jobs say, so many seconds, SIGKILL. `where` says where the journal has them."""

    def limit(self, attempts: Attempts, demands: Sequence[Quantities]) -> None:
        """Hold these attempts to so much CPU and memory from now on; of memory, nobody is held to less than before."""

    def poll(self) -> Seen:
        """What happened since the last call, and every end that was not acknowledged, once more after a while.

        Raises Superseded where it obeys another.
        """

    def acknowledge(self, attempts: Attempts) -> None:
        """These ends are in the journal: forget them."""

    def take_inventory(self) -> None:
        """Have a later poll tell what the engine knows of."""

    def forget(self, jobs: Iterable[int]) -> None:
        """Nobody will ask for the output of these jobs any more."""

    def read_output(self, job: int, index: int, stream: str, offset: int, most: int, node: str = "") -> bytes | None:
        """A piece of what a task wrote, of "out" or "err"; None where there is nothing (yet). `node` is where it ran last.

        It may read a file, so it is called in other threads than the scheduler's. Raises Unreachable where that machine does
        not answer.
        """

    def close(self, leave: bool = False) -> None:
        """Hang up. With `leave`, what runs the tasks goes too as soon as nothing runs."""


class Taken(Protocol):
    """How much of a task's standard input was taken."""

    @property
    def taken(self) -> int:
        """Bytes, from the beginning."""

    @property
    def over(self) -> bool:
        """Whether it takes no more."""


class LiveEngine(Engine, Protocol):
    """One with real processes, as the service has it.

    Attributes
    ----------
    elastic : bool
        Whether machines come and go by themselves; else there are those of the configuration.
    ray : bool
        Whether they are a Ray cluster, where programs of Ray run.
    """

    elastic: bool
    ray: bool

    @property
    def paused(self) -> int:
        """Tasks that wait until there is room on the disk for their output."""

    @property
    def nodes(self) -> Sequence[Node]:
        """The machines that there are."""

    @property
    def silent_for(self) -> float:
        """Seconds since it was heard."""

    @property
    def silence(self) -> Mapping[str, float]:
        """Seconds since they were heard, of those machines by name that are silent for long, and not known to be lost."""

    @property
    def trouble(self) -> str | None:
        """Why it cannot do its work, while it cannot."""

    def expect(self, names: Iterable[str]) -> None:
        """The journal believes in these machines: where they come and go, they are lost only when nothing can run there."""

    def wait_for_nodes(self) -> None:
        """Wait a while for machines that are to be there; raises EngineError where who knows them does not answer."""

    def feeding(
        self, task: tuple[int, int, int], offset: int, data: bytes, end: bool, size: tuple[int, int] | None = None
    ) -> AbstractContextManager[Callable[[], Taken | None]]:
        """Send a piece of a task's standard input, and the size of its terminal; what this gives says what came of it so far."""

    def join(self, timeout: float) -> None:
        """Wait until what was told before `close` is done; for one who ends the process."""
