"""What a program of Ray does to use the placement group that was made for it."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from fairlead.ray.names import GROUP


class NotInGroup(RuntimeError):
    """This is no program that fairlead has made a placement group for."""


@contextlib.contextmanager
def session(current: bool = True, **options: Any) -> Iterator[Any]:
    """Join the placement group of the job that this is.

    Parameters
    ----------
    current : bool
        Tasks and actors that name no scheduling strategy run in the group, and so do those that they start.
    **options
        For `ray.init`, where that was not called before.

    Yields
    ------
    ray.util.placement_group.PlacementGroup
        For what names a strategy: ``PlacementGroupSchedulingStrategy(group, 3)`` is the bundle 3.

    Raises
    ------
    NotInGroup
        This was not submitted with ``fairlead submit --ray``.
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


@contextlib.contextmanager
def made_current(group: Any) -> Iterator[None]:
    """Have a group be the one that this driver's tasks and actors belong to. It takes what is private in Ray: tried with 2.60."""
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
