"""The state's arrays: rows for nodes, queues, shapes, groups, jobs, tasks, holds, offers and histograms.

A column is declared once, as an annotation of its table. A column with one number per row is a field of the table's structured
array, so a row is contiguous and a table is one argument to a kernel. A column with one number per resource is a matrix, as is
one with sets of cards. Python
and kernels read both the same way: ``jobs.waiting[row]``, ``nodes.free[row, resource]``. The structs of the kernels are
generated from the same declarations: see :mod:`fairlead.scheduler.kernel.declarations`.

A **pending group** holds the waiting jobs of one leaf queue that the scheduler treats alike: same priority, shape and gang
size. They form a list linked through the jobs' rows, ordered by job number; what stops the first stops all. A job is in its
group only while it has tasks that may start. A framework that wants offers is a group too, with **is_framework** set: it holds
no job and has no demand.
"""

import ctypes
import resource
from contextlib import suppress
from functools import cache
from inspect import get_annotations
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, NamedTuple, get_args
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from fairlead.model.specs import Quantities

NONE: Final = -1
UNLIMITED: Final = 2**63 - 1

FIRST, PACK, SPREAD, APART = range(4)
FITS: Final = ("", "pack", "spread", "apart")
"""Which of the nodes with room a task goes to: the codes, and their names in a job's `fit`. APART: each of a gang to another."""


class PerResource(NamedTuple):
    """A column with a number per resource; `fill` is the value for a new resource."""

    fill: float = 0


class CardSets(NamedTuple):
    """A column with a set of cards per row, as words: see :mod:`fairlead.model.cards`. It has as many as the last card needs."""


class Several(NamedTuple):
    """A column with `size` numbers per row."""

    size: int


DERIVED: Final = "derived"
"""Marks a column that follows from others; snapshots omit it."""

I8 = NDArray[np.int8]
I16 = NDArray[np.int16]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Bools = NDArray[np.bool_]
Amounts = Annotated[I64, PerResource()]
Floats = Annotated[F64, PerResource()]


RESERVE_FROM: Final = 2**13
"""Rows from which on a table reserves."""
RESERVED: Final = 2**30
"""Bytes that it reserves: beyond them, and where the system counts or refuses what is reserved, each growth copies all rows."""


class Table:
    """`n` rows in use, of longer arrays.

    A subclass declares each column as an annotation: an array type, with details in `Annotated`.

    rows : structured array: its fields are also attributes: arrays that share its memory
    moves : counted up when an array is replaced, so that holders of arrays know theirs are stale
    """

    FIELDS: ClassVar[np.dtype[Any]]
    WIDE: ClassVar[dict[str, tuple[str, float | None]]]
    """Columns that are matrices: type, and value for a new resource; None if they have sets of cards."""
    FOLLOWS: ClassVar[frozenset[str]]
    RESERVES: ClassVar[bool] = False
    """True if it grows in place: what is reserved and not written takes no memory."""

    def __init_subclass__(cls) -> None:
        columns = {name: _column(kind) for name, kind in get_annotations(cls).items()}
        wide = {name for name, (_, about) in columns.items() if any(isinstance(x, PerResource | CardSets) for x in about)}
        counts = {name: tuple(x.size for x in about if isinstance(x, Several)) for name, (_, about) in columns.items()}
        rows = [(name, dtype, counts[name]) for name, (dtype, _) in columns.items() if name not in wide]
        cls.FIELDS = np.dtype(rows, align=True)
        fills = {name: next((x.fill for x in columns[name][1] if isinstance(x, PerResource)), None) for name in wide}
        cls.WIDE = {name: (columns[name][0].str[1:], fills[name]) for name in columns if name in wide}
        cls.FOLLOWS = frozenset(name for name, (_, about) in columns.items() if DERIVED in about)

    def __init__(self, moves: list[int]) -> None:
        self.n = 0
        self._moves = moves
        self._reserved = WeakValueDictionary[str, NDArray[Any]]()  # by column, for as long as its array is a part of it
        self.set_rows(np.zeros(0, self.FIELDS))
        for name, (kind, _) in self.WIDE.items():
            setattr(self, name, np.zeros((0, 0), kind))

    def set_rows(self, rows: NDArray[Any]) -> None:
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
            if self.RESERVES and self.n <= (most := RESERVED // self.FIELDS.itemsize):
                length = min(length, most)
            self.set_rows(self._longer("rows", first, length))
            for name in self.WIDE:
                setattr(self, name, self._longer(name, first, length))
        return first

    def have_room(self, count: int) -> None:
        """Allocate memory for more rows, which kernels add."""
        self.n = self.extend(count)

    def _longer(self, name: str, used: int, length: int) -> NDArray[Any]:
        """Return a column, or all rows, at this length: more of what is reserved for it, else a copy of the first `used` rows.

        It has no more rows than that, whatever is reserved: kernels go through all.
        """
        array, reserved = getattr(self, name), self._reserved.get(name)
        if reserved is not None and array.base is reserved and length <= len(reserved):
            return reserved[:length]
        most = RESERVED // self.FIELDS.itemsize if self.RESERVES and length >= RESERVE_FROM and may_reserve() else 0
        if most >= length:
            with suppress(MemoryError):  # the system does not promise what it may not have
                reserved = self._reserved[name] = longer(array, used, most)
                return reserved[:length]
        return longer(array, used, length)

    def ahead(self, count: int) -> list[NDArray[Any]]:
        """Return the memory of the next rows, as far as there is some: see :func:`find_memory`."""
        arrays = {name: getattr(self, name) for name in ("rows", *self.WIDE)}
        return [self._reserved.get(name, array)[self.n : self.n + count] for name, array in arrays.items()]

    def keep(self, rows: I64) -> None:
        """Keep only these rows, in this order."""
        self.set_rows(self.rows.take(rows))
        for name in self.WIDE:
            setattr(self, name, getattr(self, name).take(rows, axis=0))
        self.n = len(rows)

    def widen(self, resources: int) -> None:
        """Add columns up to this number of resources."""
        for name, (_, fill) in self.WIDE.items():
            if fill is not None:
                self._widen(name, resources, fill)

    def _widen(self, name: str, width: int, fill: float) -> None:
        old = getattr(self, name)
        new = np.zeros((len(old), width), old.dtype)
        used = slice(None) if fill else slice(self.n)
        new[used, : old.shape[1]] = old[used]
        if fill:
            new[:, old.shape[1] :] = fill
        setattr(self, name, new)
        self._moves[0] += 1

    def set_cards(self, name: str, rows: I64 | slice, words: I64) -> None:
        """Replace sets of cards; `words` has a row each."""
        width = words.shape[1]
        if width > getattr(self, name).shape[1]:
            self._widen(name, width, 0)
        getattr(self, name)[rows, :width] = words
        getattr(self, name)[rows, width:] = 0


_POPULATE_WRITE: Final = 23  # MADV_POPULATE_WRITE of Linux 5.14; an older one refuses it, and finds what is written later


def find_memory(arrays: list[NDArray[Any]]) -> None:
    """Have the system find memory for arrays. Their content stays, so another thread may write them meanwhile.

    Memory that was never written takes a virtual machine milliseconds per MiB: the scheduler's thread shall not wait for it.
    """
    for array in arrays:
        begin = array.ctypes.data
        page = begin % resource.getpagesize()
        _system.madvise(ctypes.c_void_p(begin - page), ctypes.c_size_t(array.nbytes + page), _POPULATE_WRITE)


_system: Final = ctypes.CDLL(None)
_LIMITS: Final = (resource.RLIMIT_AS, resource.RLIMIT_DATA)


def may_reserve() -> bool:
    """False if what is reserved and not written counts: under a limit of this process, or where the system never overcommits."""
    return _overcommits() and all(resource.getrlimit(kind)[0] == resource.RLIM_INFINITY for kind in _LIMITS)


@cache
def _overcommits() -> bool:
    with suppress(OSError):
        return Path("/proc/sys/vm/overcommit_memory").read_text().strip() != "2"
    return True


def longer(array: NDArray[Any], used: int, length: int) -> NDArray[Any]:
    """Copy the first `used` rows to an array of zeros of this length."""
    new = np.zeros((length, *array.shape[1:]), array.dtype)
    if array.dtype.names:  # as bytes: numpy would copy field by field
        new.view(np.uint8)[: used * array.itemsize] = array.view(np.uint8)[: used * array.itemsize]
    else:
        new[:used] = array[:used]
    return new


def _column(kind: Any) -> tuple[np.dtype[Any], tuple[Any, ...]]:
    """Return the dtype of a column, and the details of its declaration."""
    about = getattr(kind, "__metadata__", ())
    scalar = get_args(kind.__origin__ if about else kind)[-1]  # before numpy 2.5 within np.dtype[...]
    return np.dtype(*(get_args(scalar) or [scalar])), about


def vector(quantities: Quantities, resources: list[str], fill: int = 0) -> I64:
    """Return quantities as an array with a column per resource."""
    return np.array([quantities.get(name, fill) for name in resources], np.int64)


def with_all_above(those: Bools, parent: I64) -> Bools:
    """Return some queues and all above them, by the `parent` column of `Queues`."""
    found, above = those.copy(), np.flatnonzero(those)
    while len(above):
        above = np.unique(parent[above])
        above = above[above != NONE]
        found[above] = True
    return found


def fields(**kinds: str) -> np.dtype[Any]:
    """Return the dtype of a structured array's rows."""
    return np.dtype(list(kinds.items()), align=True)


class Nodes(Table):
    """The machines, in the order they joined."""

    up: Bools  # False once it is lost
    draining: Bools
    forgotten: Bools  # lost, and no longer listed
    drained_cards: Annotated[I64, CardSets()]  # they take no more tasks, and are no part of capacity
    hold: Annotated[I64, DERIVED]  # first hold on it
    task: Annotated[I64, DERIVED]  # first task on it
    capacity: Amounts
    free: Amounts  # capacity less what tasks use
    held: Amounts  # kept by holds; free - held is open to all


class Queues(Table):
    """The tree, parents before their children."""

    parent: I64
    policy: I64  # among its children; a leaf orders its groups by priority
    rank: I64  # by name among its siblings: breaks the last ties
    max_tasks: I64
    max_jobs: I64
    tasks: I64  # that hold resources
    jobs: I64  # that hold resources
    served: I64  # placements and offers in total when it was last served; the root's counts all of them
    ticks: I64  # ticks of its children's history that are over
    moment: I64  # in its parent's current tick: its use is counted up to here
    remains: I64  # part of the mean left after a tick, in 2**-32
    trusted: I64  # tasks whose cautious forecast a reservation relied on
    overran: I64  # how many of these ran longer
    tick: F64  # length of a tick of its children's history, seconds; 0: none
    # this and the next four: see Queue in fairlead.model.specs; inherited; inf: no preemption for it
    guarantee_timeout: F64
    share_timeout: F64
    threshold: F64
    min_runtime: F64
    short_since: F64  # since when it is below its fair share; inf: it is not; the root's: time of the last check
    debt: F64  # of a line: what it is owed, see `kernel/debts.pxi`; seconds
    debt_at: F64  # of a line: when its debt was last added up, if after a count
    due_at: F64  # of a line that waits: when its debt needs a count
    lasts: (
        F64  # of a line: the p90 of its tasks when one ended last, seconds; 0: unknown. The root's: the longest of who runs any
    )
    beyond: F64  # of a line: what the task, or whole gang, that started last took beyond its part; 0 if nobody else waited
    owed_since: F64  # of a line: since when it is owed anything
    idled_then: F64  # of a line: what all reservations had idled a day before; the root's: have by now; shares times seconds
    owed: I64  # to it and those below when debts were last counted, if it was not served since: debts times parts; 1e-6 s of all
    put_off: F64  # of a line: no reservation for it before this; 0: not put off
    wasted: F64  # of a line: the most that a reservation idled that ended without a start since it was owed; shares times seconds
    line: I64  # of row k + 1: line k of the list of those that may be owed something; the root's: queues active at the last count
    listed: I64  # the root's: length of that list
    reserved: Annotated[I64, DERIVED]  # of a line: tasks that it has reservations for
    wants: I64  # bits of the resources that each of its waiting jobs needs; of a leaf, what they needed when it waited last
    standing: I64  # when parts were computed, 2: hungry, 1: active, 0: neither; see `kernel/debts.pxi`
    events: I64  # the root's: tasks that started, ended or came since lines were asked
    pending: Annotated[I64, DERIVED]  # of a leaf: groups with jobs
    waits: Annotated[I64, DERIVED]  # the root's: groups with jobs, or that want offers, of all leaves
    who_waits: Annotated[I64, DERIVED]  # the root's: sum of the rows of these groups: of one, the row
    exact: Bools  # the weights among its siblings are exact as part / whole
    weightless: Bools  # weight 0: under YARN's policies it goes after all others
    in_list: Bools  # a line on the list
    strict: Bools  # a leaf whose first pending job nobody passes
    apart: I64  # bit i: reservation i does not rely on what tasks of this leaf free
    spare_tasks: I64  # tasks of revocable jobs
    priority_revokes: Bools
    revocable: Bools  # neither it nor a queue above forbids preemption
    guaranteed: Bools  # it has a guarantee
    guarded: Bools  # it, or a queue above, has a guarantee: it may have claims
    has_nonlendable: Bools  # it, or a queue below, does not lend all of its guarantee (see nonlendable)
    allocations: I64  # number of placements and offers
    refusal: Annotated[I64, DERIVED]  # 1 + row of its framework's first refusal; 0: none
    offer_most: F64  # largest part of the cluster offered to it at once; 0: no limit
    last_until: F64  # of a framework's leaf: it goes after all others, since it held offers without using them
    weight: Annotated[F64, PerResource(1.0)]
    part: Annotated[I64, PerResource(1)]  # the weight as a fraction: part / whole, both below 2**30
    whole: Annotated[I64, PerResource(1)]
    declared: Annotated[I64, PerResource(), DERIVED]  # its guarantee as declared; below it is scaled to what there is
    guarantee: Amounts
    limit: Annotated[I64, PerResource(UNLIMITED)]
    used: Amounts  # what its tasks take; bounded by limit
    mean: Amounts  # what it used before; see the kernel's history
    recent: Amounts  # what it used in the current tick
    even: Amounts  # under sdrf: its part of the whole, by its weight among all its siblings
    spare: Amounts  # part of used, by revocable jobs; does not count against others' limits
    lent: Annotated[I64, PerResource(), DERIVED]  # most of its guarantee, as declared, that others may use
    nonlendable: Amounts  # part of its guarantee that it does not lend
    idle_nonlendable: Amounts  # what others may not use now because it is not lent
    idle_nonlendable_below: Amounts  # sum of idle_nonlendable over the queues below
    never_lent: Annotated[I64, PerResource(), DERIVED]  # what others do not lend to it, even if they use nothing
    due: Floats  # its part when debts were last counted, base units
    needing: Annotated[I64, PerResource(), DERIVED]  # of a leaf: groups that wait and may need it
    # held for its claims; counts as used, except for those claims
    claimed: Annotated[I64, PerResource(), DERIVED]
    offered: Amounts  # part of used: offered and not answered
    # of a framework's leaf: the most of a node that it did not use since it launched, revived or came
    declined: Amounts
    idled_before: Floats  # of a leaf: free resources that its past reservations held, times seconds
    below_since: Floats  # when it last fell below its guarantee

    def divisor(self, row: int) -> F64:
        """Return what a queue's shares are divided by when shown: its weights, or 1 if it has none."""
        return np.ones(self.weight.shape[1]) if self.weightless[row] else np.asarray(self.weight[row])


class Shapes(Table):
    """Distinct demands with their constraints, and which of the nodes with room they prefer."""

    mask: I64  # row of the cluster's masks: nodes that meet the constraints
    prefers: I64  # row of the masks: nodes that go before others; row 0 has all
    fit: I64  # which node with room: FIRST, PACK, SPREAD or APART
    demand: Amounts


class PendingGroups(Table):
    """Waiting jobs of a leaf that the scheduler treats alike."""

    leaf: I64  # row in queues
    priority: I64
    shape_row: I64
    gang: I64  # tasks to start at once; 0: one by one
    head: I64  # row of the first job
    tail: I64  # row of the last job
    started: I64  # jobs in the list that already run
    since: F64  # when it was last empty; pending since
    retry_at: F64  # no preemption for its claims before this: it was tried without success
    retry_from: I64  # first class of claims put off
    revocable: Bools  # its jobs are revocable
    is_framework: Bools  # a framework that wants offers
    number: I64  # of such a framework: takes the place of a job's number


class Jobs(Table):
    """Submitted jobs, and where their tasks are. Columns that a placement reads and writes are adjacent."""

    RESERVES = True

    id: I64
    group: I64  # row; NONE: in none
    after: I64  # next job in the group
    before: I64  # previous job in the group
    waiting: I64
    delayed: I64  # waiting tasks that wait for a time or for another job's task
    holding: I64  # tasks that hold resources
    next: I64  # tasks from this index on were never placed
    first: I64  # row of its first task
    queue: I64
    shape_row: I64
    tasks: I64
    family: I64  # same name, shape and leaf queue; 0: unknown
    home: I64  # group it waits in; NONE for a gang, whose group depends on how many tasks wait
    priority: I64
    retries: I64
    failed: I64
    cancelled: I64
    at_most: I64  # tasks that may hold resources at once; 0: any number. A job at this cap is in no group
    time_limit: F64  # seconds; inf: none
    safe_for: F64  # seconds that its oversized tasks run before they are preempted once more; 0: none ever was
    submitted_at: F64
    finished_at: F64  # NaN: not yet
    gang: Bools
    held: Bools
    irregular: Bools  # its waiting tasks are not exactly those from `next` on
    plain: Bools  # not a gang, waits for nothing but room: kernels handle all effects of its tasks' ends
    exit_done: Bools  # a revoked task that exits 0 is done
    revocable: Bools  # may exceed limits into idle resources, and is revoked before others
    once: Bools  # of a framework: each task starts at most once

    def statuses(self, rows: slice | I64) -> I64:
        """Return the statuses of jobs, as places in JOB_STATUSES of :mod:`fairlead.scheduler.statuses`."""
        over = np.where(self.failed[rows] > 0, 4, np.where(self.cancelled[rows] > 0, 5, 3))
        return np.where(np.isnan(self.finished_at[rows]), np.where(self.holding[rows] > 0, 2, self.held[rows]), over)

    def startable(self, rows: I64 | int) -> I64:
        """Return how many waiting tasks of jobs may start: all that are not delayed, or as many as `at_most` leaves."""
        most, waiting = self.at_most[rows], self.waiting[rows] - self.delayed[rows]
        return np.where(most > 0, np.clip(most - self.holding[rows], 0, waiting), waiting)


class Tasks(Table):
    """The status and attempts of each task."""

    RESERVES = True

    started_at: F64  # NaN before the attempt runs
    finished_at: F64  # NaN before the task has ended
    kept_at: F64  # time of its last checkpoint; 0 or of an earlier attempt: none in this one
    until: F64  # expected end; NaN: not computed
    attempt: I32
    node: I32  # row, of one that holds resources
    code: I32
    job: Annotated[I32, DERIVED]  # row, of one that holds resources
    after: Annotated[I32, DERIVED]  # next task on the node
    before: Annotated[I32, DERIVED]  # previous task on the node
    cpu: F32  # CPU seconds of all its attempts; 0: unknown
    peak: F32  # peak memory of any attempt, bytes; 0: unknown
    cards: Annotated[I64, CardSets()]  # those that its attempt has; empty: none, or not known
    status: I8
    outcome: I8
    losses: I8
    failures: I8
    delayed: Bools  # it waits for a time, or for another job's task
    trusted: Bools  # `until` is its cautious forecast
    oversized: Bools  # it was preempted as oversized: its later attempts run for `safe_for` of the job


class Holds(Table):
    """Resources of a node held for an owner from `start` to `end`; see :mod:`fairlead.scheduler.kernel`."""

    kind: I64  # RESERVATION, or the class of its claim (fairlead.scheduler.preemption.claims)
    node: I64
    group: I64
    job: I64  # number of the job it is for
    tasks: I64  # number of tasks; amount is what they need
    number: I64  # of a reservation: which of its group's; else NONE
    slips: I64  # how often the start passed without success
    after: Annotated[I64, DERIVED]  # next hold on the node
    start: F64  # when its resources are free, by the forecasts
    end: F64  # when they are expected to be given back
    made: F64  # when something was first held
    planned: F64  # when it was last planned
    allowance: F64  # of a reservation paid from savings: what it may idle, shares times seconds; else 0
    counted: F64  # `idled` is counted up to here
    place: I64  # of a reservation: its bit in `apart` of queues; else NONE
    in_order: Bools  # its line has its part: it is for the oldest job, which others passed
    amount: Amounts
    back: Amounts  # what tasks on the node are expected to free until the start
    idle: Amounts  # free resources it keeps from others since `counted`
    idled: Floats  # what it kept idle before, times seconds
    cost: Floats  # what it is expected to have idled by its start, times seconds


class Hours(Table):
    """What idled for reservations by the hour, in turn: see `kernel/budget.pxi`."""

    hour: I64  # since the epoch
    spent: Floats  # within the budget, base units times seconds
    idled: F64  # of all, sums of shares times seconds


class Offers(Table):
    """Resources held for frameworks until they answer, ordered by id: see `kernel/offers`."""

    id: I64
    leaf: I64
    node: I64
    made: F64  # seconds
    cost: F64  # as in Offer
    revocable: Bools  # of a revocable framework
    rest: Amounts  # what is left of it


class Refusals(Table):
    """What frameworks refused, by leaf and node: until then no part of it is offered to them there."""

    leaf: I64
    node: I64
    until: F64
    after: Annotated[I64, DERIVED]  # 1 + row of the leaf's next refusal; 0: none
    beside: Annotated[I64, DERIVED]  # 1 + row of the next of this leaf and node, noted by a search
    refused: Amounts


RESERVATION: Final = 0
GUARANTEE, FAIR_SHARE, PRIORITY, IDLE = 1, 2, 3, 4
"""Kinds of holds: a reservation, and the classes of claims, most urgent first."""
WHY: Final = {GUARANTEE: "guarantee", FAIR_SHARE: "fair share", PRIORITY: "priority", IDLE: "idle"}
"""Names of the classes of claims."""

OF_JOB, OF_FAMILY, OF_QUEUE = range(3)
"""What a histogram is about."""
BINS: Final = 128
"""Bins of a histogram: four per octave from 1/16 s to 8 years, so a bin is at most a quarter as wide as its lower bound."""
SETS, WAYS = 1024, 8
"""Histograms are kept in a set-associative cache: sets, and histograms per set."""


class DurationHistograms(Table):
    """Durations of tasks that ended by themselves: of a job with several tasks, a family of jobs, or a leaf queue.

    Kernels add rows themselves, within the allocated space; `counts[HISTOGRAMS]` is the number of rows.
    """

    key: I64  # the job's number, the family's, or the queue's row
    used: F64  # when a duration was last added; -inf: the job has ended, so it is not read again
    total: I32  # of counts
    beyond: Annotated[I16, DERIVED]  # durations in bins after `p90`
    about: I8  # OF_JOB, OF_FAMILY or OF_QUEUE
    p90: Annotated[I8, DERIVED]  # bin of the 90th percentile; NONE: too few to say
    counts: Annotated[I16, Several(BINS)]  # durations by bin; see bin_of in the kernel

    def __init__(self, moves: list[int]) -> None:
        super().__init__(moves)
        self.places = np.full((SETS, WAYS), NONE, np.int32)  # rows of each set
        self.make_room()

    def make_room(self) -> None:
        """Allocate the maximum number of rows."""
        self.set_rows(longer(self.rows, self.n, SETS * WAYS))


TABLES: Final = {
    "nodes": Nodes,
    "queues": Queues,
    "shapes": Shapes,
    "groups": PendingGroups,
    "jobs": Jobs,
    "tasks": Tasks,
    "holds": Holds,
    "offers": Offers,
    "refusals": Refusals,
    "hours": Hours,
    "histograms": DurationHistograms,
}
