"""What this machine has: cores, memory and GPUs."""

import os
import socket

import psutil

from fairlead.model.specs import Node


def this_machine() -> Node:
    """This machine as one node, with all the cores that we may use, its memory, and its NVIDIA GPUs if there are any."""
    capacity = {"cpu": 1000 * len(os.sched_getaffinity(0)), "memory": int(psutil.virtual_memory().total)}
    gpus = _gpus()
    if gpus:
        capacity["gpu"] = 1000 * len(gpus)
    labels = {"gpu_model": gpus[0].replace(" ", "-")} if gpus else {}
    return Node(socket.gethostname() or "localhost", capacity, labels)


def _gpus() -> list[str]:
    """The models of the GPUs, by index."""
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
