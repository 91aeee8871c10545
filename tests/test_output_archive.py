"""What tasks wrote is kept beyond their nodes, where the configuration says so: by a real scheduler, and by fsspec."""

import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import warnings
from array import array
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fsspec import register_implementation
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st
from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.ioloop import IOLoop
from pyftpdlib.servers import FTPServer

from conftest import CONFIG, Live, held_port
from fairlead.cli.output import TaskOutput, copy_all, standard_targets
from fairlead.client.connection import Connection
from fairlead.client.service_error import ServiceError
from fairlead.engines.contract import Unreachable
from fairlead.engines.local import output as node_output
from fairlead.engines.local.engine import LocalEngine
from fairlead.model.documents import DocumentError, read_configuration
from fairlead.model.specs import Job
from fairlead.policies.registry import find_policy
from fairlead.scheduler.admission import Refused, Unknown
from fairlead.scheduler.facts import JobsForgotten
from fairlead.scheduler.statuses import SUCCEEDED, WAITING
from fairlead.service.output import archive as output_archive
from fairlead.service.output.archive import OutputArchive, read_output

PAGE = os.sysconf("SC_PAGE_SIZE")


def test_output_is_kept_and_read_there_and_what_cannot_be_yet_is_said_and_not_lost(tmp_path):
    there = tmp_path / "there"
    with Live(tmp_path) as world:
        world.config.write_text(f'output = "file://{there}"\n[scheduler]\nkeep_jobs = 2\n{CONFIG}')
        world.up()
        first = world.submit(
            "-q", "A", "--array", "10,20", "--", "sh", "-c", "echo task {index}; test {index} = 20 || echo bad >&2"
        )
        world.ok("wait", str(first))
        kept = [f"{first}/{name}" for name in ("10.err", "10.out", "20.out")]
        world.until(lambda: sorted(map(str, (p.relative_to(p.parents[1]) for p in there.glob("*/*/*")))) == kept)
        (base,) = there.iterdir()
        assert base.stat().st_mode & 0o77 == 0
        shutil.rmtree(world.home / "output" / str(first))
        assert world.ok("logs", f"{first}.20") == "task 20\n"
        assert world.call("logs", str(first)).stderr == "bad\n"

        base.rename(tmp_path / "away")
        base.write_text("in the way")
        second = world.submit("-q", "A", "--", "echo", "second")
        world.ok("wait", str(second))
        said = f"the output of task {second}.0 is not stored at file://{there}: "
        world.until(lambda: said in " ".join(world.call("why", str(second)).stdout.split()))
        assert world.ok("logs", str(second)) == "second\n"
        for _ in range(3):
            world.ok("run", "-q", "A", "--", "true")
        assert world.call("why", str(second)).returncode == 1, "it is forgotten"
        assert (world.home / "output" / str(second) / "0.out").read_text() == "second\n"
        world.kill()
        base.unlink()
        (tmp_path / "away").rename(base)
        world.up()
        there = base / str(second) / "0.out"
        world.until(lambda: there.exists() and there.read_text() == "second\n")
        world.ok("run", "-q", "A", "--", "true")
        world.until(lambda: not (world.home / "output" / str(second)).exists())


class Gone:
    """An engine of whose only node nothing is heard."""

    def read_output(self, *_):
        raise Unreachable("node n is not up")


class There:
    """An engine of a node that has some output, as `out`."""

    def __init__(self, look=lambda: None):
        self.look = look

    def read_output(self, job, index, stream, offset, most, node):
        self.look()
        return b"0123456789"[offset : offset + most] if stream == "out" else None

    def next_data(self, job, index, stream, offset, node):
        return offset


def keeping(url, home, engine=None, kept=(), journal="j"):
    """What keeps output there, with the tasks of job 3 of which `kept` says what is noted."""
    found = OutputArchive(str(url), home)
    found._engine, found._journal, found._kept = engine or There(), journal, {3: array("H", kept or [0, 0])}
    return found


def copy(kept, index=0, limit=None):
    kept._add(3, index, "n", limit=limit)
    ((due,),) = kept._due.values()
    kept._due.clear()
    kept._done(due, kept._copy(due))


def run(kept):
    """Let it do its work, as it does beside a scheduler."""
    for _ in range(output_archive.THREADS):
        threading.Thread(target=kept._work, daemon=True).start()


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Storage:
    """A real one, over FTP, of which fsspec opens a connection at once; it can be away."""

    def __init__(self, folder):
        self.folder, self.serving, self.over = folder, None, threading.Event()
        folder.mkdir()
        self.held = held_port()
        self.port = self.held.getsockname()[1]
        self.url = f"ftp://127.0.0.1:{self.port}/kept"

    def begin(self):
        people = DummyAuthorizer()
        with warnings.catch_warnings(action="ignore"):  # that everybody may write
            people.add_anonymous(str(self.folder), perm="elradfmw")
        handler = type("Handler", (FTPHandler,), {"authorizer": people})
        self.server = FTPServer(("127.0.0.1", self.port), handler, ioloop=IOLoop())
        self.over.clear()
        self.serving = threading.Thread(target=self.serve, daemon=True)
        self.serving.start()

    def serve(self):
        while not self.over.is_set():
            self.server.serve_forever(timeout=0.05, blocking=False)
        self.server.close_all()

    def end(self):
        """Be away: who had a connection has none any more."""
        self.over.set()
        if self.serving is not None:
            self.serving.join(30)


@pytest.fixture
def storage(tmp_path):
    storage = Storage(tmp_path / "storage")
    yield storage
    storage.end()
    storage.held.close()


def test_a_scheduler_starts_while_its_storage_is_away_and_outputs_wait_for_it(tmp_path, storage):
    with Live(tmp_path) as world:
        world.config.write_text(f'output = "{storage.url}"\n{CONFIG}')
        world.up()
        assert "nothing can be written there: [Errno 111] Connection refused" in world.log.read_text()
        job = world.submit("-q", "A", "-n", "2", "--", "sh", "-c", "echo task {index}")
        world.ok("wait", str(job))
        doctor = world.call("doctor")
        assert doctor.returncode == 1
        told = " ".join(doctor.stdout.split())
        assert re.search(rf"storage {storage.url} has been unavailable for \d+ s: \[Errno 111\]", told)
        assert "that of 2 tasks is still to be copied -> check that this machine reaches it" in told
        assert re.search(rf"{storage.url}.*: \[Errno 111\]", world.ok("why", str(job)))
        with Connection(world.home, retry_seconds=0) as connection:
            assert connection.get("/readyz")["output"] > 0
            metrics = connection.get_bytes("/metrics").decode()
        assert "fairlead_output_waiting 2.0" in metrics
        assert "fairlead_output_away_seconds 0.0" not in metrics
        storage.begin()
        well = {"url": storage.url, "waiting": 0, "trouble": ""}
        world.until(lambda: world.ask("status")["output"] == well)
        assert [path.read_text() for path in sorted(storage.folder.glob("kept/*/1/*"))] == ["task 0\n", "task 1\n"]
        shutil.rmtree(world.home / "output" / str(job))
        assert world.ok("logs", f"{job}.1") == "task 1\n"
        storage.end()
        job = world.submit("-q", "A", "--", "sh", "-c", "head -c 3000000 /dev/zero")
        world.until(lambda: world.ask("status")["output"]["trouble"])
        storage.begin()
        world.until(lambda: world.ask("status")["output"] == well)
        assert [path.stat().st_size for path in storage.folder.glob(f"kept/*/{job}/*.out")] == [3_000_000]
        assert "available again; waiting output is copied" in (world.home / "log").read_text()


def test_a_storage_that_does_not_answer_holds_nobody_up_for_long(tmp_path, monkeypatch):
    monkeypatch.setattr(output_archive, "START_SECONDS", 0.1)
    monkeypatch.setattr(output_archive, "READ_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes connections, and says nothing
        kept = keeping(f"ftp://127.0.0.1:{silent.getsockname()[1]}/kept", tmp_path, kept=[2, 0])
        assert "it does not answer within 0 s" in kept.describe()["trouble"]
        for _ in range(output_archive.MOST_READS):
            with pytest.raises(Unknown, match=r"3\.0 cannot be read at ftp://\S+: it does not answer within 0 s"):
                read_output(Gone(), kept, (3, 0), "out", 0, 5, "n")
        with pytest.raises(Unknown, match="it has not answered the last 3 calls yet"):
            read_output(Gone(), kept, (3, 0), "out", 0, 5, "n")


@pytest.fixture
def hasty(monkeypatch):
    monkeypatch.setattr(output_archive, "FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(output_archive, "LONGEST_PAUSE_SECONDS", 0.001)


def test_what_waits_for_a_storage_is_never_given_up(tmp_path, hasty):
    there = tmp_path / "there"
    kept = keeping(f"file://{there}", tmp_path)
    (there / "j").write_text("in the way")
    kept._add(3, 0, "n")
    kept._add(3, 1, "n")
    run(kept)
    until(lambda: kept._away is not None and kept._away.tries > 5 * output_archive.MOST_TRIES)
    assert (kept.describe()["waiting"], kept.away_for > 0) == (2, True)
    (there / "j").unlink()
    until(lambda: kept.describe()["waiting"] == 0)
    assert sorted(path.name for path in (there / "j" / "3").iterdir()) == ["0.out", "1.out"]
    assert (kept.trouble(3), kept.describe()["trouble"], kept.away_for) == ("", "", 0.0)
    kept.close()


def test_an_output_that_a_storage_does_not_take_holds_up_no_other_and_is_given_up(tmp_path, hasty):
    there = tmp_path / "there"
    kept = keeping(f"file://{there}", tmp_path, kept=[0] * 1000)
    (there / "j" / "3" / "0.out").mkdir(mode=0o700, parents=True)
    (there / "j" / "3").chmod(0o700)
    (there / "j").chmod(0o700)
    kept._add(3, 0, "n")
    run(kept)
    for index in range(1, 1000):
        with kept._changed:
            kept._add(3, index, "n")
            kept._changed.notify_all()
        until(lambda: index not in kept._open[3])  # noqa: B023
        if "given up" in kept.trouble(3):
            break
    assert "3.0 is not stored" in kept.trouble(3)
    assert "given up" in kept.trouble(3)
    kept.close()


def test_what_is_on_a_node_that_is_gone_is_read_where_it_is_kept(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    for url in ("memory://kept/here", f"file://{tmp_path}/there"):
        kept = keeping(url, home)
        copy(kept)
        assert read_output(Gone(), kept, (3, 0), "out", 2, 5, "n") == b"23456"
        assert read_output(Gone(), kept, (3, 0), "out", 10, 5, "n") == b""
        assert read_output(Gone(), kept, (3, 0), "err", 0, 5, "n") == b"", "it was empty"
        for nowhere, index in ((kept, 1), (None, 0)):
            with pytest.raises(Unreachable, match=rf"task 3\.{index} cannot be read: node n is not up"):
                read_output(Gone(), nowhere, (3, index), "out", 0, 5, "n")
        assert read_output(Gone(), None, (3, 0), "out", 0, 5, "") == b"", "it never ran"


def test_who_follows_a_task_bears_that_its_node_does_not_answer(capfdbinary):
    """Who does not follow is told, after what the others wrote."""
    silent = ServiceError("the output of task 3.0 cannot be read: no message from node n for 12 s", 503)
    answers = {"out": [silent, b"word\n", b"", b""], "err": [silent, b"", b""]}
    statuses = ["running", "running", "succeeded"]

    def get_bytes(path, offset):
        answer = answers[path.rpartition("/")[2]].pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    world = SimpleNamespace(get=lambda path, **_: {"tasks": [{"status": statuses.pop(0), "attempt": 1}]}, get_bytes=get_bytes)
    assert TaskOutput(world, 3, 0).copy(follow=True)["status"] == "succeeded"
    assert capfdbinary.readouterr().out == b"word\n"
    answers |= {"out": [silent, b"other\n", b""], "err": [b"", b""]}
    tasks = [{"index": k, "known_as": k, "status": "succeeded", "attempt": 1} for k in (0, 1)]
    world.get = lambda path, **_: {"tasks": tasks, "next": None} if path.endswith("tasks") else {"status": "succeeded"}
    with pytest.raises(ServiceError, match=r"3\.0 cannot be read"):
        copy_all(world, [3], standard_targets(), failed=False, follow=False, most=None)
    assert capfdbinary.readouterr().out == b"1: other\n"


class ByAnother(MemoryFileSystem):
    """Has another program read what is sent, as some do."""

    protocol = "byanother"

    def put_file(self, lpath, rpath, **_):
        self.pipe_file(rpath, subprocess.run(["cat", lpath], check=True, capture_output=True).stdout)


def test_what_is_large_is_sent_by_other_programs_too(tmp_path):
    register_implementation("byanother", ByAnother, clobber=True)
    large = SimpleNamespace(read_output=lambda j, i, s, offset, *_: b"x" * 2**20 if offset < 3 * 2**20 else b"")
    kept = keeping("byanother://kept", tmp_path, large)
    copy(kept)
    assert read_output(Gone(), kept, (3, 0), "out", 3 * 2**20 - 2, 5, "n") == b"xx"


def test_a_scheduler_that_is_killed_leaves_no_copies_in_its_folder(tmp_path):
    seen = []
    copy(keeping("memory://kept/killed", tmp_path, There(lambda: seen.append(list(tmp_path.iterdir())))))
    assert len(seen) > 2
    assert not any(seen), "what is copied has no name there"


def test_what_is_kept_at_an_older_url_is_read_there_and_what_is_gone_is_said(tmp_path):
    copy(keeping(f"file://{tmp_path}/old", tmp_path))
    state = SimpleNamespace(  # of one job, of which a task has ended and one has not
        index=SimpleNamespace(specs={3: Job("A", {}, tasks=2)}),
        job_row=lambda _: 0,
        jobs=SimpleNamespace(first=[0]),
        tasks=SimpleNamespace(status=[SUCCEEDED, WAITING]),
    )
    kept = OutputArchive(f"file://{tmp_path}/new", tmp_path)
    for _ in range(2):  # as it was written, and as it is written anew
        kept.recover(state, "j", There())
        kept.close()
        assert read_output(Gone(), kept, (3, 0), "out", 0, 50, "n") == b"0123456789"
        kept = OutputArchive(f"file://{tmp_path}/new", tmp_path)
    kept.recover(state, "j", There())
    kept.close()
    shutil.rmtree(tmp_path / "old")
    with pytest.raises(Unknown, match=r"3.0 cannot be read at file:///\S+/old: it was stored there, and is gone"):
        read_output(Gone(), kept, (3, 0), "out", 0, 50, "n")
    assert read_output(Gone(), kept, (3, 0), "err", 0, 50, "n") == b""


def test_a_start_with_a_million_waiting_tasks_looks_at_those_that_have_ended(tmp_path):
    status = np.full(10**6, WAITING)
    status[7] = SUCCEEDED
    asked = []
    state = SimpleNamespace(
        index=SimpleNamespace(specs={3: Job("A", {}, tasks=10**6)}),
        job_row=lambda job: asked.append(job) or 0,
        jobs=SimpleNamespace(first=[0]),
        tasks=SimpleNamespace(status=status),
    )
    kept = OutputArchive(f"file://{tmp_path}/new", tmp_path)
    with pytest.raises(AttributeError):  # this state does not know on which node task 7 ran
        kept.recover(state, "j", There())
    assert len(asked) < 10


def test_notes_are_read_as_far_as_they_were_written(tmp_path):
    notes = tmp_path / "kept_output"
    notes.write_text('["pending", 1, 4, "n", 9]\n["at", "u", 1, 3, 4, 5]\n["pending", 2, 0, "n", 7]\n["at')
    kept, pending = output_archive._read_notes(notes)
    assert kept == {1: dict.fromkeys((4, 5), ("u", 3))}
    assert pending == [(2, 0, "n", 7)]


def test_a_folder_that_others_may_change_is_refused(tmp_path):
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    (tmp_path / "link").symlink_to(open_to_all / "below")
    (open_to_all / "below").mkdir()
    for name in ("open", "open/below", "link", "link/more"):
        with pytest.raises(Refused, match=r"output = 'file:///\S+': \S+: everybody may write to \S+/open and"):
            OutputArchive(f"file://{tmp_path}/{name}", tmp_path)
    with Live(tmp_path) as world:
        world.config.write_text(f'output = "file://{open_to_all}"\n{CONFIG}')
        refused = world.call("up", "--config", str(world.config))
    assert refused.returncode == 1
    (line,) = refused.stderr.splitlines()
    assert f"everybody may write to {open_to_all}" in line


def test_no_link_is_followed(tmp_path):
    there, precious = tmp_path / "there", tmp_path / "precious"
    precious.mkdir()
    kept = keeping(f"file://{there}", tmp_path)
    (there / "j").symlink_to(precious)
    with pytest.raises(OSError, match=r"there/j: is a link or not a folder: move it away"):
        copy(kept)
    (there / "j").unlink()
    (there / "j" / "3").mkdir(parents=True)
    (there / "j").chmod(0o722)
    with pytest.raises(PermissionError, match=r"there/j: belongs to somebody else, or others may write to it"):
        copy(kept)
    (there / "j").chmod(0o700)
    (precious / "file").write_text("precious")
    for name in ("0.out", "0.out.new"):
        (there / "j" / "3" / name).symlink_to(precious / "file")
    copy(kept)
    (written,) = (there / "j" / "3").iterdir()
    assert (written.name, written.read_text(), written.stat().st_mode & 0o777) == ("0.out", "0123456789", 0o600)
    assert (precious / "file").read_text() == "precious"
    written.unlink()
    written.symlink_to(precious / "file")
    with pytest.raises(Unknown, match="is a link"):
        read_output(Gone(), kept, (3, 0), "out", 0, 50, "n")


def test_trying_comes_to_an_end_and_what_was_given_up_is_said_and_not_let_go_of(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(output_archive, "FIRST_PAUSE_SECONDS", 0.0)
    kept = keeping("memory://kept/never", tmp_path, Gone())
    kept._add(3, 0, "n")
    for _ in range(output_archive.MOST_TRIES):
        ((due,),) = kept._due.values()
        kept._due.clear()
        with pytest.raises(Unreachable) as error:
            kept._copy(due)
        kept._failed(due, str(error.value), counts=True)
    assert not kept._due
    said = "the output of task 3.0 is not stored at memory://kept/never: node n is not up: given up"
    assert said in kept.trouble(3)
    assert said in caplog.text
    assert kept.forget([JobsForgotten(at=0.0, ids=[3])]) == [], "the node has it yet"
    assert output_archive._read_notes(tmp_path / "kept_output")[1] == [(3, 0, "n", 0)]
    kept._write_notes()
    assert output_archive._read_notes(tmp_path / "kept_output")[1] == [(3, 0, "n", 0)]


def test_a_task_that_spoils_its_own_output_keeps_no_others_from_the_storage(tmp_path, hasty):
    (tmp_path / "home" / "output").mkdir(parents=True)
    engine = LocalEngine(tmp_path / "home", [])
    spoilt = tmp_path / "home" / "output" / "3"
    spoilt.write_text("a file where its folder was")
    with pytest.raises(Unreachable, match=rf"task 3\.0 cannot be read: .*Not a directory: '{spoilt}/0\.out'"):
        read_output(engine, None, (3, 0), "out", 0, 5, "n")
    with pytest.raises(Unreachable, match="Not a directory"):
        engine.next_data(3, 0, "out", 0)
    there = tmp_path / "there"
    kept = keeping(f"file://{there}", tmp_path, engine)
    kept._add(3, 0, "n", "mallory")
    (tmp_path / "home" / "output" / "4").mkdir()
    (tmp_path / "home" / "output" / "4" / "0.out").write_text("other")
    kept._add(4, 0, "n", "alice")
    run(kept)
    until(lambda: "given up" in kept.trouble(3))
    assert f"3.0 is not stored at file://{there}: [Errno 20] Not a directory: '{spoilt}/0.out': given" in kept.trouble(3)
    assert (kept.describe()["trouble"], kept.away_for) == ("", 0.0)
    other = there / "j" / "4" / "0.out"
    until(other.exists)
    assert other.read_text() == "other"
    kept.close()
    engine.close()


def test_errors_of_storages_steer_no_terminal(tmp_path, monkeypatch):
    def fail(_):
        raise OSError("\x1b[2Jcome\nhere")

    kept = keeping("memory://kept/steered", tmp_path)
    kept._add(3, 0, "n")
    monkeypatch.setattr(kept, "_copy", fail)
    run(kept)
    until(lambda: r"steered: \x1b[2Jcome here: retrying" in kept.trouble(3))
    assert "\x1b" not in kept.describe()["trouble"]
    kept.close()


@pytest.mark.parametrize(("url", "full"), [("memory://kept/full", "."), ("file://{disk}/there", "there/j/3")])
def test_which_disk_is_full_is_said(small_disk, url, full):
    disk = small_disk("64k")
    kept = keeping(url.format(disk=disk), disk)
    (disk / "large").write_bytes(bytes(2**15))
    kept._engine = SimpleNamespace(read_output=lambda *_: bytes(2**16), next_data=lambda *_: 0)
    with pytest.raises(OSError, match=f"^{disk / full}: the disk is full: make room"):
        copy(kept)


def test_an_output_with_a_large_hole_is_kept_up_to_it_and_small_holes_cost_nothing(small_disk, caplog):
    """A task may set the size of its own output file; the storage is smaller than its holes."""
    disk = small_disk("4m")
    output = disk / "home" / "output" / "3"
    output.mkdir(parents=True)
    with (output / "0.out").open("wb") as file:
        file.write(b"begin")
        file.seek(2**29)
        file.write(b"middle")
        file.truncate(5 * 2**40)
        file.seek(0, 2)
        file.write(b"end")
    (output / "1.out").write_bytes(b"next")
    engine = LocalEngine(disk / "home", [])
    kept = keeping(f"file://{disk}/there", disk, engine)
    copy(kept)
    copy(kept, 1)
    engine.close()
    there = disk / "there" / "j" / "3"
    assert sorted(path.name for path in there.iterdir()) == ["0.out", "1.out"]
    assert (there / "1.out").read_bytes() == b"next"
    found = (there / "0.out").stat()
    assert (found.st_size, found.st_blocks * 512 <= 2**22) == (2**29 + PAGE, True)
    with (there / "0.out").open("rb") as file:
        assert file.read(5) == b"begin"
        file.seek(2**29)
        assert file.read(7) == b"middle\0"
    said = f"the output of task 3.0 is stored at file://{disk}/there up to byte {2**29 + PAGE} of out: a hole follows"
    assert said in kept.trouble(3)
    assert said in caplog.text


@pytest.mark.parametrize(("hole", "most"), [(2**20, 2**10), (2**12, 2**14)])
def test_holes_between_single_bytes_are_skipped_and_counted_too(small_disk, hole, most):
    """Also where no piece that is read begins in one; a small one counts as 64 KiB, since each takes reads."""
    disk, hole = small_disk("192m"), max(hole, PAGE)
    every = hole + PAGE
    (disk / "home" / "output" / "3").mkdir(parents=True)
    with (disk / "home" / "output" / "3" / "0.out").open("wb", buffering=0) as file:
        for k in range(most + 10):
            file.seek(k * every)
            file.write(b"x")
    engine = LocalEngine(disk / "home", [])
    kept = keeping(f"file://{disk}/there", disk, engine)
    copy(kept)
    engine.close()
    (there,) = (disk / "there" / "j" / "3").iterdir()
    end = most * every + PAGE
    assert f"up to byte {end} of out: a hole follows" in kept.trouble(3), "after a GiB of holes"
    assert (there.stat().st_size, there.stat().st_blocks * 512 <= 2 * most * PAGE) == (end, True)
    with there.open("rb") as file:
        for k in range(most + 1):
            file.seek(k * every)
            assert file.read(2) == b"x\0"


@given(written=st.dictionaries(st.integers(0, 40), st.integers(1, 3 * 2**12)), most=st.sampled_from([2**11, 2**13, 2**20]))
def test_pieces_of_an_output_are_what_was_written_and_end_where_a_hole_begins(written, most):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "3"
        path.mkdir()
        with (path / "0.out").open("wb", buffering=0) as file:
            for page, length in written.items():
                file.seek(page * 2**12)
                file.write(b"x" * length)
        whole, got = (path / "0.out").read_bytes(), b""
        while piece := node_output.read_piece(Path(folder), 3, 0, "out", len(got), most):
            assert len(piece) <= most
            with (path / "0.out").open("rb") as file:
                assert b"x" not in piece or os.lseek(file.fileno(), len(got), os.SEEK_HOLE) >= len(got) + len(piece)
            got += piece
        assert got == whole


def test_no_more_of_an_output_is_kept_than_its_owner_may_write(tmp_path):
    for url in ("memory://kept/bounded", f"file://{tmp_path}/there"):
        kept = keeping(url, tmp_path, SimpleNamespace(read_output=lambda *_: b"x" * 2**20, next_data=lambda *_: 0))
        copy(kept, limit=2**21 + 5)
        size = 2**21 + 5
        assert read_output(Gone(), kept, (3, 0), "out", size - 2, 5, "n") == b"xx"
        assert read_output(Gone(), kept, (3, 0), "err", 0, 5, "n") == b"", "both streams together"
        assert "up to byte 2097157 of out: its output_limit is reached" in kept.trouble(3)


def test_an_output_that_is_too_large_for_the_storage_keeps_its_owners_from_it_alone(small_disk, hasty):
    """It leaves nothing behind, and is given up; what others wrote is kept meanwhile."""
    disk = small_disk("8m")
    (disk / "home").mkdir()

    def large_or_not(job, index, stream, offset, *_):
        end = 2**25 if index == 0 else 10
        return b"x" * min(2**20, end - offset) if stream == "out" else b""

    engine = SimpleNamespace(read_output=large_or_not, next_data=lambda *_: 0)
    kept = keeping(f"file://{disk}/there", disk / "home", engine, kept=[0] * 1000)
    kept._add(3, 0, "n", "mallory")
    run(kept)
    for index in range(1, 1000):
        with kept._changed:
            kept._add(3, index, "n", "alice")
            kept._changed.notify_all()
        until(lambda: index not in kept._open[3])  # noqa: B023
        if "given up" in kept.trouble(3):
            break
    assert "task 3.0 is not stored" in kept.trouble(3)
    assert "is full: make room: given up" in kept.trouble(3)
    assert (kept.describe()["trouble"], kept.away_for) == ("", 0.0)
    assert "0.out.new" not in [path.name for path in (disk / "there" / "j" / "3").iterdir()]
    kept.close()


def test_notes_that_cannot_be_written_anew_end_nothing(tmp_path, caplog):
    kept = keeping("memory://kept/noted", tmp_path, kept=[0, 2])
    kept._write_notes()
    (tmp_path / "kept_output.new").mkdir()
    kept._note("at", "memory://kept/noted", 3, 1, 0)
    kept._write_notes()
    assert "cannot be rewritten" in caplog.text
    assert output_archive._read_notes(tmp_path / "kept_output")[0] == {3: dict.fromkeys((0, 1), ("memory://kept/noted", 1))}


@pytest.mark.parametrize(
    ("url", "why"), [("s3://bucket", "Install s3fs to access S3"), ("nosuch://x", "Protocol not known: nosuch")]
)
def test_where_nothing_could_write_is_refused_at_once(tmp_path, url, why):
    with pytest.raises(Refused, match=why):
        OutputArchive(url, tmp_path)


def test_what_is_no_url_is_refused(tmp_path):
    path = tmp_path / "fairlead.toml"
    path.write_text('output = "/somewhere"\n')
    with pytest.raises(DocumentError, match=r'fairlead.toml:1: output: write a URL such as "s3://bucket/folder"'):
        read_configuration(path, find_policy)
