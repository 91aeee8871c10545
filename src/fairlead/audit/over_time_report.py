"""The audit over time for people: a table with the violations below it, and a page with plots of entitlement and use."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fairlead.audit.over_time import WRONGED
from fairlead.charts import Axis, Chart, Series, percent
from fairlead.html_page import WIDE, framed, tabled
from fairlead.model.quantity import BYTE_RESOURCES
from fairlead.plain_text import listed, moment
from fairlead.text_tables import folded, in_lines, printed, with_names_cut

MOST_SHOWN = 40
"""Most queues in the table; the others are counted."""
MOST_REASONS = 3
LEAST = 0.005
"""Least fraction of an entitlement to report."""


class _Scale(NamedTuple):
    """Resource-hours, or resource-seconds for a short period."""

    word: str
    per_hour: float

    def format(self, resource: str | None, amount: float) -> str:
        """Format base units x hours of a resource."""
        value = amount * self.per_hour / (2**30 if resource in BYTE_RESOURCES else 1000)
        return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


def _scale(found: Mapping[str, Any]) -> _Scale:
    return _Scale("hours", 1.0) if found["until"] - found["since"] >= 7200 else _Scale("seconds", 3600.0)


def over_time_text(found: Mapping[str, Any], width: int = 100, most: int | None = MOST_SHOWN) -> str:
    """Format an :class:`fairlead.model.api_types.OverTimeInfo`, with at most `most` queues and findings; None: all."""
    lines, tables, below = _parts(found, width, most)
    if not tables:
        return "\n".join(lines)
    return "\n".join([*lines, "", printed(*tables, width=width), "", *(in_lines(each, width) for each in below)])


def _parts(found: Mapping[str, Any], width: int, most: int | None) -> tuple[list[str], list[Any], list[str]]:
    """Return the lines above the table of queues, the table, in several parts if it is too wide, and the lines below."""
    length, dates = span(found["until"] - found["since"]), f"{moment(found['since'])} to {moment(found['until'])}"
    lines = [f"{length}, from {dates}, in resource-{_scale(found).word}"]
    if not found["complete"]:
        lines.append(f"of the {span(found['asked'])} asked for: earlier facts are no longer kept")
    lines.append(_looks(found))
    if not found["queues"]:
        return [*lines, "no queue had work"], [], []
    names = ("queue", "of", ">entitled", ">got", ">short", "at times short through")
    rows = [(queue["name"], _unit(queue["resource"]), *_cells(queue, _scale(found))) for queue in found["queues"][:most]]
    columns = with_names_cut(dict(zip(names, zip(*rows, strict=True), strict=True)), width, names[-1:])
    table = folded(columns, width, wraps=names[-1:])
    more = len(found["queues"][most:]) if most is not None else 0
    return lines, [*table, *([f"and {more:,} more"] if more > 0 else [])], [*_promises(found), *verdict(found, most)]


def _cells(queue: Mapping[str, Any], scale: _Scale) -> list[str]:
    """Return a queue's cells: entitled, got, short, and the reasons."""
    amounts = [scale.format(queue["resource"], queue[what]) for what in ("entitled", "got")]
    part = queue["short"] / queue["entitled"] if queue["entitled"] else 0.0
    short = f"{scale.format(queue['resource'], queue['short'])} ({part:.0%})" if part > LEAST else ""
    least = LEAST * queue["entitled"]
    through = [f"{name} {scale.format(queue['resource'], x)}" for name, x in queue["through"].items() if x > least]
    return [*amounts, short, ", ".join(through[:MOST_REASONS])]


def _promises(found: Mapping[str, Any]) -> list[str]:
    """Return lines about what reservations idled, with the largest; none without reservations."""
    promises, scale = found["promises"], _scale(found)
    if not promises["count"]:
        return []
    many = promises["count"] > 1
    count = f"{promises['count']:,} reservation{'s' * many}"
    if not promises["share_hours"]:
        return [f"{count}; nothing lay idle for {'them' if many else 'it'}"]
    part = promises["share_hours"] * 3600 / max(1e-9, found["until"] - found["since"])
    lines = [f"{count}; {part:.2%} of the cluster lay idle for {'them' if many else 'it'}"]
    return lines + [_promise(each, scale) for each in found["reservations"][:MOST_REASONS] if each["share_hours"]]


def _promise(each: Mapping[str, Any], scale: _Scale) -> str:
    idled = listed([f"{scale.format(r, amount)} {_unit(r)}-{scale.word}" for r, amount in each["idled"].items()])
    off = f", postponed {each['slips']} time{'s' * (each['slips'] > 1)}" if each["slips"] else ""
    how = {True: "then it started", False: "then it was dropped", None: "it is still kept"}[each["used"]]
    lasted = f"from {moment(each['made'])}" + ("" if each["until"] is None else f" for {span(each['until'] - each['made'])}")
    return f"– for job {each['job']} of {each['queue']} {idled}, {lasted}{off}; {how}"


def verdict(found: Mapping[str, Any], most: int | None = None) -> list[str]:
    """Return the violations as sentences, at most `most` about queues; the last line is the verdict."""
    lines, scale = [], _scale(found)
    for queue in found["queues"]:
        if queue["status"] == "wronged":
            amounts = [scale.format(queue["resource"], queue[what]) for what in ("short", "got", "entitled")]
            through = [name for name, x in queue["through"].items() if x > WRONGED * sum(queue["through"].values())]
            unit = f"{_unit(queue['resource'])}-{scale.word}"
            lines.append(
                f"✗ {queue['name']} was wronged by {amounts[0]} {unit}: {amounts[1]} of {amounts[2]}, through {listed(through)}"
            )
    for each in found["starved"]:
        lines.append(
            f"✗ {each['queue']} starved: none of its tasks started for {span(each['seconds'])} from {moment(each['since'])} on, "
            f"while {listed(each['others'])} had no less and {'was' if len(each['others']) == 1 else 'were'} served"
        )
    fair = not lines
    if most is not None and len(lines) > most:
        lines = [*lines[:most], f"✗ and {len(lines) - most:,} more; --all shows them"]
    revoked = found["revocations"]
    lines += [f"✗ at {moment(each['at'])}: {each['text']}" for each in revoked["faults"]]
    if fair:
        lines.append(f"✓ no queue is short by more than {WRONGED:.0%} of its share and one of its tasks, and none starved")
    if revoked["claims"] and not revoked["faults"]:
        why = ", ".join(f"{count} for {why}" for why, count in sorted(revoked["tasks"].items()))
        count = sum(revoked["tasks"].values())
        lines.append(
            f"✓ all preemptions were needed and sufficient, and left each queue its share; {count} task"
            f"{'s were' if count > 1 else ' was'} preempted ({why}), and {span(revoked['lost'])} of the whole cluster was lost"
        )
    return [*lines, "fair over this time" if found["fair"] else "not fair over this time: see above"]


def _looks(found: Mapping[str, Any]) -> str:
    if not found["every"]:
        return f"every one of {found['looks']:,} moments was sampled"
    often = f"at most one per {span(found['every'])}"
    return f"{found['looks']:,} samples, {often}; the sampled use is {found['error']:.1%} off"


def span(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def _unit(resource: str | None) -> str:
    return "" if resource is None else f"{resource} GiB" if resource in BYTE_RESOURCES else resource


def over_time_page(found: Mapping[str, Any]) -> str:
    """Make one self-contained page: the table, and a chart of each queue's entitlement and use."""
    charts = share_charts(found).values()
    heading = ["<h2>Dominant shares: used, and entitled</h2>"] if charts else []
    lines, tables, below = _parts(found, WIDE, MOST_SHOWN)
    parts = [tabled([*lines, *tables, *below]), *heading, *(chart.figure() for chart in charts)]
    return framed("Fairness over time", parts)


def share_charts(found: Mapping[str, Any]) -> dict[str, Chart]:
    """Draw what queues used beside what they were entitled to, up to the end of the audit; by queue."""
    at = [*found["series"]["at"], found["until"]]
    return {queue["name"]: _share_chart(at, queue) for queue in found["series"]["queues"] if len(at) > 2}


def _share_chart(at: Sequence[float], queue: Mapping[str, Any]) -> Chart:
    used, entitled = ([*queue[what], *queue[what][-1:]] for what in ("got", "entitled"))
    rows = [("", "at the end", "at most")]
    rows += [(name, percent(y[-1]), percent(max(y))) for name, y in (("used", used), ("entitled", entitled))]
    drawn = [Series("used", at, used, "area", holds=True), Series("entitled", at, entitled, holds=True, colour=1)]
    return Chart(f"{queue['name']}: dominant share", drawn, Axis(form=moment), Axis(form=percent), plot=110, rows=rows)
