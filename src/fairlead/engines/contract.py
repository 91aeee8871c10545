"""Where tasks run, and what the scheduler and an engine say to each other.

The scheduler tells an engine to start and stop attempts of tasks; the engine tells what it saw. Neither trusts the line
between them: a message may come late, twice or never, and either side may die and come back. So

- an engine never runs the same attempt twice, however often it is told to start it;
- told to stop an attempt that it does not know, it will never start it, and reports it as ended;
- it reports each end again until that is acknowledged, which happens once the journal has it;
- it reports the loss of a machine together with, or after, every end that it knows of there;
- a machine that was lost starts nothing that it was told to start before `poll` reported the loss;
- after `inventory` it reports every machine once more, there or gone;
- the scheduler repeats what it was not answered to.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from fairlead.model.specs import Job, Node
from fairlead.scheduler.facts import Outcome


class Attempt(NamedTuple):
    """One placement of one task."""

    job: int
    task: int  # its index in the job
    number: int


class Launch(NamedTuple):
    """An attempt to start: which, where, and what it runs with which demand."""

    attempt: Attempt
    node: str
    job: Job


class Started(NamedTuple):
    """The attempt runs."""

    attempt: Attempt


class Ended(NamedTuple):
    """The attempt, and all that it started, is over."""

    attempt: Attempt
    outcome: Outcome
    code: int


class NodeUp(NamedTuple):
    """A machine is there, or has changed."""

    node: Node


class NodeDown(NamedTuple):
    """A machine is gone, with all that ran on it."""

    node: str


Event = Started | Ended | NodeUp | NodeDown


class Engine(Protocol):
    """Where tasks run. No call blocks for longer than it takes to pass a message on."""

    def start(self, launches: Sequence[Launch]) -> None:
        """Start attempts; those that are known already stay as they are."""

    def stop(self, attempts: Iterable[Attempt]) -> None:
        """Stop attempts: SIGTERM, a grace period, SIGKILL."""

    def poll(self) -> list[Event]:
        """What happened since the last call, and every end that was not acknowledged, once more after a while."""

    def acknowledge(self, attempts: Iterable[Attempt]) -> None:
        """These ends are in the journal: forget them."""

    def inventory(self) -> set[Attempt]:
        """The attempts that the engine knows of: running, or ended and not acknowledged."""

    def forget(self, jobs: Iterable[int]) -> None:
        """Nobody will ask for the output of these jobs any more."""
