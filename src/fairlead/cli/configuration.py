"""`fairlead import` and `fairlead diff`: convert and compare configuration files."""

import json
import sys
from collections import Counter
from pathlib import Path

import typer

from fairlead.cli.tables import plain_table, show
from fairlead.engines.local.machine import this_machine
from fairlead.imports.imported import Imported
from fairlead.imports.mesos import import_mesos
from fairlead.imports.mesos_state import read_state, without_secrets
from fairlead.imports.yarn import import_yarn
from fairlead.model.documents import read_configuration
from fairlead.model.quantity import round_quantity
from fairlead.plain_text import plain, plain_lines
from fairlead.policies.registry import find_policy
from fairlead.scheduler.reports.fair_shares import Change, share_changes
from fairlead.service.configuration_warnings import configuration_warnings

LEFT_OUT = 3
"""Exit status if a setting has no counterpart."""


def print_yarn(path: Path, site: Path | None) -> None:
    """Print a fairlead.toml converted from YARN's files; exit status 3 if it omits a setting."""
    _print_import(import_yarn(path, site), "the file")


def print_mesos(state: str, roles: Path | None) -> None:
    """Print a fairlead.toml converted from a Mesos master's answers; exit status 3 if it omits a setting."""
    _print_import(import_mesos(read_state(state, roles), without_secrets(state)), "the master")


def _print_import(found: Imported, who: str) -> None:
    print(plain_lines(found.text), end="")
    if found.left_out:
        count = f"{len(found.left_out)} setting{'s' * (len(found.left_out) > 1)}"
        print(f"fairlead: {who}: {count} left out; the first lines list them", file=sys.stderr)
        raise typer.Exit(LEFT_OUT)


def print_diff(old: Path, new: Path, as_json: bool) -> None:
    """Print the queues whose steady fair shares change."""
    before, after = (read_configuration(path, find_policy) for path in (old, new))
    for configuration in (before, after):
        configuration.nodes = configuration.nodes or [this_machine(configuration.system)]
    found = share_changes(before, after)
    has: Counter[str] = Counter()
    for node in after.nodes:
        has.update(node.capacity)
    doubts = configuration_warnings(after, has, None)
    if as_json:
        print(json.dumps({"changes": [change._asdict() for change in found], "doubts": doubts}, indent=2))
        return
    for doubt in doubts:
        print(plain_lines(f"fairlead: {new}: {doubt}"), file=sys.stderr)
    total = {change.resource: change for change in found if change.queue == "/"}
    changed = [change for change in found if change.gained or None in (change.before, change.after)]
    table = plain_table("queue", "resource", ">before", ">after", "")
    last = ""
    for change in changed:
        table.add_row(change.queue if change.queue != last else "", change.resource, *_cells(change, total[change.resource]))
        last = change.queue
    show(table, "nobody gains and nobody loses")
    same = {change.queue for change in found if change.queue != "/"} - {change.queue for change in changed}
    if changed and same:
        print(f"\n{len(same)} other queue{'s' * (len(same) > 1)} would keep {'their' if len(same) > 1 else 'its'} fair shares")


def _cells(change: Change, total: Change) -> list[str]:
    sides = []
    for amount, whole in ((change.before, total.before), (change.after, total.after)):
        part = f" {amount / whole:7.1%}" if amount is not None and whole else ""
        sides.append("" if amount is None else round_quantity(change.resource, amount) + part)
    if change.queue == "/":
        what = "more" if change.gained > 0 else "less"
    elif change.before is None or change.after is None:
        what = "new" if change.before is None else "gone"
    else:
        what = "gains" if change.gained > 0 else "loses"
    return [*map(plain, sides), what]
