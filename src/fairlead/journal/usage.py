"""Usage over the time for which a journal keeps facts."""

import sys
from contextlib import closing
from pathlib import Path

import msgspec

from fairlead.journal.journal import Journal, read_history
from fairlead.journal.sql import SqlStore
from fairlead.journal.store import JournalError, Store
from fairlead.model.api_types import UsageInfo
from fairlead.scheduler.effects import new_state
from fairlead.scheduler.facts import decode
from fairlead.scheduler.reports.usage import Usage


def usage_of_journal(store: Store, over: float, until: float) -> UsageInfo:
    """Return the usage in the last `over` seconds before `until`, as far as the journal goes back.

    Raises JournalError if it has no facts or is damaged.
    """
    journal = Journal(store)
    if not store.read(journal.position - 1, 1):
        raise JournalError(f"{store.name}: has no facts: there is nothing to look back on")
    known, position, facts = read_history(store, until - over)
    oldest = decode(journal.look(position, 1)[0][1]).at if position < journal.position else until
    begin = until - over if known is not None and oldest <= until - over else max(until - over, oldest)
    usage = Usage(known or new_state(), begin, until)
    usage.feed(facts)
    complete = known is None or oldest <= until - over
    return {"since": begin, "until": until, "complete": complete, "usage": usage.finish()}  # type: ignore[typeddict-item]


def main(path: str, over: str, until: str) -> None:
    """Report usage from a journal that a scheduler has open, in a separate process, and print the answer as JSON."""
    try:
        with closing(SqlStore(Path(path), to_read=True)) as store:
            found = usage_of_journal(store, float(over), float(until))
    except JournalError as error:
        raise SystemExit(str(error)) from None
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
