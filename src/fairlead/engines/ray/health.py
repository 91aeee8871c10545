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
    on_disk : bool, or None
        Whether what the head knows is kept on a disk, so that it still does when it is started anew; None as above.
    """

    version: str
    nodes: list[str]
    seen_after: tuple[float, float] | None
    on_disk: bool | None


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
    names, said = sorted(each.node.name for each in seen_as(alive)), _settings(address.rpartition(":")[2])
    if said is None:
        return Health(ray.__version__, names, None, None)
    return Health(ray.__version__, names, _seen_after(said), said.get("RAY_gcs_storage", "memory") == "rocksdb")


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


def _settings(port: str) -> dict[str, str] | None:
    """The environment of the head at a port of this machine, where there is one and it may be read."""
    for process in psutil.process_iter(["name", "cmdline", "environ"]):
        told: dict[str, Any] = process.info
        if told["name"] == "gcs_server" and f"--gcs_server_port={port}" in (told["cmdline"] or []) and told["environ"]:
            return dict(told["environ"])
    return None


def _seen_after(settings: dict[str, str]) -> tuple[float, float] | None:
    says = {name: settings.get(f"RAY_health_check_{name}", "") for name in HEALTH_CHECK}
    with contextlib.suppress(ValueError):
        period, timeout, threshold = (int(says[name] or usual) for name, usual in HEALTH_CHECK.items())
        return threshold * period / 1000, threshold * (period + timeout) / 1000
    return None
