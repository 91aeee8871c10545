"""HTML from templates: reports, each a single self-contained file without scripts, and the pages that the scheduler serves."""

import html
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from fairlead.charts import STYLE, Chart
from fairlead.model.quantity import BYTE_RESOURCES, round_quantity
from fairlead.plain_text import plain, plain_lines

if TYPE_CHECKING:
    from jinja2 import Environment, Template
    from markupsafe import Markup

_JOB = re.compile(r"\bjob (\d{1,16})\b")


@lru_cache(1)
def _environment() -> "Environment":
    import jinja2

    loader = jinja2.PackageLoader("fairlead", "templates")
    found = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, auto_reload=False)
    found.undefined = jinja2.StrictUndefined
    found.finalize = lambda value: plain_lines(value) if type(value) is str else value  # nothing that others named is hidden
    found.filters |= {"amount": amount, "span": short_span, "moment": moment, "linked": linked, "segment": segment}
    found.filters |= {"query": lambda given: urlencode({k: v for k, v in given.items() if v not in (None, "")})}
    found.filters |= {"hours": resource_hours, "pair": lambda name: (name, name), "figure": figure}
    found.globals["m"] = found.get_template("parts.html").module
    return found


def template(name: str) -> "Template":
    return _environment().get_template(name)


def render(name: str, **values: Any) -> str:
    return template(name).render(values)


def blocks(name: str, values: Mapping[str, Any], only: Sequence[str] = (), but: Sequence[str] = ()) -> "dict[str, Markup]":
    """Render the blocks of a template, each by itself, in the order of the template: all, or some."""
    from markupsafe import Markup

    found = template(name)
    chosen = {block: part for block, part in found.blocks.items() if (not only or block in only) and block not in but}
    return {block: Markup("".join(part(found.new_context(dict(values))))) for block, part in chosen.items()}  # noqa: S704 escaped


@lru_cache
def text_of(name: str) -> str:
    """Return the style sheet or the script of the pages."""
    environment = _environment()
    assert environment.loader is not None
    text = environment.loader.get_source(environment, name)[0]
    return f"{STYLE}\n{text}" if name.endswith(".css") else text


def framed(title: str, parts: Iterable[str]) -> str:
    """Return a report with a title and parts of HTML."""
    from markupsafe import Markup

    return render("report.html", title=title, style=Markup(text_of("page.css")), parts=[Markup(part) for part in parts])  # noqa: S704 ours


WIDE = 10**6
"""Terminal columns of a table that is folded for no terminal."""


def tabled(parts: Iterable[Any]) -> str:
    """Return what :func:`fairlead.text_tables.printed` prints, as HTML: lines and tables."""
    shown: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, str):
            shown += [{"line": line} for line in part.split("\n") if line]
        else:
            heads = [(str(column.header), column.justify == "right") for column in part.columns]
            rows = zip(*([str(cell) for cell in column.cells] for column in part.columns), strict=True)
            shown.append({"heads": heads, "rows": list(rows)})
    return render("tables.html", parts=shown)


def signed(page: str, line: str) -> str:
    """Add a footer to a report."""
    before, end, after = page.rpartition("</body>")
    return f"{before}<footer>{html.escape(line)}</footer>{end}{after}"


def amount(value: float, resource: str) -> str:
    """Format an amount in base units; memory with its unit."""
    return round_quantity(resource, round(value))


def resource_hours(value: float, resource: str) -> str:
    """Format base units times hours: in GiB for memory, else in whole units."""
    return f"{value / (2**30 if resource in BYTE_RESOURCES else 1000):,.3g}"


def figure(chart: Chart) -> "Markup":
    """Return a chart with its table."""
    from markupsafe import Markup

    return Markup(chart.figure())  # noqa: S704 escaped


def short_span(seconds: float) -> str:
    """Format seconds in their two largest units."""
    whole = max(0, round(seconds))
    for size, unit, below, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {unit}" + (f" {rest} {small}" if rest and whole < 10 * size else "")
    return f"{whole} s"


def moment(at: float) -> str:
    """Format a moment: the time of today, or the day and the time."""
    then, now = time.localtime(at), time.localtime()
    return time.strftime("%H:%M:%S" if then[:3] == now[:3] else "%d %b %H:%M", then)


def segment(name: str) -> str:
    """Quote a name for the path of a URL."""
    return quote(name.strip("/"), safe="/")


def linked(text: str) -> "Markup":
    """Escape a sentence, with links to the jobs that it names."""
    from markupsafe import Markup

    return Markup(_JOB.sub(r'<a href="/page/jobs/\1">job \1</a>', html.escape(plain(text))))  # noqa: S704 escaped
