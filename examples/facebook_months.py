"""The Facebook months: the DRF paper's section 6.3 and Figures 8 and 9, redone on the published day of the same months.

FB-2010 (24 hours sampled from October and November 2010) on 400 machines of 12 CPUs and 48 GB, under DRF and under slots. The
paper had tasks and demands of Facebook's own; the published trace has bytes only, so both are derived (see
`fairlead.simulate.traces.Derivation`), and the numbers are not the paper's.

    python examples/facebook_months.py [DATA_FOLDER] [figure.html]
"""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fairlead.simulate.measure import summary
from fairlead.simulate.report import runs_text
from fairlead.simulate.run import Run, simulate
from fairlead.simulate.traces import read_trace
from fairlead.simulate.workload import cut, synthetic_nodes

POLICIES = ("drf", "slots:12:overcommit")


def data_folder() -> Path:
    """Where the traces are: `$FAIRLEAD_DATA`, or `../shared/data`."""
    return Path(os.environ.get("FAIRLEAD_DATA", Path(__file__).parents[2] / "shared" / "data"))


def run(data: Path, nodes: int = 400, hours: float = 24.0) -> list[Run]:
    """Simulate the day, or its first hours, under both policies."""
    trace = read_trace(data / "facebook" / "FB-2010_samples_24_times_1hr_0.tsv")
    workload = replace(cut(trace, end=3600 * hours), nodes=synthetic_nodes(nodes, "cpu=12,memory=48GiB"))
    return [simulate(workload, policy, history=0.0) for policy in POLICIES]


def draw(runs: list[Run]) -> Any:
    """Figure 9: by how much completion is shorter under DRF, by the size of the job; and CPU and memory used, hour by hour."""
    from plotly.subplots import make_subplots

    drf, slots = (summary(found)["by size"] for found in runs)
    sizes = [name for name in drf if name in slots]
    less = [1 - drf[name]["mean completion"] / slots[name]["mean completion"] for name in sizes]
    titles = ("completion shorter under DRF than under slots, by tasks of the job", "CPU used", "memory used")
    specs: list[list[Any]] = [[{"colspan": 2}, None], [{}, {}]]
    figure = make_subplots(rows=2, cols=2, specs=specs, subplot_titles=titles)
    figure.add_bar(x=sizes, y=less, marker_color="#3b6ea8", showlegend=False, row=1, col=1)
    for found, colour in zip(runs, ("#3b6ea8", "#d98a2b"), strict=True):
        hour = (found.at // 3600).astype(int)
        for column in (1, 2):
            mean = np.bincount(hour, found.utilisation[:, column - 1]) / np.maximum(1, np.bincount(hour))
            style = {"line_color": colour, "line_shape": "hvh", "showlegend": column == 1}
            figure.add_scatter(x=np.arange(len(mean)), y=mean, name=found.policy, **style, row=2, col=column)
    figure.update_yaxes(tickformat=".0%")
    figure.update_xaxes(title="hours", row=2)
    figure.update_layout(template="plotly_white", height=560, width=900)
    return figure


def main() -> None:
    runs = run(Path(sys.argv[1]) if len(sys.argv) > 1 else data_folder())
    print(runs_text([summary(found) for found in runs], 120))
    if len(sys.argv) > 2:
        draw(runs).write_html(Path(sys.argv[2]), config={"displayModeBar": False})


if __name__ == "__main__":
    main()
