"""The audit over time of a journal: replays its facts from the newest snapshot before that time."""

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from fairlead.audit.over_time import STARVED_AFTER
from fairlead.journal.journal import Journal, read_history
from fairlead.journal.sql import SqlStore
from fairlead.journal.store import JournalError
from fairlead.model.api_types import OverTimeInfo
from fairlead.scheduler.effects import new_state
from fairlead.scheduler.facts import decode
from fairlead.scheduler.reports.audits import audit_history


def audit_journal(
    store: SqlStore,
    over: float,
    until: float | None = None,
    starved_after: float = STARVED_AFTER,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> OverTimeInfo:
    """Audit the last part of a journal. Raises JournalError if it has no facts or is damaged.

    store : may be in use: later writes are not seen
    over : seconds to audit, as far as facts are kept
    until : the end, in seconds of the facts' clock; by default the last fact
    starved_after : seconds; see :data:`fairlead.audit.over_time.STARVED_AFTER`
    progress : called from time to time with the number of facts done and the total
    """
    journal = Journal(store)

    def at(position: int) -> float:
        return decode(journal.look(position - 1, 1)[0][1]).at

    last = journal.position
    if not store.read(last - 1, 1):
        raise JournalError(f"{store.name}: has no facts: there is nothing to report yet")
    end = at(last) if until is None else until
    known, position, facts = read_history(store, end - over)
    oldest = at(position + 1) if position < last else end
    begin = min(end, max(end - over, oldest))
    first = bisect_left(range(last + 1), begin, position + 1, key=at)  # the first fact in that time
    total = last - position
    found: Any = audit_history(
        known or new_state(), facts, begin, end, last + 1 - first, starved_after, lambda done: progress(done, total)
    )
    found |= {"asked": over, "complete": known is None or oldest <= end - over}
    return found
