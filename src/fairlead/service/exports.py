"""Environments stored outside the journal: one file per job, owned by its person, deleted when the job ends.

The supervisor reads the file when it starts a task. Only the scheduler can write to the folder, so the files can be trusted.
"""

import os
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from fairlead.data_folder import write_private
from fairlead.people.accounts import Person


class Exports:
    """The files of a folder. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)

    def keep(self, environment: Mapping[str, str], person: Person) -> str:
        """Write an environment for a person durably; return the name of its file."""
        name = uuid.uuid4().hex
        write_private(self.folder / name, msgspec.json.encode(environment).decode(), durable=True)
        if os.geteuid() != person.uid:
            os.chown(self.folder / name, person.uid, person.gid)
        return name

    def size(self, name: str) -> int:
        """Return the size of a file in bytes; 0 if it no longer exists."""
        try:
            return (self.folder / name).stat().st_size
        except FileNotFoundError:
            return 0

    def drop(self, names: Iterable[str]) -> None:
        for name in names:
            (self.folder / name).unlink(missing_ok=True)

    def drop_but(self, names: Iterable[str]) -> None:
        """Remove all other files: leftovers of a scheduler that was killed."""
        self.drop({path.name for path in self.folder.iterdir()} - set(names))
