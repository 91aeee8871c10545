"""Sandboxes: one folder per task of a framework, where it starts, accessible only to its account.

A sandbox lasts as long as its job is remembered, like the task's output. Volumes outlive tasks: a volume is a folder, created for
the first task that has it and removed when destroyed; a task sees it as a link in its sandbox. A volume without a reservation,
as after a repair of the journal, is moved aside and kept.
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

FRESH_SECONDS = 600.0
"""A newer sandbox may belong to a task that is not known yet."""
ASIDE = "aside"
"""The folder of volumes without a reservation."""


class Sandboxes:
    """The sandboxes of a scheduler.

    folder : where they are. On a shared scheduler others may traverse it, but not list it.
    shared : True on a shared scheduler
    volumes : where volumes are, likewise
    output : the folder of task output, with one folder per job
    """

    def __init__(self, folder: Path, volumes: Path, shared: bool, output: Path) -> None:
        self.folder, self.volumes, self._output = folder, volumes, output
        for each in (folder, volumes):
            each.mkdir(mode=0o700, exist_ok=True)
            found = each.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                raise PermissionError(f"{each}: is not a folder owned by the scheduler: move it away")
            each.chmod(0o711 if shared else 0o700)
        (volumes / ASIDE).mkdir(mode=0o700, exist_ok=True)

    def name(self) -> Path:
        return self.folder / uuid.uuid4().hex

    def make(self, path: Path, person: Person, node: str, volumes: Mapping[str, str]) -> None:
        """Create a sandbox for a person's task on a node, with its volumes: marks by path in the sandbox."""
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
            for each in reversed(mine):  # the sandbox last, so nobody enters it before
                os.chown(each, person.uid, person.gid, follow_symlinks=False)

    def volume(self, node: str, mark: str) -> Path:
        return self.volumes / sha256(f"{node}\0{mark}".encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def drop_volume(self, path: Path) -> None:
        """Remove a destroyed volume; one that no task ever had has no folder."""
        gone = path.with_name(uuid.uuid4().hex)
        try:
            path.rename(gone)
        except FileNotFoundError:
            return
        remove_folder(gone)

    def set_aside(self, names: Collection[str]) -> list[str]:
        """Move volumes aside, except these and recent ones; return the names of the moved folders."""
        old, found = time.time() - FRESH_SECONDS, []
        for path in self.volumes.iterdir():
            if path.name not in names and path.name != ASIDE and path.lstat().st_mtime < old:
                path.rename(self.volumes / ASIDE / f"{path.name}.{uuid.uuid4().hex}")
                found.append(path.name)
        return found

    def link_output(self, path: Path, job: int) -> None:
        """Link the output of a job's task into its sandbox, under Mesos' file names."""
        for name, kept in (("stdout", "0.out"), ("stderr", "0.err")):
            with suppress(FileExistsError, FileNotFoundError):  # the task made its own, or is forgotten already
                (path / name).symlink_to(self._output / str(job) / kept)

    def drop_but(self, names: Collection[str]) -> None:
        """Remove all sandboxes except these and recent ones."""
        old = time.time() - FRESH_SECONDS
        for path in self.folder.iterdir():
            if path.name not in names and path.lstat().st_mtime < old:
                remove_folder(path)
