"""The commands about a journal itself, for when something has happened to its files. They need no scheduler."""

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.commands.options import Json

app = typer.Typer(no_args_is_help=True, help="Look after the journal, and save what can be saved.")

Home = Annotated[Path | None, typer.Option(help="Data folder. Default: $FAIRLEAD_HOME or the user's data folder.")]


@app.command()
def check(home: Home = None, as_json: Json = False) -> None:
    """Say whether the journal is what was written, all of it.

    If not, it says how much of it is proved. Changes nothing. A scheduler may run meanwhile. Exit status 1 if something is wrong.
    """
    from fairlead.cli.journal import check_journal

    check_journal(home, as_json)


@app.command()
def repair(home: Home = None) -> None:
    """Go on with what is proved of a damaged journal.

    It says what is lost, and keeps the damaged files aside. What was lost may have been told to people: jobs that they
    submitted are not known, and tasks that had ended may run again. Where a copy of the journal and its head is at hand that
    is whole, restore that instead.
    """
    from fairlead.cli.journal import repair_journal

    repair_journal(home)


@app.command()
def adopt(home: Home = None) -> None:
    """Make a copy of a journal the journal.

    That is for after a restored backup, or a move to another disk or machine. Only where the scheduler that it was copied
    from runs no more: else all that waits and runs would run twice.
    """
    from fairlead.cli.journal import adopt_journal

    adopt_journal(home)
