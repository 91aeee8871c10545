"""Authorization: who may do what. Pure functions over a configuration's rules, a caller, and the job or queue concerned.

- The **owner** of a job is its submitter, by name and uid. An account that reuses a name or a uid does not inherit jobs.
- The **admins** of a queue and of those above it may do with its jobs what the owners may.
- The **operators** manage nodes, configuration and shutdown, but not other people's jobs.
- **Root** may do everything.

The nearest `submit` list, of the queue or of one above it, decides who may submit; without one, nobody may. A leaf that exists
only through a ``*`` is personal: it takes the settings of the ``*``, and only the person of its name may use it. A `submit` list
that applies must name them too.

Leaves in private queues bear people's names: other people see the queue above instead, in whole answers too.
"""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from fairlead.model.api_types import AuditEntry, UsedBy
from fairlead.model.specs import ROOT, USERS, Bounds, Framework, Job, Queue, holds_jobs_of, path_to_root, settings_for, written
from fairlead.model.used import together
from fairlead.people.accounts import Person
from fairlead.scheduler.admission import Refused
from fairlead.scheduler.framework_index import queue_of
from fairlead.scheduler.state import State

_NAME = re.compile(r"[\w.@+/-]*\w")


class Forbidden(Refused):
    """A request that the caller may not make; the message states who may."""


class Caller(NamedTuple):
    """A person who makes a request, and the limits of their token, if they use one.

    queues : the queues they may use, with all below them; None for all.
    read_only : True if they may only read.
    token : the token's id; None if the kernel identified them.
    """

    person: Person
    queues: tuple[str, ...] | None = None
    read_only: bool = False
    token: str | None = None


class Rules(NamedTuple):
    """What a configuration says about people.

    queues : by name, including removed ones that still have jobs.
    operators : names and @groups.
    bounds : what one person may have, by queue, and by ``@default`` in total.
    root_tasks : True if root's own tasks may run.
    personal : True if the scheduler belongs to one person, the only caller it accepts.
    """

    queues: Mapping[str, Queue]
    operators: tuple[str, ...] = ()
    root_tasks: bool = False
    personal: bool = False
    bounds: Mapping[str, Bounds] = MappingProxyType({})


def rules_of(state: State, personal: bool) -> Rules:
    queues, settings = {**state.tree.removed, **state.tree.declared}, state.settings
    return Rules(queues, tuple(settings.operators), settings.root_tasks, personal, settings.bounds)


def rules_all(rules: Rules, caller: Caller) -> bool:
    """True for root and for the owner of a personal scheduler, within the limits of their token."""
    return rules.personal or caller.person.uid == 0


def operates(rules: Rules, caller: Caller) -> bool:
    """True if the caller may manage the scheduler as a whole."""
    if caller.queues is not None:
        return False
    return rules_all(rules, caller) or _named(caller.person, rules.operators)


def reaches(caller: Caller, queue: str) -> bool:
    """True if the caller's token, if any, covers a queue."""
    return caller.queues is None or any(name in path_to_root(queue) for name in caller.queues)


def administers(rules: Rules, caller: Caller, queue: str) -> bool:
    """True if the caller may read and change all jobs of a queue."""
    if not reaches(caller, queue):
        return False
    return rules_all(rules, caller) or any(_named(caller.person, said.admin) for said in _path(rules, queue))


def submits(rules: Rules, caller: Caller, leaf: str) -> bool:
    """True if the caller may submit to a leaf queue."""
    if not reaches(caller, leaf):
        return False
    if rules.personal:
        return True
    said = _said_to_submit(rules, leaf)
    if is_personal(rules, leaf):
        return is_named_after(leaf, caller.person) and (said is None or _named(caller.person, said))
    return said is not None and _named(caller.person, said)


def is_their_own(rules: Rules, person: Person, leaf: str) -> bool:
    """True if only this person may submit to a leaf: it bears their name under a ``*``, or `submit` names only them."""
    if is_personal(rules, leaf):
        return is_named_after(leaf, person)
    return _said_to_submit(rules, leaf) == [person.name]


def is_personal(rules: Rules, leaf: str) -> bool:
    """True if a leaf exists only through a ``*``, which gives each person one."""
    said = settings_for(holds_jobs_of(leaf), rules.queues)  # a removed leaf keeps the settings of its `*`
    return said is not None and said.name.rpartition("/")[2] == USERS


def is_queue(rules: Rules, name: str) -> bool:
    """True if a queue of this name exists, or a ``*`` allows it."""
    return name == ROOT or (USERS not in name.split("/") and settings_for(name, rules.queues) is not None)


def is_named_after(leaf: str, person: Person) -> bool:
    return holds_jobs_of(leaf).rpartition("/")[2] == person.name


def acts_on(rules: Rules, caller: Caller, job: Job) -> bool:
    """True if the caller may cancel and hold a job, and see its command, folder, nodes and output."""
    owns = job.user == caller.person.name and job.uid in (None, caller.person.uid)
    return (owns and reaches(caller, job.queue)) or administers(rules, caller, job.queue)


def sees_names(rules: Rules, caller: Caller, job: Job) -> bool:
    """True if the caller may see a job's name and owner."""
    return acts_on(rules, caller, job) or not _is_private(rules, job.queue)


def seen_queue(rules: Rules, caller: Caller, queue: str) -> str:
    """Return a queue's name as the caller may see it: under the name they submitted to.

    Other people's leaves in a private queue bear their names, so the caller sees the private queue instead.
    """
    queue = holds_jobs_of(queue)
    own = is_named_after(queue, caller.person) and reaches(caller, queue)
    if not is_personal(rules, queue) or own or not _is_private(rules, queue) or administers(rules, caller, queue):
        return queue
    return path_to_root(queue)[1]


def sees_framework(rules: Rules, caller: Caller, framework: Framework) -> bool:
    """True if the caller may see a framework; in private queues only their own, and those of queues they administer."""
    leaves = [Job(queue_of(role), {}, user=framework.user, uid=framework.uid) for role in framework.roles]
    return all(sees_names(rules, caller, each) for each in leaves)


def sees_entry(rules: Rules, caller: Caller, entry: AuditEntry, job: Job | None) -> bool:
    """True if the caller may see an entry of the audit log: their own, one about a job or queue of theirs, or any for operators.

    With a token for some queues, only entries about those.
    """
    here = caller.queues is None or (entry["queue"] is not None and reaches(caller, entry["queue"]))
    if operates(rules, caller) or (entry["by"] == caller.person.name and here):
        return True
    if job is not None:
        return acts_on(rules, caller, job)
    return entry["queue"] is not None and administers(rules, caller, entry["queue"])


def check_submits(rules: Rules, caller: Caller, leaf: str, user: str | None) -> str:
    """Return the user name to submit under; raises Forbidden if the caller may not submit to the leaf."""
    name = caller.person.name
    if user is not None and user != name and not rules.personal:
        raise Forbidden(f"you are {name}: nobody can submit as {user!r}")
    if not submits(rules, caller, leaf):
        check_reaches(caller, leaf)
        raise Forbidden(f"{name} may not submit to queue {holds_jobs_of(leaf)!r}: {_who_submits(rules, caller, leaf)}")
    if caller.person.uid == 0 and not (rules.root_tasks or rules.personal):
        raise Forbidden(
            "root's own tasks do not run here: submit as the person they belong to, or set root_tasks = true in the configuration"
        )
    return user or name


def check_reaches(caller: Caller, queue: str) -> None:
    """Raise Forbidden if the caller's token does not cover a queue."""
    if not reaches(caller, queue):
        raise Forbidden(f"{_token_for(caller)}, not for queue {holds_jobs_of(queue)!r}")


def check_acts(rules: Rules, caller: Caller, number: int, job: Job) -> None:
    """Raise Forbidden if the caller may not act on a job."""
    if not acts_on(rules, caller, job):
        if acts_on(rules, caller._replace(queues=None), job):
            raise Forbidden(f"{_token_for(caller)}, and job {number} is in queue {holds_jobs_of(job.queue)!r}")
        whose = f"{job.user}'s" if sees_names(rules, caller, job) else "another person's"
        queue = written(seen_queue(rules, caller, job.queue))
        message = f"job {number} is {whose}: only they and the admins of queue {queue!r} may do that, not {caller.person.name}"
        raise Forbidden(message)


def check_operates(rules: Rules, caller: Caller) -> None:
    """Raise Forbidden if the caller is no operator."""
    if not operates(rules, caller):
        if operates(rules, caller._replace(queues=None)):
            raise Forbidden(f"{_token_for(caller)}, not to operate the scheduler")
        others = f" and {_some(rules.operators)}" if rules.operators else ""
        raise Forbidden(f"{caller.person.name} does not operate this scheduler: only root{others} may do that")


def _named(person: Person, names: Iterable[str]) -> bool:
    return any(name in (USERS, person.name) or (name.startswith("@") and name[1:] in person.groups) for name in names)


def _path(rules: Rules, queue: str) -> Iterable[Queue]:
    """Return the settings of a queue, or of the ``*`` that covers it, and of its ancestors, nearest first."""
    queue, *above = path_to_root(holds_jobs_of(queue))
    said = (settings_for(queue, rules.queues), *map(rules.queues.get, above))
    return [each for each in said if each is not None]


def _is_private(rules: Rules, queue: str) -> bool:
    return any(said.private for said in _path(rules, queue))


def _said_to_submit(rules: Rules, leaf: str) -> list[str] | None:
    """Return the nearest `submit` list; None without one."""
    return next((said.submit for said in _path(rules, leaf) if said.submit is not None), None)


def _who_submits(rules: Rules, caller: Caller, leaf: str) -> str:
    if is_personal(rules, leaf) and not is_named_after(leaf, caller.person):
        return "it is another person's personal leaf"
    said = _said_to_submit(rules, leaf)
    return f"only {_some(said)} may" if said else "no `submit` names anybody for it"


def _token_for(caller: Caller) -> str:
    return f"this token is for {_some(caller.queues or ())} only"


def _some(names: Iterable[str]) -> str:
    names = [written(name) for name in names]
    return ", ".join(names[:5]) + ", ..." * (len(names) > 5)


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
    found = told
    if not acts_on(rules, caller, job):
        found = {**told, "argv": [], "cwd": ""}
        if not sees_names(rules, caller, job):
            found |= {"name": "", "group": "", "user": "", "queue": written(seen_queue(rules, caller, job.queue))}
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
