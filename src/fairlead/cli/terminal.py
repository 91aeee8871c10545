"""Progress bars, the width of the terminal, and sentences broken to it."""

import os
import sys

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

from fairlead.plain_text import plain
from fairlead.text_tables import in_lines


def progress(count: ProgressColumn) -> Progress:
    """Return progress bars on standard error, shown if it is a terminal; `count` shows the progress of each."""
    console = Console(file=sys.stderr)
    columns = (TextColumn("{task.description}"), BarColumn(), count, TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def width(without: int = 100) -> int:
    """Return the columns of the terminal, or `COLUMNS`; `without` if standard output is not a terminal."""
    return Console().width if sys.stdout.isatty() or "COLUMNS" in os.environ else without


def print_sentence(sentence: str) -> None:
    """Print a sentence with untrusted text, escaped; broken between words on a terminal, otherwise as one line."""
    columns = width(0)
    print(in_lines(plain(sentence), columns) if columns else plain(sentence))
