"""Torture: a real scheduler with real tasks, to which everything is done that a machine can do to it, again and again.

`python tests/torture.py SECONDS` does so, and writes what was done, promised and seen to docs/reliability.json, of
which `make docs` makes the table of docs/reliability.md. tests/test_torture.py runs each fault once.

All the while people submit jobs, under keys, and each attempt of each task writes a line when it begins and when it ends; and a
program makes calls, each of which writes a line. In the end: whatever was acknowledged is done, no task ran to its end twice,
each call has ended, and none started twice.
"""

import contextlib
import http.client
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from pathlib import Path
from random import Random

import psutil

import fairlead
from called import nap
from conftest import Live
from lab import PreloadedClock

RECORD = Path(__file__).parent.parent / "docs" / "reliability.json"
ATTEMPT = "$FAIRLEAD_JOB.$FAIRLEAD_INDEX"
TASK = f"echo start {ATTEMPT}.$FAIRLEAD_NUMBER >> PREEMPTION_PLAN; sleep $FAIRLEAD_INDEX.2; echo end {ATTEMPT} >> PREEMPTION_PLAN"
"""The second task of a job still runs when the next job is asked for: so some always run."""
FAULTS = {}
CALLS_END = 120
"""Seconds in which each call ends, whatever happened."""


class Broken(AssertionError):
    """What was promised was not kept."""


def fault(promised):
    """A way to hurt it: takes the world, leaves it as it was, and returns what was seen."""

    def known(function):
        FAULTS[function.__name__.replace("_", " ")] = (promised, function)
        return function

    return known


def noted(ledger, number, kind):
    """A call."""
    with open(ledger, "a") as file:  # noqa: PTH123 in a worker
        file.write(f"call {number}\n")
    if kind == "die":
        os._exit(1)
    time.sleep(kind)
    return number


class World:
    """A scheduler on a disk of its own, small where that can be, and the people who use it; `wall_clock` is preloaded to it."""

    def __init__(self, folder, disk, wall_clock):
        self.live, self.preemption_plan = Live(folder), folder / "ledger"
        self.ballast = disk / "ballast"
        self.live.home = disk / "home"
        self.live.env["FAIRLEAD_HOME"] = str(self.live.home)
        self.small = os.path.ismount(disk)
        self.wall_clock = wall_clock
        self.live.env |= self.wall_clock.env if self.wall_clock else {}
        self.preemption_plan.touch()
        self.acknowledged, self.refused = {}, Counter()
        self.over, self.closed = threading.Event(), threading.Event()
        try:
            self.live.up()
        except BaseException:
            self.live.close()
            raise
        self.calls = []
        self.people = [threading.Thread(target=each) for each in (self._submit, self._call)]
        for each in self.people:
            each.start()

    def _submit(self):
        """Jobs, one after another, each asked for until there is an answer."""
        command = ["sh", "-c", TASK.replace("PREEMPTION_PLAN", str(self.preemption_plan))]
        while not self.over.wait(0.3):
            key = uuid.uuid4().hex
            body = {
                "argv": command,
                "demand": {"cpu": 1},
                "queue": "A",
                "tasks": 2,
                "time_limit": 60.0,
                "env": {"PATH": os.environ["PATH"]},
            }
            while not self.closed.is_set():
                try:
                    status, answer = self.live.http("POST", "/v1/jobs", body, {"Idempotency-Key": key})
                except (OSError, http.client.HTTPException):  # it was killed while it answered
                    status, answer = 0, None
                if status == 201:
                    self.acknowledged[answer["id"]] = key
                    break
                self.refused[status] += 1
                time.sleep(0.1)

    def _call(self):
        """Calls without retries, short and long, and maps; some calls end their worker. After an error another client goes on."""
        rng = Random(len(self.live.home.parts))
        while not self.over.is_set():
            with contextlib.suppress(fairlead.ServiceError, RuntimeError), fairlead.Client(self.live.home, queue="B") as client:
                while not self.over.wait(0.1):
                    number, kind = len(self.calls), rng.choices([0.0, 0.1, 1.5, "die"], [10, 5, 1, 1])[0]
                    self.calls.append(client.submit(noted, str(self.preemption_plan), number, kind))
                    if rng.random() < 0.2:
                        with contextlib.suppress(fairlead.CallFailed):
                            list(client.map(nap, [0.0] * 20, timeout=CALLS_END))

    def supervisor(self, but=None):
        """The number of the supervisor's process, as soon as there is one (and another than one that was killed)."""
        seen = []

        def there():
            seen[:] = [process.pid for process in self.live.supervisor() if process.pid != but]
            return seen

        self.live.until(there)
        return seen[0]

    def goes_on(self):
        """Wait until something that is asked for now is done."""
        before = len(self.acknowledged)
        self.live.until(lambda: len(self.acknowledged) > before, 60)
        newest = max(self.acknowledged)
        self.live.until(lambda: self.live.http("GET", f"/v1/jobs/{newest}")[1]["status"] == "succeeded", 60)

    def end(self):
        """Let all that was asked for be done, and look whether it was, once."""
        self.over.set()
        for each in self.people:
            each.join(CALLS_END)
        if any(each.is_alive() for each in self.people) or not all(each.done() for each in self.calls):
            raise Broken("a call did not end")
        for number in self.acknowledged:
            self.live.until(lambda number=number: self.live.http("GET", f"/v1/jobs/{number}")[1]["status"] == "succeeded", 90)
        lines = Counter(self.preemption_plan.read_text().splitlines())
        done = {line: count for line, count in lines.items() if line.startswith("end")}
        expected = {f"end {number}.{index}" for number in self.acknowledged for index in range(2)}
        if missing := expected - set(done):
            raise Broken(f"acknowledged, and not done: {sorted(missing)[:5]}")
        twice = [line for line, count in lines.items() if count > 1]
        if attempts := [line for line in twice if line not in done]:
            raise Broken(f"started twice: {attempts[:5]}")
        if twice:
            raise Broken(f"ran to their end twice: {len(twice)} of {len(expected)}: {twice[:5]}")
        failed = sum(each.exception() is not None for each in self.calls)
        return {
            "tasks": len(expected),
            "calls": len(self.calls),
            "calls failed": failed,
            "twice": len(twice),
            "attempts": len(lines) - len(done),
        }

    def close(self):
        self.over.set()
        self.closed.set()
        for each in self.people:
            each.join(CALLS_END)
        self.live.close()


@fault("nothing is lost, nothing runs twice; tasks run on and are adopted")
def the_scheduler_is_killed(world):
    world.live.kill()
    world.live.up()
    return "went on"


@fault("its tasks are ended and start again; another supervisor is started")
def the_supervisor_is_killed(world):
    killed = world.supervisor()
    os.kill(killed, signal.SIGKILL)
    world.supervisor(but=killed)
    return "another was there"


@fault("what runs is ended though nobody is left; it starts again with the next scheduler")
def the_scheduler_and_the_supervisor_are_killed_at_once(world):
    killed = psutil.Process(world.supervisor())
    tasks = killed.children(recursive=True)
    world.live.process.send_signal(signal.SIGKILL)
    os.killpg(os.getpgid(killed.pid), signal.SIGKILL)
    world.live.kill()
    _, left = psutil.wait_procs(tasks, timeout=30)
    if left:
        raise Broken(f"tasks run on: {left}")
    world.live.up()
    return "was ended, and went on"


@fault("calls that it had started fail, others go on; none starts twice")
def a_worker_is_killed(world):
    def workers():
        (supervisor,) = world.live.supervisor()
        found = []
        for child in supervisor.children():
            with contextlib.suppress(psutil.Error):
                found += [child] if any(word.endswith("calls/worker.py") for word in child.cmdline()) else []
        return found

    world.live.until(workers)
    for each in workers():
        with contextlib.suppress(psutil.Error):
            each.kill()
    return "calls went on"


@fault("its leases end, when the calls that run do")
def a_program_with_calls_is_killed(world):
    code = "import fairlead, sys, time; client = fairlead.Client(queue='A'); client.submit(time.sleep, 3).result()"
    program = subprocess.Popen([sys.executable, "-c", code], env=world.live.env)
    try:
        world.live.until(lambda: _leases(world, "running"))
    finally:
        program.kill()
        program.wait()
    world.live.until(lambda: not _leases(world, "running"))
    return "they ended"


def _leases(world, status):
    answer = world.live.http("GET", f"/v1/jobs?status={status}")[1]
    return [job["id"] for job in answer["jobs"] if job["name"] == "sleep" and job["calls"] is None]


@fault("who asks waits, and is answered when it goes on")
def the_scheduler_is_stopped_for_a_second(world):
    world.live.process.send_signal(signal.SIGSTOP)
    time.sleep(1)
    world.live.process.send_signal(signal.SIGCONT)
    return "went on"


@fault("the scheduler answers all the while, and blocks on nothing")
def the_supervisor_is_stopped_for_a_second(world):
    pid, slowest = world.supervisor(), 0.0
    os.kill(pid, signal.SIGSTOP)
    try:
        until = time.monotonic() + 1
        while time.monotonic() < until:
            began = time.monotonic()
            if world.live.http("GET", "/v1/status")[0] != 200:
                raise Broken("no answer while the supervisor is stopped")
            slowest = max(slowest, time.monotonic() - began)
    finally:
        os.kill(pid, signal.SIGCONT)
    return "answered within a second" if slowest < 1 else f"answered within {slowest:.0f} s"


@fault("submissions are refused, cancel is answered, nothing is lost; it goes on when there is room")
def the_disk_is_full(world):
    if not world.small:
        return "not tried: no small disk can be made here"
    with contextlib.suppress(OSError), world.ballast.open("wb", buffering=0) as file:
        for size in (2**16, 512):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    try:
        world.live.until(lambda: world.live.http("GET", "/readyz")[0] == 503)
        job = min(world.acknowledged, default=None)
        status = world.live.http("POST", f"/v1/jobs/{job}/release", {})[0] if job else 200
        if status not in (200, 400):
            raise Broken(f"a change that takes nothing on was answered {status}")
    finally:
        world.ballast.unlink()
    world.live.until(lambda: world.live.http("GET", "/readyz")[0] == 200)
    return "said so, and went on"


@fault("tasks wait until there are some again, and none fails for it")
def the_supervisor_has_no_descriptors_left(world):
    pid = world.supervisor()
    usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(list(Path(f"/proc/{pid}/fd").iterdir())), usual[1]))
    time.sleep(1.5)
    for _ in range(2):  # a program is started under the usual limit: the supervisor sets its own again, as it was before
        resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)
        time.sleep(0.1)
    return "went on"


@fault("tasks wait until there may be processes again, and none fails for it")
def the_supervisor_may_start_no_process(world):
    """By a cgroup: root, whom this runs as, is held by no limit of its own."""
    group = Path(f"/sys/fs/cgroup/pids/torture-{os.getpid()}")
    try:
        group.mkdir()
    except OSError:
        return "not tried: no cgroups that count processes can be made here"
    try:
        (group / "pids.max").write_text("1")
        (group / "cgroup.procs").write_text(str(world.supervisor()))
        time.sleep(1.5)
    finally:
        while members := (group / "cgroup.procs").read_text().split():
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    (group.parent / "cgroup.procs").write_text(pid)
        group.rmdir()
    return "went on"


@fault("time limits hold, ages stay true, nothing is lost: the wall clock is for people's eyes alone")
def the_wall_clock_is_set_an_hour_on_and_a_day_back(world):
    if world.wall_clock is None:
        return "not tried: the clock is the machine's"
    for seconds in (3600, -86400, 0):
        world.wall_clock.set(seconds)
        time.sleep(0.7)
        if (status := world.live.http("GET", "/readyz")[0]) != 200:
            raise Broken(f"the clock was set by {seconds} s: not ready ({status})")
    return "went on"


@fault("it is refused, with what to do; nothing is started")
def a_bit_of_the_journal_is_another(world):
    world.live.kill()
    kept = [path for path in world.live.home.glob("journal.db*") if path.is_file()]
    copies = {path: path.read_bytes() for path in kept}
    damaged = next((path for path in sorted(kept) if b'"JobSubmitted"' in copies[path]), None)
    if damaged is not None:
        content = bytearray(copies[damaged])
        content[content.find(b'"JobSubmitted"') + 3] ^= 4
        damaged.write_bytes(content)
        told = world.live.call("up")
        if told.returncode != 1 or told.stderr.count("\n") != 1:
            raise Broken(f"a damaged journal: {told.stderr}")
    for path, bytes_ in copies.items():
        path.write_bytes(bytes_)
    world.live.up()
    return "was refused" if damaged is not None else "nothing was there to damage"


@fault("it is refused; the one that runs goes on")
def a_second_scheduler_is_started(world):
    told = world.live.call("up")
    if told.returncode != 1 or told.stderr.count("\n") != 1:
        raise Broken(f"a second scheduler: {told.stderr}")
    return "was refused"


@fault("everybody is answered, or told when to come back; health is answered")
def two_thousand_ask_at_once(world):
    wires = []
    try:
        for _ in range(2000):
            wires.append(world.live.wire())
            wires[-1].connect()
            wires[-1].sock.sendall(b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        told = Counter(wire.sock.recv(65536)[9:12].decode() for wire in wires)
    finally:
        for wire in wires:
            wire.close()
    if set(told) - {"200", "429"}:
        raise Broken(f"answers: {dict(told)}")
    return "all were"


def torture(folder, disk, seconds, seed=0, once=False):
    """Hurt it for so long, or by each fault once; returns the record. Raises AssertionError where a promise is not kept."""
    rng, record = Random(seed), {name: {"promised": FAULTS[name][0], "injected": 0, "seen": {}} for name in FAULTS}
    world = World(folder, disk, None if once or not shutil.which("cc") else PreloadedClock(folder))  # a new program each time
    try:
        until, order = time.monotonic() + seconds, sorted(FAULTS)
        while time.monotonic() < until or once:
            rng.shuffle(order)
            for name in order:
                seen = FAULTS[name][1](world)
                record[name]["injected"] += 1
                record[name]["seen"][seen] = record[name]["seen"].get(seen, 0) + 1
                if not once:
                    world.goes_on()
                if time.monotonic() > until and not once:
                    break
            if once:
                break
        return {"faults": record, **world.end()}
    finally:
        world.close()


@contextlib.contextmanager
def small_disk(folder):
    """A folder on a small disk of its own, or an ordinary one where there can be none."""
    disk = Path(folder) / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(disk)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield disk
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(disk)], check=True)


if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp(prefix="fairlead-torture-"))
    with small_disk(folder) as disk:
        found = torture(folder, disk, float(sys.argv[1]))
    shutil.rmtree(folder)
    RECORD.write_text(json.dumps({"seconds": float(sys.argv[1]), **found}, indent=1, sort_keys=True) + "\n")
    print(json.dumps(found, indent=1))
