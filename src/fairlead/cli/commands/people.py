"""The commands about people: tokens for those who call from elsewhere, who did what, and the service for all of a machine."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli import option_values as values
from fairlead.cli.commands.options import Json
from fairlead.cli.failure import Failure
from fairlead.cli.scheduler import connect, print_json
from fairlead.plain_text import plain

token = typer.Typer(
    no_args_is_help=True, help="Tokens: how people who call from elsewhere are known.", rich_markup_mode=None
)
service = typer.Typer(
    no_args_is_help=True,
    help="The scheduler of a whole machine, as a service of systemd's.",
    rich_markup_mode=None,
)

UNIT = Path("/etc/systemd/system/fairlead.service")


@token.command("new")
def new_token(
    user: Annotated[
        str | None, typer.Option(help="Whose it is. Default: yours; another person's is made by root.")
    ] = None,
    expires: Annotated[str | None, typer.Option(help="After so long: 12h, 90d. Default: never.")] = None,
    queue: Annotated[
        list[str],
        typer.Option(
            "--queue",
            "-q",
            help="For this queue only, and those below it; repeat for more.",
            autocompletion=values.queues,
        ),
    ] = [],  # noqa: B006
    read_only: Annotated[bool, typer.Option("--read-only", help="To look only.")] = False,
    as_json: Json = False,
) -> None:
    """Make a token, and print it.

    It is printed this once, for only a hash of it is kept.

    Example: fairlead token new --user alice --expires 90d
    """
    from fairlead.model.quantity import parse_seconds

    try:
        seconds = None if expires is None else parse_seconds(expires)
    except ValueError as error:
        raise Failure(f"--expires {error}") from None
    body = {"user": user, "seconds": seconds, "queues": queue or None, "read_only": read_only}
    with connect() as connection:
        made = connection.post("/v1/tokens", body)
    print_json(made) if as_json else print(made["token"])


@token.command("list")
def list_tokens(as_json: Json = False) -> None:
    """Show your tokens, but not the secret in them. Root is shown everybody's."""
    from fairlead.cli.tables import show, token_table

    with connect() as connection:
        found = connection.get("/v1/tokens")
    print_json(found) if as_json else show(
        token_table(found["tokens"]), "no tokens: make one with `fairlead token new`"
    )


@token.command("revoke")
def revoke_token(
    number: Annotated[str, typer.Argument(help="The token's id, as `fairlead token list` shows it.", metavar="ID")],
) -> None:
    """Have a token be one no more, from now on."""
    if not number.isalnum():
        raise Failure(f"{number!r} is no id of a token: `fairlead token list` shows them")
    with connect() as connection:
        connection.delete(f"/v1/tokens/{number}")
    print(f"token {number} is revoked")


def log(
    user: Annotated[str | None, typer.Option("--user", "-u", help="What this person did.")] = None,
    queue: Annotated[
        str | None,
        typer.Option("--queue", "-q", help="About this queue and those below it.", autocompletion=values.queues),
    ] = None,
    since: Annotated[str | None, typer.Option(help="In the last so long: 30min, 2h, 7d.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="So many at most, the newest.", min=1, max=10_000)] = 100,
    as_json: Json = False,
) -> None:
    """Show who did what, the newest last. What somebody was refused is there as well.

    Everybody sees what they did themselves, and what others did to their jobs; operators see all.
    """
    import time

    from fairlead.cli.tables import log_table, show
    from fairlead.model.quantity import parse_seconds

    try:
        began = 0.0 if since is None else max(0.0, time.time() - parse_seconds(since))
    except ValueError as error:
        raise Failure(f"--since {error}") from None
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
    config: Annotated[Path, typer.Option(help="fairlead.toml of the service.")] = Path("/etc/fairlead.toml"),
    listen: Annotated[str | None, typer.Option(help="As for `fairlead up`.", metavar="HOST:PORT")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="As for `fairlead up`.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="As for `fairlead up`.")] = None,
    name: Annotated[list[str], typer.Option(help="As for `fairlead up`; repeat for more.")] = [],  # noqa: B006
) -> None:
    """Install the systemd unit, and start it; as root.

    It is of a scheduler for all of this machine, and started anew where it runs. What `fairlead up` would refuse is refused
    before anything is written. Tasks that run go on. Where there is no systemd, print the unit and what to do.
    """
    from fairlead.cli.systemd import install_unit
    from fairlead.cli.up import Asked

    install_unit(UNIT, Asked(config, listen=listen, tls_cert=tls_cert, tls_key=tls_key, names=name, system=True))


@service.command("remove")
def remove() -> None:
    """Stop and remove the service. Its data in /var/lib/fairlead stays."""
    from fairlead.cli.systemd import remove_unit

    remove_unit(UNIT)
