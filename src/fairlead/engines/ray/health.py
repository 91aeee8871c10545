"""How a Ray cluster is, for who asks without being its scheduler: nothing of Ray's is started for that, and no driver made."""

import contextlib
import os
import socket
import subprocess
import sys
from typing import Any, NamedTuple

import psutil

from fairlead.engines.contract import EngineError
from fairlead.engines.ray.nodes import seen_as

CONNECT_WITHIN = 5.0
"""Seconds in which the head must take a connection."""
ANSWER_WITHIN = 5.0
"""Seconds in which it must tell its nodes."""
ASKED_WITHIN = 30.0
"""The same, with the time that loading Ray takes."""
HEALTH_CHECK = {"period_ms": 3000, "timeout_ms": 10000, "failure_threshold": 5}
"""What Ray does where nothing else is said, by the end of the name: RAY_health_check_period_ms and so on."""


class Health(NamedTuple):
    """What is seen of a cluster.

    version : str
        Of Ray, on this machine.
    nodes : list of str
        The names of those that are alive, as they have them here.
    seen_after : tuple of two floats, or None
        Seconds after which a node that ended, and one that does not answer, is declared dead; None where the head's settings
        cannot be read, as it is on another machine or somebody else's.
    """

    version: str
    nodes: list[str]
    seen_after: tuple[float, float] | None


def examine(address: str) -> Health:
    """Ask a head, by host:port. Raises EngineError where it does not answer."""
    _connect(address)
    import ray
    from ray._raylet import GcsClient  # type: ignore[attr-defined]

    from fairlead.engines.ray.membership import described

    try:
        found = GcsClient(address=address).get_all_node_info(timeout=ANSWER_WITHIN).values()
    except Exception as error:  # Ray's own, of many kinds
        raise EngineError(f"what answers at {address} does not tell its nodes: {error}") from None
    alive = [{**described(node), "draining": False} for node in found if node.state == 0]
    return Health(
        ray.__version__, sorted(each.node.name for each in seen_as(alive)), _seen_after(address.rpartition(":")[2])
    )


def _connect(address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_WITHIN).close()
    except (OSError, ValueError) as error:
        raise EngineError(f"no Ray cluster answers at {address}: {error}") from None


def lets_anybody_in(address: str) -> bool:
    """Whether a head answers who has no token. Raises EngineError where that does not become known."""
    _connect(address)
    ask = "import sys; from ray._raylet import GcsClient; GcsClient(address=sys.argv[1]).get_all_node_info(timeout=5)"
    env = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", ask, address],
            env=env,
            capture_output=True,
            text=True,
            timeout=ASKED_WITHIN,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise EngineError(f"Ray at {address} does not say whether it asks for tokens") from None
    if done.returncode and "AuthenticationError" not in done.stderr:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        raise EngineError(f"Ray at {address} does not say whether it asks for tokens: {last}")
    return done.returncode == 0


def _seen_after(port: str) -> tuple[float, float] | None:
    for process in psutil.process_iter(["name", "cmdline", "environ"]):
        told: dict[str, Any] = process.info
        if told["name"] == "gcs_server" and f"--gcs_server_port={port}" in (told["cmdline"] or []) and told["environ"]:
            says = {name: told["environ"].get(f"RAY_health_check_{name}", "") for name in HEALTH_CHECK}
            with contextlib.suppress(ValueError):
                period, timeout, threshold = (int(says[name] or usual) for name, usual in HEALTH_CHECK.items())
                return threshold * period / 1000, threshold * (period + timeout) / 1000
    return None
