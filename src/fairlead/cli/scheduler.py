"""Connects commands to the scheduler, and prints plain answers."""

import json
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from fairlead.cli.job_options import seconds
from fairlead.failure import WrongUsage, failing
from fairlead.plain_text import plain

if TYPE_CHECKING:
    from fairlead.client.connection import Connection


def connect(timeout: float | None = None) -> "Connection":
    """Connect to the scheduler; `timeout` bounds each answer, in seconds."""
    from fairlead.client.connection import RETRY_SECONDS, TIMEOUT_SECONDS, Connection

    with failing("", WrongUsage):  # of the environment, not of the command line
        wait = seconds("FAIRLEAD_WAIT", os.environ.get("FAIRLEAD_WAIT") or None)
    retry_seconds = RETRY_SECONDS if wait is None else wait
    say = partial(print, "fairlead: the scheduler is starting", file=sys.stderr)
    return Connection(None, retry_seconds, TIMEOUT_SECONDS if timeout is None else timeout, say)


def change(path: str, done: str, nothing: str, what: dict[str, Any] | None = None) -> None:
    """Post a change, with `what` it asks for; print `done`, or `nothing` if there was nothing to change."""
    with connect() as connection:
        print(plain(done if connection.post(path, what or {})["changed"] else nothing))


def say(text: str | None) -> None:
    """Print a line on standard error, with control characters escaped; nothing if there is no text."""
    if text:
        print(f"fairlead: {plain(text)}", file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))
