"""`fairlead simulate` and `fairlead sweep`: simulate a workload under several policies."""

import itertools
import json
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.progress import MofNCompleteColumn, Progress, TaskProgressColumn

from fairlead.cli.failure import Failure
from fairlead.cli.reports import check_page, made_by, write_page
from fairlead.cli.terminal import progress, width
from fairlead.model.documents import DocumentError, read_half_life
from fairlead.model.quantity import parse_seconds, plain_number
from fairlead.plain_text import plain_lines
from fairlead.policies.contract import PolicyError
from fairlead.simulate.baselines import baseline_of
from fairlead.simulate.configured import configured, own_policy
from fairlead.simulate.measure import over_seeds, summary, write_parquet
from fairlead.simulate.offers import Answers, parse_answers
from fairlead.simulate.report import columns, page, runs_text, sweep_page, sweep_text
from fairlead.simulate.run import check_policy, simulate
from fairlead.simulate.sweep import Point, Source, merged, read_source, sweep
from fairlead.simulate.workload import TraceError, check_leaves, cut, synthetic_nodes

DEFAULT_ANSWERS = "hold=1s,refuse=5s"
"""Default of --framework: how frameworks answer offers."""


def run_simulations(
    trace: Path, kind: str | None, mapping: Path | None, policies: list[str], nodes: int, node: str, config: Path | None,
    changes: list[str], history: str, revoke: str, offers: str, framework: str, speed: float, scale: float, start: str, end: str,
    warm_up: str, seeds: str, skip_bad: bool, out: Path | None, report: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Simulate a workload under each policy, and print the results."""
    _check_outputs(report, out)
    half_life = _half_lives(history)[0]
    framework = _framework(offers, framework)
    modes, answers = _modes(revoke), _answers(offers, framework)
    try:
        source = Source(str(trace), kind or "", skip_bad, 0, _mapping(mapping))
        chosen = _drawing_seeds(source, [scale], _numbers("--seed", seeds, int))[scale]
        begin, until = _seconds("--from", start, 0.0), _seconds("--to", end, float("inf"))
        warm = _seconds("--warm-up", warm_up, 0.0)
        drawn = {seed: cut(read_source(source.drawn_by(seed)), begin, until, speed, scale, seed) for seed in chosen}
        workloads = [
            {seed: configured(drawn[seed], nodes, node, config, [*changes, *mode]) for seed in chosen} for mode in modes
        ]
        workload = workloads[0][chosen[0]]
        for policy in filter(None, policies):  # "": as configured
            check_policy(policy)
        if workload.skipped:
            rows = "1 row was" if workload.skipped == 1 else f"{workload.skipped:,} rows were"
            print(f"fairlead: {trace}: {rows} invalid and skipped", file=sys.stderr)
        runs, of = [], []
        with progress(TaskProgressColumn()) as bars:
            for policy, mode, how in itertools.product(policies, workloads, answers):
                for seed in chosen:
                    title = policy or own_policy(mode[seed])
                    bar = bars.add_task(title if len(chosen) == 1 else f"{title}, seed {seed}", total=1.0)
                    update = partial(_update, bars, bar)
                    runs.append(
                        simulate(mode[seed], policy, history=half_life, progress=update, offers=how, warm_up=warm)
                    )
                    of.append(seed)
                    bars.update(bar, completed=1.0)
        if out is not None:
            write_parquet(runs, out, of)
    except (TraceError, PolicyError, DocumentError) as error:
        raise Failure(str(error)) from None
    if report is not None:
        settings = _settings(start, end, speed, scale, chosen, history, offers and framework, warm_up)
        write_page(report, page(runs, settings, of))
    summaries = [summary(run, seed) for run, seed in zip(runs, of, strict=True)]
    if not as_json:
        print(plain_lines(runs_text(summaries, width())))
        return
    found: dict[str, Any] = {"made": {**made_by(), "machines": workload.machines}, "runs": summaries}
    if len(chosen) > 1:
        found["over seeds"] = [{**over_seeds(each), "seed": chosen} for _, each in columns(summaries)]
    print(json.dumps(found, indent=2))


def _mapping(columns: Path | None) -> str:
    """Return where the columns of a table come from: a file, or the name of a mapping that is known."""
    return str(columns.absolute() if columns.exists() else columns) if columns else ""


def _drawing_seeds(source: Source, scales: list[float], seeds: list[int]) -> dict[float, list[int]]:
    """Return the seeds to run of each scale: one where they draw nothing, which is reported."""
    found = {scale: seeds if scale != int(scale) or source.is_derived else seeds[:1] for scale in scales}
    alike = [f"{scale:g}" for scale, chosen in found.items() if len(chosen) < len(seeds)]
    if alike:
        print(
            f"fairlead: {source.trace}: --seed draws nothing at scale {', '.join(alike)}, so seed {seeds[0]} "
            "is run alone: it draws the tasks and users of SWIM traces, and the jobs that a --scale with a fraction takes",
            file=sys.stderr,
        )
    return found


def _half_lives(text: str) -> list[float | None]:
    """Read --history; None for that of the configuration."""
    try:
        return [read_half_life(part) for part in text.split(",")] if text else [None]
    except ValueError as error:
        raise Failure(f"--history: {error}") from None


def _framework(offers: str, framework: str) -> str:
    if framework and not offers:
        raise Failure(
            f"--framework {framework}: needs --offers, because no offers are made without it: add --offers all or queue names"
        )
    return framework or DEFAULT_ANSWERS


def _settings(
    start: str, end: str, speed: float, scale: float, seeds: list[int], history: str, framework: str, warm_up: str
) -> str:
    """Describe the settings in a line."""
    answers = f", frameworks answer with {framework}" if framework else ""
    before = {"": "of each queue", "none": "none"}.get(history, history)
    return (
        f"settings: from {start or 'the start'} to {end or 'the end'}, warm-up {warm_up or 'none'}, speed {speed:g}, "
        f"scale {scale:g}, seed {', '.join(map(str, seeds))}, half-life of past usage {before}{answers}"
    )


def _check_outputs(report: Path | None, out: Path | None = None) -> None:
    """Raise Failure before the simulation if its results could not be written after it."""
    check_page("--report", report)
    if out is not None and find_spec("pyarrow") is None:
        raise Failure("--out needs pyarrow: pip install 'fairlead[simulate]'")
    if report is not None and not report.absolute().parent.is_dir():
        raise Failure(f"{report}: folder {report.parent} does not exist: make it, or name another")


def _update(bars: Progress, bar: Any, part: float) -> None:
    bars.update(bar, completed=part)


def run_sweep(
    trace: Path, kind: str | None, mapping: Path | None, policies: list[str], loads: str, speeds: str, sizes: str, node: str,
    configs: str, changes: list[str], histories: str, seeds: str, revoke: str, offers: str, framework: str, start: str, end: str,
    warm_up: str, skip_bad: bool, out: Path, engine: str, workers: int | None, report: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Run a grid of simulations, and print a line per point."""
    _check_outputs(report)
    framework = _framework(offers, framework) if offers or framework else ""
    with_offers = [each and offers for each in _answers(offers, framework)]
    try:
        scales = _numbers("--scale", loads, float)
        source = Source(str(trace.absolute()), kind or "", skip_bad, 0, _mapping(mapping))
        chosen = _drawing_seeds(source, scales, _numbers("--seed", seeds, int))
        trees = [str(Path(each).absolute()) if each else "" for each in configs.split(",")]
        begin, until = _seconds("--from", start, 0.0), _seconds("--to", end, float("inf"))
        points = [
            Point(
                source.trace, source.kind, policy, scale, speed, begin, until, size, node, seed, skip_bad, tree,
                (*changes, *mode), half_life, how or "", framework if how else "", _seconds("--warm-up", warm_up, 0.0),
                source.columns,
            )
            for policy, mode, how, tree, half_life, scale, speed, size in itertools.product(
                policies, _modes(revoke), with_offers, trees, _half_lives(histories), scales,
                _numbers("--speed", speeds, float), _numbers("--nodes", sizes, int),
            )
            for seed in chosen[scale]
        ]  # fmt: skip
        _check_points(points)
        with progress(MofNCompleteColumn()) as bars:
            bar = bars.add_task("simulating", total=None)
            found = sweep(points, out, engine, lambda done, of: bars.update(bar, completed=done, total=of), workers)
    except (TraceError, PolicyError, DocumentError) as error:
        raise Failure(str(error)) from None
    except KeyboardInterrupt:
        raise Failure(f"interrupted: finished points are in {out}; the same command resumes from there") from None
    if report is not None:
        write_page(report, sweep_page(found))
    if as_json:
        several = {"over seeds": merged(found)} if len({point.seed for point in points}) > 1 else {}
        print(json.dumps({"made": made_by(), "points": found, **several}, indent=2))
        return
    print(plain_lines(sweep_text(found, width(200))))


def _check_points(points: list[Point]) -> None:
    """Report what is wrong once, before the grid starts."""
    policies = dict.fromkeys(point.policy for point in points)
    for policy in filter(None, policies):  # "": as configured
        check_policy(policy)
    for point in {(point.config, point.changes, point.nodes > 0): point for point in points}.values():
        config = Path(point.config) if point.config else None
        workload = configured(read_source(point.source), point.nodes, point.node, config, point.changes)
        synthetic_nodes(0, point.node)  # raises at once if it is wrong
        if not all(map(baseline_of, policies)):
            check_leaves(workload)


def _modes(revoke: str) -> list[list[str]]:
    """Read --revoke: the changes of the configuration for preemption, and against it."""
    modes = revoke.split(",") if revoke else []
    if not set(modes) <= {"on", "off"}:
        raise Failure(f"--revoke {revoke!r}: write on, off, or on,off to compare")
    return [[f"scheduler.revoke={'true' if mode == 'on' else 'false'}"] for mode in modes] or [[]]


def _answers(queues: str, text: str) -> list[Answers | None]:
    """Return the modes: without offers, and with them if --offers is given."""
    try:
        return [None, parse_answers(queues, text)] if queues else [None]
    except ValueError as error:
        raise Failure(f"--framework: {error}") from None


def _seconds(option: str, text: str, default: float) -> float:
    try:
        return parse_seconds(text) if text else default
    except ValueError as error:
        raise TraceError(f"{option} {text!r}: {error}") from None


def _numbers(option: str, text: str, kind: Callable[[str], Any]) -> list[Any]:
    try:
        found = [kind(plain_number(part)) for part in text.split(",")]
        if any(x < 0 for x in found) or (option in ("--scale", "--speed") and not all(found)):
            raise ValueError
    except ValueError:
        raise TraceError(f"{option} {text!r}: write numbers separated by commas, such as 1,2,4") from None
    return found
