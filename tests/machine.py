"""A machine with people of its own: a scheduler for all of it, and those who use it, each under their own account.

The accounts are in a mount namespace with files of its own for /etc/passwd, /etc/group and all of /run, so the real ones
stay as they are. Those who act are processes of these accounts (`actor.py`).
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from platformdirs import user_cache_dir

from conftest import FAIRLEAD, end_tasks, has_ended

SOCKET = "/run/fairlead/socket"
PEOPLE = {"alice": 60001, "bob": 60002, "carol": 60003, "olga": 60004, "mallory": 60005}
"""Who has an account, and its uid. Alice is in the group vision. Mallory ends all that is his: no other test may count on him."""
NOBODY = 60009
"""A uid without an account: the stranger."""

CONFIG = """
operators = ["olga"]

[[queue]]
name = "vision"
submit = ["@vision"]
admin = ["carol"]

[[queue]]
name = "secret"
submit = ["alice"]
private = true

[[queue]]
name = "hidden"
submit = ["alice"]
order = "fair"
private = true

[[queue]]
name = "people"

[[queue]]
name = "people/*"

[[node]]
name = "n1"
capacity = { cpu = 9, memory = "18Gi" }
"""


def why_not() -> str | None:
    """Why there can be no such machine here, if there cannot."""
    if os.geteuid() != 0:
        return "only root can act as other people"
    for program in ("unshare", "nsenter", "setpriv", "mount"):
        if shutil.which(program) is None:
            return f"there is no {program} here"
    test = ["unshare", "-m", "sh", "-c", "mount --bind /etc/passwd /etc/passwd && mount -t tmpfs none /run"]
    done = subprocess.run(test, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        return f"no mount namespace can be made here: {done.stderr.strip()}"
    return None


def opened(folder: Path) -> list[str]:
    """Mounts by which everybody can reach what fairlead runs from, though it may be below a home that is closed to them."""
    needed = [Path(sys.base_prefix), Path(sys.prefix), Path(__file__).parent.parent, Path(user_cache_dir("fairlead"))]
    closed = {path: [up for up in path.parents if not up.stat().st_mode & 0o001] for path in needed if path.exists()}
    closed = {path: ups[-1] for path, ups in closed.items() if ups}
    away, back = [], []
    for number, path in enumerate(closed):
        (folder / f"needed-{number}").mkdir(exist_ok=True)
        away.append(f"mount --rbind {path} {folder}/needed-{number}")
        back.append(f"mkdir -p {path} && mount --rbind {folder}/needed-{number} {path}")
    return [*away, *(f"mount -t tmpfs -o mode=755 none {up}" for up in set(closed.values())), *back]


class Machine:
    """The scheduler, and the accounts around it. What a test makes of it goes when it is closed."""

    def __init__(self, config: str = CONFIG) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fairlead-machine-"))
        self.folder.chmod(0o755)
        self.home = self.folder / "data"
        self.log = self.folder / "up.log"
        self.config = self.folder / "fairlead.toml"
        self.config.write_text(config)
        passwd, group = Path("/etc/passwd").read_text(), Path("/etc/group").read_text()
        for name, uid in PEOPLE.items():
            home = self.folder / name
            home.mkdir(mode=0o755)
            os.chown(home, uid, uid)
            passwd += f"{name}:x:{uid}:{uid}::{home}:/bin/sh\n"
            group += f"{name}:x:{uid}:\n"
        (self.folder / "passwd").write_text(passwd)
        (self.folder / "group").write_text(group + "vision:x:60100:alice\nops:x:60101:olga\n")
        self.actors: dict[str, Actor] = {}
        self.process: subprocess.Popen | None = None

    def up(self, *more: str) -> None:
        folder = self.folder
        accounts = [f"mount --bind {folder}/{name} /etc/{name}" for name in ("passwd", "group")]
        script = " && ".join([*accounts, "mount -t tmpfs none /run", *opened(folder), 'exec "$@"'])
        command = [FAIRLEAD, "up", "--system", "--home", str(self.home), "--config", str(self.config), *more]
        env = {k: v for k, v in os.environ.items() if not k.startswith("FAIRLEAD")}
        with self.log.open("ab") as log:
            before = log.tell()
            self.process = subprocess.Popen(
                ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", *command], env=env, stdout=log, stderr=log
            )
        deadline = time.monotonic() + 90
        while b"ready at" not in self.log.read_bytes()[before:]:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def __getitem__(self, name: str) -> "Actor":
        """Somebody: one of the people, root, or a stranger."""
        if name not in self.actors:
            self.actors[name] = Actor(self, name)
        return self.actors[name]

    def inside(self, uid: int, *command: str) -> list[str]:
        """A command as it is run in there by somebody."""
        who = [] if uid == 0 else [f"--reuid={uid}", f"--regid={uid}", "--clear-groups" if uid == NOBODY else "--init-groups"]
        return ["nsenter", "-m", "-t", str(self.process.pid), "setpriv", *who, *command]

    def forget_actors(self) -> None:
        """End those who acted; they are in the namespace of a scheduler that was."""
        for actor in self.actors.values():
            actor.close()
        self.actors = {}

    def close(self) -> None:
        self.forget_actors()
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            try:
                clean = self.process.wait(timeout=60) == 0
            finally:
                self.process.kill()
                self.process.wait()
            if not (clean and has_ended(self.home)):
                end_tasks(self.home)
        shutil.rmtree(self.folder)


class Actor:
    """Somebody who makes requests and runs commands, as a process of their own account."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine, self.name = machine, name
        uid = {"root": 0, "stranger": NOBODY, **PEOPLE}[name]
        home = machine.folder / name
        if name in ("root", "stranger"):
            home.mkdir(exist_ok=True)
            os.chown(home, uid, uid)
        env = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TMPDIR": str(home), "COLUMNS": "120"}
        command = machine.inside(uid, sys.executable, str(Path(__file__).with_name("actor.py")))
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True)

    def http(self, method: str, path: str, body: object = None, headers: dict | None = None) -> tuple[int, object]:
        """A request over the machine's socket: its status, and its answer as JSON where it is that."""
        status, text = self._do({"http": [method, path, body, headers], "socket": SOCKET})
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text

    def run(self, *command: str, **env: str) -> subprocess.CompletedProcess:
        """A command of fairlead's."""
        code, out, err = self._do({"command": command, "env": env})
        return subprocess.CompletedProcess(command, code, out, err)

    def python(self, code: str) -> subprocess.CompletedProcess:
        """A program of theirs."""
        return subprocess.CompletedProcess(["python"], *self._do({"python": code}))

    def task(self, *command: str, **env: str) -> tuple[int, str, str]:
        """Run a command as a task in their own queue: its exit status, its output and its errors."""
        done = self.run("run", "-q", "people", "--memory", "256Mi", *command, **env)
        return done.returncode, done.stdout, done.stderr

    def ok(self, *command: str, **env: str) -> str:
        done = self.run(*command, **env)
        assert done.returncode == 0, (self.name, command, done.stderr)
        return done.stdout

    def _do(self, todo: dict) -> list:
        self.process.stdin.write(json.dumps(todo) + "\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], 150)
        assert ready, f"{self.name} has no answer: {todo}"
        line = self.process.stdout.readline()
        assert line, f"{self.name} went away: {todo}"
        return json.loads(line)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.kill()
        self.process.wait()
