"""Commands about machines that join: tokens for them, and on each of them joining and leaving."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.commands.cluster import refuse_elsewhere
from fairlead.cli.commands.options import Home, option
from fairlead.cli.parsing import new_group
from fairlead.cli.scheduler import connect, say

node = new_group("node", "Let other machines join, and join with this one.")

UNIT = Path("/etc/systemd/system/fairlead-node.service")


@node.command("token")
def token(
    name: Annotated[str | None, option("The name that the node must have. Default: any that is new.")] = None,
    expires: Annotated[str, option("Lifetime: 10min, 1h.")] = "1h",
) -> None:
    """Make a token that one machine may join with, once, and print it.

    On the machine: fairlead node join HOST TOKEN
    """
    from fairlead.cli.job_options import seconds

    with connect() as connection:
        made = connection.post("/v1/nodes/tokens", {"name": name, "seconds": seconds("--expires", expires)})
    print(made["token"])
    say(f"on the machine: fairlead node join {made['address']} TOKEN")


@node.command("join")
def join(
    address: Annotated[str, typer.Argument(help="The scheduler's address for nodes.", metavar="HOST[:PORT]")],
    token: Annotated[str | None, typer.Argument(help="The token, or - to read it. A member needs none.", metavar="TOKEN")] = None,
    name: Annotated[str | None, option("The node's name. Default: the host's.")] = None,
    home: Home = None,
    config: Annotated[Path | None, option("A file whose [[node]] or `system` says what to share. Default: all of it.")] = None,
    any_uid: Annotated[bool, option("Accounts of the same name may have another uid here than there.", "--any-uid")] = False,
    systemd: Annotated[bool, option("Install and start a systemd unit that keeps it a node; needs root.", "--systemd")] = False,
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
