"""A scheduler over a real Ray cluster of its own, for the tests of Ray."""

import contextlib
import json

import psutil

from conftest import Live
from fairlead.engines.ray.trial import Trial

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
        self.config.write_text("")
        self.env |= SOONER
        # A process of its own: what is forked from the tests may have loaded what Ray does not stand.
        self.env["PYTHONPATH"] = ""

    def start_up(self, count=4):
        self.up("--engine", "ray", "--try", str(count), "--lost-after", "3")
        self.until(lambda: len(self.nodes("up")) == count, 60)

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
