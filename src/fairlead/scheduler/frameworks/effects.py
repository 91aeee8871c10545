"""Apply facts about frameworks and offers; as in :mod:`fairlead.scheduler.effects`, a class of facts names its function."""

from collections.abc import Sequence

import numpy as np

from fairlead.model.specs import Job, path_to_root
from fairlead.outcomes import Outcome
from fairlead.scheduler import facts
from fairlead.scheduler.framework_index import MOST_UPDATE_IDS, Charge, Executor, Launched, Member, account_of
from fairlead.scheduler.frameworks import reservations
from fairlead.scheduler.growth import ensure_group, ensure_queue, ensure_shape, make_role
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.kernel.constants import UNUSED_OFFER_FACTOR
from fairlead.scheduler.kernel.view import IN_ORDER, MIN_OFFER
from fairlead.scheduler.state import State
from fairlead.scheduler.statuses import CANCELLED, OFFER, REVOKING, SUCCEEDED
from fairlead.scheduler.tables import I8, I64, NONE, UNLIMITED, Bools, Offers, Refusals, vector

COMPACT_FROM = 64
"""Refusals from which on expired ones are dropped, at each power of two."""


def _framework_subscribed(state: State, fact: facts.FrameworkSubscribed) -> None:
    f = state.frameworks
    before = f.members.get(fact.id)
    kept = before.leaves if before else {}
    for role, leaf in kept.items():
        if role not in fact.framework.roles:
            _want_no_offers(state, leaf)
            f.free(leaf)
            state.queues.last_until[state.tree.rows[leaf]] = 0
    busy = {state.tree.names[row] for row in np.flatnonzero(state.queues.tasks[: state.queues.n])}
    leaves = {}
    for role in fact.framework.roles:
        make_role(state, role, fact.at)
        leaves[role] = kept.get(role) or f.free_leaf(role, busy)
        f.at[leaves[role]] = (fact.id, role)
        row = ensure_queue(state, leaves[role])
        state.queues.declined[row] = 0
        if role not in kept:  # what others did in this leaf before does not count
            state.queues.allocations[row] = state.queues.served[row] = 0
            state.queues.mean[row] = state.queues.recent[row] = 0
            state.queues.last_until[row] = f.last_until.get(account_of(fact.framework), 0.0)
    since = before.since if before else fact.at
    f.members[fact.id] = Member(fact.framework, leaves, [*fact.suppressed], since)
    for role in leaves:
        _update_wants(state, fact.id, role)
    make_way(state, fact.at)
    state.order.invalidate()


def _framework_disconnected(state: State, fact: facts.FrameworkDisconnected) -> None:
    member = _member(state, fact.id)
    member.away_since, member.not_before = fact.at, fact.not_before
    for leaf in member.leaves.values():
        _want_no_offers(state, leaf)


def _framework_gone(state: State, fact: facts.FrameworkGone) -> None:
    for leaf in _member(state, fact.id).leaves.values():
        _want_no_offers(state, leaf)
        state.queues.last_until[state.tree.rows[leaf]] = 0
    state.frameworks.leave(fact.id)


def _roles_suppressed(state: State, fact: facts.RolesSuppressed) -> None:
    member = _member(state, fact.id)
    member.suppressed = sorted({*member.suppressed, *fact.roles})
    for role in fact.roles:
        _update_wants(state, fact.id, role)


def _roles_revived(state: State, fact: facts.RolesRevived) -> None:
    member = _member(state, fact.id)
    member.suppressed = [role for role in member.suppressed if role not in fact.roles]
    for role in fact.roles:
        row = _leaf_row(state, fact.id, role)
        _forget_refusals(state, row)
        state.queues.declined[row] = 0
        _update_wants(state, fact.id, role)
    make_way(state, fact.at)


def _offers_made(state: State, fact: facts.OffersMade) -> None:
    offers = state.offers
    for offer in fact.offers:
        leaf, amount = _leaf_row(state, offer.framework, offer.role), vector(offer.amount, state.resources)
        there = 0 <= offer.node < state.nodes.n and state.nodes.up[offer.node]
        if offer.id <= state.frameworks.last_offer or not there or not {*offer.amount} <= {*state.resources}:
            raise facts.Contradiction(f"offer {offer.id} cannot have been made in this state")
        if not scheduling.amount_fits(state.view(), offer.node, amount):
            raise facts.Contradiction(f"offer {offer.id} exceeds what is free on node {offer.node}")
        revocable = _member(state, offer.framework).framework.revocable
        row = offers.extend(1)
        offers.id[row], offers.leaf[row], offers.node[row] = offer.id, leaf, offer.node
        offers.made[row], offers.revocable[row], offers.rest[row] = fact.at, revocable, amount
        offers.cost[row] = offer.cost
        scheduling.happened(state.view(), leaf, offer.node, amount, revocable, 1, fact.at)
        reservations.offered(state, offer)
        f, name = state.frameworks, state.cluster.specs[offer.node].name
        reservations.hold(state, f.offered_ports, name, offer.id, offer.ports)
        state.frameworks.last_offer = offer.id
        group = _offer_group(state, leaf, revocable)
        state.groups.number[group] = state.index.last + 1
        _touch(state, group)


def _offers_accepted(state: State, fact: facts.OffersAccepted) -> None:
    _member(state, fact.framework).unanswered = 0
    left = vector(fact.left, state.resources)
    leaves, nodes, held = _close(state, fact.ids, "accepted", fact.at, fact)
    if len({*zip(leaves.tolist(), nodes.tolist(), strict=True)}) != 1:
        raise facts.Contradiction(f"offers {fact.ids} are not of one node and one role")
    if (left < held.sum(axis=0)).any():
        state.queues.declined[leaves[0]] = 0
    reservations.refused(state, leaves[0], nodes[0], fact.left_apart, fact.until, fact.at)
    if fact.left:
        _refuse(state, leaves[0], nodes[0], left, fact.until, fact.at)


def _offers_declined(state: State, fact: facts.OffersDeclined) -> None:
    _member(state, fact.framework).unanswered = 0
    apart = [state.frameworks.offered_apart.get(offer, {}) for offer in fact.ids]
    for leaf, node, amount, more in zip(*_close(state, fact.ids, "declined", fact.at), apart, strict=True):
        _refuse(state, leaf, node, amount, fact.until, fact.at)
        reservations.refused(state, leaf, node, more, fact.until, fact.at)


def _offers_rescinded(state: State, fact: facts.OffersRescinded) -> None:
    held = [offer for offer in fact.ids if state.frameworks.void.pop(offer, None) is None]
    apart = [state.frameworks.offered_apart.get(offer, {}) for offer in held]
    leaves, nodes, _ = _close(state, held, "rescinded", fact.at)
    for leaf, node, more in zip(leaves, nodes, apart, strict=True) if fact.why == "expired" else []:
        _member(state, state.frameworks.at[state.tree.names[leaf]][0]).unanswered += 1
        _refuse(state, leaf, node, np.full(len(state.resources), UNLIMITED), fact.until, fact.at)  # also what it grows by
        reservations.refused(state, leaf, node, more, fact.until, fact.at)


def _updates_acknowledged(state: State, fact: facts.UpdatesAcknowledged) -> None:
    for job, update in zip(fact.jobs, fact.updates, strict=True):
        if job not in state.frameworks.task_of:
            raise facts.Contradiction(f"job {job} is no task of a framework")
        state.frameworks.acknowledge(job, update)


def _task_said(state: State, fact: facts.TaskSaid) -> None:
    who, task = state.frameworks.task_of.get(fact.job, ("", ""))
    if not who or state.frameworks.tasks[who][task].over:
        raise facts.Contradiction(f"job {fact.job} is no running task of a framework")
    launched = state.frameworks.tasks[who][task]
    launched.heard = [*launched.heard, fact.uuid][-MOST_UPDATE_IDS:]
    if fact.what == "ending":
        launched.last_words = fact.said
    else:
        state.frameworks.note(fact.job, fact.what, fact.at, fact.said)


def drop_offers_on(state: State, node: int, why: str, at: float) -> None:
    lost = state.offers.id[: state.offers.n][state.offers.node[: state.offers.n] == node].tolist()
    state.frameworks.void |= dict.fromkeys(lost, why)
    _close(state, lost, "its node is lost or changes", at)


def make_way(state: State, at: float, nodes: I64 | None = None) -> None:
    """Let those that go last give up offers, all or on nodes where tasks ended, if others wait: they may be of use now."""
    b, offers = state.groups, state.offers
    if not offers.n:
        return
    last = state.queues.last_until > at
    there = last[offers.leaf[: offers.n]] | (offers.cost[: offers.n] == 0)
    if nodes is not None:
        there &= np.isin(offers.node[: offers.n], nodes)
    if there.any() and ((b.head[: b.n] != NONE) | (b.is_framework[: b.n] & ~last[b.leaf[: b.n]])).any():
        state.frameworks.yielding = sorted({*state.frameworks.yielding, *offers.id[: offers.n][there].tolist()})


def launched(state: State, number: int, job: Job, at: float) -> None:
    """Register a job as a framework's task or executor."""
    f = state.frameworks
    if job.framework not in f.members or job.queue not in f.at:
        raise facts.Contradiction(f"job {number} is a task of framework {job.framework!r}, which is unknown")
    if job.executor and not job.task:
        f.executors[number] = Executor(number, job.framework, job.executor, "")
        return
    tasks = f.tasks.setdefault(job.framework, {})
    if job.task in tasks:
        raise facts.Contradiction(f"framework {job.framework} has a task {job.task!r} already")
    tasks[job.task] = Launched(number, "", f.at[job.queue][1], job.demand, at, executor=job.executor)
    f.task_of[number] = (job.framework, job.task)


def note_placed(state: State, rows: I64, nodes: I64, at: float) -> None:
    """Note the placement of tasks of frameworks among these jobs."""
    for k in np.flatnonzero(state.jobs.once[rows]).tolist():
        number, f = int(state.jobs.id[rows[k]]), state.frameworks
        spec, node = state.index.specs[number], state.cluster.specs[int(nodes[k])].name
        reservations.taken(state, spec, node, 1, at)
        reservations.hold(state, f.ports, node, number, spec.ports)
        who, task = f.task_of.get(number, ("", ""))
        if number in f.executors:
            f.executors[number].node = node
        elif who:
            launched = f.tasks[who][task]
            launched.node = node
            if launched.executor:
                _enter(state, launched)
            else:
                f.note(number, "starting", at)


def _enter(state: State, launched: Launched) -> None:
    f = state.frameworks
    within = f.executor_on(f.task_of[launched.job][0], launched.executor, launched.node)
    if within is None or f.executors[within].over:
        raise facts.Contradiction(f"job {launched.job} runs in executor {launched.executor!r}, which is unknown")
    f.executors[within].tasks.append(launched.job)
    f.inside[launched.job] = within


def note_started(state: State, rows: I64, at: float) -> None:
    """Note the start of tasks of frameworks among these jobs; those in executors report it themselves."""
    for row in rows[state.jobs.once[rows]].tolist():
        number = int(state.jobs.id[row])
        if number not in state.frameworks.inside:
            state.frameworks.note(number, "running", at)


def note_ended(state: State, rows: I64, was: I8, outcome: I64, code: I64, at: float) -> None:
    """Note the end of tasks of frameworks among these jobs; `was` is their status before."""
    for k in np.flatnonzero(state.jobs.once[rows]).tolist():
        task = state.jobs.first[rows[k]]
        status, node = state.tasks.status[task], state.cluster.specs[state.tasks.node[task]].name
        what = "failed"
        if status in (SUCCEEDED, CANCELLED):
            what = "finished" if status == SUCCEEDED else "killed"
        elif outcome[k] == Outcome.LOST:
            what = "lost"
        elif was[k] == REVOKING:
            what = "revoked"
        number = int(state.jobs.id[rows[k]])
        reservations.taken(state, state.index.specs[number], node, -1, at)
        charge = state.frameworks.charges.pop(number, None)
        if charge is not None and what not in ("lost", "revoked"):  # due if it ran shorter than its offer was held
            _charge(state, int(state.jobs.queue[rows[k]]), charge.account, charge.cost * (charge.even_at - at), at)
        reservations.give_back(state.frameworks.ports, node, number)
        state.frameworks.end(number, what, at, int(state.tasks.outcome[task]), int(code[k]))


def _member(state: State, who: str) -> Member:
    if who not in state.frameworks.members:
        raise facts.Contradiction(f"there is no framework {who}")
    return state.frameworks.members[who]


def _leaf_row(state: State, who: str, role: str) -> int:
    leaves = _member(state, who).leaves
    if role not in leaves:
        raise facts.Contradiction(f"framework {who} has no role {role!r}")
    return state.tree.rows[leaves[role]]


def _offer_group(state: State, leaf: int, revocable: bool) -> int:
    return ensure_group(state, (leaf, 0, ensure_shape(state, Job("", {})), 0, revocable))


def wants_offers(state: State, who: str, role: str) -> bool:
    """True if a framework gets offers for a role: it wants them, and no queue above is draining."""
    member = _member(state, who)
    if member.away_since is not None or role in member.suppressed:
        return False
    return not any(state.tree.spec_of(name).draining for name in path_to_root(member.leaves[role]))


def queues_configured(state: State) -> None:
    """Update which frameworks get offers, after queues were configured."""
    for who, member in state.frameworks.members.items():
        for role in member.leaves:
            _update_wants(state, who, role)


def _update_wants(state: State, who: str, role: str) -> None:
    member, row = _member(state, who), _leaf_row(state, who, role)
    _want_no_offers(state, member.leaves[role], forget=False)
    if wants_offers(state, who, role):
        group = _offer_group(state, row, member.framework.revocable)
        state.groups.is_framework[group], state.groups.number[group] = True, state.index.last + 1
        scheduling.note_pending(state.view(), group, 1)
        if state.order.counts[IN_ORDER]:
            state.order.groups.parked[group] = False
        _touch(state, group)


def _want_no_offers(state: State, leaf: str, forget: bool = True) -> None:
    """Let no framework wait in a leaf; by default, forget what it refused."""
    row, b = state.tree.rows[leaf], state.groups
    for group in np.flatnonzero((b.leaf[: b.n] == row) & b.is_framework[: b.n]).tolist():
        scheduling.note_pending(state.view(), group, -1)
        b.is_framework[group] = False
        _touch(state, group)
    if forget:
        _forget_refusals(state, row)


def _touch(state: State, group: int) -> None:
    if state.order.counts[IN_ORDER]:
        scheduling.touch_group(state.view(), group)


def offer_status(state: State, offer: int) -> str:
    """Return the status of an offer that was made: open, void or over."""
    row = np.searchsorted(state.offers.id[: state.offers.n], offer)
    if row < state.offers.n and state.offers.id[row] == offer:
        return "open"
    return "void" if offer in state.frameworks.void else "over"


def _close(
    state: State, ids: Sequence[int], event: str, at: float, accepted: facts.OffersAccepted | None = None
) -> tuple[I64, I64, I64]:
    """Close offers; returns their leaves and nodes, and what they held."""
    offers, n = state.offers, state.offers.n
    wrong = [offer for offer in ids if not OFFER.allows(event, offer_status(state, offer))]
    if wrong or len({*ids}) < len(ids):
        raise facts.Contradiction(f"of offers {[*ids]} some are not open: they cannot be {event}")
    rows = np.searchsorted(offers.id[:n], np.array(ids, np.int64))
    found = offers.leaf[rows], offers.node[rows], offers.rest[rows]
    revocable, view = offers.revocable[rows].tolist(), state.view()
    _note_unused(state, rows, at, accepted)
    for offer, leaf, node, amount, more in zip(ids, *found, revocable, strict=True):
        scheduling.happened(view, leaf, node, amount, more, -1, at)
        reservations.closed(state, offer, node)
        reservations.give_back(state.frameworks.offered_ports, state.cluster.specs[node].name, offer)
    if len(ids):
        keep = np.ones(n, np.bool_)
        keep[rows] = False
        _keep(offers, keep)
        state.frameworks.yielding = [offer for offer in state.frameworks.yielding if offer not in ids]
    return found


def _note_unused(state: State, rows: I64, at: float, accepted: facts.OffersAccepted | None) -> None:
    """Charge frameworks for what they held in vain of offers: all but what tasks take, which owe it until they have run as long.

    What they reserve is held in vain.
    """
    offers, f, parts = state.offers, state.frameworks, accepted.parts if accepted else []
    for row in np.flatnonzero(offers.cost[: offers.n] * (offers.made[: offers.n] < at)).tolist() if len(rows) else []:
        if row in rows:
            leaf, node, held = int(offers.leaf[row]), int(offers.node[row]), at - float(offers.made[row])
            room = state.nodes.free[node] + offers.rest[: row + 1][offers.node[: row + 1] == node].sum(axis=0)  # and older ones
            cost = float(offers.cost[row]) * _kept_from_others(state, leaf, node, offers.rest[row], room, at)
            account = account_of(f.members[f.at[state.tree.names[leaf]][0]].framework)
            _charge(state, leaf, account, held * cost * (1.0 - min(1.0, sum(parts))), at)
            for job, part in zip(accepted.jobs, parts, strict=False) if accepted and cost else []:  # older facts have no parts
                other = f.charges.get(job, Charge(0.0, 0.0, account))
                f.charges[job] = Charge(max(other.even_at, at + held), other.cost + cost * part, account)


def _kept_from_others(state: State, leaf: int, node: int, amount: I64, room: I64, at: float) -> float:
    """Return the part of the cluster that an amount keeps from others that wait, in `room` of a node, of which it is a part.

    Others need CPUs and memory together: it is what they could use of the room, less what they could use of the rest, by the
    smaller of the two.
    """
    capacity, total, every = state.nodes.capacity[node], np.maximum(1, state.cluster.total), state.resources
    needed = [r for r in map(every.index, {*MIN_OFFER} & {*every}) if capacity[r]]
    parts = np.maximum(0, [room[needed], (room - amount)[needed]]) / capacity[needed]
    part, without = parts.min(axis=1, initial=1.0).tolist()
    others = state.groups.leaf[: state.groups.n] != leaf
    if part <= without or not reservations.is_wanted(state, amount, room, others, at):
        return 0.0
    return float((part - without) * (capacity / total)[room > 0].max())


def _resources_reserved(state: State, fact: facts.ResourcesReserved) -> None:
    """Move resources to another reservation. What an account gives back counts as if it was offered since it was last used."""
    before = reservations.resources_reserved(state, fact)
    if before is not None and before.account and not fact.mark:
        leaf, room = reservations.leaf_of(state, before.role), state.nodes.free[fact.node]
        amount = vector(fact.amount, state.resources)
        cost = UNUSED_OFFER_FACTOR * _kept_from_others(state, leaf, fact.node, amount, room, fact.at)
        _charge(state, leaf, before.account, cost * min(fact.at - before.since, state.settings.offer_timeout), fact.at)


def _charge(state: State, leaf: int, account: str, owed: float, at: float) -> None:
    """Let a leaf go after all others for what it owes, times how many go last; who comes for its account begins with that.

    If it is no framework's any more, only the latter.
    """
    last, known, is_live = state.queues.last_until, state.frameworks.last_until, state.tree.names[leaf] in state.frameworks.at
    if owed > 0.0:
        count = np.count_nonzero(last[: state.queues.n] > at) + (last[leaf] <= at)
        until = max(float(last[leaf]) if is_live else known.get(account, at), at) + owed * int(count)
        known[account] = max(known.get(account, at), until)
        if is_live:
            last[leaf] = until


def _refuse(state: State, leaf: int, node: int, amount: I64, until: float, at: float) -> None:
    """Refuse, for the framework of a leaf, all parts of this amount on the node until then."""
    there = np.minimum(amount, state.nodes.capacity[node])
    state.queues.declined[leaf] = np.maximum(state.queues.declined[leaf], there)
    refusals = state.refusals
    if until <= at:
        return
    if refusals.n >= COMPACT_FROM and refusals.n & (refusals.n - 1) == 0:
        _keep(refusals, refusals.until[: refusals.n] > at)
        scheduling.link_refusals(state.view(), refusals.n)
    row = refusals.extend(1)
    refusals.leaf[row], refusals.node[row], refusals.until[row] = leaf, node, until
    refusals.refused[row] = amount
    scheduling.link_refusal(state.view(), row)


def _forget_refusals(state: State, leaf: int) -> None:
    refusals = state.refusals
    state.frameworks.refused_apart.pop(state.tree.names[leaf], None)
    if state.queues.refusal[leaf]:
        _keep(refusals, refusals.leaf[: refusals.n] != leaf)
        scheduling.link_refusals(state.view(), refusals.n)


def _keep(table: Offers | Refusals, keep: Bools) -> None:
    """Keep only these rows of a table, in place."""
    n = int(keep.sum())
    for array in (table.rows, *(getattr(table, name) for name in table.WIDE)):
        kept = array[: table.n][keep]
        array[:n] = kept
        array[n : table.n] = np.zeros((), array.dtype)
    table.n = n
