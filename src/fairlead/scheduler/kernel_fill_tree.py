"""Dominant Resource Fairness divided down a tree of queues, each of which may have weights, guarantees and limits.

All levels (dominant shares over weights) rise together from one event to the next: at each inner queue the lowest of the children
that can still rise do so, those below a guarantee of something that they need before the others. What happens between is linear:

- a leaf has all that it can use, a queue is at a limit, or a resource is used up: whoever needs it is blocked;
- a queue has what it is guaranteed;
- a queue that waited is reached by its siblings;
- another resource becomes the dominant one of an inner queue.

It is what :mod:`fairlead.policies.tree_filling` divides for the naive tree, with weights, guarantees and limits at all levels; in
floating point, and compiled. Each event looks at all queues, so it takes O(queues² x resources): milliseconds for hundreds.
"""

from typing import ClassVar

import numpy as np

from fairlead.kernel_cache import compiled
from fairlead.scheduler.compiled_view import Arrays
from fairlead.scheduler.tables import fields

CLOSE = 1e-11
"""What differs by less, in parts of the larger, is the same."""
ROOT = 0


class Tree(Arrays):
    """What is divided among whom; rows are queues, parents before their children, the root first.

    queues
        parent : row; -1 for the root. first, last : its children are `children[first:last]`
        most : tasks that a leaf can use; finite. tasks : that it has. speed : tasks a level; 0: not a leaf that takes part
        level : weighted dominant share. climb : how that changes in a unit of the queue's time: 1, or 0 while it stands
        pace : how much time passes for its children that rise in a unit of its own. rate : of its time in one of the root's
        low : the level of its children that rise; infinite where they rise alone because it stands
        free : it may rise yet. rising : it does among its siblings. below : it has less than it is guaranteed of what it needs.
        promised : some child is below
    demand : of one task of a leaf; zeros for inner queues
    weight, guarantee, bound : shape (queues, resources); a bound is infinite where there is none, the root's is what there is
    used, growth : what it uses, and how that grows in a unit of its time
    needs : how many leaves below it that may rise need what
    capacity : shape (resources,): what shares are parts of; infinite for what has no share
    """

    ARRAYS: ClassVar = {
        "queues": (fields(
            parent="i8", first="i8", last="i8", most="f8", tasks="f8", speed="f8", level="f8", climb="f8", pace="f8", rate="f8",
            low="f8", free="?", rising="?", below="?", promised="?",
        ), 1),
        "demand": ("f8", 2), "weight": ("f8", 2), "guarantee": ("f8", 2), "bound": ("f8", 2), "used": ("f8", 2),
        "growth": ("f8", 2), "needs": ("i8", 2), "capacity": ("f8", 1), "children": ("i8", 1),
    }  # fmt: skip


@compiled
def fill_tree(t: Tree) -> bool:
    """Give all leaves their tasks. Returns whether it came to an end, as it does but for a fault of its own."""
    n, m = t.demand.shape
    _begin(t)
    _block_what_is_reached(t)
    for _ in range(20 * n * (m + 2) + 100):
        if not t.queues.free[ROOT]:
            return True
        for q in range(n - 1, -1, -1):
            t.queues.below[q] = t.queues.free[q] and _is_below(t, q)
            if t.queues.free[q]:
                _look(t, q)
        t.queues.rate[ROOT] = 1.0
        for q in range(1, n):
            up = t.queues.parent[q]
            rises = t.queues.free[q] and t.queues.rising[q]
            t.queues.rate[q] = t.queues.rate[up] * t.queues.pace[up] if rises else 0.0
        _pass(t, _next_event(t))
        _block_what_is_reached(t)
    return False


@compiled
def _begin(t: Tree) -> None:
    """Set the leaves' speeds, and count who needs what."""
    n, m = t.demand.shape
    for leaf in range(n):
        share, hopeless = 0.0, False
        for r in range(m):
            if t.demand[leaf, r] > 0:
                hopeless |= t.capacity[r] == 0
                share = max(share, _share(t, leaf, r, t.demand[leaf, r]))
        if share > 0 and not hopeless and t.queues.most[leaf] > 0:
            t.queues.speed[leaf] = 1 / share
            q = leaf
            while q >= 0:
                t.queues.free[q] = True
                for r in range(m):
                    t.needs[q, r] += t.demand[leaf, r] > 0
                q = t.queues.parent[q]


@compiled
def _share(t: Tree, q: int, r: int, amount: float) -> float:
    return amount / t.capacity[r] / t.weight[q, r] if t.capacity[r] > 0 else 0.0


@compiled
def _is_below(t: Tree, q: int) -> bool:
    """Whether a queue has less than it is guaranteed of something that it needs."""
    for r in range(t.capacity.shape[0]):
        if t.needs[q, r] > 0 and t.used[q, r] < t.guarantee[q, r] * (1 - CLOSE):
            return True
    return False


@compiled
def _look(t: Tree, q: int) -> None:
    """Work out a queue's level, and how it and what the queue uses grow in one unit of its time; its children's are known."""
    m = t.capacity.shape[0]
    if t.queues.speed[q] > 0:
        t.queues.level[q], t.queues.climb[q] = t.queues.tasks[q] / t.queues.speed[q], 1.0
        for r in range(m):
            t.growth[q, r] = t.demand[q, r] * t.queues.speed[q]
        return
    _choose_rising(t, q)
    level = 0.0
    for r in range(m):
        level = max(level, _share(t, q, r, t.used[q, r]))
        t.growth[q, r] = 0.0
    for k in range(t.queues.first[q], t.queues.last[q]):
        c = t.children[k]
        if t.queues.free[c] and t.queues.rising[c]:
            for r in range(m):
                t.growth[q, r] += t.growth[c, r]
    fastest = 0.0
    for r in range(m):
        if _share(t, q, r, t.used[q, r]) >= level * (1 - CLOSE):
            fastest = max(fastest, _share(t, q, r, t.growth[q, r]))
    t.queues.level[q] = level
    t.queues.climb[q] = 1.0 if fastest > 0 else 0.0
    t.queues.pace[q] = 1 / fastest if fastest > 0 else 1.0
    for r in range(m):
        t.growth[q, r] *= t.queues.pace[q]


@compiled
def _choose_rising(t: Tree, q: int) -> None:
    """Of a queue's children the lowest rise, of those below a guarantee if there are any; those whose level stands, alone."""
    first, last = t.queues.first[q], t.queues.last[q]
    promised, lowest, standing = False, np.inf, False
    for k in range(first, last):
        promised |= t.queues.below[t.children[k]]
    for k in range(first, last):
        c = t.children[k]
        if t.queues.free[c] and t.queues.below[c] == promised:
            lowest = min(lowest, t.queues.level[c])
    for k in range(first, last):
        c = t.children[k]
        eligible = t.queues.free[c] and t.queues.below[c] == promised
        t.queues.rising[c] = eligible and t.queues.level[c] <= lowest * (1 + CLOSE)
        standing |= t.queues.rising[c] and t.queues.climb[c] == 0
    for k in range(first, last):
        c = t.children[k]
        if standing and t.queues.climb[c] > 0:
            t.queues.rising[c] = False
    t.queues.promised[q], t.queues.low[q] = promised, np.inf if standing else lowest


@compiled
def _next_event(t: Tree) -> float:
    """The time until something else happens than that all rise."""
    n, m = t.demand.shape
    step = np.inf
    for q in range(n):
        rate, level, climb = t.queues.rate[q], t.queues.level[q], t.queues.climb[q]
        if rate > 0 and t.queues.speed[q] > 0:
            step = min(step, (t.queues.most[q] - t.queues.tasks[q]) / (t.queues.speed[q] * rate))
        for r in range(m):
            grows, used = t.growth[q, r] * rate, t.used[q, r]
            if rate <= 0 or grows <= 0:
                continue
            if t.bound[q, r] < np.inf:
                step = min(step, (t.bound[q, r] - used) / grows)
            if t.queues.below[q] and used < t.guarantee[q, r] * (1 - CLOSE):
                step = min(step, (t.guarantee[q, r] - used) / grows)
            share, slope = _share(t, q, r, used), _share(t, q, r, t.growth[q, r])
            if t.queues.speed[q] == 0 and share < level * (1 - CLOSE) and slope > climb * (1 + CLOSE):
                step = min(step, (level - share) / ((slope - climb) * rate))
        up = t.queues.parent[q]
        waits = up >= 0 and t.queues.free[q] and not t.queues.rising[q]
        if waits and t.queues.below[q] == t.queues.promised[up] and t.queues.rate[up] > 0 and level > t.queues.low[up]:
            step = min(step, (level - t.queues.low[up]) / (t.queues.rate[up] * t.queues.pace[up]))
    return max(step, 0.0)


@compiled
def _pass(t: Tree, step: float) -> None:
    """Let so much of the root's time pass."""
    n, m = t.demand.shape
    for q in range(n):
        passed = t.queues.rate[q] * step
        if passed > 0:
            for r in range(m):
                t.used[q, r] += t.growth[q, r] * passed
            t.queues.tasks[q] += t.queues.speed[q] * passed


@compiled
def _block_what_is_reached(t: Tree) -> None:
    """Block the leaves that have all they can use, or need what a queue above them may have no more of."""
    n, m = t.demand.shape
    for leaf in range(n - 1, -1, -1):
        if not t.queues.free[leaf] or t.queues.speed[leaf] == 0:
            continue
        blocked = t.queues.tasks[leaf] >= t.queues.most[leaf] * (1 - CLOSE)
        q = leaf
        while q >= 0 and not blocked:
            for r in range(m):
                blocked |= t.demand[leaf, r] > 0 and t.used[q, r] >= t.bound[q, r] * (1 - CLOSE)
            q = t.queues.parent[q]
        q = leaf
        while q >= 0 and blocked:
            least = np.int64(0)
            for r in range(m):
                t.needs[q, r] -= t.demand[leaf, r] > 0
                least = max(least, t.needs[q, r])
            t.queues.free[q] = least > 0
            q = t.queues.parent[q]
