"""Traces of other systems, and tables: read by columns as they are read row by row."""

import csv
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.quantity import parse_quantity
from fairlead.simulate.traces import read_trace, rows
from fairlead.simulate.workload import TraceError, cut

GOOD = {
    "submit": ["0", "1", "2.5", "1e3", "7"],
    "duration": ["1", "20", "3.5", "1 2", "4 5 6"],
    "cpu": ["1", "500m", "0.25", "2"],
    "memory": ["", "1GiB", "4096", "0"],
    "queue": ["", "a", "b/c"],
    "user": ["", "ann", "bob"],
    "name": ["", "train"],
    "time_limit": ["", "2", "60"],
    "priority": ["", "-5", "3"],
    "gang": ["", "1", "false"],
    "on": ["", "zone=a", "zone=a|b model=x"],
}
BAD = {
    "submit": ["", "x", "-1", "nan", "1_0", "\uff11", "1e12"],
    "duration": ["", "-1", "1 x", "1e10"],
    "cpu": ["lots", "0", "-1", "1_0", "1e-9"],
    "memory": ["x"],
    "queue": ["a b", "*", "a//b"],
    "time_limit": ["x", "-1", "inf"],
    "priority": ["1.5", "x"],
    "gang": ["maybe"],
    "on": ["zone", "=a"],
}


@st.composite
def tables(draw):
    names = ["submit", "duration", "cpu", *draw(st.sets(st.sampled_from([*GOOD][3:])))]
    cells = [draw(st.lists(st.sampled_from(GOOD[name]), min_size=8, max_size=8)) for name in names]
    wrong = draw(st.dictionaries(st.integers(0, 7), st.sampled_from(names), max_size=4))
    for row, name in wrong.items():
        if name in BAD:
            cells[names.index(name)][row] = draw(st.sampled_from(BAD[name]))
    return names, [*map(list, zip(*cells, strict=True))], {row for row, name in wrong.items() if name in BAD}


def row_by_row(names, table):
    """Return the jobs of good rows, as a person reads them."""
    found = []
    for cells in table:
        row = dict(zip(names, cells, strict=True))
        durations = [float(each) for each in row["duration"].split()]
        demand = {name: parse_quantity(name, row[name]) for name in ("cpu", "memory") if row.get(name)}
        places = {each.split("=")[0]: each.split("=")[1].split("|") for each in row.get("on", "").split()}
        limit = float(row["time_limit"]) if row.get("time_limit") else math.inf
        queue = row.get("queue", row.get("user", "")) or "default"
        found.append(
            (
                float(row["submit"]), queue, {name: amount for name, amount in demand.items() if amount}, places, durations,
                max(limit, *durations), int(row.get("priority") or 0), row.get("gang") == "1",
                row.get("user", ""), row.get("name", ""),
            )
        )  # fmt: skip
    return sorted(found, key=lambda job: job[0])


def jobs_of(workload):
    ends = [*workload.first[1:].tolist(), len(workload.duration)]
    return [
        (
            workload.submit[j], workload.queue[j], workload.demands[workload.shape[j]], workload.places[workload.shape[j]],
            workload.duration[workload.first[j] : ends[j]].tolist(), workload.time_limit[j], workload.priority[j],
            bool(workload.gang[j]), workload.templates[workload.like[j]].user, workload.templates[workload.like[j]].name,
        )
        for j in range(len(workload.submit))
    ]  # fmt: skip


@given(tables(), st.integers(1, 9))
def test_tables_by_columns_are_read_as_row_by_row(tmp_path_factory, table, chunk):
    names, cells, wrong = table
    path = tmp_path_factory.mktemp("t") / "t.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *cells])
    good = [row for number, row in enumerate(cells) if number not in wrong]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "CHUNK", chunk)
        if wrong:
            with pytest.raises(TraceError, match=rf"t\.csv:{min(wrong) + 2}: "):
                read_trace(path)
        if good:
            found = read_trace(path, skip_bad=True)
            assert jobs_of(found) == row_by_row(names, good)
            assert found.skipped == len(wrong)
            half = cut(found, start=1.0)
            assert jobs_of(half) == [(job[0] - 1.0, *job[1:]) for job in row_by_row(names, good) if job[0] >= 1.0]
            assert half.leaves == [*dict.fromkeys(half.queue)]


@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_a_fault_names_its_line_though_cells_have_several_and_lines_are_empty(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(rows, "CHUNK", chunk)
    path = tmp_path / "t.csv"
    path.write_text('submit,duration,cpu,on\n\n0,1,1,"a=b\nc=d"\n\n\n1,1,1,\n2,one,1,\n')
    with pytest.raises(TraceError, match=re.escape("t.csv:8: duration: write a number, not 'one'")):
        read_trace(path)
    assert read_trace(path, skip_bad=True).places == [{"a": ["b"], "c": ["d"]}, {}]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("submit,duration,cpu,walltime", "walltime: is not a resource: rename it time_limit (the most that a task may run) or"),
        ("submit,duration,cpu,Partition", "Partition: is not a resource: rename it queue if it is that, leave it out, or"),
        ("submit,duration,cpu,status", "status: is not a resource: leave it out, or list the columns to use in a file"),
        ("submit,duration,cpu,id", "id: is not a resource: rename it job if it is that"),
        ("submit,duration,cpu,n_gpus", "n_gpus: is not a resource: rename it gpu"),
        (",submit,duration,cpu", "a column without a name: is not a resource: leave it out"),
        ("submit_time,runtime,cpus", "submit_time: is not a resource: rename it submit if it is that"),
        ("a,b,c,d", "has no column of a table, such as submit and duration, but a, b, c, d: rename its columns, or"),
        ("submit,duration,priority,queue", "there is no resource: add a column such as cpu or memory"),
        ("duration,cpu,memory,queue", "there is no column 'submit': add it"),
        ("submit|duration|cpu|x", "has bars between its cells: sacct -P writes so: use --format sacct"),
    ],
)  # fmt: skip
def test_columns_known_elsewhere_are_no_resources(tmp_path, names, said):
    path = tmp_path / "t.csv"
    path.write_text(f"{names}\n1,2,3,4\n")
    with pytest.raises(TraceError) as error:
        read_trace(path)
    assert str(error.value).startswith(f"{path}:1: {said}")


def test_time_limits_of_swf_and_what_failed_before_it_ran(tmp_path):
    path = tmp_path / "t.swf"
    row = "{} {} -1 {} 1 -1 -1 1 {} -1 {} 3 -1 -1 -1 -1 -1 -1\n"
    path.write_text(
        row.format(1, 0, 50, 60, 1)
        + row.format(2, 1, 50, -1, 1)
        + row.format(3, 2, 50, 20, 1)
        + row.format(4, 3, -1, 9, 5)
    )
    assert read_trace(path).time_limit.tolist() == [60, math.inf, 50]
