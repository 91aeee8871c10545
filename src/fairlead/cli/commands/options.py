"""Options that commands of several files share."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli import option_values as values


def option(text: str, *names: str, **more: Any) -> Any:
    """Declare an option with its help; without names it has that of its parameter."""
    return typer.Option(*names, help=text, **more)


def queue_option(text: str) -> Any:
    """Declare --queue."""
    return option(text, "--queue", "-q", autocompletion=values.queues)


def job_argument(text: str, metavar: str = "JOB") -> Any:
    """Declare the argument that names a job, or jobs."""
    return typer.Argument(help=text, metavar=metavar, autocompletion=values.jobs, show_default=False)


Home = Annotated[Path | None, option("Data folder. Default: $FAIRLEAD_HOME or the user's data folder.")]
Json = Annotated[bool, option("Print JSON instead of a table.", "--json")]
All = Annotated[bool, option("Show all queues, however many share a parent.", "--all")]
Report = Annotated[Path | None, option("Write an HTML report with charts to this file.")]


def is_given(ctx: Any, name: str) -> bool:
    """Return True if an option was given on the command line."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def of_policies(text: str, known: Callable[[], Iterable[str]] = values.policies) -> Any:
    """Declare --policy, which takes names separated by commas; shells offer those of `known`."""
    return option(text, "--policy", "-p", autocompletion=values.some_of(known))
