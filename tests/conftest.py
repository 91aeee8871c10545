"""A real scheduler, started by the real command, for the tests that need one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# A shell ignores Ctrl-C on behalf of what it starts in the background, and so would all that is started here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

FAIRLEAD = str(Path(sys.executable).with_name("fairlead"))

CONFIG = """
[[queue]]
name = "A"

[[queue]]
name = "B"

[[queue]]
name = "lab"

[[queue]]
name = "lab/*"
limit = { cpu = 4 }

[[node]]
name = "n1"
capacity = { cpu = 9, memory = "18Gi" }
labels = { zone = "east" }
"""


class Live:
    """A scheduler in a folder of its own, and its command line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.config = folder / "fairlead.toml"
        self.config.write_text(CONFIG)
        self.process: subprocess.Popen | None = None
        self.log = folder / "up.log"
        self.env = {**os.environ, "FAIRLEAD_HOME": str(self.home), "COLUMNS": "100"}

    def up(self, *more: str) -> None:
        with self.log.open("ab") as log:
            command = [FAIRLEAD, "up", "--config", str(self.config), "--port", "0", *more]
            self.process = subprocess.Popen(command, env=self.env, stdout=log, stderr=log)
        self.until(lambda: (self.home / "server.json").exists() and self.call("nodes").returncode == 0, 60)

    def call(self, *command: str, **more) -> subprocess.CompletedProcess:
        return subprocess.run(
            [FAIRLEAD, *command],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=self.folder,
            **more,
        )

    def shell(self, line: str) -> subprocess.CompletedProcess:
        """A line as a person types it."""
        path = f"{Path(FAIRLEAD).parent}:{self.env['PATH']}"
        return subprocess.run(
            ["sh", "-c", line], env={**self.env, "PATH": path}, capture_output=True, text=True, timeout=60, check=False
        )

    def ok(self, *command: str) -> str:
        result = self.call(*command)
        assert result.returncode == 0, (command, result.stderr, self.log.read_text())
        return result.stdout

    def job(self, number: int) -> dict:
        return next(j for j in json.loads(self.ok("jobs", "--json", "--limit", "1000"))["jobs"] if j["id"] == number)

    def until(self, condition, seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if self.process.poll() is not None:
                raise AssertionError(f"the scheduler ended: {self.log.read_text()}")
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self, how: int = signal.SIGINT) -> int:
        self.process.send_signal(how)
        return self.process.wait(timeout=30)


@pytest.fixture
def small_disk(tmp_path):
    """Make a small file system of its own, of a size such as ``2m``; skip where that is not permitted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = []

    def make(size: str) -> Path:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(disk)]
        if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            pytest.skip("mounting a small file system is not permitted here")
        mounted.append(disk)
        return disk

    yield make
    for path in mounted:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One scheduler for all the tests of a file."""
    world = Live(tmp_path_factory.mktemp("shared"))
    world.up()
    yield world
    world.end()


@pytest.fixture
def live(tmp_path):
    world = Live(tmp_path)
    world.up()
    yield world
    if (
        world.process.poll() is not None
        and subprocess.run(["pgrep", "-f", f"{world.home}/supervisor"], check=False).returncode == 0
    ):
        world.up()  # it was killed: let it end what it left running
    if world.process.poll() is None:
        world.end()


@pytest.fixture
def other_package(tmp_path):
    """Make a folder that is another package's, as installed: its module `mine`, and the policies that it offers."""

    def make(code: str, *policies: str) -> Path:
        (tmp_path / "mine.py").write_text(code)
        info = tmp_path / "mine-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
        points = "".join(f"{name} = mine:{name}\n" for name in policies)
        (info / "entry_points.txt").write_text(f"[fairlead.policies]\n{points}")
        return tmp_path

    return make
