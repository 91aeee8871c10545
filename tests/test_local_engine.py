"""The local engine with real processes: what starts, what ends, and that nothing is left behind."""

import collections
import contextlib
import errno
import hashlib
import itertools
import json
import os
import pwd
import resource
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from random import Random

import numpy as np
import psutil
import pytest
from msgspec.structs import replace

import leased
from conftest import end_tasks, pause, supervisor_of
from fairlead.calls import worker
from fairlead.engines.contract import Launches, NodeUp, Superseded, Where
from fairlead.engines.local import cgroups, proc, reports
from fairlead.engines.local.checkpoints import Checkpoints
from fairlead.engines.local.child import ChildSetup, ProcessSpec
from fairlead.engines.local.engine import LocalEngine
from fairlead.engines.local.kernel import vfork
from fairlead.engines.local.machine import kept, this_machine
from fairlead.engines.local.member import Membership, start_member, supervisor_in
from fairlead.engines.local.messages import Limits, Person, Program
from fairlead.engines.local.process_groups import ProcessGroup, ProcessGroups
from fairlead.engines.local.spawn import prepared
from fairlead.engines.local.spool import Spool, StartRecord
from fairlead.engines.local.standard_input import Feeder
from fairlead.engines.remote.engine import Serving
from fairlead.engines.remote.joined import JoinedEngine
from fairlead.model.cards import cards_of
from fairlead.model.documents import KEPT_BY_DEFAULT
from fairlead.model.quantity import Percent
from fairlead.model.specs import Call, Job, Node, Work
from fairlead.scheduler.facts import Outcome
from fairlead.scheduler.reports.listings import exit_status
from fairlead.sockets import socket_name
from fake_engine import Attempt, columns, rows
from fleet import LONG_LEASE

NODE = Node("here", {"cpu": 4000, "memory": 8 << 30, "gpu": 4000})


def with_export(bench, job, name):
    """Return a job with a stored environment of this name, if any: its tasks are forked."""
    (bench.folder / "exports").mkdir()
    (bench.folder / "exports" / "kept").write_text("{}")
    return replace(job, work=replace(job.work, export=name))


class Bench:
    """An engine in a folder, and what it said."""

    def __init__(self, folder, **more):
        self.folder = folder
        self.serve(**more)
        self.started, self.ended, self.nodes, self.cards = set(), {}, [], {}
        self.known = None
        self.until(lambda: self.known is not None)

    def serve(self, **more):
        """A scheduler comes, the first or another."""
        self.engine = LocalEngine(self.folder, [NODE], **more)
        self.engine.serve("bench", time.monotonic_ns())

    def job(self, *argv, cwd=None, env=None, **demand):
        work = Work(list(argv), str(cwd or self.folder), {**os.environ, **(env or {})})
        return Job("q", {"cpu": 1000, **demand}, work=work)

    def start(self, attempt, *argv, **more):
        self.start_all([attempt], self.job(*argv, **more))
        return attempt

    def start_all(self, attempts, job):
        place = np.zeros(len(attempts), np.int64)
        self.engine.start(Launches(columns(attempts), place, ["here"], {attempt.job: job for attempt in attempts}))

    def stop(self, *attempts, grace=5.0):
        self.engine.stop(columns(attempts), grace, Where(np.zeros(len(attempts), np.int64), ["here"]))

    def acknowledge(self, *attempts):
        self.engine.acknowledge(columns(attempts))

    def look(self):
        seen = self.engine.poll()
        if seen.known is not None and (seen.of is None or "here" in seen.of):
            self.known = set(rows(seen.known))
        self.started.update(rows(seen.started))
        self.cards.update(zip(rows(seen.started), map(cards_of, seen.cards.tolist()), strict=True))
        outcomes = zip(seen.ended.outcome.tolist(), seen.ended.code.tolist(), strict=True)
        self.ended.update(zip(rows(seen.ended.attempts), outcomes, strict=True))
        self.nodes += seen.nodes

    def until(self, condition, seconds=60.0):
        began = time.monotonic()
        while not condition():
            assert time.monotonic() < began + seconds, (self.known, self.started, self.ended)
            self.look()
            pause(began)

    def end_of(self, attempt, seconds=60.0):
        self.until(lambda: attempt in self.ended, seconds)
        return self.ended[attempt]

    def inventory(self):
        self.known = None
        self.engine.take_inventory()
        self.until(lambda: self.known is not None)
        return self.known

    def unsee(self):
        self.started, self.ended = set(), {}

    def close(self):
        """End what runs, and its supervisor, whatever the test left of them."""
        self.engine.close()
        self.engine.join(10)
        end_tasks(self.folder)

    def wrote(self, attempt, stream="out"):
        return (self.folder / "output" / str(attempt.job) / f"{attempt.task}.{stream}").read_text()


class JoinedBench(Bench):
    """The same on a machine that joined; the scheduler has a home of its own."""

    def serve(self):
        home = self.folder.with_name(f"{self.folder.name}.scheduler")
        home.mkdir(exist_ok=True)
        self.engine = JoinedEngine(Serving(home, lambda: None, LONG_LEASE, ("127.0.0.1", 0)), Node("own", {"none": 1}), "me")
        self.engine.serve("bench", time.monotonic_ns())
        self.engine.know({})
        ring, about = self.engine._ring, {"version": "0", "capacity": NODE.capacity, "labels": {}}
        start_member(self.folder, Membership(ring.made_for("here"), ring.certificate, ["127.0.0.1"], self.engine.port, about))

    def look(self):
        super().look()
        if supervisor_in(self.folder / "supervisor") is None:  # as `fairlead node join` sees to it
            start_member(self.folder, None)

    def close(self):
        self.engine.close(leave=True)
        self.engine.join(10)
        end_tasks(self.folder)


SIZES = "FAIRLEAD_CPU FAIRLEAD_MEMORY OMP_NUM_THREADS MKL_NUM_THREADS"
"""What says how large a task is."""


def has_ended(process):
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def alive(mark):
    """The processes whose command line has the mark."""
    found = subprocess.run(["pgrep", "-f", mark], capture_output=True, text=True, check=False)
    return found.stdout.split()


@pytest.fixture
def bench(tmp_path):
    with closing(Bench(tmp_path)) as bench:
        yield bench


@pytest.fixture
def joined(tmp_path):
    with closing(JoinedBench(tmp_path / "node")) as bench:
        yield bench


def changed_supervisor(monkeypatch, change):
    """Each supervisor runs these lines first."""
    real = subprocess.Popen
    program = f"import sys; import fairlead.engines.local.supervisor as s\n{change}\nsys.argv = sys.argv[1:]; s.main()"

    def popen(argv, **more):
        supervisor = "fairlead.engines.local.supervisor" in argv
        return real([argv[0], "-I", "-c", program, "supervisor", argv[-1]] if supervisor else argv, **more)

    monkeypatch.setattr("fairlead.engines.local.member.subprocess.Popen", popen)


NO_CGROUPS = "s.find = lambda name: None"
"""As on a machine where no groups may be made: the supervisor finds none."""


@pytest.fixture
def bench_without_cgroups(tmp_path, monkeypatch):
    changed_supervisor(monkeypatch, NO_CGROUPS)
    with closing(Bench(tmp_path / "home")) as bench:
        yield bench


CONTRACT = pytest.mark.parametrize("which", ["bench", "joined"])
"""What the contract says is so on this machine, and on one that joined; `test_remote_engine` has what concerns several."""


def test_what_a_task_is_given_and_how_it_ends(bench):
    a = bench.start(
        Attempt(1, 2, 3), "sh", "-c", "echo $FAIRLEAD_JOB $FAIRLEAD_INDEX $X; pwd; echo oops >&2; exit 7", env={"X": "y z"}
    )
    assert bench.end_of(a) == (Outcome.EXITED, 7)
    assert bench.wrote(a) == f"1 2 y z\n{bench.folder}\n"
    assert bench.wrote(a, "err") == "oops\n"
    assert NodeUp(NODE, [0, 1, 2, 3]) in bench.nodes
    assert a in bench.started


def test_what_cannot_be_run_may_be_reaped_while_the_supervisor_looks_at_it(tmp_path, monkeypatch):
    """The C library reaps it in the thread that starts commands: it was there, and is no child any more."""
    change = """
import os, signal
look, gone = os.waitid, [os.waitid_result((1, 0, signal.SIGCHLD, 127, os.CLD_EXITED))]
os.waitid = lambda *what: gone.pop() if gone else look(*what)
"""
    changed_supervisor(monkeypatch, change)
    with closing(Bench(tmp_path)) as bench:
        supervisor = supervisor_of(tmp_path)[0].pid
        attempts = [Attempt(1, index, 1) for index in range(20)]
        bench.start_all(attempts, bench.job("no-such-command"))
        assert {bench.end_of(attempt) for attempt in attempts} == {(Outcome.NOT_STARTED, 2)}
        assert supervisor_of(tmp_path)[0].pid == supervisor


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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start tasks as other people")
def test_a_task_runs_as_its_submitter_if_that_is_still_the_same_account(tmp_path):
    """Never as the one whose process this is, where it is not known whose it is, or where name and uid are two people's."""
    nobody = pwd.getpwnam("nobody")
    people = {1: ("nobody", nobody.pw_uid), 2: ("nobody", nobody.pw_uid + 1), 3: ("no-such", nobody.pw_uid), 4: ("", None)}
    with closing(Bench(tmp_path, as_people=True)) as bench:
        for number, (user, uid) in people.items():
            job = Job("q", {"cpu": 1000}, user=user, uid=uid, work=Work(["sh", "-c", "id -u; echo $HOME"], "/"))
            bench.start_all([Attempt(number, 0, 1)], job)
        ends = [bench.end_of(Attempt(number, 0, 1)) for number in people]
        assert ends == [(Outcome.EXITED, 0), *((Outcome.NOT_STARTED, code) for code in (errno.EPERM, errno.ENOENT, errno.ENOENT))]
        assert bench.wrote(Attempt(1, 0, 1)) == f"{nobody.pw_uid}\n{nobody.pw_dir}\n"
        for number in (2, 3, 4):
            assert "is not their account here" in bench.wrote(Attempt(number, 0, 1), "err")
            assert bench.wrote(Attempt(number, 0, 1)) == ""


@CONTRACT
def test_an_attempt_runs_once_however_often_it_is_started(which, request):
    bench = request.getfixturevalue(which)
    a = Attempt(1, 0, 1)
    for _ in range(5):
        bench.start(a, "sh", "-c", "echo ran >> ran")
    assert bench.end_of(a) == (Outcome.EXITED, 0)
    bench.start(a, "sh", "-c", "echo ran >> ran")
    bench.start(Attempt(2, 0, 1), "true")
    bench.end_of(Attempt(2, 0, 1))
    assert (bench.folder / "ran").read_text() == "ran\n"


@CONTRACT
def test_an_attempt_that_was_stopped_before_it_started_never_starts(which, request):
    bench = request.getfixturevalue(which)
    a = Attempt(1, 0, 1)
    bench.stop(a)
    assert bench.end_of(a)[0] == Outcome.SIGNALLED
    bench.acknowledge(a)
    bench.unsee()
    bench.start(a, "touch", "ran")
    assert bench.end_of(a)[0] == Outcome.SIGNALLED
    assert not (bench.folder / "ran").exists()


@CONTRACT
def test_an_attempt_begins_when_the_one_before_has_ended(which, request):
    """Although the scheduler counts that as lost."""
    bench = request.getfixturevalue(which)
    words = "trap '' TERM; exec 9> lock; flock -n 9 && touch locked && while test $FAIRLEAD_NUMBER = 1; do sleep 0.02; done"
    first, second = Attempt(1, 0, 1), Attempt(1, 0, 2)
    bench.start(first, "sh", "-c", words)
    bench.until((bench.folder / "locked").exists)
    bench.stop(first, grace=0.5)
    bench.start(second, "sh", "-c", words)
    assert bench.end_of(second) == (Outcome.EXITED, 0)
    assert bench.end_of(first) == (Outcome.SIGNALLED, signal.SIGKILL)


@CONTRACT
def test_stopping_ends_the_whole_group_gently_and_then_not(which, request):
    bench = request.getfixturevalue(which)
    gentle = bench.start(Attempt(1, 0, 1), "sh", "-c", "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.1; done")
    stubborn = bench.start(Attempt(2, 0, 1), "sh", "-c", f"trap '' TERM; sleep {LONG}3 & sleep {LONG}4")
    bench.until(lambda: stubborn in bench.started and (bench.folder / "output/1/0.out").exists())
    bench.until(lambda: bench.wrote(gentle) == "up\n")
    bench.stop(gentle, stubborn, grace=2.0)
    assert bench.end_of(gentle) == (Outcome.STOPPED, 3)
    assert bench.wrote(gentle) == "up\nbye\n"
    assert bench.end_of(stubborn) == (Outcome.SIGNALLED, signal.SIGKILL)
    assert alive(f"sleep {LONG}[34]") == []


@CONTRACT
def test_what_ended_before_it_was_told_to_stop_was_not_stopped(which, request):
    """The supervisor is held while the task ends, so that the end and the stop reach it together."""
    bench = request.getfixturevalue(which)
    a = bench.start(Attempt(1, 0, 1), "sh", "-c", "echo $$; until test -e go; do sleep 0.02; done; exit 5")
    bench.until(lambda: a in bench.started and bench.wrote(a))
    task = psutil.Process(int(bench.wrote(a)))
    supervisor = supervisor_of(bench.folder)[0].pid
    os.kill(supervisor, signal.SIGSTOP)
    (bench.folder / "go").touch()
    bench.until(lambda: task.status() == psutil.STATUS_ZOMBIE)
    bench.stop(a)
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
        bench.engine._send(line + b"\n")
    assert bench.end_of(bench.start(Attempt(1, 0, 1), "true")) == (Outcome.EXITED, 0)
    assert alive(f"{bench.folder}/supervisor") == supervisor
    log = (bench.folder / "supervisor/log").read_text()
    assert log.count("fairlead: cannot parse a message: ") == len(GARBLED)


def test_a_call_whose_session_cannot_be_read_fails_alone(bench):
    supervisor = alive(f"{bench.folder}/supervisor")
    ends = []
    for session, setup in enumerate(["{", "[]", '{"argv": []}', None]):
        folder = bench.folder / "calls" / str(session)
        folder.mkdir(parents=True)
        if setup is not None:
            (folder / "setup.json").write_text(setup)
        job = Job("q", {"cpu": 1000}, work=Work(call=Call(str(session), "payload")))
        bench.start_all([Attempt(session, 0, 1)], job)
        ends.append(bench.end_of(Attempt(session, 0, 1)))
    assert ends == [(Outcome.NOT_STARTED, errno.EINVAL)] * 3 + [(Outcome.NOT_STARTED, errno.ENOENT)]
    assert alive(f"{bench.folder}/supervisor") == supervisor


def leave_a_thread_at_work():
    """Return the number of the process."""

    def work():
        while True:
            pass

    threading.Thread(target=work, daemon=True).start()
    return os.getpid()


def caller_of(bench):
    """Calls that function, in a lease with a number; returns the worker that was called."""
    program, folder = leased.Program(), bench.folder / "calls" / "session"
    (folder / "results").mkdir(parents=True)
    setup = {"argv": [sys.executable, "-P", worker.__file__], "cwd": "/", "env": {}, "encoding": "utf-8", "path": sys.path}
    (folder / "setup.json").write_text(json.dumps({**setup, **program.setup}))

    def call(number):
        job = Job("q", {"cpu": 1000}, work=Work(call=Call("session", str(number))))
        bench.start_all([Attempt(number, 0, 1)], job)
        found = program.call(number, leave_a_thread_at_work)
        assert bench.end_of(Attempt(number, 0, 1), 60) == (Outcome.EXITED, 0)
        return psutil.Process(found)

    return call


@pytest.mark.parametrize("which", ["bench", "bench_without_cgroups"])
def test_a_worker_that_waits_stands_still_whatever_its_calls_left_in_it(which, request):
    bench = request.getfixturevalue(which)
    call = caller_of(bench)
    found = call(1)
    bench.until(lambda: found.status() == psutil.STATUS_STOPPED)
    before = found.cpu_times()
    time.sleep(1.1)  # two looks
    assert found.cpu_times() == before
    assert call(2) == found, "it goes on with another call"
    bench.until(lambda: found.status() == psutil.STATUS_STOPPED)
    found.send_signal(signal.SIGCONT)  # as its person may, behind the supervisor's back
    bench.until(lambda: not found.is_running())


def test_a_worker_that_stands_still_ends_with_its_supervisor(bench):
    call = caller_of(bench)
    found = call(1)
    bench.until(lambda: found.status() == psutil.STATUS_STOPPED)
    os.kill(supervisor_of(bench.folder)[0].pid, signal.SIGKILL)
    bench.until(lambda: has_ended(found))


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


@pytest.mark.parametrize("then", ["", "; exit 1", "; exit 0"])
def test_one_whose_child_was_killed_for_memory_says_so_however_it_ends_itself(bench, then):
    if not bench.engine.limits["memory"]:
        pytest.skip("cgroups cannot limit memory here")
    hog = "x = bytearray(400 << 20); x[::4096] = b'x' * len(x[::4096])"
    a = bench.start(Attempt(1, 0, 1), "sh", "-c", f'python3 -c "{hog}"{then}', memory=100 << 20)
    assert bench.end_of(a) == (Outcome.OUT_OF_MEMORY, signal.SIGKILL)
    assert exit_status(*bench.end_of(a)) == 137


def test_each_of_many_that_start_at_once_is_limited_before_the_last_has_started(bench):
    if not bench.engine.limits["memory"]:
        pytest.skip("cgroups cannot limit memory here")
    attempts = [Attempt(1, index, 1) for index in range(24)]
    bench.start_all(attempts, bench.job("dd", "if=/dev/zero", "of=/dev/null", "bs=64M", "count=1", memory=16 << 20))
    assert {bench.end_of(attempt) for attempt in attempts} == {(Outcome.OUT_OF_MEMORY, signal.SIGKILL)}


def test_a_cgroup_folder_that_was_taken_away_is_made_again(bench):
    if not bench.engine.limits["tracking"]:
        pytest.skip("no cgroups here")
    bench.end_of(bench.start(Attempt(1, 0, 1), "true"))
    name = hashlib.sha256(str((bench.folder / "supervisor").resolve()).encode()).hexdigest()[:12]
    walked = os.walk("/sys/fs/cgroup")  # others' folders go meanwhile
    folders = [Path(at) / f"fairlead-{name}" for at, below, _ in walked if f"fairlead-{name}" in below]
    assert folders
    for folder in folders:
        for group in folder.iterdir():
            if group.is_dir():
                group.rmdir()
        folder.rmdir()
    a = bench.start(Attempt(2, 0, 1), "true", memory=100 << 20)
    assert bench.end_of(a) == (Outcome.EXITED, 0)


def test_tasks_wait_where_there_are_no_more_files_and_none_fails(bench):
    supervisor = supervisor_of(bench.folder)[0].pid
    job = bench.job("sleep", "0.2")
    attempts = [Attempt(1, index, 1) for index in range(15)]
    bench.start_all(attempts[:1], job)
    bench.end_of(attempts[0])
    few = len(list(Path(f"/proc/{supervisor}/fd").iterdir())) + 9  # six to start one, which keeps one of them
    resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (few, 4096))
    bench.start_all(attempts[1:], job)
    for attempt in attempts:
        assert bench.end_of(attempt, 60) == (Outcome.EXITED, 0)


@pytest.mark.parametrize("which", ["bench", "bench_without_cgroups"])
def test_where_files_come_and_go_each_task_runs_once(which, tmp_path, request):
    bench = request.getfixturevalue(which)
    supervisor = supervisor_of(bench.folder)[0].pid
    soft, hard = resource.prlimit(supervisor, resource.RLIMIT_NOFILE)
    job = bench.job("sh", "-c", f"echo $FAIRLEAD_INDEX >> {tmp_path}/ran")
    attempts = [Attempt(1, index, 1) for index in range(400)]
    rng = Random(0)
    try:
        for first in range(0, 400, 4):
            bench.start_all(attempts[first : first + 4], job)
            time.sleep(0.01 * rng.random())
            there = len(list(Path(f"/proc/{supervisor}/fd").iterdir()))
            resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (there + rng.randrange(4), hard))
            time.sleep(0.03 * rng.random())
            resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (soft, hard))
    finally:
        resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (soft, hard))

    def all_have_ended():
        """A program is started under the usual limit: what was the supervisor's before may be set again at any time."""
        resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (soft, hard))
        return bench.ended.keys() >= set(attempts)

    bench.until(all_have_ended, 100)
    assert set(bench.ended.values()) == {(Outcome.EXITED, 0)}
    assert sorted(map(int, Path(tmp_path, "ran").read_text().split())) == list(range(400))
    assert supervisor_of(bench.folder)[0].pid == supervisor


FEW_FILES = """
import errno, io, os, random, socket
rng, run = random.Random(SEED), s.Supervisor.run
def fails(place, name):
    real = getattr(place, name)
    def call(*given, **more):
        if os.getpid() == own and rng.random() < 1 / 7:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(*given, **more)
    setattr(place, name, call)
def start(supervisor):
    global own
    own = os.getpid()
    for name in ("open", "dup", "pipe2", "listdir", "scandir", "memfd_create"):
        fails(os, name)
    fails(io, "open")
    fails(socket.socket, "accept")
    run(supervisor)
s.Supervisor.run = start
"""
"""Each seventh time that the supervisor would open a file, no descriptor is free."""


@pytest.mark.parametrize("change", ["", NO_CGROUPS], ids=["", "without cgroups"])
def test_each_task_runs_once_wherever_a_descriptor_is_missing(change, tmp_path, monkeypatch):
    """What is asked for is asked again, as the scheduler does."""
    changed_supervisor(monkeypatch, FEW_FILES.replace("SEED", str(len(change))) + change)
    runs = [Attempt(1, index, 1) for index in range(60)]
    stopped = [Attempt(2, index, 1) for index in range(5)]
    forked = [Attempt(3, index, 1) for index in range(10)]
    with closing(Bench(tmp_path)) as bench:
        supervisor = supervisor_of(bench.folder)[0].pid
        words = f"echo $FAIRLEAD_JOB $FAIRLEAD_INDEX >> {tmp_path}/ran"
        job, long = bench.job("sh", "-c", words, memory=100 << 20), bench.job("sh", "-c", f"{words}; sleep {LONG}5")
        through_a_fork = with_export(bench, job, "kept")
        for again in itertools.count():
            for attempts, each in ((runs, job), (stopped, long), (forked, through_a_fork)):
                if left := [attempt for attempt in attempts if attempt not in bench.ended]:
                    bench.start_all(left, each)
            if again > 2 and bench.started.issuperset(stopped):
                bench.stop(*stopped, grace=0.1)
            bench.engine.take_inventory()
            asked = time.monotonic()
            bench.until(lambda asked=asked: time.monotonic() > asked + 0.3)
            if len(bench.ended) == len([*runs, *stopped, *forked]):
                break
            assert again < 100, (bench.started, bench.ended)
        assert {bench.ended[attempt] for attempt in (*runs, *forked)} == {(Outcome.EXITED, 0)}
        assert {bench.ended[attempt][0] for attempt in stopped} == {Outcome.SIGNALLED}
        ran = sorted(tuple(map(int, line.split())) for line in (tmp_path / "ran").read_text().splitlines())
        assert ran == sorted((attempt.job, attempt.task) for attempt in (*runs, *stopped, *forked))
        assert supervisor_of(bench.folder)[0].pid == supervisor
        assert alive(f"sleep {LONG}5") == []


CARDS_WITH_GREETING = """
import selectors, time
real = selectors.DefaultSelector.select
def select(selector, timeout=None):
    ready = real(selector, timeout)
    kinds = [key.data.__qualname__ for key, _ in ready]
    cards = [kind == "CardWatch._read" for kind in kinds]
    greeting = ["_expect_greeting" in kind for kind in kinds]
    watching = any(key.data.__qualname__ == "CardWatch._read" for key in selector.get_map().values())
    if not watching:
        return ready
    if any(cards) and any(greeting):
        return sorted(ready, key=lambda each: each[0].data.__qualname__ == "CardWatch._read")
    time.sleep(0.01)
    return [each for each, *kinds in zip(ready, cards, greeting) if not any(kinds)]
selectors.DefaultSelector.select = select
"""
"""While the cards are watched, what is read of them comes at once with the next scheduler's greeting, and after it."""


def test_what_a_step_has_closed_is_not_read_in_the_same_round(tmp_path, monkeypatch):
    changed_supervisor(monkeypatch, CARDS_WITH_GREETING)
    with closing(Bench(tmp_path)) as bench:
        supervisor = supervisor_of(bench.folder)[0].pid
        a = bench.start(Attempt(1, 0, 1), "sleep", "60")
        bench.until(lambda: a in bench.started)
        bench.engine.close()
        bench.serve()
        bench.inventory()
        bench.stop(a)
        assert bench.end_of(a) == (Outcome.SIGNALLED, signal.SIGTERM)
        assert supervisor_of(bench.folder)[0].pid == supervisor


def test_a_start_that_is_tried_again_keeps_out_of_the_cgroup_of_the_one_that_failed(bench):
    if not bench.engine.limits["tracking"]:
        pytest.skip("no cgroups here")
    groups = cgroups.find("fairlead-test-tried-again")
    try:
        failed = groups.create("1.0.1")
        again = groups.create("1.0.1")
        joins = 'for way; do echo 0 > "$way"; done; echo joined; exec sleep 60'
        child = subprocess.Popen(["sh", "-c", joins, "sh", *again.ways_in()], stdout=subprocess.PIPE)
        assert child.stdout.readline() == b"joined\n"
        failed.kill()
        assert again.pids() == {child.pid}
        assert child.poll() is None
        again.kill()
        assert child.wait() == -signal.SIGKILL
        child.stdout.close()
        assert all(group.remove() for group in (failed, again))
    finally:
        groups.close()


def test_a_process_is_never_taken_for_one_without_an_environment():
    """It has none to read in the middle of exec and while it ends: the end of a task would be reported while one of it runs."""
    asked = {**os.environ, "MARKED": "1"}
    shells = [subprocess.Popen(["sh", "-c", "while :; do env true; done"], env=asked) for _ in range(3)]  # all cores are busy
    try:
        found, until = collections.Counter(), time.monotonic() + 60
        while (not found[True] or found.total() < 10_000) and time.monotonic() < until:
            for pid in itertools.chain.from_iterable(proc.descendants(shell.pid) for shell in shells):
                environment = proc.environment(pid)
                found[environment is None] += 1
                if environment is not None and b"MARKED=1" not in environment:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        assert psutil.Process(pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    finally:
        for shell in shells:
            shell.kill()
            shell.wait()
    assert set(found) == {True, False}
    with subprocess.Popen(["sleep", "60"], env={}) as bare:
        while (found := proc.environment(bare.pid)) is None:  # it is in the middle of exec
            time.sleep(0.001)
        assert found == b""
        bare.kill()


def test_who_connects_when_no_descriptor_is_left_harms_nobody(bench):
    runs = bench.start(Attempt(1, 0, 1), "sleep", "600")
    bench.until(lambda: runs in bench.started)
    supervisor = supervisor_of(bench.folder)[0].pid
    there = {int(path.name) for path in Path(f"/proc/{supervisor}/fd").iterdir()}
    soft, hard = resource.prlimit(supervisor, resource.RLIMIT_NOFILE)
    resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (next(k for k in itertools.count() if k not in there), hard))
    with socket.socket(socket.AF_UNIX) as stranger, socket_name(bench.folder / "supervisor" / "socket") as name:
        stranger.connect(name)
        log = bench.folder / "supervisor" / "log"
        ended = time.monotonic() + 0.3  # it would have failed at once
        while time.monotonic() < ended:
            assert psutil.pid_exists(supervisor), log.read_text()
            time.sleep(0.02)
    resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (soft, hard))
    assert bench.end_of(bench.start(Attempt(2, 0, 1), "true")) == (Outcome.EXITED, 0)
    assert supervisor_of(bench.folder)[0].pid == supervisor


def test_a_task_cannot_use_more_cpu_than_it_asked_for(bench):
    if not bench.engine.limits["cpu"]:
        pytest.skip("cgroups cannot limit CPU here")
    spin = "import time\nt = time.time()\nwhile time.time() - t < 1.5: pass\nprint(time.process_time())"
    a = bench.start(Attempt(1, 0, 1), "python3", "-c", spin, cpu=200)
    bench.end_of(a)
    assert float(bench.wrote(a)) < 0.9, "a fifth of 1.5 seconds, and some slack"


def test_a_group_that_had_another_task_limits_cpu_as_the_next_one_asks(bench):
    if not bench.engine.limits["cpu"] or not Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").exists():
        pytest.skip("no cgroups of version 1 limit CPU here")
    place = "at=$(sed -nE 's/^[0-9]+:(.*,)?cpu(,.*)?://p' /proc/self/cgroup)"
    script = f"sleep 0.3; {place}; cat /sys/fs/cgroup/cpu$at/*quota_us"
    wrote = []
    for number, cpu in enumerate([2000, 500, 0, 500, 500], 1):
        a = bench.start(Attempt(number, 0, 1), "sh", "-c", script, cpu=cpu)
        bench.end_of(a)
        wrote.append(bench.wrote(a).strip())
    assert wrote == ["200000", "50000", "-1", "50000", "50000"]


def test_a_group_that_had_another_task_counts_and_limits_anew(tmp_path):
    """It serves only its owner's tasks with the same limits, and not if files of its task are still charged to it."""
    groups = cgroups.find(f"fairlead-test-memory-{os.getpid()}")
    if groups is None or not groups.limits_memory or not Path("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists():
        pytest.skip("no cgroups of version 1 limit memory here")

    def run(what):
        script = f'for way; do echo 0 > "$way"; done; {what}'
        subprocess.run(["sh", "-c", script, "sh", *group.ways_in()], check=True)
        groups.remove_when_empty(group)
        while not groups.are_swept():
            groups.sweep()

    for _ in range(50):  # the kernel may have charged more ahead than an empty group may have
        group = groups.create("1.0.1", 7)
        group.limit(100 << 20, 500)
        places = group.ways_in()
        run("""python3 -c 'x = b"x" * (8 << 20)'""")
        assert group.used()[1] > 8 << 20
        others = [groups.create("2.0.1", *of) for of in ((8, 100 << 20, 500), (7, 50 << 20, 500), (7, 100 << 20, 400), (7,))]
        group = groups.create("3.0.1", 7, 100 << 20, 500)
        for other in others:
            assert not set(other.ways_in()) & {*places, *group.ways_in()}
            other.remove()
        if group.ways_in() == places:
            break
    assert group.ways_in() == places
    assert group.used()[1] <= cgroups.MOST_CHARGED
    limits = {"memory.limit_in_bytes": f"{100 << 20}\n", "cpu.cfs_quota_us": "50000\n"}
    found = [(path.with_name(name), limit) for path in map(Path, places) for name, limit in limits.items()]
    assert [path.read_text() for path, _ in found if path.exists()] == [limit for path, limit in found if path.exists()]
    for value, name in ((90 << 20, "memory.limit_in_bytes"), (1, "memory.oom_control")):
        (place,) = (path for path in (Path(way).with_name(name) for way in places) if path.exists())
        run(f"echo {value} > {place}")
        group = groups.create("4.0.1", 7, 100 << 20, 500)
        assert not set(group.ways_in()) & set(places), "its task changed its limit, or what happens at it"
        group.limit(100 << 20, 500)
        places = group.ways_in()
    run(f"head -c 3000000 /dev/zero > {tmp_path}/file")
    group = groups.create("5.0.1", 7, 4 << 20, 500)
    assert not set(group.ways_in()) & set(places)
    group.limit(4 << 20, 500)
    places = group.ways_in()
    run(f"head -c 600000 /dev/zero > {tmp_path}/more")
    group = groups.create("6.0.1", 7, 4 << 20, 500)
    assert not set(group.ways_in()) & set(places), "too much for so low a limit"
    group.remove()
    groups.close()


def test_nothing_outlives_a_task_in_groups_that_it_made_in_its_own():
    """Their processes belong to the task, and the group serves no other task while they run."""
    groups = cgroups.find(f"fairlead-test-inner-{os.getpid()}")
    if groups is None:
        pytest.skip("no cgroup may be made here")
    group = groups.create("1.0.1", 7)
    ways = group.ways_in()
    inner = [Path(way).parent / "inner" / "most" / Path(way).name for way in ways]
    for way in inner:
        way.parent.mkdir(parents=True)
    script = 'for way; do echo 0 > "$way"; done; echo; exec sleep 1000'
    with subprocess.Popen(["sh", "-c", script, "sh", *ways, *inner], stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout.readline() == b"\n"
        assert group.pids() == {daemon.pid}
        groups.remove_when_empty(group)
        other = groups.create("2.0.1", 7)
        assert not set(other.ways_in()) & set(ways)
        groups.sweep()
        assert daemon.wait() == -signal.SIGKILL
    while not groups.are_swept():
        groups.sweep()
    groups.remove_when_empty(other)
    groups.close()
    assert own_cgroups_named(f"fairlead-test-inner-{os.getpid()}") == []


def test_gpus_are_given_by_index_and_to_one_task_each(bench):
    show = "echo $CUDA_VISIBLE_DEVICES; sleep 0.5"
    attempts = [bench.start(Attempt(1, i, 1), "sh", "-c", show, gpu=n * 1000) for i, n in enumerate([1, 2, 1])]
    for a in attempts:
        bench.end_of(a)
    assert [bench.wrote(a).strip() for a in attempts] == ["0", "1,2", "3"]
    assert [bench.cards[a] for a in attempts] == [[0], [1, 2], [3]]


def test_a_task_sees_its_own_cards_and_one_without_sees_none(bench):
    """Whatever the person sets or exports. Empty hides nothing from oneAPI, so it gets an index that no card has."""
    names = [
        "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK",
        "ONEAPI_DEVICE_SELECTOR",
    ]  # fmt: skip
    show = (
        f"import os, time\nprint([os.environ.get(name) for name in {names!r}])\nwhile not os.path.exists('go'): time.sleep(0.02)"
    )
    exported = bench.folder / "exports" / "kept"
    exported.parent.mkdir()
    exported.write_text('{"ROCR_VISIBLE_DEVICES": "0,1,2,3"}')
    job = bench.job("python3", "-c", show, env={"CUDA_VISIBLE_DEVICES": "0,1,2,3"})
    none = replace(job, work=replace(job.work, export="kept"))
    two = replace(none, demand={**job.demand, "gpu": 2000})
    first, a, b = Attempt(1, 0, 1), Attempt(2, 0, 1), Attempt(3, 0, 1)
    bench.start_all([first], replace(two, demand={**job.demand, "gpu": 1000}))
    bench.start_all([a], two)
    bench.start_all([b], none)
    bench.until(lambda: bench.started >= {first, a, b})  # each while the others run
    (bench.folder / "go").touch()
    assert [bench.end_of(each) for each in (first, a, b)] == [(Outcome.EXITED, 0)] * 3
    assert eval(bench.wrote(a)) == ["1,2", "PCI_BUS_ID", "1,2", "0,1", "1,2", None], "HIP counts what ROCR left"
    assert eval(bench.wrote(b)) == ["", "PCI_BUS_ID", "", "", "65535", "!*:gpu"]


@CONTRACT
def test_tasks_outlive_the_scheduler_and_are_adopted(which, request):
    """The engine's side goes away without a word; statuses that came meanwhile are found."""
    bench = request.getfixturevalue(which)
    quick = bench.start(Attempt(1, 0, 1), "sh", "-c", "echo $$; until test -e go; do sleep 0.02; done; exit 5")
    slow = bench.start(Attempt(2, 0, 1), "sh", "-c", "until test -e end; do sleep 0.02; done; exit 6")
    bench.until(lambda: slow in bench.started and bench.wrote(quick))
    task = psutil.Process(int(bench.wrote(quick)))
    bench.engine.close()
    (bench.folder / "go").touch()
    task.wait(60)
    bench.known = None
    bench.unsee()
    bench.serve()
    bench.until(lambda: bench.known is not None)
    assert bench.known == {quick, slow}
    (bench.folder / "end").touch()
    assert bench.end_of(quick) == (Outcome.EXITED, 5)
    assert bench.end_of(slow) == (Outcome.EXITED, 6)
    bench.acknowledge(quick, slow)
    assert bench.inventory() == set()


@pytest.mark.parametrize("which", ["bench", "bench_without_cgroups", "joined"])
def test_when_the_supervisor_is_killed_its_tasks_are_ended_and_lost(which, request):
    bench = request.getfixturevalue(which)
    done = bench.start(Attempt(1, 0, 1), "sh", "-c", "exit 4")
    bench.end_of(done)
    a = bench.start(Attempt(2, 0, 1), "sh", "-c", f"(setsid sleep {LONG}5 &); sleep {LONG}6")
    bench.until(lambda: a in bench.started and len(alive(f"^sleep {LONG}[56]")) == 2)
    bench.unsee()
    bench.known = None
    os.kill(supervisor_of(bench.folder)[0].pid, signal.SIGKILL)
    assert bench.end_of(a) == (Outcome.LOST, 0)
    assert bench.known == {a, done}, "it is told unasked by the supervisor that took over"
    assert bench.end_of(done) == (Outcome.EXITED, 4), "an end that was not acknowledged is told again"
    assert alive(f"^sleep {LONG}[56]") == []


@pytest.mark.skipif(shutil.which("chrt") is None, reason="nothing here starts a process that waits for no CPU")
def test_a_busy_machine_does_not_delay_the_guardian(bench):
    if subprocess.run(["chrt", "-f", "1", "true"], check=False).returncode != 0:
        pytest.skip("no process may go before all others here")
    a = bench.start(Attempt(1, 0, 1), "sleep", "600")
    bench.until(lambda: a in bench.started)
    (supervisor,) = supervisor_of(bench.folder)
    assert os.sched_getscheduler(supervisor.ppid()) == os.SCHED_FIFO
    assert {os.sched_getscheduler(each.pid) for each in (supervisor, *supervisor.children())} == {os.SCHED_OTHER}


@pytest.mark.parametrize("which", ["bench", "bench_without_cgroups"])
def test_when_scheduler_and_supervisor_are_killed_no_task_runs_on(which, request):
    """Not even one that detached a child with an empty environment. The supervisor's whole process group is killed."""
    bench = request.getfixturevalue(which)
    a = bench.start(Attempt(1, 0, 1), "sh", "-c", f"(setsid env -i sleep {LONG}7 &); sleep {LONG}8")
    bench.until(lambda: a in bench.started and len(alive(f"^sleep {LONG}[78]")) == 2)
    bench.engine.close()
    bench.engine.join(10)
    guardian = supervisor_of(bench.folder)[0].parent()
    assert guardian.cmdline()[0] == "guardian of tasks"
    os.killpg(os.getpgid(supervisor_of(bench.folder)[0].pid), signal.SIGKILL)
    bench.until(lambda: alive(f"^sleep {LONG}[78]") == [])
    bench.until(lambda: not guardian.is_running() or guardian.status() == psutil.STATUS_ZOMBIE)


@pytest.mark.parametrize("which", ["bench", "bench_without_cgroups"])
def test_a_task_that_ended_unseen_before_the_supervisor_was_killed_has_ended(which, request):
    bench = request.getfixturevalue(which)
    a = bench.start(Attempt(1, 0, 1), "sh", "-c", "until test -e go; do sleep 0.01; done; exit 3")
    stopped = bench.start(Attempt(2, 0, 1), "sh", "-c", "trap : TERM; until test -e go; do sleep 0.01; done; exit 0")
    bench.until(lambda: {a, stopped} <= bench.started)
    bench.stop(stopped, grace=60.0)
    bench.inventory()  # so that it was asked to stop
    (supervisor,) = supervisor_of(bench.folder)
    supervisor.suspend()
    (bench.folder / "go").touch()
    bench.until(lambda: all(child.status() == psutil.STATUS_ZOMBIE for child in supervisor.children()))
    supervisor.kill()
    assert bench.end_of(a) == (Outcome.EXITED, 3)
    assert bench.end_of(stopped) == (Outcome.STOPPED, 0), "its job says whether what was asked to stop is done"


@pytest.mark.parametrize("export", ["", "kept"])
@pytest.mark.parametrize("lines", [1, 20, 80])
def test_what_ended_while_an_array_starts_has_ended_when_the_supervisor_is_killed(bench, export, lines):
    job = with_export(bench, bench.job("sh", "-c", "echo $FAIRLEAD_INDEX >> done"), export)
    done, (supervisor,) = bench.folder / "done", supervisor_of(bench.folder)
    done.touch()
    bench.start_all([Attempt(1, i, 1) for i in range(100)], job)
    while len(done.read_text().split()) < lines:
        time.sleep(0.001)
    supervisor.suspend()
    bench.until(lambda: all(child.status() == psutil.STATUS_ZOMBIE for child in supervisor.children()))
    supervisor.kill()
    ended = [Attempt(1, int(index), 1) for index in done.read_text().split()]
    bench.until(lambda: bench.ended.keys() >= set(ended))
    assert {bench.ended[attempt] for attempt in ended} == {(Outcome.EXITED, 0)}


@pytest.mark.parametrize("export", ["", "kept"])
def test_no_program_runs_before_its_pid_is_in_the_spool(bench, export):
    script = """grep -qxF '["started", 1, '$FAIRLEAD_INDEX', 1, '$$']' supervisor/spool"""
    look = with_export(bench, bench.job("sh", "-c", script), export)
    attempts = [Attempt(1, i, 1) for i in range(40)]
    bench.start_all(attempts, look)
    bench.until(lambda: len(bench.ended) == len(attempts))
    assert set(bench.ended.values()) == {(Outcome.EXITED, 0)}


def test_what_the_guardian_cuts_short_is_lost_whatever_its_parent_makes_of_that(bench):
    attempts = [Attempt(1, i, 1) for i in range(40)]
    bench.start_all(attempts, bench.job("sh", "-c", f"sleep {LONG}9; exit 3"))
    bench.until(lambda: len(alive(f"^sleep {LONG}9")) == len(attempts))
    supervisor_of(bench.folder)[0].kill()
    bench.until(lambda: len(bench.ended) == len(attempts))
    assert set(bench.ended.values()) == {(Outcome.LOST, 0)}


def test_when_the_supervisor_is_asked_to_end_its_tasks_are_asked_first(bench):
    """As when the machine goes down. Only who then exits with 0 may be done; who saved their work and exits with 1 is not."""
    script = "trap 'echo saved; exit {}' TERM; echo ready; while :; do sleep 0.01; done"
    a, b = (bench.start(Attempt(job, 0, 1), "sh", "-c", script.format(job - 1)) for job in (1, 2))
    c = bench.start(Attempt(3, 0, 1), "sh", "-c", "echo ready; exec sleep 60")
    bench.until(lambda: {a, b, c} <= bench.started and {bench.wrote(x) for x in (a, b, c)} == {"ready\n"})
    supervisor_of(bench.folder)[0].terminate()
    assert bench.end_of(a) == (Outcome.STOPPED, 0)
    assert bench.end_of(b) == bench.end_of(c) == (Outcome.LOST, 0)
    assert bench.wrote(a) == bench.wrote(b) == "ready\nsaved\n"


def test_what_a_machine_that_goes_down_signals_with_its_supervisor_is_neither_done_nor_has_it_failed(bench):
    """All processes get SIGTERM at once, and some tasks have ended before the guardian looks."""
    scripts = ["echo ready; exec sleep 60"] + [
        f"trap 'exit {code}' TERM; echo ready; while :; do sleep 0.01; done" for code in (0, 1)
    ]
    attempts = [bench.start(Attempt(job, 0, 1), "sh", "-c", script) for job, script in enumerate(scripts, 1)]
    bench.until(lambda: {*attempts} <= bench.started and {bench.wrote(a) for a in attempts} == {"ready\n"})
    (supervisor,) = supervisor_of(bench.folder)
    guardian, tasks = supervisor.parent(), supervisor.children()
    guardian.suspend()
    supervisor.terminate()
    for task in tasks:
        task.terminate()
    bench.until(lambda: all(not task.is_running() or task.status() == psutil.STATUS_ZOMBIE for task in tasks))
    guardian.resume()
    assert [bench.end_of(a) for a in attempts] == [(Outcome.LOST, 0), (Outcome.STOPPED, 0), (Outcome.LOST, 0)]


def test_a_spool_that_is_rewritten_knows_the_tasks_that_were_asked_to_stop(tmp_path):
    """Else what then exits with 0 would be lost, though its job may call it done."""
    spool, stops, runs, call = Spool(tmp_path), (1, 0, 1), (2, 0, 1), (3, 0, 1)
    spool.rewrite([(stops, 70), (stops, 0), (runs, 71), (call, 0)], {})
    (tmp_path / "spool").write_text((tmp_path / "spool").read_text() + "".join(f'["exited", {pid}, 0, 0]\n' for pid in (70, 71)))
    begun, ended = spool.read()
    assert (begun, {task: end[:2] for task, end in ended.items()}) == (
        {call},
        {stops: (Outcome.STOPPED, 0), runs: (Outcome.EXITED, 0)},
    )


@CONTRACT
def test_no_call_waits_for_a_supervisor_that_does_not_read(which, request):
    bench = request.getfixturevalue(which)
    supervisor = supervisor_of(bench.folder)[0].pid
    attempts = [Attempt(1, i, 1) for i in range(20_000)]
    job = bench.job("true")

    def use():
        bench.start_all(attempts, job)
        bench.stop(*attempts)
        bench.acknowledge(*attempts)
        bench.engine.take_inventory()
        bench.engine.forget([1])
        bench.engine.poll()

    using = threading.Thread(target=use, daemon=True)
    os.kill(supervisor, signal.SIGSTOP)
    try:
        using.start()
        using.join(60)
        assert not using.is_alive(), "a call waits for the supervisor"
    finally:
        bench.known = None
        os.kill(supervisor, signal.SIGKILL)
    bench.until(lambda: bench.known is not None)
    assert bench.end_of(bench.start(Attempt(2, 0, 1), "true")) == (Outcome.EXITED, 0)


@CONTRACT
def test_what_waits_is_bounded_and_everything_is_asked_for_when_some_of_it_was_dropped(which, request, monkeypatch):
    bench = request.getfixturevalue(which)
    monkeypatch.setattr(bench.engine._connections, "most_unsent", 100_000)
    supervisor = supervisor_of(bench.folder)[0].pid
    done = bench.start(Attempt(1, 0, 1), "true")
    bench.end_of(done)
    bench.known = None
    attempts = [Attempt(2 + i, 0, 1) for i in range(50)]
    os.kill(supervisor, signal.SIGSTOP)
    try:
        for a in attempts:
            bench.start(a, "true", env={"X": "x" * 120_000})  # in all, more than sockets and TLS take in
        bench.acknowledge(done)
    finally:
        bench.unsee()
        os.kill(supervisor, signal.SIGCONT)
    bench.until(lambda: bench.known is not None)
    assert done in bench.known, "the acknowledgement was dropped"
    assert not bench.known.issuperset(attempts), "some of the starts were"
    assert bench.end_of(done) == (Outcome.EXITED, 0), "so it is told again"

    def all_have_ended():
        """As a scheduler does: each inventory says what to start again; there is one for each time that some was dropped."""
        known, bench.known = bench.known, None
        for a in [] if known is None else set(attempts) - known:
            bench.start(a, "true")
        return bench.ended.keys() >= set(attempts)

    bench.until(all_have_ended)
    assert set(bench.ended.values()) == {(Outcome.EXITED, 0)}


class Puppet:
    """A supervisor that says what it is told to."""

    def __init__(self, folder):
        (folder / "supervisor").mkdir(parents=True)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(folder / "supervisor" / "socket"))
        self.listener.listen()

    def say(self, *lines):
        """To the next who connects, after the greeting; then hang up."""
        connection, _ = self.listener.accept()
        with connection:
            heard = connection.makefile("rb")
            assert json.loads(heard.readline()).items() >= {"do": "greet", "journal": "a", "epoch": 1}.items()
            assert json.loads(heard.readline()) == {"do": "inventory"}
            connection.sendall(b"".join(lines))


def test_lines_that_are_torn_or_cannot_be_read_end_nothing(tmp_path, caplog):
    puppet = Puppet(tmp_path)
    empty = b'{"saw": "inventory", "tasks": [], "limits": {"memory": true}}\n'
    bad = [
        b"\xff\xfe\n", b"[]\n", b"{}\n", b'{"saw": "nothing"}\n', b'{"saw": "started", "task": [1, 2]}\n',
        b'{"saw": "ended", "task": [1, 0, 1], "outcome": 99, "code": 0}\n',
        b'{"saw": "started", "task": [1, 0, 1180591620717411303424]}\n',
    ]  # fmt: skip
    good = b'{"saw": "started", "task": [1, 0, 1]}\n'
    puppet_talks = threading.Thread(target=lambda: [puppet.say(empty, *bad, b'{"saw": "ended", "ta'), puppet.say(empty, good)])
    puppet_talks.start()
    engine = LocalEngine(tmp_path, [NODE])
    engine.serve("a", 1)
    seen = []
    deadline = time.monotonic() + 60
    while not any(len(s.started.job) for s in seen):
        assert time.monotonic() < deadline, seen
        seen.append(engine.poll())
        time.sleep(0.01)
    assert engine.limits == {"memory": True}
    assert {a for s in seen for a in rows(s.started)} == {Attempt(1, 0, 1)}
    assert not any(len(s.ended.code) for s in seen)
    assert sum("cannot parse a message" in record.message for record in caplog.records) == len(bad)
    engine.close()
    puppet.listener.close()
    engine.join(10)


def test_what_started_before_an_inventory_that_does_not_know_it_did_not_last(tmp_path):
    puppet = Puppet(tmp_path)
    empty = b'{"saw": "inventory", "tasks": [], "limits": {}}\n'
    started = b'{"saw": "started", "task": [1, 0, 1]}\n{"saw": "started", "task": [2, 0, 1]}\n'
    engine = LocalEngine(tmp_path, [NODE])
    engine.serve("a", 1)
    puppet.say(empty, started)
    puppet.say(b'{"saw": "inventory", "tasks": [[2, 0, 1]], "limits": {}}\n{"saw": "started", "task": [2, 0, 1]}\n')
    puppet.listener.accept()[0].close()  # all was read before it connects again
    seen = engine.poll()
    assert rows(seen.known) == rows(seen.started) == [Attempt(2, 0, 1)]
    engine.close()
    puppet.listener.close()
    engine.join(10)


def test_a_supervisor_that_cannot_be_started_is_tried_again_until_it_can(tmp_path, monkeypatch, caplog):
    def popen(*argv, **more):
        tries.append(time.monotonic())
        raise FileNotFoundError("no interpreter")

    tries = []
    with monkeypatch.context() as broken:
        broken.setattr("fairlead.engines.local.member.subprocess.Popen", popen)
        engine = LocalEngine(tmp_path, [NODE])
        engine.serve("a", 1)
        deadline = time.monotonic() + 60
        while len(tries) < 3:
            assert time.monotonic() < deadline
            engine.stop(columns([Attempt(1, 0, 1)]), 5.0)
            assert engine.poll().known is None
            time.sleep(0.01)
        assert "no interpreter" in engine.trouble
        assert engine.limits == {}
    while engine.poll().known is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert engine.trouble is None
    assert sum("no supervisor could be started" in record.message for record in caplog.records) == 1
    engine.close(leave=True)
    engine.join(10)


@CONTRACT
def test_output_is_read_in_pieces_and_removed_when_nobody_asks_for_it_any_more(which, request):
    bench = request.getfixturevalue(which)
    a = bench.start(Attempt(1, 0, 1), "sh", "-c", "echo 0123456789")
    bench.end_of(a)
    assert bench.engine.read_output(1, 0, "out", 2, 3, "here") == b"234"
    assert bench.engine.read_output(1, 0, "out", 11, 5, "here") == b""
    assert bench.engine.read_output(1, 1, "out", 0, 5, "here") is None
    bench.engine.forget([7, 1])
    bench.until(lambda: bench.engine.read_output(1, 0, "out", 0, 5, "here") is None)


def test_a_supervisor_with_nothing_to_do_goes_away(tmp_path):
    with closing(Bench(tmp_path)) as bench:
        bench.end_of(bench.start(Attempt(1, 0, 1), "true"))
        bench.engine.close(leave=True)
        deadline = time.monotonic() + 60
        while alive(f"{tmp_path}/supervisor"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert own_cgroups(tmp_path) == []


def test_a_supervisor_of_an_earlier_fairlead_is_replaced_as_soon_as_nothing_runs(bench, monkeypatch):
    (before,) = supervisor_of(bench.folder)
    a = bench.start(Attempt(1, 0, 1), "sh", "-c", "until test -e go; do sleep 0.02; done")
    bench.until(lambda: a in bench.started)
    monkeypatch.setattr(reports, "PROTOCOL", 9)
    assert bench.inventory() == {a}
    (bench.folder / "go").touch()
    assert bench.end_of(a) == (Outcome.EXITED, 0)
    bench.acknowledge(a)
    before.wait(60)
    monkeypatch.undo()
    bench.until(lambda: any(each.pid != before.pid for each in supervisor_of(bench.folder)))
    bench.until(lambda: not bench.engine.trouble)
    bench.inventory()
    assert bench.end_of(bench.start(Attempt(2, 0, 1), "true")) == (Outcome.EXITED, 0)


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
    deadline = time.monotonic() + 60
    while own_cgroups(tmp_path):
        assert time.monotonic() < deadline, own_cgroups(tmp_path)
        time.sleep(0.05)


def own_cgroups(folder):
    """The folders of a supervisor in each hierarchy, and what is in them."""
    name = hashlib.sha256(str(folder / "supervisor").encode()).hexdigest()[:12]
    # Others may end while they are looked through, which Path.rglob does not take.
    return own_cgroups_named(f"fairlead-{name}")


def own_cgroups_named(name):
    return [Path(up) / name for up, folders, _ in os.walk("/sys/fs/cgroup") if name in folders]


def test_this_machine_is_what_it_is():
    node = this_machine({})
    assert node.capacity["cpu"] == 1000 * len(os.sched_getaffinity(0))
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    assert node.capacity["memory"] == total


def test_a_machine_keeps_something_for_itself_but_never_its_last_core():
    large = {"cpu": 8000, "memory": 1000}
    assert kept(KEPT_BY_DEFAULT, large) == {"cpu": 500, "memory": 50}
    assert kept({"cpu": 10**6, "memory": Percent(100), "gpu": 1000}, large) == {"cpu": 7000, "memory": 1000}
    assert kept(KEPT_BY_DEFAULT, {"cpu": 1000, "memory": 1000}) == {"memory": 50}
    whole, rest = this_machine({}).capacity, this_machine(KEPT_BY_DEFAULT).capacity
    assert whole["memory"] - rest["memory"] == int(whole["memory"] * 0.05)
    assert rest["cpu"] == max(1000, whole["cpu"] - 500)


def test_cgroups_are_found_by_trying():
    groups = cgroups.find("fairlead-test")
    if groups is None:
        pytest.skip("no cgroup may be made here")
    group = groups.create("one")
    group.limit(64 << 20, 500)
    child = os.fork()
    if child == 0:
        group.join()
        time.sleep(600)
        os._exit(0)
    deadline = time.monotonic() + 60
    while group.pids() != {child}:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    group.kill()
    os.waitpid(child, 0)
    assert group.pids() == set()
    assert not group.ran_out_of_memory()
    group.remove()
    groups.close()


def test_a_start_that_is_tried_again_gets_a_group_that_no_other_task_has():
    groups = cgroups.find("fairlead-test-again")
    if groups is None:
        pytest.skip("no cgroup may be made here")
    groups.remove_when_empty(groups.create("1.0.1"))  # there was no process for it
    other = groups.create("2.0.1")
    again = groups.create("1.0.1")
    assert not set(again.ways_in()) & set(other.ways_in())
    again.remove()
    other.remove()
    groups.close()


def test_a_supervisor_that_says_nothing_is_noticed(request, monkeypatch):
    monkeypatch.setattr("fairlead.engines.local.engine.ASK_EVERY", 0.1)
    bench = request.getfixturevalue("bench")
    bench.end_of(bench.start(Attempt(1, 0, 1), "true"))
    supervisor = supervisor_of(bench.folder)[0].pid
    for _ in range(3):  # it answers when it is asked, with nothing else to do
        heard_at = bench.engine._heard_at
        bench.until(lambda heard_at=heard_at: bench.engine._heard_at > heard_at + 0.1)
    assert bench.engine.trouble is None
    os.kill(supervisor, signal.SIGSTOP)
    try:
        with monkeypatch.context() as hasty:
            hasty.setattr("fairlead.engines.local.engine.SILENT", 1.0)
            bench.until(lambda: bench.engine.trouble is not None)
            assert "no message from the supervisor for" in bench.engine.trouble
    finally:
        os.kill(supervisor, signal.SIGCONT)
    bench.until(lambda: bench.engine.silent_for < 1.0)
    assert bench.engine.trouble is None


def test_a_supervisor_folder_that_was_taken_away_is_made_again(bench):
    supervisor = supervisor_of(bench.folder)[0].pid
    (bench.folder / "supervisor").rename(bench.folder / "taken")  # at once, as somebody may be writing there
    bench.known = None
    with contextlib.suppress(ProcessLookupError):  # it ended by itself, as its folder is gone
        os.kill(supervisor, signal.SIGKILL)
    bench.until(lambda: bench.known is not None)
    assert bench.end_of(bench.start(Attempt(1, 0, 1), "true")) == (Outcome.EXITED, 0)


def test_what_writes_is_paused_while_its_disk_has_no_room_and_goes_on_where_it_was(small_disk):
    disk = small_disk("4m")
    with closing(Bench(disk / "home")) as bench:
        count = "i=0; until test -e go; do i=$((i+1)); echo $i; sleep 0.05; done"
        a, b = (bench.start(Attempt(1, 0, 1), "setsid", "-w", "sh", "-c", count), bench.start(Attempt(1, 1, 1), "sleep", "60"))
        bench.until(lambda: {a, b} <= bench.started)
        for stream in ("out", "err"):  # the other one wrote nothing, but its files are new
            os.utime(disk / "home" / "output" / f"1/1.{stream}", (0, 0))
        with (disk / "ballast").open("wb") as ballast:
            ballast.write(bytes(2**22 - 2**18))
        bench.until(lambda: bench.engine.paused == 1)
        written = bench.wrote(a)
        time.sleep(0.3)
        assert bench.wrote(a) == written
        (disk / "ballast").unlink()
        bench.until(lambda: bench.engine.paused == 0 and bench.wrote(a) != written)
        (bench.folder / "go").touch()
        assert bench.end_of(a) == (Outcome.EXITED, 0)
        lines = bench.wrote(a).split()
        assert lines == [str(i) for i in range(1, len(lines) + 1)]


def test_what_is_paused_can_be_stopped(small_disk):
    disk = small_disk("4m")
    with closing(Bench(disk / "home")) as bench:
        a = bench.start(Attempt(1, 0, 1), "sh", "-c", "trap 'exit 3' TERM; while :; do echo x; sleep 0.05; done")
        bench.until(lambda: a in bench.started)
        with (disk / "ballast").open("wb") as ballast:
            ballast.write(bytes(2**22 - 2**18))
        bench.until(lambda: bench.engine.paused == 1)
        bench.stop(a)
        assert bench.end_of(a) == (Outcome.STOPPED, 3)
        bench.until(lambda: bench.engine.paused == 0)


def test_an_older_or_copied_scheduler_is_turned_away(bench):
    """It starts nothing, stops nothing, and takes the line from nobody."""
    go = bench.folder / "go"
    a = bench.start(Attempt(1, 0, 1), "sh", "-c", f"until test -e {go}; do sleep 0.02; done; exit 3")
    bench.until(lambda: a in bench.started)
    for journal, epoch in (("bench", 1), ("older", 9)):
        if journal == "older":  # it was served before
            served = bench.folder / "supervisor" / "served"
            served.write_text(json.dumps([["older", 9, "x"], *json.loads(served.read_text())]))
        other = LocalEngine(bench.folder, [NODE])
        other.serve(journal, epoch)
        other.stop(columns([a]), 0.0)
        with pytest.raises(Superseded, match=r"obeys another scheduler.*adopt"):
            poll_until_it_knows(other)
        other.close()
        other.join(10)
    go.touch()
    assert bench.end_of(a) == (Outcome.EXITED, 3)


def poll_until_it_knows(engine):
    deadline = time.monotonic() + 120
    while engine.poll().known is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_newer_scheduler_takes_over_and_the_one_before_is_told(bench):
    newer = LocalEngine(bench.folder, [NODE])
    newer.serve("bench", time.monotonic_ns())
    with pytest.raises(Superseded, match="start"):
        bench.until(lambda: False)
    poll_until_it_knows(newer)
    bench.engine.close()
    bench.engine = newer
    assert bench.end_of(bench.start(Attempt(1, 0, 1), "true")) == (Outcome.EXITED, 0)


def test_what_does_not_say_who_it_is_is_not_heard(bench):
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(60)
        stranger.connect(str(bench.folder / "supervisor" / "socket"))
        stranger.sendall(b'{"do": "inventory"}\n')
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
    assert bench.end_of(bench.start(Attempt(1, 0, 1), "true")) == (Outcome.EXITED, 0)


def test_tasks_know_their_size(bench, tmp_path):
    show = ("sh", "-c", f"for name in {SIZES}; do eval echo $name=\\${{$name-none}}; done")
    of = {}
    for number, more in enumerate(({"cpu": 1500, "memory": 1 << 28}, {"cpu": 3000}, {"cpu": 250}, {"cpu": 0, "gpu": 1000})):
        task = Attempt(number + 1, 0, 1)
        bench.start_all([task], replace(bench.job(*show, **more), work=Work(list(show), "/", {"MKL_NUM_THREADS": "7"})))
        assert bench.end_of(task) == (0, 0)
        of[number] = dict(line.split("=") for line in bench.wrote(task).split())
        assert of[number].pop("MKL_NUM_THREADS") == "7", "what somebody has set stays"
    names = SIZES.split()[:3]
    assert [[of[number][name] for name in names] for number in of] == [
        ["1.5", str(1 << 28), "2"], ["3", "none", "3"], ["0.25", "none", "1"], ["none", "none", "none"],
    ]  # fmt: skip


def test_who_asks_for_whole_cores_keeps_to_as_many_that_are_nobody_elses(bench):
    there = os.sched_getaffinity(0)
    gate = ("sh", "-c", "python3 -c 'import os; print(*os.sched_getaffinity(0))'; until test -e go; do sleep 0.02; done")
    tasks = [Attempt(number, 0, 1) for number in range(1, len(there) + 2)]
    for task in tasks:
        bench.start(task, *gate)
        bench.until(lambda task=task: task in bench.started and bench.wrote(task))
    (bench.folder / "go").touch()
    wrote = []
    for task in tasks:
        assert bench.end_of(task) == (0, 0)
        wrote.append({*map(int, bench.wrote(task).split())})
    assert sorted(wrote[:-1], key=min) == [{core} for core in sorted(there)], "each has one of its own"
    assert wrote[-1] == there, "one that finds none is kept to none"
    small = bench.start(Attempt(99, 0, 1), "nproc")
    assert bench.end_of(small) == (0, 0)
    assert bench.wrote(small).strip() == "1"


def test_a_task_says_that_it_has_kept_what_it_did_by_touching_a_file(bench):
    """However it does that; what it writes there is thrown away, and the next task finds the file as if it were new."""
    words = 'echo much > "$FAIRLEAD_CHECKPOINT"; echo $FAIRLEAD_CHECKPOINT; while [ ! -e go ]; do sleep 0.02; done'
    a, quiet = bench.start(Attempt(1, 0, 1), "sh", "-c", words), bench.start(Attempt(2, 0, 1), "sleep", "60")
    told = []
    deadline = time.monotonic() + 60
    while not told:
        seen = bench.engine.poll()
        told += zip(rows(seen.checkpointed), seen.ago.tolist(), strict=True)
        assert time.monotonic() < deadline
        time.sleep(0.01)
    ((attempt, ago),) = told
    assert attempt == a
    assert 0 <= ago < 20_000
    file = Path(bench.wrote(a).strip())
    assert (file.stat().st_size, file.stat().st_mode & 0o777) == (0, 0o600)
    (bench.folder / "go").touch()
    bench.end_of(a)
    os.utime(file)
    b = bench.start(Attempt(3, 0, 1), "sh", "-c", "echo $FAIRLEAD_CHECKPOINT; stat -c %Y $FAIRLEAD_CHECKPOINT")
    assert bench.end_of(b) == (0, 0)
    assert bench.wrote(b) == f"{file}\n0\n"
    bench.stop(quiet)
    bench.end_of(quiet)
    assert len([*file.parent.iterdir()]) == 2, "as many as ran at once"


WHAT_ONE_MAY_TRY = """
import fcntl, os
path = os.environ["FAIRLEAD_CHECKPOINT"]
os.chmod(path, 0o700)
fd = os.open(path, os.O_RDWR)
def tried(name, what, *words):
    try:
        what(*words)
        print(name)
    except OSError:
        pass
tried("leased", fcntl.fcntl, fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
tried("made larger", os.posix_fallocate, fd, 0, 2**20)
tried("made sparse", os.truncate, path, 2**20)
tried("run", os.execv, path, ["x"])
print(os.stat(path).st_blocks, "blocks", flush=True)
os.set_blocking(fd, False)
tried("filled", lambda: [os.write(fd, bytes(65536)) for _ in range(1000)])
os.set_blocking(fd, True)
os.write(fd, bytes(2**17))
os.unlink(path)
os.mkdir(path)
print("written", flush=True)
"""


def test_what_a_task_does_to_its_file_makes_nobody_wait(bench):
    """It is theirs: nothing can be done to it that ends the supervisor, has it wait, or keeps anything on the disk."""
    other, a = bench.start(Attempt(1, 0, 1), "sleep", "60"), Attempt(2, 0, 1)
    bench.until(lambda: other in bench.started)
    bench.start(a, sys.executable, "-c", WHAT_ONE_MAY_TRY)
    assert bench.end_of(a) == (Outcome.EXITED, 0)
    assert bench.wrote(a) == "0 blocks\nwritten\n"
    words = 'stat -c "%F %a" $FAIRLEAD_CHECKPOINT; exec 9<>$FAIRLEAD_CHECKPOINT; setsid sleep 60 & chmod 640 $FAIRLEAD_CHECKPOINT'
    for number in (3, 4):
        next_one = bench.start(Attempt(number, 0, 1), "sh", "-c", words)
        assert bench.end_of(next_one) == (0, 0)
        assert bench.wrote(next_one) == "fifo 600\n", "what somebody changed serves nobody else"
    assert bench.inventory() >= {other}
    assert other not in bench.ended


def test_more_tasks_run_than_one_process_usually_has_files(tmp_path):
    """Tasks themselves may have as many open as ever."""
    usual, few = (
        resource.getrlimit(resource.RLIMIT_NOFILE),
        len([*Path("/proc/self/fd").iterdir()]) + 50,
    )  # tests before left some
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, usual[1]))
    try:
        bench = Bench(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
    with closing(bench):
        many = [Attempt(1, index, 1) for index in range(few)]
        bench.start_all(many, bench.job("sleep", "60"))
        bench.until(lambda: bench.started >= set(many))
        a = bench.start(Attempt(2, 0, 1), "sh", "-c", "ulimit -Sn")
        assert bench.end_of(a) == (Outcome.EXITED, 0)
        assert bench.wrote(a) == f"{few}\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start tasks as other people")
def test_people_touch_the_files_of_their_own_tasks_alone(tmp_path):
    """They are where people may enter; the folder tells nobody what is in it, and a stranger's touch is refused."""
    nobody = pwd.getpwnam("nobody")
    touch = 'touch "$FAIRLEAD_CHECKPOINT" && ls "${FAIRLEAD_CHECKPOINT%/*}"; touch "$OTHER"; while :; do sleep 0.02; done'
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        folder = Path(place) / "socket.checkpoints"
        with closing(Bench(tmp_path, as_people=True, checkpoints=folder)) as bench:
            a, b = Attempt(1, 0, 1), Attempt(2, 0, 1)
            rest = {"user": "nobody", "uid": nobody.pw_uid}
            bench.start_all([b], Job("q", {"cpu": 1000}, work=Work(["sleep", "60"], "/"), user="root", uid=0))
            bench.until(lambda: b in bench.started)
            work = Work(["sh", "-c", touch], "/", {"OTHER": str(folder / "1"), "PATH": os.environ["PATH"]})
            bench.start_all([a], Job("q", {"cpu": 1000}, work=work, **rest))
            bench.until(lambda: a in bench.started)
            seen = []
            deadline = time.monotonic() + 60
            while not seen:
                seen += rows(bench.engine.poll().checkpointed)
                assert time.monotonic() < deadline, bench.wrote(a, "err")
                time.sleep(0.01)
            assert seen == [a]
            assert "Permission denied" in bench.wrote(a, "err")
            assert bench.wrote(a) == "", "what is in the folder is not told"


def test_a_checkpoint_pipe_that_somebody_changed_since_its_task_ended_serves_no_other(tmp_path):
    pipes = Checkpoints(tmp_path)
    changes = (
        lambda path: path.unlink(),
        lambda path: (path.unlink(), path.write_text("another")),
        lambda path: (path.unlink(), os.mkfifo(path, 0o600)),
        lambda path: path.chmod(0o666),
    )
    first = Path(pipes.make((1, 0, 1), None))
    for change in changes:
        pipes.remove([(1, 0, 1)])
        assert Path(pipes.make((1, 0, 1), None)) == first, "one that nobody changed does"
        pipes.remove([(1, 0, 1)])
        change(first)
        before, first = first, Path(pipes.make((1, 0, 1), None))
        assert first != before
        assert not before.exists()
        assert (first.is_fifo(), first.stat().st_mode & 0o777) == (True, 0o600)
        os.utime(first)
        assert pipes.age((1, 0, 1)) is not None


@pytest.mark.parametrize("failing", ["open", "fchown", "utime"])
def test_a_checkpoint_pipe_that_cannot_be_made_leaves_nothing(tmp_path, monkeypatch, failing):
    pipes, ours = Checkpoints(tmp_path), Path("/proc/self/fd")
    open_files = len([*ours.iterdir()])

    def refused(*_):
        raise PermissionError(errno.EPERM, "refused")

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, refused)
        with pytest.raises(PermissionError):
            pipes.make((1, 0, 1), Person("me", os.geteuid()))
    assert ([*(tmp_path / "checkpoints").iterdir()], len([*ours.iterdir()])) == ([], open_files)
    assert Path(pipes.make((1, 0, 1), Person("me", os.geteuid()))).is_fifo()


def test_a_task_is_stopped_by_the_signal_that_its_job_says(bench):
    a = Attempt(1, 0, 1)
    job = replace(bench.job("sh", "-c", "trap 'exit 7' USR1; echo up; while :; do sleep 0.02; done"), signal=signal.SIGUSR1)
    bench.start_all([a], job)
    bench.until(lambda: (bench.folder / "output" / "1" / "0.out").exists() and bench.wrote(a) == "up\n")
    bench.stop(a)
    assert bench.end_of(a) == (Outcome.STOPPED, 7)


def test_a_command_begins_with_the_signals_files_and_limits_of_its_own(bench):
    """However it is started: nothing of the supervisor's that is not meant for it."""
    words = "grep -E '^Sig(Blk|Ign)' /proc/self/status; ls -l /proc/self/fd | wc -l; cat /proc/self/cgroup"
    a, b, copied = bench.start(Attempt(1, 0, 1), "sh", "-c", words), Attempt(2, 0, 1), Attempt(3, 0, 1)
    job = bench.job("sh", "-c", words)
    (bench.folder / "exports").mkdir()
    (bench.folder / "exports" / "kept").write_text("{}")
    bench.start_all([copied], replace(job, work=replace(job.work, export="kept")))  # which takes a copy of the supervisor
    libc_s = 3 << 31  # 32 and 33, which it lets nobody change: they are as they were where the tests began
    for each in (a, copied):
        assert bench.end_of(each) == (0, 0)
        blocked, ignored, files, *groups = bench.wrote(each).splitlines()
        assert not any(int(line.split()[1], 16) & ~libc_s for line in (blocked, ignored)), (blocked, ignored)
        assert files == "5", "0 to 2, the folder that is read, and the line that says how many"
        if bench.engine.limits["tracking"]:
            assert any("/fairlead-" in line for line in groups)
    if bench.engine.limits["tracking"]:
        assert "/fairlead-" not in Path(f"/proc/{supervisor_of(bench.folder)[0].pid}/cgroup").read_text()
    if bench.engine.limits["memory"]:
        small = replace(bench.job("sleep", "60"), demand={"cpu": 10, "memory": 4096})
        bench.start_all([b], small)
        assert bench.end_of(b) == (Outcome.OUT_OF_MEMORY, signal.SIGKILL)


@pytest.mark.parametrize("which", ["bench", "bench_without_cgroups"])
def test_no_output_of_tasks_is_mixed(which, request):
    """Each task's output is what it wrote, whatever is silent beside it."""
    bench, rng, wrote = request.getfixturevalue(which), Random(0), {}
    loud = {"out": "printf %s", "err": "printf %s >&2"}
    for job in range(1, 13):
        attempts = [Attempt(job, index, 1 + rng.randrange(2)) for index in range(4)]
        for attempt in attempts:
            wrote[attempt] = rng.sample(["out", "err"], rng.randrange(3))
            script = "; ".join(loud[stream].replace("%s", f"{job}.{attempt.task}") for stream in wrote[attempt]) or "true"
            bench.start(attempt, "sh", "-c", script)
        for attempt in attempts:
            assert bench.end_of(attempt) == (Outcome.EXITED, 0)
    for attempt, streams in wrote.items():
        for stream in ("out", "err"):
            piece = bench.engine.read_output(attempt.job, attempt.task, stream, 0, 100)
            assert (piece or b"").decode() == (f"{attempt.job}.{attempt.task}" if stream in streams else "")


@pytest.mark.parametrize("path", ["{0}/file:{0}/folder:{0}/good", "{0}/none::{0}/file", "{0}/good"])
def test_a_program_is_found_by_the_path_of_its_own_environment_in_its_own_folder(bench, path):
    """Past what cannot be executed; and the supervisor stays where it is."""
    for folder in ("file", "folder/tool", "good"):
        (bench.folder / folder).mkdir(parents=True)
    (bench.folder / "file" / "tool").write_text("#!/bin/sh\necho bad")
    (bench.folder / "good" / "tool").write_text("#!/bin/sh\necho good\n/bin/pwd")
    (bench.folder / "good" / "tool").chmod(0o755)
    (supervisor,) = supervisor_of(bench.folder)
    before = supervisor.cwd()
    a = bench.start(Attempt(1, 0, 1), "tool", cwd=bench.folder / "good", env={"PATH": path.format(bench.folder)})
    assert bench.end_of(a) == (Outcome.EXITED, 0)
    assert bench.wrote(a) == f"good\n{bench.folder}/good\n"
    assert supervisor.cwd() == before


ON_VERSION_2 = """
for mount in $(awk '$3 == "cgroup" {print $2}' /proc/mounts); do umount "$mount" || exit 77; done
grep -q ' cgroup2 ' /proc/mounts || exit 77
exec "$@"
"""


@pytest.mark.timeout(300)
def test_on_cgroups_of_version_2_a_task_is_born_and_ends_alike():
    """Where those of version 1 are mounted they have the limits: so this is of being born in a group, and of ending with it."""
    names = "a_command_begins_with or left_behind_by_a_task_that_detaches_its_children or nothing_outlives"
    chosen = ["-n", "0", "-p", "no:cacheprovider", "-p", "no:leftovers", "-k", names, __file__]
    script = ["unshare", "-m", "sh", "-c", ON_VERSION_2, "sh", sys.executable, "-m", "pytest", *chosen]
    done = subprocess.run(script, capture_output=True, text=True, timeout=250, check=False)
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip("there are no cgroups of version 2 here, or they cannot be had alone")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert " passed" in done.stdout


def test_a_group_is_kept_for_other_tasks_only_once_nobody_may_join_it(tmp_path):
    """Also one that was forked into it and has not come there yet, as by `exec` into a task that ends just then."""
    mine = cgroups.Hierarchy(tmp_path, 1, memory=False, cpu=False)
    groups, left = ProcessGroups(tmp_path, None, selector := selectors.DefaultSelector()), []
    idle = cgroups.Idle()
    (tmp_path / "group").mkdir()
    (tmp_path / "group" / "tasks").touch()
    group = ProcessGroup(0, cgroups.Group(cgroups.Made([(mine, str(tmp_path / "group"))], 7), idle), "mark")
    group.cgroup.keep_open()
    group.cgroup.limit(0, 0)
    program, null = Program(["/bin/true"], "/", {"PATH": "/bin"}, "utf-8"), os.open(os.devnull, os.O_RDWR)
    spec = ProcessSpec(Limits(0, 0, 0, 0, []), {}, [], "", None, "", [])
    feeder = Feeder(selector, print)
    feeder.theirs = null
    pid = groups.attach(group, program, spec, [null, null], feeder, lambda *why: left.append(why), left.append)
    assert not group.cgroup.remove()
    assert idle.take(7) is None
    while not left:
        for key, _ in selector.select(10):
            key.data()
    os.waitpid(pid, 0)
    os.close(null)
    (tmp_path / "group" / "tasks").write_text("")  # the child has written to it, as one joins a group
    assert group.cgroup.remove()
    assert idle.take(8) is None, "it serves the tasks of one person"
    made = idle.take(7)
    assert made is not None
    idle.keep(made)
    (tmp_path / "group").rename(tmp_path / "gone")
    (tmp_path / "group").mkdir()
    assert idle.take(7) is None, "another has its name"


def test_a_group_serves_its_next_task_with_its_whole_quota(tmp_path):
    """Else a start waits for what the last task used of it. The kernel fills a quota again when it is written."""
    (folder := tmp_path / "group").mkdir()
    for name in ("tasks", *cgroups.LIMITS[:2]):
        (folder / name).touch()
    mine = cgroups.Hierarchy(tmp_path, 1, memory=False, cpu=True)
    group = cgroups.Group(cgroups.Made([(mine, str(folder))], 7), idle := cgroups.Idle())
    group.keep_open()
    group.limit(0, 500)
    os.utime(quota := folder / "cpu.cfs_quota_us", (0, 0))
    assert group.remove()
    assert quota.stat().st_mtime > 0
    for program in ("", "import time\nwhile time.process_time() < 0.03: pass"):
        os.utime(quota, (0, 0))
        if program:
            subprocess.run([sys.executable, "-ISc", program], check=True)
        assert cgroups.Group(idle.take(7, 0, 500), idle).remove()
        assert (quota.stat().st_mtime > 0) is bool(program), "more than a half of 50 ms were used"
    cgroups.Group(idle.take(7, 0, 500), None).remove()


def test_a_program_with_little_cpu_is_forked(tmp_path):
    """In a spawn it would keep a thread of the supervisor waiting for the next period, and all starts after it."""
    null, setups = os.open(os.devnull, os.O_RDWR), {}
    mine, tasks = cgroups.Hierarchy(tmp_path, 1, memory=False, cpu=True), f"{tmp_path}/tasks"
    spec = ProcessSpec(Limits(0, 0, 0, 0, []), {}, [], "", None, "", [])
    for cpu in (0, 99, 100):
        group = cgroups.Group(cgroups.Made([(mine, str(tmp_path))], 7, 0, cpu, {tasks: null}))
        setups[cpu] = ChildSetup(spec, None, group, StartRecord(null, b"["))
    program = Program(["true"], "/", {}, "utf-8")
    assert [prepared(program, [null, null], setup) is None for setup in setups.values()] == [False, True, False]
    os.close(null)


def test_a_program_is_kept_to_cores_of_a_large_machine(tmp_path):
    out = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT)
    here = min(os.sched_getaffinity(0))
    for cores, seen in (([here, 1500], [here]), ([], sorted(os.sched_getaffinity(0)))):
        spec = ProcessSpec(Limits(0, 0, 0, 0, []), {}, [], "", None, "", cores)
        printed = "import os; print(sorted(os.sched_getaffinity(0)))"
        program = Program([sys.executable, "-ISc", printed], "/", {}, "utf-8")
        start = prepared(program, [out, out], ChildSetup(spec, None, None, StartRecord(out, b"\n[")))
        assert os.waitpid(start().pid(), 0)[1] == 0
        assert os.pread(out, 10_000, 0).decode().splitlines()[-1] == str(seen)
    os.close(out)


def test_threads_start_all_programs_but_the_last(tmp_path):
    """That one starts when somebody waits for it: so a start alone changes no thread."""
    null, spool = os.open(os.devnull, os.O_RDWR), os.open(tmp_path / "spool", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    more = [b"/", [b"true"], [], [], [], b"", [null] * 3, b"", b"", -1, 2, spool, b"["]
    paths = [[b"/bin/true"], [b"/no/such"], [b"/bin/true"]]
    first, wrong, last = [vfork.Start(each, *more) for each in paths]
    while first.pid(wait=False) is None or wrong.pid(wait=False) is None:
        time.sleep(0.001)
    assert last.pid(wait=False) is None
    pids = [each.pid() for each in (first, wrong, last)]
    assert wrong.pid() == 0, "and it is reaped"
    assert [os.waitpid(pid, 0)[1] for pid in pids if pid] == [0, 0]
    recorded = [json.loads(line)[0] for line in os.pread(spool, 100, 0).split()]
    assert len(recorded) == 3
    assert set(recorded) > {pids[0], pids[2]}
    os.close(null)
    os.close(spool)


def test_a_controller_that_is_mounted_in_several_places_is_used_once(monkeypatch):
    """As on a machine with a chroot that has /sys: a program has room for one way into each."""
    read, name = Path.read_text, f"fairlead-test-mounts-{os.getpid()}"
    monkeypatch.setattr(Path, "read_text", lambda path: read(path) * (5 if path.name == "mountinfo" else 1))
    if (groups := cgroups.find(name)) is None:
        pytest.skip("no cgroup may be made here")
    group = groups.create("1.0.1")
    ways = group.ways_in()
    assert group.remove()
    groups.close()
    assert sorted(ways) == sorted(set(ways))


def test_a_group_of_which_a_part_is_gone_is_not_kept_for_other_tasks(tmp_path):
    """Its last process ended between two attempts to remove its folders."""
    idle, mine = cgroups.Idle(), cgroups.Hierarchy(tmp_path, 1, memory=False, cpu=False)
    for name in ("cpu", "other"):
        (tmp_path / name).mkdir()
    tasks = tmp_path / "cpu" / "tasks"
    tasks.write_text("1\n")
    for name in ("cpu", "other"):
        (tmp_path / name / "tasks").touch()
    group = cgroups.Group(cgroups.Made([(mine, str(tmp_path / "cpu")), (mine, str(tmp_path / "other"))], 7), idle)
    group.keep_open()
    (tmp_path / "other" / "tasks").unlink()
    assert not group.remove()
    assert not (tmp_path / "other").exists()
    tasks.write_text("")
    assert not group.remove()
    assert idle.take(7) is None
    tasks.unlink()
    assert group.remove()


def test_a_connection_that_breaks_is_not_said_to_be_the_end_of_the_supervisor(bench, caplog):
    def said(text):
        return sum(record.message == text for record in caplog.records)

    bench.known = None
    bench.engine._connections.renew("supervisor")
    bench.until(lambda: bench.known is not None)
    assert said("the connection to the supervisor broke: connecting again") == 1
    assert said("no supervisor answers: starting another") == 0
    (supervisor,) = supervisor_of(bench.folder)
    bench.known = None
    supervisor.kill()
    bench.until(lambda: bench.known is not None)
    assert said("no supervisor answers: starting another") == 1
