"""Dynamic sharing: section 6.1 and Figure 4 of the DRF paper in simulation.

48 machines of 4 CPUs and 15 GB. Job 1's tasks need <1 CPU, 10 GB>, and from minute 2 on <2 CPUs, 1 GB>; job 2's need <1 CPU,
1 GB>, and from minute 3 on <1 CPU, 7 GB>. The dominant shares stay equal, up to one task per machine, and exceed one half
wherever the demands complement each other.

Tasks take 10 seconds, which the paper does not report. Tasks that wait at a change are held from then on.

    python examples/dynamic_sharing.py [figure.svg]
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from fairlead.charts import Axis, Chart, Series, percent, picture, span
from fairlead.scheduler.facts import JobHeld
from fairlead.simulate.run import Run, simulate
from fairlead.simulate.workload import Jobs, synthetic_nodes

GB = 10**9
PHASES = (
    ("job 1", {"cpu": 1000, "memory": 10 * GB}, 0, 120),
    ("job 2", {"cpu": 1000, "memory": 1 * GB}, 0, 180),
    ("job 1", {"cpu": 2000, "memory": 1 * GB}, 120, 360),
    ("job 2", {"cpu": 1000, "memory": 7 * GB}, 180, 360),
)
"""Queue, demand of a task, and begin and end of the phase in seconds: in order of both."""
TASK = 10.0
MANY = 20_000


def run() -> Run:
    """Simulate six minutes, with a sample every two seconds."""
    jobs = Jobs()
    for queue, demand, begin, _ in PHASES:
        jobs.add(float(begin), queue.replace(" ", "-"), demand, TASK, MANY)
    workload = jobs.workload("dynamic sharing", synthetic_nodes(48, "cpu=4,memory=15G"), [])
    ends = [JobHeld(at=float(end), id=number) for number, (*_, end) in enumerate(PHASES, 1)]
    return simulate(replace(workload, changes=ends), history=0.0, samples=180)


def settled(found: Run) -> dict[str, np.ndarray]:
    """Return the dominant shares of both jobs in each phase, after the previous phase's tasks have ended."""
    spans = {"0-2 min": (30, 120), "2-3 min": (140, 180), "3-6 min": (200, 350)}
    return {name: found.shares[(found.at >= a) & (found.at < b)] for name, (a, b) in spans.items()}


def draw(found: Run) -> str:
    """Draw Figure 4c: dominant shares over time."""
    series = [Series(name, found.at, found.shares[:, k]) for k, name in enumerate(found.queues)]
    return picture([Chart("Dominant shares", series, Axis(form=span), Axis(form=percent), reach=(0, 1))])


def main() -> None:
    found = run()
    for name, shares in settled(found).items():
        one, two = shares.mean(axis=0)
        print(f"{name}: job 1 {one:.1%}, job 2 {two:.1%}; apart by {np.abs(shares[:, 0] - shares[:, 1]).max():.1%} at most")
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(draw(found))


if __name__ == "__main__":
    main()
