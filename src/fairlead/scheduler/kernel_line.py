"""Since when a queue waits for more than it has, though it is served now and then.

Who is served may be the first in line all the same: what its own task gave back was enough for its next one. So a place in line
is a leaf's. It is kept over a placement if the leaf is found in line again soon, and is one's since it was first passed over.
"""

import numpy as np

from fairlead.kernel_cache import compiled
from fairlead.scheduler.compiled_view import View

SOON = 30.0
"""Seconds for which a leaf that was found in line, and served, is taken to be there."""


@compiled
def is_in_line(v: View, q: int, at: float) -> bool:
    """Whether a leaf was in line a short while ago, and served."""
    return bool(at - v.queues.in_line_at[q] <= SOON)


@compiled
def in_line_since(v: View, b: int, now: float) -> float:
    """Since when a bucket that is first in line waits for room, or its leaf did that was served last; NaN: since now."""
    q = v.buckets.leaf[b]
    return float(v.queues.in_line_since[q] if is_in_line(v, q, now) else v.buckets.passed_since[b])


@compiled
def pass_over(v: View, b: int, at: float) -> None:
    """It is a bucket's turn and there is no room: it waits from now on, or since its leaf did that was served meanwhile."""
    q = v.buckets.leaf[b]
    v.buckets.passed_since[b] = at
    if is_in_line(v, q, at):
        v.buckets.passed_since[b] = min(at, v.queues.in_line_since[q])
        v.queues.in_line_at[q] = at


@compiled
def note_served(v: View, b: int, at: float) -> None:
    """A task of a bucket is placed: if it was passed over, its leaf keeps its place in line."""
    q, since = v.buckets.leaf[b], v.buckets.passed_since[b]
    v.buckets.passed_since[b] = np.nan
    if not np.isnan(since):
        v.queues.in_line_since[q] = min(since, v.queues.in_line_since[q]) if is_in_line(v, q, at) else since
        v.queues.in_line_at[q] = at
