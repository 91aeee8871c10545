"""The program that a task with `uris` starts as: it fetches them into the sandbox, and becomes the task's command.

It runs as whom the task runs, within what the task may use, so it can fetch nothing that the command could not. It knows nothing
of fairlead but its arguments: what is to be fetched, as JSON, with the program that tells when it cannot be; and the command.
Nothing that an archive holds leaves the sandbox.
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

PIECE = 2**20
WAIT = 60.0
"""Seconds without a byte after which a server is given up."""
MOST_FILES = 1_000_000
"""Files in one archive."""
TARS = (".tar", ".tgz", ".tar.gz", ".tbz2", ".tar.bz2", ".txz", ".tar.xz")
FAILED = 1
MOST_SAID = 1000
"""Characters that are said of what cannot be fetched."""


class CannotFetch(Exception):
    """What is asked for cannot be had; the message says why."""


class Room:
    """How many bytes may be written yet."""

    def __init__(self, left: int) -> None:
        self.most = self.left = left

    def take(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise CannotFetch(f"is more than the {self.most} bytes that there may be")

    def copy(self, source: IO[bytes], target: Path) -> None:
        """Write what a file has yet to another, which is made anew."""
        target.unlink(missing_ok=True)  # a link is not written through
        with target.open("xb") as file:
            while piece := source.read(PIECE):
                self.take(len(piece))
                file.write(piece)


def name_of(uri: dict[str, Any]) -> Path:
    """Where it goes, within the sandbox."""
    asked = uri.get("output_file") or Path(urllib.parse.unquote(urllib.parse.urlsplit(uri["value"]).path)).name
    path = Path(asked)
    if not asked or path.is_absolute() or ".." in path.parts or not path.name:
        raise CannotFetch(f"{asked!r} is no name of a file in the sandbox: give it an output_file")
    return path


def fetch(uri: dict[str, Any], room: Room) -> Path:
    """Bring one thing into the current folder; where it is."""
    target, value = name_of(uri), uri["value"]
    target.parent.mkdir(parents=True, exist_ok=True)
    scheme = urllib.parse.urlsplit(value).scheme
    if scheme in ("http", "https"):
        with urllib.request.urlopen(value, timeout=WAIT) as answer:  # noqa: S310 of these two only
            room.copy(answer, target)
            if answer.length:  # what is read in pieces ends early without a word
                raise CannotFetch(f"the server broke off {answer.length} bytes before the end")
    else:
        path = Path(urllib.parse.unquote(urllib.parse.urlsplit(value).path) if scheme == "file" else value)
        with path.open("rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise CannotFetch("is no plain file")
            room.copy(file, target)
    return target


def extract(path: Path, room: Room) -> None:
    """Unpack an archive beside itself, as Mesos tells them by their names; what is none is left as it is."""
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
    """Fetch all into the current folder; raises CannotFetch for the first that cannot be."""
    room = Room(most)
    for uri in uris:
        try:
            path = fetch(uri, room)
            if uri.get("executable"):
                path.chmod(path.stat().st_mode | 0o111)
            elif uri.get("extract", True):
                extract(path, room)
        except (OSError, ValueError, EOFError, tarfile.TarError, zipfile.BadZipFile, CannotFetch) as error:
            raise CannotFetch(f"{uri['value']}: {error}") from None
        except http.client.HTTPException as error:  # what is answered is no HTTP, or its pieces break off
            raise CannotFetch(f"{uri['value']}: no whole answer: {error!r}") from None
        except (NotImplementedError, RuntimeError) as error:  # how a zip is packed, or that it has a password
            raise CannotFetch(f"{uri['value']}: {error}") from None


def main() -> None:
    """Fetch and become the command: ``fetch.py JSON COMMAND...``."""
    asked = json.loads(sys.argv[1])
    argv = sys.argv[2:]
    try:
        bring(asked["uris"], asked["most"])
    except CannotFetch as error:
        print(f"fairlead: cannot fetch {error}", file=sys.stderr, flush=True)  # noqa: T201 what the task wrote
        if asked.get("tell"):
            why = f"cannot fetch {error}"[:MOST_SAID].replace("\0", "?")
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
