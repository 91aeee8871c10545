"""Sandboxes: a folder for each task of a framework, in which it starts, and which is its account's alone.

A sandbox is there for as long as its job is remembered, as what the task wrote is.
"""

import os
import stat
import time
import uuid
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from fairlead.data_folder import remove_folder
from fairlead.people.accounts import Person

FRESH = 600.0
"""Seconds in which the task that one was made for is known."""


class Sandboxes:
    """The sandboxes of a scheduler.

    Parameters
    ----------
    folder : Path
        Where they are. Others may pass through it, where tasks run as people; they see no names in it.
    shared : bool
        Whether they do.
    output : Path
        The folder with what tasks write, a folder a job.
    """

    def __init__(self, folder: Path, shared: bool, output: Path) -> None:
        self.folder, self._output = folder, output
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(f"{folder}: is no folder of the scheduler's own: move it away")
        folder.chmod(0o711 if shared else 0o700)

    def name(self) -> Path:
        """Where the next one could be."""
        return self.folder / uuid.uuid4().hex

    def make(self, path: Path, person: Person) -> None:
        """Make one for a task of somebody's."""
        path.mkdir(mode=0o700)
        if os.geteuid() != person.uid:
            os.chown(path, person.uid, person.gid)

    def link_output(self, path: Path, job: int) -> None:
        """Have what the task of a job writes seen in its sandbox, as files that Mesos calls so."""
        for name, kept in (("stdout", "0.out"), ("stderr", "0.err")):
            with suppress(FileExistsError, FileNotFoundError):  # the task has one of its own, or is over and forgotten
                (path / name).symlink_to(self._output / str(job) / kept)

    def drop(self, path: Path) -> None:
        """Remove one of a task that was not launched."""
        path.rmdir()

    def drop_but(self, names: Collection[str]) -> None:
        """Remove all but these, by the names of their folders, and those that were made a moment ago."""
        old = time.time() - FRESH
        for path in self.folder.iterdir():
            if path.name not in names and path.lstat().st_mtime < old:
                remove_folder(path)
