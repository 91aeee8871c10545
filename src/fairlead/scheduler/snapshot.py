"""A state as bytes and back, so that recovery need not start from the first fact.

The tables are written as they lie in memory, column by column with their names; the parts as msgpack, field by field. Whatever
follows from those is not written.
"""

import msgspec
import numpy as np
from msgspec import Struct

from fairlead.model.specs import Settings
from fairlead.scheduler.cluster import Cluster
from fairlead.scheduler.dependencies import Dependencies
from fairlead.scheduler.job_index import JobIndex
from fairlead.scheduler.queue_tree import QueueTree
from fairlead.scheduler.state import ShapeKey, State
from fairlead.scheduler.tables import TABLES, Table
from fairlead.scheduler.view import BEGAN

FORMAT = 2


class Column(Struct, frozen=True, array_like=True):
    dtype: str
    shape: tuple[int, ...]
    data: bytes


class _Head(Struct, frozen=True):
    format: int


class Snapshot(Struct, frozen=True, forbid_unknown_fields=True):
    """All that a :class:`State` holds."""

    format: int
    settings: Settings
    resources: list[str]
    tree: QueueTree
    cluster: Cluster
    index: JobIndex
    dependencies: Dependencies
    shape_keys: list[ShapeKey]
    broken_gangs: list[int]
    ended: list[int]
    tables: dict[str, dict[str, Column]]
    began: float
    grain: list[int]


def dump(state: State) -> bytes:
    """Write the whole state."""
    return msgspec.msgpack.encode(
        Snapshot(
            format=FORMAT,
            settings=state.settings,
            resources=state.resources,
            tree=state.tree,
            cluster=state.cluster,
            index=state.index,
            dependencies=state.dependencies,
            shape_keys=state.shape_keys,
            broken_gangs=sorted(state.broken_gangs),
            ended=state.ended_jobs().tolist(),
            tables={name: _pack_table(getattr(state, name)) for name in TABLES},
            began=float(state.times[BEGAN]),
            grain=state.grain.tolist(),
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
    _refuse_unknown(saved)
    state = State()
    state.settings, state.resources = saved.settings, saved.resources
    state.tree, state.cluster, state.index, state.dependencies = (
        saved.tree,
        saved.cluster,
        saved.index,
        saved.dependencies,
    )
    state.shape_keys, state.broken_gangs = saved.shape_keys, set(saved.broken_gangs)
    for name in TABLES:
        _unpack_table(getattr(state, name), saved.tables[name])
    state.times[BEGAN], state.grain = saved.began, np.array(saved.grain, np.int64)
    state.restore(saved.ended)
    return state


def _refuse_unknown(saved: Snapshot) -> None:
    for name, columns in saved.tables.items():
        known = [*(TABLES[name].FIELDS.names or ()), *TABLES[name].WIDE] if name in TABLES else ()
        for column in columns:
            if column not in known:
                raise msgspec.ValidationError(f"unknown column `{column}` of {name}")


def _pack(array: np.ndarray) -> Column:
    return Column(array.dtype.str, array.shape, np.ascontiguousarray(array).tobytes())


def _unpack(column: Column) -> np.ndarray:
    return np.frombuffer(column.data, column.dtype).reshape(column.shape)


def _pack_table(table: Table) -> dict[str, Column]:
    names = [*(table.FIELDS.names or ()), *table.WIDE]
    return {name: _pack(getattr(table, name)[: table.n]) for name in names}


def _unpack_table(table: Table, columns: dict[str, Column]) -> None:
    """Set a table; a column that an older version did not have is zeros."""
    n = next(iter(columns.values())).shape[0]
    rows = np.zeros(n, table.FIELDS)
    for name in table.FIELDS.names or ():
        if name in columns:
            rows[name] = _unpack(columns[name])
    table.set_rows(rows)
    for name in table.WIDE:
        setattr(table, name, _unpack(columns[name]).copy())
    table.n = n
