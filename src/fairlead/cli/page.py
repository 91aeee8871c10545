"""`fairlead page`: signs a browser in to the scheduler's page.

The browser gets a private file that posts the code, so the code is neither in a process listing nor in the browser's history.
"""

import html
import os
import webbrowser
from pathlib import Path

import platformdirs

from fairlead.cli.failure import Failure
from fairlead.cli.scheduler import connect
from fairlead.data_folder import write_private

_FILE = """<!doctype html><meta charset="utf-8"><title>fairlead</title>
<form method="post" action="{url}/page/enter"><input type="hidden" name="code" value="{code}">
<button>Open fairlead's page</button></form>
<script>document.forms[0].submit()</script>
"""


def open_page(to_print: bool) -> None:
    """Open the page, or print its address and a code. Raises Failure."""
    with connect() as connection:
        found = connection.post("/v1/page", {})
    if not to_print and (os.environ.get("BROWSER") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        path = Path(os.environ.get("XDG_RUNTIME_DIR") or platformdirs.user_cache_dir("fairlead"), "fairlead-page.html")
        text = _FILE.format(url=html.escape(found["url"]), code=html.escape(found["code"]))
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_private(path, text)
        except OSError as error:
            raise Failure(f"{path}: cannot be written: {error.strerror}: use `fairlead page --print`") from None
        if webbrowser.open(path.as_uri()):
            print("opened in the browser; if it cannot read the file: fairlead page --print")
            return
    print(f"open    {found['url']}/\ncode    {found['code']}\nwithin  {found['seconds']:.0f} s")
