"""Inspects a Ray cluster for others than its scheduler: starts nothing of Ray's and is no driver."""

import contextlib
import os
import socket
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from fairlead.engines.contract import EngineError
from fairlead.engines.ray.nodes import described, seen_as

CONNECT_WITHIN = 5.0
"""Seconds for the head to accept a connection."""
ANSWER_WITHIN = 5.0
"""Seconds for it to report its nodes."""
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
    unasked : str
        Where a token is that the head, started without RAY_AUTH_MODE, does not ask for, and will at its next start; or empty.
    """

    version: str
    nodes: list[str]
    seen_after: tuple[float, float] | None
    on_disk: bool | None
    unasked: str


def examine(address: str) -> Health:
    """Inspect the head at host:port. Raises EngineError as :func:`authenticate`."""
    mode = authenticate(address)
    import ray
    from ray._raylet import GcsClient  # type: ignore[attr-defined]

    found = GcsClient(address=address).get_all_node_info(timeout=ANSWER_WITHIN).values()
    alive = [{**described(node), "draining": False} for node in found if node.state == 0]
    names, settings = sorted(each.node.name for each in seen_as(alive)), _settings(address.rpartition(":")[2])
    if settings is None:
        return Health(ray.__version__, names, None, None, "")
    on_disk = settings.get("RAY_gcs_storage", "memory") == "rocksdb"
    unasked = "" if mode == "token" or "RAY_AUTH_MODE" in settings else _token_path()
    return Health(ray.__version__, names, _seen_after(settings), on_disk, unasked)


def _connect(address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_WITHIN).close()
    except (OSError, ValueError) as error:
        raise EngineError(f"no Ray cluster answers at {address}: {error}") from None


def authenticate(address: str) -> str:
    """Make this process use a cluster's authentication mode, "token" or "disabled". Return it.

    Raises EngineError if the cluster does not answer, contradicts a RAY_AUTH_MODE that is set, or refuses the token here.
    """
    _connect(address)
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # a refusal is no news
    wanted, token = os.environ.get("RAY_AUTH_MODE", "").lower(), _token_path()
    asks = f"the Ray cluster at {address} asks for a token, and"
    remedy = "write the cluster's into ~/.ray/auth_token, or its path into RAY_AUTH_TOKEN_PATH"
    if _admits(address, "disabled"):
        if wanted == "token":
            raise EngineError(
                f"the Ray cluster at {address} asks for no token, so anybody who reaches it can run commands there, and "
                "RAY_AUTH_MODE=token is set here: start the cluster with RAY_AUTH_MODE=token, or unset it here"
            )
        return "disabled"
    if wanted == "disabled":
        raise EngineError(f"{asks} RAY_AUTH_MODE=disabled is set here: unset it; {remedy}")
    if not token:
        raise EngineError(f"{asks} there is none here: {remedy}")
    if not _admits(address, "token"):
        raise EngineError(f"{asks} refuses the one in {token}: {remedy}")
    return "token"


def _admits(address: str, mode: str) -> bool:
    """Switch this process to an authentication mode. Return True if a head answers to it."""
    from ray._raylet import Config, GcsClient  # type: ignore[attr-defined]
    from ray.exceptions import AuthenticationError

    os.environ["RAY_AUTH_MODE"] = mode
    Config.initialize("")  # reads it, as `ray.init` has it do
    try:
        GcsClient(address=address).get_all_node_info(timeout=ANSWER_WITHIN)
    except AuthenticationError:
        return False
    except Exception as error:  # Ray's own, of many kinds
        raise EngineError(f"what answers at {address} does not report its nodes: {error}") from None
    return True


def _token_path() -> str:
    """Return where Ray finds a token here; empty if there is none."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return "RAY_AUTH_TOKEN"
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    return str(path) if path.is_file() else ""


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
