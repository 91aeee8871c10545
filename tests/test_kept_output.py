"""What tasks wrote is kept beyond their nodes, where the configuration says so: by a real scheduler, and by fsspec."""

import shutil
from array import array
from types import SimpleNamespace

import pytest

from conftest import CONFIG, Live
from fairlead.engines.contract import Unreachable
from fairlead.model.documents import DocumentError, read_configuration
from fairlead.policies.registry import find_policy
from fairlead.scheduler.admission import Refused, Unknown
from fairlead.scheduler.facts import JobsForgotten
from fairlead.scheduler.statuses import SUCCEEDED, WAITING
from fairlead.service import kept_output
from fairlead.service.kept_output import KeptOutput, read_output


def test_output_is_kept_and_read_there_and_what_cannot_be_yet_is_said_and_not_lost(tmp_path):
    there = tmp_path / "there"
    with Live(tmp_path) as world:
        world.config.write_text(f'output = "file://{there}"\n[scheduler]\nkeep_jobs = 2\n{CONFIG}')
        world.up()
        first = world.submit(
            "-q", "A", "-n", "2", "--", "sh", "-c", "echo task {index}; test {index} = 1 || echo bad >&2"
        )
        world.ok("wait", str(first))
        world.until(lambda: len(list(there.glob(f"*/{first}/*"))) == 3)
        (base,) = there.iterdir()
        assert base.stat().st_mode & 0o77 == 0
        assert sorted(path.name for path in (base / str(first)).iterdir()) == ["0.err", "0.out", "1.out"]
        shutil.rmtree(world.home / "output" / str(first))
        assert world.ok("logs", f"{first}.1") == "task 1\n"
        assert world.call("logs", str(first)).stderr == "bad\n"

        base.rename(tmp_path / "away")
        base.write_text("in the way")
        second = world.submit("-q", "A", "--", "echo", "second")
        world.ok("wait", str(second))
        said = f"the output of task {second}.0 is not kept at file://{there}: "
        world.until(lambda: said in world.call("why", str(second)).stdout)
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
        raise Unreachable("node n is not there")


class There:
    """An engine of a node that has some output, as `out`."""

    def __init__(self, look=lambda: None):
        self.look = look

    def read_output(self, job, index, stream, offset, most, node):
        self.look()
        return b"0123456789"[offset : offset + most] if stream == "out" else None


def keeping(url, home, engine=None, kept=(), journal="j"):
    """What keeps output there, with the tasks of job 3 of which `kept` says what is noted."""
    found = KeptOutput(str(url), home)
    found._engine, found._journal, found._kept = engine or There(), journal, {3: array("H", kept or [0, 0])}
    return found


def copy(kept, index=0):
    kept._add(3, index, "n")
    due = kept._due.pop()
    kept._done(due, kept._copy(due))


def test_what_is_on_a_node_that_is_gone_is_read_where_it_is_kept(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    for url in ("memory://kept/here", f"file://{tmp_path}/there"):
        kept = keeping(url, home, There(lambda: print(*home.iterdir())))
        copy(kept)
        assert read_output(Gone(), kept, (3, 0), "out", 2, 5, "n") == b"23456"
        assert read_output(Gone(), kept, (3, 0), "out", 10, 5, "n") == b""
        assert read_output(Gone(), kept, (3, 0), "err", 0, 5, "n") == b"", "it was empty"
        assert read_output(Gone(), kept, (3, 1), "out", 0, 5, "n") == b"", "it is not kept"
        assert read_output(Gone(), None, (3, 0), "out", 0, 5, "n") == b""


def test_a_scheduler_that_is_killed_leaves_no_copies_in_its_folder(tmp_path):
    seen = []
    copy(keeping("memory://kept/killed", tmp_path, There(lambda: seen.append(list(tmp_path.iterdir())))))
    assert len(seen) > 2
    assert not any(seen), "what is copied has no name there"


def test_what_is_kept_at_an_older_url_is_read_there_and_what_is_gone_is_said(tmp_path):
    copy(keeping(f"file://{tmp_path}/old", tmp_path))
    state = SimpleNamespace(  # of one job, of which a task has ended and one has not
        index=SimpleNamespace(specs={3: SimpleNamespace(tasks=2)}),
        job_row=lambda _: 0,
        jobs=SimpleNamespace(first=[0]),
        tasks=SimpleNamespace(status=[SUCCEEDED, WAITING]),
    )
    kept = KeptOutput(f"file://{tmp_path}/new", tmp_path)
    for _ in range(2):  # as it was written, and as it is written anew
        kept.recover(state, "j", There())
        kept.close()
        assert read_output(Gone(), kept, (3, 0), "out", 0, 50, "n") == b"0123456789"
        kept = KeptOutput(f"file://{tmp_path}/new", tmp_path)
    kept.recover(state, "j", There())
    kept.close()
    shutil.rmtree(tmp_path / "old")
    with pytest.raises(
        Unknown, match=r"3.0 cannot be read at file:///\S+/old: it was kept there, and is not there now"
    ):
        read_output(Gone(), kept, (3, 0), "out", 0, 50, "n")
    assert read_output(Gone(), kept, (3, 0), "err", 0, 50, "n") == b""


def test_notes_as_they_were_written_before_are_read(tmp_path):
    notes = tmp_path / "kept_output"
    notes.write_text('["pending", 1, 4, "n"]\n["kept", 1, 4, 5]\n["pending", 2, 0, "n"]\n["ke')
    noted = kept_output._read_notes(notes)
    assert noted.kept == {1: dict.fromkeys((4, 5), ("", 4))}
    assert noted.pending == [(2, 0, "n")]


def test_a_folder_that_others_may_change_is_refused(tmp_path):
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    (tmp_path / "link").symlink_to(open_to_all / "below")
    (open_to_all / "below").mkdir()
    for name in ("open", "open/below", "link", "link/more"):
        with pytest.raises(Refused, match=r"output = 'file:///\S+': \S+: everybody may write to \S+/open, and"):
            KeptOutput(f"file://{tmp_path}/{name}", tmp_path)
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
    with pytest.raises(OSError, match=r"there/j: is a link, or no folder: move it away"):
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
    monkeypatch.setattr(kept_output, "FIRST_PAUSE", 0.0)
    kept = keeping("memory://kept/never", tmp_path, Gone())
    kept._add(3, 0, "n")
    for _ in range(kept_output.MOST_TRIES):
        due = kept._due.pop()
        with pytest.raises(Unreachable) as error:
            kept._copy(due)
        kept._failed(due, error.value)
    assert not kept._due
    said = "the output of task 3.0 is not kept at memory://kept/never: node n is not there: it was given up"
    assert said in kept.trouble(3)
    assert said in caplog.text
    assert kept.forget([JobsForgotten(at=0.0, ids=[3])]) == [], "the node has it yet"
    assert kept_output._read_notes(tmp_path / "kept_output").pending == [(3, 0, "n")]
    kept._write_notes()
    assert kept_output._read_notes(tmp_path / "kept_output").pending == [(3, 0, "n")]


def test_errors_of_storages_steer_no_terminal(tmp_path):
    kept = keeping("memory://kept/steered", tmp_path)
    kept._add(3, 0, "n")
    kept._failed(kept._due.pop(), OSError("\x1b[2Jcome\nhere"))
    assert r"steered: \x1b[2Jcome here: it is tried again" in kept.trouble(3)


@pytest.mark.parametrize(("url", "full"), [("memory://kept/full", "."), ("file://{disk}/there", "there/j/3")])
def test_which_disk_is_full_is_said(small_disk, url, full):
    disk = small_disk("64k")
    kept = keeping(url.format(disk=disk), disk)
    (disk / "large").write_bytes(bytes(2**15))
    kept._engine = SimpleNamespace(read_output=lambda *_: bytes(2**16))
    with pytest.raises(OSError, match=f"^{disk / full}: the disk is full: make room"):
        copy(kept)


def test_notes_that_cannot_be_written_anew_end_nothing(tmp_path, caplog):
    kept = keeping("memory://kept/noted", tmp_path, kept=[0, 2])
    kept._write_notes()
    (tmp_path / "kept_output.new").mkdir()
    kept._note("at", "memory://kept/noted", 3, 1, 0)
    kept._write_notes()
    assert "cannot be written anew" in caplog.text
    assert kept_output._read_notes(tmp_path / "kept_output").kept == {
        3: dict.fromkeys((0, 1), ("memory://kept/noted", 1))
    }


@pytest.mark.parametrize(
    ("url", "why"),
    [("s3://bucket", "Install s3fs to access S3"), ("nosuch://x", "Protocol not known: nosuch")],
)
def test_where_nothing_could_write_is_refused_at_once(tmp_path, url, why):
    with pytest.raises(Refused, match=why):
        KeptOutput(url, tmp_path)


def test_what_is_no_url_is_refused(tmp_path):
    path = tmp_path / "fairlead.toml"
    path.write_text('output = "/somewhere"\n')
    with pytest.raises(DocumentError, match=r'fairlead.toml:1: output: write a URL such as "s3://bucket/folder"'):
        read_configuration(path, find_policy)
