"""What kernels see of a state: one record of arrays, so that a call hands over one thing.

The tables are the state. The rest is the **order**: who goes next, kept between cycles and changed where something happened. It
is a cache beside the state: made anew from the tables at any time, it would decide the same.

A **tree** is what a queue keeps of its children (an inner queue's child queues, a leaf's groups): a binary tree whose ends are
the children's places and whose nodes say of all that is below them

    best    the child with the smallest key; NONE where nothing waits
    least   the least that anybody who waits there needs: of each resource; of jobs (0 where one that runs already waits), and the
            smallest of the negative priorities, of the job numbers and of the durations, in microseconds; of a strict leaf, what
            the best of them needs
    needs   a bit for each resource that anybody there needs; all of them for who needs nothing in particular
    able    whether something there may have room anywhere: else all of it is **parked**, known to have room on no node but those
            where some came back since (the **fresh** ones), and no queue in it is **unsure** of that

so the next to be served is found from the root down, past all that cannot be served, in steps that grow with the logarithm of
what waits. Queue q's tree has its root at `base[q] + 1`, what is below its node `base[q] + i` at `base[q] + 2 i` and one further,
and the place of the child with slot s at `base[q] + slots[q] + s`.
"""

from typing import Any, Final

from fairlead.scheduler.tables import (
    F64,
    I8,
    I64,
    Amounts,
    Bools,
    DurationHistograms,
    Floats,
    Holds,
    Jobs,
    Nodes,
    Offers,
    PendingGroups,
    Queues,
    Refusals,
    Shapes,
    Table,
    Tasks,
    fields,
)


class NodeCache(Table):
    """The list of the nodes where room came back since all that is parked was parked; `counts[FREED]` says how long it is."""

    freed: I64  # from the first row on: the list of fresh nodes; counts[FREED] is its length
    is_freed: Bools  # the row's node is in that list
    refusal: I64  # in the search `refusal_search`: 1 + row of the first refusal for the node
    refusal_search: I64


class QueueCache(Table):
    """A queue's key among its siblings (below, first, level), compared left to right, and where its tree is."""

    base: I64  # its tree begins here
    slots: I64  # places of its children
    slot: I64  # its own place in its parent's tree
    children: I64  # that have a slot
    column: I64  # resource at which the level is reached; NONE: none
    first: I64  # second part of the key
    level: F64  # third part of the key
    entitled: F64  # dominant share due to it, where siblings share by a division
    limited: I64  # cycle in which something below was skipped for a limit; NONE
    limited_list: I64  # queues with `limited`
    touched_list: I64  # queues with `touched`
    last_served: I64  # `served` of the table of queues, within a cycle: breaks ties
    moved_list: I64  # queues with `moved`
    level_now: F64  # under hdrf: its level without what it used before
    crowd: F64  # with more weight at work, only a part of past use counts
    below: I8  # first part of the key: 0 where it is below its guarantee and may come first
    inner: Bools  # it has queues below it, and no groups
    keeping: Bools  # nodes are kept for a job of it
    maybe_stale: Bools  # something below was skipped: what is parked there may have room on nodes that are not fresh
    touched: Bools  # its use has changed
    works: Bools  # something below waits or runs
    crowded: Bools  # more than `crowd` is at work
    moved: Bools  # who is at work among its children has changed
    shut: Bools  # a strict leaf whose first was stopped in this cycle
    apart: Bools  # a leaf: the latest plan for a reservation relies on none of its tasks' ends
    counts_as: Floats  # under hdrf: what it counts as using
    charged: Amounts  # what its key is made of: use, and what counts of past use; fixed point, see `fine`
    weighs: Amounts  # its weight, in 2**-40 of its siblings' largest
    at_work: Amounts  # sum of `weighs` of its children at work
    largest: Floats  # largest weight among its children


class GroupCache(Table):
    """A group's place among its leaf's, and what became of it in a cycle."""

    slot: I64
    cycle: I64  # `current` and `left` are valid in this cycle
    current: I64  # job that is next, by row
    left: I64  # of its tasks
    number: I64  # of the job that is next
    taken: I64  # tasks this cycle placed; 0 between cycles
    begun: I64  # jobs this cycle began; 0 between cycles
    stop: I64  # why it was not served further in `stop_cycle`; see limits.pxi
    stop_cycle: I64
    stop_order: I64  # after how many others that was
    stop_job: I64  # the job that was tried
    out_list: I64  # groups with `listed`
    touched_list: I64  # groups with `touched`
    lasts: F64  # p90 of a task's duration, of job `lasts_job`
    lasts_job: I64
    entered: I64  # node where its next task may enter kept room; of a framework: the node to offer
    lasts_known: Bools  # `lasts` is up to date
    shorter: Bools  # `lasts` fell since it was last asked for
    parked: Bools  # no node had room, except fresh ones
    out: Bools  # not tried again in this cycle
    listed: Bools  # to be brought up to date when the cycle is over
    touched: Bools  # what waits in it has changed
    keeping: Bools  # nodes are kept for it
    hopeless: Bools  # its task or gang fits no empty nodes
    wake: F64  # of a framework: when it may have what it refused
    bounded: Bools  # of a framework: a limit bounds its offers


class ShapeCache(Table):
    """How far a shape has come."""

    cycle: I64
    cursor: I64  # in the cycle `cycle`, no node before it has room


FRAME: Final = fields(
    queue="i8", bottom="i8", group="i8", child="i8", below="i8", first="i8", level="f8", maybe_stale="?", only="?"
)  # fmt: skip
"""One queue of the path that a search is on: where its part of the stack begins, and the best that was found below it so far.

`only` while it looks for nobody but whom the queue goes first with, for they need what it is below its guarantee of."""

# Numbers in `counts`.
(
    NODES, QUEUES, GROUPS, HOLDS, ENDED, IN_ORDER, CYCLE, TOUCHED_QUEUES, TOUCHED_GROUPS, FREED, OUT, LIMITED, STOPS,
    HDRF_SOMEWHERE, DIVIDED_SOMEWHERE, HISTOGRAMS, HISTORY_MOVED, MOVED,
    FORGOTTEN_HISTOGRAMS, OVER_LIMIT_PASS, OFFERED, OFFER_SEARCHES, LAST_OFFER,
) = range(23)  # fmt: skip
COUNTS: Final = 23
"""OFFERED : how many offers the last cycle made, on paper; LAST_OFFER is the id of the last that was made
OFFER_SEARCHES : how often a node was looked for to be offered
FORGOTTEN_HISTOGRAMS : how often a histogram that somebody may rely on made room for another
OVER_LIMIT_PASS : in a cycle that serves revocable jobs alone, above limits
HISTORY_MOVED : whether what queues used before has faded since the trees were brought up to date
IN_ORDER : whether there is an order to keep; without, only the tables are changed, and it is made when it is needed"""

# Numbers in `times`: when the first fact happened, when the next tick of some queue's history is over, when the cycle is that
# runs, and the last start of those for whom room is kept on fresh nodes; seconds. CLAIM_DUE: no claim is due before; it follows
# from the tables, and is worked out when that moment comes. OFFER_WAKE: no parked framework may have what it refused before then.
BEGAN, NEXT_TICK, NOW, LAST_START, CLAIM_DUE, OFFER_WAKE = range(6)

# After the resources, what a tree's `least` says.
JOBS_NEEDED, NEGATIVE_PRIORITY, NUMBER, SHORTEST = 0, 1, 2, 3
MORE_COLUMNS: Final = 4
LAST_BIT: Final = 62
"""Of those in `needs`."""

NOBODY: Final = 2**62
"""More than anything that is there: what is needed where nobody needs anything."""

BLOCK: Final = 32
"""Nodes of a block, and blocks of a large block: `bounds` says of each the most that is there of each resource on one node."""

WORTH = {"cpu": 10, "memory": 32 * 2**20}
"""What is left of a node is offered if there is so much of one of these."""

_I64_1, _I64_2 = ("i8", 1), ("i8", 2)
PLANNED: Final[dict[str, tuple[Any, int]]] = {
    "planned_job": _I64_1, "planned_index": _I64_1, "planned_node": _I64_1, "planned_begins": ("?", 1), "planned_hold": _I64_1,
    "planned_until": ("f8", 1), "planned_tasks": _I64_1,
}  # fmt: skip
"""What a cycle planned. For each task placed: the rows of its job and node, its index counted on from the job's `next`, True if
the job ran nothing before, the row of the hold it used or NONE, when it is expected to have ended. For each node that a
reservation keeps: its row, and how many tasks."""
_TABLES: Final = {
    "nodes": Nodes, "queues": Queues, "shapes": Shapes, "groups": PendingGroups, "jobs": Jobs, "tasks": Tasks, "holds": Holds,
    "offers": Offers, "refusals": Refusals,
    "histograms": DurationHistograms, "node_cache": NodeCache, "queue_cache": QueueCache, "group_cache": GroupCache,
    "shape_cache": ShapeCache,
}  # fmt: skip
ARRAYS: Final[dict[str, tuple[Any, int]]] = {
    **PLANNED,
    **{name: (table.FIELDS, 1) for name, table in _TABLES.items()},
    **{name: (kind, 2) for table in _TABLES.values() for name, (kind, _) in table.WIDE.items()},
    "counts": _I64_1, "times": ("f8", 1), "grain": _I64_1, "fine": _I64_1,
    "total": _I64_1, "ended": _I64_1, "most": _I64_1, "most_kept": _I64_1, "stack": _I64_1,
    "best": _I64_1, "needs": _I64_1,
    "histogram_places": ("i4", 2), "masks": ("?", 2), "may_fit": ("?", 1), "counted": ("?", 1), "frames": (FRAME, 1),
    "worth": _I64_1, "offer_room": _I64_1, "offered_to": _I64_2, "offered_rest": _I64_2,
    "least": _I64_2, "bounds": _I64_2, "large_bounds": _I64_2, "caps": _I64_2,
}  # fmt: skip
"""What a view holds, each with its type and its number of dimensions: the tables' rows by the tables' names, their wide arrays by
theirs, then the rest of the order."""
