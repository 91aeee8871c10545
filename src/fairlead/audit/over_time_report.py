"""The audit over time to read: a table with what is wrong below it, and a page with pictures of what each was due and got."""

import html
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from fairlead.audit.over_time import WRONGED
from fairlead.html_page import COLOURS, framed
from fairlead.model.quantity import BYTE_RESOURCES
from fairlead.plain_text import listed
from fairlead.text_tables import folded, in_lines, printed, with_names_cut

MOST_SHOWN = 40
"""Queues in the table; the others are counted."""
MOST_REASONS = 3
LEAST = 0.005
"""Of what a queue was entitled to: less is not worth a word."""


class _Scale(NamedTuple):
    """Resource-seconds or resource-hours, whichever the time is long enough for."""

    word: str
    per_hour: float

    def said(self, resource: str | None, amount: float) -> str:
        """Base units x hours of a resource, for reading."""
        return f"{amount * self.per_hour / (2**30 if resource in BYTE_RESOURCES else 1000):.3g}"


def _scale(found: Mapping[str, Any]) -> _Scale:
    return _Scale("hours", 1.0) if found["until"] - found["since"] >= 7200 else _Scale("seconds", 3600.0)


def over_time_text(found: Mapping[str, Any], width: int = 100, most: int | None = MOST_SHOWN) -> str:
    """What an audit over time found, as text; `found` is an :class:`fairlead.model.api_types.OverTimeInfo`.

    So many queues are told of, and findings; None: all.
    """
    lines = [_period(found)]
    if not found["complete"]:
        lines.append(f"of the {span(found['asked'])} that were asked for: the facts before that are not kept any more")
    lines.append(_looks(found))
    if not found["queues"]:
        return "\n".join([*lines, "nobody had work"])
    names = ("queue", "of", ">entitled", ">got", ">short", "at times short through")
    rows = [
        (queue["name"], _unit(queue["resource"]), *_cells(queue, _scale(found))) for queue in found["queues"][:most]
    ]
    columns = with_names_cut(dict(zip(names, zip(*rows, strict=True), strict=True)), width, names[-1:])
    table = folded(columns, width, wraps=names[-1:])
    more = len(found["queues"][most:]) if most is not None else 0
    lines += ["", printed(*table, width=width), *([f"and {more:,} more"] if more > 0 else [])]
    told = [in_lines(each, width) for each in (*_promises(found), *verdict(found, most))]
    return "\n".join([*lines, "", *told])


def _cells(queue: Mapping[str, Any], scale: _Scale) -> list[str]:
    """What a queue was entitled to, got and is short of, and through what, for a table."""
    amounts = [scale.said(queue["resource"], queue[what]) for what in ("entitled", "got")]
    part = queue["short"] / queue["entitled"] if queue["entitled"] else 0.0
    short = f"{scale.said(queue['resource'], queue['short'])} ({part:.0%})" if part > LEAST else ""
    least = LEAST * queue["entitled"]
    through = [f"{name} {scale.said(queue['resource'], x)}" for name, x in queue["through"].items() if x > least]
    return [*amounts, short, ", ".join(through[:MOST_REASONS])]


def _promises(found: Mapping[str, Any]) -> list[str]:
    """What lay idle because it was kept for somebody, and for whom most; nothing where nothing was kept."""
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
    """One of them, in words."""
    idled = listed([f"{scale.said(r, amount)} {_unit(r)}-{scale.word}" for r, amount in each["idled"].items()])
    off = f", put off {each['slips']} time{'s' * (each['slips'] > 1)}" if each["slips"] else ""
    how = {True: "then it started", False: "then it was dropped", None: "it is kept still"}[each["used"]]
    lasted = f"from {moment(each['made'])}" + (
        "" if each["until"] is None else f" for {span(each['until'] - each['made'])}"
    )
    return f"– for job {each['job']} of {each['queue']} {idled}, {lasted}{off}; {how}"


def verdict(found: Mapping[str, Any], most: int | None = None) -> list[str]:
    """What is wrong, in sentences, of who was wronged or starved so many; the last says whether it was fair."""
    lines, scale = [], _scale(found)
    for queue in found["queues"]:
        if queue["status"] == "wronged":
            amounts = [scale.said(queue["resource"], queue[what]) for what in ("short", "got", "entitled")]
            through = [name for name, x in queue["through"].items() if x > WRONGED * sum(queue["through"].values())]
            unit = f"{_unit(queue['resource'])}-{scale.word}"
            lines.append(
                f"✗ {queue['name']} was wronged by {amounts[0]} {unit}: {amounts[1]} of {amounts[2]}, through {listed(through)}"
            )
    for each in found["starved"]:
        lines.append(
            f"✗ {each['queue']} starved: nothing of it was started for {span(each['seconds'])} from {moment(each['since'])} on, "
            f"while {listed(each['others'])} had no less and {'was' if len(each['others']) == 1 else 'were'} served"
        )
    fair = not lines
    if most is not None and len(lines) > most:
        lines = [*lines[:most], f"✗ and {len(lines) - most:,} more such; --all shows them"]
    revoked = found["revocations"]
    lines += [f"✗ at {moment(each['at'])}: {each['text']}" for each in revoked["faults"]]
    if fair:
        lines.append(
            f"✓ nobody is short of more than {WRONGED:.0%} of its part and one task of its own, and nobody starved"
        )
    if revoked["claims"] and not revoked["faults"]:
        tasks = listed([f"{count} for {why}" for why, count in sorted(revoked["tasks"].items())])
        lines.append(
            f"✓ what was revoked was needed, enough, and took nobody below what is theirs: tasks, {tasks}; "
            f"{span(revoked['lost'])} of the whole cluster were lost"
        )
    return [*lines, "fair over this time" if found["fair"] else "not fair over this time: see above"]


def _period(found: Mapping[str, Any]) -> str:
    length = span(found["until"] - found["since"])
    return f"{length}, from {moment(found['since'])} to {moment(found['until'])}, in resource-{_scale(found).word}"


def _looks(found: Mapping[str, Any]) -> str:
    if not found["every"]:
        return f"each of {found['looks']:,} moments was looked at"
    often = f"at most one in each {span(found['every'])}"
    return f"{found['looks']:,} looks, {often}; what was used is {found['error']:.1%} off by them"


def moment(at: float) -> str:
    """A time of the scheduler's clock, for reading."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def span(seconds: float) -> str:
    """A time for reading."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def _unit(resource: str | None) -> str:
    return "" if resource is None else f"{resource} GiB" if resource in BYTE_RESOURCES else resource


def over_time_page(found: Mapping[str, Any]) -> str:
    """One self-contained page: the table, and each queue's part and what it got over time. Needs plotly."""
    from plotly.subplots import make_subplots

    series = found["series"]
    parts = [f"<pre>{html.escape(over_time_text(found, 140))}</pre>"]
    drawn = series["queues"]
    if drawn and len(series["at"]) > 1:
        figure = make_subplots(
            rows=len(drawn), shared_xaxes=True, vertical_spacing=0.4 / (len(drawn) + 4),
            subplot_titles=[html.escape(queue["name"]) for queue in drawn],
        )  # fmt: skip
        # Plotly takes times as text; each value holds until the next.
        at = [time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(t)) + f".{int(t % 1 * 1000):03d}" for t in series["at"]]
        for row, queue in enumerate(drawn, 1):
            style = {"row": row, "col": 1, "showlegend": row == 1, "mode": "lines", "line_shape": "hv"}
            figure.add_scatter(
                x=at, y=queue["got"], name="got", legendgroup="got", fill="tozeroy", line_width=0, fillcolor=COLOURS[0], **style
            )  # fmt: skip
            figure.add_scatter(
                x=at, y=queue["entitled"], name="entitled", legendgroup="entitled", line_color=COLOURS[3], **style
            )
        figure.update_yaxes(tickformat=".0%", rangemode="tozero")
        figure.update_layout(template="plotly_white", height=90 + 130 * len(drawn), margin={"t": 40, "b": 40})
        body = figure.to_html(full_html=False, include_plotlyjs=True, config={"displayModeBar": False})
        parts.append(f"<h2>Dominant shares: entitled, and got</h2>{body}")
    return framed("Fairness over time", parts)
