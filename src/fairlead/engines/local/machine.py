"""The resources of this machine: cores, memory and GPUs."""

import os
import socket
from collections.abc import Mapping

import psutil

from fairlead.model.quantity import Percent
from fairlead.model.specs import Node, Quantities

CORE = 1000


def this_machine(system: Mapping[str, int | Percent]) -> Node:
    """Return this machine as one node: the cores in our affinity mask, its memory, and NVIDIA GPUs.

    `system` is reserved for the machine itself; one core is left in any case.
    """
    capacity = {"cpu": 1000 * len(os.sched_getaffinity(0)), "memory": int(psutil.virtual_memory().total)}
    gpus = _gpus()
    if gpus:
        capacity["gpu"] = 1000 * len(gpus)
    labels = {"gpu_model": gpus[0].replace(" ", "-")} if gpus else {}
    for name, amount in kept(system, capacity).items():
        capacity[name] -= amount
    return Node(socket.gethostname() or "localhost", capacity, labels)


def kept(system: Mapping[str, int | Percent], capacity: Quantities) -> Quantities:
    """Return what a machine of this capacity reserves for itself, in base units."""
    found = {}
    for name, amount in system.items():
        if name in capacity:
            whole = capacity[name] - (CORE if name == "cpu" else 0)
            part = int(capacity[name] * amount / 100) if isinstance(amount, Percent) else amount
            found[name] = max(0, min(part, whole))
    return {name: amount for name, amount in found.items() if amount}


def _gpus() -> list[str]:
    """Return the models of the GPUs, by index."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver: no GPUs
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return [str(pynvml.nvmlDeviceGetName(handle)) for handle in handles]
    finally:
        pynvml.nvmlShutdown()
