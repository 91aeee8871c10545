"""How a node of Ray is seen as a node of fairlead: its name, what it has, and its labels."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from fairlead.model.specs import Node

NAMES = {"CPU": "cpu", "GPU": "gpu", "memory": "memory"}
"""What Ray calls resources that have names here, too."""
NOT_OURS = ("node:", "accelerator_type:", "object_store_memory", "bundle_group")
"""Beginnings of the names of what Ray keeps for itself."""


class RayNode(NamedTuple):
    """One of Ray's nodes, which has an id of its own each time that a raylet starts; `draining`: Ray is to take it away."""

    id: str
    address: str
    node: Node
    draining: bool


def seen_as(found: Sequence[dict[str, Any]]) -> list[RayNode]:
    """The nodes of a cluster, each with a name that no other has, and that it had when its raylet ran before.

    The name is what `ray start --node-name` said; else the host's; and where several have that, with the address.
    """
    wanted = {node["id"]: node["name"] if node["name"] != node["address"] else node["host"] for node in found}
    count = Counter(wanted.values())
    names = {
        node["id"]: f"{wanted[node['id']]}-{node['address']}" if count[wanted[node["id"]]] > 1 else wanted[node["id"]]
        for node in found
    }
    return [RayNode(node["id"], node["address"], _as_node(names[node["id"]], node), node["draining"]) for node in found]


def _as_node(name: str, node: dict[str, Any]) -> Node:
    capacity: dict[str, int] = {}
    labels = {"host": node["host"], **node["labels"]}
    for resource, amount in node["resources"].items():
        if resource.startswith("accelerator_type:"):
            labels["gpu_model"] = resource.partition(":")[2]
        elif not resource.startswith(NOT_OURS):
            ours = NAMES.get(resource, resource)
            capacity[ours] = int(amount) if ours == "memory" else round(1000 * amount)
    return Node(name, capacity, labels)


def as_bundle(demand: dict[str, int]) -> dict[str, float]:
    """What a task asks for, as a bundle of Ray."""
    theirs = {ours: name for name, ours in NAMES.items()}
    return {theirs.get(name, name): float(n) if name == "memory" else n / 1000 for name, n in demand.items() if n}
