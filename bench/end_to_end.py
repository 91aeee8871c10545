"""End-to-end throughput of fairlead in tasks per second, beside `xargs -P` with the same parallelism.

A real `fairlead up` with its journal on disk, then in memory. Each task is a process in its own group, with output files, limits
and an exit status. xargs has none of that: it is the upper bound of the machine. On ext4 without a journal, an
earlier run slows down this one: it passes by each inode that was deleted in the last minutes.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fairlead.client.connection import Connection
from fairlead.client.service_error import ServiceError

FAIRLEAD = Path(sys.executable).with_name("fairlead")


@contextmanager
def scheduler(
    folder: Path, cpus: int, command: Sequence[str | Path] = (FAIRLEAD,), queues: Sequence[str] = ("A",)
) -> Iterator[Path]:
    """Run a scheduler with queues by this command; yield its data folder."""
    config = folder / "fairlead.json"
    config.write_text(
        json.dumps({"queue": [{"name": name} for name in queues], "node": [{"name": "here", "capacity": {"cpu": cpus}}]})
    )
    home = folder / "home"
    server = subprocess.Popen(
        [*command, "up", "--config", config, "--port", "0"],
        env={**os.environ, "FAIRLEAD_HOME": str(home)},
        stderr=subprocess.PIPE,
    )
    try:
        _connect(home)
        yield home
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


def through_fairlead(tasks: int, at_once: int, where: str | None = None) -> float:
    """Return seconds from the submission of an array of `true` to the end of its last task; data is in the folder `where`."""
    with tempfile.TemporaryDirectory(dir=where) as folder, scheduler(Path(folder), at_once) as home:
        connection = Connection(home)
        began = time.perf_counter()
        job = {"argv": ["true"], "demand": {"cpu": 1}, "queue": "A", "tasks": tasks, "env": {"PATH": os.environ["PATH"]}}
        connection.post("/v1/jobs", job)
        while connection.get("/v1/jobs/1", wait=30)["succeeded"] < tasks:
            pass
        return time.perf_counter() - began


def through_xargs(tasks: int, at_once: int) -> float:
    """Return the seconds that xargs takes for the same."""
    numbers = "\n".join(map(str, range(tasks)))
    began = time.perf_counter()
    subprocess.run(["xargs", "-P", str(at_once), "-n", "1", "true"], input=numbers, text=True, check=True)
    return time.perf_counter() - began


def _connect(home: Path) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            Connection(home).get("/v1/status")
            return
        except ServiceError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


PLACES = (("disk", None), ("memory", "/dev/shm"))
"""Where the data of a scheduler may be."""


def run(tasks: int = 5000, at_once: int = 16, places: Sequence[tuple[str, str | None]] = PLACES) -> None:
    """Print the throughput of both."""
    xargs = tasks / through_xargs(tasks, at_once)
    print(f"end to end {tasks:,} x `true`, {at_once} at a time: {xargs:,.0f} tasks/s through xargs -P {at_once}")
    for name, where in places:
        fairlead = tasks / through_fairlead(tasks, at_once, where)
        print(f"           {fairlead:,.0f} tasks/s through fairlead with its data on {name}: {fairlead / xargs:.0%}")
