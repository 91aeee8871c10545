"""Journals: what is appended is recovered, and what cannot be trusted is refused."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from fairlead.journal import Journal, JournalError, JournalFull
from fairlead.journal import journal as journals
from fairlead.journal.memory import MemoryStore
from fairlead.journal.sql import SqlStore
from fairlead.model.specs import Job, Node, Queue, Settings
from fairlead.scheduler.facts import Configured, JobSubmitted, NodeJoined
from fairlead.scheduler.state import State
from test_scheduling import World
from worlds import same


def some_facts():
    """A little history, and the state that it leads to."""
    world = World([Queue("A")], {"cpu": 4000})
    facts = [
        Configured(at=0, queues=[Queue("A")], settings=Settings()),
        NodeJoined(at=0, node=Node("n0", {"cpu": 4000})),
        JobSubmitted(at=0, id=1, job=Job("A", {"cpu": 1000}, tasks=9)),
    ]
    world.submit("A", {"cpu": 1000}, 9)
    facts += world.decide()
    return facts, world.state


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "journal.db"


def written(path):
    facts, state = some_facts()
    journal = Journal(SqlStore(path))
    journal.append(facts[:2])
    journal.append(facts[2:])
    return journal, state


def test_what_is_appended_is_recovered(path):
    journal, state = written(path)
    assert same(journal.recover()) == same(state)
    journal.close()
    again = Journal(SqlStore(path))
    assert (again.id, again.position) == (journal.id, 4)
    assert same(again.recover()) == same(state)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    again.close()


def test_a_snapshot_and_what_came_after_it(path):
    journal, state = written(path)
    journal.save(state)
    more = JobSubmitted(at=5, id=2, job=Job("A", {"cpu": 500}))
    journal.append([more])
    state.apply(more)
    assert same(journal.recover()) == same(state)
    assert [position for position, _ in journal.look(0, 10)] == [1, 2, 3, 4, 5], "history is kept a while"
    journal.close()


def test_a_snapshot_in_memory_is_the_same(path):
    facts, state = some_facts()
    journal = Journal(MemoryStore())
    journal.append(facts[:3])
    early = State()
    for fact in facts[:3]:
        early.apply(fact)
    journal.save(early)
    journal.append(facts[3:])
    assert same(journal.recover()) == same(state)


def test_the_file_does_not_grow_for_ever(path, monkeypatch):
    monkeypatch.setattr(journals, "KEEP_HISTORY", 20_000)
    monkeypatch.setattr(journals, "SNAPSHOT_AFTER", 10_000)
    journal, state = written(path)
    sizes = []
    for i in range(1500):
        fact = Configured(at=i, queues=[Queue("A", weight=1.0 + i)], settings=Settings())
        state.apply(fact)
        journal.append([fact])
        if journal.snapshot_due():
            journal.save(state)
        if i % 500 == 499:
            sizes.append(path.stat().st_size)
    assert sizes[2] <= sizes[0] * 1.2, sizes
    kept = sum(len(body) for (body,) in sqlite3.connect(path).execute("select body from facts"))
    assert kept < 40_000
    journal.close()
    again = Journal(SqlStore(path))
    assert same(again.recover()) == same(state)
    again.close()


def test_a_second_scheduler_is_refused(path):
    journal, _ = written(path)
    with pytest.raises(JournalError, match="another scheduler has it open"):
        Journal(SqlStore(path))
    journal.close()
    Journal(SqlStore(path)).close()


def test_a_newer_journal_is_refused(path):
    written(path)[0].close()
    with sqlite3.connect(path) as connection:
        connection.execute("update meta set value = '99' where key = 'schema_version'")
    with pytest.raises(JournalError, match=r"newer fairlead \(schema 99"):
        Journal(SqlStore(path))


@pytest.mark.parametrize("size", [0, 50, 100, 4096, 5000, 0.5, 0.9])
def test_a_truncated_journal_is_refused(path, size):
    written(path)[0].close()
    whole = path.read_bytes()
    path.write_bytes(whole[: int(size * len(whole)) if size < 1 else size])
    with pytest.raises(JournalError, match=r"journal\.db: "):
        Journal(SqlStore(path)).recover()


@pytest.mark.parametrize(
    "damage",
    [
        "update facts set body = replace(body, 'cpu', 'gpu') where sequence = 3",
        "update facts set body = x'00' where sequence = 3",
        "delete from facts where sequence = 1",
        "delete from facts where sequence = 2",
        "update snapshots set body = substr(body, 1, 100)",
        "delete from meta",
        "drop table meta",
    ],
)
def test_a_damaged_journal_is_refused(path, damage):
    journal, state = written(path)
    if "snapshots" in damage:
        journal.save(state)
    journal.close()
    with sqlite3.connect(path) as connection:
        connection.execute(damage)
    with pytest.raises(JournalError, match=r"damaged|not a fairlead journal"):
        Journal(SqlStore(path)).recover()


def test_flipped_bytes_of_the_file_are_never_believed(path):
    journal, state = written(path)
    journal.close()
    good = path.read_bytes()
    for place in range(0, len(good), 97):
        bad = bytearray(good)
        bad[place] ^= 0xFF
        path.write_bytes(bad)
        for end in ("-wal", "-shm"):
            Path(f"{path}{end}").unlink(missing_ok=True)
        with contextlib.suppress(JournalError):
            journal = Journal(SqlStore(path))
            try:
                assert same(journal.recover()) == same(state), f"byte {place}"
            finally:
                journal.close()


def test_what_is_no_journal_is_refused(path, tmp_path):
    other = tmp_path / "other.db"
    other.write_text("hello, I am a letter\n" * 100)
    with pytest.raises(JournalError, match="damaged"):
        Journal(SqlStore(other))
    with sqlite3.connect(tmp_path / "some.db") as connection:
        connection.execute("create table cats (name)")
    with pytest.raises(JournalError, match="not a fairlead journal"):
        Journal(SqlStore(tmp_path / "some.db"))


def test_a_full_database_loses_nothing_and_goes_on(path):
    """SQLite's own limit of pages gives the very error of a full disk."""
    journal, state = written(path)
    pages = journal._store._writing.exec_driver_sql("pragma page_count").scalar()
    journal._store._writing.exec_driver_sql(f"pragma max_page_count = {pages}")
    journal._store._writing.commit()
    big = [Configured(at=1, queues=[Queue(f"q{i}") for i in range(3000)], settings=Settings())]
    for _ in range(3):
        with pytest.raises(JournalFull, match="make room"):
            journal.append(big)
    assert journal.position == 4
    assert same(journal.recover()) == same(state)
    journal._store._writing.exec_driver_sql("pragma max_page_count = 1000000")
    journal._store._writing.commit()
    journal.append(big)
    state.apply(big[0])
    journal.close()
    again = Journal(SqlStore(path))
    assert same(again.recover()) == same(state)
    again.close()


def test_a_full_disk_loses_nothing_and_goes_on(small_disk):
    """A real one: a small file system of its own."""
    small = small_disk("400k")
    journal, state = written(small / "journal.db")
    ballast = small / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    facts = [Configured(at=1, queues=[Queue(f"q{i}") for i in range(500)], settings=Settings())]
    for _ in range(3):
        with pytest.raises(JournalFull, match="make room"):
            journal.append(facts)
    ballast.unlink()
    journal.append(facts)
    state.apply(facts[0])
    journal.close()
    again = Journal(SqlStore(small / "journal.db"))
    assert same(again.recover()) == same(state)
    again.close()
