"""Reports of several runs side by side, and of sweeps: as a table, and as a page with figures."""

import html
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fairlead.html_page import COLOURS, framed
from fairlead.simulate.measure import bin_names, bins, summary, unfairness
from fairlead.simulate.run import Run
from fairlead.text_tables import folded, new_table, printed

MOST_QUEUES = 10
"""Queues drawn by name; the rest are drawn together."""


def runs_text(summaries: Sequence[dict[str, Any]], width: int = 100) -> str:
    """Return the numbers of several runs, a column per run, in several tables if one is too wide."""
    lines = _lines(summaries)
    names = [name for name, _ in lines]
    columns = [[run_title(found, summaries), *(get(found) for _, get in lines)] for found in summaries]
    tables: list[list[list[str]]] = []
    room = 0
    for column in columns:
        needs = max(map(len, column)) + 2
        if needs > room:
            tables.append([])
            room = width - max(map(len, names))
        tables[-1].append(column)
        room -= needs
    parts = []
    for table in tables:
        rows = new_table("", *(f">{policy}" for policy, *_ in table))
        for k, name in enumerate(names, 1):
            rows.add_row(name, *(column[k] for column in table))
        parts.append(printed(rows, width=400))
    notes = dict.fromkeys(note for found in summaries for note in found["notes"])
    return "\n\n".join([*parts, *(["\n".join(notes)] if notes else [])])


def run_title(found: dict[str, Any], summaries: Sequence[dict[str, Any]]) -> str:
    """Return a run's title: its policy, whether it preempts if the runs differ in that, and if it makes offers."""
    title = str(found["policy"])
    if len({each["revokes"] for each in summaries}) > 1:
        title += f", revoke {'on' if found['revokes'] else 'off'}"
    return title if found["offers"] is None else f"{title}, offers"


def _lines(summaries: Sequence[dict[str, Any]]) -> list[tuple[str, Any]]:
    """Return the rows of a table of runs: a name, and a function from a summary to text."""

    def spread(what: str, which: str, form: Any) -> Any:
        return lambda found: form(found[what][which]) if found[what] else ""

    lines: list[tuple[str, Any]] = [
        ("jobs ended", lambda f: f"{f['ended']:,} of {f['jobs']:,}"),
        ("tasks", lambda f: f"{f['tasks']:,}"),
        ("makespan", lambda f: span(f["makespan"])),
    ]
    for what, form in (("completion", span), ("wait", span), ("slowdown", lambda x: f"{x:.2f}")):
        lines += [(f"{what}, {which}", spread(what, which, form)) for which in ("mean", "median", "p95", "p99")]
    for name in bin_names():
        if any(name in found["by size"] for found in summaries):
            lines.append(
                (
                    f"completion, {name} task{'' if name == '1' else 's'}",
                    lambda f, n=name: span(f["by size"][n]["mean completion"]) if n in f["by size"] else "",
                )
            )
    for resource in summaries[0]["utilisation"]:
        lines.append((f"{resource} used", lambda f, r=resource: f"{f['utilisation'].get(r, 0):.1%}"))
    lines += [
        ("unfairness", lambda f: f"{f['unfairness']:.2%}"),
        ("short over time", lambda f: f"{f['over time']['short']:.2%}"),
        ("most wronged", _most_wronged),
        *([("parts looked at", _how_often)] if any(found["over time"]["every"] for found in summaries) else []),
        ("idle for promises", lambda f: f"{max(f['idle for promises'].values(), default=0.0):.2%}"),
        ("tasks revoked", lambda f: f"{f['revoked']:,}"),
        ("decisions", lambda f: f"{f['decisions']:,}"),
        ("simulated in", lambda f: span(f["seconds"])),
    ]
    if any(found["offers"] is not None for found in summaries):
        lines += [
            (
                "offered, not answered",
                lambda f: f"{max(f['offered'].values(), default=0.0):.2%}" if f["offers"] is not None else "",
            ),
            *(
                (f"offers {what}", lambda f, w=what: _offers(f, w))
                for what in ("made", "accepted", "declined", "expired")
            ),
        ]
    if any(found["replay"] for found in summaries):
        for which in ("median", "p90"):
            lines.append((f"replay error, {which}", lambda f, w=which: span(f["replay"][w]) if f["replay"] else ""))
    if any(found["revoked"] or found["below guarantee"] for found in summaries):
        lines += [
            ("work lost", lambda f: span(f["lost"])),
            ("below guarantee", lambda f: span(f["below guarantee"])),
        ]
    return lines


def _offers(found: dict[str, Any], what: str) -> str:
    return "" if found["offers"] is None else f"{found['offers'].get(what, 0):,}"


def _most_wronged(found: dict[str, Any]) -> str:
    wronged = [queue for queue in found["over time"]["queues"] if queue["status"] == "wronged"]
    return f"{wronged[0]['name']} {wronged[0]['short'] / wronged[0]['entitled']:.0%}" if wronged else ""


def _how_often(found: dict[str, Any]) -> str:
    """Return how often entitlements were sampled."""
    every = found["over time"]["every"]
    return f"every {span(every)}" if every else "always"


def span(seconds: float) -> str:
    """Format seconds for reading."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    if seconds < 6000:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def page(runs: Sequence[Run], settings: str = "") -> str:
    """Return a self-contained page: numbers, shares over time, completion times, utilisation. Needs plotly.

    `settings` is shown below the machines and the policies.
    """
    summaries = [summary(run) for run in runs]
    longest = max((run.at[-1] for run in runs if len(run.at)), default=0.0)
    unit, seconds = ("hours", 3600.0) if longest > 3 * 3600 else ("minutes", 60.0)
    titles = [run.policy if run.revokes else f"{run.policy}, revoke off" for run in runs]
    completion, by_size = _completion(runs, titles)
    used, unfair = _over_time(runs, titles, unit, seconds)
    figures = [
        (
            "Dominant shares over time, stacked: each is of its own resource, so the sum may exceed 100%",
            _shares(runs, titles, unit, seconds),
            150 * len(runs) + 130,
        ),
        ("Completion times", completion, 360),
        ("Completion by the size of the job", by_size, 360),
        ("Utilisation", used, 190 * len(runs[0].resources) + 80),
        ("Unfairness: how much of the cluster would change hands for all to have their fair shares", unfair, 320),
        ("Short over time, as a fraction of each queue's entitlement; below zero: it got more", _short(summaries), 320),
    ]
    workload = runs[0].workload
    head = [f"machines: {workload.machines}", f"policies: {', '.join(titles)}", *([settings] if settings else [])]
    return _page(workload.name, "\n".join(head) + "\n\n" + runs_text(summaries, 140), figures)


def _shares(runs: Sequence[Run], titles: Sequence[str], unit: str, seconds: float) -> Any:
    """Draw the queues' dominant shares as stacked areas, a subplot per run."""
    from plotly.subplots import make_subplots

    names, groups = _drawn(runs)
    figure = make_subplots(
        rows=len(runs), shared_xaxes=True, shared_yaxes="all", vertical_spacing=0.3 / len(runs), subplot_titles=titles
    )
    for row, run in enumerate(runs, 1):
        for k, (name, members) in enumerate(zip(names, groups, strict=True)):
            figure.add_scatter(
                x=run.at / seconds, y=run.shares[:, members].sum(axis=1), name=name, legendgroup=name,
                showlegend=row == 1, stackgroup="shares", line={"width": 0}, fillcolor=COLOURS[k % len(COLOURS)],
                row=row, col=1,
                hovertemplate=f"{name}: %{{y:.1%}}<extra></extra>",
            )  # fmt: skip
    figure.update_xaxes(title=unit, row=len(runs))
    figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    return figure


def _completion(runs: Sequence[Run], titles: Sequence[str]) -> tuple[Any, Any]:
    """Draw the distribution of completion times, and mean completion by size: as points, since a log axis has no 0."""
    import plotly.graph_objects as go

    completion, by_size = go.Figure(), go.Figure()
    for k, (run, title) in enumerate(zip(runs, titles, strict=True)):
        colour, over = COLOURS[k % len(COLOURS)], ~np.isnan(run.ended)
        times = np.sort((run.ended - run.submitted)[over])
        kept = np.unique(np.linspace(0, max(0, len(times) - 1), min(len(times), 800)).astype(np.int64))
        part = (kept + 1) / max(1, len(times))
        completion.add_scatter(x=times[kept], y=part, name=title, line={"color": colour, "shape": "hv"})
        size = bins(run.workload.tasks)
        which = [b for b in range(len(bin_names())) if (over & (size == b)).any()]
        means = [float((run.ended - run.submitted)[over & (size == b)].mean()) for b in which]
        by_size.add_scatter(
            x=[bin_names()[b] for b in which], y=means, name=title, mode="markers", marker={"color": colour, "size": 11}
        )
    completion.update_xaxes(type="log", title="seconds from submission to the last end")
    completion.update_yaxes(tickformat=".0%", title="of jobs")
    by_size.update_xaxes(title="tasks of a job", type="category", categoryorder="array", categoryarray=bin_names())
    by_size.update_yaxes(title="mean completion, seconds", type="log")
    by_size.update_layout(scattermode="group")
    return completion, by_size


def _over_time(runs: Sequence[Run], titles: Sequence[str], unit: str, seconds: float) -> tuple[Any, Any]:
    """Draw utilisation and unfairness over time."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    resources = runs[0].resources
    used = make_subplots(rows=len(resources), shared_xaxes=True, vertical_spacing=0.06, subplot_titles=resources)
    unfair = go.Figure()
    for k, (run, title) in enumerate(zip(runs, titles, strict=True)):
        style = {"x": run.at / seconds, "name": title, "line": {"color": COLOURS[k % len(COLOURS)], "width": 1.5}}
        for r in range(len(run.resources)):
            used.add_scatter(y=run.utilisation[:, r], legendgroup=title, showlegend=r == 0, row=r + 1, col=1, **style)
        unfair.add_scatter(y=unfairness(run), **style)
    used.update_yaxes(tickformat=".0%", rangemode="tozero")
    used.update_xaxes(title=unit, row=len(resources))
    unfair.update_yaxes(tickformat=".0%", title="in the wrong hands", rangemode="tozero")
    unfair.update_xaxes(title=unit)
    return used, unfair


def _short(summaries: Sequence[dict[str, Any]]) -> Any:
    """Draw a bar per queue and run: its shortfall, for the queues furthest from their entitlement in any run."""
    import plotly.graph_objects as go

    furthest: dict[str, float] = {}
    for found in summaries:
        for queue in found["over time"]["queues"]:
            furthest[queue["name"]] = max(furthest.get(queue["name"], 0.0), abs(queue["short"]))
    names = sorted(sorted(furthest, key=lambda name: -furthest[name])[:MOST_QUEUES])
    figure = go.Figure()
    for k, found in enumerate(summaries):
        short = {q["name"]: q["short"] / q["entitled"] for q in found["over time"]["queues"] if q["entitled"]}
        colour = COLOURS[k % len(COLOURS)]
        figure.add_bar(x=names, y=[short.get(name) for name in names], name=found["policy"], marker_color=colour)
    figure.update_yaxes(tickformat=".0%")
    figure.update_xaxes(type="category")
    return figure


def _page(title: str, before: str, figures: Sequence[tuple[str, Any, int]], after: str = "") -> str:
    """Return a page of figures (title, figure, height in pixels) with text before and after."""
    parts = [f"<pre>{html.escape(before)}</pre>"] if before else []
    for number, (what, figure, height) in enumerate(figures):
        margin, legend = (
            {"t": 40, "b": 50, "l": 50, "r": 10},
            {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
        )
        figure.update_layout(template="plotly_white", height=height + 40, margin=margin, legend=legend)
        style = {"displayModeBar": False, "responsive": True}
        drawn = figure.to_html(full_html=False, include_plotlyjs=number == 0, config=style)
        parts.append(f"<h2>{html.escape(what)}</h2>{drawn}")
    parts += [f"<pre>{html.escape(after)}</pre>"] if after else []
    return framed(title, parts)


def _drawn(runs: Sequence[Run]) -> tuple[list[str], list[list[int]]]:
    """Return names and members of the drawn groups: the queues with the largest shares, and the rest as one."""
    queues = runs[0].queues
    size = np.sum([run.shares.sum(axis=0) for run in runs], axis=0)
    order = np.argsort(-size, kind="stable").tolist()
    shown, rest = sorted(order[:MOST_QUEUES], key=lambda q: queues[q]), order[MOST_QUEUES:]
    names, groups = [queues[q] for q in shown], [[q] for q in shown]
    return (names, groups) if not rest else ([*names, f"{len(rest)} others"], [*groups, rest])


def sweep_text(found: Sequence[dict[str, Any]], width: int = 200) -> str:
    """Return the results of :func:`fairlead.simulate.sweep.sweep` as a table, a row per point."""
    numbers = "scale nodes seed ended makespan completion p95 slowdown used unfair"
    preempts = any(each["numbers"]["revoked"] or each["numbers"]["below guarantee"] for each in found)
    more = (">revoked", ">lost", ">below") if preempts else ()
    heads, rows = ["policy", *(f">{name}" for name in numbers.split()), *more], []
    runs = [each["numbers"] for each in found]
    for each in found:
        point, came = each["point"], each["numbers"]
        completion, slowdown = came["completion"], came["slowdown"]
        rows.append([
            run_title(came, runs), f"{point['scale']:g}", str(point["nodes"] or ""), str(point["seed"]), f"{came['ended']:,}",
            span(came["makespan"]), *(span(completion[which]) if completion else "" for which in ("mean", "p95")),
            f"{slowdown['mean']:.2f}" if slowdown else "", f"{_busiest(came):.0%}", f"{came['unfairness']:.1%}",
            *((f"{came['revoked']:,}", span(came["lost"]), span(came["below guarantee"])) if preempts else ()),
        ])  # fmt: skip
    columns = {head: [row[k] for row in rows] for k, head in enumerate(heads)}
    return printed(*folded(columns, width, keys=4, wraps=("policy",)), width=width)


def _busiest(came: dict[str, Any]) -> float:
    return float(max(came["utilisation"].values(), default=0.0))


MEASURES: tuple[tuple[str, str, Any], ...] = (
    ("Completion, mean, in seconds", "~s", lambda came: came["completion"]["mean"] if came["completion"] else None),
    ("Completion, p95, in seconds", "~s", lambda came: came["completion"]["p95"] if came["completion"] else None),
    ("Slowdown, mean", "", lambda came: came["slowdown"]["mean"] if came["slowdown"] else None),
    ("Used of the busiest resource", ".0%", _busiest),
    ("Unfairness", ".1%", lambda came: came["unfairness"]),
    ("Short over time, as a fraction of entitlements", ".1%", lambda came: came["over time"]["short"]),
    ("Tasks revoked", "~s", lambda came: came["revoked"]),
    ("Work lost, in seconds of the whole cluster", "~s", lambda came: came["lost"]),
    ("Below guarantee, in seconds of queues", "~s", lambda came: came["below guarantee"]),
)
"""Figures of a sweep: title, number format, and function from a summary to the value."""


def sweep_page(found: Sequence[dict[str, Any]]) -> str:
    """Return a self-contained page: each measure against load or cluster size, a line per policy. Needs plotly.

    The one with more values is the x axis, and each value of the other gets a subplot; with one of each there are bars. Several
    seeds are drawn as their mean, with a whisker from minimum to maximum.
    """
    from plotly.subplots import make_subplots

    def values(name: str) -> list[Any]:
        return sorted({each["point"][name] for each in found})

    runs = [each["numbers"] for each in found]
    policies = list(dict.fromkeys(run_title(came, runs) for came in runs))
    along, beside = ("nodes", "scale") if len(values("nodes")) > len(values("scale")) else ("scale", "nodes")
    columns, ticks, seeds = values(beside), values(along), len(values("seed")) > 1
    lines = len(ticks) > 1
    titles = [f"{beside} {value:g}" if value else "the machines of the trace" for value in columns]
    figures = []
    for title, form, get in MEASURES:
        figure = make_subplots(cols=len(columns), shared_yaxes=True, subplot_titles=titles)
        for (column, value), (k, policy) in itertools.product(enumerate(columns, 1), enumerate(policies)):
            alike = [each for each in found if each["point"][beside] == value]
            here = [each for each in alike if run_title(each["numbers"], runs) == policy]
            xs, means, above, below = _over_seeds(here, along, get)
            style = {
                "name": policy, "legendgroup": policy, "showlegend": column == 1 and lines, "row": 1, "col": column,
                "error_y": {"array": above, "arrayminus": below, "visible": seeds},
            }  # fmt: skip
            colour = COLOURS[k % len(COLOURS)]
            if lines:
                figure.add_scatter(x=xs, y=means, mode="lines+markers", line_color=colour, **style)
            else:
                figure.add_bar(x=[policy] * len(xs), y=means, marker_color=colour, **style)
        if lines:
            figure.update_xaxes(title=along, tickvals=ticks)
        figure.update_yaxes(rangemode="tozero", tickformat=form)
        figures.append((title, figure, 340))
    point = found[0]["point"]
    own = f"those of {point['config'] or 'the trace'}"
    counts = ", ".join(f"{count:,} of {point['node']}" if count else own for count in values("nodes"))
    scales, which = ", ".join(f"{scale:g}" for scale in values("scale")), ", ".join(map(str, values("seed")))
    head = f"machines: {counts}\nscale: {scales}\nseed: {which}"
    return _page(Path(point["trace"]).name, head, figures, sweep_text(found))


def _over_seeds(
    points: Sequence[dict[str, Any]], along: str, get: Any
) -> tuple[list[Any], list[float], list[float], list[float]]:
    """Return x values, means over the seeds, and the distances of maximum and minimum from the mean; skip missing numbers."""
    found: dict[Any, list[float]] = {}
    for each in points:
        number = get(each["numbers"])
        if number is not None:
            found.setdefault(each["point"][along], []).append(number)
    xs = sorted(found)
    means = [sum(found[x]) / len(found[x]) for x in xs]
    above = [max(found[x]) - mean for x, mean in zip(xs, means, strict=True)]
    below = [mean - min(found[x]) for x, mean in zip(xs, means, strict=True)]
    return xs, means, above, below
