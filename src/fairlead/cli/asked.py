"""What is asked for with a job: from options, as they are on a command line, in a script or in a file, to requests of the API."""

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
"""What a request or a query calls as options are called."""


def as_typed(message: str) -> str:
    """What a scheduler refused, with the option that was typed for the key that it names: ``--time-limit: ...``."""
    match = re.match(r"(demand: )?([a-z][a-z0-9_./-]*?)(?:\.[\w.-]+)?: ", message)
    if match is None or (match[2] not in OPTIONS and not match[1]):
        return message
    option = match[2].replace("_", "-") if match[2] in OPTIONS else f"resource {match[2]}"
    return f"--{option}: {message[match.end() :]}"


def job_request(asked: Mapping[str, Any]) -> dict[str, Any]:
    """A command to run, as the API takes it; `asked` has the options of `fairlead submit` by name, those that there are."""
    from fairlead.client.environment import BadConfiguration, needed_environment
    from fairlead.client.jobs import encoded

    asked = _with_bundles(asked)
    folder = Path.cwd() if asked["cwd"] is None else Path(asked["cwd"]).absolute()
    try:
        sent = {**needed_environment(), **_variables(asked["env"])}
    except BadConfiguration as error:
        raise Failure(str(error)) from None
    rest = {name: value for name, value in os.environ.items() if asked["export_all"] and name not in sent}
    work = encoded({"argv": asked["command"], "cwd": str(folder), "env": sent, "exported": rest})
    more = {name: asked[name] for name in ("gang", "exit_done", "revocable", "hold", "ray") if asked.get(name)}
    fits = [name for name in ("pack", "spread") if asked.get(name)]
    if len(fits) > 1:
        raise Failure("--pack and --spread: a job's tasks go to the fullest nodes or to the emptiest: say one of them")
    more |= {"fit": fits[0]} if fits else {}
    more |= {"at_most": asked["at_most"]} if asked.get("at_most") is not None else {}
    if asked.get("grace") is not None:
        more["grace"] = seconds("--grace", asked["grace"])
    if asked.get("signal") is not None:
        more["signal"] = asked["signal"]
    return {**demand(asked), **work, "strict": asked["strict"], **more}


def _with_bundles(asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is asked for with the bundles of a program of Ray as tasks that start at once; as it is for other jobs."""
    if not asked.get("ray"):
        for option in ("bundle", "bundles"):
            if asked.get(option):
                raise Failure(f"--{option}: of a program of Ray alone: say --ray as well")
        return asked
    if asked.get("tasks") is not None:
        raise Failure("--tasks: a program of Ray runs once: say --bundles for the size of its placement group")
    found = {**asked, "gang": True, "tasks": asked.get("bundles") or 1}
    bundle = _bundle([each.strip() for each in (asked.get("bundle") or "").split(",") if each.strip()])
    more = [f"{name}={amount}" for name, amount in bundle.items() if name not in ("cpu", "memory", "gpu")]
    found |= {name: bundle[name] for name in ("cpu", "memory", "gpu") if name in bundle}
    return {**found, "resource": [*asked["resource"], *more]}


def _bundle(values: list[str]) -> dict[str, str]:
    """What --bundle says; a Failure where it says one thing twice, or no quantity, which would be told of another option."""
    from fairlead.model.quantity import parse_quantity

    bundle = pairs("--bundle", values)
    if twice := [name for name in bundle if sum(value.partition("=")[0] == name for value in values) > 1]:
        raise Failure(f"--bundle: {twice[0]} is said twice: write it once, with what each bundle is to have")
    for name, amount in bundle.items():
        try:
            parse_quantity(name, amount)
        except ValueError as error:
            raise Failure(f"--bundle: {error}") from None
    return bundle


def demand(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What is asked for of any job, submitted or not."""
    from fairlead.client.jobs import job_request as request

    found = request(
        queue=asked["queue"],
        cpu=asked["cpu"],
        memory=asked["memory"],
        gpu=asked["gpu"],
        resources=pairs("--resource", asked["resource"]),
        priority=asked["priority"],
        retries=asked.get("retries", 0),
        time_limit=seconds("--time-limit", asked["time_limit"]),
        on=labels(asked["on"]),
    )
    found |= {"name": asked["name"], "after": _after(asked.get("after", []))}
    return found if asked.get("tasks") is None else {**found, "tasks": asked["tasks"]}


def labels(values: Iterable[str]) -> dict[str, list[str]]:
    """What --on names."""
    return {label: value.split("|") for label, value in pairs("--on", values).items()}


def seconds(option: str, text: str | None) -> float | None:
    """A length of time as it is written; a Failure where it is none."""
    if text is None:
        return None
    from fairlead.model.quantity import parse_seconds

    try:
        return parse_seconds(text)
    except ValueError as error:
        raise Failure(f"{option} {error}") from None


def pairs(option: str, values: Iterable[str]) -> dict[str, str]:
    """Values of the form NAME=VALUE; a Failure where one is not."""
    wrong = [value for value in values if not value.partition("=")[0] or "=" not in value]
    if wrong:
        raise Failure(f"{option} {wrong[0]!r}: write NAME=VALUE")
    return {name: value for name, _, value in (pair.partition("=") for pair in values)}


def _variables(values: Iterable[str]) -> dict[str, str]:
    """What --env names: with its value, or as it is in this terminal."""
    missing = [value for value in values if "=" not in value and value not in os.environ]
    if missing:
        raise Failure(f"--env {missing[0]!r}: there is no such variable here: write NAME=VALUE to set one")
    return pairs("--env", [value if "=" in value else f"{value}={os.environ[value]}" for value in values])


def _after(values: Iterable[str]) -> list[dict[str, Any]]:
    found = []
    for value in values:
        job, _, how = value.partition(":")
        if not re.fullmatch("[0-9]{1,15}", job) or how not in ("", "success", "failure", "end"):
            raise Failure(f"--after {value!r}: write JOB, JOB:failure or JOB:end, such as 12 or 12:end")
        found.append({"job": int(job), "how": how or "success"})
    return found
