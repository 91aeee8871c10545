"""`fairlead journal`: what its commands say."""

from pathlib import Path

import typer

from fairlead.cli.failure import Failure
from fairlead.cli.scheduler import print_json
from fairlead.data_folder import home_folder
from fairlead.journal import JournalError
from fairlead.journal.head import is_of_another
from fairlead.journal.repair import UNKNOWN_LOSS, Finding, adopt, examine, repair


def check_journal(home: Path | None, as_json: bool) -> None:
    """Print what a journal was found to be; exit status 1 if something is wrong with it."""
    path = _journal(home)
    try:
        found = examine(path)
    except JournalError as error:
        raise Failure(str(error)) from None
    if as_json:
        known = {"epoch": found.head.epoch, "sequence": found.head.sequence} if found.head else None
        print_json(
            {
                "journal": str(path),
                "proved": found.position,
                "kept": found.kept,
                "head": known,
                "lost": found.lost if found.wrong else 0,
                "wrong": found.wrong or None,
            }
        )
    elif not found.wrong:
        epoch = found.head.epoch if found.head else 0
        times = "time" if epoch == 1 else "times"
        print(
            f"{path}: all is well: {found.position:,} facts are proved, of which {found.kept:,} are kept; "
            f"its scheduler was started {epoch:,} {times}"
        )
        if is_of_another(found.head, path):
            print("it is a copy, which `up` refuses until `fairlead journal adopt` makes it the journal")
    else:
        print(f"{path}: damaged: {found.wrong}")
        print(f"{found.position:,} facts are proved; {_lost(found)}")
        if found.position:
            print("`fairlead journal repair` goes on with what is proved")
    if found.wrong:
        raise typer.Exit(1)


def repair_journal(home: Path | None) -> None:
    """Repair a journal, and print what became of it."""
    path = _journal(home)
    try:
        found, aside = repair(path)
    except (JournalError, OSError) as error:
        raise Failure(str(error)) from None
    print(f"{path}: goes on after fact {found.position:,}; {_lost(found)}")
    if found.lost is None:
        print(f"the next jobs have numbers higher by {UNKNOWN_LOSS:,}, so that none is given twice")
    print(f"what it was is in {aside}")


def adopt_journal(home: Path | None) -> None:
    """Make a copy the journal, and print that it is."""
    path = _journal(home)
    try:
        head, passed = adopt(path)
    except (JournalError, OSError) as error:
        raise Failure(str(error)) from None
    print(f"{path}: is the journal from now on, after {head.sequence:,} facts")
    if passed:
        print(
            f"jobs ran here that it knows nothing of: the next have numbers higher by {passed:,}, so that none is given twice"
        )


def _journal(home: Path | None) -> Path:
    return (home or home_folder()).absolute() / "journal.db"


def _lost(found: Finding) -> str:
    if found.lost is None:
        return "how many are lost is not known"
    if not found.lost:
        return "none is lost"
    first = found.position + 1
    return f"{found.lost:,} are lost ({first:,} to {found.position + found.lost:,})"
