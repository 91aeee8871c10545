"""An event model of promises: *debt, paid from a budget*: the prototype. Patience, savings and gangs came with the kernel.

For each leaf q, with resources r, in parts of the cluster's capacity:

    level   L = max((P + H) / W, (P - S + H') / W')     among the children of one queue, for each resource
            P: the parent's part; W: weights of the active children, W': of those with something unplaced;
            H, H': what these are charged for past use; S: what the children with nothing unplaced use
    part    p(q) = L * w(q) - h(q), h(q) <= e(q) / 2: past use is repaid, and never takes more than half
    lack    l(q) = least of p(q) - u(q) over the resources of its oldest task that cannot be placed; where that is
            not above 0, the same with only the use of jobs that are not behind it, at most its size
    debt    d(q) grows by l(q) dt while l(q) < 0 or such a task waits; never below 0; 0 for an idle queue
    owed    l(q), and one task more if d(q) >= its size times its median duration, less what is reserved for q, is above 0
    cost    of a reservation: the idleness expected until its start, of each resource
    paid    if spent(last day) + the cost outstanding + cost <= B * capacity * day, of each resource

A leaf that is owed, and whose turn fails, gets a reservation at once, within the cycle, if it can be paid. Only ends of
tasks count towards its start whose queues would not take the room back: not those that lack something, nor the owner.
Reservations rank by debt: a leaf that cannot have one takes over that of a leaf that is owed less, if its task fits in there.
A reservation ends when its task starts in it, or its queue is not owed any more; never by time or by being served elsewhere.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.promises_cluster import DAY, EPS, Cluster, Job, Queue, Task, World

SLOTS = 24  # of the day's window over what is spent
CAUTIOUS = 0.9
RETRY = 0.1  # until planning is tried again, of the time that the leaf has been owed
MOST = 64  # reservations


@dataclass
class Rules:
    """How reservations are made: promises of debt, EASY's for the first in line, or none."""

    kind: str = "debt"  # none, easy, debt
    order: str = "fair"  # fifo: oldest job first
    truth: bool = False  # durations are known
    budget: float = 0.02


@dataclass(eq=False)
class Reservation:
    leaf: int
    group: Any
    nodes: dict[int, int]
    start: float
    cost: list[float]
    apart: set[int]
    planned: float
    debt: float = 0.0
    overdraft: bool = False
    idles: list[float] = field(default_factory=list)


class Model(Cluster):
    """Serves queues in turn, and reserves by the rules; `idle`, `plans` and `watch` are what it measured."""

    def __init__(self, world: World, rules: Rules) -> None:
        super().__init__(world)
        m, self.rules = self.m, rules
        self.holds: dict[int, list[Reservation]] = {}  # by node
        self.reserved: list[Reservation] = []
        self.freed: set[int] = set()  # nodes with new room in this cycle
        self.spent = [[0.0] * m for _ in range(SLOTS + 1)]
        self.slot, self.closed = 0, 0.0
        self.idle_rate, self.plans = [0.0] * m, 0
        self.idle, self.idle_log = [0.0] * m, [(0.0, [0.0] * m)]

    def decide(self) -> None:
        self._cycle()
        for _ in range(2):  # what was kept, and is not any more
            if self.dirty:
                self._cycle()

    def pay(self, at: float) -> None:
        dt = at - self.now
        slot = int(at / (DAY / SLOTS))
        if slot > self.slot:
            for _ in range(min(slot - self.slot, SLOTS + 1)):
                self.spent.append([0.0] * self.m)
                self.spent.pop(0)
            self.slot = slot
        for r, rate in enumerate(self.idle_rate):
            self.spent[-1][r] += rate * dt
            self.idle[r] += rate * dt
        if any(self.idle_rate):
            for r in self.reserved:
                r.cost = [max(0.0, c - x * dt) for c, x in zip(r.cost, r.idles, strict=True)]
        if at - self.idle_log[-1][0] >= 900:
            self.idle_log.append((at, list(self.idle)))

    def expected(self, leaf: Queue, job: Job, node: int, lasts: float) -> float:
        if node not in self.holds:
            return math.inf
        found = lasts if self.rules.truth else self._lasts(leaf, 0.0, CAUTIOUS, job)
        return math.inf if found is None else found

    # --- the cycle ---

    def _cycle(self) -> None:
        self._set_parts()
        self._review()
        self.freed, self.dirty = self.dirty, set()
        for q in reversed(self.queues):
            if q.groups:
                self._line_up(q)
            q.open = bool(q.groups) or any(child.open for child in q.children)
        first = True
        while True:
            leaf = self._next_fifo() if self.rules.order == "fifo" else self._next(self.queues[0])
            if leaf is None:
                break
            group = leaf.line[0][1]
            nodes = self._find(leaf, group)
            if nodes is not None:
                heapq.heappop(leaf.line)
                self._serve(leaf, group, nodes)
                if group in leaf.groups:
                    heapq.heappush(leaf.line, (leaf.groups[group][0].number, group))
            elif self.rules.kind == "debt" and not leaf.blocked and self._owe(leaf, group):
                continue
            else:
                if self.rules.kind == "easy" and first:
                    self._keep_for_first(leaf, group)
                first = False
                leaf.blocked = True
                leaf.parked.add(group)
                heapq.heappop(leaf.line)
            if not leaf.line:
                self._close(leaf)
        self._count_idle()

    def _line_up(self, leaf: Queue) -> None:
        """Line up a leaf's groups by their oldest job: that first in line, and those that may fit on a freed node."""
        leaf.blocked = False
        most = self.free[list(self.freed)].max(axis=0).tolist() if self.freed else [0.0] * self.m
        heads = [(jobs[0].number, group) for group, jobs in leaf.groups.items()]
        oldest = min(heads, key=lambda head: head[0])
        leaf.line = [
            head
            for head in heads
            if head is oldest or head[1] not in leaf.parked or all(d <= x for d, x in zip(head[1][0], most, strict=True))
        ]
        heapq.heapify(leaf.line)

    def _next_fifo(self) -> Queue | None:
        heads = [(leaf.line[0][0], leaf) for leaf in self.leaves.values() if leaf.open]
        return min(heads, key=lambda head: head[0])[1] if heads else None

    # --- placing ---

    def _find(self, leaf: Queue, group: Any) -> dict[int, int] | None:
        """Return where a group's next task or gang goes: first its full reservation, then open room, then what is kept."""
        demand, gang, allowed = group
        own = [r for r in self.reserved if r.leaf == leaf.row and r.group == group]
        for r in own:
            if not any(self._awaited(n, r) for n in r.nodes) and self._is_there(r):
                return self._take(r)
        lasts = self._lasts(leaf, 0.0, CAUTIOUS, leaf.groups[group][0])
        until = math.inf if lasts is None else self.now + lasts
        if self.rules.truth:
            job = leaf.groups[group][0]
            until = self.now + float(max(job.durations) if gang else job.durations[job.begun % len(job.durations)])
        found = self._open(demand, gang or 1, allowed, until, group in leaf.parked)
        if found is not None:
            return found
        for r in own:
            if self._is_there(r):
                return self._take(r)
        return None

    def _open(self, demand: Any, count: int, allowed: Any, until: float, parked: bool) -> dict[int, int] | None:
        """Return open room for tasks on the fullest nodes; of a parked group only freed nodes are looked at."""
        if parked and not self.freed:
            return None
        if parked and count == 1:
            rows = [n for n in self.freed if all(f >= d for f, d in zip(self.free[n].tolist(), demand, strict=True))]
        else:
            rows = np.flatnonzero((self.free >= demand).all(axis=1)).tolist()
        found, left = {}, count
        for n in sorted(rows, key=lambda n: (sum(f / c for f, c in zip(self.free[n].tolist(), self.capacity, strict=True)), n)):
            if allowed is None or n in allowed:
                room = self.free[n].tolist()
                if n in self.holds:
                    room = [f - k for f, k in zip(room, self._kept(n, until), strict=True)]
                fits = min(left, self._fits(room, demand))
                if fits > 0:
                    found[n] = fits
                    left -= fits
                    if left == 0:
                        return found
        return None

    @staticmethod
    def _fits(room: list[float], demand: Any) -> int:
        return int(min((x + EPS) // d for x, d in zip(room, demand, strict=True) if d > 0))

    def _awaited(self, n: int, r: Reservation) -> list[float] | None:
        """Return what running tasks of a node are counted on to give back by a reservation's start; None: nothing."""
        back = None
        for task in self.running[n]:
            if task.due <= r.start and task.leaf not in r.apart:
                back = [x + y for x, y in zip(back, task.job.demand, strict=True)] if back else list(task.job.demand)
        return back

    def _kept(self, n: int, until: float, before: Reservation | None = None) -> list[float]:
        """Return what a task that ends by `until`, or one that starts in a reservation, must leave free on a node."""
        most = [0.0] * self.m
        holds = self.holds.get(n, [])
        if before is not None:
            holds = [
                h
                for h in holds
                if h is not before and (h.start, -h.debt, h.planned) < (before.start, -before.debt, before.planned)
            ]
        for h in holds:
            if h.start < until:
                back = self._awaited(n, h)
                for r in range(self.m):
                    need = sum(k.nodes[n] * k.group[0][r] for k in holds if k.start <= h.start)
                    most[r] = max(most[r], need - (back[r] if back else 0.0))
        return most

    def _is_there(self, r: Reservation) -> bool:
        for n, count in r.nodes.items():
            kept = self._kept(n, math.inf, r)
            if any(d > 0 and self.free[n][i] - kept[i] + EPS < count * d for i, d in enumerate(r.group[0])):
                return False
        return True

    def _take(self, r: Reservation) -> dict[int, int]:
        self._drop(r)
        return r.nodes

    def _drop(self, r: Reservation) -> None:
        self.reserved.remove(r)
        for n in r.nodes:
            self.holds[n].remove(r)
            if not self.holds[n]:
                del self.holds[n]
            self.dirty.add(n)

    def _add(self, r: Reservation) -> None:
        self.reserved.append(r)
        for n in r.nodes:
            self.holds.setdefault(n, []).append(r)
        self._push(r.start + 1e-6, 2, None)

    def _serve(self, leaf: Queue, group: Any, nodes: dict[int, int]) -> None:
        self._start(leaf, group, nodes)
        q: Queue | None = leaf
        while q is not None:
            self._set_key(q)
            q = q.parent
        self._set_lack(leaf)

    # --- reservations ---

    def _lasts(self, leaf: Queue, age: float, odds: float, job: Job | None = None) -> float | None:
        """Return a duration by the job's own tasks, else its queue's, else all."""
        if job is not None and job.seen is not None and len(job.seen.seen) >= 4:
            return job.seen.lasts(age, odds)
        found = leaf.times.lasts(age, odds)
        return found if found is not None else self.seen.lasts(age, odds)

    def _due(self, task: Task, odds: float) -> float:
        if self.rules.truth:
            return task.ends
        if self.now < task.due < math.inf:
            return task.due
        age = self.now - task.began
        lasts = self._lasts(self.queues[task.leaf], age, odds, task.job)
        return math.inf if lasts is None else self.now + max(1.0, lasts - age)

    def _ends(self, n: int, apart: set[int]) -> list[tuple[float, Task]]:
        """Return the expected ends on a node, so that all are over in time by even odds."""
        tasks = self.running[n]
        odds = 0.5 ** (1 / max(1, len(tasks)))
        return sorted(((self._due(t, odds), t) for t in tasks if t.leaf not in apart), key=lambda x: x[0])

    def _plan(self, leaf: Queue, group: Any, apart: set[int]) -> Reservation | None:
        """Return the earliest reservation of a group's next task or gang beside all others, with its cost."""
        self.plans += 1
        demand, gang, allowed = group
        wanted = gang or 1
        steps, rooms = [], {}
        for n in np.flatnonzero((self.size >= demand).all(axis=1)).tolist():
            if allowed is not None and n not in allowed:
                continue
            room = self.free[n].tolist()
            for h in self.holds.get(n, ()):
                room = [x - h.nodes[n] * d for x, d in zip(room, h.group[0], strict=True)]
            rooms[n] = (room, self._ends(n, apart))
            at, fits, left = self.now, 0, list(room)
            for due, task in [(self.now, None), *rooms[n][1]]:
                if due == math.inf or fits == wanted:
                    break
                if task is not None:
                    at, left = due, [x + d for x, d in zip(left, task.job.demand, strict=True)]
                more = min(wanted, self._fits(left, demand))
                if more > fits:
                    steps.append((at, more - fits, n))
                    fits = more
        if wanted == 1:
            best = None
            for at, _, n in steps:
                cost = [0.0] * self.m
                self._add_cost(cost, rooms[n], 1, demand, at)
                loss = max(c / x for c, x in zip(cost, self.capacity, strict=True)) + self._size(group) * (at - self.now)
                if best is None or (loss, n) < best[:2]:
                    best = (loss, n, at, cost)
            return best and Reservation(leaf.row, group, {best[1]: 1}, best[2], best[3], apart, self.now, leaf.debt)
        steps.sort(key=lambda s: (s[0], s[2]))
        nodes: dict[int, int] = {}
        for at, more, n in steps:
            nodes[n] = nodes.get(n, 0) + min(more, wanted)
            wanted -= min(more, wanted)
            if wanted == 0:
                cost = [0.0] * self.m
                for k, count in nodes.items():
                    self._add_cost(cost, rooms[k], count, demand, at)
                return Reservation(leaf.row, group, nodes, at, cost, apart, self.now, leaf.debt)
        return None

    def _add_cost(self, cost: list[float], room: Any, count: int, demand: Any, start: float) -> None:
        """Add the idleness that is expected of a node until a reservation's start."""
        left, before = list(room[0]), self.now
        for due, task in [*room[1], (math.inf, None)]:
            until = min(due, start)
            for r, d in enumerate(demand):
                cost[r] += max(0.0, min(left[r], count * d)) * (until - before)
            before = until
            if due >= start:
                break
            left = [x + y for x, y in zip(left, task.job.demand, strict=True)]

    def _apart(self, leaf: Queue) -> set[int]:
        """Return the leaves that would take room back that their tasks leave: the owner, and who is owed."""
        return {q.row for q in self.leaves.values() if q is leaf or (q.lack > EPS and q.waits)}

    def _make_plan(self, leaf: Queue, group: Any) -> Reservation | None:
        return self._plan(leaf, group, self._apart(leaf)) or self._plan(leaf, group, set())

    def _lacks(self, leaf: Queue) -> float:
        """Return what a leaf lacks beyond what is reserved for it."""
        return self._due_to(leaf) - sum(self._size(r.group) for r in self.reserved if r.leaf == leaf.row)

    def _due_to(self, leaf: Queue) -> float:
        """Return what a leaf lacks, and one more task where it is owed what that takes."""
        if leaf.groups:
            group = self._oldest(leaf)
            lasts = self._lasts(leaf, 0.0, 0.5) or math.inf
            if leaf.debt >= self._size(group) * lasts:
                return max(leaf.lack, 0.0) + self._size(group)
        return leaf.lack

    def _left(self, r: int) -> float:
        """Return what may be spent of a resource: the budget less what was spent in the last day, and what is outstanding."""
        spent = sum(slot[r] for slot in self.spent)
        return self.rules.budget * self.capacity[r] * DAY - spent - sum(x.cost[r] for x in self.reserved)

    def _owe(self, leaf: Queue, group: Any) -> bool:
        """Make a reservation for a group whose turn failed, if its leaf is owed and it can be paid."""
        own = [r for r in self.reserved if r.leaf == leaf.row]
        waiting = 1 if group[1] else sum(job.tasks - job.begun for job in leaf.groups[group])
        if len(own) >= waiting or len(self.reserved) >= MOST or self._lacks(leaf) <= EPS:
            return False
        if self.now < leaf.retry:
            return self._take_over(leaf, group)
        r = self._make_plan(leaf, group)
        if r is None or r.start <= self.now:
            leaf.retry = self.now + max(10.0, RETRY * (self.now - leaf.since))
            return self._take_over(leaf, group)
        short = max((c - self._left(i)) / self.capacity[i] for i, c in enumerate(r.cost))
        if short > 0:
            if leaf.running or any(x.overdraft for x in self.reserved) or self.now < self.closed or any(map(any, self.spent)):
                leaf.retry = self.now + max(10.0, RETRY * (self.now - leaf.since))
                return self._take_over(leaf, group)
            r.overdraft = True
            self.closed = self.now + max(c / (self.rules.budget * x) for c, x in zip(r.cost, self.capacity, strict=True))
        self._hold(r)
        return True

    def _take_over(self, leaf: Queue, group: Any) -> bool:
        """Take the first reservation over from a leaf that is owed less, if the group's next task fits in there."""
        if group[1]:
            return False
        for r in sorted(self.reserved, key=lambda r: r.start):
            if r.debt < leaf.debt and r.leaf != leaf.row and not r.group[1] and self._suits(group, r):
                self._drop(r)
                self._add(Reservation(leaf.row, group, r.nodes, r.start, r.cost, r.apart, r.planned, leaf.debt, r.overdraft))
                return True
        return False

    def _suits(self, group: Any, r: Reservation) -> bool:
        """Return True if a task of a group fits in what is kept."""
        return all(x <= y for x, y in zip(group[0], r.group[0], strict=True)) and (group[2] is None or r.nodes.keys() <= group[2])

    def _hold(self, r: Reservation) -> None:
        for n in r.nodes:
            for due, task in self._ends(n, r.apart):
                task.due = due
        self._add(r)

    def _review(self) -> None:
        """End what is over, pass it on, and plan again what is late, the most-owed first."""
        if self.rules.kind == "easy":
            for r in list(self.reserved):
                self._drop(r)
            return
        for r in self.reserved:
            r.debt = self.queues[r.leaf].debt
        covered: dict[int, float] = defaultdict(float)
        counted: dict[int, int] = defaultdict(int)
        for r in sorted(self.reserved, key=lambda r: r.start):
            q = self.queues[r.leaf]
            counted[r.leaf] += 1
            waiting = sum(job.tasks - job.begun for job in q.groups.get(r.group, ()))
            if self._due_to(q) - covered[r.leaf] <= EPS or waiting < (r.group[1] or counted[r.leaf]):
                self._drop(r)
            else:
                covered[r.leaf] += self._size(r.group)
        self.reserved.sort(key=lambda r: (-r.debt, r.planned))
        for r in list(self.reserved):
            if self.now > r.start and self.now >= r.planned + 1 and not self._is_there(r):
                self._drop(r)
                again = self._make_plan(self.queues[r.leaf], r.group)
                if again is not None and again.start > self.now:
                    again.overdraft = r.overdraft
                    self._hold(again)
        self.reserved.sort(key=lambda r: (-r.debt, r.planned))
        for r in list(reversed(self.reserved)):
            if not r.overdraft and any(self._left(i) < -EPS for i in range(self.m)):
                self._drop(r)

    def _keep_for_first(self, leaf: Queue, group: Any) -> None:
        r = self._plan(leaf, group, set())
        if r is not None and r.start > self.now:
            self._hold(r)

    def _count_idle(self) -> None:
        """Set the rate at which kept room idles, by resource and by reservation."""
        self.idle_rate = [0.0] * self.m
        for r in self.reserved:
            r.idles = [0.0] * self.m
        for n, holds in self.holds.items():
            before = [0.0] * self.m
            for h in sorted(holds, key=lambda h: h.start):
                back = self._awaited(n, h) or [0.0] * self.m
                for i in range(self.m):
                    need = sum(k.nodes[n] * k.group[0][i] for k in holds if k.start <= h.start) - back[i]
                    idle = max(0.0, min(self.free[n][i], need) - before[i])
                    before[i] += idle
                    h.idles[i] += idle
                    self.idle_rate[i] += idle
