"""Cost and benefit of guarantees: two published traces, with and without preemption.

Every third queue by name has a guarantee of an equal part of everything, enforced after 30 seconds below it. FB-2010 runs on the
machines of `examples/facebook_months.py`; its tasks last seconds, so preemption gains little over waiting. The last 30 days of
openb's pods, which last hours, arrive 1,000 times as fast on an eighth of its machines. All eighths are run, because pods that
need a whole machine make results noisy.

    python examples/guarantees_in_traces.py [DATA_FOLDER] [PART]

PART is the fraction of the traces to run, by default 1.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairlead.model.specs import Queue, Settings
from fairlead.simulate.measure import summary
from fairlead.simulate.report import span
from fairlead.simulate.run import simulate
from fairlead.simulate.traces import read_trace
from fairlead.simulate.workload import Workload, cut, synthetic_nodes
from fairlead.text_tables import new_table, printed

LOOKS = 4000
"""Samples of unmet guarantees: every 20 seconds or so, since preemption starts after 30."""


def data_folder() -> Path:
    """Return the folder of the traces: `$FAIRLEAD_DATA`, or `../shared/data`."""
    return Path(os.environ.get("FAIRLEAD_DATA", Path(__file__).parents[1].parent / "shared" / "data"))


def guaranteed(workload: Workload) -> Workload:
    """Guarantee every third queue an equal part of the cluster."""
    names = sorted(set(workload.queue))
    total = {name: sum(node.capacity.get(name, 0) for node in workload.nodes) for name in workload.resources}
    part = {name: amount // len(names) for name, amount in total.items()}
    return replace(workload, queues=[Queue(name, guarantee={} if k % 3 else part) for k, name in enumerate(names)])


def facebook(data: Path, part: float) -> Workload:
    """Return a day of FB-2010 on 400 machines."""
    trace = read_trace(data / "facebook" / "FB-2010_samples_24_times_1hr_0.tsv")
    return replace(cut(trace, end=86400 * part), nodes=synthetic_nodes(400, "cpu=12,memory=48GiB"))


def openb(data: Path, part: float) -> list[Workload]:
    """Return the last 30 days of openb, 1,000 times as fast, on each eighth of its machines."""
    trace = read_trace(data / "openb")
    days = cut(trace, start=float(trace.submit[-1]) - 30 * 86400 * part, speed=1000.0)
    return [replace(days, name=f"{trace.name}, {k + 1} of 8", nodes=trace.nodes[k::8]) for k in range(8)]


def run(workloads: list[Workload], looks: int = LOOKS) -> list[dict[str, Any]]:
    """Simulate all without and with preemption; return the summaries."""
    found = []
    for workload in map(guaranteed, workloads):
        for revoke in (False, True):
            done = simulate(workload, settings=Settings(revoke=revoke), samples=looks)
            found.append({**summary(done), "workload": workload.name})
    return found


def table(found: list[dict[str, Any]]) -> str:
    """Compare the time below guarantees, lost work, and waits of jobs."""
    rows = new_table("trace", "revoke", ">below guarantee", ">tasks revoked", ">work lost", ">of all work", ">mean wait", ">p95")
    for each in found:
        wait = each["wait"]
        done = max(each["utilisation"].values()) * each["makespan"]
        rows.add_row(
            each["workload"], "on" if each["revokes"] else "off", span(each["below guarantee"]), f"{each['revoked']:,}",
            span(each["lost"]), f"{each['lost'] / done:.2%}", span(wait["mean"]), span(wait["p95"]),
        )  # fmt: skip
    return printed(rows, width=200)


def main() -> None:
    data = Path(sys.argv[1]) if len(sys.argv) > 1 else data_folder()
    part = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    print(table(run([facebook(data, part), *openb(data, part)])))


if __name__ == "__main__":
    main()
