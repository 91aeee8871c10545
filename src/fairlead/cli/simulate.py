"""`fairlead simulate` and `fairlead sweep`: simulate a workload under several policies."""

import itertools
import json
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.progress import MofNCompleteColumn, Progress, TaskProgressColumn

from fairlead.cli.job_options import seconds
from fairlead.cli.reports import check_page, made_by, write_page
from fairlead.cli.scheduler import say
from fairlead.cli.terminal import progress, width
from fairlead.failure import Failure, WrongUsage, failing
from fairlead.model.documents import read_half_life
from fairlead.model.quantity import plain_number
from fairlead.plain_text import plain_lines
from fairlead.policies.contract import PolicyError
from fairlead.simulate.baselines import baseline_of
from fairlead.simulate.configured import own_policy
from fairlead.simulate.measure import over_seeds, summary, write_parquet
from fairlead.simulate.offers import parse_answers
from fairlead.simulate.report import columns, page, runs_text, sweep_page, sweep_text
from fairlead.simulate.run import check_policy
from fairlead.simulate.sweep import Point, is_derived, merged, read_source, sweep
from fairlead.simulate.workload import TraceError, Workload, check_leaves, synthetic_nodes

DEFAULT_ANSWERS = "hold=1s,refuse=5s"
"""Default of --framework: how frameworks answer offers."""
DEFAULT_NODE = "cpu=12,memory=48GiB"


def run_simulations(asked: Any) -> None:
    """Simulate a workload under each policy, and print the results; `asked` has the options by name."""
    _check_outputs(asked.report, asked.out)
    runs = []
    axes = [str(asked.config or "")], [asked.history], [asked.scale], [asked.speed], [asked.nodes]
    points = _points(asked, str(asked.trace), *axes)
    _check_policies(points)
    workloads: dict[Any, Workload] = {}
    for point in points:
        if (point.changes, point.seed) not in workloads:
            workloads[point.changes, point.seed] = point.workload(read_source(*point.source))
    workload, seeds = next(iter(workloads.values())), list(dict.fromkeys(point.seed for point in points))
    if workload.skipped:
        rows = "1 row was" if workload.skipped == 1 else f"{workload.skipped:,} rows were"
        say(f"{asked.trace}: {rows} invalid and skipped")
    with progress(TaskProgressColumn()) as bars:
        for point in points:
            mine = workloads[point.changes, point.seed]
            title = point.policy or own_policy(mine)
            bar = bars.add_task(title if len(seeds) == 1 else f"{title}, seed {point.seed}", total=1.0)
            runs.append(point.run(mine, partial(_update, bars, bar)))
            bars.update(bar, completed=1.0)
    of = [point.seed for point in points]
    if asked.out is not None:
        write_parquet(runs, asked.out, of)
    if asked.report is not None:
        write_page(asked.report, page(runs, _settings(asked, seeds, points[-1].framework), of))
    summaries = [summary(run, seed) for run, seed in zip(runs, of, strict=True)]
    if not asked.as_json:
        print(plain_lines(runs_text(summaries, width())))
        return
    found: dict[str, Any] = {"made": {**made_by(), "machines": workload.machines}, "runs": summaries}
    if len(seeds) > 1:
        found["over seeds"] = [{**over_seeds(each), "seed": seeds} for _, each in columns(summaries)]
    print(json.dumps(found, indent=2))


def run_sweep(asked: Any) -> None:
    """Run a grid of simulations, and print a line per point; `asked` has the options by name."""
    _check_outputs(asked.report)
    try:
        scales, speeds = (_numbers(f"--{name}", getattr(asked, name), float) for name in ("scale", "speed"))
        trees = [str(Path(each).absolute()) if each else "" for each in asked.config.split(",")]
        sizes = _numbers("--nodes", asked.nodes, int)
        points = _points(asked, str(asked.trace.absolute()), trees, asked.history.split(","), scales, speeds, sizes)
        _check_points(points)
        with progress(MofNCompleteColumn()) as bars:
            bar = bars.add_task("simulating", total=None)
            found = sweep(points, asked.out, asked.engine, partial(_update, bars, bar), asked.workers)
    except KeyboardInterrupt:
        raise Failure(f"interrupted: finished points are in {asked.out}; the same command resumes from there") from None
    if asked.report is not None:
        write_page(asked.report, sweep_page(found))
    if asked.as_json:
        several = {"over seeds": merged(found)} if len({point.seed for point in points}) > 1 else {}
        print(json.dumps({"made": made_by(), "points": found, **several}, indent=2))
        return
    print(plain_lines(sweep_text(found, width(200))))


def _points(
    asked: Any, trace: str, trees: list[str], histories: list[str], scales: list[float], speeds: list[float], sizes: list[int],
) -> list[Point]:  # fmt: skip
    """Return the simulations that the options ask for, in the order of their results."""
    framework = _framework(asked.offers, asked.framework)
    if asked.node and not any(sizes):
        raise WrongUsage(f"--node {asked.node}: needs --nodes, the number of such machines: add it")
    with failing("", TraceError, to=WrongUsage):
        synthetic_nodes(0, asked.node or DEFAULT_NODE)
    given = asked.columns  # a file, or the name of a mapping that is known
    if given and asked.kind not in (None, "table"):
        raise WrongUsage(f"--columns {given}: is for tables, not --format {asked.kind}: omit one of them")
    source = (trace, asked.kind or "", str(given.absolute() if given.exists() else given) if given else "")
    seeds = _drawing_seeds(source, scales, _numbers("--seed", asked.seed, int))
    begin = seconds("--from", asked.start or None) or 0.0
    end = seconds("--to", asked.end or None)
    until = float("inf") if end is None else end
    warm_up = seconds("--warm-up", asked.warm_up or None) or 0.0
    return [
        Point(
            trace, source[1], policy, scale, speed, begin, until, size, asked.node or DEFAULT_NODE, seed, asked.skip_bad, tree,
            (*(asked.changes or ()), *mode), half_life, offers, framework if offers else "", warm_up, source[2],
        )
        for policy, mode, offers, tree, half_life, scale, speed, size in itertools.product(
            ",".join(asked.policy).split(","), _modes(asked.revoke), ["", asked.offers] if asked.offers else [""], trees,
            map(_half_life, histories), scales, speeds, sizes,
        )
        for seed in seeds[scale]
    ]  # fmt: skip


def _drawing_seeds(source: tuple[str, str, str], scales: list[float], seeds: list[int]) -> dict[float, list[int]]:
    """Return the seeds to run of each scale: one where they draw nothing, which is reported."""
    found = {scale: seeds if scale != int(scale) or is_derived(*source) else seeds[:1] for scale in scales}
    alike = [f"{scale:g}" for scale, chosen in found.items() if len(chosen) < len(seeds)]
    if alike:
        say(
            f"{source[0]}: --seed draws nothing at scale {', '.join(alike)}, so seed {seeds[0]} "
            "is run alone: it draws the tasks and users of SWIM traces, and the jobs that a --scale with a fraction takes"
        )
    return found


def _half_life(text: str) -> float | None:
    """Read --history; None for that of the configuration."""
    with failing("--history: ", ValueError, to=WrongUsage):
        return read_half_life(text) if text else None


def _framework(offers: str, framework: str) -> str:
    """Return how frameworks answer. Raises Failure if that is invalid, or nobody makes offers."""
    if framework and not offers:
        raise WrongUsage(f"--framework {framework}: needs --offers, or none are made: add --offers all or queue names")
    with failing("--framework: ", ValueError, to=WrongUsage):
        parse_answers(offers, framework or DEFAULT_ANSWERS)
    return framework or DEFAULT_ANSWERS


def _settings(asked: Any, seeds: list[int], framework: str) -> str:
    answers = f", frameworks answer with {framework}" if framework else ""
    before = {"": "of each queue", "none": "none"}.get(asked.history, asked.history)
    return (
        f"settings: from {asked.start or 'the start'} to {asked.end or 'the end'}, warm-up {asked.warm_up or 'none'}, "
        f"speed {asked.speed:g}, scale {asked.scale:g}, seed {', '.join(map(str, seeds))}, "
        f"half-life of past usage {before}{answers}"
    )


def _check_outputs(report: Path | None, out: Path | None = None) -> None:
    """Raise Failure before the simulation if its results could not be written after it."""
    check_page("--report", report)
    if out is not None and find_spec("pyarrow") is None:
        raise Failure("pyarrow is not installed here, and --out needs it: pip install 'fairlead[simulate]'")
    if report is not None and not report.absolute().parent.is_dir():
        raise Failure(f"{report}: folder {report.parent} does not exist: make it, or name another")


def _update(bars: Progress, bar: Any, done: float, of: float = 1.0) -> None:
    bars.update(bar, completed=done, total=of)


def _check_policies(points: list[Point]) -> None:
    with failing("--policy: ", PolicyError, to=WrongUsage):
        for policy in filter(None, dict.fromkeys(point.policy for point in points)):  # "": as configured
            check_policy(policy)


def _check_points(points: list[Point]) -> None:
    """Report what is wrong once, before the grid starts."""
    _check_policies(points)
    for point in {(point.config, point.changes, point.nodes > 0): point for point in points}.values():
        workload = point.configured(read_source(*point.source))
        if not all(baseline_of(each.policy) for each in points):
            check_leaves(workload)


def _modes(revoke: str) -> list[list[str]]:
    """Read --revoke: the changes of the configuration for preemption, and against it."""
    modes = revoke.split(",") if revoke else []
    if not set(modes) <= {"on", "off"}:
        raise WrongUsage(f"--revoke {revoke!r}: write on, off, or on,off to compare")
    return [[f"scheduler.revoke={'true' if mode == 'on' else 'false'}"] for mode in modes] or [[]]


def _numbers(option: str, text: str, kind: Callable[[str], Any]) -> list[Any]:
    try:
        found = [kind(plain_number(part)) for part in text.split(",")]
        if any(x < 0 for x in found) or (option in ("--scale", "--speed") and not all(found)):
            raise ValueError
    except ValueError:
        raise WrongUsage(f"{option} {text!r}: write numbers separated by commas, such as 1,2,4") from None
    return found
