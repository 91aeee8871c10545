"""The Facebook months: section 6.3 and Figures 8 and 9 of the DRF paper, on the published day of the same months.

FB-2010 (24 hours sampled from October and November 2010) on 400 machines of 16 cores and 32 GB with 12 slots each, as in the
paper, and on 400 of 12 CPUs and 48 GB; under DRF and under slots. The paper used Facebook's own tasks and demands. The published
trace has bytes only, so both are derived (see `fairlead.simulate.traces.Derivation`), and the numbers differ from the paper's.

    python examples/facebook_months.py [DATA_FOLDER] [figure.svg]
"""

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from fairlead.charts import Axis, Chart, Series, percent, picture, span
from fairlead.simulate.measure import summary
from fairlead.simulate.report import runs_text
from fairlead.simulate.run import Run, simulate
from fairlead.simulate.traces import read_trace
from fairlead.simulate.workload import cut, synthetic_nodes

POLICIES = ("drf", "slots:12:overcommit")
PAPER, OTHERS = "cpu=16,memory=32GiB", "cpu=12,memory=48GiB"
WIDTH, MOST = 500, 6
"""The paper's bins: their width in tasks of a job, and the index of the last, which has all larger jobs."""


def data_folder() -> Path:
    """Return the folder of the traces: `$FAIRLEAD_DATA`, or `../shared/data`."""
    return Path(os.environ.get("FAIRLEAD_DATA", Path(__file__).parents[2] / "shared" / "data"))


def run(data: Path, node: str = PAPER, nodes: int = 400, hours: float = 24.0) -> list[Run]:
    """Simulate the day, or its first hours, under both policies."""
    trace = read_trace(data / "facebook" / "FB-2010_samples_24_times_1hr_0.tsv")
    workload = replace(cut(trace, end=3600 * hours), nodes=synthetic_nodes(nodes, node))
    return [simulate(workload, policy, history=0.0) for policy in POLICIES]


def shorter(runs: list[Run]) -> dict[str, float]:
    """Return the relative reduction of mean completion under DRF against slots, by bin."""
    drf, slots = (_completion(found) for found in runs)
    return {name: 1 - drf[name] / slots[name] for name in drf if name in slots}


def _completion(found: Run) -> dict[str, float]:
    """Return the mean completion of each bin, in seconds."""
    over, which = ~np.isnan(found.ended), np.minimum((found.workload.tasks - 1) // WIDTH, MOST)
    names = [f"{k * WIDTH + 1}-{(k + 1) * WIDTH}" for k in range(MOST)] + [f"over {MOST * WIDTH}"]
    took = found.ended - found.submitted
    return {name: float(took[over & (which == k)].mean()) for k, name in enumerate(names) if (over & (which == k)).any()}


def draw(runs: list[Run]) -> str:
    """Draw Figure 9, the reduction of completion by size of the job; and CPU and memory used by hour."""
    less = shorter(runs)
    series = Series("shorter", range(len(less)), list(less.values()), "bar")
    title = "Completion shorter under DRF than under slots, by tasks of the job"
    charts = [Chart(title, [series], Axis(names=list(less)), Axis(form=percent))]
    for column, resource in enumerate(("CPU", "memory")):
        used = []
        for found in runs:
            hour = (found.at // 3600).astype(int)
            mean = np.bincount(hour, found.utilisation[:, column]) / np.maximum(1, np.bincount(hour))
            used.append(Series(found.policy, 3600 * np.arange(len(mean)), mean, holds=True))
        charts.append(Chart(f"{resource} used", used, Axis(form=span), Axis(form=percent), plot=140))
    return picture(charts)


def main() -> None:
    data = Path(sys.argv[1]) if len(sys.argv) > 1 else data_folder()
    for title, node in (("as in the paper", PAPER), ("on other machines", OTHERS)):
        runs = run(data, node)
        print(f"{title}: 400 of {node}\n{runs_text([summary(found) for found in runs], 120)}\n")
        print("completion shorter under DRF, by tasks of the job")
        print(*(f"{name:12} {less:6.1%}" for name, less in shorter(runs).items()), "", sep="\n")
        if len(sys.argv) > 2 and node == PAPER:
            Path(sys.argv[2]).write_text(draw(runs))


if __name__ == "__main__":
    main()
