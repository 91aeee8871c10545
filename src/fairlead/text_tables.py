"""Tables as text: what Rich prints, without colour and without spaces at the ends of lines. Names are text, never markup."""

from typing import Any

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from fairlead.plain_text import plain


class PlainTable(Table):
    """A table whose cells are text and nothing else: no markup, and nothing that steers the terminal."""

    def __init__(self) -> None:
        super().__init__(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)

    def add_row(self, *cells: RenderableType | None, **more: Any) -> None:
        super().add_row(*(Text(plain(cell)) if isinstance(cell, str) else cell for cell in cells), **more)


def new_table(*columns: str) -> PlainTable:
    """A table with these columns; one whose name begins with ``>`` is flush right. A name may have several lines."""
    table = PlainTable()
    for name in columns:
        header = Text("\n".join(map(plain, name.removeprefix(">").split("\n"))))
        table.add_column(header, justify="right" if name.startswith(">") else "left", no_wrap=True)
    return table


def printed(*parts: Any, width: int) -> str:
    """What Rich prints of tables and lines."""
    console = Console(width=width, highlight=False, color_system=None, markup=False, emoji=False)
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())
