"""Which scheduler the supervisor obeys: the latest start of a journal, never an older one, nor a journal that it served before.

A replaced scheduler, one restored from an older journal, and a copy all believe that they are the scheduler. Each sends the id
of its journal, the epoch (the number of this start) and an id of the start. The file ``served`` keeps those obeyed; `fairlead
journal adopt` removes it after a person chose the journal.
"""

import contextlib
import json
from pathlib import Path

from fairlead.data_folder import write_private
from fairlead.engines.local import proc
from fairlead.engines.local.messages import Greet

MOST = 100
"""Journals remembered."""


def refuses(folder: Path, greet: Greet) -> str:
    """Return why this scheduler is not obeyed in a folder. If empty, it is from now on. Raises OSError without a descriptor."""
    path = folder / "served"
    served = _read(path)
    known = served.get(greet.journal)
    if served and greet.journal != next(reversed(served)) and known is not None:
        return "one with another journal, which took over its tasks"
    if known is not None and known != greet and greet.epoch <= known.epoch:
        return f"that of start {known.epoch} of its journal, and this is start {greet.epoch}, with an older journal or a copy"
    if known != greet:
        served.pop(greet.journal, None)
        served[greet.journal] = greet
        newest = list(served.values())[-MOST:]
        with proc.unless_missing():  # a full disk: freeing space takes a scheduler
            proc.with_spare(write_private, path, json.dumps(newest), durable=True)
    return ""


def _read(path: Path) -> dict[str, Greet]:
    """Return them by journal, the latest last."""
    with proc.unless_missing(), contextlib.suppress(ValueError, TypeError):  # missing or torn: no scheduler is known
        entries = json.loads(proc.with_spare(path.read_text))
        return {journal: Greet(journal, epoch, start) for journal, epoch, start in entries}
    return {}
