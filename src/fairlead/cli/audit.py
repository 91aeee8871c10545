"""`fairlead audit` of a problem, and `fairlead properties`."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

from rich.progress import MofNCompleteColumn

from fairlead.audit import audit_allocation, audit_policy
from fairlead.audit.properties import every_policy, search_all, search_one
from fairlead.audit.report import counterexample_text, findings_text, page, verdicts_text
from fairlead.cli.reports import check_page, write_page
from fairlead.cli.terminal import progress, width
from fairlead.failure import Failure
from fairlead.model.documents import DocumentError, read_table
from fairlead.model.problems import Problem, read_problem
from fairlead.plain_text import plain_lines

MOST_USERS = 2000
"""Users of a problem; the pairwise comparison of more takes hours."""


def audit_problem(
    path: Path, policies: list[str], allocation: Path | None, discrete: bool, lies: int, report: Path | None, as_json: bool
) -> None:
    """Check policies, or an allocation, on a problem, and print the findings."""
    check_page("--report", report)
    problem = read_problem(path)
    if len(problem.users) > MOST_USERS:
        raise Failure(
            f"{path}: {len(problem.users):,} users: an audit compares all pairs of users, and takes at most {MOST_USERS:,}"
        )
    if allocation is not None:
        found = [(allocation.name, audit_allocation(problem, _read_tasks(allocation, problem), discrete=discrete))]
    else:
        found = [(name, audit_policy(problem, name, lies=lies, discrete=discrete)) for name in policies]
    if as_json:
        print(
            json.dumps({"results": [{"policy": name, "findings": [f.to_dict() for f in each]} for name, each in found]}, indent=2)
        )
    else:
        print(plain_lines("\n\n".join(f"{name}\n{findings_text(each, width())}" for name, each in found)))
    if report is not None:
        write_page(report, page(f"Audit of {path.name}", [], found))


def _read_tasks(path: Path, problem: Problem) -> dict[str, Any]:
    """Read an allocation: the output of `fairlead allocate --json`, or a table `tasks` with a number for each user."""
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
    return {user: _number(path, user, value) for user, value in tasks.items()}


def _number(path: Path, user: str, value: Any) -> Any:
    try:
        number = Fraction(value) if isinstance(value, str | int) and not isinstance(value, bool) else value
        if isinstance(number, bool) or not 0 <= number < float("inf"):
            raise ValueError
    except (ValueError, TypeError, ZeroDivisionError):
        raise DocumentError(f'{path}: tasks: {user}: {value!r} is not a number of tasks: write 3, 2.52 or "63/25"') from None
    return number


def print_properties(
    policies: list[str], seed: int, cases: int, zeros: bool, show: str | None, report: Path | None, as_json: bool
) -> None:
    """Search for counterexamples, and print the table of properties, or one counterexample."""
    check_page("--report", report)
    if show is not None:
        policy, _, name = show.rpartition("/")
        if not policy:
            raise Failure(f"--show {show!r}: write POLICY/PROPERTY, such as asset/sharing-incentive")
        verdicts = [search_one(policy, name, seed, cases, zeros)]
    else:
        with progress(MofNCompleteColumn()) as bars:
            bar = bars.add_task("searching", total=None)
            verdicts = search_all(
                policies or every_policy(), seed, cases, zeros, lambda done, of: bars.update(bar, completed=done, total=of)
            )
    if as_json:
        print(json.dumps({"seed": seed, "zeros": zeros, "properties": [v.to_dict() for v in verdicts]}, indent=2))
    elif show is not None:
        print(plain_lines(counterexample_text(verdicts[0])))
    else:
        print(plain_lines(verdicts_text(verdicts, width())))
    if report is not None:
        wrong = [(v.policy, [v.found]) for v in verdicts if v.found] if show else []
        write_page(report, page("Properties of policies", verdicts if show is None else [], wrong))
