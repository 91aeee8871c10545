"""`--send` and `--fetch`: a command in a copy of a folder, and what comes back."""

import subprocess
from pathlib import Path

from conftest import FAIRLEAD, Live


def test_a_folder_goes_and_what_was_asked_for_comes_back(tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    (here / "in.txt").write_text("word\n")
    (tmp_path / "secret").write_text("no")
    with Live(tmp_path) as live:
        live.up()

        def call(*words, text=""):
            return subprocess.run(
                [FAIRLEAD, *words], cwd=here, env=live.env, input=text, capture_output=True, text=True, check=False, timeout=60
            )

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
        wrong = call("run", "--send", ".", "--fetch", "../x", "--", "true")
        assert wrong.returncode == 1
        assert "leaves the folder" in wrong.stderr
        assert "only with --send" in call("run", "--fetch", "x", "--", "true").stderr
        (here / "out2").symlink_to(tmp_path)
        bad = call("run", "--send", ".", "--fetch", "out2", "--", "sh", "-c", "rm out2; mkdir out2; echo bad > out2/z")
        assert bad.returncode == 1
        assert not (tmp_path / "z").exists()
