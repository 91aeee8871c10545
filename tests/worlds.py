"""What the scheduler's tests share: random worlds, and a second scheduler to compare with."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from fairlead.model.specs import ROOT
from fairlead.scheduler import snapshot
from fairlead.scheduler.divided_queues import write_entitled
from fairlead.scheduler.facts import Fact, TasksPlaced, decode, encode
from fairlead.scheduler.invariants import check_invariants
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import NONE, UNLIMITED


def rounded(x: float) -> float:
    """A level that is not compared exactly: 40 binary digits of it, as fairlead.scheduler.kernel_keys says."""
    t = x * (2.0**13 + 1)
    return t - (t - x) if np.isfinite(x) else x


def counted_before(state: State) -> np.ndarray:
    """What each queue is charged for what it used before, by the rule, its mean being what the state says."""
    queues, jobs = state.queues, state.jobs
    found = np.zeros_like(queues.used[: queues.n])
    works = queues.tasks[: queues.n] > 0
    for j in range(jobs.n):
        q = int(jobs.queue[j]) if jobs.id[j] != NONE and jobs.bucket[j] != NONE else NONE
        while q != NONE:
            works[q] = True
            q = int(queues.parent[q])
    for q in range(1, queues.n):
        siblings = np.flatnonzero(queues.parent[: queues.n] == queues.parent[q])
        for r, total in enumerate(state.cluster.total.tolist()):
            weights = [max(1, round(w)) for w in queues.weight[siblings, r] / queues.weight[siblings, r].max() * 2**40]
            at_work = sum(w for w, row in zip(weights, siblings.tolist(), strict=True) if works[row])
            remains = Fraction(int(queues.remains[queues.parent[q]]), 2**32)
            mean = int(queues.mean[q, r]) + int((1 - remains) * int(queues.recent[q, r]))
            before = int(Fraction(mean, 4 * 2**12)) << int(state.grain[r])
            if before and works[q]:
                entitled = weights[siblings.tolist().index(q)] / at_work
                found[q, r] = min(before, int(0.5 * total * entitled))
    return found


def means(state: State, recent: int) -> list[list[float]]:
    """What each queue used before, as the state says, on average; with what the tick that runs will add to it, or without."""
    found = []
    for q in range(state.queues.n):
        remains = Fraction(int(state.queues.remains[state.queues.parent[q]]), 2**32)
        pairs = zip(state.queues.mean[q].tolist(), state.queues.recent[q].tolist(), state.grain.tolist(), strict=True)
        found.append([float(Fraction((m + int((1 - remains) * t) * recent) << g, 2**12)) for m, t, g in pairs])
    return found


def exact_share(state: State, q: int, r: int, used: np.ndarray) -> Fraction:
    """A queue's share of a resource over its weight: in fractions, where its siblings' weights and its own are some."""
    total = max(1, int(state.cluster.total[r]))
    weight = float(state.queues.weight[q, r])
    if not state.queues.exact[state.queues.parent[q]]:
        return Fraction(rounded(int(used[q, r]) / total / weight))
    return Fraction(int(used[q, r]), total) / Fraction(repr(weight)).limit_denominator(2**30 - 1)


def same(state: State) -> bytes:
    """A state as bytes that are equal for equal states."""
    return b"".join(snapshot.dump(state))


def replay(facts: list[Fact]) -> State:
    """A state made anew from facts that went through their written form."""
    state = State()
    for fact in facts:
        state.apply(decode(encode(fact)))
    return state


def placed_naively(state: State, most: int = 10_000) -> list[tuple[int, int]]:
    """What a cycle should place, as (job number, node) in order: no heap, no cursor, no bucket, everything looked at anew."""
    jobs, nodes, queues = state.jobs, state.nodes, state.queues
    R = len(state.resources)
    free = nodes.free[: nodes.n].copy()
    kept: dict[int, tuple[int, np.ndarray]] = {}
    for r in state.reservations.values():
        for n, count in zip(r.nodes, r.tasks, strict=True):
            kept[n] = (r.bucket, count * state.shapes.demand[state.buckets.shape_row[r.bucket]])
    before = counted_before(state)
    served = queues.served.tolist()
    at_tick, now = means(state, 0), means(state, 1)
    used, count_tasks, count_jobs = queues.used[: queues.n].copy(), queues.tasks.copy(), queues.jobs.copy()
    waiting = {j: int(jobs.waiting[j]) for j in range(jobs.n) if jobs.id[j] != NONE and jobs.bucket[j] != NONE}
    holding = {j: int(jobs.holding[j]) for j in waiting}
    buckets = {j: int(jobs.bucket[j]) for j in waiting}
    out: set[int] = set()  # buckets that were stopped
    full: set[tuple[int, int]] = set()  # (bucket, job) that may not start for the number of jobs
    result: list[tuple[int, int]] = []

    def path(q: int) -> list[int]:
        return [q] if q == 0 else [q, *path(int(queues.parent[q]))]

    counted = [True] * R
    hdrf = bool((queues.policy[: queues.n] == 4).any())

    def able_in(q: int) -> list[int]:
        """The jobs below a queue that can still be served."""
        return [
            j for j, left in waiting.items()
            if left and q in path(int(jobs.queue[j])) and buckets[j] not in out and (buckets[j], j) not in full
        ]  # fmt: skip

    def saturate(stopped: int | None) -> None:
        """Under hdrf: count no more what no node has enough of for anybody who can still be served."""
        open_nodes = [n for n in range(nodes.n) if nodes.up[n] and not nodes.draining[n]]
        for r in range(R) if hdrf else []:
            rooms = [free[n, r] - (kept[n][1][r] if n in kept else 0) for n in open_nodes]
            needs = [int(state.shapes.demand[jobs.shape_row[j], r]) for j in able_in(0)]
            needs = [need for need in needs if need]
            if not needs and stopped is not None:
                needs = [need for need in [int(state.shapes.demand[jobs.shape_row[stopped], r])] if need]
            if max([0, *rooms]) == 0 or (needs and max(rooms) < min(needs)):
                counted[r] = False

    def counts_as(q: int) -> list[float]:
        """What a queue counts as under hdrf."""
        going = [c for c in range(1, queues.n) if queues.parent[c] == q and able_in(c)]
        if queues.policy[q] != 4 or not going:
            return [float(used[q, r]) for r in range(R)]
        least = min(level(c) for c in going)
        found = []
        for r in range(R):
            amount = float(used[q, r] - sum(used[c, r] for c in going))
            for c in going:
                amount += counts_as(c)[r] * (least / level(c)) if level(c) > least else counts_as(c)[r]
            found.append(amount)
        return found

    def level(q: int, charged: bool = False) -> float:
        """The level by what a queue counts as under hdrf; charged, by what it used before as well."""
        inner = q in queues.parent[: queues.n]
        amounts = [a + int(before[q, r]) * charged for r, a in enumerate(counts_as(q))]
        shares = [
            amounts[r] / state.cluster.total[r] / queues.weight[q, r]
            for r in range(R)
            if state.cluster.total[r] > 0 and (counted[r] or not inner)
        ]
        return rounded(max([0.0, *shares]))

    def in_order(q: int) -> int | None:
        """The job that queue q would serve next."""
        children = [c for c in range(queues.n) if queues.parent[c] == q]
        if not children:
            able = [
                j for j, left in waiting.items()
                if left and jobs.queue[j] == q and buckets[j] not in out and (buckets[j], j) not in full
            ]  # fmt: skip
            return min(able, key=lambda j: (-jobs.priority[j], jobs.id[j]), default=None)
        options = []
        for c in children:
            job = in_order(c)
            if job is None:
                continue
            demand = state.shapes.demand[jobs.shape_row[job]]
            below = any(demand[r] > 0 and used[c, r] < queues.guarantee[c, r] for r in range(R))
            name = state.tree.names[c].split("/")
            if queues.policy[q] == 0:
                shares = [exact_share(state, c, r, used + before) for r in range(R) if state.cluster.total[r] > 0]
                key = (not below, 0, max([Fraction(0), *shares]), served[c], name)
            elif queues.policy[q] == 4:
                key = (not below, 0, level(c, charged=True), served[c], name)
            elif queues.policy[q] == 5:
                share = max(
                    [
                        0.0,
                        *(
                            used[c, r] / state.cluster.total[r] / queues.weight[c, r]
                            for r in range(R)
                            if state.cluster.total[r] > 0
                        ),
                    ]
                )
                key = (not below, 0, rounded(share / parts[c] if parts[c] > 0 else np.inf), served[c], name)
            elif queues.policy[q] == 3:
                shares = [
                    (used[c, r] + before[c, r]) / state.cluster.total[r] / queues.weight[c, r]
                    for r in range(R)
                    if state.cluster.total[r] > 0
                ]
                added = 0.0  # in the kernel's order, so that ties are ties
                for share in shares:
                    added += share
                key = (not below, 0, rounded(added), served[c], name)
            elif queues.policy[q] == 6:
                share = max(
                    [
                        0.0,
                        *(
                            used[c, r] / state.cluster.total[r] / queues.weight[c, r]
                            for r in range(R)
                            if state.cluster.total[r]
                        ),
                    ]
                )
                past = max(
                    [
                        0.0,
                        *(
                            now[c][r] / state.cluster.total[r] / queues.weight[c, r]
                            for r in range(R)
                            if state.cluster.total[r]
                        ),
                    ]
                )
                key = (not below, 0, rounded(share + past), served[c], name)
            elif queues.policy[q] >= 2**21:
                r = queues.policy[q] - 2**21
                priority = max(500.0, now[c][r]) / queues.weight[c, r]
                key = (not below, 0, rounded(used[c, r] * priority if used[c, r] else -1 / priority), served[c], name)
            elif queues.policy[q] >= 2**20:
                r = queues.policy[q] - 2**20
                key = (not below, 0, rounded(at_tick[c][r] / queues.weight[c, r]), served[c], name)
            elif queues.policy[q] >= 16:
                r = queues.policy[q] - 16
                key = (not below, 0, exact_share(state, c, r, used + before), served[c], name)
            elif queues.policy[q] == 1:
                key = (not below, 0, jobs.id[job], name)
            else:
                key = (not below, -jobs.priority[job], jobs.id[job], name)
            options.append((key, job))
        return min(options)[1] if options else None

    def find(job: int, free: np.ndarray, kept: dict[int, tuple[int, np.ndarray]]) -> int | None:
        demand = state.shapes.demand[jobs.shape_row[job]]
        mask = state.cluster.masks[state.shapes.mask[jobs.shape_row[job]]]

        def ok(n: int, room: np.ndarray) -> bool:
            fits = all(room[r] >= demand[r] for r in range(R) if demand[r] > 0)
            return bool(nodes.up[n] and not nodes.draining[n] and mask[n] and fits)

        own = [n for n in kept if kept[n][0] == buckets[job]]
        for n in sorted(own):
            if ok(n, free[n] - kept[n][1] + demand):
                return n
        for n in range(nodes.n):
            if ok(n, free[n] - kept[n][1] if n in kept else free[n]):
                return n
        return None

    state.order.ready(state, 1)
    write_entitled(state)
    parts = state.order.queues.entitled

    def attempt(job: int) -> tuple[list[int], np.ndarray, dict[int, tuple[int, np.ndarray]]] | None:
        """Where the job's next task, or gang, would go, and the room that is left then; None, and why is kept, if nowhere."""
        demand = state.shapes.demand[jobs.shape_row[job]]
        count = waiting[job] if jobs.gang[job] else 1
        line = path(int(jobs.queue[job]))
        over = any(
            demand[r] > 0 and queues.limit[q, r] != UNLIMITED and used[q, r] + count * demand[r] > queues.limit[q, r]
            for q in line
            for r in range(R)
        ) or any(count_tasks[q] + count > queues.max_tasks[q] for q in line)
        if over:
            out.add(buckets[job])
            return None
        if holding[job] == 0 and any(count_jobs[q] >= queues.max_jobs[q] for q in line):
            full.add((buckets[job], job))
            return None
        spots, trial, trial_kept = [], free.copy(), dict(kept)
        for _ in range(count):
            n = find(job, trial, trial_kept)
            if n is None:
                out.add(buckets[job])
                saturate(job)
                return None
            if n in trial_kept and trial_kept[n][0] == buckets[job]:
                del trial_kept[n]
            trial[n] -= demand
            spots.append(n)
        return spots, trial, trial_kept

    saturate(None)
    while len(result) < most:
        # A queue counts with what it can really serve; under hdrf that is found out when its turn comes.
        for job in able_in(0) if not hdrf else []:
            attempt(job)
        job = in_order(0)
        if job is None:
            break
        found = attempt(job)
        if found is None:
            continue
        spots, free, kept = found
        served[0] += 1
        for q in path(int(jobs.queue[job])):
            served[q] = served[0]
            used[q] += len(spots) * state.shapes.demand[jobs.shape_row[job]]
            count_tasks[q] += len(spots)
            count_jobs[q] += holding[job] == 0
        holding[job] += len(spots)
        waiting[job] -= len(spots)
        result += [(int(jobs.id[job]), n) for n in spots]
    return result


def placements(facts: list[Fact]) -> list[tuple[int, int]]:
    """(job number, node row) of what was decided, in order."""
    return [(int(j), int(n)) for f in facts if isinstance(f, TasksPlaced) for j, n in zip(f.job, f.node, strict=True)]


__all__ = ["ROOT", "check_invariants", "placed_naively", "placements", "replay", "same"]
