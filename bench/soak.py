"""Run an hour of mixed load and plot resource usage: python -m bench.soak SECONDS.

300 tasks per second are submitted, in jobs of 1, 10 and 50. Some jobs are cancelled, jobs are listed, and after every tenth of
the time the scheduler is killed and restarted while tasks run on. soak.html plots the measures over time. Each should be flat
once the journal has reached its size.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import psutil

from bench.end_to_end import FAIRLEAD
from fairlead.charts import Axis, Chart, Series, span
from fairlead.client.connection import Connection
from fairlead.client.service_error import ServiceError
from fairlead.html_page import framed

TASKS_A_SECOND = 300
SAMPLES = 200
RESTARTS = 10
MEASURES = {
    "memory": "MiB, scheduler and supervisor",
    "descriptors": "open, scheduler and supervisor",
    "cgroups": "folders",
    "journal": "MiB on the disk, with its log",
    "jobs": "ms until a list of jobs is answered",
    "restart": "s from a kill to an answer",
    "tasks": "ended a second",
}


class Soak:
    """A scheduler under load; `found` has (seconds, value) pairs by measure."""

    def __init__(self, folder: Path) -> None:
        self.home, self.config = folder / "home", folder / "fairlead.json"
        queues = [{"name": name} for name in "ABC"]
        told = {"queue": queues, "node": [{"name": "here", "capacity": {"cpu": 64}}], "scheduler": {"keep_jobs": 2000}}
        self.config.write_text(json.dumps(told))
        self.found: dict[str, list[tuple[float, float]]] = {name: [] for name in MEASURES}
        self.over, self.began = threading.Event(), time.monotonic()
        self.ended, self.ended_at = 0.0, self.began
        self.server = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        env = {**os.environ, "FAIRLEAD_HOME": str(self.home)}
        server = subprocess.Popen([FAIRLEAD, "up", "--config", self.config], env=env, stderr=subprocess.DEVNULL)
        while True:
            try:
                with Connection(self.home, retry_seconds=0) as connection:
                    connection.get("/v1/status")
                return server
            except ServiceError:
                if server.poll() is not None:
                    raise
                time.sleep(0.02)

    def restart(self) -> None:
        """Kill and restart the scheduler."""
        began = time.monotonic()
        self.server.kill()
        self.server.wait()
        self.server = self._start()
        self.note("restart", time.monotonic() - began)
        self.ended = 0.0

    def note(self, measure: str, value: float) -> None:
        self.found[measure].append((time.monotonic() - self.began, value))

    def submit(self) -> None:
        """Submit tasks at a steady rate; cancel a job now and then."""
        rng, submitted = Random(1), 0
        began = time.monotonic()
        with Connection(self.home) as connection:
            while not self.over.is_set():
                behind = (time.monotonic() - began) * TASKS_A_SECOND - submitted
                if behind < 100:
                    time.sleep(0.05)
                    continue
                sizes = [1] * 20 + [10] * 3 + [50]
                jobs = [
                    {"argv": ["true"], "demand": {"cpu": 1}, "queue": rng.choice("ABC"), "tasks": n, "env": {}, "cwd": "/"}
                    for n in sizes
                ]
                try:
                    numbers = [job["id"] for job in connection.submit("/v1/bulk", {"jobs": jobs})["jobs"]]
                    connection.post(f"/v1/jobs/{rng.choice(numbers)}/cancel", {})
                except ServiceError:  # restarting
                    time.sleep(0.1)
                submitted += sum(sizes)

    def measure(self) -> None:
        """Take all measures once."""
        supervisor = str(self.home / "supervisor")
        found = (each for each in psutil.process_iter(["cmdline"]) if supervisor in (each.info["cmdline"] or []))
        oldest = sorted(found, key=lambda each: each.pid)[:1]  # the others are tasks before exec
        ours = [psutil.Process(self.server.pid), *oldest]
        self.note("memory", sum(each.memory_info().rss for each in ours) / 2**20)
        self.note("descriptors", sum(each.num_fds() for each in ours))
        base = "/fairlead-" + hashlib.sha256(str((self.home / "supervisor").resolve()).encode()).hexdigest()[:12]
        self.note("cgroups", sum(len(below) for path, below, _ in os.walk("/sys/fs/cgroup") if path.endswith(base)))
        self.note("journal", sum(path.stat().st_size for path in self.home.glob("journal.db*")) / 2**20)
        with Connection(self.home) as connection:
            began = time.monotonic()
            connection.get("/v1/jobs", limit=100)
            self.note("jobs", 1000 * (time.monotonic() - began))
            ended = sum(_values(connection.get_bytes("/metrics").decode(), "fairlead_attempts_ended_total"))
        now = time.monotonic()
        if self.ended:
            self.note("tasks", (ended - self.ended) / (now - self.ended_at))
        self.ended, self.ended_at = ended, now

    def run(self, seconds: float) -> None:
        """Run the load for `seconds`."""
        people = threading.Thread(target=self.submit)
        people.start()
        try:
            restart_at = seconds / RESTARTS
            while (now := time.monotonic() - self.began) < seconds:
                if now > restart_at:
                    restart_at += seconds / RESTARTS
                    self.restart()
                self.measure()
                time.sleep(seconds / SAMPLES)
        finally:
            self.over.set()
            people.join()
            with Connection(self.home) as connection:
                connection.post("/v1/down", {"now": True})
            self.server.wait(timeout=120)


def _values(text: str, name: str) -> list[float]:
    return [float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name)]


def picture(found: dict[str, list[tuple[float, float]]]) -> str:
    """Return a page with a plot over time for each measure."""
    charts = [
        Chart(f"{name}: {MEASURES[name]}", [Series(name, *zip(*points, strict=True))], Axis(form=span), Axis(), plot=150)
        for name, points in found.items()
        if points
    ]
    return framed("An hour of load", [chart.figure() for chart in charts])


def summary(found: dict[str, list[tuple[float, float]]], measure: Callable[[list[float]], float]) -> str:
    """Return a line per measure: the first and the last third, each as one number."""
    lines = []
    for name, points in found.items():
        values = [value for _, value in points]
        third = max(1, len(values) // 3)
        lines.append(
            f"soak       {name:<12} {measure(values[:third]):>10.1f} {measure(values[-third:]):>10.1f}   {MEASURES[name]}"
        )
    return "\n".join(lines)


def run(seconds: float = 3600.0) -> None:
    """Print the medians of the first and the last third, and plot all measures."""
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder))
        soak.run(seconds)
    print(summary(soak.found, lambda values: sorted(values)[len(values) // 2]))
    Path("soak.html").write_text(picture(soak.found))


if __name__ == "__main__":
    run(float(sys.argv[1]) if len(sys.argv) > 1 else 3600.0)
