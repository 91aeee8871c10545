"""Ports of nodes, which frameworks are offered by number, as ranges: they are in no share, and no limit bounds them.

The ports of a node are those of the settings; those that no task has and no offer promises go with the next offer of the node,
whole, or where one framework is offered a part of the cluster only, the same part of them, the lowest first.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fairlead.model.specs import Ranges
from fairlead.scheduler.facts import Contradiction

if TYPE_CHECKING:
    from fairlead.scheduler.state import State


def joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The same numbers in order, in as few ranges as will do."""
    found: Ranges = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def without(ranges: Ranges, others: Ranges) -> Ranges:
    """The numbers of ranges that are not in others; both in order."""
    found: Ranges = []
    for first, last in ranges:
        left = first
        for start, end in others:
            if start <= last and end >= left:
                if start > left:
                    found.append((left, start - 1))
                left = end + 1
        if left <= last:
            found.append((left, last))
    return found


def lowest(ranges: Ranges, count: int) -> Ranges:
    """So many of the numbers, the lowest."""
    found: Ranges = []
    for first, last in ranges:
        if count > 0:
            found.append((first, min(last, first + count - 1)))
            count -= last - first + 1
    return found


def count_of(ranges: Ranges) -> int:
    """How many numbers there are."""
    return sum(last - first + 1 for first, last in ranges)


def written_ports(ranges: Ranges) -> str:
    """Ranges as people read them."""
    return ",".join(f"{first}-{last}" for first, last in ranges) or "none"


def free_on(state: "State", node: str) -> Ranges:
    """The ports of a node that no task has and no offer promises."""
    taken = _given(state, node)
    if not taken:
        return state.settings.ports
    return without(state.settings.ports, joined(each for ranges in taken for each in ranges))


def _given(state: "State", node: str) -> list[Ranges]:
    """The ports of a node that tasks have, and that are offered."""
    f = state.frameworks
    return [*f.ports.get(node, {}).values(), *f.offered_ports.get(node, {}).values()]


def for_offer(state: "State", leaf: str, free: Ranges) -> Ranges:
    """What of the free ports of a node is offered to the framework of a leaf."""
    most = float(state.queues.offer_most[state.tree.rows[leaf]])
    return lowest(free, int(count_of(state.settings.ports) * most)) if most else free


def hold(state: "State", held: dict[str, dict[int, Ranges]], node: str, number: int, ranges: Ranges) -> None:
    """An offer, or a task, has ports of a node, which nobody else had."""
    if ranges:
        if any(without(ranges, other) != ranges for other in _given(state, node)):
            raise Contradiction(f"some of ports {ranges} of node {node} are somebody's already")
        held.setdefault(node, {})[number] = ranges


def give_back(held: dict[str, dict[int, Ranges]], node: str, number: int) -> None:
    """An offer holds no longer, or a task is over."""
    here = held.get(node, {})
    here.pop(number, None)
    if not here:
        held.pop(node, None)
