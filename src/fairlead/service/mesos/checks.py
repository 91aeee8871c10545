"""The program that runs a task with a health check: it runs the task's command, and the check beside it, repeatedly.

It runs as the task's user, within the task's limits, and ends as the command does. It reports results over the executor API, as
an executor does, and retries. It imports nothing of fairlead. Its arguments are the check and the endpoint as JSON, and the
command. It also serves as the HTTP and TCP probe, and reports that a command was never run.
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

RETRY_SECONDS = 1.0
"""Between two attempts to report."""
ANSWER_SECONDS = 5.0
"""How long an answer may take."""
PROBE = "--probe"
"""First argument of a probe by HTTP or TCP."""
NEVER_RUN = "--never-run"
"""First argument to report that a command was not run; the program then exits as failed."""
HEALTHY = range(200, 400)
"""Healthy statuses, unless the check lists others."""
LONGEST_LINE = 65536
TRIES = 3
"""How often a kill is reported before it is done."""
REPORT_SECONDS = 3600.0
"""How long after the kill reporting continues."""
MOST_WAITING = 1000
"""Reports that are kept until they can be sent; the latest."""


class Speaker:
    """Reports updates of one task, in order."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self._asked = asked
        self.waiting: list[bytes] = []
        self._trouble = ""

    def add(self, state: str, healthy: bool, message: str) -> None:
        reason = {"reason": "REASON_TASK_HEALTH_CHECK_STATUS_UPDATED"} if state == "TASK_RUNNING" else {}
        self.add_status(state=state, healthy=healthy, message=message, **reason)

    def add_status(self, **said: str | bool) -> None:
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
        """Send queued updates as far as possible; refused ones are dropped."""
        try:
            while self.waiting:
                status, text = self._post(self.waiting[0])
                if status >= 500:
                    return
                self.waiting.pop(0)
                if status >= 400:
                    _note(f"an update of this task was refused: {status} {text}")
        except OSError as error:  # the scheduler is unreachable
            if str(error) != self._trouble:
                self._trouble = str(error)
                _note(f"updates of this task cannot be sent now: {error}")

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
        connection = socket.create_connection((host, port), timeout=ANSWER_SECONDS)
        if not self._asked["certificate"]:
            return connection
        import ssl  # uses megabytes of the task's memory

        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname = False  # only this certificate is trusted, under any name
        trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        trusting.load_verify_locations(cadata=self._asked["certificate"])
        return trusting.wrap_socket(connection, server_hostname=host)


class Watch:
    """The command and its state.

    stopping : True after SIGTERM
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
        return self.child.poll() is not None

    def wait(self, until: float, other: "subprocess.Popen[bytes] | None" = None) -> bool:
        """Wait until a time; return False if the command or the other process ends first. Sends queued updates meanwhile."""
        while not self.over and (other is None or other.poll() is None):
            left = until - time.monotonic()
            if left <= 0:
                return True
            if self.speaker.waiting:
                self.speaker.say()
                left = min(left, RETRY_SECONDS) if self.speaker.waiting else left
            self._sleep(left)
        return False

    def _sleep(self, seconds: float) -> None:
        """Wait for a signal, such as SIGCHLD or SIGTERM, or until the time is over."""
        select.select([self._read], [], [], seconds)
        with suppress(BlockingIOError):
            os.read(self._read, 4096)

    def check(self, asked: dict[str, Any]) -> str | None:
        """Run a check; return what is wrong with the command, or None."""
        timeout = asked["timeout"] or 1e9
        with _running(asked["argv"], asked["env"]) as made:
            if self.wait(time.monotonic() + timeout, made):
                return f"the check has not ended after {timeout:g} s"
            code = made.poll()
        return None if code == 0 or self.over else f"the check exited with status {code}"

    def kill(self, grace: float) -> None:
        """End the command and everything it started; then send queued updates, until SIGTERM or `REPORT_SECONDS` have passed."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
        self.wait(time.monotonic() + grace)
        signal.signal(signal.SIGTERM, self._stop)
        _kill_the_others()
        self.child.wait()
        until = time.monotonic() + REPORT_SECONDS
        while self.speaker.waiting and not self.stopping and time.monotonic() < until:
            self.speaker.say()
            if self.speaker.waiting:
                self._sleep(RETRY_SECONDS)


def _kill_the_others() -> None:
    """Kill the rest of this process group, including what it starts meanwhile."""
    done = {os.getpid()}
    while found := _group() - done:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        done |= found


def _group() -> set[int]:
    found = set()
    for name in os.listdir("/proc"):  # noqa: PTH208 names suffice
        with suppress(ProcessLookupError):  # it has ended meanwhile
            if name.isdigit() and os.getpgid(int(name)) == os.getpgid(0):
                found.add(int(name))
    return found


@contextmanager
def _running(argv: list[str], env: dict[str, str]) -> "Iterator[subprocess.Popen[bytes]]":
    """Run a check, and kill its process group at the end."""
    made = subprocess.Popen(argv, env={**os.environ, **env}, stdin=subprocess.DEVNULL, process_group=0)
    try:
        yield made
    finally:
        with suppress(ProcessLookupError):
            os.killpg(made.pid, signal.SIGKILL)
        made.wait()


def watch(it: Watch, asked: dict[str, Any]) -> None:
    """Check until the command ends or has failed too often. As in Mesos, failures in the grace period before the first
    success are ignored.
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
    """Return what is wrong with a port of this machine, or None. The caller enforces the timeout."""
    with socket.create_connection(("127.0.0.1", asked["port"])) as connection:
        if asked["type"] == "TCP":
            return None
        line = _asked(connection, asked)
    words = line.split(maxsplit=2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        return "not an HTTP answer"
    status = int(words[1])
    return None if status in (asked["statuses"] or HEALTHY) else f"the answer has status {status}"


def _asked(connection: socket.socket, asked: dict[str, Any]) -> bytes:
    """Return the first line of the answer to a GET."""
    if asked["scheme"] == "https":
        import ssl  # uses megabytes of the task's memory

        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname = False  # as in Mesos: the server is the task itself
        trusting.verify_mode = ssl.CERT_NONE
        connection = trusting.wrap_socket(connection, server_hostname="127.0.0.1")
    head = f"GET {asked['path']} HTTP/1.1\r\nHost: 127.0.0.1:{asked['port']}\r\nConnection: close\r\n\r\n"
    connection.sendall(head.encode())
    answer = b""
    while b"\n" not in answer and len(answer) < LONGEST_LINE and (piece := connection.recv(4096)):
        answer += piece
    return answer.partition(b"\n")[0]


def say_never_run(asked: dict[str, Any], why: str) -> None:
    """Report that the command was not run; if that fails, only the task's failure is known."""
    speaker = Speaker(asked)
    reason = "REASON_CONTAINER_LAUNCH_FAILED"
    speaker.add_status(state="TASK_FAILED", message=f"Failed to launch container: {why}", reason=reason)
    for _ in range(TRIES):
        speaker.say()
        if not speaker.waiting:
            break
        time.sleep(RETRY_SECONDS)


def _note(text: str) -> None:
    print(f"fairlead: {text}", file=sys.stderr, flush=True)  # noqa: T201 part of the task's output


def main() -> None:
    """Run and check a command: ``checks.py JSON COMMAND...``; exit as it does. Or probe once: ``checks.py --probe JSON``. Or
    report why the command is not run: ``checks.py --never-run JSON WHY``.
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
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
