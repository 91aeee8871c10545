"""Snapshots: a state as bytes and back, so that recovery need not start from the first fact.

A snapshot consists of pieces, each a msgpack of about 256 KiB, so that neither the database nor memory has to take a
large state at once: what is not in tables, field by field; submitted jobs, some at a time; the tables, column by column, some
rows at a time; and an end marker. Derived data is omitted. Encoding a piece takes about a millisecond.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from copy import copy
from heapq import heapify
from math import inf
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct, field

from fairlead.model.specs import Job, Settings
from fairlead.scheduler import effects, job_caps
from fairlead.scheduler.cluster import Cluster
from fairlead.scheduler.dependencies import Dependencies
from fairlead.scheduler.facts import Revocation
from fairlead.scheduler.framework_index import Frameworks
from fairlead.scheduler.growth import rebuild_row_maps, set_ended
from fairlead.scheduler.job_index import ByNumber
from fairlead.scheduler.kernel import scheduling
from fairlead.scheduler.kernel.view import BEGAN, ENDED, HISTOGRAMS, HOLDS, IDLE_BUDGET, LEAVING, MOMENT, SERVED_AT
from fairlead.scheduler.queue_tree import QueueTree, mark_exact
from fairlead.scheduler.state import ShapeKey, State
from fairlead.scheduler.statuses import RUNNING
from fairlead.scheduler.tables import NONE, TABLES, Table, longer

FORMAT = 4

STORED_TABLES = {"groups": "buckets", "histograms": "sketches"}
STORED_COLUMNS = {
    "group": "bucket", "is_framework": "wants", "nonlendable": "reserve", "has_nonlendable": "lends",
    "idle_nonlendable": "withheld", "idle_nonlendable_below": "withheld_below",
    "retry_at": "put_off", "retry_from": "put_off_from",
}  # fmt: skip
"""Names of tables and columns in snapshots, where they differ."""
FORMER_COLUMNS = {
    "queues": {"promised", "in_line_since", "in_line_at"}, "buckets": {"passed_since"},
    "holds": {"rank", "change", "since", "review", "ran"},
}  # fmt: skip
"""Columns that older versions wrote: they are skipped."""

SAME = ("settings", "resources", "tree", "cluster", "dependencies", "shape_keys", "frameworks", "at")
"""What is stored as it is."""
Room = dict[str, np.ndarray]
"""Memory for copies of tables, by name: rows of bytes."""
ROOM_BYTES = 2**20
"""Bytes of memory that are found at a time."""
PIECE_BYTES = 2**18
"""Bytes of a piece, approximately; a larger job is a piece by itself."""


class _Head(Struct, frozen=True):
    format: int


class JobIndex(Struct, frozen=True, forbid_unknown_fields=True):
    """The number of the last job. `specs` is always empty: submitted jobs follow as pieces."""

    last: int = 0
    specs: dict[int, Job] = {}


class Known(Struct, frozen=True, forbid_unknown_fields=True):
    """All of a :class:`State` but the tables and submitted jobs; the first piece."""

    format: int
    settings: Settings
    resources: list[str]
    tree: QueueTree
    cluster: Cluster
    index: JobIndex
    dependencies: Dependencies
    shape_keys: list[ShapeKey]
    broken_gangs: list[int]
    revocations: dict[int, Revocation]
    ended: list[int]
    rows: dict[str, int]
    began: float
    grain: list[int]
    frameworks: Frameworks = field(default_factory=Frameworks)
    at: float = -inf
    counted: tuple[float, ...] = (-inf, -inf, -inf)
    days: bytes = b"\xc0"  # nil, as msgpack
    calls: dict[int, tuple[int, int]] = {}


class Submitted(Struct, frozen=True, tag="jobs", forbid_unknown_fields=True):
    """Submitted jobs, by number."""

    specs: dict[int, msgspec.Raw]


class Rows(Struct, frozen=True, tag="rows", forbid_unknown_fields=True):
    """Rows of one column of a table, from row `first` on."""

    table: str
    column: str
    dtype: str
    shape: tuple[int, ...]
    first: int
    data: bytes


class End(Struct, frozen=True, tag="end", forbid_unknown_fields=True):
    """The end marker."""


def room_for(state: State) -> Generator[None, None, Room]:
    """Find memory for the copies of large tables, ROOM_BYTES at a time: to find it takes far longer than to copy."""
    room = {}
    for name in TABLES:
        table: Table = getattr(state, name)
        step = max(1, ROOM_BYTES // table.FIELDS.itemsize)
        if table.n > step:
            room[name] = rows = np.empty(table.n + table.n // 4, np.dtype((np.void, table.FIELDS.itemsize)))
            for first in range(0, len(rows), step):
                rows[first : first + step] = b""
                yield
    return room


def dump(state: State, room: Room | None = None) -> Iterator[bytes]:
    """Serialize a state, piece by piece. Once the first is there, the state may change: the others come from copies.

    room : from :func:`room_for` of a state before this one, if it was called
    """
    encode, room = msgspec.msgpack.encode, room or {}
    jobs = state.index.specs.copy()
    tables = {STORED_TABLES.get(name, name): _copied_columns(getattr(state, name), room.get(name)) for name in TABLES}
    yield encode(
        Known(
            format=FORMAT,
            **{name: getattr(state, name) for name in SAME},
            index=JobIndex(last=state.index.last),
            broken_gangs=sorted(state.broken_gangs),
            revocations=dict(sorted(state.revocations.items())),
            calls=dict(sorted(state.calls.items())),
            ended=state.ended_jobs().tolist(),
            rows={STORED_TABLES.get(name, name): getattr(state, name).n for name in TABLES},
            began=float(state.times[BEGAN]),
            counted=tuple(state.times[MOMENT : SERVED_AT + 1].tolist()),
            grain=state.grain.tolist(),
            days=encode(state.days),
        )
    )
    specs, size = {}, 0
    for number, job in jobs.items():
        specs[number] = msgspec.Raw(encode(job))
        size += len(specs[number])
        if size > PIECE_BYTES:
            yield encode(Submitted(specs))
            specs, size = {}, 0
    if specs:
        yield encode(Submitted(specs))
    for name, columns in tables.items():
        yield from map(encode, _pack_table(name, columns))
    yield encode(End())


_PIECES = msgspec.msgpack.Decoder(Submitted | Rows | End)


def load(pieces: Iterable[bytes], read_days: Callable[[bytes], Any] = lambda body: None) -> State:
    """Deserialize what :func:`dump` wrote; `read_days` decodes the use by day, which is left out otherwise.

    Raises
    ------
    msgspec.ValidationError
        For a snapshot of another format, or with an unknown table, column or field.
    msgspec.DecodeError
        The base class; for anything else that is no snapshot.
    """
    pieces, decode = iter(pieces), msgspec.msgpack.decode
    first = next(pieces, b"")
    found = decode(first, type=_Head).format  # first: the rest of another format may not decode
    if found != FORMAT:
        raise msgspec.ValidationError(f"snapshot format {found}, this one reads {FORMAT}")
    known = decode(first, type=Known)
    tables = {STORED_TABLES.get(name, name): name for name in TABLES}
    _refuse_unknown(known.rows, tables, "table")
    state = State()
    for name in (*SAME, "revocations", "calls"):
        setattr(state, name, getattr(known, name))
    state.index.last = known.index.last
    state.broken_gangs = set(known.broken_gangs)
    state.times[BEGAN], state.grain = known.began, np.array(known.grain, np.int64)
    state.days = read_days(known.days)
    for stored, name in tables.items():  # as zeros: the value of columns and tables that older versions did not write
        table: Table = getattr(state, name)
        table.widen(len(known.resources))
        table.extend(max(0, known.rows.get(stored, 0) - table.n))  # a new state has its hours
    state.times[IDLE_BUDGET] = known.settings.idle_budget
    state.times[MOMENT : MOMENT + len(known.counted)] = known.counted  # older versions wrote fewer
    piece: Submitted | Rows | End | None = None
    for body in pieces:
        piece = _PIECES.decode(body)
        if isinstance(piece, Submitted):
            for number, spec in piece.specs.items():
                state.index.specs[number] = decode(spec, type=Job)
        elif isinstance(piece, Rows) and piece.column not in FORMER_COLUMNS.get(piece.table, ()):
            _refuse_unknown([piece.table], tables, "table")
            _unpack(getattr(state, tables[piece.table]), piece)
    if not isinstance(piece, End):
        raise msgspec.DecodeError("it is cut off")
    state.index.rebuild()
    _rebuild_derived(state, known.ended)
    return state


def _rebuild_derived(state: State, ended: list[int]) -> None:
    jobs, counts = state.jobs, state.order.counts
    state.index.renumber(jobs)
    state.cluster.count(state.nodes)
    state.drained = {*np.flatnonzero(state.nodes.drained_cards[: state.nodes.n].any(axis=1)).tolist()}
    counts[ENDED], counts[HOLDS], counts[HISTOGRAMS] = len(ended), state.holds.n, state.histograms.n
    set_ended(state, np.array(ended, np.int64))
    state.histograms.make_room()
    scheduling.find_places(state.view())
    state.dead_tasks = int(jobs.tasks[: jobs.n][jobs.id[: jobs.n] == NONE].sum())
    mark_exact(state.queues)
    rows = state.held_rows()
    counts[LEAVING] = np.count_nonzero(state.tasks.status[rows] > RUNNING)
    state.nodes.hold[:] = NONE
    scheduling.link_holds(state.view())
    scheduling.count_claimed(state.view())
    scheduling.count_pending(state.view())
    state.tree.follow_total(state.queues, state.resources, state.cluster.total, state.cluster.open)
    scheduling.link_refusals(state.view(), state.refusals.n)
    scheduling.link_tasks(state.view(), rows, state.job_rows_of(rows))
    scheduling.find_p90s(state.view())
    until = state.tasks.started_at[rows] + jobs.time_limit[state.job_rows_of(rows)]
    limited = until < inf
    attempts = (column[limited].tolist() for column in state.attempts_of(rows))
    state.deadlines = [*zip(until[limited].tolist(), zip(*attempts, strict=True), strict=True)]
    heapify(state.deadlines)
    rebuild_row_maps(state)
    effects.enter_all(state, job_caps.count_admitted(state), 0.0)  # they wait for admission again


def _refuse_unknown(names: Iterable[str], known: Iterable[str], what: str) -> None:
    for name in names:
        if name not in known:
            raise msgspec.ValidationError(f"unknown {what} `{name}`")


def _columns(table: Table) -> dict[str, str]:
    names = [name for name in (*(table.FIELDS.names or ()), *table.WIDE) if name not in table.FOLLOWS]
    return {STORED_COLUMNS.get(name, name): name for name in names}


def _copied_columns(table: Table, room: np.ndarray | None) -> dict[str, np.ndarray]:
    """Copy the used rows of a table's stored columns, into `room` if they fit."""
    if room is None or len(room) < table.n:
        rows = longer(table.rows, table.n, table.n)
    else:
        room[: table.n] = table.rows[: table.n].view(room.dtype)
        rows = room[: table.n].view(table.FIELDS)
    return {
        stored: getattr(table, name)[: table.n].copy() if name in table.WIDE else rows[name]
        for stored, name in _columns(table).items()
    }


def _pack_table(name: str, columns: dict[str, np.ndarray]) -> Iterator[Rows]:
    for stored, column in columns.items():
        step = max(1, PIECE_BYTES // max(1, column[:1].nbytes))
        for first in range(0, len(column), step):
            part = column[first : first + step]
            yield Rows(name, stored, part.dtype.str, part.shape, first, np.ascontiguousarray(part).tobytes())


def _unpack(table: Table, piece: Rows) -> None:
    columns = _columns(table)
    _refuse_unknown([piece.column], columns, f"column of {piece.table}")
    part = np.frombuffer(piece.data, piece.dtype).reshape(piece.shape)
    column, where = columns[piece.column], slice(piece.first, piece.first + len(part))
    if table.WIDE.get(column, ("", 0))[1] is None:
        table.set_cards(column, where, part.reshape(len(part), -1))  # older versions wrote one word, as a number
    else:
        getattr(table, column)[where] = part


def copy_of(state: State) -> State:
    """Copy a state without its order, which the copy builds on demand; immutable data is shared.

    Takes about 0.2 ms plus 0.02 µs per task.
    """
    found = State()
    for name, value in vars(state).items():
        if name not in (*TABLES, "moves", "order", "days", "ended"):
            setattr(found, name, _copied(value))
    for name in TABLES:
        _copy_rows(getattr(state, name), getattr(found, name))
    found.histograms.make_room()
    found.histograms.places[:] = state.histograms.places
    counted = [ENDED, HOLDS, HISTOGRAMS, LEAVING]
    found.order.counts[counted] = state.order.counts[counted]
    set_ended(found, state.ended[: state.order.counts[ENDED]])
    return found


def _copied(value: Any) -> Any:
    """Copy collections, arrays and structs with all in them that can change; a collection holds things of one kind."""
    if isinstance(value, dict):
        deep = _can_change(next(iter(value.values()), None))
        return {key: _copied(each) for key, each in value.items()} if deep else value.copy()
    if isinstance(value, list):
        return [_copied(each) for each in value] if value and _can_change(value[0]) else value.copy()
    if isinstance(value, ByNumber):
        return value.copy()
    if isinstance(value, Table):
        table = type(value)([0])
        _copy_rows(value, table)
        return table
    found = copy(value) if _can_change(value) else value
    if isinstance(found, Struct) and found is not value:
        for name in (*value.__struct_fields__, *getattr(value, "__dict__", ())):
            setattr(found, name, _copied(getattr(value, name)))
    return found


def _can_change(value: Any) -> bool:
    frozen = isinstance(value, Struct) and value.__struct_config__.frozen
    return isinstance(value, Struct | dict | list | set | np.ndarray) and not frozen


def _copy_rows(table: Table, into: Table) -> None:
    into.set_rows(longer(table.rows, table.n, table.n))
    for name in table.WIDE:
        setattr(into, name, np.ascontiguousarray(getattr(table, name)[: table.n]).copy())
    into.n = table.n
