"""A Ray cluster of several nodes on this machine, for benches, tests and demos: raylets on 127.0.0.2 and up that share its cores.

    python -m bench.ray_trial HOME COUNT

starts it, or finds it, and prints its address. The raylets are detached, with files in a folder below /tmp (paths of sockets must
be short). HOME/ray.json records the address for the next caller. They are ended by pid, since `ray stop` would end every cluster
of this user.
"""

import contextlib
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import psutil

from fairlead.data_folder import write_private
from fairlead.engines.contract import EngineError
from fairlead.processes import cores

START_WITHIN = 60.0
"""Seconds for one node to start."""
END_WITHIN = 5.0
"""Seconds between SIGTERM and SIGKILL."""
STORE = 80 * 10**6
"""Bytes of Ray's object store per node."""


class Trial:
    """The trial cluster of a scheduler's data folder.

    Parameters
    ----------
    home : Path
        The data folder.
    sizes : sequence of (int, int)
        CPUs and bytes of memory of each node; by default they share the machine's cores and half its memory.
    """

    def __init__(self, home: Path, sizes: Sequence[tuple[int, int]] = ()) -> None:
        self._home, self._sizes = home, sizes
        # Else a token in the home, as any local `ray.init()` leaves one, would decide, for each process at its own start.
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")
        name = hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:8]
        self._folder = Path(tempfile.gettempdir(), f"fairlead-{os.geteuid()}-{name}")

    def start(self, count: int) -> str:
        """Start it with `count` nodes, or find it. Return its address. Raises EngineError if it cannot be started."""
        running = self._running()
        if running:
            return running
        self.end()
        self._folder.mkdir(mode=0o700, exist_ok=True)
        if self._folder.stat().st_uid != os.geteuid():
            raise EngineError(f"{self._folder} belongs to somebody else: move it away")
        address = f"127.0.0.2:{_free_port()}"
        self._start_node(1, count, _as_head(address))
        for number in range(2, count + 1):  # in turn: concurrent starts pick the same file names
            self._start_node(number, count, [f"--address={address}"])
        write_private(self._home / "ray.json", json.dumps({"address": address}))
        return address

    def end(self, keep: bool = False) -> None:
        """End it, and remove its files unless `keep`."""
        mark = f"{self._folder}/"
        found = []
        for process in psutil.process_iter(["cmdline", "uids"]):
            uids, words = process.info["uids"], process.info["cmdline"] or []
            if uids is not None and uids.real == os.geteuid() and any(mark in word for word in words):
                found += [process, *_children(process)]
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        _, left = psutil.wait_procs(found, END_WITHIN)
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        (self._home / "ray.json").unlink(missing_ok=True)
        if not keep and self._folder.exists() and self._folder.lstat().st_uid == os.geteuid():
            shutil.rmtree(self._folder, ignore_errors=True)

    def _running(self) -> str:
        """Return its address if its head accepts connections; else an empty string."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            address = str(json.loads((self._home / "ray.json").read_text())["address"])
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), 1.0).close()
            return address
        return ""

    def start_node_again(self, number: int, count: int) -> None:
        """Restart a node whose raylet ended if the head runs; else restart the head."""
        if address := self._running():
            self._start_node(number, count, [f"--address={address}"])
        else:
            address = str(json.loads((self._home / "ray.json").read_text())["address"])
            # With this file `ray start` takes the head for running, if a raylet of its cluster is on the machine.
            (self._folder / "ray_current_cluster").unlink(missing_ok=True)
            self._start_node(1, count, _as_head(address))

    def _start_node(self, number: int, count: int, more: list[str]) -> None:
        host, name = f"127.0.0.{number + 1}", f"try-{number}"
        cpus, memory = max(1, cores() // count), psutil.virtual_memory().total // (2 * count)
        if self._sizes:
            cpus, memory = self._sizes[number - 1]
        command = [
            sys.executable, "-m", "ray.scripts.scripts", "start", *more, f"--node-ip-address={host}", f"--node-name={name}",
            f"--num-cpus={cpus}", f"--memory={memory}", f"--object-store-memory={STORE}",
            "--disable-usage-stats", "--include-log-monitor=false", "--min-worker-port=0", "--max-worker-port=0",
        ]  # fmt: skip
        if number == 1:
            command.append(f"--temp-dir={self._folder}")
        output = self._folder / f"{name}.log"
        try:
            with output.open("w") as log:  # not a pipe: the started processes would keep it open
                subprocess.run(
                    command,
                    env={**os.environ, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1", "RAY_USAGE_STATS_ENABLED": "0"},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    check=True,
                    timeout=START_WITHIN,
                )
        except subprocess.SubprocessError as error:
            self.end(keep=True)
            last = (output.read_text(errors="replace").strip().splitlines() or [str(error)])[-1]
            raise EngineError(f"a Ray node could not be started: `ray start` printed: {last}: see {output}") from None


def _as_head(address: str) -> list[str]:
    return ["--head", f"--port={address.rpartition(':')[2]}", "--include-dashboard=false", "--no-monitor"]


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _free_port() -> int:
    with socket.create_server(("127.0.0.2", 0)) as probe:
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    print(Trial(Path(sys.argv[1])).start(int(sys.argv[2])))
