"""Checks a journal record by record, and repairs it: only what is proved counts.

A record is proved only by the chain of checksums from the first record or an intact snapshot. Everything after the first
unproved record counts as lost, even if it is readable: nobody can know what follows from a history with a gap.
"""

import os
import shutil
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.descriptors import opened
from fairlead.journal import head, sqlite
from fairlead.journal.head import Head, HeadFile
from fairlead.journal.journal import Journal
from fairlead.journal.sql import SqlStore
from fairlead.journal.store import Damaged, JournalError, JournalFull
from fairlead.scheduler.facts import FactsLost
from fairlead.scheduler.state import State

UNKNOWN_LOSS = 1_000_000
"""Facts that count as lost if the number is unknown; that many job numbers are skipped."""


@dataclass
class Finding:
    """The result of a check.

    position, checksum : of the last proved fact; 0 and 0 if there is none
    kept : number of facts, also before the snapshot; counted only if nothing is wrong
    head : its head
    wrong : what is wrong; empty if nothing
    last_job : the highest job number given, as far as proved
    members : the nodes whose machines may connect, as far as proved
    begin : the snapshot that the proof starts from; see :meth:`fairlead.journal.journal.Journal.prove`
    """

    position: int = 0
    checksum: int = 0
    kept: int = 0
    head: Head | None = None
    wrong: str = ""
    last_job: int = 0
    members: list[str] = field(default_factory=list)
    begin: int | None = None

    @property
    def lost(self) -> int | None:
        """Number of lost facts; None if unknown."""
        return max(0, self.head.sequence - self.position) if self.head else None


def examine(path: Path) -> Finding:
    """Check a journal, which may be in use. Raises JournalError if there is none, or this fairlead cannot read it."""
    found = Finding(head=head.read(path))
    try:
        with closing(SqlStore(path, to_read=True)) as store:
            journal = Journal(store)
            _prove_most(journal, found)
            journal.check_end(found.position)
            found.wrong = store.missing_starts()
            found.kept = journal.check_kept()
            if found.head is None and found.position:
                found.wrong = f"{head.path_of(path).name}, which records its last fact, is missing or unreadable"
    except Damaged as error:
        found.wrong = error.why
    return found


def _prove_most(journal: Journal, found: Finding) -> None:
    """Prove it from the newest snapshot; if that fails, from the one that proves most. Raises the first failure."""
    failure = None
    for begin in journal.beginnings():
        try:
            for position, checksum, state in journal.prove(begin):
                if position > found.position:
                    found.position, found.checksum, found.last_job = position, checksum, state.index.last
                    found.begin, found.members = begin, sorted(state.cluster.members)
            break
        except Damaged as error:
            failure = failure or error
    if failure:
        raise failure


def repair(path: Path) -> tuple[Finding, Path]:
    """Continue with what is proved of a damaged journal; the damaged one is moved aside unchanged, to the folder that is
    returned.

    Raises JournalError if there is nothing to repair, nothing is proved, or a scheduler has it open. Nothing has changed then.
    """
    if not head.path_of(path).exists():  # HeadFile would make it, and lock it although a scheduler runs
        if not path.exists():
            examine(path)  # raises
        if sqlite.is_open(path):
            raise JournalError(f"{path}: another process has it open: stop the scheduler first")
    lock = HeadFile(path)
    try:
        found = examine(path)
        if not found.wrong:
            raise JournalError(f"{path}: nothing is wrong with it: {found.position:,} facts are proved")
        name, epoch, state = _proved(path, found)
        aside = _exchange(path, _write_repaired(path, found, name, epoch, state), "damaged")
    finally:
        lock.close()
    return found, aside


def rollback(path: Path) -> tuple[str, Head, int, Path]:
    """Put a journal back as it was before its last upgrade; the upgraded one is moved aside.

    Supervisors obey no earlier start than they did, so starts are counted on. Returns the version of fairlead that wrote it, head
    and number as :func:`adopt`, and the folder of the upgraded journal.

    Raises JournalError if there is no such copy, or a scheduler has it open. Nothing has changed then.
    """
    kept = sqlite.kept_of(path) / path.name
    if not kept.exists():
        raise JournalError(f"{path}: no upgrade has left a copy in {kept.parent.name}: nothing to put back")
    lock, made = HeadFile(path), _place_to_make(path)
    try:
        with closing(SqlStore(kept, to_read=True)) as store:
            writer = store.writer
        before, last = head.read(kept), _last_job(path)
        made.parent.mkdir(mode=0o700)
        shutil.copyfile(kept, made)
        made.chmod(0o600)
        if before is None:
            raise JournalError(f"{kept}: its head is missing: restore another copy")
        epoch = max(before.epoch, lock.head.epoch if lock.head else 0)
        with closing(sqlite.connect(made)) as connection, connection:
            connection.execute("UPDATE meta SET value = ? WHERE key = 'epoch'", (str(epoch),))
        with closing(HeadFile(made)) as file:
            file.write(before._replace(epoch=epoch))
        aside = _exchange(path, made, "upgraded")
        shutil.rmtree(kept.parent)
    except OSError as error:
        raise JournalError(f"{path}: cannot be put back: {error}: see what is in {kept.parent}") from None
    finally:
        lock.close()
    return writer, *adopt(path, last), aside


def _last_job(path: Path) -> int:
    """Return the last job number that a journal may have given."""
    try:
        found = examine(path)
    except JournalError:  # as of one in a format that is unknown here
        return UNKNOWN_LOSS
    return found.last_job + (found.lost or 0)


def _write_repaired(path: Path, found: Finding, name: str, epoch: int, state: State) -> Path:
    """Write what is proved as a new journal, in a folder beside; on failure remove that.

    `epoch` is the journal's own. Without a head the next one is used: supervisors may know this epoch and obey only a later
    one.
    """
    made = _place_to_make(path)
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
            raise JournalError(f"{path}: the proved part cannot be written: {error}: nothing has changed") from None
        raise
    return made


def _place_to_make(path: Path) -> Path:
    """Return the path for a journal that is to replace another; its folder is still to be made."""
    made = path.with_name(f"{path.name}.repaired") / path.name
    shutil.rmtree(made.parent, ignore_errors=True)
    return made


def _exchange(path: Path, made: Path, why: str) -> Path:
    """Keep the files that are there in a folder, which is returned, and put the new ones in their place.

    If this is stopped at any point, the journal is the new one or is refused as damaged; it is never missing.
    """
    aside = path.with_name(f"{path.name}.{why}-{time.strftime('%Y%m%d-%H%M%S')}")
    while aside.exists():  # an earlier one in this second was stopped
        aside = aside.with_name(aside.name + "+")
    aside.mkdir(mode=0o700)
    for file in path.parent.glob(f"{path.name}*"):
        if file.is_file():
            os.link(file, aside / file.name)
    _sync(aside)
    for ending in ("-wal", "-shm"):  # of the damaged journal; the new one must not be read with them
        path.with_name(path.name + ending).unlink(missing_ok=True)
    _sync(path.parent)
    made.replace(path)
    head.path_of(made).replace(head.path_of(path))
    _sync(path.parent)
    shutil.rmtree(made.parent)
    return aside


def _sync(folder: Path) -> None:
    with opened(folder, os.O_RDONLY) as file:
        os.fsync(file)


def _proved(path: Path, found: Finding) -> tuple[str, int, State]:
    """Return the journal's id and epoch, and the state that is proved."""
    if found.position == 0:
        raise JournalError(f"{path}: nothing of it is proved ({found.wrong}): restore a copy of it and its head")
    with closing(SqlStore(path, to_read=True)) as store:
        for position, _, state in Journal(store).prove(found.begin):
            if position == found.position:
                return store.id, store.epoch, state
    raise JournalError(f"{path}: it is being written: stop the scheduler that writes it")


def adopt(path: Path, last: int = 0) -> tuple[Head, int]:
    """Make a copy of a journal the journal of this machine. Raises JournalError if it is damaged.

    Jobs that it does not know may have run here: their numbers are skipped, as far as `last`, or their output, shows them. If
    machines joined and there is no `last`, nothing shows what ran there, nor which start they obey: both are skipped well beyond.
    Returns the journal's head from now on, and how many numbers are skipped.
    """
    found = examine(path)
    if found.wrong or found.head is None or not found.position:
        raise Damaged(str(path), found.wrong or "there is nothing in it")
    beyond = UNKNOWN_LOSS if found.members and not last else 0
    with closing(HeadFile(path)) as file:
        if beyond:
            with closing(sqlite.connect(path)) as connection, connection:
                connection.execute("UPDATE meta SET value = value + ? WHERE key = 'epoch'", (beyond,))
        epoch = found.head.epoch + beyond
        file.write(found.head._replace(machine=head.this_machine(), inode=path.stat().st_ino, epoch=epoch))
    unknown = max(beyond, max(last, highest_output(path.parent)) - found.last_job)
    if unknown > 0:
        with closing(Journal(SqlStore(path, upgrade=False))) as journal:
            journal.recover()
            journal.begin()
            journal.append([FactsLost(at=max(time.time(), journal.last_at()), count=unknown)])
    (path.parent / "supervisor" / "served").unlink(missing_ok=True)  # a person chose this journal
    adopted = head.read(path)
    assert adopted is not None
    return adopted, max(0, unknown)


def highest_output(home: Path) -> int:
    """Return the highest job number with output in a data folder; 0 if there is none."""
    output = home / "output"
    names = [path.name for path in output.iterdir()] if output.is_dir() else []
    return max((int(name) for name in names if name.isdecimal()), default=0)


def check_outputs(path: Path, state: State) -> None:
    """Refuse a journal that does not know jobs that ran, with JournalError: it is older, with a head restored as well."""
    highest = highest_output(path.parent)
    if highest > state.index.last:
        raise JournalError(
            f"{path}: job {highest} ran here, but its last job is {state.index.last}: it is an older copy: restore the "
            "newest; if there is none, `fairlead journal adopt` continues with this one, and reuses no number"
        )
