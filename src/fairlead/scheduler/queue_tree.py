"""The queue tree: who shares, under what was declared for them; and its rows in the table of queues."""

from bisect import bisect_left
from fractions import Fraction

import numpy as np
from msgspec import Struct, field

from fairlead.model.specs import HALF_LIFE, ROOT, Policy, Quantities, Queue, ancestors, inner_names, settings_for
from fairlead.policies import HALF_LIVES, code_of, resources_of
from fairlead.scheduler.history import slurm_ticks_of, ticks_of
from fairlead.scheduler.tables import I64, NONE, UNLIMITED, Queues

LARGEST_WEIGHT = 2**30
"""Weights are compared exactly where they are fractions of numbers below this."""


class QueueTree(Struct, dict=True, forbid_unknown_fields=True):
    """Queues by name, in the order in which they came: parents before their children.

    Attributes
    ----------
    names : list of str
        By row.
    rows : dict of str to int
    declared, removed : dict of str to Queue
        What holds now, and what held for queues that are declared no more but have jobs.
    inner : set of str
        The declared queues that have others below them.
    inner_rows : set of int
        Rows of queues with others below them.
    """

    names: list[str] = field(default_factory=list)
    declared: dict[str, Queue] = field(default_factory=dict)
    removed: dict[str, Queue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rows = {name: row for row, name in enumerate(self.names)}
        self.inner = inner_names(self.declared)
        self.inner_rows = {self.rows[ancestors(name)[0]] for name in self.names if name}

    def copy(self) -> "QueueTree":
        """Another that knows the same."""
        found = QueueTree()
        found.names, found.rows = list(self.names), dict(self.rows)
        found.declared, found.removed = dict(self.declared), dict(self.removed)
        found.inner, found.inner_rows = set(self.inner), set(self.inner_rows)
        return found

    def configure(self, queues: list[Queue]) -> None:
        """Have these hold from now on; the rows are to be added and set by the caller."""
        before, self.declared = self.declared, {queue.name: queue for queue in queues}
        for name in self.names:
            if settings_for(name, self.declared):
                self.removed.pop(name, None)
            elif name != ROOT and name not in self.removed:  # the jobs that it has go on under what held for them
                self.removed[name] = settings_for(name, before) or Queue(name)
        self.inner = inner_names(self.declared)

    def spec_of(self, queue: str) -> Queue:
        """What holds for a queue: what was declared, or nothing in particular."""
        return settings_for(queue, self.declared) or self.removed.get(queue) or Queue(queue)

    def policy_of(self, name: str) -> Policy:
        """The policy among a queue's children: its own, else what it shares by itself where that is one for trees, else drf."""
        own = self.spec_of(name).policy
        above = self.policy_of(ancestors(name)[0]) if name and not own else ""
        return own or (above if above.partition(":")[0] in ("hdrf", "fairtree") else "drf")

    def half_life_of(self, name: str) -> float:
        """The half-life of what the children used before: its own, its policy's, or that of the queue above; seconds."""
        spec, policy = self.spec_of(name), self.policy_of(name).partition(":")[0]
        if spec.history or (spec.history is not None and policy not in HALF_LIVES):
            return spec.history
        if spec.policy and policy in HALF_LIVES:
            return HALF_LIVES[policy]
        return self.half_life_of(ancestors(name)[0]) if name else HALF_LIFE

    def add(self, name: str, table: Queues) -> list[int]:
        """Add a queue and those above it, where they are not there; returns the new rows, to be set by :meth:`write`."""
        new = []
        for path in [*reversed(ancestors(name)), name]:
            if path not in self.rows:
                row = table.extend(1)
                self.names.append(path)
                self.rows[path] = row
                table.parent[row] = up = self.rows[ancestors(path)[0]] if path else NONE
                self._rank(row, table)
                new.append(row)
                if path and up not in self.inner_rows:
                    self.inner_rows.add(up)
                    if up not in new:
                        new.append(up)
        return new

    def _rank(self, row: int, table: Queues) -> None:
        """Put the last queue where it belongs among the others, by name."""
        rank = table.rank[:row]
        place = bisect_left(
            np.argsort(rank), self.names[row].split("/"), key=lambda other: self.names[other].split("/")
        )
        rank[rank >= place] += 1
        table.rank[row] = place

    def write(self, row: int, table: Queues, resources: list[str]) -> None:
        """Write what holds for a queue into its row."""
        name = self.names[row]
        spec = self.spec_of(name)
        table.policy[row] = code_of(self.policy_of(name) if row in self.inner_rows else "priority", resources)
        ticks = slurm_ticks_of if self.policy_of(name).partition(":")[0] == "fairtree" else ticks_of
        table.tick[row], table.remains[row] = ticks(self.half_life_of(name)) if row in self.inner_rows else (0.0, 0)
        table.weight[row] = weights(spec, resources)
        table.whole[row], table.part[row] = _fractions(table.weight[row])
        table.guarantee[row] = vector(spec.guarantee, resources)
        table.limit[row] = vector(spec.limit, resources, UNLIMITED)
        table.max_tasks[row] = UNLIMITED if spec.max_tasks is None else spec.max_tasks
        table.max_jobs[row] = UNLIMITED if spec.max_jobs is None else spec.max_jobs

    def needed_resources(self, name: str) -> set[str]:
        """The resources that what holds for a queue names."""
        spec = self.spec_of(name)
        weighed = spec.weight if isinstance(spec.weight, dict) else {}
        return {*resources_of(spec.policy), *spec.guarantee, *spec.limit, *weighed}


def _fractions(weights: np.ndarray) -> tuple[list[int], list[int]]:
    """Weights as fractions: denominators and numerators; 0 and 0 where one has none that is small enough."""
    found = [Fraction(repr(float(w))).limit_denominator(LARGEST_WEIGHT - 1) for w in weights]
    good = [float(f) == w and 0 < f.numerator < LARGEST_WEIGHT for f, w in zip(found, weights, strict=True)]
    return (
        [f.denominator if g else 0 for f, g in zip(found, good, strict=True)],
        [f.numerator if g else 0 for f, g in zip(found, good, strict=True)],
    )


def mark_exact(table: Queues) -> None:
    """Say of each queue whether all its children's weights are fractions that can be compared exactly."""
    n = table.n
    table.exact[:n] = True
    inexact = (table.part[:n] == 0).any(axis=1) & (table.parent[:n] != NONE)
    table.exact[table.parent[:n][inexact]] = False


def weights(spec: Queue, resources: list[str]) -> list[float]:
    """A queue's weight for each resource."""
    weight = spec.weight if isinstance(spec.weight, dict) else dict.fromkeys(resources, spec.weight)
    return [weight.get(resource, 1.0) for resource in resources]


def vector(quantities: Quantities, resources: list[str], fill: int = 0) -> I64:
    """Quantities as an array, one column a resource."""
    return np.array([quantities.get(name, fill) for name in resources], np.int64)
