"""Run a grid of simulations, policies x configurations x loads x cluster sizes x seeds, on all cores or on a Ray cluster.

Each point's results are a file in the sweep's folder, named by a digest of its inputs. A restarted sweep computes only the
missing points. Each trace is read once, and passed to the processes.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from fairlead.simulate.configured import configured
from fairlead.simulate.measure import over_seeds, summary
from fairlead.simulate.offers import parse_answers
from fairlead.simulate.run import simulate
from fairlead.simulate.traces import Derivation, kind_of, read_trace
from fairlead.simulate.workload import TraceError, Workload, cut

FORMAT = 2
"""Version of the results; those of another one are computed again."""


class Source(NamedTuple):
    """What a workload is read from; `seed` is 0 where it draws nothing."""

    trace: str
    kind: str
    skip_bad: bool
    seed: int
    columns: str = ""

    @property
    def is_derived(self) -> bool:
        """True if tasks and users are drawn when it is read, so that each seed gives another workload."""
        return not self.columns and (self.kind or kind_of(Path(self.trace))) == "swim"

    def drawn_by(self, seed: int) -> "Source":
        """Return what is read with a seed."""
        return self._replace(seed=seed if self.is_derived else 0)


@dataclass(frozen=True)
class Point:
    """The inputs of one simulation.

    trace, kind : path of the trace, and its format
    nodes, node : number and capacity of identical machines; 0: those of the trace, or of `config`
    config : path of a fairlead.toml; empty for none
    changes : assignments to keys of the configuration
    history : half-life of past usage in seconds; None: that of the configuration
    offers, framework : queues whose jobs are launched in offers, empty for none; and how frameworks answer
    warm_up : seconds that are simulated but not measured
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
    history: float | None = None
    offers: str = ""
    framework: str = ""
    warm_up: float = 0.0
    columns: str = ""

    @property
    def source(self) -> Source:
        """What to read."""
        return Source(self.trace, self.kind, self.skip_bad, 0, self.columns).drawn_by(self.seed)

    @property
    def name(self) -> str:
        """File name: a digest of the point, and of the size and mtime of trace and configuration."""
        there = Path(self.trace)
        files = [
            *(sorted(there.iterdir()) if there.is_dir() else [there]),
            *(Path(name) for name in (self.config, self.columns) if name and Path(name).exists()),
        ]
        stamp = [FORMAT, *([str(p), p.stat().st_size, p.stat().st_mtime_ns] for p in files)]
        digest = hashlib.sha256(json.dumps([asdict(self), stamp], sort_keys=True).encode()).hexdigest()[:20]
        return f"{digest}.json"


@lru_cache(maxsize=64)
def read_source(source: Source) -> Workload:
    """Read a trace, once."""
    derivation = Derivation(seed=source.seed)
    columns = Path(source.columns) if source.columns else None
    return read_trace(
        Path(source.trace), source.kind or None, skip_bad=source.skip_bad, derivation=derivation, columns=columns
    )


def run_point(read: Mapping[Source, Workload], point: Point) -> dict[str, Any]:
    """Run one simulation of a workload that was read; return the point and its numbers."""
    workload = cut(read[point.source], point.start, point.end, point.speed, point.scale, point.seed)
    config = Path(point.config) if point.config else None
    workload = configured(workload, point.nodes, point.node, config, point.changes)
    offers = parse_answers(point.offers, point.framework) if point.offers else None
    run = simulate(workload, point.policy, history=point.history, warm_up=point.warm_up, offers=offers)
    found = summary(run, point.seed)
    del found["seconds"]  # the same point gives the same file
    return {"point": asdict(point), "numbers": found}


def merged(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge the results of points that differ in their seeds alone; see :func:`fairlead.simulate.measure.over_seeds`."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for each in found:
        groups.setdefault(json.dumps({**each["point"], "seed": None}), []).append(each)
    return [
        {
            "point": {key: value for key, value in alike[0]["point"].items() if key != "seed"},
            "seeds": [each["point"]["seed"] for each in alike],
            "numbers": over_seeds([{k: v for k, v in each["numbers"].items() if k != "seed"} for each in alike]),
        }
        for alike in groups.values()
    ]


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
    read = {source: read_source(source) for source in {point.source for point, _ in missing}}
    for file, found in ENGINES[engine](read, missing, workers):
        part = file.with_suffix(".part")
        part.write_text(json.dumps(found, sort_keys=True, indent=1))
        part.replace(file)
        done += 1
        progress(done, len(points))
    return [json.loads(file.read_text()) for file in files]


def _on_this_machine(
    read: Mapping[Source, Workload], missing: list[tuple[Point, Path]], workers: int | None
) -> Iterator[tuple[Path, dict[str, Any]]]:
    from fairlead.processes import on_all_cores

    for place, found in on_all_cores(run_point, [(point,) for point, _ in missing], workers, (read,)):
        yield missing[place][1], found


def _on_ray(
    read: Mapping[Source, Workload], missing: list[tuple[Point, Path]], _workers: int | None
) -> Iterator[tuple[Path, dict[str, Any]]]:
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
    there = ray.put(read)
    running = {remote.remote(there, point): file for point, file in missing}
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
