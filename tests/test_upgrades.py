"""One version of fairlead after another, each as processes of its own: the next takes over with tasks running, and back.

The other version is this code with constants of its own, in an environment of its own.
"""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import fairlead
from fairlead.engines.contract import NodeUp
from fairlead.engines.local import reports
from fairlead.engines.local.engine import LocalEngine
from fleet import SHORT_LEASE, Fleet
from lab import Lab


def installed(folder: Path, **constants: tuple[str, object]) -> str:
    """Install this fairlead with other constants, by module; return its command."""
    packages = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    package = packages / "fairlead"
    shutil.copytree(Path(fairlead.__file__).parent, package, copy_function=os.symlink)
    for name, (place, value) in constants.items():
        module = package / place
        text = module.read_text().splitlines()
        (at,) = [number for number, line in enumerate(text) if line.startswith(f"{name} = ")]
        text[at] = f"{name} = {value!r}"
        module.unlink()
        module.write_text("\n".join(text) + "\n")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (folder / "bin").mkdir()
    (folder / "pyvenv.cfg").write_text(f"home = {Path(sys._base_executable).parent}\n")
    (folder / "bin" / "python").symlink_to(sys._base_executable)
    command = folder / "bin" / "fairlead"
    command.write_text(f"#!{folder}/bin/python\nfrom fairlead.cli.main import main\n\nmain()\n")
    command.chmod(0o700)
    return str(command)


class Upgraded(Lab):
    """A lab whose scheduler and nodes may be of another version."""

    def start_other(self, program: str) -> None:
        with self.log.open("ab") as log:
            before = log.tell()
            words = [program, "up", "--config", str(self.config), "--nodes", f"127.0.0.1:{self.port}"]
            self.process = subprocess.Popen(words, env=self.env, stdout=log, stderr=log)
        self.until(lambda: self.answers() and b"ready at " in self.log.read_bytes()[before:], 60)


@pytest.mark.timeout(300)
def test_the_next_version_takes_over_with_tasks_running_and_back(tmp_path):
    older = {"__version__": ("__init__.py", "0.0.9"), "SCHEMA_VERSION": ("journal/sql.py", 3)}
    older["PROTOCOL, OLDEST_PROTOCOL"] = ("engines/local/messages.py", (1, 1))
    other = installed(tmp_path / "older", **older)
    with Upgraded(tmp_path) as lab:
        lab.config.write_text(lab.config.read_text().replace('"lab1"', '"lab1"\nlabels = { at = "lab1" }'))
        lab.start_other(other)
        lab.join("lab2", lab.token(), program=other)
        lab.until(lambda: lab.status("lab2") == "up", 60)
        jobs = {name: lab.long(name, tmp_path / f"{name}.ran") for name in ("lab1", "lab2")}
        was = lab.process
        lab.start_up()
        assert was.wait(60) == 0
        assert f"fairlead {fairlead.__version__} takes over from 0.0.9, process {was.pid}; tasks run on" in lab.log.read_text()
        assert "the journal of fairlead 0.0.9 gets format" in lab.log.read_text()
        lab.until(lambda: lab.status("lab2") == "up", 60)
        lab.until(lambda: f"not {fairlead.__version__}: lab2 (0.0.9)" in lab.call("doctor").stdout, 60)  # once it is heard again
        (tmp_path / "sent").mkdir()
        sent = lab.submit("--on", "at=lab2", "--send", str(tmp_path / "sent"), "--", "true")
        why = "node lab2 runs fairlead 0.0.9, too old for this job: install the scheduler's there and start it again"
        assert lab.ask(f"jobs/{sent}/why")["text"] == why
        lab.ok("cancel", str(sent))
        for name, job in jobs.items():
            (tmp_path / f"{name}.ran.go").touch()
            lab.ok("wait", str(job))
            assert (tmp_path / f"{name}.ran").read_text() == "1\n", "it ran on"
        assert lab.ok("run", "--on", "at=lab2", "--", "echo", "new") == "new\n"
        lab.until(
            lambda: not any("older-fairlead" in node["labels"] for node in lab.ask("nodes")["nodes"] if node["name"] == "lab1")
        )
        assert lab.call("run", "--on", "at=lab1", "--", "cat", input="word\n").stdout == "word\n", (
            "its supervisor is this version's"
        )
        lab.joins["lab2"].terminate()
        assert lab.joins["lab2"].wait(60) == 0
        lab.join("lab2")
        lab.until(lambda: not any("older-fairlead" in node["labels"] for node in lab.ask("nodes")["nodes"]), 60)
        assert lab.call("run", "--on", "at=lab2", "--", "cat", input="word\n").stdout == "word\n"
        refused = subprocess.run([other, "up"], env=lab.env, capture_output=True, text=True, check=False)
        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
        assert "written by a newer fairlead (schema 4, this one knows 3; " in refused.stderr
        assert lab.end(signal.SIGTERM) == 0
        told = lab.ok("journal", "rollback").splitlines()
        assert f"{lab.home}/journal.db: as fairlead 0.0.9 left it, " in told[0]
        assert told[1] == "jobs ran since: job numbers skip 4, so that none is used twice"
        lab.start_other(other)
        lab.until(lambda: lab.status("lab2") == "up", 60)
        assert lab.ok("run", "--on", "at=lab2", "--", "echo", "back") == "back\n"
        assert lab.newest() == 7


def test_a_supervisor_that_speaks_another_protocol_is_not_used(tmp_path, monkeypatch, caplog):
    many = Fleet(tmp_path, 1, SHORT_LEASE)
    local = LocalEngine(tmp_path / "here", [])
    try:
        monkeypatch.setattr(reports, "PROTOCOL", 9)
        monkeypatch.setattr(reports, "OLDEST_PROTOCOL", 7)
        many.engine._connections.renew("n0")
        many.until(lambda: many.is_down("n0"))
        why = "its supervisor, of an older fairlead, speaks protocol 2, and this scheduler 7 to 9"
        assert f"node n0 is not used: {why}: install fairlead {fairlead.__version__} there" in caplog.text
        local.serve("there", 1)
        many.until(lambda: local.trouble)
        assert local.trouble == f"{local.folder}: {why}: run `fairlead down` with that one, then start this one"
        local.close(leave=True)
        local.join(10)
        monkeypatch.setattr(reports, "OLDEST_PROTOCOL", 1)
        many.until(lambda: isinstance(many.news[-1], NodeUp))
        assert many.news[-1].node.labels == {"older-fairlead": f"fairlead {fairlead.__version__}"}
    finally:
        many.close()
        local.close(leave=True)
        local.join(10)
