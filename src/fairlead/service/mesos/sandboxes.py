"""Sandboxes: a folder for each task of a framework, in which it starts, and which is its account's alone.

A sandbox is there for as long as its job is remembered, as what the task wrote is. Volumes outlive tasks: a volume is a folder
that is made when a task first has it, and removed when it is destroyed; a task sees it as a link in its sandbox. One that no
reservation knows of, as after a journal was repaired, is moved aside, and kept.
"""

import os
import stat
import time
import uuid
from collections.abc import Collection, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from fairlead.data_folder import remove_folder
from fairlead.people.accounts import Person

FREED = 600.0
"""Seconds in which the task that one was made for is known."""
ASIDE = "aside"
"""The folder with volumes that no reservation knows of."""


class Sandboxes:
    """The sandboxes of a scheduler.

    Parameters
    ----------
    folder : Path
        Where they are. Others may pass through it, where tasks run as people; they see no names in it.
    shared : bool
        Whether they do.
    volumes : Path
        Where volumes are, likewise.
    output : Path
        The folder with what tasks write, a folder a job.
    """

    def __init__(self, folder: Path, volumes: Path, shared: bool, output: Path) -> None:
        self.folder, self.volumes, self._output = folder, volumes, output
        for each in (folder, volumes):
            each.mkdir(mode=0o700, exist_ok=True)
            found = each.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                raise PermissionError(f"{each}: is no folder of the scheduler's own: move it away")
            each.chmod(0o711 if shared else 0o700)
        (volumes / ASIDE).mkdir(mode=0o700, exist_ok=True)

    def name(self) -> Path:
        """Where the next one could be."""
        return self.folder / uuid.uuid4().hex

    def make(self, path: Path, person: Person, node: str, volumes: Mapping[str, str]) -> None:
        """Make one for a task of somebody's on a node, with its volumes: the mark of each by its path in the sandbox."""
        path.mkdir(mode=0o700)
        mine = [path]
        for inside, mark in volumes.items():
            folder = self.volume(node, mark)
            folder.mkdir(mode=0o700, exist_ok=True)
            above = path
            for part in Path(inside).parts[:-1]:
                above /= part
                if above not in mine:
                    above.mkdir(mode=0o700)
                    mine.append(above)
            (path / inside).symlink_to(folder)
            mine.append(folder)
        if os.geteuid() != person.uid:
            for each in reversed(mine):  # the sandbox last: until then nobody else is in it
                os.chown(each, person.uid, person.gid, follow_symlinks=False)

    def volume(self, node: str, mark: str) -> Path:
        """The folder of a volume of a node."""
        return self.volumes / sha256(f"{node}\0{mark}".encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def drop_volume(self, path: Path) -> None:
        """Remove a volume that is destroyed; one that no task ever had has no folder."""
        gone = path.with_name(uuid.uuid4().hex)
        try:
            path.rename(gone)
        except FileNotFoundError:
            return
        remove_folder(gone)

    def set_aside(self, names: Collection[str]) -> list[str]:
        """Move all volumes aside but these, by the names of their folders, and those that were made a moment ago."""
        old, found = time.time() - FREED, []
        for path in self.volumes.iterdir():
            if path.name not in names and path.name != ASIDE and path.lstat().st_mtime < old:
                path.rename(self.volumes / ASIDE / f"{path.name}.{uuid.uuid4().hex}")
                found.append(path.name)
        return found

    def link_output(self, path: Path, job: int) -> None:
        """Have what the task of a job writes seen in its sandbox, as files that Mesos calls so."""
        for name, kept in (("stdout", "0.out"), ("stderr", "0.err")):
            with suppress(FileExistsError, FileNotFoundError):  # the task has one of its own, or is over and forgotten
                (path / name).symlink_to(self._output / str(job) / kept)

    def drop(self, path: Path) -> None:
        """Remove one of a task that was not launched."""
        remove_folder(path)

    def drop_but(self, names: Collection[str]) -> None:
        """Remove all but these, by the names of their folders, and those that were made a moment ago."""
        old = time.time() - FREED
        for path in self.folder.iterdir():
            if path.name not in names and path.lstat().st_mtime < old:
                remove_folder(path)
