"""Environments that are kept apart from the journal: each in a file of its own, its person's, for as long as its job may start.

The supervisor reads it when it starts a task. The folder is closed to everybody, so what is in it is what was written.
"""

import os
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from fairlead.data_folder import write_private
from fairlead.people.accounts import Person


class Exports:
    """The files in a folder. Threads may share one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)

    def keep(self, environment: Mapping[str, str], person: Person) -> str:
        """Write one for a person, on the disk when this returns; its name."""
        name = uuid.uuid4().hex
        write_private(self.folder / name, msgspec.json.encode(environment).decode(), durable=True)
        if os.geteuid() != person.uid:
            os.chown(self.folder / name, person.uid, person.gid)
        return name

    def size(self, name: str) -> int:
        """The bytes of one; 0 where there is none any more."""
        try:
            return (self.folder / name).stat().st_size
        except FileNotFoundError:
            return 0

    def drop(self, names: Iterable[str]) -> None:
        """Remove some."""
        for name in names:
            (self.folder / name).unlink(missing_ok=True)

    def drop_but(self, names: Iterable[str]) -> None:
        """Remove all but these: those of jobs that were refused, or ended, as a scheduler was killed."""
        self.drop({path.name for path in self.folder.iterdir()} - set(names))
