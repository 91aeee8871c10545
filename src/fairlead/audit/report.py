"""The findings of an audit as text tables, and as one page with plots."""

import html
from collections.abc import Sequence

import numpy as np
from rich.table import Table

from fairlead.audit.counterexamples import Case, Verdict
from fairlead.audit.findings import PROPERTIES, Finding
from fairlead.audit.given import Given
from fairlead.html_page import framed
from fairlead.policies.allocation import Allocation, draw, number
from fairlead.policies.contract import Division
from fairlead.text_tables import new_table, printed

SIGNS = {True: "✓", False: "✗", None: "–"}
HEADS = (
    "sharing\nincentive", "strategy\nproof", "envy\nfree", "Pareto\nefficient", "single\nresource", "bottle-\nneck",
    "popu-\nlation", "more\nresources",
)  # fmt: skip


def findings_text(found: Sequence[Finding], width: int = 100) -> str:
    rows = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for finding in found:
        rows.add_row(_sign(finding), finding.property, finding.text)
    return printed(rows, width=width)


def _sign(finding: Finding) -> str:
    return " " if finding.property == "gap" else SIGNS[finding.holds]


def verdicts_text(verdicts: Sequence[Verdict], width: int = 100) -> str:
    """Format the table of policies and properties, with the number of trials."""
    rows = new_table("policy", *(f">{head}" for head in HEADS))
    policies = list(dict.fromkeys(v.policy for v in verdicts))
    for policy in policies:
        mine = {v.tested: v for v in verdicts if v.policy == policy}
        rows.add_row(policy, *(_cell(mine[name]) for name in PROPERTIES))
    lines = [printed(rows, width=width), ""]
    cases, lies = sum(v.cases for v in verdicts), sum(v.lies for v in verdicts)
    tried = f"{cases:,} cases, {lies:,} lies, {sum(v.seconds for v in verdicts):.0f} s"
    lines.append(f"✓ n: none found in n cases; ✗: a counterexample. Tried: {tried}.")
    wrong = [v for v in verdicts if v.found is not None]
    if wrong:
        lines.append(f"To see one: fairlead properties --show {wrong[0].name}")
    lines += [f"{v.policy}: {v.tested}: the policy fails: {v.error}" for v in verdicts if v.error]
    return "\n".join(lines)


def _cell(verdict: Verdict) -> str:
    if verdict.error:
        return "failed"
    if verdict.found is not None:
        return "✗"
    return f"✓ {verdict.cases:,}" if verdict.cases else "–"


def counterexample_text(verdict: Verdict) -> str:
    """Format a counterexample: the case, the violation, and the policy's allocations."""
    if verdict.found is None or verdict.case is None:
        lies = f" and {verdict.lies:,} lies" if verdict.lies else ""
        return f"{verdict.name}: none found in {verdict.cases:,} cases{lies}, {verdict.seconds:.1f} s"
    lines = [f"{verdict.name}: {verdict.found.text}.", "", *_case_lines(verdict.case)]
    for found in _allocations(verdict.found):
        lines += ["", found.policy, _shares_text(found)]
    return "\n".join(lines)


def _shares_text(found: Allocation) -> str:
    rows = new_table("user", *(f">{name}" for name in ("tasks", *found.problem.resources, "dominant share")))
    for i, user in enumerate(found.problem.users):
        shares = [f"{share:.1%}" for share in (*found.shares[i], found.dominant_shares[i])]
        rows.add_row(user, number(found.tasks[i]), *shares)
    return printed(rows, width=100)


def _case_lines(case: Case) -> list[str]:
    problem = case.problem()
    lines = ["capacity  " + ", ".join(f"{c} {r}" for r, c in zip(problem.resources, case.capacity, strict=True))]
    for i, name in enumerate(problem.users):
        needs = ", ".join(f"{x} {r}" for r, x in zip(problem.resources, case.demand[i], strict=True))
        more = [f"{case.tasks[i]} tasks" if case.tasks[i] >= 0 else "", f"weight {case.weight[i]}" if case.weight[i] != 1 else ""]
        more.append(f"in queue {case.queues[i]}" if case.queues[i] else "")
        lines.append(", ".join([f"{name} needs  <{needs}> a task", *filter(None, more)]))
    return lines


def _allocations(finding: Finding) -> list[Allocation]:
    """Return the compared allocations, with the same users in the same order."""
    if finding.before is None:
        return []
    if finding.after is None:
        return [_allocation(finding.before, "what it gives", finding.before)]
    first, second = {
        "strategy-proofness": ("truth", f"{finding.user}'s lie"),
        "population-monotonicity": ("before", f"without {finding.other}"),
    }.get(finding.property, ("before", "after"))
    return [_allocation(finding.before, first, finding.before), _allocation(finding.after, second, finding.before)]


def _allocation(given: Given, label: str, like: Given) -> Allocation:
    """Return the middle between the bounds for all users of `like`; a user that left has nothing."""
    middle = dict(zip(given.problem.users, (given.low + given.high) / 2, strict=True))
    problem = given.problem
    if len(problem.users) < len(like.problem.users):
        problem = like.problem
    tasks = np.array([float(middle.get(user, 0)) for user in problem.users])
    stop = np.full(len(tasks), -1, np.int64)
    return Allocation(problem.floats(), label, Division(tasks, stop, np.zeros(len(tasks), np.int64)))


def page(title: str, verdicts: Sequence[Verdict], findings: Sequence[tuple[str, Sequence[Finding]]]) -> str:
    """Make one self-contained page: the tables, and a plot of each violation."""
    parts = [_verdict_rows(verdicts)] if verdicts else []
    for name, found in findings:
        rows = "".join(f"<tr><td>{_sign(f)}</td><td>{f.property}</td><td>{html.escape(f.text)}</td></tr>" for f in found)
        parts.append(f"<h2>{html.escape(name)}</h2><table>{rows}</table>")
    violations = [(v.name, v.found, v.case) for v in verdicts if v.found is not None]
    violations += [(f"{name}/{f.property}", f, None) for name, found in findings for f in found if f.holds is False]
    for name, finding, case in violations:
        parts.append(f'<h2 id="{html.escape(name)}">{html.escape(name)}</h2><p>{html.escape(finding.text)}.</p>')
        if case is not None:
            parts.append("<pre>" + html.escape("\n".join(_case_lines(case))) + "</pre>")
        drawn = _allocations(finding)
        parts += [chart.figure() for chart in draw(drawn)] if drawn else []
    return framed(title, parts)


def _verdict_rows(verdicts: Sequence[Verdict]) -> str:
    rows = []
    for policy in dict.fromkeys(v.policy for v in verdicts):
        mine = {v.tested: v for v in verdicts if v.policy == policy}
        cells = []
        for name in PROPERTIES:
            verdict = mine[name]
            text = html.escape(_cell(verdict))
            cells.append(f'<td><a href="#{html.escape(verdict.name)}">{text}</a></td>' if verdict.found else f"<td>{text}</td>")
        rows.append(f"<tr><th>{html.escape(policy)}</th>{''.join(cells)}</tr>")
    heads = "".join(f"<th>{name}</th>" for name in PROPERTIES)
    return f"<table><tr><th>policy</th>{heads}</tr>{''.join(rows)}</table><p>✓ n: none found in n cases; ✗: a counterexample.</p>"
