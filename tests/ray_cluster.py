"""A scheduler over a real Ray cluster of its own, for the tests of Ray."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import psutil
from bench.ray_trial import Trial

from conftest import Live, supervisor_of

SOONER = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}
"""How soon Ray's head sees that a node is dead."""


class Cluster(Live):
    """A scheduler over a Ray cluster of its own, with its raylets."""

    def __init__(self, folder):
        super().__init__(folder)
        self.lost_after = "60"
        self.config.write_text("")
        self.env |= SOONER
        # A process of its own: what is forked from the tests may have loaded what Ray does not stand.
        self.env["PYTHONPATH"] = ""

    def start_up(self, count=4):
        """Start Ray's nodes, or find them, and the scheduler."""
        self.home.mkdir(mode=0o700, exist_ok=True)
        words = [sys.executable, "-m", "bench.ray_trial", str(self.home), str(count)]
        root, env = Path(__file__).parent.parent, {"RAY_AUTH_MODE": "disabled", **self.env}
        done = subprocess.run(words, cwd=root, env=env, stdout=subprocess.PIPE, text=True, timeout=180, check=True)
        self.up("--engine", "ray", "--ray-address", done.stdout.strip(), "--lost-after", self.lost_after)
        self.until(lambda: len(self.nodes("up")) == count, 60)

    def end(self, *how):
        """End the scheduler, and then Ray's nodes."""
        status = super().end(*how)
        Trial(self.home).end()
        return status

    def supervisor_on(self, name):
        (folder,) = (self.home / "nodes").glob(f"*/{name}")
        (found,) = supervisor_of(folder)
        return found

    def nodes(self, status):
        return [node["name"] for node in self.ask("nodes")["nodes"] if node["status"] == status]

    def tasks(self, job):
        return {task["index"]: task for task in self.ask(f"jobs/{job}/tasks")["tasks"]}

    def doctor(self):
        """What `fairlead doctor` finds."""
        return json.loads(self.call("doctor", "--json").stdout)["found"]

    @property
    def address(self):
        """Where Ray's head listens."""
        return json.loads((self.home / "ray.json").read_text())["address"]

    def raylet(self, name):
        return self.process_of("raylet", f"--node_ip_address=127.0.0.{int(name.removeprefix('try-')) + 1}")

    def process_of(self, program, word=""):
        """A process of Ray's, of this cluster and no other."""
        mark = str(Trial(self.home)._folder)
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or [""]
            if words[0].endswith(program) and (not word or word in words) and any(mark in each for each in words):
                return process
        raise AssertionError(f"no {program} {word}")


@contextlib.contextmanager
def ended(cluster):
    """End whatever is left of a cluster."""
    try:
        with cluster:
            yield cluster
    finally:
        if cluster.process is not None:
            cluster.kill()
        Trial(cluster.home).end()
        end_supervisors(cluster)


def is_of(cluster, pid):
    try:
        process = psutil.Process(pid)
        words = process.cmdline()
    except psutil.NoSuchProcess:
        return False
    return str(Trial(cluster.home)._folder) + "/" in " ".join(words) and process.status() != psutil.STATUS_ZOMBIE


def end_supervisors(cluster):
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if words and words[-1].startswith(str(cluster.home / "nodes")):
            process.kill()
