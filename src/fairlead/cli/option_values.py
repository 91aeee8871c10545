"""What options and arguments take: numbers as they are written here, and what a shell offers for them.

A shell offers files where it is told nothing. So there is a blank where a value is a number or a name, which the completion
that is installed for bash takes for that, and other shells for what it is.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo, ParameterInfo

Offer = Callable[[typer.Context, str], list[str]]

QUICK = 2.0
"""Seconds that somebody who presses a key waits for a scheduler."""
MOST_OFFERED = 100
"""Jobs, the newest."""
FILES = ("FILE", "COMMAND")
"""What stands in the name of a value that may be a file."""
KINDS = {int: "N", float: "NUMBER", Path: "FILE", str: "", list[str]: ""}
"""What a value is called by its kind; where nothing stands, as its option."""
NAMES = {
    **dict.fromkeys(("home", "cwd", "out"), "FOLDER"),
    **dict.fromkeys(("cpu", "memory", "gpu"), "QUANTITY"),
    **dict.fromkeys(
        ("time_limit", "grace", "timeout", "since", "expires", "over", "starved_after", "start", "end", "history"),
        "TIME",
    ),
    **dict.fromkeys(("policy",), "POLICIES"),
    "drop_node": "NODE",
    "tls_cert": "FILE",
    "by": "user|queue",
    "placement": "first|best|worst",
    "kind": "FORMAT",
    "node": "NAME=QUANTITY,...",
    "offers": "QUEUES",
    "framework": "KEY=VALUE,...",
    "revoke": "on|off|on,off",
    "engine": "local|ray",
    "scale": "NUMBER",
    "nodes": "N",
    "seed": "N",
    "show": "POLICY/PROPERTY",
}
"""What else values are called, by the name of their parameter."""


def settle(app: typer.Typer) -> None:
    """Have each option and argument of all commands read numbers as rows and documents do, say what it takes, and offer no files
    for what is none.
    """
    callbacks = [each.callback for each in app.registered_commands]
    callbacks += [app.registered_callback.callback] if app.registered_callback else []
    for function in callbacks:
        for name, kind in get_type_hints(function, include_extras=True).items():
            if get_origin(kind) is Annotated:
                _settle_one(
                    name, get_args(kind)[0], next(x for x in get_args(kind)[1:] if isinstance(x, ParameterInfo))
                )
    for group in app.registered_groups:
        if group.typer_instance is not None:
            settle(group.typer_instance)


def _settle_one(name: str, kind: Any, info: ParameterInfo) -> None:
    kinds = {each for each in (get_args(kind) or (kind,)) if each is not type(None)}
    if kinds in ({int}, {float}) and info.parser is None:
        info.parser = _reader(next(iter(kinds)), info.min, info.max)
    may_be_file = any(word in (info.metavar or "") for word in FILES)
    if kinds <= {int, float, str, list[str]} and info.autocompletion is None and not may_be_file:
        info.autocompletion = nothing
    if info.metavar is None and isinstance(info, OptionInfo):
        kind = next((each for each in kinds if each in KINDS), None)
        info.metavar = NAMES.get(name, KINDS[kind] or name.upper()) if kind else None


def _reader(kind: type[int] | type[float], least: float | None, most: float | None) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        from fairlead.model.quantity import read_number

        try:
            return read_number(value, kind, least, most) if isinstance(value, str) else value
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return read


def nothing(incomplete: str) -> list[str]:
    """Of a number or a name: no files."""
    return [incomplete or (" " if os.environ.get("_FAIRLEAD_COMPLETE", "").endswith("bash") else "")]


def _that_begin(values: Iterable[str], incomplete: str) -> list[str]:
    """Those that begin with what was typed."""
    return [value for value in values if value.startswith(incomplete)] or nothing(incomplete)


def one_of(*values: str) -> Offer:
    """One of some values."""

    def offer(ctx: typer.Context, incomplete: str) -> list[str]:
        return _that_begin(values, incomplete)

    return offer


def job_statuses(incomplete: str) -> list[str]:
    """What a job can be."""
    from fairlead.model.api_types import JobStatus

    return _that_begin(get_args(JobStatus), incomplete)


def task_statuses(incomplete: str) -> list[str]:
    """What a task can be."""
    from fairlead.model.api_types import TaskStatus

    return _that_begin(get_args(TaskStatus), incomplete)


def some_of(values: Callable[[], Iterable[str]]) -> Offer:
    """Values with commas between."""

    def offer(ctx: typer.Context, incomplete: str) -> list[str]:
        before, comma, _ = incomplete.rpartition(",")
        offered = [f"{before}{comma}{value}" for value in values() if value not in before.split(",")]
        return _that_begin(offered, incomplete)

    return offer


def policies() -> list[str]:
    """Those that divide a problem."""
    from fairlead.policies.registry import policy_names

    return policy_names()


def all_policies() -> list[str]:
    """Those that a simulation takes."""
    from fairlead.policies.registry import ORDERS_ONLY

    return [*policies(), *ORDERS_ONLY, "fifo-strict", "easy"]


def queues(ctx: typer.Context, incomplete: str) -> list[str]:
    """The queues that there are."""
    return _told(ctx, incomplete, "/v1/queues", lambda told: [each["name"] for each in told["queues"]])


def nodes(ctx: typer.Context, incomplete: str) -> list[str]:
    """The nodes that there are."""
    return _told(ctx, incomplete, "/v1/nodes", lambda told: [each["name"] for each in told["nodes"]])


def jobs(ctx: typer.Context, incomplete: str) -> list[str]:
    """The newest jobs."""
    path = f"/v1/jobs?limit={MOST_OFFERED}"
    return _told(ctx, incomplete, path, lambda told: [str(each["id"]) for each in told["jobs"]])


def _told(ctx: typer.Context, incomplete: str, path: str, names: Callable[[Any], list[str]]) -> list[str]:
    """What a scheduler says that there is; nothing where none answers at once, for a key was pressed and no question asked."""
    from fairlead.client.connection import Connection
    from fairlead.client.service_error import ServiceError

    if url := ctx.find_root().params.get("url"):
        os.environ["FAIRLEAD_URL"] = url
    try:
        with Connection(patience=0, timeout=QUICK) as connection:
            found = names(connection.get(path))
    except ServiceError:
        found = []
    return _that_begin(found, incomplete)
