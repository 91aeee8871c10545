"""What kernels see of a state: one record of arrays, passed as one object.

The tables are the state. The rest is the **order**: which job is next, kept between cycles and updated where something
happened. It is a cache: rebuilt from the tables at any time, it gives the same decisions.

Each queue has a **tree** of its children (child queues of an inner queue, groups of a leaf). It is a binary tree with
the children's places as leaves. Each node says about everything below it:

    best      the child with the smallest key; NONE if nothing waits
    least     the minimum over pending tasks of: demand by resource, jobs that must start (0 if one runs), negative
              priority, job number, duration in µs; for a strict leaf, the values of its first
    needs     a bit for each resource that some task needs; all bits for a task that needs none
    cells     a bit for each **cell** that has the shape of some task; shapes of a cell are similar
    may_fit   False if everything below is **parked**: known to fit on no node but **freed** ones, where room was
              freed since; and that is up to date: no queue below is `maybe_stale`

So the next group is found from the root down, skipping what cannot be served, in time logarithmic in what waits. Queue
q's tree has its root at `base[q] + 1`; the children of node `base[q] + i` are `base[q] + 2 i` and the next. The child
with slot s is at `base[q] + slots[q] + s`.
"""

from typing import Any, Final

import numpy as np

from fairlead.scheduler.tables import BINS, F64, I8, I64, TABLES, Amounts, Bools, Floats, Table, fields


class NodeCache(Table):
    """The freed nodes: those where room was freed since all parked groups were parked."""

    freed: I64  # rows 0 to counts[FREED]: list of freed nodes
    is_freed: Bools  # the row's node is in that list
    kind: I64  # the node's row of `kinds`
    refusal: I64  # in the search `refusal_search`: 1 + row of the first refusal for the node
    refusal_search: I64


class QueueCache(Table):
    """A queue's key among its siblings (below, first, level), compared left to right, and the place of its tree."""

    base: I64  # where its tree begins
    slots: I64  # number of places of its children
    slot: I64  # its own place in its parent's tree
    children: I64  # number of children with a slot
    column: I64  # resource at which the level is reached; NONE if none
    first: I64  # second part of the key
    level: F64  # third part of the key
    entitled: F64  # dominant share it is entitled to, if its siblings share by a division
    limited: I64  # cycle in which something below was skipped for a limit; NONE
    limited_list: I64  # list of queues with `limited`
    touched_list: I64  # list of queues with `touched`
    last_served: I64  # `served` of the queues table, within a cycle: breaks ties
    moved_list: I64  # list of queues with `moved`
    level_now: F64  # hdrf: its level without past use
    crowd: F64  # active weight above which some child's past use is capped
    below: I8  # first part of the key: 0 if below its guarantee, and it may go first
    inner: Bools  # has queues below it, not groups
    keeping: Bools  # has a group with holds
    maybe_stale: Bools  # something below was skipped: parked groups may have room on nodes that were not freed
    touched: Bools  # its use has changed
    active: Bools  # something below waits or runs: it is active
    crowded: Bools  # more than `crowd` is active
    moved: Bools  # which of its children are active has changed
    shut: Bools  # a strict leaf whose first was stopped in this cycle
    apart: Bools  # a leaf: the latest reservation plan ignores the ends of its tasks
    oldest: I64  # a line: its group that may be owed room in cycle `asked`; NONE
    asked: I64
    promises: I64  # of a line: its reservations, counted in cycle `counted`
    counted: I64
    known: I64  # of a line: `counts[NEWS]` when the next two were computed
    lack: F64  # what it lacks of what its jobs need, as a fraction of what there is
    due_share: F64  # its part, the largest of the resources that its jobs need, as such a fraction
    counts_as: Floats  # hdrf: what it counts as using
    charged: Amounts  # what its key is made of: use and charged past use; fixed point, see `fine`
    scaled_weight: Amounts  # its weight, in 2**-40 of its siblings' largest
    active_weight: Amounts  # sum of `scaled_weight` of its active children
    largest: Floats  # largest weight among its children


class GroupCache(Table):
    """A group's place in its leaf's tree, and what happened to it in a cycle."""

    slot: I64
    cycle: I64  # `current` and `left` are valid in this cycle
    current: I64  # row of the next job
    left: I64  # tasks of it left
    number: I64  # number of the next job
    taken: I64  # tasks this cycle placed; 0 between cycles
    begun: I64  # jobs this cycle started; 0 between cycles
    stop: I64  # why it was stopped in `stop_cycle`; see limits.pxi
    stop_cycle: I64
    stop_order: I64  # how many were stopped before it
    stop_job: I64  # the job that was tried
    out_list: I64  # list of groups with `listed`
    passed_list: I64  # list of the jobs that the cycle found no room to keep for
    touched_list: I64  # list of groups with `touched`
    lasts: F64  # p90 of a task of job `lasts_job`, seconds
    lasts_job: I64
    entered: I64  # held node its next task may enter; framework: the node to offer
    lasts_known: Bools  # `lasts` is up to date
    shorter: Bools  # `lasts` fell since the last check
    parked: Bools  # fits on no node, except freed ones
    out: Bools  # not tried again in this cycle
    listed: Bools  # to be updated at the end of the cycle
    touched: Bools  # what waits in it has changed
    keeping: Bools  # has holds
    hopeless: Bools  # its task or gang does not fit on empty nodes
    asked: I64  # `counts[NEWS]` when the next was computed, for job `asked_job`
    asked_job: I64
    owing: Bools  # room may be gathered for it
    helped_by: I64  # row of the last task whose end alone would have made room for its next; any other's once that has ended
    wake: F64  # framework: when its first refusal ends, seconds
    bounded: Bools  # framework: a limit bounds its offers


class ShapeCache(Table):
    """A shape's first-fit cursor."""

    cycle: I64
    cursor: I64  # in the cycle `cycle`, no node that goes before it has room
    kinds: I64  # bits of the kinds of nodes that are tried now, which waste alike
    wasted: F64
    preferring: Bools  # only nodes that it prefers are tried
    cell: I64  # NONE before a task of it waits


NODE: Final = fields(best="i8", needs="i8", cells="i8", may_fit="?")
"""One node of a tree, without `least`, which has a column for each resource."""
FRAME: Final = fields(
    queue="i8", bottom="i8", group="i8", child="i8", below="i8", first="i8", level="f8", maybe_stale="?", only="?", bounded="?"
)  # fmt: skip
"""One queue of the path that a search is on: where its part of the stack begins, and the best found below it so far.

`only`: consider only groups that would use the queue's unmet guarantee. `bounded`: some limit on the path bounds what is served.
"""

TAILS: Final = np.dtype([("job", "i8"), ("noted", "i8"), ("longest", "f8"), ("of", "f8", 3 * (BINS + 1))])
"""What is known of a job's durations, when `counts[NOTED]` was `noted`: see `set_tails` in the kernel."""
TAILS_KEPT: Final = 64

# Indices of `counts`.
(
    NODES, QUEUES, GROUPS, HOLDS, ENDED, IN_ORDER, CYCLE, TOUCHED_QUEUES, TOUCHED_GROUPS, FREED, OUT, LIMITED, STOPS,
    HDRF_SOMEWHERE, DIVIDED_SOMEWHERE, HISTOGRAMS, HISTORY_MOVED, MOVED,
    FORGOTTEN_HISTOGRAMS, LAST_PASS, OFFERED, OFFER_SEARCHES, LAST_OFFER, BY_EASY, RESERVES, PASSED,
    CELLS, FITTING, OPEN, SCANNED, NEWS, KEPT_BY, LEAVING, LAST_INNER, NOTED, PROMISES, RANKED,
) = range(37)  # fmt: skip
COUNTS: Final = 37
"""OFFERED : number of offers the last cycle made; LAST_OFFER : id of the last offer made
OFFER_SEARCHES : number of searches for a node to offer
FORGOTTEN_HISTOGRAMS : number of histograms with a p90 that were replaced by others
BY_EASY : 1 in a simulation that goes by EASY's rule instead of reservations
RESERVES : 1 in a cycle that may end with a reservation; PROMISES : number of reservations when it began
PASSED : number of jobs that it found no room to keep for
NEWS : rises whenever what runs, waits, is kept or owed changes, and in a cycle when a task is placed
KEPT_BY : leaf of the last task whose end a plan left out because of a guarantee
LEAVING : number of tasks that are stopping, whatever for; LAST_INNER : the last row of a queue with children
RANKED : number of leaves in which higher priorities preempt lower ones
NOTED : number of durations that were noted
LAST_PASS : not 0 in a cycle that serves only those who get what nobody else can use; 1: also revocable jobs above limits
HISTORY_MOVED : 1 if past use has faded since the trees were updated
CELLS : number of cells that have shapes
FITTING : bits of the cells of which some task may have room on one of the first SCANNED freed nodes; OPEN : room that is not held
IN_ORDER : 1 if there is an order to keep; otherwise only the tables change, and the order is made when needed
"""

# Indices of `times`, seconds:
# BEGAN, NEXT_TICK : first fact; end of the next tick of any queue's history
# NOW, LAST_HOLD_START : time of the running cycle; last start of a hold on a freed node
# CLAIM_DUE : no claim is due before; it follows from the tables, and is computed at that moment
# OFFER_WAKE : no parked framework may be offered what it refused before
# IDLE_BUDGET : part of the cluster that may idle for reservations, over a day
# MOMENT, DEBTS_AT : when a task last started, ended or came; when debts were last counted
# ASKED_AT, DUE_AT : when lines were last asked whether they are owed room; no count of debts is due before
# WAITS_AT : when a leaf last began to wait
# LEAST_PATIENCE : least patience of a line that waited since debts were counted, a duration
# SERVED_AT : when a cycle placed tasks and served all that could be, if nothing has happened since
# FUNDED : the budget is not overspent before, whatever idles of what is kept
# MOMENT to SERVED_AT are in snapshots, in this order.
BEGAN, NEXT_TICK, NOW, LAST_HOLD_START, CLAIM_DUE, OFFER_WAKE, IDLE_BUDGET = range(7)
MOMENT, DEBTS_AT, WAITS_AT, ASKED_AT, DUE_AT, LEAST_PATIENCE, SERVED_AT, FUNDED = range(7, 15)

# Columns of a tree's `least` after the resources.
JOBS_NEEDED, NEGATIVE_PRIORITY, NUMBER, SHORTEST = 0, 1, 2, 3
LEAST_COLUMNS: Final = 4
LAST_BIT: Final = 62
"""Bit of `needs` that all resources from this index on share."""

MOST_CELLS: Final = 63
"""Cells of shapes: bits of an integer. `cell_least` has the least demand of a cell's shapes, by resource.

Rows of `cell_steps` hold these of one resource, sorted; `cell_sets` the bits of the first 0, 1, 2... cells in this order.
"""

INFINITE: Final = 2**62
"""Infinity for integers: the need of an empty tree."""

BLOCK: Final = 32
"""Nodes per block, and blocks per large block. `bounds` holds the most that one node of a block has free, by resource."""

MAX_KINDS: Final = 62
"""Kinds of nodes that are distinguished: each has a bit in `kinds_in` of blocks with nodes of it.

Rows of `kinds` hold capacities, roughly; `scarcity` 1 / total of each scarce resource, which some nodes lack, and 0 for
the others; if none is scarce, -1 / total of all: then these count for first fit.
"""

MIN_OFFER = {"cpu": 10, "memory": 32 * 2**20}
"""A node is offered if it has this much left of one of these: milli-cpu, bytes."""

_I64_1, _I64_2 = ("i8", 1), ("i8", 2)
PLANNED: Final[dict[str, tuple[Any, int]]] = {
    "planned_job": _I64_1, "planned_index": _I64_1, "planned_node": _I64_1, "planned_begins": ("?", 1), "planned_hold": _I64_1,
    "planned_until": ("f8", 1), "planned_tasks": _I64_1,
}  # fmt: skip
"""What a cycle planned.

For each placed task:

job, node : rows
index : counted from the job's `next`
begins : True if the job ran nothing before
hold : row of the hold it used; NONE
until : when it is expected to have ended, seconds

For each node that a reservation keeps:

node : row
tasks : number of tasks
"""
_TABLES: Final[dict[str, type[Table]]] = {
    **TABLES, "node_cache": NodeCache, "queue_cache": QueueCache, "group_cache": GroupCache, "shape_cache": ShapeCache,
}  # fmt: skip
ARRAYS: Final[dict[str, tuple[Any, int]]] = {
    **PLANNED,
    **{name: (table.FIELDS, 1) for name, table in _TABLES.items()},
    **{name: (kind, 2) for table in _TABLES.values() for name, (kind, _) in table.WIDE.items()},
    "counts": _I64_1, "times": ("f8", 1), "grain": _I64_1, "fine": _I64_1,
    "total": _I64_1, "ended": _I64_1, "most": _I64_1, "most_kept": _I64_1, "stack": _I64_1,
    "trees": (NODE, 1), "cell_least": _I64_2, "cell_steps": _I64_2, "cell_sets": _I64_2,
    "kinds_in": _I64_1, "large_kinds_in": _I64_1,
    "histogram_places": ("i4", 2), "masks": ("?", 2), "counted": ("?", 1), "frames": (FRAME, 1),
    "min_offer": _I64_1, "offer_room": _I64_1, "offered_to": _I64_2, "offered_rest": _I64_2,
    "least": _I64_2, "bounds": _I64_2, "large_bounds": _I64_2, "kinds": ("f8", 2), "scarcity": ("f8", 1), "caps": _I64_2,
    "tails": (TAILS, 1),
}  # fmt: skip
"""A view's arrays, each with type and number of dimensions: the tables' rows and wide arrays by their names, then the
rest of the order."""
