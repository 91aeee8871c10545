"""The commands about configurations as files. They need no scheduler."""

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.commands.options import Json

app = typer.Typer(no_args_is_help=True, help="Make a fairlead.toml from another system's configuration.")


@app.command()
def yarn(
    file: Annotated[Path, typer.Argument(help="YARN's fair-scheduler.xml.")],
    yarn_site: Annotated[
        Path | None, typer.Option(help="Its yarn-site.xml, for what that says of the fair scheduler.")
    ] = None,
) -> None:
    """Print a fairlead.toml that does what YARN did.

    That is YARN's fair scheduler. Each line says where it comes from. What has no counterpart is listed in its first lines,
    and the exit status is 3 then.
    """
    from fairlead.cli.configuration import print_yarn

    print_yarn(file, yarn_site)


@app.command()
def mesos(
    state: Annotated[
        str,
        typer.Option(
            help="The master's /state: its URL, such as http://master:5050/state, or a file with what that said.",
            metavar="URL|FILE",
        ),
    ],
    roles: Annotated[
        Path | None, typer.Option(help="A file with what /roles said, for quota; of a URL it is asked for as well.")
    ] = None,
) -> None:
    """Print a fairlead.toml with what a Mesos master says.

    That is its roles, weights and quota. Each line says where it comes from. What has no counterpart is listed in its first
    lines, and the exit status is 3 then.

    Example: fairlead import mesos --state http://master.example:5050/state
    """
    from fairlead.cli.configuration import print_mesos

    print_mesos(state, roles)


def diff(
    old: Annotated[Path, typer.Argument(help="The fairlead.toml as it is.")],
    new: Annotated[Path, typer.Argument(help="As it would be.")],
    as_json: Json = False,
) -> None:
    """Say who would gain or lose by another configuration.

    It is told in fair shares of each resource. Changes nothing.

    Example: fairlead diff fairlead.toml new.toml
    """
    from fairlead.cli.configuration import print_diff

    print_diff(old, new, as_json)
