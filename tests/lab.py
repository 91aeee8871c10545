"""A lab for tests: a scheduler and nodes that joined it, as processes with homes of their own, and ways to break them.

A proxy stands between, so that a link can be slow, cut and lossy. A preloaded clock is set for a node alone.
"""

import contextlib
import shutil
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import psutil
import pytest

from conftest import FAIRLEAD, Live, held_port, supervisor_of
from forked import Fairlead


class PreloadedClock:
    """The clock of the programs that are started with `env`: so many seconds later than it is, by the wall and since the boot."""

    def __init__(self, folder):
        compiler, library = shutil.which("cc"), folder / "clock.so"
        if compiler is None:
            pytest.skip("no C compiler")
        source = Path(__file__).with_name("wall_clock.c")
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        self.file = folder / "clock"
        self.set()
        self.env = {"LD_PRELOAD": str(library), "WALL_CLOCK": str(self.file)}

    def set(self, wall=0, since_boot=0):
        with self.file.open("r+b" if self.file.exists() else "wb") as file:
            file.write(struct.pack("qq", wall, since_boot))


class Proxy:
    """Passes connections on to a port until it is cut; then it is silent, as a network that lost a cable."""

    def __init__(self, port):
        self.port, self.is_cut, self.delay = port, False, 0.0
        self.lines = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                here, _ = self.listener.accept()
                if self.is_cut:
                    self.lines.append(here)
                    continue
                try:
                    there = socket.create_connection(("127.0.0.1", self.port))
                except OSError:
                    here.close()
                    continue
                self.lines += [here, there]
                for one, other in ((here, there), (there, here)):
                    threading.Thread(target=self.copy, args=(one, other), daemon=True).start()

    def copy(self, one, other):
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                time.sleep(self.delay)
                while self.is_cut:
                    time.sleep(0.02)
                other.sendall(data)
        if not self.is_cut:
            for line in (one, other):
                with contextlib.suppress(OSError):
                    line.shutdown(socket.SHUT_RDWR)

    def mend(self):
        """What was on its way is lost."""
        for line in self.lines:
            line.close()
        self.lines, self.is_cut = [], False

    def close(self):
        self.listener.close()
        self.mend()


class Lab(Live):
    """A scheduler that takes nodes, and nodes `lab2` and `lab3`, each behind a proxy."""

    def __init__(self, folder):
        super().__init__(folder)
        self.config.write_text('[[node]]\nname = "lab1"\ncapacity = { cpu = 2, memory = "4Gi" }\n')
        self.held = held_port()
        self.port = self.held.getsockname()[1]
        self.proxies, self.joins = {}, {}

    def start_up(self, lost_after=5):
        self.up("--nodes", f"127.0.0.1:{self.port}", "--lost-after", f"{lost_after}")

    def token(self, *more):
        return self.ok("node", "token", *more).strip()

    def join(self, name, *more, at="", program=None, env=None):
        """Start the command that makes a node of this machine, as if it were another, with a label: its name or `at`."""
        proxy = self.proxies.get(name) or Proxy(self.port)
        self.proxies[name] = proxy
        home = self.folder / name
        config = self.folder / f"{name}.toml"
        config.write_text(
            f'[[node]]\nname = "{name}"\ncapacity = {{ cpu = 2, memory = "2Gi" }}\nlabels = {{ at = "{at or name}" }}\n'
        )
        command = ["node", "join", proxy.address, *more, "--home", str(home), "--config", str(config)]
        with (self.folder / f"{name}.log").open("ab") as log:
            if program or env:
                command, env = [program or FAIRLEAD, *command], {**self.env, **(env or {})}
                self.joins[name] = subprocess.Popen(command, env=env, stdout=log, stderr=log)
            else:
                self.joins[name] = Fairlead(command, env=self.env, stdout=log, stderr=log)

    def said(self, name):
        return (self.folder / f"{name}.log").read_text()

    def status(self, name):
        return next((node["status"] for node in self.ask("nodes")["nodes"] if node["name"] == name), None)

    def supervisor_on(self, name):
        (found,) = supervisor_of(self.folder / name / "node")
        return found

    def task(self, job, index=0):
        return next(task for task in self.ask(f"jobs/{job}/tasks")["tasks"] if task["index"] == index)

    def waits_for(self, job, node):
        self.until(lambda: self.task(job)["status"] == "running")
        assert self.task(job)["node"] == node

    def long(self, node, mark):
        """A job of one task that waits for a file, and writes down each start, and if another attempt of it still runs."""
        words = f"exec 9> {mark}.lock; flock -n 9 || echo twice >> {mark}; echo $FAIRLEAD_NUMBER >> {mark}"
        words += f"; until test -e {mark}.go; do sleep 0.05; done"
        job = self.submit("--on", f"at={node}", "--cpu", "1", "--", "sh", "-c", words)
        self.waits_for(job, node)
        return job

    def close(self):
        for process in self.joins.values():
            process.kill()
            process.wait()
        for name in self.proxies:
            for process in supervisor_of(self.folder / name / "node"):
                for child in process.children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        child.kill()
                process.resume()
                process.kill()
        super().close()
        for proxy in self.proxies.values():
            proxy.close()
        self.held.close()
