"""What is asked for with jobs: by options, by a script and by a file; edited, run again, and told of."""

import contextlib
import json
import os
import re
import socket
import subprocess
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.cli.many_jobs import read_jobs
from fairlead.cli.script_options import is_script, script_options
from fairlead.client import notify
from fairlead.failure import Failure
from fairlead.model.specs import Job, Node, Queue, Settings, Work
from fairlead.people.accounts import myself
from fairlead.people.rules import Caller, Forbidden, rules_of
from fairlead.scheduler import admission, effects, growth
from fairlead.scheduler.cluster import ACCOUNT, OLDER, ONLY_ACCOUNT
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import Configured, JobCancelled, JobsForgotten, JobSubmitted, NodeJoined, NodeLost
from fairlead.scheduler.snapshot import dump
from fairlead.service.api.requests import JobRequest
from fairlead.service.api.submitting import JobSubmission, Submitter, _Submission
from random_cases import cases
from test_notebooks import begun
from test_scheduling import World

NOTHING = {"command": [], "queue": None, "cpu": "1"}


def test_a_script_without_such_lines_and_no_script_at_all_say_nothing(tmp_path):
    (tmp_path / "plain").write_bytes(b"#!/bin/sh\n\xff\n")
    for path in (tmp_path / "plain", tmp_path, tmp_path / "missing"):
        assert script_options(str(path)) is None


def test_nobody_waits_for_a_pipe_that_is_named_as_a_script(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert script_options(str(tmp_path / "pipe")) is None
    assert not is_script(str(tmp_path / "pipe"))


def waited(idle, *words):
    """The number of a job that has ended well."""
    job = idle.submit(*words)
    idle.ok("wait", str(job))
    return job


def test_a_script_runs_whether_it_may_be_executed_or_not(idle):
    (idle.folder / "plain.sh").write_text("#!/bin/sh\necho plain $1\n")
    for mode, name in ((0o644, "plain.sh"), (0o644, "./plain.sh"), (0o755, "plain.sh"), (0o755, "./plain.sh")):
        (idle.folder / "plain.sh").chmod(mode)
        assert idle.ok("logs", str(waited(idle, "-q", "A", name, "x"))) == "plain x\n"
    for mode in (0o644, 0o755):
        (idle.folder / "plain.sh").chmod(mode)
        assert idle.ok("logs", str(waited(idle, "-q", "A", "--cwd", "/", "plain.sh", "y"))) == "plain y\n"
    (idle.folder / "there.sh").write_text("#!/bin/sh\n#SBATCH --chdir=/\necho there\npwd\n")
    assert idle.ok("logs", str(waited(idle, "-q", "A", "there.sh"))) == "there\n/\n"


kinds = st.fixed_dictionaries(
    {
        "queue": st.sampled_from(["a", "b/x", "b"]),
        "demand": st.sampled_from([{"cpu": "1"}, {"cpu": "4"}]),
        "tasks": st.sampled_from([1, 3]),
        "gang": st.booleans(),
        "on": st.sampled_from([{}, {}, {}, {"zone": ["b"]}]),
        "priority": st.sampled_from([0, 0, 0, 1]),
        "name": st.sampled_from(["", "n"]),
        "after": st.sampled_from([[], [], [], [{"job": 1}]]),
        "strict": st.sampled_from([False, False, True]),
        "ray": st.sampled_from([False, False, True]),
        "hold": st.booleans(),
        "retries": st.sampled_from([0, 0, 2**70]),
        "port": st.sampled_from([None, None, 0]),
        "env": st.sampled_from([{}, {"X": "1"}]),
    }
)
changes = st.one_of(
    st.builds(lambda cpu, zone, n, older: NodeJoined(at=0.0, node=Node(f"n{n}", {"cpu": cpu}, {"zone": zone, **older})),
              st.sampled_from([2000, 9000]), st.sampled_from("ab"), st.integers(0, 1), st.sampled_from([{}, {}, {OLDER: "0.1"}])),
    st.builds(lambda n: NodeLost(at=0.0, node=f"n{n}"), st.integers(0, 1)),
    st.builds(
        lambda limit, draining, largest, strict: Configured(
            at=0.0, settings=Settings(),
            queues=[Queue("a", limit=limit, strict=strict), Queue("b", draining=draining), Queue("b/x", largest_task=largest),
                    Queue("b/*")],
        ),
        st.sampled_from([{}, {"cpu": 3000}]), st.booleans(), st.sampled_from([None, {"cpu": 5000}]), st.booleans(),
    ),
)  # fmt: skip


plain = {"queue": "a", "demand": {"cpu": "1"}, "strict": True, "env": {}, "port": None}


@given(events=st.lists(kinds | changes, min_size=10, max_size=40))
@example(
    events=[NodeJoined(at=0.0, node=Node("n0", {"cpu": 9000}, {OLDER: "0.1"})), {**plain, "port": 0}, plain, {**plain, "port": 0}]
)
@settings(max_examples=cases(15), deadline=None)
def test_a_remembered_check_is_what_another_check_would_find(events):
    """Checks of jobs of one kind are made once until something changes; here beside a scheduler that remembers none."""
    state, unfinished = new_state(), SimpleNamespace(exports=None)
    client = SimpleNamespace(authenticator=SimpleNamespace(rules=None), clock=None)
    caller = Caller(myself())
    known = Submitter(client, unfinished)

    def checked(submitter, request):
        try:
            tasks, work = request.work()
            one = _Submission(caller, [JobSubmission(request, tasks, request.gang or request.ray, work, {})], "", "")
            submitter._check_some(state, one, 1)
            return one.checked
        except (admission.Refused, Forbidden) as refused:
            return type(refused), str(refused)

    queues = [Queue("a"), Queue("b"), Queue("b/*")]
    begin = [Configured(at=0.0, queues=queues, settings=Settings()), NodeJoined(at=0.0, node=Node("n0", {"cpu": 9000}))]
    for event in [*begin, *events]:
        if isinstance(event, dict):
            request = JobRequest(argv=["true"], **event)
            found = checked(known, request)
            assert found == checked(Submitter(client, unfinished), request)
            if isinstance(found, list):
                assert found[0].job.work.env == event["env"]
                assert not found[0].kind.job.work.env
                apply(state, admission.take(state, [found[0].job], 0.0))
        elif not isinstance(event, NodeLost) or state.cluster.rows.get(event.node) in np.flatnonzero(
            state.nodes.up[: state.nodes.n]
        ):
            with contextlib.suppress(admission.Refused):
                if isinstance(event, Configured):
                    admission.configure(state, event.queues, event.settings, 0.0)
                apply(state, event)
                client.authenticator.rules = rules_of(state, True)


def test_checks_of_large_requests_are_not_remembered():
    """Refused ones count toward no bound of their caller: 10,000 of them would fill the memory."""
    state = new_state()
    apply(state, Configured(at=0.0, queues=[Queue("a")], settings=Settings()))
    apply(state, NodeJoined(at=0.0, node=Node("n", {"cpu": 9000})))
    client = SimpleNamespace(authenticator=SimpleNamespace(rules=rules_of(state, True)), clock=None)
    submitter = Submitter(client, SimpleNamespace(exports=None))
    for length, kinds in ((100, 1), (100, 1), (4000, 1), (200, 2)):
        request = JobRequest(argv=["true"], demand={"cpu": "1"}, on={"x": ["y" * length]}, strict=True)
        asked = JobSubmission(request, 1, False, request.work()[1], {})
        one = _Submission(Caller(myself()), [asked], "", "")
        with pytest.raises(admission.Refused, match="no node has x=y"):
            submitter._check_some(state, one, 1)
        assert len(submitter._kinds) == kinds
    with mock.patch.object(submitter, "_check", wraps=submitter._check) as checks:
        request = request.model_copy(update={"on": {"x": ["y" * 4000]}, "strict": False})
        one = _Submission(Caller(myself()), [asked._replace(request=request)] * 50, "", "")
        submitter._check_some(state, one, 50)
    assert (len(one.checked), checks.call_count, len(submitter._kinds)) == (50, 1, 2), "the jobs of a request are alike"


def test_a_job_without_labels_is_told_that_no_node_is_up():
    """Also where a node that is gone was only for some accounts, which is a constraint on nodes."""
    state = new_state()
    apply(state, Configured(at=0.0, queues=[Queue("a")], settings=Settings()))
    apply(state, NodeJoined(at=0.0, node=Node("n", {"cpu": 9000}, {ONLY_ACCOUNT: "ada"})))
    job = Job("a", {"cpu": 1000}, user="bob")
    assert "node n " in admission.never_starts(state, job)
    apply(state, NodeLost(at=0.0, node="n"))
    assert admission.never_starts(state, job) == "no node is up: the job waits for one to join"


def test_jobs_of_a_request_come_after_others_by_name(monkeypatch):
    """After the unfinished ones of their user, or the newest; also after those of the same request that come before."""
    state = new_state()
    apply(state, Configured(at=0.0, queues=[Queue("a")], settings=Settings()))
    apply(state, NodeJoined(at=0.0, node=Node("n", {"cpu": 9000})))
    x = Job("a", {"cpu": 1000}, user="ada", name="x")
    apply(state, *admission.submit(state, [x, replace(x, name="y", group="g"), replace(x, user="bob")], 0.0))
    apply(state, JobCancelled(at=0.0, id=1))
    z, alone = replace(x, name="z"), replace(x, singleton=True)

    def submit(after):
        return admission.submit(state, [z, x, z, alone, alone], 0.0, [[(name, "end") for name in names] for names in after])

    (fact,) = submit([["x"], [], ["x", "g"], [], []])
    assert [[before.job for before in job.after] for _, job in fact.numbered()] == [[1], [], [5, 2], [5], [5]]
    with pytest.raises(admission.Unknown, match=r"^jobs\.0: after: you have no job of the name or group 'q'"):
        submit([["q"], [], [], [], []])
    monkeypatch.setattr(admission, "MOST_AFTER", 4)
    with pytest.raises(admission.Refused, match=r"^jobs\.4: after: more than 4 for the jobs of a request"):
        submit([["x"], [], ["x", "g"], [], []])


def test_remembered_rows_of_jobs_are_what_they_would_be_anew(monkeypatch):
    """Rows of jobs alike are made once until something changes; here beside a state that remembers none."""
    monkeypatch.setattr(effects, "COMPACT_FROM", 0)
    plain = Job("a", {"cpu": 1000}, uid=1, user="v", work=Work(["true"]))
    kinds = [
        plain, replace(plain, user="u"), replace(plain, name="x"), replace(plain, work=Work(["cat"], input="pipe")),
        replace(plain, tasks=2, gang=True, held=True), replace(plain, retries=1, retry_delay=5.0, on={"zone": ["a"]}),
    ]  # fmt: skip
    labels = [{}, {"zone": "a"}, {f"{ACCOUNT}v": "no account"}, {ONLY_ACCOUNT: "u"}, {OLDER: "fairlead 0.1"}]

    def anew(state, columns):
        return *growth.rows_of_kinds(state, columns.jobs), np.arange(len(columns.jobs))

    def happen(fact):
        apply(known, fact)
        with monkeypatch.context() as patch:
            patch.setattr(growth, "rows_of_jobs", anew)
            apply(fresh, fact)
        assert known.jobs.rows[: known.jobs.n].tobytes() == fresh.jobs.rows[: fresh.jobs.n].tobytes()

    for seed in range(6):
        rng, known, fresh = np.random.default_rng(seed), new_state(), new_state()
        happen(Configured(at=0.0, queues=[Queue("a")], settings=Settings()))
        for _ in range(20):
            happen(NodeJoined(at=0.0, node=Node("n", {"cpu": 9000}, labels[rng.integers(len(labels))])))
            for _ in range(rng.integers(1, 4)):
                first, *more = (kinds[k] for k in rng.integers(len(kinds), size=rng.integers(1, 4)))
                happen(JobSubmitted(at=0.0, id=known.index.last + 1, job=first, more=more))
            if rng.random() < 0.3:
                going = sorted(known.index.specs)
                for number in going:
                    happen(JobCancelled(at=0.0, id=number))
                happen(JobsForgotten(at=0.0, ids=going))
        assert list(dump(known)) == list(dump(fresh))


def test_labels_that_no_node_has_are_said_at_once():
    world = World([Queue("a")], ({"cpu": 9000}, {"zone": "a"}), ({"cpu": 2000}, {"zone": "b"}))
    said = {
        "c": "no node has zone=c: the job waits for one to join",
        "b": "no node with its labels is large enough for cpu=4: the job waits for one to join",
        "a": None,
    }
    for zone, expected in said.items():
        assert admission.doubt(world.state, Job("a", {"cpu": 4000}, on={"zone": [zone]})) == expected
    prefers = Job("a", {"cpu": 1000}, prefer={"zone": ["b", "c"], "disk": ["ssd", "nvme"]})
    assert admission.doubt(world.state, prefers) == "no node has disk=ssd|nvme, which it prefers: its tasks go to any"
    assert admission.doubt(world.state, Job("a", {"cpu": 1000}, prefer={"zone": ["c", "a"]})) is None


def test_jobs_of_a_file_are_read_as_json_and_as_csv(tmp_path):
    path = tmp_path / "jobs"
    path.write_text(
        '{"command": "echo \'a b\'", "cpu": 2, "on": {"zone": "a"}}\n\n{"command": ["true"], "time-limit": "5min", "gang": true}'
    )
    assert read_jobs(str(path), NOTHING) == [
        {**NOTHING, "command": ["echo", "a b"], "cpu": "2", "on": ["zone=a"], "where": f"{path}:1"},
        {**NOTHING, "command": ["true"], "time_limit": "5min", "gang": True, "where": f"{path}:3"},
    ]
    path.write_text("\ufeffcommand,queue,tasks\necho one,A,\n\"sh -c 'exit 1'\",B,3\n", "utf-8")
    assert read_jobs(str(path), NOTHING) == [
        {**NOTHING, "command": ["echo", "one"], "queue": "A", "where": f"{path}:2"},
        {**NOTHING, "command": ["sh", "-c", "exit 1"], "queue": "B", "tasks": 3, "where": f"{path}:3"},
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "contains no job"),
        ('{"command": 3}', ":1: command: write text, or a list of texts"),
        ('{"comand": "x"}', ":1: comand: unknown option: the known ones are after, "),
        ('{"command": "x"}\n{"command": ', ":2: not JSON: column 13: a value is missing here"),
        ('{"command": "x", "tasks": 2.5}', ":1: tasks: write a whole number, not 2.5"),
        ('{"cpu": 1}', ":1: no command"),
        ("command,gang\ntrue,yes", ":2: gang: write true or false, not 'yes'"),
        ("command,cpu\ntrue", ":2: must have as many cells as the first line"),
        ('command\n"it\'s"', ":2: command: a quote is not closed: it's"),
        ('command\ntrue\n"echo 1\necho 2', ":3: not CSV: a quote is not closed"),
        ("command\nls -l | wc", ":2: command: no shell reads |: write sh -c 'ls -l | wc'"),
        ("command\ntrue && echo", ":2: command: no shell reads &&: write sh -c 'true && echo'"),
        ("{" * 100_000, ":1: not JSON: column 2: write a key in double quotes here"),
        ('{"command": "a", "command": "b"}', ":1: command: is given twice: keep one of them"),
        ('{"command": "a", "on": {"x": "1", "x": "2"}}', ":1: on.x: is given twice: keep one of them"),
        ('[{"command": "a"}]', ":1: begins with [: write one object per line"),
        (f'\n{{"command": "a", "cpu": {"9" * 5000}}}', ":2: a number has more digits than can be read"),
        ("command,colour\na,red", ":1: colour: unknown option: the known ones are after, "),
        ('{"command": "a", "notify": 3}', ":1: notify: write text, or a list of texts"),
        ("command,cpu,cpu\na,1,2", ":1: two columns are named 'cpu': keep one of them"),
    ],
)
def test_what_is_wrong_in_a_file_of_jobs_is_said_with_its_line(tmp_path, text, said):
    path = tmp_path / "jobs"
    path.write_text(text)
    with pytest.raises(Failure) as failure:
        read_jobs(str(path), NOTHING)
    assert str(failure.value).startswith(str(path))
    assert said in str(failure.value)
    assert len(str(failure.value)) < 450


def test_the_only_place_for_users_is_the_default():
    names = ("vision", "guests", "guests/*")
    assert admission.leaf_for(World(list(map(Queue, names))).state, None, "ada") == "guests/ada"
    world = World(list(map(Queue, (*names, "lab", "lab/*"))))
    with pytest.raises(admission.Refused, match="no queue was named"):
        admission.leaf_for(world.state, None, "ada")


def test_a_job_of_bytes_is_doubted():
    world = World([Queue("a")])
    assert "was 4Mi or 4Gi meant" in admission.doubt(world.state, Job("a", {"cpu": 1000, "memory": 4}))


def test_a_script_is_submitted_with_its_own_options(idle):
    script = idle.folder / "job.sh"
    script.write_text(
        "#!/bin/sh\n#FAIRLEAD --queue A --name mine --cpu 2\n#FAIRLEAD --notify 'touch told-by-script'\n"
        "#SBATCH -c 3 -a 0-1 --mem 1G --hint=nomultithread\necho $1 $FAIRLEAD_INDEX\n"
    )
    done = idle.call("submit", "--cpu", "4", "job.sh", "hello")
    assert done.stderr == "fairlead: job.sh:4: #SBATCH --hint=nomultithread: has no effect here\n"
    job = int(done.stdout)
    assert idle.call("wait", str(job)).returncode == 0
    found = idle.job(job)
    assert (found["name"], found["queue"], found["tasks"], found["demand"]["cpu"]) == ("mine", "A", 2, 4000)
    assert idle.ok("logs", f"{job}.1") == "hello 1\n"
    idle.until((idle.folder / "told-by-script").exists)
    script.write_text("#FAIRLEAD --speed 9\n")
    wrong = idle.call("submit", "job.sh")
    assert (wrong.returncode, wrong.stderr) == (1, "fairlead: job.sh:1: #FAIRLEAD --speed 9: No such option: --speed\n")


def test_a_queue_that_is_not_there_is_refused_with_the_line_that_names_it(idle):
    for line, place in (("FAIRLEAD --queue Z", "FAIRLEAD"), ("SBATCH --mem=1G -A Z", "SBATCH --account=Z")):
        (idle.folder / "job.sh").write_text(f"#!/bin/sh\n#FAIRLEAD --cpu 1\n#{line}\ntrue\n")
        for more in ([], ["--when"]):
            wrong = idle.call("submit", *more, "job.sh")
            said = f"fairlead: job.sh:3: #{place}: there is no queue 'Z': choose one of A, B, lab/<any name>\n"
            assert (wrong.returncode, wrong.stderr) == (1, said)
    assert (
        idle.call("submit", "-q", "Y", "job.sh").stderr == "fairlead: there is no queue 'Y': choose one of A, B, lab/<any name>\n"
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--when", "--when: not allowed in a script: write it on the command line"),
        ("--name", "--name: Option '--name' requires an argument."),
        ("--jobs=x.csv", "--jobs=x.csv: not allowed in a script: write it on the command line"),
        ("--cpu 2 make all", "make: is not an option: write the command on its own line, below"),
        ("--retries 300", "--retries: 300: use a number from 0 to 100"),
        ("--gpu 1", "--gpu: no node has any: there is cpu, memory"),
    ],
)
def test_a_script_says_how_it_is_submitted_and_nothing_else(idle, line, said):
    (idle.folder / "job.sh").write_text(f"#!/bin/sh\n#FAIRLEAD {line}\ntrue\n")
    before = idle.ask("jobs", limit=1)["jobs"]
    wrong = idle.call("submit", "-q", "A", "job.sh")
    assert (wrong.returncode, wrong.stderr) == (1, f"fairlead: job.sh:2: #FAIRLEAD {said}\n")
    assert idle.ask("jobs", limit=1)["jobs"] == before


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--nodes=2000", "--nodes=2000: use 1000 or less"),
        ("--gres=gpu:1", "--gres=gpu:1: no node has any: there is cpu, memory"),
        ("-J 12", "--job-name=12: 12 would be read as a job's number: add a letter, such as job-12"),
    ],
)
def test_a_refused_line_of_slurm_is_named_once_and_as_it_is_written(idle, line, said):
    (idle.folder / "job.sh").write_text(f"#!/bin/bash\n#SBATCH --mem=1G\n#SBATCH {line}\nsrun true\n")
    assert idle.call("submit", "-q", "A", "job.sh").stderr.endswith(f"fairlead: job.sh:3: #SBATCH {said}\n")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["--pack", "--spread"], "--pack and --spread exclude each other: give one of them"),
        (["--grace soon"], "--grace 'soon' is not a duration"),
        (["--fetch x"], "--fetch: only with --send"),
        (["--notify-on never"], "--notify-on 'never': write one or more of start, failure, end"),
    ],
)
def test_what_a_script_says_is_no_wrong_usage(idle, lines, said):
    (idle.folder / "job.sh").write_text("\n".join(["#!/bin/sh", *(f"#FAIRLEAD {line}" for line in lines), "true"]))
    refused = idle.call("submit", "-q", "A", "job.sh")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(f"fairlead: {said}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nope.sh",), "nope.sh: no such program"),
        (("echo hi",), "'echo hi' is one word, and no such program: omit the quotes, or write sh -c 'echo hi'"),
        (
            ("cat a/b | wc {}",),
            "'cat a/b | wc {{}}' is one word, and no such program: omit the quotes, or write sh -c 'cat a/b | wc {{}}'",
        ),
        (("./nope",), "./nope: no such file in {folder}"),
        (("./data",), "./data: is not executable: chmod +x ./data, or name its interpreter before it"),
        (("./folder",), "./folder: is a folder, not a program"),
        (("--cwd", "/nope", "--", "true"), "/nope: no such folder to run in"),
    ],
)
def test_what_is_not_here_is_refused_before_it_waits(idle, words, said):
    said = f"fairlead: {said.format(folder=idle.folder)}"
    (idle.folder / "folder").mkdir(exist_ok=True)
    (idle.folder / "data").write_bytes(b"\0")
    for command, code in (("submit", 1), ("run", 127)):
        done = idle.call(command, "-q", "A", *words)
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr == f"{said}; --no-check submits it anyway\n"
    unchecked = idle.call("submit", "-q", "A", "--hold", "--no-check", *words)
    assert (unchecked.returncode, unchecked.stderr) == (0, "")
    job = unchecked.stdout.strip()
    later = idle.call("submit", "-q", "A", "--after", job, *words)
    assert (later.returncode, later.stderr) == (0, f"{said}\n"), "the job before it may make the program"
    idle.ok("cancel", job, later.stdout.strip())
    (idle.folder / "here").touch()
    assert "; write ./here for the file in the folder; --no-check" in idle.call("run", "-q", "A", "here").stderr


@pytest.mark.parametrize("memory", ["4", "4096", "1000Ki", "0.5M"])
def test_memory_in_which_no_program_runs_is_refused(idle, memory):
    done = idle.call("submit", "-q", "A", "--memory", memory, "--", "true")
    number = memory.rstrip("KMi")
    said = f"is less than 1Mi, in which no program runs: write {number}Mi or {number}Gi"
    assert (done.returncode, done.stderr) == (2, f"fairlead: --memory {memory}: {said}\n")


def test_a_job_that_waits_says_why_on_a_terminal(idle):
    import pty

    large = idle.submit("-q", "A", "--cpu", "1", "-n", "100", "--", "sleep", "60")
    idle.until(lambda: idle.job(large)["running"] == 9)
    ours, theirs = pty.openpty()
    waiting = idle.start("run", "-q", "A", "--cpu", "9", "--", "echo", "done", stderr=theirs)
    os.close(theirs)
    shown = b""
    while b"; " not in shown:
        shown += os.read(ours, 4096)
    assert re.search(rb"\r\x1b\[Kfairlead: \d+s: job \d+ waits.*; expected: ", shown), "what is cut comes last"
    piped = idle.start("run", "-q", "A", "--cpu", "9", "--", "true", stderr=subprocess.PIPE, text=True)
    assert re.fullmatch(r"fairlead: job \d+ waits.*; expected: .+; .+\n", piped.stderr.readline())
    idle.ok("cancel", f"{large}")
    assert waiting.wait(60) == 0
    assert waiting.stdout.read() == b"done\n"
    with contextlib.suppress(OSError):  # all that it wrote has been read
        while True:
            shown += os.read(ours, 4096)
    assert shown.endswith(b"\r\x1b[K"), "the line is removed before the output"
    assert piped.wait(60) == 0


def test_one_doubt_hides_no_other(idle):
    (idle.folder / "jobs.csv").write_text("command,cpu,on\ntrue,1000,\ntrue,1,zone=nowhere\n")
    done = idle.call("submit", "-q", "A", "--hold", "--jobs", "jobs.csv")
    assert [line.split(": ")[1] for line in done.stderr.splitlines()] == ["jobs.csv:2", "jobs.csv:3"]
    idle.ok("cancel", *done.stdout.split())


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--at-most", "0", "--", "true"), 2, "--at-most: 0: use a number from 1 to 1,000,000"),
        (("--notify", "adalovelace", "--", "true"), 2, "--notify adalovelace: neither an address nor a known command"),
        (("--notify", " ", "--", "true"), 2, "--notify ' ': is empty: name an https:// or mail address, or a command"),
        (("",), 2, "submit what? Write a command after `--`"),
        (("--led", "--", "true"), 2, "--led: only for a gang: give its number of nodes, or gang and tasks"),
        (("--begin", "9999-12-31", "--", "true"), 2, "--begin '9999-12-31' is too far away: write a time before the year 5000"),
        (("--begin", "now+99999999999999d", "--", "true"), 2, "--begin 'now+99999999999999d' is too far away"),
        (("--begin", "", "--", "true"), 2, "--begin '' is not a time: write now+1h, 16:00, 2026-05-01 or 2026-05-01T16:00"),
        (("--pack", "--spread", "--", "true"), 2, "--pack and --spread exclude each other"),
        (("--bundles", "2", "--", "true"), 2, "--bundles: only for Ray programs: add --ray"),
        (
            ("--ray", "--tasks", "2", "--", "true"),
            2,
            "--tasks: a Ray program runs once: give the size of its placement group with --bundles",
        ),
        (("--ray", "--bundle", "cpu", "--", "true"), 2, "--bundle 'cpu': write NAME=VALUE"),
        (
            ("--ray", "--bundle", "cpu=1,cpu=2", "--", "true"),
            2,
            "--bundle: cpu is given twice: give each resource of a bundle once",
        ),
        (("--ray", "--bundle", "cpu=x", "--", "true"), 2, "--bundle: cpu: 'x' is not a quantity: write a number"),
        (("--ray", "--", "true"), 1, "ray: no Ray cluster is available"),
    ],
)
def test_what_is_most_likely_a_slip_is_refused(idle, words, status, said):
    refused = idle.call("submit", "-q", "A", *words)
    assert refused.returncode == status
    assert refused.stderr.startswith(f"fairlead: {said}")


def test_an_edit_and_a_question_are_doubted_as_a_submission_is(idle):
    job = idle.submit("-q", "A", "--hold", "--", "true")
    edited = idle.call("edit", f"{job}", "--memory", "10")
    bytes_ = "fairlead: --memory 10: is less than 1Mi, in which no program runs: write 10Mi or 10Gi\n"
    assert (edited.returncode, edited.stderr) == (2, bytes_)
    assert "no node is large enough for cpu=10000" in idle.call("edit", f"{job}", "--cpu", "10000", "--memory", "1Gi").stderr
    assert idle.call("submit", "-q", "A", "--when", "--memory", "10", "--", "true").stderr == bytes_
    nothing = "--cpu, --memory, --gpu and --resource: all are 0: ask for something of some resource, such as cpu\n"
    emptied = idle.call("edit", f"{job}", "--cpu", "0", "--memory", "0")
    assert (emptied.returncode, emptied.stderr) == (2, f"fairlead: {nothing}")
    idle.ok("cancel", f"{job}")


def test_a_job_begins_at_another_time(idle):
    job = idle.submit("-q", "A", "--begin", "now+1h", "--name", "moved", "--", "echo", "begun")
    assert idle.ok("edit", f"{job}", "--begin", "now+2d") == f"job {job} is changed\n"
    assert idle.ask(f"jobs/{job}")["begin"] > time.time() + 47 * 3600
    assert "its time to begin has not come" in idle.ok("why", f"{job}")
    idle.ok("edit", "moved", "--begin", "now")
    idle.ok("wait", f"{job}")
    plain = idle.submit("-q", "A", "--hold", "--", "true")
    idle.ok("edit", f"{plain}", "--begin", "tomorrow")
    idle.ok("release", f"{plain}")
    assert "its time to begin has not come" in idle.ok("why", f"{plain}")
    idle.ok("edit", f"{plain}", "--begin", "1969-12-31")
    idle.ok("wait", f"{plain}")
    running = begun(idle, "-q", "A", "--", "sleep", "60")
    assert idle.call("edit", f"{running}", "--begin", "tomorrow").stderr == (
        f"fairlead: job {running} is running: its time to begin can be changed only while all its tasks wait\n"
    )


def test_a_file_of_jobs_is_submitted_whole_or_not_at_all(idle):
    path = idle.folder / "jobs.csv"
    path.write_text("command,name\necho one,first\necho two,second\n")
    first, second = map(int, idle.ok("submit", "-q", "A", "--jobs", "jobs.csv").split())
    assert [idle.job(job)["name"] for job in (first, second)] == ["first", "second"]
    path.write_text("command,queue\necho one,A\necho two,nowhere\n")
    wrong = idle.call("submit", "--jobs", "jobs.csv")
    assert wrong.stderr.startswith("fairlead: jobs.csv:3: there is no queue 'nowhere'")
    faults = [
        ("command,memory\n\ntrue,4Gx", "jobs.csv:3: demand: memory: "),
        ("command,time-limit\ntrue,1h\ntrue,soon", "jobs.csv:3: --time-limit 'soon' is not a duration: "),
        ("command,tasks\ntrue,1\ntrue,0", "jobs.csv:3: tasks: 0: "),
        ("command,signal\ntrue,KILL", "jobs.csv:2: signal: "),
        ("command,resource\ntrue,disk=1", "jobs.csv:2: demand: disk: no node has any: "),
        ("command,cpu\ntrue,1\nno-such-program,1", "jobs.csv:3: no-such-program: no such program"),
        ("command,cpu\ntrue,1\n\ntrue,900", "jobs.csv:4: no node is large enough"),
    ]
    for text, said in faults:
        path.write_text(text)
        told = idle.call("submit", "-q", "A", "--hold", "--jobs", "jobs.csv").stderr
        assert told.startswith(f"fairlead: {said}"), told
    path.write_text("command,queue\necho one,A\necho two,nowhere\n")
    assert idle.call("submit", "--when", "--jobs", "jobs.csv").stderr.startswith("fairlead: jobs.csv:3: ")
    for job in range(second + 1, idle.newest() + 1):
        idle.ok("cancel", f"{job}")


def test_at_most_so_many_run_and_edits_change_that(idle):
    go = idle.folder / "go"
    gate = "until test -e go; do sleep 0.05; done"
    job = idle.submit("-q", "A", "-n", "6", "--cpu", "0.5", "--memory", "1Mi", "--at-most", "2", "--", "sh", "-c", gate)
    idle.until(lambda: idle.job(job)["running"] == 2)
    assert idle.ok("why", f"{job}").startswith(f"job {job}: it runs as many tasks as it asked for at once, 2")
    assert idle.ok("edit", f"{job}", "--at-most", "4") == f"job {job} is changed\n"
    idle.until(lambda: idle.job(job)["running"] == 4)
    refused = idle.call("edit", f"{job}", "--memory", "2Mi")
    assert refused.stderr == f"fairlead: job {job} is running: its demand can be changed only while all its tasks wait\n"
    go.touch()
    assert idle.call("wait", f"{job}").returncode == 0
    assert "has ended: `fairlead rerun" in idle.call("edit", f"{job}", "--priority", "1").stderr
    gang = idle.submit("-q", "A", "-n", "2", "--gang", "--hold", "--", "true")
    refused = idle.call("edit", f"{gang}", "--at-most", "2")
    said = "fairlead: --at-most: a gang starts all its tasks at once: omit it\n"
    assert (refused.returncode, refused.stderr) == (2, said)
    idle.ok("cancel", f"{gang}")


def test_a_held_job_is_edited_and_released(idle):
    job = idle.submit("-q", "A", "--hold", "--", "sh", "-c", "echo $FAIRLEAD_CPU")
    assert idle.job(job)["status"] == "held"
    edits = ("-q", "B", "--cpu", "3", "--priority", "7", "--time-limit", "1h")
    assert idle.ok("edit", f"{job}", *edits) == f"job {job} is changed\n"
    assert idle.ok("edit", f"{job}", *edits) == f"job {job} asked for that already\n"
    found = idle.job(job)
    assert [found[name] for name in ("queue", "priority", "time_limit")] == ["B", 7, 3600.0]
    assert found["demand"] == {"cpu": 3000, "memory": 2**30}
    assert "no queue 'C'" in idle.call("edit", f"{job}", "-q", "C").stderr
    assert idle.call("edit", f"{job}").stderr.startswith("fairlead: edit what?")
    idle.ok("release", f"{job}")
    idle.ok("wait", f"{job}")
    assert idle.ok("logs", f"{job}") == "3\n"


def test_what_failed_runs_again_with_the_indices_it_had(idle):
    script = "echo $FAIRLEAD_INDEX {index} {{index}}; test $FAIRLEAD_INDEX != 3 && test $FAIRLEAD_INDEX != 1 || test -e good"
    job = idle.submit("-q", "A", "-n", "5", "--name", "mine", "--memory", "64Mi", "--", "sh", "-c", script)
    assert idle.call("wait", f"{job}").returncode == 1
    (idle.folder / "good").touch()
    again = int(idle.ok("rerun", f"{job}", "--failed"))
    assert idle.call("wait", f"{again}").returncode == 0
    assert [idle.ok("logs", f"{again}.{k}") for k in (1, 3)] == ["1 1 {index}\n", "3 3 {index}\n"]
    assert (idle.job(again)["tasks"], idle.job(again)["name"]) == (2, "mine")
    lines = [line.split() for line in idle.ok("job", f"{again}").splitlines()[-4:]]
    assert lines[0][:2] == ["task", "status"]
    assert [line[:2] for line in lines[2:]] == [["1", "succeeded"], ["3", "succeeded"]]
    whole = int(idle.ok("rerun", f"{again}"))
    assert idle.call("wait", f"{whole}").returncode == 0
    assert idle.ok("logs", f"{whole}.3") == "3 3 {index}\n"
    refused = idle.call("rerun", f"{whole}", "--failed")
    assert refused.stderr == f"fairlead: no task of job {whole} has failed: omit --failed to rerun the whole job\n"


def test_a_gang_of_which_a_task_failed_runs_again_whole(idle):
    script = "test $FAIRLEAD_RANK = 0 && exec sleep 9; exit 1"
    job = idle.submit("-q", "A", "--gang", "-n", "2", "--memory", "64Mi", "--", "sh", "-c", script)
    assert idle.call("wait", f"{job}").returncode == 1
    again = int(idle.ok("rerun", f"{job}", "--failed"))
    assert (idle.job(again)["tasks"], idle.job(again)["gang"]) == (2, True)
    idle.call("cancel", f"{again}")


def test_what_read_a_pipe_runs_again_without_it_and_that_is_said(idle):
    assert idle.call("run", "-q", "A", "--", "cat", input="given\n").stdout == "given\n"
    first = idle.newest()
    again = idle.call("rerun", f"{first}")
    assert again.stderr == (
        f"fairlead: job {first} read the standard input of `fairlead run`, which is not stored: now it reads nothing\n"
    )
    idle.ok("wait", again.stdout.strip())
    assert idle.ok("logs", again.stdout.strip()) == ""
    assert idle.call("rerun", again.stdout.strip()).stderr == ""


def test_a_condition_is_taken_away(idle):
    job = idle.submit("-q", "A", "--on", "zone=nowhere", "--", "true")
    assert idle.ok("edit", f"{job}", "--anywhere") == f"job {job} is changed\n"
    idle.ok("wait", f"{job}")
    assert idle.job(job)["on"] == {}
    assert "give one of them" in idle.call("edit", f"{job}", "--anywhere", "--on", "zone=east").stderr


def test_a_note_outlives_the_queue_that_it_is_about(idle):
    jobs = idle.folder / "jobs"
    lines = [{"command": "sleep 600", "notify": "cat > one"}, {"command": "true", "notify": ["cat > two"]}]
    jobs.write_text("\n".join(map(json.dumps, lines)))
    first, second = map(int, idle.ok("submit", "-q", "A", "--jobs", "jobs").split())
    assert idle.ok("cancel", "--queue", "A").splitlines()[0] == f"job {first} is cancelled"
    idle.until(lambda: all((idle.folder / name).exists() and (idle.folder / name).read_text() for name in ("one", "two")))
    told = [json.loads((idle.folder / name).read_text())["jobs"] for name in ("one", "two")]
    assert [[job["id"] for job in each] for each in told] == [[first], [second]]
    assert told[0][0]["status"] == "cancelled"
    note = idle.submit("-q", "A", "--hold", "--notify", "true", "--", "true") + 1
    assert idle.ok("cancel", f"{note}") == f"job {note} is cancelled\n"
    idle.ok("cancel", f"{note - 1}")


def test_the_last_lines_of_a_task_and_what_it_writes_then(idle):
    job = idle.submit("-q", "A", "--", "sh", "-c", "seq 5; until test -e go; do sleep 0.05; done; echo 6")
    idle.until(lambda: idle.ok("logs", f"{job}").endswith("5\n"))
    following = idle.start("logs", "-f", "--tail", "2", f"{job}")
    assert [following.stdout.readline() for _ in range(2)] == [b"4\n", b"5\n"]
    (idle.folder / "go").touch()
    assert following.communicate(timeout=60)[0] == b"6\n"
    assert idle.ok("logs", "--tail", "1", f"{job}") == "6\n"


def test_a_job_says_what_it_asked_for_beside_the_usual(idle):
    first = idle.submit("-q", "A", "--hold", "--", "true")
    asked = ("--retries", "2", "--time-limit", "90min", "--grace", "30s", "--exit-done")
    after = ("--after", f"{first}", "--after", f"{first}:end")
    job = idle.submit("-q", "A", "--hold", *asked, *after, "--", "true")
    shown = idle.ok("job", f"{job}")
    for line in (
        f"after      job {first}, if it succeeds; job {first}, when it has ended",
        "retries    2 of each task that fails",
        "time limit 90min each",
        "grace      30s, up to its queue's maximum",
        "done by    exit 0, also when preempted",
    ):
        assert f"\n{line}\n" in shown
    plain = idle.ok("job", f"{first}")
    assert not any(word in plain for word in ("after", "retries", "time limit", "grace", "done by"))
    idle.ok("cancel", f"{first}", f"{job}")


def test_somebody_is_told_when_it_has_ended(idle):
    heard = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        to = ("--notify", f"http://127.0.0.1:{server.server_port}/x", "--notify", "cat > told; echo $FAIRLEAD_STATUS > status")
        job = idle.submit("-q", "A", "--name", "mine", *to, "--", "false")
        idle.until(lambda: heard and (idle.folder / "status").exists() and (idle.folder / "status").read_text())
        server.shutdown()
    assert (heard[0]["event"], heard[0]["text"]) == ("end", f"end: job {job} mine has failed")
    assert heard[0]["jobs"][0]["id"] == job
    assert json.loads((idle.folder / "told").read_text())["jobs"][0]["status"] == "failed"
    assert (idle.folder / "status").read_text() == "failed\n"
    wrong = idle.call("submit", "-q", "A", "--notify", "ftp://x", "--", "true")
    assert wrong.stderr == "fairlead: --notify ftp://x: write an address that begins with https:// or http://\n"


def test_somebody_is_told_of_starts_and_failures_only(idle):
    """With a recipient from a file, which neither the command line nor the journal has."""
    (idle.folder / "to").write_text('cat >> "$FAIRLEAD_STATUS"\n')
    about = ("-q", "A", "--notify", "@to", "--notify-on")
    good = idle.submit(*about, "failure", "--", "true")
    started = idle.submit(*about, "start,failure", "--", "sh", "-c", "until test -e go; do sleep 0.05; done; exit 3")
    idle.until(lambda: (idle.folder / "running").exists() and (idle.folder / "running").read_text())
    assert json.loads((idle.folder / "running").read_text())["text"] == f"start: job {started} has started"
    (idle.folder / "go").touch()
    idle.until(lambda: (idle.folder / "failed").exists() and (idle.folder / "failed").read_text())
    assert json.loads((idle.folder / "failed").read_text())["jobs"][0]["id"] == started
    idle.until(lambda: idle.ask(f"jobs/{good + 1}")["status"] == "succeeded")
    assert not (idle.folder / "succeeded").exists()
    assert "FAIRLEAD_STATUS" not in json.dumps(idle.ask(f"jobs/{good + 1}"))
    for wrong, said in {
        ("@none",): "--notify @none: cannot be read: No such file or directory",
        ("http://[::1",): "--notify http://[::1: is not an address: Invalid IPv6 URL",
        ("https://lab\n",): "--notify https://lab\\n: no address has control characters or several lines",
        ("ada@lab\nBcc:eve@lab",): "--notify ada@lab\\nBcc:eve@lab: no address has control characters or several lines",
        ("true", "--notify-on", "soon"): "--notify-on 'soon': write one or more of start, failure, end, with commas",
    }.items():
        assert idle.call("submit", "-q", "A", "--notify", *wrong, "--", "true").stderr == f"fairlead: {said}\n"


def test_a_job_that_failed_sends_one_message_of_failure_and_end(idle):
    job = idle.submit("-q", "A", "--notify", "cat >> messages", "--notify-on", "failure,end", "-n", "2", "--", "false")
    idle.until(lambda: idle.ask(f"jobs/{job + 1}")["status"] == "succeeded")
    (line,) = map(json.loads, (idle.folder / "messages").read_text().splitlines())
    assert (line["event"], line["text"]) == ("end", f"end: job {job} has failed: 2 failed")
    assert idle.call("job", f"{job + 2}").returncode == 1, "there is no second one"
    counts = {"tasks": 1, "succeeded": 0, "failed": 0, "cancelled": 1, "finished_at": 1.0}
    assert notify.summary("end", [{"id": 7, "name": "", "status": "cancelled", **counts}]) == "end: job 7 was cancelled"


def test_a_file_names_a_recipient_in_its_first_line(tmp_path):
    (tmp_path / "to").write_text("https://hook/secret \nhttps://hook/other\n")
    assert notify.recipient(f"@{tmp_path}/to") == "https://hook/secret"
    (tmp_path / "to").write_text("\n")
    with pytest.raises(notify.NotifyError, match="is empty"):
        notify.recipient(f"@{tmp_path}/to")


def test_mail_is_sent_by_a_server(monkeypatch):
    lines = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            connection, _ = listening.accept()
            with connection, connection.makefile("rw", newline="\r\n") as file:
                print("220 here", file=file, flush=True)
                while line := file.readline().strip():
                    lines.append(line)
                    if line.upper() == "DATA":
                        print("354 go on", file=file, flush=True)
                        while (text := file.readline().rstrip("\r\n")) != ".":
                            lines.append(text)
                    print("221 bye" if line.upper() == "QUIT" else "250 well", file=file, flush=True)

        Thread(target=serve, daemon=True).start()
        monkeypatch.setenv("FAIRLEAD_SMTP", f"smtp://127.0.0.1:{listening.getsockname()[1]}")
        counts = {"tasks": 2, "succeeded": 0, "failed": 2, "cancelled": 0}
        job = {"id": 7, "name": "train\nBcc: eve@lab", "status": "failed", **counts, "finished_at": 1.0}
        notify.notify("ada@lab", "failure", [job])
    assert "rcpt TO:<ada@lab>" in lines
    assert r"Subject: fairlead: failure: job 7 train\nBcc: eve@lab has failed: 2 failed" in lines
    with pytest.raises(notify.NotifyError, match=r"mail by 127\.0\.0\.1: "):
        notify.notify("ada@lab", "failure", [job])
    for wrong in ("mail.lab", "http://x", "smtp://", "smtp://x:y"):
        monkeypatch.setenv("FAIRLEAD_SMTP", wrong)
        with pytest.raises(notify.NotifyError, match="FAIRLEAD_SMTP: write smtp://HOST:PORT"):
            notify.recipient("ada@lab")
    body = notify.request("https://hook/secret", "end", [7])
    assert "secret" not in json.dumps(body | {"exported": {}})
    assert (body["retries"], body["retry_delay"]) == (8, 10.0)


@pytest.mark.parametrize("command", ["why", "job", "fetch", "logs", "exec", "edit", "wait", "hold", "release", "rerun", "cancel"])
def test_what_is_no_job_is_said_in_one_line(idle, command):
    more = {"edit": ["--priority", "1"], "exec": ["--", "true"]}.get(command, [])
    for name in ("no such", ""):
        refused = idle.call(command, name, *more)
        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
        assert f"{name!r} is not a job: write " in refused.stderr


def test_a_job_is_called_by_its_name(idle):
    first, second = (idle.submit("-q", "A", "--hold", "--name", "night.ly", "--", "echo", "here") for _ in range(2))
    assert idle.ok("why", "night.ly").startswith(f"job {second}: it is held")
    assert idle.call("why", f"{first}.0").stderr == f"fairlead: {first}.0: a job is explained as a whole: write {first}\n"
    assert idle.ok("job", f"{first}.0").startswith(f"job        {first} night.ly\n")
    assert idle.call("job", f"{first}.1").stderr.count(f"job {first} has no task 1: its tasks are 0 to 0") == 1
    assert idle.call("fetch", f"{first}.7").stderr == f"fairlead: job {first} has no task 7\n"
    assert idle.ok("job", "night.ly").startswith(f"job        {second} night.ly\n")
    assert idle.ok("edit", "night.ly", "--priority", "3") == f"job {second} is changed\n"
    assert idle.ok("release", "night.ly") == f"job {second} is released\n"
    idle.ok("wait", "night.ly")
    assert idle.ok("logs", "night.ly") == "here\n"
    again = idle.ok("rerun", "night.ly").strip()
    idle.ok("wait", again)
    third = idle.submit("-q", "A", "--hold", "--name", "night.ly", "--", "echo", "here")
    assert idle.ok("cancel", "night.ly", f"{second}") == f"job {second} had ended already\njob {third} is cancelled\n"
    for command in ("why", "wait", "cancel"):
        said = "fairlead: 'night.*' is not a job's name: `fairlead jobs --name 'night.*'` lists the jobs like it\n"
        assert idle.call(command, "night.*").stderr == said
    assert idle.call("wait", f"{first}.0").stderr == f"fairlead: {first}.0: a job is named as a whole: write {first}\n"
    assert idle.call("cancel", f"{first}.2-1").stderr.startswith(
        f"fairlead: {first}.2-1: write JOB.FIRST-LAST, such as {first}.1-2; see"
    )
    assert (
        idle.call("edit", f"{first}.0", "--priority", "3").stderr
        == f"fairlead: {first}.0: a job changes as a whole: write {first}\n"
    )
    assert idle.call("cancel", "--name", "night.ly").returncode == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("squeue -u ada", "no such command 'squeue': write fairlead jobs"),
        ("parallel gzip", "no such command 'parallel': write fairlead submit -- COMMAND ::: WORDS"),
        ("quues", "no such command 'quues'. Did you mean 'queues'?"),
        ("submit -c2 -- true", "no such option: -c: write --cpu"),
        ("submit --mem=2G job.sh", "no such option: --mem: write --memory"),
        ("submit --wrap true", "no such option: --wrap: write -- sh -c 'COMMAND'"),
        ("run -n 2 -- true", "no such option: -n: `fairlead submit` has --tasks"),
        ("run --gang -- true", "no such option: --gang: `fairlead submit` has --gang"),
        ("submit --mem-per-cpu 2G x", "no such option: --mem-per-cpu: write --memory for all CPUs of a task together"),
        ("submit --max-time=5 x", "no such option: --max-time: write --time-limit"),
        ("run --duration 5m x", "no such option: --duration: write --time-limit"),
        ("submit --num-gpus=1 x", "no such option: --num-gpus: write --gpu"),
        ("submit --max-retries=1 x", "no such option: --max-retries: write --retries"),
        ("submit --nice=5 x", "no such option: --nice: write --priority with the opposite sign"),
        ("submit --export=ALL x", "no such option: --export: write --export-all for ALL, or --env NAME"),
        ("submit --qos=high x", "no such option: --qos: omit it: it has no effect here"),
        ("submit --mem-per-gpu=2G x", "no such option: --mem-per-gpu: is of Slurm: see docs/slurm.md"),
        ("run --immediate x", "no such option: --immediate: omit it: it has no effect here"),
        ("submit --exclude n1 x", "no such option: --exclude: use --on LABEL=VALUE"),
        ("jobs --partition lab", "no such option: --partition: write --queue"),
        ("jobs --mem 3", "no such option: --mem (Possible options: --name)"),
        ("when --xyzzy 3", "no such option: --xyzzy"),
    ],
)
def test_who_types_what_another_system_has_learns_what_is_written_here(words, said):
    from typer.testing import CliRunner

    from fairlead.cli.main import app

    result = CliRunner().invoke(app, words.split(), prog_name="fairlead")
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert re.fullmatch(rf"fairlead: {re.escape(said)}(; s| S)ee `fairlead[a-z ]* -h`\n", result.output)


def test_what_cannot_work_is_said_at_once(idle):
    assert idle.call("run", "--idle", "0", "--", "true").stderr == "fairlead: --idle 0: write how long, such as 30m, or omit it\n"
    said = "; if it is an option of your command, write -- before that; see `fairlead run -h`\n"
    assert idle.call("run", "-q", "A", "echo", "-n", "a").stderr.endswith(said)
    assert not idle.call("run", "-q", "A", "-n", "a").stderr.endswith(said)
    lists = idle.call("submit", "--", "echo", "{1}", "{5}", ":::", "a", ":::", "b")
    assert lists.stderr == "fairlead: '{5}': {5}: the lists after the command are {1} to {2}\n"
    failed = idle.submit("-q", "A", "--", "false")
    idle.call("wait", f"{failed}")
    late = idle.call("submit", "-q", "A", "--after", f"{failed}", "--", "true")
    told = f"it comes after job {failed}, which had to succeed, and failed: the job is cancelled"
    assert late.stderr == f"fairlead: {told}\n"
    job = late.stdout.strip()
    assert idle.call("wait", job).stderr == f"fairlead: job {job} cancelled: see fairlead why {job}\n"
    assert idle.ok("why", job) == f"job {job}: it was cancelled: it came after job {failed}, which had to succeed, and failed\n"


def test_every_word_of_another_system_has_an_answer_that_is_there():
    from typer.main import get_command

    from fairlead.cli import elsewhere
    from fairlead.cli.main import COMMANDS, app

    theirs = [word for words in elsewhere._COMMANDS.values() for word in words.split()]
    assert len(theirs) == len({*theirs}) and not {*theirs} & {*COMMANDS}  # noqa: PT018
    assert {ours.split()[0] for ours in elsewhere._COMMANDS} <= {*COMMANDS, "--help", "--version"}
    submit = get_command(app).get_command(None, "submit")
    ours = {word.split()[0] for word in elsewhere._OPTIONS if word.startswith("--") and not word.startswith("-- ")}
    known = {each for param in submit.params for each in param.opts} | {"--status"}
    assert ours <= known
    assert not {*elsewhere._COMMANDS} & ours


def test_a_recipient_is_named_once_in_the_configuration(idle):
    configured = idle.folder / "configuration" / "fairlead"
    configured.mkdir(parents=True)
    idle.env["XDG_CONFIG_HOME"] = str(configured.parent)
    nobody = idle.call("submit", "-q", "A", "--notify-on", "end", "--", "true")
    assert nobody.stderr == 'fairlead: --notify-on: nobody is named: add --notify TO, or notify = "TO" in your client.toml\n'
    (configured / "client.toml").write_text('notify = "cat > configured"\n')
    job = idle.submit("-q", "A", "--notify-on", "end", "--", "true")
    idle.until(lambda: (idle.folder / "configured").exists() and (idle.folder / "configured").read_text())
    assert json.loads((idle.folder / "configured").read_text())["text"] == f"end: job {job} has succeeded"
    (idle.folder / "mailed.sh").write_text("#!/bin/sh\n#SBATCH --mail-type=END\n#SBATCH -p A --mem=1G\ntrue\n")
    before = idle.submit("mailed.sh")
    assert idle.ask(f"jobs/{before + 1}")["name"] == f"notify {before}"
    (configured / "client.toml").write_text("notify = 3\n")
    wrong = idle.call("submit", "-q", "A", "--", "true")
    assert wrong.stderr.endswith('client.toml: notify: write what --notify takes, such as "ada@example.org"\n')
