"""The contract between the scheduler and every engine.

The scheduler asks an engine to start and stop attempts of tasks; the engine reports what it saw. Attempts travel as columns, so
that a hundred thousand are a few arrays. No call ever blocks: not on a socket, a disk, or a lock held over I/O; each only
passes a message on. Neither side trusts the connection: a message may come late, twice or never, and either side may die and
come back. So

- an engine never runs the same attempt twice, however often it is asked to start it; an ended one is reported as ended;
- asked to stop an attempt that it does not know, it will never start it, and reports it as ended;
- it reports each end again until that is acknowledged, which happens once the journal has it;
- it reports the loss of a node together with, or after, every end that it knows of there;
- a lost node starts nothing that it was asked to start before `poll` reported the loss;
- an inventory, requested or unasked after a reconnection, is newer than all earlier polls, and every node is reported again
  with it or after it, up or down; it may cover some nodes at a time;
- the scheduler repeats what was not answered;
- an engine obeys one scheduler: the latest start of a journal. Another one learns so at its next `poll`, and none of its
  requests is carried out.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from concurrent.futures import Future
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from fairlead.model.specs import Job, Node, Quantities
from fairlead.scheduler import facts
from fairlead.scheduler.facts import Ints

Attempts = facts.Attempts
_NONE = np.zeros(0, np.int64)
_NONE.flags.writeable = False
NO_ATTEMPTS = Attempts(_NONE, _NONE, _NONE)


class Launches(NamedTuple):
    """Attempts to start, with their nodes and jobs.

    attempts : Attempts
    node : int64 array
        For each the index of its node in `nodes`.
    nodes : sequence of str
        Names of nodes.
    jobs : mapping of int to Job
        By number, those of the attempts and maybe others. The scheduler's own: read it during the call, do not keep it.
    drained : mapping of str to sequence of int
        By node, the cards that take no more tasks; nodes without any may be absent.
    gangs : mapping of int to sequence of str
        By the number of each gang, the nodes of all its tasks in order; empty for one that is over.
    """

    attempts: Attempts
    node: Ints
    nodes: Sequence[str]
    jobs: Mapping[int, Job]
    drained: Mapping[str, Sequence[int]] = MappingProxyType({})
    gangs: Mapping[int, Sequence[str]] = MappingProxyType({})


class Where(NamedTuple):
    """The nodes of attempts: for each the index of its node in `nodes`; both empty if unknown."""

    node: Ints
    nodes: Sequence[str]


class Ends(NamedTuple):
    """Attempts with no process left; outcomes are :class:`fairlead.scheduler.facts.Outcome`.

    cpu : CPU time of each in milliseconds, `peak` its peak memory in bytes; 0 if unknown; empty if unknown for all.
    ran : milliseconds from its first process to its last; likewise.
    calls, called : of a lease, how many calls its worker made, and their milliseconds; likewise.
    """

    attempts: Attempts
    outcome: Ints
    code: Ints
    cpu: Ints = _NONE
    peak: Ints = _NONE
    ran: Ints = _NONE
    calls: Ints = _NONE
    called: Ints = _NONE


class NodeUp(NamedTuple):
    """A node joined or changed, and its accelerator cards, as its tasks see them; None if unknown."""

    node: Node
    cards: Sequence[int] | None = None


class CardUse(NamedTuple):
    """How busy a card was at a time of the monotonic clock: the part of a second, None if unknown; bytes of memory."""

    at: float
    busy: float | None
    memory_used: int
    memory: int


class NodeDown(NamedTuple):
    """A node is gone, with all that ran on it; `left` if it was empty, and its machine is no member any more."""

    node: str
    left: bool = False


class NodeDraining(NamedTuple):
    """A node drains: it takes no more tasks, and those on it continue."""

    node: str


NodeEvent = NodeUp | NodeDown | NodeDraining


class Seen(NamedTuple):
    """What an engine saw since the last poll: `known` came before the rest; then starts, checkpoints, ends, nodes.

    known : Attempts or None
        An inventory: the answer to `take_inventory`, or unasked after the engine lost its memory or connection. All attempts
        that run, or ended without acknowledgement.
    started : Attempts
    checkpointed : Attempts
        They took checkpoints, each `ago` milliseconds before. Meaningless for one that has ended.
    ended : Ends
    nodes : list of NodeEvent
        In order.
    of : set of str or None
        The nodes that `known` covers; None for all.
    since : int64 array
        Milliseconds that each of `started` has run; empty if unknown.
    cards : int64 array
        The cards of each of `started`, a row of words each: see :mod:`fairlead.model.cards`; empty if unknown.
    """

    known: Attempts | None
    started: Attempts
    ended: Ends
    nodes: list[NodeEvent]
    checkpointed: Attempts = NO_ATTEMPTS
    ago: Ints = _NONE
    of: Set[str] | None = None
    since: Ints = _NONE
    cards: Ints = _NONE


NOWHERE = Where(_NONE, ())
NO_ENDS = Ends(NO_ATTEMPTS, _NONE, _NONE)


class Superseded(RuntimeError):
    """The engine obeys another scheduler: a later start of the same journal, or another journal's."""


class Unreachable(RuntimeError):
    """A node does not answer, is gone, or cannot read a file; the message names node or file."""


class EngineError(RuntimeError):
    """The engine cannot work here; the message says why."""


def pick(attempts: Attempts, which: np.ndarray) -> Attempts:
    return Attempts(attempts.job[which], attempts.index[which], attempts.number[which])


def joined(several: Sequence[Attempts]) -> Attempts:
    """Return the attempts of several, in order; one alone as it is."""
    if len(several) == 1:
        return several[0]
    return Attempts(*map(np.concatenate, zip(*several, strict=True))) if several else NO_ATTEMPTS


class Engine(Protocol):
    """Where tasks run. No call blocks; one thread makes all but `read_output`."""

    @property
    def limits(self) -> Mapping[str, bool]:
        """What it enforces: "cpu", "memory", "tracking" (of all processes of a task); empty until known."""

    def serve(self, journal: str, epoch: int) -> None:
        """Obey a scheduler from now on: the one of the journal with this id, with this epoch. Called before all else."""

    def start(self, launches: Launches) -> None:
        """Start attempts; no-op for those already known."""

    def stop(self, attempts: Attempts, grace: float, where: Where = NOWHERE) -> None:
        """Stop attempts: their jobs' signal, SIGKILL after `grace` seconds. `where` has their nodes by the journal."""

    def limit(self, attempts: Attempts, demands: Sequence[Quantities]) -> None:
        """Change the CPU and memory limits of attempts; memory limits only grow."""

    def poll(self) -> Seen:
        """Return what happened since the last call, and unacknowledged ends again after a while. May raise Superseded."""

    def acknowledge(self, attempts: Attempts) -> None:
        """Forget these ends: the journal has them."""

    def take_inventory(self) -> None:
        """Include an inventory in a later poll."""

    def forget(self, jobs: Iterable[int]) -> None:
        """Forget these jobs: their output is no longer needed."""

    def read_output(self, job: int, index: int, stream: str, offset: int, most: int, node: str = "") -> bytes | None:
        """Return a piece of a task's output, "out" or "err"; None if there is none (yet). `node` is where it ran last.

        May read a file, so it is called outside the scheduler's thread. Raises Unreachable if the node gives no answer or cannot
        read it.
        """

    def close(self, leave: bool = False) -> None:
        """Disconnect. With `leave`, supervisors end as soon as nothing runs."""


class LiveEngine(Engine, Protocol):
    """An engine with real processes, as the service needs it.

    elastic : True if nodes come and go by themselves; else they are those of the configuration
    ray : True if it is a Ray cluster that runs Ray programs
    gpus : indices of the accelerator cards of each node, as its tasks see them
    """

    elastic: bool
    ray: bool

    @property
    def gpus(self) -> Mapping[str, Sequence[int]]: ...

    def card_use(self, node: str) -> Mapping[int, CardUse]:
        """Return how busy the cards of a node are, as last measured; without those of which nothing is known."""

    @property
    def paused(self) -> int:
        """Tasks stopped until the disk has room for their output."""

    @property
    def nodes(self) -> Sequence[Node]:
        """The nodes that are up."""

    @property
    def silent_for(self) -> float:
        """Seconds since the engine's last message."""

    @property
    def silence(self) -> Mapping[str, float]:
        """Seconds of silence, by node, of those silent for long and not known to be lost."""

    @property
    def trouble(self) -> str | None:
        """Why it cannot work; None if it can."""

    def next_data(self, job: int, index: int, stream: str, offset: int, node: str = "") -> int:
        """Return where a task's output goes on at or after `offset`; more than `offset` if there is a hole.

        The end of the output if no more follows. Otherwise as `read_output`.
        """

    def ask_stream(self, task: tuple[int, int, int], do: str, **what: Any) -> Future[Any]:
        """Ask a task's supervisor to "feed" its input or a stream, or about a "stream": :mod:`fairlead.engines.local.messages`.

        The future gets a :class:`fairlead.engines.local.reports.StreamAnswer`, if one comes.
        """

    def join(self, timeout: float) -> None:
        """Wait until everything requested before `close` is done. For a process about to end."""
