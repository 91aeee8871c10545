"""The scheduler that commands ask, and its answers as they come."""

import json
from typing import TYPE_CHECKING, Any

from fairlead.plain_text import plain

if TYPE_CHECKING:
    from fairlead.client.connection import Connection


def connect(timeout: float | None = None) -> "Connection":
    """A connection to it; an answer may take so many seconds."""
    from fairlead.client.connection import Connection

    return Connection(timeout=timeout) if timeout is not None else Connection()


def change(path: str, done: str, nothing: str) -> None:
    """Have it change something, and say that this was done, or that there was nothing to do."""
    with connect() as connection:
        print(plain(done if connection.post(path, {})["changed"] else nothing))


def print_json(value: Any) -> None:
    """Print it as JSON, for people to read and for programs."""
    print(json.dumps(value, indent=2))
