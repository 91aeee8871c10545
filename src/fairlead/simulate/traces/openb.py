"""Alibaba's GPU cluster, 2023 (Weng et al., "Beware of Fragmentation", USENIX ATC 2023): lists of nodes and of pods.

A pod is a job of one task; its `qos` is the queue. A node's GPUs are one pool, so a fraction of a GPU may be split over several.
"""

from pathlib import Path

import numpy as np

from fairlead.model.specs import Node
from fairlead.simulate.traces.rows import Cells, Chunk, Rows, delimited
from fairlead.simulate.traces.table import read_table
from fairlead.simulate.workload import I64, TraceError, Workload

PODS, NODES = "openb_pod_list_default.csv", "openb_node_list_all_node.csv"


def read_openb(path: Path, skip_bad: bool = False) -> Workload:
    """Read the folder, or one of its pod lists with the node list beside it."""
    pods = path / PODS if path.is_dir() else path
    machines = Rows(pods.parent / NODES, skip_bad)
    nodes: list[Node] = []

    for chunk in delimited(machines.path):
        _need(machines.path, chunk, "sn", "cpu_milli", "memory_mib", "gpu", "model")
        capacity = _amounts(chunk, chunk.wholes("gpu", 0, 10**9) * 1000)
        names, models = chunk.texts("sn"), chunk.texts("model")
        for row in machines.good(chunk).tolist():
            has = {name: int(x) for name, x in zip(("cpu", "memory", "gpu"), capacity[row], strict=True) if x}
            nodes.append(Node(names[row], has, {"model": models[row]} if models[row] else {}))
    jobs, found = read_table(pods, (_table(pods, chunk) for chunk in delimited(pods)), skip_bad)
    notes = ["openb: a pod's qos is its queue; a node's GPUs are one pool; a pod runs from scheduling to deletion"]
    return jobs.workload(pods.stem, nodes, [], machines.skipped + found.skipped, notes)


def _table(path: Path, chunk: Chunk) -> Chunk:
    if "creation_time" not in chunk.cells:
        raise TraceError(f"{path}:1: has no times: use {PODS} or a gpuspec list")
    _need(path, chunk, "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "qos", "deletion_time")
    gpus = chunk.wholes("num_gpu", 0, 10**9)
    demand = _amounts(chunk, np.where(gpus == 1, chunk.wholes("gpu_milli", 0, 1000), gpus * 1000))
    begin, end = chunk.numbers("creation_time"), chunk.numbers("deletion_time")
    begun = chunk.numbers("scheduled_time", empty=-1)
    begun = np.where(begun < 0, begin, begun)
    chunk.refuse_all(end < begun, "is deleted before it is scheduled")
    amounts = zip((("cpu", "m"), ("memory", ""), ("gpu", "m")), demand.T.tolist(), strict=True)
    cells: dict[str, Cells] = {name: [f"{amount}{unit}" for amount in column] for (name, unit), column in amounts}
    on = [f"model={models}" if models else "" for models in chunk.texts("gpu_spec")]
    cells |= {"submit": begin, "duration": np.maximum(1.0, end - begun), "queue": chunk.texts("qos"), "on": on}
    return Chunk(cells, chunk.lines, chunk.faults)


def _need(path: Path, chunk: Chunk, *columns: str) -> None:
    for name in columns:
        if name not in chunk.cells:
            raise TraceError(f"{path}:1: there is no column {name!r}, which openb has: use its own file")


def _amounts(chunk: Chunk, gpu: I64) -> I64:
    """Return CPU, memory and GPUs of each row in base units: shape (rows, 3)."""
    memory = chunk.wholes("memory_mib", 0, 10**12) * 2**20
    return np.stack([chunk.wholes("cpu_milli", 0, 10**12), memory, gpu], axis=1)
