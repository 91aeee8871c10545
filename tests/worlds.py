"""What the scheduler's tests share: random worlds, and a second scheduler to compare with."""

from copy import deepcopy
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from fairlead.model.specs import ROOT
from fairlead.policies import codes
from fairlead.scheduler import snapshot
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.entitlements import write_entitled
from fairlead.scheduler.facts import Fact, NodesReserved, TasksPlaced, decode, encode
from fairlead.scheduler.invariants import check_invariants
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.kernel.constants import EDGES
from fairlead.scheduler.reports.listings import Listing, Selection
from fairlead.scheduler.reports.preemptions import startable_claims
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import PLACED, RUNNING
from fairlead.scheduler.tables import NONE, RESERVATION, UNLIMITED


def list_jobs(state: State, *wanted) -> dict:
    """A complete listing as a page: of a selection, by default all jobs, below a number, with at most so many."""
    listing = Listing(*(wanted or (Selection(),)))
    while not listing.is_over:
        listing.read(state, 1000)
    return {"jobs": listing.found, "next": listing.next}


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

    def bound(q: int, r: int) -> float:
        """What may count, as a part of all there is: half of what the weight entitles to among who is at work, at each level."""
        part = 1.0
        while q > 0:
            parent = int(queues.parent[q])
            siblings = np.flatnonzero(queues.parent[: queues.n] == parent)
            weights = [max(1, round(w)) for w in queues.weight[siblings, r] / queues.weight[siblings, r].max() * 2**40]
            at_work = sum(w for w, row in zip(weights, siblings.tolist(), strict=True) if works[row])
            if queues.policy[parent] not in {codes.FIFO, codes.PRIORITY}:
                part *= 0.5 * weights[siblings.tolist().index(q)] / at_work
            q = parent
        return part

    for q in range(1, queues.n):
        for r, total in enumerate(state.cluster.total.tolist()):
            remains = Fraction(int(queues.remains[queues.parent[q]]), 2**32)
            mean = int(queues.mean[q, r]) + int((1 - remains) * int(queues.recent[q, r]))
            most = max(total, int(queues.used[: queues.n, r].max()))
            fine = 0 if state.grain[r] else min(14, max(0, 49 - most.bit_length()))
            before = int(Fraction(mean * 2**fine, 4 * 2**12)) << int(state.grain[r])
            if before and works[q]:
                found[q, r] = min(before, int((total << fine) * bound(q, r))) / 2**fine
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

    row: int
    node: int
    group: int
    number: int
    tasks: int
    amount: np.ndarray
    start: float
    back: np.ndarray
    ended: np.ndarray
    debt: float
    apart: frozenset[int]
    claim: bool = False

    def comes_before(self, other: "Kept") -> bool:
        """Whether the owner of another may not take what this one needs."""
        if self.start != other.start:
            return self.start < other.start
        return self.row < other.row if self.debt == other.debt else self.debt > other.debt


def nodes_of_late_saved(state: State) -> np.ndarray:
    """The nodes whose kept room nobody enters."""
    h, n = state.holds, state.holds.n
    return np.asarray(h.node[:n][(h.allowance[:n] > 0) & (h.slips[:n] > 0)])


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
        claim = bool(h.kind[k] != RESERVATION)
        amount = count * state.shapes.demand[state.groups.shape_row[bucket]]
        debt = float(state.queues.debt[scheduling.line_of_leaf(state.view(), state.groups.leaf[bucket])])
        start = -np.inf if claim else float(h.start[k])
        found.append(Kept(k, n, bucket, int(h.number[k]), count, amount, start, back, ended, debt, frozenset(apart), claim))
    return found


def room_beside(
    kept: list[Kept], free: np.ndarray, n: int, until: float, own: Kept | None = None, passed: list[Kept] | None = None
) -> np.ndarray:
    """What a task on a node may take that has ended at a time: it must leave what each who starts before that needs then.

    The owner of `own` need only leave it for those that come before; nobody need for those that are `passed`.
    """
    here = [k for k in kept if k.node == n and (own is None or (k is not own and k.comes_before(own)))]
    here = [k for k in here if not any(k is each for each in passed or [])]
    room = free[n].copy()
    for one in here:
        if one.start < until:
            needed = sum((k.amount for k in here if k.start <= one.start), np.zeros_like(one.amount))
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


def latest_end(state: State, t: int, job: int, now: float) -> float:
    """When a task has lasted as long as the longest known of its job, family or queue; if it has already, twice its age."""
    keys = state.jobs.id[job], state.jobs.family[job], state.jobs.queue[job]
    known = state.histograms
    rows = [k for k in range(known.n) if known.key[k] == keys[known.about[k]] and known.counts[k].any()]
    longest = max((EDGES[int(np.flatnonzero(known.counts[k])[-1]) + 1] for k in rows), default=0.0)
    age = max(0.0, now - float(state.tasks.started_at[t])) if state.tasks.status[t] == RUNNING else 0.0
    return now + max(1.0, longest - age if age < longest else age)


def idle_quota(state: State, q: int, has: np.ndarray) -> np.ndarray:
    """What a queue does not lend and does not use while each queue has this much."""
    queues = state.queues
    below = sum((idle_quota(state, c, has) for c in range(1, queues.n) if queues.parent[c] == q), np.zeros_like(has[q]))
    return np.maximum(below, np.maximum(0, queues.nonlendable[q] - has[q]))


def not_lent(state: State, leaf: int, has: np.ndarray) -> np.ndarray:
    """What other queues do not lend to a leaf while each queue has this much."""
    queues, found = state.queues, np.zeros_like(has[0])
    while leaf:
        up = int(queues.parent[leaf])
        beside = [c for c in range(1, queues.n) if queues.parent[c] == up and c != leaf]
        found += sum((idle_quota(state, c, has) for c in beside), np.zeros_like(found))
        leaf = up
    return found


def planned_as_naively(state: State, now: float, fact: NodesReserved) -> None:
    """Check a new plan: its tasks fit at its start, by the ends that it counts on, and not before then on these nodes."""
    bucket = int(state.jobs.group[state.job_row(fact.id)])
    h, apart = state.holds, [state.tree.rows[name] for name in fact.apart]
    demand = state.shapes.demand[state.groups.shape_row[bucket]]
    others = ~((h.group[: h.n] == bucket) & (h.number[: h.n] == fact.number))
    rows = state.held_rows()
    jobs = state.job_rows_of(rows)
    known, ends = state.tasks.until[rows], np.maximum(expected_ends(state, rows, now), now + 1.0)
    ends = np.where((known > now) & (known < np.inf), known, ends)
    if state.queues.tasks[scheduling.line_of_leaf(state.view(), int(state.groups.leaf[bucket]))] == 0:
        ends = np.minimum(ends, [latest_end(state, t, j, now) for t, j in zip(rows.tolist(), jobs.tolist(), strict=True)])
    ends[np.isin(state.jobs.queue[jobs], apart)] = np.inf

    def fits(n: int, then: float) -> int:
        gone = (state.tasks.node[rows] == n) & (ends <= then)
        room = state.nodes.free[n] + state.shapes.demand[state.jobs.shape_row[jobs[gone]]].sum(axis=0)
        room = room - h.amount[: h.n][others & (h.node[: h.n] == n)].sum(axis=0)
        return int((room[demand > 0] // demand[demand > 0]).min())

    def is_lent(then: float) -> bool:
        need, leaf, total = sum(fact.tasks) * demand, int(state.groups.leaf[bucket]), state.cluster.total
        mine = (h.group[: h.n] == bucket) & ((h.number[: h.n] == fact.number) | (h.kind[: h.n] != RESERVATION))
        ended = state.shapes.demand[state.jobs.shape_row[jobs[ends <= then]]].sum(axis=0)
        lent = total - state.queues.used[0] + ended - h.amount[: h.n][~mine].sum(axis=0)
        lent = lent - not_lent(state, leaf, state.queues.used[: state.queues.n] + state.queues.claimed[: state.queues.n])
        ever = need <= total - not_lent(state, leaf, 0 * state.queues.used[: state.queues.n])
        return not state.queues.nonlendable.any() or bool((need <= lent)[(need > 0) & ever].all())

    wanted = dict(zip(fact.nodes, fact.tasks, strict=True))
    assert all(fits(n, fact.start) >= count for n, count in wanted.items()), f"{fact} does not fit then"
    assert is_lent(fact.start), f"{fact} needs what others do not lend"
    before = np.nextafter(fact.start, -np.inf)
    too_early = not is_lent(before) or any(fits(n, before) < count for n, count in wanted.items())
    assert fact.start <= now or too_early, f"{fact} fits before then"


def kept_promises(state: State) -> set[int]:
    """The holds whose owners will have what they need at their start, if all ends when it is expected to."""
    found, kept = set(), kept_in(state)
    for one in kept:
        before = [k.amount for k in kept if k.node == one.node and (k is one or k.comes_before(one))]
        if (state.nodes.free[one.node] + one.ended >= sum(before)).all():
            found.add(int(state.holds.group[one.row]) * 1000 + int(state.holds.number[one.row]))
    return found


def placed_keeping_promises(state: State, fact: TasksPlaced) -> None:
    """Let tasks be placed; whoever it is, no reservation of others is delayed by it.

    But where queues are placed that have a guarantee: they may take what would be revoked for them again.
    """
    groups = state.jobs.group[state.job_rows(fact.job)].tolist()
    guarded = state.queues.guarded[state.jobs.queue[state.job_rows(fact.job)]].any()
    before = {each for each in kept_promises(state) if each // 1000 not in groups}
    apply(state, fact)
    assert guarded or before <= kept_promises(state), "room that was kept is taken"


def same(state: State) -> bytes:
    """A state as bytes that are equal for equal states."""
    days, state.days = state.days, None  # only a journal's states have them
    try:
        return b"".join(snapshot.dump(state))
    finally:
        state.days = days


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
    before = counted_before(state)
    served = np.where(queues.owed > 0, -queues.owed, queues.served).tolist()
    at_tick, mean = means(state, 0), means(state, 1)
    spare = queues.spare[: queues.n].copy()
    used, count_tasks, count_jobs = queues.used[: queues.n].copy(), queues.tasks.copy(), queues.jobs.copy()
    waiting = {j: int(jobs.waiting[j] - jobs.delayed[j]) for j in range(jobs.n) if jobs.id[j] != NONE and jobs.group[j] != NONE}
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
            rooms = [room_beside(kept, free, n, np.inf)[r] for n in open_nodes]
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
            within = bool((has_now + count * demand <= queues.guarantee[x])[named].all()) if named.any() else first
            if as_yarn(int(queues.parent[x])) and queues.guarantee[x].any():
                needy = needy_as_yarn(x)
                within = needy and (within or x == q)
            first = within
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
        share = {r: exact_share(state, c, r, used) for r in columns}
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
                        *(used[c, r] / state.cluster.total[r] / queues.weight[c, r] for r in range(R) if state.cluster.total[r]),
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
                has = used[c, r]
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

    def until(job: int, n: int) -> float:
        """When a task of a job will have ended on a node, if it is placed there now."""
        q, lasts = int(jobs.queue[job]), float(jobs.time_limit[job])
        if 10 * queues.overran[q] <= queues.trusted[q] + 10:
            lasts = min(lasts, usual_naively(state, job))
        return now + lasts

    def wasted(n: int, demand: np.ndarray, first: bool) -> float:
        """What of scarce resources lies in the part of a node that a task takes, and the task does not need; of all there is.

        Capacities are parts of the largest node's, rounded up to 1 / a power of two.
        """
        there = nodes.capacity[: nodes.n][nodes.up[: nodes.n]].tolist()
        by_resource = list(zip(*there, strict=True))
        total, pairs = list(map(sum, by_resource)), zip(map(max, by_resource), nodes.capacity[n].tolist(), strict=True)
        about = [big / 2 ** ((big // c).bit_length() - 1) if c else 0.0 for big, c in pairs]
        some = [r for r in range(R) if total[r]]
        scarce = [r for r in some if not all(c[r] for c in there)] or (some if first else [])
        taken = max((int(demand[r]) / about[r] for r in range(R) if demand[r]), default=0.0)
        return sum(max(0.0, taken * about[r] - int(demand[r])) / total[r] for r in scarce)

    def accepts(job: int, n: int, room: np.ndarray) -> bool:
        demand, mask = state.shapes.demand[jobs.shape_row[job]], state.cluster.masks[state.shapes.mask[jobs.shape_row[job]]]
        return bool(nodes.up[n] and not nodes.draining[n] and mask[n] and (room >= demand)[demand > 0].all())

    def with_room(job: int, free: np.ndarray, kept: list[Kept]) -> list[Kept]:
        """What is kept for a job's bucket and there, what starts first before the rest."""
        own = sorted((k for k in kept if k.group == buckets[job] and k.tasks), key=lambda k: (k.start, k.row))
        return [k for k in own if accepts(job, k.node, room_beside(kept, free, k.node, np.inf, k))]

    def binds(k: Kept, job: int) -> bool:
        """Whether a job that has no room of its own must leave what is kept: unless it would be preempted for the job's claim."""
        if (
            k.claim
            or k.group == buckets[job]
            or scheduling.next_is_safe(state.view(), next_of(k.group))
            or not claims_from(job, k.group)
        ):
            return True
        return claims_from(next_of(k.group), buckets[job])

    def find(
        job: int, free: np.ndarray, kept: list[Kept], taken: list[int], promise: int | None
    ) -> tuple[int, Kept | None] | None:
        demand = state.shapes.demand[jobs.shape_row[job]]
        fit = state.index.specs[int(jobs.id[job])].fit
        taken = taken if fit == "apart" else []

        def ok(n: int, room: np.ndarray) -> bool:
            return accepts(job, n, room) and n not in taken

        own = [k for k in with_room(job, free, kept) if k.node not in taken]
        for k in own:
            if k.number == promise if state.groups.gang[buckets[job]] else not k.back.any():
                return k.node, k
        found = {}
        for n in range(nodes.n):
            room = room_beside(kept, free, n, np.inf)
            if ok(n, room):
                found[n] = [Fraction(int(room[r]), max(1, int(nodes.capacity[n, r]))) for r in range(R)]
        if found:
            most = [Fraction(int(demand[r]), max(1, int(state.cluster.total[r]))) for r in range(R)]
            r = most.index(max(most))
            sign = {"": 0, "apart": 0, "pack": 1, "spread": -1}[fit] if max(most) else 0
            return min(found, key=lambda n: (wasted(n, demand, not sign), sign * found[n][r], n)), None
        if own:
            return own[0].node, own[0]
        closed = {int(n) for n in nodes_of_late_saved(state)}
        for n in dict.fromkeys(k.node for k in kept):
            if n not in closed and until(job, n) < np.inf and ok(n, room_beside(kept, free, n, until(job, n))):
                return n, None
            here = [k for k in kept if k.node == n and not binds(k, job)]
            if here and ok(n, room_beside(kept, free, n, np.inf, None, here)):
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

    def exceeds_lent(job: int, need: np.ndarray) -> bool:
        """Whether a task, or gang, needs what others do not lend or have reserved, and may not.

        Only what is never lent, alone and beside no claim, may use what is not lent.
        """
        leaf, others, held = int(jobs.queue[job]), claimed(0, buckets[job]), reserved_from(job)
        free = state.cluster.total - used[0] - others
        lent = free - not_lent(state, leaf, used + np.array([claimed(q, NONE) for q in range(queues.n)]))
        fits_once = need <= state.cluster.total - not_lent(state, leaf, 0 * used)
        parents, has = queues.parent[: queues.n], used + np.array([claimed(q, NONE) for q in range(queues.n)])
        idle = sum((idle_quota(state, c, has) for c in np.flatnonzero(parents == 0).tolist()), np.zeros_like(lent))
        own = np.minimum(free, idle - not_lent(state, leaf, has))
        return bool(
            ((need > 0) & (need > np.maximum(lent - held, own)) & (fits_once | (lent < 0) | (others > 0) | (held > 0))).any()
        )

    def reserved_from(job: int) -> np.ndarray:
        """What is kept from a job's next task for reservations, of all that is free: on each node by the rule there."""
        own = with_room(job, free, kept)[:1]
        before = [k for k in kept if not own and not binds(k, job)]
        found = np.zeros_like(used[0])
        for n in {k.node for k in kept} if not own or not own[0].claim else ():
            room = room_beside(kept, free, n, np.inf if own else until(job, n), own[0] if own else None, before)
            claims = sum(k.amount for k in kept if k.claim and k.node == n)
            found += np.maximum(0, np.minimum(free[n], free[n] - room) - claims)
        return found

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
        others_have = {q: claimed(q, buckets[job]) for q in line}
        over = (
            any(
                demand[r] > 0
                and queues.limit[q, r] != UNLIMITED
                and bound[q, r] + others_have[q][r] + count * demand[r] > queues.limit[q, r]
                for q in (line if not beyond else [])
                for r in range(R)
            )
            or (queues.nonlendable.any() and exceeds_lent(job, count * demand))
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
        own = sorted({(k.start, k.row, k.number) for k in kept if jobs.gang[job] and k.group == buckets[job]})
        drains = {k.number for k in kept if k.group == buckets[job] and k.back.any()}
        for promise in dict.fromkeys([number for *_, number in own if number not in drains] + [None]):
            if found := fill(job, count, demand, promise):
                return found
        out.add(buckets[job])
        shut.add(jobs.queue[job])
        saturate(job)
        return None

    def fill(job: int, count: int, demand: np.ndarray, promise: int | None) -> tuple[list[int], np.ndarray, list[Kept]] | None:
        """Where these tasks would go, and the room that is left then; a gang's into one full promise first. None if nowhere."""
        spots, trial, trial_kept = [], free.copy(), deepcopy(kept)
        for _ in range(count):
            spot = find(job, trial, trial_kept, spots, promise)
            if spot is None:
                return None
            n, mine = spot
            if mine is not None:
                mine.tasks -= 1
                mine.amount = mine.amount - demand
            for k in trial_kept:
                if k.node == n and until(job, n) <= k.start and int(jobs.queue[job]) not in k.apart:
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
