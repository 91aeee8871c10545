"""Cost of installing and starting from nothing: `make bench-start`.

HEAD is cloned into a temporary folder with empty caches. CPU seconds include all child processes; for a scheduler they are those
of its session when it is ready. Needs only Python, make, git and PyPI.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).parent.parent
DEMO_AT_MOST = 120  # CPU seconds
ANSWER_AT_MOST = 2  # seconds


class Cost(NamedTuple):
    """CPU and wall-clock seconds."""

    cpu: float
    wall: float

    def __add__(self, other: object) -> "Cost":
        assert isinstance(other, Cost)
        return Cost(self.cpu + other.cpu, self.wall + other.wall)


def line(what: str, cost: Cost, more: str = "") -> str:
    """Return a line of the table."""
    return f"{what:<44}{cost.cpu:>8.2f}{cost.wall:>8.2f}  {more}".rstrip()


def environment(folder: Path, outside: dict[str, str]) -> dict[str, str]:
    """Return an environment for commands without caches, another Python, or the calling make."""
    kept = {
        name: value
        for name, value in outside.items()
        if not name.endswith("_CACHE_DIR") and not name.startswith(("FAIRLEAD_", "MAKE", "MFLAGS", "PYTHON", "VIRTUAL_ENV"))
    }
    return {**kept, "XDG_CACHE_HOME": str(folder / "cache"), "FAIRLEAD_HOME": str(folder / "home")}


def cost_of(argv: list[str], folder: Path, env: dict[str, str]) -> Cost:
    """Run a command and return its cost; show its output only if it fails."""
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as printed:
        process = subprocess.Popen(argv, cwd=folder, env=env, stdout=printed, stderr=printed)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            printed.seek(0)
            raise SystemExit(f"{' '.join(argv)}: exit status {process.returncode}\n{printed.read()}")
    return Cost(used.ru_utime + used.ru_stime, time.monotonic() - began)


def of_session(session: int) -> Iterator[tuple[Path, list[str]]]:
    """Yield the processes of a session: their folders in /proc, and the fields of their `stat` from the third on."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # ended
            continue
        if int(fields[3]) == session:
            yield folder, fields


def cpu_seconds(session: int) -> float:
    """Return the CPU seconds of a session's processes and their reaped children."""
    ticks = sum(int(ticks) for _, fields in of_session(session) for ticks in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory(session: int) -> tuple[int, int]:
    """Return RSS and PSS of a session's processes, in bytes."""
    found = {"Rss:": 0, "Pss:": 0}
    for folder, _ in of_session(session):
        for row in (folder / "smaps_rollup").read_text().splitlines():
            name, *rest = row.split()
            if name in found:
                found[name] += int(rest[0]) << 10
    return found["Rss:"], found["Pss:"]


@contextmanager
def scheduler(fairlead: Path, folder: Path, env: dict[str, str]) -> Iterator[tuple[int, Cost]]:
    """Run a scheduler until it is ready; yield its session, and its cost until then."""
    began = time.monotonic()
    process = subprocess.Popen([fairlead, "up"], cwd=folder, env=env, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stderr
        said = []
        for row in process.stderr:
            said.append(row)
            if row.startswith("fairlead: ready"):
                break
        else:
            raise SystemExit(f"{fairlead} up ended\n{''.join(said)}")
        wall = time.monotonic() - began
        yield process.pid, Cost(cpu_seconds(process.pid), wall)
    finally:
        process.terminate()
        process.communicate()


def median_of(argv: list[str], folder: Path, env: dict[str, str], times: int = 5) -> Cost:
    """Return the median cost of several runs of a command."""
    costs = [cost_of(argv, folder, env) for _ in range(times)]
    return Cost(statistics.median(cost.cpu for cost in costs), statistics.median(cost.wall for cost in costs))


def from_checkout(clone: Path, env: dict[str, str]) -> None:
    """Print the cost of `make demo` by its parts, and of commands after it."""
    make = ["make", f"PYTHON={sys.executable}"]
    uv, fairlead = str(clone / ".venv/bin/uv"), clone / ".venv/bin/fairlead"
    fetch = [uv, "sync", "--quiet", "--frozen", "--inexact", "--compile-bytecode", "--no-dev", "--no-install-project"]
    parts = {
        "a virtual environment, and uv": [*make, ".venv/bin/uv"],
        "dependencies: fetched, and made bytecode": [*fetch, "--python", ".venv/bin/python"],
        "kernels: what builds them fetched, compiled": [*make, ".venv/kernels"],
    }
    total = Cost(0, 0)
    for what, argv in parts.items():
        cost = cost_of(argv, clone, env)
        total += cost
        print(line(what, cost), flush=True)
    with scheduler(fairlead, clone, env) as (_, cost):
        print(line("the first `up`, until it is ready", cost), flush=True)
    with scheduler(fairlead, clone, env) as (session, cost):
        print(line("the second", cost), flush=True)
        for words in (["--help"], ["submit", "--", "true"], ["jobs"]):
            shown = "`fairlead " + " ".join(words) + "`, median of 5"
            print(line(shown, median_of([str(fairlead), *words], clone, env)), flush=True)
        time.sleep(2)
        processes = len(list(of_session(session)))
        rss, pss = memory(session)
        print(f"a scheduler at rest: {rss >> 20} MiB RSS, {pss >> 20} MiB PSS, in {processes} processes")
    cost = cost_of([*make, "demo"], clone, env)
    print(line("the demo", cost))
    total += cost
    print(line("`make demo` from nothing", total, f"goal: {DEMO_AT_MOST} of CPU"), flush=True)


def from_wheel(clone: Path, folder: Path, env: dict[str, str]) -> None:
    """Print the cost of a wheel: its build, its installation into a new environment, and its first answer."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    shutil.rmtree(clone / "build")  # the wheel must compile on its own
    build = [str(clone / ".venv/bin/uv"), "build", "--quiet", "--wheel", "--python", sys.executable, "--out-dir", str(folder)]
    print(line("a wheel built", cost_of(build, clone, env)), flush=True)
    (wheel,) = folder.glob("*.whl")
    cost = cost_of([sys.executable, "-m", "venv", "installed"], folder, env)
    python = str(folder / "installed/bin/python")
    cost += cost_of([python, "-m", "pip", "install", "--quiet", str(wheel)], elsewhere, env)
    print(line("installed, with its dependencies, by pip", cost, f"{wheel.name}, {wheel.stat().st_size >> 10} KiB"), flush=True)
    fairlead = folder / "installed/bin/fairlead"
    env = {**env, "FAIRLEAD_HOME": str(folder / "home-of-wheel")}
    with scheduler(fairlead, elsewhere, env) as (_, cost):
        print(line("its first `up`, until it is ready", cost))
        answered = cost + cost_of([str(fairlead), "jobs"], elsewhere, env)
        print(line("until its first answer, to `fairlead jobs`", answered, f"goal: {ANSWER_AT_MOST} on the clock"))


def run() -> None:
    """Print the cost of each phase, from a fresh clone on."""
    with tempfile.TemporaryDirectory(prefix="fairlead-start-") as name:
        folder = Path(name)
        env = environment(folder, dict(os.environ))
        clone = folder / "fairlead"
        print(f"## From nothing, by Python {sys.version.split()[0]}, on {os.cpu_count()} CPUs")
        print(f"{'':<44}{'CPU s':>8}{'s':>8}")
        print(line("git clone", cost_of(["git", "clone", "-q", str(REPOSITORY), str(clone)], folder, env)), flush=True)
        from_checkout(clone, env)
        from_wheel(clone, folder, env)


if __name__ == "__main__":
    run()
