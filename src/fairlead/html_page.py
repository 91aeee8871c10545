"""The frame and the colours of HTML reports, each a single self-contained file."""

import html
from collections.abc import Iterable

COLOURS = (
    "#3b6ea8", "#d98a2b", "#4f9a5b", "#b64f4f", "#7a65a8", "#8a6d52", "#c77bab", "#a8a23b", "#4fa3b0", "#5b5b8f",
    "#9a9a9a",
)  # fmt: skip
"""Colours of series, in order; the last is grey."""

_FRAME = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>TITLE</title><style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2rem auto; padding: 0 1rem; color: #222 }
pre { background: #f6f6f4; padding: .7rem; overflow-x: auto } h2 { margin-top: 2rem } a { color: #b64f4f }
table { border-collapse: collapse; margin: 1rem 0 } th { font-weight: 600 }
td, th { padding: .25rem .7rem; text-align: left; border-bottom: 1px solid #ddd }
footer { margin-top: 3rem; color: #666; overflow-wrap: anywhere }
@media (max-width: 600px) { body { margin: 1rem auto } pre { font-size: 11px } table { display: block; overflow-x: auto } }
</style></head><body><h1>TITLE</h1>
BODY
</body></html>
"""


def framed(title: str, parts: Iterable[str]) -> str:
    """Return a page with a title and parts of HTML."""
    return _FRAME.replace("TITLE", html.escape(title)).replace("BODY", "\n".join(parts))


def signed(page: str, line: str) -> str:
    """Add a footer to a page."""
    before, end, after = page.rpartition("</body>")
    return f"{before}<footer>{html.escape(line)}</footer>{end}{after}"
