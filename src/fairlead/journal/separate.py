"""Makes a report from a journal that a scheduler has open, in a separate process, and prints it as JSON."""

import json
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from fairlead.journal.over_time import audit_journal
from fairlead.journal.sql import SqlStore
from fairlead.journal.store import JournalError
from fairlead.journal.usage import usage_of_journal

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
