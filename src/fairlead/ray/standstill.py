"""Detects a Ray program that waits in vain: it asks for room outside its placement group, gets none, and uses none of the group.

Ray's libraries ask so by default. If jobs hold all room in their groups, nothing would ever end that.
"""

import math
import os
import time
from typing import Any

import psutil

ENDED_BY = "SIGALRM"
"""The signal by which such a program's task ends, so that the scheduler knows why."""
PATIENCE = "FAIRLEAD_RAY_PATIENCE"
"""Environment variable: seconds for which a program may wait in vain; inf for ever."""
PATIENCE_SECONDS = 120.0
"""Its default."""
ROUNDING = 0.001
"""CPUs or GPUs below which a sum is zero."""


def patience() -> float:
    """Return the seconds for which a program may wait in vain. Raises ValueError."""
    seconds = float(os.environ.get(PATIENCE, PATIENCE_SECONDS))
    if math.isnan(seconds) or seconds <= 0:
        raise ValueError(seconds)
    return seconds


class Standstill:
    """How long a program has been waiting in vain.

    Parameters
    ----------
    group : ray.util.placement_group.PlacementGroup
        The placement group of the job.
    program : int
        The program's pid. It and its descendants are its Ray drivers.
    """

    def __init__(self, group: Any, program: int) -> None:
        import ray
        from ray._raylet import GcsClient  # type: ignore[attr-defined]

        self._ray: Any = ray
        self._group, self._program = group.id.hex(), program
        self._address = os.environ["RAY_ADDRESS"]
        self._client = GcsClient(address=self._address)
        self._since = time.monotonic()

    def seconds(self) -> float:
        """Look now. Return for how long the program has been waiting in vain; 0 if it does not, or if Ray does not say."""
        try:
            in_vain = not self._uses_the_group() and self._waits_outside()
        except Exception:  # Ray's many kinds: its head does not answer now
            in_vain = False
        if not in_vain:
            self._since = time.monotonic()
        return time.monotonic() - self._since

    def _uses_the_group(self) -> bool:
        """Return True if anything has a resource of the group; what holds nothing, such as an idle helper, does not count."""
        total, free = self._ray.cluster_resources(), self._ray.available_resources()
        ours = [name for name in total if name.endswith(self._group) and not name.startswith("bundle_group")]
        return any(free.get(name, 0.0) < total[name] for name in ours)

    def _waits_outside(self) -> bool:
        """Return True if it asked for groups or tasks, and has none outside its group."""
        from ray.autoscaler.v2.sdk import get_cluster_status

        jobs = self._client.get_all_job_info(timeout=10).items()
        drivers = [(number.hex(), job.is_running_tasks) for number, job in jobs if not job.is_dead and self._is_ours(job)]
        groups = self._ray.util.placement_group_table()
        # The id of a group ends with that of the driver that made it.
        states = [each["state"] for name, each in groups.items() if name.endswith(tuple(number for number, _ in drivers))]
        if "CREATED" in states or self._is_used_outside([each for each in groups.values() if each["state"] == "CREATED"]):
            return False
        asked = get_cluster_status(self._address).resource_demands.ray_task_actor_demand
        return "PENDING" in states or (bool(asked) and any(has_tasks for _, has_tasks in drivers))

    def _is_ours(self, job: Any) -> bool:
        """Return True if a driver is the program or its descendant."""
        if job.driver_address.ip_address != self._ray.util.get_node_ip_address():
            return False
        family = psutil.Process(self._program).children(recursive=True)
        return job.driver_pid in {self._program, *(child.pid for child in family)}

    def _is_used_outside(self, groups: list[dict[str, Any]]) -> bool:
        """Return True if anybody's task or actor has CPUs or GPUs outside placement groups."""
        total, free = self._ray.cluster_resources(), self._ray.available_resources()
        for name in ("CPU", "GPU"):
            held = sum(bundle.get(name, 0.0) for group in groups for bundle in group["bundles"].values())
            if total.get(name, 0.0) - free.get(name, 0.0) - held > ROUNDING:
                return True
        return False
