"""An engine under a virtual clock that answers late, twice or never, loses nodes, and outlives the scheduler.

It keeps its side of the contract of fairlead.engines, and writes down everything that really ran.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from fairlead.engines.contract import Attempt, Ended, Event, NodeDown, NodeUp, Started
from fairlead.model.specs import Node
from fairlead.scheduler.facts import Outcome


class Killed(BaseException):
    """The scheduler's process was killed here."""


class FakeEngine:
    def __init__(self, rng: Random, nodes: list[Node], faults: bool = True) -> None:
        self.rng, self.faults = rng, faults
        self.now = 0.0
        self.nodes = {node.name: node for node in nodes}
        self.down: set[str] = set()
        self.running: dict[Attempt, tuple[str, float]] = {}
        self.ended: dict[Attempt, Ended] = {}
        self.over: set[Attempt] = set()  # ended and acknowledged, or told to stop before they started
        self.line: list[tuple[float, object]] = []  # messages on their way to the engine
        self.news: list[Event] = [NodeUp(node) for node in nodes]
        self.runs: Counter[Attempt] = Counter()
        self.done: Counter[tuple[int, int]] = Counter()
        self.demands: dict[Attempt, dict[str, int]] = {}
        self.kill_after: int | None = None

    def tick(self, kind: str) -> None:
        """A place where the scheduler may be killed."""
        if self.kill_after is not None:
            self.kill_after -= 1
            if self.kill_after < 0:
                self.kill_after = None
                raise Killed(kind)

    def start(self, launches):
        for launch in launches:
            self.tick("in the middle of acting")
            self._send(("start", launch))

    def stop(self, attempts):
        for attempt in attempts:
            self.tick("in the middle of acting")
            self._send(("stop", attempt))

    def acknowledge(self, attempts):
        for attempt in attempts:
            self.tick("before acknowledging")
            if self.ended.pop(attempt, None):
                self.over.add(attempt)

    def forget(self, jobs):
        pass

    def inventory(self):
        self._deliver(everything=True)
        self.news = [NodeDown(n) if n in self.down else NodeUp(self.nodes[n]) for n in self.nodes]
        return {*self.running, *self.ended}

    def poll(self):
        self._deliver()
        news, self.news = self.news, []
        lost = {event.node for event in news if isinstance(event, NodeDown)}
        self.line = [m for m in self.line if m[1][0] == "stop" or m[1][1].node not in lost]
        at_once = bool(lost)
        for end in self.ended.values():
            if at_once or not self.faults or self.rng.random() < 0.5:
                news.append(end)
        if self.faults and self.rng.random() < 0.2:
            news += self.rng.sample(news, len(news) // 2)  # twice
        self.tick("before deciding")
        return news

    def pass_time(self, seconds):
        """Work gets done; machines come and go."""
        self.now += seconds
        for attempt, (_, until) in sorted(self.running.items()):
            if until <= self.now:
                del self.running[attempt]
                code = int(self.faults and self.rng.random() < 0.05)
                if code == 0:
                    self.done[attempt[:2]] += 1
                self.ended[attempt] = Ended(attempt, Outcome.EXITED, code)
        if self.faults and self.rng.random() < 0.05:
            name = self.rng.choice(sorted(self.nodes))
            if name in self.down:
                self.down.remove(name)
                self.news.append(NodeUp(self.nodes[name]))
            elif len(self.down) + 1 < len(self.nodes):
                self.down.add(name)
                for attempt in [a for a, (node, _) in self.running.items() if node == name]:
                    del self.running[attempt]
                    self.over.add(attempt)
                self.news.append(NodeDown(name))

    def mend(self):
        """From here on the world is kind, so that all must come to an end."""
        self.faults = False
        self.news += [NodeUp(self.nodes[name]) for name in sorted(self.down)]
        self.down.clear()

    def _send(self, message):
        if self.faults and self.rng.random() < 0.1:
            return  # never
        delay = self.rng.expovariate(1) if self.faults and self.rng.random() < 0.3 else 0.0
        self.line.append((self.now + delay, message))
        if self.faults and self.rng.random() < 0.1:
            self.line.append((self.now + delay + self.rng.expovariate(1), message))

    def _deliver(self, everything=False):
        due = [m for t, m in self.line if everything or t <= self.now]
        self.line = [(t, m) for t, m in self.line if not (everything or t <= self.now)]
        for kind, what in due:
            if kind == "stop":
                if what in self.running:
                    del self.running[what]
                if what not in self.over and what not in self.ended:
                    self.ended[what] = Ended(what, Outcome.SIGNALLED, 15)
                continue
            attempt, node, job = what
            if (
                attempt in self.running
                or attempt in self.ended
                or attempt in self.over
                or node in self.down
                or NodeDown(node) in self.news
            ):
                continue
            alike = [a for a in self.running if a[:2] == attempt[:2]]
            assert not alike, f"{attempt} starts while {alike} runs"
            self.runs[attempt] += 1
            self.running[attempt] = (node, self.now + self.rng.uniform(0.5, 8))
            self.demands[attempt] = job.demand
            used = Counter()
            for other, (where, _) in self.running.items():
                if where == node:
                    used.update(self.demands[other])
            assert all(used[r] <= has for r, has in self.nodes[node].capacity.items()), f"{node} is oversubscribed"
            self.news.append(Started(attempt))
