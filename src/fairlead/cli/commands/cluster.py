"""The commands about the cluster: to start and stop the scheduler, and to see and change what it runs on."""

import sys
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fairlead.cli import option_values as values
from fairlead.cli.commands.options import All, Json
from fairlead.cli.scheduler import change, connect, print_json
from fairlead.plain_text import plain

Engines = Literal["local", "ray"]

NodeName = Annotated[
    str, typer.Argument(help="The node's name, as `fairlead nodes` shows it.", autocompletion=values.nodes)
]

Mesos = Annotated[
    str | None,
    typer.Option(
        help="Have frameworks connect there as they did to Mesos. The port is 5050 where none is named; 0 for any.",
        metavar="HOST[:PORT]",
    ),
]
MesosPrincipals = Annotated[
    Path | None,
    typer.Option(
        help="With --mesos: the principals with their secrets. Default: each is known by whose process of this machine it is."
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(help="With --engine ray: its head. Default: RAY_ADDRESS, or what runs here.", metavar="HOST:PORT"),
]
TryNodes = Annotated[
    int | None,
    typer.Option("--try", help="With --engine ray: start so many nodes on this machine, to try it.", min=1, max=100),
]
LostAfter = Annotated[
    float,
    typer.Option(
        help="With --engine ray: seconds after which a node that is not heard ends its tasks.", min=1, max=86400
    ),
]


def up(
    config: Annotated[
        Path | None, typer.Option(help="fairlead.toml: queues, and nodes if not this machine as it is.")
    ] = None,
    home: Annotated[
        Path | None, typer.Option(help="Data folder. Default: $FAIRLEAD_HOME or the user's data folder.")
    ] = None,
    system: Annotated[
        bool, typer.Option("--system", help="For everybody who has an account on this machine; as root.")
    ] = False,
    socket: Annotated[
        Path | None,
        typer.Option(
            help="Unix socket to listen on. Default: `socket` in the data folder; with --system /run/fairlead/socket."
        ),
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Listen on this port of 127.0.0.1 as well; 0 for any.", min=0, max=65535)
    ] = None,
    listen: Annotated[
        str | None, typer.Option(help="Listen there as well, for people elsewhere.", metavar="HOST:PORT")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="With --listen: the certificate, as PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="With --listen: its key, if it is in another file.")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="With --listen: without TLS, so that others on the way read everything.")
    ] = False,
    name: Annotated[
        list[str], typer.Option(help="With --listen: a further name that this machine is called by; repeat for more.")
    ] = [],  # noqa: B006
    mesos: Mesos = None,
    mesos_principals: MesosPrincipals = None,
    drop_node: Annotated[
        list[str],
        typer.Option(
            help="A node that is gone, or has another name now: what runs there is stopped, and starts again."
        ),
    ] = [],  # noqa: B006
    engine: Annotated[
        Engines, typer.Option(help="Where tasks run: this machine, or the nodes of a Ray cluster.")
    ] = "local",
    ray_address: RayAddress = None,
    try_: TryNodes = None,
    lost_after: LostAfter = 30.0,
) -> None:
    """Start the scheduler, in the foreground.

    It is yours alone unless --system is given. Ctrl-C stops it and the tasks that run; they go back to their jobs and start
    again with the next `up`. Should the scheduler be killed instead, the tasks run on, and the next `up` adopts them.
    """
    from fairlead.data_folder import SYSTEM_SOCKET, home_folder, socket_of, starting

    where = socket or (SYSTEM_SOCKET if system else socket_of(home or home_folder()))
    with starting(where.absolute(), system) as started:
        from fairlead.cli.up import Asked, run_scheduler  # which takes most of the time until it answers

        asked = Asked(config, home, system, socket, port, listen, tls_cert, tls_key, insecure, name, drop_node)
        asked = asked._replace(engine=engine, ray_address=ray_address, try_nodes=try_, lost_after=lost_after)
        run_scheduler(asked._replace(mesos=mesos, mesos_principals=mesos_principals), started)


def doctor(
    home: Annotated[
        Path | None, typer.Option(help="Data folder. Default: $FAIRLEAD_HOME or the user's data folder.")
    ] = None,
    system: Annotated[bool, typer.Option("--system", help="Look at the scheduler for all of this machine.")] = False,
    as_json: Json = False,
) -> None:
    """Say whether all is well here, and if not, what helps.

    Changes nothing. It looks at the versions, the data folder, the journal, the scheduler and its supervisor, cgroups, the
    disk, clocks and limits. The journal is gone through whole, which takes a while for a large one. Exit status 1 if
    something is wrong.
    """
    from fairlead.cli.doctor import see_all

    see_all(home, system, as_json)


def drain(node: NodeName) -> None:
    """Let a node finish what it has and take no more."""
    change(f"/v1/nodes/{node}/drain", f"node {node} takes no more tasks", "")


def resume(node: NodeName) -> None:
    """Let a node take tasks again that was drained."""
    change(f"/v1/nodes/{node}/resume", f"node {node} takes tasks again", "")


def forget(node: NodeName) -> None:
    """Tell no more of a node that is lost. Should it come back, it is there again."""
    change(f"/v1/nodes/{node}/forget", f"node {node} is forgotten", "")


def reload() -> None:
    """Have the scheduler read its configuration again. Queues and settings change; a wrong file is refused whole."""
    with connect() as connection:
        done = connection.post("/v1/reload", {})
    for doubt in done["doubts"]:
        print(f"fairlead: {plain(doubt)}", file=sys.stderr)
    same = "the configuration has not changed" + "; accounts and groups are looked up anew" * done["looked_up"]
    print("the configuration is in force" if done["changed"] else same)


def queues(
    shares: Annotated[bool, typer.Option("--shares", help="Show what each queue should have instead.")] = False,
    show_all: All = False,
    as_json: Json = False,
) -> None:
    """Show the queues: what each uses, its share and limits. Its share is the dominant one, and its guarantee is shown, too."""
    from fairlead.cli.tables import WITHOUT_TERMINAL, fewer, most_of_one, queue_table, share_table, show
    from fairlead.cli.terminal import width

    with connect() as connection:
        found = connection.get("/v1/queues")
    if as_json:
        print_json(found)
        return
    shown, more = fewer(found["queues"], most_of_one(show_all))
    show(share_table(shown) if shares else queue_table(shown, width(WITHOUT_TERMINAL)), "")
    print(*more, sep="\n", end="\n" * bool(more))


def nodes(as_json: Json = False) -> None:
    """Show the nodes: what each has, and what is used of it."""
    from fairlead.cli.tables import node_table, show

    with connect() as connection:
        found = connection.get("/v1/nodes")
    print_json(found) if as_json else show(node_table(found["nodes"]), "no nodes yet")


def frameworks(as_json: Json = False) -> None:
    """Show the frameworks that take offers. What each has, what it is offered, and what it waits for."""
    from fairlead.cli.tables import framework_table, show

    with connect() as connection:
        found = connection.get("/v1/frameworks")
    if as_json:
        print_json(found)
        return
    show(framework_table(found["frameworks"]), "no frameworks: `fairlead up --mesos HOST:PORT` has them connect")
    for each in found["frameworks"]:
        print(f"{plain(each['name'])} {each['id']}: {plain(each['text'])}")


def usage(
    by: Annotated[str, typer.Option(help="user or queue.", autocompletion=values.one_of("user", "queue"))] = "user",
    since: Annotated[str, typer.Option(help="So long ago: 12h, 7d.")] = "7d",
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV instead of a table.")] = False,
    as_json: Json = False,
) -> None:
    """Say who used how much.

    What was asked for times how long, what was really used of it, and what came to nothing.

    Example: fairlead usage --by queue --since 30d --csv
    """
    from fairlead.cli.usage import print_usage

    print_usage(by, since, as_csv, as_json)


def top(
    interval: Annotated[float, typer.Option(help="Seconds between looks.", min=0.1, max=3600)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print the screen once and end.")] = False,
) -> None:
    """Watch the cluster on a full screen.

    It shows what is used, the queues with their shares over time, and the jobs. Keys, shown at the bottom, scroll, sort and
    filter; `q` quits.
    """
    from fairlead.cli.top import run_top

    with connect() as connection:
        run_top(connection, interval, once)


def _unheard(nodes: list[dict[str, Any]], now: bool) -> str:
    """Which nodes that tasks run on are not heard, and whether a scheduler that stops waits for those; empty where all are."""
    # A scheduler of an older version, which somebody ends to start this one, does not say it.
    silent = [node["name"] for node in nodes if node.get("silent") is not None and node["tasks"]]
    if not silent:
        return ""
    how = "which is not waited for" if now else "and `fairlead down --now` does not wait for that"
    return f"nothing is heard of {', '.join(silent)}, {how}"


def down(
    now: Annotated[
        bool, typer.Option("--now", help="Stop the tasks that run; they start again with the next `up`.")
    ] = False,
) -> None:
    """Stop the scheduler, when the tasks that run have ended. Those that wait are kept for the next `up`."""
    from fairlead.client.connection import PATIENCE
    from fairlead.client.service_error import ServiceError

    with connect() as connection:
        status = connection.get("/v1/status")
        unheard = _unheard(connection.get("/v1/nodes")["nodes"], now)
        if now and unheard:  # it may be gone at once
            print(unheard, file=sys.stderr)
        connection.post("/v1/down", {"now": now})
        connection.patience = 0  # it was told to go: it is not on its way back
        told = ""
        while True:
            try:
                seen = connection.get("/v1/status")
                nodes = connection.get("/v1/nodes")["nodes"] if seen["running"] else []
            except ServiceError:
                break
            if seen["pid"] != status["pid"]:
                break
            status, running = seen, seen["running"]
            why = status["stalled"] if status.get("stalled_for") else _unheard(nodes, now)
            waiting = f"waiting for {running} task{'s' if running != 1 else ''} to end" + f": {why}" * bool(why)
            if running and waiting != told:
                told = waiting
                print(told, file=sys.stderr)
            time.sleep(0.1)
        until = time.monotonic() + PATIENCE
        while connection.is_there() and time.monotonic() < until:
            time.sleep(0.05)  # it answers no more, but closes what is open: the next `up` would find it there
    goes_on = status["running"] and status.get("stalled_for")
    print("the scheduler is down" + "; what runs goes on, and is found by the next `fairlead up`" * bool(goes_on))
