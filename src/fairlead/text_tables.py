"""Tables as text: what Rich prints, without colour and without spaces at the ends of lines."""

from collections.abc import Sequence
from typing import Any


def new_table(*columns: str) -> Any:
    """A table with these columns; one whose name begins with ``>`` is flush right."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    for name in columns:
        table.add_column(name.removeprefix(">"), justify="right" if name.startswith(">") else "left", no_wrap=True)
    return table


def listed(names: Sequence[str], most: int = 3) -> str:
    """Names for a sentence: ``a, b and c``, or ``a, b, c and 7 more``."""
    shown = [*names[:most], *([f"{len(names) - most} more"] if len(names) > most else [])]
    return " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))


def printed(*parts: Any, width: int) -> str:
    """What Rich prints of tables and lines."""
    from rich.console import Console

    console = Console(width=width, highlight=False, color_system=None)
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())
