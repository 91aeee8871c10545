"""Options that commands of several files share."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli import option_values as values

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
All = Annotated[bool, typer.Option("--all", help="Show all queues, however many share a parent.")]
Report = Annotated[Path | None, typer.Option(help="Write an HTML report with charts to this file.")]


def of_policies(text: str, known: Callable[[], Iterable[str]] = values.policies) -> Any:
    """Declare --policy, which takes names separated by commas; shells offer those of `known`."""
    return typer.Option("--policy", "-p", help=text, autocompletion=values.some_of(known))
