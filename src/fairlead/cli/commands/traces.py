"""Commands that simulate a workload under several policies. They need no scheduler."""

from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import typer

from fairlead.cli import option_values as values
from fairlead.cli.commands.options import Json, Report, of_policies

Trace = Annotated[
    Path, typer.Argument(help="The trace: a CSV or Parquet table, SWF, sacct -P, YARN, openb, SWIM, or a journal.")
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="openb, swim, swf, table, sacct, yarn or journal. Default: by the file name.",
        autocompletion=values.one_of("openb", "swim", "swf", "table", "sacct", "yarn", "journal"),
    ),
]
Columns = Annotated[
    Path | None,
    typer.Option(help="Which columns a table of another system has: a TOML file, or google, alibaba, azure or philly."),
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Skip invalid rows, and count them.")]
From = Annotated[str, typer.Option("--from", help="Only jobs submitted at or after this trace time, such as 6h.")]
To = Annotated[str, typer.Option("--to", help="Only jobs submitted before this trace time, such as 12h.")]
Config = Annotated[
    Path | None, typer.Option(help="Simulate under this fairlead.toml: its queues, settings and machines.")
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a key of the configuration, such as scheduler.reserve_after=60 or queue.lab/ml.weight=2. Repeatable.",
    ),
]
Revoke = Annotated[
    str,
    typer.Option(
        help="Preempt tasks for guarantees and fair shares: on, off, or on,off to compare. Default: as configured.",
        autocompletion=values.some_of(lambda: ("on", "off")),
    ),
]
WarmUp = Annotated[
    str, typer.Option("--warm-up", help="Simulate this time, such as 1h, before anything is measured. Default: 0.")
]
Seeds = Annotated[
    str,
    typer.Option(help="Seeds of all that is drawn, separated by commas; means of several have confidence intervals."),
]
Offers = Annotated[
    str, typer.Option(help="Run again with the jobs of these queues launched through offers: queue names, or all.")
]
Framework = Annotated[
    str,
    typer.Option(
        help="How frameworks answer offers: hold, refuse, timeout (TIME), most (25%), hoard. Default: hold=1s,refuse=5s."
    ),
]
OneNode = Annotated[str, typer.Option(help="Capacity of each of --nodes.")]


def simulate(
    trace: Trace,
    policy: Annotated[
        str,
        of_policies(
            "One or more; also slots[:K[:overcommit]], fifo-strict, easy[:LIMITS or POLICY], conservative[:LIMITS]. "
            "Default: as configured, or drf.",
            values.all_policies,
        ),
    ] = "",
    kind: Format = None,
    columns: Columns = None,
    nodes: Annotated[
        int,
        typer.Option(
            help="Use N identical machines instead of the trace's or the configuration's.", min=0, max=1_000_000
        ),
    ] = 0,
    node: OneNode = "cpu=12,memory=48GiB",
    config: Config = None,
    changes: Set = None,
    history: Annotated[
        str,
        typer.Option(help="Half-life of past usage, such as 7d, or none. Default: that of --config, or 1d."),
    ] = "",
    revoke: Revoke = "",
    offers: Offers = "",
    framework: Framework = "",
    speed: Annotated[float, typer.Option(help="Multiply the arrival rate of jobs.", min=1e-6, max=1e6)] = 1.0,
    scale: Annotated[float, typer.Option(help="Multiply the number of jobs.", min=1e-6, max=1000)] = 1.0,
    start: From = "",
    end: To = "",
    warm_up: WarmUp = "",
    seed: Seeds = "0",
    skip_bad: SkipBad = False,
    out: Annotated[Path | None, typer.Option(help="Write jobs.parquet and moments.parquet into this folder.")] = None,
    report: Report = None,
    as_json: Json = False,
) -> None:
    """Replay a trace and compare policies.

    The real scheduler code runs on a virtual clock; no scheduler needs to be running.

    Example: fairlead simulate FB-2010.tsv --nodes 400 --policy drf,slots --report out.html
    """
    asked = SimpleNamespace(**locals())
    from fairlead.cli.simulate import run_simulations

    run_simulations(asked)


def sweep(
    trace: Trace,
    out: Annotated[Path, typer.Option(help="Folder for the results; existing ones are not computed again.")],
    policy: Annotated[
        str, of_policies("One or more, separated by commas. Default: as configured, or drf.", values.all_policies)
    ] = "",
    kind: Format = None,
    columns: Columns = None,
    scale: Annotated[str, typer.Option(help="Multipliers of the number of jobs, separated by commas.")] = "1",
    nodes: Annotated[
        str, typer.Option(help="Numbers of identical machines, separated by commas; 0: the trace's.")
    ] = "0",
    node: OneNode = "cpu=12,memory=48GiB",
    config: Annotated[
        str,
        typer.Option(help="Simulate under these fairlead.toml files, separated by commas.", metavar="FILES"),
    ] = "",
    changes: Set = None,
    speed: Annotated[str, typer.Option(help="Multipliers of the arrival rate, separated by commas.")] = "1",
    history: Annotated[
        str, typer.Option(help="Half-lives of past usage, such as 1d,none. Default: that of --config, or 1d.")
    ] = "",
    seed: Seeds = "0",
    revoke: Revoke = "",
    offers: Offers = "",
    framework: Framework = "",
    start: From = "",
    end: To = "",
    warm_up: WarmUp = "",
    skip_bad: SkipBad = False,
    engine: Annotated[
        str,
        typer.Option(
            help="Where to run: on all cores of this machine (local), or in the Ray cluster of RAY_ADDRESS (ray).",
            autocompletion=values.one_of("local", "ray"),
        ),
    ] = "local",
    workers: Annotated[int | None, typer.Option(help="Processes on this machine.", min=1, max=1024)] = None,
    report: Report = None,
    as_json: Json = False,
) -> None:
    """Simulate a grid: policies x configurations x loads x machines x seeds. A sweep that was killed resumes where it stopped.

    Example: fairlead sweep FB-2010.tsv --policy drf,slots --nodes 100,200,400 --scale 1,2 --out results
    """
    asked = SimpleNamespace(**locals())
    from fairlead.cli.simulate import run_sweep

    run_sweep(asked)
