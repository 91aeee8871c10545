"""Commands about fairness: compute allocations, and audit allocations and policies."""

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli import option_values as values
from fairlead.cli.commands.options import All, Json, Report, is_given, of_policies, option
from fairlead.cli.scheduler import connect, print_json
from fairlead.failure import Failure


def allocate(
    problem: Annotated[Path, typer.Argument(help="problem.toml or .json: the capacity, and the users with their demands.")],
    policy: Annotated[str, of_policies("One or more, separated by commas; `fairlead policies` lists them.")] = "drf",
    exact: Annotated[bool, option("Compute with exact fractions.", "--exact")] = False,
    discrete: Annotated[bool, option("Allocate whole tasks, one at a time.", "--discrete")] = False,
    placement: Annotated[
        str,
        option(
            "With --discrete and several machines: first, best or worst fit.",
            autocompletion=values.one_of("first", "best", "worst"),
        ),
    ] = "first",
    steps: Annotated[bool, option("With --discrete: show each step.", "--steps")] = False,
    plot: Annotated[Path | None, option("Plot the allocations to this .html file.")] = None,
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
    allocation: Annotated[Path | None, option("Audit this allocation instead: a file with tasks = { A = 3, B = 2 }.")] = None,
    live: Annotated[bool, option("Audit what the scheduler runs now.", "--live")] = False,
    over: Annotated[str, option("Audit a past period, such as 7d: who was wronged over it, and who starved.")] = "",
    journal: Annotated[Path | None, option("With --over: read this journal.db instead of asking the scheduler.")] = None,
    starved_after: Annotated[str, option("With --over: a queue skipped for longer than this starves. Default: 5min.")] = "",
    discrete: Annotated[bool, option("Whole tasks: fair means within one task.", "--discrete")] = False,
    lies: Annotated[int, option("Misreported demands to try for each user.", min=1, max=100_000)] = 200,
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

        if allocation or discrete or is_given(ctx, "policy"):
            raise Failure("--over takes no --policy, --allocation or --discrete: it audits what actually ran")
        audit_over_time(over, journal, starved_after, report, show_all, as_json)
        return
    if journal or starved_after:
        raise Failure("--journal and --starved-after need --over with a period, such as 7d")
    if live and (report or allocation or discrete or is_given(ctx, "policy")):
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


def properties(
    policy: Annotated[str | None, of_policies("One or more. Default: all policies.")] = None,
    cases: Annotated[int, option("Random cases to try for each.", min=1, max=10_000_000)] = 600,
    seed: Annotated[int, option("Random seed; the same seed gives the same cases.", min=0)] = 0,
    zeros: Annotated[bool, option("Include users who need none of some resource.", "--zeros")] = False,
    show: Annotated[str | None, option("Show a counterexample, such as asset/sharing-incentive.")] = None,
    report: Report = None,
    as_json: Json = False,
) -> None:
    """Show which policy has which fairness property.

    It searches for counterexamples, and shows those it finds.

    Example: fairlead properties --policy drf,asset,ceei
    """
    from fairlead.cli.audit import print_properties

    print_properties(policy.split(",") if policy else [], seed, cases, zeros, show, report, as_json)
