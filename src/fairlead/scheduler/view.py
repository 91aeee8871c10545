"""What kernels see of a state: one record of arrays, so that a call hands over one thing.

The tables are the state. The rest is the **order**: who goes next, kept between cycles and changed where something happened. It
is a cache beside the state: made anew from the tables at any time, it would decide the same.

A **tree** is what a queue keeps of its children (an inner queue's child queues, a leaf's buckets): a binary tree whose ends are
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

from typing import Any, ClassVar, Final

from fairlead.scheduler.tables import (
    F64,
    I8,
    I64,
    Bools,
    Buckets,
    Holds,
    Jobs,
    Nodes,
    Offers,
    Queues,
    Refusals,
    Shapes,
    Sketches,
    Table,
    Tasks,
    fields,
)


class NodeSeats(Table):
    """The list of the nodes where room came back since all that is parked was parked; `counts[FRESH]` says how long it is.

    fresh : the list, from the first row on
    is_fresh : whether the row's node is in it
    refusal : in the search for an offer `refusal_search`, one more than the row of the first refusal that is of the node
    """

    FIELDS = fields(fresh="i8", is_fresh="?", refusal="i8", refusal_search="i8")
    refusal: I64
    refusal_search: I64
    fresh: I64
    is_fresh: Bools


class QueueSeats(Table):
    """A queue's key among its siblings (below, first, level), compared left to right, and where its tree is.

    below : 0 where it is below its guarantee of something, so that it may come first
    inner : it has queues below it, and no buckets
    first, level : by its parent's policy; `column` is the resource at which the level is reached, NONE where that is not one
    base, slots, slot : of its tree, and its own place in its parent's; `children` have a slot in it
    keeping : nodes are kept for a job of it
    shut : a strict leaf of which the first was stopped in this cycle, so that nothing of it is served any more in it
    limited : the cycle in which something below it was not looked at for a limit, NONE; listed in `limited_list`
    unsure : it was, so what is parked below may have room on other nodes than fresh ones
    touched : what it uses has changed; listed in `touched_list`
    entitled : the dominant share that it should have, where its siblings share by a division
    counts_as : what it counts as under hdrf, and `level_now` its level by that alone, without what it used before
    turn : when it was served last, as `served` in the table of queues, in a cycle with what that has served: breaks ties
    charged : what its key is made of: what it uses, and what counts of what it used before; with `fine` binary digits after
        the point
    works : something below it waits or runs, as the trees were brought up to date last
    weighs : its weight, in 2**40ths of the largest among its siblings' (`largest` is that among its children's)
    at_work : the weights of its children that work, added up
    crowd, crowded : with more at work than `crowd`, not all that some child used before counts; whether that is so already
    moved : what is at work among its children has changed; listed in `moved_list`
    apart : a leaf; the plan for a reservation that was made last counts on nothing that tasks of it give back
    """

    FIELDS = fields(
        base="i8", slots="i8", slot="i8", children="i8", column="i8", first="i8", level="f8", entitled="f8", limited="i8",
        limited_list="i8", touched_list="i8", turn="i8", moved_list="i8", level_now="f8", crowd="f8", below="i1",
        inner="?", keeping="?", unsure="?", touched="?", works="?", crowded="?", moved="?",
        shut="?", apart="?",
    )  # fmt: skip
    WIDE: ClassVar = {
        "counts_as": ("f8", 0), "charged": ("i8", 0), "weighs": ("i8", 0), "at_work": ("i8", 0), "largest": ("f8", 0),
    }  # fmt: skip
    base: I64
    slots: I64
    slot: I64
    children: I64
    column: I64
    first: I64
    level: F64
    entitled: F64
    limited: I64
    limited_list: I64
    touched_list: I64
    below: I8
    inner: Bools
    keeping: Bools
    unsure: Bools
    touched: Bools
    turn: I64
    moved_list: I64
    level_now: F64
    crowd: F64
    works: Bools
    crowded: Bools
    moved: Bools
    shut: Bools
    apart: Bools
    counts_as: F64
    charged: I64
    weighs: I64
    at_work: I64
    largest: F64


class BucketSeats(Table):
    """A bucket's place among its leaf's, and what became of it in a cycle.

    number : of the job that is next; `current`, and `left` of its tasks, in the cycle `cycle`, else the bucket's first
    taken, begun : tasks of it that the cycle has placed so far, and jobs that it has begun; 0 between cycles
    stop, stop_order, stop_job : in the cycle `stop_cycle`, why it was not served on (see kernel_stops), after how many others,
        and the job that was tried
    parked : no node had room, but for those where some came back since
    out : not looked at any more in this cycle
    listed : it is in `out_list`: its place is to be brought up to date when the cycle is over
    touched : what waits in it has changed; listed in `touched_list`
    keeping : nodes are kept for it
    hopeless : no nodes, were they empty, could hold its task or gang
    lasts : how long a task of job row `lasts_job` usually lasts, where that is known to be so yet: `lasts_known`;
        `shorter`, where it has become less since that was asked last
    entered : where its next task may enter room that is kept for others; of a framework, the node that is found for it
    bounded, wake : of a framework that nothing was found for: a limit bounds what it may have; when what it refused may be had
    """

    FIELDS = fields(
        slot="i8", cycle="i8", current="i8", left="i8", number="i8", taken="i8", begun="i8", stop="i8",
        stop_cycle="i8", stop_order="i8", stop_job="i8", out_list="i8", touched_list="i8", lasts="f8", lasts_job="i8",
        entered="i8", lasts_known="?", shorter="?", parked="?", out="?", listed="?", touched="?", keeping="?", hopeless="?",
        wake="f8", bounded="?",
    )  # fmt: skip
    wake: F64
    bounded: Bools
    slot: I64
    cycle: I64
    current: I64
    left: I64
    number: I64
    taken: I64
    begun: I64
    stop: I64
    stop_cycle: I64
    stop_order: I64
    stop_job: I64
    out_list: I64
    touched_list: I64
    lasts: F64
    lasts_job: I64
    entered: I64
    lasts_known: Bools
    shorter: Bools
    parked: Bools
    out: Bools
    listed: Bools
    touched: Bools
    keeping: Bools
    hopeless: Bools


class ShapeSeats(Table):
    """How far a shape has come: in the cycle `cycle`, no node before `cursor` has room for it."""

    FIELDS = fields(cycle="i8", cursor="i8")
    cycle: I64
    cursor: I64


FRAME: Final = fields(
    queue="i8", bottom="i8", bucket="i8", child="i8", below="i8", first="i8", level="f8", unsure="?", only="?"
)  # fmt: skip
"""One queue of the path that a search is on: where its part of the stack begins, and the best that was found below it so far.

`only` while it looks for nobody but whom the queue goes first with, for they need what it is below its guarantee of."""

# Numbers in `counts`.
(
    NODES, QUEUES, BUCKETS, HOLDS, ENDED, IN_ORDER, CYCLE, TOUCHED_QUEUES, TOUCHED_BUCKETS, FRESH, OUT, LIMITED, STOPS,
    HDRF_SOMEWHERE, DIVIDED_SOMEWHERE, SKETCHES, HISTORY_MOVED, MOVED,
    FORGOTTEN_SKETCHES, BEYOND, OFFERED, OFFER_SEARCHES, LAST_OFFER,
) = range(23)  # fmt: skip
COUNTS: Final = 23
"""OFFERED : how many offers the last cycle made, on paper; LAST_OFFER is the id of the last that was made
OFFER_SEARCHES : how often a node was looked for to be offered
FORGOTTEN_SKETCHES : how often a sketch that somebody may rely on made room for another
BEYOND : in a cycle that serves revocable jobs alone, above limits
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

_I64_1, _I64_2 = ("i8", 1), ("i8", 2)
_TABLES: Final = {
    "nodes": Nodes, "queues": Queues, "shapes": Shapes, "buckets": Buckets, "jobs": Jobs, "tasks": Tasks, "holds": Holds,
    "offers": Offers, "refusals": Refusals,
    "sketches": Sketches, "node_seats": NodeSeats, "queue_seats": QueueSeats, "bucket_seats": BucketSeats,
    "shape_seats": ShapeSeats,
}  # fmt: skip
ARRAYS: Final[dict[str, tuple[Any, int]]] = {
    **{name: (table.FIELDS, 1) for name, table in _TABLES.items()},
    **{name: (kind, 2) for table in _TABLES.values() for name, (kind, _) in table.WIDE.items()},
    "counts": _I64_1, "times": ("f8", 1), "grain": _I64_1, "fine": _I64_1,
    "total": _I64_1, "ended": _I64_1, "most": _I64_1, "most_kept": _I64_1, "chosen_until": ("f8", 1), "stack": _I64_1,
    "best": _I64_1, "needs": _I64_1,
    "sketch_places": ("i4", 2), "masks": ("?", 2), "able": ("?", 1), "counted": ("?", 1), "frames": (FRAME, 1),
    "worth": _I64_1, "offer_room": _I64_1, "offered_to": _I64_2, "offered_rest": _I64_2,
    "least": _I64_2, "bounds": _I64_2, "large_bounds": _I64_2, "caps": _I64_2, "chosen": _I64_2,
}  # fmt: skip
"""What a view holds, each with its type and its number of dimensions: the tables' rows by the tables' names, their wide arrays by
theirs, then the rest of the order."""
