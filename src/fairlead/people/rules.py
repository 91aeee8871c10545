"""Who may do what. Pure functions over the rules of a configuration, a caller, and the job or queue that it is about.

The owner of a job is who submitted it, by name and uid: an account that is given the number or the name of one that is gone
does not inherit its jobs. The admins of a queue, and of those above it, may do with its jobs what
the owners may. The operators see to the whole: its nodes, its configuration, its end; other people's jobs are none of their
business. Root may do all.

Who may submit to a queue is what `submit` says at the nearest of: itself, those above. Where none says anything, nobody may.
A leaf that is there only by a ``*``, which then says what would be said of the leaf itself, is personal: it is for the one whose
name it has, as far as they may submit there, or nothing is said of that.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from fairlead.model.specs import (
    ROOT,
    USERS,
    Bounds,
    Framework,
    Job,
    Queue,
    ancestors,
    path_to_root,
    settings_for,
    written,
)
from fairlead.people.accounts import Person
from fairlead.scheduler.admission import Refused
from fairlead.scheduler.framework_index import holds_jobs_of, queue_of
from fairlead.scheduler.state import State


class Forbidden(Refused):
    """A request of somebody who may not make it; the message says who may."""


class Caller(NamedTuple):
    """Who makes a request: a person, and the limits of the token by which they are known, if it was one.

    queues : what they may do anything with, and what is below; None for all.
    read_only : whether they may look only.
    token : the token's id; None for who is known by the kernel's word.
    """

    person: Person
    queues: tuple[str, ...] | None = None
    read_only: bool = False
    token: str | None = None


class Rules(NamedTuple):
    """What a configuration says of people.

    queues : by name, those that were removed and still have jobs as well.
    operators : names and @groups.
    bounds : by queue, and by ``@default`` for all, what one person may have.
    root_tasks : whether root's own tasks may run.
    personal : whether all belongs to one person, the only one that is let in.
    """

    queues: Mapping[str, Queue]
    operators: tuple[str, ...] = ()
    root_tasks: bool = False
    personal: bool = False
    bounds: Mapping[str, Bounds] = MappingProxyType({})


def rules_of(state: State, personal: bool) -> Rules:
    """The rules that are in force."""
    queues, settings = {**state.tree.removed, **state.tree.declared}, state.settings
    return Rules(queues, tuple(settings.operators), settings.root_tasks, personal, settings.bounds)


def rules_all(rules: Rules, caller: Caller) -> bool:
    """Whether everything is theirs, as far as their token goes: root's, or a personal scheduler's only person's."""
    return rules.personal or caller.person.uid == 0


def operates(rules: Rules, caller: Caller) -> bool:
    """Whether they may do what concerns the whole."""
    if caller.queues is not None:
        return False
    return rules_all(rules, caller) or _named(caller.person, rules.operators)


def reaches(caller: Caller, queue: str) -> bool:
    """Whether their token, if it is one, is for a queue."""
    return caller.queues is None or any(name in path_to_root(queue) for name in caller.queues)


def administers(rules: Rules, caller: Caller, queue: str) -> bool:
    """Whether the jobs of a queue are theirs to change and to read."""
    if not reaches(caller, queue):
        return False
    return rules_all(rules, caller) or any(_named(caller.person, said.admin) for said in _path(rules, queue))


def submits(rules: Rules, caller: Caller, leaf: str) -> bool:
    """Whether they may submit to a leaf queue."""
    if not reaches(caller, leaf):
        return False
    if rules.personal:
        return True
    said = _said_to_submit(rules, leaf)
    if is_personal(rules, leaf):
        return is_named_after(leaf, caller.person) and (said is None or _named(caller.person, said))
    return said is not None and _named(caller.person, said)


def is_their_own(rules: Rules, person: Person, leaf: str) -> bool:
    """Whether a leaf is for a person alone: named after them under a ``*``, or `submit` names nobody else."""
    if is_personal(rules, leaf):
        return is_named_after(leaf, person)
    return _said_to_submit(rules, leaf) == [person.name]


def is_personal(rules: Rules, leaf: str) -> bool:
    """Whether a leaf is one of those that a ``*`` gives to people by their names, and not declared itself."""
    leaf = holds_jobs_of(leaf)
    said = rules.queues.get(leaf)
    if said is not None:
        return said.name.rpartition("/")[2] == USERS  # of one that was removed, what was said of it by the `*`
    return star_of(leaf) in rules.queues


def is_queue(rules: Rules, name: str) -> bool:
    """Whether there is a queue of a name, or may be by a ``*``."""
    return name == ROOT or (USERS not in name.split("/") and settings_for(name, rules.queues) is not None)


def is_named_after(leaf: str, person: Person) -> bool:
    """Whether a leaf has a person's name."""
    return holds_jobs_of(leaf).rpartition("/")[2] == person.name


def acts_on(rules: Rules, caller: Caller, job: Job) -> bool:
    """Whether a job is theirs: to cancel and hold, and to see what it runs, where, and what it wrote."""
    return (_owns(caller, job) and reaches(caller, job.queue)) or administers(rules, caller, job.queue)


def sees_names(rules: Rules, caller: Caller, job: Job) -> bool:
    """Whether they may know what a job is called and whose it is."""
    return acts_on(rules, caller, job) or not _is_private(rules, job.queue)


def seen_queue(rules: Rules, caller: Caller, queue: str) -> str:
    """A queue as they may know it: of a private one not the leaves of others, which are called after them, but itself.

    And as they know it: by the name that they submitted to.
    """
    queue = holds_jobs_of(queue)
    own = is_named_after(queue, caller.person) and reaches(caller, queue)
    if not is_personal(rules, queue) or own or not _is_private(rules, queue) or administers(rules, caller, queue):
        return queue
    return ancestors(queue)[0]


def sees_framework(rules: Rules, caller: Caller, framework: Framework) -> bool:
    """Whether they may know of a framework: in private queues only of their own, and those that are theirs to administer."""
    leaves = [Job(queue_of(role), {}, user=framework.user, uid=framework.uid) for role in framework.roles]
    return all(sees_names(rules, caller, each) for each in leaves)


def check_submits(rules: Rules, caller: Caller, leaf: str, user: str | None) -> str:
    """The name under which they submit to a leaf; raises Forbidden where they may not."""
    name = caller.person.name
    if user is not None and user != name and not rules.personal:
        raise Forbidden(f"you are {name}: nobody can submit as {user!r}")
    if not submits(rules, caller, leaf):
        check_reaches(caller, leaf)
        raise Forbidden(f"{name} may not submit to queue {holds_jobs_of(leaf)!r}: {_who_submits(rules, caller, leaf)}")
    if caller.person.uid == 0 and not (rules.root_tasks or rules.personal):
        raise Forbidden(
            "root's own tasks are not run here: submit as the person whose they are, or let the configuration "
            "say root_tasks = true"
        )
    return user or name


def check_reaches(caller: Caller, queue: str) -> None:
    """Raises Forbidden for a queue that their token, if it is one, is not for."""
    if not reaches(caller, queue):
        raise Forbidden(f"{_token_for(caller)}, not for queue {holds_jobs_of(queue)!r}")


def check_acts(rules: Rules, caller: Caller, number: int, job: Job) -> None:
    """Raises Forbidden for a job that is not theirs."""
    if not acts_on(rules, caller, job):
        if acts_on(rules, caller._replace(queues=None), job):
            raise Forbidden(f"{_token_for(caller)}, and job {number} is in queue {holds_jobs_of(job.queue)!r}")
        whose = f"{job.user}'s" if sees_names(rules, caller, job) else "another person's"
        queue = written(seen_queue(rules, caller, job.queue))
        raise Forbidden(
            f"job {number} is {whose}: it is for them and for the admins of queue {queue!r}, not for {caller.person.name}"
        )


def check_operates(rules: Rules, caller: Caller) -> None:
    """Raises Forbidden for who does not operate the whole."""
    if not operates(rules, caller):
        if operates(rules, caller._replace(queues=None)):
            raise Forbidden(f"{_token_for(caller)}, not to operate the scheduler")
        others = f" and {_some(rules.operators)}" if rules.operators else ""
        raise Forbidden(f"{caller.person.name} does not operate this scheduler: root{others} may do that")


def as_seen(rules: Rules, caller: Caller, job: Job, told: dict[str, Any]) -> dict[str, Any]:
    """What is told of a job, less what they may not know."""
    if acts_on(rules, caller, job):
        return told
    hidden: dict[str, Any] = {"argv": [], "cwd": ""}
    if not sees_names(rules, caller, job):
        hidden |= {"name": "", "user": "", "queue": written(seen_queue(rules, caller, job.queue))}
    return {**told, **hidden}


def _owns(caller: Caller, job: Job) -> bool:
    return job.user == caller.person.name and job.uid in (None, caller.person.uid)


def _named(person: Person, names: Iterable[str]) -> bool:
    return any(name in (USERS, person.name) or (name.startswith("@") and name[1:] in person.groups) for name in names)


def _path(rules: Rules, queue: str) -> Iterable[Queue]:
    """What was said of a queue, or else of the ``*`` that stands for it, and of those above it; the nearest first."""
    queue = holds_jobs_of(queue)
    said = (settings_for(queue, rules.queues), *(rules.queues.get(up) for up in ancestors(queue)))
    return [each for each in said if each is not None]


def _is_private(rules: Rules, queue: str) -> bool:
    return any(said.private for said in _path(rules, queue))


def _said_to_submit(rules: Rules, leaf: str) -> list[str] | None:
    """Whom the nearest `submit` names; None where there is none."""
    return next((said.submit for said in _path(rules, leaf) if said.submit is not None), None)


def star_of(queue: str) -> str:
    """The ``*`` that stands for a queue among its siblings."""
    parent = queue.rpartition("/")[0]
    return f"{parent}/{USERS}" if parent else USERS


def _who_submits(rules: Rules, caller: Caller, leaf: str) -> str:
    if is_personal(rules, leaf) and not is_named_after(leaf, caller.person):
        return "it is the leaf of one person, and that is not you"
    said = _said_to_submit(rules, leaf)
    return f"that is for {_some(said)}" if said else "no `submit` names anybody for it"


def _token_for(caller: Caller) -> str:
    return f"this token is for {_some(caller.queues or ())} only"


def _some(names: Iterable[str]) -> str:
    names = [written(name) if name == ROOT else name for name in names]
    return ", ".join(names[:5]) + ", ..." * (len(names) > 5)
