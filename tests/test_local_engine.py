"""The local engine with real processes: what starts, what ends, and that nothing is left behind."""

import errno
import hashlib
import os
import signal
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from conftest import end_tasks
from fairlead.engines.contract import Attempt, Ended, Launch, NodeUp, Started
from fairlead.engines.local import cgroups
from fairlead.engines.local.engine import LocalEngine
from fairlead.engines.local.machine import this_machine
from fairlead.model.specs import Call, Job, Node, Work
from fairlead.scheduler.facts import Outcome

NODE = Node("here", {"cpu": 4000, "memory": 8 << 30, "gpu": 4000})


class Bench:
    """An engine in a folder, and what it said."""

    def __init__(self, folder):
        self.folder = folder
        self.engine = LocalEngine(folder, [NODE])
        self.engine.inventory()
        self.seen = []

    def job(self, *argv, cwd=None, env=None, **demand):
        work = Work(list(argv), str(cwd or self.folder), {**os.environ, **(env or {})})
        return Job("q", {"cpu": 1000, **demand}, work=work)

    def start(self, attempt, *argv, **more):
        self.engine.start([Launch(attempt, "here", self.job(*argv, **more))])
        return attempt

    def until(self, condition, seconds=20.0):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.seen
            self.seen += self.engine.poll()
            time.sleep(0.01)

    def end_of(self, attempt, seconds=20.0):
        def ends():
            return [e for e in self.seen if isinstance(e, Ended) and e.attempt == attempt]

        self.until(ends, seconds)
        return ends()[0].outcome, ends()[0].code

    def close(self):
        """End what runs, and its supervisor, whatever the test left of them."""
        self.engine.close()
        end_tasks(self.folder)

    def wrote(self, attempt, stream="out"):
        return (self.folder / "output" / str(attempt.job) / f"{attempt.task}.{stream}").read_text()


def alive(mark):
    """The processes whose command line has the mark."""
    found = subprocess.run(["pgrep", "-f", mark], capture_output=True, text=True, check=False)
    return found.stdout.split()


@pytest.fixture
def bench(tmp_path):
    with closing(Bench(tmp_path)) as bench:
        yield bench


@pytest.fixture
def bench_without_cgroups(tmp_path, monkeypatch):
    """As on a machine where no groups may be made: the supervisor is started so that it finds none."""
    real = subprocess.Popen
    program = (
        "import sys; import fairlead.engines.local.supervisor as s; "
        "s.find = lambda name: None; sys.argv = sys.argv[1:]; s.main()"
    )

    def popen(argv, **more):
        supervisor = "fairlead.engines.local.supervisor" in argv
        return real([argv[0], "-I", "-c", program, "supervisor", argv[-1]] if supervisor else argv, **more)

    monkeypatch.setattr("fairlead.engines.local.engine.subprocess.Popen", popen)
    with closing(Bench(tmp_path / "home")) as bench:
        yield bench


def test_what_a_task_is_given_and_how_it_ends(bench):
    a = bench.start(
        Attempt(1, 2, 3),
        "sh",
        "-c",
        "echo $FAIRLEAD_JOB $FAIRLEAD_INDEX $X; pwd; echo oops >&2; exit 7",
        env={"X": "y z"},
    )
    assert bench.end_of(a) == (Outcome.EXITED, 7)
    assert bench.wrote(a) == f"1 2 y z\n{bench.folder}\n"
    assert bench.wrote(a, "err") == "oops\n"
    assert NodeUp(NODE) in bench.seen
    assert Started(a) in bench.seen


def test_what_cannot_be_run_says_so(bench):
    missing = bench.start(Attempt(1, 0, 1), "no-such-command")
    nowhere = bench.start(Attempt(2, 0, 1), "true", cwd="/no/such/folder")
    (bench.folder / "file").write_text("x")
    forbidden = bench.start(Attempt(3, 0, 1), "./file")
    assert bench.end_of(missing) == (Outcome.NOT_STARTED, 2)
    assert "cannot run 'no-such-command'" in bench.wrote(missing, "err")
    assert bench.end_of(nowhere)[0] == Outcome.NOT_STARTED
    assert "/no/such/folder" in bench.wrote(nowhere, "err")
    assert bench.end_of(forbidden) == (Outcome.NOT_STARTED, 13)


def test_an_attempt_runs_once_however_often_it_is_started(bench):
    a = Attempt(1, 0, 1)
    for _ in range(5):
        bench.start(a, "sh", "-c", "echo ran >> ran")
    assert bench.end_of(a) == (Outcome.EXITED, 0)
    bench.start(a, "sh", "-c", "echo ran >> ran")
    bench.start(Attempt(2, 0, 1), "true")
    bench.end_of(Attempt(2, 0, 1))
    assert (bench.folder / "ran").read_text() == "ran\n"


def test_an_attempt_that_was_stopped_before_it_started_never_starts(bench):
    a = Attempt(1, 0, 1)
    bench.engine.stop([a])
    assert bench.end_of(a)[0] == Outcome.SIGNALLED
    bench.engine.acknowledge([a])
    bench.start(a, "touch", "ran")
    assert bench.end_of(a)[0] == Outcome.SIGNALLED
    assert not (bench.folder / "ran").exists()


def test_stopping_ends_the_whole_group_gently_and_then_not(bench, monkeypatch):
    monkeypatch.setattr("fairlead.engines.local.engine.GRACE", 0.5)
    gentle = bench.start(
        Attempt(1, 0, 1), "sh", "-c", "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.1; done"
    )
    stubborn = bench.start(Attempt(2, 0, 1), "sh", "-c", f"trap '' TERM; sleep {LONG}3 & sleep {LONG}4")
    bench.until(lambda: Started(stubborn) in bench.seen and (bench.folder / "output/1/0.out").exists())
    bench.until(lambda: bench.wrote(gentle) == "up\n")
    bench.engine.stop([gentle, stubborn])
    assert bench.end_of(gentle) == (Outcome.STOPPED, 3)
    assert bench.wrote(gentle) == "up\nbye\n"
    assert bench.end_of(stubborn) == (Outcome.SIGNALLED, signal.SIGKILL)
    assert alive(f"sleep {LONG}[34]") == []


def test_what_ended_before_it_was_told_to_stop_was_not_stopped(bench):
    """The supervisor is held while the task ends, so that the end and the stop reach it together."""
    a = bench.start(Attempt(1, 0, 1), "sh", "-c", "sleep 0.3; exit 5")
    bench.until(lambda: Started(a) in bench.seen)
    supervisor = int(alive(f"{bench.folder}/supervisor")[0])
    os.kill(supervisor, signal.SIGSTOP)
    time.sleep(0.6)
    bench.engine.stop([a])
    os.kill(supervisor, signal.SIGCONT)
    assert bench.end_of(a) == (Outcome.EXITED, 5)


GARBLED = [
    b"\xff\x00",
    b"{",
    b"7",
    b"[" * 100_000,
    b"{}",
    b'{"do": "run"}',
    b'{"do": ["stop"]}',
    b'{"do": "start"}',
    b'{"do": "stop", "tasks": [[1, 2]], "grace": 1}',
    b'{"do": "stop", "tasks": [], "grace": "soon"}',
    b'{"do": "acknowledge", "tasks": 5}',
    b'{"do": "start", "tasks": [[1, 0, 1]], "limits": {}, "work": {"session": "/"}}',
    b'{"do": "start", "tasks": [[1, 0, 1]], "limits": {"cpu": 0, "memory": 0, "gpus": 0, "gpu_indices": []}, '
    b'"work": {"argv": [1], "cwd": "/", "env": {}, "encoding": "utf-8", "numbered": true}}',
]


def test_a_line_that_means_nothing_is_noted_and_the_next_is_heard(bench):
    supervisor = alive(f"{bench.folder}/supervisor")
    for line in GARBLED:
        bench.engine._socket.sendall(line + b"\n")
    assert bench.end_of(bench.start(Attempt(1, 0, 1), "true")) == (Outcome.EXITED, 0)
    assert alive(f"{bench.folder}/supervisor") == supervisor
    log = (bench.folder / "supervisor/log").read_text()
    assert log.count("fairlead: not understood: ") == len(GARBLED)


def test_a_call_whose_session_cannot_be_read_fails_alone(bench):
    supervisor = alive(f"{bench.folder}/supervisor")
    ends = []
    for session, setup in enumerate(["{", "[]", '{"argv": []}', None]):
        folder = bench.folder / "calls" / str(session)
        folder.mkdir(parents=True)
        if setup is not None:
            (folder / "setup.json").write_text(setup)
        job = Job("q", {"cpu": 1000}, work=Work(call=Call(str(session), "payload")))
        bench.engine.start([Launch(Attempt(session, 0, 1), "here", job)])
        ends.append(bench.end_of(Attempt(session, 0, 1)))
    assert ends == [(Outcome.NOT_STARTED, errno.EINVAL)] * 3 + [(Outcome.NOT_STARTED, errno.ENOENT)]
    assert alive(f"{bench.folder}/supervisor") == supervisor


LONG = f"9{os.getpid():07}"
"""A time to sleep that no other process of this machine has in its command line."""

DETACHING = f"(setsid sh -c 'sleep {LONG}1 & sleep {LONG}2' </dev/null >/dev/null 2>&1 &) ; sleep 0.3"


@pytest.mark.parametrize("which", ["bench", "bench_without_cgroups"])
def test_nothing_is_left_behind_by_a_task_that_detaches_its_children(which, request):
    bench = request.getfixturevalue(which)
    a = bench.start(Attempt(1, 0, 1), "sh", "-c", DETACHING)
    assert bench.end_of(a) == (Outcome.EXITED, 0)
    assert alive(f"sleep {LONG}[12]") == []


@pytest.mark.parametrize("which", ["bench", "bench_without_cgroups"])
def test_a_task_over_its_memory_is_killed_and_reported_so(which, request):
    bench = request.getfixturevalue(which)
    hog = "import time; x = bytearray(400 << 20); x[::4096] = b'x' * len(x[::4096]); time.sleep(30)"
    a = bench.start(Attempt(1, 0, 1), "python3", "-c", hog, memory=100 << 20)
    modest = bench.start(Attempt(2, 0, 1), "python3", "-c", "x = bytearray(20 << 20)", memory=200 << 20)
    assert bench.end_of(a) == (Outcome.OUT_OF_MEMORY, signal.SIGKILL)
    assert bench.end_of(modest) == (Outcome.EXITED, 0)


def test_a_task_cannot_use_more_cpu_than_it_asked_for(bench):
    if not bench.engine.limits["cpu"]:
        pytest.skip("cgroups cannot limit CPU here")
    spin = "import time\nt = time.time()\nwhile time.time() - t < 1.5: pass\nprint(time.process_time())"
    a = bench.start(Attempt(1, 0, 1), "python3", "-c", spin, cpu=200)
    bench.end_of(a)
    assert float(bench.wrote(a)) < 0.9, "a fifth of 1.5 seconds, and some slack"


def test_gpus_are_given_by_index_and_to_one_task_each(bench):
    show = "echo $CUDA_VISIBLE_DEVICES; sleep 0.5"
    attempts = [bench.start(Attempt(1, i, 1), "sh", "-c", show, gpu=n * 1000) for i, n in enumerate([1, 2, 1])]
    for a in attempts:
        bench.end_of(a)
    assert [bench.wrote(a).strip() for a in attempts] == ["0", "1,2", "3"]


def test_tasks_outlive_the_scheduler_and_are_adopted(bench):
    """The engine's side goes away without a word; statuses that came meanwhile are found."""
    quick = bench.start(Attempt(1, 0, 1), "sh", "-c", "sleep 0.3; exit 5")
    slow = bench.start(Attempt(2, 0, 1), "sh", "-c", "sleep 1.2; exit 6")
    bench.until(lambda: Started(slow) in bench.seen)
    bench.engine.close()
    time.sleep(0.6)
    bench.engine = LocalEngine(bench.folder, [NODE])
    assert bench.engine.inventory() == {quick, slow}
    bench.seen.clear()
    assert bench.end_of(quick) == (Outcome.EXITED, 5)
    assert bench.end_of(slow) == (Outcome.EXITED, 6)
    bench.engine.acknowledge([quick, slow])
    assert bench.engine.inventory() == set()


@pytest.mark.parametrize("which", ["bench", "bench_without_cgroups"])
def test_when_the_supervisor_is_killed_its_tasks_are_ended_and_lost(which, request):
    bench = request.getfixturevalue(which)
    done = bench.start(Attempt(1, 0, 1), "sh", "-c", "exit 4")
    bench.end_of(done)
    a = bench.start(Attempt(2, 0, 1), "sh", "-c", f"(setsid sleep {LONG}5 &); sleep {LONG}6")
    bench.until(lambda: Started(a) in bench.seen and len(alive(f"^sleep {LONG}[56]")) == 2)
    bench.seen.clear()
    os.kill(int(alive(f"{bench.folder}/supervisor")[0]), signal.SIGKILL)
    assert bench.end_of(a) == (Outcome.LOST, 0)
    assert bench.end_of(done) == (Outcome.EXITED, 4), "an end that was not acknowledged is told again"
    assert alive(f"^sleep {LONG}[56]") == []


def test_a_supervisor_with_nothing_to_do_goes_away(tmp_path):
    with closing(Bench(tmp_path)) as bench:
        bench.end_of(bench.start(Attempt(1, 0, 1), "true"))
        bench.engine.close(leave=True)
        deadline = time.monotonic() + 10
        while alive(f"{tmp_path}/supervisor"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert own_cgroups(tmp_path) == []


def test_no_empty_cgroup_stays_of_a_supervisor_that_ends(tmp_path):
    """Not even of one that was left there by somebody else."""
    bench = Bench(tmp_path)
    if not own_cgroups(tmp_path):
        pytest.skip("no cgroup may be made here")
    for folder in own_cgroups(tmp_path):
        (folder / "1.0.1").mkdir()
    for job in range(30):
        bench.start(Attempt(job, 0, 1), "sh", "-c", DETACHING if job % 2 else "true")
    for job in range(30):
        bench.end_of(Attempt(job, 0, 1))
    bench.engine.close(leave=True)
    deadline = time.monotonic() + 10
    while own_cgroups(tmp_path):
        assert time.monotonic() < deadline, own_cgroups(tmp_path)
        time.sleep(0.05)


def own_cgroups(folder):
    """The folders of a supervisor in each hierarchy, and what is in them."""
    name = hashlib.sha256(str(folder / "supervisor").encode()).hexdigest()[:12]
    return [path for path in Path("/sys/fs/cgroup").rglob(f"fairlead-{name}") if path.is_dir()]


def test_this_machine_is_what_it_is():
    node = this_machine()
    assert node.capacity["cpu"] == 1000 * len(os.sched_getaffinity(0))
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    assert node.capacity["memory"] == total


def test_cgroups_are_found_by_trying():
    groups = cgroups.find("fairlead-test")
    if groups is None:
        pytest.skip("no cgroup may be made here")
    group = groups.create("one", 64 << 20, 500)
    child = os.fork()
    if child == 0:
        group.join()
        time.sleep(60)
        os._exit(0)
    deadline = time.monotonic() + 5
    while group.pids() != {child}:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    group.kill()
    os.waitpid(child, 0)
    assert group.pids() == set()
    assert not group.ran_out_of_memory()
    group.remove()
    groups.close()
