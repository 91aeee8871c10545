"""Reports on frameworks: what each has, which offers it does not answer, and why it gets none."""

import numpy as np

from fairlead.model.api_types import FrameworkInfo
from fairlead.model.quantity import round_quantity
from fairlead.model.specs import written
from fairlead.plain_text import listed
from fairlead.scheduler.framework_index import Member, queue_of
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.preemption.reclaim import refused_on
from fairlead.scheduler.queue_tree import up_to_root
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import I64, Bools

HOARDS_AFTER_SECONDS = 10.0
"""Seconds without an answer after which a framework hoards its offers, if others want resources.

One that let offers expire before hoards at once.
"""


def list_frameworks(state: State, now: float) -> list[FrameworkInfo]:
    """Return all known frameworks, in the order they came."""
    return [_described(state, who, member, now) for who, member in state.frameworks.members.items()]


def _described(state: State, who: str, member: Member, now: float) -> FrameworkInfo:
    leaves = np.array([state.tree.rows[leaf] for leaf in member.leaves.values()], np.int64)
    mine = np.flatnonzero(np.isin(state.offers.leaf[: state.offers.n], leaves))
    offered = state.queues.offered[leaves].sum(axis=0)
    made = state.offers.made[mine]
    since = float(made.min()) if len(made) else None
    late = since is not None and (now - since > HOARDS_AFTER_SECONDS or member.unanswered > 0)
    b = state.groups
    wants = (b.head[: b.n] >= 0) | b.is_framework[: b.n]
    hoards = late and bool((wants & ~np.isin(b.leaf[: b.n], leaves)).any())
    text, last = _status_text(state, member, mine, now, hoards), float(state.queues.last_until[leaves].max(initial=0.0))
    if last > now:
        text += f"; it goes after all others for {last - now:.0f} s: it or its account held offers and did not use them"
    return {
        "id": who,
        "name": member.framework.name,
        "user": member.framework.user,
        "principal": member.framework.principal,
        "roles": [written(queue_of(role)) for role in member.framework.roles],
        "suppressed": [written(queue_of(role)) for role in member.suppressed],
        "status": "connected" if member.away_since is None else "away",
        "since": member.since,
        "away_since": member.away_since,
        "tasks": sum(not launched.over for launched in state.frameworks.tasks.get(who, {}).values()),
        "used": state.quantities(state.queues.used[leaves].sum(axis=0) - offered),
        "offers": len(mine),
        "offered": state.quantities(offered),
        "offered_since": since,
        "hoards": hoards,
        "text": text,
    }


def _status_text(state: State, member: Member, mine: I64, now: float, hoards: bool) -> str:
    """Return what it waits for, or others wait for, as text."""
    if member.away_since is not None:
        left = member.gone_at - now
        return f"its connection is lost: its tasks are stopped in {max(0.0, left):.0f} s, unless it comes back"
    if len(mine):
        amounts = state.quantities(state.offers.rest[mine].sum(axis=0)).items()
        held = listed([f"{round_quantity(name, amount)} {name}" for name, amount in amounts])
        nodes = sorted({state.cluster.specs[n].name for n in state.offers.node[mine].tolist()})
        waits = now - float(state.offers.made[mine].min())
        text = f"has not answered {_count(len(mine), 'offer')} of {held} on {listed(nodes)} for {waits:.0f} s"
        text += f"; {_count(member.unanswered, 'earlier offer')} expired unanswered" if member.unanswered else ""
        return f"{text}; others wait for what is offered: it hoards" if hoards else text
    wants = [role for role in member.framework.roles if role not in member.suppressed]
    if not wants:
        return "wants no offers: it has suppressed all of its roles"
    return "; ".join(dict.fromkeys(_why_nothing(state, int(state.tree.rows[member.leaves[role]]), now) for role in wants))


def _why_nothing(state: State, leaf: int, now: float) -> str:
    b, room = state.groups, np.zeros(len(state.resources), np.int64)
    found = np.flatnonzero((b.leaf[: b.n] == leaf) & b.is_framework[: b.n])
    if not len(found):
        return f"queue {state.display_name(state.tree.names[leaf])} drains, or one above it"
    group = int(found[0])
    may_exceed = bool(b.revocable[group] and state.settings.revoke)
    scheduling.bound_room(state.order.ready(state, 1), group, may_exceed, room)
    worth = state.order.min_offer
    if not (room >= worth).any():
        return _bounded(state, group, may_exceed)
    n = state.nodes.n
    takes = state.nodes.up[:n] & ~state.nodes.draining[:n]
    rest = np.minimum(room, np.maximum(0, state.nodes.free[:n] - state.nodes.held[:n]))
    has_some = takes & (rest >= worth).any(axis=1)
    refused = has_some & refused_on(state, leaf, rest, now)
    if not has_some.any():
        return "no node has enough left for an offer"
    if (has_some & ~refused).any():
        return "it gets an offer at the next decision"
    text = f"it refused what is left on {_nodes(state, refused)}"
    others = takes & ~has_some
    return f"{text}; {_nodes(state, others)} {'has' if others.sum() == 1 else 'have'} nothing left" if others.any() else text


def _bounded(state: State, group: int, may_exceed: bool) -> str:
    """Return what keeps the framework of a group from anything worth an offer."""
    queues, leaf, view, worth = state.queues, int(state.groups.leaf[group]), state.view(), state.order.min_offer
    for q in up_to_root(queues, leaf) if not may_exceed else []:
        for r, name in enumerate(state.resources):
            if scheduling.left_under(view, group, q, r) < worth[r]:
                limit = round_quantity(name, int(queues.limit[q, r]))
                kept = int(queues.claimed[q, r])
                text = f", of which {round_quantity(name, kept)} is held for claims" if kept else ""
                return f"queue {state.display_name(state.tree.names[q])} is at its limit of {limit} {name}{text}"
    if queues.offer_most[leaf] > 0.0:
        most = (state.cluster.total * queues.offer_most[leaf]).astype(np.int64)
        if (most - queues.offered[leaf] < worth).any():
            return "its open offers have reached the maximum per framework"
    return "all free resources are quota that others do not lend, or held for claims of others"


def _nodes(state: State, chosen: Bools) -> str:
    return listed([state.cluster.specs[n].name for n in np.flatnonzero(chosen).tolist()])


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count > 1)}"
