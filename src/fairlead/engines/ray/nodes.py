"""Maps Ray's nodes to fairlead's: name, capacity, labels."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from fairlead.model.specs import Node

NAMES = {"CPU": "cpu", "GPU": "gpu", "memory": "memory"}
"""Ray's names of resources that fairlead names differently."""
NOT_OURS = ("node:", "accelerator_type:", "object_store_memory", "bundle_group")
"""Prefixes of resources that Ray keeps for itself."""


class RayNode(NamedTuple):
    """A node of Ray. Each start of a raylet has a new id. `draining`: Ray is about to remove it."""

    id: str
    address: str
    node: Node
    draining: bool


def described(node: Any) -> dict[str, Any]:
    """Return a Ray node as it is reported."""
    return {
        "id": node.node_id.hex(),
        "name": node.node_name,
        "address": node.node_manager_address,
        "host": node.node_manager_hostname,
        "resources": dict(sorted(node.resources_total.items())),
        "labels": dict(sorted(node.labels.items())),
    }


def seen_as(found: Sequence[dict[str, Any]]) -> list[RayNode]:
    """Return the nodes of a cluster, with unique names that survive a restart of the raylet.

    A name is the `ray start --node-name`, else the host's; ambiguous names get the address appended.
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
    """Return a task's demand as a bundle of Ray."""
    theirs = {ours: name for name, ours in NAMES.items()}
    return {theirs.get(name, name): float(n) if name == "memory" else n / 1000 for name, n in demand.items() if n}
