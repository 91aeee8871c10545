"""Commands about fairness: compute allocations, and audit allocations and policies."""

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli import option_values as values
from fairlead.cli.commands.options import All, Json, Report, of_policies
from fairlead.cli.failure import Failure
from fairlead.cli.scheduler import connect, print_json


def allocate(
    problem: Annotated[Path, typer.Argument(help="problem.toml or .json: the capacity, and the users with their demands.")],
    policy: Annotated[str, of_policies("One or more, separated by commas; `fairlead policies` lists them.")] = "drf",
    exact: Annotated[bool, typer.Option("--exact", help="Compute with exact fractions.")] = False,
    discrete: Annotated[bool, typer.Option("--discrete", help="Allocate whole tasks, one at a time.")] = False,
    placement: Annotated[
        str,
        typer.Option(
            help="With --discrete and several machines: first, best or worst fit.",
            autocompletion=values.one_of("first", "best", "worst"),
        ),
    ] = "first",
    steps: Annotated[bool, typer.Option("--steps", help="With --discrete: show each step.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Plot the allocations to this .html file.")] = None,
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
    """List the policies."""
    from fairlead.cli.library import print_policies

    print_policies(as_json)


def audit(
    ctx: typer.Context,
    problem: Annotated[Path | None, typer.Argument(help="problem.toml or .json, as for `allocate`.")] = None,
    policy: Annotated[str, of_policies("One or more, separated by commas.")] = "drf",
    allocation: Annotated[
        Path | None, typer.Option(help="Audit this allocation instead: a file with tasks = { A = 3, B = 2 }.")
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Audit what the scheduler runs now.")] = False,
    over: Annotated[str, typer.Option(help="Audit a past period, such as 7d: who was wronged over it, and who starved.")] = "",
    journal: Annotated[
        Path | None, typer.Option(help="With --over: read this journal.db instead of asking the scheduler.")
    ] = None,
    starved_after: Annotated[
        str, typer.Option(help="With --over: a queue skipped for longer than this starves. Default: 5min.")
    ] = "",
    discrete: Annotated[bool, typer.Option("--discrete", help="Whole tasks: fair means within one task.")] = False,
    lies: Annotated[int, typer.Option(help="Misreported demands to try for each user.", min=1, max=100_000)] = 200,
    report: Report = None,
    show_all: All = False,
    as_json: Json = False,
) -> None:
    """Check whether an allocation is fair. If it is not, name who is wronged.

    On a problem, it checks the eight properties of the DRF paper.

    Example: fairlead audit problem.toml --policy drf,ceei
    """
    if (problem is not None) + live + bool(over) != 1:
        raise Failure("audit what? Name a problem file, --live, or --over with a period")
    if over:
        from fairlead.cli.over_time import audit_over_time

        if allocation or discrete or _is_given(ctx, "policy"):
            raise Failure("--over takes no --policy, --allocation or --discrete: it audits what actually ran")
        audit_over_time(over, journal, starved_after, report, show_all, as_json)
        return
    if journal or starved_after:
        raise Failure("--journal and --starved-after need --over with a period, such as 7d")
    if live and (report or allocation or discrete or _is_given(ctx, "policy")):
        raise Failure("--live takes no --policy, --report, --allocation or --discrete: it audits what runs now")
    if live:
        from fairlead.cli.tables import most_leaves, show_fairness

        with connect() as connection:
            found = connection.get("/v1/audit")
        print_json(found) if as_json else show_fairness(found, most_leaves(show_all))
        return
    from fairlead.cli.audit import audit_problem

    assert problem is not None
    audit_problem(problem, policy.split(","), allocation, discrete, lies, report, as_json)


def _is_given(ctx: typer.Context, name: str) -> bool:
    """Return True if an option was given on the command line."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def properties(
    policy: Annotated[str | None, of_policies("One or more. Default: all policies.")] = None,
    cases: Annotated[int, typer.Option(help="Random cases to try for each.", min=1, max=10_000_000)] = 600,
    seed: Annotated[int, typer.Option(help="Random seed; the same seed gives the same cases.", min=0)] = 0,
    zeros: Annotated[bool, typer.Option("--zeros", help="Include users who need none of some resource.")] = False,
    show: Annotated[str | None, typer.Option(help="Show a counterexample, such as asset/sharing-incentive.")] = None,
    report: Report = None,
    as_json: Json = False,
) -> None:
    """Show which policy has which fairness property.

    It searches for counterexamples, and shows those it finds.

    Example: fairlead properties --policy drf,asset,ceei
    """
    from fairlead.cli.audit import print_properties

    print_properties(policy.split(",") if policy else [], seed, cases, zeros, show, report, as_json)
