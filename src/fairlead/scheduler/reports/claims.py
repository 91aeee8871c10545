"""What a job that waits may have revoked for it, and what keeps it from that; and how safe what a job runs is.

As :mod:`fairlead.scheduler.reports.explain`, nothing is guessed: who may preempt is asked of the very kernels that plan.
"""

from collections import Counter
from math import inf
from typing import Any

import numpy as np

from fairlead.model.quantity import format_quantity, round_quantity
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.preemption import Due, asked_for, ledger_of, lower_runs, may_have_more, told
from fairlead.scheduler.queue_tree import up_to_root
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import FAIR_SHARE, GUARANTEE, IDLE, NONE, PRIORITY, WHY


def safety(state: State, row: int) -> dict[str, Any]:
    """How safe what a job runs is: how much others may have revoked of what its queue uses, beyond what is guaranteed.

    Returns
    -------
    dict
        ``safety`` in a line or more; ``beyond`` is the amounts, in base units.
    """
    queues, leaf = state.queues, int(state.jobs.queue[row])
    if not (state.settings.revoke and queues.revocable[leaf]):
        return {"beyond": {}, "safety": "nothing of its queue is revoked for others"}
    demand = state.shapes.demand[state.jobs.shape_row[row]]
    path = up_to_root(queues, leaf)[:-1]
    v, preemption_plan, beyond = state.view(), ledger_of(state, 0.0), np.zeros_like(demand)
    mine = scheduling.releasable(v, preemption_plan, leaf, row, beyond)
    beyond *= demand > 0
    if not mine:
        said = ["its queue is within what it is guaranteed: it is not revoked for others'"]
    else:
        amounts = state.quantities(beyond).items()
        some = " and ".join(f"{round_quantity(resource, amount)} {resource}" for resource, amount in amounts)
        said = [f"others who are below theirs may have {some} of its queue revoked"]
        if queues.min_runtime[leaf] > 0:
            said.append(f"no task in its first {queues.min_runtime[leaf]:g} s")
    if state.jobs.revocable[row]:
        said.append("it is revocable, so it goes before jobs that are not")
        if any((queues.used[q] > queues.limit[q])[demand > 0].any() for q in path):
            said.append("its queue is above its limit, so whoever needs that has it revoked at once")
    if queues.priority_revokes[leaf]:
        said.append("jobs of higher priority in its queue have it revoked at once")
    return {"beyond": state.quantities(beyond), "safety": "; ".join(said)}


def claim(state: State, row: int, now: float) -> dict[str, Any]:
    """What a job that waits may have revoked for it; nothing to say where its queue is not short of what is its.

    Returns
    -------
    dict
        Empty, or ``claim`` in a line.
    """
    v, group = state.view(), int(state.jobs.group[row])
    served = int(scheduling.served_tasks(v, group))
    if served:
        return {"claim": f"room for {served} of it was made by revoking others, and is coming back"}
    kind = _kind_of(state, group)
    if kind is None or not may_have_more(state, group):
        return {}
    leaf, seconds = int(state.jobs.queue[row]), 0.0
    if kind == GUARANTEE:
        first, _ = asked_for(state, ledger_of(state, now), Due(kind, now, group))
        seconds = scheduling.guarantee_timeout(v, leaf, first)
    elif kind == FAIR_SHARE:
        seconds = float(state.queues.share_timeout[leaf])
    begin = {PRIORITY: "lower priorities in its queue are running", IDLE: "revocable jobs use what was idle"}.get(kind)
    begin = begin or _short_of(state, group, kind)
    if seconds == inf:
        return {"claim": f"{begin}; nobody is revoked for it"}
    if state.groups.retry_at[group] > state.groups.since[group] and kind >= state.groups.retry_from[group]:
        return {
            "claim": f"{begin}, and nothing that may be revoked makes room so far: {_prevented(state, group, kind, now)}"
        }
    when = f"after {seconds:g} s of that" if seconds else "now"
    return {"claim": f"{begin}: {'others' if kind in (GUARANTEE, FAIR_SHARE) else 'they'} are revoked for it {when}"}


def _kind_of(state: State, group: int) -> int | None:
    """The first class of which a group's next is a claim."""
    v, queues, leaf = state.view(), state.queues, int(state.groups.leaf[group])
    if state.groups.revocable[group]:
        return None
    if scheduling.guarded_part(v, group, scheduling.kept_for_claims(v))[0] != NONE:
        return GUARANTEE
    if queues.share_timeout[leaf] < inf and queues.short_since[leaf] < inf and _is_within_share(state, group):
        return FAIR_SHARE
    if queues.priority_revokes[leaf] and lower_runs(state, leaf, int(state.groups.priority[group])):
        return PRIORITY
    return IDLE if scheduling.idle_is_used(v, v.used) else None


def _is_within_share(state: State, group: int) -> bool:
    """Whether a group's next would leave its queue within its fair share."""
    return asked_for(state, ledger_of(state, 0.0), Due(FAIR_SHARE, 0.0, group))[0] != NONE


def _short_of(state: State, group: int, kind: int) -> str:
    """How short the queue of a claim is of what is its."""
    claim, preemption_plan = Due(kind, 0.0, group), ledger_of(state, 0.0)
    found = told(state, preemption_plan, claim, asked_for(state, preemption_plan, claim)[1])
    has, of = round_quantity(found.resource, found.has), format_quantity(found.resource, found.of)
    what = f"{of} guaranteed {found.resource}" if kind == GUARANTEE else f"fair share of {of} {found.resource}"
    return f"queue {state.called(found.queue)} has {has} of its {what}"


def _prevented(state: State, group: int, kind: int, now: float) -> str:
    """Why those who run make no room for a claim: how many tasks of others are kept from paying by what."""
    v, preemption_plan = state.view(), ledger_of(state, now)
    first, last = asked_for(state, preemption_plan, Due(kind, now, group))
    scheduling.find_eligible(v, preemption_plan, group, kind, first, last)
    own, demand = int(state.groups.leaf[group]), state.shapes.demand[state.groups.shape_row[group]]
    found: Counter[str] = Counter()
    for k, run in enumerate(preemption_plan.runs):
        q, helps = int(run["leaf"]), (state.shapes.demand[state.jobs.shape_row[run["job"]]] > 0) & (demand > 0)
        if not helps.any() or (q == own) != (kind == PRIORITY):
            continue
        if scheduling.is_eligible_victim(v, preemption_plan, k, group, kind):
            found["revocable, but makes no room for it on a node"] += 1
        elif not state.queues.revocable[q]:
            found["where nothing is revocable"] += 1
        elif run["protected"]:
            found[f"begun less than {state.queues.min_runtime[q]:g} s ago"] += 1
        elif kind == PRIORITY and state.jobs.priority[run["job"]] >= state.groups.priority[group]:
            found["of no lower priority"] += 1
        elif kind == PRIORITY:
            found["what its queue would claim again"] += 1
        elif kind == IDLE:
            found["not of revocable jobs above limits"] += 1
        else:
            found["within what is theirs" if preemption_plan.is_eligible_victim[q] else "where it may not ask"] += 1
    if not found:
        return "nobody else runs what it needs"
    told = ", ".join(f"{why} ({count} task{'s' * (count > 1)})" for why, count in found.most_common())
    return f"what others run is {told}"


__all__ = ["WHY", "claim", "safety"]
