"""Turns a job's options, from a command line, a script or a file, into requests of the API."""

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fairlead.cli.failure import Failure

OPTIONS = (
    "cpu", "memory", "gpu", "tasks", "at_most", "name", "priority", "on", "time_limit", "retries", "grace", "signal", "after",
    "queue", "cwd", "env", "status", "user",
)  # fmt: skip
"""Keys of requests and queries that have the name of their option."""


def with_option_names(message: str) -> str:
    """Replace the key that a scheduler's refusal begins with by its option: ``time_limit: ...`` by ``--time-limit: ...``."""
    match = re.match(r"(demand: )?([a-z][a-z0-9_./-]*?)(?:\.[\w.-]+)?: ", message)
    if match is None or (match[2] not in OPTIONS and not match[1]):
        return message
    option = match[2].replace("_", "-") if match[2] in OPTIONS else f"resource {match[2]}"
    return f"--{option}: {message[match.end() :]}"


def job_request(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the API's request for a command; `options` has options of `fairlead submit` by name."""
    from fairlead.client.environment import BadConfiguration, needed_environment
    from fairlead.client.jobs import encoded

    options = _with_bundles(options)
    folder = Path.cwd() if options["cwd"] is None else Path(options["cwd"]).absolute()
    try:
        sent = {**needed_environment(), **_variables(options["env"])}
    except BadConfiguration as error:
        raise Failure(str(error)) from None
    rest = {name: value for name, value in os.environ.items() if options["export_all"] and name not in sent}
    work = encoded({"argv": options["command"], "cwd": str(folder), "env": sent, "exported": rest})
    more = {name: options[name] for name in ("gang", "exit_done", "revocable", "hold", "ray") if options.get(name)}
    fits = [name for name in ("pack", "spread") if options.get(name)]
    if len(fits) > 1:
        raise Failure("--pack and --spread exclude each other: give one of them")
    more |= {"fit": fits[0]} if fits else {}
    more |= {"at_most": options["at_most"]} if options.get("at_most") is not None else {}
    if options.get("grace") is not None:
        more["grace"] = seconds("--grace", options["grace"])
    if options.get("signal") is not None:
        more["signal"] = options["signal"]
    return {**demand(options), **work, "strict": options["strict"], **more}


def _with_bundles(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Turn the bundles of a Ray program into a gang of tasks; leave other jobs unchanged."""
    if not options.get("ray"):
        for option in ("bundle", "bundles"):
            if options.get(option):
                raise Failure(f"--{option}: only for Ray programs: add --ray")
        return options
    if options.get("tasks") is not None:
        raise Failure("--tasks: a Ray program runs once: give the size of its placement group with --bundles")
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
        raise Failure(f"--bundle: {twice[0]} is given twice: give each resource of a bundle once")
    for name, amount in bundle.items():
        try:
            parse_quantity(name, amount)
        except ValueError as error:
            raise Failure(f"--bundle: {error}") from None
    return bundle


def demand(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of the request that submitted and hypothetical jobs share."""
    from fairlead.client.jobs import job_request as request

    check_memory(options["memory"])
    found = request(
        queue=options["queue"],
        cpu=options["cpu"],
        memory=options["memory"],
        gpu=options["gpu"],
        resources=pairs("--resource", options["resource"]),
        priority=options["priority"],
        retries=options.get("retries", 0),
        time_limit=seconds("--time-limit", options["time_limit"]),
        on=labels(options["on"]),
    )
    found |= {"name": options["name"], "after": _after(options.get("after", []))}
    return found if options.get("tasks") is None else {**found, "tasks": options["tasks"]}


def check_memory(text: str) -> None:
    """Raise Failure for memory that no program could run in, which probably lacks its unit."""
    from fairlead.model.quantity import LEAST_MEMORY, parse_quantity

    with contextlib.suppress(ValueError):  # the scheduler says what is wrong with it
        if 0 < parse_quantity("memory", text) < LEAST_MEMORY:
            number = text.strip().rstrip("KMGTikmB ")
            raise Failure(f"--memory {text}: is less than 1Mi, in which no program runs: write {number}Mi or {number}Gi")


def labels(values: Iterable[str]) -> dict[str, list[str]]:
    """Read --on: labels and the values that each may have."""
    return {label: value.split("|") for label, value in pairs("--on", values).items()}


def seconds(option: str, text: str | None) -> float | None:
    """Read a duration. Raises Failure."""
    if text is None:
        return None
    from fairlead.model.quantity import parse_seconds

    try:
        return parse_seconds(text)
    except ValueError as error:
        raise Failure(f"{option} {error}") from None


def pairs(option: str, values: Iterable[str]) -> dict[str, str]:
    """Read values of the form NAME=VALUE. Raises Failure."""
    wrong = [value for value in values if not value.partition("=")[0] or "=" not in value]
    if wrong:
        raise Failure(f"{option} {wrong[0]!r}: write NAME=VALUE")
    return {name: value for name, _, value in (pair.partition("=") for pair in values)}


def _variables(values: Iterable[str]) -> dict[str, str]:
    """Read --env; a name without a value takes that of this process."""
    missing = [value for value in values if "=" not in value and value not in os.environ]
    if missing:
        raise Failure(f"--env {missing[0]!r}: this variable is not set here: write NAME=VALUE to set one")
    return pairs("--env", [value if "=" in value else f"{value}={os.environ[value]}" for value in values])


def _after(values: Iterable[str]) -> list[dict[str, Any]]:
    found = []
    for value in values:
        job, _, how = value.partition(":")
        if not re.fullmatch("[0-9]{1,15}", job) or how not in ("", "success", "failure", "end"):
            raise Failure(f"--after {value!r}: write JOB, JOB:failure or JOB:end, such as 12 or 12:end")
        found.append({"job": int(job), "how": how or "success"})
    return found
