"""Offers that are rescinded for a claim, before anybody pays for it: what is only offered is not used yet.

All that may be rescinded is taken to be free first. When it is known who pays beside that, each offer that the claim can do
without is kept, the latest first. A role keeps what it is guaranteed with its offers, and, but for a claim for a guarantee, its
fair share.
"""


cdef void rescind_all(View v, Ledger g, i64 b, i64 kind) noexcept nogil:
    """Take all offers to be free that may be rescinded for a bucket's claim; after :func:`~.kernel_ledger.ask`."""
    for k in range(g.len_rescinded):
        if g.rescinded[k] == KEPT and _may_be_rescinded(v, g, k, b, kind):
            _rescind(v, g, k, 1)


cdef void keep_what_is_not_needed(View v, Ledger g, i64 b, bint planned) noexcept nogil:
    """Keep what the claim can do without, of the offers that were taken to be free; all where there is no plan for it."""
    for k in range(g.len_rescinded - 1, -1, -1):
        if g.rescinded[k] == NOW_RESCINDED:
            _rescind(v, g, k, -1)
            if planned and not fits(v, g, b):
                _rescind(v, g, k, 1)


cdef bint _may_be_rescinded(View v, Ledger g, i64 k, i64 b, i64 kind) noexcept nogil:
    """Whether the role of an offer, and all above it, keep what is theirs without it; those on the claim's path gain that."""
    cdef i64 m = v.len_total
    q, rest = v.offers[k].leaf, &v.rest[k * m]
    for r in range(m):
        if rest[r] > 0:
            break
    else:
        return False
    while v.queues[q].parent != NONE:
        if q == v.buckets[b].leaf or g.own_child[q] != NONE:
            if sinks(v, g, q, rest, 1, b):
                return False
        elif falls_below(v, g, q, rest, 1) or (kind != GUARANTEE and not stays_above(v, g, q, rest, 1)):
            return False
        q = v.queues[q].parent
    return True


cdef void _rescind(View v, Ledger g, i64 k, i64 sign) noexcept nogil:
    """An offer is rescinded; or is not after all (-1)."""
    cdef i64 m = v.len_total
    leaf, rest = v.offers[k].leaf, &v.rest[k * m]
    g.rescinded[k] = NOW_RESCINDED if sign > 0 else KEPT
    for r in range(m):
        g.room[v.offers[k].node * m + r] += sign * rest[r]
    take_from(v, g.left, leaf, rest, sign)
    if not v.offers[k].revocable:
        take_from(v, g.bound, leaf, rest, sign)
    while leaf != NONE:
        set_above(v, g, leaf)
        leaf = v.queues[leaf].parent
