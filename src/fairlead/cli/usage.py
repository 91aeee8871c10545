"""`fairlead usage`: resource-hours by user, queue, job, day or week, as a table, CSV or JSON."""

import csv
import sys
import time
from datetime import date, datetime
from typing import Any

from rich.table import Table

from fairlead.cli.failure import Failure
from fairlead.cli.job_options import seconds
from fairlead.cli.over_time import REPORT_TIMEOUT_SECONDS
from fairlead.cli.scheduler import connect, print_json
from fairlead.cli.tables import moment, plain_table, show
from fairlead.model.quantity import BYTE_RESOURCES, round_quantity
from fairlead.model.used import together

GIB = 2**30
KEYS = ("user", "queue", "job", "day", "week")


def print_usage(by: str, since: str, until: str | None, as_csv: bool, as_json: bool) -> None:
    """Print the usage that the scheduler reports, summed by one or more of `KEYS`."""
    keys = by.split(",")
    if not {*keys} <= {*KEYS}:
        raise Failure(f"--by {by!r}: write one or more of {', '.join(KEYS)}, such as queue or day,user")
    if as_csv and as_json:
        raise Failure("--csv and --json exclude each other: give one of them")
    end = None if until is None else _moment("--until", until)
    over = (end or time.time()) - _moment("--since", since)
    if over <= 0:
        raise Failure(f"--since {since}: is not before --until {until or 'now'}")
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
    show(usage_table(sums, keys, resources, hours), "no usage")


def _moment(option: str, text: str) -> float:
    """Read a date such as 2026-11-25 or 2026-11-25T12:00 in local time, or how long ago."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return time.time() - (seconds(option, text) or 0.0)


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


def _unit(resource: str) -> str:
    return f"{resource} GiB·h" if resource in BYTE_RESOURCES else f"{resource}·h"


def usage_table(
    sums: dict[tuple[str, ...], dict[str, Any]], keys: list[str], resources: list[str], hours: float | None = None
) -> Table:
    """Return a row per key; with the hours of the period also what queues were entitled to and had, in parts of the cluster."""
    columns = [*(f">{_unit(name)}" for name in resources), ">cpu·h used", ">lost", ">peak", ">waiting"]
    table = plain_table(*keys, ">tasks", ">failed", *columns, *([">entitled", ">had"] if hours else []))
    for key, row in sums.items():
        asked, lost = (row[kind].get("cpu", 0.0) for kind in ("asked", "lost"))
        table.add_row(
            *(name or "(others)" for name in key),
            str(row["tasks"]),
            str(row["failed"]),
            *(f"{_hours(each, row['asked'].get(each, 0.0)):.2f}" for each in resources),
            f"{row['cpu_hours']:.2f}",
            f"{lost / asked:.0%}" if asked else "",
            round_quantity("memory", row["peak_memory"]) if row["peak_memory"] else "",
            str(row.get("waiting") or ""),  # a scheduler of an older version reports none
            *([f"{row['entitled'] / hours:.1%}", f"{row['got'] / hours:.1%}"] if hours else []),
        )
    return table


def _write_csv(sums: dict[tuple[str, ...], dict[str, Any]], keys: list[str], resources: list[str]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    hours = [f"{kind}_{name}_hours" for kind in ("asked", "lost") for name in resources]
    shares = ["entitled_share_hours", "had_share_hours"] if "user" not in keys and "job" not in keys else []
    writer.writerow([*keys, "tasks", "failed", *hours, "used_cpu_hours", "peak_memory_bytes", "waiting", *shares])
    for key, row in sums.items():
        amounts = [round(_hours(each, row[kind].get(each, 0.0)), 6) for kind in ("asked", "lost") for each in resources]
        more = [round(row[name], 6) for name in ("entitled", "got")][: len(shares)]
        rest = row["cpu_hours"], row["peak_memory"] or 0, row.get("waiting", 0)
        writer.writerow([*key, row["tasks"], row["failed"], *amounts, *rest, *more])
