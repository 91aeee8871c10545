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
from fairlead.simulate.measure import summary, write_parquet
from fairlead.simulate.offers import Answers, parse_answers
from fairlead.simulate.report import page, runs_text, sweep_page, sweep_text
from fairlead.simulate.run import check_policy, simulate
from fairlead.simulate.traces import Derivation, read_trace
from fairlead.simulate.workload import TraceError, check_leaves, cut, synthetic_nodes

DEFAULT_ANSWERS = "hold=1s,refuse=5s"
"""Default of --framework: how frameworks answer offers."""


def run_simulations(
    trace: Path, kind: str | None, columns: Path | None, policies: list[str], nodes: int, node: str, config: Path | None,
    changes: list[str], history: str, revoke: str, offers: str, framework: str, speed: float, scale: float, start: str, end: str,
    seed: int, skip_bad: bool, out: Path | None, report: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Simulate a workload under each policy, and print the results."""
    _check_outputs(report, out)
    try:
        half_life = read_half_life(history) if history else None
    except ValueError as error:
        raise Failure(f"--history: {error}") from None
    if framework and not offers:
        raise Failure(
            f"--framework {framework}: needs --offers, because no offers are made without it: add --offers all or queue names"
        )
    framework = framework or DEFAULT_ANSWERS
    modes, answers = _modes(revoke), _answers(offers, framework)
    try:
        workload = read_trace(trace, kind, skip_bad=skip_bad, derivation=Derivation(seed=seed), columns=columns)
        workload = cut(
            workload, _seconds("--from", start, 0.0), _seconds("--to", end, float("inf")), speed, scale, seed
        )
        workloads = [configured(workload, nodes, node, config, [*changes, *mode]) for mode in modes]
        for policy in filter(None, policies):  # "": as configured
            check_policy(policy)
        if workload.skipped:
            rows = "1 row was" if workload.skipped == 1 else f"{workload.skipped:,} rows were"
            print(f"fairlead: {trace}: {rows} invalid and skipped", file=sys.stderr)
        runs = []
        with progress(TaskProgressColumn()) as bars:
            for policy, workload, how in itertools.product(policies, workloads, answers):
                bar = bars.add_task(policy or own_policy(workload), total=1.0)
                update = partial(_update, bars, bar)
                runs.append(simulate(workload, policy, history=half_life, progress=update, offers=how))
                bars.update(bar, completed=1.0)
        if out is not None:
            write_parquet(runs, out)
    except (TraceError, PolicyError, DocumentError) as error:
        raise Failure(str(error)) from None
    if report is not None:
        write_page(report, page(runs, _settings(start, end, speed, scale, seed, history, offers and framework)))
    summaries = [summary(run) for run in runs]
    made = {**made_by(), "machines": workloads[0].machines}
    print(
        json.dumps({"made": made, "runs": summaries}, indent=2)
        if as_json
        else plain_lines(runs_text(summaries, width()))
    )


def _settings(start: str, end: str, speed: float, scale: float, seed: int, history: str, framework: str) -> str:
    """Describe the settings in a line."""
    answers = f", frameworks answer with {framework}" if framework else ""
    before = {"": "of each queue", "none": "none"}.get(history, history)
    return (
        f"settings: from {start or 'the start'} to {end or 'the end'}, speed {speed:g}, scale {scale:g}, seed {seed}, "
        f"half-life of past usage {before}{answers}"
    )


def _check_outputs(report: Path | None, out: Path | None = None) -> None:
    """Raise Failure before the simulation if its results could not be written after it."""
    check_page("--report", report)
    for file, option, needed in ((report, "--report", "plotly"), (out, "--out", "pyarrow")):
        if file is not None and find_spec(needed) is None:
            raise Failure(f"{option} needs {needed}: pip install 'fairlead[simulate]'")
    if report is not None and not report.absolute().parent.is_dir():
        raise Failure(f"{report}: folder {report.parent} does not exist: make it, or name another")


def _update(bars: Progress, bar: Any, part: float) -> None:
    bars.update(bar, completed=part)


def run_sweep(
    trace: Path, kind: str | None, columns: Path | None, policies: list[str], loads: str, sizes: str, node: str,
    config: Path | None, changes: list[str], seeds: str, revoke: str, start: str, end: str, skip_bad: bool, out: Path,
    engine: str,
    workers: int | None, report: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Run a grid of simulations, and print a line per point."""
    from fairlead.simulate.sweep import Point, sweep

    _check_outputs(report)
    modes = _modes(revoke)
    try:
        for policy in filter(None, policies):  # "": as configured
            check_policy(policy)
        # Report what is wrong once, before the grid starts.
        machines = _numbers("--nodes", sizes, int)
        workload = read_trace(trace, kind, skip_bad=skip_bad, columns=columns)
        for mode in modes:
            configured(workload, max(machines), node, config, [*changes, *mode])
        if not all(map(baseline_of, policies)):
            check_leaves(workload)
        loads_and_seeds = _numbers("--scale", loads, float), machines, _numbers("--seed", seeds, int)
        grid = itertools.product(policies, modes, *loads_and_seeds)
        tree = str(config.absolute()) if config else ""
        mapping = str(columns.absolute() if columns.exists() else columns) if columns else ""
        begin, until = _seconds("--from", start, 0.0), _seconds("--to", end, float("inf"))
        points = [
            Point(
                str(trace.absolute()),
                kind or "",
                policy,
                scale,
                1.0,
                begin,
                until,
                size,
                node,
                seed,
                skip_bad,
                tree,
                (*changes, *mode),
                mapping,
            )
            for policy, mode, scale, size, seed in grid
        ]
        synthetic_nodes(0, node)  # raises at once if `node` is wrong
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
        print(json.dumps({"made": made_by(), "points": found}, indent=2))
        return
    print(plain_lines(sweep_text(found, width(200))))


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
        if any(x < 0 for x in found) or (option == "--scale" and not all(found)):
            raise ValueError
    except ValueError:
        raise TraceError(f"{option} {text!r}: write numbers separated by commas, such as 1,2,4") from None
    return found
