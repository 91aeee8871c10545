"""GPUs that find a task as ever more pods of openb arrive: the scheduler beside first fit, best fit and FGD.

As in the evaluation of FGD (Weng et al., "Beware of Fragmentation", USENIX ATC 2023): pods are drawn from the trace, with
replacement, until they ask for 130% of the GPUs; none ends, and one that finds no room is given up. The nodes are in random
order, and a node's GPUs are one pool. A node's fragments for a kind of task are all of its free GPUs if the task does not fit
or needs none, else nothing; FGD takes the node where the mean over all kinds, by how often they come, grows least.
"""

import csv
import statistics
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from bench.forecasts import data_folder
from fairlead.model.specs import Job, Node, Queue, Settings
from fairlead.scheduler.decide import decide
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import Configured, JobSubmitted, NodeJoined, NodesReserved, TasksPlaced

LISTS = ("default", "multigpu50", "gpuspec33")
LOADS = (0.9, 1.0, 1.1, 1.3)
RESOURCES = ("cpu", "memory", "gpu")


class Openb:
    """The nodes, and the kinds of pods in one of the lists."""

    def __init__(self, folder: Path, name: str, seed: int = 0) -> None:
        with (folder / "openb_node_list_all_node.csv").open() as file:
            rows = list(csv.DictReader(file))
        np.random.default_rng(seed).shuffle(rows)
        self.capacity = np.array([_amounts(row, 1000 * int(row["gpu"])) for row in rows])
        self.models = [row["model"] for row in rows]
        with (folder / f"openb_pod_list_{name}.csv").open() as file:
            kinds = Counter((_amounts(pod, _gpu(pod)), pod.get("gpu_spec") or "") for pod in csv.DictReader(file))
        self.demand = np.array([amounts for amounts, _ in kinds])
        self.spec = [spec for _, spec in kinds]
        self.often = np.array(list(kinds.values())) / kinds.total()
        self.allowed = np.array([[not spec or model in spec.split("|") for model in self.models] for spec in self.spec])

    def arrivals(self, seed: int) -> list[int]:
        """Return kinds of pods, drawn until they ask for as many GPUs as the highest load."""
        rng = np.random.default_rng(seed)
        drawn = rng.choice(len(self.often), 50_000, p=self.often)
        asked = np.cumsum(self.demand[drawn, 2])
        return drawn[: np.searchsorted(asked, LOADS[-1] * self.capacity[:, 2].sum()) + 1].tolist()

    def allocated(self, arrivals: list[int], found: list[bool]) -> list[float]:
        """Return the part of all GPUs that the pods that found room have, at each load."""
        gpus = self.demand[arrivals, 2] / self.capacity[:, 2].sum()
        reached = np.searchsorted(np.cumsum(gpus), LOADS)
        return [float(sum((gpus * found)[: at + 1])) for at in reached]


def _amounts(row: dict[str, str], gpu: int) -> tuple[int, int, int]:
    return int(row["cpu_milli"]), int(row["memory_mib"]), gpu


def _gpu(pod: dict[str, str]) -> int:
    return int(pod["gpu_milli"]) if pod["num_gpu"] == "1" else 1000 * int(pod["num_gpu"])


class FirstFit:
    """Every node with room is as good: the first goes."""

    def __init__(self, world: Openb) -> None:
        self.world = world

    def costs(self, n: int, free: np.ndarray) -> np.ndarray:
        """Return what a task of each kind costs on a node with so much free; infinite where it has no room."""
        fits = self.world.allowed[:, n] & (self.world.demand <= free).all(axis=1)
        return np.where(fits, self._of(n, free), np.inf)

    def _of(self, n: int, free: np.ndarray) -> np.ndarray:
        return np.zeros(len(self.world.demand))


class BestFit(FirstFit):
    """The node of which the least would be left: the sum over resources of free / the largest node's."""

    def _of(self, n: int, free: np.ndarray) -> np.ndarray:
        return ((free - self.world.demand) / self.world.capacity.max(axis=0)).sum(axis=1)


class Fgd(FirstFit):
    """The node where fragments grow least."""

    def _of(self, n: int, free: np.ndarray) -> np.ndarray:
        after = np.vstack([free, free - self.world.demand])
        useful = self.world.allowed[:, n] & (self.world.demand[:, 2] > 0)
        serves = np.logical_and.reduce(
            [np.less_equal.outer(d, a) for d, a in zip(self.world.demand[useful].T, after.T, strict=True)]
        )
        fragments = after[:, 2] * (1 - self.world.often[useful] @ serves)
        return fragments[1:] - fragments[0]


def place(of: type[FirstFit], world: Openb, arrivals: list[int]) -> list[bool]:
    """Place one pod after another where it costs least; return which found room."""
    rule, free = of(world), world.capacity.copy()
    costs = np.stack([rule.costs(n, free[n]) for n in range(len(free))], axis=1)
    found = []
    for kind in arrivals:
        n = int(costs[kind].argmin())
        found.append(bool(np.isfinite(costs[kind, n])))
        if found[-1]:
            free[n] -= world.demand[kind]
            costs[:, n] = rule.costs(n, free[n])
    return found


def schedule(world: Openb, arrivals: list[int]) -> list[bool]:
    """Let the scheduler place the pods, in the order in which they arrive."""
    state = new_state()
    apply(state, Configured(at=0, queues=[Queue("a")], settings=Settings()))
    for n, capacity in enumerate(world.capacity.tolist()):
        labels = {"model": world.models[n]} if world.models[n] else {}
        there = {name: amount for name, amount in zip(RESOURCES, capacity, strict=True) if amount}
        apply(state, NodeJoined(at=0, node=Node(f"n{n}", there, labels)))
    for i, kind in enumerate(arrivals):
        demand = {name: amount for name, amount in zip(RESOURCES, world.demand[kind].tolist(), strict=True) if amount}
        on = {"model": world.spec[kind].split("|")} if world.spec[kind] else {}
        apply(state, JobSubmitted(at=0, id=i + 1, job=Job("a", demand, on=on)))
    placed: set[int] = set()
    while facts := [fact for fact in decide(state, 0.0, len(arrivals)).facts if not isinstance(fact, NodesReserved)]:
        for fact in facts:
            apply(state, fact)
            placed.update(fact.job if isinstance(fact, TasksPlaced) else [])
    return [i + 1 in placed for i in range(len(arrivals))]


RULES: dict[str, Callable[[Openb, list[int]], list[bool]]] = {
    "first fit": partial(place, FirstFit),
    "best fit": partial(place, BestFit),
    "FGD": partial(place, Fgd),
    "fairlead": schedule,
}


def run(seeds: int = 5) -> None:
    """Print the part of all GPUs that is allocated once the pods so far ask for 90% to 130% of them."""
    folder = data_folder() / "openb"
    if not folder.is_dir():
        print(f"no traces in {folder.parent}: set FAIRLEAD_DATA to measure placement")
        return
    print("\n| GPUs allocated when pods ask for |" + "".join(f" {load:.0%} |" for load in LOADS))
    print("| --- |" + " --- |" * len(LOADS))
    for name in LISTS:
        worlds = [Openb(folder, name, seed) for seed in range(seeds)]
        for title, find in RULES.items():
            rows = []
            for seed, world in enumerate(worlds):
                arrivals = world.arrivals(seed)
                rows.append(world.allocated(arrivals, find(world, arrivals)))
            cells = "".join(f" {statistics.mean(column):.1%} |" for column in zip(*rows, strict=True))
            row = f"{name}: {title}"
            print(f"| **{row}** |{cells}" if find is schedule else f"| {row} |{cells}", flush=True)
