"""What fairlead has on each node of a Ray cluster: a detached actor that keeps a supervisor running, and vouches for the node.

The supervisor is nobody's child: Ray ends the children of an actor with it, and tasks outlive the actor, the scheduler and the
raylet. As long as Ray says that the node is alive, the actor has the supervisor's lease last.
"""

import hashlib
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import fairlead
from fairlead.data_folder import SYSTEM_HOME, SYSTEM_SOCKET, home_folder
from fairlead.engines.local import lease
from fairlead.engines.local.member import Keys, start_member

VOUCH_EVERY = 1.0
"""Seconds between two questions to Ray whether this node is alive."""
ASK_WITHIN = 5.0
"""Seconds that Ray is given to answer."""


class Agent:
    """The actor of one node.

    Parameters
    ----------
    cluster : str
        The journal's id: schedulers with others have agents and supervisors of their own.
    name : str
        The node's.
    folder : str
        Where its supervisor and what tasks print are to be; empty for a place in the data folder of whoever runs the raylet.
    own, scheduler : str
        The supervisor's certificate with its key, and the scheduler's certificate, as PEM.
    host : str
        The node's address.
    as_people : bool
        Whether tasks are to run as the people who submitted them.
    """

    def __init__(
        self, cluster: str, name: str, folder: str, own: str, scheduler: str, host: str, as_people: bool = False
    ) -> None:
        home = SYSTEM_HOME if as_people else home_folder()
        self._folder = Path(folder) if folder else home / "nodes" / cluster / name
        self._keys, self._host, self._as_people = Keys(own, scheduler), host, as_people
        self._lock = threading.Lock()  # one at a time starts a supervisor
        self._is_alive = threading.Event()  # since somebody looked, Ray has said so
        for what in (self._vouch, self._keep):
            threading.Thread(target=what, daemon=True).start()

    def start(self) -> dict[str, Any]:
        """Have the supervisor run; how it is reached, the version of fairlead here, and the Python that has it.

        Raises PermissionError where tasks are to run as people, and this is not root.
        """
        if self._as_people and os.geteuid() != 0:
            raise PermissionError(
                f"Ray runs there as uid {os.geteuid()}, and only root can run tasks as those who submitted them: start Ray as "
                "root there, or fairlead without --system"
            )
        with self._lock:
            address = start_member(self._folder, self._keys, self._host, self._checkpoints())
        return {"address": address._asdict(), "version": fairlead.__version__, "python": sys.executable}

    def _checkpoints(self) -> Path | None:
        """A folder of this node that people may enter, where tasks run as people."""
        if not self._as_people:
            return None
        SYSTEM_SOCKET.parent.mkdir(mode=0o755, exist_ok=True)
        name = hashlib.sha256(str(self._folder.resolve()).encode()).hexdigest()[:12]
        return SYSTEM_SOCKET.parent / f"checkpoints-{name}"

    def _keep(self) -> None:
        """Start a supervisor that was killed again, where the node is alive; apart from vouching, which waits for none."""
        while True:
            self._is_alive.wait()
            self._is_alive.clear()
            try:
                self.start()
            except Exception as error:  # whatever it is, the scheduler is told it, too, and it is tried again
                os.write(2, f"fairlead: node {self._host} has no supervisor: {error!r}\n".encode())

    def _vouch(self) -> None:
        """Long as the actor lives, whatever becomes of the supervisor: it may go on as soon as it can."""
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
            except Exception as error:  # Ray's own, of many kinds: without an answer nothing is vouched for
                client = None
                os.write(2, f"fairlead: node {self._host} is not vouched for: {error!r}\n".encode())
            time.sleep(VOUCH_EVERY)
