"""Who may do what, on a machine with real accounts: the whole table of `access.py`, and that nothing is missing from it."""

import asyncio
import contextlib
import json
import re
import threading
from types import SimpleNamespace

import pytest
import typer.main
from fastapi import APIRouter, FastAPI, HTTPException

from access import ALONE, COMMANDS, PEOPLE, ROUTES
from fairlead.cli.main import app
from fairlead.service.api.access import ROUTES as LINES
from fairlead.service.api.access import HeldRoute
from fairlead.service.api.app import Parts, _answer_errors_in_one_line, make_api
from fairlead.service.loop import Busy
from test_docs import names_of

SECRET = "--password=swordfish"


@pytest.fixture(scope="module")
def things(machine):
    """What the table is about: a job of Alice's that waits, one that has ended, a session and a token of hers."""
    alice = machine["alice"]
    submit = ("submit", "-q", "vision", "--tasks", "9", "--env", f"SECRET={SECRET}")
    job = alice.ok(*submit, "--cpu", "100", "--", "echo", SECRET).strip()
    ended = alice.ok("submit", "-q", "vision", "--", "true").strip()
    machine["root"].ok("wait", ended)
    session = alice.http("POST", "/v1/sessions", {"argv": ["true"]})[1]["id"]

    def fresh():
        return alice.ok("submit", "-q", "vision", "--cpu", "100", "--", "true").strip()

    def token():
        return alice.http("POST", "/v1/tokens", {})[1]["id"]

    return SimpleNamespace(job=job, ended=ended, session=session, token=token, fresh=fresh)


def filled(text, things):
    """A path or a command with the job, the session or the token in it."""
    for name in ("token", "fresh"):
        if f"{{{name}}}" in text:
            text = text.replace(f"{{{name}}}", getattr(things, name)())
    names = {"job": things.job, "ended": things.ended, "session": things.session, "node": "n1"}
    names |= {"index": "0", "stream": "out", "name": "0" * 32, "payload": "0" * 32, "lease": "1"}
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def cases(rows):
    return [pytest.param(row, id=row.what) for row in rows]


@pytest.mark.parametrize("row", cases(ROUTES))
def test_a_route_is_for_whom_the_table_says(machine, things, row):
    looked_back = False
    for who, expected in zip(PEOPLE, row.cells.split(), strict=True):
        if expected == "-":
            continue
        method, _, path = filled(row.what, things).partition(" ")
        body = json.loads(re.sub(r'\["(\d+)"\]', r"[\1]", filled(json.dumps(row.body), things)))
        right = {"yes": (200, 201, 202), "seen": (200,), "no": (403,), "none": (404,)}[expected]
        if looked_back and expected == "yes":
            # To look back takes a process of its own each time: others are let in, and ask for too little.
            path, right = path.replace("seconds=60", "seconds=-1"), (422,)
        looked_back |= expected == "yes" and path.startswith(("/v1/audit/over-time", "/v1/usage"))
        status, answer = machine[who].http(method, path, body)
        assert status in right, (who, expected, status, answer)
        if expected == "seen":
            assert SECRET not in str(answer)
        elif expected == "yes" and "seen" in row.cells and path != "/v1/log":
            assert SECRET in str(answer), who
        elif expected == "no":
            assert set(answer) == {"error"}


@pytest.mark.parametrize("row", cases(COMMANDS))
def test_a_command_is_for_whom_the_table_says(machine, things, row):
    looked_back = False
    for who, expected in zip(PEOPLE, row.cells.split(), strict=True):
        if expected == "-" or looked_back:
            continue
        looked_back = expected == "yes" and row.what.startswith(("usage", "audit --over"))
        done = machine[who].run(*filled(row.what, things).split())
        answered = done.returncode == 0 or "has no files to fetch" in done.stderr
        assert answered == (expected in ("yes", "seen")), (who, expected, done)
        assert "Traceback" not in done.stderr
        if expected == "no":
            assert (done.returncode, done.stderr.count("\n"), done.stdout) == (1, 1, ""), (who, done)
        if expected == "seen":
            assert SECRET not in done.stdout


def test_the_table_has_every_route():
    told = {tuple(row.what.partition("?")[0].split(" ")) for row in ROUTES}
    api = make_api(SimpleNamespace(loop=None, authenticator=None, wakeups=None), Parts(*[None] * 12))
    there = {(method.upper(), path) for path, methods in api.openapi()["paths"].items() for method in methods}
    assert told == set(LINES) == there | {("GET", "/docs"), ("GET", "/openapi.json")}


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (RuntimeError("can't start new thread"), 503, "the scheduler's machine allows it no more threads now"),
        (BlockingIOError(11, "Resource temporarily unavailable"), 503, "the scheduler's machine allows it no more threads now"),
        (RuntimeError("another"), 500, "internal error, see the scheduler's log: RuntimeError"),
        (Busy("too many"), 429, "too many"),
    ],
)
def test_what_a_scheduler_without_a_thread_cannot_do_is_asked_again_later(error, code, said):
    api, sent = FastAPI(), []
    _answer_errors_in_one_line(api)

    @api.get("/")
    async def ask() -> None:
        raise error

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
    with contextlib.suppress(RuntimeError):  # which the server logs
        asyncio.run(api(scope, None, send))
    begin, body = sent
    assert (begin["status"], json.loads(body["body"])) == (code, {"error": said})
    assert (b"retry-after" in dict(begin["headers"])) == (code != 500)


@pytest.mark.parametrize("status", [400, 403])
def test_a_large_body_and_a_refusal_need_a_thread_as_well(status, monkeypatch):
    api, sent = FastAPI(), []
    _answer_errors_in_one_line(api)

    @api.get("/")
    async def ask() -> None:
        try:
            await asyncio.to_thread(print)
        except RuntimeError as error:  # as FastAPI does while it reads a body
            raise HTTPException(status, "There was an error parsing the body") from (error if status == 400 else None)

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    async def send(message):
        sent.append(message)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with contextlib.suppress(RuntimeError):
        asyncio.run(api({"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}, None, send))
    assert (sent[0]["status"], dict(sent[0]["headers"])[b"retry-after"]) == (503, b"1")
    assert json.loads(sent[1]["body"]) == {"error": "the scheduler's machine allows it no more threads now"}


def test_a_route_without_a_line_cannot_be_made():
    api = APIRouter(route_class=HeldRoute)
    with pytest.raises(KeyError, match="/v1/back-authenticator"):

        @api.get("/v1/back-authenticator")
        async def back_door() -> None:
            pass


def test_the_table_has_every_command():
    commands = set(names_of(typer.main.get_command(app)))
    told = {name for name in commands for row in COMMANDS if row.what.startswith(name)}
    assert commands - told <= {name for name in commands if name.split()[0] in ALONE}


def test_what_was_refused_is_in_the_log(machine, things):
    mallory = machine["mallory"]  # whom the table does not have: of each person only so many refusals a minute are noted
    why = mallory.run("cancel", things.job).stderr
    assert f"job {things.job} is alice's" in why
    seen = machine["olga"].http("GET", "/v1/log?user=mallory")[1]["log"]
    last = [entry for entry in seen if entry["outcome"] == "refused"][-1]
    assert (last["by"], last["what"]) == ("mallory", "POST /v1/cancel")
    assert last["why"] in why
    assert all(entry["by"] == "mallory" for entry in mallory.http("GET", "/v1/log")[1]["log"])
    assert machine["stranger"].http("GET", "/v1/jobs")[0] == 403
    stranger = machine["olga"].http("GET", "/v1/log?user=uid%2060009")[1]["log"]
    assert {entry["outcome"] for entry in stranger} == {"refused"}
