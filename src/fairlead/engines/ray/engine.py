"""The engine of a Ray cluster: the remote engine on the nodes that Ray reports as alive."""

import contextlib
import json
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

import fairlead
from fairlead.data_folder import write_private
from fairlead.engines.contract import Attempts, EngineError, Launches
from fairlead.engines.local.member import Membership
from fairlead.engines.ray.nodes import RayNode, as_bundle, seen_as
from fairlead.engines.remote.engine import RemoteEngine
from fairlead.engines.remote.members import LeasePolicy
from fairlead.model.specs import Job, Work
from fairlead.ray.names import GROUP_WANTED

log = logging.getLogger("fairlead")

ADDRESS_FILE = "ray_address"
"""File in the data folder: the address of the last head, for its operator."""
HEAR_WITHIN = 30.0
"""Seconds at the scheduler's start for Ray to report its nodes, and for these to answer."""
AGAIN_AFTER = 5.0
"""Seconds after which an agent is asked again to start an unresponsive supervisor."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds between attempts to reach Ray, doubled each time."""
DISMISSED_WITHIN = 5.0
"""Seconds for agents to end."""


HOLD = Work(["sleep", "infinity"], "/")
"""Work of the other tasks of a Ray program: they hold room until it ends."""


class RayEngine(RemoteEngine):
    """Tasks on the nodes of a Ray cluster.

    Parameters
    ----------
    home : Path
        The scheduler's data folder.
    wake : callable
        Called from another thread when there is something to poll.
    address : str
        Ray's head, as host:port. Nodes connect to this machine's address on the way there.
    lost_after, grace : float
        Duration of leases, and grace of tasks at expiry, in seconds.
    folder : Path, optional
        Parent of all nodes' folders, if all nodes are on this machine; else each uses its own data folder.
    as_people : bool
        As for :class:`RemoteEngine`.
    after_leaving : callable
        Called after supervisors were asked to leave for good.
    """

    ray = True

    def __init__(
        self,
        home: Path,
        wake: Callable[[], None],
        address: str,
        lost_after: float,
        grace: float,
        folder: Path | None = None,
        as_people: bool = False,
        after_leaving: Callable[[], None] = lambda: None,
    ) -> None:
        self._host = _host_towards(address)
        super().__init__(home, wake, LeasePolicy(lost_after, grace, vouched=True), (self._host, 0), as_people)
        self._address, self._folder = address, folder
        self._child: subprocess.Popen[str] | None = None
        self._alive: dict[str, RayNode] = {}  # by Ray's id
        self._pythons: dict[str, str] = {}  # by node name: the interpreter of its agent
        self._asked_at: dict[str, float] = {}
        self._told = threading.Event()
        self._dismissed = threading.Event()
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []
        self._after_leaving, self._leaves = after_leaving, False
        self._writing = threading.Lock()
        self._cluster = ""
        self._refused: dict[str, str] = {}  # by Ray's id: why a node has no agent
        self.ray = not as_people  # Ray would run programs as its own user, which is root

    @property
    def trouble(self) -> str | None:
        """As of the remote engine; or why no node can be used."""
        refused = [each.node.name for each in self._alive.values() if each.id in self._refused]
        if self.nodes or self.complaint or not refused:
            return super().trouble
        why = next(iter(self._refused.values()))
        return f"none of Ray's {len(refused)} nodes can be used: {refused[0]}: {why}"

    def serve(self, journal: str, epoch: int) -> None:
        super().serve(journal, epoch)
        self._cluster = journal
        write_private(self._home / ADDRESS_FILE, self._address)
        for what in (self._watch, self._keep_asking):
            self._threads.append(threading.Thread(target=self._run, args=(what,), name="membership", daemon=True))
            self._threads[-1].start()

    def start(self, launches: Launches) -> None:
        """Start attempts. A Ray program's first task is the program; the others hold room until it ends."""
        jobs = np.unique(launches.attempts.job).tolist() if self.ray else []
        rays = [number for number in jobs if launches.jobs[number].work.ray]
        if not rays:
            super().start(launches)
            return
        mine = np.isin(launches.attempts.job, rays)
        super().start(_some(launches, ~mine, {}))
        held = {number: replace(launches.jobs[number], work=HOLD) for number in rays}
        with self._lock:
            on = {task[:2]: node for task, node in self._on.items()}
        on |= {
            (job, index): launches.nodes[place]
            for job, index, place in zip(
                launches.attempts.job.tolist(), launches.attempts.index.tolist(), launches.node.tolist(), strict=True
            )
        }
        for number in rays:
            first = mine & (launches.attempts.job == number) & (launches.attempts.index == 0)
            job = launches.jobs[number]
            places = [on.get((number, index), "") for index in range(job.tasks)]
            program = self._program(job, places)
            if program is not None:  # else it is repeated when more is known
                super().start(_some(launches, first, {number: replace(job, work=program)}))
        super().start(_some(launches, mine & (launches.attempts.index > 0), held))

    def _program(self, job: Job, places: Sequence[str]) -> Work | None:
        """Return a command that makes the placement group on these nodes and runs the program; None if a node is unknown."""
        ids = {each.node.name: each.id for each in self._alive.values()}
        python = self._pythons.get(places[0])
        if python is None or not all(place in ids for place in places):
            return None
        group = {"nodes": [ids[place] for place in places], "bundle": as_bundle(job.demand)}
        env = {**job.work.env, "RAY_ADDRESS": self._address, GROUP_WANTED: json.dumps(group)}
        argv = [python, "-P", "-m", "fairlead.ray.program", *job.work.argv]
        return replace(job.work, argv=argv, env=env, ray=False)

    def wait_for_nodes(self) -> None:
        """Wait until Ray's nodes take tasks, at most HEAR_WITHIN seconds. Raises EngineError if Ray does not answer."""
        until = time.monotonic() + HEAR_WITHIN
        while not self._told.is_set():
            if self.complaint or time.monotonic() > until:
                raise EngineError(
                    self.complaint
                    or f"Ray at {self._address} accepts connections, but did not report its nodes within {HEAR_WITHIN:g} s: "
                    "is it stopped?"
                )
            time.sleep(0.02)
        while len(self.nodes) + len(self._refused) < len(self._alive) and time.monotonic() < until:
            time.sleep(0.02)
        if not self.nodes and self._refused:
            raise EngineError(self.trouble)

    def close(self, leave: bool = False) -> None:
        """Disconnect. With `leave`, agents end, and supervisors as soon as nothing runs."""
        if leave and self._say(do="dismiss"):
            self._dismissed.wait(DISMISSED_WITHIN)
        self._ending.set()
        child = self._child
        if child is not None and child.stdin is not None:
            with contextlib.suppress(OSError):  # it ended before
                child.stdin.close()
        self._leaves = leave
        super().close(leave)

    def join(self, timeout: float) -> None:
        super().join(timeout)
        if self._leaves:
            self._after_leaving()

    # -- the process that talks to Ray ------------------------------------------------------------------------------

    def _run(self, what: Callable[[], None]) -> None:
        """Run a thread's function; a failure becomes the complaint."""
        try:
            what()
        except Exception as error:
            self.complaint = (
                f"the thread that asks Ray for its nodes failed: {error!r}: restart the scheduler: tasks continue meanwhile"
            )
            log.exception(self.complaint)

    def _watch(self) -> None:
        """Keep that process running, and read it."""
        pause = 0.0
        while not self._ending.wait(pause):
            began = time.monotonic()
            why = self._hear_child()
            if self._ending.is_set():
                return
            before, self.complaint = self.complaint, why or f"the process that talks to Ray at {self._address} ended"
            # Before the first nodes, `wait_for_nodes` raises it.
            if self.complaint != before and self._told.is_set():
                log.warning("%s: nodes neither join nor leave until it can be reached; retrying", self.complaint)
            pause = FIRST_PAUSE if time.monotonic() - began > LONGEST_PAUSE else min(LONGEST_PAUSE, max(FIRST_PAUSE, 2 * pause))

    def _hear_child(self) -> str:
        """Run it until it ends. Return the last line of its log."""
        trouble = self._home / "ray.log"
        with trouble.open("w") as errors:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "fairlead.engines.ray.membership", self._address, self._cluster],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                text=True,
            )
            assert self._child.stdout is not None
            for line in self._child.stdout:
                self._hear_membership(json.loads(line))
            self._child.wait()
        return (trouble.read_text(errors="replace").strip().splitlines() or [""])[-1]

    def _say(self, **message: Any) -> bool:
        child = self._child
        if child is None or child.stdin is None:
            return False
        try:
            with self._writing:
                child.stdin.write(json.dumps(message) + "\n")
                child.stdin.flush()
        except (OSError, ValueError):  # it ended; the next one gets it
            return False
        return True

    def _hear_membership(self, message: dict[str, Any]) -> None:
        match message["saw"]:
            case "nodes":
                self.complaint = None
                self._hear_nodes(seen_as(message["nodes"]))
                self._told.set()
            case "agent":
                self._hear_agent(message)
            case "failed":
                self._hear_refusal(message["id"], message["why"])
            case "dismissed":
                self._dismissed.set()

    def _hear_nodes(self, nodes: list[RayNode]) -> None:
        before, self._alive = self._alive, {each.id: each for each in nodes}
        self._refused = {node: why for node, why in self._refused.items() if node in self._alive}
        self._part_from_others()
        for each in nodes:
            if before.get(each.id) != each:
                self._ask_for_agent(each)

    def _part_from_others(self) -> None:
        """Remove the nodes that Ray does not report as alive."""
        for name in self.names() - {each.node.name for each in self._alive.values()}:
            self.part(name)

    def _ask_for_agent(self, each: RayNode) -> None:
        self._asked_at[each.id] = time.monotonic()
        own = self._ring.made_for(each.node.name)
        folder = str(self._folder / each.node.name) if self._folder else ""
        self._say(
            do="agent",
            id=each.id,
            name=each.node.name,
            folder=folder,
            as_people=self._as_people,
            membership=Membership(own, self._ring.certificate, [self._host], self.port, {"version": fairlead.__version__}),
        )

    def _hear_refusal(self, node: str, why: str) -> None:
        """Log once why a node has no agent; it is retried."""
        there = self._alive.get(node)
        if there is not None and self._refused.get(node) != why:
            self._refused[node] = why
            log.warning("no supervisor on %s: %s", there.node.name, why)

    def _hear_agent(self, message: dict[str, Any]) -> None:
        there = self._alive.get(message["id"])
        if there is None:  # gone meanwhile
            return
        if message["version"] != fairlead.__version__:
            name, version = there.node.name, message["version"]
            log.warning(
                "node %s has fairlead %s, and the scheduler is %s: install that there", name, version, fairlead.__version__
            )
            return
        self._refused.pop(there.id, None)
        self._pythons[there.node.name] = message["python"]
        self.admit(there.node, there.address)
        if there.draining:
            self.drain(there.node.name)

    def _keep_asking(self) -> None:
        """Restart unresponsive supervisors, and remove expected nodes that are gone."""
        while not self._ending.wait(1.0):
            if self._told.is_set():
                self._part_from_others()
            there = {node.name for node in self.nodes} - self.silence.keys()
            now = time.monotonic()
            for each in list(self._alive.values()):
                if each.node.name not in there and now - self._asked_at.get(each.id, now) > AGAIN_AFTER:
                    self._ask_for_agent(each)


def _host_towards(address: str) -> str:
    """Return this machine's address on the way to Ray's head, or any if there is none; `wait_for_nodes` says why."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.connect((host, int(port)))  # sends nothing
        return str(line.getsockname()[0])
    return "127.0.0.1"


def _some(launches: Launches, which: np.ndarray, jobs: Mapping[int, Job]) -> Launches:
    """Select launches, with other jobs for some numbers."""
    attempts = Attempts(*(column[which] for column in launches.attempts))
    known = {number: jobs.get(number) or launches.jobs[number] for number in set(attempts.job.tolist())}
    return launches._replace(attempts=attempts, node=launches.node[which], jobs=known)
