"""What queues do not lend: a part of what a queue is guaranteed is withheld from others while it does not use that.

A queue withholds what is missing of its own `reserve`, with what is kept for its claims, or, where that is more, what the queues
below it withhold together. So from a leaf is withheld what the siblings of all queues on its way to the root withhold; whatever
else is free it may use. Only amounts count, not on which nodes they are.
"""

from fairlead.kernel_cache import compiled
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.tables import NONE


@compiled
def set_withheld(v: View, leaf: int) -> None:
    """After what a leaf uses, or is kept for its claims, has changed: work out what it, and the queues above it, withhold."""
    q = leaf
    while q != NONE:
        p = v.queues.parent[q]
        for r in range(v.total.shape[0]):
            now = max(0, v.reserve[q, r] - v.used[q, r] - v.claimed[q, r], v.withheld_below[q, r])
            if p != NONE:
                v.withheld_below[p, r] += now - v.withheld[q, r]
            v.withheld[q, r] = now
        q = p


@compiled
def withheld_from(v: View, leaf: int, r: int) -> int:
    """How much of a resource others than a leaf withhold from it."""
    amount, q = 0, leaf
    while v.queues.parent[q] != NONE:
        amount += v.withheld_below[v.queues.parent[q], r] - v.withheld[q, r]
        q = v.queues.parent[q]
    return int(amount)
