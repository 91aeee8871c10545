"""The audit over time of what a journal keeps: its facts happen once more, from the newest snapshot before that time on."""

import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from fairlead.audit.over_time import STARVED_AFTER
from fairlead.journal.journal import Journal, read_history
from fairlead.journal.sql import SqlStore
from fairlead.journal.store import JournalError, Store
from fairlead.model.api_types import OverTimeInfo
from fairlead.scheduler.effects import new_state
from fairlead.scheduler.facts import decode
from fairlead.scheduler.reports.audits import audit_history


def audit_journal(
    store: Store,
    over: float,
    until: float | None = None,
    starved_after: float = STARVED_AFTER,
    told: Callable[[int, int], None] = lambda done, of: None,
) -> OverTimeInfo:
    """Audit the last part of a journal.

    Parameters
    ----------
    store : Store
        It may be in use: what is written from now on is not seen.
    over : float
        Seconds that are looked at, or as many of them as it keeps the facts of.
    until : float, optional
        Seconds as in the facts: now. Without, it is when the last fact happened.
    starved_after : float
        Seconds; see :data:`fairlead.audit.over_time.STARVED_AFTER`.
    told : function
        Called now and then with how many facts have been gone through, of how many.

    Raises
    ------
    JournalError
        It has no facts, or cannot be believed.
    """
    journal = Journal(store)

    def at(position: int) -> float:
        found: float = decode(journal.look(position - 1, 1)[0][1]).at
        return found

    last = journal.position
    if not store.read(last - 1, 1):
        raise JournalError(f"{store.name}: keeps no facts: there is nothing to look back on")
    end = at(last) if until is None else until
    known, position, facts = read_history(store, end - over)
    oldest = at(position + 1) if position < last else end
    begin = min(end, max(end - over, oldest))
    low, high = position + 1, last + 1  # the first fact in that time
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if at(middle) < begin else (low, middle)
    total = last - position
    found: Any = audit_history(
        known or new_state(), facts, begin, end, last + 1 - low, starved_after, lambda done: told(done, total)
    )
    found |= {"asked": over, "complete": known is None or oldest <= end - over}
    told_of: OverTimeInfo = found
    return told_of


def main(path: str, over: str, until: str, starved_after: str) -> None:
    """Audit a journal that a scheduler has open, in a process of its own, and print the answer as JSON."""
    try:
        with closing(SqlStore(Path(path), to_read=True)) as store:
            found = audit_journal(store, float(over), float(until), float(starved_after))
    except JournalError as error:
        raise SystemExit(str(error)) from None
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
