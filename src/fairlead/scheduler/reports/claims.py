"""Preemption, for people: what a waiting job may preempt and what prevents it, and how safe a running job is.

Nothing is guessed: the kernels that plan preemptions are asked.
"""

from collections import Counter
from collections.abc import Iterator
from math import inf
from typing import Any

import numpy as np

from fairlead.model.quantity import round_quantity
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.preemption import claims
from fairlead.scheduler.queue_tree import up_to_root
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import CLAIM
from fairlead.scheduler.tables import FAIR_SHARE, GUARANTEE, IDLE, NONE, PRIORITY

DUE, KEPT, DEFERRED, _ = CLAIM.statuses


def safety(state: State, row: int, now: float) -> dict[str, Any]:
    """Return how safe a running job is at a time (inf: unknown).

    That is how much of its queue's use others may preempt: ``safety`` as text; ``beyond``, the amounts above the guarantee, in
    base units.
    """
    queues, leaf = state.queues, int(state.jobs.queue[row])
    if not (state.settings.revoke and queues.revocable[leaf]):
        return {"beyond": {}, "safety": "its queue is never preempted for others"}
    demand = state.shapes.demand[state.jobs.shape_row[row]]
    path = up_to_root(queues, leaf)[:-1]
    at = now if now < inf else 0.0
    v, preemption_plan, beyond = state.view(), claims.preemption_plan_of(state, at), np.zeros_like(demand)
    own = preemption_plan.runs["job"] == row
    mine = scheduling.releasable(v, preemption_plan, leaf, row, beyond)
    beyond *= demand > 0
    if not mine:
        said = ["its queue is within its guarantee: it is not preempted for others' guarantees"]
    elif not _may_be_claimed(state, path):
        said = ["no other queue is guaranteed anything or claims its fair share: nobody preempts it for that"]
    elif at == now and own.any() and preemption_plan.runs["recovering"][own].all():  # rule: once-per-run
        lasts = float(state.jobs.safe_for[row])
        said = [f"it was preempted for a guarantee before: until it has run for {lasts:g} s, it is not preempted for one again"]
    else:
        amounts = state.quantities(beyond).items()
        some = " and ".join(f"{round_quantity(resource, amount)} {resource}" for resource, amount in amounts)
        said = [f"others below their guarantee or fair share may preempt {some} of its queue"]
        if queues.min_runtime[leaf] > 0:
            said.append(f"tasks younger than {queues.min_runtime[leaf]:g} s are protected")
    if state.jobs.revocable[row]:
        said.append("it is revocable, so it is preempted before jobs that are not")
        if any((queues.used[q] > queues.limit[q])[demand > 0].any() for q in path):
            said.append("its queue is above its limit, so others that need the resources preempt it at once")
    if queues.priority_revokes[leaf]:
        said.append("jobs of higher priority in its queue preempt it at once")
    return {"beyond": state.quantities(beyond), "safety": "; ".join(said)}


def _may_be_claimed(state: State, path: list[int]) -> bool:
    """Return True if some queue that is not on a path may ever claim a guarantee or a fair share."""
    queues, n = state.queues, state.queues.n
    claims = queues.guarantee[:n].any(axis=1) & (queues.guarantee_timeout[:n] < np.inf)
    claims |= queues.share_timeout[:n] < np.inf
    claims[path] = False
    return bool(claims.any())


def claim(state: State, row: int, now: float) -> dict[str, Any]:
    """Return what a waiting job may preempt as ``claim``, text; empty if its queue has its guarantee and fair share."""
    v, group = state.view(), int(state.jobs.group[row])
    if claim_status(state, group) == KEPT:
        served = int(scheduling.served_tasks(v, group))
        return {"claim": f"tasks are stopping, and their room is kept for {served} of its tasks"}
    texts: list[str] = []
    for kind in _kinds_of(state, group) if claims.next_claim_may_start(state, group) else ():
        text, preempts = _text_about(state, group, kind, now)
        texts.append(text)
        if preempts:
            break
    if not texts and (text := _larger_than_guarantee(state, group)):
        texts.append(text)
    return {"claim": "; ".join(texts)} if texts else {}


def _larger_than_guarantee(state: State, group: int) -> str:
    """Return that a group's next task, or gang, needs more than its queue lacks of a guarantee (rule: within-own), if so."""
    queues, leaf = state.queues, int(state.groups.leaf[group])
    if state.groups.revocable[group] or queues.guarantee_timeout[leaf] == inf:
        return ""
    demand = state.shapes.demand[state.groups.shape_row[group]] * max(1, int(state.groups.gang[group]))
    for q in up_to_root(queues, leaf)[:-1]:
        has, of = queues.used[q], queues.guarantee[q]
        for r in np.flatnonzero((demand > 0) & (has < of) & (has + demand > of)).tolist():
            resource, name = state.resources[r], state.display_name(state.tree.names[q])
            needs, some, all_of = (round_quantity(resource, int(x[r])) for x in (demand, has, of))
            what = f"queue {name} has {some} of its {all_of} guaranteed {resource}"
            return f"{what}, and the job needs {needs}: nobody is preempted for it"
    return ""


def _text_about(state: State, group: int, kind: int, now: float) -> tuple[str, bool]:
    """Return a text about a group's claim of a class, and whether it preempts, now or later."""
    v, leaf, seconds = state.view(), int(state.groups.leaf[group]), 0.0
    if kind == GUARANTEE:
        first, _ = claims.asking_queues(state, claims.preemption_plan_of(state, now), claims.Due(kind, now, group))
        seconds = scheduling.guarantee_timeout(v, leaf, first)
    elif kind == FAIR_SHARE:
        seconds = float(state.queues.share_timeout[leaf])
    begin = {PRIORITY: "lower priorities in its queue are running", IDLE: "revocable jobs use what was idle"}.get(kind)
    begin = begin or _short_of(state, group, kind)
    if seconds == inf:
        return f"{begin}; preemption for it is off", False
    if claim_status(state, group, kind) == DEFERRED:
        return f"{begin}; no eligible victims make room so far; {_prevented(state, group, kind, now)}", False
    when = f"once that has lasted {seconds:g} s" if seconds else "now"
    return f"{begin}: {'others' if kind in (GUARANTEE, FAIR_SHARE) else 'they'} are preempted for it {when}", True


def claim_status(state: State, group: int, kind: int = IDLE) -> str:
    """Return the status of a group's claim, of a class, as the table of its lifecycle names it."""
    if scheduling.served_tasks(state.view(), group):
        return KEPT
    groups = state.groups
    return DEFERRED if groups.retry_at[group] > groups.since[group] and kind >= groups.retry_from[group] else DUE


def _kinds_of(state: State, group: int) -> Iterator[int]:
    """Yield the classes that a group's next task or gang has a claim of, the most urgent first."""
    v, queues, leaf = state.view(), state.queues, int(state.groups.leaf[group])
    if state.groups.revocable[group]:
        return
    if scheduling.guarded_part(v, group, scheduling.kept_for_claims(v))[0] != NONE:
        yield GUARANTEE
    if queues.share_timeout[leaf] < inf and queues.short_since[leaf] < inf:
        claim = claims.Due(FAIR_SHARE, 0.0, group)
        if claims.asking_queues(state, claims.preemption_plan_of(state, 0.0), claim)[0] != NONE:  # rule: within-own
            yield FAIR_SHARE
    if queues.priority_revokes[leaf] and claims.lower_runs(state, leaf, int(state.groups.priority[group])):
        yield PRIORITY
    if scheduling.idle_is_used(v, v.used):
        yield IDLE


def _short_of(state: State, group: int, kind: int) -> str:
    """Return how far the queue of a claim is below its guarantee or fair share."""
    claim, preemption_plan = claims.Due(kind, 0.0, group), claims.preemption_plan_of(state, 0.0)
    last = claims.asking_queues(state, preemption_plan, claim)[1]
    found = claims.claim_details(state, preemption_plan, claim, last, preemption_plan.room)
    has, of = (round_quantity(found.resource, amount) for amount in (found.has, found.of))
    what = f"{of} guaranteed {found.resource}" if kind == GUARANTEE else f"fair share of {of} {found.resource}"
    return f"queue {state.display_name(found.queue)} has {has} of its {what}"


def _prevented(state: State, group: int, kind: int, now: float) -> str:
    """Return why no victims make room for a claim: how many other tasks are not eligible, by reason."""
    v, preemption_plan = state.view(), claims.preemption_plan_of(state, now)
    first, last = claims.asking_queues(state, preemption_plan, claims.Due(kind, now, group))
    scheduling.find_eligible(v, preemption_plan, group, kind, first, last)
    preemption_plan.wider[0] = kind == GUARANTEE
    own, demand = int(state.groups.leaf[group]), state.shapes.demand[state.groups.shape_row[group]]
    found: Counter[str] = Counter()
    for k, run in enumerate(preemption_plan.runs):
        q, helps = int(run["leaf"]), (state.shapes.demand[state.jobs.shape_row[run["job"]]] > 0) & (demand > 0)
        if not helps.any() or (q == own) != (kind == PRIORITY):
            continue
        if scheduling.is_eligible_victim(v, preemption_plan, k, group, kind):
            found["eligible, but not enough on any node"] += 1  # rule: enough
        elif not state.queues.revocable[q]:
            found["in queues that are not revocable"] += 1  # rule: revocable
        elif run["protected"]:
            found[f"started less than {state.queues.min_runtime[q]:g} s ago"] += 1  # rule: min-runtime
        elif run["recovering"]:
            found["preempted before, and not run for their usual time since"] += 1  # rule: once-per-run
        elif kind == PRIORITY and state.jobs.priority[run["job"]] >= state.groups.priority[group]:
            found["of the same or a higher priority"] += 1  # rule: lower-priority
        elif kind == PRIORITY:
            found["their queue would preempt for them again"] += 1  # rule: no-counter-claim
        elif kind == IDLE:
            found["not revocable, or within limits"] += 1  # rule: above-limit
        else:
            # rules: keeps-guarantee, keeps-share
            found["within their guarantee or share" if preemption_plan.is_eligible_victim[q] else "outside the claim's path"] += 1
    if not found:
        return "no other task uses what it needs"
    counts = ", ".join(f"{why} ({count} task{'s' * (count > 1)})" for why, count in found.most_common())
    return f"other tasks: {counts}"
