"""The DRF paper's example with real processes, and a SIGKILL of the scheduler in the middle: `make demo`.

The cluster has 9 CPUs and 18 GiB; user A's tasks ask for <1 CPU, 4 GiB>, user B's for <3 CPU, 1 GiB>. Dominant Resource Fairness
gives A three tasks and B two: A has 2/3 of the memory, B has 2/3 of the CPUs. Every task writes its start and end into a ledger,
which is counted at the end. Exit status 0 only if all expectations were seen.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from fairlead.client.connection import Connection
from fairlead.client.service_error import ServiceError

CONFIG = """
[[queue]]
name = "A"

[[queue]]
name = "B"

[[node]]                                    # the cluster of the paper's example
name = "paper"
capacity = { cpu = 9, memory = "18Gi" }
"""

TASK = 'me="$FAIRLEAD_JOB.$FAIRLEAD_INDEX $$"; echo start $me >> "$LEDGER"; sleep "$LONG"; echo end $me >> "$LEDGER"'

FAIRLEAD = Path(sys.executable).with_name("fairlead")


class Demo:
    """A scheduler in a temporary folder, and tasks of so many seconds."""

    seconds, tasks = float(os.environ.get("DEMO_SECONDS", "1.5")), {"A": 44, "B": 16}

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.config = folder / "fairlead.toml"
        self.config.write_text(CONFIG)
        self.ledger = folder / "ledger"
        self.ledger.touch()
        os.environ["FAIRLEAD_HOME"] = str(self.home)
        self.server: subprocess.Popen[bytes] | None = None
        self.began = time.monotonic()
        self.shown = ""

    def up(self) -> None:
        """Start the scheduler, and wait until it answers."""
        self.server = subprocess.Popen([FAIRLEAD, "up", "--config", self.config])
        until = time.monotonic() + 60
        while True:
            try:
                Connection().get("/v1/status")
                return
            except ServiceError:
                if time.monotonic() > until or self.server.poll() is not None:
                    raise
                time.sleep(0.05)

    def until(self, status: str, count: int) -> None:
        """Wait until `count` nodes have a status."""
        until = time.monotonic() + 120
        while True:
            try:
                nodes = Connection().get("/v1/nodes")["nodes"]
                if sum(node["status"] == status for node in nodes) == count:
                    return
            except ServiceError:
                if self.server is None or self.server.poll() is not None:
                    raise
            if time.monotonic() > until:
                raise SystemExit(f"\nNOT SEEN: {count} nodes that are {status}")
            time.sleep(0.1)

    def submit(self, queue: str, cpu: int, memory: str) -> None:
        """Submit a user's job with the command line."""
        tasks = self.tasks[queue]
        command = [FAIRLEAD, "submit", "--queue", queue, "--cpu", str(cpu), "--memory", memory, "--tasks", str(tasks)]
        command += ["--env", f"LEDGER={self.ledger}", "--env", f"LONG={self.seconds}", "--", "sh", "-c", TASK]
        number = subprocess.check_output(command, text=True).strip()
        self.say(f"user {queue} submits job {number}: {tasks} tasks of {cpu} CPU and {memory}")

    def share(self, what: str, seconds: float) -> None:
        """Submit both users' jobs, and watch until they have their fair shares."""
        self.submit("A", 1, "4Gi")
        self.submit("B", 3, "1Gi")
        self.watch(f"3 and 2 running tasks, a dominant share of 2/3 each{what}", fair, seconds)

    def finish(self, seconds: float) -> None:
        """Watch until all tasks have ended."""
        self.watch("all the work is done", lambda q: not q["/"]["running"] and not q["/"]["waiting"], seconds)

    def watch(self, what: str, seen: Callable[[dict[str, Any]], bool], seconds: float) -> None:
        """Show running tasks and shares until the condition holds five times in a row."""
        until = time.monotonic() + seconds
        times = 0
        with Connection() as connection:
            while times < 5:
                if time.monotonic() > until:
                    raise SystemExit(f"\nNOT SEEN within {seconds:.0f} seconds: {what}")
                queues = {queue["name"]: queue for queue in connection.get("/v1/queues")["queues"]}
                times = times + 1 if seen(queues) else 0
                self.show(queues)
                time.sleep(0.1)
        self.say(f"SEEN: {what}")

    def show(self, queues: dict[str, Any]) -> None:
        parts = []
        for name in "AB":
            queue = queues[name]
            share, resource = queue["dominant_share"], queue["dominant_resource"] or "nothing"
            bar = "█" * round(14 * share)
            parts.append(f"{name} {queue['running']} running {bar:<14} {share:6.1%} of {resource:<7}")
        line = "   ".join(parts)
        if line != self.shown:
            self.shown = line
            self.say(line)

    def entries(self) -> list[tuple[str, str, str]]:
        """Return the ledger: ("start" or "end", task, process)."""
        return [(what, task, pid) for what, task, pid in (line.split() for line in self.ledger.read_text().splitlines())]

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:5.1f}s  {text}", flush=True)

    def kill(self) -> None:
        """SIGKILL the scheduler, and check that its tasks go on."""
        assert self.server
        before = Counter(what for what, _, _ in self.entries())
        self.server.kill()
        self.server.wait()
        self.say(f"the scheduler is killed with SIGKILL while {before['start'] - before['end']} tasks run")
        until = time.monotonic() + 60
        while (after := Counter(what for what, _, _ in self.entries()))["end"] <= before["end"]:
            if time.monotonic() > until:
                raise SystemExit("\nNOT SEEN: tasks that go on while the scheduler is dead")
            time.sleep(0.1)
        self.say(f"without it {after['end'] - before['end']} tasks ended; it is started again")

    def count(self) -> None:
        """Check that every task started once and ended once."""
        entries = self.entries()
        starts = Counter(task for what, task, _ in entries if what == "start")
        ends = Counter(task for what, task, _ in entries if what == "end")
        wanted = {f"1.{i}" for i in range(self.tasks["A"])} | {f"2.{i}" for i in range(self.tasks["B"])}
        if set(starts) != wanted or set(ends) != wanted:
            raise SystemExit(f"\nTASKS WERE LOST: {sorted(wanted - set(ends))}")
        if max(starts.values()) > 1 or max(ends.values()) > 1:
            raise SystemExit(f"\nTASKS RAN TWICE: {[task for task, n in starts.items() if n > 1]}")
        self.say(f"SEEN: {len(wanted)} tasks, each started once and ended once; none was lost, none ran twice")

    def count_done(self) -> None:
        """Check that every task ended once; those on a lost node may start again."""
        entries = self.entries()
        starts = Counter(task for what, task, _ in entries if what == "start")
        ends = Counter(task for what, task, _ in entries if what == "end")
        wanted = {f"1.{i}" for i in range(self.tasks["A"])} | {f"2.{i}" for i in range(self.tasks["B"])}
        if set(ends) != wanted or max(ends.values()) > 1:
            raise SystemExit(f"\nNOT DONE ONCE: {sorted(wanted - set(ends))} {[t for t, n in ends.items() if n > 1]}")
        again = sum(starts.values()) - len(wanted)
        self.say(f"SEEN: {len(wanted)} tasks, each done once; starts after the loss of a node: {again}")

    def end(self) -> None:
        """End the scheduler, if it runs."""
        if self.server and self.server.poll() is None:
            self.server.send_signal(signal.SIGINT)
            self.server.wait(timeout=60)


def fair(queues: dict[str, Any]) -> bool:
    """True for 3 and 2 running tasks with a dominant share of 2/3 each."""
    a, b = queues["A"], queues["B"]
    shares = abs(a["dominant_share"] - 2 / 3) < 1e-9 and abs(b["dominant_share"] - 2 / 3) < 1e-9
    resources = (a["dominant_resource"], b["dominant_resource"]) == ("memory", "cpu")
    return (a["running"], b["running"]) == (3, 2) and shares and resources


def alone(queues: dict[str, Any]) -> bool:
    """True when B has no tasks left and A runs 4."""
    return not queues["B"]["running"] and not queues["B"]["waiting"] and queues["A"]["running"] == 4


D = TypeVar("D", bound=Demo)


@contextlib.contextmanager
def running(kind: type[D]) -> Iterator[D]:
    """Start a demo in a folder of its own; end it in the end."""
    with tempfile.TemporaryDirectory(prefix="fairlead-demo-") as folder:
        demo = kind(Path(folder))
        try:
            demo.up()
            yield demo
        finally:
            demo.end()


def main() -> None:
    """Run the demo; raise SystemExit for an expectation that was not seen."""
    with running(Demo) as demo:
        demo.share("", 60)
        demo.kill()
        demo.up()
        demo.watch("the same after the restart", fair, 60)
        demo.watch("B's work has ended, and A has grown to 4 tasks", alone, 120)
        demo.finish(120)
        demo.count()


if __name__ == "__main__":
    main()
