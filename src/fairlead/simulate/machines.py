"""On which machines, and with which queues, a workload is run: its own, so many alike ones, or those of a configuration."""

from dataclasses import replace
from pathlib import Path

from fairlead.model.documents import read_configuration
from fairlead.policies.registry import find_policy
from fairlead.simulate.workload import TraceError, Workload, synthetic_nodes


def on_machines(workload: Workload, nodes: int, node: str, config: Path | None) -> Workload:
    """A workload on other machines than its own.

    Parameters
    ----------
    workload : Workload
    nodes, node : int, str
        So many alike ones, and what each has; 0 for those of the trace.
    config : Path, optional
        A fairlead.toml with machines, and the queue tree.

    Raises
    ------
    TraceError
        Both are named, or the configuration has no machines, or no queue for some job.
    DocumentError
        The configuration is not valid.
    """
    if nodes and config:
        raise TraceError("--nodes and --config: which machines? Name one of the two")
    if config:
        found = read_configuration(config, find_policy)
        if not found.nodes:
            raise TraceError(f"{config}: has no [[node]]: declare the machines")
        inner = {queue.name for queue in found.queues}
        lost = sorted(name for name in set(workload.queue) if not _is_leaf(name, inner))
        if lost:
            beside = "/".join([*lost[0].split("/")[:-1], "*"])
            raise TraceError(f"{config}: has no leaf queue for {lost[0]!r} of the trace: declare it, or {beside}")
        return replace(workload, nodes=found.nodes, queues=found.queues)
    return replace(workload, nodes=synthetic_nodes(nodes, node)) if nodes else workload


def _is_leaf(name: str, declared: set[str]) -> bool:
    parent = name.rpartition("/")[0]
    return name in declared or (f"{parent}/*" if parent else "*") in declared
