"""What people do inside a running task: a command that is attached to it, a port that leads to it, an end when nobody uses it."""

import base64
import hashlib
import http.client
import os
import re
import selectors
import signal
import socket
import subprocess
import time

import pytest

from conftest import FAIRLEAD
from fairlead.engines.local import streams
from lab import Lab
from machine import NOBODY, PEOPLE
from test_standard_input import is_a_terminal

SERVER = """
import http.server, os
class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, data):
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def do_GET(self):
        self.answer(f"{os.environ['FAIRLEAD_JOB']} {os.environ['FAIRLEAD_PORT']}".encode())
    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["JUPYTER_PORT"])), Echo)
print("listening", flush=True)
server.serve_forever()
"""


def begun(world, *words):
    """A job that runs for as long as the test."""
    job = world.submit(*words)
    world.until(lambda: world.job(job)["status"] == "running")
    return job


def serving(world, *words, program=SERVER):
    """`fairlead run --port` with a server: its process, and the port here. It listens once this returns."""
    command = ["run", *words, "--", "python3", "-c", program]
    process = world.start(*command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = process.stderr.readline().decode()
    found = re.fullmatch(r"fairlead: http://127\.0\.0\.1:(\d+) leads to port \d+ of job \d+ on \w+\n", said)
    assert found, said
    assert process.stdout.readline() == b"listening\n"
    return process, int(found[1])


def fetched(port, body=None):
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    line.request("GET" if body is None else "POST", "/", body)
    answer = line.getresponse().read()
    line.close()
    return answer


def free():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def test_a_command_runs_inside_a_task(idle):
    (idle.folder / "inside").mkdir()
    words = ["-q", "A", "--memory", "300Mi", "--cpu", "2", "--cwd", str(idle.folder / "inside"), "--env", "MINE=1"]
    job = begun(idle, *words, "--", "sleep", "600")
    script = "pwd; echo $MINE $FAIRLEAD_JOB $FAIRLEAD_CPU $OMP_NUM_THREADS; cat; echo wrong >&2; exit 7"
    done = idle.call("exec", str(job), "--", "sh", "-c", script, input="one\ntwo\n")
    assert done.returncode == 7
    assert (done.stdout, done.stderr) == (f"{idle.folder}/inside\n1 {job} 2 2\none\ntwo\n", "wrong\n")
    large = os.urandom(3_000_000)
    done = subprocess.run(
        [FAIRLEAD, "exec", str(job), "--", "cat"], env=idle.env, input=large, capture_output=True, check=True, timeout=60
    )
    assert done.stdout == large, "all bytes, both ways"
    assert idle.call("exec", str(job), "--", "no-such-program").returncode == 127
    assert idle.call("exec", str(job), "--", "sh", "-c", "kill -9 $$").returncode == 137
    assert idle.shell(f"fairlead exec {job} -- yes | head -n 1").stdout == "y\n"
    waits = idle.submit("-q", "A", "--hold", "--", "true")
    assert "does not run: it is waiting" in idle.call("exec", str(waits), "--", "true").stderr
    assert f"ran cat in task {job}.0" in idle.ok("log")
    idle.ok("cancel", str(waits))


def test_what_is_attached_ends_with_its_task_and_with_its_command(idle):
    job = begun(idle, "-q", "A", "--", "sh", "-c", "until test -e go; do sleep 0.05; done")
    script = "exec 2>&-; trap 'touch hung; exit' HUP; touch began; while :; do sleep 0.05; done"
    gone = idle.start("exec", str(job), "--", "sh", "-c", script, stdin=subprocess.DEVNULL)
    idle.until((idle.folder / "began").exists)
    gone.send_signal(signal.SIGTERM)
    assert gone.wait(60) == 143
    idle.until((idle.folder / "hung").exists)
    (idle.folder / "began").unlink()
    stays = idle.start(
        "exec", str(job), "--", "sh", "-c", "trap '' TERM HUP; touch began; exec sleep 600", stdin=subprocess.DEVNULL
    )
    idle.until((idle.folder / "began").exists)
    (idle.folder / "go").touch()
    assert stays.wait(60) == 137


def test_a_command_runs_in_the_copy_that_was_sent_wherever_its_task_has_gone(idle):
    (idle.folder / "sent").mkdir()
    (idle.folder / "sent" / "code").write_text("1")
    job = begun(idle, "-q", "A", "--send", "sent", "--", "sh", "-c", "touch mark; cd /; sleep 600")
    idle.until(lambda: idle.call("exec", str(job), "--", "ls").stdout == "code\nmark\n")
    idle.ok("cancel", str(job))


def test_a_command_goes_on_while_the_scheduler_restarts(live):
    job = begun(live, "-q", "A", "--", "sleep", "600")
    process = live.start("exec", str(job), "--", "sh", "-c", "read a; echo got $a; read b; echo got $b", stdin=subprocess.PIPE)
    process.stdin.write(b"one\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"got one\n"
    live.kill()
    live.up()
    process.stdin.write(b"two\n")
    process.stdin.close()
    process.stdin = None
    assert process.communicate(timeout=60)[0] == b"got two\n"
    assert process.returncode == 0


def test_a_command_has_a_terminal_if_there_is_one(idle):
    is_a_terminal(idle, "exec", str(begun(idle, "-q", "A", "--", "sleep", "600")))


def test_a_port_leads_to_a_task_and_two_on_one_node_are_kept_apart(idle):
    wanted = free()
    first, port = serving(idle, "-q", "A", "--port", f"0:{wanted}")
    second, other = serving(idle, "-q", "A", "--port", f"0:{wanted}")
    job = idle.newest()
    assert fetched(port).decode() == f"{job - 1} {wanted}"
    number, its = fetched(other).decode().split()
    assert int(number) == job
    assert int(its) != wanted
    large = os.urandom(2_000_000)
    assert hashlib.sha256(fetched(port, large)).digest() == hashlib.sha256(large).digest()
    taken = idle.call("run", "-q", "A", "--port", str(port), "--", "true", input="")
    assert f"127.0.0.1:{port} cannot be used here" in taken.stderr
    first.send_signal(signal.SIGINT)
    assert first.wait(60) == 130
    assert idle.job(job - 1)["status"] == "cancelled"
    with pytest.raises(ConnectionRefusedError):
        fetched(port)
    second.send_signal(signal.SIGINT)
    assert second.communicate(timeout=60)[1].decode().endswith(f"job {job} is cancelled\n")


WEBSOCKET = """
import base64, hashlib, os, socket
listener = socket.create_server(("127.0.0.1", int(os.environ["FAIRLEAD_PORT"])))
print("listening", flush=True)
line, _ = listener.accept()
asked = b""
while not asked.endswith(b"\\r\\n\\r\\n"):
    asked += line.recv(4096)
key = asked.split(b"Sec-WebSocket-Key: ")[1].split(b"\\r")[0] + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
accept = base64.b64encode(hashlib.sha1(key).digest())
line.sendall(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nSec-WebSocket-Accept: " + accept + b"\\r\\n\\r\\n")
line.sendall(b"\\x82\\x05first")  # nobody asked
while head := line.recv(2, socket.MSG_WAITALL):
    mask, data = line.recv(4, socket.MSG_WAITALL), line.recv(head[1] & 127, socket.MSG_WAITALL)
    line.sendall(bytes([0x82, len(data)]) + bytes(byte ^ mask[k % 4] for k, byte in enumerate(data)))
"""


def test_a_websocket_goes_through_a_port(idle):
    process, port = serving(idle, "-q", "A", "--port", "0", program=WEBSOCKET)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line, line.makefile("rb") as told:
        line.sendall(b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
        assert told.readline() == b"HTTP/1.1 101 Switching Protocols\r\n"
        assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in [told.readline() for _ in range(3)]
        assert told.read(7) == b"\x82\x05first"
        for word in (b"one", b"x" * 125):
            line.sendall(bytes([0x82, 0x80 | len(word)]) + b"\0\0\0\0" + word)
            assert told.read(2 + len(word)) == bytes([0x82, len(word)]) + word
    assert process.wait(60) == 0


def test_a_command_gets_the_number_of_its_port(idle):
    wanted = free()
    words = ["run", "-q", "A", "--port", f"0:{wanted}", "--", "sh", "-c", 'echo "$@" $FAIRLEAD_PORT $PORT', "sh", "--at={port}"]
    assert idle.call(*words, input="").stdout == f"--at={wanted} {wanted} {wanted}\n"
    assert "write the port here" in idle.call("run", "--port", "high", "--", "true").stderr


def test_a_connection_that_nobody_reads_keeps_no_other_waiting(idle):
    process, port = serving(idle, "-q", "A", "--port", "0")
    with socket.create_connection(("127.0.0.1", port)) as stuck:
        body = b"x" * 9_000_000
        stuck.sendall(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        assert len(fetched(port, body)) == len(body), "while the first waits to be read"
        answer = b""
        while len(answer) < len(body):
            answer += stuck.recv(2**20)
        assert answer.endswith(body[-1000:])
    process.send_signal(signal.SIGINT)
    process.wait(60)


def test_a_task_ends_when_nobody_uses_it(idle):
    busy = idle.start("run", "-q", "A", "--idle", "1", "--", "sh", "-c", "while :; do :; done", stdin=subprocess.DEVNULL)
    idle.until(lambda: idle.ask("jobs", status="running")["jobs"])
    process, port = serving(idle, "-q", "A", "--port", "0", "--idle", "2")
    job = idle.newest()
    with socket.create_connection(("127.0.0.1", port)):
        time.sleep(3)
        assert idle.job(job)["status"] == "running", "somebody is connected"
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "it was idle: no connection, and no CPU or GPU use" in err.decode()
    assert idle.job(job)["status"] == "succeeded"
    assert idle.ask(f"jobs/{job}/tasks")["tasks"][0]["reason"] == "idle"
    assert "nobody used it for 2 s" in idle.ok("why", str(job))
    assert busy.poll() is None, "what computes is not idle"


def test_a_joined_node_does_all_of_it(tmp_path):
    with Lab(tmp_path) as lab:
        lab.start_up()
        lab.join("lab2", lab.token())
        lab.until(lambda: lab.status("lab2") == "up")
        process, port = serving(lab, "--on", "at=lab2", "--port", "0", "--idle", "4")
        job = lab.newest()
        assert fetched(port).decode().startswith(f"{job} ")
        large = os.urandom(500_000)
        assert fetched(port, large) == large
        done = lab.call("exec", str(job), "--", "sh", "-c", "read x; echo $x $FAIRLEAD_JOB; exit 3", input="word\n")
        assert (done.returncode, done.stdout) == (3, f"word {job}\n")
        is_a_terminal(lab, "run", "--pty", "--on", "at=lab2")
        assert process.wait(60) == 0
        assert lab.task(job)["reason"] == "idle"


def test_only_its_owner_reaches_a_task_and_a_port(machine):
    alice = machine["alice"]
    env = {"PATH": os.environ["PATH"], "HOME": str(machine.folder / "alice"), "COLUMNS": "100"}
    script = "echo $FAIRLEAD_PORT; sleep 600"
    command = [FAIRLEAD, "run", "-q", "vision", "--port", "0", "--", "sh", "-c", script]
    process = subprocess.Popen(
        machine.inside(PEOPLE["alice"], *command),
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    there = int(process.stdout.readline())
    here = int(re.search(rb"127\.0\.0\.1:(\d+)", process.stderr.readline())[1])
    job = str(max(each["id"] for each in alice.http("GET", "/v1/jobs")[1]["jobs"]))
    assert alice.ok("exec", job, "--", "id", "-u") == f"{PEOPLE['alice']}\n"
    assert machine["carol"].ok("exec", job, "--", "id", "-u") == f"{PEOPLE['alice']}\n", "an admin of the queue, as its owner"
    assert f"carol  ran id -u in task {job}.0 of alice" in re.sub(r" {2,}", "  ", machine["root"].ok("log"))
    refused = machine["bob"].run("exec", job, "--", "id")
    assert refused.returncode == 1
    assert "only they and the admins of queue 'vision' may do that" in refused.stderr
    connect = f"import socket; s = socket.create_connection(('127.0.0.1', {here})); s.sendall(b'x'); print(s.recv(9))"
    for uid in (PEOPLE["bob"], NOBODY):
        subprocess.run(machine.inside(uid, "python3", "-c", connect), capture_output=True, check=False, timeout=60)
        assert process.stderr.readline().decode() == f"fairlead: refused a connection of uid {uid}\n"
    listen = f"import socket; s = socket.create_server(('127.0.0.1', {there})); print(1, flush=True); s.accept()"
    trap = subprocess.Popen(machine.inside(PEOPLE["bob"], "python3", "-c", listen), stdout=subprocess.PIPE)
    assert trap.stdout.readline() == b"1\n"
    subprocess.run(machine.inside(PEOPLE["alice"], "python3", "-c", connect), capture_output=True, check=False, timeout=60)
    assert "belongs to another account's program" in process.stderr.readline().decode()
    trap.kill()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    trap.communicate()


def test_who_listens_on_another_address_of_the_machine_holds_up_no_port():
    with socket.create_server(("127.0.0.2", 0)) as other:
        port = other.getsockname()[1]
        assert streams._listeners(port) == []
        with socket.create_server(("127.0.0.1", port)):
            assert [uid for _, uid in streams._listeners(port)] == [os.getuid()]


def test_a_port_that_changes_hands_while_a_stream_connects_is_refused(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as mine, selectors.DefaultSelector() as selector:
        port, owners = mine.getsockname()[1], iter([os.getuid(), os.getuid() + 1])
        monkeypatch.setattr(streams, "_listeners", lambda _: [(socket.AF_INET, next(owners))])
        stream = streams.Stream((1, 0, 1), selector, print)
        assert "belongs to another account's program" in stream.connect(os.getuid(), port)
        assert stream.over
        assert mine.accept()[0].recv(1) == b"", "it is hung up"


def test_a_stream_is_found_by_its_task_and_its_name(idle):
    jobs, name = [begun(idle, "--cpu", "100m", "--", "sleep", "100") for _ in range(2)], "a" * 32
    for job in jobs:
        assert idle.http("POST", f"/v1/jobs/{job}/tasks/0/streams", {"stream": name, "argv": ["echo", f"of {job}"]})[0] == 201
    for job in jobs:
        piece = idle.http("GET", f"/v1/jobs/{job}/tasks/0/streams/{name}?number=1&wait=10")[1]
        assert base64.b64decode(piece["out"]).decode() == f"of {job}\n"
