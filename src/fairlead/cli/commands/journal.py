"""Commands that check and repair a journal's files. They need no scheduler."""

from fairlead.cli.commands.options import Home, Json
from fairlead.cli.parsing import new_group

journal = new_group("journal", "Check, repair, adopt or roll back a journal.")


@journal.command()
def check(home: Home = None, as_json: Json = False) -> None:
    """Check that the journal is complete and undamaged.

    If it is not, report how many facts are proved. Changes nothing, and a scheduler may be running. Exit status 1 if
    something is wrong.
    """
    from fairlead.cli.journal import check_journal

    check_journal(home, as_json)


@journal.command()
def repair(home: Home = None) -> None:
    """Cut a damaged journal back to its proved facts.

    It reports what is lost and keeps the damaged files. People may have seen lost facts: jobs that they submitted may be
    unknown, and ended tasks may run again. If you have an undamaged copy of the journal and its head, restore that instead.
    """
    from fairlead.cli.journal import repair_journal

    repair_journal(home)


@journal.command()
def rollback(home: Home = None) -> None:
    """Undo the last upgrade of the journal.

    What happened since is lost: later jobs are unknown, and tasks that ended since may run again. The later journal is kept
    aside. No scheduler may be running.
    """
    from fairlead.cli.journal import rollback_journal

    rollback_journal(home)


@journal.command()
def adopt(home: Home = None) -> None:
    """Make a copied journal usable by a scheduler.

    Use it after restoring a backup, or after moving to another disk or machine. The scheduler of the original must not run
    any more, or everything pending and running would run twice.
    """
    from fairlead.cli.journal import adopt_journal

    adopt_journal(home)
