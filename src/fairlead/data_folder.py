"""The folder of one scheduler: where its journal, its token, its tasks' output and its address are.

It is `$FAIRLEAD_HOME`, or the user's data folder. Everything in it belongs to its owner alone. Clients find the running
scheduler by it; `$FAIRLEAD_URL` and `$FAIRLEAD_TOKEN` name one elsewhere.
"""

import json
import os
import secrets
from pathlib import Path
from typing import NamedTuple


class Address(NamedTuple):
    """Where a scheduler answers, and the token that it asks for."""

    url: str
    token: str


def home_folder() -> Path:
    """The folder that is used unless another is named."""
    named = os.environ.get("FAIRLEAD_HOME")
    if named:
        return Path(named).absolute()
    import platformdirs

    return Path(platformdirs.user_data_dir("fairlead"))


def make_home(home: Path) -> None:
    """Make the folder, for its owner only. Raises OSError where that cannot be."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    home.chmod(0o700)


def make_token(home: Path) -> str:
    """Read the token, or make it the first time, in a file that only the owner reads."""
    path = home / "token"
    try:
        token = path.read_text().strip()
    except FileNotFoundError:
        token = ""
    if len(token) < 32:
        token = secrets.token_urlsafe(32)
        write_private(path, token + "\n")
    path.chmod(0o600)
    return token


def write_address(home: Path, url: str) -> None:
    """Say where the scheduler answers."""
    write_private(home / "server.json", json.dumps({"url": url, "pid": os.getpid()}) + "\n")


def forget_address(home: Path) -> None:
    """The scheduler answers no more."""
    (home / "server.json").unlink(missing_ok=True)


def read_address(home: Path | None = None) -> Address | None:
    """Find the scheduler; None where none runs or was ever started here."""
    url, token = os.environ.get("FAIRLEAD_URL"), os.environ.get("FAIRLEAD_TOKEN")
    if url:
        return Address(url.rstrip("/"), token or "")
    home = home or home_folder()
    try:
        url = json.loads((home / "server.json").read_text())["url"]
        return Address(url, (home / "token").read_text().strip())
    except (OSError, ValueError, KeyError):
        return None


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner reads, whole or not at all."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    fresh.rename(path)
