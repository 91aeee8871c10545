"""The DRF paper's example on two real Ray nodes, one of which is killed in the middle: `make demo-ray`.

As `examples/demo.py`, but the 9 CPUs and 18 GiB are two Ray nodes that declare 4 and 5 CPUs, and 9 GiB each. A raylet is killed
while tasks run there: they end, and start again when resources are free. Exit status 0 only if all expectations were seen:
shares of 2/3 each, before and after, and each task done once.
"""

import os
import signal
import subprocess
from pathlib import Path

import psutil
from bench.ray_trial import Trial

from demo import FAIRLEAD, Demo, fair, running

SIZES = [(4, 9 * 2**30), (5, 9 * 2**30)]
SOONER = {"initial_delay_ms": "1000", "period_ms": "500", "timeout_ms": "1000", "failure_threshold": "3"}
QUEUES = '[[queue]]\nname = "A"\n\n[[queue]]\nname = "B"\n'


class RayDemo(Demo):
    """The demo on a Ray cluster."""

    def __init__(self, folder: Path, sizes: list[tuple[int, int]] = SIZES) -> None:
        super().__init__(folder)
        self.sizes = sizes
        self.config.write_text(QUEUES)
        self.home.mkdir(mode=0o700)
        os.environ |= {f"RAY_health_check_{name}": value for name, value in SOONER.items()}
        self.trial = Trial(self.home, sizes)
        self.address = self.trial.start(len(sizes))
        self.say(f"{len(sizes)} Ray nodes run at {self.address}")

    def up(self) -> None:
        """Start the scheduler, and wait until both nodes are up."""
        words = ["--engine", "ray", "--ray-address", self.address, "--config", str(self.config)]
        self.server = subprocess.Popen([FAIRLEAD, "up", *words])
        self.until("up", len(self.sizes))

    def lose_a_node(self) -> None:
        """SIGKILL the second node's raylet, wait until the node is lost, and restart it."""
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or [""]
            if (
                words[0].endswith("/raylet")
                and f"--gcs-address={self.address}" in words
                and "--node_ip_address=127.0.0.3" in words
            ):
                process.send_signal(signal.SIGKILL)
        self.say("the raylet of one node is killed with SIGKILL")
        self.until("lost", 1)
        self.say("that node is lost: nothing runs there any more")
        self.trial.start_node_again(2, len(self.sizes))
        self.until("up", len(self.sizes))
        self.say("it was started again")

    def end(self) -> None:
        """Stop the scheduler, if it runs, and the cluster."""
        if self.server and self.server.poll() is None:
            subprocess.run([FAIRLEAD, "down", "--now"], check=False)
            self.server.wait(timeout=60)
        self.trial.end()


def main() -> None:
    """Run the demo; raise SystemExit for an expectation that was not seen."""
    with running(RayDemo) as demo:
        demo.share(", over two nodes", 30)
        demo.lose_a_node()
        demo.watch("the same when the node is back", fair, 30)
        demo.finish(120)
        demo.count_done()


if __name__ == "__main__":
    main()
