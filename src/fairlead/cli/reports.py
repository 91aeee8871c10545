"""HTML reports that commands write, signed with the command that made them."""

import shlex
import sys
from pathlib import Path

import fairlead
from fairlead.failure import WrongUsage, failing
from fairlead.html_page import signed


def made_by() -> dict[str, str]:
    """Return the version and the command line of this program."""
    return {"fairlead": fairlead.__version__, "command": shlex.join(["fairlead", *sys.argv[1:]])}


def check_page(option: str, path: Path | None) -> None:
    """Raise Failure for a report whose name does not end in .html."""
    if path is not None and path.suffix.lower() not in (".html", ".htm"):
        raise WrongUsage(f"{option} {path}: writes HTML: name a file that ends in .html")


def write_page(path: Path, body: str) -> None:
    """Write a report, with the command that made it in its footer. Raises Failure."""
    made = made_by()
    with failing(f"{path}: cannot be written: ", OSError):
        path.write_text(signed(body, f"Made by fairlead {made['fairlead']}: {made['command']}"), "utf-8")
