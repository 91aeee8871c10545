"""Choice of a job's queue by the placement rules of a configuration. The first rule that finds a queue decides.

The right to submit is checked afterwards (:mod:`fairlead.people.rules`): a forbidden queue is no reason to try the next rule.
Without rules a job goes to the queue it names; if it names none, to the only queue of its owner.
"""

from collections.abc import Iterator
from contextlib import suppress

from fairlead.model.documents import check_queue_name
from fairlead.model.specs import ROOT, USERS, Placement, settings_for
from fairlead.people.accounts import Person
from fairlead.people.rules import Caller, Rules, is_their_own, submits
from fairlead.scheduler import admission
from fairlead.scheduler.admission import Refused
from fairlead.scheduler.state import State


def leaf_of(state: State, rules: Rules, caller: Caller, asked: str | None, user: str | None) -> str:
    """Find the leaf queue of a job.

    caller : the submitter
    asked : the requested queue
    user : the user name to submit as, if given

    Raises
    ------
    Refused
        No rule finds a queue, or the leaf does not exist. The message lists valid ones.
    """
    name = user or caller.person.name
    placement = state.settings.placement
    if placement:
        asked = _placed(state, placement, caller.person, name, asked)
    elif asked is None and not rules.personal:
        asked = _usual(state, rules, caller)
    return admission.leaf_for(state, asked, name)


def _usual(state: State, rules: Rules, caller: Caller) -> str:
    """Return the only leaf a person may submit to, or the only personal one of several; raises Refused."""
    person = caller.person
    leaves = [leaf.replace(USERS, person.name) for leaf in admission.declared_leaves(state)]
    theirs = [leaf for leaf in leaves if submits(rules, caller, leaf)]
    for found in (theirs, [leaf for leaf in theirs if is_their_own(rules, person, leaf)]):
        if len(found) == 1:
            return found[0]
    if theirs:
        raise Refused(f"no queue was named: choose one of {admission.some(theirs)}")
    raise Refused(f"no queue was named, and {person.name} may submit to none of these: {admission.some(leaves)}")


def _placed(state: State, rules: list[Placement], person: Person, user: str, asked: str | None) -> str:
    """Return the queue of the first rule that finds one."""
    for rule in rules:
        for queue in _candidates(rule, person, user, asked):
            if rule.create or _is_there(state, queue):
                own = f"{queue}/{user.replace('.', rule.dot)}".lstrip("/") if rule.own else queue
                is_leaf = queue != ROOT and queue in state.tree.declared and queue not in state.tree.inner
                if not rule.own or (not is_leaf and (rule.create_own or _is_there(state, own))):
                    return own
    wanted = f"queue {asked!r}" if asked else "no queue"
    raise Refused(f"{wanted} was requested, and no rule of [[placement]] finds a queue for {user}: name a queue that exists")


def _candidates(rule: Placement, person: Person, user: str, asked: str | None) -> Iterator[str]:
    """Iterate over the queues that a rule may mean, if their names are valid."""
    if rule.by == "asked":
        wanted = (asked or "").strip("/")
        if wanted and wanted not in rule.not_asked:
            yield wanted
        return
    names = {"user": [user], "group": [person.group], "groups": sorted(person.groups - {person.group})}
    for name in names.get(rule.by, [rule.queue]):
        queue = name.replace(".", rule.dot) if rule.by else name
        with suppress(ValueError):  # an account name may be an invalid queue name
            if queue and USERS not in check_queue_name(queue).split("/"):
                yield queue


def _is_there(state: State, queue: str) -> bool:
    """True if a queue is declared, or was created for a person."""
    tree = state.tree
    return queue in tree.declared or (queue in tree.rows and settings_for(queue, tree.declared) is not None)
