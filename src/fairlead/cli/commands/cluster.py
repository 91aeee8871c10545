"""Commands about the cluster: start, stop, watch and change the scheduler and its nodes."""

import sys
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fairlead.cli import option_values as values
from fairlead.cli.commands.options import All, Home, Json, option
from fairlead.cli.scheduler import change, connect, print_json, say
from fairlead.failure import Failure, WrongUsage
from fairlead.plain_text import plain

Engines = Literal["local", "ray"]

NodeName = Annotated[str, typer.Argument(help="The node's name, as listed by `fairlead nodes`.", autocompletion=values.nodes)]

Cards = Annotated[
    list[int], option("Only this card of the node, by its number in `fairlead nodes`; repeatable.", "--gpu", metavar="N", min=0)
]

Mesos = Annotated[
    str | None, option("Accept Mesos frameworks at this address. Default port: 5050; 0 picks a free one.", metavar="HOST[:PORT]")
]
MesosPrincipals = Annotated[
    Path | None, option("With --mesos: a file of principals and secrets. Default: identify local processes by their account.")
]
Nodes = Annotated[
    str | None,
    option("Let machines join here, by `fairlead node join`. Default port: 7374; 0 picks a free one.", metavar="HOST[:PORT]"),
]
RayAddress = Annotated[
    str | None,
    option("With --engine ray: Ray's head. Default: RAY_ADDRESS, or the cluster started on this machine.", metavar="HOST:PORT"),
]
LostAfter = Annotated[
    float | None,
    option(
        "With --nodes or --engine ray: end a node's tasks after this many seconds without contact. Default: 30.", min=1, max=86400
    ),
]


def refuse_elsewhere() -> None:
    """Raise Failure on systems other than Linux, whose kernel limits and tracks tasks."""
    if sys.platform != "linux":
        name = {"darwin": "macOS"}.get(sys.platform, sys.platform)
        raise Failure(f"schedulers and nodes run on Linux, and this is {name}: use a scheduler elsewhere, by FAIRLEAD_URL")


def up(
    config: Annotated[Path | None, option("fairlead.toml: the queues, and the nodes. Default node: this machine.")] = None,
    home: Home = None,
    system: Annotated[bool, option("Serve every account on this machine; needs root.", "--system")] = False,
    socket: Annotated[
        Path | None,
        option("Unix socket to listen on. Default: `socket` in the data folder; with --system, /run/fairlead/socket."),
    ] = None,
    port: Annotated[int | None, option("Also listen on this port of 127.0.0.1; 0 picks a free one.", min=0, max=65535)] = None,
    listen: Annotated[str | None, option("Also listen here, for remote users.", metavar="HOST:PORT")] = None,
    tls_cert: Annotated[Path | None, option("With --listen: the TLS certificate (PEM).")] = None,
    tls_key: Annotated[Path | None, option("With --listen: the certificate's key, if in another file.")] = None,
    insecure: Annotated[
        bool, option("With --listen: allow plain HTTP, which others on the network can read.", "--insecure")
    ] = False,
    name: Annotated[list[str], option("With --listen: another host name of this machine; repeatable.")] = [],  # noqa: B006
    nodes: Nodes = None,
    mesos: Mesos = None,
    mesos_principals: MesosPrincipals = None,
    drop_node: Annotated[
        list[str], option("Drop a node that is gone or was renamed; its tasks start again elsewhere. Repeatable.")
    ] = [],  # noqa: B006
    engine: Annotated[Engines, option("Where tasks run: on local nodes or in a Ray cluster.")] = "local",
    ray_address: RayAddress = None,
    lost_after: LostAfter = None,
) -> None:
    """Start the scheduler, in the foreground.

    Without --system it serves only you. Ctrl-C stops it and its running tasks, which start again with the next `up`. If the
    scheduler is killed instead, the tasks run on, and the next `up` adopts them.
    """
    refuse_elsewhere()
    from fairlead.data_folder import SYSTEM_SOCKET, home_folder, socket_of, starting

    where = socket or (SYSTEM_SOCKET if system else socket_of(home or home_folder()))
    with starting(where.absolute(), system) as started:
        from fairlead.cli.up import UpOptions, run_scheduler  # most of the start-up time

        options = UpOptions(
            config, home, system, socket, port, listen, tls_cert, tls_key, insecure, name, drop_node, engine, ray_address,
            lost_after, mesos, mesos_principals, nodes,
        )  # fmt: skip
        run_scheduler(options, started)


def doctor(
    context: typer.Context,
    home: Home = None,
    system: Annotated[bool, option("Check the machine-wide scheduler.", "--system")] = False,
    as_json: Json = False,
) -> None:
    """Check the scheduler and this machine, and suggest remedies.

    Changes nothing. It checks versions, the data folder, the journal, the scheduler and its supervisor, cgroups, the disk,
    clocks and limits. It reads the whole journal, which takes a while for a large one. Exit status 1 if something is wrong.
    """
    from fairlead.cli.doctor import print_findings

    if context.parent is not None and context.parent.params.get("url"):
        raise WrongUsage("doctor checks a data folder of this machine: name it with --home, or --system, instead of --url")
    print_findings(home, system, as_json)


def drain(node: NodeName, gpu: Cards = []) -> None:  # noqa: B006
    """Let a node, or some of its cards, finish their tasks and take no new ones."""
    change(f"/v1/nodes/{node}/drain", f"{_subject(node, gpu)} no new tasks", "", {"gpus": gpu} if gpu else {})


def resume(node: NodeName, gpu: Cards = []) -> None:  # noqa: B006
    """Let a drained node, or drained cards of it, take tasks again."""
    change(f"/v1/nodes/{node}/resume", f"{_subject(node, gpu)} tasks again", "", {"gpus": gpu} if gpu else {})


def _subject(node: str, cards: list[int]) -> str:
    """Begin a sentence about a node, or some of its cards."""
    if not cards:
        return f"node {node} takes"
    several = len(cards) > 1
    return f"card{'s' * several} {', '.join(map(str, cards))} of node {node} take{'s' * (not several)}"


def forget(node: NodeName) -> None:
    """Forget a lost node. If it returns, it is listed again."""
    change(f"/v1/nodes/{node}/forget", f"node {node} is forgotten", "")


def reload() -> None:
    """Reload the scheduler's configuration file. A file with an error changes nothing.

    Queues, settings, and the capacity and labels of nodes change. What runs on a node that shrinks goes on. What takes a restart
    is reported, with exit status 1.
    """
    with connect() as connection:
        done = connection.post("/v1/reload", {})
    not_taken = done.get("not_taken", [])  # a scheduler of an older version reports none
    for doubt in [*done["doubts"], *not_taken]:
        say(doubt)
    same = "the configuration has not changed" + "; accounts and groups are looked up again" * done["looked_up"]
    if not_taken:
        print("the rest of the configuration is in force")
        raise typer.Exit(1)
    print("the configuration is in force" if done["changed"] else same)


def queues(
    shares: Annotated[bool, option("Show each queue's fair shares instead.", "--shares")] = False,
    show_all: All = False,
    as_json: Json = False,
) -> None:
    """Show the queues: usage, shares and limits. The share is the dominant share; guarantees are shown too."""
    from fairlead.cli.tables import WITHOUT_TERMINAL, fewer, most_leaves, queue_table, share_table, show
    from fairlead.cli.terminal import width

    with connect() as connection:
        found = connection.get("/v1/queues")
    if as_json:
        print_json(found)
        return
    shown, more = fewer(found["queues"], most_leaves(show_all))
    show(share_table(shown) if shares else queue_table(shown, width(WITHOUT_TERMINAL)), "")
    print(*more, sep="\n", end="\n" * bool(more))


def nodes(as_json: Json = False) -> None:
    """Show the nodes: capacity and usage."""
    from fairlead.cli.tables import node_table, show

    with connect() as connection:
        found = connection.get("/v1/nodes")
    print_json(found) if as_json else show(node_table(found["nodes"]), "no nodes yet")


def frameworks(as_json: Json = False) -> None:
    """Show the frameworks that take offers. For each: what it uses, what it is offered, and what it waits for."""
    from fairlead.cli.tables import framework_table, show

    with connect() as connection:
        found = connection.get("/v1/frameworks")
    if as_json:
        print_json(found)
        return
    show(framework_table(found["frameworks"]), "no frameworks: `fairlead up --mesos HOST:PORT` lets them connect")
    for each in found["frameworks"]:
        print(f"{plain(each['name'])} {each['id']}: {plain(each['text'])}")


def usage(
    by: Annotated[
        list[str],
        option(
            "Group by user, queue, job, day or week; several with commas.",
            autocompletion=values.some_of(lambda: ("user", "queue", "job", "day", "week")),
        ),
    ] = ["user"],  # noqa: B006
    since: Annotated[str, option("How far back to count, or a date: 12h, 7d, 2026-11-01.")] = "7d",
    until: Annotated[str | None, option("The end: a date, or how long ago. Default: now.")] = None,
    as_csv: Annotated[bool, option("Print CSV instead of a table.", "--csv")] = False,
    as_json: Json = False,
) -> None:
    """Report resource usage by user, queue, job, day or week.

    Columns: requested resources times hours, CPU hours actually used, and work that was lost. By queue also the part of the
    cluster that it was entitled to, and had.

    Example: fairlead usage --by queue --since 30d --csv
    """
    from fairlead.cli.usage import print_usage

    print_usage(",".join(by), since, until, as_csv, as_json)


def top(
    interval: Annotated[float, option("Seconds between updates.", min=0.1, max=3600)] = 1.0,
    once: Annotated[bool, option("Print the screen once and exit.", "--once")] = False,
) -> None:
    """Watch the cluster on a full screen.

    It shows usage, the queues with their shares over time, and the jobs. The bottom line lists the keys; `q` quits.
    """
    from fairlead.cli.top import run_top

    with connect() as connection:
        run_top(connection, interval, once)


def page(
    print_: Annotated[
        bool, option("Print the address, and a code to type there, instead of opening a browser.", "--print")
    ] = False,
) -> None:
    """Open the scheduler's page in a browser, signed in as you.

    The code is good for one browser, within a minute.
    """
    from fairlead.cli.page import open_page

    open_page(print_)


def _silent_nodes(nodes: list[dict[str, Any]], now: bool) -> str:
    """Name the silent nodes that run tasks, and what stopping does about them; empty if there are none."""
    # A scheduler of an older version reports no `silent`.
    silent = [node["name"] for node in nodes if node.get("silent") is not None and node["tasks"]]
    if not silent:
        return ""
    how = "not waiting for them" if now else "`fairlead down --now` does not wait for them"
    return f"no contact with {', '.join(silent)}; {how}"


def down(now: Annotated[bool, option("Stop running tasks; they start again with the next `up`.", "--now")] = False) -> None:
    """Stop the scheduler after its running tasks have ended. Pending tasks are kept for the next `up`."""
    from fairlead.client.connection import RETRY_SECONDS
    from fairlead.client.service_error import ServiceError

    with connect() as connection:
        status = connection.get("/v1/status")
        silent = _silent_nodes(connection.get("/v1/nodes")["nodes"], now)
        if now and silent:  # print it first: the scheduler may be gone at once
            print(silent, file=sys.stderr)
        connection.post("/v1/down", {"now": now})
        connection.retry_seconds = 0  # it stops on request, so it does not come back
        printed = ""
        while True:
            try:
                seen = connection.get("/v1/status")
                nodes = connection.get("/v1/nodes")["nodes"] if seen["running"] else []
            except ServiceError:
                break
            if seen["pid"] != status["pid"]:
                break
            status, running = seen, seen["running"]
            why = status["stalled"] if status.get("stalled_for") else _silent_nodes(nodes, now)
            waiting = f"waiting for {running} task{'s' if running != 1 else ''} to end" + f": {why}" * bool(why)
            if running and waiting != printed:
                printed = waiting
                print(printed, file=sys.stderr)
            time.sleep(0.1)
        until = time.monotonic() + RETRY_SECONDS
        socket = connection.address.socket
        while socket is not None and socket.exists() and time.monotonic() < until:
            time.sleep(0.05)  # it no longer answers but is still closing, which would stop the next `up`
    goes_on = status["running"] and status.get("stalled_for")
    print("the scheduler is down" + "; running tasks go on, and the next `fairlead up` adopts them" * bool(goes_on))
