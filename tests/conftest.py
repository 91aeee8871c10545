"""A real scheduler, started by the real command, for the tests that need one."""

from __future__ import annotations

import contextlib
import gc
import http.client
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, settings

import fairlead
import forked
from fairlead.cli.main import main
from fairlead.client.address import connect_to
from fairlead.client.connection import Connection
from fairlead.client.service_error import ServiceError
from fairlead.engines.local.engine import LocalEngine
from fairlead.engines.local.member import supervisor_in
from fairlead.processes import cores
from forked import Fairlead, run
from random_cases import cases

pytest_plugins = ["leftovers"]

# Each process that loads numpy would have threads that spin for a while, and are not there after a fork.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

# A shell ignores Ctrl-C on behalf of what it starts in the background, and so would all that is started here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Random tests try the same cases each time, so a change is what makes one fail; `make fuzz` looks for other cases.
# None fails for being slow.
is_fuzz = "FAIRLEAD_FUZZ" in os.environ
settings.register_profile(
    "same", max_examples=cases(25), derandomize=not is_fuzz, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same")
# Hypothesis also draws constants of the modules that are imported, which must not depend on the tests that ran before.
for module in pkgutil.walk_packages(fairlead.__path__, "fairlead."):
    importlib.import_module(module.name)

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


def pytest_configure(config: pytest.Config) -> None:
    """Commands hear what ends a terminal's programs, though the tests were started by nohup or in the background of a shell."""
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    if config.getoption("numprocesses", None):
        forked.start()


def pytest_xdist_auto_num_workers() -> int:
    """Twice as many as there are cores: for much of their time the tests wait, for tasks that sleep."""
    return 2 * cores()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session):
    """What is read and collected stays: to look through all of it for garbage, again and again, would be a third of the time.

    Each worker begins to read at another file: in a fresh clone each compiles a part of them, and finds the others compiled.
    """
    gc.disable()
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    try:
        if worker and session.config.args_source is pytest.Config.ArgsSource.TESTPATHS:
            files = sorted(Path(__file__).parent.glob("test_*.py"))
            begin = len(files) * int(worker[2:]) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
            session.config.args = [str(file) for file in files[begin:] + files[:begin]]
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


LONGEST = ("types", "ray", "schema", "machine_faults", "torture", "checked_kernels", "machines", "upgrades")
"""Files whose tests take longest, dealt out to four workers in turn."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first on each worker, so that nothing runs alone at the end; xdist gives each a part in order."""
    items.sort(key=lambda item: item.path)
    long = {name: [item for item in items if item.path.stem == f"test_{name}"] for name in LONGEST}
    workers, count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")), len(items)
    items[:] = [item for item in items if item.path.stem.removeprefix("test_") not in long]
    begin = 0
    for worker in range(workers):
        items[begin:begin] = [item for name in LONGEST[worker::workers] for item in long[name]]
        begin += (count - begin) // (workers - worker)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Once fixtures have ended what they started, and all workers have ended."""
    forked.end()


def held_port() -> socket.socket:
    """Hold a port of this machine that no other program gets while nobody listens there; who reuses addresses may listen."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


def pause(began: float) -> None:
    """Wait before the next look, for a tenth of the time since `began`: a look is a request, which costs two processes 3 ms."""
    time.sleep(min(0.1, 0.01 + (time.monotonic() - began) / 10))


def until(find: Callable[[], Any], seconds: float = 60) -> Any:
    """Wait until something is so; returns what was found."""
    began = time.monotonic()
    while not (found := find()):
        assert time.monotonic() < began + seconds
        pause(began)
    return found


class SocketConnection(http.client.HTTPConnection):
    """A connection to a Unix socket."""

    def __init__(self, path: Path, timeout: float = 60) -> None:
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self) -> None:
        self.sock = connect_to(self.path, self.timeout)


class Live:
    """A scheduler in a folder of its own, and its command line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.config = folder / "fairlead.toml"
        self.config.write_text(CONFIG)
        self.process: subprocess.Popen | None = None
        self.beside: list[subprocess.Popen] = []
        self.log = folder / "up.log"
        self.env = {**os.environ, "FAIRLEAD_HOME": str(self.home), "COLUMNS": "100"}

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def up(self, *more: str) -> None:
        """Start it, and wait until it answers and has said where; the log is told that a moment after the first may ask."""
        with self.log.open("ab") as log:
            before = log.tell()
            arguments = ["up", "--config", str(self.config), *more]
            if any(self.env.get(name) != os.environ.get(name) for name in ("LD_PRELOAD", "PYTHONPATH")):  # for a new program
                self.process = subprocess.Popen([FAIRLEAD, *arguments], env=self.env, stdout=log, stderr=log)
            else:
                self.process = Fairlead(arguments, env=self.env, stdout=log, stderr=log)
        self.until(lambda: self.answers() and b"ready at " in self.log.read_bytes()[before:], 120)

    def answers(self) -> bool:
        try:
            self.ask("nodes")
        except ServiceError:
            return False
        return True

    def ask(self, path: str, **query: object) -> dict:
        """What a command asks for, without the process that a command is."""
        with Connection(self.home, retry_seconds=0) as connection:
            return connection.get(f"/v1/{path}", **query)

    def wire(self) -> SocketConnection:
        """A connection of which a test says every byte."""
        return SocketConnection(self.home / "socket")

    def http(self, method: str, path: str, body: object = None, headers: object = ()) -> tuple[int, object]:
        """A request as it is on the wire, and its answer: the status, and JSON or text; `body` is bytes, or made JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if data is not None else {}
        with contextlib.closing(self.wire()) as connection:
            connection.request(method, path, body=data, headers={**kind, **dict(headers)})
            answer = connection.getresponse()
            text = answer.read()
            is_json = "json" in answer.headers["Content-Type"]
            return answer.status, json.loads(text) if is_json else text.decode()

    def call(self, *command: str, **more) -> subprocess.CompletedProcess:
        return run(command, env=self.env, timeout=100, cwd=self.folder, **more)

    def start(self, *command: str, **more) -> subprocess.Popen:
        """A command that goes on beside the test."""
        self.beside.append(Fairlead(command, env=self.env, stdout=subprocess.PIPE, cwd=self.folder, **more))
        return self.beside[-1]

    def shell(self, line: str) -> subprocess.CompletedProcess:
        """A line as a person types it."""
        path = f"{forked.folder_with_command()}:{self.env['PATH']}"
        return subprocess.run(
            ["sh", "-c", line], env={**self.env, "PATH": path}, capture_output=True, text=True, timeout=100, check=False
        )

    def ok(self, *command: str) -> str:
        result = self.call(*command)
        assert result.returncode == 0, (command, result.stderr, self.log.read_text())
        return result.stdout

    def job(self, number: int) -> dict:
        return next(j for j in self.ask("jobs", limit=1000)["jobs"] if j["id"] == number)

    def submit(self, *arguments: str) -> int:
        return int(self.ok("submit", *arguments))

    def newest(self) -> int:
        """The number of the last job that was submitted."""
        return self.ask("jobs", limit=1)["jobs"][0]["id"]

    def until(self, condition, seconds: float = 90) -> None:
        began = time.monotonic()
        while not condition():
            if self.process.poll() is not None:
                raise AssertionError(f"the scheduler ended: {self.log.read_text()}")
            assert time.monotonic() < began + seconds, self.log.read_text()
            pause(began)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self, how: int = signal.SIGINT) -> int:
        self.process.send_signal(how)
        return self.process.wait(timeout=60)

    def close(self) -> None:
        """End all that was started here, however the test left it: commands, the scheduler, its tasks, its supervisor."""
        self.end_commands()
        if self.process is None:
            return
        clean = self.process.poll() == 0
        try:
            if self.process.poll() is None:
                clean = self.end() == 0
        finally:
            self.kill()
            if not (clean and has_ended(self.home)):
                end_tasks(self.home)

    def end_commands(self) -> None:
        for process in self.beside:
            with process:
                process.kill()

    def supervisor(self) -> list[psutil.Process]:
        return supervisor_of(self.home)


def supervisor_of(home: Path) -> list[psutil.Process]:
    """The supervisor of a data folder, where one runs; neither its guardian nor its child that is not yet a task's program."""
    found = supervisor_in(home / "supervisor")
    with contextlib.suppress(psutil.NoSuchProcess):
        return [psutil.Process(found.pid)] if found is not None else []
    return []


def has_ended(home: Path) -> bool:
    """Whether there is no supervisor; one that has no tasks ends a moment after its scheduler, which is waited for."""
    deadline = time.monotonic() + 5
    with contextlib.suppress(psutil.NoSuchProcess):
        while (left := supervisor_of(home)) and not left[0].children() and time.monotonic() < deadline:
            time.sleep(0.01)
    return not supervisor_of(home)


def end_tasks(home: Path) -> None:
    """End the tasks of a data folder and their supervisor; where that was killed, another ends what it left."""
    engine = LocalEngine(home, [])
    engine.serve("tests", time.monotonic_ns())
    deadline = time.monotonic() + 60
    while (known := engine.poll().known) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    if known is not None:
        engine.stop(known, 5.0)
    engine.close(leave=True)
    engine.join(10)
    while (left := supervisor_of(home)) and time.monotonic() < deadline:
        time.sleep(0.02)
    for process in left:
        process.kill()


@pytest.fixture
def command(tmp_path, monkeypatch, capfd):
    """Call a command in this process, in a folder of its own; that a process does the same, one test of each file shows."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> subprocess.CompletedProcess:
        monkeypatch.setattr(sys, "argv", ["fairlead", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return subprocess.CompletedProcess(arguments, ended.value.code or 0, *capfd.readouterr())

    return call


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
    with Live(tmp_path_factory.mktemp("shared")) as world:
        world.up()
        yield world


@pytest.fixture
def idle(shared, tmp_path):
    """The scheduler of the file with nothing on it, and a folder and an environment of the test's own."""
    world = copy(shared)
    world.folder, world.env, world.beside = tmp_path, dict(shared.env), []
    yield world
    world.end_commands()
    for queue in ("A", "B", "lab"):
        world.http("POST", "/v1/cancel", {"queue": queue})
    world.until(lambda: not any(queue["running"] for queue in world.ask("queues")["queues"]))


@pytest.fixture(scope="module")
def machine():
    """A machine with people of its own, for all the tests of a file; skips, and says why, where there can be none."""
    from machine import Machine, why_not

    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    there = Machine()
    try:
        there.up()
        yield there
    finally:
        there.close()


@pytest.fixture
def live(tmp_path):
    with Live(tmp_path) as world:
        world.up()
        yield world


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
