"""Ray programs as jobs: one joins the placement group that fairlead made, on the nodes that it chose.

    python -m fairlead.ray COMMAND [ARG]...

makes the group, runs the program, and ends as it does. It is the first task of the job's gang; the others hold room on their
nodes. This process is the Ray driver that owns the group, so Ray removes the group whenever it ends. Signals to the job are for
the program; this process ends after it.

A program may wait in vain: it asks for room outside its group, gets none, and uses none of the group, as Ray's libraries do by
default. If jobs hold all room in their groups, nothing would ever end that. So it is stopped.
"""

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import psutil

__all__ = ["NotInGroup", "inside", "session"]

GROUP_WANTED = "FAIRLEAD_RAY_WANTED"
"""JSON: the bundle, and the node ids, of the placement group to make."""
GROUP = "FAIRLEAD_RAY_GROUP"
"""Id of the placement group."""
FIRST_WORD_AFTER, LAST_WORD_AFTER = 5.0, 60.0
"""Seconds of waiting for Ray before the first message, and at most between two messages."""
LOOK_EVERY = 10.0
"""Seconds between two looks whether the program waits in vain."""
STOP_WITHIN = 10.0
"""Seconds between SIGTERM and SIGKILL for a program that does."""
FOR_THE_PROGRAM = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)
"""Signals that a task may be stopped by; the program gets them too."""
ENDED_BY = "SIGALRM"
"""The signal by which such a program's task ends, so that the scheduler knows why."""
PATIENCE = "FAIRLEAD_RAY_PATIENCE"
"""Environment variable: seconds for which a program may wait in vain; inf for ever."""
PATIENCE_SECONDS = 120.0
"""Its default."""
ROUNDING = 0.001
"""CPUs or GPUs below which a sum is zero."""


class NotInGroup(RuntimeError):
    """This program has no placement group of fairlead's."""


@contextlib.contextmanager
def session(current: bool = True, **options: Any) -> Iterator[Any]:
    """Join the placement group of this job.

    Parameters
    ----------
    current : bool
        True to run tasks and actors without a scheduling strategy, and those that they start, in the group.
    **options
        For `ray.init`, if it was not called before.

    Yields
    ------
    ray.util.placement_group.PlacementGroup
        For explicit strategies: ``PlacementGroupSchedulingStrategy(group, 3)`` is bundle 3.

    Raises
    ------
    NotInGroup
        The program was not submitted with ``fairlead submit --ray``.
    """
    name = os.environ.get(GROUP)
    if name is None:
        raise NotInGroup(f"no {GROUP} in the environment: submit the program with `fairlead submit --ray -- ...`")
    import ray
    from ray.util.placement_group import PlacementGroup

    if not ray.is_initialized():
        ray.init(**{"log_to_driver": True, **options})
    group = PlacementGroup(ray.PlacementGroupID(bytes.fromhex(name)))
    with made_current(group) if current else contextlib.nullcontext():
        yield group


def inside(group: Any, bundle: Mapping[str, float]) -> dict[str, float]:
    """Return a bundle with its room in a group, for groups that a library makes itself, such as Tune for each trial.

    It must fit into one bundle of the group. Raises ValueError for GPUs: Ray assigns no cards to a group within a group.

    Examples
    --------
    ``tune.with_resources(trial, tune.PlacementGroupFactory([fairlead.ray.inside(group, {"CPU": 1})]))``
    """
    if "GPU" in bundle:
        raise ValueError("GPU: Ray assigns no cards to a group within a group: use a bundle of the group itself")
    return {f"{name}_group_{group.id.hex()}": amount for name, amount in bundle.items()}


@contextlib.contextmanager
def made_current(group: Any) -> Iterator[None]:
    """Make a group the default of this driver's tasks and actors. Uses Ray's private names; tested with 2.60."""
    from ray._private import worker

    kind: Any = worker.Worker
    own_group, captures = kind.placement_group_id, kind.should_capture_child_tasks_in_placement_group

    def group_of(each: Any) -> Any:
        found = own_group.fget(each)
        return group.id if found.is_nil() else found

    def captured(each: Any) -> bool:
        return bool(own_group.fget(each).is_nil() or captures.fget(each))

    kind.placement_group_id = property(group_of)
    kind.should_capture_child_tasks_in_placement_group = property(captured)
    try:
        yield
    finally:
        kind.placement_group_id, kind.should_capture_child_tasks_in_placement_group = own_group, captures


def main() -> int:
    """Run the program given as arguments. Return its exit status."""
    wanted = json.loads(os.environ.pop(GROUP_WANTED))
    try:
        may_wait = patience()
    except ValueError:
        sys.stderr.write(f"fairlead: {PATIENCE}={os.environ[PATIENCE]}: write seconds, such as 300, or inf\n")
        return 2
    import ray

    ray.init(address=os.environ["RAY_ADDRESS"], namespace="fairlead", log_to_driver=False, configure_logging=False)
    for number in FOR_THE_PROGRAM:
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    group = make_group(wanted["bundle"], wanted["nodes"])
    for number in FOR_THE_PROGRAM:
        signal.signal(number, lambda number, frame: None)
    try:
        program = subprocess.Popen(sys.argv[1:], env={**os.environ, GROUP: group.id.hex()})
    except OSError as error:
        sys.stderr.write(f"fairlead: {sys.argv[1]}: {error.strerror}\n")
        return 127
    status = wait_for(program, Standstill(group, program.pid), may_wait)
    ray.shutdown()  # the group ends with the driver
    if status < 0:
        end_by(-status)
    return status


def wait_for(program: "subprocess.Popen[bytes]", standstill: "Standstill", may_wait: float) -> int:
    """Wait for the program to end; stop it if it waits in vain for too long. Return its wait status."""
    while True:
        try:
            return program.wait(min(LOOK_EVERY, may_wait / 4))
        except subprocess.TimeoutExpired:
            if standstill.seconds() <= may_wait:
                continue
        program.terminate()
        try:
            program.wait(STOP_WITHIN)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()
        sys.stderr.write(
            f"fairlead: stopped: for {may_wait:g} s this program asked Ray for room outside its placement group, got none, "
            "and used none of the group: have it ask inside, as docs/ray.md says for each of Ray's libraries; "
            f"{PATIENCE} sets how long\n"
        )
        return -signal.Signals[ENDED_BY]


def end_by(number: int) -> None:
    """End by a signal, as the program did."""
    if number != signal.SIGKILL:  # SIGKILL cannot be handled
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)


def make_group(bundle: dict[str, float], nodes: list[str]) -> Any:
    """Make a placement group with one bundle on each of these nodes (repeats allowed); waits until Ray has room."""
    from ray.util.placement_group import placement_group

    where = [{"ray.io/node-id": node} for node in nodes]
    group = placement_group([bundle] * len(nodes), bundle_label_selector=where)
    pause = FIRST_WORD_AFTER
    while not group.wait(pause):
        sys.stderr.write("fairlead: waiting for Ray: something else uses what this job was given\n")
        pause = min(LAST_WORD_AFTER, 2 * pause)
    return group


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


if __name__ == "__main__":
    sys.exit(main())
