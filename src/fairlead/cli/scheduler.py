"""The scheduler that commands ask, and its answers as they come."""

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from fairlead.plain_text import plain

if TYPE_CHECKING:
    from fairlead.client.connection import Connection


def connect(timeout: float | None = None) -> "Connection":
    """A connection to it; an answer may take so many seconds."""
    from fairlead.client.connection import PATIENCE, TIMEOUT, Connection

    patience = float(os.environ.get("FAIRLEAD_WAIT", PATIENCE))
    return Connection(None, patience, TIMEOUT if timeout is None else timeout, _say_that_it_starts)


def _say_that_it_starts() -> None:
    print("fairlead: the scheduler is starting", file=sys.stderr)


def change(path: str, done: str, nothing: str) -> None:
    """Have it change something, and say that this was done, or that there was nothing to do."""
    with connect() as connection:
        print(plain(done if connection.post(path, {})["changed"] else nothing))


def print_json(value: Any) -> None:
    """Print it as JSON, for people to read and for programs."""
    print(json.dumps(value, indent=2))
