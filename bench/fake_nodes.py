"""Fake supervisors of many nodes in one process: they speak the protocol over real sockets, and tasks end at once.

    python -m bench.fake_nodes FOLDER COUNT DELAY TEARS

DELAY is the seconds before each answer, TEARS the connections broken per second. The line "freeze K" on standard input silences
node K. Prints the ports once it listens on all. With own.pem and scheduler.pem in FOLDER connections use TLS.
"""

import asyncio
import json
import random
import sys
from pathlib import Path

from fairlead.engines.local import tls


class FakeNode:
    """A node with its running tasks, and its ended ones that are not acknowledged."""

    def __init__(self, delay: float) -> None:
        self.delay, self.frozen = delay, False
        self.running: set[tuple[int, ...]] = set()
        self.ended: dict[tuple[int, ...], int] = {}
        self.lost_after, self.number = 30.0, 0
        self.writer: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.writer is not None:
            self.writer.close()
        self.writer = writer
        beating = asyncio.create_task(self._beat(writer))
        try:
            while line := await reader.readline():
                if self.delay:
                    await asyncio.sleep(self.delay)
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
                self._say(saw="inventory", tasks=[*self.running, *self.ended], limits={})
                for task, outcome in self.ended.items():
                    self._report_end(task, outcome)
            case "start":
                for task in tasks:
                    if task not in self.ended:
                        self._say(saw="started", task=task)
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
    folder, count, delay, tears = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
    context = None
    if (folder / "own.pem").exists():
        context = tls.between(folder / "own.pem", (folder / "scheduler.pem").read_text(), at_supervisor=True)
    nodes = [FakeNode(delay) for _ in range(count)]
    servers = [await asyncio.start_server(n.serve, "127.0.0.1", 0, ssl=context, limit=2**26, backlog=8) for n in nodes]
    print(json.dumps([server.sockets[0].getsockname()[1] for server in servers]), flush=True)
    told = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(told), sys.stdin)
    tearing = asyncio.create_task(tear(nodes, tears)) if tears else None
    while line := await told.readline():
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
