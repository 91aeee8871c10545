"""How a command fails: with one line on standard error and exit status 1."""

from pathlib import Path


class Failure(Exception):
    """Ends a command with one line on standard error."""


def write_page(path: Path, body: str) -> None:
    """Write a page; a Failure where that cannot be."""
    try:
        path.write_text(body, "utf-8")
    except OSError as error:
        raise Failure(f"{path}: cannot be written: {error.strerror}") from None
