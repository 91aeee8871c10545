"""DRF against slots: the DRF paper's section 6.2 and Figures 5 to 7, redone in simulation.

48 machines of 4 CPUs and 15 GB, for ten minutes. Two users have small jobs of CPU-light tasks, two have large jobs of CPU-heavy
ones; each always has another job. With slots, every machine is cut into k equal ones and a task takes one, whatever it needs:
few slots leave CPUs unused, many let machines promise more than they have, and all on them slows down. DRF needs no such number.

What the paper does not say is chosen: <1 CPU, 0.5 GB> and 20 tasks of 10 s for a small job, <2 CPUs, 2 GB> and 60 tasks of 30 s
for a large one; a machine whose tasks need f times its CPUs runs them f times as slowly.

    python examples/drf_and_slots.py [figure.html]
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from fairlead.simulate.run import simulate
from fairlead.simulate.workload import Jobs, Workload, synthetic_nodes

MINUTES = 10
KINDS = {
    "small": ({"cpu": 1000, "memory": 5 * 10**8}, 20, 10.0),
    "large": ({"cpu": 2000, "memory": 2 * 10**9}, 60, 30.0),
}
"""Demand of a task, tasks of a job, seconds of a task."""
SLOTS = range(2, 9)


def workload() -> Workload:
    """Jobs without end, for ten minutes: what waits then is withdrawn."""
    jobs = Jobs()
    for kind, (demand, tasks, seconds) in KINDS.items():
        for user in (1, 2):
            for _ in range(400 if kind == "small" else 60):
                jobs.add(0.0, f"{kind}-{user}", demand, seconds, tasks, withdrawn=60.0 * MINUTES)
    return jobs.workload("small and large jobs", synthetic_nodes(48, "cpu=4,memory=15G"), [])


def measure(policy: str) -> dict[str, Any]:
    """Jobs that finished within the time, and the mean seconds from a job's first start to its end, by kind."""
    found = simulate(workload(), policy, history=0.0, samples=10)
    names = np.array(found.workload.queue)
    whole = (found.ended <= 60 * MINUTES) & ~np.isnan(found.begun)
    answer: dict[str, Any] = {"policy": policy}
    for kind in KINDS:
        mine = whole & np.char.startswith(names, kind)
        answer[kind] = int(mine.sum())
        answer[f"{kind} response"] = float((found.ended - found.begun)[mine].mean()) if mine.any() else float("nan")
    return answer


def compare() -> list[dict[str, Any]]:
    """DRF, and slots of every number."""
    return [measure("drf"), *(measure(f"slots:{k}:overcommit") for k in SLOTS)]


def draw(rows: list[dict[str, Any]]) -> Any:
    """Jobs finished and response times, a bar a number of slots."""
    from plotly.subplots import make_subplots

    titles = [f"{kind} jobs{what}" for what in (" finished", ", response in s") for kind in KINDS]
    figure = make_subplots(rows=2, cols=2, subplot_titles=titles)
    names = ["DRF", *(f"{k} slots" for k in SLOTS)]
    for column, kind in enumerate(KINDS, 1):
        colours = ["#d98a2b"] + ["#3b6ea8"] * len(SLOTS)
        for line, key in ((1, kind), (2, f"{kind} response")):
            figure.add_bar(
                x=names, y=[row[key] for row in rows], marker_color=colours, showlegend=False, row=line, col=column
            )
    figure.update_layout(template="plotly_white", height=560, width=900)
    return figure


def main() -> None:
    rows = compare()
    print("policy               small finished   response  large finished   response")
    for row in rows:
        cells = [f"{row[kind]:14} {row[kind + ' response']:8.1f} s" for kind in KINDS]
        print(f"{row['policy']:20} {'  '.join(cells)}")
    if len(sys.argv) > 1:
        draw(rows).write_html(Path(sys.argv[1]), config={"displayModeBar": False})


if __name__ == "__main__":
    main()
