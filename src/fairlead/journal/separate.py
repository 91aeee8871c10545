"""Reports over the time for which a journal keeps facts: the audit over time, and usage.

As a program it makes one of a journal that a scheduler has open, in a process of its own, and prints it as JSON.
"""

import json
import sys
from bisect import bisect_left
from collections.abc import Callable
from contextlib import closing
from datetime import date, timedelta
from itertools import takewhile
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fairlead.audit.over_time import STARVED_AFTER
from fairlead.journal.journal import Journal, read_history
from fairlead.journal.sql import SqlStore
from fairlead.journal.store import JournalError
from fairlead.journal.used_days import DAY, UsedDays
from fairlead.model.api_types import OverTimeInfo, UsageInfo, UsedBy
from fairlead.model.used import together
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import decode
from fairlead.scheduler.reports.audits import audit_history
from fairlead.scheduler.state import State


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
    journal = _journal_of(store)

    def at(position: int) -> float:
        return decode(journal.look(position - 1, 1)[0][1]).at

    last = journal.position
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


def usage_of_journal(
    store: SqlStore, over: float, now: float, until: float = inf, by_day: bool = False, by_job: bool = False
) -> UsageInfo:
    """Return the usage in `over` seconds before `until`, from the facts; or by whole days, if they do not go back so far.

    Raises JournalError if it has no facts or is damaged.
    """
    journal, until = _journal_of(store), min(until, now)
    since = until - over
    known, position, facts = read_history(store, since)
    oldest = decode(journal.look(position, 1)[0][1]).at if position < journal.position else until
    state, complete = known or new_state(), known is None or oldest <= since
    newest = None if complete or by_job else read_history(store, inf)
    if newest is not None and newest.known is not None and newest.known.days is not None:
        state, facts = newest.known, newest.facts
        since, begin = since // DAY * DAY, state.days.begin
        complete, until = begin <= since, min(now, (until // DAY + 1) * DAY)
        since = max(since, begin)
    else:
        since = since if complete else max(since, oldest)
        now, state.days = until, UsedDays(since, until, by_job)
        facts = takewhile(lambda fact: fact.at <= until, facts)
    for fact in facts:
        apply(state, fact)
    return {"since": since, "until": until, "complete": complete, "usage": used_rows(state, now, since, until, by_day)}


def _journal_of(store: SqlStore) -> Journal:
    """Return a journal that has facts. Raises JournalError if it has none."""
    journal = Journal(store)
    if not store.read(journal.position - 1, 1):
        raise JournalError(f"{store.name}: has no facts: there is nothing to report yet")
    return journal


def used_rows(state: State, now: float, since: float = -inf, until: float = inf, by_day: bool = False) -> list[UsedBy]:
    """Return the sums of a state's days by queue and user, with what runs and waits now; of the days of a period."""
    days = state.days
    assert isinstance(days, UsedDays)
    days.look(state, now)
    rows = state.held_rows()
    days.hold(state, rows, state.tasks.started_at[rows], now, np.zeros(len(rows), np.bool_))
    for job in np.flatnonzero(state.jobs.waiting[: state.jobs.n]).tolist():
        number = int(state.jobs.id[job])
        spec = state.index.specs[number]
        key = state.display_name(spec.queue), spec.user, number if days.by_job else 0
        today = days.sums(state, int(now // DAY), key)
        today.waiting += int(state.jobs.waiting[job])
        for name in spec.demand:
            today.asked.setdefault(name, 0.0)
    found: dict[tuple[str, str, str | None, int], UsedBy] = {}
    for day in sorted(day for day in days.rows if since < (day + 1) * DAY and day * DAY < until):
        named = (date(1970, 1, 1) + timedelta(day)).isoformat() if by_day else None
        for (queue, user, job), sums in sorted(days.rows[day].items()):
            row: UsedBy = {
                "queue": queue, "user": user, "day": named, "job": job or None, "tasks": sums.tasks, "failed": sums.failed,
                "waiting": sums.waiting, "asked": sums.asked, "lost": sums.lost, "cpu_hours": sums.cpu_ms / 3_600_000,
                "peak_memory": sums.peak or None, "calls": sums.calls, "call_hours": sums.called_ms / 3_600_000,
                "entitled": sums.entitled, "got": sums.got,
            }  # fmt: skip
            place = queue, user, named, job
            found[place] = together(found[place], row) if place in found else row
    first = {(place[0], place[2]): row for place, row in reversed(found.items()) if place[1]}
    for place in [*found]:
        if not place[1] and (place[0], place[2]) in first:  # what the queue was entitled to counts with its first user
            first[place[0], place[2]].update(together(first[place[0], place[2]], found.pop(place)))
    return [*found.values()]


REPORTS: dict[str, Callable[..., Any]] = {"over-time": audit_journal, "usage": usage_of_journal}


def main(report: str, path: str, *arguments: str) -> None:
    try:
        with closing(SqlStore(Path(path), to_read=True)) as store:
            found = REPORTS[report](store, *map(json.loads, arguments))
    except JournalError as error:
        raise SystemExit(str(error)) from None
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
