"""Commands about configuration files. They need no scheduler."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.commands.options import Json, option
from fairlead.cli.parsing import new_group
from fairlead.cli.scheduler import print_json, say
from fairlead.plain_text import plain, plain_lines

if TYPE_CHECKING:
    from fairlead.imports.imported import Imported
    from fairlead.scheduler.reports.fair_shares import Change

LEFT_OUT = 3
"""Exit status if a setting has no counterpart."""

import_ = new_group("import", "Convert another system's configuration to fairlead.toml.")


@import_.command()
def yarn(
    file: Annotated[Path, typer.Argument(help="YARN's fair-scheduler.xml.")],
    yarn_site: Annotated[Path | None, option("YARN's yarn-site.xml, for its fair-scheduler settings.")] = None,
) -> None:
    """Convert YARN's fair-scheduler.xml to fairlead.toml.

    Each line names its source. Settings without a counterpart are listed at the top, and the exit status is then 3.
    """
    from fairlead.imports.yarn import import_yarn

    _print_import(import_yarn(file, yarn_site), "the file")


@import_.command()
def mesos(
    state: Annotated[
        str,
        option("The master's /state: its URL, such as http://master:5050/state, or a file with its answer.", metavar="URL|FILE"),
    ],
    roles: Annotated[Path | None, option("A file with the answer of /roles, for quota; fetched too if --state is a URL.")] = None,
) -> None:
    """Convert a Mesos master's roles, weights and quota to fairlead.toml.

    Each line names its source. Settings without a counterpart are listed at the top, and the exit status is then 3.

    Example: fairlead import mesos --state http://master.example:5050/state
    """
    from fairlead.imports.mesos import import_mesos
    from fairlead.imports.mesos_state import read_state, without_secrets

    _print_import(import_mesos(read_state(state, roles), without_secrets(state)), "the master")


def diff(
    old: Annotated[Path, typer.Argument(help="The current fairlead.toml.")],
    new: Annotated[Path, typer.Argument(help="The changed fairlead.toml.")],
    as_json: Json = False,
) -> None:
    """Show who gains or loses from a configuration change.

    It compares fair shares of each resource, and changes nothing.

    Example: fairlead diff fairlead.toml new.toml
    """
    from fairlead.cli.tables import plain_table, show
    from fairlead.engines.local.machine import this_machine
    from fairlead.model.documents import read_configuration
    from fairlead.model.quantity import total_of
    from fairlead.policies.registry import find_policy
    from fairlead.scheduler.reports.fair_shares import share_changes
    from fairlead.service.configuration_warnings import configuration_warnings

    before, after = (read_configuration(path, find_policy) for path in (old, new))
    for configuration in (before, after):
        configuration.nodes = configuration.nodes or [this_machine(configuration.system)]
    found = share_changes(before, after)
    doubts = configuration_warnings(after, total_of(node.capacity for node in after.nodes), None)
    if as_json:
        print_json({"changes": [change._asdict() for change in found], "doubts": doubts})
        return
    for doubt in doubts:
        say(f"{new}: {doubt}")
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


def _cells(change: "Change", total: "Change") -> list[str]:
    from fairlead.model.quantity import round_quantity

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


def _print_import(found: "Imported", who: str) -> None:
    """Print a converted fairlead.toml; exit status 3 if it omits a setting."""
    print(plain_lines(found.text), end="")
    if found.left_out:
        count = f"{len(found.left_out)} setting{'s' * (len(found.left_out) > 1)}"
        say(f"{who}: {count} left out; the first lines list them")
        raise typer.Exit(LEFT_OUT)
