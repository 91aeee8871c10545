"""Reservations of roles, as in Mesos: resources of nodes that only frameworks of a role get; some are volumes.

A reservation counts as used by its role, whole, whether tasks run in it or not: in the leaf ``ROLE/./reserved``, beside those
of the role's frameworks. So what a task takes of it counts nowhere else, its end frees nothing for others, and preempting it
would be useless.

Idle reservations of a node are part of the next offer there to a framework of their role, or of a role below it. If nothing
else of the node is offered, they are offered by themselves, first to the framework served longest ago.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from fairlead.model.quantity import format_quantities
from fairlead.model.specs import Job, Offer, Quantities, Ranges
from fairlead.scheduler.facts import Contradiction, Fact, OffersMade, ResourcesReserved
from fairlead.scheduler.framework_index import RefusedReservation, RoleReservation, own_queue, plus
from fairlead.scheduler.growth import ensure_queue, ensure_resources, make_role
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.kernel.constants import UNUSED_OFFER_FACTOR
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import F64, I64, NONE, Bools, vector, with_all_above

RESERVED = "reserved"
"""Last part of the name of the leaf in which the reservations of a role count."""
ReservedAmounts = dict[str, Quantities]
"""Amounts of reservations by mark."""


class Move(NamedTuple):
    """A transfer of resources to another reservation; see :class:`~fairlead.scheduler.facts.ResourcesReserved`."""

    amount: Quantities
    of: str = ""
    mark: str = ""
    role: str = ""
    said: str = ""
    whole: bool = False


class Moves(NamedTuple):
    """Moves that are made all or none; `number` identifies them."""

    number: int
    moves: Sequence[Move]


class Left(NamedTuple):
    """What is left of offers: unreserved, and of reservations by mark. Reservations in `whole` (volumes) are not divisible."""

    free: Quantities
    apart: ReservedAmounts
    whole: frozenset[str] = frozenset()
    ports: Ranges = []  # noqa: RUF012 never modified

    def without(self, job: Job) -> "Left":
        """Return what is left after a task took what it needs. Raises ValueError with what is missing."""
        free = plus(self.free, job.taken, -1)
        if any(amount < 0 for amount in free.values()):
            amounts = [self.free, *(self.apart.get(mark, {}) for mark in job.apart)]  # unreserved, and of its reservations
            text = " and ".join(format_quantities(amount) for amount in amounts if amount) or "nothing"
            raise ValueError(f"the offers have {text} left")
        apart = dict(self.apart)
        for mark, amount in job.apart.items():
            if mark in self.whole and amount != apart.get(mark, amount):
                raise ValueError(f"a volume is indivisible, and this one has {format_quantities(apart[mark])}")
            apart[mark] = plus(apart.get(mark, {}), amount, -1)
            if any(each < 0 for each in apart[mark].values()):
                has = format_quantities(self.apart.get(mark, {}))
                raise ValueError(f"the reservation that it names has {has} left")
        if missing := without(job.ports, self.ports):
            raise ValueError(f"ports {format_ports(missing)} are not offered; offered: {format_ports(self.ports)}")
        apart = {mark: amount for mark, amount in apart.items() if amount}
        return self._replace(free=free, apart=apart, ports=without(self.ports, joined(job.ports)))

    def after(self, move: Move) -> "Left":
        """Return what is left after a move. Raises ValueError with what is wrong."""
        here, apart = self.apart.get(move.of, {}) if move.of else self.free, dict(self.apart)
        if move.whole and move.mark in self.whole:
            raise ValueError("the volume exists already, or existed before this call")
        if move.of in self.whole and move.amount != here:
            raise ValueError("a volume is destroyed as a whole")
        of = plus(here, move.amount, -1)
        if any(amount < 0 for amount in of.values()):
            raise ValueError("the offers contain less than that")
        free = self.free if move.of else of
        if move.of:
            apart[move.of] = of
        if move.mark:
            apart[move.mark] = plus(apart.get(move.mark, {}), move.amount)
        else:
            free = plus(free, move.amount)
        whole = self.whole | ({move.mark} if move.whole else frozenset())
        apart = {mark: amount for mark, amount in apart.items() if amount}
        return self._replace(free=free, apart=apart, whole=whole)


# -- what facts do ---------------------------------------------------------------------------------------------------


def resources_reserved(state: State, fact: ResourcesReserved) -> RoleReservation | None:
    """Move resources to another reservation; return the one that they were in, if any."""
    if not 0 <= fact.node < state.nodes.n or not state.nodes.up[fact.node] or not (fact.of or fact.mark):
        raise Contradiction(f"nothing can be reserved on node {fact.node}")
    ensure_resources(state, fact.amount)
    here = state.frameworks.role_reservations.setdefault(state.cluster.specs[fact.node].name, {})
    before = here.get(fact.of) if fact.of else None
    if fact.of:
        if before is None or not before.there or _is_more(fact.amount, before.idle):
            raise Contradiction(f"reservation {fact.of} has less idle than that")
        _count(state, fact.node, before.role, fact.amount, -1, fact.at)
        before.amount = plus(before.amount, fact.amount, -1)
        if not before.amount:
            del here[fact.of]
    elif not scheduling.amount_fits(state.view(), fact.node, vector(fact.amount, state.resources)):
        raise Contradiction(f"node {fact.node} has less free than that")
    if fact.mark:
        make_role(state, fact.role, fact.at)
        _count(state, fact.node, fact.role, fact.amount, 1, fact.at)
        new = RoleReservation(fact.role, {}, said=fact.said, whole=fact.whole, account=fact.account)
        reservation = here.setdefault(fact.mark, new)
        reservation.since = _idle_since(state, reservation, fact.amount, before.since if before is not None else fact.at)
        reservation.amount = plus(reservation.amount, fact.amount)
    if not here:
        del state.frameworks.role_reservations[state.cluster.specs[fact.node].name]
    return before


def _idle_since(state: State, reservation: RoleReservation, more: Quantities, at: float) -> float:
    """Return since when its idle resources are idle, on average by their shares of the cluster, with `more` since `at`."""
    total = np.maximum(1, state.cluster.total)
    before, now = (float((vector(each, state.resources) / total).max(initial=0.0)) for each in (reservation.idle, more))
    return at - before / (before + now) * (at - reservation.since) if before + now else at


def _is_more(amount: Quantities, there: Quantities) -> bool:
    return any(each > there.get(name, 0) for name, each in amount.items())


def _count(state: State, node: int, role: str, amount: Quantities, sign: int, at: float) -> None:
    """Count a reservation as used by its role (sign 1), or no longer (-1)."""
    leaf = leaf_of(state, role)
    scheduling.set_apart(state.view(), leaf, node, vector(amount, state.resources), sign, at)


def leaf_of(state: State, role: str) -> int:
    return ensure_queue(state, f"{own_queue(role)}/{RESERVED}")


def offered(state: State, offer: Offer) -> None:
    here = state.frameworks.role_reservations.get(state.cluster.specs[offer.node].name, {})
    for mark, amount in offer.apart.items():
        if mark not in here or not here[mark].there or _is_more(amount, here[mark].idle):
            raise Contradiction(f"offer {offer.id} exceeds reservation {mark}")
        here[mark].offered = plus(here[mark].offered, amount)
    if offer.apart:
        state.frameworks.offered_apart[offer.id] = offer.apart


def closed(state: State, offer: int, node: int) -> None:
    apart = state.frameworks.offered_apart.pop(offer, {})
    for mark, amount in apart.items():
        reservation = state.frameworks.role_reservations[state.cluster.specs[node].name][mark]
        reservation.offered = plus(reservation.offered, amount, -1)


def refused(state: State, leaf: int, node: int, apart: ReservedAmounts, until: float, at: float) -> None:
    """Refuse these amounts of reservations for the framework of a leaf until then."""
    if apart and until > at:
        f, name = state.frameworks, state.tree.names[leaf]
        known = [each for each in f.refused_apart.get(name, []) if each.until > at]
        f.refused_apart[name] = [*known, RefusedReservation(state.cluster.specs[node].name, apart, until)]


def taken(state: State, job: Job, node: str, sign: int, at: float) -> None:
    """Note that a task uses reservations of a node (sign 1), or no longer (-1)."""
    here = state.frameworks.role_reservations.get(node, {})
    for mark, amount in job.apart.items():
        if mark not in here or (sign > 0 and (not here[mark].there or _is_more(amount, here[mark].idle))):
            raise Contradiction(f"task {job.task!r} exceeds reservation {mark}")
        if sign < 0:
            here[mark].since = _idle_since(state, here[mark], amount, at)
        here[mark].taken = plus(here[mark].taken, amount, sign)


def node_lost(state: State, node: int, at: float) -> None:
    """Stop counting the reservations of a lost node, until it is back."""
    for reservation in state.frameworks.role_reservations.get(state.cluster.specs[node].name, {}).values():
        if reservation.there:
            _count(state, node, reservation.role, reservation.amount, -1, at)
            reservation.there = False


def node_joined(state: State, node: int, at: float) -> None:
    """Count the reservations of a node that is back or shrank, as far as they fit."""
    here = state.frameworks.role_reservations.get(state.cluster.specs[node].name, {})
    for reservation in here.values():
        if not reservation.there and scheduling.amount_fits(state.view(), node, vector(reservation.amount, state.resources)):
            _count(state, node, reservation.role, reservation.amount, 1, at)
            reservation.there = True
        elif reservation.there and not reservation.taken and (state.nodes.free[node] < 0).any():
            _count(state, node, reservation.role, reservation.amount, -1, at)
            reservation.there = False


# -- what is offered -------------------------------------------------------------------------------------------------


def idle_on(state: State, node: str) -> ReservedAmounts:
    here = state.frameworks.role_reservations.get(node, {})
    return {mark: reservation.idle for mark, reservation in here.items() if reservation.there and reservation.idle}


def idle_for(state: State, node: str, role: str, idle: ReservedAmounts) -> ReservedAmounts:
    """Return those of a role's own reservations, and of the roles above it."""
    here = state.frameworks.role_reservations.get(node, {})
    return {mark: amount for mark, amount in idle.items() if f"{role}/".startswith(f"{here[mark].role}/")}


def offers_of_reservations(state: State, worth: Mapping[str, int], now: float) -> tuple[list[Fact], bool]:
    """Return offers of idle reservations that are worth one, each to a framework that wants it and has not refused it.

    What else is free on the node goes with them. Such an offer is the last one, since it takes from the limits: the second
    result is True if there may be more.
    """
    f, b, made = state.frameworks, state.groups, list[Offer]()
    wants = b.leaf[: b.n][b.is_framework[: b.n]]
    served = wants[np.lexsort((wants, state.queues.served[wants]))]  # the one served longest ago first
    in_turn = [state.tree.names[row] for row in served.tolist()]
    for node in f.role_reservations:
        row, idle = state.cluster.rows[node], idle_on(state, node)
        if not idle or not state.nodes.up[row] or state.nodes.draining[row]:
            continue
        free = free_on(state, node)
        for leaf in in_turn:
            who, role = f.at[leaf]
            mine = idle_for(state, node, role, idle)
            total: Quantities = reduce(plus, mine.values(), {})
            is_worth = any(total.get(name, 0) >= least for name, least in worth.items())
            if is_worth and not _is_refused(f.refused_apart.get(leaf, []), node, mine, now):
                numbers, rest = for_offer(state, leaf, free), _rest_for(state, leaf, row)
                cost = cost_of_offer(state, state.tree.rows[leaf], now)
                made.append(Offer(f.last_offer + 1 + len(made), who, role, row, rest, mine, numbers, cost))
                if rest:
                    return [OffersMade(at=now, offers=made)], True
                free = without(free, numbers)
                idle = {mark: amount for mark, amount in idle.items() if mark not in mine}
    return ([OffersMade(at=now, offers=made)] if made else []), False


def cost_of_offer(state: State, leaf: int, now: float) -> float:
    """Return what an offer to a framework costs: see :class:`~fairlead.model.specs.Offer`."""
    return 0.0 if state.queues.last_until[leaf] > now else UNUSED_OFFER_FACTOR


def given_back(state: State, now: float) -> list[Fact]:
    """Return what ends of the reservations of roles that hold more than their part: what was idle for `offer_timeout`.

    Nothing ends while nobody else waits, nor of volumes, nor of what operators reserved.
    """
    f, tree, due = state.frameworks, state.tree, now - state.settings.offer_timeout
    every = [(node, *each) for node, here in f.role_reservations.items() for each in here.items() if each[1].there]
    late = [each for each in every if each[2].account and not each[2].whole and each[2].idle and each[2].since <= due]
    beyond, found = np.outer(_parts(state), -state.cluster.total) if late else np.zeros(0), list[Fact]()
    for _, _, each in every if late else []:
        beyond[tree.rows[own_queue(each.role)]] += vector(each.amount, state.resources)
    for node, mark, each in late:
        own, row = tree.rows[own_queue(each.role)], state.cluster.rows[node]
        amount = np.clip(np.ceil(beyond[own]), 0, vector(each.idle, state.resources)).astype(np.int64)
        others = state.queues.parent[state.groups.leaf[: state.groups.n]] != own
        if amount.any() and is_wanted(state, amount, state.nodes.capacity[row], others, now):
            beyond[own] -= amount
            found.append(ResourcesReserved(at=now, node=row, amount=state.quantities(amount), of=mark))
    return found


def is_wanted(state: State, amount: I64, room: I64, others: Bools, at: float) -> bool:
    """True if some of these groups wait for an amount: jobs whose tasks fit in `room`, or frameworks that may want it.

    That is those that do not go last, and refused less since they last launched a task, revived the role or subscribed.
    """
    b, n, leaves = state.groups, state.groups.n, state.groups.leaf[: state.groups.n]
    waits = (b.head[:n] != NONE) & (state.shapes.demand[b.shape_row[:n]] <= room).all(axis=1)
    wants = b.is_framework[:n] & (state.queues.last_until[leaves] <= at) & (state.queues.declined[leaves] < amount).any(axis=1)
    return bool((others & (waits | wants)).any())


def _parts(state: State) -> F64:
    """Return each queue's part of the cluster by weights, beside others with frameworks or jobs; 0 without any."""
    b, queues, n = state.groups, state.queues, state.queues.n
    active = queues.tasks[:n] > 0
    active[b.leaf[: b.n][b.head[: b.n] != NONE]] = active[[state.tree.rows[leaf] for leaf in state.frameworks.at]] = True
    weight, part = queues.weight[:n].min(axis=1) * with_all_above(active, queues.parent[:n]), np.ones(n)
    total = np.bincount(queues.parent[1:n], weight[1:], n)
    for row, above in enumerate(queues.parent[1:n].tolist(), 1):
        part[row] = part[above] * weight[row] / (total[above] or 1.0)
    return part


def _rest_for(state: State, leaf: str, node: int) -> Quantities:
    """Return what a framework may be offered of a node beside reservations."""
    b, room = state.groups, np.zeros(len(state.resources), np.int64)
    group = int(np.flatnonzero((b.leaf[: b.n] == state.tree.rows[leaf]) & b.is_framework[: b.n])[0])
    scheduling.bound_room(state.order.ready(state, 1), group, False, room)
    return state.quantities(np.minimum(room, np.maximum(0, state.nodes.free[node] - state.nodes.held[node])))


def _is_refused(refusals: Sequence[RefusedReservation], node: str, apart: ReservedAmounts, now: float) -> bool:
    return any(
        each.node == node
        and each.until > now
        and all(not _is_more(amount, each.apart.get(mark, {})) for mark, amount in apart.items())
        for each in refusals
    )


def joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    found: Ranges = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def without(ranges: Ranges, others: Ranges) -> Ranges:
    """Subtract sorted ranges from sorted ranges."""
    found: Ranges = []
    for first, last in ranges:
        left = first
        for start, end in others:
            if start <= last and end >= left:
                if start > left:
                    found.append((left, start - 1))
                left = end + 1
        if left <= last:
            found.append((left, last))
    return found


def lowest(ranges: Ranges, count: int) -> Ranges:
    found: Ranges = []
    for first, last in ranges:
        if count > 0:
            found.append((first, min(last, first + count - 1)))
            count -= last - first + 1
    return found


def count_of(ranges: Ranges) -> int:
    return sum(last - first + 1 for first, last in ranges)


def format_ports(ranges: Ranges) -> str:
    return ",".join(f"{first}-{last}" for first, last in ranges) or "none"


def free_on(state: State, node: str) -> Ranges:
    """Return the ports of a node that are neither used nor offered."""
    return without(state.settings.ports, joined(each for ranges in _used_ports(state, node) for each in ranges))


def _used_ports(state: State, node: str) -> list[Ranges]:
    f = state.frameworks
    return [*f.ports.get(node, {}).values(), *f.offered_ports.get(node, {}).values()]


def for_offer(state: State, leaf: str, free: Ranges) -> Ranges:
    """Return which free ports of a node to offer to the framework of a leaf."""
    most = float(state.queues.offer_most[state.tree.rows[leaf]])
    return lowest(free, int(count_of(state.settings.ports) * most)) if most else free


def hold(state: State, held: dict[str, dict[int, Ranges]], node: str, number: int, ranges: Ranges) -> None:
    """Give ports of a node to an offer or a task. Raises Contradiction if they are taken."""
    if ranges:
        if any(without(ranges, other) != ranges for other in _used_ports(state, node)):
            raise Contradiction(f"some of ports {ranges} of node {node} are in use")
        held.setdefault(node, {})[number] = ranges


def give_back(held: dict[str, dict[int, Ranges]], node: str, number: int) -> None:
    """Release the ports of a closed offer or an ended task."""
    here = held.get(node, {})
    here.pop(number, None)
    if not here:
        held.pop(node, None)
