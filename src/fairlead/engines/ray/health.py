"""Inspects a Ray cluster for others than its scheduler: starts nothing of Ray's and is no driver."""

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
"""Seconds for the head to accept a connection."""
ANSWER_WITHIN = 5.0
"""Seconds for it to report its nodes."""
ASKED_WITHIN = 30.0
"""The same with loading Ray."""
HEALTH_CHECK = {"period_ms": 3000, "timeout_ms": 10000, "failure_threshold": 5}
"""Ray's defaults of RAY_health_check_period_ms and so on."""


class Health(NamedTuple):
    """The health of a cluster.

    version : str
        Of Ray on this machine.
    nodes : list of str
        Names of live nodes, as in fairlead.
    seen_after : tuple of two floats, or None
        Seconds until an ended node, and an unresponsive one, are declared dead; None if the head's settings cannot be read,
        since it is remote or somebody else's.
    on_disk : bool, or None
        True if the head's state is on a disk and survives its restart; None as above.
    """

    version: str
    nodes: list[str]
    seen_after: tuple[float, float] | None
    on_disk: bool | None


def examine(address: str) -> Health:
    """Inspect the head at host:port. Raises EngineError if it does not answer."""
    _connect(address)
    import ray
    from ray._raylet import GcsClient  # type: ignore[attr-defined]

    from fairlead.engines.ray.membership import described

    try:
        found = GcsClient(address=address).get_all_node_info(timeout=ANSWER_WITHIN).values()
    except Exception as error:  # Ray's own, of many kinds
        raise EngineError(f"what answers at {address} does not report its nodes: {error}") from None
    alive = [{**described(node), "draining": False} for node in found if node.state == 0]
    names, settings = sorted(each.node.name for each in seen_as(alive)), _settings(address.rpartition(":")[2])
    if settings is None:
        return Health(ray.__version__, names, None, None)
    return Health(ray.__version__, names, _seen_after(settings), settings.get("RAY_gcs_storage", "memory") == "rocksdb")


def _connect(address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_WITHIN).close()
    except (OSError, ValueError) as error:
        raise EngineError(f"no Ray cluster answers at {address}: {error}") from None


def lets_anybody_in(address: str) -> bool:
    """Return whether a head answers without a token. Raises EngineError if that cannot be determined."""
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
        raise EngineError(f"Ray at {address} does not show whether it requires tokens") from None
    if done.returncode and "AuthenticationError" not in done.stderr:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        raise EngineError(f"Ray at {address} does not show whether it requires tokens: {last}")
    return done.returncode == 0


def _settings(port: str) -> dict[str, str] | None:
    """Return the environment of the head at a port of this machine, if it can be read."""
    for process in psutil.process_iter(["name", "cmdline", "environ"]):
        info: dict[str, Any] = process.info
        if info["name"] == "gcs_server" and f"--gcs_server_port={port}" in (info["cmdline"] or []) and info["environ"]:
            return dict(info["environ"])
    return None


def _seen_after(settings: dict[str, str]) -> tuple[float, float] | None:
    says = {name: settings.get(f"RAY_health_check_{name}", "") for name in HEALTH_CHECK}
    with contextlib.suppress(ValueError):
        period, timeout, threshold = (int(says[name] or usual) for name, usual in HEALTH_CHECK.items())
        return threshold * period / 1000, threshold * (period + timeout) / 1000
    return None
