"""Offers that are rescinded for a claim, before anybody pays for it: what is only offered is not used yet.

All that may be rescinded is taken to be free first. When it is known who pays beside that, each offer that the claim can do
without is kept, the latest first. A role keeps what it is guaranteed with its offers, and, but for a claim for a guarantee, its
fair share.
"""

import numpy as np

from fairlead.kernel_cache import compiled
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.kernel_ledger import (
    KEPT,
    NOW_RESCINDED,
    Ledger,
    falls_below,
    fits,
    set_above,
    sinks,
    stays_above,
    take_from,
)
from fairlead.scheduler.tables import GUARANTEE, NONE


@compiled
def rescind_all(v: View, g: Ledger, b: int, kind: int) -> None:
    """Take all offers to be free that may be rescinded for a bucket's claim; after :func:`~.kernel_ledger.ask`."""
    for k in range(g.rescinded.shape[0]):
        if g.rescinded[k] == KEPT and _may_be_rescinded(v, g, k, b, kind):
            _rescind(v, g, k, 1)


@compiled
def keep_what_is_not_needed(v: View, g: Ledger, b: int, planned: bool) -> None:
    """Keep what the claim can do without, of the offers that were taken to be free; all where there is no plan for it."""
    for k in range(g.rescinded.shape[0] - 1, -1, -1):
        if g.rescinded[k] == NOW_RESCINDED:
            _rescind(v, g, k, -1)
            if planned and not fits(v, g, b):
                _rescind(v, g, k, 1)


@compiled
def _may_be_rescinded(v: View, g: Ledger, k: int, b: int, kind: int) -> bool:
    """Whether the role of an offer, and all above it, keep what is theirs without it; those on the claim's path gain that."""
    q, rest = v.offers.leaf[k], v.rest[k]
    if not np.any(rest > 0):
        return False
    while v.queues.parent[q] != NONE:
        if q == v.buckets.leaf[b] or g.own_child[q] != NONE:
            if sinks(v, g, q, rest, 1, b):
                return False
        elif falls_below(v, g, q, rest, 1) or (kind != GUARANTEE and not stays_above(v, g, q, rest, 1)):
            return False
        q = v.queues.parent[q]
    return True


@compiled
def _rescind(v: View, g: Ledger, k: int, sign: int) -> None:
    """An offer is rescinded; or is not after all (-1)."""
    leaf, rest = v.offers.leaf[k], v.rest[k]
    g.rescinded[k] = NOW_RESCINDED if sign > 0 else KEPT
    for r in range(rest.shape[0]):
        g.room[v.offers.node[k], r] += sign * rest[r]
    take_from(v, g.left, leaf, rest, sign)
    if not v.offers.revocable[k]:
        take_from(v, g.bound, leaf, rest, sign)
    while leaf != NONE:
        set_above(v, g, leaf)
        leaf = v.queues.parent[leaf]
