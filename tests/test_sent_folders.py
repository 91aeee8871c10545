"""`--send` and `--fetch`: a command in a copy of a folder, and what comes back."""

import io
import tarfile
import tempfile
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import Live
from fairlead.client import parcels
from forked import run
from random_cases import cases


def test_a_folder_goes_and_what_was_asked_for_comes_back(tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    (here / "in.txt").write_text("word\n")
    (tmp_path / "secret").write_text("no")
    with Live(tmp_path) as live:
        live.up()

        def call(*words, text=""):
            return run(words, cwd=here, env=live.env, input=text, timeout=60)

        script = f"mkdir -p out/a; cat in.txt - > out/a/x; ln -s {tmp_path}/secret out/link; echo y > other; pwd; exit 0"
        done = call("run", "--send", ".", "--fetch", "out/*", "--", "sh", "-c", script, text="more\n")
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert (here / "out/a/x").read_text() == "word\nmore\n"
        assert sorted(p.name for p in here.rglob("*")) == ["a", "in.txt", "out", "x"]
        assert not Path(done.stdout.strip()).exists(), "the copy is removed"
        assert call("run", "--send", ".", "--", "sh", "-c", "kill -9 $$").returncode == 137
        assert call("run", "--send", ".", "--", "sh", "-c", "exit 7").returncode == 7
        job = call(
            "submit", "-n", "2", "--send", ".", "--fetch", "o", "--", "sh", "-c", "mkdir o; echo {index} > o/i"
        ).stdout.strip()
        call("wait", job)
        assert call("fetch", job).returncode == 0
        assert [(here / each / "o/i").read_text() for each in "01"] == ["0\n", "1\n"]
        assert call("fetch", f"{job}.1", "--to", "one").returncode == 0
        plain = call("submit", "-n", "3", "--", "true").stdout.strip()
        call("wait", plain)
        none = call("fetch", plain, "--to", "none")
        said = f"fairlead: job {plain} has no files to fetch, or no longer: they come back by --send and --fetch\n"
        assert (none.returncode, none.stderr, (here / "none").exists()) == (1, said, False)
        assert sorted(p.name for p in (here / "one").rglob("*")) == ["i", "o"], "only what is of that task"
        assert (here / "one/o/i").read_text() == "1\n"
        (here / "also.txt").write_text("sent\n")
        words = (
            "echo more >> also.txt; mkdir new; echo 1 > new/x; exec python3 -c 'import socket; socket.socket(1).bind(\"new/y\")'"
        )
        job = call("submit", "--send", ".", "--fetch", "*", "--", "sh", "-c", words).stdout.strip()
        call("wait", job)
        (here / "in.txt").write_text("newer\n")
        assert call("fetch", job).returncode == 0
        assert [(here / name).read_text() for name in ("in.txt", "also.txt", "new/x")] == ["newer\n", "sent\nmore\n", "1\n"]
        assert call("logs", job).stderr == "fairlead: new/y is not fetched: No such device or address\n"
        again = call("rerun", job).stderr
        assert (
            again == f"fairlead: job {job} ran in a folder that was sent with it, and is not kept: submit it again with --send\n"
        )
        wrong = call("run", "--send", ".", "--fetch", "../x", "--", "true")
        assert wrong.returncode == 2
        assert "leaves the folder" in wrong.stderr
        assert "only with --send" in call("run", "--fetch", "x", "--", "true").stderr
        (here / "out2").symlink_to(tmp_path)
        bad = call("run", "--send", ".", "--fetch", "out2", "--", "sh", "-c", "rm out2; mkdir out2; echo bad > out2/z")
        assert bad.returncode == 1
        assert not (tmp_path / "z").exists()


def packed(**files):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"out/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return data.getvalue()


@given(st.data())
@settings(max_examples=cases(20), deadline=None)
def test_damaged_files_are_refused_in_a_line_and_nothing_is_written_elsewhere(data):
    good = bytearray(packed(a=b"one" * 50, b=bytes(3000)))
    for _ in range(data.draw(st.integers(1, 3))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    broken = bytes(good[: data.draw(st.integers(1, len(good)))])
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder, "into")
        into.mkdir()
        with suppress(tarfile.TarError, OSError):
            parcels.fetch(SimpleNamespace(get_bytes=lambda _: broken), 1, 0, into)
        assert list(Path(folder).iterdir()) == [into]


def test_a_file_that_says_it_is_larger_than_any_is_refused(tmp_path):
    member = tarfile.TarInfo("hole")
    member.size = 2**40
    data = member.tobuf() + bytes(1024)
    with pytest.raises(tarfile.TarError, match="larger than 256 MiB"):
        parcels.fetch(SimpleNamespace(get_bytes=lambda _: data), 1, 0, tmp_path)
    assert not list(tmp_path.iterdir())
