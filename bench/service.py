"""The service under load: submissions per second, and latency of answers and starts.

1, 100 and 1,000 clients, each with its own connection, send requests one after another. The peers are the same server when it
parses, validates and answers submissions without deciding or writing anything, and the same web server (uvicorn, with httptools
and uvloop) with a constant answer: the cost of HTTP alone. From submission to start is measured with clients that submit the next
job as soon as one has ended, and with 100 that pause, so that the machine is not full: a job costs three requests and a process.
The aims: 60% of the first, p99 of these starts under 100 ms, and p99 of `fairlead jobs` under 250 ms while somebody else submits
50,000 jobs.
"""

import asyncio
import contextlib
import json
import os
import resource
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from random import Random

import uvicorn

from bench.end_to_end import scheduler
from fairlead.client.connection import Connection as Scheduler

CONSTANT = """
import uvicorn
async def app(scope, receive, send):
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"{}"})
uvicorn.run(app, port=PORT, log_level="error", http="httptools", loop="uvloop", lifespan="off")
"""


ANSWERS_ONLY = """
import itertools, sys
from fairlead.cli.main import main
from fairlead.service.api.submitting import Submitter
numbers = itertools.count(1)
async def submit(self, caller, asked, key):
    return [{"id": next(numbers), "queue": each.request.queue, "warning": None} for each in asked]
Submitter.submit = submit
sys.argv[0] = "fairlead"
main()
"""
PATIENCE = 120.0
"""Seconds until a request that is refused or whose connection is closed again and again is an error."""


class Connection:
    """A connection, opened again where the server closes it; one request at a time."""

    def __init__(self, address: str, token: str) -> None:
        self.address, self.token = address, token

    async def open(self) -> None:
        if self.address.startswith("unix://"):
            opened = asyncio.open_unix_connection(self.address.removeprefix("unix://"))
        else:
            host, port = self.address.removeprefix("http://").split(":")
            opened = asyncio.open_connection(host, int(port))
        self.reader, self.writer = await opened

    async def ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                answer, text = await self._exchange(method, path, body)
                if answer.startswith(b"HTTP/1.1 2"):
                    return text
                if not answer.startswith(b"HTTP/1.1 429") or time.monotonic() > until:
                    raise RuntimeError(text.decode())
                await asyncio.sleep(int(answer.lower().split(b"retry-after:")[1].split(b"\r\n")[0]))
            except (asyncio.IncompleteReadError, OSError):  # closed to make room for others
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(0.1)
            self.writer.close()
            with contextlib.suppress(OSError):
                await self.open()

    async def _exchange(self, method: str, path: str, body: bytes) -> tuple[bytes, bytes]:
        """Send a request; return the head and the body of its answer."""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.writer.write(head.encode() + body)
        answer = await self.reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        return answer, await self.reader.readexactly(length)


async def load(
    address: str, token: str, clients: int, requests: int, one: Callable[[Connection, int], Awaitable[object]]
) -> tuple[float, list[float]]:
    """Return requests per second, and the sorted latencies in seconds."""
    connections = [Connection(address, token) for _ in range(clients)]
    for connection in connections:
        await connection.open()
    took: list[float] = []
    numbers = iter(range(requests))

    async def client(connection: Connection) -> None:
        for number in numbers:
            began = time.perf_counter()
            await one(connection, number)
            took.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*map(client, connections))
    speed = requests / (time.perf_counter() - began)
    for connection in connections:
        connection.writer.close()
    return speed, sorted(took)


def _job(**more: object) -> bytes:
    return json.dumps({"argv": ["true"], "demand": {"cpu": 1}, "queue": "A", "cwd": "/", **more}).encode()


WAITS = _job(demand={"cpu": 10**6})
"""A job that never starts: measures the service alone."""


def _percentiles(seconds: list[float]) -> str:
    p50, p99 = (seconds[min(len(seconds) - 1, int(len(seconds) * part))] * 1000 for part in (0.5, 0.99))
    return f"p50 {p50:7.1f} ms  p99 {p99:7.1f} ms"


async def _beside_a_port(address: str, port: str, token: str, requests: int) -> None:
    """Print throughput over the Unix socket and over a port, in turns."""
    for url in (address, port) * 2:
        speed, took = await load(url, token, 10, requests, lambda c, n: c.ask("POST", "/v1/jobs", WAITS))
        looks, _ = await load(url, token, 10, requests, lambda c, n: c.ask("GET", "/v1/status"))
        name = url.partition(":")[0]
        print(f"{name:<10}    10 clients  submit {speed:>7,.0f}/s   {_percentiles(took)}  status {looks:>7,.0f}/s")


async def _measure(address: str, token: str, requests: int, sizes: tuple[int, ...]) -> dict[int, float]:
    """Print speeds and latencies; return submissions per second by clients."""
    speeds = {}

    async def start(connection: Connection, number: int) -> float:
        began = time.time()
        job = json.loads(await connection.ask("POST", "/v1/jobs", _job()))["id"]
        while json.loads(await connection.ask("GET", f"/v1/jobs/{job}?wait=60"))["finished_at"] is None:
            pass
        (task,) = json.loads(await connection.ask("GET", f"/v1/jobs/{job}/tasks"))["tasks"]
        started.append(task["started_at"] - began)
        return 0.0

    async def paced(connection: Connection, number: int) -> float:
        await asyncio.sleep(rng.uniform(0, 1.5))
        return await start(connection, number)

    rng = Random(0)
    for clients in sizes:
        count = max(requests, 2 * clients)
        speed, took = await load(address, token, clients, count, lambda c, n: c.ask("POST", "/v1/jobs", WAITS))
        speeds[clients] = speed
        print(f"service    {clients:>5,} clients  submit {speed:>7,.0f}/s   {_percentiles(took)}")
        _, took = await load(address, token, clients, count, lambda c, n: c.ask("GET", "/v1/queues"))
        print(f"           {clients:>5,} clients  queues {len(took) / sum(took) * clients:>7,.0f}/s   {_percentiles(took)}")
        started: list[float] = []
        await load(address, token, clients, max(clients, requests // 10), start)
        print(f"           {clients:>5,} clients  from submission to start {_percentiles(sorted(started))}")
    started = []
    speed, _ = await load(address, token, 100, max(100, requests // 5), paced)
    print(f"           {speed:>5.0f} jobs a second of 100 clients  from submission to start {_percentiles(sorted(started))}")
    jobs = [json.loads(WAITS) for _ in range(max(10, requests))]
    body = json.dumps({"jobs": jobs}).encode()
    _, (took_one,) = await load(address, token, 1, 1, lambda c, n: c.ask("POST", "/v1/bulk", body))
    print(f"           in bulk, {len(jobs):,} jobs in a request: {len(jobs) / took_one:,.0f} submissions/s")
    return speeds


async def _beside_a_bulk(address: str, token: str, jobs: int, bulks: int = 5) -> None:
    """Print the latency of a listing of jobs while somebody else submits `bulks` times `jobs` jobs."""
    submitting, looking = Connection(address, token), Connection(address, token)
    await submitting.open()
    await looking.open()
    body = json.dumps({"jobs": [json.loads(WAITS)] * jobs}).encode()

    async def submit() -> None:
        for _ in range(bulks):
            await submitting.ask("POST", "/v1/bulk", body)

    took, bulk = [], asyncio.create_task(submit())
    while not bulk.done():
        began = time.perf_counter()
        await looking.ask("GET", "/v1/jobs?limit=20")
        took.append(time.perf_counter() - began)
        await asyncio.sleep(0.005)
    await bulk
    print(f"           beside {bulks * jobs:,} jobs of somebody else, {len(took):,} listings: {_percentiles(sorted(took))}")


def _beside_answers_only(requests: int, speeds: dict[int, float]) -> None:
    """Print submissions per second of the same server without deciding or writing, and what part of it fairlead reaches."""
    with tempfile.TemporaryDirectory() as folder, scheduler(Path(folder), 64, [sys.executable, "-c", ANSWERS_ONLY]) as home:
        with Scheduler(home) as asked:
            address, _ = asked.get("/v1/status")["urls"]
        for clients, reached in speeds.items():
            count = max(requests, 2 * clients)
            speed, took = asyncio.run(load(address, "", clients, count, lambda c, n: c.ask("POST", "/v1/jobs", WAITS)))
            print(
                f"answers    {clients:>5,} clients  submit {speed:>7,.0f}/s   {_percentiles(took)}  reached {reached / speed:.0%}"
            )


def _all_at_once(path: str, many: int) -> None:
    """Open `many` connections at once, each with one request; print the answers by status, and their latency."""
    request = b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n"
    began, took, told = {}, [], Counter[str]()
    with selectors.DefaultSelector() as selector, connecting(many) as connect:

        def hear(timeout: float) -> None:
            for key, _ in selector.select(timeout):
                try:
                    told[key.fileobj.recv(65536)[9:12].decode() or "closed"] += 1
                except OSError:
                    told["closed"] += 1
                took.append(time.monotonic() - began[key.fd])
                selector.unregister(key.fileobj)

        for number in range(many):
            wire = connect(path)
            began[wire.fileno()] = time.monotonic()
            wire.sendall(request)
            selector.register(wire, selectors.EVENT_READ)
            if number % 50 == 0:
                hear(0)
        until = time.monotonic() + 60
        while len(took) < many and time.monotonic() < until:
            hear(1)
    took = sorted(took) or [60.0]
    print(f"           {many:,} at once: {dict(told)}, {_percentiles(took)}, the last after {took[-1]:.2f} s")


@contextlib.contextmanager
def connecting(many: int) -> Iterator[Callable[[str], socket.socket]]:
    """Yield a function that connects to a Unix socket; raise the file limit meanwhile, and close all at the end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, many + 200)), hard))
    with contextlib.ExitStack() as opened:

        def connect(path: str) -> socket.socket:
            wire = opened.enter_context(socket.socket(socket.AF_UNIX))
            wire.connect(path)
            return wire

        yield connect
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def run(requests: int = 5000, sizes: tuple[int, ...] = (1, 100, 1000)) -> None:
    """Print submissions per second and latencies, and those of the peer."""
    with tempfile.TemporaryDirectory() as folder, scheduler(Path(folder), cpus=64) as home:
        with Scheduler(home) as asked:
            address, port = asked.get("/v1/status")["urls"]
            token = asked.post("/v1/tokens", {})["token"]
        asyncio.run(_beside_a_port(address, port, token, requests))
        speeds = asyncio.run(_measure(address, token, requests, sizes))
        asyncio.run(_beside_a_bulk(address, token, min(10_000, 2 * requests)))
        _all_at_once(address.removeprefix("unix://"), 2 * requests)
    _beside_answers_only(requests, speeds)
    with uvicorn.Config(lambda: None, port=0).bind_socket() as free:
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-c", CONSTANT.replace("PORT", str(port))], env=os.environ)
    try:
        for clients in sizes:
            until = time.monotonic() + PATIENCE
            while True:
                try:
                    one = load(f"http://127.0.0.1:{port}", "", clients, requests, lambda c, n: c.ask("POST", "/", b"{}"))
                    speed, took = asyncio.run(one)
                    break
                except OSError:
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.1)
            print(f"           {clients:>5,} clients  a constant {speed:>7,.0f}/s   {_percentiles(took)}")
    finally:
        server.terminate()
        server.wait()
