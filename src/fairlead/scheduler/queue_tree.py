"""The queue tree: who shares, under what was declared for them; and its rows in the table of queues."""

from bisect import bisect_left
from fractions import Fraction
from math import inf

import numpy as np
from msgspec import Struct, field

from fairlead.model.specs import (
    ALL,
    HALF_LIFE,
    LEAST_WEIGHT,
    NEVER,
    ROOT,
    Percent,
    Policy,
    Quantities,
    Queue,
    ancestors,
    inner_names,
    path_to_root,
    settings_for,
)
from fairlead.policies import HALF_LIVES, code_of, fairtree, resources_of
from fairlead.policies.fairtree import PERIOD
from fairlead.scheduler.framework_index import holds_jobs_of
from fairlead.scheduler.kernel.constants import FIXED_POINT_ONE
from fairlead.scheduler.tables import I64, NONE, UNLIMITED, Queues, vector

TICKS = 1024
"""Ticks of a half-life, where that is not too short for them."""
SHORTEST_TICK = 1.0
"""Seconds."""
GUARANTEE_TIMEOUT, FAIR_SHARE_THRESHOLD = 30.0, 0.5
"""When others are revoked for a queue, where nothing else is said: after so many seconds; below so much of its fair share."""
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
            held = settings_for(name, before)
            if settings_for(name, self.declared):
                self.removed.pop(name, None)
            elif name != ROOT and name not in self.removed and (held or name in self.inner):
                self.removed[name] = held or Queue(name)  # the jobs that it has go on under what held for them
        self.inner = inner_names(self.declared)

    def spec_of(self, queue: str) -> Queue:
        """What holds for a queue: what was declared, or nothing in particular."""
        return settings_for(queue, self.declared) or self.removed.get(queue) or Queue(queue)

    def is_declared(self, name: str) -> bool:
        """Whether a queue is declared, or stands for one person under a ``*`` that is. A role needs no declaration."""
        return not name or name in self.inner or settings_for(name, self.declared) is not None

    def policy_of(self, name: str) -> Policy:
        """The policy among a queue's children: its own, else what it shares by itself where that is one for trees, else drf."""
        own = self.spec_of(name).policy
        above = self.policy_of(ancestors(name)[0]) if name and not own else ""
        return own or (above if above.partition(":")[0] in ("hdrf", "fairtree", "mesos") else "drf")

    def half_life_of(self, name: str) -> float:
        """The half-life of what the children used before: its own, or that of the queue above; seconds.

        A policy that goes by nothing else has one of its own where none is said above, or ``none``.
        """
        spec, policy = self.spec_of(name), self.policy_of(name).partition(":")[0]
        if spec.history or (spec.history is not None and policy not in HALF_LIVES):
            return spec.history
        if spec.policy and policy in HALF_LIVES:
            said = (self.spec_of(above).history for above in ancestors(name))
            return next((each for each in said if each is not None), None) or HALF_LIVES[policy]
        return self.half_life_of(ancestors(name)[0]) if name else HALF_LIFE

    def add(self, name: str, table: Queues) -> list[int]:
        """Add a queue and those above it, where they are not there; returns the new rows, to be set by :meth:`write`."""
        new = []
        for path in [*reversed(ancestors(name)), name]:
            if path not in self.rows:
                row = table.extend(1)
                self.names.append(path)
                self.rows[path] = row
                table.short_since[row] = inf if path else -inf
                table.in_line_at[row] = -inf
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
        in_order = np.empty(row, np.int64)
        in_order[rank] = np.arange(row)
        place = bisect_left(in_order, self.names[row].split("/"), key=lambda other: self.names[other].split("/"))
        rank[rank >= place] += 1
        table.rank[row] = place

    def write(self, row: int, table: Queues, resources: list[str], total: I64) -> None:
        """Write what holds for a queue into its row, where the cluster has so much of each resource."""
        name = self.names[row]
        spec = self.spec_of(name)
        table.policy[row] = code_of(self.policy_of(name) if row in self.inner_rows else "priority", resources)
        ticks = slurm_ticks_of if self.policy_of(name).partition(":")[0] == "fairtree" else ticks_of
        table.tick[row], table.remains[row] = ticks(self.half_life_of(name)) if row in self.inner_rows else (0.0, 0)
        table.weight[row] = weights(spec, resources)
        table.whole[row], table.part[row] = _fractions(table.weight[row])
        table.weightless[row] = spec.weight == 0
        self.write_bounds(row, table, resources, total)
        table.strict[row] = self.spec_of(holds_jobs_of(name)).strict and row not in self.inner_rows
        table.max_tasks[row] = UNLIMITED if spec.max_tasks is None else spec.max_tasks
        table.max_jobs[row] = UNLIMITED if spec.max_jobs is None else spec.max_jobs
        self._write_claims(row, table)

    def _write_claims(self, row: int, table: Queues) -> None:
        """Write when others are revoked for a queue, and when it may be; the row of the queue above is written already."""
        name, up = self.names[row], table.parent[row]
        until_guarantee = self.inherited(name, "guarantee_timeout", GUARANTEE_TIMEOUT)
        until_share = self.inherited(name, "fair_share_timeout", NEVER)
        table.guarantee_timeout[row] = until_guarantee if until_guarantee < NEVER else inf
        table.share_timeout[row] = until_share if until_share < NEVER else inf
        table.threshold[row] = self.inherited(name, "fair_share_threshold", FAIR_SHARE_THRESHOLD)
        table.min_runtime[row] = self.inherited(name, "min_runtime", 0.0)
        table.priority_revokes[row] = self.inherited(name, "priority_revokes", False)
        table.revocable[row] = self.spec_of(name).revocable and (up == NONE or table.revocable[up])

    def _write_guards(self, row: int, table: Queues) -> None:
        """Write whether a queue, or one above it, is guaranteed anything."""
        up = table.parent[row]
        table.guaranteed[row] = row != 0 and table.guarantee[row].any()
        table.guarded[row] = table.guaranteed[row] or (up != NONE and table.guarded[up])

    def inherited(self, name: str, key: str, otherwise: float) -> float:
        """What holds for a queue where the one above it says what it does not."""
        said = (getattr(self.spec_of(path), key) for path in path_to_root(name))
        return next((value for value in said if value is not None), otherwise)

    def write_bounds(self, row: int, table: Queues, resources: list[str], total: I64) -> None:
        """Write a queue's guarantee and limit into its row."""
        spec = self.spec_of(self.names[row])
        table.nonlendable[row] = 0
        table.guarantee[row] = amounts_of(spec.guarantee, spec.guarantee_percent, resources, total, 0)
        table.limit[row] = amounts_of(spec.limit, spec.limit_percent, resources, total, UNLIMITED)
        for resource, more in spec.borrow.items():
            r = resources.index(resource)
            table.limit[row, r] = min(table.limit[row, r], table.guarantee[row, r] + more)
        if (
            self.names[row] and self.policy_of(ancestors(self.names[row])[0]) == "mesos"
        ):  # which lends nothing of its own accord
            table.nonlendable[row] = table.guarantee[row]
        for resource, lent in spec.lend.items():
            r = resources.index(resource)
            table.nonlendable[row, r] = max(0, table.guarantee[row, r] - lent)
        self._write_guards(row, table)

    def write_nonlendable(self, table: Queues) -> None:
        """Work out anew which queues do not lend all that they are guaranteed, and what others may not use because of that."""
        n = table.n
        if not table.has_nonlendable[0] and not table.nonlendable[:n].any():
            return
        table.has_nonlendable[:n] = (table.nonlendable[:n] > 0).any(axis=1)
        table.idle_nonlendable_below[:n] = 0
        for row in range(n - 1, -1, -1):
            own = np.maximum(0, table.nonlendable[row] - table.used[row] - table.claimed[row])
            table.idle_nonlendable[row] = np.maximum(own, table.idle_nonlendable_below[row])
            if row:
                up = table.parent[row]
                table.idle_nonlendable_below[up] += table.idle_nonlendable[row]
                table.has_nonlendable[up] |= table.has_nonlendable[row]

    def follow_total(self, table: Queues, resources: list[str], total: I64) -> None:
        """Write the bounds of those queues anew that have some in percent of what the cluster has."""
        for row, name in enumerate(self.names):
            spec = self.spec_of(name)
            if spec.guarantee_percent or spec.limit_percent:
                self.write_bounds(row, table, resources, total)

    def needed_resources(self, name: str) -> set[str]:
        """The resources that what holds for a queue names."""
        spec = self.spec_of(name)
        weighed = spec.weight if isinstance(spec.weight, dict) else {}
        in_percent = {*spec.guarantee_percent, *spec.limit_percent} - {ALL}
        return {
            *resources_of(spec.policy),
            *spec.guarantee,
            *spec.limit,
            *spec.borrow,
            *spec.lend,
            *weighed,
            *in_percent,
        }


def _fractions(weights: np.ndarray) -> tuple[list[int], list[int]]:
    """Weights as fractions: denominators and numerators; 0 and 0 where one has none that is small enough."""
    found = [Fraction(repr(float(w))).limit_denominator(LARGEST_WEIGHT - 1) for w in weights]
    good = [float(f) == w and 0 < f.numerator < LARGEST_WEIGHT for f, w in zip(found, weights, strict=True)]
    return (
        [f.denominator if g else 0 for f, g in zip(found, good, strict=True)],
        [f.numerator if g else 0 for f, g in zip(found, good, strict=True)],
    )


def up_to_root(table: Queues, row: int) -> list[int]:
    """The row of a queue and those of all above it, the root's last."""
    found = [row]
    while found[-1] != 0:
        found.append(int(table.parent[found[-1]]))
    return found


def mark_exact(table: Queues) -> None:
    """Say of each queue whether all its children's weights are fractions that can be compared exactly."""
    n = table.n
    table.exact[:n] = True
    inexact = (table.part[:n] == 0).any(axis=1) & (table.parent[:n] != NONE)
    table.exact[table.parent[:n][inexact]] = False


def weights(spec: Queue, resources: list[str]) -> list[float]:
    """A queue's weight for each resource; the least that there is where it is 0."""
    weight = spec.weight if isinstance(spec.weight, dict) else dict.fromkeys(resources, spec.weight or LEAST_WEIGHT)
    return [weight.get(resource, 1.0) for resource in resources]


def amounts_of(amounts: Quantities, percent: Percent, resources: list[str], total: I64, fill: int) -> I64:
    """Guarantees or limits, some of them in percent of the total, as an array with one column a resource."""
    found = vector(amounts, resources, fill)
    for column, name in enumerate(resources):
        part = percent.get(name, percent.get(ALL))
        if part is not None and name not in amounts:
            found[column] = int(total[column]) * Fraction(repr(part)) // 100
    return found


def ticks_of(half_life: float) -> tuple[float, int]:
    """How long a tick is, in seconds, and what is left after one, in parts of 2**32; 0 and 0 for a half-life of 0: no history."""
    if not half_life:
        return 0.0, 0
    tick = max(SHORTEST_TICK, half_life / TICKS)
    return tick, round(FIXED_POINT_ONE * 2.0 ** (-tick / half_life))


def slurm_ticks_of(half_life: float) -> tuple[float, int]:
    """The same as Slurm has it: used amounts fade by its formula each five minutes, or each half-life where that is shorter."""
    tick = min(PERIOD, half_life)
    return tick, round(FIXED_POINT_ONE * fairtree.left_after(tick, half_life))
