"""YARN's applications: the answer of the ResourceManager's `/ws/v1/cluster/apps`, as JSON.

It has no containers, only what an application used over its time. So an application is tasks of one vcore, as many as it had
in the mean from launch to end, each with its part of the memory; their duration makes the vcore-seconds exact. Applications that
have not ended, or used nothing, are left out.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

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
    seconds = finished - np.maximum(launched, started)
    chunk.left_out = (seconds <= 0) | (vcores <= 0)
    tasks = np.where(chunk.left_out, 1, np.maximum(1, np.rint(vcores / np.where(seconds > 0, seconds, 1))))
    mib = np.where(chunk.left_out, 0, memory / np.where(vcores > 0, vcores, 1))
    queues = [str(app.get("queue") or "default").removeprefix("root.").split(".") for app in apps]
    chunk.cells = {
        "submit": started, "duration": vcores / tasks, "tasks": tasks, "cpu": ["1"] * len(apps),
        "memory": [str(round(each * 2**20)) for each in mib.tolist()],
        "queue": ["/".join(map(as_queue, path)) for path in queues],
        **{name: [str(app.get(name) or "") for app in apps] for name in ("user", "name", "priority")},
    }  # fmt: skip
    chunk.left_out[[*chunk.faults]] = False  # a wrong number is not 0
    return chunk
