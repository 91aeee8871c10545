"""Which executor calls: it says its secret, or it is a process of this machine that has it in its environment.

Not every client library sends the secret. What the kernel tells of the process at the other end of a connection proves the same:
nobody but its account, and root, could have started it so.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairlead.service.mesos.tasks import TOKEN
from fairlead.sockets import inode_of_caller, uid_of_caller

PROC = Path("/proc")
_BEARER = "bearer "


def said_token(authorization: str) -> str:
    """The secret in an ``Authorization`` header; empty where there is none."""
    return authorization[len(_BEARER) :].strip() if authorization[: len(_BEARER)].lower() == _BEARER else ""


def token_of_peer(scope: Mapping[str, Any]) -> str:
    """The secret in the environment of the process at the other end of a connection; empty where that cannot be seen.

    It looks through processes of this machine, so it is asked for once for each connection.
    """
    here, there = scope["server"], scope["client"]
    uid, inode = uid_of_caller(here, there), inode_of_caller(here, there)
    if uid is None or inode is None:
        return ""
    return next((token for process in _having(f"socket:[{inode}]", uid) if (token := _token_in(process))), "")


def _having(name: str, uid: int) -> Iterator[Path]:
    """The processes of an account that have something open, as far as they may be looked at."""
    for process in PROC.iterdir():
        with suppress(OSError):  # it has ended, or is not to be looked at
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
