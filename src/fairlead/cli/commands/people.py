"""Commands about people: tokens for remote users, the audit log, and the machine-wide service."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli.commands.options import Json, option, queue_option
from fairlead.cli.parsing import new_group
from fairlead.cli.scheduler import connect, print_json
from fairlead.failure import WrongUsage
from fairlead.plain_text import plain

token = new_group("token", "Make, list and revoke access tokens for remote users.")
service = new_group("service", "Install or remove the scheduler as a systemd service.")

UNIT = Path("/etc/systemd/system/fairlead.service")


@token.command("new")
def new_token(
    user: Annotated[str | None, option("The token's user. Default: you; only root makes tokens for others.")] = None,
    expires: Annotated[str | None, option("Lifetime: 12h, 90d. Default: no expiry.")] = None,
    queue: Annotated[list[str], queue_option("Restrict it to this queue and those below; repeatable.")] = [],  # noqa: B006
    read_only: Annotated[bool, option("Allow reading only.", "--read-only")] = False,
    as_json: Json = False,
) -> None:
    """Make a token, and print it.

    It is printed only once, because only its hash is stored.

    Example: fairlead token new --user alice --expires 90d
    """
    from fairlead.cli.job_options import seconds

    body = {"user": user, "seconds": seconds("--expires", expires), "queues": queue or None, "read_only": read_only}
    with connect() as connection:
        made = connection.post("/v1/tokens", body)
    print_json(made) if as_json else print(made["token"])


@token.command("list")
def list_tokens(as_json: Json = False) -> None:
    """List your tokens, without their secrets. Root sees everybody's."""
    from fairlead.cli.tables import show, token_table

    with connect() as connection:
        found = connection.get("/v1/tokens")
    print_json(found) if as_json else show(token_table(found["tokens"]), "no tokens: make one with `fairlead token new`")


@token.command("revoke")
def revoke_token(
    number: Annotated[str, typer.Argument(help="The token's id, as listed by `fairlead token list`.", metavar="ID")],
) -> None:
    """Revoke a token at once."""
    if not number.isalnum():
        raise WrongUsage(f"{number!r} is not the number of a token: `fairlead token list` lists them")
    with connect() as connection:
        connection.delete(f"/v1/tokens/{number}")
    print(f"token {number} is revoked")


def log(
    user: Annotated[str | None, option("Only this user's actions.", "--user", "-u")] = None,
    queue: Annotated[str | None, queue_option("Only about this queue and those below.")] = None,
    since: Annotated[str | None, option("How far back: 30min, 2h, 7d.")] = None,
    limit: Annotated[int, option("Show at most N entries, the newest.", "--limit", "-n", min=1, max=10_000)] = 100,
    as_json: Json = False,
) -> None:
    """Show the audit log: who did what, newest last. Refused requests are included.

    You see your own actions and what others did to your jobs; operators see everything.
    """
    import time

    from fairlead.cli.job_options import seconds
    from fairlead.cli.tables import log_table, show

    began = 0.0 if since is None else max(0.0, time.time() - (seconds("--since", since) or 0.0))
    entries: list[dict[str, Any]] = []
    before = None
    with connect() as connection:
        while True:
            left = limit - len(entries)
            page = connection.get("/v1/log", user=user, queue=queue, since=began, before=before, limit=left)
            entries, before = page["log"] + entries, page["next"]
            if before is None or len(entries) >= limit:
                break
    asked = {"--user": user, "--queue": queue, "--since": since}
    named = " ".join(f"{option} {value}" for option, value in asked.items() if value is not None)
    nothing = f"nobody did anything with {plain(named)}" if named else "nobody did anything"
    print_json({"log": entries, "next": before}) if as_json else show(log_table(entries), nothing)


@service.command("install")
def install(
    config: Annotated[Path, option("The service's fairlead.toml.")] = Path("/etc/fairlead.toml"),
    listen: Annotated[str | None, option("As for `fairlead up`.", metavar="HOST:PORT")] = None,
    tls_cert: Annotated[Path | None, option("As for `fairlead up`.")] = None,
    tls_key: Annotated[Path | None, option("As for `fairlead up`.")] = None,
    name: Annotated[list[str], option("As for `fairlead up`; repeatable.")] = [],  # noqa: B006
    nodes: Annotated[str | None, option("As for `fairlead up`.", metavar="HOST[:PORT]")] = None,
) -> None:
    """Install and start the systemd unit; needs root.

    The unit runs the scheduler of the whole machine. If it is running, it is restarted, and its tasks run on. Options that
    `fairlead up` would refuse are refused before anything is written. Without systemd, print the unit and the steps.
    """
    from fairlead.cli.systemd import install_unit
    from fairlead.cli.up import UpOptions

    given = UpOptions(config, listen=listen, tls_cert=tls_cert, tls_key=tls_key, names=name, system=True, nodes=nodes)
    install_unit(UNIT, given)


@service.command("remove")
def remove() -> None:
    """Stop and remove the service. Its data stays in /var/lib/fairlead."""
    from fairlead.cli.systemd import remove_unit

    remove_unit(UNIT)
