"""Options that commands about different things have in common."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli import option_values as values

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
All = Annotated[bool, typer.Option("--all", help="Show all, however many there are in one queue.")]
Report = Annotated[Path | None, typer.Option(help="Write a page with pictures into this .html file.")]


def of_policies(text: str, known: Callable[[], Iterable[str]] = values.policies) -> Any:
    """The option that takes policies, with commas between; `known` are those that a shell offers."""
    return typer.Option("--policy", "-p", help=text, autocompletion=values.some_of(known))
