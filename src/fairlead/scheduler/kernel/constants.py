"""The constants that kernels are compiled with, under the kernel file that uses them.

Python code and kernels share them: `declarations` writes them to a C header, together with those of the tables, the
order, statuses and policies.
"""

import math
from typing import Final

from fairlead.scheduler.tables import BINS

# keys.pxi
SHARE_TOLERANCE: Final = 1e-13
"""Relative difference of two floating-point shares above which their order is certain."""
LEAST_PRIORITY: Final = 500.0
"""HTCondor's smallest priority: half a core, in milli-cpu."""
ROUNDING_FACTOR: Final = float(2**13 + 1)
"""Veltkamp splitting: keeps 40 of a double's 53 bits; see `_rounded`."""
AS_YARN: Final = -2
"""Stands for a column: the level is the first of several, compared one after another."""

# history.pxi
MOMENTS_PER_TICK: Final = 2**12
FIXED_POINT_ONE: Final = 2**32
"""1.0 as a fixed-point number; `remains` is a part of it."""
QUARTER_SHIFT: Final = 14
"""Bits to shift from moments to a quarter of a quantity: log2(4 * MOMENTS_PER_TICK)."""
JUST_BELOW_ONE: Final = 1.0 - 1e-12
"""Lowers a threshold, so that rounding does not miss it."""

# durations.pxi
EDGES: Final = (0.0, *(math.ldexp(1 + (b % 4) / 4, b // 4 - 4) for b in range(1, BINS + 1)))
"""Seconds: bin b holds durations from EDGES[b] to below EDGES[b + 1]; the last bin also everything longer."""
HISTOGRAM_CAPACITY: Final = 1024
"""Durations in a histogram at which it is halved."""
SAMPLES_PER_JOB: Final = 32
"""Samples per job for its family and its queue: from this many to twice as many."""
P90_ONE_IN: Final = 10
"""One in this many durations may be longer than the p90."""
P90_SAME, P90_OF_FAMILY, P90_OF_QUEUE, P90_FORGIVEN, P90_OF_ANY = range(5)
"""Whose p90 changed, from narrow to wide."""
HASH_FACTOR: Final = -7046029254386353131  # 2**64 / golden ratio

# durations.pxi, forecasts
PRIOR_DURATIONS: Final = (4.0, 4.0, 1.0)
"""Weight of the priors of job, family and queue, in durations."""
MAX_EXTRAPOLATION: Final = 4.0
"""A forecast is at most this many times the longest known duration; beyond, it is inf."""

# debts.pxi
PATIENCE: Final = 0.25
"""A line that runs nothing gets a reservation once it is owed this part of the time that its tasks last; others: all of it."""
PARTS_TICKS: Final = 8.0
"""Ticks of past use, 1024 a half-life, after which parts are computed again: use counts a half percent less then."""
LINES_PER_EVENT: Final = 8
"""Lines are asked at most once for as many of them per event, so that a count costs no more per event with many lines."""
LEAST_SHARE: Final = 1e-9
"""Shares up to this are none."""
RETRY_FRACTION: Final = 0.03
"""A line for which no room can be kept is tried again after this part of the time that it has been owed."""
RETRY_LEAST: Final = 0.1
"""And after this part of how long the longest tasks last."""
GIVES_WAY: Final = 1.25
"""A reservation gives way to a line that is owed this many times as much. Else many newcomers would take them in turns."""

# budget.pxi
HOUR: Final = 3600.0
HOURS: Final = 25
"""What idled is remembered of this hour and the 24 before."""
ALLOWANCE: Final = 2.0
"""Multiple of what it is expected to idle that a reservation paid from savings may idle."""

# holds.pxi
OVERRUN_ALLOWANCE_TENTHS: Final = 10
"""Overruns of the p90 allowed beyond 10% in a trusted leaf, in tenths of a task."""
ABSENT: Final = 9
"""Kind of a reservation while it is planned again."""

# claims.pxi
MIN_SHARES_SECONDS: Final = 1.0
"""Seconds between computations of fair shares, at least; otherwise a quarter of the shortest pending timeout."""

# limits.pxi
NOT_REACHED, EXHAUSTED, NO_NODE, LIMIT, MAX_TASKS, MAX_JOBS, NONLENDABLE = range(7)
"""Why a group was stopped in a cycle."""

# offers.pxi
OFFERED_LEAF, OFFERED_NODE, OFFERED_REVOCABLE = range(3)
"""Rows of `offered_to`: leaf and node by row, True for a revocable framework. Amounts are in `offered_rest`."""
UNUSED_OFFER_FACTOR: Final = 16.0
"""Seconds that a framework goes last after it kept all of the cluster from others for a second, and used nothing of it."""

# search.pxi
ANY_PENDING, IN_LINE, SERVABLE = range(3)
"""Scope of a search: all pending groups; for EASY's rule, those within limits that empty nodes could hold; those that can be
served."""
MAX_SCANNED_NODES: Final = 128
"""Freed nodes that are checked one by one; for more, only the largest free amount by resource is checked."""

# backfill.pxi
MAX_RESERVATIONS: Final = 62
"""Reservations at a time, at most: bits of `apart`."""
MIN_FORECAST_SECONDS: Final = 1.0
"""Seconds: no running task is expected to end sooner, and a reservation is not replanned sooner."""
REVIEW_FRACTION: Final = 0.1
"""Part of the time without events after which reservations are reviewed again."""
HYSTERESIS: Final = 1.5
"""Tasks by which a line's reservations exceed what it is owed when the last one ends."""
NODE_FREE_ODDS: Final = 0.5
"""Probability that all tasks of a node end by their forecasts: a plan that needs the whole node holds as often as not."""

# cycle.pxi
SERVE, KEEP, DROP = range(3)
"""What a cycle decides: place tasks (perhaps none), or first make a reservation, or first drop one."""

# preemption.pxi
SHARE_STEPS: Final = 2.0**30
"""Steps per 1.0 to which differences of shares are rounded."""
ENTITLEMENT_TOLERANCE: Final = 1e-9
"""Relative tolerance within which a queue still counts as at its entitlement."""
KEPT, NOW_RESCINDED, RESCINDED = range(3)
"""State of an offer in a plan."""

# victims.pxi
KEY_COLUMNS_AFTER_QUEUES: Final = 4
"""Columns of a node's key after revocability and the queues: priority, lost work, tasks, start."""
MAX_SEARCH_STEPS: Final = 1_000_000
"""Runs looked at to swap victims in one decision."""
CLAIM_STEPS_DIVISOR: Final = 4
"""A claim may use one in this many of the steps left."""

# filling.pxi
LEVEL_TOLERANCE: Final = 1e-11
"""Relative difference of levels that counts as none."""
ROOT: Final = 0
