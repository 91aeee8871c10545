"""The program that starts a task with `uris`: it downloads them into the sandbox, and then becomes the task's command.

It runs as the task's user, within the task's limits, so it can download nothing that the command could not. It imports nothing of
fairlead. Its arguments are the files as JSON, with the program that reports a failure, and the command. Nothing is unpacked
outside the sandbox.
"""

import gzip
import http.client
import json
import os
import shutil
import stat
import sys
import tarfile
import urllib.parse
import urllib.request
import zipfile
from pathlib import Path
from typing import IO, Any

PIECE_BYTES = 2**20
STALL_SECONDS = 60.0
"""After which a server that sends nothing is given up."""
MOST_FILES = 1_000_000
"""Files in one archive."""
TARS = (".tar", ".tgz", ".tar.gz", ".tbz2", ".tar.bz2", ".txz", ".tar.xz")
FAILED = 1
MOST_REPORTED = 1000
"""Characters of a reported failure."""


class CannotFetch(Exception):
    """Something cannot be fetched; the message states why."""


class Room:
    """The bytes that may still be written."""

    def __init__(self, left: int) -> None:
        self.most = self.left = left

    def take(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise CannotFetch(f"exceeds the limit of {self.most} bytes")

    def copy(self, source: IO[bytes], target: Path) -> None:
        target.unlink(missing_ok=True)  # never write through a link
        with target.open("xb") as file:
            while piece := source.read(PIECE_BYTES):
                self.take(len(piece))
                file.write(piece)


def name_of(uri: dict[str, Any]) -> Path:
    """Return the target of a URI, relative to the sandbox."""
    asked = uri.get("output_file") or Path(urllib.parse.unquote(urllib.parse.urlsplit(uri["value"]).path)).name
    path = Path(asked)
    if not asked or path.is_absolute() or ".." in path.parts or not path.name:
        raise CannotFetch(f"{asked!r} is not a valid file name in the sandbox: give it an output_file")
    return path


def fetch(uri: dict[str, Any], room: Room) -> Path:
    """Fetch one URI into the current folder; return its path."""
    target, value = name_of(uri), uri["value"]
    target.parent.mkdir(parents=True, exist_ok=True)
    scheme = urllib.parse.urlsplit(value).scheme
    if scheme in ("http", "https"):
        with urllib.request.urlopen(value, timeout=STALL_SECONDS) as answer:  # noqa: S310 only http and https
            room.copy(answer, target)
            if answer.length:  # reading in pieces does not raise on an early end
                raise CannotFetch(f"the server stopped {answer.length} bytes before the end")
    else:
        path = Path(urllib.parse.unquote(urllib.parse.urlsplit(value).path) if scheme == "file" else value)
        with path.open("rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise CannotFetch("is not a regular file")
            room.copy(file, target)
    return target


def extract(path: Path, room: Room) -> None:
    """Unpack an archive in its folder, recognised by its name as in Mesos; other files are left alone."""
    name = path.name
    if name.endswith(TARS):
        with tarfile.open(path) as tar:
            for count, member in enumerate(tar):
                _bound(count, member.size, room)
                tar.extract(member, path.parent, filter="data")
    elif name.endswith(".zip"):
        with zipfile.ZipFile(path) as archive:
            for count, info in enumerate(archive.infolist()):
                _bound(count, info.file_size, room)
                archive.extract(info, path.parent)
    elif name.endswith(".gz"):
        with gzip.open(path) as packed:
            room.copy(packed, path.with_suffix(""))  # type: ignore[arg-type]


def _bound(count: int, size: int, room: Room) -> None:
    if count >= MOST_FILES:
        raise CannotFetch(f"has more than {MOST_FILES} files")
    room.take(size)


def bring(uris: list[dict[str, Any]], most: int) -> None:
    """Fetch all URIs into the current folder; raises CannotFetch at the first failure."""
    room = Room(most)
    for uri in uris:
        try:
            path = fetch(uri, room)
            if uri.get("executable"):
                path.chmod(path.stat().st_mode | 0o111)
            elif uri.get("extract", True):
                extract(path, room)
        except (OSError, ValueError, EOFError, tarfile.TarError, zipfile.BadZipFile, CannotFetch, RuntimeError) as error:
            raise CannotFetch(f"{uri['value']}: {error}") from None  # RuntimeError: an unsupported compression, or a password
        except http.client.HTTPException as error:  # not HTTP, or a truncated answer
            raise CannotFetch(f"{uri['value']}: invalid or incomplete answer: {error!r}") from None


def main() -> None:
    """Fetch, then become the command: ``fetch.py JSON COMMAND...``."""
    asked = json.loads(sys.argv[1])
    argv = sys.argv[2:]
    try:
        bring(asked["uris"], asked["most"])
    except CannotFetch as error:
        print(f"fairlead: cannot fetch {error}", file=sys.stderr, flush=True)  # noqa: T201 part of the task's output
        if asked.get("tell"):
            why = f"cannot fetch {error}"[:MOST_REPORTED].replace("\0", "?")
            os.execv(asked["tell"][0], [*asked["tell"], why])  # noqa: S606
        sys.exit(FAILED)
    program = argv[0] if "/" in argv[0] else shutil.which(argv[0]) or argv[0]
    try:
        os.execv(program, argv)  # noqa: S606
    except OSError as error:
        print(f"fairlead: cannot run {argv[0]!r}: {error.strerror}", file=sys.stderr, flush=True)  # noqa: T201
        sys.exit(127)


if __name__ == "__main__":
    main()
