"""Run a grid of simulations, policies x loads x cluster sizes x seeds, on all cores or on a Ray cluster.

Each point's results are a file in the sweep's folder, named by a digest of its inputs. A restarted sweep computes only the
missing points.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fairlead.processes import on_all_cores
from fairlead.simulate.configured import configured
from fairlead.simulate.measure import summary
from fairlead.simulate.run import simulate
from fairlead.simulate.traces import Derivation, kind_of, read_trace
from fairlead.simulate.workload import TraceError, Workload, cut


@dataclass(frozen=True)
class Point:
    """The inputs of one simulation.

    trace, kind : path of the trace, and its format
    nodes, node : number and capacity of identical machines; 0: those of the trace, or of `config`
    config : path of a fairlead.toml; empty for none
    changes : assignments to keys of the configuration
    columns : where the columns of a table come from, as `--columns` names it
    """

    trace: str
    kind: str
    policy: str
    scale: float
    speed: float
    start: float
    end: float
    nodes: int
    node: str
    seed: int
    skip_bad: bool = False
    config: str = ""
    changes: tuple[str, ...] = ()
    columns: str = ""

    @property
    def name(self) -> str:
        """File name: a digest of the point, and of the size and mtime of trace and configuration."""
        there = Path(self.trace)
        files = [
            *(sorted(there.iterdir()) if there.is_dir() else [there]),
            *(Path(name) for name in (self.config, self.columns) if name and Path(name).exists()),
        ]
        stamp = [[str(p), p.stat().st_size, p.stat().st_mtime_ns] for p in files]
        digest = hashlib.sha256(json.dumps([asdict(self), stamp], sort_keys=True).encode()).hexdigest()[:20]
        return f"{digest}.json"


def run_point(point: Point) -> dict[str, Any]:
    """Run one simulation; return the point and its numbers."""
    trace = Path(point.trace)
    seed = (
        point.seed if not point.columns and (point.kind or kind_of(trace)) == "swim" else 0
    )  # what is drawn when it is read
    workload = _read(trace, point.kind, point.skip_bad, seed, point.columns)
    workload = cut(workload, point.start, point.end, point.speed, point.scale, point.seed)
    config = Path(point.config) if point.config else None
    workload = configured(workload, point.nodes, point.node, config, point.changes)
    found = summary(simulate(workload, point.policy))
    del found["seconds"]  # the same point gives the same file
    return {"point": asdict(point), "numbers": found}


@lru_cache(maxsize=1)
def _read(trace: Path, kind: str, skip_bad: bool, seed: int, columns: str) -> Workload:
    """Read a trace; each process of a sweep does once."""
    file = Path(columns) if columns else None
    return read_trace(trace, kind or None, skip_bad=skip_bad, derivation=Derivation(seed=seed), columns=file)


def sweep(
    points: list[Point],
    folder: Path,
    engine: str = "local",
    progress: Callable[[int, int], None] = lambda done, of: None,
    workers: int | None = None,
) -> list[dict[str, Any]]:
    """Run the points that are not in the folder yet.

    Parameters
    ----------
    points : list of Point
    folder : Path
    engine : {"local", "ray"}
        This machine's cores, or the Ray cluster at `RAY_ADDRESS`, whose nodes must see the trace under the same path.
    progress : function
        Called with the number of points done, and of all points.
    workers : int, optional
        Processes on this machine.

    Returns
    -------
    list of dict
        Results of :func:`run_point`, in the order of the points.

    Raises
    ------
    TraceError
        The folder cannot be written, a trace cannot be read, the engine is unknown, or Ray is not installed.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / point.name for point in points]
    except OSError as error:
        raise TraceError(f"{error.filename}: {error.strerror}") from None
    missing = [(point, file) for point, file in zip(points, files, strict=True) if not file.exists()]
    done = len(points) - len(missing)
    progress(done, len(points))
    if engine not in ENGINES:
        raise TraceError(f"unknown engine {engine!r} for a sweep: use {' or '.join(ENGINES)}")
    for file, found in ENGINES[engine](missing, workers):
        part = file.with_suffix(".part")
        part.write_text(json.dumps(found, sort_keys=True, indent=1))
        part.replace(file)
        done += 1
        progress(done, len(points))
    return [json.loads(file.read_text()) for file in files]


def _on_this_machine(missing: list[tuple[Point, Path]], workers: int | None) -> Iterator[tuple[Path, dict[str, Any]]]:
    for place, found in on_all_cores(run_point, [(point,) for point, _ in missing], workers):
        yield missing[place][1], found


def _on_ray(missing: list[tuple[Point, Path]], _workers: int | None) -> Iterator[tuple[Path, dict[str, Any]]]:
    if not missing:
        return
    try:
        import ray
    except ImportError:
        raise TraceError("--engine ray needs Ray: pip install 'fairlead[ray]'") from None
    try:
        ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), ignore_reinit_error=True, log_to_driver=False)
    except ConnectionError:
        raise TraceError("no Ray cluster found: start one with `ray start --head`, or set RAY_ADDRESS") from None
    remote = ray.remote(run_point)
    running = {remote.remote(point): file for point, file in missing}
    try:
        while running:
            (first, *_), _ = ray.wait(list(running))
            try:
                found = ray.get(first)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            yield running.pop(first), found
    finally:
        for reference in running:
            ray.cancel(reference)


ENGINES = {"local": _on_this_machine, "ray": _on_ray}
