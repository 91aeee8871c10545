"""The frame of HTML reports, each a single self-contained file without scripts."""

import html
from collections.abc import Iterable

from fairlead.charts import STYLE

_FRAME = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>TITLE</title><style>
CHARTS
:root { color-scheme: light dark } a { color: var(--link) } h2 { margin-top: 2rem }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2rem auto; padding: 0 1rem; color: var(--ink);
  background: var(--paper) }
pre { background: var(--shade); padding: .7rem; overflow-x: auto; font-size: 13px }
table { border-collapse: collapse; margin: 1rem 0 } th { font-weight: 600 }
td, th { padding: .25rem .7rem; text-align: left; border-bottom: 1px solid var(--rule) }
figure { display: flex; flex-wrap: wrap; gap: 0 1rem; margin: 1rem 0 } figure svg { flex: 1 1 640px; max-width: 760px }
figure table { flex: 1 1 240px; display: block; max-height: 330px; overflow: auto; font-size: 12px; margin: 1.8rem 0 0 }
figure td, figure th { padding: .1rem .5rem; white-space: nowrap } figure td:not(:first-child) { text-align: right }
footer { margin-top: 3rem; color: var(--faint); overflow-wrap: anywhere }
@media (max-width: 600px) { body { margin: 1rem auto } pre { font-size: 11px } table { display: block; overflow-x: auto }
  figure svg { flex-basis: 100% } }
</style></head><body><h1>TITLE</h1>
BODY
</body></html>
"""


def framed(title: str, parts: Iterable[str]) -> str:
    """Return a page with a title and parts of HTML."""
    frame = _FRAME.replace("CHARTS", STYLE).replace("TITLE", html.escape(title))
    return frame.replace("BODY", "\n".join(parts))


def signed(page: str, line: str) -> str:
    """Add a footer to a page."""
    before, end, after = page.rpartition("</body>")
    return f"{before}<footer>{html.escape(line)}</footer>{end}{after}"
