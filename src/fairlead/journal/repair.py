"""What is left of a journal, and how to go on with that: looked at record by record, believing nothing that is not proved.

A record is proved by the chain of checksums from the first one, or from a snapshot that is whole, and by nothing else. Whatever
comes after the first that is not proved counts as lost, even where it reads well: what follows from a history with a hole in it
is anybody's guess.
"""

import os
import shutil
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fairlead.journal import head, sqlite
from fairlead.journal.head import Head, HeadFile
from fairlead.journal.journal import Journal
from fairlead.journal.sql import SqlStore
from fairlead.journal.store import Damaged, JournalError, JournalFull
from fairlead.scheduler.facts import FactsLost
from fairlead.scheduler.state import State

UNKNOWN_LOSS = 1_000_000
"""Facts that count as lost where nothing says how many were: so many numbers of jobs are passed over."""


@dataclass
class Finding:
    """What a journal was found to be.

    Attributes
    ----------
    position, checksum : int
        Of the last fact that is proved; 0 and 0 where nothing is.
    kept : int
        How many facts are there, those before the snapshot too; counted where nothing is wrong.
    head : Head or None
        How far it had come, as was kept apart.
    wrong : str
        What is wrong with it; empty where nothing is.
    last_job : int
        The highest number that a job was given, by what is proved.
    begin : int or None
        With which snapshot the proof begins; see :meth:`fairlead.journal.journal.Journal.prove`.
    """

    position: int = 0
    checksum: int = 0
    kept: int = 0
    head: Head | None = None
    wrong: str = ""
    last_job: int = 0
    begin: int | None = None

    @property
    def lost(self) -> int | None:
        """How many facts are lost; None where that is not known."""
        return max(0, self.head.sequence - self.position) if self.head else None


def examine(path: Path) -> Finding:
    """Look at all of a journal, which may be in use.

    Raises JournalError where there is none, or where it is no journal that this fairlead can read.
    """
    found = Finding(head=head.read(path))
    try:
        with closing(SqlStore(path, to_read=True)) as store:
            journal = Journal(store)
            _prove_most(journal, found)
            journal.check_end(found.position)
            found.wrong = store.missing_starts()
            found.kept = journal.check_kept()
            if found.head is None and found.position:
                found.wrong = f"{head.path_of(path).name}, which says how far it came, is missing"
    except Damaged as error:
        found.wrong = error.why
    return found


def _prove_most(journal: Journal, found: Finding) -> None:
    """Find how far it is proved from the newest snapshot; where that fails, from whichever proves most.

    Raises the first failure.
    """
    failure = None
    for begin in journal.beginnings():
        try:
            for position, checksum, state in journal.prove(begin):
                if position > found.position:
                    found.position, found.checksum, found.last_job = position, checksum, state.index.last
                    found.begin = begin
            break
        except Damaged as error:
            failure = failure or error
    if failure:
        raise failure


def repair(path: Path) -> tuple[Finding, Path]:
    """Go on with what is proved of a damaged journal; the damaged one is moved aside as it is.

    Returns
    -------
    Finding
        What it was found to be.
    Path
        The folder where the damaged journal is now.

    Raises
    ------
    JournalError
        There is nothing to repair, nothing is proved, or a scheduler has it open. Nothing has changed then.
    """
    if not head.path_of(path).exists():  # it would be made, and so could be locked though a scheduler runs
        if not path.exists():
            examine(path)  # which refuses it
        if sqlite.is_open(path):
            raise JournalError(f"{path}: somebody has it open: stop the scheduler first")
    lock = HeadFile(path)
    try:
        found = examine(path)
        if not found.wrong:
            raise JournalError(f"{path}: nothing is wrong with it: {found.position:,} facts are proved")
        name, epoch, state = _proved(path, found)
        made = _made_anew(path, found, name, epoch, state)
        aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
        while aside.exists():  # of a repair that was stopped in this very second
            aside = aside.with_name(aside.name + "+")
        _exchange(path, made, aside)
    finally:
        lock.close()
    return found, aside


def _made_anew(path: Path, found: Finding, name: str, epoch: int, state: State) -> Path:
    """What is proved as a journal of its own, in a folder beside; nothing is left of it where that fails.

    `epoch` is what it says itself; where no head says more, supervisors may know it, and obey who is beyond.
    """
    made = path.with_name(f"{path.name}.repaired") / path.name
    shutil.rmtree(made.parent, ignore_errors=True)
    try:
        made.parent.mkdir(mode=0o700)
        epoch = found.head.epoch if found.head else epoch + 1
        with closing(Journal(SqlStore(made, name=name, epoch=epoch))) as journal:
            journal.go_on(state, found.position, found.checksum)
            lost = UNKNOWN_LOSS if found.lost is None else found.lost
            if lost:
                journal.append([FactsLost(at=time.time(), count=lost)])
    except BaseException as error:
        shutil.rmtree(made.parent, ignore_errors=True)
        if isinstance(error, OSError | JournalFull):
            raise JournalError(
                f"{path}: what is proved of it cannot be written: {error}: nothing has changed"
            ) from None
        raise
    return made


def _exchange(path: Path, made: Path, aside: Path) -> None:
    """Keep the damaged files aside, and have the new ones in their place.

    Wherever this is stopped, there is a journal in the place that is refused as damaged, or the new one: never none.
    """
    aside.mkdir(mode=0o700)
    for file in path.parent.glob(f"{path.name}*"):
        if file.is_file():
            os.link(file, aside / file.name)
    _sync(aside)
    for ending in ("-wal", "-shm"):  # of the damaged one: they are not to be read with the new one
        path.with_name(path.name + ending).unlink(missing_ok=True)
    _sync(path.parent)
    made.replace(path)
    head.path_of(made).replace(head.path_of(path))
    _sync(path.parent)
    shutil.rmtree(made.parent)


def _sync(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _proved(path: Path, found: Finding) -> tuple[str, int, State]:
    """The journal's id and epoch, and the state that follows from what is proved of it."""
    if found.position == 0:
        raise JournalError(f"{path}: nothing of it is proved ({found.wrong}): restore a copy of it and its head")
    with closing(SqlStore(path, to_read=True)) as store:
        for position, _, state in Journal(store).prove(found.begin):
            if position == found.position:
                return store.id, store.epoch, state
    raise JournalError(f"{path}: it changes while it is read: stop what writes it")


def adopt(path: Path) -> tuple[Head, int]:
    """Have a copy of a journal be the journal from now on, on this machine. Raises JournalError where it is damaged.

    Jobs that it does not know of may have run here: their numbers, as far as output is there, are passed over.

    Returns
    -------
    Head
        Of the journal as it is from now on.
    int
        How many numbers are passed over.
    """
    found = examine(path)
    if found.wrong or found.head is None or not found.position:
        raise Damaged(str(path), found.wrong or "there is nothing in it")
    with closing(HeadFile(path)) as file:
        file.write(found.head._replace(machine=head.this_machine(), inode=path.stat().st_ino))
    unknown = highest_output(path.parent) - found.last_job
    if unknown > 0:
        with closing(Journal(SqlStore(path))) as journal:
            journal.recover()
            journal.begin()
            journal.append([FactsLost(at=max(time.time(), journal.last_at()), count=unknown)])
    (path.parent / "supervisor" / "served").unlink(missing_ok=True)  # a person says which is the right one
    adopted = head.read(path)
    assert adopted is not None
    return adopted, max(0, unknown)


def highest_output(home: Path) -> int:
    """The highest number of a job of which there is output in a data folder; 0 for none."""
    output = home / "output"
    names = [path.name for path in output.iterdir()] if output.is_dir() else []
    return max((int(name) for name in names if name.isdecimal()), default=0)


def check_outputs(path: Path, state: State) -> None:
    """Refuse a journal that does not know of jobs that ran: it is an older one, of which the head was put back as well.

    Raises JournalError.
    """
    highest = highest_output(path.parent)
    if highest > state.index.last:
        raise JournalError(
            f"{path}: job {highest} ran here, and it knows of none beyond {state.index.last}: it is an older one: put the newest "
            "back; if there is none, `fairlead journal adopt` goes on with this one, and gives no number twice"
        )
