"""Commands that check and repair a journal's files. They need no scheduler."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fairlead.cli.commands.options import Home, Json
from fairlead.cli.parsing import new_group
from fairlead.cli.scheduler import print_json
from fairlead.failure import failing
from fairlead.plain_text import plain

if TYPE_CHECKING:
    from fairlead.journal.repair import Finding

journal = new_group("journal", "Check, repair, adopt or roll back a journal.")


@journal.command()
def check(home: Home = None, as_json: Json = False) -> None:
    """Check that the journal is complete and undamaged.

    If it is not, report how many facts are proved. Changes nothing, and a scheduler may be running. Exit status 1 if
    something is wrong.
    """
    from fairlead.journal.head import is_of_another
    from fairlead.journal.repair import examine

    path = _journal(home)
    found = examine(path)
    if as_json:
        known = {"epoch": found.head.epoch, "sequence": found.head.sequence} if found.head else None
        told = {"journal": str(path), "proved": found.position, "kept": found.kept, "head": known}
        print_json({**told, "lost": found.lost if found.wrong else 0, "members": found.members, "wrong": found.wrong or None})
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


@journal.command()
def repair(home: Home = None) -> None:
    """Cut a damaged journal back to its proved facts.

    It reports what is lost and keeps the damaged files. People may have seen lost facts: jobs that they submitted may be
    unknown, and ended tasks may run again. If you have an undamaged copy of the journal and its head, restore that instead.
    """
    from fairlead.journal import repair as files

    path = _journal(home)
    with failing("", OSError):
        found, aside = files.repair(path)
    print(f"{path}: ends at fact {found.position:,} now; {_lost(found)}")
    if found.lost is None:
        print(f"job numbers skip {files.UNKNOWN_LOSS:,}, so that none is used twice")
    print(f"the damaged files are in {aside}")


@journal.command()
def rollback(home: Home = None) -> None:
    """Undo the last upgrade of the journal.

    What happened since is lost: later jobs are unknown, and tasks that ended since may run again. The later journal is kept
    aside. No scheduler may be running.
    """
    from fairlead.journal import repair as files

    path = _journal(home)
    with failing("", OSError):
        writer, head, passed, aside = files.rollback(path)
    print(f"{path}: as fairlead {writer} left it, with {head.sequence:,} facts: start that version")
    if passed:
        print(f"jobs ran since: job numbers skip {passed:,}, so that none is used twice")
    print(f"the later journal is in {aside}")


@journal.command()
def adopt(home: Home = None) -> None:
    """Make a copied journal usable by a scheduler.

    Use it after restoring a backup, or after moving to another disk or machine. The scheduler of the original must not run
    any more, or everything pending and running would run twice.
    """
    from fairlead.journal import repair as files

    path = _journal(home)
    with failing("", OSError):
        head, passed = files.adopt(path)
    print(f"{path}: adopted, with {head.sequence:,} facts")
    if passed:
        print(f"jobs ran here that it does not contain: job numbers skip {passed:,}, so that none is used twice")


def _journal(home: Path | None) -> Path:
    from fairlead.data_folder import home_folder

    return (home or home_folder()).absolute() / "journal.db"


def _lost(found: "Finding") -> str:
    if found.lost is None:
        return "the number of lost facts is unknown"
    if not found.lost:
        return "none is lost"
    return f"{found.lost:,} are lost ({found.position + 1:,} to {found.position + found.lost:,})"
