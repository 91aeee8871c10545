"""The order: a cache of who is served next, built on demand from the tables and grown with them.

:mod:`fairlead.scheduler.kernel.view` describes its arrays.
"""

from typing import Any

import numpy as np

from fairlead.policies.codes import DIVIDED, HDRF, MESOS
from fairlead.scheduler.history import fine_digits
from fairlead.scheduler.kernel import scheduling, view
from fairlead.scheduler.kernel.scheduling import View
from fairlead.scheduler.records import Records
from fairlead.scheduler.tables import F64, I64, NONE, TABLES, longer

LARGEST_SCALED_WEIGHT = 2**40
"""Scaled weight of the heaviest of the siblings."""
MOST_OFFERS = 1000
"""Offers that one cycle makes at most."""


class Order:
    """Who is served next, kept from cycle to cycle. `moves` counts how often an array of it or the state was replaced."""

    def __init__(self, moves: list[int]) -> None:
        self.counts: I64 = np.zeros(view.COUNTS, np.int64)
        self._moves, self._seen = moves, -1
        self._view: Any = None
        self._reset(0, 0)

    def _reset(self, resources: int, depth: int) -> None:
        """Forget everything; allocate for this many resources and levels of queues."""
        moves = self._moves
        self.nodes, self.queues, self.groups = view.NodeCache(moves), view.QueueCache(moves), view.GroupCache(moves)
        self.shapes = view.ShapeCache(moves)
        self.queues.widen(resources)
        self.resources = resources
        self.divided = b""  # what the entitlements of divisions were computed from
        self.trees = np.zeros(0, view.NODE)
        self.cell_least = np.zeros((view.MOST_CELLS, resources), np.int64)
        self.cell_steps = np.full((resources, view.MOST_CELLS + 1), view.INFINITE)
        self.cell_sets = np.zeros((resources, view.MOST_CELLS + 1), np.int64)
        self.least = np.zeros((0, resources + view.LEAST_COLUMNS), np.int64)
        self.places = 0  # that are in use, of the nodes of all trees
        self.bounds = np.zeros((0, resources), np.int64)
        self.large_bounds = np.zeros((0, resources), np.int64)
        self.kinds, self.scarcity = np.zeros((0, resources)), np.zeros(resources)
        self.kinds_in, self.large_kinds_in = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self.counted, self.most = np.ones(resources, np.bool_), np.zeros(resources, np.int64)
        self.frames, self.caps = np.zeros(depth, view.FRAME), np.zeros((depth, resources + 2), np.int64)
        self.stack, self.tails = np.zeros(128 * depth, np.int64), np.zeros(view.TAILS_KEPT, view.TAILS)
        self.most_kept, self.fine = np.zeros(resources, np.int64), np.zeros(resources, np.int64)
        self._resize_plan(0)
        self.min_offer, self.offer_room = np.full(resources, view.INFINITE), np.zeros(resources, np.int64)
        self.offered_to, self.offered_rest = np.zeros((3, 0), np.int64), np.zeros((0, resources), np.int64)
        lists = view.TOUCHED_QUEUES, view.TOUCHED_GROUPS, view.FREED, view.OUT, view.LIMITED, view.MOVED
        self.counts[[*lists, view.HISTORY_MOVED, view.CELLS]] = 0
        moves[0] += 1

    def view(self, state: Records) -> Any:
        """What kernels see, as it is now."""
        counts = self.counts
        counts[view.NODES], counts[view.QUEUES], counts[view.GROUPS] = state.nodes.n, state.queues.n, state.groups.n
        if self._seen != self._moves[0]:
            self._view = self._make_view(state)
            self._seen = self._moves[0]
        return self._view

    def _make_view(self, s: Records) -> View:
        cache = {"node_cache": self.nodes, "queue_cache": self.queues, "group_cache": self.groups, "shape_cache": self.shapes}
        tables = {**{name: getattr(s, name) for name in TABLES}, **cache}
        return View(
            **{name: table.rows for name, table in tables.items()},
            **{name: getattr(table, name) for table in tables.values() for name in table.WIDE},
            **{name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}, **self.planned,
            times=s.times, grain=s.grain, masks=s.cluster.masks, total=s.cluster.total, ended=s.ended,
            histogram_places=s.histograms.places,
        )  # fmt: skip

    def _resize_plan(self, count: int) -> None:
        self.planned = {name: np.zeros(count, kind) for name, (kind, _) in view.PLANNED.items()}
        self._moves[0] += 1

    def invalidate(self) -> None:
        """Discard the order; it is rebuilt when next needed."""
        self.counts[view.IN_ORDER] = 0

    def ready(self, state: Records, most: int) -> Any:
        """Return what kernels see, after building the order if needed, with space for `most` placements."""
        if not self.counts[view.IN_ORDER]:
            self._build(state)
        if len(self.planned["planned_node"]) < most + 2 * self.largest_gang + state.nodes.n:
            self._resize_plan(most + 4 * self.largest_gang + 2 * state.nodes.n)
        if state.frameworks.members and not len(self.offered_rest):
            self.offered_to = np.zeros((3, MOST_OFFERS), np.int64)
            self.offered_rest = np.zeros((MOST_OFFERS, self.resources), np.int64)
            self._moves[0] += 1
        self.counts[view.LAST_OFFER] = state.frameworks.last_offer
        self.counts[view.NEWS] += 1
        return self.view(state)

    def _build(self, state: Records) -> None:
        """Build the order from the tables, with nothing known about free nodes."""
        queues, groups, counts = state.queues, state.groups, self.counts
        self._reset(len(state.resources), 2 + max((name.count("/") for name in state.tree.names), default=0) + 1)
        parents, leaf = queues.parent[1 : queues.n], groups.leaf[: groups.n]
        children = np.bincount(parents, minlength=queues.n) + np.bincount(leaf, minlength=queues.n)
        slots = 2 ** np.ceil(np.log2(np.maximum(2, children))).astype(np.int64)

        self.nodes.extend(state.nodes.n)
        self.shapes.extend(state.shapes.n)
        self.shapes.cycle[:] = self.shapes.cell[:] = NONE
        cache = self.queues
        cache.extend(queues.n)
        cache.children[: queues.n], cache.slots[: queues.n], cache.limited[: queues.n] = children, slots, NONE
        cache.inner[parents] = cache.inner[0] = True
        counts[view.LAST_INNER], counts[view.RANKED] = parents.max(initial=0), queues.priority_revokes[: queues.n].sum()
        cache.base[: queues.n] = np.concatenate([[0], np.cumsum(2 * slots)[:-1]])
        cache.slot[1 : queues.n] = _numbered(parents)
        by_count = (queues.policy[queues.parent[: queues.n]] == MESOS) & (queues.parent[: queues.n] != NONE)
        turn = np.where(queues.owed[: queues.n] > 0, -queues.owed[: queues.n], queues.served[: queues.n])
        cache.last_served[: queues.n] = np.where(by_count, queues.allocations[: queues.n], turn)
        for name, least in view.MIN_OFFER.items():
            if name in state.resources:
                self.min_offer[state.resources.index(name)] = least
        np.maximum.at(cache.largest, parents, queues.weight[1 : queues.n])
        cache.scaled_weight[1 : queues.n] = _scaled_weights(queues.weight[1 : queues.n], cache.largest[parents])
        self.fine[:] = fine_digits(np.maximum(state.cluster.total, queues.used[: queues.n].max(axis=0)), state.grain)
        self._allocate_slots(int(slots.sum()))
        mine = self.groups
        mine.extend(groups.n)
        mine.cycle[:] = mine.stop_cycle[:] = mine.lasts_job[:] = NONE
        alike = _morton_order(state.shapes.demand[groups.shape_row[: groups.n]])
        mine.slot[alike] = _numbered(leaf[alike])
        for group in state.holds.group[: counts[view.HOLDS]]:
            mine.keeping[group] = cache.keeping[leaf[group]] = True
        self.largest_gang = int(groups.gang[: groups.n].max(initial=0))

        policy = queues.policy[: queues.n]
        counts[view.HDRF_SOMEWHERE], counts[view.DIVIDED_SOMEWHERE] = (policy == HDRF).any(), (policy == DIVIDED).any()
        counts[view.IN_ORDER] = 1
        state.times[[view.CLAIM_DUE, view.OFFER_WAKE, view.FUNDED]] = -np.inf, np.inf, -np.inf
        blocks = -(-state.nodes.n // view.BLOCK)
        self.bounds = np.zeros((blocks, self.resources), np.int64)
        self.large_bounds = np.zeros((-(-blocks // view.BLOCK), self.resources), np.int64)
        self._find_kinds(state)
        v = self.view(state)
        scheduling.mark_hopeless(v)
        scheduling.set_bounds(v)
        scheduling.rebuild(v)

    def _find_kinds(self, state: Records) -> None:
        """Group nodes that have about the same of each resource, where they have any that is scarce.

        About: as parts of the largest node, rounded up to a half, a quarter, an eighth, and so on.
        """
        nodes, count = state.nodes, state.nodes.n
        capacity, up = nodes.capacity[:count], nodes.up[:count]
        has, largest = np.asarray(capacity > 0), capacity[up].max(axis=0, initial=0)
        scarce = has[up].any(axis=0) & ~has[up].all(axis=0)
        sign = 1.0 if scarce.any() else -1.0
        scarce |= sign < 0.0
        self.scarcity = scarce * sign / np.maximum(1.0, capacity[up].sum(axis=0))
        halvings = np.maximum(0, np.frexp(largest // np.maximum(1, capacity))[1] - 1)
        halvings *= has[:, scarce].any(axis=1, keepdims=True)
        kind = np.zeros(count, np.int64)
        for column in (has * (1 + halvings)).T:
            kind = np.unique(64 * kind + column, return_inverse=True)[1]
        self.nodes.kind[:count] = kind = np.minimum(kind, view.MAX_KINDS - 1)
        self.kinds = np.zeros((kind.max(initial=-1) + 1, self.resources))
        np.maximum.at(self.kinds, kind, has * np.ldexp(largest.astype(float), -halvings))
        bits = 1 << self.nodes.kind[:count]
        self.kinds_in = np.bitwise_or.reduceat(bits, np.arange(0, count, view.BLOCK)) if count else bits
        self.large_kinds_in = np.bitwise_or.reduceat(bits, np.arange(0, count, view.BLOCK * view.BLOCK)) if count else bits
        self._moves[0] += 1

    def add_shape(self) -> None:
        if self.counts[view.IN_ORDER]:
            row = self.shapes.extend(1)
            self.shapes.cycle[row] = self.shapes.cell[row] = NONE

    def add_group(self, state: Records, group: int) -> None:
        """Give a new group a slot among those of its leaf."""
        if self.counts[view.IN_ORDER]:
            leaf, mine = int(state.groups.leaf[group]), self.groups
            mine.extend(1)
            mine.cycle[group] = mine.stop_cycle[group] = mine.lasts_job[group] = NONE
            mine.slot[group] = self._take_slot(leaf)
            shape, gang = state.groups.shape_row[group], int(state.groups.gang[group])
            mine.hopeless[group] = not scheduling.could_ever_hold(self.view(state), shape, max(1, gang))
            self.largest_gang = max(self.largest_gang, gang)
            if self.queues.children[leaf] > self.queues.slots[leaf]:
                self._grow_tree(state, leaf)

    def add_queue(self, state: Records, row: int) -> None:
        """Give a new queue a slot among its siblings."""
        parent, cache = int(state.queues.parent[row]), self.queues
        fits, weight = len(self.frames) > state.tree.names[row].count("/") + 2, state.queues.weight[row]
        if self.counts[view.IN_ORDER] and fits and cache.inner[parent] and (weight <= cache.largest[parent]).all():
            cache.extend(1)
            cache.scaled_weight[row] = _scaled_weights(weight, cache.largest[parent])
            cache.limited[row] = NONE
            self.counts[view.RANKED] += state.queues.priority_revokes[row]
            cache.slot[row] = self._take_slot(parent)
            cache.slots[row], cache.base[row] = 2, self._allocate_slots(2)
            if cache.children[parent] > cache.slots[parent]:
                self._grow_tree(state, parent)
        else:
            self.invalidate()

    def _take_slot(self, queue: int) -> int:
        self.queues.children[queue] += 1
        return int(self.queues.children[queue]) - 1

    def _allocate_slots(self, slots: int) -> int:
        """Allocate a tree of this many slots; returns its base."""
        base = self.places
        self.places += 2 * slots
        if self.places > len(self.trees):
            self._resize_trees(base, 2 * self.places)
        return base

    def _resize_trees(self, used: int, length: int) -> None:
        """Resize the arrays of all trees' nodes, keeping the first `used`."""
        self.trees, least = longer(self.trees, used, length), self.least[:used]
        self.trees["best"][used:] = NONE
        self.least = np.full((length, self.resources + view.LEAST_COLUMNS), view.INFINITE)
        self.least[:used] = least
        self._moves[0] += 1

    def _grow_tree(self, state: Records, queue: int) -> None:
        """Move a queue's tree to twice the space."""
        slots = 2 * int(self.queues.slots[queue])
        self.queues.base[queue], self.queues.slots[queue] = self._allocate_slots(slots), slots
        v = self.view(state)
        if self.queues.inner[queue]:
            for child in np.flatnonzero(state.queues.parent[: state.queues.n] == queue).tolist():
                scheduling.set_queue(v, child)
        else:
            mine = np.flatnonzero(state.groups.leaf[: state.groups.n] == queue)
            mine = mine[_morton_order(state.shapes.demand[state.groups.shape_row[mine]])]
            self.groups.slot[mine] = np.arange(len(mine))
            for group in mine.tolist():
                scheduling.set_group(v, group)
            scheduling.touch_queue(v, queue)  # its touched groups are set already


def _scaled_weights(weight: F64, largest: F64) -> I64:
    """Scale weights to integers, of which 100,000 can be added up."""
    return np.maximum(1, np.rint(weight / largest * LARGEST_SCALED_WEIGHT)).astype(np.int64)


def _numbered(groups: I64) -> I64:
    """Number the members of each group from 0, in their order."""
    found = np.empty(len(groups), np.int64)
    if len(groups):
        order = np.argsort(groups, kind="stable")
        sizes = np.bincount(groups)
        found[order] = np.arange(len(groups)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return found


def _morton_order(demand: I64) -> I64:
    """Sort demands by Morton code, so that neighbours are similar in each resource.

    The least demand of a subtree prunes more if its members are similar. Affects speed only.
    """
    if not demand.size:
        return np.arange(len(demand))
    scaled = (demand / np.maximum(1, demand.max(axis=0)) * 255).astype(np.int64)
    code = np.zeros(len(demand), np.int64)
    for bit in range(7, -1, -1):
        for r in range(min(7, demand.shape[1])):
            code = 2 * code + (scaled[:, r] >> bit & 1)
    return np.argsort(code, kind="stable")
