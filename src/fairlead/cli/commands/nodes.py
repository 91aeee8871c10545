"""Commands about machines that join: tokens for them, and on each of them joining and leaving."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.commands.cluster import refuse_elsewhere
from fairlead.cli.failure import Failure
from fairlead.cli.parsing import new_group
from fairlead.cli.scheduler import connect
from fairlead.plain_text import plain

node = new_group("node", "Let other machines join, and join with this one.")

UNIT = Path("/etc/systemd/system/fairlead-node.service")

Home = Annotated[Path | None, typer.Option(help="Data folder. Default: $FAIRLEAD_HOME or the user's data folder.")]


@node.command("token")
def token(
    name: Annotated[str, typer.Option(help="The node's name. Default: any new one, by default the host's.")] = "",
    expires: Annotated[str, typer.Option(help="Lifetime: 10min, 1h.")] = "1h",
) -> None:
    """Make a token that one machine may join with, once, and print it.

    On the machine: fairlead node join HOST TOKEN
    """
    from fairlead.model.quantity import parse_seconds

    try:
        seconds = parse_seconds(expires)
    except ValueError as error:
        raise Failure(f"--expires {error}") from None
    with connect() as connection:
        made = connection.post("/v1/nodes/tokens", {"name": name, "seconds": seconds})
    print(made["token"])
    print(f"fairlead: on the machine: fairlead node join {plain(made['address'])} TOKEN", file=sys.stderr)


@node.command("join")
def join(
    address: Annotated[str, typer.Argument(help="Where the scheduler takes nodes.", metavar="HOST[:PORT]")],
    token: Annotated[str | None, typer.Argument(help="The token, or - to read it. A member needs none.", metavar="TOKEN")] = None,
    name: Annotated[str | None, typer.Option(help="The node's name. Default: the host's.")] = None,
    home: Home = None,
    config: Annotated[
        Path | None, typer.Option(help="A file whose [[node]] or `system` says what to share. Default: all of it.")
    ] = None,
    any_uid: Annotated[
        bool, typer.Option("--any-uid", help="Accounts of the same name may have another uid here than there.")
    ] = False,
    systemd: Annotated[
        bool, typer.Option("--systemd", help="Install and start a systemd unit that keeps it a node; needs root.")
    ] = False,
) -> None:
    """Join with this machine: it runs tasks for the scheduler there.

    Runs in the foreground. Ctrl-C ends the tasks here, which start again elsewhere.
    """
    refuse_elsewhere()
    from fairlead.cli import node as joining

    given = sys.stdin.readline().strip() if token == "-" else token  # noqa: S105
    membership = joining.join(address, given, name, home, config, any_uid)
    if systemd:
        from fairlead.cli.systemd import install_node_unit
        from fairlead.engines.local.member import write_membership

        write_membership(joining.folder_of(home) / "supervisor", membership)
        install_node_unit(UNIT, address, home, config, any_uid)
    else:
        joining.keep(membership, home)


@node.command("rotate")
def rotate(home: Home = None) -> None:
    """Give this node a new key instead of its present one.

    Its tasks run on. A node whose certificate has expired joins again with a token instead.
    """
    refuse_elsewhere()
    from fairlead.cli import node as joining

    joining.rotate(home)


@node.command("leave")
def leave(home: Home = None) -> None:
    """Drain this node, wait until its tasks have ended, and leave."""
    from fairlead.cli import node as joining

    joining.leave(home)
    if UNIT.exists():
        from fairlead.cli.systemd import remove_unit

        remove_unit(UNIT)
