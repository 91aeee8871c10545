"""Writes the messages to a supervisor that :mod:`fairlead.engines.local.messages` parses."""

import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fairlead.engines.contract import Attempts, Launches
from fairlead.model.specs import Job, Node, Quantities


class Folders(NamedTuple):
    """The folders of sessions with Python calls, and of environments stored apart from the journal."""

    calls: Path
    exports: Path


NO_RAY = ["sh", "-c", "echo 'fairlead: there is no Ray cluster here: the scheduler ran with --engine ray before' >&2; exit 1"]
"""What a Ray program becomes on an engine without Ray; the Ray engine replaces its work before."""


_PLACE = re.compile(r"\{(\{)?([0-9]{1,3})?(//|/\.|/|\.)?\}(?(1)\})")
_PARTS: dict[str | None, Callable[[str], str]] = {
    None: str,
    ".": lambda path: os.path.splitext(path)[0],
    "/": os.path.basename,
    "//": lambda path: os.path.dirname(path) or ".",
    "/.": lambda path: os.path.splitext(os.path.basename(path))[0],
}
"""What {1}, {1.}, {1/}, {1//} and {1/.} are of a value, as in GNU parallel, and {}, {.}, ... of the only one."""


def filled(word: str, values: Sequence[str]) -> str:
    """Fill in values for {1}, {2}, ..., and {} if there is one; {{1}} becomes {1}.

    An {index} in a value stays, although the supervisor fills that in.
    """

    def fill(found: re.Match[str]) -> str:
        number = int(found[2]) if found[2] else len(values) == 1
        if not 1 <= number <= len(values):
            return found[0]
        value = found[0][1:-1] if found[1] else _PARTS[found[3]](values[number - 1])
        return value.replace("{index}", "{{index}}")

    return _PLACE.sub(fill, word) if values else word


FIRST_PORT, PORTS = 20_000, 10_000
"""Ports for gangs: below those that Linux gives to outgoing connections by default, so that only servers take them."""
LONGEST_HOSTS = 2**16
"""Characters of the hosts of a gang, at most: Linux bounds each variable of an environment."""


def message(do: str, **what: Any) -> bytes:
    return json.dumps({"do": do, **what}).encode("utf-8", "surrogateescape") + b"\n"


def rows(attempts: Attempts) -> list[list[int]]:
    """Return attempts as messages have them."""
    return np.stack(attempts, axis=1).tolist()


def gpu_indices(nodes: Sequence[Node]) -> dict[str, Sequence[int]]:
    """Return the GPU indices of each node of one machine."""
    found: dict[str, Sequence[int]] = {}
    for node in nodes:
        first = sum(map(len, found.values()))
        found[node.name] = list(range(first, first + node.capacity.get("gpu", 0) // 1000))
    return found


def starts(
    launches: Launches,
    gpus: Mapping[str, Sequence[int]],
    folders: Folders,
    as_people: bool,
    host_of: Callable[[str], str | None],
    journal: str,
    exported: Callable[[str, str], Mapping[str, str] | None] = lambda node, name: None,
    is_elsewhere: Callable[[str], bool] = lambda node: False,
) -> Iterator[tuple[str, bytes, list[list[int]]]]:
    """Yield the messages that start attempts, one per job and node: node, message, attempts.

    host_of : returns the host by which others reach a node; None if unknown, and the tasks of a gang there are left out
    journal : the journal's id. Gangs of two schedulers on one machine rarely get the same port.
    exported : returns a stored environment by node and name, if the node cannot read the file; else None
    is_elsewhere : returns True if a node does not see this machine's files, so that Python calls must be fetched
    """
    for number, node, tasks in _alike(launches):
        job, gang = launches.jobs[number], None
        if job.gang:
            hosts = [host_of(name) if name else "" for name in launches.gangs[number]]
            if None in hosts:
                continue
            all_hosts = ",".join(map(str, hosts))
            port = FIRST_PORT + zlib.crc32(f"{journal} {number} {tasks[0][2]}".encode()) % PORTS
            gang = {"size": job.tasks, "master": hosts[0], "port": port, "apart": job.fit == "apart"}
            gang["hosts"] = all_hosts if len(all_hosts) <= LONGEST_HOSTS else ""
        limits = {
            "cpu": job.demand.get("cpu", 0),
            "memory": job.demand.get("memory", 0),
            "output": job.output_limit or 0,
            "gpus": -(-job.demand.get("gpu", 0) // 1000),
            "gpu_indices": [gpu for gpu in gpus.get(node, ()) if gpu not in launches.drained.get(node, ())],
        }
        there = folders if not is_elsewhere(node) else None
        work = _work(job, limits, [index for _, index, _ in tasks], folders, there)
        person = {"name": job.user, "uid": -1 if job.uid is None else job.uid} if as_people else None  # -1: no account matches
        if job.work.export and (environment := exported(node, job.work.export)) is not None:
            work |= {"export": "", "env": {**environment, **job.work.env}}
        more = {"gang": gang} if gang else {}
        yield (node, message("start", work=work, limits=limits, person=person, signal=job.signal, **more, tasks=tasks), tasks)


def limits(attempts: Attempts, demands: Sequence[Quantities]) -> Iterator[tuple[list[int], bytes]]:
    """Yield attempts with the messages that set their new limits."""
    for task, demand in zip(rows(attempts), demands, strict=True):
        yield task, message("limit", tasks=[task], cpu=demand.get("cpu", 0), memory=demand.get("memory", 0))


def _work(job: Job, limits: dict[str, Any], indices: list[int], folders: Folders, there: Folders | None) -> dict[str, Any]:
    """Return the work of some tasks; `there` are the scheduler's folders where the node sees them, else None."""
    work, call, calls = job.work, job.work.call, {}
    if call is not None:
        shape = [call.session, job.queue, limits["cpu"], limits["memory"], limits["gpus"]]
        session = str(there.calls / call.session) if there is not None else call.session
        calls = {"session": session, "payload": call.payload, "pool": json.dumps(shape), "fetched": there is None}
    if call is None or call.fetch is not None:
        return {
            "argv": NO_RAY if work.ray else [filled(word, work.values_of(work.known_as(indices[0]))) for word in work.argv],
            "cwd": work.cwd or "/",
            "env": work.env,
            "encoding": work.encoding,
            "numbered": work.numbered,
            "export": str(folders.exports / work.export) if work.export else "",
            "input": work.input,
            "known_as": {str(index): work.known_as(index) for index in indices} if work.own_indices else {},
            **({"sent": calls, "fetch": call.fetch} if call is not None else {}),
            **({} if work.port is None else {"port": work.port}),
            **({"idle": work.idle} if work.idle else {}),
            **({"size": work.size} if work.size else {}),
        }
    return calls


def _alike(launches: Launches) -> Iterator[tuple[int, str, list[list[int]]]]:
    """Group launches by job and node, so that an environment is sent once; not those with words of their own. Yields job, node,
    attempts.

    Groups come in the order of their first attempts.
    """
    found: dict[tuple[int, int], list[list[int]]] = {}
    for attempt, place in zip(rows(launches.attempts), launches.node.tolist(), strict=True):
        found.setdefault((attempt[0], place), []).append(attempt)
    for (number, place), tasks in found.items():
        for alike in [[task] for task in tasks] if launches.jobs[number].work.values else [tasks]:
            yield number, launches.nodes[place], alike
