"""DRF against slots: section 6.2 and Figures 5 to 7 of the DRF paper in simulation, on its machines and on others.

For ten minutes, some users have small jobs of CPU-light tasks, and as many have large jobs of CPU-heavy tasks; each always has
another job. With slots, every machine has k equal ones, and any task takes one. Few slots leave CPUs unused; many overcommit
machines, which slows all tasks there. DRF needs no such number. The third policy shares CPUs alone equally; memory still limits
placement.

The paper had 48 machines of 8 CPUs and 6 GB for tasks, four users of each kind, jobs of 80 tasks of <1 CPU, 0.5 GB> or
<2 CPUs, 2 GB>, and 3 to 6 slots. There memory limits the large tasks. The other machines, of 4 CPUs and 15 GB, have enough.

Chosen here, because the paper does not report it: small tasks take 10 s, large ones 30 s; tasks that need f times what their
machine has run f times as slowly.

    python examples/drf_and_slots.py [figure.svg]
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fairlead.charts import Axis, Chart, Series, picture, span
from fairlead.scheduler.facts import JobHeld
from fairlead.simulate.run import simulate
from fairlead.simulate.workload import Jobs, Workload, synthetic_nodes

MINUTES = 10
KINDS = {"small": ({"cpu": 1000, "memory": 5 * 10**8}, 10.0), "large": ({"cpu": 2000, "memory": 2 * 10**9}, 30.0)}
"""Demand of a task, and its duration in seconds."""


@dataclass(frozen=True)
class Setting:
    """Capacity of a machine, users of each kind, tasks per job, and numbers of slots to try."""

    node: str
    users: int
    tasks: dict[str, int]
    slots: range


PAPER = Setting("cpu=8,memory=6G", 4, {"small": 80, "large": 80}, range(3, 7))
OTHERS = Setting("cpu=4,memory=15G", 2, {"small": 20, "large": 60}, range(2, 9))


def workload(setting: Setting) -> Workload:
    """Return enough jobs for ten minutes; those that wait a second later are held from then on."""
    jobs = Jobs()
    for kind, (demand, seconds) in KINDS.items():
        for user in range(setting.users):
            for _ in range(400 if kind == "small" else 60):
                jobs.add(0.0, f"{kind}-{user}", demand, seconds, setting.tasks[kind])
    found = jobs.workload("small and large jobs", synthetic_nodes(48, setting.node), [])
    return replace(found, changes=[JobHeld(at=60.0 * MINUTES + 1, id=number) for number in range(1, len(jobs) + 1)])


def measure(setting: Setting, policy: str) -> dict[str, Any]:
    """Return, by kind, the jobs that ended in time, and the mean seconds from a job's first start to its end."""
    found = simulate(workload(setting), policy, history=0.0, samples=10)
    names = np.array(found.workload.queue)
    whole = (found.ended <= 60 * MINUTES) & ~np.isnan(found.begun)
    answer: dict[str, Any] = {"policy": policy}
    for kind in KINDS:
        mine = whole & np.char.startswith(names, kind)
        answer[kind] = int(mine.sum())
        answer[f"{kind} response"] = float((found.ended - found.begun)[mine].mean()) if mine.any() else float("nan")
    return answer


def compare(setting: Setting) -> list[dict[str, Any]]:
    """Measure DRF, CPUs alone, and each number of slots."""
    return [measure(setting, policy) for policy in ("drf", "maxmin:cpu", *(f"slots:{k}:overcommit" for k in setting.slots))]


def draw(rows: list[dict[str, Any]]) -> str:
    """Draw jobs finished and response times, a bar per policy."""
    names = Axis(names=["DRF", "CPUs alone", *(f"{row['policy'].split(':')[1]} slots" for row in rows[2:])])
    places = range(len(rows))
    return picture([
        Chart(title, [Series(f"{kind} jobs", places, [row[kind + key] for row in rows], "bar") for kind in KINDS], names, axis)
        for title, key, axis in (("Jobs finished", "", Axis()), ("Response", " response", Axis(form=span)))
    ])  # fmt: skip


def main() -> None:
    for title, setting in (("as in the paper", PAPER), ("on other machines", OTHERS)):
        rows = compare(setting)
        print(f"{title}: 48 of {setting.node}")
        print("policy               small finished   response  large finished   response")
        for row in rows:
            cells = [f"{row[kind]:14} {row[kind + ' response']:8.1f} s" for kind in KINDS]
            print(f"{row['policy']:20} {'  '.join(cells)}")
        print()
        if len(sys.argv) > 1 and setting is PAPER:
            Path(sys.argv[1]).write_text(draw(rows))


if __name__ == "__main__":
    main()
