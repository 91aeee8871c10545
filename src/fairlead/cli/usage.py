"""`fairlead usage`: resource-hours by user or queue, as a table, CSV or JSON."""

import csv
import sys
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


def print_usage(by: str, since: str, as_csv: bool, as_json: bool) -> None:
    """Print the usage that the scheduler reports, summed by user or by queue."""
    if by not in ("user", "queue"):
        raise Failure(f"--by {by!r}: write user or queue")
    if as_csv and as_json:
        raise Failure("--csv and --json exclude each other: give one of them")
    with connect(timeout=REPORT_TIMEOUT_SECONDS) as connection:
        found = connection.get("/v1/usage", seconds=seconds("--since", since))
    if as_json:
        print_json(found)
        return
    sums = added_up(found["usage"], by)
    resources = resources_of(sums)
    if as_csv:
        _write_csv(sums, by, resources)
        return
    begin = moment(found["since"])
    print(f"since {begin}" if found["complete"] else f"since {begin}, where the journal begins")
    show(usage_table(sums, by, resources), "no usage")


def added_up(usage: list[Any], by: str) -> dict[str, Any]:
    """Sum the usage by user or queue, largest CPU usage first."""
    found: dict[str, Any] = {}
    for each in usage:
        found[each[by]] = together(found[each[by]], each) if each[by] in found else each
    return dict(sorted(found.items(), key=lambda pair: (-pair[1]["asked"].get("cpu", 0.0), pair[0])))


def resources_of(sums: dict[str, Any]) -> list[str]:
    """Return the names of the resources that were asked for, CPU and memory first."""
    return sorted({name for row in sums.values() for name in row["asked"]}, key=lambda n: (n != "cpu", n != "memory", n))


def _hours(resource: str, amount: float) -> float:
    """Convert base units times hours to CPU-hours or GiB-hours."""
    return amount / (GIB if resource in BYTE_RESOURCES else 1000)


def _unit(resource: str) -> str:
    return f"{resource} GiB·h" if resource in BYTE_RESOURCES else f"{resource}·h"


def usage_table(sums: dict[str, dict[str, Any]], by: str, resources: list[str]) -> Table:
    """Return a row per user or queue."""
    columns = [f">{_unit(name)}" for name in resources]
    table = plain_table(by, ">tasks", ">failed", *columns, ">cpu·h used", ">lost", ">peak", ">waiting")
    for name, row in sums.items():
        asked, lost = (row[kind].get("cpu", 0.0) for kind in ("asked", "lost"))
        table.add_row(
            name or "(others)",
            str(row["tasks"]),
            str(row["failed"]),
            *(f"{_hours(each, row['asked'].get(each, 0.0)):.2f}" for each in resources),
            f"{row['cpu_hours']:.2f}",
            f"{lost / asked:.0%}" if asked else "",
            round_quantity("memory", row["peak_memory"]) if row["peak_memory"] else "",
            str(row.get("waiting") or ""),  # a scheduler of an older version reports none
        )
    return table


def _write_csv(sums: dict[str, dict[str, Any]], by: str, resources: list[str]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    hours = [f"{kind}_{name}_hours" for kind in ("asked", "lost") for name in resources]
    writer.writerow([by, "tasks", "failed", *hours, "used_cpu_hours", "peak_memory_bytes", "waiting"])
    for name, row in sums.items():
        amounts = [round(_hours(each, row[kind].get(each, 0.0)), 6) for kind in ("asked", "lost") for each in resources]
        rest = row["cpu_hours"], row["peak_memory"] or 0, row.get("waiting", 0)
        writer.writerow([name, row["tasks"], row["failed"], *amounts, *rest])
