"""Each queue's fair share of each resource at a moment, from the root of the tree down.

The share of an inner queue is divided among its children by weights, guarantees and limits, each resource separately
(:func:`divide`). These are YARN's numbers, whatever the policy; :mod:`fairlead.scheduler.entitlements` has DRF's, by demand and
in whole tasks.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from math import floor
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from fairlead.model.arrays import Numbers, exact_array, fractions_of
from fairlead.model.documents import Configuration
from fairlead.model.specs import written
from fairlead.policies.filling import fill
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.entitlements import wanted_by
from fairlead.scheduler.facts import Configured, NodeJoined
from fairlead.scheduler.framework_index import queue_of
from fairlead.scheduler.state import State
from fairlead.scheduler.tables import I64, NONE, UNLIMITED, Bools, with_all_above

Shares = list[list[Fraction]]
"""By queue row, by resource."""


class FairShares(NamedTuple):
    """Fair shares in base units, rounded down; int64, shape (queues, resources).

    steady : among all queues
    instantaneous : among those with something that runs or waits; 0 for the others
    within_demand : likewise, but at most what each runs and waits for; others get the rest
    """

    steady: I64
    instantaneous: I64
    within_demand: I64


class _Known(NamedTuple):
    """Fair shares, the version of the state, and the inputs of each kind of share."""

    version: int
    made_of: tuple[bytes, ...]
    shares: FairShares


_known: "WeakKeyDictionary[State, _Known]" = WeakKeyDictionary()
"""The last shares of each state: computing them for thousands of queues takes a good part of a second."""


def fair_shares(state: State) -> FairShares:
    """Return the fair shares of all queues; recomputes only kinds whose inputs changed."""
    known = _known.get(state)
    if known is not None and known.version == state.version:
        return known.shares
    wanted, tasks = wanted_by(state)
    there, removed = listed_queues(state)
    there &= ~removed
    at_work, n, queues = tasks > 0, state.queues.n, state.queues
    bounds = (queues.parent[:n], queues.weightless[:n], queues.weight[:n], queues.guarantee[:n], queues.limit[:n])
    tree = b"".join(np.ascontiguousarray(each).tobytes() for each in (state.cluster.total, *bounds))
    made_of = (tree + there.tobytes(), tree + at_work.tobytes(), tree + at_work.tobytes() + wanted.tobytes())
    demand = [[int(amount) for amount in row] for row in wanted]
    found = []
    for kind, (takes_part, asked) in enumerate(((there, None), (at_work, None), (at_work, demand))):
        if known is not None and made_of[kind] == known.made_of[kind]:
            found.append(known.shares[kind])
        else:
            whole = [[floor(share) for share in row] for row in exact_shares(state, takes_part, asked)]
            found.append(np.array(whole, np.int64).reshape(n, len(state.resources)))
    _known[state] = _Known(state.version, made_of, FairShares(*found))
    return _known[state].shares


def listed_queues(state: State) -> tuple[Bools, Bools]:
    """Return, per queue, whether to list it; and whether it was declared once, and is neither declared nor a role now.

    Listed are declared ones, roles, those with tasks, offers or reservations, and all above.
    """
    tree, queues, jobs = state.tree, state.queues, state.jobs
    n = queues.n
    declared = np.array([tree.is_declared(name) for name in tree.names], np.bool_)
    roles = np.zeros(n, np.bool_)
    roles[[tree.rows[leaf] for leaf in state.frameworks.at]] = True
    has = (queues.tasks[:n] > 0) | queues.used[:n].any(axis=1) | queues.offered[:n].any(axis=1)
    has[jobs.queue[: jobs.n][(jobs.id[: jobs.n] != NONE) & (jobs.waiting[: jobs.n] > 0)]] = True
    apart = {queue_of(reservation.role) for here in state.frameworks.role_reservations.values() for reservation in here.values()}
    has[[tree.rows[name] for name in apart if name in tree.rows]] = True
    roles, has = with_all_above(roles, queues.parent[:n]), with_all_above(has, queues.parent[:n])
    once = np.array([name in tree.removed for name in tree.names], np.bool_)
    there = declared | roles | has
    return there, there & once & ~declared & ~roles


def exact_shares(state: State, takes_part: np.ndarray, demand: list[list[int]] | None = None) -> Shares:
    """Divide the cluster among the queues that take part, each at most its demand if given."""
    queues, n = state.queues, state.queues.n
    shares: Shares = [[Fraction(0)] * len(state.resources) for _ in range(n)]
    shares[0] = [Fraction(int(amount)) for amount in state.cluster.total]
    if demand is not None:
        shares[0] = [min(share, Fraction(asked)) for share, asked in zip(shares[0], demand[0], strict=True)]
    children: dict[int, list[int]] = {}
    for row in range(1, n):
        if takes_part[row]:
            children.setdefault(int(queues.parent[row]), []).append(row)
    for parent in sorted(children):  # parents come before their children
        rows = children[parent]
        for r in range(len(state.resources)):
            weight = [0.0 if queues.weightless[q] else float(queues.weight[q, r]) for q in rows]
            least = [int(queues.guarantee[q, r]) for q in rows]
            most = [None if queues.limit[q, r] == UNLIMITED else int(queues.limit[q, r]) for q in rows]
            if demand is not None:
                asked = [demand[q][r] for q in rows]
                most = [a if high is None else min(a, high) for a, high in zip(asked, most, strict=True)]
            total, promised = shares[parent][r], sum(least)
            if total - len(rows) < promised < total and (queues.guarantee[rows, r] < queues.declared[rows, r]).any():
                total = Fraction(promised)  # scaled guarantees, rounded down, leave less than a unit each
            for q, share in zip(rows, divide(total, weight, least, most), strict=True):
                shares[q][r] = share
    return shares


class Change(NamedTuple):
    """A queue's steady fair share of a resource in base units; None if there is no such queue."""

    queue: str
    resource: str
    before: int | None
    after: int | None

    @property
    def gained(self) -> int:
        """The increase; negative for a decrease."""
        return (self.after or 0) - (self.before or 0)


def share_changes(old: Configuration, new: Configuration) -> list[Change]:
    """Compare the steady fair shares of two configurations, each on its own nodes.

    Users' queues under a ``*`` do not exist before a submission, so they have no share. The root comes first, as the capacity;
    then all queues by name, unchanged ones included.
    """
    before, after = (_shares(configuration) for configuration in (old, new))
    names = sorted({*before, *after}, key=lambda name: name.split("/") * bool(name))
    resources = sorted({resource for shares in (before, after) for row in shares.values() for resource in row})
    found = []
    for name, resource in product(names, resources):
        old_share, new_share = (shares[name].get(resource, 0) if name in shares else None for shares in (before, after))
        found.append(Change(written(name), resource, old_share, new_share))
    return found


def _shares(configuration: Configuration) -> dict[str, dict[str, int]]:
    state = new_state()
    apply(state, Configured(at=0.0, queues=configuration.queues, settings=configuration.settings))
    for node in configuration.nodes:
        apply(state, NodeJoined(at=0.0, node=node))
    steady = fair_shares(state).steady
    return {name: dict(zip(state.resources, steady[row].tolist(), strict=True)) for row, name in enumerate(state.tree.names)}


EXACT = 100
"""Most siblings with shares in fractions; with more, floating point saves time."""


def divide(total: Fraction, weight: Sequence[float], least: Sequence[int], most: Sequence[int | None]) -> list[Fraction]:
    """Divide a quantity of one resource among siblings: YARN's fair share, without its rounding.

    Each sibling gets ``min(max(weight x R, minimum), maximum)``. R is the level at which the shares add up to the total; if no R
    does, each gets its maximum (Apache Hadoop, ComputeFairShares). This is progressive filling over one resource
    (:mod:`fairlead.policies.filling`). Minimums that exceed the total are scaled down, so shares never add up to more. They are
    exact for up to 100 siblings; with more, to about 15 digits.

    total : 0 or more; in any unit
    weight : 0 or more. A sibling of weight 0 gets its minimum.
    least, most : minimums and maximums in the same unit; None for no maximum. A maximum below the minimum wins.

    >>> [str(share) for share in divide(Fraction(45), [2, 1, 1, 0.5], [0] * 4, [10, 11, 30, 20])]
    ['10', '11', '16', '8']
    """
    floor = [Fraction(low) if high is None else Fraction(min(low, high)) for low, high in zip(least, most, strict=True)]
    promised = sum(floor, Fraction(0))
    if promised >= total:
        return [total * low / promised if promised else low for low in floor]
    exact, n = len(weight) <= EXACT, len(weight)

    def column(values: Sequence[float | Fraction]) -> Numbers:
        return fractions_of(exact_array(values)) if exact else np.array(values, np.float64)

    bounds = column([-1 if high is None else high for high in most])
    filled = fill(column([total]), column([1] * n)[:, None], column(weight), bounds, column(floor), np.ones(n, np.bool_))
    return [Fraction(share) for share in filled.tasks.tolist()]
