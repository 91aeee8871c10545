"""A second planner of claims to compare with: no heap, no index, all sets of runs tried; by the rules of kernel/victims alone."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, inf

import numpy as np

from fairlead.scheduler.kernel.constants import ENTITLEMENT_TOLERANCE
from fairlead.scheduler.preemption.claims import entitled_by_queue, lower_runs
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import PLACED, REVOKING, RUNNING
from fairlead.scheduler.tables import APART, NONE


@dataclass(frozen=True)
class Run:
    """What pays together: a task, or a gang."""

    tasks: tuple[int, ...]
    nodes: tuple[int, ...]
    job: int
    leaf: int
    demand: tuple[int, ...]
    priority: int
    lost: float
    begun: float
    safe: bool
    spare: bool


class Planner:
    """Plans the next claim of a bucket whose leaf is below its guarantee. No room is kept for claims yet."""

    def __init__(self, state: State, now: float, bucket: int) -> None:
        self.state, self.now, self.group, self.oversized = state, now, bucket, False
        self.need = state.shapes.demand[state.groups.shape_row[bucket]]
        self.wanted = max(1, int(state.groups.gang[bucket]))
        self.entitled = entitled_by_queue(state)
        self.left = state.queues.used[: state.queues.n].copy()
        self.room = state.nodes.free[: state.nodes.n].copy()
        self.path = self.up(int(state.groups.leaf[bucket]))
        self.asked = self.who_may_be_asked()
        self.runs = self.find_runs()

    def up(self, q: int) -> list[int]:
        return [q] if q == 0 else [q, *self.up(int(self.state.queues.parent[q]))]

    def who_may_be_asked(self) -> set[int]:
        """The queues on the path whose siblings may be asked."""
        queues, asked, named = self.state.queues, set(), False
        for q in self.path[:-1]:
            for r in range(len(self.need)):
                if self.need[r] and queues.guarantee[q, r]:
                    if queues.used[q, r] + self.wanted * self.need[r] > queues.guarantee[q, r]:
                        return asked
                    named = True
            if named:
                asked.add(q)
        return asked

    def find_runs(self) -> list[Run]:
        state, found = self.state, []
        for j in range(state.jobs.n):
            first = int(state.jobs.first[j])
            rows = list(range(first, first + int(state.jobs.tasks[j])))
            demand = state.shapes.demand[state.jobs.shape_row[j]]
            held = [t for t in rows if PLACED <= state.tasks.status[t] <= REVOKING]
            for t in [t for t in held if state.tasks.status[t] > RUNNING]:
                self.room[state.tasks.node[t]] += demand
                for q in self.up(int(state.jobs.queue[j])):
                    self.left[q] -= demand
            held = [t for t in held if state.tasks.status[t] <= RUNNING]
            for group in [held] if state.jobs.gang[j] and held else [[t] for t in held]:
                begun = [self.now if state.tasks.status[t] == PLACED else float(state.tasks.started_at[t]) for t in group]
                total = state.cluster.total
                share = max(d / c for d, c in zip(demand.tolist(), total.tolist(), strict=True) if c)
                leaf = int(state.jobs.queue[j])
                lost = 0.0
                for t, at in zip(group, begun, strict=True):
                    lost += (self.now - max(at, float(state.tasks.kept_at[t]))) * share
                safe = any(self.now - at < state.queues.min_runtime[leaf] for at in begun)
                nodes = tuple(int(state.tasks.node[t]) for t in group)
                found.append(
                    Run(
                        tuple(group),
                        nodes,
                        j,
                        leaf,
                        tuple(demand.tolist()),
                        int(state.jobs.priority[j]),
                        lost,
                        min(begun),
                        safe,
                        bool(state.jobs.revocable[j]),
                    )
                )
        return found

    # -- what there is with some paying ----------------------------------------------------------------------------

    def has(self, q: int, paid: list[Run]) -> np.ndarray:
        mine = [run for run in paid if q in self.up(run.leaf)]
        return self.left[q] - sum((len(run.tasks) * np.array(run.demand) for run in mine), np.zeros_like(self.need))

    def above(self, q: int, paid: list[Run]) -> float:
        shares = [a / c for a, c in zip(self.has(q, paid).tolist(), self.state.cluster.total.tolist(), strict=True) if c]
        return floor((max([0.0, *shares]) - self.entitled[q]) * 2.0**30 + 0.5)

    def hosts(self, n: int, paid: list[Run]) -> int:
        state = self.state
        mask = state.cluster.masks[state.shapes.mask[state.groups.shape_row[self.group]]]
        if not state.nodes.up[n] or state.nodes.draining[n] or not mask[n]:
            return 0
        room = self.room[n] + sum((run.nodes.count(n) * np.array(run.demand) for run in paid), np.zeros_like(self.need))
        most = min(int(room[r] // self.need[r]) for r in range(len(self.need)) if self.need[r])
        return max(0, min(1, most) if state.shapes.fit[state.groups.shape_row[self.group]] == APART else most)

    def fits(self, paid: list[Run]) -> bool:
        return sum(self.hosts(n, paid) for n in range(self.state.nodes.n)) >= self.wanted

    def may_pay(self, run: Run) -> bool:
        line = self.up(run.leaf)
        if run.safe or run.leaf == self.path[0] or not all(self.state.queues.revocable[q] for q in line):
            return False
        meet = next(q for q in line if q in self.path)
        return self.path[self.path.index(meet) - 1] in self.asked

    def is_eligible_victim(self, run: Run, paid: list[Run]) -> bool:
        if not self.may_pay(run):
            return False
        queues, line = self.state.queues, self.up(run.leaf)
        meet = next(q for q in line if q in self.path)
        for q in line[: line.index(meet)]:
            after = self.has(q, [*paid, run])
            for r in range(len(after)):
                if run.demand[r] and queues.guarantee[q, r] and after[r] < queues.guarantee[q, r]:
                    return False
        return not self.sinks([*paid, run], line) and not self.claims_itself(run, [*paid, run])

    def sinks(self, paid: list[Run], line: list[int]) -> bool:
        """Whether, with some paying and the claim served, a queue above both is below its guarantee, and was not so far."""
        for q in [q for q in line if q in self.path and q]:
            after = self.has(q, paid) + self.wanted * self.need
            least = np.minimum(self.state.queues.guarantee[q], self.left[q])
            if ((after < least) & (after < self.left[q])).any():
                return True
        return False

    def claims_itself(self, run: Run, paid: list[Run]) -> bool:
        """Whether one that pays would have a claim for a guarantee then, with this one served."""
        within = False
        for q in self.up(run.leaf)[:-1] if not run.spare else []:
            after = self.has(q, paid) + len(run.tasks) * np.array(run.demand)
            after += self.wanted * self.need if q in self.path else 0
            named = (np.array(run.demand) > 0) & (self.state.queues.guarantee[q] > 0)
            if (after > self.state.queues.guarantee[q])[named].any():
                return within
            within |= bool(named.any())
        return within

    # -- who pays before whom --------------------------------------------------------------------------------------

    def before(self, one: Run, other: Run, paid: list[Run]) -> bool:
        if one.spare != other.spare:
            return one.spare
        if one.leaf != other.leaf:
            a, b = self.up(one.leaf)[::-1], self.up(other.leaf)[::-1]
            part = next(k for k in range(len(a)) if a[k] != b[k])
            x, y = a[part], b[part]
            keys = [(-self.above(q, paid), -int(self.state.queues.rank[q])) for q in (x, y)]
            return keys[0] < keys[1]
        return self.key_of(one) < self.key_of(other)

    @staticmethod
    def key_of(run: Run) -> tuple[float, ...]:
        return (run.priority, run.lost, len(run.tasks), -run.begun, -run.job, -run.tasks[0])

    def next_payer(self, n: int, paid: list[Run], wanted: int) -> Run | None:
        room = self.room[n] + sum((run.nodes.count(n) * np.array(run.demand) for run in paid), np.zeros_like(self.need))
        lacks = [r for r in range(len(self.need)) if self.need[r] and room[r] < wanted * self.need[r]]
        best = None
        for run in self.runs:
            if (
                run in paid
                or n not in run.nodes
                or not any(run.demand[r] for r in lacks)
                or not self.is_eligible_victim(run, paid)
            ):
                continue
            if best is None or self.before(run, best, paid):
                best = run
        return best

    def on_node(self, n: int, paid: list[Run], missing: int) -> tuple[int, list[Run], tuple[float, ...]]:
        """What a node adds to the claim, by whom, and its key."""
        at_first, more = self.hosts(n, paid), []
        if (self.state.nodes.capacity[n] < self.need).any():
            return 0, [], ()
        while self.hosts(n, [*paid, *more]) < at_first + missing:
            run = self.next_payer(n, [*paid, *more], at_first + missing)
            if run is None:
                break
            more.append(run)
        gain = min(missing, self.hosts(n, [*paid, *more]) - at_first)
        if gain <= 0:
            return 0, [], ()
        for chosen in range(1, 2 ** len(more)):  # numbers rise with the last that pay: the first that does spares these first
            some = [run for k, run in enumerate(more) if chosen >> k & 1]
            if self.hosts(n, [*paid, *some]) >= at_first + gain:
                return gain, some, self.key(some, [*paid, *some])
        raise AssertionError("all of them do not do")

    def key(self, some: list[Run], paid: list[Run]) -> tuple[float, ...]:
        deepest = max(len(self.up(q)) - 1 for q in range(self.state.queues.n))
        levels = []
        for depth in range(1, deepest + 1):
            there = [q for run in some for q in self.up(run.leaf) if len(self.up(q)) - 1 == depth]
            levels.append(max([-self.above(q, paid) for q in there], default=-inf))
        lost = 0.0
        for run in some:
            lost += run.lost
        worst = (max(r.priority for r in some), lost, sum(len(r.tasks) for r in some), max(-r.begun for r in some))
        return (not all(run.spare for run in some), *levels, *worst)

    # -- the plan --------------------------------------------------------------------------------------------------

    def plan(self) -> set[int] | None:
        """The rows of the tasks that pay, picked greedily; None where those do not do."""
        paid: list[Run] = []
        while not self.fits(paid):
            missing = self.wanted - sum(self.hosts(n, paid) for n in range(self.state.nodes.n))
            found = [(self.on_node(n, paid, missing), n) for n in range(self.state.nodes.n)]
            options = [(-gain, key, n, some) for (gain, some, key), n in found if gain]
            if not options:
                return None
            paid += min(options, key=lambda o: o[:3])[3]
        for chosen in range(2 ** len(paid)):
            some = [run for k, run in enumerate(paid) if chosen >> k & 1]
            if self.fits(some):
                if any(self.claims_itself(run, some) for run in some):
                    return None
                return {t for run in some for t in run.tasks}
        raise AssertionError("all of them do not do")

    # -- any set -----------------------------------------------------------------------------------------------------

    def serves(self, some: list[Run], ranked: bool) -> bool:
        """Whether some may pay together, and serve the claim: of class PRIORITY, where it is ranked, else GUARANTEE."""
        if ranked:
            may = self.may_for_priority(some)
        else:
            may = all(self.is_eligible_victim(r, [o for o in some if o is not r]) for r in some)
            may = may or (self.oversized and all(map(self.may_pay, some)))
        may = may and not any(self.claims_itself(run, some) for run in some)
        return may and self.fits(some) and self.within_limits(some)

    def may_for_priority(self, some: list[Run]) -> bool:
        """Each is of the claim's leaf and of lower priority, and together they bring no queue below its guarantee, or further."""
        queues, leaf = self.state.queues, self.path[0]
        priority = int(self.state.groups.priority[self.group])
        if any(run.leaf != leaf or run.priority >= priority or run.safe for run in some):
            return False
        if some and not all(queues.revocable[q] for q in self.path):
            return False
        gone = sum((len(run.tasks) * np.array(run.demand) for run in some), np.zeros_like(self.need))
        more = self.wanted * self.need
        if any(self.claims_itself(run, some) for run in some):
            return False
        return not any(
            ((self.has(q, some) + more < queues.guarantee[q]) & (gone > more)).any() for q in self.path[:-1]
        )  # fmt: skip

    def serves_together(self, some: list[Run]) -> bool:
        """Whether some, of lower priority in the claim's leaf or of others above their fair share, serve a claim by priority."""
        own = [run for run in some if run.leaf == self.path[0]]
        priority = int(self.state.groups.priority[self.group])
        if any(run.safe or not all(self.state.queues.revocable[q] for q in self.up(run.leaf)) for run in some):
            return False
        if any(run.priority >= priority for run in own) or any(self.claims_itself(run, some) for run in some):
            return False
        if any(self.share(run.leaf, some, run) <= self.most(run.leaf) for run in some if not run.spare):
            return False
        kept = all(self.keeps_guarantee(q, some) for q in range(1, self.state.queues.n))
        return kept and self.may_add(some) and self.fits(some) and self.within_limits(some)

    def may_add(self, some: list[Run]) -> bool:
        """Whether those of other leaves may be victims: the claim ends within its fair share, and they above theirs."""
        queues = self.state.queues
        for run in [run for run in some if run.leaf != self.path[0]]:
            line = self.up(run.leaf)
            meet = next(q for q in line if q in self.path)
            if any(self.share(q, some) > self.most(q) for q in self.path[: self.path.index(meet)]):
                return False
            for q in line[:-1]:
                least = self.entitled[q] if q not in self.path else min(self.entitled[q], self.share_of(self.left[q]))
                if floor((self.share(q, some) - least) * 2.0**30 + 0.5) < 0:
                    return False
            left = [other for other in self.runs if other.leaf == run.leaf and other not in some]
            if queues.priority_revokes[run.leaf] and any(other.priority < run.priority for other in left):
                return False
        return True

    def share_of(self, amounts: np.ndarray) -> float:
        return max(a / c for a, c in zip(amounts.tolist(), self.state.cluster.total.tolist(), strict=True) if c)

    def share(self, q: int, some: list[Run], back: Run | None = None) -> float:
        """What a queue has with some gone and the claim served, and one of them back."""
        has = self.has(q, some) + (self.wanted * self.need if q in self.path else 0)
        return self.share_of(has + (len(back.tasks) * np.array(back.demand) if back else 0))

    def most(self, q: int) -> float:
        return float(self.entitled[q] * (1 + ENTITLEMENT_TOLERANCE))

    def keeps_guarantee(self, q: int, some: list[Run]) -> bool:
        """Whether a queue keeps its guarantee of what its victims use; or what it had, if it is above the claim too."""
        uses = np.any(
            [np.array(run.demand) > 0 for run in some if q in self.up(run.leaf)] or [np.zeros(len(self.need), bool)], axis=0
        )
        after, least = self.has(q, some), self.state.queues.guarantee[q]
        if q in self.path:
            after, least = after + self.wanted * self.need, np.minimum(least, self.left[q])
        return not (after < least)[uses].any()

    def within_limits(self, some: list[Run]) -> bool:
        """Whether the claim breaks no limit above it; what revocable jobs use is nothing to that."""
        bound = [run for run in self.runs if run.spare and run not in some]
        for q in self.path:
            spare = sum((len(r.tasks) * np.array(r.demand) for r in bound if q in self.up(r.leaf)), np.zeros_like(self.need))
            after = self.has(q, some) - spare + self.wanted * self.need
            if ((self.need > 0) & (after > self.state.queues.limit[q])).any():
                return False
        return True

    def any_plan(self, ranked: bool) -> list[Run] | None:
        """The first of all sets of runs that serves the claim, with oversized tasks only where no set does without."""
        helps = [run for run in self.runs if not run.safe]
        for self.oversized in (False, True):
            for chosen in range(2 ** len(helps)):
                some = [run for k, run in enumerate(helps) if chosen >> k & 1]
                if self.serves(some, ranked):
                    return some
        return None

    def is_ranked(self) -> bool:
        """Whether the claim is of class PRIORITY."""
        leaf, priority = self.path[0], int(self.state.groups.priority[self.group])
        return bool(self.state.queues.priority_revokes[leaf]) and lower_runs(self.state, leaf, priority)


__all__ = ["NONE", "Planner", "Run"]
