"""A simulated cluster: an engine whose tasks take given durations on a virtual clock.

A task ends after its duration; ends at the same moment come in the order of starts. A task asked to stop ends when its grace is
over, or when it is done if that is earlier. If nodes are overcommitted (slots), tasks on a node that needs f times its capacity
run at 1/f of their speed meanwhile. Nodes can be lost and come back.

The real usage of tasks is counted here too, independently of the scheduler, to be compared with its accounts. Ends wait in a
binary heap of arrays (:mod:`fairlead.engines.kernel.simulated`).
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fairlead.engines import contract
from fairlead.engines.kernel import simulated as kernel
from fairlead.engines.kernel.declared import COMPLETED, SIGTERM
from fairlead.engines.kernel.simulated import Truth
from fairlead.model.specs import Node, Quantities
from fairlead.outcomes import Outcome
from fairlead.scheduler.tables import F64, I64, NONE


class SimulatedCluster:
    """A simulated engine; see :class:`fairlead.engines.contract.Engine`. Job number n is row n - 1 of the arrays.

    nodes : what the scheduler sees
    capacity : int64, shape (nodes, resources): the real capacity of nodes
    demand : int64, shape (jobs, resources): the real usage of a task of each job
    queue : int64, shape (jobs,): the number of each job's leaf queue, below `queues`
    tasks : int64, shape (jobs,)
    duration : float64, shape (durations,): seconds; job j's start at `first[j]`: one per task, or one for all if `varied[j]` is 0
    overcommitted : True if nodes may get more than their capacity
    never : bool, shape (jobs,): jobs that can never start: they do not count as pending

    now : the virtual clock, set by the driver of the simulation
    truth : what really happens: see there
    """

    limits: Mapping[str, bool] = {"cpu": True, "memory": True, "tracking": True}

    def __init__(
        self,
        nodes: Sequence[Node],
        capacity: I64,
        demand: I64,
        queue: I64,
        queues: int,
        tasks: I64,
        duration: F64,
        first: I64,
        varied: I64,
        overcommitted: bool,
        never: NDArray[np.bool_] | None = None,
    ) -> None:
        self.nodes = list(nodes)
        self.now = 0.0
        jobs, resources = demand.shape
        self.truth = Truth(
            capacity=capacity, demand=np.ascontiguousarray(demand), queue=queue, duration=duration, first=first,
            several=np.where(varied, tasks, 1), load=np.zeros_like(capacity), down=np.zeros(len(capacity), np.bool_),
            pace=np.ones(len(capacity)), first_run=np.full(len(capacity), NONE, np.int64),
            used=np.zeros((queues, resources), np.int64), waits=np.zeros((queues, resources), np.int64),
            running=np.zeros(queues, np.int64), waiting=np.zeros(queues, np.int64), begun=np.full(jobs, np.nan),
            ended=np.full(jobs, np.nan), submitted=np.full(jobs, np.nan), waited=np.zeros(jobs), left=np.zeros(jobs, np.int64),
            task=np.cumsum(tasks) - tasks, last=np.zeros(int(tasks.sum()), np.int32),
            size=np.array([0, 0, int(overcommitted), 0], np.int64), never=np.zeros(jobs, np.bool_) if never is None else never,
            total=capacity.sum(axis=0), got=np.zeros(queues),
            held=np.zeros((queues, resources)), since=np.zeros(queues),
        )  # fmt: skip
        self.runs = kernel.no_runs(1024)
        self.withdrawn = 0
        self._rows = {node.name: row for row, node in enumerate(self.nodes)}
        self._news: list[contract.NodeEvent] = [contract.NodeUp(node) for node in self.nodes]
        self._asked = False
        self._started: list[contract.Attempts] = []
        self._ends: list[contract.Ends] = []  # to be reported
        self._told: list[contract.Ends] = []  # reported, not acknowledged

    @property
    def completed(self) -> int:
        """Tasks completed."""
        return int(self.truth.size[COMPLETED])

    # -- the driver's side -----------------------------------------------------------------------------------------

    def submit(self, job: int, tasks: int) -> None:
        kernel.submit(self.truth, job, tasks, self.now)

    def hold_back(self, job: int, tasks: int, back: bool = True) -> None:
        """Exclude a job's submitted tasks from pending ones, since they depend on others; or include them again."""
        kernel.hold_back(self.truth, job, tasks if back else -tasks)

    def measured(self, at: float) -> tuple[F64, F64]:
        """Return what queues had until `at`, up to which nothing changes: dominant shares, and resources, times seconds."""
        kernel.add_up(self.truth, at)
        return self.truth.got.copy(), self.truth.held.copy()

    def really(self, attempts: contract.Attempts) -> contract.Attempts:
        """Return attempts by the job numbers of the arrays."""
        return attempts

    def withdraw(self, job: int, tasks: int) -> None:
        self.truth.left[job] -= tasks
        kernel.hold_back(self.truth, job, tasks)
        self.withdrawn += tasks
        if self.truth.left[job] == 0:
            self.truth.ended[job] = self.now

    def next_event(self) -> float:
        """Return when there is something to poll: now, or at the next end; inf if nothing runs."""
        if self._news or self._asked or self._started or self._ends:
            return self.now
        return kernel.next_end(self.truth, self.runs)

    def lose(self, name: str) -> None:
        """Lose a node with all that runs on it."""
        row = self._rows[name]
        self.truth.down[row] = True
        kernel.drop_node(self.truth, self.runs, row, self.now)
        self._news.append(contract.NodeDown(name))
        self._count_capacity()

    def join(self, node: Node, capacity: I64) -> None:
        """Bring up a node, a lost one empty; maybe with another capacity or other labels than before."""
        row = self._rows[node.name]
        self.nodes[row], self.truth.capacity[row], self.truth.down[row] = node, capacity, False
        self._news.append(contract.NodeUp(node))
        self._count_capacity()

    def _count_capacity(self) -> None:
        """Recompute the capacity of the nodes that are up, of which queues' shares are from now on."""
        truth = self.truth
        share = np.where(truth.total > 0, truth.used / np.maximum(truth.total, 1), 0.0).max(axis=1, initial=0.0)
        truth.got += share * (self.now - truth.since)
        truth.since[:], truth.total[:] = self.now, truth.capacity[~truth.down].sum(axis=0)

    # -- the contract -------------------------------------------------------------------------------------------

    def serve(self, journal: str, epoch: int) -> None:
        pass  # only one scheduler exists

    def start(self, launches: contract.Launches) -> None:
        attempts = launches.attempts
        machines = np.array([self._rows[name] for name in launches.nodes], np.int64)
        self.make_room(len(launches.node))
        new = kernel.start_new(self.truth, self.runs, *attempts, machines, launches.node, self.now)
        if len(new) < len(attempts.job):
            attempts = contract.pick(attempts, new)
        self._started += [attempts] if len(new) else []

    def make_room(self, tasks: int) -> None:
        """Reserve rows for more running tasks."""
        need = int(self.truth.size[0]) + tasks
        if need > len(self.runs.heap):
            self.runs = kernel.longer(self.runs, max(need, 2 * len(self.runs.heap)))

    def stop(self, attempts: contract.Attempts, grace: float, where: contract.Where = contract.NOWHERE) -> None:
        never = kernel.stop(self.truth, self.runs, attempts.job - 1, attempts.index, attempts.number, self.now, grace)
        if never.any():
            chosen = contract.pick(attempts, never)
            signalled = np.full(len(chosen.job), Outcome.SIGNALLED, np.int64)
            self._ends.append(contract.Ends(chosen, signalled, np.full(len(chosen.job), SIGTERM, np.int64)))

    def poll(self) -> contract.Seen:
        known = None
        if self._asked:
            self._asked = False
            known = self._inventory()
            self._ends, self._told = [*self._told, *self._ends], []
            self._news = [
                contract.NodeDown(node.name) if down else contract.NodeUp(node)
                for node, down in zip(self.nodes, self.truth.down, strict=True)
            ]
        job, index, number, outcome, code = kernel.end(self.truth, self.runs, self.now)
        if len(job):
            self._ends.append(contract.Ends(contract.Attempts(job, index, number), outcome, code))
        started, self._started = self._started, []
        ends, self._ends = self._ends, []
        news, self._news = self._news, []
        self._told += ends
        return contract.Seen(known, contract.joined(started), _joined_ends(ends), news)

    def acknowledge(self, attempts: contract.Attempts) -> None:
        if len(self._told) == 1 and self._told[0].attempts is attempts:
            self._told = []
            return
        gone = set(_tuples(attempts))
        kept = []
        for end in self._told:
            stays = np.array([attempt not in gone for attempt in _tuples(end.attempts)], np.bool_)
            if stays.any():
                kept.append(contract.Ends(contract.pick(end.attempts, stays), end.outcome[stays], end.code[stays]))
        self._told = kept

    def limit(self, attempts: contract.Attempts, demands: Sequence[Quantities]) -> None:
        """No-op: simulated tasks use their demand."""

    def take_inventory(self) -> None:
        self._asked = True

    def _inventory(self) -> contract.Attempts:
        size = int(self.truth.size[0])
        rows = np.sort(self.runs.heap[:size])
        running = contract.Attempts(self.runs.job[rows] + 1, self.runs.index[rows], self.runs.attempt[rows])
        return contract.joined([running, *(end.attempts for end in self._told), *(end.attempts for end in self._ends)])

    def forget(self, jobs: Iterable[int]) -> None:
        pass  # no output

    def read_output(self, job: int, index: int, stream: str, offset: int, most: int, node: str = "") -> bytes | None:
        return None

    def close(self, leave: bool = False) -> None:
        pass


def _tuples(attempts: contract.Attempts) -> list[tuple[int, int, int]]:
    return list(zip(*(column.tolist() for column in attempts), strict=True))


def _joined_ends(several: Sequence[contract.Ends]) -> contract.Ends:
    if len(several) <= 1:
        return several[0] if several else contract.NO_ENDS
    return contract.Ends(
        contract.joined([end.attempts for end in several]),
        np.concatenate([end.outcome for end in several]),
        np.concatenate([end.code for end in several]),
    )
