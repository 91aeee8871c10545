"""A straightforward simpy model of DRF, with which the simulator must agree.

Users, jobs of identical tasks, machines, first fit, whole tasks to the smallest dominant share; no reservations, limits or
usage history.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import simpy

LAST = 2  # priority in simpy: after all ends and arrivals of a moment


class Model:
    """Runs a workload; `ended` is the end of each job's last task, in seconds."""

    def __init__(self, workload: Any) -> None:
        self.env = simpy.Environment()
        names = workload.resources
        self.free = np.array([[node.capacity.get(r, 0) for r in names] for node in workload.nodes])
        self.total = self.free.sum(axis=0)
        self.demand = np.array([[workload.demands[s].get(r, 0) for r in names] for s in workload.shape])
        self.users = sorted(set(workload.queue))
        self.used = {user: np.zeros(len(names), np.int64) for user in self.users}
        self.waiting: dict[str, list[int]] = {user: [] for user in self.users}
        self.left = workload.tasks.copy()
        self.running = np.zeros(len(self.left), np.int64)
        self.ended = np.full(len(self.left), np.nan)
        self.workload = workload
        self.due = False
        self.completed = self.turns = 0
        self.last_served = dict.fromkeys(self.users, 0)  # breaks ties: least recently served first
        for job, at in enumerate(workload.submit):
            self.env.process(self.arrive(job, at))

    def arrive(self, job: int, at: float) -> Any:
        yield self.env.timeout(at)
        self.waiting[self.workload.queue[job]].append(job)
        self.ask()

    def ask(self) -> None:
        """Schedule once at the end of this moment."""
        if not self.due:
            self.due = True
            event = self.env.event()
            event._ok, event._value = True, None
            event.callbacks.append(lambda _: self.serve())
            self.env.schedule(event, priority=LAST)

    def serve(self) -> None:
        self.due = False
        out: set[tuple[str, bytes]] = set()  # (user, shape) pairs that fit nowhere
        while True:
            best: tuple[tuple[float, int, str], int] | None = None
            for user in self.users:
                job = next((j for j in self.waiting[user] if (user, self.demand[j].tobytes()) not in out), None)
                if job is not None:
                    share = float((self.used[user] / self.total).max())
                    key = (share, self.last_served[user], user)
                    if best is None or key < best[0]:
                        best = (key, job)
            if best is None:
                return
            (_, _, user), job = best
            node = next((n for n, room in enumerate(self.free) if (room >= self.demand[job]).all()), None)
            if node is None:
                out.add((user, self.demand[job].tobytes()))
                continue
            self.free[node] -= self.demand[job]
            self.used[user] += self.demand[job]
            self.last_served[user] = self.turns = self.turns + 1
            self.left[job] -= 1
            self.running[job] += 1
            if self.left[job] == 0:
                self.waiting[user].remove(job)
            self.env.process(self.run(user, job, node))

    def run(self, user: str, job: int, node: int) -> Any:
        yield self.env.timeout(float(self.workload.duration[self.workload.first[job]]))
        self.free[node] += self.demand[job]
        self.used[user] -= self.demand[job]
        self.running[job] -= 1
        self.completed += 1
        if self.left[job] == 0 and self.running[job] == 0:
            self.ended[job] = self.env.now
        self.ask()

    def go(self) -> Model:
        self.env.run()
        return self
