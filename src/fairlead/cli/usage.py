"""`fairlead usage`: resource-hours by user, queue, job, day or week, as a table, CSV or JSON."""

import csv
import sys
import time
from datetime import date
from typing import Any

from rich.table import Table

from fairlead.cli import job_options
from fairlead.cli.over_time import REPORT_TIMEOUT_SECONDS
from fairlead.cli.scheduler import connect, print_json
from fairlead.cli.tables import WITHOUT_TERMINAL, show
from fairlead.cli.terminal import width
from fairlead.failure import WrongUsage
from fairlead.model.quantity import BYTE_RESOURCES, round_quantity
from fairlead.model.used import together
from fairlead.plain_text import moment
from fairlead.text_tables import GAP, needed_width, new_table, with_names_cut

GIB = 2**30
KEYS = ("user", "queue", "job", "day", "week")


def print_usage(by: str, since: str, until: str | None, as_csv: bool, as_json: bool) -> None:
    """Print the usage that the scheduler reports, summed by one or more of `KEYS`."""
    keys = by.split(",")
    if not {*keys} <= {*KEYS}:
        raise WrongUsage(f"--by {by!r}: write one or more of {', '.join(KEYS)}, such as queue or day,user")
    if as_csv and as_json:
        raise WrongUsage("--csv and --json exclude each other: give one of them")
    end = None if until is None else job_options.moment("--until", until, past=True)
    over = (time.time() if end is None else end) - job_options.moment("--since", since, past=True)
    if over <= 0:
        raise WrongUsage(f"--since {since}: is not before --until {until or 'now'}")
    wanted = {"days": bool({*keys} & {"day", "week"}), "jobs": "job" in keys}
    with connect(timeout=REPORT_TIMEOUT_SECONDS) as connection:
        found = connection.get("/v1/usage", seconds=over, until=end, **{key: str(on).lower() for key, on in wanted.items() if on})
    if as_json:
        print_json(found)
        return
    sums = added_up(found["usage"], keys)
    resources = resources_of(sums)
    if as_csv:
        _write_csv(sums, keys, resources)
        return
    begin = f"since {moment(found['since'])}" + (f" until {moment(found['until'])}" if until else "")
    print(begin if found["complete"] else f"{begin}, where the journal begins")
    hours = (found["until"] - found["since"]) / 3600 if keys == ["queue"] else None
    show(usage_table(sums, keys, resources, width(WITHOUT_TERMINAL), hours), "no usage")


def added_up(usage: list[Any], keys: list[str]) -> dict[tuple[str, ...], Any]:
    """Sum the usage by some of `KEYS`: periods in order, then the largest CPU usage first."""
    found: dict[tuple[str, ...], Any] = {}
    for each in usage:
        if each["user"] or each["tasks"] or each["asked"] or keys == ["queue"]:  # not what queues were entitled to
            key = tuple(_value(each, name) for name in keys)
            found[key] = together(found[key], each) if key in found else each
    periods = [place for place, name in enumerate(keys) if name in ("day", "week")]
    return dict(
        sorted(found.items(), key=lambda pair: ([pair[0][k] for k in periods], -pair[1]["asked"].get("cpu", 0.0), pair[0]))
    )


def _value(row: dict[str, Any], key: str) -> str:
    if key != "week":
        return str(row[key] if row[key] is not None else "")
    year, week, _ = date.fromisoformat(row["day"]).isocalendar()
    return f"{year}-W{week:02}"


def resources_of(sums: dict[tuple[str, ...], Any]) -> list[str]:
    """Return the names of the resources that were asked for, CPU and memory first."""
    return sorted({name for row in sums.values() for name in row["asked"]}, key=lambda n: (n != "cpu", n != "memory", n))


def _hours(resource: str, amount: float) -> float:
    """Convert base units times hours to CPU-hours or GiB-hours."""
    return amount / (GIB if resource in BYTE_RESOURCES else 1000)


def usage_table(
    sums: dict[tuple[str, ...], dict[str, Any]], keys: list[str], resources: list[str], width: int, hours: float | None = None
) -> Table:
    """Return a row per key; with the hours of the period also what queues were entitled to and had, in parts of the cluster.

    Columns of `_LEFT_OUT` that do not fit in `width` are dropped, which a line below the table says.
    """
    rows = [*sums.values()]
    columns = {name: [key[k] or "(others)" for key in sums] for k, name in enumerate(keys)}
    columns |= {f">{name}": [str(row[name]) for row in rows] for name in ("tasks", "failed")}
    for name in resources:
        unit = " GiB" * (name in BYTE_RESOURCES)
        columns[f">{name}{unit}·h"] = [f"{_hours(name, row['asked'].get(name, 0.0)):.2f}" for row in rows]
    columns[">cpu·h used"] = [f"{row['cpu_hours']:.2f}" for row in rows]
    asked, lost = ([row[kind].get("cpu", 0.0) for row in rows] for kind in ("asked", "lost"))
    columns[">lost"] = [f"{part / whole:.0%}" if whole else "" for part, whole in zip(lost, asked, strict=True)]
    columns[">peak"] = [round_quantity("memory", row["peak_memory"]) if row["peak_memory"] else "" for row in rows]
    if any(row.get("calls") for row in rows):  # a scheduler of an older version reports none
        columns[">calls"] = [str(row["calls"] or "") for row in rows]
    columns[">waiting"] = [str(row.get("waiting") or "") for row in rows]
    if hours:
        columns |= {
            f">{name}": [f"{row[of] / hours:.1%}" for row in rows] for name, of in (("entitled", "entitled"), ("had", "got"))
        }
    left = []
    for name in _LEFT_OUT:
        if name in columns and sum(needed_width(*column) + GAP for column in columns.items()) - GAP > width:
            left.append(name.removeprefix(">"))
            del columns[name]
    table = new_table(*columns)
    if left:
        table.caption, table.caption_justify = f"left out: {', '.join(left)}; --json has all", "left"
    for cells in zip(*with_names_cut(columns, width).values(), strict=True):
        table.add_row(*cells)
    return table


_LEFT_OUT = (">calls", ">peak", ">waiting", ">failed", ">cpu·h used", ">lost")
"""Columns that are dropped if the table is too wide, in this order."""


def _write_csv(sums: dict[tuple[str, ...], dict[str, Any]], keys: list[str], resources: list[str]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    hours = [f"{kind}_{name}_hours" for kind in ("asked", "lost") for name in resources]
    shares = ["entitled_share_hours", "had_share_hours"] if "user" not in keys and "job" not in keys else []
    used = ["used_cpu_hours", "peak_memory_bytes", "waiting", "calls", "call_hours"]
    writer.writerow([*keys, "tasks", "failed", *hours, *used, *shares])
    for key, row in sums.items():
        amounts = [round(_hours(each, row[kind].get(each, 0.0)), 6) for kind in ("asked", "lost") for each in resources]
        more = [round(row[name], 6) for name in ("entitled", "got")][: len(shares)]
        rest = row["cpu_hours"], row["peak_memory"] or 0, row.get("waiting", 0), row.get("calls", 0), row.get("call_hours", 0.0)
        writer.writerow([*key, row["tasks"], row["failed"], *amounts, *rest, *more])
