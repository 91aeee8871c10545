"""How a command fails: with one line on standard error and exit status 1."""

from pathlib import Path


class Failure(Exception):
    """Ends a command with one line on standard error."""


def check_page(option: str, path: Path | None) -> None:
    """A Failure for a page that no browser would open by its name."""
    if path is not None and path.suffix.lower() not in (".html", ".htm"):
        raise Failure(f"{option} {path}: writes a page: name a file that ends in .html")


def write_page(path: Path, body: str) -> None:
    """Write a page; a Failure where that cannot be."""
    try:
        path.write_text(body, "utf-8")
    except OSError as error:
        raise Failure(f"{path}: cannot be written: {error.strerror}") from None
