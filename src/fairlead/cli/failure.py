"""How a command fails: with one line on standard error and exit status 1."""

import shlex
import sys
from pathlib import Path

import fairlead
from fairlead.html_page import signed


class Failure(Exception):
    """Ends a command with one line on standard error."""


def check_page(option: str, path: Path | None) -> None:
    """A Failure for a page that no browser would open by its name."""
    if path is not None and path.suffix.lower() not in (".html", ".htm"):
        raise Failure(f"{option} {path}: writes a page: name a file that ends in .html")


def write_page(path: Path, body: str) -> None:
    """Write a page, with the command that made it at its end; a Failure where that cannot be."""
    command = shlex.join(["fairlead", *sys.argv[1:]])
    try:
        path.write_text(signed(body, f"Made by fairlead {fairlead.__version__}: {command}"), "utf-8")
    except OSError as error:
        raise Failure(f"{path}: cannot be written: {error.strerror}") from None
