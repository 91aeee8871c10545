"""Turns a job's options, from a command line, a script or a file, into requests of the API."""

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fairlead.failure import WrongUsage, failing

OPTIONS = (
    "cpu", "memory", "gpu", "tasks", "nodes", "array", "at_most", "name", "group", "priority", "on", "prefer", "time_limit",
    "retries", "retry_delay", "led", "grace", "signal", "begin", "singleton", "after", "queue", "cwd", "env", "status", "user",
)  # fmt: skip
"""Keys of requests and queries that have the name of their option."""

NAMED_TIMES = {"midnight": "00:00", "elevenses": "11:00", "noon": "12:00", "fika": "15:00", "teatime": "16:00"}
"""Times of day as sbatch knows them."""


LATEST = 95_617_584_000.0
"""The year 5000, in seconds since the epoch."""
ENDS = (":success", ":failure", ":end", ":start", ":index")
"""What may follow the job in --after."""


def with_option_names(message: str) -> str:
    """Replace the key that a scheduler's refusal begins with by its option: ``time_limit: ...`` by ``--time-limit: ...``."""
    message = re.sub("^demand: is empty", "--cpu, --memory, --gpu and --resource: all are 0", message)
    match = re.match(r"(demand: )?([a-z][a-z0-9_./-]*?)(?:\.[\w.-]+)?: ", message)
    if match is None or (match[2] not in OPTIONS and not match[1]):
        return message
    option = match[2].replace("_", "-") if match[2] in OPTIONS else f"resource {match[2]}"
    return f"--{option}: {message[match.end() :]}"


def job_request(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the API's request for a command; `options` has options of `fairlead submit` by name."""
    from fairlead.cli.word_lists import with_lists
    from fairlead.client.environment import needed_environment
    from fairlead.client.jobs import encoded

    options = _with_bundles(options)
    folder = Path.cwd() if options["cwd"] is None else Path(options["cwd"]).absolute()
    sent = {**needed_environment(), **_variables(options["env"])}
    rest = {name: value for name, value in os.environ.items() if options["export_all"] and name not in sent}
    command, values = with_lists(options["command"])
    if values and "tasks" not in options:
        raise WrongUsage("::: is for several tasks, and `run` has one: use `fairlead submit`, then `fairlead logs -f --all JOB`")
    work = encoded({"argv": command, "cwd": str(folder), "env": sent, "exported": rest} | ({"values": values} if values else {}))
    more = {name: options[name] for name in ("gang", "led", "exit_done", "revocable", "hold", "ray") if options.get(name)}
    fits = [name for name in ("pack", "spread") if options.get(name)]
    if len(fits) > 1:
        raise WrongUsage("--pack and --spread exclude each other: give one of them")
    more |= {"fit": fits[0]} if fits else {}
    more |= {name: options[name] for name in ("at_most", "array", "nodes", "signal") if options.get(name) is not None}
    if sum([options.get("tasks") is not None, "array" in more, "nodes" in more, bool(values)]) > 1:
        raise WrongUsage("--tasks, --array, --nodes and ::: exclude each other: give one of them")
    if "nodes" in more and fits:
        raise WrongUsage(f"--{fits[0]}: tasks of --nodes go to different nodes: omit one of them")
    if options.get("grace") is not None:
        more["grace"] = seconds("--grace", options["grace"])
    return {**demand(options), **work, "strict": options["strict"], **more}


def _with_bundles(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Turn the bundles of a Ray program into a gang of tasks; leave other jobs unchanged."""
    if not options.get("ray"):
        for option in ("bundle", "bundles"):
            if options.get(option):
                raise WrongUsage(f"--{option}: only for Ray programs: add --ray")
        return options
    if options.get("tasks") is not None:
        raise WrongUsage("--tasks: a Ray program runs once: give the size of its placement group with --bundles")
    found = {**options, "gang": True, "tasks": options.get("bundles") or 1}
    bundle = _bundle([each.strip() for each in (options.get("bundle") or "").split(",") if each.strip()])
    more = [f"{name}={amount}" for name, amount in bundle.items() if name not in ("cpu", "memory", "gpu")]
    found |= {name: bundle[name] for name in ("cpu", "memory", "gpu") if name in bundle}
    return {**found, "resource": [*options["resource"], *more]}


def _bundle(values: list[str]) -> dict[str, str]:
    """Read --bundle. Raises Failure here, because a later error would name another option."""
    from fairlead.model.quantity import parse_quantity

    bundle = pairs("--bundle", values)
    if twice := [name for name in bundle if sum(value.partition("=")[0] == name for value in values) > 1]:
        raise WrongUsage(f"--bundle: {twice[0]} is given twice: give each resource of a bundle once")
    with failing("--bundle: ", ValueError, to=WrongUsage):
        for name, amount in bundle.items():
            parse_quantity(name, amount)
    return bundle


def demand(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of the request that submitted and hypothetical jobs share."""
    from fairlead.client.jobs import job_request as request

    check_memory(options["memory"])
    found = request(
        queue=options["queue"], cpu=options["cpu"], memory=options["memory"], gpu=options["gpu"],
        resources=pairs("--resource", options["resource"]), priority=options["priority"], retries=options.get("retries", 0),
        time_limit=seconds("--time-limit", options["time_limit"]), on=labels("--on", options["on"]),
        prefer=labels("--prefer", options["prefer"]),
    )  # fmt: skip
    found |= {"name": options["name"], "after": _after(options.get("after", []))}
    found |= {name: options[name] for name in ("group", "singleton") if options.get(name)}
    if options.get("begin") is not None:
        found["begin"] = moment("--begin", options["begin"])
    if options.get("retry_delay") is not None:
        found["retry_delay"] = seconds("--retry-delay", options["retry_delay"])
    return found if options.get("tasks") is None else {**found, "tasks": options["tasks"]}


def check_memory(text: str) -> None:
    """Raise Failure for memory that no program could run in, which probably lacks its unit."""
    from fairlead.model.quantity import LEAST_MEMORY, parse_quantity

    with contextlib.suppress(ValueError):  # the scheduler says what is wrong with it
        if 0 < parse_quantity("memory", text) < LEAST_MEMORY:
            number = text.strip().rstrip("KMGTikmB ")
            raise WrongUsage(f"--memory {text}: is less than 1Mi, in which no program runs: write {number}Mi or {number}Gi")


def labels(option: str, values: Iterable[str]) -> dict[str, list[str]]:
    """Read --on or --prefer: labels and the values that each may have."""
    return {label: value.split("|") for label, value in pairs(option, values).items()}


def seconds(option: str, text: str | None) -> float | None:
    """Read a duration. Raises Failure."""
    if text is None:
        return None
    from fairlead.model.quantity import parse_seconds

    with failing(f"{option} ", ValueError, to=WrongUsage):
        return parse_seconds(text)


def moment(option: str, text: str, past: bool = False) -> float:
    """Read a time in seconds since the epoch, as sbatch does: ``2026-05-01T16:00``, ``now+1h``, ``tomorrow``, the next ``16:00``.

    With `past`, ``16:00`` is the last one, and ``1h`` an hour ago. What was before the epoch is 0. Raises Failure.
    """
    found, here = _moment(text, past), f"{option}{' ' * bool(option)}{text!r}"
    if found is None:
        raise WrongUsage(f"{here} is not a time: write {'2h' if past else 'now+1h'}, 16:00, 2026-05-01 or 2026-05-01T16:00")
    if found >= LATEST:
        raise WrongUsage(f"{here} is too far away: write a time before the year 5000")
    return max(0.0, found)


def _moment(text: str, past: bool) -> float | None:
    from datetime import datetime, timedelta

    from fairlead.model.quantity import parse_seconds

    now = datetime.now()
    written = NAMED_TIMES.get(text.strip().lower(), text.strip())
    with contextlib.suppress(ValueError, OverflowError):
        if past and re.fullmatch(r"(?![0-9]{8}$)[0-9.]+ *[a-z]*|[0-9]+-[0-9:]+", written):  # 20261101 is a day
            return now.timestamp() - parse_seconds(written)
        if match := re.fullmatch(r"now(?: *\+ *(.+))?", written):
            return now.timestamp() + parse_seconds(match[1] or 0)
        if written in ("today", "tomorrow"):
            day = now.date() + timedelta(written == "tomorrow")
            return datetime(day.year, day.month, day.day).timestamp()
        if match := re.fullmatch(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))? *([ap]m)?", written.lower()):
            hour = int(match[1]) % 12 + 12 * (match[4] == "pm") if match[4] else int(match[1])
            found = now.replace(hour=hour, minute=int(match[2]), second=int(match[3] or 0), microsecond=0)
            return (found + timedelta((found <= now) - past)).timestamp()
        if match := re.fullmatch(r"([0-9]{2})[/.]?([0-9]{2})[/.]?([0-9]{2})", written):  # month, day, year
            written = f"20{match[3]}-{match[1]}-{match[2]}"
        return datetime.fromisoformat(written).timestamp()
    return None


def pairs(option: str, values: Iterable[str]) -> dict[str, str]:
    """Read values of the form NAME=VALUE. Raises Failure."""
    wrong = [value for value in values if not value.partition("=")[0] or "=" not in value]
    if wrong:
        raise WrongUsage(f"{option} {wrong[0]!r}: write NAME=VALUE")
    return {name: value for name, _, value in (pair.partition("=") for pair in values)}


def _variables(values: Iterable[str]) -> dict[str, str]:
    """Read --env; a name without a value takes that of this process."""
    missing = [value for value in values if "=" not in value and value not in os.environ]
    if missing:
        raise WrongUsage(f"--env {missing[0]!r}: this variable is not set here: write NAME=VALUE to set one")
    return pairs("--env", [value if "=" in value else f"{value}={os.environ[value]}" for value in values])


def _after(values: Iterable[str]) -> list[dict[str, Any]]:
    found = []
    for value in values:
        job, _, how = value.rpartition(":") if value.endswith(ENDS) else (value, "", "success")
        if not job or re.match("[0-9]+:", job):
            raise WrongUsage(f"--after {value!r}: write JOB, JOB:failure, JOB:end, JOB:start or JOB:index, such as train:end")
        found.append({"job": int(job) if re.fullmatch("[0-9]{1,15}", job) else job, "how": how})
    return found
