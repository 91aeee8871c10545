"""Hides leaves in private queues, which bear people's names: other people see the queue above instead.

:mod:`fairlead.people.rules` handles single queues and jobs. This file handles whole answers, with tables and texts.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.model.api_types import UsedBy
from fairlead.model.specs import Job, holds_jobs_of, written
from fairlead.model.used import together
from fairlead.people.rules import Caller, Rules, as_seen, seen_queue

_NAME = re.compile(r"[\w.@+/-]*\w")


def hidden_leaves(rules: Rules, caller: Caller, names: Iterable[str]) -> dict[str, str]:
    """Return the queues whose names the caller may not see, each with the name to show instead."""
    if not any(said.private for said in rules.queues.values()):
        return {}
    seen = {name: seen_queue(rules, caller, name) for name in names}
    return {name: written(other) for name, other in seen.items() if other != holds_jobs_of(name)}


def without(told: Any, hidden: Mapping[str, str]) -> Any:
    """Remove the rows of hidden leaves from an answer, and replace their names in texts."""
    if not hidden:
        return told
    if isinstance(told, dict):
        return {key: without(value, hidden) for key, value in told.items() if key not in hidden}
    if isinstance(told, list):
        rows = [each for each in told if not (isinstance(each, dict) and {each.get("name"), each.get("queue")} & {*hidden})]
        return [without(each, hidden) for each in rows]
    if isinstance(told, str):
        return _NAME.sub(lambda found: hidden.get(found[0], found[0]), told)
    return told


def job_as_seen(rules: Rules, caller: Caller, job: Job, told: Any) -> Any:
    """Return a job's description as the caller may see it, including the queue that its tasks were preempted for."""
    found = as_seen(rules, caller, job, told)
    if found["revoked"] is not None:
        found = {**found, "revoked": without(found["revoked"], hidden_leaves(rules, caller, [found["revoked"]["queue"]]))}
    return found


def used_as_seen(rules: Rules, caller: Caller, rows: Iterable[UsedBy]) -> list[UsedBy]:
    """Return usage by user and queue, with hidden leaves merged into the queue shown instead."""
    found: dict[tuple[str, str, str | None, int | None], UsedBy] = {}
    for row in rows:
        name = written(seen_queue(rules, caller, row["queue"]))
        key = (name, row["user"], row["day"], row["job"])
        found[key] = together(found[key], row) if key in found else {**row, "queue": name}
    return list(found.values())
