"""A grid of simulations: policies x loads x cluster sizes x seeds, on all cores or on a Ray cluster.

Each point's numbers are a file in the sweep's folder, named after a digest of all that decides them. A sweep that is started
again computes only what is not there; a killed one loses what it was at.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fairlead.processes import on_all_cores
from fairlead.simulate.machines import on_machines
from fairlead.simulate.measure import summary
from fairlead.simulate.run import simulate
from fairlead.simulate.traces import Derivation, read_trace
from fairlead.simulate.workload import TraceError, cut


@dataclass(frozen=True)
class Point:
    """One simulation: all that decides its numbers.

    trace, kind : the file, and what kind of trace it is
    nodes, node : how many alike machines, and of what; 0: those of the trace, or of `config`
    config : a fairlead.toml with machines and the queue tree; empty for none
    revoke : whether tasks are revoked for guarantees and fair shares
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
    revoke: bool = True

    @property
    def name(self) -> str:
        """A file's name: the same for the same point, the same trace and the same configuration."""
        there = Path(self.trace)
        files = [
            *(sorted(there.iterdir()) if there.is_dir() else [there]),
            *([Path(self.config)] if self.config else []),
        ]
        stamp = [[str(p), p.stat().st_size, p.stat().st_mtime_ns] for p in files]
        digest = hashlib.sha256(json.dumps([asdict(self), stamp], sort_keys=True).encode()).hexdigest()[:20]
        return f"{digest}.json"


def run_point(point: Point) -> dict[str, Any]:
    """Run one simulation; its numbers, and the point that they are of."""
    workload = read_trace(
        Path(point.trace), point.kind or None, skip_bad=point.skip_bad, derivation=Derivation(seed=point.seed)
    )
    workload = cut(workload, point.start, point.end, point.speed, point.scale, point.seed)
    workload = on_machines(workload, point.nodes, point.node, Path(point.config) if point.config else None)
    found = summary(simulate(workload, point.policy, revoke=point.revoke))
    del found["seconds"]  # the same point gives the same file
    return {"point": asdict(point), "numbers": found}


def sweep(
    points: list[Point],
    folder: Path,
    engine: str = "local",
    told: Callable[[int, int], None] = lambda done, of: None,
    workers: int | None = None,
) -> list[dict[str, Any]]:
    """Run all the points that are not in the folder yet.

    Parameters
    ----------
    points : list of Point
    folder : Path
    engine : {"local", "ray"}
        Where: on this machine's cores, or on the Ray cluster of `RAY_ADDRESS`, whose nodes must see the trace under the same
        path.
    told : function
        Called with how many points are done, of how many.
    workers : int, optional
        Processes on this machine.

    Returns
    -------
    list of dict
        In the order of the points: what :func:`run_point` returns.

    Raises
    ------
    TraceError
        The folder cannot be written, or a trace cannot be read; there is no such engine, or Ray is not installed.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / point.name for point in points]
    except OSError as error:
        raise TraceError(f"{error.filename}: {error.strerror}") from None
    missing = [(point, file) for point, file in zip(points, files, strict=True) if not file.exists()]
    done = len(points) - len(missing)
    told(done, len(points))
    if engine not in ENGINES:
        raise TraceError(f"there is no engine {engine!r} for a sweep: use {' or '.join(ENGINES)}")
    for file, found in ENGINES[engine](missing, workers):
        part = file.with_suffix(".part")
        part.write_text(json.dumps(found, sort_keys=True, indent=1))
        part.replace(file)
        done += 1
        told(done, len(points))
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
        raise TraceError("there is no Ray cluster: start one with `ray start --head`, or set RAY_ADDRESS") from None
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
