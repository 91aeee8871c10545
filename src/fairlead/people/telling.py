"""What is told of the leaves in private queues: their names are those of people, so others are told of the queue above alone.

Single queues and jobs are told by :mod:`fairlead.people.rules`; what is here goes through whole answers, with tables of queues
and sentences about them.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.model.api_types import UsedBy
from fairlead.model.specs import Job, written
from fairlead.model.used import together
from fairlead.people.rules import Caller, Rules, as_seen, seen_queue
from fairlead.scheduler.framework_index import holds_jobs_of

_NAME = re.compile(r"[\w.@+/-]*\w")


def hidden_leaves(rules: Rules, caller: Caller, names: Iterable[str]) -> dict[str, str]:
    """Of these queues those that somebody is not told of by name, each with what they are told instead."""
    if not any(said.private for said in rules.queues.values()):
        return {}
    seen = {name: seen_queue(rules, caller, name) for name in names}
    return {name: written(other) for name, other in seen.items() if other != holds_jobs_of(name)}


def without(told: Any, hidden: Mapping[str, str]) -> Any:
    """An answer without the rows of hidden leaves, and with what is told instead in its sentences."""
    if not hidden:
        return told
    if isinstance(told, dict):
        return {key: without(value, hidden) for key, value in told.items() if key not in hidden}
    if isinstance(told, list):
        rows = [
            each for each in told if not (isinstance(each, dict) and {each.get("name"), each.get("queue")} & {*hidden})
        ]
        return [without(each, hidden) for each in rows]
    if isinstance(told, str):
        return _NAME.sub(lambda found: hidden.get(found[0], found[0]), told)
    return told


def job_as_seen(rules: Rules, caller: Caller, job: Job, told: Any) -> Any:
    """What is told of a job, less what they may not know, also of the queue that tasks of it were revoked for."""
    found = as_seen(rules, caller, job, told)
    if found["revoked"] is not None:
        found = {
            **found,
            "revoked": without(found["revoked"], hidden_leaves(rules, caller, [found["revoked"]["queue"]])),
        }
    return found


def used_as_seen(rules: Rules, caller: Caller, rows: Iterable[UsedBy]) -> list[UsedBy]:
    """What was used by each user in each queue, and of hidden leaves together."""
    found: dict[tuple[str, str], UsedBy] = {}
    for row in rows:
        name = written(seen_queue(rules, caller, row["queue"]))
        key = (name, row["user"])
        found[key] = together(found[key], row) if key in found else {**row, "queue": name}
    return list(found.values())
