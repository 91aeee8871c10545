"""YARN's applications: the answer of the ResourceManager's `/ws/v1/cluster/apps`, as JSON.

It has no containers, only what an application used over its time. So an application is tasks of one vcore, as many as it had
in the mean from launch to end, each with its part of the memory; their duration makes the vcore-seconds exact. Applications that
have not ended, or used nothing, are left out.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairlead.simulate.traces.rows import CHUNK, Chunk, records
from fairlead.simulate.traces.table import as_queue

NOTE = "yarn: an application is tasks of one vcore, as many as it had in the mean, with its memory divided among them"
_NUMBERS = ("startedTime", "launchTime", "finishedTime", "vcoreSeconds", "memorySeconds")


def yarn_chunks(path: Path) -> Iterator[Chunk]:
    """Read applications as chunks of a table; an application's number stands for its line."""
    apps = records(path, "apps.app")
    for begin in range(0, len(apps), CHUNK):
        yield _table(apps[begin : begin + CHUNK], begin)


def _table(apps: list[dict[str, Any]], begin: int) -> Chunk:
    chunk = Chunk({}, range(begin + 1, begin + 1 + len(apps)))
    numbers = Chunk({name: [str(app.get(name) or 0) for app in apps] for name in _NUMBERS}, chunk.lines, chunk.faults)
    started, launched, finished = (numbers.numbers(name, 0, 1e14) / 1000 for name in _NUMBERS[:3])
    vcores, memory = (numbers.numbers(name, 0, 1e18) for name in _NUMBERS[3:])
    cells: dict[str, list[str]] = {
        name: [] for name in ("duration", "tasks", "cpu", "memory", "user", "name", "queue", "priority")
    }
    for row, app in enumerate(apps):
        seconds = finished[row] - max(launched[row], started[row])
        chunk.left_out[row] = seconds <= 0 or vcores[row] <= 0
        tasks = 1 if chunk.left_out[row] else max(1, round(vcores[row] / seconds))
        cells["tasks"].append(str(tasks))
        cells["duration"].append(repr(float(vcores[row] / tasks)))
        cells["cpu"].append("1")
        cells["memory"].append("" if chunk.left_out[row] else str(round(memory[row] / vcores[row] * 2**20)))
        cells["user"].append(str(app.get("user") or ""))
        cells["name"].append(str(app.get("name") or ""))
        cells["priority"].append(str(app.get("priority") or ""))
        path = str(app.get("queue") or "default").removeprefix("root.").split(".")
        cells["queue"].append("/".join(map(as_queue, path)))
    chunk.left_out[[*chunk.faults]] = False  # a wrong number is not 0
    chunk.cells = {"submit": started, **cells}
    return chunk
