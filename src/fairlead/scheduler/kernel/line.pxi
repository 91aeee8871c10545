"""Since when a queue waits for more than it has, though it is served now and then.

Who is served may be the first in line all the same: what its own task gave back was enough for its next one. So a place in line
is a leaf's. It is kept over a placement if the leaf is found in line again soon, and is one's since it was first passed over.
"""


cdef bint is_in_line(View v, i64 q, double at) noexcept nogil:
    """Whether a leaf was in line a short while ago, and served."""
    return at - v.queues[q].in_line_at <= SOON


cdef double in_line_since(View v, i64 b, double now) noexcept nogil:
    """Since when a bucket that is first in line waits for room, or its leaf did that was served last; NaN: since now."""
    q = v.buckets[b].leaf
    return v.queues[q].in_line_since if is_in_line(v, q, now) else v.buckets[b].passed_since


cpdef void pass_over(View v, i64 b, double at) noexcept nogil:
    """It is a bucket's turn and there is no room: it waits from now on, or since its leaf did that was served meanwhile."""
    q = v.buckets[b].leaf
    v.buckets[b].passed_since = at
    if is_in_line(v, q, at):
        v.buckets[b].passed_since = min(at, v.queues[q].in_line_since)
        v.queues[q].in_line_at = at


cdef void note_served(View v, i64 b, double at) noexcept nogil:
    """A task of a bucket is placed: if it was passed over, its leaf keeps its place in line."""
    q, since = v.buckets[b].leaf, v.buckets[b].passed_since
    v.buckets[b].passed_since = NAN
    if not isnan(since):
        v.queues[q].in_line_since = min(since, v.queues[q].in_line_since) if is_in_line(v, q, at) else since
        v.queues[q].in_line_at = at
