"""Tables as text: printed by Rich without colour, trailing spaces or markup."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fairlead.plain_text import plain


class PlainTable(Table):
    """A table whose cells are plain text: no markup, and control characters are escaped."""

    def __init__(self) -> None:
        super().__init__(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)

    def add_row(self, *cells: RenderableType | None, **more: Any) -> None:
        super().add_row(*(_indented(cell) if isinstance(cell, str) else cell for cell in cells), **more)


def _indented(text: str) -> RenderableType:
    """Return a cell; if it wraps, all its lines begin below its first word."""
    bare = text.lstrip(" ")
    return Padding(Text(plain(bare)), (0, 0, 0, len(text) - len(bare))) if bare != text else Text(plain(text))


def new_table(*columns: str) -> PlainTable:
    """Return an empty table; ``>`` before a column's name aligns it right. Names may have several lines."""
    table = PlainTable()
    for name in columns:
        header = Text("\n".join(map(plain, name.removeprefix(">").split("\n"))))
        table.add_column(header, justify="right" if name.startswith(">") else "left", no_wrap=True)
    return table


GAP = 2
"""Terminal columns between two columns of a table."""
LEAST_WRAPPED = 16
"""Least width of a column that may wrap, if its text is that long."""


def folded(
    columns: Mapping[str, Sequence[str]], width: int, keys: int = 1, wraps: Collection[str] = (), ends: Collection[int] = ()
) -> list[PlainTable | str]:
    """Fold a table to a width: its columns are split into parts, printed one below another with an empty line between.

    A part omits the rows that are empty in it.

    columns : cells by name; names are as in :func:`new_table`
    keys : number of leading columns that identify a row; each part repeats them
    wraps : columns whose text may wrap
    ends : rows, counted from 1, that a line follows
    """
    names = list(columns)
    needs = {name: needed_width(name, cells, name in wraps) + GAP for name, cells in columns.items()}
    first = sum(needs[name] for name in names[:keys])
    parts: list[list[str]] = []
    room = 0
    for name in names[keys:]:
        if needs[name] > room:
            parts.append(names[:keys])
            room = width + GAP - first
        parts[-1] = [*parts[-1], name]
        room -= needs[name]
    rows = range(len(columns[names[0]]))
    bare = {number for number in rows if not any(columns[name][number] for name in names[keys:])}
    tables: list[PlainTable | str] = []
    for part in parts:
        table = new_table(*part)
        for column, name in zip(table.columns, part, strict=True):
            if name in wraps:
                column.no_wrap, column.overflow = False, "fold"
        for number in rows:
            if any(columns[name][number] for name in part[keys:]) or number in bare:
                table.add_row(*(columns[name][number] for name in part))
            if number + 1 in ends:
                table.add_section()
        tables += [*([""] if tables else []), table]
    return tables


def needed_width(name: str, cells: Sequence[str], wraps: bool = False) -> int:
    head = max(map(cell_len, name.removeprefix(">").split("\n")))
    longest = max((cell_len(plain(cell)) for cell in cells), default=0)
    return max(head, min(longest, LEAST_WRAPPED) if wraps else longest)


LEAST_NAME = 14
"""Least width to which names are cut."""


def with_names_cut(columns: Mapping[str, Sequence[str]], width: int, wraps: Collection[str] = ()) -> dict[str, Sequence[str]]:
    """Cut the names in the first column so that all columns fit in `width`; for :func:`folded`."""
    first, *others = columns
    rest = sum(needed_width(name, columns[name], name in wraps) + GAP for name in others)
    most = max(LEAST_NAME, width - rest)
    return {**columns, first: [cut_in_the_middle(plain(name), most) for name in columns[first]]}


def cut_in_the_middle(text: str, most: int) -> str:
    """Shorten a text to `most` terminal columns: keep both ends, with ``…`` between."""
    if cell_len(text) <= most:
        return text
    begin, end = len(text) // 2, len(text) // 2
    while cell_len(text[:begin]) + 1 + cell_len(text[end:]) > most:
        begin, end = (begin - 1, end) if cell_len(text[:begin]) >= cell_len(text[end:]) else (begin, end + 1)
    return f"{text[:begin]}…{text[end:]}"


def in_lines(text: str, width: int) -> str:
    """Wrap a sentence to `width` terminal columns; names and commands in backticks are not split."""
    words = re.sub("`[^`]*`", lambda found: found[0].replace(" ", "\0"), text).split(" ")
    lines = [words[0]]
    for word in words[1:]:
        longer = f"{lines[-1]} {word}"
        lines = [*lines, f"  {word}"] if cell_len(longer) > width else [*lines[:-1], longer]
    return "\n".join(lines).replace("\0", " ")


def printed(*parts: Any, width: int) -> str:
    """Return what Rich prints of tables and lines."""
    console = Console(width=width, highlight=False, color_system=None, markup=False, emoji=False)
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())
