"""Tasks run as the people who submitted them, on a machine with real accounts; and what tasks try: to be more, to escape, to
outlive their end, to read what is others', to have the scheduler read or write for them.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from conftest import supervisor_of, until
from fairlead.calls import payloads
from fairlead.data_folder import NotPlain, open_plain
from fairlead.model.specs import Call, Job, Work
from fairlead.people.accounts import Person, myself
from fairlead.scheduler.admission import Refused
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import JobCancelled, JobSubmitted
from fairlead.service import sessions
from fairlead.service.api.calls import close_silent_sessions, in_turn
from fairlead.service.sessions import Sessions, open_result
from fairlead.service.wakeups import Wakeups
from machine import PEOPLE

SECRET = "swordfish-7c1f"


@pytest.fixture(scope="module")
def cgroups(machine):
    """Skips where tasks have no cgroups: what only these ensure, `up` says is not held."""
    if "no cgroups here" in machine.log.read_text():
        assert "what a task leaves behind is ended only as long as it keeps its environment" in machine.log.read_text()
        pytest.skip("no cgroup may be made here")


def sh(text):
    return ["--", "sh", "-c", textwrap.dedent(text)]


# -- as whom ------------------------------------------------------------------------------------------------------------


def test_a_task_is_its_submitter_in_all_that_the_system_knows_of_them(machine):
    script = """
        id -u; id -g; id -Gn; echo $HOME $USER $LOGNAME $SHELL; umask; pwd
        grep -E '^(NoNewPrivs|CapEff|CapPrm|CapInh|CapAmb)' /proc/self/status | tr -d '\\t'
        cat; ls /proc/self/fd
    """
    alice = machine["alice"]
    code, out, err = alice.task(*sh(script), USER="root", LOGNAME="root", HOME=f"{machine.folder}/alice")
    assert (code, err) == (0, "")
    uid, gid, groups, names, umask, folder, *rest = out.splitlines()
    home = str(machine.folder / "alice")
    assert (uid, gid) == (str(PEOPLE["alice"]),) * 2
    assert sorted(groups.split()) == ["alice", "vision"]
    assert names == f"{home} alice alice /bin/sh"
    assert (umask, folder) == ("0022", home)
    caps = [f"Cap{kind}:0000000000000000" for kind in ("Inh", "Prm", "Eff", "Amb")]
    assert rest[:5] == [*caps, "NoNewPrivs:1"]
    assert rest[5:] == ["0", "1", "2", "3"], "nothing else is open: 3 is the listing's own"
    assert "tasks run as the user who submitted them" in machine.log.read_text()


def test_one_persons_processes_are_a_part_of_all_that_the_machine_can_have(machine):
    most = min(int(Path("/proc/sys/kernel", name).read_text()) for name in ("threads-max", "pid_max"))
    code, out, _ = machine["alice"].task("--", "grep", "Max processes", "/proc/self/limits")
    assert (code, out.split()[2:4]) == (0, [str(most // 4)] * 2)


def test_each_job_is_its_own_persons_and_their_output_too(machine):
    jobs = {who: machine[who].ok("submit", "-q", "people", "--", "id", "-u").strip() for who in ("alice", "bob")}
    for who, job in jobs.items():
        machine["root"].ok("wait", job)
        assert machine[who].ok("logs", job) == f"{PEOPLE[who]}\n"
        assert machine[who].http("GET", f"/v1/jobs/{job}")[1]["user"] == who
        for name in ("0.out", "0.err"):
            found = (machine.home / "output" / job / name).stat()
            assert (found.st_uid, found.st_mode & 0o777) == (PEOPLE[who], 0o600)
    for path in (machine.home, machine.home / "output", machine.home / "output" / jobs["alice"]):
        assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (0, 0o700)


def test_a_folder_that_one_cannot_enter_is_said_at_once(machine):
    theirs = machine.folder / "bob" / "closed"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, PEOPLE["bob"], PEOPLE["bob"])
    alice = machine["alice"]
    asked = {"argv": ["true"], "demand": {"cpu": 1}, "queue": "people", "cwd": str(theirs)}
    job = alice.http("POST", "/v1/jobs", asked)[1]["id"]
    alice.run("wait", str(job))
    (task,) = alice.http("GET", f"/v1/jobs/{job}/tasks")[1]["tasks"]
    assert (task["status"], task["exit"], task["reason"]) == ("failed", 126, "not started")
    assert f"alice cannot enter '{theirs}': Permission denied" in alice.run("logs", str(job)).stderr
    assert machine["bob"].task("--cwd", str(theirs), "--", "pwd")[:2] == (0, f"{theirs}\n")


def test_roots_own_tasks_are_refused_unless_the_configuration_says_otherwise(machine):
    before = machine.config.read_text()
    root = machine["root"]
    try:
        machine.config.write_text(before + '\n[[queue]]\nname = "admin"\nsubmit = ["root"]\n')
        root.ok("reload")
        refused = root.run("submit", "-q", "admin", "--", "true")
        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
        assert "root's own tasks do not run here" in refused.stderr
        machine.config.write_text("root_tasks = true\n" + machine.config.read_text())
        root.ok("reload")
        assert root.run("run", "-q", "admin", "--", "id", "-u").stdout == "0\n"
    finally:
        machine.config.write_text(before)
        root.ok("reload")


def test_the_scheduler_stands_in_no_folder_that_others_may_write_to(machine):
    scheduler = psutil.Process(machine["root"].http("GET", "/v1/status")[1]["pid"])
    assert scheduler.cwd() == "/"


@pytest.mark.parametrize(
    ("asked", "gets"),
    [
        ({"memory": "16Mi"}, {"cpu": 1000, "memory": 2**24}),
        ({"cpu": "10m"}, {"cpu": 10, "memory": 2**30}),
        ({"cpu": 0, "memory": 0}, {"cpu": 1000, "memory": 2**30}),
        ({"cpu": 2, "memory": "2Gi"}, {"cpu": 2000, "memory": 2**31}),
    ],
)
def test_nobody_takes_what_they_did_not_ask_for(machine, asked, gets):
    """What is not asked for would have no limit, and count for nothing."""
    alice = machine["alice"]
    job = {"argv": ["true"], "demand": asked, "queue": "people"}
    many = alice.http("POST", "/v1/bulk", {"jobs": [job, job]})[1]["jobs"]
    for each in (alice.http("POST", "/v1/jobs", job)[1], *many):
        assert alice.http("GET", f"/v1/jobs/{each['id']}")[1]["demand"] == gets


def test_no_bound_goes_by_an_edit(machine):
    """A bound of zero is none: it is given what is usual, as in a submission."""
    alice = machine["alice"]
    job = alice.ok("submit", "-q", "people", "--hold", "--cpu", "2", "--memory", "64Mi", "--", "true").split()[0]
    for edit, gets in (
        (("--cpu", "0"), {"cpu": 1000, "memory": 2**26}),
        (("--memory", "0"), {"cpu": 1000, "memory": 2**30}),
        (("--cpu", "3", "--memory", "0"), {"cpu": 3000, "memory": 2**30}),
    ):
        alice.ok("edit", job, *edit)
        assert alice.http("GET", f"/v1/jobs/{job}")[1]["demand"] == gets
    alice.ok("cancel", job)


# -- being more, getting away -------------------------------------------------------------------------------------------


def test_each_task_has_a_session_keyring_of_its_own(machine):
    """What one puts there is no other's, not even of the same person; and what root's terminal holds is nobody's."""
    if os.uname().machine != "x86_64":
        pytest.skip("the calls below have other numbers here")
    code = """
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        name = ctypes.create_string_buffer(256)
        keyring = libc.syscall(250, 0, -3, 0, 0, 0)
        if keyring < 0 and ctypes.get_errno() in (1, 38):
            raise SystemExit("no keys here")
        libc.syscall(250, 6, keyring, name, 256, 0)
        print(*name.value.decode().split(";")[0:5:2], libc.syscall(250, 10, keyring, b"user", b"mine", 0))
        print(libc.syscall(248, b"user", b"mine", b"swordfish", 9, keyring) > 0)
    """
    for who in ("alice", "alice", "bob"):
        code_, out, err = machine[who].task("--", sys.executable, "-c", textwrap.dedent(code))
        if "no keys here" in err:
            pytest.skip("no keys here")
        assert (code_, out) == (0, f"keyring {PEOPLE[who]} _ses -1\nTrue\n"), err


def test_a_setuid_program_makes_nobody_more(machine):
    program = machine.folder / "id-of-root"
    shutil.copy(shutil.which("id"), program)
    program.chmod(0o4755)
    alice = machine["alice"]
    outside = alice.python(f"import os; os.execv({str(program)!r}, ['id', '-u'])").stdout
    assert alice.task("--", str(program), "-u")[:2] == (0, f"{PEOPLE['alice']}\n")
    if outside != "0\n":
        pytest.skip("this file system gives setuid programs nothing in any case")


def test_a_task_cannot_leave_its_cgroup(machine, cgroups):
    script = """
        grep -c fairlead- /proc/self/cgroup
        find /sys/fs/cgroup -name cgroup.procs -o -name tasks -o -name '*limit_in_bytes' -o -name '*.max' |
        while read file; do { echo $$ > $file; } 2>/dev/null && echo wrote $file; done
        find /sys/fs/cgroup -type d | sed 's|$|/mine|' | xargs mkdir -v 2>/dev/null
        grep -c fairlead- /proc/self/cgroup
    """
    code, out, _ = machine["alice"].task(*sh(script))
    before, *done, after = out.splitlines()
    assert (code, done) == (1 if after == "0" else 0, [])
    assert before == after != "0"


def test_a_task_cannot_signal_the_supervisor_or_the_scheduler(machine):
    (supervisor,) = supervisor_of(machine.home)
    mallory = machine["mallory"]
    scheduler = mallory.http("GET", "/v1/status")[1]["pid"]
    pids = f"{supervisor.pid} {supervisor.ppid()} {scheduler}"  # and its guardian
    script = f"for pid in {pids}; do kill -9 $pid && echo hit; kill -STOP $pid && echo hit; done"
    _code, out, err = mallory.task(*sh(script))
    assert out == ""
    assert err.lower().count("not permitted") == 6
    others = machine["alice"].ok("submit", "-q", "people", "--", "sh", "-c", "sleep 1; echo whole").strip()
    job = mallory.ok("submit", "-q", "people", "--", "sh", "-c", "sleep 1; kill -9 -1").strip()  # his actor as well
    machine.actors.pop("mallory").close()
    machine["root"].run("wait", job)
    machine["root"].ok("wait", others)
    assert machine["alice"].ok("logs", others) == "whole\n"
    assert [each.pid for each in supervisor_of(machine.home)] == [supervisor.pid]
    assert machine["mallory"].task("--", "id", "-u")[0] == 0


HOPPER = """
import os, sys, time
if os.fork():
    time.sleep(0.3)
    sys.exit()
os.setsid()
until = time.monotonic() + 60
while time.monotonic() < until:  # no process lives for long, and each has but a name of its own
    if os.fork():
        os._exit(0)
"""


def test_nothing_outlives_its_task_however_it_hides(machine, cgroups):
    mark = f"hopper-{os.getpid()}"
    alice = machine["alice"]
    code, _, err = alice.task("--", "env", "-i", sys.executable, "-c", HOPPER, mark)
    assert (code, err) == (0, "")
    time.sleep(0.2)
    left = [p for p in psutil.process_iter(["cmdline", "status"]) if mark in (p.info["cmdline"] or [])]
    assert left == [], "it was told that the task has ended"


# -- what is others' ----------------------------------------------------------------------------------------------------


def test_a_task_ends_though_its_person_traces_it(machine):
    """What is traced is not reaped before its tracer lets it go; the room of the task is free all the same."""
    alice = machine["alice"]
    trace = """
        import ctypes, os, sys, time
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.ptrace(0x4206, {pid}, 0, 0):
            sys.exit("may not be traced")
        print(os.getpid(), flush=True)
        time.sleep(40)
    """
    job = alice.ok("submit", "-q", "people", "--", "sleep", "31.77").strip()
    pid = until(lambda: [p.pid for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "31.77"]])[0]
    tracer = textwrap.dedent(trace).format(pid=pid)
    told = alice.python(
        f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {tracer!r}], stdout=-1, stderr=-2, text=True); "
        "print(p.stdout.readline())"
    )
    if "may not be traced" in told.stdout:
        pytest.skip("no process may be traced here")
    try:
        alice.ok("cancel", job)
        until(lambda: alice.http("GET", f"/v1/jobs/{job}")[1]["status"] == "cancelled")
        assert psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    finally:
        os.kill(int(told.stdout), signal.SIGKILL)
    until(lambda: not psutil.pid_exists(pid))


def test_what_is_anothers_is_read_on_no_route(machine):
    alice, bob = machine["alice"], machine["bob"]
    script = f"echo {SECRET} output; echo {SECRET} errors >&2; exec sleep 61.25"
    job = alice.ok("submit", "-q", "people", "--env", f"SECRET={SECRET}", "--", "sh", "-c", script).strip()
    deadline, sleeping = time.monotonic() + 60, []
    while SECRET not in alice.run("logs", job).stdout:
        assert time.monotonic() < deadline
    while not sleeping:
        assert time.monotonic() < deadline
        sleeping = [p.pid for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "61.25"]]
    assert any(SECRET in (psutil.Process(pid).environ().get("SECRET") or "") for pid in sleeping), "root sees it"
    home = machine.home
    files = [f"{home}/output/{job}/0.out", f"{home}/output/{job}/0.err", f"{home}/journal.db", f"{home}/journal.db-wal"]
    files += [f"/proc/{pid}/{name}" for pid in sleeping for name in ("environ", "fd/1", "fd/2", "root/etc/shadow")]
    files += [f"/proc/{supervisor_of(home)[0].pid}/environ", f"{home}/spool", "/etc/shadow"]
    as_task = bob.task("--", "sh", "-c", f"cat {' '.join(files)}; ls -R {home}")
    assert as_task[1] == "", "as a task of his"
    assert as_task[2].count("ermission denied") >= len(files)
    routes = ["", "/tasks", "/why", "/tasks/0/output/out", "/tasks/0/output/err"]
    told = [bob.http("GET", f"/v1/jobs/{job}{route}") for route in routes]
    told += [bob.http("GET", path) for path in ("/v1/jobs", "/v1/facts?after=0&follow=false", "/v1/log", "/metrics")]
    assert SECRET not in json.dumps(told)
    assert SECRET in json.dumps(alice.http("GET", "/v1/facts?after=0&follow=false"))
    alice.ok("cancel", job)


def test_a_link_in_the_place_of_output_is_not_followed_for_anybody(machine):
    """A task has no way to the folder of its output; were there one, nothing would be read or written through it."""
    alice = machine["alice"]
    _code, out, _ = alice.task(*sh('file=$(readlink /proc/self/fd/1); echo here; ln -sf /etc/shadow "$file"; rm "$file"'))
    assert out == "here\n"
    job = alice.ok("submit", "-q", "people", "--retries", "1", "--", "sh", "-c", "echo x; exit $((1 - $FAIRLEAD_NUMBER / 2))")
    job = job.strip()
    alice.ok("wait", job)
    output = machine.home / "output" / job / "0.out"
    assert alice.ok("logs", job) == "x\nx\n"
    output.unlink()
    output.symlink_to("/etc/shadow")
    status, text = alice.http("GET", f"/v1/jobs/{job}/tasks/0/output/out")
    assert (status, text) == (200, "")
    until(lambda: "cannot be shown" in machine.log.read_text())  # who says it waits for nobody


def test_only_a_plain_file_of_the_person_is_taken_for_a_result(tmp_path):
    (tmp_path / "results").mkdir()
    place = tmp_path / "results" / "1.0"

    def planted(make):
        place.unlink(missing_ok=True)
        make()
        return open_result(tmp_path, 60001, 1, 0)

    assert planted(lambda: place.symlink_to("/etc/passwd")) is None
    assert planted(lambda: os.mkfifo(place)) is None
    assert planted(lambda: place.write_text("root's")) is None
    assert planted(lambda: None) is None
    place.write_text("theirs")
    os.chown(place, 60001, 60001)
    with open_result(tmp_path, 60001, 1, 0) as file:
        assert file.read() == b"theirs"
    with pytest.raises(NotPlain, match="is not a plain file"):
        open_plain(tmp_path)


def test_what_is_done_in_turn_leaves_the_threads_to_others():
    """However much one person asks for, one thing of theirs is done at once."""
    going, begun, done = threading.Event(), [], []

    def take_long():
        begun.append("mallory")
        going.wait(60)

    async def main():
        theirs = [asyncio.create_task(in_turn(1, take_long)) for _ in range(100)]
        for _ in range(20):
            await in_turn(2, lambda: done.append("alice"))
        assert len(begun) == 1
        going.set()
        await asyncio.gather(*theirs)

    asyncio.run(main())
    assert (len(begun), len(done)) == (100, 20)


def test_output_from_further_on_than_a_disk_goes_is_empty(machine):
    alice = machine["alice"]
    job = alice.ok("submit", "-q", "people", "--cpu", "100m", "--memory", "128Mi", "--", "echo", "x").strip()
    alice.ok("wait", job)
    assert alice.http("GET", f"/v1/jobs/{job}/tasks/0/output/out?offset={2**53}") == (200, "")
    assert alice.http("GET", f"/v1/jobs/{job}/tasks/0/output/out?offset=1") == (200, "\n")


# -- Python calls -------------------------------------------------------------------------------------------------------

CALLS = """
import os, sys, fairlead

class Evil:
    def __reduce__(self):
        note = "import os; open({note!r}, 'a').write(f'{{os.getuid()}} {{os.getpid()}}\\\\n')"
        return exec, (note,)

def me(*things):
    return [os.getuid(), os.getgroups(), os.environ["USER"], os.getpid(), os.getcwd()]

with fairlead.Client(queue="people", memory="256Mi") as client:
    print(client.submit(me, Evil()).result())
    print(client.submit(me).result())
"""


def nest(folder, depth):
    """Folders in a folder, deeper than any stack, and than any path may be long."""
    fd = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)


def test_nobody_takes_the_secret_of_anothers_program(tmp_path):
    sessions = Sessions(tmp_path / "calls", Wakeups())
    sessions.recover(new_state())
    me, secret = myself(), "ab" * 16
    sessions.create({"argv": ["x"], "secret": secret}, me)
    with pytest.raises(Refused, match="another person's program has this secret"):
        sessions.create({"argv": ["x"], "secret": secret}, me._replace(uid=me.uid + 1))
    again = sessions.create({"argv": ["x"], "secret": secret}, me)  # a repeated request
    hello = json.dumps({"relay": secret, "lease": 1}).encode()
    assert sessions.relays._asked(hello) == (again, 1)
    assert sessions.relays._asked(b"[" * 60_000) is None, "nested too deeply"


def test_what_is_left_in_the_folder_of_a_session_goes_however_deep_and_harms_nothing_else(tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    calls = tmp_path / "calls"
    sessions = Sessions(calls, Wakeups())
    sessions.recover(new_state())
    name = sessions.create({"argv": ["x"]}, myself())
    unfinished = calls / ("0" * 32)
    for folder in (calls / name, unfinished):
        results = folder / "results"
        results.mkdir(parents=True, exist_ok=True)
        nest(results, 3000)
        for path in (results, results / "d", results / "d" / "d"):
            (path / "link").symlink_to(kept)
            (path / "wide").mkdir()
            (path / "wide" / "file").write_text("x")
            os.mkfifo(path / "fifo")
    (calls / "file").write_text("no session")
    sessions.close(name)
    assert not (calls / name).exists()
    Sessions(calls, Wakeups()).recover(new_state())
    assert [path.name for path in calls.iterdir()] == ["file"]
    assert (kept / "file").read_text() == "x"


def test_code_is_its_persons_and_so_large(tmp_path, monkeypatch):
    monkeypatch.setattr(sessions, "MOST_SPARE", 100)
    uid = 60002 if os.geteuid() == 0 else os.geteuid()
    bob, wakeups = Person("bob", uid, uid if os.geteuid() == 0 else os.getegid()), Wakeups()
    there = Sessions(tmp_path / "calls", wakeups)
    there.recover(new_state())
    name = there.create({"argv": ["true"]}, bob)
    one, other = "1" * 32, "2" * 32

    def put(into, payload):
        with into.putting(name, bob, payload) as write:
            for _ in range(6):
                write(b"0123456789")

    put(there, one)
    found = (tmp_path / "calls" / name / one).stat()
    assert (found.st_uid, found.st_mode & 0o777, found.st_size) == (uid, 0o600, 60)
    with pytest.raises(Refused, match="would exceed"):
        put(there, other)
    again = Sessions(tmp_path / "calls", wakeups)
    again.recover(new_state())
    for each in (there, again):
        with pytest.raises(Refused, match="would exceed"):
            put(each, other)
    assert {path.name for path in (tmp_path / "calls" / name).iterdir()} == {one, "setup.json", "results", "code"}


def test_code_that_goes_along_is_so_much_of_one_person_and_in_all_on_a_shared_scheduler(tmp_path, monkeypatch):
    monkeypatch.setattr(sessions, "MOST_OF_ONE", 100)
    monkeypatch.setattr(sessions, "MOST_OF_ALL", 150)
    own = os.geteuid()
    bob, eve = Person("bob", own or 60002, os.getegid()), Person("eve", 60003 if own == 0 else own + 1, os.getegid())
    monkeypatch.setattr(os, "chown", lambda *_: None)
    monkeypatch.setattr(os, "fchown", lambda *_: None)
    code = "c" * 32

    def program(of, into):
        name = into.create({"argv": ["true"], "code": code}, of)
        with into.putting(name, of, code) as write:
            write(bytes(60))
        return name

    there = Sessions(tmp_path / "calls", Wakeups(), shared=True)
    there.recover(new_state())
    first = program(bob, there)
    with pytest.raises(Refused, match="of your programs would exceed"):
        program(bob, there)
    there.recorded(new_state(), [JobSubmitted(at=0, id=1, job=Job("q", {}, work=Work(call=Call(first, code))))])
    with pytest.raises(Refused, match="of your programs"):
        program(bob, there)
    program(eve, there)
    with pytest.raises(Refused, match="of all programs would exceed"):
        program(Person("mal", 60004, os.getegid()), there)
    there.close(first)
    program(Person("mal", 60004, os.getegid()), there)
    program(Person("root", 0, 0), there)
    alone = Sessions(tmp_path / "own", Wakeups())
    alone.recover(new_state())
    for _ in range(3):
        program(bob, alone)


def test_files_that_come_back_are_bounded_for_a_person_and_the_oldest_go_first(tmp_path, monkeypatch):
    monkeypatch.setattr(sessions, "MOST_FETCHED", 20 * 4096)
    monkeypatch.setattr(os, "chown", lambda *_: None)
    own = os.geteuid() or 60002
    bob, eve = Person("bob", own, os.getegid()), Person("eve", own + 1, os.getegid())
    there, state, results = Sessions(tmp_path / "calls", Wakeups(), shared=True), new_state(), []
    there.recover(state)
    for number, person in ((1, bob), (2, eve), (3, bob), (4, bob)):
        session = there.create({"argv": ["-"]}, person)
        job = Job("q", {}, work=Work(["true"], call=Call(session, "c" * 32, ["*"])), uid=person.uid, tasks=2)
        facts = [JobSubmitted(at=0, id=number, job=job), JobCancelled(at=0, id=number)]
        for index in range(2):
            results.append(tmp_path / "calls" / session / payloads.RESULTS / payloads.result_name(number, index))
            results[-1].write_bytes(bytes(4 * 4096))
        for fact in facts:
            apply(state, fact)
        there.recorded(state, facts)
    assert [each.exists() for each in results] == [False] + [True] * 7, "six of four pages, of which five are kept; and another's"


def test_an_upload_for_longer_than_a_silent_program_is_kept_goes_on(tmp_path):
    there, me = Sessions(tmp_path / "calls", Wakeups()), Person("me", os.geteuid(), os.getegid())
    there.recover(new_state())
    name = there.create({"argv": ["-"]}, me)
    with there.putting(name, me, "c" * 32) as write:
        there._sessions[name].heard_at -= sessions.LEASE_SECONDS + 1
        write(b"piece")
        assert there.silent() == []


def test_the_bound_of_all_folders_names_them(tmp_path, monkeypatch):
    monkeypatch.setattr(sessions, "MOST_SENT", 0)
    there = Sessions(tmp_path / "calls", Wakeups())
    there.recover(new_state())
    with pytest.raises(Refused, match=r"^0 programs and folders of jobs are here already: wait until some jobs end$"):
        there.create({"argv": ["-"]}, Person("me", os.geteuid(), os.getegid()))


def test_one_session_that_cannot_be_closed_keeps_no_other_open(monkeypatch):
    closed = []

    async def close(asker, sessions, session):
        closed.append(session)
        if session == "bad":
            raise RecursionError("too deep")
        if session == "last":
            raise asyncio.CancelledError

    monkeypatch.setattr("fairlead.service.api.calls.end_session", close)
    monkeypatch.setattr("fairlead.service.api.calls.SILENT_CHECK_SECONDS", 0.0)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(close_silent_sessions(None, SimpleNamespace(silent=lambda: ["bad", "good", "last"])))
    assert closed == ["bad", "good", "last"]


def test_what_was_pickled_is_read_by_its_person_alone(machine):
    """Neither the scheduler nor the supervisor reads it; and workers stay warm, for the one person whose they are."""
    seen = {}
    for who in ("alice", "bob"):
        note = machine.folder / who / "note"
        done = machine[who].python(CALLS.replace("{note!r}", repr(str(note))).replace("{{", "{").replace("}}", "}"))
        assert done.returncode == 0, done.stderr
        first, second = (json.loads(line.replace("'", '"')) for line in done.stdout.splitlines())
        assert first == second, "the same worker"
        assert (first[0], first[2], first[4]) == (PEOPLE[who], who, str(machine.folder / who))
        uid, pid = note.read_text().split()
        assert (int(uid), int(pid), note.stat().st_uid) == (PEOPLE[who], first[3], PEOPLE[who])
        seen[who] = first[3]
    assert seen["alice"] != seen["bob"]


WITH_CODE = """
import os, sys, fairlead
from pathlib import Path

Path("code/deep").mkdir(parents=True)
Path("code/deep/travelled.py").write_text("import os\\nword = open('word').read() + str(os.getuid())\\n")
Path("code/word").write_text("mine ")
sys.path.insert(0, os.path.abspath("code/deep"))

def told():
    import subprocess, travelled
    again = "import sys; sys.path[:0] = " + repr(sys.path) + "; import travelled; print(travelled.word)"
    return travelled.word, subprocess.check_output([sys.executable, "-c", again], text=True), os.stat(".").st_uid

os.chdir("code")
with fairlead.Client(queue="vision", working_dir=".") as client:
    Path("word").write_text("changed ")
    print(client.submit(told).result(timeout=60))
"""


def test_code_that_goes_along_is_unpacked_as_the_person_who_alone_has_a_way_to_it(machine):
    done = machine["alice"].python(WITH_CODE)
    uid = PEOPLE["alice"]
    assert (done.stdout, done.stderr) == (f"{('mine ' + str(uid), 'mine ' + str(uid) + chr(10), uid)}\n", "")


TRAP = """
import os, fairlead
from pathlib import Path

def trap():
    folder = "/proc/self/fd/4/results"
    name = os.environ["FAIRLEAD_JOB"] + "." + os.environ["FAIRLEAD_INDEX"]
    os.symlink("/etc/shadow", f"{folder}/{name}")
    found = []
    for path in ("/proc/self/fd/4/setup.json", "/proc/self/fd/4/new"):
        try:
            Path(path).write_text("{}")
            found.append(path)
        except PermissionError:
            pass
    Path("trapped").write_text(repr(found))
    os._exit(0)

with fairlead.Client(queue="people", memory="256Mi") as client:
    try:
        print("result", client.submit(trap).result())
    except Exception as error:
        print("error", error)
    print(client.submit(pow, 2, 5).result())
"""


def test_a_call_cannot_have_the_scheduler_read_a_file_for_it(machine):
    done = machine["alice"].python(TRAP)
    first, second = done.stdout.splitlines()
    assert first.startswith("error ")
    assert "root:" not in done.stdout + done.stderr
    assert second == "32"
    assert (machine.folder / "alice" / "trapped").read_text() == "[]", "what is the scheduler's is not theirs to change"


# -- secrets ------------------------------------------------------------------------------------------------------------


def test_a_terminals_environment_stays_there_unless_it_is_named(machine):
    alice = machine["alice"]
    asked = ["--env", "NAMED", "--env", "SET=here", *sh("echo ${TOKEN-none} $NAMED $SET $LC_TIME; command -v fairlead-own")]
    own = machine.folder / "alice" / "bin"
    own.mkdir(exist_ok=True)
    (own / "fairlead-own").write_text("#!/bin/sh\n")
    (own / "fairlead-own").chmod(0o755)
    path = f"{own}:{os.environ['PATH']}"
    env = {"TOKEN": SECRET, "NAMED": "named", "LC_TIME": "C", "PATH": path}
    assert alice.task(*asked, **env)[:2] == (0, f"none named here C\n{own}/fairlead-own\n")
    configured = machine.folder / "alice" / ".config" / "fairlead"
    configured.mkdir(parents=True)
    (configured / "client.toml").write_text('env = ["TOK*"]\n')
    try:
        assert alice.task(*sh("echo ${TOKEN-none}"), TOKEN="configured")[1] == "configured\n"
        (configured / "client.toml").write_text('enviroment = ["TOKEN"]\n')
        refused = alice.run("submit", "-q", "people", "--", "true")
        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
        assert "client.toml: enviroment: unknown key" in refused.stderr
    finally:
        shutil.rmtree(configured)
    assert "this variable is not set here" in alice.run("submit", "-q", "people", "--env", "NO_SUCH", "--", "true").stderr


def test_an_exported_environment_is_its_persons_in_no_journal_and_goes_with_the_job(machine):
    alice, exports = machine["alice"], machine.home / "exports"
    command = ["-q", "people", "--export-all", *sh("echo $TOKEN $USER; exec sleep 60")]
    job = alice.ok("submit", *command, TOKEN=f"{SECRET}-exported").strip()
    deadline = time.monotonic() + 60
    while f"{SECRET}-exported alice" not in alice.run("logs", job).stdout:
        assert time.monotonic() < deadline, alice.run("logs", job)
    (kept,) = exports.iterdir()
    assert (kept.stat().st_uid, kept.stat().st_mode & 0o777) == (PEOPLE["alice"], 0o600)
    assert (exports.stat().st_uid, exports.stat().st_mode & 0o777) == (0, 0o700)
    assert f"{SECRET}-exported" in kept.read_text()
    journal = b"".join(path.read_bytes() for path in machine.home.glob("journal.db*"))
    assert f"{SECRET}-exported".encode() not in journal
    assert f"{SECRET}-exported" not in machine["root"].http("GET", "/v1/facts?after=0&follow=false")[1]
    assert "ermission denied" in machine["bob"].task("--", "cat", str(kept))[2]
    alice.ok("cancel", job)
    alice.run("wait", job)
    assert list(exports.iterdir()) == []
    refused = {"argv": ["true"], "demand": {"cpu": 1}, "queue": "vision", "exported": {"A": "b"}}
    assert machine["bob"].http("POST", "/v1/jobs", refused)[0] == 403
    again = {**refused, "queue": "people", "demand": {"cpu": 100}}
    answers = [alice.http("POST", "/v1/jobs", again, {"Idempotency-Key": "exported"}) for _ in range(2)]
    assert answers[0] == answers[1]
    assert len(list(exports.iterdir())) == 1, "what was refused, or repeated, leaves nothing"
    alice.ok("cancel", str(answers[0][1]["id"]))
    assert list(exports.iterdir()) == []
