"""A state as bytes and back, so that recovery need not start from the first fact.

The tables are written as they lie in memory, column by column with their names; the rest as msgpack.
"""

import msgspec
import numpy as np
from msgspec import Struct

from fairlead.model.specs import Job, Node, Queue, Settings, inner_names
from fairlead.scheduler.state import BucketKey, Reservation, ShapeKey, State
from fairlead.scheduler.tables import NONE, Table

FORMAT = 1

TABLES = ("nodes", "queues", "shapes", "buckets", "jobs", "tasks")


class Column(Struct, frozen=True, array_like=True):
    dtype: str
    shape: tuple[int, ...]
    data: bytes


class _Head(Struct, frozen=True):
    format: int


class Snapshot(Struct, frozen=True, forbid_unknown_fields=True):
    """All that a :class:`State` holds."""

    format: int
    resources: list[str]
    settings: Settings
    declared: list[Queue]
    node_specs: list[Node]
    queue_names: list[str]
    specs: dict[int, Job]
    reservations: list[tuple[int, int, list[int], list[int]]]
    broken_gangs: list[int]
    finished_jobs: list[int]
    waits_for: dict[int, list[int]]
    doomed: list[int]
    has_time_limits: bool
    last_job: int
    first_row: int
    row_of_job: Column
    shape_rows: list[tuple[ShapeKey, int]]
    bucket_rows: list[tuple[BucketKey, int]]
    mask_rows: list[tuple[tuple[tuple[str, tuple[str, ...]], ...], int]]
    masks: Column
    dead_tasks: int
    tables: dict[str, dict[str, Column]]
    removed: dict[str, Queue] = {}


def dump(state: State) -> bytes:
    """Write the whole state."""
    return msgspec.msgpack.encode(
        Snapshot(
            format=FORMAT,
            resources=state.resources,
            settings=state.settings,
            declared=list(state.declared.values()),
            removed=state.removed,
            node_specs=state.node_specs,
            queue_names=state.queue_names,
            specs=state.specs,
            reservations=[(r.job, r.bucket, r.nodes, r.tasks) for r in state.reservations.values()],
            broken_gangs=sorted(state.broken_gangs),
            finished_jobs=list(state.finished_jobs),
            waits_for={job: sorted(others) for job, others in sorted(state.waits_for.items())},
            doomed=sorted(state.doomed),
            has_time_limits=state.has_time_limits,
            last_job=state.last_job,
            first_row=state._first_row,
            row_of_job=_pack(state._row_of_job),
            shape_rows=list(state._shape_rows.items()),
            bucket_rows=list(state._bucket_rows.items()),
            mask_rows=list(state._mask_rows.items()),
            masks=_pack(state.masks),
            dead_tasks=state._dead_tasks,
            tables={name: _pack_table(getattr(state, name)) for name in TABLES},
        )
    )


def load(body: bytes) -> State:
    """Read what :func:`dump` wrote.

    Raises
    ------
    msgspec.ValidationError
        For a snapshot of another format, or with what is not known here.
    msgspec.DecodeError
        For anything else that is not one, of which that is one.
    """
    found = msgspec.msgpack.decode(body, type=_Head).format  # first: another format may fit into nothing
    if found != FORMAT:
        raise msgspec.ValidationError(f"snapshot format {found}, this one reads {FORMAT}")
    saved = msgspec.msgpack.decode(body, type=Snapshot)
    state = State()
    _refuse_unknown(saved, state)
    state.resources = saved.resources
    state.settings = saved.settings
    state.declared = {queue.name: queue for queue in saved.declared}
    state.removed = saved.removed
    state.inner = inner_names(state.declared)
    state.node_specs = saved.node_specs
    state.node_rows = {node.name: row for row, node in enumerate(saved.node_specs)}
    state.queue_names = saved.queue_names
    state.queue_rows = {name: row for row, name in enumerate(saved.queue_names)}
    state.specs = saved.specs
    state.keys = {job.key: number for number, job in saved.specs.items() if job.key}
    state.reservations = {bucket: Reservation(job, bucket, n, t) for job, bucket, n, t in saved.reservations}
    state.broken_gangs = set(saved.broken_gangs)
    state.waits_for = {job: set(others) for job, others in saved.waits_for.items()}
    state.doomed = set(saved.doomed)
    state.has_time_limits = saved.has_time_limits
    state.finished_jobs = dict.fromkeys(saved.finished_jobs)
    state.last_job = saved.last_job
    state._first_row = saved.first_row
    state._row_of_job = _unpack(saved.row_of_job)
    state._shape_rows = dict(saved.shape_rows)
    state._bucket_rows = dict(saved.bucket_rows)
    state._mask_rows = dict(saved.mask_rows)
    state.masks = _unpack(saved.masks)
    state._dead_tasks = saved.dead_tasks
    for name in TABLES:
        table: Table = getattr(state, name)
        for column, packed in saved.tables[name].items():
            setattr(table, column, _unpack(packed))
            table.n = packed.shape[0]
        for column in set(table.columns()) - set(saved.tables[name]):  # of an older version, which did not have it
            setattr(table, column, np.zeros(table.n, getattr(table, column).dtype))
    for job, others in sorted(state.waits_for.items()):
        for other in sorted(others):
            if job not in state.doomed or np.isnan(state.jobs.finished_at[state.job_row(other)]):
                state.followers.setdefault(other, []).append(job)
    state._inner_rows = set(state.queues.parent[: state.queues.n].tolist()) - {NONE}
    state._count_total()
    return state


def _refuse_unknown(saved: Snapshot, state: State) -> None:
    for name, columns in saved.tables.items():
        known = getattr(state, name).columns() if name in TABLES else ()
        for column in columns:
            if column not in known:
                raise msgspec.ValidationError(f"unknown column `{column}` of {name}")


def _pack(array: np.ndarray) -> Column:
    return Column(array.dtype.str, array.shape, np.ascontiguousarray(array).tobytes())


def _unpack(column: Column) -> np.ndarray:
    return np.frombuffer(column.data, column.dtype).reshape(column.shape).copy()


def _pack_table(table: Table) -> dict[str, Column]:
    return {name: _pack(getattr(table, name)[: table.n]) for name in table.columns()}
