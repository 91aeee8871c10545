"""The state's arrays: rows for nodes, queues, shapes, buckets, jobs, tasks, holds, offers and sketches; they grow by doubling.

What is one number a row is a field of one structured array a table, so that a row lies together in memory and a table is one
argument to a kernel; what is one number a resource is an array of its own, and the width of all of them is the number of
resources. Python and kernels read both alike: ``jobs.waiting[row]``, ``nodes.free[row, resource]``.

A **bucket** is the waiting jobs of one leaf queue that are alike to the scheduler: same priority, same shape, same gang
size. They wait in a list linked through the jobs' rows, by job number; whatever stops the first of them stops all.
Only jobs with tasks that may start now are in their bucket. A framework that wants offers is a bucket as well, the only one of
its leaf that **wants**: no job is in it, and it asks for nothing in particular.
"""

from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

NONE: Final = -1
UNLIMITED: Final = 2**63 - 1

FIRST, PACK, SPREAD = range(3)
FITS: Final = ("", "pack", "spread")
"""Which of the nodes with room a task goes to, and how a job says so."""

I8 = NDArray[np.int8]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Table:
    """`n` rows in use of arrays that are longer.

    Attributes
    ----------
    n : int
    rows : structured array
        Its fields are attributes as well: arrays that show the same memory.
    moves : list of one int
        Counted up when an array is replaced by another, so that whoever keeps arrays knows that they are old.
    """

    FIELDS: ClassVar[np.dtype[Any]]
    WIDE: ClassVar[dict[str, tuple[str, float]]] = {}
    """Arrays with a column a resource: how they are stored, and what stands there for a resource that is new."""
    FOLLOWS: ClassVar[frozenset[str]] = frozenset()
    """Columns that follow from others, and are in no snapshot."""

    def __init__(self, moves: list[int]) -> None:
        self.n = 0
        self._moves = moves
        self.set_rows(np.zeros(0, self.FIELDS))
        for name, (kind, _) in self.WIDE.items():
            setattr(self, name, np.zeros((0, 0), kind))

    def set_rows(self, rows: NDArray[Any]) -> None:
        """Put other rows in place of these."""
        self._moves[0] += 1
        self.rows = rows
        for name in self.FIELDS.names or ():
            setattr(self, name, rows[name])

    def extend(self, count: int) -> int:
        """Add rows of zeros; returns the first."""
        first = self.n
        self.n += count
        if self.n > len(self.rows):
            length = max(2 * len(self.rows), self.n, 16)
            self.set_rows(longer(self.rows, first, length))
            for name in self.WIDE:
                setattr(self, name, longer(getattr(self, name), first, length))
        return first

    def keep(self, rows: I64) -> None:
        """Keep these rows only, in this order; rows freed behind them are zeros again."""
        self.set_rows(self.rows.take(rows))
        for name in self.WIDE:
            setattr(self, name, getattr(self, name).take(rows, axis=0))
        self.n = len(rows)

    def widen(self, resources: int) -> None:
        """Have a column for each of so many resources."""
        for name, (kind, fill) in self.WIDE.items():
            old = getattr(self, name)
            more = np.full((len(old), resources - old.shape[1]), fill, kind)
            setattr(self, name, np.ascontiguousarray(np.hstack([old, more])))
        self._moves[0] += 1


def longer(array: NDArray[Any], used: int, length: int) -> NDArray[Any]:
    """Copy the rows in use to an array with room for more; those are zeros."""
    new = np.zeros((length, *array.shape[1:]), array.dtype)
    if array.dtype.names:  # as bytes: numpy would go through them field by field
        new.view(np.uint8)[: used * array.itemsize] = array.view(np.uint8)[: used * array.itemsize]
    else:
        new[:used] = array[:used]
    return new


def fields(**kinds: str) -> np.dtype[Any]:
    """Make the type of a table's rows."""
    return np.dtype(list(kinds.items()), align=True)


class Nodes(Table):
    """capacity, free; held: what holds keep of it, so that free - held is there for all. One that is `forgotten` is lost, too.

    hold, task : the first of the holds, and of the tasks, that are on it; NONE: it has none
    """

    FIELDS = fields(up="?", draining="?", forgotten="?", hold="i8", task="i8")
    WIDE: ClassVar = {"capacity": ("i8", 0), "free": ("i8", 0), "held": ("i8", 0)}
    FOLLOWS: ClassVar = frozenset({"hold", "task"})
    up: Bools
    draining: Bools
    forgotten: Bools
    hold: I64
    task: I64
    capacity: I64
    free: I64
    held: I64


class Queues(Table):
    """The tree, parents before their children.

    policy : among its children; a leaf's among its buckets is priority
    strict : a leaf of which nobody passes the first that waits
    rank : by name: breaks the last ties
    tasks, jobs : that hold resources
    served : how many tasks had been placed in all, with it, when one of it was placed last; the root's is the number of all.
        An offer is as good as a task
    allocations : how often something of it was placed or offered
    refusal : one more than the row of the first refusal of the leaf's framework; 0: there is none
    offer_most : the part of the cluster that it may be offered at once; 0: any
    offered : of what it uses, what is offered and not answered
    tick : of its children's history, seconds; 0 where there is none
    ticks : how many of these are over
    moment : of the tick that runs, of its parent's, up to which what it used is counted
    remains : what is left of the mean after a tick, in parts of 2**32
    part, whole : the weight as a fraction part / whole, both below 2**30; `exact` where all siblings' are that to the last digit
    weightless : its weight is 0: under YARN's policies it goes after all others; the numbers say the least that there is
    used : what its tasks take; limits bound it
    mean, recent : what it used before (see :mod:`fairlead.scheduler.kernel`)
    spare : of what it uses, what revocable jobs do: limits bound others without that; `spare_tasks` is their number
    reserve : of what it is guaranteed, how much is not lent to others; `lends`: it, or one below, has such
    withheld : what others may not use just now, for that; of all queues below it together, `withheld_below`
    even : under sdrf, its part of the whole by its weight among all its siblings'
    trusted, overran : tasks that were taken to end by their cautious forecast, for a reservation's sake, and those that did not
    promised : the free room that is kept for it from others, which it is charged
    claimed : what is kept for its claims; as what it uses, it counts against limits and against what others do not lend, for all
        but those that it is kept for
    in_line_since : of a leaf of which one was passed over, and then served, since when: if it is still the first in line soon, it
        waits since then; `in_line_at` is when it was found in line last (see :mod:`fairlead.scheduler.kernel`)
    apart : a bit for each reservation that counts on nothing that tasks of the leaf give back: others of the leaf take that
    idled_before : the same over time: of a leaf, in all its reservations that are over, base units times seconds
    guarantee_timeout, share_timeout, threshold, min_runtime, priority_revokes : as :class:`fairlead.model.specs.Queue` says,
        with what is inherited; infinite where nothing is revoked
    revocable : neither it nor one above says that it is not
    guaranteed : it has a guarantee of something; `guarded` : it, or one above, and so others may be revoked for it
    below_since : of each resource, when it last fell below its guarantee
    short_since : since when it is known to be short of its fair share; infinite: it is not. The root's: when that was looked at
    """

    FIELDS = fields(
        parent="i8", policy="i8", rank="i8", max_tasks="i8", max_jobs="i8", tasks="i8", jobs="i8", served="i8",
        ticks="i8", moment="i8", remains="i8", trusted="i8", overran="i8", tick="f8", guarantee_timeout="f8",
        share_timeout="f8", threshold="f8", min_runtime="f8", short_since="f8", in_line_since="f8", exact="?", weightless="?",
        in_line_at="f8", strict="?", apart="i8", spare_tasks="i8", priority_revokes="?",
        revocable="?", guaranteed="?", guarded="?",
        lends="?", allocations="i8", refusal="i8", offer_most="f8",
    )  # fmt: skip
    WIDE: ClassVar = {
        "weight": ("f8", 1.0),
        "part": ("i8", 1),
        "whole": ("i8", 1),
        "guarantee": ("i8", 0),
        "limit": ("i8", UNLIMITED),
        "used": ("i8", 0),
        "mean": ("i8", 0),
        "recent": ("i8", 0),
        "even": ("i8", 0),
        "spare": ("i8", 0),
        "reserve": ("i8", 0),
        "withheld": ("i8", 0),
        "withheld_below": ("i8", 0),
        "promised": ("i8", 0),
        "claimed": ("i8", 0),
        "offered": ("i8", 0),
        "idled_before": ("f8", 0),
        "below_since": ("f8", 0),
    }
    FOLLOWS: ClassVar = frozenset({"refusal", "claimed"})
    allocations: I64
    refusal: I64
    offer_most: F64
    offered: I64
    guarantee_timeout: F64
    share_timeout: F64
    threshold: F64
    min_runtime: F64
    short_since: F64
    in_line_since: F64
    in_line_at: F64
    apart: I64
    priority_revokes: Bools
    revocable: Bools
    guaranteed: Bools
    guarded: Bools
    below_since: F64
    spare_tasks: I64
    spare: I64
    lends: Bools
    reserve: I64
    withheld: I64
    withheld_below: I64
    parent: I64
    policy: I64
    rank: I64
    max_tasks: I64
    max_jobs: I64
    tasks: I64
    jobs: I64
    exact: Bools
    strict: Bools
    weightless: Bools
    weight: F64
    part: I64
    whole: I64
    guarantee: I64
    limit: I64
    used: I64
    mean: I64
    recent: I64
    even: I64
    trusted: I64
    overran: I64
    promised: I64
    claimed: I64
    idled_before: F64
    served: I64
    ticks: I64
    moment: I64
    remains: I64
    tick: F64

    def divisor(self, row: int) -> F64:
        """What people see a queue's shares divided by: its weights, and nothing where it has none."""
        return np.ones(self.weight.shape[1]) if self.weightless[row] else np.asarray(self.weight[row])


class Shapes(Table):
    """Distinct demands with their constraints, and where they go of the nodes with room.

    mask : a row of the nodes that meet the constraints
    fit : FIRST, PACK for the fullest, SPREAD for the emptiest
    """

    FIELDS = fields(mask="i8", fit="i8")
    WIDE: ClassVar = {"demand": ("i8", 0)}
    mask: I64
    fit: I64
    demand: I64


class Buckets(Table):
    """Alike jobs of a leaf that wait.

    gang : tasks at once; 0: one by one
    started : jobs in the list that run already
    passed_since : NaN: it was not passed over
    since : when it was empty last; since then somebody waits in it
    revocable : of jobs that are
    put_off : until then nothing is revoked for its claims of class `put_off_from` or one after that: it was tried, and nothing
        that may be would make room
    wants : of a framework that wants offers; `number` is what it has in the place of a job's number
    """

    FIELDS = fields(
        leaf="i8", priority="i8", shape_row="i8", gang="i8", head="i8", tail="i8", started="i8", passed_since="f8", since="f8",
        put_off="f8", put_off_from="i8", revocable="?", wants="?", number="i8",
    )  # fmt: skip
    wants: Bools
    number: I64
    leaf: I64
    priority: I64
    shape_row: I64
    gang: I64
    head: I64
    tail: I64
    started: I64
    passed_since: F64
    since: F64
    put_off: F64
    put_off_from: I64
    revocable: Bools


class Jobs(Table):
    """What was submitted, and where its tasks are. What a placement reads and writes lies together.

    family : jobs with the same are alike in name, shape and queue; 0: not known
    plain : not a gang, waits for no other and is waited for by none: the kernels do all that its tasks' ends bring
    irregular : the tasks that wait are not just those from `next` on
    exit_done : a task that is revoked and then exits 0 is done
    revocable : it may go above limits into what is idle, and is revoked before others
    once : of a framework: a task of it starts at most once
    first : its tasks' rows start here
    next : tasks from this index on were never placed
    holding : tasks that hold resources
    home : the bucket that it waits in when it does; of a gang, NONE: that depends on how many wait
    bucket : NONE: not in one now
    after, before : rows in the bucket
    time_limit : seconds; infinite: none
    at_most : tasks of it that may hold resources at once; 0: any number. One that has so many waits in no bucket
    finished_at : NaN: not yet
    """

    FIELDS = fields(
        id="i8", bucket="i8", after="i8", before="i8", waiting="i8", holding="i8", next="i8", first="i8", queue="i8",
        shape_row="i8", tasks="i8", family="i8", home="i8", priority="i8", retries="i8", failed="i8", cancelled="i8",
        at_most="i8", time_limit="f8", submitted_at="f8", finished_at="f8", gang="?", held="?", irregular="?", plain="?",
        exit_done="?", revocable="?", once="?",
    )  # fmt: skip
    once: Bools
    id: I64
    queue: I64
    shape_row: I64
    priority: I64
    retries: I64
    first: I64
    tasks: I64
    next: I64
    waiting: I64
    holding: I64
    failed: I64
    cancelled: I64
    home: I64
    bucket: I64
    after: I64
    before: I64
    family: I64
    at_most: I64
    time_limit: F64
    submitted_at: F64
    finished_at: F64
    gang: Bools
    held: Bools
    irregular: Bools
    plain: Bools
    exit_done: Bools
    revocable: Bools

    def startable(self, rows: I64 | int) -> I64:
        """How many tasks of jobs may start, as far as they say: all that wait, or as many as may run at once besides."""
        most, waiting = self.at_most[rows], self.waiting[rows]
        found: I64 = np.where(most > 0, np.clip(most - self.holding[rows], 0, waiting), waiting)
        return found


class Tasks(Table):
    """What became of each task.

    started_at, finished_at : NaN before the attempt runs, and before the task is over
    kept_at : when it last said that it has kept what it did; of an earlier attempt, or 0, where this one has not
    until : when it is taken to have ended, NaN where nobody has had to know; `trusted` where that is by its cautious forecast
    job, after, before : of one that holds resources, the row of its job, and the tasks after and before it on its node
    cpu : seconds of CPU that its attempts used, together; `peak` is the most memory that one of them had, in bytes. 0: not known
    """

    FIELDS = fields(
        started_at="f8", finished_at="f8", kept_at="f8", until="f8", attempt="i4", node="i4", code="i4", job="i4",
        after="i4", before="i4", cpu="f4", peak="f4", status="i1", outcome="i1", losses="i1", failures="i1", trusted="?",
    )  # fmt: skip
    FOLLOWS: ClassVar = frozenset({"job", "after", "before"})
    started_at: F64
    finished_at: F64
    kept_at: F64
    until: F64
    trusted: Bools
    attempt: I32
    node: I32
    code: I32
    job: I32
    after: I32
    before: I32
    cpu: F32
    peak: F32
    status: I8
    outcome: I8
    losses: I8
    failures: I8


class Holds(Table):
    """Resources of a node kept for an owner from a moment to a moment; see :mod:`fairlead.scheduler.kernel`.

    kind : RESERVATION, for tasks of a job that found no room; all those of a bucket are one reservation. Others are for claims
        (:mod:`fairlead.scheduler.claims`), of room that is coming back; they are not planned anew.
    node, bucket : rows; `after` is the next hold on the node, NONE where that is the last
    job : the number of the job that it is for
    tasks : how many of its tasks; `amount` is what they need
    start, end : seconds; when that is there by the forecasts, and when it will be given back
    rank : of the reservation: it was planned around those with smaller ones
    made : when something was first kept for it
    slips : how often the start passed in vain; the last time, or when it was made, is `since`
    planned : when it was planned last; `review`, when a task has to have ended on which that relies
    place : of a reservation, one that no other has; its bit in `apart` of queues. NONE of others
    ran : how many tasks its leaf ran when it was planned
    change : whether what it was planned by is so no more: SAME, CHANGED, or BROKEN, where it must be planned anew at once
    back : what tasks on the node are taken to give back until the start
    idle : free room that it keeps from others since `counted`; and `idled`, what that was before, times seconds
    """

    FIELDS = fields(
        kind="i8", node="i8", bucket="i8", job="i8", tasks="i8", rank="i8", slips="i8", change="i8", after="i8", start="f8",
        end="f8", made="f8", since="f8", planned="f8", review="f8", counted="f8", place="i8",
        ran="i8",
    )  # fmt: skip
    WIDE: ClassVar = {"amount": ("i8", 0), "back": ("i8", 0), "idle": ("i8", 0), "idled": ("f8", 0)}
    FOLLOWS: ClassVar = frozenset({"after"})
    kind: I64
    node: I64
    bucket: I64
    job: I64
    tasks: I64
    rank: I64
    slips: I64
    change: I64
    after: I64
    start: F64
    end: F64
    made: F64
    since: F64
    planned: F64
    review: F64
    counted: F64
    place: I64
    ran: I64
    amount: I64
    back: I64
    idle: I64
    idled: F64


class Offers(Table):
    """Resources of nodes that are kept for frameworks until they answer, in the order of their ids: see `kernel_offers`.

    leaf, node : rows
    made : when, seconds
    revocable : of a framework that is
    """

    FIELDS = fields(id="i8", leaf="i8", node="i8", made="f8", revocable="?")
    WIDE: ClassVar = {"rest": ("i8", 0)}
    id: I64
    leaf: I64
    node: I64
    made: F64
    revocable: Bools
    rest: I64


class Refusals(Table):
    """What frameworks do not want, by leaf and node, until a moment: nothing that is a part of it is offered to them there.

    after : one more than the row of the next of the same leaf, 0: there is none; `beside`: the same of the leaf and the node,
        as a search for a node has noted
    """

    FIELDS = fields(leaf="i8", node="i8", until="f8", after="i8", beside="i8")
    WIDE: ClassVar = {"refused": ("i8", 0)}
    FOLLOWS: ClassVar = frozenset({"after", "beside"})
    leaf: I64
    node: I64
    until: F64
    after: I64
    beside: I64
    refused: I64


SAME, CHANGED, BROKEN = range(3)
RESERVATION: Final = 0
GUARANTEE, FAIR_SHARE, PRIORITY, IDLE = 1, 2, 3, 4
"""Kinds of holds: for a reservation; and of claims, those that come first having smaller numbers."""
WHY: Final = {GUARANTEE: "guarantee", FAIR_SHARE: "fair share", PRIORITY: "priority", IDLE: "idle"}
"""What the kinds of claims are called."""

OF_JOB, OF_FAMILY, OF_QUEUE = range(3)
"""What a sketch is about."""
BINS: Final = 128
"""Of a sketch: four an octave, from 1/16 s to 8 years, so that none is wider than a quarter of what it begins at."""
SETS, WAYS = 1024, 8
"""A sketch has its place in one of so many sets, with so many others: so many are kept in all."""


class Sketches(Table):
    """How long tasks lasted that ended by themselves: of a job with several, of a family of jobs, of a leaf queue.

    There is room for all that are kept, so kernels add rows by themselves: `counts[SKETCHES]` says how many there are.

    about : OF_JOB, OF_FAMILY (the same name, shape and leaf queue) or OF_QUEUE
    key : the job's number, the family's (see :func:`fairlead.scheduler.forecasts.family_of`), or the queue's row
    used : when something was added last; minus infinity where nobody will ask again, for the job has ended
    counts : by duration, see :func:`fairlead.scheduler.kernel.scheduling.bin_of`; `total` of them together
    usual : the bin of the one that a tenth are as long as, NONE where there are too few to say; `beyond`: those in longer bins
    places : int32, shape (SETS, WAYS): the rows of each set, NONE where there is none. It follows from the rows.
    """

    FIELDS = fields(key="i8", used="f8", total="i4", beyond="i2", about="i1", usual="i1", counts=f"({BINS},)i2")
    FOLLOWS: ClassVar = frozenset({"beyond", "usual"})
    key: I64
    used: F64
    total: I32
    beyond: NDArray[np.int16]
    about: I8
    usual: I8
    counts: NDArray[np.int16]

    def __init__(self, moves: list[int]) -> None:
        super().__init__(moves)
        self.places = np.full((SETS, WAYS), NONE, np.int32)
        self.make_room()

    def make_room(self) -> None:
        """Have as many rows as there may be."""
        self.set_rows(longer(self.rows, self.n, SETS * WAYS))


TABLES: Final = {
    "nodes": Nodes,
    "queues": Queues,
    "shapes": Shapes,
    "buckets": Buckets,
    "jobs": Jobs,
    "tasks": Tasks,
    "holds": Holds,
    "offers": Offers,
    "refusals": Refusals,
    "sketches": Sketches,
}
