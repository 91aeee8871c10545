"""Charts as SVG: lines, stacked areas, points and bars, each with a legend, hints under the pointer, and a table of its numbers.

They need no script. Colours are CSS variables, so one chart serves light and dark pages.
"""

import html
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fairlead.plain_text import moment, plain_lines

F64 = NDArray[np.float64]
WIDTH, TOP, RIGHT, LETTER = 720, 28, 14, 6.6
"""Pixels: of a chart, above and right of the plot, and of one letter."""
HINTS = 48
"""Places along a long chart that show their values under the pointer."""
FEW = 14
"""Values along x up to which the table shows each one; of more it shows a summary."""
_LIGHT = [
    "#2f6db3", "#d9822b", "#3c9a5f", "#c04b4b", "#7a5fb0", "#8a6d52", "#c969a6", "#9a9526", "#3a9fb0", "#4d5591", "#e0a3a3",
    "#8d8d8d",
]  # fmt: skip
_DARK = [
    "#6aa5e8", "#f0a050", "#66c98a", "#e87c7c", "#a991e0", "#bfa081", "#ea96cb", "#cfc955", "#66cbdc", "#8f98dc", "#f4c6c6",
    "#b0b0b0",
]  # fmt: skip
COLOURS = len(_LIGHT)
"""Number of colours of series; the last is grey."""


def _colours(values: Sequence[str]) -> str:
    return ";".join(f"--s{k}:{value}" for k, value in enumerate(values))


STYLE = (
    f":root{{--ink:#1d2126;--faint:#5d646d;--rule:#e6e3dc;--control:#8b8f95;--paper:#fcfbf9;--shade:#f2f0eb;--link:#245a98;"
    f"{_colours(_LIGHT)}}}"
    f"@media(prefers-color-scheme:dark){{:root{{--ink:#e3e5e8;--faint:#9da5ae;--rule:#2d3238;--control:#737a82;"
    f"--paper:#131619;--shade:#1f2429;--link:#86b6ee;{_colours(_DARK)}}}}}"
    + "".join(f".s{k}{{color:var(--s{k})}}" for k in range(COLOURS))
    + ".chart text{font:12px system-ui,sans-serif;fill:var(--ink)}.chart .title{font-weight:600;font-size:13px}"
    ".chart .tick{fill:var(--faint)}.chart .rule{stroke:var(--rule)}.chart .zero{stroke:var(--faint)}"
    ".chart path{vector-effect:non-scaling-stroke}.chart .line{fill:none;stroke:currentColor;stroke-width:1.6}"
    ".chart .fill{fill:currentColor}.chart path.fill{fill-opacity:.8}"
    ".chart .whisker{stroke:var(--ink);fill:none}.chart .hint{fill:transparent}"
    ".chart .hint:hover{fill:var(--faint);fill-opacity:.15}"
)
"""The rules that a page with charts needs."""


def percent(value: float) -> str:
    """Format a fraction, to a hundredth of a percent."""
    return f"{round(100 * value, 2):.3g}%"


def number(value: float) -> str:
    """Format a number with four digits, or whole."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def span(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.3g} s"
    if seconds < 6000:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


@dataclass(frozen=True)
class Axis:
    """An axis: `form` writes a value; `names` are categories, whose values are 0, 1, 2, …; `marks` are ticks chosen by hand."""

    title: str = ""
    form: Callable[[float], str] = number
    log: bool = False
    names: Sequence[str] = ()
    marks: Sequence[float] = ()

    def ticks(self, low: float, high: float) -> list[tuple[float, str]]:
        """Return the marked values, about seven at most, and their texts."""
        if self.names:
            return list(enumerate(self.names))
        if self.marks:
            return [(value, self.form(value)) for value in self.marks]
        if self.log:
            tens = [10.0**k for k in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
            values = [value for value in (_SPANS if self.form is span else tens) if low <= value <= high]
            return [(value, _duration(value, value) if self.form is span else self.form(value)) for value in values]
        step = _step(high - low, self.form in (span, moment))
        zone = time.localtime(low).tm_gmtoff if self.form is moment else 0.0  # whole hours and days of this place
        first = math.ceil((low + zone) / step - 1e-9)
        values = [k * step - zone for k in range(first, first + 12) if k * step - zone <= high + step * 1e-9]
        if self.form is moment:
            form = "%d %b" if step >= 86400 else "%H:%M" if step >= 60 else "%H:%M:%S"
            return [(value, time.strftime(form, time.localtime(value))) for value in values]
        return [(value, _duration(value, step) if self.form is span else self.form(value)) for value in values]


_SPANS = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36e3, 360e3, 3.6e6, 36e6)
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800)


def _duration(value: float, step: float) -> str:
    """Format a tick of time, in the largest unit that is no longer than a step."""
    size, unit = next(((s, u) for s, u in ((86400, "d"), (3600, "h"), (60, "min")) if step >= s), (1, "s"))
    return f"{value / size:.4g} {unit}"


def _step(width: float, is_time: bool) -> float:
    """Return the least round step with at most seven ticks."""
    size = 10.0 ** math.floor(math.log10(width / 7))
    steps = [k * size for k in (1, 2, 5, 10, 20)]
    if is_time and width > 7:
        steps = [*_STEPS, *(604800.0 * 2**k for k in range(1, 20))]
    return next(step for step in steps if width / step <= 7)


@dataclass(frozen=True)
class Series:
    """Values to draw: `low` and `high` are the ends of whiskers; with `holds` a value holds until the next one.

    A value that is None or NaN is left out. Areas, and bars of a stacked chart, are drawn on top of each other.
    """

    name: str
    x: Any
    y: Any
    shape: Literal["line", "area", "points", "bar"] = "line"
    low: Any = None
    high: Any = None
    holds: bool = False
    colour: int | None = None


@dataclass(frozen=True)
class Chart:
    """A chart; `str()` of it is its SVG, for a page with :data:`STYLE`."""

    title: str
    series: Sequence[Series]
    x: Axis
    y: Axis
    stacked: bool = False
    plot: int = 200
    most: int = 400
    """Drawn points of a line."""
    reach: tuple[float, float] = (-math.inf, -math.inf)
    """Values of x and y that the axes reach at least, so that charts can be compared."""
    rows: Sequence[Sequence[str]] = ()
    """The table, with its heads first, if not of all values."""

    def __str__(self) -> str:
        head = f'viewBox="0 0 {WIDTH} {self.height}" role="img" aria-label="{_text(self.title)}"'
        return f'<svg class="chart" {head}>{self.inside}</svg>'

    def _repr_html_(self) -> str:
        return picture([self])

    @property
    def height(self) -> int:
        return TOP + self.plot + 24 + 18 * bool(self.x.title) + (18 * len(self._legend) + 6) * (len(self.series) > 1)

    @cached_property
    def values(self) -> list[tuple[Series, F64, F64]]:
        """The series, with x and y as arrays."""
        found = [(each, np.asarray(each.x, float), np.array(each.y, float)) for each in self.series]
        return [(each, x, np.where(y > 1e-200, y, np.nan) if self.y.log else y) for each, x, y in found]

    @cached_property
    def tops(self) -> list[F64]:
        """The upper ends of what is drawn."""
        tops, below = [], np.zeros(1)
        for each, _, y in self.values:
            piled = each.shape == "area" or self.stacked
            below = below + np.nan_to_num(y) if piled else below
            tops.append(below if piled else y)
        return tops

    @cached_property
    def _ranges(self) -> tuple[float, float, float, float]:
        xs = [x for _, x, _ in self.values if len(x)] or [np.zeros(1)]
        ends = [np.asarray(end, float) for each in self.series for end in (each.low, each.high) if end is not None]
        ys = np.concatenate([*map(np.ravel, [*self.tops, *ends]), [] if self.y.log else [0.0]])
        ys = ys[np.isfinite(ys) & (ys > 0 if self.y.log else True)]
        low, high = (float(ys.min()), float(ys.max())) if len(ys) else (1.0, 10.0)
        if self.y.log:
            low, high = low / 1.3, high * 1.3
        left, right = float(min(x.min() for x in xs)), float(max(x.max() for x in xs))
        right, high = _apart(left, max(right, self.reach[0])), _apart(low, max(high, self.reach[1]))
        if self.x.names:
            left, right = -0.5, len(self.x.names) - 0.5
        return left, right, low, high

    @cached_property
    def _legend(self) -> list[list[tuple[float, int, str]]]:
        """The rows of the legend: where an entry begins, its colour and its name."""
        rows: list[list[tuple[float, int, str]]] = [[]]
        at = float(self.left)
        for colour, each in enumerate(self.series):
            name = each.name if len(each.name) <= 60 else f"{each.name[:59]}…"
            wide = 22 + LETTER * len(name)
            if rows[-1] and at + wide > WIDTH - RIGHT:
                rows.append([])
                at = float(self.left)
            rows[-1].append((at, _colour(each, colour), name))
            at += wide + 10
        return rows

    @cached_property
    def left(self) -> int:
        """Where the plot begins, right of the texts of the ticks."""
        return int(16 + LETTER * max((len(text) for _, text in self.y.ticks(*self._ranges[2:])), default=1))

    def _x(self, x: F64) -> F64:
        left, right, *_ = self._ranges
        return self.left + (WIDTH - RIGHT - self.left) * _fraction(x, left, right, self.x.log)

    def _y(self, y: F64) -> F64:
        *_, low, high = self._ranges
        return TOP + self.plot * (1 - _fraction(y, low, high, self.y.log))

    @cached_property
    def inside(self) -> str:
        parts = [f'<text class="title" x="0" y="14">{_text(self.title)}</text>', *self._axes()]
        drawn = [one for one in enumerate(self.values) if one[1][0].shape == "area"][::-1]
        drawn += [one for one in enumerate(self.values) if one[1][0].shape != "area"]
        for k, (each, x, y) in drawn:
            marks = {"bar": self._bars, "points": self._points}.get(each.shape, self._line)(k, each, x, y)
            parts += [f'<g class="s{_colour(each, k)}">', *marks, "</g>"]
        parts += self._hints()
        for row, entries in enumerate(self._legend if len(self.series) > 1 else ()):
            y_at = TOP + self.plot + 40 + 18 * (row + bool(self.x.title))
            for at, colour, name in entries:
                box = f'x="{at:.0f}" y="{y_at - 10}" width="12" height="12" rx="2"'
                parts.append(f'<rect class="fill s{colour}" {box}/><text x="{at + 17:.0f}" y="{y_at}">{_text(name)}</text>')
        return "".join(parts)

    def _axes(self) -> Iterator[str]:
        left, right, low, high = self._ranges
        bottom = TOP + self.plot
        for value, text in self.y.ticks(low, high):
            at = float(self._y(np.array(value)))
            kind = "zero" if value == 0 else "rule"
            yield f'<path class="{kind}" d="M{self.left} {at:.1f}H{WIDTH - RIGHT}"/>'
            yield f'<text class="tick" x="{self.left - 6}" y="{at + 4:.1f}" text-anchor="end">{_text(text)}</text>'
        ticks = self.x.ticks(left, right)
        most = (WIDTH - RIGHT - self.left) / max(1, len(ticks)) / LETTER  # letters that fit
        for value, text in ticks:
            at = float(self._x(np.array(value)))
            shown = text if not self.x.names or len(text) <= most else f"{text[: max(1, int(most) - 1)]}…"
            middle = min(at, WIDTH - LETTER * len(shown) / 2)
            yield f'<text class="tick" x="{middle:.1f}" y="{bottom + 17}" text-anchor="middle">{_text(shown)}</text>'
            if not self.x.names:
                yield f'<path class="zero" d="M{at:.1f} {bottom}v4"/>'
        if self.x.title:
            middle = (self.left + WIDTH - RIGHT) / 2
            yield f'<text class="tick" x="{middle:.0f}" y="{bottom + 35}" text-anchor="middle">{_text(self.x.title)}</text>'

    def _line(self, k: int, each: Series, x: F64, y: F64) -> Iterator[str]:
        """Draw a line, with marks if it is short, or an area: with whole numbers of tenths of a pixel, and differences."""
        kept = np.unique(np.linspace(0, max(0, len(x) - 1), min(len(x), self.most)).astype(np.int64))
        across, up = self._x(x), self._y(self.tops[k])
        zero = round(10 * float(self._y(np.array(0.0)))) if not self.y.log else 0
        path: list[str] = []
        at: tuple[int, int] | None = None
        for i in kept:
            if not math.isfinite(up[i]):
                at = None
                continue
            new = round(10 * across[i]), round(10 * up[i])
            if at is None:
                path.append(f"M{new[0]} {zero}V{new[1]}" if each.shape == "area" else f"M{new[0]} {new[1]}")
            elif each.holds:
                path.append(f"h{new[0] - at[0]}v{new[1] - at[1]}")
            elif new != at:
                path.append(f"l{new[0] - at[0]}{new[1] - at[1]:+d}".replace("+", " "))
            at = new
        end = f"V{zero}z" if each.shape == "area" and path else ""
        kind = "fill" if each.shape == "area" else "line"
        yield f'<path class="{kind}" transform="scale(.1)" d="{"".join(path)}{end}"/>'
        if each.shape == "line" and len(x) <= FEW:
            yield from self._marks(each, across, up)

    def _points(self, k: int, each: Series, x: F64, y: F64) -> Iterator[str]:
        """Draw points; of several series among names, side by side."""
        across = self._x(x)
        if self.x.names:
            across = across + (k - (len(self.series) - 1) / 2) * min(14.0, 200 / len(self.x.names) / len(self.series))
        return self._marks(each, across, self._y(self.tops[k]))

    def _marks(self, each: Series, across: F64, up: F64) -> Iterator[str]:
        x, y = np.asarray(each.x, float), np.asarray(each.y, float)
        for i in np.flatnonzero(np.isfinite(up)).tolist():
            yield self._whisker(each, i, float(across[i]))
            at = f'cx="{across[i]:.1f}" cy="{up[i]:.1f}" r="4"'
            yield f'<circle class="fill" {at}>{self._hint(each, i, x, y)}</circle>'

    def _bars(self, k: int, each: Series, x: F64, y: F64) -> Iterator[str]:
        room = (WIDTH - RIGHT - self.left) / max(1, len(self.x.names)) * 0.8
        side = 1 if self.stacked else len(self.series)
        wide = min(room / side, 60.0)
        begin = self._x(x) - wide * side / 2 + (0 if self.stacked else wide * k)
        top, foot = self._y(self.tops[k]), self._y(self.tops[k] - y if self.stacked else y * 0)
        for i in np.flatnonzero(np.isfinite(top)).tolist():
            tall, high = abs(top[i] - foot[i]), min(top[i], foot[i])
            shape = f'x="{begin[i]:.1f}" y="{high:.1f}" width="{max(1.0, wide - 1):.1f}" height="{tall:.1f}"'
            yield f'<rect class="fill" {shape}>{self._hint(each, i, x, y)}</rect>'
            yield self._whisker(each, i, float(begin[i] + wide / 2))

    def _whisker(self, each: Series, i: int, at: float) -> str:
        if each.low is None or each.high is None:
            return ""
        low, high = (float(self._y(np.array(float(end[i])))) for end in (each.low, each.high))
        if not (math.isfinite(low) and math.isfinite(high)) or low - high < 0.5:
            return ""
        return f'<path class="whisker" d="M{at - 4:.1f} {low:.1f}h8m-4 0V{high:.1f}m-4 0h8"/>'

    def _hint(self, each: Series, i: int, x: F64, y: F64) -> str:
        where = self.x.names[int(x[i])] if self.x.names else self.x.form(x[i])
        return f"<title>{_text(f'{each.name}, {where}: {self._written(each, i, y)}')}</title>"

    def _written(self, each: Series, i: int, y: F64) -> str:
        if not math.isfinite(y[i]):
            return ""
        off = 0.0 if each.low is None or each.high is None else (float(each.high[i]) - float(each.low[i])) / 2
        return self.y.form(float(y[i])) + (f" ± {self.y.form(off)}" if off > 0 else "")

    def _hints(self) -> Iterator[str]:
        """Cover a long chart with bands that list all values there."""
        long = [(each, x, y) for each, x, y in self.values if len(x) > FEW and each.shape in ("line", "area")]
        if not long or self.x.names:
            return
        left, right, *_ = self._ranges
        edges = np.linspace(self.left, WIDTH - RIGHT, HINTS + 1)
        for begin, end in itertools.pairwise(edges):
            part = ((begin + end) / 2 - self.left) / (WIDTH - RIGHT - self.left)
            value = left * (right / left) ** part if self.x.log else left + (right - left) * part
            lines = [self.x.form(value)]
            for each, x, y in reversed(long) if self.stacked else long:
                i = min(max(0, int(np.searchsorted(x, value, side="right")) - 1), len(x) - 1)
                lines.append(f"{each.name} {self._written(each, i, y)}")
            box = f'x="{begin:.1f}" y="{TOP}" width="{end - begin:.1f}" height="{self.plot}"'
            yield f'<rect class="hint" {box}><title>{_text(chr(10).join(lines))}</title></rect>'

    def table(self) -> str:
        """Return the numbers as an HTML table: each value of a short chart, a summary of each series of a long one."""
        places = sorted({float(value) for _, x, _ in self.values for value in x})
        if self.rows:
            heads, *rows = map(list, self.rows)
        elif len(places) > FEW and not self.x.names:
            heads, rows = ["", "mean", "least", "most"], []
            for each, _, y in self.values:
                known = y[np.isfinite(y)]
                of = [self.y.form(float(f(known))) if len(known) else "" for f in (np.mean, np.min, np.max)]
                rows.append([each.name, *of])
        else:
            heads, rows = [self.x.title, *(each.name for each in self.series)], []
            for place in places:
                there = [(each, np.flatnonzero(x == place)[:1].tolist(), y) for each, x, y in self.values]
                cells = [self._written(each, found[0], y) if found else "" for each, found, y in there]
                rows.append([self.x.names[int(place)] if self.x.names else self.x.form(place), *cells])
        head = "".join(f"<th>{_text(name)}</th>" if name else "<td></td>" for name in heads)
        body = ("".join(f"<td>{_text(cell)}</td>" for cell in row) for row in rows)
        lines = "".join(f"<tr>{cells}</tr>" for cells in body)
        return f'<table tabindex="0"><tr>{head}</tr>{lines}</table>'

    def figure(self) -> str:
        """Return the chart with its table beside it, for a page."""
        return f"<figure>{self}{self.table()}</figure>"


def picture(charts: Sequence[Chart]) -> str:
    """Return charts one below another as a file of SVG."""
    parts, at = [], 0
    for chart in charts:
        parts.append(f'<svg class="chart" y="{at}" width="{WIDTH}" height="{chart.height}">{chart.inside}</svg>')
        at += chart.height + 10
    ground = f"svg{{background:var(--paper)}}{STYLE}"
    size = f'viewBox="0 0 {WIDTH} {at}" width="{WIDTH}" height="{at}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{ground}</style>{"".join(parts)}</svg>'


def _apart(low: float, high: float) -> float:
    """Return the end of an axis that is long enough for ticks."""
    least = max(1e-9 * max(abs(low), abs(high)), 1e-200)
    return high if high - low > least else low + max(1.0, 10 * least)


def _fraction(value: F64, low: float, high: float, log: bool) -> F64:
    if log:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(value / low) / math.log(high / low)
    return (value - low) / (high - low)


def _colour(each: Series, k: int) -> int:
    return (k if each.colour is None else each.colour) % COLOURS


def _text(text: str) -> str:
    return html.escape(plain_lines(text))
