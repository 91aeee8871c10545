"""The numbers that kernels are compiled with, by the file of kernels that they belong to.

Python code and kernels share them: `declarations` writes them to a C header. Those of the tables, of the order, of statuses and
of policies are declared with these.
"""

import math
from typing import Final

from fairlead.scheduler.tables import BINS

# keys
SURE: Final = 1e-13
"""Two shares that differ by more than this part of them are as far apart in fractions."""
LEAST_PRIORITY: Final = 500.0
"""HTCondor's: half a core, in thousandths."""
SPLIT: Final = float(2**13 + 1)
"""Leaves 40 of the 53 binary digits of a float: see `_rounded`."""
AS_YARN: Final = -2
"""In place of the column: the level is the first of several numbers, which are compared one after the other."""

# history
MOMENTS: Final = 2**12
"""Parts of a tick."""
WHOLE: Final = 2**32
"""What `remains` is a part of."""
QUARTER_DIGITS: Final = 14
"""A quarter of what is counted in moments of a tick, in binary digits."""
LITTLE_LESS: Final = 1.0 - 1e-12

# histograms
EDGES: Final = (0.0, *(math.ldexp(1 + (b % 4) / 4, b // 4 - 4) for b in range(1, BINS + 1)))
"""Seconds: bin b holds what is from EDGES[b] on and below EDGES[b + 1]; the last all that is longer, too."""
FULL: Final = 1024
"""Durations in a histogram at which it is halved."""
OF_ONE_JOB: Final = 32
"""Tasks of one job that count for its family and its queue; up to twice as many."""
IN_TEN: Final = 10
"""Of so many durations one is allowed to be longer than `usual`."""
NOBODYS, FAMILYS, LEAFS, FORGIVEN, EVERYBODYS = range(5)
"""Whose usual duration has changed."""
SPREAD_KEYS: Final = -7046029254386353131  # 2**64 over the golden ratio

# forecasts
BELIEF: Final = (4.0, 4.0, 1.0)
"""How many durations of the job's own, its family's and its queue's are outweighed by what is believed without those."""
FAR: Final = 4.0
"""A forecast goes no further than so many times the longest that is known; beyond, nothing is known, which is infinity."""

# holds
FIXED: Final = 2
"""Slips after which the nodes of a reservation are fixed, and forecasts let in less readily to the room that is kept on them."""
DOUBTED: Final = 4.0
"""How many times as long as is usual a task is taken to last there."""
ALL: Final = 2**62
"""Higher than any rank."""
TENTHS_FORGIVEN: Final = 10
"""Tenths of a task that did not keep to its forecast."""

# line
SOON: Final = 30.0
"""Seconds for which a leaf that was found in line, and served, is taken to be there."""

# claims
SHORTEST_TIMEOUT: Final = 1.0
"""Seconds after which fair shares are worked out again, at least; else after a quarter of the shortest timeout of who waits."""

# stops
NOT_REACHED, EXHAUSTED, NO_NODE, LIMIT, MAX_TASKS, MAX_JOBS, WITHHELD = range(7)
"""Why a group was not served on in a cycle."""

# offers
OFFERED_LEAF, OFFERED_NODE, OFFERED_REVOCABLE = range(3)
"""Rows of `offered_to`: rows of the tables, and whether the framework is revocable; what is offered is in `offered_rest`."""

# search
ANYBODY, IN_LINE, SERVABLE = range(3)
"""Whom a search is for: all that wait; those within limits who are in line for room (none is kept for their queue, and nodes
could hold them); those who can be served, as far as can be told before it is tried."""
FEW_NODES: Final = 128
"""So many nodes with fresh room are looked at one by one; of more, only the most that any has of each resource."""

# reservations
MOST: Final = 16
"""Reservations at once."""
SOON_ENDED: Final = 1.0
"""Seconds in which no task that runs is expected to have ended; and between two plans for one reservation, at least."""
PATIENCE: Final = 0.5
"""A plan that may be improved is made anew when this part of the time that it foresaw is over."""
SELDOM: Final = 0.1
"""Plans are looked at again, where nothing happens, when this part of the time is over since something did."""
ODDS: Final = 0.5
"""Of all on a node having ended by when each is expected to: a plan that needs the whole of it comes true as often as not."""

# cycle
SERVE, KEEP, DROP = range(3)
"""What a plan comes to: tasks placed (perhaps none), nodes to be kept for a job first, or a reservation to be dropped first."""

# preemption_plan
FINE: Final = 2.0**30
"""Shares that differ by less than a part of this are the same."""
CLOSE: Final = 1e-9
"""What differs by less, in parts of the larger, is the same."""
KEPT, NOW_RESCINDED, RESCINDED = range(3)
"""What becomes of an offer."""

# victims
FEW: Final = 8
"""Runs of a node of which all sets are tried where one after another does not do."""
MOST_SEARCHED: Final = 64
"""Nodes on which that is done."""
MARKS: Final = 4
"""What the key of a node says after whether any but revocable jobs preempt, and the queues: priority, lost work, tasks, begin."""

# victim_sets
MOST_WORK: Final = 1_000_000
"""Steps of some ten nanoseconds, in one decision."""
PART: Final = 4
"""A claim may have a part of what is left of that."""
BEFORE_ALL: Final = 1e9  # more than anybody helps
LATER: Final = 1e-6  # what helps only when others have paid

# fill_tree
CLOSE_LEVELS: Final = 1e-11
"""What differs by less, in parts of the larger, is the same."""
ROOT: Final = 0
