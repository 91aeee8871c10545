"""The queue tree: who shares, as declared, and its rows in the table of queues."""

from bisect import bisect_left
from collections.abc import Iterable
from fractions import Fraction
from math import inf

import numpy as np
from msgspec import Struct, field

from fairlead.model import specs
from fairlead.policies import HALF_LIVES, YARN, code_of, fairtree, resources_of
from fairlead.policies.fairtree import PERIOD
from fairlead.scheduler.kernel.constants import FIXED_POINT_ONE
from fairlead.scheduler.tables import F64, I64, NONE, UNLIMITED, Bools, Queues, vector

TICKS_PER_HALF_LIFE = 1024
"""Ticks per half-life, unless they would be shorter than SHORTEST_TICK_SECONDS."""
SHORTEST_TICK_SECONDS = 1.0
"""Seconds."""
GUARANTEE_TIMEOUT_SECONDS, FAIR_SHARE_THRESHOLD = 30.0, 0.5
"""Defaults: seconds until others are preempted for a guarantee, and the part of its fair share a queue must be below."""
LARGEST_WEIGHT = 2**30
"""Weights that are fractions of numbers below this are compared exactly."""
RANK_STEP = 2**32
"""Between the ranks of neighbours, so that 32 queues in a row fit between two."""
DECLARED = (
    "policy", "tick", "remains", "weight", "whole", "part", "weightless", "declared", "lent", "limit", "strict", "max_tasks",
    "max_jobs", "guarantee_timeout", "share_timeout", "threshold", "min_runtime", "priority_revokes", "guarded", "revocable",
    "offer_most",
)  # fmt: skip
"""Columns of a queue's own declaration, which are written into its row when it is created."""


class QueueTree(Struct, dict=True, forbid_unknown_fields=True):
    """Queues by name, in the order they came: parents before their children.

    names : by row
    declared, removed : the queues that are configured; and those that no longer are, but still have jobs
    inner : declared queues with others below them
    children : names of the queues below each that has any, by its row, sorted
    undeclared : by row: a leaf below it without a declaration of its own, the pattern of others
    """

    names: list[str] = field(default_factory=list)
    declared: dict[str, specs.Queue] = field(default_factory=dict)
    removed: dict[str, specs.Queue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rows = {name: row for row, name in enumerate(self.names)}
        self.inner = specs.inner_names(self.declared)
        self.children: dict[int, list[str]] = {}
        for name in sorted(self.names):
            if name:
                self.children.setdefault(self.rows[specs.parent_of(name)], []).append(name)
        self.undeclared: dict[int, int] = {}

    def configure(self, queues: list[specs.Queue]) -> None:
        """Replace the declarations; the caller adds and writes the rows."""
        before, self.declared = self.declared, {queue.name: queue for queue in queues}
        for name in self.names:
            held = specs.settings_for(name, before)
            if specs.settings_for(name, self.declared):
                self.removed.pop(name, None)
            elif name != specs.ROOT and name not in self.removed and (held or name in self.inner):
                self.removed[name] = held or specs.Queue(name)  # its jobs continue under the old declaration
        self.inner = specs.inner_names(self.declared)
        self.undeclared.clear()

    def spec_of(self, queue: str) -> specs.Queue:
        """Return a queue's declaration, or an empty one."""
        return specs.settings_for(queue, self.declared) or self.removed.get(queue) or specs.Queue(queue)

    def is_declared(self, name: str) -> bool:
        """True if a queue is declared by name, or is a user's leaf under a ``*``; one with others below it is a role."""
        if name in self.declared or name in self.inner:
            return True
        return (not name or specs.settings_for(name, self.declared) is not None) and self.rows[name] not in self.children

    def policy_of(self, name: str) -> specs.Policy:
        """Return the policy among a queue's children: its own, else the parent's if that is for trees, else drf."""
        own = self.spec_of(name).policy
        above = self.policy_of(specs.parent_of(name)) if name and not own else ""
        return own or (above if above.partition(":")[0] in ("hdrf", "fairtree", "mesos") else "drf")

    def half_life_of(self, name: str) -> float:
        """Return the half-life of the children's history in seconds: the queue's own, else the parent's.

        A policy that uses only history has a default of its own, if none, or ``none``, is given.
        """
        spec, policy = self.spec_of(name), self.policy_of(name).partition(":")[0]
        if spec.history or (spec.history is not None and policy not in HALF_LIVES):
            return spec.history
        if spec.policy and policy in HALF_LIVES:
            given = (self.spec_of(above).history for above in specs.ancestors(name))
            return next((each for each in given if each is not None), None) or HALF_LIVES[policy]
        return self.half_life_of(specs.parent_of(name)) if name else specs.HALF_LIFE

    def add(self, names: Iterable[str], table: Queues) -> list[tuple[int, int, int, bool]]:
        """Add missing queues after their missing ancestors; the caller writes their rows.

        Returns of each batch of siblings the parent, the first row, the end, and True if they are the parent's first children.
        """
        batches: dict[str | None, list[str]] = {}
        for name in dict.fromkeys(names):
            if name not in self.rows:
                batches.setdefault(specs.parent_of(name) if name else None, []).append(name)
        found = self.add([up for up in batches if up is not None], table) if batches else []
        for up, siblings in batches.items():
            new = [name for name in siblings if name not in self.rows]
            begin = table.extend(len(new))
            self.rows.update(zip(new, range(begin, table.n), strict=True))
            self.names += new
            row = table.parent[begin : table.n] = NONE if up is None else self.rows[up]
            table.short_since[begin : table.n] = -inf if up is None else inf
            table.exact[begin : table.n] = True
            found.append((row, begin, table.n, row not in self.children))
            if up is not None:
                self._rank(self.children.setdefault(row, []), new, table.rank)
        return found

    def _rank(self, siblings: list[str], names: list[str], rank: I64) -> None:
        """Insert names into sorted siblings. One gets a rank between its neighbours': only those of siblings are compared."""
        gap = False
        if len(names) == 1:
            place = bisect_left(siblings, names[0])
            low = int(rank[self.rows[siblings[place - 1]]]) if place else None
            high = int(rank[self.rows[siblings[place]]]) if place < len(siblings) else (low or 0) + 2 * RANK_STEP
            siblings.insert(place, names[0])
            rank[self.rows[names[0]]] = middle = ((high - 2 * RANK_STEP if low is None else low) + high) // 2
            gap = middle != low
        if not gap:
            siblings[:] = sorted({*siblings, *names})
            rank[[self.rows[name] for name in siblings]] = RANK_STEP * np.arange(len(siblings))

    def declares(self, name: str) -> bool:
        """True if a queue has, or had, a declaration of its own: not one that all its siblings may share."""
        return name in self.declared or name in self.removed or specs.holds_jobs_of(name) != name

    def write(self, row: int, table: Queues, resources: list[str], total: I64) -> None:
        """Write a queue's declaration into its row; `total` is the capacity of the cluster."""
        name = self.names[row]
        spec = self.spec_of(name)
        table.policy[row] = code_of(self.policy_of(name) if row in self.children else "priority", resources)
        ticks = slurm_ticks_of if self.policy_of(name).partition(":")[0] == "fairtree" else ticks_of
        table.tick[row], table.remains[row] = ticks(self.half_life_of(name)) if row in self.children else (0.0, 0)
        table.weight[row] = weights(spec, resources)
        table.whole[row], table.part[row] = np.array(_fractions(table.weight[row]), np.int64).reshape(-1, 2).T
        table.weightless[row] = spec.weight == 0
        self.write_bounds(row, table, resources, total)
        table.strict[row] = self.spec_of(specs.holds_jobs_of(name)).strict and row not in self.children
        table.max_tasks[row] = UNLIMITED if spec.max_tasks is None else spec.max_tasks
        table.max_jobs[row] = UNLIMITED if spec.max_jobs is None else spec.max_jobs
        # When it may preempt others and be preempted; the parent's row is written already.
        up = table.parent[row]
        until_guarantee = self.inherited(name, "guarantee_timeout", GUARANTEE_TIMEOUT_SECONDS)
        until_share = self.inherited(name, "fair_share_timeout", specs.NEVER)
        table.guarantee_timeout[row] = until_guarantee if until_guarantee < specs.NEVER else inf
        table.share_timeout[row] = until_share if until_share < specs.NEVER else inf
        table.threshold[row] = self.inherited(name, "fair_share_threshold", FAIR_SHARE_THRESHOLD)
        table.min_runtime[row] = self.inherited(name, "min_runtime", 0.0)
        table.priority_revokes[row] = self.inherited(name, "priority_revokes", False)
        table.guarded[row] = table.guaranteed[row] or (up != NONE and table.guarded[up])
        table.revocable[row] = self.spec_of(name).revocable and (up == NONE or table.revocable[up])

    def inherited(self, name: str, key: str, otherwise: float) -> float:
        """Return a queue's setting, or the nearest above it, or the default."""
        given = (getattr(self.spec_of(path), key) for path in specs.path_to_root(name))
        return next((value for value in given if value is not None), otherwise)

    def write_bounds(self, row: int, table: Queues, resources: list[str], total: I64) -> None:
        """Write a queue's declared guarantee, what it lends of that, and its limit; one that is removed keeps only the limit."""
        spec = self.spec_of(self.names[row])
        table.declared[row] = table.lent[row] = amounts_of(spec.guarantee, spec.guarantee_percent, resources, total, 0)
        table.limit[row] = amounts_of(spec.limit, spec.limit_percent, resources, total, UNLIMITED)
        for resource, more in spec.borrow.items():
            r = resources.index(resource)
            table.limit[row, r] = min(table.limit[row, r], table.declared[row, r] + more)
        if self.names[row] and self.policy_of(specs.parent_of(self.names[row])) == "mesos":  # mesos lends nothing by default
            table.lent[row] = 0
        for resource, lent in spec.lend.items():
            r = resources.index(resource)
            table.lent[row, r] = min(lent, table.declared[row, r])
        if self.names[row] in self.removed:
            table.declared[row] = table.lent[row] = 0

    def write_guarantees(self, table: Queues, there: I64) -> I64:
        """Scale the guarantees to what there is, and recompute what others may not use because of them.

        At each level, for each resource: if the guarantees of the children exceed what their parent is granted (the root:
        capacity of the nodes that take tasks), all are scaled by the same factor. What a queue does not lend is scaled alike.
        Under YARN's policies guarantees are minimums to compare by, and stay, but what is not lent is scaled. A queue that is
        guaranteed nothing of a resource passes on what those below it are. Returns the rows whose guarantee changed.
        """
        n, before = table.n, table.guarantee[: table.n].copy()
        if not table.declared[:n].any() and not table.guarded[:n].any():
            return np.zeros(0, np.int64)
        levels = _levels(table.parent[:n])
        floors = self.floors()
        table.guarantee[:n], _, _ = _granted(table.declared[:n], table.parent[:n], levels, there, floors)
        table.guaranteed[:n] = table.guarantee[:n].any(axis=1)
        table.guaranteed[0] = table.guarded[0] = False
        for rows in levels:
            table.guarded[rows] = table.guaranteed[rows] | table.guarded[table.parent[rows]]
        kept, granted = table.declared[:n] - table.lent[:n], table.guarantee[:n]
        if floors.any():
            granted, _, _ = _granted(table.declared[:n], table.parent[:n], levels, there, np.zeros_like(floors))
        table.nonlendable[:n] = kept
        scaled = np.nonzero((kept > 0) & (granted < table.declared[:n]))
        for row, r in zip(*(each.tolist() for each in scaled), strict=True):
            part = Fraction(int(granted[row, r]), int(table.declared[row, r]))
            table.nonlendable[row, r] = int(part * int(kept[row, r]))
        self.write_nonlendable(table)
        return np.flatnonzero((table.guarantee[:n] != before).any(axis=1))

    def floors(self) -> Bools:
        """Mark the queues among whose children guarantees are minimums to compare by, as in YARN."""
        found = np.zeros(len(self.names), np.bool_)
        for row in self.children:
            found[row] = self.policy_of(self.names[row]).partition(":")[0] in YARN
        return found

    def write_nonlendable(self, table: Queues) -> None:
        """Recompute which queues do not lend all of their guarantee, and what others may not use because of it."""
        n = table.n
        if not table.has_nonlendable[0] and not table.nonlendable[:n].any():
            return
        table.has_nonlendable[:n] = (table.nonlendable[:n] > 0).any(axis=1)
        table.never_lent[:n] = beside(table.nonlendable[:n], table.parent[:n])
        table.idle_nonlendable_below[:n] = 0
        for row in range(n - 1, -1, -1):
            own = np.maximum(0, table.nonlendable[row] - table.used[row] - table.claimed[row])
            table.idle_nonlendable[row] = np.maximum(own, table.idle_nonlendable_below[row])
            if row:
                up = table.parent[row]
                table.idle_nonlendable_below[up] += table.idle_nonlendable[row]
                table.has_nonlendable[up] |= table.has_nonlendable[row]

    def follow_total(self, table: Queues, resources: list[str], total: I64, there: I64) -> None:
        """Rewrite what follows from declarations and cluster: percentages of its `total`, and guarantees by what is `there`."""
        for row, name in enumerate(self.names):
            spec = self.spec_of(name)
            if spec.guarantee or spec.guarantee_percent or spec.limit_percent:
                self.write_bounds(row, table, resources, total)
        self.write_guarantees(table, there)

    def needed_resources(self, name: str) -> set[str]:
        """Return the resources that a queue's declaration names."""
        spec = self.spec_of(name)
        weighed = spec.weight if isinstance(spec.weight, dict) else {}
        in_percent = {*spec.guarantee_percent, *spec.limit_percent} - {specs.ALL}
        return {*resources_of(spec.policy), *spec.guarantee, *spec.limit, *spec.borrow, *spec.lend, *weighed, *in_percent}


def _fractions(weights: np.ndarray) -> list[tuple[int, int]]:
    """Return weights as denominators and numerators; 0 and 0 for a weight that is no small enough fraction."""
    found = [(w, Fraction(repr(float(w))).limit_denominator(LARGEST_WEIGHT - 1)) for w in weights]
    return [(f.denominator, f.numerator) if float(f) == w and 0 < f.numerator < LARGEST_WEIGHT else (0, 0) for w, f in found]


def _levels(parent: I64) -> list[I64]:
    """Return the rows at each depth below the root, from the top."""
    depth, above = np.zeros(len(parent), np.int64), parent
    while (above != NONE).any():
        depth += above != NONE
        above = np.where(above == NONE, NONE, parent[above])
    return [np.flatnonzero(depth == level) for level in range(1, int(depth.max()) + 1)]


def beside(amounts: I64, parent: I64) -> I64:
    """Return, per queue, the amounts of all queues beside it and those above it; each counts as at least those below it."""
    below, found, levels = np.zeros_like(amounts), np.zeros_like(amounts), _levels(parent)
    for rows in reversed(levels):
        np.add.at(below, parent[rows], np.maximum(amounts[rows], below[rows]))
    for rows in levels:
        found[rows] = found[parent[rows]] + below[parent[rows]] - np.maximum(amounts[rows], below[rows])
    return found


def _granted(declared: I64, parent: I64, levels: list[I64], total: I64, floors: Bools) -> tuple[I64, I64, I64]:
    """Scale guarantees to what there is; see :meth:`QueueTree.write_guarantees`. All shapes are (queues, resources).

    Also return the sum of what the children of each queue are guaranteed, as declared, and what that is scaled to, if it is more.
    """
    asked, below = declared.copy(), np.zeros_like(declared)
    asked[0] = 0
    for rows in reversed(levels):
        asked[rows] = np.where(declared[rows] > 0, declared[rows], below[rows])
        np.add.at(below, parent[rows], asked[rows])
    room = np.zeros_like(declared)
    room[0] = total
    for rows in levels:
        room[rows], up = asked[rows], parent[rows]
        for k, r in np.argwhere((asked[rows] > 0) & (below[up] > room[up]) & ~floors[up, None]).tolist():
            # Python's integers: a product of two amounts may exceed 64 bits.
            room[rows[k], r] = int(asked[rows[k], r]) * int(room[up[k], r]) // int(below[up[k], r])
    return np.where(declared > 0, room, 0), below, room


def over_committed(queues: list[specs.Queue], capacity: specs.Quantities) -> list[tuple[str, str, int, int]]:
    """Return where the guarantees of these queues exceed a cluster's capacity, or those of a queue above. A ``*`` counts once.

    That is, queue and resource, what those below the queue are guaranteed together, and what there is.
    """
    tree, table = QueueTree(), Queues([0])
    tree.configure(queues)
    tree.add(sorted({specs.ROOT, *(queue.name for queue in queues)}), table)
    named = {r for queue in queues for r in (*queue.guarantee, *queue.guarantee_percent)} - {specs.ALL}
    resources = sorted({*capacity, *named})
    total = vector(capacity, resources)
    by_row = map(tree.spec_of, tree.names)
    declared = np.array([amounts_of(spec.guarantee, spec.guarantee_percent, resources, total, 0) for spec in by_row])
    parent, floors = table.parent[: table.n], tree.floors()
    _, below, room = _granted(declared, parent, _levels(parent), total, floors)
    there = np.where(declared > 0, declared, room)
    there[0] = total
    return [
        (tree.names[row], resources[r], int(below[row, r]), int(there[row, r]))
        for row, r in np.argwhere(below > there).tolist()
        if (row == 0 or declared[row, r]) and not floors[row]
    ]


def up_to_root(table: Queues, row: int) -> list[int]:
    """Return the rows from a queue up to the root."""
    found = [row]
    while found[-1] != 0:
        found.append(int(table.parent[found[-1]]))
    return found


def by_weight(table: Queues, row: int, active: Bools, whole: F64) -> F64:
    """Return what the weights on its path entitle a queue to of a whole, among those of its siblings that are active."""
    for q in up_to_root(table, row)[:-1]:
        siblings = active & (table.parent[: table.n] == table.parent[q])
        whole = whole * (table.weight[q] / np.maximum(table.weight[: table.n][siblings].sum(axis=0), table.weight[q]))
    return whole


def mark_exact(table: Queues) -> None:
    """Mark each queue whose children's weights can all be compared exactly."""
    n = table.n
    table.exact[:n] = True
    inexact = (table.part[:n] == 0).any(axis=1) & (table.parent[:n] != NONE)
    table.exact[table.parent[:n][inexact]] = False


def weights(spec: specs.Queue, resources: list[str]) -> list[float]:
    """Return a queue's weight for each resource; LEAST_WEIGHT instead of 0."""
    weight = spec.weight if isinstance(spec.weight, dict) else dict.fromkeys(resources, spec.weight or specs.LEAST_WEIGHT)
    return [weight.get(resource, 1.0) for resource in resources]


def amounts_of(amounts: specs.Quantities, percent: specs.Percent, resources: list[str], total: I64, fill: int) -> I64:
    """Return guarantees or limits, possibly in percent of the total, as an array with a column per resource."""
    found = vector(amounts, resources, fill)
    for column, name in enumerate(resources):
        part = percent.get(name, percent.get(specs.ALL))
        if part is not None and name not in amounts:
            found[column] = int(total[column]) * Fraction(repr(part)) // 100
    return found


def ticks_of(half_life: float) -> tuple[float, int]:
    """Return the seconds of a tick, and what is left after one, in 2**-32; (0, 0) for a half-life of 0: no history."""
    if not half_life:
        return 0.0, 0
    tick = max(SHORTEST_TICK_SECONDS, half_life / TICKS_PER_HALF_LIFE)
    return tick, round(FIXED_POINT_ONE * 2.0 ** (-tick / half_life))


def slurm_ticks_of(half_life: float) -> tuple[float, int]:
    """Like :func:`ticks_of`, by Slurm's formula: decay every five minutes, or every half-life if shorter."""
    tick = min(PERIOD, half_life)
    return tick, round(FIXED_POINT_ONE * fairtree.left_after(tick, half_life))
