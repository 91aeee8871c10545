"""Authentication of executors: by their secret, sent with a call or found in the calling process's environment.

Not every client library sends the secret. The kernel identifies the process at the other end of a connection, and only its
account and root could have started it with that environment.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairlead.service.mesos.tasks import TOKEN
from fairlead.sockets import inode_of_caller, uid_of_caller

PROC = Path("/proc")
_BEARER = "bearer "


def bearer_token(authorization: str) -> str:
    """Return the secret in an ``Authorization`` header; empty without one."""
    return authorization[len(_BEARER) :].strip() if authorization[: len(_BEARER)].lower() == _BEARER else ""


def token_of_peer(scope: Mapping[str, Any]) -> str:
    """Return the secret in the environment of the calling process; empty if it cannot be read.

    This searches the processes of this machine, so call it once per connection.
    """
    here, there = scope["server"], scope["client"]
    uid, inode = uid_of_caller(here, there), inode_of_caller(here, there)
    if uid is None or inode is None:
        return ""
    return next((token for process in _having(f"socket:[{inode}]", uid) if (token := _token_in(process))), "")


def _having(name: str, uid: int) -> Iterator[Path]:
    """Yield the readable processes of an account that have a file open."""
    for process in PROC.iterdir():
        with suppress(OSError):  # it has ended, or is not readable
            if process.name.isdigit() and process.stat().st_uid == uid:
                folder = process / "fd"
                if any(_is(each, name) for each in folder.iterdir()):
                    yield process


def _is(link: Path, name: str) -> bool:
    try:
        return str(link.readlink()) == name
    except OSError:  # it was closed meanwhile
        return False


def _token_in(process: Path) -> str:
    mark = f"{TOKEN}=".encode()
    try:
        variables = (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    return next((each[len(mark) :].decode("latin-1") for each in variables if each.startswith(mark)), "")
