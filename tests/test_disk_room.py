"""The reserve: taken while there is room, given back piece by piece on a full disk and no other, taken again."""

import pytest

from fairlead import disk_room
from fairlead.disk_room import PIECES, Reserve, room_on
from fairlead.journal import Journal, JournalFull
from fairlead.journal.sql import SqlStore
from fairlead.model.specs import Queue, Settings
from fairlead.scheduler.facts import Configured


@pytest.fixture
def disk(small_disk, monkeypatch):
    monkeypatch.setattr(disk_room, "CHECK_SECONDS", 0.0)
    return small_disk("8m")


def fill(disk):
    with (disk / "ballast").open("ab", buffering=0) as file:
        while room_on(disk).free:
            file.write(bytes(4096))


def test_the_reserve_is_given_back_on_a_full_disk_alone(disk):
    reserve = Reserve(disk)
    assert not reserve.release(), "there is none yet"
    assert reserve.look() == ""
    assert (reserve.held, (disk / "reserve").stat().st_size) == (2**18, 2**18)
    assert not reserve.release(), "there is room"
    fill(disk)
    assert "0.0 MiB are free" in reserve.look()
    again = Reserve(disk)  # as after a restart
    again.make_way()
    assert again.held == 2**18 - 2**18 // PIECES == room_on(disk).free * (PIECES - 1)
    for _ in range(PIECES - 1):
        assert again.release()
    assert not again.release()
    (disk / "ballast").unlink()
    assert again.look() == ""
    assert again.held == 2**18


def test_little_room_is_low_until_there_is_twice_as_much():
    room = disk_room.Room(free=100, floor=64)
    assert not room.is_low(False)
    assert room.is_low(True)
    assert room._replace(free=63).is_low(False)


def test_who_removes_the_reserve_to_make_room_harms_nothing(disk):
    reserve = Reserve(disk)
    reserve.look()
    (disk / "reserve").unlink()
    fill(disk)
    assert not reserve.release()
    assert "0.0 MiB are free" in reserve.look()
    (disk / "ballast").unlink()
    assert reserve.look() == ""
    assert (disk / "reserve").stat().st_size == reserve.held > 0


def test_a_folder_that_is_away_is_said_and_noticed_when_it_is_back(disk):
    home = disk / "home"
    home.mkdir()
    reserve = Reserve(home)
    home.rename(disk / "away")
    assert "No such file or directory: nothing new is accepted until it is available again" in reserve.look()
    (disk / "away").rename(home)
    assert reserve.look() == ""


def test_a_disk_on_which_no_more_files_can_be_made_is_low(disk):
    files = room_on(disk).files
    if files > 20_000:
        pytest.skip("more files than a test is to make")
    reserve = Reserve(disk)
    for number in range(files - 10):
        (disk / str(number)).touch()
    assert "10 more files can be made on the disk of" in reserve.look()
    assert "until 1,000 can" in reserve.low
    for number in range(files - 10):
        (disk / str(number)).unlink()
    assert reserve.look() == ""


def test_what_must_be_recorded_is_while_the_reserve_lasts(disk):
    reserve = Reserve(disk)
    reserve.look()
    journal = Journal(SqlStore(disk / "journal.db"), reserve.release)
    journal.begin()
    fill(disk)
    fact = Configured(at=1, queues=[Queue("q" * 200)], settings=Settings())
    for _ in range(PIECES):
        fill(disk)  # somebody takes whatever is left
        journal.append([fact] * 8)
    assert reserve.held == 0
    fill(disk)
    with pytest.raises(JournalFull, match="free space"):
        journal.append([fact] * 100)
    journal.close()
    with_it = Journal(SqlStore(disk / "journal.db", to_read=True))
    with_it.recover()
    assert with_it.position == 8 * PIECES
    with_it.close()
