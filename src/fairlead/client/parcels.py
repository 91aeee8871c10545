"""Folders that are sent with a job, and files that come back from its tasks."""

import io
import os
import shutil
import tarfile
import zlib
from pathlib import Path
from typing import Any

from fairlead.client.code_folder import MOST_BYTES, pack_folder
from fairlead.client.connection import Connection
from fairlead.failure import failing


def send(connection: Connection, folder: Path, cwd: Path) -> dict[str, Any]:
    """Send a folder; return what a request for a job says of it. The job runs in `cwd`, if that is in the folder."""
    packed = pack_folder(folder)
    setup = {"argv": ["-"], "code": packed.name, "inside": packed.within(cwd) or ""}
    session = connection.post("/v1/sessions", setup)["id"]
    connection.put(f"/v1/sessions/{session}/payloads/{packed.name}", packed.data)
    return {"session": session, "payload": packed.name}


def fetch(connection: Connection, job: int, index: int, folder: Path) -> list[str]:
    """Write the files that came back from a task into a folder; return their names.

    Nothing is written outside the folder, also not through links that it has. Raises ServiceError, OSError, tarfile.TarError.
    """
    data = connection.get_bytes(f"/v1/jobs/{job}/tasks/{index}/files")
    with failing("what came back is damaged: ", EOFError, ValueError, OverflowError, zlib.error, to=tarfile.TarError):
        return _unpack(data, folder.resolve()) if data else []


def _unpack(data: bytes, root: Path) -> list[str]:
    written, left = [], MOST_BYTES
    with tarfile.open(fileobj=io.BytesIO(data)) as packed:
        for member in packed:
            path, content = root / member.name, packed.extractfile(member) if member.isreg() else None
            if content is None or not path.parent.resolve().is_relative_to(root) or path.name in ("", "..", "."):
                raise tarfile.TarError(f"{member.name!r} is no file of the folder")
            left -= member.size
            if left < 0:
                raise tarfile.TarError(f"they are larger than {MOST_BYTES >> 20} MiB")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with os.fdopen(os.open(path, flags, member.mode & 0o777), "wb") as file:
                shutil.copyfileobj(content, file)
            os.utime(path, (member.mtime, member.mtime))
            written.append(member.name)
    return written
