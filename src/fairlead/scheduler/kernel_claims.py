"""Who may have others revoked for it, and when: claims, of three classes.

A claim is a waiting task, or whole gang, whose service would keep its queue within its guarantee (GUARANTEE), within its fair
share (FAIR_SHARE), or that has a higher priority than what its leaf runs (PRIORITY), or that needs what revocable jobs use above
the limits of their queues, which was idle before (IDLE). Revocable jobs have no claims.

GUARANTEE holds between a queue on the path from the leaf to the root and its siblings. Let `last` be the highest queue on the
path so that it, and all below it there, stay within what they are guaranteed of whatever the task needs; a queue that is
guaranteed nothing of that bounds nothing. Let `first` be the lowest that is guaranteed some of it. Then the siblings of all
queues from `first` to `last` may be asked, and nobody where there are none. Each of these queues goes before its siblings with
that task, as :func:`fairlead.scheduler.kernel_keys.exact_below` says; so what was revoked for it is not theirs again as long as
it has a claim. Among queues that compare as YARN does it is so only for who is below its minimum by that comparison: the others
ask nobody there.

What a queue has counts with the room that is kept for its claims already: those are served. A claim is due when its bucket has
waited, and what `first` is guaranteed of what it needs has been missing, for the longest timeout from the leaf to that. Whether
those above miss theirs says who may be asked, and not when: else a claim would be due sooner when one of them has no more to
miss.

Nothing of that is looked at in a step in which nobody can be due: `times[CLAIM_DUE]` is never later than the first moment at
which somebody may be. Events that may begin a claim lower it (:func:`expect_claim`, :func:`note_fall`), a look works it out
(:func:`look`).
"""

import numpy as np

from fairlead.kernel_cache import compiled
from fairlead.scheduler.compiled_view import View
from fairlead.scheduler.kernel_keys import misses_as_compared
from fairlead.scheduler.kernel_order import startable
from fairlead.scheduler.tables import F64, FAIR_SHARE, GUARANTEE, I64, IDLE, NONE, PRIORITY, RESERVATION
from fairlead.scheduler.view import BUCKETS, CLAIM_DUE, HOLDS, QUEUES

SHORTEST = 1.0
"""Seconds after which fair shares are worked out again, at least; else after a quarter of the shortest timeout of who waits."""


@compiled
def expect_claim(v: View, bucket: int, at: float) -> None:
    """Somebody waits in a bucket from now on: there may be a claim when its leaf's timeout is over.

    Where all that waited there is served, and waits for the room that is coming back, it has waited as long as they.
    """
    leaf = v.buckets.leaf[bucket]
    if v.buckets.revocable[bucket]:
        return
    if v.queues.guarded[leaf]:
        since = v.buckets.since[bucket] if v.counts[HOLDS] > 0 and served_tasks(v, bucket) > 0 else at
        v.times[CLAIM_DUE] = min(v.times[CLAIM_DUE], since + v.queues.guarantee_timeout[leaf])
    if v.queues.share_timeout[leaf] < np.inf:
        v.times[CLAIM_DUE] = min(v.times[CLAIM_DUE], at)
    if v.queues.priority_revokes[leaf] or v.queues.spare_tasks[0] > 0:
        v.times[CLAIM_DUE] = min(v.times[CLAIM_DUE], at)


@compiled
def note_fall(v: View, q: int, demand: I64, at: float) -> None:
    """A queue with a guarantee has just given back what a task needed."""
    below = False
    for r in range(demand.shape[0]):
        if demand[r] > 0 and v.used[q, r] < v.guarantee[q, r]:
            below = True
            if v.used[q, r] + demand[r] >= v.guarantee[q, r]:
                v.below_since[q, r] = at
    if below:
        v.times[CLAIM_DUE] = min(v.times[CLAIM_DUE], at)


@compiled
def tasks_at_once(v: View, b: int) -> int:
    """How many tasks are one claim of a bucket."""
    return int(max(1, v.buckets.gang[b]))


@compiled
def kept_for_claims(v: View) -> I64:
    """What is kept for claims, by queue and resource: shape (queues, resources)."""
    kept = np.zeros((v.counts[QUEUES], v.total.shape[0]), np.int64)
    for h in range(v.counts[HOLDS]):
        if v.holds.kind[h] != RESERVATION:
            q = v.buckets.leaf[v.holds.bucket[h]]
            while q != NONE:
                for r in range(kept.shape[1]):
                    kept[q, r] += v.amount[h, r]
                q = v.queues.parent[q]
    return kept


@compiled
def count_claimed(v: View) -> None:
    """Work out what is kept for claims, in `claimed`."""
    v.claimed[: v.counts[QUEUES]] = kept_for_claims(v)


@compiled
def served_tasks(v: View, b: int) -> int:
    """How many tasks of a bucket room is kept for, for claims."""
    count = 0
    for h in range(v.counts[HOLDS]):
        if v.holds.bucket[h] == b and v.holds.kind[h] != RESERVATION:
            count += v.holds.tasks[h]
    return int(count)


@compiled
def waiting_tasks(v: View, b: int, most: int) -> int:
    """How many tasks wait in a bucket and may start, as far as their jobs say; no more than are asked for."""
    count, j = 0, v.buckets.head[b]
    while j != NONE and count < most:
        count += startable(v, j)
        j = v.jobs.after[j]
    return int(min(count, most))


@compiled
def has_unserved(v: View, b: int) -> bool:
    """Whether somebody waits in a bucket that no room is kept for yet."""
    if v.buckets.head[b] == NONE:
        return False
    served = served_tasks(v, b) if v.counts[HOLDS] > 0 else 0
    if v.buckets.gang[b] > 0:
        return served == 0
    return waiting_tasks(v, b, served + 1) > served


@compiled
def guarded_part(v: View, b: int, kept: I64) -> tuple[int, int, float]:
    """The queues `first` and `last` whose siblings may be asked for a bucket's next claim of class GUARANTEE.

    The third is since when `first` misses what it is guaranteed. NONE, NONE where there is no such claim.
    """
    demand, count = v.demand[v.buckets.shape_row[b]], tasks_at_once(v, b)
    first, last, since = NONE, NONE, v.buckets.since[b]
    q = v.buckets.leaf[b]
    while v.queues.parent[q] != NONE:
        named, missed = False, since
        for r in range(demand.shape[0] if v.queues.guaranteed[q] else 0):
            if demand[r] > 0 and v.guarantee[q, r] > 0:
                if demand[r] > (v.guarantee[q, r] - v.used[q, r] - kept[q, r]) // count:  # a product might be too large
                    return first, last, since
                named, missed = True, max(missed, v.below_since[q, r])
        if named and not misses_as_compared(v, q, kept):
            if first != NONE:
                return first, last, since
        elif named and first == NONE:
            first, since = q, missed
        if first != NONE:
            last = q
        q = v.queues.parent[q]
    return first, last, since


@compiled
def claims_from(v: View, b: int, leaf: int) -> bool:
    """Whether a bucket's next has a claim for a guarantee for which what runs in another leaf might pay."""
    if not v.queues.guarded[v.buckets.leaf[b]]:
        return False
    first, last, _ = guarded_part(v, b, v.claimed)
    q, asks = v.buckets.leaf[b], False
    while first != NONE and not _is_at_or_below(v, leaf, q):
        asks |= q == first
        if _is_at_or_below(v, leaf, v.queues.parent[q]):
            return bool(asks)
        asks &= q != last
        q = v.queues.parent[q]
    return False


@compiled
def _is_at_or_below(v: View, q: int, top: int) -> bool:
    while q != NONE and q != top:
        q = v.queues.parent[q]
    return bool(q == top)


@compiled
def is_above_limit(v: View, used: I64, q: int) -> bool:
    """Whether a queue uses so much because of revocable jobs that it is above a limit of its."""
    for r in range(v.total.shape[0]):
        if v.spare[q, r] > 0 and used[q, r] > v.limit[q, r]:
            return True
    return False


@compiled
def idle_is_used(v: View, used: I64) -> bool:
    """Whether any queue is above a limit because of revocable jobs, and gives that back; using so much."""
    if v.queues.spare_tasks[0] > 0 and v.queues.revocable[0]:
        for q in range(v.counts[QUEUES]):
            if v.queues.spare_tasks[q] > 0 and is_above_limit(v, used, q):
                return True
    return False


@compiled
def guarantee_timeout(v: View, leaf: int, first: int) -> float:
    """How long a leaf waits for what a queue above, or itself, is guaranteed: as long as each from it to that one says."""
    longest, q = v.queues.guarantee_timeout[leaf], leaf
    while first != NONE and q != first:
        q = v.queues.parent[q]
        longest = max(longest, v.queues.guarantee_timeout[q])
    return float(longest)


@compiled
def _open_since(v: View, b: int, kind: int, kept: I64) -> tuple[float, float]:
    """Since when a bucket has a claim of a class, infinite where it has none; and how long after that it is due."""
    leaf = v.buckets.leaf[b]
    if kind == GUARANTEE and v.queues.guarded[leaf]:
        first, _, begun = guarded_part(v, b, kept)
        return (begun if first != NONE else np.inf), guarantee_timeout(v, leaf, first)
    if kind == FAIR_SHARE and v.queues.share_timeout[leaf] < np.inf:
        return max(v.buckets.since[b], v.queues.short_since[leaf]), v.queues.share_timeout[leaf]
    if kind == IDLE or (kind == PRIORITY and v.queues.priority_revokes[leaf]):
        return v.buckets.since[b], 0.0
    return np.inf, 0.0


@compiled
def look(v: View, now: float, found: I64, since: F64) -> int:
    """Write down the claims that are due, and set `times[CLAIM_DUE]`: when the first is, of these and all others that are open.

    Parameters
    ----------
    v : View
        With its order: which buckets the nodes could never hold is known.
    now : float
        Seconds.
    found : int64, shape (2, n)
        Becomes their buckets and classes; the last is NONE and NONE where fair shares are to be worked out again.
    since : float64, shape (n,)
        Since when each has been open; n is the number of buckets, and one.

    Returns
    -------
    int
        How many are due.
    """
    count, due, shares = 0, np.inf, np.inf
    kept, taken = kept_for_claims(v), idle_is_used(v, v.used)
    for b in range(v.counts[BUCKETS]):
        leaf = v.buckets.leaf[b]
        guarded, ranked = v.queues.guarded[leaf], v.queues.priority_revokes[leaf] or taken
        shared = v.queues.share_timeout[leaf] < np.inf
        if not (guarded or ranked or shared) or v.buckets.head[b] == NONE or v.bucket_seats.hopeless[b]:
            continue
        if v.buckets.revocable[b]:
            continue
        if not has_unserved(v, b):
            continue
        for kind in (
            GUARANTEE,
            FAIR_SHARE,
            PRIORITY,
            IDLE,
        ):  # a bucket has a claim of one class at a time: the first that is due
            if kind == FAIR_SHARE and shared:
                shares = min(shares, v.queues.share_timeout[leaf])
            if kind == IDLE and not taken:
                continue
            begun, timeout = _open_since(v, b, kind, kept)
            at = begun + timeout
            if kind >= v.buckets.put_off_from[b]:
                at = max(at, v.buckets.put_off[b])
            due = min(due, at)
            if at <= now:
                found[0, count], found[1, count], since[count] = b, kind, begun
                count += 1
                break
    if shares < np.inf:
        at = v.queues.short_since[0] + max(SHORTEST, shares / 4)
        due = min(due, at)
        if at <= now:
            found[0, count], found[1, count], since[count] = NONE, NONE, at
            count += 1
    v.times[CLAIM_DUE] = due
    return count
