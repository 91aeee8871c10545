"""What tasks wrote is kept beyond their nodes, where the configuration says so: by a real scheduler, and by fsspec."""

import shutil

import pytest

from conftest import CONFIG, Live
from fairlead.engines.contract import Unreachable
from fairlead.model.documents import DocumentError, read_configuration
from fairlead.policies.registry import find_policy
from fairlead.scheduler.admission import Refused
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


def test_what_is_on_a_node_that_is_gone_is_read_where_it_is_kept(tmp_path):
    kept = KeptOutput("memory://kept/here", tmp_path)
    kept._files.pipe_file("/kept/here/3/0.out", b"0123456789")
    kept._kept = {3: bytearray([1, 1, 0])}
    assert read_output(Gone(), kept, (3, 0), "out", 2, 5, "n") == b"23456"
    assert read_output(Gone(), kept, (3, 0), "out", 10, 5, "n") == b""
    assert read_output(Gone(), kept, (3, 1), "err", 0, 5, "n") == b"", "it was empty"
    assert read_output(Gone(), kept, (3, 2), "out", 0, 5, "n") == b"", "it is not kept"
    assert read_output(Gone(), None, (3, 0), "out", 0, 5, "n") == b""


def test_trying_comes_to_an_end_and_what_was_given_up_is_said(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(kept_output, "FIRST_PAUSE", 0.0)
    kept = KeptOutput("memory://kept/never", tmp_path)
    kept._engine, kept._kept = Gone(), {1: bytearray(1)}
    kept._add(1, 0, "n")
    for _ in range(kept_output.MOST_TRIES):
        due = kept._due.pop()
        with pytest.raises(Unreachable) as error:
            kept._copy(due)
        kept._failed(due, error.value)
    assert not kept._due
    said = "the output of task 1.0 is not kept at memory://kept/never: node n is not there: it was given up"
    assert said in kept.trouble(1)
    assert said in caplog.text


def test_notes_that_cannot_be_written_anew_end_nothing(tmp_path, caplog):
    kept = KeptOutput("memory://kept/noted", tmp_path)
    kept._kept = {1: bytearray([0, 1])}
    kept._write_notes()
    (tmp_path / "kept_output.new").mkdir()
    kept._note("kept", 1, 0)
    kept._write_notes()
    assert "cannot be written anew" in caplog.text
    assert kept_output._read_notes(tmp_path / "kept_output").kept == {1: {0, 1}}


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
