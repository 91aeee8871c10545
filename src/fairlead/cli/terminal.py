"""What commands that compute for a while show of it, and how wide their tables may be."""

import os
import sys

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

from fairlead.plain_text import plain
from fairlead.text_tables import in_lines


def progress(count: ProgressColumn) -> Progress:
    """Bars on standard error with an estimate of the rest, where that is a terminal; `count` says how far each is."""
    console = Console(file=sys.stderr)
    columns = (TextColumn("{task.description}"), BarColumn(), count, TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def width(without: int = 100) -> int:
    """The columns of the terminal, or what `COLUMNS` says; so many where standard output is no terminal."""
    return Console().width if sys.stdout.isatty() or "COLUMNS" in os.environ else without


def say(sentence: str) -> None:
    """Print a sentence that may have others' text in it: on a terminal broken between words, else as one line."""
    columns = width(0)
    print(in_lines(plain(sentence), columns) if columns else plain(sentence))
