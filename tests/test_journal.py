"""Journals: what is appended is recovered, and what cannot be trusted is refused."""

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import pytest
from tests.memory_store import MemoryStore

import fairlead
import stored_journal
from fairlead.engines.local import fence
from fairlead.engines.local.messages import Greet
from fairlead.journal import (
    Envelope,
    Forgotten,
    Journal,
    JournalError,
    JournalFull,
    JournalLost,
    NewerJournal,
    Unrecorded,
    head,
    read_history,
    repair,
    sql,
    sqlite,
)
from fairlead.journal import journal as journals
from fairlead.journal.head import HeadFile
from fairlead.journal.sql import SqlStore
from fairlead.journal.store import Damaged, Part, Record, Snapshot, TakenOver
from fairlead.model.specs import Job, Node, Queue, Settings
from fairlead.scheduler import snapshot, tables
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import AnyFact, Configured, JobHeld, JobSubmitted, NodeAdmitted, NodeDrained, NodeJoined, encode
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


@pytest.fixture(params=["memory", "sql"])
def store(request, path):
    """Each kind of store in turn."""
    made = MemoryStore() if request.param == "memory" else SqlStore(path)
    yield made
    made.close()


def written(path):
    facts, state = some_facts()
    journal = Journal(SqlStore(path))
    journal.begin()
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
    list(journal.save(state))
    more = JobSubmitted(at=5, id=2, job=Job("A", {"cpu": 500}))
    journal.append([more])
    apply(state, more)
    assert same(journal.recover()) == same(state)
    assert [position for position, _ in journal.look(0, 10)] == [1, 2, 3, 4, 5], "history is kept a while"
    journal.close()


def record(sequence, body, **more):
    return Record(Envelope(sequence, 1.5, 2.5, "ada", 7, sequence - 1, sequence)._replace(**more), body)


def test_a_store_gives_back_the_bytes_that_it_was_given(store):
    records = [record(k, bytes([k, 0, 255])) for k in range(1, 8)]
    assert (store.extent(), store.read(0, 10), store.snapshot()) == ((0, 0, 0, 0), [], None)
    store.append(records[:3])
    store.append(records[3:])
    assert store.extent() == (7, 7, 0, 21)
    assert (store.read(0, 100), store.read(2, 3), store.read(7, 5)) == (records, records[2:5], [])
    list(store.save(Snapshot(7, 7, parts(b"fi", b"rst")), keep=100))
    store.append([record(8, b"more")])
    assert (store.extent(), store.read(0, 1), saved_in(store)) == ((8, 8, 7, 4), records[:1], (7, 7, [b"fi", b"rst"]))
    list(store.save(Snapshot(8, 8, parts(b"second")), keep=5))
    assert (store.read(0, 9), saved_in(store)) == ([*records, record(8, b"more")], (8, 8, [b"second"]))
    assert (store.snapshot(6), saved_in(store, 7)) == (None, (7, 7, [b"fi", b"rst"]))
    list(store.save(Snapshot(8, 8, parts(b"again")), keep=4))  # it is there
    assert (store.read(0, 9), store.snapshots(), saved_in(store)) == ([record(8, b"more")], [7, 8], (8, 8, [b"second"]))
    list(store.save(Snapshot(8, 8, parts(b"second")), keep=0))
    assert (store.read(0, 9), store.extent(), store.snapshots()) == ([], (0, 0, 8, 0), [8])


def parts(*bodies):
    return [Part(k, body) for k, body in enumerate(bodies)]


def saved_in(store, until=None):
    sequence, checksum, found = store.snapshot(until)
    return sequence, checksum, [part.body for part in found]


@pytest.mark.parametrize("page", [1, 2, 3, 100])
def test_recovery_is_the_same_from_any_store_with_a_snapshot_or_without(store, page, monkeypatch):
    monkeypatch.setattr(journals, "PAGE", page)
    facts, state = some_facts()
    journal = Journal(store)
    journal.append(facts[:3])
    list(journal.save(journal.recover()))
    journal.append(facts[3:])
    assert same(journal.recover()) == same(state)
    again = Journal(store)
    assert again.position == 4
    assert same(again.recover()) == same(state)
    assert [type(fact) for fact in read_history(store).facts] == [type(fact) for fact in facts]


def test_a_journal_of_which_only_the_snapshot_is_left_goes_on(store, monkeypatch):
    monkeypatch.setattr(journals, "KEEP_HISTORY", 0)
    facts, state = some_facts()
    journal = Journal(store)
    journal.append(facts)
    list(journal.save(state))
    again = Journal(store)
    assert (again.position, same(again.recover())) == (4, same(state))
    with pytest.raises(Forgotten, match="ask for those after 4"):
        again.look(3, 10)
    known, _, history = read_history(store)
    assert (same(known), list(history)) == (same(state), [])
    more = NodeDrained(at=9, node="n0")
    again.append([more])
    apply(state, more)
    assert same(Journal(store).recover()) == same(state)


def test_a_snapshot_abandoned_after_any_slice_loses_nothing(path, monkeypatch):
    monkeypatch.setattr(journals, "KEEP_HISTORY", 0)
    monkeypatch.setattr("fairlead.journal.sql._SLICE", 1500)
    monkeypatch.setattr(snapshot, "PIECE_BYTES", 1500)
    journal, state = written(path)
    slices = most = 0
    while slices == most:  # each time it is killed one slice later
        saving, slices, most = journal.save(state), 0, most + 1
        while slices < most and next(saving, journal) is None:
            slices += 1
            if slices in (1, most):  # facts go on meanwhile
                fact = JobSubmitted(at=state.at + 1, id=state.index.last + 1, job=Job("A", {"cpu": 500}))
                journal.append([fact])
                apply(state, fact)
        saving.close()
        journal.close()
        journal = Journal(SqlStore(path))
        assert same(journal.recover()) == same(state)
        assert journal.check_kept() > 0
        journal.begin()
    journal.close()
    with contextlib.closing(sqlite3.connect(path)) as database:
        parts = database.execute(
            "SELECT sequence, min(part), max(part) + 1, count(*) FROM snapshots GROUP BY sequence"
        ).fetchall()
        (first,) = database.execute("SELECT min(sequence) FROM facts").fetchone()
    assert slices > 10
    assert [(least, past) for _, least, past, _ in parts] == [(0, count) for *_, count in parts], "no part is left alone"
    assert parts[0][0] == first - 1 > 4, "old facts are dropped up to a snapshot"


def test_what_people_caused_is_found_newest_first(store):
    journal = Journal(store)
    journal.begin()
    by = ["", "(engine)", "ada", "bo", "ada", "", "bo", "ada"]
    for number, who in enumerate(by):
        journal.append([NodeDrained(at=number, node=f"n{number}")], by=[who])
    records = [envelope for envelope, _ in store.read(0, 100)]
    for since in (0.0, records[3].wall, records[-1].wall + 1):
        for who in (None, "ada", "nobody"):
            for before in (None, 5):
                right = [
                    (each.sequence, each.by)
                    for each in records[::-1]
                    if (each.by in ("ada", "bo") if who is None else each.by == who)
                    and each.wall >= since
                    and (before is None or each.sequence < before)
                ]
                for most in (1, 100):
                    found = journal.caused(since, who, before, most)
                    assert [(envelope.sequence, envelope.by) for envelope, _ in found] == right[:most]
                    assert [fact.node for _, fact in found] == [f"n{envelope.sequence - 1}" for envelope, _ in found]


def test_every_record_says_when_it_was_written_and_who_caused_it(store):
    facts, _ = some_facts()
    journal = Journal(store)
    journal.begin()
    before = time.time(), time.monotonic()
    journal.append(facts[:3], by=["", "(engine)", "ada"])
    journal.append(facts[3:])
    after = time.time(), time.monotonic()
    envelopes = [envelope for envelope, _ in store.read(0, 10)]
    assert [(e.sequence, e.by, e.epoch) for e in envelopes] == [(1, "", 1), (2, "(engine)", 1), (3, "ada", 1), (4, "", 1)]
    assert [e.before for e in envelopes] == [journals.beginning(store.id), *(e.checksum for e in envelopes[:-1])]
    assert [e.checksum for e in envelopes] == [journals.link(e, encode(fact)) for e, fact in zip(envelopes, facts, strict=True)]
    assert all(before[0] <= e.wall <= after[0] and before[1] <= e.monotonic <= after[1] for e in envelopes)
    with pytest.raises(ValueError, match="shorter"):
        journal.append(facts[:2], by=["ada"])
    assert journal.position == 4


def test_what_is_appended_while_others_look_was_not_forgotten():
    class Racing(MemoryStore):
        def read(self, after, most):
            page = super().read(after, most)
            journal.append([NodeDrained(at=1, node="n")])
            return page

    journal = Journal(Racing())
    assert journal.look(0, 10) == []
    assert [position for position, _ in journal.look(0, 10)] == [1]


def test_what_is_not_recorded_is_counted():
    journal = Unrecorded()
    journal.append(some_facts()[0], by=["", "", "ada", ""])
    list(journal.save(journal.recover()))
    assert (journal.position, journal.snapshot_due(), same(journal.recover())) == (4, False, same(new_state()))
    public = {name for name in dir(Journal) + list(vars(Journal(MemoryStore()))) if not name.startswith("_")}
    only_kept = {"prove", "beginnings", "check_end", "check_kept", "go_on", "last_at", "look", "caused", "close"}
    assert public - only_kept == {name for name in dir(journal) if not name.startswith("_")}


def test_the_file_does_not_grow_for_ever(path, monkeypatch):
    monkeypatch.setattr(journals, "KEEP_HISTORY", 20_000)
    monkeypatch.setattr(journals, "SNAPSHOT_AFTER", 10_000)
    journal, state = written(path)
    sizes = []
    for i in range(1500):
        fact = Configured(at=i, queues=[Queue("A", weight=1.0 + i)], settings=Settings())
        apply(state, fact)
        journal.append([fact])
        if journal.snapshot_due():
            list(journal.save(state))
        if i % 500 == 499:
            sizes.append(path.stat().st_size)
    assert sizes[2] <= sizes[1] * 1.2, sizes
    kept = sum(len(body) for (body,) in sqlite3.connect(path).execute("select body from facts"))
    between = max(10_000, 2 * sum(len(part) for part in snapshot.dump(state)))
    assert kept < 20_000 + 2 * between, "what came between the last two snapshots, and since the last"


def test_a_second_scheduler_is_refused(path):
    journal, _ = written(path)
    with pytest.raises(JournalError, match="another scheduler has it open"):
        Journal(SqlStore(path))
    journal.close()
    Journal(SqlStore(path)).close()


def test_a_newer_journal_is_refused(path):
    written(path)[0].close()
    alter(path, "update meta set value = '99' where key = 'schema_version'")
    with pytest.raises(NewerJournal, match=r"newer fairlead \(schema 99"):
        Journal(SqlStore(path))
    with pytest.raises(NewerJournal, match=r"newer fairlead \(schema 99"):
        SqlStore(path, to_read=True)


def test_an_older_journal_is_refused_with_how_to_go_on(path):
    path.parent.mkdir()
    alter(path, "create table meta (key text primary key, value text not null)")
    alter(path, "insert into meta values ('schema_version', '1'), ('id', 'a'), ('created', '0')")
    for name in ("facts", "snapshots"):
        alter(path, f"create table {name} (position bigint primary key, body blob not null, crc bigint not null)")
    for to_read in (False, True):
        with pytest.raises(
            JournalError, match=r"older fairlead \(schema 1, this one reads 3 to 4\): start one between"
        ) as refused:
            SqlStore(path, to_read=to_read)
        assert not isinstance(refused.value, NewerJournal)
        assert "\n" not in str(refused.value)


def alter(path, *statement):
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(*statement)


def rewrite(path, sequence, body):
    """Have a fact say something else, and all that is there to prove it agree."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        rows = connection.execute("select * from facts where sequence >= ? order by sequence", (sequence,)).fetchall()
        before = rows[0][5]
        for *told, _, _, old in rows:
            new = body if told[0] == sequence else old
            checksum = journals.link(Envelope(*told, before, 0), new)
            change = "update facts set body = ?, before = ?, checksum = ? where sequence = ?"
            connection.execute(change, (new, before, checksum, told[0]))
            before = checksum
        sequence = told[0]
    with contextlib.closing(HeadFile(path)) as file:
        file.write(file.head._replace(sequence=sequence, checksum=before))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda fact: {**fact, "type": "NodePainted"}, "fact 3: .*NodePainted"),
        (lambda fact: {**fact, "colour": "blue"}, "fact 3: .*unknown field `colour`"),
        (lambda fact: {**fact, "job": {**fact["job"], "colour": "blue"}}, "fact 3: .*unknown field `colour`.*job"),
        (lambda fact: {**fact, "id": "one"}, "fact 3: .*Expected `int`"),
    ],
)
def test_a_fact_that_only_a_newer_fairlead_knows_is_refused_by_its_version(path, change, what):
    journal, _ = written(path)
    body = json.dumps(change(json.loads(journal.look(2, 1)[0][1]))).encode()
    journal.close()
    rewrite(path, 3, body)
    alter(path, "update meta set value = '9.9.9' where key = 'fairlead'")
    for _ in range(2):
        journal = Journal(SqlStore(path))
        with pytest.raises(NewerJournal, match=what) as refused:
            journal.recover()
        journal.close()
        assert f"9.9.9 wrote last, this is {fairlead.__version__}): upgrade fairlead, or start with" in str(refused.value)
        assert "\n" not in str(refused.value)
    with pytest.raises(NewerJournal, match=what):
        list(read_history(SqlStore(path, to_read=True)).facts)


def test_a_snapshot_finds_memory_in_slices_before_it_copies_the_tables(monkeypatch):
    """A bulk that comes meanwhile is in it; with one that does not fit, the tables are copied to other memory."""
    monkeypatch.setattr(snapshot, "ROOM_BYTES", 20_000)
    large = []
    monkeypatch.setattr(snapshot, "longer", lambda rows, *sizes: large.append(rows.dtype) or tables.longer(rows, *sizes))

    def bulk(count):
        job = Job("A", {"cpu": 500})
        return JobSubmitted(at=state.at, id=state.index.last + 1, job=job, more=[job] * (count - 1))

    for more, copied in ((10, 0), (3000, 1)):  # of the jobs only: memory for their tasks is found later
        state = some_facts()[1]
        apply(state, bulk(1000))
        finding, sizes, room = snapshot.room_for(state), [], None
        while room is None:
            try:
                next(finding)
                sizes.append(20_000)
            except StopIteration as found:
                room = found.value
            if len(sizes) == 3:
                apply(state, bulk(more))
        assert sum(sizes) >= sum(rows.nbytes for rows in room.values()) > 200_000
        large.clear()
        pieces = [*snapshot.dump(state, room)]
        assert sum(dtype in (state.jobs.FIELDS, state.tasks.FIELDS) for dtype in large) == copied
        assert same(snapshot.load(pieces)) == same(state)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda saved: saved[0].update(format=999), "its snapshot: snapshot format 999"),
        (lambda saved: saved[0].update(colours=[]), "its snapshot: .*unknown field `colours`"),
        (lambda saved: saved[0]["settings"].update(colour=1), "its snapshot: .*unknown field `colour`"),
        (lambda saved: saved[0]["rows"].update(colours=3), "unknown table `colours`"),
        (lambda saved: saved[2].update(column="colour"), "unknown column of nodes `colour`"),
        (lambda saved: saved[2].update(table="colours"), "unknown table `colours`"),
        (lambda saved: saved[2].update(type="paints"), "its snapshot: .*paints"),
    ],
)
def test_a_snapshot_that_only_a_newer_fairlead_knows_is_refused(store, change, what):
    msgpack = journals.msgspec.msgpack
    journal = Journal(store)
    journal.append(some_facts()[0])
    saved = [msgpack.decode(piece) for piece in journals.snapshot.dump(some_facts()[1])]
    change(saved)
    checksum, pieces = journal._checksum, []
    for piece in map(msgpack.encode, saved):
        checksum = journals.link_part(4, checksum, piece)
        pieces.append(Part(checksum, piece))
    list(store.save(Snapshot(4, journal._checksum, pieces), keep=0))
    with pytest.raises(NewerJournal, match=what):
        Journal(store).recover()


def test_the_version_that_wrote_last_is_kept(path, monkeypatch):
    journal, state = written(path)
    journal.close()
    monkeypatch.setattr(fairlead, "__version__", "9.9.9")
    journal = Journal(SqlStore(path))
    journal.recover()
    journal.close()
    with contextlib.closing(SqlStore(path, to_read=True)) as store:
        assert store.writer != "9.9.9", "it only read"
    journal = Journal(SqlStore(path))
    list(journal.save(state))
    journal.close()
    with contextlib.closing(SqlStore(path, to_read=True)) as store:
        assert store.writer == "9.9.9"


def test_another_format_has_another_number_and_a_stored_journal():
    if "FAIRLEAD_STORE" in os.environ:
        stored_journal.store()
    known, now = stored_journal.FORMAT.read_text().splitlines()[1:], stored_journal.described().splitlines()[1:]
    changed = sorted({*known} ^ {*now})
    assert not changed, "raise SCHEMA_VERSION, unless it is new in this version, and FAIRLEAD_STORE=1: see docs/journal.md"


@pytest.mark.parametrize("stored", sorted(stored_journal.DATA.glob("journal-*.db")), ids=lambda path: path.stem)
def test_a_stored_journal_of_each_format_recovers_to_what_it_was_and_goes_on(tmp_path, stored):
    expected = json.loads(stored.with_suffix(".json").read_text())
    path = stored_journal.copy_to(tmp_path, stored)
    with contextlib.closing(Journal(SqlStore(path))) as journal:
        assert stored_journal.is_still(expected, stored_journal.told(journal.recover()))
        journal.begin()
        journal.append([JobHeld(at=100.0, id=1)])
    with contextlib.closing(Journal(SqlStore(path))) as journal:
        assert journal.check_kept() == journal.position
        journal.recover()
    was, kept = stored.stem.removeprefix("journal-"), sqlite.kept_of(path)
    if was == str(sql.SCHEMA_VERSION):
        assert not kept.exists()
        with pytest.raises(JournalError, match="no upgrade has left a copy"):
            repair.rollback(path)
        return
    assert repair.examine(kept / path.name).wrong == ""
    (tmp_path / "output" / "40").mkdir(parents=True)  # a job that ran since
    writer, found, passed, aside = repair.rollback(path)
    assert (writer, passed) == ("0.1.0", 40 - 11)
    assert not kept.exists()
    assert repair.examine(aside / path.name).position == found.sequence
    with contextlib.closing(SqlStore(path, to_read=True)) as store:
        assert store._check()["schema_version"] == was, "the fairlead of before can read it"
        state = Journal(store).recover()
        assert store.epoch == found.epoch == 3, "later than any start before"
    assert state.index.last == 40
    assert path.stat().st_mode & 0o077 == 0


def test_a_stored_journal_has_each_kind_of_fact_and_is_read_from_its_beginning(tmp_path):
    expected = json.loads(stored_journal.JOURNAL.with_suffix(".json").read_text())
    path = stored_journal.copy_to(tmp_path)
    replayed = new_state()
    with contextlib.closing(SqlStore(path, to_read=True)) as store:
        assert 0 < store.snapshot().sequence < store.extent().last
        facts = list(read_history(store).facts)
    for fact in facts:
        apply(replayed, fact)
    assert stored_journal.told(replayed) == expected
    assert {type(fact) for fact in facts} == set(get_args(AnyFact)), "extend every_fact, then FAIRLEAD_STORE=1"


def test_a_history_is_read_while_it_is_written(path, monkeypatch):
    monkeypatch.setattr(journals, "PAGE", 1)
    monkeypatch.setattr(journals, "KEEP_HISTORY", 0)
    journal, state = written(path)
    with contextlib.closing(SqlStore(path, to_read=True)) as store:
        known, _, facts = read_history(store)
        first = next(facts)
        list(journal.save(state))
        journal.append([NodeDrained(at=9, node="n0")])
        assert known is None
        assert len([first, *facts]) == 4, "as it was when it was opened"
    with contextlib.closing(SqlStore(path, to_read=True)) as store:
        known, _, facts = read_history(store)
        assert (same(known), [fact.node for fact in facts]) == (same(state), ["n0"])
    journal.close()


def test_what_is_only_read_is_not_written_and_not_made(path):
    with pytest.raises(JournalError, match="there is no journal"):
        SqlStore(path, to_read=True)
    assert not path.parent.exists()
    written(path)[0].close()
    with (
        contextlib.closing(Journal(SqlStore(path, to_read=True))) as journal,
        pytest.raises(JournalFull, match="is open for reading only"),
    ):
        journal.append([NodeDrained(at=9, node="n0")])


def test_a_path_may_have_any_characters(tmp_path):
    path = tmp_path / "what? 100%20 #1" / "journal.db"
    written(path)[0].close()
    assert path.exists()
    with contextlib.closing(Journal(SqlStore(path))) as journal:
        assert journal.position == 4
    with contextlib.closing(Journal(SqlStore(path, to_read=True))) as journal:
        assert journal.position == 4


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
        "update facts set checksum = checksum + 1 where sequence = 3",
        "update facts set sequence = 9 where sequence = 4",
        "update facts set sequence = 'x' where sequence = 4",
        "update facts set body = 'x' where sequence = 4",
        "update facts set before = before + 1 where sequence = 3",
        "update facts set wall = wall + 1 where sequence = 3",
        "update facts set by = 'eve' where sequence = 3",
        "update facts set epoch = 9 where sequence = 3",
        "delete from facts where sequence = 4",
        "delete from facts",
        "delete from snapshots where part = 1",
        "delete from snapshots where part = (select max(part) from snapshots)",
        "delete from facts where sequence = 1",
        "delete from facts where sequence = 2",
        "update snapshots set body = substr(body, 1, 100)",
        "update snapshots set body = x'c1'",
        "update snapshots set as_of = 7",
        "update snapshots set checksum = 0",
        "update snapshots set sequence = 2",
        "delete from meta",
        "drop table meta",
    ],
)
def test_a_damaged_journal_is_refused(path, damage):
    journal, state = written(path)
    if "snapshots" in damage:
        list(journal.save(state))
    journal.close()
    alter(path, damage)
    with pytest.raises(JournalError, match=r"damaged|not a fairlead journal") as refused:
        Journal(SqlStore(path)).recover()
    assert not isinstance(refused.value, NewerJournal)


def test_flipped_bytes_of_the_file_are_never_believed(path):
    journal, state = written(path)
    journal.close()
    good = path.read_bytes()
    for place in range(0, len(good), 197):
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


def test_a_damaged_page_is_named(path):
    written(path)[0].close()
    data = path.read_bytes()
    path.write_bytes(data[: 5 * 4096] + b"\x5a" * 4096 + data[6 * 4096 :])
    with pytest.raises(Damaged, match=r"\(.*[Pp]age 6"):
        SqlStore(path)


@pytest.mark.parametrize("to_read", [False, True])
def test_a_schema_that_is_not_text_is_damage(path, to_read):
    written(path)[0].close()
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE facts", b"CREATE \xff\xfe\xfcLE facts"))
    with pytest.raises(Damaged, match="its schema is not text"):
        SqlStore(path, to_read=to_read)


@pytest.mark.parametrize("to_read", [False, True])
def test_a_journal_that_another_program_has_locked_is_not_called_damaged(path, to_read):
    written(path)[0].close()
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("pragma locking_mode = exclusive")
        other.execute("begin exclusive")
        with pytest.raises(JournalError, match="another program has locked it: end that one") as refused:
            SqlStore(path, to_read=to_read)
    assert not isinstance(refused.value, Damaged)
    SqlStore(path, to_read=to_read).close()


def test_a_journal_that_another_program_locks_while_in_use_goes_on_once_it_is_unlocked(path):
    journal, _ = written(path)
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("begin immediate")
        with pytest.raises(JournalFull, match="database is locked: end the program that has locked it"):
            journal.append([NodeDrained(at=9, node="n0")])
    journal.append([NodeDrained(at=9, node="n0")])
    assert journal.position == 5
    journal.close()


def test_a_journal_that_is_a_folder_is_not_called_damaged(path):
    path.mkdir(parents=True)
    with pytest.raises(JournalError, match="a folder is in its place: move it away, and restore a copy") as refused:
        SqlStore(path)
    assert not isinstance(refused.value, Damaged)


def test_a_journal_that_is_damaged_while_in_use_is_refused_in_one_line(path):
    journal, state = written(path)
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("pragma wal_checkpoint(truncate)").fetchone()
    journal._store._log = None
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    for write in (lambda: journal.append([NodeDrained(at=9, node="n0")]), lambda: list(journal.save(state)), journal.begin):
        with pytest.raises(Damaged, match="malformed") as refused:
            write()
        assert "\n" not in str(refused.value)
    journal.close()


def test_a_full_database_loses_nothing_and_goes_on(path):
    """SQLite's own limit of pages gives the very error of a full disk."""
    journal, state = written(path)
    (pages,) = journal._store._writing.execute("pragma page_count").fetchone()
    journal._store._writing.execute(f"pragma max_page_count = {pages}")
    big = [Configured(at=1, queues=[Queue(f"q{i}") for i in range(3000)], settings=Settings())]
    for _ in range(3):
        with pytest.raises(JournalFull, match="free space"):
            journal.append(big)
    assert journal.position == 4
    assert same(journal.recover()) == same(state)
    journal._store._writing.execute("pragma max_page_count = 1000000")
    journal.append(big)
    apply(state, big[0])
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
        with pytest.raises(JournalFull, match="free space"):
            journal.append(facts)
    ballast.unlink()
    journal.append(facts)
    apply(state, facts[0])
    journal.close()
    again = Journal(SqlStore(small / "journal.db"))
    assert same(again.recover()) == same(state)
    again.close()


def test_a_journal_says_that_all_is_well(path):
    written(path)[0].close()
    found = repair.examine(path)
    assert (found.position, found.kept, found.wrong, found.lost) == (4, 4, "", 0)
    with pytest.raises(JournalError, match="nothing is wrong with it: 4 facts are proved"):
        repair.repair(path)


def lose_the_log(path):
    """What the write-ahead log had: the last commit, here, that no checkpoint has brought into the database."""
    Path(f"{path}-wal").unlink()


def flip_a_bit_of_the_log(path):
    log = Path(f"{path}-wal")
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)


def cut_the_log(path):
    log = Path(f"{path}-wal")
    log.write_bytes(log.read_bytes()[:-2000])


def zero_a_page_of_the_log(path):
    log = Path(f"{path}-wal")
    content = bytearray(log.read_bytes())
    content[-4096:] = bytes(4096)
    log.write_bytes(content)


@pytest.fixture
def killed(path, tmp_path):
    """A journal as its scheduler left it when it was killed: with facts in the write-ahead log only."""
    journal, state = written(path)
    journal._store._writing.execute("pragma wal_checkpoint(truncate)").fetchone()
    journal._store._log = None
    more = [JobSubmitted(at=5, id=2 + k, job=Job("A", {"cpu": 500}, name="x" * 5000)) for k in range(3)]
    for fact in more:
        journal.append([fact])
        apply(state, fact)
    left = tmp_path / "left"
    shutil.copytree(path.parent, left)
    (left / "journal.db-shm").unlink()
    journal.close()
    repair.adopt(left / "journal.db")
    return left / "journal.db", state


def test_a_killed_scheduler_loses_nothing(killed):
    path, state = killed
    with contextlib.closing(Journal(SqlStore(path))) as journal:
        assert same(journal.recover()) == same(state)


@pytest.mark.parametrize("harm", [lose_the_log, flip_a_bit_of_the_log, cut_the_log, zero_a_page_of_the_log])
def test_a_write_ahead_log_that_was_harmed_is_not_believed_and_what_is_proved_can_be_saved(killed, harm):
    path, state = killed
    harm(path)
    with contextlib.closing(Journal(SqlStore(path))) as journal, pytest.raises(Damaged, match=r"facts \d to 7 are missing"):
        journal.recover()
    found, aside = repair.repair(path)
    assert 4 <= found.position < 7
    assert found.lost == 7 - found.position
    assert (aside / "journal.db").exists()
    with contextlib.closing(Journal(SqlStore(path))) as journal:
        saved = journal.recover()
        assert (journal.position, saved.index.last) == (found.position + 1, state.index.last)
        journal.begin()
        assert journal.epoch == 3, "one more than the repaired one, which was one more than the damaged one"


def test_what_a_commit_had_before_it_was_told_is_kept(path):
    """Killed between the commit and the head: the journal goes on beyond its head, and is whole."""
    journal, state = written(path)
    before = journal._store._head.head
    more = JobSubmitted(at=5, id=2, job=Job("A", {"cpu": 500}))
    journal.append([more])
    apply(state, more)
    journal.close()
    with contextlib.closing(HeadFile(path)) as file:
        file.write(before)
    with contextlib.closing(Journal(SqlStore(path))) as journal:
        assert same(journal.recover()) == same(state)


def test_a_torn_head_leaves_the_one_before(path):
    journal, state = written(path)
    journal.append([NodeDrained(at=9, node="n0")])
    journal.close()
    file = head.path_of(path)
    whole = file.read_bytes()
    newest = max(head.newest(whole[:512]), head.newest(whole[512:].rjust(1024, b"\0")))
    places = [k for k in (0, 512) if head.newest(whole[k : k + 512]) == newest]
    file.write_bytes(whole[: places[0] + 40] + b"\xff" * 20 + whole[places[0] + 60 :])
    apply(state, NodeDrained(at=9, node="n0"))
    with contextlib.closing(Journal(SqlStore(path))) as journal:
        assert same(journal.recover()) == same(state), "it is proved by the chain"


def test_an_older_copy_is_told_from_the_journal(path, tmp_path):
    written(path)[0].close()
    older = tmp_path / "older.db"
    shutil.copyfile(path, older)
    for _ in range(2):
        with contextlib.closing(Journal(SqlStore(path))) as journal:
            journal.recover()
            journal.begin()
            journal.append([NodeDrained(at=9, node="n0")])
    path.write_bytes(older.read_bytes())
    with pytest.raises(Damaged, match="an older copy: 2 starts of its scheduler are missing"):
        Journal(SqlStore(path))


def test_another_journal_in_its_place_is_told(path, tmp_path):
    written(path)[0].close()
    other = tmp_path / "other" / "journal.db"
    written(other)[0].close()
    path.write_bytes(other.read_bytes())
    with pytest.raises(Damaged, match="differs from the one in its head"):
        Journal(SqlStore(path))


def test_a_copy_does_not_start_until_it_is_said_to_be_the_journal(path, tmp_path):
    journal, state = written(path)
    journal.close()
    copy = tmp_path / "copy"
    shutil.copytree(path.parent, copy)
    with pytest.raises(JournalError, match=r"a copy of a journal.*`fairlead journal adopt`"):
        Journal(SqlStore(copy / "journal.db"))
    assert repair.adopt(copy / "journal.db")[0].sequence == 4
    with contextlib.closing(Journal(SqlStore(copy / "journal.db"))) as journal:
        assert same(journal.recover()) == same(state)
    moved = tmp_path / "moved"
    path.parent.rename(moved)
    Journal(SqlStore(moved / "journal.db")).close()


def test_an_older_journal_with_its_older_head_gives_no_number_twice(path):
    """All that still knows of what came after it is the output that is there."""
    journal, state = written(path)
    journal.close()
    last = state.index.last
    output = path.parent / "output"
    (output / str(last)).mkdir(parents=True)
    repair.check_outputs(path, state)
    (output / str(last + 7)).mkdir()
    (output / "no-number").mkdir()
    with pytest.raises(JournalError, match=f"job {last + 7} ran here, but its last job is {last}"):
        repair.check_outputs(path, state)
    assert repair.adopt(path)[1] == 7
    with contextlib.closing(Journal(SqlStore(path))) as journal:
        state = journal.recover()
    assert state.index.last == last + 7
    repair.check_outputs(path, state)
    assert repair.adopt(path)[1] == 0


def test_a_backup_is_obeyed_by_the_machines_that_joined_and_gives_no_number_of_what_ran_there_again(path, tmp_path):
    """They obeyed later starts of the same journal, and ran later jobs."""
    journal, _ = written(path)
    journal.append([NodeAdmitted(at=9, node="n1", certificate="PEM")])
    journal.close()
    shutil.copytree(path.parent, backup := tmp_path / "backup")
    for number in range(2, 7):
        with contextlib.closing(Journal(SqlStore(path))) as journal:
            journal.recover()
            journal.begin()
            assert not fence.refuses(tmp_path, Greet(journal.id, journal.epoch, str(number)))
            journal.append([JobSubmitted(at=10 + number, id=number, job=Job("A", {"cpu": 500}))])
    repair.adopt(backup / path.name)
    with contextlib.closing(Journal(SqlStore(backup / path.name))) as adopted:
        state = adopted.recover()
        adopted.begin()
        assert adopted.id == journal.id
        assert not fence.refuses(tmp_path, Greet(adopted.id, adopted.epoch, "adopted"))
        assert state.index.last > number
    assert fence.refuses(tmp_path, Greet(journal.id, journal.epoch + 1, "the other"))
    assert not repair.examine(backup / path.name).wrong


@pytest.mark.parametrize("spoil", [Path.unlink, lambda log: os.truncate(log, 0), lambda log: os.truncate(log, 100)])
def test_a_log_that_is_deleted_or_cut_while_in_use_is_noticed(path, spoil):
    journal, _ = written(path)
    journal.append([NodeDrained(at=9, node="n0")])
    spoil(sqlite.log_of(path))
    for _ in range(2):
        with pytest.raises(JournalLost, match=r"journal.db-wal: was moved, deleted or cut while in use"):
            journal.append([NodeDrained(at=9, node="n0")])
    journal.close()


def test_what_is_in_use_is_not_repaired_though_its_head_is_gone(path):
    written(path)[0].close()
    program = "import sys, time; from pathlib import Path; from fairlead.journal.sql import SqlStore\n"
    program += "store = SqlStore(Path(sys.argv[1])); print('there', flush=True); time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE) as scheduler:
        try:
            assert scheduler.stdout.readline() == b"there\n"
            head.path_of(path).unlink()
            with pytest.raises(JournalError, match="another process has it open: stop the scheduler first"):
                repair.repair(path)
            assert path.exists()
            assert not head.path_of(path).exists()
        finally:
            scheduler.kill()
    with contextlib.closing(SqlStore(path, to_read=True)) as store:
        before = store.epoch
    assert repair.repair(path)[0].wrong
    with contextlib.closing(Journal(SqlStore(path))) as journal:
        journal.recover()
        journal.begin()
        assert journal.epoch > before + 1, "a supervisor that obeyed the last one obeys this one"


def test_what_is_not_there_is_not_repaired_and_nothing_is_made(tmp_path):
    with pytest.raises(JournalError, match="there is no journal"):
        repair.repair(tmp_path / "typo" / "journal.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("read", [head.read, head.HeadFile])
def test_nobody_waits_for_a_head_that_is_a_pipe(path, read):
    written(path)[0].close()
    head.path_of(path).unlink()
    os.mkfifo(head.path_of(path))
    with pytest.raises(JournalError, match="it is not a regular file: move away what is in its place"):
        read(path)


def test_what_was_told_before_the_log_was_deleted_is_there_after_a_kill(path):
    journal, state = written(path)
    fact = NodeDrained(at=9, node="n0")
    journal.append([fact])
    apply(state, fact)
    sqlite.log_of(path).unlink()
    with pytest.raises(JournalFull):
        journal.append([fact])
    killed = path.parent / "killed"
    killed.mkdir()
    for name in ("journal.db", "journal.db.head"):
        shutil.copyfile(path.parent / name, killed / name)
    journal.close()
    repair.adopt(killed / "journal.db")
    with contextlib.closing(Journal(SqlStore(killed / "journal.db"))) as journal:
        assert same(journal.recover()) == same(state)


def test_what_is_proved_is_kept_though_the_start_after_it_is_lost(path):
    """The log is lost in which the newest start of the scheduler was; all before it is whole."""
    journal, state = written(path)
    journal.close()
    whole = path.read_bytes()
    with contextlib.closing(Journal(SqlStore(path))) as journal:
        journal.recover()
        journal.begin()
        journal.append([NodeDrained(at=9, node="n0")] * 2)
    path.write_bytes(whole)
    found = repair.examine(path)
    assert (found.position, found.lost) == (4, 2)
    assert found.wrong
    with pytest.raises(Damaged):
        Journal(SqlStore(path))
    repair.repair(path)
    with contextlib.closing(Journal(SqlStore(path))) as journal:
        assert journal.recover().index.last == state.index.last + 2


@pytest.mark.parametrize("name", ["journal.db", "journal.db.head"])
def test_a_journal_that_is_deleted_while_in_use_is_noticed_and_goes_on_when_it_is_back(path, name):
    journal, state = written(path)
    aside = path.with_name("aside")
    (path.parent / name).rename(aside)
    with pytest.raises(JournalFull, match="was moved or deleted while in use"):
        journal.append([NodeDrained(at=9, node="n0")])
    with pytest.raises(JournalFull, match="was moved or deleted while in use"):
        list(journal.save(state))
    aside.rename(path.parent / name)
    journal.append([NodeDrained(at=9, node="n0")])
    journal.close()
    (path.parent / name).unlink()
    with pytest.raises(
        JournalError, match=r"the journal is missing, and its head records 5 facts|head, which records its last fact, is miss"
    ):
        SqlStore(path)


def test_a_journal_without_its_head_can_be_repaired(path):
    written(path)[0].close()
    head.path_of(path).unlink()
    found, _ = repair.repair(path)
    assert (found.position, found.lost) == (4, None)
    with contextlib.closing(Journal(SqlStore(path))) as journal:
        assert journal.recover().index.last == 1 + repair.UNKNOWN_LOSS


def harmed(path):
    """A journal of four facts of which the last is not what was written; the state before that."""
    written(path)[0].close()
    alter(path, "update facts set body = x'00' where sequence = 4")
    return kept(path)


def kept(path):
    return {file.name: file.read_bytes() for file in path.parent.iterdir() if file.suffix not in (".db-wal", ".db-shm")}


def test_where_what_is_proved_cannot_be_written_nothing_has_changed(path, monkeypatch):
    before = harmed(path)
    monkeypatch.setattr(Journal, "go_on", lambda *_: (_ for _ in ()).throw(JournalFull("the disk is full")))
    with pytest.raises(JournalError, match="cannot be written: the disk is full: nothing has changed"):
        repair.repair(path)
    assert kept(path) == before


@pytest.mark.parametrize("step", range(8))
def test_wherever_a_repair_is_stopped_no_empty_journal_is_taken_for_it(path, monkeypatch, step):
    harmed(path)
    done = []

    def or_killed(really):
        def call(*arguments, **more):
            done.append(really)
            if len(done) > step:
                raise KeyboardInterrupt
            return really(*arguments, **more)

        return call

    with monkeypatch.context() as killing:
        killing.setattr(os, "link", or_killed(os.link))
        for name in ("unlink", "replace", "mkdir"):
            killing.setattr(Path, name, or_killed(getattr(Path, name)))
        with contextlib.suppress(KeyboardInterrupt):
            repair.repair(path)
    try:
        with contextlib.closing(Journal(SqlStore(path))) as journal:
            journal.recover()
    except Damaged:
        assert repair.repair(path)[0].position == 3
    with contextlib.closing(Journal(SqlStore(path))) as journal:
        assert journal.recover().index.last >= 1
        assert journal.position == 4, "three, and that one is lost"


def test_where_the_newest_snapshot_is_harmed_the_facts_prove_it_all(path):
    journal, state = written(path)
    list(journal.save(state))
    journal.close()
    alter(path, "update snapshots set body = x'00'")
    found = repair.examine(path)
    assert (found.position, found.lost, "snapshot" in found.wrong) == (4, 0, True)
    repair.repair(path)
    with contextlib.closing(Journal(SqlStore(path))) as journal:
        assert same(journal.recover()) == same(state)


def test_of_what_is_not_proved_nothing_is_repaired(path):
    written(path)[0].close()
    alter(path, "delete from facts where sequence = 1")
    files = [path, head.path_of(path)]
    there = [file.read_bytes() for file in files]
    with pytest.raises(JournalError, match="nothing of it is proved"):
        repair.repair(path)
    assert [file.read_bytes() for file in files] == there
    assert not list(path.parent.glob("*damaged*"))


def test_a_snapshot_is_kept_in_pieces(path, monkeypatch):
    monkeypatch.setattr(journals.snapshot, "PIECE_BYTES", 1000)
    journal, state = written(path)
    more = [JobSubmitted(at=5, id=2 + k, job=Job("A", {"cpu": 500}, name="x" * 500)) for k in range(20)]
    journal.append(more)
    for fact in more:
        apply(state, fact)
    list(journal.save(state))
    sizes = [len(part.body) for part in journal._store.snapshot().parts]
    assert len(sizes) > 20
    assert max(sizes[1:]) < 3000
    journal.close()
    with contextlib.closing(Journal(SqlStore(path))) as journal:
        assert same(journal.recover()) == same(state)


def test_a_scheduler_that_was_taken_over_records_nothing_more(path, monkeypatch):
    monkeypatch.setattr("fcntl.flock", lambda *_: None)  # as on a file system without locks
    journal, state = written(path)
    later = Journal(SqlStore(path))
    later.recover()
    later.begin()
    with pytest.raises(TakenOver, match="another scheduler has begun to write it"):
        journal.append([Configured(at=9, queues=[Queue("q")], settings=Settings())])
    assert same(later.recover()) == same(state)
    third, fourth = Journal(SqlStore(path)), Journal(SqlStore(path))
    third.begin()
    with pytest.raises(TakenOver):
        fourth.begin()
    third.append([Configured(at=9, queues=[Queue("q")], settings=Settings())])
    late = Journal(SqlStore(path))
    third.append([Configured(at=9, queues=[Queue("r")], settings=Settings())])
    with pytest.raises(TakenOver):
        late.begin()
    for each in (journal, later, third, fourth, late):
        each.close()


def test_one_that_is_adopted_is_obeyed(path):
    """What the supervisor remembers of others goes: a person has said which is the right one."""
    written(path)[0].close()
    served = path.parent / "supervisor" / "served"
    served.parent.mkdir()
    served.write_text("[]")
    repair.adopt(path)
    assert not served.exists()
