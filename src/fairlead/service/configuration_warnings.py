"""Warnings about a valid configuration that is probably a mistake, shown when it is applied."""

from collections.abc import Iterable, Mapping, Sequence

from fairlead.model.documents import Configuration, promised_below
from fairlead.model.quantity import format_quantity
from fairlead.model.specs import USERS, Quantities, Queue, ancestors, written
from fairlead.people.accounts import Accounts
from fairlead.scheduler.queue_tree import amounts_of
from fairlead.scheduler.tables import vector

MOST_WARNINGS = 10


def configuration_warnings(configuration: Configuration, has: Quantities, accounts: Accounts | None) -> list[str]:
    """Return the first warnings about a configuration, one line each.

    Parameters
    ----------
    has : Quantities
        The total capacity of all nodes.
    accounts : Accounts or None
        Where accounts and groups are looked up, which may block; None on a personal scheduler.
    """
    found = _promised_beyond(configuration.queues, has) + _promised_below(configuration.queues, has)
    found += _of_nothing(configuration.queues, has)
    if accounts is not None:
        found += _unknown_names(configuration, accounts)
    more = [f"and {len(found) - MOST_WARNINGS} more like these"] if len(found) > MOST_WARNINGS else []
    return found[:MOST_WARNINGS] + more


def _promised_beyond(queues: Sequence[Queue], has: Quantities) -> list[str]:
    """Warn of guarantees beyond the capacity: of one queue, or of all together."""
    found = []
    for queue in queues:
        for resource, amount in queue.guarantee.items():
            if amount > has.get(resource, 0):
                found.append(f"queue {written(queue.name)!r}: is guaranteed {_beyond(resource, amount, has)}")
    for resource, amount in _promised(queues).items():
        if amount > has.get(resource, 0) and not any(
            queue.guarantee.get(resource, 0) > has.get(resource, 0) for queue in queues
        ):
            found.append(f"all queues together are guaranteed {_beyond(resource, amount, has)}")
    return found


def _promised_below(queues: Sequence[Queue], has: Quantities) -> list[str]:
    """Warn if the guarantees below a queue exceed its own with these nodes; otherwise the file would be refused."""
    found, resources = [], sorted(has)
    total, below = vector(has, resources), promised_below(queues)
    for queue in queues:
        if not (queue.guarantee or queue.guarantee_percent):
            continue
        own = amounts_of(queue.guarantee, queue.guarantee_percent, resources, total, 0)
        for k, resource in enumerate(resources):
            theirs = [
                amounts_of(each.guarantee, each.guarantee_percent, resources, total, 0)[k]
                for each in below.get(queue.name, [])
            ]
            if sum(theirs) > own[k] > 0:
                amounts = [format_quantity(resource, int(amount)) for amount in (sum(theirs), own[k])]
                found.append(
                    f"queue {written(queue.name)!r}: is guaranteed {amounts[1]} {resource}, and those below it {amounts[0]}: "
                    "the excess holds only among them"
                )
    return found


def _of_nothing(queues: Sequence[Queue], has: Quantities) -> list[str]:
    """Warn of weights and limits on a resource that no node has."""
    found = []
    for queue in queues:
        weights = queue.weight if isinstance(queue.weight, dict) else {}
        for key, said in (("weight", weights), ("limit", queue.limit)):
            for resource in [resource for resource in said if not has.get(resource)]:
                found.append(f"queue {written(queue.name)!r}: {key} names {resource!r}, which no node has")
    return found


def _beyond(resource: str, amount: int, has: Quantities) -> str:
    there = format_quantity(resource, has.get(resource, 0))
    return f"{format_quantity(resource, amount)} {resource}, but all nodes together have {there}: it cannot be met"


def _promised(queues: Sequence[Queue]) -> Quantities:
    """Return the sum of all topmost guarantees; those below are part of them."""
    guaranteed = {queue.name: queue.guarantee for queue in queues if queue.guarantee}
    found: Quantities = {}
    for name, guarantee in guaranteed.items():
        for resource, amount in guarantee.items():
            if not any(resource in guaranteed.get(up, {}) for up in ancestors(name)):
                found[resource] = found.get(resource, 0) + amount
    return found


def _unknown_names(configuration: Configuration, accounts: Accounts) -> list[str]:
    found = []
    for queue in configuration.queues:
        lists = {"submit": queue.submit or [], "admin": queue.admin}
        found += [f"queue {written(queue.name)!r}: {text}" for text in _unknown(lists, accounts)]
    return found + list(_unknown({"operators": configuration.settings.operators}, accounts))


def _unknown(lists: Mapping[str, Iterable[str]], accounts: Accounts) -> Iterable[str]:
    for key, names in lists.items():
        for name in names:
            if name != USERS and not accounts.knows(name):
                kind = "a group" if name.startswith("@") else "an account"
                yield f"{key} names {name!r}, {kind} that does not exist here"
