"""How a Ray program uses the placement group made for it."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from fairlead.ray.names import GROUP


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
