"""`/healthz` and `/readyz` say how it is: each thing that can be wrong is told, and nothing is said to be well that is not."""

import asyncio
import json
import threading
import time
from types import SimpleNamespace

import pytest
from fastapi import FastAPI

from fairlead.service.api.cluster import add_health


@pytest.fixture
def parts():
    loop = SimpleNamespace(
        stopped=threading.Event(), stopping=False, stalled=None, stalled_for=0.0, low="", stepped_at=time.monotonic()
    )
    return loop, SimpleNamespace(trouble=None, silent_for=1.5, paused=2)


def get(parts, path):
    app = FastAPI()
    add_health(app, *parts)
    sent = []

    async def call():
        async def send(message):
            sent.append(message)

        async def receive():
            return {"type": "http.request"}

        scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b""}
        await app(scope, receive, send)

    asyncio.run(call())
    return sent[0]["status"], json.loads(sent[1]["body"])


def test_all_is_well(parts):
    assert get(parts, "/healthz") == (200, {"ok": True})
    status, told = get(parts, "/readyz")
    assert (status, told["ok"], told["engine"], told["journal"]) == (200, True, 1.5, 0.0)
    assert 0 <= told["step"] < 5


@pytest.mark.parametrize(
    ("wrong", "alive", "says"),
    [
        (lambda loop, engine: loop.stopped.set(), False, "stopping"),
        (lambda loop, engine: setattr(loop, "stopping", True), True, "stopping"),
        (lambda loop, engine: setattr(loop, "stalled", "the disk is full"), True, "the disk is full"),
        (lambda loop, engine: setattr(loop, "low", "1.0 MiB are free"), True, "1.0 MiB are free; 2 tasks are paused"),
        (lambda loop, engine: setattr(loop, "stepped_at", time.monotonic() - 20), True, "has spent 20 s in one step"),
        (lambda loop, engine: setattr(loop, "stepped_at", time.monotonic() - 90), False, "has spent 90 s in one step"),
        (lambda loop, engine: setattr(engine, "trouble", "no supervisor could be started"), True, "no supervisor"),
    ],
)
def test_what_is_wrong_is_said(parts, wrong, alive, says):
    wrong(*parts)
    status, told = get(parts, "/readyz")
    assert status == 503
    assert says in told["detail"]
    assert (get(parts, "/healthz")[0] == 200) == alive
