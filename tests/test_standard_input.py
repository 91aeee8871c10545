"""What tasks read: a pipe or a terminal, fed piece by piece; and `fairlead run`, which hands its own on."""

import base64
import fcntl
import hashlib
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import closing, suppress
from dataclasses import dataclass

import psutil
import pytest
from msgspec.structs import replace

from conftest import FAIRLEAD
from fake_engine import Attempt
from test_local_engine import Bench


@dataclass
class Fed:
    """Feeds one task of a bench, as the service does."""

    bench: Bench
    task: Attempt

    def send(self, data=b"", offset=0, end=False, size=None, least=None, over=None):
        """What was taken and whether that is all, once it is as much as it must come to."""
        least = offset + len(data) if least is None else least
        deadline = time.monotonic() + 60
        text = base64.b64encode(data).decode()
        while True:
            self.ask(offset=offset, data=text, end=end, size=size)  # answered at the latest when the next question comes
            with suppress(TimeoutError):
                found = self.ask(offset=0, data="", end=False, size=None).result(1)
                if found.over if over else found.taken >= least or found.over:
                    return found.taken, found.over
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def ask(self, **piece):
        return self.bench.engine.ask_stream(tuple(self.task), "feed", stream="", **piece)


@pytest.fixture
def bench(tmp_path):
    with closing(Bench(tmp_path)) as bench:
        yield bench


def begin(bench, kind, *argv):
    task = Attempt(1, 0, 1)
    job = bench.job(*argv)
    bench.start_all([task], replace(job, work=replace(job.work, input=kind)))
    bench.until(lambda: task in bench.started)
    return Fed(bench, task)


def test_a_task_reads_what_it_is_fed_once_and_in_order(bench):
    fed = begin(bench, "pipe", "cat")
    assert fed.send(b"one\n") == (4, False)
    assert fed.send(b"one\n") == (4, False), "a piece that comes twice is taken once"
    assert fed.send(b"e\ntwo\n", offset=2) == (8, False), "of one that overlaps, what is new"
    assert fed.send(b"far\n", offset=100, least=0) == (8, False), "after a gap nothing is taken"
    assert fed.send(offset=8, end=True, over=True) == (8, True)
    assert bench.end_of(fed.task) == (0, 0)
    assert bench.wrote(fed.task) == "one\ntwo\n"
    assert fed.send(b"late", offset=8) == (0, True)


def test_a_task_that_does_not_read_keeps_nobody_waiting(bench):
    fed = begin(bench, "pipe", "sh", "-c", "until test -e go; do sleep 0.02; done; wc -c")
    piece = b"x" * 300_000
    taken, over = fed.send(piece, least=65536)
    assert 65536 <= taken < len(piece)
    assert not over
    other = bench.start(Attempt(2, 0, 1), "echo", "meanwhile")
    assert bench.end_of(other) == (0, 0)
    (bench.folder / "go").touch()
    assert fed.send(piece, least=len(piece)) == (len(piece), False)
    fed.send(offset=len(piece), end=True, over=True)
    assert bench.end_of(fed.task) == (0, 0)
    assert bench.wrote(fed.task).strip() == str(len(piece))


def test_nothing_is_taken_by_a_task_that_closed_its_input(bench):
    fed = begin(bench, "pipe", "sh", "-c", "exec <&-; until test -e go; do sleep 0.02; done")
    assert fed.send(b"x", over=True)[1]
    (bench.folder / "go").touch()
    assert bench.end_of(fed.task) == (0, 0)


def test_a_terminal_has_a_size_control_and_signals(bench):
    fed = begin(bench, "terminal", "bash", "--norc", "-i")
    sent = 0

    def type_in(text, *awaited):
        nonlocal sent
        fed.send(text, offset=sent)
        sent += len(text)
        bench.until(lambda: all(each in bench.wrote(fed.task) for each in awaited))

    fed.send(size=(41, 97), least=0)
    type_in(b"stty size; test -t 0 && test -t 1 && test -t 2 && echo te'r'minal\r", "41 97", "\nterminal")
    type_in(b"sleep 100\r", "sleep 100")
    bench.until(lambda: ("sleep",) in _children(bench, "name"))
    type_in(b"\x1a", "Stopped")
    type_in(b"fg\r")
    bench.until(lambda: ("sleep", "stopped") not in _children(bench, "name", "status"))
    type_in(b"\x03")
    type_in(b"echo o'n'ward; exit 5\r", "onward")
    assert bench.end_of(fed.task) == (0, 5)
    assert fed.send(offset=sent, least=0)[1]


def _children(bench, *what):
    found = []
    for each in psutil.process_iter(["environ", *what]):
        if f"{bench.folder}/supervisor:1.0.1" in (each.info["environ"] or {}).get("FAIRLEAD_ATTEMPT", ""):
            found.append(tuple(each.info[name] for name in what))
    return found


def test_stopped_its_terminal_hangs_up_and_what_it_wrote_last_is_there(bench):
    fed = begin(bench, "terminal", "bash", "--norc", "-c", "trap '' TERM; trap 'echo hung; exit 3' HUP; echo here; read line")
    bench.until(lambda: "here" in bench.wrote(fed.task))
    bench.stop(fed.task)
    assert bench.end_of(fed.task)[1] == 3
    assert bench.wrote(fed.task) == "here\nhung\n"


def test_run_hands_on_a_pipe_and_a_file(idle):
    assert idle.call("run", "-q", "A", "--", "tr", "a-z", "A-Z", input="one\ntwo\n").stdout == "ONE\nTWO\n"
    large = idle.folder / "large"
    large.write_bytes(os.urandom(3_000_000))
    with large.open("rb") as file:
        result = subprocess.run(
            [FAIRLEAD, "run", "-q", "A", "--", "sha256sum"], env=idle.env, stdin=file, capture_output=True, check=True, timeout=60
        )
    assert result.stdout.split()[0].decode() == hashlib.sha256(large.read_bytes()).hexdigest()
    for closed in ("</dev/null", "<&-"):
        assert idle.shell(f"fairlead run -q A -- cat {closed}; echo $?").stdout == "0\n"
    open_still = idle.start("run", "-q", "A", "--", "true", stdin=subprocess.PIPE)
    assert open_still.wait(timeout=60) == 0, "nobody waits for more input than is read"
    open_still.stdin.close()


def test_run_exits_as_its_task_did_whatever_that_is(idle):
    for code in (0, 2, 130, 255):
        assert idle.call("run", "-q", "A", "--", "sh", "-c", f"exit {code}", input="").returncode == code


def test_run_ends_its_task_when_nobody_reads_it_any_more(idle):
    endless = idle.shell("fairlead run -q A -- sh -c 'while echo y; do :; done' </dev/null | head -n 2")
    assert endless.stdout == "y\ny\n"
    assert endless.stderr == ""
    quiet = idle.shell("fairlead run -q A -- sh -c 'echo one; exec sleep 60' </dev/null | head -n 1")
    assert quiet.stdout == "one\n"
    for job in (idle.newest(), idle.newest() - 1):
        assert idle.job(job)["status"] == "cancelled", "the shell waited for `run`, and that for the end"


LATE = "trap 'sleep 0.3; echo last; exit 0' TERM; echo begun; while :; do sleep 0.05; done"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_told_to_end_run_ends_its_task_and_waits_for_that(idle, number):
    process = idle.start("run", "-q", "A", "--", "sh", "-c", LATE, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"begun\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert idle.job(idle.newest())["status"] == "cancelled"
    if number == signal.SIGHUP:
        assert (out, err) == (b"", b""), "its terminal is gone"
    else:
        assert out == b"last\n"
        assert err.decode().endswith(f"fairlead: job {idle.newest()} is cancelled\n")


INTERRUPTED = """
import signal
import sys
from fairlead.cli.streams import safe_streams

class Came(Exception):
    pass

def hear(number, frame):
    if frame.f_code.co_name == "write":
        raise Came

signal.signal(signal.SIGUSR1, hear)
with safe_streams():
    for k in range(300):
        try:
            sys.stdout.buffer.write(b"%d\\n" % k)
            sys.stdout.buffer.flush()
        except Came:
            pass
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
"""


def test_what_is_written_when_a_signal_comes_is_written_once():
    """Each line that is read is answered with a signal, so that it comes just when the line was written."""
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, bufsize=0)
    seen = []
    while line := process.stdout.readline():
        process.send_signal(signal.SIGUSR1)
        seen.append(int(line))
    assert (process.wait(60), seen) == (0, list(range(300)))


def is_a_terminal(live, *argv):
    """Use a shell in a terminal whose size changes, and Ctrl-C; it ends with 9, and leaves the terminal as it was."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("4H", 33, 77, 0, 0))
    words, env = [FAIRLEAD, *argv, "--", "bash", "--norc", "-i"], {**live.env, "TERM": "vt100"}
    process = subprocess.Popen(words, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    live.beside.append(process)
    before, seen = termios.tcgetattr(theirs), b""

    def until(text):
        nonlocal seen
        deadline = time.monotonic() + 60
        while text not in seen:
            ready, _, _ = select.select([ours], [], [], 0.1)
            seen += os.read(ours, 4096) if ready else b""
            assert time.monotonic() < deadline, seen

    until(b"bash")
    os.write(ours, b"stty size; echo $TERM\r")
    until(b"33 77\r\nvt100")
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("4H", 44, 99, 0, 0))
    process.send_signal(signal.SIGWINCH)
    os.write(ours, b"sleep 0.3; stty size\r")
    until(b"44 99")
    os.write(ours, b"sh -c 'echo be\"\"gun; exec sleep 100'\r")
    until(b"begun")
    os.write(ours, b"\x03echo $((6*7)); exit 9\r")
    until(b"42")
    assert process.wait(timeout=60) == 9
    assert termios.tcgetattr(theirs) == before, "the terminal is as it was"
    os.close(ours)
    os.close(theirs)


def test_run_is_a_terminal_when_asked_to_be(idle):
    assert idle.call("run", "--pty", "-q", "A", "--", "true", input="").stderr.startswith("fairlead: standard input is no")
    is_a_terminal(idle, "run", "--pty", "-q", "A")
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("4H", 33, 77, 0, 0))
    command = [FAIRLEAD, "run", "--pty", "-q", "A", "--", "stty", "size"]
    assert subprocess.run(command, env=idle.env, stdin=theirs, stdout=theirs, check=False, timeout=60).returncode == 0
    assert os.read(ours, 4096) == b"33 77\r\n", "as the command begins"
    os.close(ours)
    os.close(theirs)


def test_run_ends_as_its_terminal_does(idle):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "-c", FAIRLEAD, "run", "--pty", "-q", "A", "--", "sh", "-c", "echo begun; exec sleep 600"],
        env=idle.env, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    idle.beside.append(process)
    os.close(theirs)
    seen = b""
    while b"begun" not in seen:
        seen += os.read(ours, 4096)
    os.close(ours)
    assert (process.wait(timeout=60), process.stderr.read()) == (129, "")
    assert idle.job(idle.newest())["status"] == "cancelled"


def test_who_does_not_wait_for_the_end_is_not_told_of_it(idle):
    stubborn = "trap '' TERM; trap 'echo told' INT; echo begun; while :; do sleep 0.05; done"
    process = idle.start("run", "-q", "A", "--", "sh", "-c", stubborn, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"begun\n"
    process.send_signal(signal.SIGINT)
    job = idle.newest()
    idle.until(lambda: idle.ask(f"jobs/{job}/tasks")["tasks"][0]["status"] == "stopping")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert err.decode().endswith(f"job {job} is being cancelled; did not wait for its end\n")
    assert process.returncode == 130


def test_what_starts_again_reads_a_file_again_and_a_pipe_never(idle):
    script = "head -c 4; touch began$FAIRLEAD_NUMBER; until test -e go; do sleep 0.02; done; cat"
    whole = idle.folder / "whole"
    whole.write_text("one\ntwo\n")
    for kind in ("file", "pipe"):
        for left in [*idle.folder.glob("began*"), *idle.folder.glob("go")]:
            left.unlink()
        given = whole.open("rb") if kind == "file" else subprocess.PIPE
        process = idle.start("run", "-q", "A", "--", "sh", "-c", script, stdin=given, stderr=subprocess.PIPE)
        if kind == "pipe":
            process.stdin.write(whole.read_bytes())
            process.stdin.close()
            process.stdin = None
        idle.until((idle.folder / "began1").exists)
        for each in idle.supervisor():
            each.kill()
        if kind == "file":
            idle.until((idle.folder / "began2").exists)
            (idle.folder / "go").touch()
        out, err = process.communicate(timeout=60)
        if kind == "file":
            assert (process.returncode, out) == (0, b"one\none\ntwo\n")
        else:
            assert process.returncode == 1
            assert b"could not read the same input from a pipe again: it is cancelled" in err
