"""The DRF paper's example over three machines that joined, one of them cut off in the middle: `make demo-machines`.

As `examples/demo.py`, but the 9 CPUs and 18 GiB are three nodes, as if on machines of their own: each has a home of its own and
joins by a token. One is cut off while tasks run there: they end, and start again when it is back. Another is started again, as
for an upgrade, and so is the scheduler: their tasks run on. Exit status 0 only if all expectations were seen.
"""

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

from demo import FAIRLEAD, Demo, fair, running

SIZES = {"n1": (3, 12), "n2": (3, 3), "n3": (3, 3)}
"""CPUs and GiB of each node."""
CONFIG = """
[[queue]]
name = "A"

[[queue]]
name = "B"

[[node]]                                    # the scheduler's own machine runs nothing
name = "n0"
capacity = { scheduler = 1 }
"""


class Link:
    """A network link to a port of this machine, which can be cut."""

    def __init__(self, port: int) -> None:
        self.port, self.lines, self.is_cut = port, list[socket.socket](), False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            here, _ = self.listener.accept()
            with contextlib.suppress(OSError):  # the scheduler is being started again
                there = socket.create_connection(("127.0.0.1", self.port))
                self.lines += [here, there]
                for one, other in ((here, there), (there, here)):
                    threading.Thread(target=self.copy, args=(one, other), daemon=True).start()
                continue
            here.close()

    def copy(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                while self.is_cut:  # silent, as without a cable
                    time.sleep(0.1)
                other.sendall(data)
        for line in (one, other):
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self.is_cut = False
        for line in self.lines:
            line.close()


class MachinesDemo(Demo):
    """The demo on nodes that join. A task takes longer than a lease, so that none ends unseen."""

    seconds, tasks = 8, {"A": 9, "B": 6}

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.config.write_text(CONFIG)
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.links: dict[str, Link] = {}
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}

    def up(self) -> None:
        """Start the scheduler."""
        words = ["--nodes", f"127.0.0.1:{self.port}", "--lost-after", "3", "--config", str(self.config)]
        self.server = subprocess.Popen([FAIRLEAD, "up", *words])
        self.until("up", 1 + len(self.nodes))

    def join(self, name: str) -> None:
        """Make a node of this machine, as one would of another."""
        cpu, memory = SIZES[name]
        config = self.folder / f"{name}.toml"
        config.write_text(f'[[node]]\nname = "{name}"\ncapacity = {{ cpu = {cpu}, memory = "{memory}Gi" }}\n')
        token = []
        if name not in self.links:
            self.links[name] = Link(self.port)
            token = [subprocess.check_output([FAIRLEAD, "node", "token"], text=True, stderr=subprocess.DEVNULL).strip()]
        words = [self.links[name].address, *token, "--home", str(self.folder / name), "--config", str(config)]
        self.nodes[name] = subprocess.Popen([FAIRLEAD, "node", "join", *words])
        self.until("up", 1 + len(self.nodes))

    def cut_off(self, name: str) -> None:
        """Cut a node's link until it is lost, and mend it."""
        self.links[name].is_cut = True
        self.say(f"the link of {name} is cut")
        self.until("lost", 1)
        self.say(f"{name} is lost: its lease is over, so nothing runs there any more")
        self.links[name].mend()
        self.until("up", 1 + len(self.nodes))
        self.say("the link is mended")

    def upgrade(self, name: str) -> None:
        """End what keeps a node, and then the scheduler, by SIGTERM, and start them again: tasks run on meanwhile."""
        self.nodes[name].terminate()
        self.nodes[name].wait()
        self.join(name)
        assert self.server
        self.server.terminate()
        self.server.wait()
        self.say(f"{name} was started again, as for an upgrade, and the scheduler has ended; it starts again")
        self.up()

    def end(self) -> None:
        """End the nodes, with what runs there, and the scheduler."""
        for process in self.nodes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.wait(timeout=60)
        super().end()


def main() -> None:
    """Run the demo; raise SystemExit for an expectation that was not seen."""
    os.environ["COLUMNS"] = "100"
    with running(MachinesDemo) as demo:
        for name in SIZES:
            demo.join(name)
        demo.share(", over three nodes", 30)
        demo.cut_off("n2")
        demo.watch("the same when the node is back", fair, 30)
        demo.upgrade("n3")
        demo.watch("the same after the upgrade", fair, 30)
        demo.finish(120)
        demo.count_done()


if __name__ == "__main__":
    main()
