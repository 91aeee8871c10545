"""Fake supervisors of many nodes in one process: they speak the protocol over real sockets, and tasks end at once.

    python -m bench.fake_nodes FOLDER PORT DELAY TEARS

They dial the scheduler's PORT. DELAY is the seconds before each answer, TEARS the connections broken per second. The line
"freeze K" on standard input silences node K. FOLDER/fakes.json has their keys, and the scheduler's certificate; with `each`, they
say that each has so many CPUs, and their tasks run until the line "end 0".
"""

import asyncio
import contextlib
import json
import logging
import random
import ssl
import sys
from pathlib import Path

from fairlead import tls
from fairlead.engines.local.messages import PROTOCOL

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds until a node dials again: a machine too slow for all handshakes at once comes to all of them."""


class FakeNode:
    """A node with its running tasks, and its ended ones that are not acknowledged."""

    def __init__(self, delay: float, each: int = 0) -> None:
        self.delay, self.each, self.frozen = delay, each, False
        self.running: set[tuple[int, ...]] = set()
        self.ended: dict[tuple[int, ...], int] = {}
        self.lost_after, self.number, self.heard = 30.0, 0, 0
        self.writer: asyncio.StreamWriter | None = None

    async def dial(self, port: int, context: ssl.SSLContext) -> None:
        pause = FIRST_PAUSE
        while not self.frozen:
            heard = self.heard
            with contextlib.suppress(OSError):
                await self._serve(*await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=2**26))
            pause = FIRST_PAUSE if self.heard > heard else min(LONGEST_PAUSE, 2 * pause)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        beating = asyncio.create_task(self._beat(writer))
        try:
            while line := await reader.readline():
                if self.delay:
                    await asyncio.sleep(self.delay)
                self.heard += 1
                if not self.frozen:
                    self._hear(json.loads(line))
        except (OSError, asyncio.LimitOverrunError, ValueError):
            pass  # connection broken
        finally:
            beating.cancel()
            writer.close()

    async def _beat(self, writer: asyncio.StreamWriter) -> None:
        while True:
            self.number += 1
            self._say(saw="number", number=self.number)
            await asyncio.sleep(min(2.0, self.lost_after / 5))

    def _say(self, **what: object) -> None:
        if self.writer is not None and not self.frozen and not self.writer.is_closing():
            self.writer.write(json.dumps(what).encode() + b"\n")

    def _hear(self, message: dict) -> None:
        tasks = [tuple(task) for task in message.get("tasks", ())]
        match message["do"]:
            case "lease":
                self.lost_after = message["lost_after"]
            case "inventory":
                about = {"capacity": {"cpu": 1000 * self.each}, "host": "127.0.0.1"} if self.each else {}
                self._say(saw="inventory", tasks=[*self.running, *self.ended], limits={}, about=about, speaks=[1, PROTOCOL])
                for task in self.running:
                    self._say(saw="started", task=task)
                for task, outcome in self.ended.items():
                    self._report_end(task, outcome)
            case "start":
                for task in tasks:
                    if task not in self.ended:
                        self._say(saw="started", task=task)
                        if self.each:
                            self.running.add(task)
                        else:
                            self._end(task, 0)
            case "stop":
                for task in tasks:
                    self._end(task, 2)
            case "acknowledge":
                for task in tasks:
                    self.ended.pop(task, None)

    def _end(self, task: tuple[int, ...], outcome: int) -> None:
        self.ended[task] = outcome
        self._report_end(task, outcome)

    def _report_end(self, task: tuple[int, ...], outcome: int) -> None:
        self._say(saw="ended", task=task, outcome=outcome, code=0, cpu=0, peak=0)


async def main() -> None:
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # a connection that broke while it was written to
    folder, port, delay, tears = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
    keys = json.loads((folder / "fakes.json").read_text())
    nodes, dialing = [FakeNode(delay, keys.get("each", 0)) for _ in keys["own"]], []
    for node, own in zip(nodes, keys["own"], strict=True):
        (folder / "own.pem").write_text(own)
        dialing.append(asyncio.create_task(node.dial(port, tls.dialing(folder / "own.pem", keys["scheduler"]))))
    told = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(told), sys.stdin)
    tearing = asyncio.create_task(tear(nodes, tears)) if tears else None
    while line := await told.readline():
        if line.startswith(b"end"):
            for node in nodes:
                while node.running:
                    node._end(node.running.pop(), 0)
        else:
            nodes[int(line.split()[1])].frozen = True
    if tearing is not None:
        tearing.cancel()


async def tear(nodes: list[FakeNode], often: float) -> None:
    """Break connections at random, `often` per second on average."""
    while True:
        await asyncio.sleep(random.expovariate(often))
        node = random.choice(nodes)
        if node.writer is not None and node.writer.transport is not None:
            node.writer.transport.abort()


if __name__ == "__main__":
    asyncio.run(main())
