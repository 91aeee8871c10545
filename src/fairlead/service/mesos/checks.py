"""The program that a task with a health check starts as: it runs the task's command, and another beside it, again and again.

It runs as whom the task runs, within what the task may use, and ends as the command does. What it sees it says as an executor
does, over the executor API; what cannot be said is said later. It knows nothing of fairlead but its arguments: what is to be
checked and where that is told, as JSON, and the command. A check by HTTP or TCP is this program again, for a moment; so is what
says of a task that its command was never run.
"""

import base64
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

AGAIN = 1.0
"""Seconds after which what could not be said is said again."""
WAIT = 5.0
"""Seconds that an answer may take."""
PROBE = "--probe"
"""The first argument of what checks by HTTP or TCP."""
NEVER_RUN = "--never-run"
"""The first argument of what says that a command was not run, and ends as what has failed."""
HEALTHY = range(200, 400)
"""Statuses that are well, where the check names none."""
LONGEST_LINE = 65536
TRIES = 3
"""How often it is tried to say that the command is to be killed, before it is."""
LATEST = 3600.0
"""Seconds after the command was killed for which it is tried to say so."""
MOST_WAITING = 1000
"""So much of what could not be said yet is kept: the latest."""


class Speaker:
    """Says things of one task, in their order."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self._asked = asked
        self.waiting: list[bytes] = []
        self._trouble = ""

    def add(self, state: str, healthy: bool, message: str) -> None:
        """What became of the task by its health is to be said."""
        reason = {"reason": "REASON_TASK_HEALTH_CHECK_STATUS_UPDATED"} if state == "TASK_RUNNING" else {}
        self.add_status(state=state, healthy=healthy, message=message, **reason)

    def add_status(self, **said: str | bool) -> None:
        """Something is to be said."""
        status = {
            "task_id": {"value": self._asked["task"]},
            "source": "SOURCE_EXECUTOR",
            "uuid": base64.b64encode(os.urandom(16)).decode(),
            "timestamp": time.time(),
            **said,
        }
        call = {"type": "UPDATE", "update": {"status": status}}
        named = {"framework_id": self._asked["framework"], "executor_id": self._asked["task"]}
        self.waiting.append(json.dumps({**call, **{key: {"value": name} for key, name in named.items()}}).encode())
        del self.waiting[:-MOST_WAITING]

    def say(self) -> None:
        """Say what waits, as far as it is heard; what is refused is not said again."""
        try:
            while self.waiting:
                status, text = self._post(self.waiting[0])
                if status >= 500:
                    return
                self.waiting.pop(0)
                if status >= 400:
                    _note(f"what is to be told of this task is not taken: {status} {text}")
        except OSError as error:  # nobody is there just now
            if str(error) != self._trouble:
                self._trouble = str(error)
                _note(f"what is to be told of this task cannot be told now: {error}")

    def _post(self, body: bytes) -> tuple[int, str]:
        host, _, port = self._asked["endpoint"].rpartition(":")
        token = os.environ["MESOS_EXECUTOR_AUTHENTICATION_TOKEN"]
        head = (
            f"POST /api/v1/executor HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        with self._connected(host.strip("[]"), int(port)) as connection:
            connection.sendall(head.encode() + body)
            answer = bytearray()
            while piece := connection.recv(4096):
                answer += piece
        words = answer.split(maxsplit=2)
        if len(words) < 3 or not words[1].isdigit():
            raise OSError("no answer")
        return int(words[1]), answer.rpartition(b"\r\n\r\n")[2].decode("utf-8", "replace")

    def _connected(self, host: str, port: int) -> socket.socket:
        connection = socket.create_connection((host, port), timeout=WAIT)
        if not self._asked["certificate"]:
            return connection
        import ssl  # which takes megabytes of what the task may have

        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname = False  # no certificate but this one is trusted, whatever it is called there
        trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        trusting.load_verify_locations(cadata=self._asked["certificate"])
        return trusting.wrap_socket(connection, server_hostname=host)


class Watch:
    """The command, and what is known of it.

    Attributes
    ----------
    stopping : bool
        Whether it was told to end.
    """

    def __init__(self, command: list[str], speaker: Speaker) -> None:
        self._read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._stop)
        self.stopping = False
        self.speaker = speaker
        self.child = subprocess.Popen(command)

    def _stop(self, *_: object) -> None:
        self.stopping = True

    @property
    def over(self) -> bool:
        """Whether the command has ended."""
        return self.child.poll() is not None

    def wait(self, until: float, other: "subprocess.Popen[bytes] | None" = None) -> bool:
        """Wait until then, or the command or the other process ends; whether it was for as long. What waits is said meanwhile."""
        while not self.over and (other is None or other.poll() is None):
            left = until - time.monotonic()
            if left <= 0:
                return True
            if self.speaker.waiting:
                self.speaker.say()
                left = min(left, AGAIN) if self.speaker.waiting else left
            self._sleep(left)
        return False

    def _sleep(self, seconds: float) -> None:
        """Wait for a signal, of a process that has ended or to end, or so long."""
        select.select([self._read], [], [], seconds)
        with suppress(BlockingIOError):
            os.read(self._read, 4096)

    def check(self, asked: dict[str, Any]) -> str | None:
        """Run a check; what is wrong with the command by it, None where nothing is."""
        timeout = asked["timeout"] or 1e9
        with _running(asked["argv"], asked["env"]) as made:
            if self.wait(time.monotonic() + timeout, made):
                return f"the check has not ended after {timeout:g} s"
            code = made.poll()
        return None if code == 0 or self.over else f"the check exited with status {code}"

    def kill(self, grace: float) -> None:
        """End the command, and all that it started; then say what waits, unless told to end, or nobody comes to hear it."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
        self.wait(time.monotonic() + grace)
        signal.signal(signal.SIGTERM, self._stop)
        _kill_the_others()
        self.child.wait()
        until = time.monotonic() + LATEST
        while self.speaker.waiting and not self.stopping and time.monotonic() < until:
            self.speaker.say()
            if self.speaker.waiting:
                self._sleep(AGAIN)


def _kill_the_others() -> None:
    """Kill all of the group of this process but itself, also what they start meanwhile."""
    done = {os.getpid()}
    while found := _group() - done:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        done |= found


def _group() -> set[int]:
    """The processes in the group of this one."""
    there = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 names are enough
    return {pid for pid in there if _group_of(pid) == os.getpgid(0)}


def _group_of(pid: int) -> int:
    with suppress(ProcessLookupError):
        return os.getpgid(pid)
    return 0  # it has ended meanwhile


@contextmanager
def _running(argv: list[str], env: dict[str, str]) -> "Iterator[subprocess.Popen[bytes]]":
    """A check, which is ended with all of its group."""
    made = subprocess.Popen(argv, env={**os.environ, **env}, stdin=subprocess.DEVNULL, process_group=0)
    try:
        yield made
    finally:
        with suppress(ProcessLookupError):
            os.killpg(made.pid, signal.SIGKILL)
        made.wait()


def watch(it: Watch, asked: dict[str, Any]) -> None:
    """Check until the command ends, or has failed too often. As Mesos has it, what fails before a first success is passed over
    for a while.
    """
    began, next_at = time.monotonic(), time.monotonic() + asked["delay"]
    failures, counts = 0, False
    while it.wait(next_at) and not it.stopping:
        try:
            wrong = it.check(asked)
        except OSError as error:
            wrong = f"the check cannot be run: {error.strerror}"
        if it.over or it.stopping:
            break
        next_at = time.monotonic() + asked["interval"]
        if wrong is None:
            if failures or not counts:
                it.speaker.add("TASK_RUNNING", True, "the health check succeeded")
            failures, counts = 0, True
        elif counts or time.monotonic() - began > asked["grace_period"]:
            failures, counts = failures + 1, True
            it.speaker.add("TASK_RUNNING", False, wrong)
            if failures >= asked["failures"]:
                it.speaker.add("TASK_KILLED", False, f"unhealthy: {failures} checks in a row have failed: {wrong}")
                for _ in range(TRIES):
                    it.speaker.say()
                it.kill(asked["grace"])
    it.child.wait()


def probe(asked: dict[str, Any]) -> str | None:
    """What is wrong with what answers at a port of this machine; None where nothing is. The caller ends it when it takes long."""
    with socket.create_connection(("127.0.0.1", asked["port"])) as connection:
        if asked["type"] == "TCP":
            return None
        line = _asked(connection, asked)
    words = line.split(maxsplit=2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        return "there is no answer of HTTP"
    status = int(words[1])
    return None if status in (asked["statuses"] or HEALTHY) else f"the answer has status {status}"


def _asked(connection: socket.socket, asked: dict[str, Any]) -> bytes:
    """The first line of the answer to a GET."""
    if asked["scheme"] == "https":
        import ssl  # which takes megabytes of what the task may have

        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE  # as in Mesos: it is the task's own
        connection = trusting.wrap_socket(connection, server_hostname="127.0.0.1")
    head = f"GET {asked['path']} HTTP/1.1\r\nHost: 127.0.0.1:{asked['port']}\r\nConnection: close\r\n\r\n"
    connection.sendall(head.encode())
    answer = b""
    while b"\n" not in answer and len(answer) < LONGEST_LINE and (piece := connection.recv(4096)):
        answer += piece
    return answer.partition(b"\n")[0]


def say_never_run(asked: dict[str, Any], why: str) -> None:
    """Say that the command was not run; where nobody hears it in a while, that it failed is all that is known."""
    speaker = Speaker(asked)
    reason = "REASON_CONTAINER_LAUNCH_FAILED"
    speaker.add_status(state="TASK_FAILED", message=f"Failed to launch container: {why}", reason=reason)
    for _ in range(TRIES):
        speaker.say()
        if not speaker.waiting:
            break
        time.sleep(AGAIN)


def _note(text: str) -> None:
    print(f"fairlead: {text}", file=sys.stderr, flush=True)  # noqa: T201 what the task wrote


def main() -> None:
    """Run the command and check it: ``checks.py JSON COMMAND...``; end as it does. Or check once: ``checks.py --probe JSON``; or
    say why the command is not run: ``checks.py --never-run JSON WHY``.
    """
    if sys.argv[1] == PROBE:
        try:
            wrong = probe(json.loads(sys.argv[2]))
        except OSError as error:
            wrong = str(error)
        if wrong is not None:
            _note(f"health check: {wrong}")
        sys.exit(wrong is not None)
    if sys.argv[1] == NEVER_RUN:
        say_never_run(json.loads(sys.argv[2]), sys.argv[3])
        sys.exit(1)
    asked, command = json.loads(sys.argv[1]), sys.argv[2:]
    try:
        it = Watch(command, Speaker(asked))
    except OSError as error:
        _note(f"cannot run {command[0]!r}: {error.strerror}")
        sys.exit(127)
    watch(it, asked)
    code = it.child.returncode
    if code < 0:
        with suppress(OSError):  # SIGKILL has no other
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
