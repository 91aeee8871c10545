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
from typing import Any, Literal

from fairlead.simulate.configured import configured
from fairlead.simulate.measure import over_seeds, summary
from fairlead.simulate.offers import parse_answers
from fairlead.simulate.run import Run, simulate
from fairlead.simulate.traces import Derivation, kind_of, read_trace
from fairlead.simulate.workload import TraceError, Workload, cut

FORMAT = 2
"""Version of the results; those of another one are computed again."""

Source = tuple[str, str, str, bool, int]
"""What :func:`read_source` takes."""


@dataclass(frozen=True)
class Point:
    """The inputs of one simulation.

    nodes, node : number and capacity of identical machines; 0: those of the trace, or of `config`, a fairlead.toml
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
        seed = self.seed if is_derived(self.trace, self.kind, self.columns) else 0
        return self.trace, self.kind, self.columns, self.skip_bad, seed

    def configured(self, workload: Workload) -> Workload:
        """Give a workload this point's machines and configuration."""
        return configured(workload, self.nodes, self.node, Path(self.config) if self.config else None, self.changes)

    def workload(self, read: Workload) -> Workload:
        """Return the workload to simulate, of one that was read."""
        return self.configured(cut(read, self.start, self.end, self.speed, self.scale, self.seed))

    def run(self, workload: Workload, progress: Callable[[float], None] | None = None) -> Run:
        offers = parse_answers(self.offers, self.framework) if self.offers else None
        return simulate(workload, self.policy, history=self.history, warm_up=self.warm_up, offers=offers, progress=progress)

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


def is_derived(trace: str, kind: str, columns: str) -> bool:
    """Return True if tasks and users are drawn when a trace is read, so that each seed gives another workload."""
    return not columns and (kind or kind_of(Path(trace))) == "swim"


@lru_cache(maxsize=64)
def read_source(trace: str, kind: str, columns: str, skip_bad: bool, seed: int) -> Workload:
    mapping = Path(columns) if columns else None
    return read_trace(Path(trace), kind or None, skip_bad=skip_bad, derivation=Derivation(seed=seed), columns=mapping)


def run_point(read: Mapping[Source, Workload], point: Point) -> dict[str, Any]:
    """Run one simulation of a workload that was read; return the point and its numbers."""
    found = summary(point.run(point.workload(read[point.source])), point.seed)
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
    points: list[Point], folder: Path, engine: Literal["local", "ray"] = "local",
    progress: Callable[[int, int], None] = lambda done, of: None, workers: int | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Run the points that are not in the folder yet; return the results of all, in their order.

    `engine` is local, with `workers` processes on this machine, by default one a core; or ray, at `RAY_ADDRESS`, where the nodes
    must see the trace under the same path. `progress` gets the number of points done, and of all. Raises TraceError.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / point.name for point in points]
    except OSError as error:
        raise TraceError(f"{error.filename}: {error.strerror}") from None
    missing = [(point, file) for point, file in zip(points, files, strict=True) if not file.exists()]
    done = len(points) - len(missing)
    progress(done, len(points))
    read = {source: read_source(*source) for source in {point.source for point, _ in missing}}
    for file, found in ENGINES[engine](read, missing, workers):
        part = file.with_suffix(".part")
        part.write_text(json.dumps(found, sort_keys=True, indent=1))
        part.replace(file)
        done += 1
        progress(done, len(points))
    return [json.loads(file.read_text()) for file in files]


Results = Iterator[tuple[Path, dict[str, Any]]]
Missing = list[tuple[Point, Path]]


def _on_this_machine(read: Mapping[Source, Workload], missing: Missing, workers: int | None) -> Results:
    from fairlead.processes import on_all_cores

    for place, found in on_all_cores(run_point, [(point,) for point, _ in missing], workers, (read,)):
        yield missing[place][1], found


def _on_ray(read: Mapping[Source, Workload], missing: Missing, _workers: int | None) -> Results:
    if not missing:
        return
    try:
        import ray
    except ImportError:
        raise TraceError("Ray is not installed here, and --engine ray needs it: pip install 'fairlead[ray]'") from None
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
