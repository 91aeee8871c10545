"""Options that commands about different things have in common."""

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
All = Annotated[bool, typer.Option("--all", help="Show all, however many there are in one queue.")]
Report = Annotated[Path | None, typer.Option(help="Write a page with pictures into this .html file.")]
