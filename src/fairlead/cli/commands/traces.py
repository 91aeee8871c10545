"""The commands about traces: what policies would have made of a workload. They need no scheduler."""

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli import option_values as values
from fairlead.cli.commands.options import Json, Report, of_policies

Trace = Annotated[Path, typer.Argument(help="The trace: openb, SWIM, SWF, a CSV or Parquet table, or a journal.")]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="openb, swim, swf, table or journal; else by its name.",
        autocompletion=values.one_of("openb", "swim", "swf", "table", "journal"),
    ),
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave rows out that are wrong, and count them.")]
From = Annotated[str, typer.Option("--from", help="Only jobs submitted from this time of the trace on, such as 6h.")]
To = Annotated[str, typer.Option("--to", help="Only jobs submitted before this time, such as 12h.")]
Config = Annotated[Path | None, typer.Option(help="Machines and the queue tree from this fairlead.toml.")]
Revoke = Annotated[
    str,
    typer.Option(
        help="Whether tasks are revoked for guarantees and fair shares: on, off, or on,off to compare.",
        autocompletion=values.some_of(lambda: ("on", "off")),
    ),
]
OneNode = Annotated[str, typer.Option(help="What each of --nodes has.")]


def simulate(
    trace: Trace,
    policy: Annotated[
        str, of_policies("One or more; also slots[:K[:overcommit]], fifo-strict, easy[:F].", values.all_policies)
    ] = "drf",
    kind: Format = None,
    nodes: Annotated[
        int, typer.Option(help="So many alike machines, instead of the trace's.", min=0, max=1_000_000)
    ] = 0,
    node: OneNode = "cpu=12,memory=48GiB",
    config: Config = None,
    history: Annotated[
        str,
        typer.Option(help="Half-life of what queues used before, such as 7d, or none; else as --config says, or 1d."),
    ] = "",
    revoke: Revoke = "on",
    offers: Annotated[
        str,
        typer.Option(
            help="Once more with the jobs of these queues launched in offers, as frameworks do: names, or all."
        ),
    ] = "",
    framework: Annotated[
        str,
        typer.Option(
            help="How those answer: hold, refuse and timeout (TIME), most (25%), hoard. Default: hold=1s,refuse=5s."
        ),
    ] = "",
    speed: Annotated[float, typer.Option(help="Jobs come so many times as fast.", min=1e-6, max=1e6)] = 1.0,
    scale: Annotated[float, typer.Option(help="So many times as many jobs.", min=1e-6, max=1000)] = 1.0,
    start: From = "",
    end: To = "",
    seed: Annotated[int, typer.Option(help="Decides what is drawn; the same seed, the same results.", min=0)] = 0,
    skip_bad: SkipBad = False,
    out: Annotated[Path | None, typer.Option(help="Write jobs.parquet and moments.parquet into this folder.")] = None,
    report: Report = None,
    as_json: Json = False,
) -> None:
    """Replay a trace, and compare policies.

    It goes through the scheduler with a virtual clock; none has to run.

    Example: fairlead simulate FB-2010.tsv --nodes 400 --policy drf,slots --report out.html
    """
    from fairlead.cli.simulate import run_simulations

    run_simulations(
        trace,
        kind,
        policy.split(","),
        nodes,
        node,
        config,
        history,
        revoke,
        offers,
        framework,
        speed,
        scale,
        start,
        end,
        seed,
        skip_bad,
        out,
        report,
        as_json,
    )


def sweep(
    trace: Trace,
    out: Annotated[Path, typer.Option(help="The folder of the results; what is there already is not computed again.")],
    policy: Annotated[str, of_policies("One or more, with commas between.", values.all_policies)] = "drf",
    kind: Format = None,
    scale: Annotated[str, typer.Option(help="Loads: so many times as many jobs; one or more.")] = "1",
    nodes: Annotated[str, typer.Option(help="Numbers of alike machines; 0: those of the trace.")] = "0",
    node: OneNode = "cpu=12,memory=48GiB",
    config: Config = None,
    seed: Annotated[str, typer.Option(help="One or more.")] = "0",
    revoke: Revoke = "on",
    start: From = "",
    end: To = "",
    skip_bad: SkipBad = False,
    engine: Annotated[
        str,
        typer.Option(
            help="local: all cores of this machine; ray: the Ray cluster of RAY_ADDRESS.",
            autocompletion=values.one_of("local", "ray"),
        ),
    ] = "local",
    workers: Annotated[int | None, typer.Option(help="Processes on this machine.", min=1, max=1024)] = None,
    report: Report = None,
    as_json: Json = False,
) -> None:
    """Simulate a grid: policies x loads x machines x seeds. A sweep that was killed goes on where it was.

    Example: fairlead sweep FB-2010.tsv --policy drf,slots --nodes 100,200,400 --scale 1,2 --out results
    """
    from fairlead.cli.simulate import run_sweep

    run_sweep(
        trace,
        kind,
        policy.split(","),
        scale,
        nodes,
        node,
        config,
        seed,
        revoke,
        start,
        end,
        skip_bad,
        out,
        engine,
        workers,
        report,
        as_json,
    )
