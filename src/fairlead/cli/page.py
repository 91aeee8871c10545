"""`fairlead page`: signs a browser in to the scheduler's page.

The browser gets a private file that posts the code, so the code is neither in a process listing nor in the browser's history.
"""

import html
import os
import stat
import webbrowser
from pathlib import Path

import platformdirs

from fairlead.cli.scheduler import connect
from fairlead.data_folder import write_private
from fairlead.failure import Failure, failing

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
        path = _private_folder() / "fairlead-page.html"
        text = _FILE.format(url=html.escape(found["url"]), code=html.escape(found["code"]))
        with failing(f"{path}: cannot be written: ", OSError, after=": use `fairlead page --print`"):
            write_private(path, text)
        if webbrowser.open(path.as_uri()):
            print("opened in the browser; if it cannot read the file: fairlead page --print")
            return
    print(f"open    {found['url']}/\ncode    {found['code']}\nwithin  {found['seconds']:.0f} s")


def _private_folder() -> Path:
    """Return the person's folder for files of this session, or one of our own: nobody else may enter it. Raises Failure."""
    if (given := os.environ.get("XDG_RUNTIME_DIR")) and _is_private(Path(given)):
        return Path(given)
    own = Path(platformdirs.user_state_dir("fairlead"), "page")
    with failing(f"{own}: cannot be made: ", OSError, after=": use `fairlead page --print`"):
        own.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not _is_private(own):
        raise Failure(f"{own}: others may read or own it: remove it, or use `fairlead page --print`")
    return own


def _is_private(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
