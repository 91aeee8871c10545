"""Which scheduler the supervisor obeys: the latest start of a journal; no older one, nor one of a journal that it served before.

A scheduler that was taken over, one that was restored with an older journal, and a copy of one all believe to be the scheduler.
Each says which journal it has, the how-manieth start of it this is, and an id of that start. What was obeyed is kept in the file
``served``; `fairlead journal adopt` removes that, where a person has decided which journal it is to be.
"""

import contextlib
import json
from pathlib import Path

from fairlead.data_folder import write_private
from fairlead.engines.local.messages import Greet

MOST = 100
"""Journals that are remembered."""


class Fence:
    """What is kept in a supervisor's folder of the schedulers that it obeyed."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "served"

    def refuses(self, greet: Greet) -> str:
        """Why this scheduler is not obeyed; nothing where it is, from now on."""
        served = self._read()
        known = served.get(greet.journal)
        if served and greet.journal != next(reversed(served)) and known is not None:
            return "one with another journal, which took its tasks over"
        if known is not None and known != greet and greet.epoch <= known.epoch:
            return f"that of start {known.epoch} of its journal, and this is start {greet.epoch}, with an older one or a copy"
        if known != greet:
            served.pop(greet.journal, None)
            served[greet.journal] = greet
            newest = list(served.values())[-MOST:]
            with contextlib.suppress(OSError):  # a full disk: it is to be rescued, which takes a scheduler
                write_private(self._path, json.dumps(newest), durable=True)
        return ""

    def _read(self) -> dict[str, Greet]:
        """By journal, the one that was obeyed last at the end."""
        try:
            told = json.loads(self._path.read_text())
            return {journal: Greet(journal, epoch, start) for journal, epoch, start in told}
        except (OSError, ValueError, TypeError):  # there was none, or it is torn: then nobody is known
            return {}
