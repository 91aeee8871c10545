"""Commands about fairness: compute allocations, and audit allocations and policies."""

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from fairlead.cli import option_values as values
from fairlead.cli.commands.options import All, Json, Report, is_given, of_policies, option
from fairlead.cli.parsing import USAGE
from fairlead.cli.scheduler import connect, print_json
from fairlead.failure import Failure, WrongUsage, failing
from fairlead.plain_text import plain_lines

if TYPE_CHECKING:
    from fairlead.model.problems import Problem

MOST_USERS = 2000
"""Users of a problem; the pairwise comparison of more takes hours."""
AUDITED = {
    "--live": ("live", "show_all"),
    "--over": ("over", "journal", "starved_after", "report", "show_all"),
    "--allocation": ("allocation", "discrete", "report"),
    "a problem file": ("policy", "discrete", "lies", "report"),
}
"""What `fairlead audit` audits, and the options that it then has."""


def allocate(
    problem: Annotated[Path, typer.Argument(help="problem.toml or .json: the capacity, and the users with their demands.")],
    policy: Annotated[list[str], of_policies("One or more, separated by commas; `fairlead policies` lists them.")] = ["drf"],  # noqa: B006
    exact: Annotated[bool, option("Compute with exact fractions.", "--exact")] = False,
    discrete: Annotated[bool, option("Allocate whole tasks, one at a time.", "--discrete")] = False,
    placement: Annotated[
        str | None,
        option(
            "With --discrete and several machines: first, best or worst fit. Default: first.",
            autocompletion=values.one_of("first", "best", "worst"),
        ),
    ] = None,
    steps: Annotated[bool, option("With --discrete: show each step.", "--steps")] = False,
    plot: Annotated[Path | None, option("Plot the allocations to this .html file.")] = None,
    as_json: Json = False,
) -> None:
    """Compute fair allocations of a problem, side by side. Needs no scheduler.

    Example: fairlead allocate problem.toml --policy drf,asset,ceei
    """
    from fairlead.cli.reports import check_page, write_page
    from fairlead.cli.terminal import width
    from fairlead.html_page import WIDE, framed, tabled
    from fairlead.model.problems import read_problem
    from fairlead.policies import allocation
    from fairlead.policies.contract import PolicyError
    from fairlead.policies.registry import find_policy

    names = _named(policy)
    if placement not in (None, "first", "best", "worst"):
        raise WrongUsage(f"--placement {placement!r}: write first, best or worst")
    if placement is not None and not (discrete or steps):
        raise WrongUsage("--placement: needs --discrete")
    check_page("--plot", plot)
    found, refused, where = [], [], cast(Any, placement or "first")
    read = read_problem(problem)
    for chosen in map(find_policy, names):
        try:
            found.append(allocation.allocate(read, chosen, exact=exact, discrete=discrete or steps, placement=where))
        except PolicyError as error:
            refused.append(str(error))
    if not found:
        raise Failure("\n".join(refused))
    if as_json:
        results = [each.to_dict() | ({"steps": each.steps_to_list()} if steps else {}) for each in found]
        print_json({"results": results} | ({"refused": refused} if refused else {}))
    else:
        if steps:
            tables = (f"{each.policy}\n{allocation.steps_table(each, width(200))}\n" for each in found)
            print(*map(plain_lines, tables), sep="\n")
        print(plain_lines(allocation.table(found, width(200))))
    if plot is not None:
        parts = [tabled(allocation.table_parts(found, WIDE)), *(chart.figure() for chart in allocation.draw(found))]
        write_page(plot, framed(problem.name, parts))
    if refused:
        raise Failure("\n".join(refused))


def policies(as_json: Json = False) -> None:
    """List the policies."""
    from fairlead.policies.registry import ORDERS_ONLY, find_policy, policy_names, syntax

    samples = {"maxmin": "maxmin:RESOURCE", "slots": "slots:4"}
    rows = []
    for name in [*policy_names(), *ORDERS_ONLY]:
        try:
            summary = find_policy(samples.get(name, name)).summary
        except Exception as error:  # a broken plug-in must not hide the others
            summary = f"cannot be loaded: {error}"
        rows.append({"name": name, "written": syntax(name), "summary": summary})
    if as_json:
        print_json({"policies": rows})
        return
    width = max(len(row["written"]) for row in rows)
    for row in rows:
        print(f"{row['written']:<{width}}  {row['summary']}")


def audit(
    ctx: typer.Context,
    problem: Annotated[Path | None, typer.Argument(help="problem.toml or .json, as for `allocate`.")] = None,
    policy: Annotated[list[str], of_policies("One or more, separated by commas.")] = ["drf"],  # noqa: B006
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
    named = (problem is not None) + live + bool(over)
    if named != 1:
        asked = "one thing at a time:" if named else "what? Name"
        raise USAGE(f"audit {asked} a problem file, --live, or --over with a period")
    what = "--live" if live else "--over" if over else "--allocation" if allocation else "a problem file"
    for param in ctx.command.params:
        if is_given(ctx, param.name or "") and param.name not in ("problem", "as_json", *AUDITED[what]):
            raise WrongUsage(f"{param.opts[0]}: has no effect with {what}: omit it")
    if over:
        from fairlead.cli.over_time import audit_over_time

        audit_over_time(over, journal, starved_after, report, show_all, as_json)
        return
    if live:
        from fairlead.cli.tables import most_leaves, show_fairness

        with connect() as connection:
            found = connection.get("/v1/audit")
        print_json(found) if as_json else show_fairness(found, most_leaves(show_all))
        return
    assert problem is not None
    _audit(problem, _named(policy), allocation, discrete, lies, report, as_json)


def properties(
    policy: Annotated[list[str], of_policies("One or more. Default: all policies.")] = [],  # noqa: B006
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
    from rich.progress import MofNCompleteColumn

    from fairlead.audit.properties import every_policy, search_all, search_one
    from fairlead.audit.report import counterexample_text, page, verdicts_text
    from fairlead.cli.reports import check_page, write_page
    from fairlead.cli.terminal import progress, width
    from fairlead.policies.contract import PolicyError

    check_page("--report", report)
    if show is not None:
        if policy:
            raise WrongUsage("--policy: has no effect with --show, which names its policy: omit one of them")
        whose, _, name = show.rpartition("/")
        if not whose:
            raise WrongUsage(f"--show {show!r}: write POLICY/PROPERTY, such as asset/sharing-incentive")
        with failing("--show: ", PolicyError, to=WrongUsage):
            verdicts = [search_one(whose, name, seed, cases, zeros)]
    else:
        with progress(MofNCompleteColumn()) as bars:
            bar = bars.add_task("searching", total=None)
            chosen = _named(policy) if policy else every_policy()
            verdicts = search_all(chosen, seed, cases, zeros, lambda done, of: bars.update(bar, completed=done, total=of))
    if as_json:
        print_json({"seed": seed, "zeros": zeros, "properties": [v.to_dict() for v in verdicts]})
    elif show is not None:
        print(plain_lines(counterexample_text(verdicts[0])))
    else:
        print(plain_lines(verdicts_text(verdicts, width())))
    if report is not None:
        wrong = [(v.policy, [v.found]) for v in verdicts if v.found] if show else []
        write_page(report, page("Properties of policies", verdicts if show is None else [], wrong))


def _named(policy: list[str]) -> list[str]:
    """Return the names that --policy has. Raises Failure for one that there is not."""
    from fairlead.policies.contract import PolicyError
    from fairlead.policies.registry import find_policy

    names = ",".join(policy).split(",")
    with failing("--policy: ", PolicyError, to=WrongUsage):
        for name in names:
            find_policy(name)
    return names


def _audit(
    problem: Path, policies: list[str], allocation: Path | None, discrete: bool, lies: int, report: Path | None, as_json: bool
) -> None:
    """Check policies, or an allocation, on a problem, and print the findings."""
    from fairlead.audit import audit_allocation, audit_policy
    from fairlead.audit.report import findings_text, page
    from fairlead.cli.reports import check_page, write_page
    from fairlead.cli.terminal import width
    from fairlead.model.problems import read_problem

    check_page("--report", report)
    read = read_problem(problem)
    if len(read.users) > MOST_USERS:
        message = f"{problem}: {len(read.users):,} users: an audit compares all pairs of users, and takes at most {MOST_USERS:,}"
        raise Failure(message)
    if allocation is not None:
        found = [(allocation.name, audit_allocation(read, _read_tasks(allocation, read), discrete=discrete))]
    else:
        found = [(name, audit_policy(read, name, lies=lies, discrete=discrete)) for name in policies]
    if as_json:
        print_json({"results": [{"policy": name, "findings": [f.to_dict() for f in each]} for name, each in found]})
    else:
        print(plain_lines("\n\n".join(f"{name}\n{findings_text(each, width())}" for name, each in found)))
    if report is not None:
        write_page(report, page(f"Audit of {problem.name}", [], found))


def _read_tasks(path: Path, problem: "Problem") -> dict[str, Any]:
    """Read an allocation: the output of `fairlead allocate --json`, or a table `tasks` with a number for each user."""
    from fairlead.model.documents import DocumentError, read_table

    _, raw = read_table(path)
    tasks: Any = raw.get("tasks")
    if tasks is None:
        try:
            tasks = {user["name"]: user["tasks"] for user in raw["results"][0]["users"]}
        except (KeyError, IndexError, TypeError):
            message = "no allocation: use the output of `fairlead allocate --json`, or tasks = { A = 3, B = 2 }"
            raise DocumentError(f"{path}: {message}") from None
    if not isinstance(tasks, dict):
        raise DocumentError(f"{path}: tasks: must be a table of users with numbers, such as {{ A = 3, B = 2 }}")
    unknown = sorted(set(tasks) - set(problem.users))
    missing = [user for user in problem.users if user not in tasks]
    if unknown or missing:
        what = f"the problem has no user {unknown[0]!r}" if unknown else f"user {missing[0]!r} has no number"
        raise DocumentError(f"{path}: tasks: {what}")
    with failing(f"{path}: tasks: ", ValueError, to=DocumentError):
        return {user: _number(user, value) for user, value in tasks.items()}


def _number(user: str, value: Any) -> Any:
    try:
        number = Fraction(value) if isinstance(value, str | int) and not isinstance(value, bool) else value
        if isinstance(number, bool) or not 0 <= number < float("inf"):
            raise ValueError
    except (ValueError, TypeError, ZeroDivisionError):
        raise ValueError(f'{user}: {value!r} is not a number of tasks: write 3, 2.52 or "63/25"') from None
    return number
