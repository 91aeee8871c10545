"""Commands about configuration files. They need no scheduler."""

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.commands.options import Json, option
from fairlead.cli.parsing import new_group

import_ = new_group("import", "Convert another system's configuration to fairlead.toml.")


@import_.command()
def yarn(
    file: Annotated[Path, typer.Argument(help="YARN's fair-scheduler.xml.")],
    yarn_site: Annotated[Path | None, option("YARN's yarn-site.xml, for its fair-scheduler settings.")] = None,
) -> None:
    """Convert YARN's fair-scheduler.xml to fairlead.toml.

    Each line names its source. Settings without a counterpart are listed at the top, and the exit status is then 3.
    """
    from fairlead.cli.configuration import print_yarn

    print_yarn(file, yarn_site)


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
    from fairlead.cli.configuration import print_mesos

    print_mesos(state, roles)


def diff(
    old: Annotated[Path, typer.Argument(help="The current fairlead.toml.")],
    new: Annotated[Path, typer.Argument(help="The changed fairlead.toml.")],
    as_json: Json = False,
) -> None:
    """Show who gains or loses from a configuration change.

    It compares fair shares of each resource, and changes nothing.

    Example: fairlead diff fairlead.toml new.toml
    """
    from fairlead.cli.configuration import print_diff

    print_diff(old, new, as_json)
