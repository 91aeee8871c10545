"""`fairlead allocate` and `fairlead policies`."""

import json
from pathlib import Path
from typing import Any

from fairlead.cli.reports import check_page, write_page
from fairlead.cli.terminal import width
from fairlead.failure import Failure
from fairlead.html_page import WIDE, framed, tabled
from fairlead.model.problems import read_problem
from fairlead.plain_text import plain_lines
from fairlead.policies.allocation import allocate, draw, steps_table, table, table_parts
from fairlead.policies.contract import PolicyError
from fairlead.policies.registry import ORDERS_ONLY, find_policy, policy_names, syntax


def print_allocations(
    path: Path, policies: list[str], exact: bool, discrete: bool, placement: Any, steps: bool, plot: Path | None, as_json: bool
) -> None:
    """Compute and print allocations. Raises Failure."""
    check_page("--plot", plot)
    found, refused = [], []
    problem = read_problem(path)
    chosen = [find_policy(name) for name in policies]
    for policy in chosen:
        try:
            found.append(allocate(problem, policy, exact=exact, discrete=discrete, placement=placement))
        except PolicyError as error:
            refused.append(str(error))
    if not found:
        raise Failure("\n".join(refused))
    if as_json:
        results = [each.to_dict() | ({"steps": each.steps_to_list()} if steps else {}) for each in found]
        print(json.dumps({"results": results} | ({"refused": refused} if refused else {}), indent=2))
    else:
        if steps:
            print(*(plain_lines(f"{each.policy}\n{steps_table(each, width(200))}\n") for each in found), sep="\n")
        print(plain_lines(table(found, width(200))))
    if plot is not None:
        parts = [tabled(table_parts(found, WIDE)), *(chart.figure() for chart in draw(found))]
        write_page(plot, framed(path.name, parts))
    if refused:
        raise Failure("\n".join(refused))


def print_policies(as_json: bool) -> None:
    """Print each policy: how to write it, and what it does."""
    samples = {"maxmin": "maxmin:RESOURCE", "slots": "slots:4"}
    rows = []
    for name in [*policy_names(), *ORDERS_ONLY]:
        try:
            summary = find_policy(samples.get(name, name)).summary
        except Exception as error:  # a broken plug-in must not hide the others
            summary = f"cannot be loaded: {error}"
        rows.append({"name": name, "written": syntax(name), "summary": summary})
    if as_json:
        print(json.dumps({"policies": rows}, indent=2))
        return
    width = max(len(row["written"]) for row in rows)
    for row in rows:
        print(f"{row['written']:<{width}}  {row['summary']}")
