"""The views of the page: what each asks the API, and what it makes of the answers. The templates only lay it out."""

import asyncio
import re
import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, get_args

from fairlead.audit.over_time_report import share_charts
from fairlead.model.api_types import JobStatus, QueueInfo, TaskStatus
from fairlead.model.quantity import total_of
from fairlead.model.specs import parent_of
from fairlead.model.used import together
from fairlead.service.page.asking import Declined, number_in

PERIODS = {"1h": 3600.0, "24h": 86400.0, "7d": 604800.0}
OVER_TIME, USAGE = "/v1/audit/over-time", "/v1/usage"
MOST_ROWS = 60
"""Queues on the first view, and jobs and people in lists that are beside something else."""
PAGE = 100
"""Rows of a list with further pages."""
MOST_QUEUES = 2000
"""Queues in the tree."""
MOST_SQUARES = 2000
"""Tasks drawn as squares."""
STREAMS = ("out", "err")
TAIL = 16 * 2**10
"""Bytes of a log that are shown."""


class Look(NamedTuple):
    """How a view finds out.

    ask : asks the API, in the name of the visitor.
    past : returns what takes long, such as a report on the past; None while it is being made.
    query : the query of the view's URL.
    """

    ask: Callable[..., Awaitable[Any]]
    past: Callable[..., Awaitable[Any]]
    query: dict[str, str]

    def chosen(self, name: str, among: Iterable[str], default: str = "") -> str:
        """Return a parameter that must be one of some words; the default if it is missing. Raises Declined."""
        text, words = self.query.get(name, "") or default, list(among)
        if text not in (*words, default):
            raise Declined(400, f"{name}: {text[:40]!r} is none of {', '.join(words)}")
        return text

    def number(self, name: str, below: int) -> int | None:
        """Return a parameter that must be a number below `below`; None if it is missing. Raises Declined."""
        if not (text := self.query.get(name, "")):
            return None
        found = number_in(text)
        if found is None:
            raise Declined(400, f"{name}: {text[:40]!r} is not a number")
        if found >= below:
            raise Declined(404, f"{name}: {found} is too large: use a number below {below:,}")
        return found


class View(NamedTuple):
    """A view: its path, template and title; what it shows includes `commands`, which say the same in a terminal.

    reads : the parameters of its URL; others change nothing.
    shared : True if it shows the same to all who may see the same queues.
    """

    pattern: re.Pattern[str]
    template: str
    title: str
    look: Callable[..., Awaitable[dict[str, Any]]]
    reads: tuple[str, ...]
    shared: bool = False


def command(*words: str, find: str = "", **options: str) -> str:
    """Return a command line: words, options that are not empty, and a filter of its lines."""
    given = [f"--{name}={text}" for name, text in options.items() if text]
    return shlex.join(["fairlead", *words, *given]) + (f" | grep -iF {shlex.quote(find)}" if find else "")


def _capacity(queues: list[QueueInfo], nodes: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return what the nodes that are up have together."""
    found = total_of([dict.fromkeys(queues[0]["used"], 0), *(node["capacity"] for node in nodes if node["status"] != "lost")])
    return {name: value for name, value in found.items() if value}


def bar(queue: QueueInfo, has: Mapping[str, int], resource: str | None) -> dict[str, Any]:
    """Return a queue's bar of one resource: amounts, and each as a part of the cluster.

    `borrowed` is what it uses above its steady share, which includes its guarantee.
    """
    total = has.get(resource or "", 0)
    if resource is None or not total:
        return {"resource": resource, "total": 0}
    steady = queue["fair_share"]["steady"].get(resource, 0)
    limit = queue["limit"].get(resource)
    used, guarantee = queue["used"].get(resource, 0), queue["guarantee"].get(resource, 0)
    amounts = {"used": used, "guarantee": guarantee, "steady": steady, "limit": limit, "borrowed": max(0, used - steady)}
    parts = {f"{name}_part": min(1.0, value / total) if value is not None else None for name, value in amounts.items()}
    return {"resource": resource, "total": total, **amounts, **parts}


def _rows(queues: Iterable[QueueInfo], has: Mapping[str, int], resource: str) -> list[dict[str, Any]]:
    """Return queues with a bar each: of a resource, or of the dominant one, or of that of the guarantee or limit."""
    rows = []
    for each in queues:
        named = [resource or each["dominant_resource"], *each["guarantee"], *each["limit"], *has]
        rows.append({**each, "bar": bar(each, has, next((name for name in named if name in has), None))})
    return rows


async def now(look: Look) -> dict[str, Any]:
    """The cluster by resource, a bar for each queue, and who goes next."""
    status, queues, nodes, fair = await asyncio.gather(
        *(look.ask(f"/v1/{what}") for what in ("status", "queues", "nodes", "audit"))
    )
    found, has = queues["queues"], _capacity(queues["queues"], nodes["nodes"])
    chosen = look.chosen("resource", has)
    inner = {parent_of(each["name"]) for each in found[1:]}
    leaves = [each for each in found[1:] if each["name"] not in inner]
    active = [each for each in leaves if each["running"] or each["waiting"]]
    active.sort(key=lambda each: (-each["dominant_share"], -each["waiting"], each["name"]))
    shown = active[:MOST_ROWS] or leaves[:MOST_ROWS]
    turns = sorted((each for each in fair["queues"] if each["turn"] is not None), key=lambda each: each["turn"])
    counts = {what: sum(each["status"] == what for each in nodes["nodes"]) for what in ("up", "draining", "lost")}
    root = found[0]
    used, offered = root["used"], root["offered"]
    whole = [{"name": n, "used": used.get(n, 0), "total": t, "offered": offered.get(n, 0)} for n, t in has.items()]
    return {
        "status": status, "root": root, "resources": whole, "chosen": chosen,
        "queues": _rows(shown, has, chosen), "more": len(leaves) - len(shown),
        "idle": len(leaves) - len(active), "turns": turns[:8], "waiting": len(turns), "nodes": counts, "fair": fair,
        "commands": [command("queues"), command("audit", "--live"), command("top")],
    }  # fmt: skip


async def queues(look: Look) -> dict[str, Any]:
    found, nodes = await asyncio.gather(look.ask("/v1/queues"), look.ask("/v1/nodes"))
    has, text = _capacity(found["queues"], nodes["nodes"]), look.query.get("find", "").lower()
    chosen = look.chosen("resource", has)
    shown = [each for each in found["queues"][1:] if text in each["name"].lower()]
    rows = _rows(shown[:MOST_QUEUES], has, chosen)
    for each in rows:
        each["depth"] = 0 if text else min(6, each["name"].count("/"))
    return {
        "queues": rows, "more": len(shown) - len(rows), "find": text, "resources": list(has), "chosen": chosen,
        "commands": [command("queues", "--all", find=text), command("queues", "--shares", "--all", find=text)],
    }  # fmt: skip


async def queue(look: Look, queue: str) -> dict[str, Any]:
    """One queue: its resources, those below it, its share over hours, its people and its jobs."""
    found, nodes, fair = await asyncio.gather(*(look.ask(f"/v1/{what}") for what in ("queues", "nodes", "audit")))
    has, by_name = _capacity(found["queues"], nodes["nodes"]), {each["name"]: each for each in found["queues"]}
    mine = by_name.get(queue)
    if mine is None:
        raise Declined(404, f"there is no queue {queue!r}, or it is not for you to see")
    listing = [look.ask("/v1/jobs", {"queue": queue, "status": what, "limit": 20}) for what in ("waiting", "running")]
    waiting, running = await asyncio.gather(*listing)
    over = look.chosen("over", PERIODS, "24h")
    past, usage = await asyncio.gather(*(look.past(path, seconds=PERIODS[over]) for path in (OVER_TIME, USAGE)))
    above = parent_of(queue)
    below, siblings = ([each for each in found["queues"][1:] if parent_of(each["name"]) == name] for name in (queue, above))
    bars = [bar(mine, has, name) for name in has]
    most = max(bars, key=lambda each: each["used_part"], default=None)
    return {
        "queue": mine, "bars": bars, "most": most if most and most["used"] else None, "above": above,
        "weights": {name: sum(each["weight"].get(name, 1) for each in siblings) for name in mine["weight"]},
        "below": _rows(below, has, ""), "fair": next((each for each in fair["queues"] if each["name"] == queue), None),
        "waiting": waiting["jobs"], "running": running["jobs"], "past": past, "over": _over_of(past, [queue]), "usage": usage,
        "people": _people([each for each in _used(usage) if f"{each['queue']}/".startswith(f"{queue}/")]),
        "period": over, "commands": [
            command("queues", "--all", find=queue), command("audit", "--live", find=queue), command("jobs", queue=queue),
            command("audit", over=over), command("usage", since=over),
        ],
    }  # fmt: skip


def _used(usage: Any) -> list[Any]:
    return usage.get("usage", []) if usage else []


def _people(usage: Iterable[Any]) -> list[dict[str, Any]]:
    """Return usage by user, the largest first, with the queues of each."""
    found: dict[str, Any] = {}
    for each in usage:
        before = found.get(each["user"])
        queues = {**before["queues"], each["queue"]: None} if before else {each["queue"]: None}
        found[each["user"]] = {**(together(before, each) if before else each), "queues": queues}
    return sorted(found.values(), key=lambda each: (-each["asked"].get("cpu", 0.0), each["user"]))


def _over_of(past: Any, names: Iterable[str]) -> list[dict[str, Any]]:
    """Return queues of an audit over time, each with its chart if the audit has its shares."""
    if not past or "failed" in past:
        return []
    by_name, charts = {each["name"]: each for each in past["queues"]}, share_charts(past)
    return [{**by_name[name], "chart": charts.get(name)} for name in names if name in by_name]


async def jobs(look: Look) -> dict[str, Any]:
    """The newest jobs, a page of them."""
    wanted = {name: look.query.get(name, "") for name in ("queue", "user", "before")}
    wanted["status"] = look.chosen("status", get_args(JobStatus))
    look.number("before", 2**53)
    found = await look.ask("/v1/jobs", {**wanted, "limit": PAGE})
    if not found["jobs"] and (queue := wanted["queue"].strip("/")):
        there = await look.ask("/v1/queues")
        if all(each["name"] != queue for each in there["queues"]):
            raise Declined(404, f"there is no queue {queue[:200]!r}, or it is not for you to see")
    options = {name: wanted[name] for name in ("queue", "user", "status")}
    return {"jobs": found["jobs"], "next": found["next"], "wanted": wanted, "commands": [command("jobs", **options)]}


async def job(look: Look, job: str) -> dict[str, Any]:
    """One job: asked and used, its tasks, why it waits and until when, and the end of a log."""
    path, status = f"/v1/jobs/{job}", look.chosen("status", get_args(TaskStatus))
    found, why = await asyncio.gather(look.ask(path), look.ask(f"{path}/why"))
    given = look.number("task", found["tasks"])
    over, tasks = found["finished_at"] is not None, (await look.ask(f"{path}/tasks", {"limit": MOST_SQUARES}))["tasks"]
    when = None if over or not found["waiting"] else await look.past(f"{path}/when")
    ran = [each for each in tasks if each["started_at"] is not None]
    wanted = status or ("failed" if found["failed"] else "running" if found["running"] else "")
    of_status = (await look.ask(f"{path}/tasks", {"limit": MOST_ROWS + 1, "status": wanted}))["tasks"] if wanted else ran
    first = next(iter(of_status or ran), None)
    shown = given if given is not None else first["index"] if first else None
    stream, mine = look.chosen("stream", STREAMS), bool(found["cwd"])  # else it is another's
    log = await _tail(look, job, shown, stream or "out") if shown is not None and mine else None
    if log and shown is not None and not stream and not log["text"] and found["failed"]:
        log, stream = await _tail(look, job, shown, "err"), "err"
    listed = of_status if status else ran or tasks
    named = [] if shown is None else (await look.ask(f"{path}/tasks", {"first": shown, "limit": 1}))["tasks"]
    known_as = named[0]["known_as"] if named else 0
    return {
        "job": found, "why": why, "when": when, "tasks": tasks, "listed": listed[:MOST_ROWS], "more": len(listed) > MOST_ROWS,
        "used": _asked_and_used(found, ran), "task_shown": shown, "stream": stream or "out", "log": log, "status": status,
        "over": over, "mine": mine, "known_as": known_as,
        "commands": [command("job", job), command("why", job), command("logs", f"{job}.{known_as}")],
    }  # fmt: skip


def _asked_and_used(job: Mapping[str, Any], ran: list[Any]) -> list[dict[str, Any]]:
    """Return what a task asked for, beside what ended tasks used: CPU on average, memory at most."""
    ended = [each for each in ran if each["finished_at"] is not None and each["cpu_seconds"] is not None]
    seconds = sum(each["finished_at"] - each["started_at"] for each in ended)
    used: dict[str, float | None] = {"memory": job["peak_memory"]}
    used["cpu"] = 1000 * sum(each["cpu_seconds"] for each in ended) / seconds if seconds > 0 else None
    return [{"resource": name, "asked": asked, "used": used.get(name)} for name, asked in job["demand"].items()]


async def _tail(look: Look, job: str, task: int, stream: str) -> dict[str, Any]:
    """Return the end of a task's output; `cut` if it begins before."""
    try:
        data = await look.ask(f"/v1/jobs/{job}/tasks/{task}/output/{stream}", {"last": TAIL})
    except Declined as declined:
        return {"text": "", "cut": False, "failed": str(declined)}
    cut = len(data) == TAIL
    return {"text": "\n".join(data.decode(errors="replace").splitlines()[cut:]), "cut": cut, "failed": ""}


async def nodes(look: Look) -> dict[str, Any]:
    """The nodes: what is used of each, whose its cards are, and what is wrong."""
    found, status = await asyncio.gather(look.ask("/v1/nodes"), look.ask("/v1/status"))
    text, which = look.query.get("find", "").lower(), look.chosen("status", ("up", "draining", "lost", "silent"))
    rows = [
        each for each in found["nodes"]
        if text in each["name"].lower() and (which in ("", each["status"]) or (which == "silent" and each["silent"]))
    ]  # fmt: skip
    rows.sort(key=lambda each: (each["status"] != "lost", each["silent"] is None, each["status"] != "draining"))
    first = look.number("first", max(1, len(rows))) or 0
    counts = {what: sum(each["status"] == what for each in found["nodes"]) for what in ("up", "draining", "lost")}
    counts["silent"] = sum(each["silent"] is not None for each in found["nodes"])
    names = {name: None for each in found["nodes"] for name in each["capacity"]}
    return {
        "nodes": rows[first : first + PAGE], "count": len(rows), "first": first, "page": PAGE, "counts": counts,
        "names": list(names), "find": text, "which": which, "troubles": await _troubles(look, status),
        "commands": [command("nodes", find=look.query.get("find", "") or which), command("doctor")],
    }  # fmt: skip


async def _troubles(look: Look, status: Mapping[str, Any]) -> list[str]:
    found = [status["stalled"]] if status["stalled"] else []
    try:
        await look.ask("/readyz")
    except Declined as declined:
        found.append(str(declined))
    if status["output"] and status["output"]["trouble"]:
        found.append(status["output"]["trouble"])
    return list(dict.fromkeys(found))


async def node(look: Look, node: str) -> dict[str, Any]:
    """One node: what it has, whose its cards are, and the jobs that have them."""
    found = await look.ask("/v1/nodes")
    mine = next((each for each in found["nodes"] if each["name"] == node), None)
    if mine is None:
        raise Declined(404, f"there is no node {node!r}")
    return {"node": mine, "commands": [command("nodes", find=node)]}


async def people(look: Look) -> dict[str, Any]:
    """Who used how much over a time, or waits for the first of it, and whose queues were wronged or ahead."""
    over = look.chosen("over", PERIODS, "7d")
    usage, past = await asyncio.gather(*(look.past(path, seconds=PERIODS[over]) for path in (USAGE, OVER_TIME)))
    by_name = {each["name"]: each for each in past["queues"]} if past and "failed" not in past else {}
    found = await look.ask("/v1/queues")
    limits = {each["name"]: each for each in found["queues"]}
    rows = _people(_used(usage))
    for each in rows:
        each["over"] = [by_name[name] for name in each["queues"] if name in by_name]
        each["limits"] = [limits[name] for name in each["queues"] if name in limits and limits[name]["limit"]]
    return {
        "people": rows[:500], "more": len(rows) - 500, "usage": usage, "past": past, "period": over,
        "commands": [command("usage", since=over), command("audit", over=over)],
    }  # fmt: skip


async def history(look: Look) -> dict[str, Any]:
    """The audit over time: who was short, by how much and through whom; and what was preempted."""
    over = look.chosen("over", PERIODS, "24h")
    past = await look.past(OVER_TIME, seconds=PERIODS[over])
    names = [each["name"] for each in past["queues"]] if past and "failed" not in past else []
    rows = _over_of(past, names)
    commands = [command("audit", over=over)]
    return {"past": past, "rows": rows[:PAGE], "more": len(rows) - PAGE, "period": over, "commands": commands}


def _view(pattern: str, name: str, title: str, look: Any, reads: str = "", shared: bool = False) -> View:
    return View(re.compile(pattern), f"{name}.html", title, look, tuple(reads.split()), shared)


VIEWS = (
    _view(r"/(?:page/now)?", "now", "Now", now, "resource", True),
    _view(r"/page/queues", "queues", "Queues", queues, "find resource", True),
    _view(r"/page/queues/(?P<queue>.+)", "queue", "{queue}", queue, "over"),
    _view(r"/page/jobs", "jobs", "Jobs", jobs, "queue user status before"),
    _view(r"/page/jobs/(?P<job>\d{1,16})", "job", "Job {job}", job, "task status stream"),
    _view(r"/page/nodes", "nodes", "Nodes", nodes, "find status first"),
    _view(r"/page/nodes/(?P<node>.+)", "node", "{node}", node),
    _view(r"/page/people", "people", "People", people, "over", True),
    _view(r"/page/history", "history", "History", history, "over", True),
)
