"""Nodes where accounts differ: people run where they are known, and read why they do not run elsewhere."""

import json
import os
import pwd
import socket
import subprocess
import time

import pytest

from conftest import FAIRLEAD
from fairlead.engines.local.child import uid_here
from fairlead.engines.local.messages import Person
from machine import PEOPLE, Machine, opened, why_not

CONFIG = """
[[queue]]
name = "people"

[[queue]]
name = "people/*"

[[node]]
name = "lab1"
capacity = { cpu = 1, memory = "2Gi" }
labels = { at = "lab1" }
"""


class Lab(Machine):
    """A scheduler for everybody, and nodes whose accounts are in files of their own."""

    def __init__(self):
        super().__init__(CONFIG)
        self.joins = {}

    def up(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        super().up("--nodes", self.address)

    def join(self, name, accounts, *more, uid=0):
        """Start a node whose accounts are ours with some lines changed; those without a line are unknown there."""
        lines = (self.folder / "passwd").read_text().splitlines()
        lines = [accounts.get(line.split(":")[0], line) for line in lines]
        (self.folder / f"passwd-{name}").write_text("\n".join(filter(None, lines)) + "\n")
        config, home = self.folder / f"{name}.toml", self.folder / f"home-{name}"
        config.write_text(f'[[node]]\nname = "{name}"\ncapacity = {{ cpu = 2, memory = "2Gi" }}\nlabels = {{ at = "{name}" }}\n')
        home.mkdir(exist_ok=True)
        os.chown(home, uid, uid)
        who = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--init-groups"] if uid else []
        command = [*who, FAIRLEAD, "node", "join", self.address, *more, "--home", home, "--config", config]
        mounts = [f"mount --bind {self.folder}/passwd-{name} /etc/passwd", f"mount --bind {self.folder}/group /etc/group"]
        script = " && ".join([*mounts, "mount -t tmpfs none /run", *opened(self.folder), 'exec "$@"'])
        env = {k: v for k, v in os.environ.items() if not k.startswith("FAIRLEAD")}
        started = ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", *command]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.joins[name] = subprocess.Popen(started, env=env, stdout=log, stderr=log)
        self.until(lambda: self.node(name).get("status") == "up" and self.node(name)["heard"] < 5, name)

    def token(self):
        return self["root"].ok("node", "token").strip()

    def node(self, name):
        nodes = self["root"].http("GET", "/v1/nodes")[1]["nodes"]
        return next((node for node in nodes if node["name"] == name), {})

    def until(self, condition, name="lab2", seconds=40):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, (self.log.read_text(), (self.folder / f"{name}.log").read_text())
            time.sleep(0.05)

    def why(self, who, job):
        return json.loads(self[who].ok("why", job, "--json"))["text"]

    def submit(self, who, *words):
        return self[who].ok("submit", "-q", "people", "--memory", "64Mi", *words).split()[-1]

    def close(self):
        for process in self.joins.values():
            process.terminate()
            process.wait(60)
        super().close()


@pytest.fixture
def lab():
    if why := why_not():
        pytest.skip(why)
    there = Lab()
    try:
        there.up()
        yield there
    finally:
        there.close()


@pytest.mark.timeout(300)
def test_people_run_where_they_have_an_account_and_read_why_they_do_not_elsewhere(lab):
    gone = [lab.folder / f"gone{k}" for k in range(5)]
    for each in gone:
        each.mkdir(mode=0o755)
        lab.submit("bob", "--cwd", str(each), "--on", "at=nowhere", "--", "true")
        each.rmdir()
    elsewhere = f"carol:x:60099:60099::{lab.folder}/carol:/bin/sh"
    there, hers = (lab.submit(who, "--on", "at=lab2", "--", "id", "-u") for who in ("bob", "carol"))
    lab.join("lab2", {"bob": "", "carol": elsewhere}, lab.token())
    said = (lab.folder / "lab2.log").read_text()
    assert "bob has work and no account here: their tasks run elsewhere\n" in said
    carol = "carol has work and uid 60099 here, not 60003: their tasks run elsewhere, unless you add --any-uid\n"
    assert carol.replace("60003", str(PEOPLE["carol"])) in said
    named = f"{gone[0]}, {gone[1]}, {gone[2]} and 2 more"
    assert f"not here, but there is work in it: {named}: share each folder, or submit with `--send . --fetch PATTERN`\n" in said
    lab.join("lab3", {}, lab.token(), uid=PEOPLE["alice"])
    assert "only tasks of alice run here: for everybody's, join as root" in (lab.folder / "lab3.log").read_text()
    for name in ("lab2", "lab3"):
        assert lab["alice"].task("--on", f"at={name}", "--", "id", "-un") == (0, "alice\n", "")
    lab.until(lambda: lab.why("bob", there) == "node lab2 has no account for bob")
    assert lab.node("lab2")["labels"]["account/bob"] == "no account"
    large = lab.submit("bob", "--cpu", "2", "--", "true")
    text = lab.why("bob", large)
    assert text.startswith("can never start as things are: ") or text.startswith("no node is large enough")
    assert text.endswith("; node lab2 has no account for bob; node lab3 runs only tasks of alice")
    some = lab.submit("bob", "-n", "4", "--cpu", "500m", "--", "id", "-un")
    lab["bob"].ok("wait", some)
    tasks = lab["bob"].http("GET", f"/v1/jobs/{some}/tasks")[1]["tasks"]
    assert {(task["node"], task["attempt"]) for task in tasks} == {("lab1", 1)}
    lab.until(lambda: lab.why("carol", hers) == "node lab2 has another uid for carol")
    lab.joins["lab2"].terminate()
    lab.joins["lab2"].wait(60)
    lab.join("lab2", {"bob": "", "carol": elsewhere}, "--any-uid")
    lab["carol"].ok("wait", hers)
    assert lab["carol"].ok("logs", hers) == "60099\n"
    (lab.folder / "carol" / "in").write_text("word")
    sent = lab.submit(
        "carol",
        "--on",
        "at=lab2",
        "--send",
        f"{lab.folder}/carol",
        "--cwd",
        f"{lab.folder}/carol",
        "--fetch",
        "out",
        "--",
        "cp",
        "in",
        "out",
    )
    lab["carol"].ok("wait", sent)
    lab["carol"].ok("fetch", sent, "--to", f"{lab.folder}/carol")
    assert (lab.folder / "carol" / "out").read_text() == "word"
    assert lab["root"].run("cancel", there, large).returncode == 0


def test_nobody_becomes_root_where_their_name_is_roots(monkeypatch):
    found = {"eve": pwd.struct_passwd(("eve", "x", 0, 0, "", "/", "/bin/sh"))}
    monkeypatch.setattr(pwd, "getpwnam", found.__getitem__)
    assert uid_here(Person("eve", 1005)) == Person("eve", 1005)
    assert uid_here(Person("eve", 0)) == Person("eve", 0)
