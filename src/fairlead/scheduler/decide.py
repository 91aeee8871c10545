"""Decide what follows from a state: placements, preemptions, reservations, jobs to forget.

`decide` is pure: the same state gives the same facts, and no decision changes because of it. The caller writes the facts to the
journal, applies them to the state, and then has the engine carry them out. What a cycle learned is cached in the state's order:
at once if nothing was placed, else when exactly these placements were applied.
"""

from collections import Counter
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fairlead.model.specs import Offer, Ranges
from fairlead.scheduler import facts
from fairlead.scheduler.effects import Learned, ends_early
from fairlead.scheduler.entitlements import write_entitled
from fairlead.scheduler.facts import Fact
from fairlead.scheduler.frameworks import requests as frameworks
from fairlead.scheduler.frameworks import reservations
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.kernel.constants import DROP, KEEP, NO_NODE, NONLENDABLE, NOT_REACHED, OFFERED_NODE, SERVE
from fairlead.scheduler.kernel.constants import OFFERED_LEAF as LEAF
from fairlead.scheduler.kernel.view import CLAIM_DUE, CYCLE, MIN_OFFER, OFFERED
from fairlead.scheduler.preemption.claims import keep_for_claims, preempt_for_claims, withdraw_claims
from fairlead.scheduler.preemption.reclaim import ask_back
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import PLACED, RUNNING, WAITING
from fairlead.scheduler.tables import I64, NONE

MOST_PLACEMENTS = 20_000
"""Tasks that one decision places at most, which keeps facts small; the next decision continues."""
BEFORE_A_CYCLE = (facts.OffersRescinded, facts.FrameworkGone, facts.ReservationDropped, facts.NodesClaimed)
"""Facts before the cycle that release resources or jobs, so that another cycle follows."""
MOST_NUMBERS = 10_000_000
"""An ended job is forgotten once this many were submitted after it: the index covers all numbers since the first known."""


class Decision(NamedTuple):
    """New facts; True if there is more to decide at once; and what the cycle learned, for `apply`."""

    facts: list[Fact]
    more: bool = False
    learned: Learned | None = None


@dataclass(frozen=True)
class Plan:
    """The result of a kernel cycle: see `plan_cycle` in `kernel/cycle.pxi`."""

    what: int
    count: int
    about: int
    more: bool
    start: float
    slips: int
    number: int
    passed: int


@dataclass(frozen=True)
class Cycle:
    """The result of a dry run: the jobs that would be placed, on which nodes, and why each group was not served further.

    stop, stop_order, stop_job : per group, see :class:`fairlead.scheduler.kernel.view.GroupCache`
    """

    job: I64
    node: I64
    stop: I64
    stop_order: I64
    stop_job: I64


def run_cycle(state: State) -> Cycle:
    """Serve the queues in the order of their policies, as a dry run: nothing changes."""
    plan = _plan(state, MOST_PLACEMENTS, np.inf, thorough=True, strict=False)
    n = state.groups.n
    cache = state.order.groups
    mine = cache.stop_cycle[:n] == state.order.counts[CYCLE] - 1
    kept = ((cache.stop, NOT_REACHED), (cache.stop_order, 0), (cache.stop_job, NONE))
    stop, order, job = (np.where(mine, column[:n], otherwise) for column, otherwise in kept)
    needs = np.maximum(1, state.groups.gang[:n, None]) * state.shapes.demand[state.groups.shape_row[:n]]
    full = (state.cluster.total - state.queues.used[0] < needs).any(axis=1)
    stop[full & (stop == NONLENDABLE)] = NO_NODE  # whatever others lend
    placed, on = (state.order.planned[name][: plan.count].copy() for name in ("planned_job", "planned_node"))
    return Cycle(placed, on, stop, order, job)


def _plan(state: State, most: int, now: float, thorough: bool, strict: bool) -> Plan:
    view = state.order.ready(state, most)
    write_entitled(state, strict)
    return Plan(**scheduling.decide_cycle(view, thorough, most, now))


def decide(state: State, now: float, most: int = MOST_PLACEMENTS, strict: bool = False) -> Decision:
    """Decide what follows from the state at this time, including which jobs are forgotten.

    state : not changed
    now : seconds, as in the facts
    most : maximum number of placements
    strict : raise PolicyError if a policy fails to divide; by default the failure is logged
    """
    now = float(now)  # the only type that kernels are compiled for
    decision = decide_without_forgetting(state, now, most, strict)
    forgotten = _to_forget(state)
    if forgotten:
        decision.facts.append(facts.JobsForgotten(at=now, ids=forgotten))
    return decision


def decide_without_forgetting(state: State, now: float, most: int = MOST_PLACEMENTS, strict: bool = False) -> Decision:
    """Like :func:`decide`, but forget no jobs."""
    found, learned = settle_first(state, now), None
    # What frameworks yield is offered with what else is free there. Who is due, or waited for a job that is cancelled, may go
    # before all others (rule: stays).
    if state.frameworks.yielding or any(isinstance(fact, facts.JobsDue | facts.JobCancelled) for fact in found):
        return Decision(found, more=True)
    gives_back = any(isinstance(fact, BEFORE_A_CYCLE) for fact in found)  # the cycle does not see these
    plan = _plan(state, most, now, thorough=False, strict=strict)
    offers, cut = _offered(state, now), False
    if plan.passed:
        passed = state.order.groups.passed_list[: plan.passed]
        found.append(facts.JobsPassedOver(at=now, ids=state.jobs.id[passed].tolist()))
    if plan.what == SERVE:
        count, kept = keep_for_claims(state, plan.count, now)
        if kept:
            return Decision(found if gives_back else [*found, *kept], more=True)
        if cut := count < plan.count:
            plan, offers = replace(plan, count=count, more=True), []
    if plan.what == KEEP:
        nodes, tasks = (state.order.planned[name][: plan.count].tolist() for name in ("planned_node", "planned_tasks"))
        job = int(state.jobs.id[plan.about])
        start, slips, number = plan.start, plan.slips, plan.number
        apart = [state.tree.names[q] for q in np.flatnonzero(state.order.queues.apart[: state.queues.n])]
        found.append(
            facts.NodesReserved(at=now, id=job, nodes=nodes, tasks=tasks, start=start, slips=slips, apart=apart, number=number)
        )
    elif plan.what == DROP:
        job, number = int(state.holds.job[plan.about]), int(state.holds.number[plan.about])
        found.append(facts.ReservationDropped(at=now, id=job, number=number))
    elif plan.count or offers:
        if plan.count:
            placed = _placed(state, plan.count, now, plan.more or gives_back)
            found.append(placed)
            if not (offers or cut):  # the cycle assumed what has not been applied yet
                learned = Learned(int(state.order.counts[CYCLE]), state.version + bool(plan.passed), placed)
        found += offers
    else:
        scheduling.settle(state.view(), plan.more)
    more = plan.more or gives_back
    more |= plan.passed > 0 and len(found) == 1  # what comes last is decided once this is applied
    if now >= state.times[CLAIM_DUE] and not plan.more:
        if found:
            more = True  # claims come last: when nothing else can be placed
        else:
            found, claims_left = preempt_for_claims(state, now)
            more |= claims_left or bool(found)
    beyond = state.settings.revoke and _revocable_wait(state)
    if not plan.more and (beyond or _any_goes_last(state, now)):
        if found:
            more = True  # they only get what nobody else can use
        else:
            count, last_more = scheduling.plan_last(state.order.ready(state, most), most, now, beyond)
            first, found = keep_for_claims(state, count, now)
            last_more = last_more or first < count
            found += [_placed(state, first, now, last_more)] if first else []
            found += _offered(state, now) if first == count else []
            more = more or last_more
    if state.frameworks.role_reservations and not found and not more:  # those that no other offer included
        found = reservations.given_back(state, now)
        found, more = (found, True) if found else reservations.offers_of_reservations(state, MIN_OFFER, now)
    if state.settings.revoke and state.frameworks.members and state.queues.spare_tasks[0]:
        found = found if found or more else ask_back(state, now)  # when nothing else can be offered
        more |= bool(found)
    return Decision(found, more, learned)


def next_step(state: State, event: float, now: float, happened: float) -> tuple[float, float]:
    """Return when the next step is due after that of `now`, and when something happened last by then.

    Nothing comes from outside before `event`; something happened last at `happened`. Seconds. The live scheduler and
    simulations step by this.
    """
    view = state.order.ready(state, 1)
    event = min(event, state.dependencies.next_timer())
    return scheduling.next_step(view, event, True, now, happened)


def _revocable_wait(state: State) -> bool:
    """True if revocable jobs wait: they may exceed limits into idle resources."""
    b = state.groups
    return state.any_revocable and bool((b.revocable[: b.n] & ((b.head[: b.n] != NONE) | b.is_framework[: b.n])).any())


def _any_goes_last(state: State, now: float) -> bool:
    b, last = state.groups, state.queues.last_until > now
    return bool(last.any()) and bool((b.is_framework[: b.n] & last[b.leaf[: b.n]]).any())


def settle_first(state: State, now: float) -> list[Fact]:
    """Return the facts that follow from the state regardless of who is served next."""
    found: list[Fact] = []
    if state.broken_gangs:
        found += _end_broken_gangs(state, now)
    if state.deadlines and state.deadlines[0][0] <= now:
        late = sorted(attempt for at, attempt in state.deadlines if at <= now and state.runs(attempt))
        late = [attempt for attempt in late if attempt[0] not in state.broken_gangs]  # what is left of these is stopped already
        if late:
            job, index, number = np.array(late, np.int64).T.copy()
            found.append(facts.TasksExpired(at=now, job=job, index=index, attempt=number))
    waits = state.dependencies
    found += [facts.JobCancelled(at=now, id=job) for job in sorted(waits.doomed)]
    lost = sorted(waits.doomed_tasks.items())
    found += [facts.JobCancelled(at=now, id=job, indices=sorted(places)) for job, places in lost if job not in waits.doomed]
    if due := waits.due(now):
        found.append(facts.JobsDue(at=now, ids=due))
    if state.holds.n:
        found += withdraw_claims(state, now)
    if state.frameworks.members or state.frameworks.void or state.frameworks.executors:
        found += frameworks.settled(state, now)
    return found


def _to_forget(state: State) -> list[int]:
    """Return the ended jobs to forget now: several at once, when there are too many."""
    keep, last = state.settings.keep_jobs, state.index.last
    most = keep + max(0, keep // 20)
    if len(state.ended_jobs()) + state.index.heavier > most:  # an upper bound
        remembered = _remembered(state)
        if remembered > most:
            return _choose_forgotten(state, remembered - keep)
    if last - state.index.first > MOST_NUMBERS:
        ended = state.ended_jobs()
        return ended[ended < last - MOST_NUMBERS].tolist()
    return []


def _remembered(state: State) -> int:
    """Count the ended jobs that are remembered; a large job counts as several."""
    heavy = state.index.heavy
    if not heavy:
        return len(state.ended_jobs())
    rows = state.job_rows(np.fromiter(heavy, np.int64, len(heavy)))
    more = np.fromiter(heavy.values(), np.int64, len(heavy))
    return len(state.ended_jobs()) + int(more[~np.isnan(state.jobs.finished_at[rows])].sum())


def _choose_forgotten(state: State, surplus: int) -> list[int]:
    """Choose ended jobs to forget: repeatedly the oldest job of the user who has most. A large job counts as several.

    So a user with many or large ended jobs displaces only their own.
    """
    ended = state.ended_jobs().tolist()
    specs, heavy = state.index.specs, state.index.heavy
    has: Counter[int | None] = Counter()
    order = []  # by how much a user has while this job is their oldest
    for place in range(len(ended) - 1, -1, -1):
        number = ended[place]
        uid, weight = specs[number].uid, 1 + heavy.get(number, 0)
        has[uid] += weight
        order.append((-has[uid], place, weight))
    order.sort()
    places = []
    for _, place, weight in order:
        if surplus <= 0:
            break
        places.append(place)
        surplus -= weight
    return [ended[place] for place in sorted(places)]


def _placed(state: State, count: int, now: float, more: bool) -> facts.TasksPlaced:
    columns, gaps = scheduling.chosen_attempts(state.view(), count)
    job, index, attempt, node = columns
    if gaps:
        rows = state.order.planned["planned_job"][:count]
        _skip_gaps(state, rows, index)
        attempt[:] = state.tasks.attempt[state.jobs.first[rows] + index] + 1
    return facts.TasksPlaced(at=now, job=job, index=index, attempt=attempt, node=node, more=more)


def _offered(state: State, now: float) -> list[Fact]:
    count = int(state.order.counts[OFFERED])
    if not count:
        return []
    f, offers, gone, left_ports = state.frameworks, list[Offer](), dict[int, reservations.ReservedAmounts](), dict[int, Ranges]()
    for k in range(count):
        leaf, node = state.order.offered_to[[LEAF, OFFERED_NODE], k].tolist()
        who, role = f.at[state.tree.names[leaf]]
        amount = state.quantities(state.order.offered_rest[k])
        apart = _take_idle_reservations(state, node, role, gone)
        free = left_ports.setdefault(node, reservations.free_on(state, state.cluster.specs[node].name))
        ports = reservations.for_offer(state, f.members[who].leaves[role], free)
        left_ports[node] = reservations.without(free, ports)
        cost = reservations.cost_of_offer(state, leaf, now)
        offers.append(Offer(f.last_offer + 1 + k, who, role, node, amount, apart, ports, cost))
    return [facts.OffersMade(at=now, offers=offers)]


def _take_idle_reservations(
    state: State, node: int, role: str, left: dict[int, reservations.ReservedAmounts]
) -> reservations.ReservedAmounts:
    """Take the node's idle reservations for the role from `left`, by node: the first offer for a role includes them all."""
    name = state.cluster.specs[node].name
    if name not in state.frameworks.role_reservations:
        return {}
    idle = left.setdefault(node, reservations.idle_on(state, name))
    mine = reservations.idle_for(state, name, role, idle)
    left[node] = {mark: amount for mark, amount in idle.items() if mark not in mine}
    return mine


def _skip_gaps(state: State, rows: I64, index: I64) -> None:
    """Set `index` to the first waiting tasks of jobs whose waiting tasks are not contiguous."""
    for row in np.unique(rows[state.jobs.irregular[rows]]):
        first, count = state.jobs.first[row], state.jobs.tasks[row]
        mine = slice(first, first + count)
        waiting = np.flatnonzero((state.tasks.status[mine] == WAITING) & ~state.tasks.delayed[mine])
        chosen = rows == row
        index[chosen] = waiting[: chosen.sum()]


def _end_broken_gangs(state: State, now: float) -> list[Fact]:
    """Stop the rest of each gang that lost a task, since it restarts as a whole; cancel one that ends early."""
    found, made = [], list[Fact]()
    for job in sorted(state.broken_gangs):
        row = state.job_row(job)
        first, count = state.jobs.first[row], state.jobs.tasks[row]
        status = state.tasks.status[first : first + count]
        if not ends_early(state, row):
            found += [first + np.flatnonzero((status == PLACED) | (status == RUNNING))]
        elif np.isin(status, (WAITING, PLACED, RUNNING)).any():
            made.append(facts.JobCancelled(at=now, id=job))
    tasks = np.concatenate(found) if found else np.zeros(0, np.int64)
    if len(tasks):
        made.append(facts.TasksRevoked(at=now, **state.task_columns(tasks), claim=None))
    return made
