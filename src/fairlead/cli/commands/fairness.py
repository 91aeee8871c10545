"""The commands about fairness itself: allocations, and whether they and the policies are fair."""

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli import option_values as values
from fairlead.cli.commands.options import All, Json, Report, of_policies
from fairlead.cli.failure import Failure
from fairlead.cli.scheduler import connect, print_json


def allocate(
    problem: Annotated[Path, typer.Argument(help="problem.toml or .json: capacity, and users with their demands.")],
    policy: Annotated[str, of_policies("One or more, with commas between; `fairlead policies` lists them.")] = "drf",
    exact: Annotated[bool, typer.Option("--exact", help="Compute in fractions, to the last digit.")] = False,
    discrete: Annotated[bool, typer.Option("--discrete", help="Whole tasks only, one after another.")] = False,
    placement: Annotated[
        str,
        typer.Option(
            help="With --discrete, on several machines: first, best or worst fit.",
            autocompletion=values.one_of("first", "best", "worst"),
        ),
    ] = "first",
    steps: Annotated[bool, typer.Option("--steps", help="With --discrete: show each step.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw it into this .html file.")] = None,
    as_json: Json = False,
) -> None:
    """Compute fair allocations of a problem, side by side. Needs no scheduler.

    Example: fairlead allocate problem.toml --policy drf,asset,ceei
    """
    from fairlead.cli.library import print_allocations

    if placement not in ("first", "best", "worst"):
        raise Failure(f"--placement {placement!r}: write first, best or worst")
    print_allocations(problem, policy.split(","), exact, discrete or steps, placement, steps, plot, as_json)


def policies(as_json: Json = False) -> None:
    """List the policies that there are, with a line each."""
    from fairlead.cli.library import print_policies

    print_policies(as_json)


def audit(
    ctx: typer.Context,
    problem: Annotated[Path | None, typer.Argument(help="problem.toml or .json, as for `allocate`.")] = None,
    policy: Annotated[str, of_policies("One or more, with commas between.")] = "drf",
    allocation: Annotated[
        Path | None, typer.Option(help="Check this allocation instead: a file with tasks = { A = 3, B = 2 }.")
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Check what the scheduler runs now.")] = False,
    over: Annotated[
        str, typer.Option(help="Look back on so long a time, such as 7d: who was wronged over it, and who starved.")
    ] = "",
    journal: Annotated[
        Path | None, typer.Option(help="With --over: a scheduler's journal.db, instead of asking the one that runs.")
    ] = None,
    starved_after: Annotated[
        str, typer.Option(help="With --over: who is passed over for longer than this starves. Default: 5min.")
    ] = "",
    discrete: Annotated[bool, typer.Option("--discrete", help="Whole tasks: fair then means within one task.")] = False,
    lies: Annotated[int, typer.Option(help="Lies of each user that are tried.", min=1, max=100_000)] = 200,
    report: Report = None,
    show_all: All = False,
    as_json: Json = False,
) -> None:
    """Say whether it is fair, and if not, who is wronged.

    The eight properties of the DRF paper are checked on a problem.

    Example: fairlead audit problem.toml --policy drf,ceei
    """
    if (problem is not None) + live + bool(over) != 1:
        raise Failure("audit what? Write a problem file, --live, or --over with a time")
    if over:
        from fairlead.cli.over_time import audit_over_time

        if allocation or discrete or _is_given(ctx, "policy"):
            raise Failure("--over takes no --policy, --allocation or --discrete: it looks at what really ran")
        audit_over_time(over, journal, starved_after, report, show_all, as_json)
        return
    if journal or starved_after:
        raise Failure("--journal and --starved-after look back: write --over with a time, such as 7d")
    if live and (report or allocation or discrete or _is_given(ctx, "policy")):
        raise Failure(
            "--live takes no --policy, --report, --allocation or --discrete: it is what runs, and nothing to draw"
        )
    if live:
        from fairlead.cli.tables import most_of_one, show_fairness

        with connect() as connection:
            found = connection.get("/v1/audit")
        print_json(found) if as_json else show_fairness(found, most_of_one(show_all))
        return
    from fairlead.cli.audit import audit_problem

    assert problem is not None
    audit_problem(problem, policy.split(","), allocation, discrete, lies, report, as_json)


def _is_given(ctx: typer.Context, name: str) -> bool:
    """Whether an option stands on the command line."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def properties(
    policy: Annotated[str | None, of_policies("One or more; without, all that there are.")] = None,
    cases: Annotated[int, typer.Option(help="Cases that are tried for each.", min=1, max=10_000_000)] = 600,
    seed: Annotated[int, typer.Option(help="The same seed, the same cases.", min=0)] = 0,
    zeros: Annotated[bool, typer.Option("--zeros", help="Also users who need nothing of some resource.")] = False,
    show: Annotated[str | None, typer.Option(help="Show a counterexample, such as asset/sharing-incentive.")] = None,
    report: Report = None,
    as_json: Json = False,
) -> None:
    """Say which policy has which property.

    Counterexamples are searched for, and those that there are shown.

    Example: fairlead properties --policy drf,asset,ceei
    """
    from fairlead.cli.audit import print_properties

    print_properties(policy.split(",") if policy else [], seed, cases, zeros, show, report, as_json)
