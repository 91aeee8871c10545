"""A Ray cluster as an engine: Ray says which nodes are alive, and starts a supervisor on each; the rest is the remote engine.

Ray ends a program that called `ray.init` when its head is gone for a minute. So a process of its own talks to Ray:

    python -m fairlead.engines.ray ADDRESS CLUSTER

It and the scheduler write lines of JSON; it ends when either stream is closed:

    {"nodes": [{"id": hex, "name": ..., "address": ..., "host": ..., "resources": {...}, "labels": {...}, "draining": bool}]}
        all live nodes, at first and after each change
    {"id": hex, "python": path} or {"id": hex, "why": why there is no supervisor}
    from the scheduler: {"id": hex, "name": ..., "as_people": bool, "membership": {...}}
        start a supervisor there, or find it
"""

import contextlib
import json
import logging
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from fairlead.data_folder import write_private
from fairlead.engines.contract import EngineError, Launches, pick
from fairlead.engines.remote.engine import RemoteEngine, Serving
from fairlead.model.specs import Job, Node, Work
from fairlead.ray import GROUP_WANTED

log = logging.getLogger("fairlead")

ADDRESS_FILE = "ray_address"
"""File in the data folder: the address of the last head, for its operator."""
CONNECT_WITHIN = 5.0
"""Seconds for the head to accept a connection."""
LIST_WITHIN = 5.0
"""Seconds for it to report its nodes."""
HEAR_WITHIN = 30.0
"""Seconds at the scheduler's start for Ray to report its nodes, and for these to answer."""
START_WITHIN = 120.0
"""Seconds for a node to start a supervisor, including Ray's own processes for it."""
LIST_EVERY = 1.0
"""Seconds between two requests for Ray's nodes."""
AGAIN_AFTER = 5.0
"""Seconds after which a node that is not heard is asked again for a supervisor."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds between attempts to reach Ray, doubled each time."""
NAMES = {"CPU": "cpu", "GPU": "gpu", "memory": "memory"}
"""Ray's names of resources that fairlead names differently."""
NOT_OURS = ("node:", "accelerator_type:", "object_store_memory", "bundle_group")
"""Prefixes of resources that Ray keeps for itself."""
HOLD = Work(["sleep", "infinity"], "/")
"""Work of the other tasks of a Ray program: they hold room until it ends."""


class RayNode(NamedTuple):
    """A node of Ray. Each start of a raylet has a new id. `draining`: Ray is about to remove it."""

    id: str
    address: str
    node: Node
    draining: bool


class RayEngine(RemoteEngine):
    """Tasks on the nodes of a Ray cluster, whose head is at `address`; it listens on :func:`host_towards` that."""

    def __init__(self, serving: Serving, address: str) -> None:
        super().__init__(serving)
        self._address, self._host = address, serving.listen[0]
        self._child: subprocess.Popen[str] | None = None
        self._alive: dict[str, RayNode] = {}  # by Ray's id
        self._pythons: dict[str, str] = {}  # by node name: the interpreter there
        self._refused: dict[str, str] = {}  # by Ray's id: why a node has no supervisor
        self._told, self._news, self._ending = threading.Event(), threading.Event(), threading.Event()
        self.ray = not serving.as_people  # Ray would run programs as its own user, which is root

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
        write_private(self._home / ADDRESS_FILE, self._address)
        for what in (self._watch, self._ask):
            threading.Thread(target=what, name="membership", daemon=True).start()

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
        for number in rays:
            first = mine & (launches.attempts.job == number) & (launches.attempts.index == 0)
            job = launches.jobs[number]
            program = self._program(job, launches.gangs[number])
            if program is not None:  # else it is repeated when more is known
                super().start(_some(launches, first, {number: replace(job, work=program)}))
        super().start(_some(launches, mine & (launches.attempts.index > 0), held))

    def _program(self, job: Job, places: Sequence[str]) -> Work | None:
        """Return a command that makes the placement group on these nodes and runs the program; None if a node is unknown."""
        ids = {each.node.name: each.id for each in self._alive.values()}
        python = self._pythons.get(places[0])
        if python is None or not all(place in ids for place in places):
            return None
        theirs = {ours: name for name, ours in NAMES.items()}
        bundle = {theirs.get(name, name): float(n) if name == "memory" else n / 1000 for name, n in job.demand.items() if n}
        group = {"nodes": [ids[place] for place in places], "bundle": bundle}
        env = {**job.work.env, "RAY_ADDRESS": self._address, GROUP_WANTED: json.dumps(group)}
        return replace(job.work, argv=[python, "-P", "-m", "fairlead.ray", *job.work.argv], env=env, ray=False)

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
        self._ending.set()
        self._news.set()
        if self._child is not None:
            self._child.kill()  # all that it has to keep is on the nodes
        super().close(leave)

    # -- the process that talks to Ray ------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Keep that process running, and read it."""
        pause = 0.0
        while not self._ending.wait(pause):
            began = time.monotonic()
            try:
                why = self._hear_child()
            except (OSError, ValueError) as error:
                why = f"the process that talks to Ray at {self._address}: {error}"
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
        command = [sys.executable, "-P", "-m", "fairlead.engines.ray", self._address, self._journal]
        pipe = subprocess.PIPE
        with trouble.open("w") as log_file:
            child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log_file, start_new_session=True, text=True)
        with child:
            self._child = child
            for line in child.stdout or ():
                self._hear_ray(json.loads(line))
        return (trouble.read_text(errors="replace").strip().splitlines() or [""])[-1]

    def _hear_ray(self, message: dict[str, Any]) -> None:
        if "nodes" in message:
            self.complaint = None
            self._alive = {each.id: each for each in seen_as(message["nodes"])}
            self._refused = {node: why for node, why in self._refused.items() if node in self._alive}
            self._told.set()
            self._news.set()
            return
        there = self._alive.get(message["id"])
        if there is None:  # gone meanwhile
            return
        name, why = there.node.name, message.get("why")
        if why is None:
            self._refused.pop(there.id, None)
            self._pythons[name] = message["python"]
            self.admit(there.node, there.address)
            if there.draining:
                self.drain(name)
        elif self._refused.get(there.id) != why:  # logged once; it is retried
            self._refused[there.id] = why
            log.warning("no supervisor on %s: %s", name, why)

    def _ask(self) -> None:
        """Remove nodes that Ray does not report as alive; have a supervisor started on those that are new, changed or silent."""
        asked: dict[str, tuple[RayNode, float]] = {}
        while not self._ending.is_set():
            self._news.wait(LIST_EVERY)
            self._news.clear()
            if not self._told.is_set():
                continue
            alive, now = list(self._alive.values()), time.monotonic()
            for name in self.names() - {each.node.name for each in alive}:
                self.part(name)
            with self._lock:
                quiet = {name for name, each in self._members.items() if now - each.renewed_at > AGAIN_AFTER}
            heard = {node.name for node in self.nodes} - quiet
            for each in alive:
                before, at = asked.get(each.id, (None, 0.0))
                if before != each or (each.node.name not in heard and now - at > AGAIN_AFTER):
                    asked[each.id] = each, now
                    self._have_supervisor(each)

    def _have_supervisor(self, each: RayNode) -> None:
        own = self._ring.made_for(each.node.name, each.id)  # a supervisor from before, in another folder, is refused
        membership = {"own": own, "scheduler": self._ring.certificate, "hosts": [self._host], "port": self.port}
        asked = {"id": each.id, "name": each.node.name, "as_people": self._as_people, "membership": membership}
        if self._child is not None and self._child.stdin is not None:
            with contextlib.suppress(OSError, ValueError):  # it ended; the next one gets it
                self._child.stdin.write(json.dumps(asked) + "\n")
                self._child.stdin.flush()


def host_towards(address: str) -> str:
    """Return this machine's address on the way to Ray's head, or any if there is none; `wait_for_nodes` says why."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.connect((host, int(port)))  # sends nothing
        return str(line.getsockname()[0])
    return "127.0.0.1"


def _some(launches: Launches, which: np.ndarray, jobs: Mapping[int, Job]) -> Launches:
    """Select launches, with other jobs for some numbers."""
    attempts = pick(launches.attempts, which)
    known = {number: jobs.get(number) or launches.jobs[number] for number in set(attempts.job.tolist())}
    return launches._replace(attempts=attempts, node=launches.node[which], jobs=known)


def seen_as(found: Sequence[dict[str, Any]]) -> list[RayNode]:
    """Return the nodes of a cluster, with unique names that survive a restart of the raylet.

    A name is the `ray start --node-name`, else the host's; ambiguous names get the address appended.
    """
    wanted = {node["id"]: node["name"] if node["name"] != node["address"] else node["host"] for node in found}
    count = Counter(wanted.values())
    names = {
        node["id"]: f"{wanted[node['id']]}-{node['address']}" if count[wanted[node["id"]]] > 1 else wanted[node["id"]]
        for node in found
    }
    return [RayNode(node["id"], node["address"], _as_node(names[node["id"]], node), node["draining"]) for node in found]


def _as_node(name: str, node: dict[str, Any]) -> Node:
    capacity: dict[str, int] = {}
    labels = {"host": node["host"], **node["labels"]}
    for resource, amount in node["resources"].items():
        if resource.startswith("accelerator_type:"):
            labels["gpu_model"] = resource.partition(":")[2]
        elif not resource.startswith(NOT_OURS):
            ours = NAMES.get(resource, resource)
            capacity[ours] = int(amount) if ours == "memory" else round(1000 * amount)
    return Node(name, capacity, labels)


# -- in the process that talks to Ray, and in doctor ------------------------------------------------------------------


def live_nodes(client: Any, draining: Container[str] = ()) -> list[dict[str, Any]]:
    return [
        {
            "id": node.node_id.hex(),
            "name": node.node_name,
            "address": node.node_manager_address,
            "host": node.node_manager_hostname,
            "resources": dict(sorted(node.resources_total.items())),
            "labels": dict(sorted(node.labels.items())),
            "draining": node.node_id.hex() in draining,
        }
        for node in sorted(client.get_all_node_info(timeout=LIST_WITHIN).values(), key=lambda node: node.node_id.hex())
        if node.state == 0
    ]


def authenticate(address: str) -> tuple[str, Any]:
    """Make this process use a cluster's authentication mode, "token" or "disabled". Return it, and a client of Ray's head.

    Raises EngineError if the cluster does not answer, contradicts a RAY_AUTH_MODE that is set, or refuses the token here.
    """
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_WITHIN).close()
    except (OSError, ValueError) as error:
        raise EngineError(f"no Ray cluster answers at {address}: {error}") from None
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # a refusal is no news
    wanted, token = os.environ.get("RAY_AUTH_MODE", "").lower(), _token_path()
    asks = f"the Ray cluster at {address} asks for a token, and"
    remedy = "write the cluster's into ~/.ray/auth_token, or its path into RAY_AUTH_TOKEN_PATH"
    if client := _admits(address, "disabled"):
        if wanted == "token":
            raise EngineError(
                f"the Ray cluster at {address} asks for no token, so anybody who reaches it can run commands there, and "
                "RAY_AUTH_MODE=token is set here: start the cluster with RAY_AUTH_MODE=token, or unset it here"
            )
        return "disabled", client
    if wanted == "disabled":
        raise EngineError(f"{asks} RAY_AUTH_MODE=disabled is set here: unset it; {remedy}")
    if not token:
        raise EngineError(f"{asks} there is none here: {remedy}")
    client = _admits(address, "token")
    if client is None:
        raise EngineError(f"{asks} refuses the one in {token}: {remedy}")
    return "token", client


def _admits(address: str, mode: str) -> Any:
    """Switch this process to an authentication mode. Return a client of the head if it answers to that, else None."""
    from ray._raylet import Config, GcsClient  # type: ignore[attr-defined]
    from ray.exceptions import AuthenticationError

    os.environ["RAY_AUTH_MODE"] = mode
    Config.initialize("")  # reads it, as `ray.init` has it do
    try:
        client = GcsClient(address=address)
        client.get_all_node_info(timeout=LIST_WITHIN)
    except AuthenticationError:
        return None
    except Exception as error:  # Ray's own, of many kinds
        raise EngineError(f"what answers at {address} does not report its nodes: {error}") from None
    return client


def _token_path() -> str:
    """Return where Ray finds a token here; empty if there is none."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return "RAY_AUTH_TOKEN"
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    return str(path) if path.is_file() else ""


class Agent:
    """An actor on each node, which starts its supervisor. With it, Ray does not take the node for idle, to be ended at once.

    The supervisor is not the actor's child, since Ray ends an actor's children with it: tasks outlive actor and raylet. Ray
    carries the class to the node, so it imports there what it needs.
    """

    def start(self, cluster: str, name: str, as_people: bool, membership: dict[str, Any]) -> str:
        """Start the node's supervisor, or find it; return the Python here.

        Its files and output are in the data folder of the user who runs Ray here, or in the machine's if tasks run `as_people`.
        Raises PermissionError if they do and this is not root.
        """
        import fairlead
        from fairlead.data_folder import SYSTEM_HOME, home_folder
        from fairlead.engines.local.checkpoints import shared_checkpoints
        from fairlead.engines.local.member import Membership, start_member

        if as_people and os.geteuid() != 0:
            raise PermissionError(
                f"Ray runs there as uid {os.geteuid()}, and only root can run tasks as those who submitted them: start Ray as "
                "root there, or fairlead without --system"
            )
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # as the raylet that started us takes it; for the tasks
        folder = (SYSTEM_HOME if as_people else home_folder()) / "nodes" / cluster / name
        about = {"version": fairlead.__version__}
        start_member(folder, Membership(**membership, about=about), shared_checkpoints(folder) if as_people else None)
        return sys.executable


class Agents:
    """The agents of Ray's nodes; `say` reports what came of a request to one."""

    def __init__(self, ray: Any, cluster: str, say: Callable[..., None]) -> None:
        self._ray, self._cluster, self._say = ray, cluster, say
        self._agents: dict[str, Any] = {}  # by node
        self._asked: dict[Any, tuple[str, float]] = {}  # by request: its node, and when

    def keep(self, nodes: Container[str]) -> None:
        """Forget the agents of other nodes. Exit if this process is at one: Ray starts nothing for it any more."""
        if self._ray.get_runtime_context().get_node_id() not in nodes:
            sys.exit("the Ray node on this machine has ended")
        self._agents = {node: agent for node, agent in self._agents.items() if node in nodes}

    def start(self, asked: dict[str, Any]) -> None:
        """Have a node start a supervisor, unless it is just about to."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node = asked["id"]
        if node in (each for each, _ in self._asked.values()):
            return
        if node not in self._agents:
            with contextlib.suppress(ValueError):  # before 0.2 a detached one renewed leases without the scheduler
                self._ray.kill(self._ray.get_actor(f"{self._cluster}/{node}"))
            at = NodeAffinitySchedulingStrategy(node, soft=False)
            options = self._ray.remote(Agent).options(num_cpus=0, max_restarts=-1, scheduling_strategy=at)
            self._agents[node] = options.remote()
        request = self._agents[node].start.remote(self._cluster, asked["name"], asked["as_people"], asked["membership"])
        self._asked[request] = node, time.monotonic()

    def hear(self) -> None:
        """Report answers, and who gave none. An agent that failed is replaced when it is asked next."""
        asked = list(self._asked)
        for each in self._ray.wait(asked, num_returns=len(asked), timeout=0)[0] if asked else ():
            node, _ = self._asked.pop(each)
            try:
                self._say(id=node, python=self._ray.get(each))
            except Exception as error:  # any failure, such as fairlead not being installed there
                self._agents.pop(node, None)
                self._say(id=node, why=(str(error).strip().splitlines() or [repr(error)])[-1])
        for each, (node, at) in list(self._asked.items()):
            if time.monotonic() - at > START_WITHIN:
                del self._asked[each]
                if (agent := self._agents.pop(node, None)) is not None:
                    self._ray.kill(agent)
                self._say(id=node, why=f"its agent did not answer for {START_WITHIN:g} s; retrying")


def main() -> None:
    """Report Ray's nodes, and have supervisors started on them."""
    address, cluster = sys.argv[1:]
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray prints to standard output
    messages: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            messages.put(json.loads(line))
        os._exit(0)  # the scheduler is gone

    def say(**what: Any) -> None:
        print(json.dumps(what), file=out, flush=True)

    threading.Thread(target=listen, daemon=True).start()
    try:
        _, client = authenticate(address)
    except EngineError as error:
        sys.exit(str(error))
    import ray
    from ray._private import state

    ray.init(address=address, namespace="fairlead", log_to_driver=False, configure_logging=False)
    agents, told, list_at = Agents(ray, cluster, say), None, 0.0
    while True:
        if time.monotonic() >= list_at:
            list_at = time.monotonic() + LIST_EVERY
            if (found := live_nodes(client, state.state.get_draining_nodes())) != told:
                told = found
                agents.keep({node["id"] for node in found})
                say(nodes=found)
        with contextlib.suppress(queue.Empty):
            agents.start(messages.get(timeout=0.05))
        agents.hear()


if __name__ == "__main__":
    main()
