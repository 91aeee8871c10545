"""`fairlead audit --over`: audits a past period."""

from contextlib import closing
from pathlib import Path
from typing import Any

from rich.progress import TaskProgressColumn

from fairlead.audit.over_time import LONGEST, STARVED_AFTER
from fairlead.audit.over_time_report import MOST_SHOWN, over_time_page, over_time_text
from fairlead.cli.job_options import seconds
from fairlead.cli.reports import check_page, write_page
from fairlead.cli.scheduler import connect, print_json
from fairlead.cli.terminal import progress, width
from fairlead.failure import WrongUsage

REPORT_TIMEOUT_SECONDS = 900.0
"""Time that the scheduler may take for reports on the past: it reads the whole journal."""


def audit_over_time(
    over: str, journal: Path | None, starved_after: str, report: Path | None, show_all: bool, as_json: bool
) -> None:
    """Audit through the scheduler, or from a journal, and print the findings."""
    check_page("--report", report)
    length = _seconds("--over", over)
    bound = _seconds("--starved-after", starved_after) if starved_after else STARVED_AFTER
    if journal is not None:
        found = _of_journal(journal, length, bound)
    else:
        with connect(timeout=REPORT_TIMEOUT_SECONDS) as connection:
            found = connection.get("/v1/audit/over-time", seconds=length, starved_after=bound)
    print_json(found) if as_json else print(over_time_text(found, width(), None if show_all else MOST_SHOWN))
    if report is not None:
        write_page(report, over_time_page(found))


def _of_journal(path: Path, length: float, bound: float) -> Any:
    from fairlead.journal.separate import audit_journal
    from fairlead.journal.sql import SqlStore

    with closing(SqlStore(path, to_read=True)) as store, progress(TaskProgressColumn()) as bars:
        bar = bars.add_task("looking back", total=None)
        return audit_journal(store, length, None, bound, lambda done, of: bars.update(bar, completed=done, total=of))


def _seconds(option: str, text: str) -> float:
    found = seconds(option, text)
    if not found:
        raise WrongUsage(f'{option} {text!r}: must be more than 0: write "7d", "12h", "30min"')
    if found > LONGEST:
        raise WrongUsage(f"{option} {text!r}: is longer than ten years: write at most {LONGEST / 86400:.0f}d")
    return found
