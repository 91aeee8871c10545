"""The process that talks to Ray for the scheduler: reports its nodes and keeps an agent on each.

    python -m fairlead.engines.ray.membership ADDRESS CLUSTER

Ray ends a program that called `ray.init` when its head is gone for a minute: then this process ends, not the scheduler, and is
restarted. It reads and writes lines of JSON:

    {"saw": "nodes", "nodes": [{"id": hex, "name": ..., "address": ..., "host": ..., "resources": {...}, "labels":
    {...},
        "draining": bool}]}
        all live nodes, at first and after each change
    {"saw": "agent", "id": hex, "version": ..., "python": path}      {"saw": "failed", "id": hex, "why": ...}
    {"do": "agent", "id": hex, "name": ..., "folder": ..., "as_people": bool,
        "membership": [the fields of fairlead.engines.local.member.Membership]}
    {"do": "dismiss"}, to end all agents, and {"saw": "dismissed"}

It ends when either stream is closed.
"""

import json
import os
import queue
import sys
import threading
import time
from typing import Any

from fairlead.engines.contract import EngineError
from fairlead.engines.ray.health import authenticate
from fairlead.engines.ray.nodes import described

EVERY = 1.0
"""Seconds between two requests for Ray's nodes."""
ANSWER_WITHIN = 120.0
"""Seconds for an agent to answer, including the start of its processes; then it is restarted."""
NAMESPACE = "fairlead"


class Membership:
    """Ray's nodes and their agents."""

    def __init__(self, address: str, cluster: str) -> None:
        import ray
        from ray._private import state
        from ray._raylet import GcsClient  # type: ignore[attr-defined]

        self._ray, self._cluster = ray, cluster
        self._client = GcsClient(address=address)
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
        self._state = state.state
        self._agents: dict[str, Any] = {}
        self._starting: dict[Any, str] = {}  # by request to an agent: its node
        self._waiting: dict[str, float] = {}  # by node: when its agent was first asked without an answer
        self._told: list[dict[str, Any]] | None = None

    def look(self) -> None:
        """Report the nodes if they changed, and answers of agents."""
        alive = [node for node in self._client.get_all_node_info(timeout=10).values() if node.state == 0]
        draining = self._state.get_draining_nodes()
        found = [{**described(node), "draining": node.node_id.hex() in draining} for node in alive]
        found.sort(key=lambda node: node["id"])
        if found != self._told:
            self._told = found
            say("nodes", nodes=found)
        self.hear_agents()

    def hear_agents(self) -> None:
        """Report answers of agents."""
        asked = list(self._starting)
        for each in self._ray.wait(asked, num_returns=len(asked), timeout=0)[0] if asked else ():
            node = self._starting.pop(each)
            try:
                say("agent", id=node, **self._ray.get(each))
            except self._ray.exceptions.ActorUnavailableError:  # it is stopped, or still starting
                say("failed", id=node, why="its agent does not answer; retrying")
                continue
            except Exception as error:  # any failure, such as fairlead not being installed there
                say("failed", id=node, why=(str(error).strip().splitlines() or [repr(error)])[-1])
                self._agents.pop(node, None)
            self._waiting.pop(node, None)
        for node, since in list(self._waiting.items()):
            if time.monotonic() - since > ANSWER_WITHIN:
                self._restart_agent(node)

    def _restart_agent(self, node: str) -> None:
        """Kill a node's agent, which Ray restarts, and drop its requests."""
        self._ray.kill(self._agents.pop(node), no_restart=False)
        self._starting = {each: other for each, other in self._starting.items() if other != node}
        del self._waiting[node]
        say("failed", id=node, why=f"its agent did not answer for {ANSWER_WITHIN:g} s; restarting it")

    def have_agent(self, asked: dict[str, Any]) -> None:
        """Start an agent on a node, and its supervisor."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        from fairlead.engines.ray.agent import Agent

        node = asked["id"]
        if node in self._starting.values():
            return
        if node not in self._agents:
            options = {
                "name": f"{self._cluster}/{node}",
                "lifetime": "detached",
                "get_if_exists": True,
                "num_cpus": 0,
                "max_restarts": -1,
                "max_concurrency": 4,
                "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False),
            }
            given = [asked[key] for key in ("name", "folder", "as_people")]
            self._agents[node] = self._ray.remote(Agent).options(**options).remote(self._cluster, *given)
        self._starting[self._agents[node].start.remote(*asked["membership"])] = node
        self._waiting.setdefault(node, time.monotonic())

    def dismiss(self) -> None:
        """End the agents; their supervisors continue until told to leave."""
        for agent in self._agents.values():
            self._ray.kill(agent)
        say("dismissed")


_SCHEDULER = 1
"""The scheduler's end of our output. `main` reserves it, since Ray prints to standard output."""


def say(saw: str, **what: Any) -> None:
    """Send a message to the scheduler."""
    line = (json.dumps({"saw": saw, **what}) + "\n").encode()
    while line:
        line = line[os.write(_SCHEDULER, line) :]


def _listen(messages: "queue.SimpleQueue[dict[str, Any]]") -> None:
    for line in sys.stdin:
        messages.put(json.loads(line))
    os._exit(0)  # the scheduler is gone


def main() -> None:
    global _SCHEDULER  # noqa: PLW0603
    address, cluster = sys.argv[1:]
    _SCHEDULER = os.dup(1)
    os.dup2(2, 1)
    messages: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(messages,), daemon=True).start()
    try:
        authenticate(address)
    except EngineError as error:
        sys.exit(str(error))
    membership = Membership(address, cluster)
    ask_at = 0.0
    while True:
        if time.monotonic() >= ask_at:
            ask_at = time.monotonic() + EVERY
            membership.look()
        try:
            message = messages.get(timeout=0.05)
        except queue.Empty:
            membership.hear_agents()
            continue
        if message["do"] == "agent":
            membership.have_agent(message)
        elif message["do"] == "dismiss":
            membership.dismiss()


if __name__ == "__main__":
    main()
