"""What queues do not lend: a part of what a queue is guaranteed is withheld from others while it does not use that.

A queue withholds what is missing of its own `reserve`, with what is kept for its claims, or, where that is more, what the queues
below it withhold together. So from a leaf is withheld what the siblings of all queues on its way to the root withhold; whatever
else is free it may use. Only amounts count, not on which nodes they are.
"""


cdef void set_withheld(View v, i64 leaf) noexcept nogil:
    """After what a leaf uses, or is kept for its claims, has changed: work out what it, and the queues above it, withhold."""
    cdef i64 m = v.len_total
    q = leaf
    while q != NONE:
        p = v.queues[q].parent
        for r in range(m):
            now = max(0, v.reserve[q * m + r] - v.used[q * m + r] - v.claimed[q * m + r], v.withheld_below[q * m + r])
            if p != NONE:
                v.withheld_below[p * m + r] += now - v.withheld[q * m + r]
            v.withheld[q * m + r] = now
        q = p


cpdef i64 withheld_from(View v, i64 leaf, i64 r) noexcept nogil:
    """How much of a resource others than a leaf withhold from it."""
    cdef i64 m = v.len_total
    amount, q = 0, leaf
    while v.queues[q].parent != NONE:
        amount += v.withheld_below[v.queues[q].parent * m + r] - v.withheld[q * m + r]
        q = v.queues[q].parent
    return amount
