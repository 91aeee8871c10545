"""What the scheduler's tests share: random worlds, and a second scheduler to compare with."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import combinations

import numpy as np

from fairlead.model.specs import ROOT
from fairlead.scheduler import snapshot
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.entitlements import write_entitled
from fairlead.scheduler.facts import Fact, NodesReserved, TasksPlaced, decode, encode
from fairlead.scheduler.invariants import check_invariants
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.kernel.constants import EDGES, IN_LINE_SECONDS
from fairlead.scheduler.reports.preemptions import startable_claims
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import PLACED, RUNNING
from fairlead.scheduler.tables import NONE, RESERVATION, UNLIMITED


def rounded(x: float) -> float:
    """A level that is not compared exactly: 40 binary digits of it, as fairlead.scheduler.kernel says."""
    t = x * (2.0**13 + 1)
    return t - (t - x) if np.isfinite(x) else x


def counted_before(state: State) -> np.ndarray:
    """What each queue is charged for what it used before, by the rule, its mean being what the state says.

    Floats that are exact: with as many binary digits after the point as all of a resource leaves of 49, 14 at most.
    """
    queues, jobs = state.queues, state.jobs
    found = np.zeros(queues.used[: queues.n].shape)
    works = queues.tasks[: queues.n] > 0
    for j in range(jobs.n):
        q = int(jobs.queue[j]) if jobs.id[j] != NONE and jobs.group[j] != NONE else NONE
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
            most = max(total, int(queues.used[: queues.n, r].max()))
            fine = 0 if state.grain[r] else min(14, max(0, 49 - most.bit_length()))
            before = int(Fraction(mean * 2**fine, 4 * 2**12)) << int(state.grain[r])
            if before and works[q]:
                entitled = weights[siblings.tolist().index(q)] / at_work
                found[q, r] = min(before, int(0.5 * (total << fine) * entitled)) / 2**fine
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
        return Fraction(rounded(float(used[q, r]) / total / weight))
    return Fraction(float(used[q, r])) / total / Fraction(repr(weight)).limit_denominator(2**30 - 1)


@dataclass
class Kept:
    """Room that is kept on a node, as a cycle goes on: see fairlead.scheduler.kernel."""

    node: int
    group: int
    tasks: int
    amount: np.ndarray
    start: float
    end: float
    slips: int
    rank: int
    back: np.ndarray
    ended: np.ndarray
    ran: int
    apart: frozenset[int]
    claim: bool = False


def usual_naively(state: State, job: int) -> float:
    """What no more than one in ten of the job's own durations, its family's or its queue's was longer than, and one more."""
    s, keys = state.histograms, (state.jobs.id[job], state.jobs.family[job], state.jobs.queue[job])
    for about, key in enumerate(keys):
        for row in np.flatnonzero((s.about[: s.n] == about) & (s.key[: s.n] == key)):
            lasted = sorted(np.repeat(EDGES[1:], s.counts[row]).tolist(), reverse=True)
            if len(lasted) >= 9:
                longest = lasted[(len(lasted) + 1) // 10 - 1]
                return longest if longest < EDGES[-1] else np.inf
    return np.inf


def kept_in(state: State) -> list[Kept]:
    """What is kept where, and what comes back before it is needed: of the leaves that are counted on, and of all."""
    found, h = [], state.holds
    rows = state.held_rows()
    jobs = state.job_rows_of(rows)
    demands, leaves = state.shapes.demand[state.jobs.shape_row[jobs]], state.jobs.queue[jobs]
    for k in range(h.n):
        n, bucket, count = int(h.node[k]), int(h.group[k]), int(h.tasks[k])
        ends = (state.tasks.node[rows] == n) & (state.tasks.until[rows] <= h.start[k])
        apart = [q for q in range(state.queues.n) if h.place[k] != NONE and state.queues.apart[q] >> h.place[k] & 1]
        back, ended = demands[ends & ~np.isin(leaves, apart)].sum(axis=0), demands[ends].sum(axis=0)
        amount = count * state.shapes.demand[state.groups.shape_row[bucket]]
        found.append(
            Kept(
                n,
                bucket,
                count,
                amount,
                float(h.start[k]),
                float(h.end[k]),
                int(h.slips[k]),
                int(h.rank[k]),
                back,
                ended,
                int(h.ran[k]),
                frozenset(apart),
                bool(h.kind[k] != RESERVATION),
            )
        )
    return found


def room_beside(kept: list[Kept], free: np.ndarray, n: int, until: float, rank: float) -> np.ndarray:
    """What a task on a node may take that has ended at a time: it must leave what each who starts before that needs then."""
    here = [k for k in kept if k.node == n and k.rank < rank]
    room = free[n].copy()
    for one in here:
        if one.start < until:
            needed = sum((k.amount for k in here if k.start <= one.start < k.end), np.zeros_like(one.amount))
            room = np.minimum(room, free[n] - (needed - one.back))
    return room


def expected_ends(state: State, rows: np.ndarray, now: float) -> np.ndarray:
    """When tasks will have ended: by even odds all that are on a node, however long that takes."""
    found = []
    for k, t in enumerate(rows.tolist()):
        beside = int((state.tasks.node[rows] == state.tasks.node[t]).sum())
        runs = state.tasks.status[t] in (PLACED, RUNNING)
        began = float(state.tasks.started_at[t]) if state.tasks.status[t] == RUNNING else now
        job, part = state.job_rows_of(rows[k : k + 1]), np.array([1 - 0.5 ** (1 / beside)])
        lasts = scheduling.durations(state.view(), job, np.array([max(0.0, now - began)]), part, np.inf)[0]
        found.append(began + lasts if runs else now)
    return np.array(found)


def planned_as_naively(state: State, now: float, fact: NodesReserved) -> None:
    """Check a reservation that is decided: where and when, and whose tasks it does not count on."""
    bucket = int(state.jobs.group[state.job_row(fact.id)])
    h, leaf, apart = state.holds, int(state.groups.leaf[bucket]), {state.tree.rows[name] for name in fact.apart}
    mine = [k for k in range(h.n) if h.group[k] == bucket]
    recently = now - state.queues.in_line_at <= IN_LINE_SECONDS
    own = bool(state.queues.apart[leaf] >> h.place[mine[0]] & 1) if mine else bool(recently[leaf])
    others = {int(state.groups.leaf[b]) for b in h.group[: h.n]} - {leaf}
    b, waited = state.groups, {q for q in range(state.queues.n) if recently[q]}
    gangs = b.leaf[: b.n][(b.gang[: b.n] > 0) & (b.head[: b.n] != NONE)].tolist()
    waited = (waited | {q for q in gangs if state.queues.tasks[q]}) - {leaf}
    assert apart <= others | waited | ({leaf} if own else set())
    if mine and apart:
        assert (leaf in apart) == own
    elif mine and own and not others | waited:
        assert planned_naively(state, now, bucket, {leaf}) is None
    rest = sorted((waited | others) - apart)  # of these, those that are short and run nothing on the chosen nodes are not named
    for more in (some for count in range(len(rest) + 1) for some in combinations(rest, count)):
        if (fact.nodes, fact.tasks, fact.start) == planned_naively(state, now, bucket, {*apart, *more}):
            return
    raise AssertionError(f"{fact} is not what is planned by looking at everything anew")


def planned_naively(state: State, now: float, bucket: int, apart: set[int]) -> tuple[list[int], list[int], float] | None:
    """The nodes, tasks and start of a bucket's reservation: moment after moment, everything looked at anew; None if never.

    Tasks of leaves `apart` are not taken to end.
    """
    h = state.holds
    mine = [k for k in range(h.n) if h.group[k] == bucket]
    late = mine and now > h.start[mine[0]] and now - h.since[mine[0]] >= state.settings.reserve_after
    most = [max(1, int(state.groups.gang[bucket]))] * state.nodes.n
    if mine and h.slips[mine[0]] + bool(late) >= 2:
        own = [sum(int(h.tasks[k]) for k in mine if h.node[k] == n) for n in range(state.nodes.n)]
        return _start_naively(state, now, bucket, own, apart) or _start_naively(state, now, bucket, most, apart)
    return _start_naively(state, now, bucket, most, apart)


def _start_naively(
    state: State, now: float, bucket: int, most: list[int], apart: set[int]
) -> tuple[list[int], list[int], float] | None:
    """The same, with so many tasks on each node at most."""
    nodes, h = state.nodes, state.holds
    mine = [k for k in range(h.n) if h.group[k] == bucket]
    rank = int(h.rank[mine[0]]) if mine else 1 + max(h.rank[: h.n].tolist(), default=-1)
    before = [k for k, r in zip(kept_in(state), h.rank[: h.n].tolist(), strict=True) if r < rank]
    shape = int(state.groups.shape_row[bucket])
    demand, mask = state.shapes.demand[shape], state.cluster.masks[state.shapes.mask[shape]]
    rows = state.held_rows()
    at = expected_ends(state, rows, now)
    expected = []
    for t, end in zip(rows.tolist(), at.tolist(), strict=True):
        n = int(state.tasks.node[t])
        known = now < state.tasks.until[t] < np.inf
        job = state.job_rows_of(np.array([t]))[0]
        if int(state.jobs.queue[job]) in apart:
            continue
        needs = state.shapes.demand[state.jobs.shape_row[job]]
        expected.append((float(state.tasks.until[t]) if known else max(end, now + 1.0), n, needs))

    def fit(n: int, then: float, so_far: int | None = None) -> int:
        """How many fit on a node from a moment on; with only so many of all expected ends."""
        if not nodes.up[n] or nodes.draining[n] or not mask[n] or (nodes.capacity[n] < demand).any():
            return 0
        here = [k for k in before if k.node == n]
        chosen = in_order[:so_far] if so_far is not None else in_order
        back = sum((d for end, m, d in chosen if m == n and end <= then), np.zeros_like(demand))
        rooms = [nodes.free[n] + back - taken(here, then)]
        rooms += [nodes.free[n] + k.back - taken(here, k.start) for k in here if k.start > then]
        room, asked = np.min(rooms, axis=0), demand > 0
        most = int((nodes.capacity[n][asked] // demand[asked]).min())
        return max(0, min(most, int((room[asked] // demand[asked]).min())))

    def taken(here: list[Kept], then: float) -> np.ndarray:
        return sum((k.amount for k in here if k.start <= then < k.end), np.zeros_like(demand))

    in_order = sorted(expected, key=lambda e: e[0])
    wanted = max(1, int(state.groups.gang[bucket]))
    moments = {now, *(e[0] for e in expected), *(x for k in before for x in (k.start, k.end))}

    for then in sorted(m for m in moments if now <= m < np.inf):
        fits = [min(m, fit(n, then)) for n, m in enumerate(most)]
        if sum(fits) >= wanted:
            break
    else:
        return None
    takes, left = [0] * nodes.n, wanted
    for moment in sorted(m for m in moments if now <= m <= then):
        so_far = [k for k, e in enumerate(in_order) if e[0] <= moment]
        firsts = [k for k in so_far if in_order[k][0] == moment]
        for step in [None, *firsts]:  # those that end at the same moment one by one
            count = (firsts[0] if firsts else len(so_far)) if step is None else step + 1
            some = range(nodes.n) if moment == now else {e[1] for e in in_order if e[0] == moment}
            some = {in_order[step][1]} if step is not None else some if moment == now else set()
            some = set(some) | ({k.node for k in before if moment in (k.start, k.end)} if step is None else set())
            for n in sorted(some):
                more = min(left, max(0, min(fits[n], most[n], fit(n, moment, count)) - takes[n]))
                takes[n] += more
                left -= more
    used = [n for n in range(nodes.n) if takes[n]]
    return used, [takes[n] for n in used], then


def kept_promises(state: State) -> set[tuple[int, int]]:
    """The holds, as rank and node, whose owners will have what they need at their start, if all ends when it is expected to."""
    ranks, found = state.holds.rank[: state.holds.n].tolist(), set()
    kept = list(zip(kept_in(state), ranks, strict=True))
    for one, rank in kept:
        before = [k.amount for k, r in kept if k.node == one.node and r <= rank and k.start <= one.start < k.end]
        if (state.nodes.free[one.node] + one.ended >= sum(before)).all():
            found.add((rank, one.node))
    return found


def placed_keeping_promises(state: State, fact: TasksPlaced) -> None:
    """Let tasks be placed; whoever it is, no reservation is delayed by it but for those of higher rank than its own.

    But where queues are placed that have a guarantee: they may take what would be revoked for them again.
    """
    holds = state.holds
    rows = state.job_rows(fact.job)
    owners = holds.rank[: holds.n][np.isin(holds.group[: holds.n], state.jobs.group[rows])].tolist()
    guarded = state.queues.guarded[state.jobs.queue[rows]]
    theirs = set(np.asarray(fact.node)[guarded].tolist())
    kept = kept_promises(state)
    before = {(rank, n) for rank, n in kept if rank < min(owners, default=rank + 1) and n not in theirs}
    apply(state, fact)
    assert before <= kept_promises(state), "room that was kept is taken"


def same(state: State) -> bytes:
    """A state as bytes that are equal for equal states."""
    return b"".join(snapshot.dump(state))


def replay(facts: list[Fact]) -> State:
    """A state made anew from facts that went through their written form."""
    state = new_state()
    for fact in facts:
        apply(state, decode(encode(fact)))
    return state


def check_claims_are_served(state: State) -> None:
    """Where all that was decided has happened and nobody is stopping, nothing is kept for a claim: whose it was is served."""
    assert not startable_claims(state), f"jobs {startable_claims(state)} have room that is back, and are not served"
    held, h = state.held_rows(), state.holds
    claims = np.flatnonzero(h.kind[: h.n] != RESERVATION)
    if len(claims) and (state.tasks.status[held] <= RUNNING).all():
        raise AssertionError(f"room is kept for jobs {h.job[claims].tolist()} that has come back, and they are not served")


def placed_naively(state: State, now: float, most: int = 10_000, beyond: bool = False) -> list[tuple[int, int]]:
    """What a cycle should place, as (job number, node) in order: no heap, no cursor, no bucket, everything looked at anew.

    `beyond` has revocable jobs alone go above limits.
    """
    jobs, nodes, queues = state.jobs, state.nodes, state.queues
    R = len(state.resources)
    free = nodes.free[: nodes.n].copy()
    kept = kept_in(state)
    promised = queues.promised[: queues.n]
    before = counted_before(state) + promised
    served = queues.served.tolist()
    at_tick, mean = means(state, 0), means(state, 1)
    spare = queues.spare[: queues.n].copy()
    used, count_tasks, count_jobs = queues.used[: queues.n].copy(), queues.tasks.copy(), queues.jobs.copy()
    waiting = {j: int(jobs.waiting[j]) for j in range(jobs.n) if jobs.id[j] != NONE and jobs.group[j] != NONE}
    bounded = {j: int(jobs.at_most[j] - jobs.holding[j]) for j in waiting if jobs.at_most[j]}
    waiting |= {j: min(waiting[j], more) for j, more in bounded.items()}
    holding = {j: int(jobs.holding[j]) for j in waiting}
    buckets = {j: int(jobs.group[j]) for j in waiting}
    out: set[int] = set()  # buckets that were stopped
    full: set[tuple[int, int]] = set()  # (bucket, job) that may not start for the number of jobs
    shut: set[int] = set()  # queues of which the first was stopped
    result: list[tuple[int, int]] = []

    @cache
    def path(q: int) -> list[int]:
        return [q] if q == 0 else [q, *path(int(queues.parent[q]))]

    counted = [True] * R
    hdrf = bool((queues.policy[: queues.n] == 4).any())

    def able_in(q: int) -> list[int]:
        """The jobs below a queue that can still be served."""
        waits = [j for j, left in waiting.items() if left and q in path(int(jobs.queue[j]))]
        first = {int(jobs.queue[j]): j for j in sorted(waits, key=lambda j: (jobs.priority[j], -jobs.id[j]))}
        return [
            j for j in waits
            if buckets[j] not in out and (buckets[j], j) not in full
            and (not queues.strict[jobs.queue[j]] or (first[int(jobs.queue[j])] == j and jobs.queue[j] not in shut))
        ]  # fmt: skip

    def saturate(stopped: int | None) -> None:
        """Under hdrf: count no more what no node has enough of for anybody who can still be served."""
        open_nodes = [n for n in range(nodes.n) if nodes.up[n] and not nodes.draining[n]]
        for r in range(R) if hdrf else []:
            rooms = [room_beside(kept, free, n, np.inf, np.inf)[r] for n in open_nodes]
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
        amounts = [a + before[q, r] * charged for r, a in enumerate(counts_as(q))]
        shares = [
            amounts[r] / state.cluster.total[r] / queues.weight[q, r]
            for r in range(R)
            if state.cluster.total[r] > 0 and (counted[r] or not inner)
        ]
        return rounded(max([0.0, *shares]))

    def goes_first(q: int, job: int) -> bool:
        """Whether a queue goes first with a job for what it is guaranteed; or the next below it, where that is nothing."""
        demand, first = state.shapes.demand[jobs.shape_row[job]], False
        count = max(1, int(state.groups.gang[buckets[job]]))
        for x in path(int(jobs.queue[job])):
            has_now, named = used[x] + claimed(x, NONE), (demand > 0) & (queues.guarantee[x] > 0)
            if as_yarn(int(queues.parent[x])):
                first = needy_as_yarn(x) if queues.guarantee[x].any() else first
            elif named.any():
                first = bool((has_now + count * demand <= queues.guarantee[x])[named].all())
            if x == q:
                break
        return first

    def as_yarn(p: int) -> bool:
        return bool(queues.policy[p] == 7 or 2**19 <= queues.policy[p] < 2**20)

    def of_minimum(c: int) -> dict[int, tuple[Fraction, Fraction | float]]:
        """By resource, in the order in which YARN looks at them: a queue's share, and what part of its minimum it has."""
        policy, has_now = queues.policy[queues.parent[c]], used[c] + claimed(c, NONE)
        columns = [int(policy - 2**19)] if policy != 7 else np.flatnonzero(state.cluster.total).tolist()
        part = {r: Fraction(int(has_now[r]), int(queues.guarantee[c, r])) if queues.guarantee[c, r] else np.inf for r in columns}
        share = {r: exact_share(state, c, r, used + promised) for r in columns}
        return {r: (share[r], part[r]) for r in sorted(columns, key=lambda r: (-share[r], part[r], r))}

    def needy_as_yarn(c: int) -> bool:
        return any(part < 1 for _, part in list(of_minimum(c).values())[:1])

    def in_order(q: int, first_of: tuple[int, ...] = ()) -> int | None:
        """The job that queue q would serve next, of those that some queues go first with."""
        children = [c for c in range(queues.n) if queues.parent[c] == q]
        if not children:
            able = [j for j in able_in(q) if all(goes_first(x, j) for x in first_of)]
            return min(able, key=lambda j: (-jobs.priority[j], jobs.id[j]), default=None)
        options = []
        for c in children:
            job = in_order(c, (*first_of, c))
            below = job is not None
            if job is None:
                job = in_order(c, first_of)
            if job is None:
                continue
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
            elif queues.policy[q] == 7 or 2**19 <= queues.policy[q] < 2**20:
                parts_of_minimum, needy = of_minimum(c), needy_as_yarn(c)
                pairs = list(parts_of_minimum.values())
                first = [part if needy else share for share, part in pairs[:1]]
                numbers = first + [part if below else share for share, part in pairs]
                key = (not below, not needy and bool(queues.weightless[c]), numbers, served[c], name)
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
                            (used[c, r] + promised[c, r]) / state.cluster.total[r] / queues.weight[c, r]
                            for r in range(R)
                            if state.cluster.total[r]
                        ),
                    ]
                )
                past = max(
                    [
                        0.0,
                        *(mean[c][r] / state.cluster.total[r] / queues.weight[c, r] for r in range(R) if state.cluster.total[r]),
                    ]
                )
                key = (not below, 0, rounded(share + past), served[c], name)
            elif queues.policy[q] >= 2**21:
                r = queues.policy[q] - 2**21
                priority = max(500.0, mean[c][r]) / queues.weight[c, r]
                has = used[c, r] + promised[c, r]
                key = (not below, 0, rounded(has * priority if has else -1 / priority), served[c], name)
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

    def until(job: int, n: int, kept: list[Kept]) -> float:
        """When a task of a job will have ended on a node, if it is placed there now."""
        q, lasts = int(jobs.queue[job]), float(jobs.time_limit[job])
        if 10 * queues.overran[q] <= queues.trusted[q] + 10:
            doubted = any(k.slips >= 2 for k in kept if k.node == n)
            lasts = min(lasts, usual_naively(state, job) * (4 if doubted else 1))
        return now + lasts

    def is_beside(job: int, k: Kept) -> bool:
        """Whether a reservation for a job's bucket stays where it is when more of it is placed on a node."""
        leaf = int(jobs.queue[job])
        if state.groups.gang[buckets[job]] or leaf not in k.apart or count_tasks[leaf] + 1 > k.ran:
            return False
        return bool(now < k.start)

    def wasted(n: int, demand: np.ndarray) -> float:
        """What of scarce resources lies in the part of a node that a task takes, and the task does not need; of all there is.

        Capacities are parts of the largest node's, rounded up to 1 / a power of two.
        """
        there = nodes.capacity[: nodes.n][nodes.up[: nodes.n]].tolist()
        by_resource = list(zip(*there, strict=True))
        total, pairs = list(map(sum, by_resource)), zip(map(max, by_resource), nodes.capacity[n].tolist(), strict=True)
        about = [big / 2 ** ((big // c).bit_length() - 1) if c else 0.0 for big, c in pairs]
        scarce = [r for r in range(R) if total[r] and not all(c[r] for c in there)]
        taken = max((int(demand[r]) / about[r] for r in range(R) if demand[r]), default=0.0)
        return sum(max(0.0, taken * about[r] - int(demand[r])) / total[r] for r in scarce)

    def find(job: int, free: np.ndarray, kept: list[Kept]) -> tuple[int, Kept | None] | None:
        demand = state.shapes.demand[jobs.shape_row[job]]
        mask = state.cluster.masks[state.shapes.mask[jobs.shape_row[job]]]

        def ok(n: int, room: np.ndarray) -> bool:
            fits = all(room[r] >= demand[r] for r in range(R) if demand[r] > 0)
            return bool(nodes.up[n] and not nodes.draining[n] and mask[n] and fits)

        for k in kept:
            if k.group == buckets[job] and k.tasks and ok(k.node, room_beside(kept, free, k.node, np.inf, k.rank)):
                return k.node, k
        found = {}
        for n in range(nodes.n):
            room = room_beside(kept, free, n, np.inf, np.inf)
            if ok(n, room):
                found[n] = [Fraction(int(room[r]), max(1, int(nodes.capacity[n, r]))) for r in range(R)]
        if found:
            most = [Fraction(int(demand[r]), max(1, int(state.cluster.total[r]))) for r in range(R)]
            r, fit = most.index(max(most)), state.index.specs[int(jobs.id[job])].fit
            sign = {"": 0, "pack": 1, "spread": -1}[fit] if max(most) else 0
            return min(found, key=lambda n: (wasted(n, demand), sign * found[n][r], n)), None
        for n in dict.fromkeys(k.node for k in kept):
            if until(job, n, kept) < np.inf and ok(n, room_beside(kept, free, n, until(job, n, kept), np.inf)):
                return n, None
            here = [k for k in kept if k.node == n]
            passed = [k for k in here if not k.claim and k.group != buckets[job] and claims_from(job, k.group)]
            rank = min([k.rank for k in passed], default=np.inf)
            after = [k for k in here if k.rank >= rank]
            may = all(claims_from(job, k.group) and not claims_from(next_of(k.group), buckets[job]) for k in after)
            if passed and may and ok(n, room_beside(kept, free, n, np.inf, rank)):
                return n, None
        return None

    def next_of(bucket: int) -> int:
        return int(state.groups.head[bucket])

    def claims_from(job: int, bucket: int) -> bool:
        """Whether a job's next task has a claim for a guarantee to what a bucket's leaf has."""
        demand, others = state.shapes.demand[jobs.shape_row[job]], path(int(state.groups.leaf[bucket]))
        count, misses = max(1, int(state.groups.gang[buckets[job]])), False
        for q in path(int(jobs.queue[job])):
            if q in others:
                return False
            has, named = used[q] + claimed(q, NONE), (demand > 0) & (queues.guarantee[q] > 0)
            if ((has + count * demand) > queues.guarantee[q])[named].any():
                return False
            if as_yarn(int(queues.parent[q])) and named.any() and not needy_as_yarn(q):
                if misses:
                    return False
            else:
                misses |= bool(named.any())
            if queues.parent[q] in others:
                return misses
        return False

    state.order.ready(state, 1)
    write_entitled(state)
    parts = state.order.queues.entitled

    def withheld(q: int) -> np.ndarray:
        """What a queue, with those below it, does not lend to others just now."""
        children = [c for c in range(1, queues.n) if queues.parent[c] == q]
        below = sum((withheld(c) for c in children), np.zeros_like(used[q]))
        return np.maximum(below, np.maximum(0, queues.nonlendable[q] - used[q] - claimed(q, NONE)))

    def claimed(q: int, but: int) -> np.ndarray:
        """What is kept for claims below a queue, but for those of a bucket."""
        mine = [k.amount for k in kept if k.claim and k.group != but and q in path(int(state.groups.leaf[k.group]))]
        return sum(mine, np.zeros_like(used[q]))

    def counted_beside(q: int, but: int) -> tuple[int, int]:
        """For how many tasks, and new jobs, room is kept for claims below a queue, but for those of a bucket."""
        tasks = dict.fromkeys((k.group for k in kept if k.claim), 0)
        for k in kept:
            if k.claim and k.group != but and q in path(int(state.groups.leaf[k.group])):
                tasks[k.group] += k.tasks
        begin = 0
        for bucket, count in tasks.items():
            left = count
            for j in sorted((j for j in waiting if buckets[j] == bucket and waiting[j]), key=lambda j: jobs.id[j]):
                if left > 0 and (bucket, j) not in full:
                    left -= waiting[j]
                    begin += holding[j] == 0
        return sum(tasks.values()), begin

    def attempt(job: int) -> tuple[list[int], np.ndarray, list[Kept]] | None:
        """Where the job's next task, or gang, would go, and the room that is left then; None, and why is kept, if nowhere."""
        if beyond and not jobs.revocable[job]:
            out.add(buckets[job])
            shut.add(jobs.queue[job])
            return None
        demand = state.shapes.demand[jobs.shape_row[job]]
        count = waiting[job] if jobs.gang[job] else 1
        line = path(int(jobs.queue[job]))
        bound = used if jobs.revocable[job] else used - spare
        others = [c for c in range(1, queues.n) if c not in line and queues.parent[c] in line]
        lent = state.cluster.total - used[0] - sum((withheld(c) for c in others), np.zeros_like(used[0]))
        lent -= claimed(0, buckets[job])
        others_have = {q: claimed(q, buckets[job]) for q in line}
        over = (
            any(
                demand[r] > 0
                and queues.limit[q, r] != UNLIMITED
                and bound[q, r] + others_have[q][r] + count * demand[r] > queues.limit[q, r]
                for q in (line if not beyond else [])
                for r in range(R)
            )
            or any(
                count * demand[r] > lent[r]
                for r in range(R)
                if demand[r] and queues.nonlendable.any() and (used[0] + claimed(0, NONE)).any()
            )
            or any(count_tasks[q] + counted_beside(q, buckets[job])[0] + count > queues.max_tasks[q] for q in line)
        )
        if over:
            out.add(buckets[job])
            shut.add(jobs.queue[job])
            return None
        if holding[job] == 0 and any(count_jobs[q] + counted_beside(q, buckets[job])[1] >= queues.max_jobs[q] for q in line):
            full.add((buckets[job], job))
            shut.add(jobs.queue[job])
            return None
        spots, trial, trial_kept = [], free.copy(), deepcopy(kept)
        for _ in range(count):
            spot = find(job, trial, trial_kept)
            if spot is None:
                out.add(buckets[job])
                shut.add(jobs.queue[job])
                saturate(job)
                return None
            n, mine = spot
            if mine is not None and not is_beside(job, mine):
                mine.tasks -= 1
                mine.amount = mine.amount - demand
            for k in trial_kept:
                if k.node == n and until(job, n, trial_kept) <= k.start and int(jobs.queue[job]) not in k.apart:
                    k.back = k.back + demand
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
            spare[q] += jobs.revocable[job] * len(spots) * state.shapes.demand[jobs.shape_row[job]]
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
