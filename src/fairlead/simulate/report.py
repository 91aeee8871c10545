"""Reports of several runs side by side, and of sweeps: as tables, and as a page with charts."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fairlead.charts import Axis, Chart, Series, percent, span
from fairlead.html_page import WIDE, framed, tabled
from fairlead.simulate.measure import BIN_NAMES, half_width, over_seeds, summary, unfairness
from fairlead.simulate.run import Run
from fairlead.text_tables import folded, printed, with_names_cut

MOST_QUEUES = 11
"""Queues drawn by name; the rest are drawn together."""
MOST_ROWS = 8
"""Queues in the table by queue."""
MOST_POINTS = 1200
"""Points of each queue's shares on a page, over all runs."""
MOST_LINES = 12
"""Lines of one chart of a sweep."""
Get = Callable[[dict[str, Any]], Any]
"""Returns a value of a summary; None: no cell."""
Form = Callable[[Any], str]


def columns(summaries: Sequence[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the columns of a table: titles, and the summaries of each, which differ in their seeds alone."""
    found: dict[str, list[dict[str, Any]]] = {}
    for each in summaries:
        name = title = run_title(each, summaries)
        k = 1
        while any(other["seed"] == each["seed"] for other in found.get(name, [])):
            k += 1
            name = f"{title} ({k})"
        found.setdefault(name, []).append(each)
    return list(found.items())


def runs_text(summaries: Sequence[dict[str, Any]], width: int = 100) -> str:
    """Return the numbers of several runs, a column per run, in several tables if one is too wide; then those of queues.

    Runs that differ in their seeds alone are one column: means, with half the width of their 95% confidence intervals.
    """
    return printed(*runs_parts(summaries, width), width=400)


def runs_parts(summaries: Sequence[dict[str, Any]], width: int) -> list[Any]:
    """Return these tables and the notes below them."""
    found = columns(summaries)
    rows = [(name, [_cell(runs, get, form) for _, runs in found]) for name, get, form in _lines(summaries)]
    rows = [(name, cells) for name, cells in rows if any(cells)]
    table = {"": [name for name, _ in rows]}
    table |= {f">{title}": [cells[k] for _, cells in rows] for k, (title, _) in enumerate(found)}
    notes = dict.fromkeys(note for each in summaries for note in each["notes"])
    by_queue = queue_tables(summaries, width)
    return [*folded(table, width), *(["", *by_queue] if by_queue else []), *(["", "\n".join(notes)] if notes else [])]


def _cell(runs: Sequence[dict[str, Any]], get: Get, form: Form) -> str:
    """Return the value of a run, or the mean over seeds and half its interval; of text, what all have."""
    values = [value for value in map(get, runs) if value is not None]
    if not values or (isinstance(values[0], str) and len(set(values)) > 1):
        return ""
    if len(values) == 1 or isinstance(values[0], str):
        return form(values[0])
    off = half_width(values)
    return f"{form(float(np.mean(values)))} ± {form(off)}"


def queue_tables(summaries: Sequence[dict[str, Any]], width: int) -> list[Any]:
    """Return waits, shares and shortfalls by queue, a row per queue and run, of the queues furthest from their entitlements.

    Empty if there is one queue. Over several seeds they are means.
    """
    runs = [(title, _by_name(each)) for title, each in columns(summaries)]
    names = list(dict.fromkeys(name for _, queues in runs for name in queues))
    if len(names) < 2:
        return []
    shown = sorted(furthest([queues for _, queues in runs], MOST_ROWS))
    several = len(runs) > 1
    rows: list[list[str]] = []
    ends = []
    for name in shown:
        for title, queue in ((title, queues[name]) for title, queues in runs if name in queues):
            wait, completion = queue["wait"] or {}, queue["completion"] or {}
            due = f"{queue['short'] / queue['entitled']:.1%}" if queue["entitled"] else ""
            rows.append([
                "" if rows and len(rows) not in ends else name, title, _count(queue["ended"]),
                *(span(wait[x]) if wait else "" for x in ("mean", "p95")), span(completion["mean"]) if completion else "",
                f"{queue['share']:.1%}", due,
            ])  # fmt: skip
        ends.append(len(rows))
    heads = ("queue", "run", ">ended", ">wait, mean", ">wait, p95", ">completion", ">share", ">short")
    table = {head: [row[k] for row in rows] for k, head in enumerate(heads) if several or head != "run"}
    tables = folded(with_names_cut(table, width), width, keys=1 + several, ends=ends if several else ())
    more = len(names) - len(shown)
    left = f"and {more:,} more queue{'s' * (more > 1)}, nearer to their entitlements: --json has all" if more else ""
    return [*tables, *([left] if left else [])]


def _by_name(summaries: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found = [each["over time"]["queues"] for each in summaries]
    return {each["name"]: each for each in (found[0] if len(found) == 1 else _means(over_seeds(found)))}


def _means(found: Any) -> Any:
    """Return what :func:`over_seeds` gave with means only."""
    if isinstance(found, list):
        return [_means(each) for each in found]
    if isinstance(found, dict) and set(found) != {"mean", "interval"}:
        return {key: _means(each) for key, each in found.items()}
    return found["mean"] if isinstance(found, dict) else found


def furthest(runs: Sequence[Mapping[str, dict[str, Any]]], most: int) -> list[str]:
    """Return the queues that are furthest from what they were entitled to in any run."""
    size: dict[str, tuple[float, float]] = {}
    for queues in runs:
        for name, queue in queues.items():
            size[name] = max(size.get(name, (0.0, 0.0)), (abs(queue["short"]), queue["got"]))
    return sorted(size, key=lambda name: (-size[name][0], -size[name][1], name))[:most]


def run_title(found: dict[str, Any], summaries: Sequence[dict[str, Any]]) -> str:
    """Return a run's title: its policy, whether it preempts if the runs differ in that, and if it makes offers."""
    title = str(found["policy"])
    if len({each["revokes"] for each in summaries}) > 1:
        title += f", revoke {'on' if found['revokes'] else 'off'}"
    return title if found["offers"] is None else f"{title}, offers"


def _lines(summaries: Sequence[dict[str, Any]]) -> list[tuple[str, Get, Form]]:
    """Return the lines of a table of runs: name, value and format."""
    sizes = [name for name in BIN_NAMES if any(name in found["by size"] for found in summaries)]
    preempts = any(found["revoked"] or found["below guarantee"] for found in summaries)
    forms: tuple[tuple[str, Form], ...] = ("completion", span), ("wait", span), ("slowdown", lambda x: f"{x:.2f}")
    return [
        ("jobs", _at("jobs"), _count),
        ("jobs ended", _at("ended"), _count),
        ("tasks", _at("tasks"), _count),
        ("makespan", _at("makespan"), span),
        *((f"{what}, {x}", _at(what, x), form) for what, form in forms for x in ("mean", "median", "p95", "p99")),
        *((f"completion, {n} task{'s' * (n != '1')}", _at("by size", n, "mean completion"), span) for n in sizes),
        *((f"{name} used", _at("utilisation", name), lambda x: f"{x:.1%}") for name in summaries[0]["utilisation"]),
        ("unfairness", _at("unfairness"), _hundredths),
        ("short over time", _at("over time", "short"), _hundredths),
        ("most wronged", _most_wronged, str),
        *([("entitlements sampled", _how_often, str)] * any(found["over time"]["every"] for found in summaries)),
        ("idle for promises", lambda f: max(f["idle for promises"].values(), default=0.0), _hundredths),
        ("tasks revoked", _at("revoked"), _count),
        ("decisions", _at("decisions"), _count),
        ("simulated in", _at("seconds"), span),
        ("offered, not answered", lambda f: _of_offers(f, max(f["offered"].values(), default=0.0)), _hundredths),
        *(
            (f"offers {what}", lambda f, w=what: _of_offers(f, (f["offers"] or {}).get(w, 0)), _count)
            for what in ("made", "accepted", "declined", "expired")
        ),
        *((f"replay error, {which}", _at("replay", which), span) for which in ("median", "p90")),
        *([("work lost", _at("lost"), span), ("below guarantee", _at("below guarantee"), span)] * preempts),
    ]


def _at(*keys: str) -> Get:
    """Return what finds a nested value of a summary; None if there is none."""

    def get(found: Any) -> Any:
        for key in keys:
            found = None if found is None else found.get(key)
        return found

    return get


def _of_offers(found: dict[str, Any], value: Any) -> Any:
    return None if found["offers"] is None else value


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def _hundredths(value: float) -> str:
    return f"{value:.2%}"


def _most_wronged(found: dict[str, Any]) -> str:
    wronged = [queue for queue in found["over time"]["queues"] if queue["status"] == "wronged"]
    return f"{wronged[0]['name']} {wronged[0]['short'] / wronged[0]['entitled']:.0%}" if wronged else ""


def _how_often(found: dict[str, Any]) -> str:
    every = found["over time"]["every"]
    return f"every {span(every)}" if every else "always"


def page(runs: Sequence[Run], settings: str = "", seeds: Sequence[int] = ()) -> str:
    """Return a self-contained page: numbers, shares over time, completion times, utilisation, waits and shortfalls by queue.

    `settings` is shown below the machines and the policies; `seeds` are those of the runs. Over several seeds, what is drawn over
    time is of the first.
    """
    found = [summary(run, seed) for run, seed in zip(runs, seeds or [0] * len(runs), strict=True)]
    by_title = columns(found)
    drawn: dict[str, Run] = {}
    for each, run in zip(found, runs, strict=True):
        drawn.setdefault(run_title(each, found), run)
    machines = f"machines: {runs[0].workload.machines}"
    head = "\n".join(filter(None, [machines, f"policies: {', '.join(drawn)}", settings]))
    sections: dict[str, list[Chart]] = {
        "Dominant shares over time": _shares(drawn),
        "Completion times": [_completion(drawn), _by_size(by_title)],
        "Utilisation": _utilisation(drawn),
        "Fairness": [_unfairness(drawn), *_by_queue(by_title)],
    }
    parts = [f"<h2>{title}</h2>{''.join(chart.figure() for chart in charts)}" for title, charts in sections.items()]
    return framed(runs[0].workload.name, [tabled([head]), tabled(runs_parts(found, WIDE)), *parts])


def _shares(runs: Mapping[str, Run]) -> list[Chart]:
    """Draw the queues' dominant shares as stacked areas, a chart per run. Each is of its own resource: they may exceed 100%."""
    queues = next(iter(runs.values())).queues
    size = np.sum([run.shares.sum(axis=0) for run in runs.values()], axis=0)
    order = np.argsort(-size, kind="stable").tolist()
    groups = [(queues[q], [q]) for q in sorted(order[:MOST_QUEUES], key=lambda q: queues[q])]
    rest = order[MOST_QUEUES:]
    groups += [(f"{len(rest)} others", rest)] if rest else []
    last = max(float(run.at.max(initial=0.0)) for run in runs.values())
    top = max(float(run.shares.sum(axis=1).max(initial=0.0)) for run in runs.values())
    return [
        Chart(
            title,
            [Series(name, run.at, run.shares[:, members].sum(axis=1), "area") for name, members in groups],
            Axis(form=span), Axis(form=percent), stacked=True, plot=150, most=max(60, MOST_POINTS // len(runs)),
            reach=(last, top),
        )
        for title, run in runs.items()
    ]  # fmt: skip


def _completion(runs: Mapping[str, Run]) -> Chart:
    series = []
    parts = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
    rows = [["of the jobs", *runs], *([percent(part)] for part in parts)]
    for title, run in runs.items():
        times = np.sort((run.ended - run.submitted)[(run.submitted >= run.since) & ~np.isnan(run.ended)])
        kept = np.unique(np.linspace(0, max(0, len(times) - 1), min(len(times), 300)).astype(np.int64))
        series.append(Series(title, np.maximum(times[kept], 1e-3), (kept + 1) / max(1, len(times)), holds=True))
        values = np.quantile(times, parts) if len(times) else [np.nan] * len(parts)
        for row, value in zip(rows[1:], values, strict=True):
            row.append(span(value))
    title = "Jobs that have ended, by the time since their submission"
    return Chart(title, series, Axis(form=span, log=True), Axis(form=percent), rows=rows)


def _by_size(found: Sequence[tuple[str, list[dict[str, Any]]]]) -> Chart:
    """Draw the mean completion by size of the job, as points: a log axis has no 0."""
    names = [name for name in BIN_NAMES if any(name in each["by size"] for _, runs in found for each in runs)]
    series = [
        _over_seeds(title, [[_at("by size", name, "mean completion")(each) for each in runs] for name in names], "points")
        for title, runs in found
    ]
    title = "Mean completion, by the number of tasks of the job"
    return Chart(title, series, Axis(names=names), Axis(form=span, log=True))


def _over_seeds(title: str, values: Sequence[Sequence[Any]], shape: Any, places: Sequence[float] = ()) -> Series:
    """Return the means of the values at each place, with their confidence intervals as whiskers; None does not count."""
    known = [[value for value in each if value is not None] for each in values]
    means = np.array([np.mean(each) if each else np.nan for each in known])
    off = np.array([half_width(each) or 0.0 for each in known])
    return Series(title, places or range(len(values)), means, shape, low=means - off, high=means + off)


def _utilisation(runs: Mapping[str, Run]) -> list[Chart]:
    resources = next(iter(runs.values())).resources
    return [
        Chart(
            f"{resource} used",
            [Series(title, run.at, run.utilisation[:, r]) for title, run in runs.items()],
            Axis(form=span), Axis(form=percent), plot=140, most=max(60, MOST_POINTS // len(runs)),
        )
        for r, resource in enumerate(resources)
    ]  # fmt: skip


def _unfairness(runs: Mapping[str, Run]) -> Chart:
    title = "Unfairness: how much of the cluster would change hands for all to have their fair shares"
    series = [Series(name, run.at, unfairness(run)) for name, run in runs.items()]
    return Chart(title, series, Axis(form=span), Axis(form=percent), most=max(60, MOST_POINTS // len(runs)))


def _by_queue(found: Sequence[tuple[str, list[dict[str, Any]]]]) -> list[Chart]:
    """Draw shortfalls and waits of the queues that are furthest from their entitlements."""
    named = {title: [{queue["name"]: queue for queue in each["over time"]["queues"]} for each in runs] for title, runs in found}
    names = sorted(furthest([each for runs in named.values() for each in runs], MOST_QUEUES))

    def of_due(queue: dict[str, Any]) -> Any:
        return queue["short"] / queue["entitled"] if queue["entitled"] else None

    what: tuple[tuple[str, Get, Form], ...] = (
        ("Short over time, of each queue's entitlement; below zero: it got more", of_due, percent),
        ("Mean wait", _at("wait", "mean"), span),
    )
    charts = []
    for title, get, form in what:
        values = {run: [[get(each[n]) for each in queues if n in each] for n in names] for run, queues in named.items()}
        bars = [_over_seeds(run, of_run, "bar") for run, of_run in values.items()]
        charts.append(Chart(title, bars, Axis(names=names), Axis(form=form)))
    return charts


NUMBERS = ("nodes", "scale", "speed")
"""Inputs of a point of a sweep that may be an axis of its charts."""
INPUTS = (*NUMBERS, "config", "history", "offers")
"""Inputs of a point besides policy, revocation and seed."""
MEASURES: tuple[tuple[str, str, Form, Get], ...] = (
    ("ended", "Jobs that ended", _count, _at("ended")),
    ("makespan", "Makespan", span, _at("makespan")),
    ("completion", "Completion, mean", span, _at("completion", "mean")),
    ("p95", "Completion, p95", span, _at("completion", "p95")),
    ("wait", "Wait, mean", span, _at("wait", "mean")),
    ("slowdown", "Slowdown, mean", lambda x: f"{x:.2f}", _at("slowdown", "mean")),
    ("used", "Used of the busiest resource", percent, lambda came: max(came["utilisation"].values(), default=0.0)),
    ("unfair", "Unfairness", percent, _at("unfairness")),
    ("short", "Short over time, of the entitlements", percent, _at("over time", "short")),
    ("revoked", "Tasks revoked", _count, _at("revoked")),
    ("lost", "Work lost, in seconds of the whole cluster", span, _at("lost")),
    ("below", "Below guarantee, summed over queues", span, _at("below guarantee")),
)
"""Figures of a sweep: head in the table, title of the chart, format, and function from a summary to the value."""
ALWAYS = 9
"""Measures that are shown also where none of the last ones is above 0."""


def _rows(found: Sequence[dict[str, Any]]) -> list[tuple[str, dict[str, str], list[dict[str, Any]]]]:
    """Return the rows of a sweep: title of the run, the inputs that vary as text, and its points, one a seed."""
    runs = [each["numbers"] for each in found]
    vary = [name for name in INPUTS if len({each["point"][name] for each in found}) > 1]
    rows: dict[tuple[str, ...], tuple[str, dict[str, str], list[dict[str, Any]]]] = {}
    for each in found:
        inputs = {name: _input(name, each["point"][name]) for name in vary}
        title = run_title(each["numbers"], runs)
        rows.setdefault((title, *inputs.values()), (title, inputs, []))[2].append(each)
    return list(rows.values())


def _input(name: str, value: Any) -> str:
    if name == "history":
        return "as configured" if value is None else span(value) if value else "none"
    if isinstance(value, str):
        return (Path(value).name if name == "config" else value) or "none"
    return f"{value:g}" if value or name != "nodes" else "the trace's"


def sweep_text(found: Sequence[dict[str, Any]], width: int = 200) -> str:
    return printed(*sweep_tables(found, width), width=width)


def sweep_tables(found: Sequence[dict[str, Any]], width: int) -> list[Any]:
    """Return the results of :func:`fairlead.simulate.sweep.sweep` as a table, a row per point, or per points of several seeds."""
    rows = _rows(found)
    several = len({each["point"]["seed"] for each in found}) > 1
    measures = _shown_measures(found)
    table = {"policy": [title for title, *_ in rows]}
    for name in rows[0][1]:
        table[f">{name}" if name in NUMBERS else name] = [inputs[name] for _, inputs, _ in rows]
    keys = len(table)
    if several:
        table[">seeds"] = [str(len(points)) for *_, points in rows]
    for head, _, form, get in measures:
        table[f">{head}"] = [_cell([each["numbers"] for each in points], get, form) for *_, points in rows]
    return folded(table, width, keys=keys, wraps=("policy",))


def _shown_measures(found: Sequence[dict[str, Any]]) -> Sequence[tuple[str, str, Form, Get]]:
    preempts = any(each["numbers"]["revoked"] or each["numbers"]["below guarantee"] for each in found)
    return MEASURES if preempts else MEASURES[:ALWAYS]


def sweep_page(found: Sequence[dict[str, Any]]) -> str:
    """Return a self-contained page: each measure against load or cluster size, a line per policy and other inputs.

    Of nodes, scale and speed, that with the most values is the x axis; with one value each there are bars. Several seeds are
    drawn as their mean, with its 95% confidence interval.
    """
    rows = _rows(found)
    many = {name: sorted({each["point"][name] for each in found}) for name in NUMBERS}
    along = max(NUMBERS, key=lambda name: len(many[name]))
    lines: dict[str, list[dict[str, Any]]] = {}
    for title, inputs, points in rows:
        others = [f"{name} {text}" for name, text in inputs.items() if name != along or len(many[along]) < 2]
        lines.setdefault(", ".join([title, *others]), []).extend(points)
    drawn = dict(list(lines.items())[:MOST_LINES])
    charts = []
    for _, title, form, get in _shown_measures(found):
        places = many[along]
        if len(places) > 1:
            series = []
            for name, mine in drawn.items():
                values = [[get(each["numbers"]) for each in mine if each["point"][along] == at] for at in places]
                series.append(_over_seeds(name, values, "line", places))
            axis = Axis(along, marks=places if len(places) <= 10 else ())
        else:
            series = [_over_seeds(title, [[get(each["numbers"]) for each in mine] for mine in drawn.values()], "bar")]
            axis = Axis(names=list(drawn))
        charts.append(Chart(title, series, axis, Axis(form=form)).figure())
    point = found[0]["point"]
    own = f"those of {Path(point['config']).name if point['config'] else 'the trace'}"
    seeds = sorted({each["point"]["seed"] for each in found})
    machines = [f"{count:,} of {point['node']}" if count else own for count in many["nodes"]]
    head = [
        f"machines: {', '.join(machines)}",
        *(f"{name}: {', '.join(f'{value:g}' for value in many[name])}" for name in ("scale", "speed")),
        f"seed: {', '.join(map(str, seeds))}",
    ]
    more = len(lines) - len(drawn)
    after = f"<p>{more:,} more are in the table.</p>" if more > 0 else ""
    return framed(Path(point["trace"]).name, [tabled(head), tabled(sweep_tables(found, WIDE)), *charts, after])
