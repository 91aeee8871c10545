"""Traces of other systems, and tables: read by columns as they are read row by row."""

import csv
import math
import re
from pathlib import Path

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
    "cpu": ["lots", "-1", "1_0", "1e-9"],
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
        row.format(1, 0, 50, 60, 1) + row.format(2, 1, 50, -1, 1) + row.format(3, 2, 50, 20, 1) + row.format(4, 3, -1, 9, 5)
    )
    assert read_trace(path).time_limit.tolist() == [60, math.inf, 50]


SHARE = Path(__file__).parent.parent / "share" / "fairlead" / "columns"
EXCERPTS = Path(__file__).parent / "data" / "traces"
SACCT = (EXCERPTS / "jobs.sacct").read_bytes()
GiB = 2**30


def jobs_at(workload):
    """Return submission, queue, number of tasks, demand and duration of each job."""
    return [
        (job[0], job[1], int(workload.tasks[j]), job[2], job[4][0]) for j, job in enumerate(jobs_of(workload))
    ]  # fmt: skip


def test_googles_events_become_jobs():
    found = read_trace(EXCERPTS / "task_events.csv", columns=SHARE / "google.toml")
    first, second = "70s3v5qRyCO_1PCdI6fVXnrW8FU_w+5CKRSa72xgcIo_", "_+bBzuD4hVDnWdyRdRGIsHPe6mMoRQLz7B5xMGvI0Jbg_"
    assert jobs_at(found) == [
        (0.0, first, 1, {"cpu": 4000, "memory": round(0.01587 * 256 * GiB)}, 60.0),
        (10.0, second, 1, {"cpu": 1200, "memory": round(0.07959 * 256 * GiB)}, 100.5),
    ], "the last start and end of a task that was evicted; one that never ends is left out"
    assert found.priority.tolist() == [9, 2]
    assert "left out 1 of its rows" in found.notes[-1]


def test_a_broken_line_among_events_is_named(tmp_path):
    path = tmp_path / "e.csv"
    path.write_text((EXCERPTS / "task_events.csv").read_text() + "1," * 20 + "\n")
    with pytest.raises(TraceError, match=r"e\.csv:12: has more cells than"):
        read_trace(path, columns=SHARE / "google.toml")
    found = read_trace(path, skip_bad=True, columns=SHARE / "google.toml")
    assert (len(found.submit), found.skipped) == (2, 1)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.csv.gz", b"\x1f\x8b\x08\x00", "cannot be unpacked"),
        ("t.csv.gz", b"none", "cannot be read: Not a gzipped file"),
        ("t.json", b"[" * 100_000, "not JSON"),
        ("t.json", b'{"apps": null}', "has no list of objects at apps.app"),
        ("t.json", b'{"apps": {"app": [{"startedTime": {}, "finishedTime": "x"}]}}', "finishedTime: write a number, not 'x'"),
        ("t.sacct", b"JobID|User\n1|a\n", "has no field JobName: make it with sacct -a -X -P -o JobID,"),
        ("t.sacct", SACCT.replace(b"|00:12:05", b"|soon"), "t.sacct:4: Elapsed: write days-hours"),
        ("t.sacct", SACCT.replace(b"mem=500G", b"mem=x"), "t.sacct:2: ReqTRES: 'mem=x' is no amount"),
        ("t.sacct", b"", "contains no jobs"),
        ("t.csv", b"submit,duration,cpu\n0,1,\xff\n", "not UTF-8 text"),
        ("t.csv", b"submit,duration,cpu\n0,1,1\n0,1,\"1\n", "t.csv:3: not CSV: a quote is not closed"),
        ("t.csv", b"submit,duration,cpu\n0,1,1\n\n0,1,\"1\n" + b"0,1,1\n" * 40_000, "t.csv:4: not CSV: a quote is not closed"),
        ("t.csv", b"submit,\"duration,cpu\n0,1,1\n", "t.csv:1: not CSV: a quote is not closed"),
    ],
)  # fmt: skip
def test_a_broken_file_is_one_line(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TraceError, match=re.escape(said)) as error:
        read_trace(tmp_path / name)
    assert "\n" not in str(error.value)


def test_alibabas_batch_tasks():
    found = read_trace(EXCERPTS / "batch_task.csv", columns=SHARE / "alibaba.toml")
    assert [job[:3] + job[4:] for job in jobs_at(found)] == [(0.0, "1", 1, 7.0), (8.0, "1", 3, 16.0)]
    assert [found.demands[k]["cpu"] for k in found.shape] == [500, 1000]
    assert found.demands[found.shape[0]]["memory"] == pytest.approx(0.002 * 384 * GiB)


def test_azures_machines():
    found = read_trace(EXCERPTS / "vmtable.csv", columns=SHARE / "azure.toml")
    assert [job[0] for job in jobs_at(found)] == [0.0, 300.0]
    assert [job[3] for job in jobs_at(found)] == [{"cpu": 4000, "memory": 32 * GiB}, {"cpu": 32000, "memory": 112 * GiB}]
    assert found.queue[1] == "BSXOcywx8pUU0DueDo6UMol1YzR6tn47KLEKaoXp0a1bf2PpzJ7n7lLlmhQ0OJf9"


def test_phillys_jobs():
    found = read_trace(EXCERPTS / "cluster_job_log", columns=SHARE / "philly.toml")
    assert jobs_at(found) == [(0.0, "ee9e8c", 16, {"gpu": 1000}, 193182.0), (21.0, "6214e9", 1, {"gpu": 1000}, 600.0)]
    assert found.gang.tolist() == [True, True]
    assert [found.templates[k].user for k in found.like] == ["ce2f4c", "b2ab8f"]


def test_slurms_accounting():
    found = read_trace(EXCERPTS / "jobs.sacct")
    assert jobs_at(found) == [
        (0.0, "physics/ann", 2, {"cpu": 32000, "gpu": 4000, "memory": 250 * GiB}, 86410.0),
        (30.0, "bio/bob", 1, {"cpu": 1000, "memory": 4000 * 2**20}, 725.0),
    ]
    assert found.gang.tolist() == [True, False]
    assert found.time_limit.tolist() == [2 * 86400, math.inf]
    assert [found.templates[k].name for k in found.like] == ["train", "eval"]
    assert "left out 3 of its rows" in found.notes[-1]


def test_yarns_applications():
    found = read_trace(EXCERPTS / "apps.json", "yarn")
    assert jobs_at(found) == [
        (0.0, "default", 1, {"cpu": 1000, "memory": round(10240 / 3 * 2**20)}, 3.0),
        (10.0, "research/vision", 4, {"cpu": 1000, "memory": 2 * GiB}, 100.0),
    ]


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        ("nonsense", "--columns {}: "),
        ("[columns]\nsubmit = {}\n", "--columns {}: columns.submit: write column, or start and end"),
        ('[columns]\ncpu = { column = "c", unit = "x" }\n', "--columns {}: columns.cpu: unit: cpu: 'x' is not a quantity"),
        ('[columns]\nsubmit = { column = "c", unit = "d" }\n', "--columns {}: columns.submit: unit 'd' is unknown: use"),
        ('[columns]\nsubmit = { colum = "c" }\n', "--columns {}: Object contains unknown field `colum`"),
        ('[columns]\nsubmit = "at"\n', "{trace}: has no column 'at', which --columns uses: it has a, b, c"),
        ('[columns]\nsubmit = "a"\nduration = "b"\n', "{trace}:1: there is no resource"),
        ('[columns]\nsubmit = "a"\nduration = "b"\ncpu = { column = "c", unit = "2" }\n', "{trace}:3: cpu: write a number"),
        ('[columns]\nsubmit = "c"\nduration = "b"\ncpu = 1\n', "{trace}:3: c: write a number, or a date and time, not 'x'"),
    ],
)  # fmt: skip
def test_a_wrong_mapping_is_refused(tmp_path, mapping, said):
    columns, trace = tmp_path / "m.toml", tmp_path / "t.csv"
    columns.write_text(mapping)
    trace.write_text("a,b,c\n1,2,3\n2,3,x\n")
    with pytest.raises(TraceError) as error:
        read_trace(trace, columns=columns)
    assert str(error.value).startswith(said.replace("{trace}", str(trace)).replace("{}", str(columns)))
    assert "\n" not in str(error.value)


def test_a_mapping_ignores_other_columns_and_reads_parquet_and_gzip(tmp_path):
    import gzip

    import pyarrow as pa
    from pyarrow import parquet

    (tmp_path / "m.toml").write_text(
        '[columns]\nsubmit = "at"\nduration = { column = "ms", unit = "ms" }\ncpu = { column = "cores", unit = "500m" }\n'
    )
    columns = {"walltime": [9, 9], "at": ["2024-01-01T00:00:05Z", "2024-01-01 00:00:00"], "ms": [1500, 3], "cores": [3, 1]}
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    text = "\n".join(",".join(map(str, row)) for row in [columns, *zip(*columns.values(), strict=True)])
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("t.parquet", "t.csv.gz"):
        found = read_trace(tmp_path / name, columns=tmp_path / "m.toml")
        assert jobs_at(found) == [(0.0, "default", 1, {"cpu": 500}, 0.003), (5.0, "default", 1, {"cpu": 1500}, 1.5)]
    with pytest.raises(TraceError, match=r"t\.csv\.gz is swf: leave it out, or add --format table"):
        read_trace(tmp_path / "t.csv.gz", "swf", columns=tmp_path / "m.toml")
