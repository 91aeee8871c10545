"""fairlead's agent on each Ray node: a detached actor that keeps a supervisor running and vouches for the node.

The supervisor is not the actor's child, since Ray ends an actor's children with it: tasks outlive the actor, the scheduler and
the raylet. While Ray reports the node as alive, the actor renews the supervisor's lease.
"""

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import fairlead
from fairlead.data_folder import SYSTEM_HOME, home_folder
from fairlead.engines.local import lease
from fairlead.engines.local.checkpoints import shared_checkpoints
from fairlead.engines.local.member import Membership, start_member

VOUCH_EVERY = 1.0
"""Seconds between two health checks of this node with Ray."""
ASK_WITHIN = 5.0
"""Seconds for Ray to answer."""


class Agent:
    """The actor of one node.

    Parameters
    ----------
    cluster : str
        The journal's id: other schedulers have their own agents and supervisors.
    name : str
        The node's name.
    folder : str
        Where its supervisor and output go; empty for the data folder of the user who runs the raylet.
    as_people : bool
        True if tasks run as the people who submitted them.
    """

    def __init__(self, cluster: str, name: str, folder: str, as_people: bool = False) -> None:
        home = SYSTEM_HOME if as_people else home_folder()
        self._folder = Path(folder) if folder else home / "nodes" / cluster / name
        self._name, self._as_people = name, as_people
        self._membership: Membership | None = None
        self._lock = threading.Lock()  # one start of a supervisor at a time
        self._is_alive = threading.Event()  # Ray reported the node alive since the last check
        for what in (self._vouch, self._keep):
            threading.Thread(target=what, daemon=True).start()

    def start(self, *membership: Any) -> dict[str, Any]:
        """Start the supervisor, or find it. Return the version of fairlead and the Python here.

        `membership` has the fields of :class:`fairlead.engines.local.member.Membership`; none keeps the last.

        Raises PermissionError if tasks should run as people and this is not root.
        """
        if self._as_people and os.geteuid() != 0:
            raise PermissionError(
                f"Ray runs there as uid {os.geteuid()}, and only root can run tasks as those who submitted them: start Ray as "
                "root there, or fairlead without --system"
            )
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # as the raylet that started us takes it; for the tasks
        with self._lock:
            self._membership = Membership(*membership) if membership else self._membership
            checkpoints = shared_checkpoints(self._folder) if self._as_people else None
            start_member(self._folder, self._membership, checkpoints)
        return {"version": fairlead.__version__, "python": sys.executable}

    def _keep(self) -> None:
        """Restart a killed supervisor while the node is alive. A thread of its own, so that vouching never waits."""
        while True:
            self._is_alive.wait()
            self._is_alive.clear()
            if self._membership is None:
                continue
            try:
                self.start()
            except Exception as error:  # the scheduler gets it too; it is retried
                os.write(2, f"fairlead: node {self._name} has no supervisor: {error!r}\n".encode())

    def _vouch(self) -> None:
        """Vouch as long as the actor lives, even without a supervisor."""
        import ray
        from ray._raylet import GcsClient  # type: ignore[attr-defined]

        context = ray.get_runtime_context()
        node, client = ray.NodeID.from_hex(context.get_node_id()), None
        while True:
            asked_at = lease.clock()
            try:
                client = client or GcsClient(address=context.gcs_address)
                if client.check_alive([node], timeout=ASK_WITHIN) == [True]:
                    lease.vouch(self._folder / "supervisor", asked_at)
                    self._is_alive.set()
            except Exception as error:  # Ray's many kinds: without an answer, do not vouch
                client = None
                os.write(2, f"fairlead: node {self._name} is not vouched for: {error!r}\n".encode())
            time.sleep(VOUCH_EVERY)
