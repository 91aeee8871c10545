"""`fairlead allocate` and `fairlead policies`."""

import html
import json
from pathlib import Path
from typing import Any

from fairlead.cli.failure import Failure
from fairlead.cli.reports import check_page, write_page
from fairlead.cli.terminal import width
from fairlead.html_page import framed
from fairlead.model.documents import DocumentError
from fairlead.model.problems import read_problem
from fairlead.plain_text import plain_lines
from fairlead.policies.allocation import allocate, draw, steps_table, table
from fairlead.policies.contract import PolicyError
from fairlead.policies.registry import ORDERS_ONLY, find_policy, policy_names, syntax


def print_allocations(
    path: Path, policies: list[str], exact: bool, discrete: bool, placement: Any, steps: bool, plot: Path | None, as_json: bool
) -> None:
    """Compute and print allocations. Raises Failure."""
    check_page("--plot", plot)
    found, refused = [], []
    try:
        problem = read_problem(path)
        chosen = [find_policy(name) for name in policies]
        for policy in chosen:
            try:
                found.append(allocate(problem, policy, exact=exact, discrete=discrete, placement=placement))
            except PolicyError as error:
                refused.append(str(error))
        if not found:
            raise PolicyError("\n".join(refused))
    except (DocumentError, PolicyError) as error:
        raise Failure(str(error)) from None
    if as_json:
        results = [each.to_dict() | ({"steps": each.steps_to_list()} if steps else {}) for each in found]
        print(json.dumps({"results": results} | ({"refused": refused} if refused else {}), indent=2))
    else:
        if steps:
            print(*(plain_lines(f"{each.policy}\n{steps_table(each, width(200))}\n") for each in found), sep="\n")
        print(plain_lines(table(found, width(200))))
    if plot is not None:
        parts = [f"<pre>{html.escape(table(found, 120))}</pre>", *(chart.figure() for chart in draw(found))]
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
