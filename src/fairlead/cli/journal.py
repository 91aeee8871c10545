"""`fairlead journal`: check, repair, adopt and rollback, and what they print."""

from pathlib import Path

import typer

from fairlead.cli.scheduler import print_json
from fairlead.data_folder import home_folder
from fairlead.failure import Failure
from fairlead.journal.head import is_of_another
from fairlead.journal.repair import UNKNOWN_LOSS, Finding, adopt, examine, repair, rollback
from fairlead.plain_text import plain


def check_journal(home: Path | None, as_json: bool) -> None:
    """Print the result of a check; exit status 1 if the journal is damaged."""
    path = _journal(home)
    found = examine(path)
    if as_json:
        known = {"epoch": found.head.epoch, "sequence": found.head.sequence} if found.head else None
        print_json(
            {
                "journal": str(path),
                "proved": found.position,
                "kept": found.kept,
                "head": known,
                "lost": found.lost if found.wrong else 0,
                "members": found.members,
                "wrong": found.wrong or None,
            }
        )
    elif not found.wrong:
        print(
            f"{path}: undamaged: {found.position:,} facts proved, {found.kept:,} of them kept; "
            f"the last start of its scheduler is number {found.head.epoch if found.head else 0:,}"
        )
        if found.members:
            others = f" and {len(found.members) - 10} others" if len(found.members) > 10 else ""
            print(f"machines that joined: {', '.join(map(plain, found.members[:10]))}{others}")
        if is_of_another(found.head, path):
            print("it is a copy: `up` refuses it until you run `fairlead journal adopt`")
    else:
        print(f"{path}: damaged: {found.wrong}")
        print(f"{found.position:,} facts proved; {_lost(found)}")
        if found.position:
            print("`fairlead journal repair` cuts it back to the proved facts")
    if found.wrong:
        raise typer.Exit(1)


def repair_journal(home: Path | None) -> None:
    path = _journal(home)
    try:
        found, aside = repair(path)
    except OSError as error:
        raise Failure(str(error)) from None
    print(f"{path}: ends at fact {found.position:,} now; {_lost(found)}")
    if found.lost is None:
        print(f"job numbers skip {UNKNOWN_LOSS:,}, so that none is used twice")
    print(f"the damaged files are in {aside}")


def adopt_journal(home: Path | None) -> None:
    """Adopt a copied journal, and print the result."""
    path = _journal(home)
    try:
        head, passed = adopt(path)
    except OSError as error:
        raise Failure(str(error)) from None
    print(f"{path}: adopted, with {head.sequence:,} facts")
    if passed:
        print(f"jobs ran here that it does not contain: job numbers skip {passed:,}, so that none is used twice")


def rollback_journal(home: Path | None) -> None:
    """Put the journal back as it was before its last upgrade, and print the result."""
    path = _journal(home)
    try:
        writer, head, passed, aside = rollback(path)
    except OSError as error:
        raise Failure(str(error)) from None
    print(f"{path}: as fairlead {writer} left it, with {head.sequence:,} facts: start that version")
    if passed:
        print(f"jobs ran since: job numbers skip {passed:,}, so that none is used twice")
    print(f"the later journal is in {aside}")


def _journal(home: Path | None) -> Path:
    return (home or home_folder()).absolute() / "journal.db"


def _lost(found: Finding) -> str:
    if found.lost is None:
        return "the number of lost facts is unknown"
    if not found.lost:
        return "none is lost"
    first = found.position + 1
    return f"{found.lost:,} are lost ({first:,} to {found.position + found.lost:,})"
