"""An engine under a virtual clock that answers late, twice or never, loses nodes and its memory, and outlives the scheduler.

It keeps its side of the contract of fairlead.engines, and writes down everything that really ran.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import NamedTuple

import numpy as np

from fairlead.engines.contract import NO_ATTEMPTS, NO_ENDS, NOWHERE, Attempts, Ends, NodeDown, NodeUp, Seen, Superseded
from fairlead.model.specs import Node
from fairlead.scheduler.facts import Outcome


class Attempt(NamedTuple):
    """One attempt of the columns."""

    job: int
    task: int
    number: int


def columns(attempts) -> Attempts:
    """Attempts as an engine takes them."""
    return Attempts(*np.array(list(attempts), np.int64).reshape(-1, 3).T.copy())


def rows(attempts: Attempts) -> list[Attempt]:
    """The other way round."""
    return [Attempt(*row) for row in zip(*(column.tolist() for column in attempts), strict=True)]


def ends(ended) -> Ends:
    """Pairs of an attempt and its outcome with its code, as an engine tells them; each ran for some seconds, or none."""
    outcome, code = np.array([end for _, end in ended], np.int64).reshape(-1, 2).T.copy()
    attempts = columns(attempt for attempt, _ in ended)
    none = np.zeros(len(outcome), np.int64)
    ran = (7 * attempts.job + 5 * attempts.index + 3 * attempts.number) % 11 * 1500
    return Ends(attempts, outcome, code, none, none, ran)


class Faults:
    """What may go wrong: only what is of these kinds, each by chances of its own, so that one that is left out changes no other.

    Parameters
    ----------
    seed : int
    kinds : set of str
    """

    def __init__(self, seed: int, kinds: set[str]) -> None:
        self.kinds = kinds
        self._rngs = {kind: Random(f"{seed} {kind}") for kind in kinds}
        self.count: Counter[str] = Counter()

    def rng(self, kind: str) -> Random:
        """The chances of a kind."""
        return self._rngs.setdefault(kind, Random(kind))

    def happens(self, kind: str, chance: float) -> bool:
        """Whether something happens now."""
        found = kind in self.kinds and self._rngs[kind].random() < chance
        self.count[kind] += found
        return found


class Killed(BaseException):
    """The scheduler's process was killed here."""


ENGINE_KINDS = {"never", "late", "twice", "machines", "memory", "tears", "blocks", "cannot spawn"}


class FakeEngine:
    """The engine; `connect` gives what a scheduler speaks to.

    Parameters
    ----------
    rng : Random
        How long tasks take, and how they end.
    faults : Faults or bool
        What may go wrong; or whether anything does that it did before there were kinds.
    """

    def __init__(self, rng: Random, nodes: list[Node], faults: Faults | bool = True) -> None:
        self.rng, self.faults = rng, faults
        self.epoch = 0  # of the scheduler that is obeyed
        self.blocked_until = 0.0
        self.now = 0.0
        self.limits = {"cpu": False, "memory": False, "tracking": True}
        self.nodes = {node.name: node for node in nodes}
        self.down: set[str] = set()
        self.running: dict[Attempt, tuple[str, float]] = {}
        self.ended: dict[Attempt, tuple[int, int]] = {}
        self.over: set[Attempt] = set()  # ended and acknowledged
        self.forgotten: set[Attempt] = (
            set()
        )  # ran when the engine lost its memory, or went with their machine: all that it can tell is that they are over
        self.line: list[tuple[float, tuple]] = []  # messages on their way to the engine
        self.known: list[Attempt] | None = None
        self.started: list[Attempt] = []
        self.news: list[NodeUp | NodeDown] = [NodeUp(node) for node in nodes]
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

    def happens(self, kind: str, chance: float) -> bool:
        if isinstance(self.faults, Faults):
            return self.faults.happens(kind, chance)
        return self.faults and kind not in ("tears", "blocks", "cannot spawn") and self.rng.random() < chance

    def connect(self) -> Connected:
        """As a scheduler has it."""
        return Connected(self)

    def serve(self, journal, epoch):
        pass

    def start(self, launches):
        for attempt, place in zip(rows(launches.attempts), launches.node.tolist(), strict=True):
            self.tick("in the middle of acting")
            self._send("start", attempt, launches.nodes[place], launches.jobs[attempt.job])

    def stop(self, attempts, grace, where=NOWHERE):
        for attempt in rows(attempts):
            self.tick("in the middle of acting")
            self._send("stop", attempt)

    def acknowledge(self, attempts):
        for attempt in rows(attempts):
            self.tick("before acknowledging")
            if self.ended.pop(attempt, None):
                self.over.add(attempt)

    def forget(self, jobs):
        pass

    def read_output(self, job, index, stream, offset, most):
        return None

    def close(self, leave=False):
        pass

    def limit(self, attempts, demands):
        """An executor has so much from now on, also if it starts later: this is told again until it is so."""
        self.demands.update(zip(rows(attempts), demands, strict=True))

    def take_inventory(self):
        self._send("inventory")

    def poll(self):
        if self.now < self.blocked_until:
            self.tick("before deciding")
            return Seen(None, NO_ATTEMPTS, NO_ENDS, [])
        if self.happens("tears", 0.03):  # what is on its way is gone, and it tells all anew
            self.line = []
            self._report_inventory()
        self._deliver()
        known, self.known = self.known, None
        started, self.started = self.started, []
        news, self.news = self.news, []
        lost = {event.node for event in news if isinstance(event, NodeDown)}
        self.line = [(t, m) for t, m in self.line if m[0] != "start" or m[2] not in lost]
        ended = [end for end in self.ended.items() if lost or not self.happens("late", 0.5)]
        if self.happens("twice", 0.2):
            started += self.rng.sample(started, len(started) // 2)
            ended += self.rng.sample(ended, len(ended) // 2)
            news += news[-1:]
        self.tick("before deciding")
        return Seen(None if known is None else columns(known), columns(started), ends(ended), news)

    def pass_time(self, seconds):
        """Work gets done; machines come and go; the engine may lose its memory of what ran, which it ends."""
        self.now += seconds
        for attempt, (_, until) in sorted(self.running.items()):
            if until <= self.now:
                del self.running[attempt]
                code = int(bool(self.faults) and self.rng.random() < 0.05)
                if code == 0:
                    self.done[attempt[:2]] += 1
                self.ended[attempt] = (Outcome.EXITED, code)
        if self.happens("blocks", 0.02):
            self.blocked_until = self.now + self.rng.expovariate(0.3)
        if self.happens("machines", 0.05):
            name = self.rng.choice(sorted(self.nodes))
            if name in self.down:
                self.down.remove(name)
                self.news.append(NodeUp(self.nodes[name]))
            elif len(self.down) + 1 < len(self.nodes):
                self.down.add(name)
                self.forgotten |= self._end(lambda node: node == name)
                self.news.append(NodeDown(name))
        if self.happens("memory", 0.01):
            self.forgotten |= self._end(lambda node: True)
            self._report_inventory()

    def mend(self):
        """From here on the world is kind, so that all must come to an end."""
        self.faults = False
        self.blocked_until = 0.0
        self.news += [NodeUp(self.nodes[name]) for name in sorted(self.down)]
        self.down.clear()

    def _end(self, there):
        """What runs on some machines ends, and nobody sees how."""
        ended = {attempt for attempt, (node, _) in self.running.items() if there(node)}
        self.running = {attempt: run for attempt, run in self.running.items() if attempt not in ended}
        return ended

    def _report_inventory(self):
        self.known = [*self.running, *self.ended]
        self.started = [attempt for attempt in self.running if not self.happens("never", 0.2)]
        self.news = [NodeDown(n) if n in self.down else NodeUp(self.nodes[n]) for n in self.nodes]

    def _send(self, *message):
        if self.happens("never", 0.1):
            return
        delay = self.rng.expovariate(1) if self.happens("late", 0.3) else 0.0
        self.line.append((self.now + delay, message))
        if self.happens("twice", 0.1):
            self.line.append((self.now + delay + self.rng.expovariate(1), message))

    def _deliver(self):
        due = [m for t, m in self.line if t <= self.now]
        self.line = [(t, m) for t, m in self.line if t > self.now]
        for kind, *what in due:
            match kind:
                case "inventory":
                    self._report_inventory()
                case "stop":
                    self._stop(*what)
                case "start":
                    self._start(*what)

    def _stop(self, attempt):
        self.running.pop(attempt, None)
        if attempt not in self.over and attempt not in self.ended:
            self.ended[attempt] = (Outcome.LOST, 0) if attempt in self.forgotten else (Outcome.SIGNALLED, 15)

    def _start(self, attempt, node, job):
        if attempt in self.forgotten and attempt not in self.over:
            self.ended[attempt] = (Outcome.LOST, 0)
        if (
            attempt in self.running
            or attempt in self.ended
            or attempt in self.over
            or node in self.down
            or NodeDown(node) in self.news
        ):
            return
        if self.happens("cannot spawn", 0.2):  # now, but later
            self.line.append((self.now + self.rng.expovariate(1), ("start", attempt, node, job)))
            return
        assert attempt not in self.forgotten
        alike = [a for a in self.running if a[:2] == attempt[:2]]
        assert not alike, f"{attempt} starts while {alike} runs"
        self.runs[attempt] += 1
        self.running[attempt] = (node, self.now + self.rng.uniform(0.5, 8))
        self.demands.setdefault(attempt, job.demand)
        used = Counter()
        for other, (where, _) in self.running.items():
            if where == node:
                used.update(self.demands[other])
        assert all(used[r] <= has for r, has in self.nodes[node].capacity.items()), f"{node} is oversubscribed"
        self.started.append(attempt)


class Connected:
    """The engine as one scheduler has it, which it obeys until another has come."""

    def __init__(self, engine: FakeEngine) -> None:
        self.engine, self.limits, self.epoch = engine, engine.limits, 0

    def serve(self, journal, epoch):
        if epoch > self.engine.epoch:
            self.engine.epoch = self.epoch = epoch

    @property
    def obeyed(self) -> bool:
        return self.epoch == self.engine.epoch

    def poll(self):
        if not self.obeyed:
            raise Superseded(f"start {self.engine.epoch} is obeyed, and not {self.epoch}")
        return self.engine.poll()

    def start(self, launches):
        self.obeyed and self.engine.start(launches)

    def stop(self, attempts, grace, where=NOWHERE):
        self.obeyed and self.engine.stop(attempts, grace, where)

    def acknowledge(self, attempts):
        self.obeyed and self.engine.acknowledge(attempts)

    def limit(self, attempts, demands):
        self.obeyed and self.engine.limit(attempts, demands)

    def take_inventory(self):
        self.obeyed and self.engine.take_inventory()

    def forget(self, jobs):
        pass
