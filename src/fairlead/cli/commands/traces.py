"""Commands that simulate a workload under several policies. They need no scheduler."""

from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Literal, get_args

import typer

from fairlead.cli import option_values as values
from fairlead.cli.commands.options import Json, Report, of_policies, option

Kinds = Literal["openb", "swim", "swf", "table", "sacct", "yarn", "journal"]
SIMULATED = (
    "One or more; also slots[:K[:overcommit]], fifo-strict, easy[:LIMITS or POLICY], conservative[:LIMITS]. "
    "Default: as configured, or drf."
)

Trace = Annotated[Path, typer.Argument(help="The trace: a CSV or Parquet table, SWF, sacct -P, YARN, openb, SWIM, or a journal.")]
Format = Annotated[
    Kinds | None,
    option(f"{', '.join(get_args(Kinds)[:-1])} or journal. Default: by the file name.", "--format", metavar="FORMAT"),
]
Columns = Annotated[
    Path | None, option("Which columns a table of another system has: a TOML file, or google, alibaba, azure or philly.")
]
SkipBad = Annotated[bool, option("Skip invalid rows, and count them.", "--skip-bad")]
From = Annotated[str, option("Only jobs submitted at or after this trace time, such as 6h.", "--from")]
To = Annotated[str, option("Only jobs submitted before this trace time, such as 12h.", "--to")]
Config = Annotated[Path | None, option("Simulate under this fairlead.toml: its queues, settings and machines.")]
Configs = Annotated[str, option("Simulate under these fairlead.toml files, separated by commas.", metavar="FILES")]
Set = Annotated[
    list[str] | None,
    option(
        "Change a key of the configuration, such as scheduler.idle_budget=0.05 or queue.lab/ml.weight=2. Repeatable.",
        "--set",
        metavar="KEY=VALUE",
    ),
]
Revoke = Annotated[
    str,
    option(
        "Preempt tasks for guarantees and fair shares: on, off, or on,off to compare. Default: as configured.",
        autocompletion=values.some_of(lambda: ("on", "off")),
    ),
]
WarmUp = Annotated[str, option("Simulate this time, such as 1h, before anything is measured. Default: 0.")]
Seeds = Annotated[str, option("Random seeds, separated by commas; means of several have confidence intervals.")]
Offers = Annotated[str, option("Run again with the jobs of these queues launched through offers: queue names, or all.")]
Framework = Annotated[
    str, option("How frameworks answer offers: hold, refuse, timeout (TIME), most (25%), hoard. Default: hold=1s,refuse=5s.")
]
Nodes = Annotated[int, option("Use N identical machines instead of the trace's or the configuration's.", min=0, max=1_000_000)]
Sizes = Annotated[str, option("Numbers of identical machines, separated by commas; 0: the trace's.")]
OneNode = Annotated[str, option("Capacity of each of --nodes. Default: cpu=12,memory=48GiB.")]
History = Annotated[str, option("Half-life of past usage, such as 7d, or none. Default: that of --config, or 1d.")]
Histories = Annotated[str, option("Half-lives of past usage, such as 1d,none. Default: that of --config, or 1d.")]
Speed = Annotated[float, option("Multiply the arrival rate of jobs.", min=1e-6, max=1e6)]
Speeds = Annotated[str, option("Multipliers of the arrival rate, separated by commas.")]
Scale = Annotated[float, option("Multiply the number of jobs.", min=1e-6, max=1000)]
Scales = Annotated[str, option("Multipliers of the number of jobs, separated by commas.")]
Tables = Annotated[Path | None, option("Write jobs.parquet and moments.parquet into this folder.")]
Results = Annotated[Path, option("Folder for the results; existing ones are not computed again.")]
Engine = Annotated[
    Literal["local", "ray"],
    option("Where to run: on all cores of this machine (local), or in the Ray cluster of RAY_ADDRESS (ray)."),
]
Workers = Annotated[int | None, option("Processes on this machine.", min=1, max=1024)]
Policies = Annotated[list[str], of_policies(SIMULATED, values.all_policies)]
SweptPolicies = Annotated[
    list[str], of_policies("One or more, separated by commas. Default: as configured, or drf.", values.all_policies)
]


def simulate(
    trace: Trace, policy: Policies = [], kind: Format = None, columns: Columns = None, nodes: Nodes = 0,  # noqa: B006
    node: OneNode = "", config: Config = None, changes: Set = None, history: History = "", revoke: Revoke = "",
    offers: Offers = "", framework: Framework = "", speed: Speed = 1.0, scale: Scale = 1.0, start: From = "", end: To = "",
    warm_up: WarmUp = "", seed: Seeds = "0", skip_bad: SkipBad = False, out: Tables = None, report: Report = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Replay a trace and compare policies.

    The real scheduler code runs on a virtual clock; no scheduler needs to be running.

    Example: fairlead simulate FB-2010.tsv --nodes 400 --policy drf,slots --report out.html
    """
    asked = SimpleNamespace(**locals())
    from fairlead.cli.simulate import run_simulations

    run_simulations(asked)


def sweep(
    trace: Trace, out: Results, policy: SweptPolicies = [], kind: Format = None, columns: Columns = None, scale: Scales = "1",  # noqa: B006
    nodes: Sizes = "0", node: OneNode = "", config: Configs = "", changes: Set = None, speed: Speeds = "1",
    history: Histories = "", seed: Seeds = "0", revoke: Revoke = "", offers: Offers = "", framework: Framework = "",
    start: From = "", end: To = "", warm_up: WarmUp = "", skip_bad: SkipBad = False, engine: Engine = "local",
    workers: Workers = None, report: Report = None, as_json: Json = False,
) -> None:  # fmt: skip
    """Simulate a grid: policies x configurations x loads x machines x seeds. A sweep that was killed resumes where it stopped.

    Example: fairlead sweep FB-2010.tsv --policy drf,slots --nodes 100,200,400 --scale 1,2 --out results
    """
    asked = SimpleNamespace(**locals())
    from fairlead.cli.simulate import run_sweep

    run_sweep(asked)
