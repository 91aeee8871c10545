"""Warnings about a valid configuration that is probably a mistake, shown when it is applied."""

from collections.abc import Sequence

from fairlead.model.documents import Configuration
from fairlead.model.quantity import format_quantity, round_quantity
from fairlead.model.specs import USERS, Quantities, Queue, written
from fairlead.people.accounts import Accounts
from fairlead.scheduler.queue_tree import over_committed

MOST_WARNINGS = 10


def configuration_warnings(configuration: Configuration, has: Quantities, accounts: Accounts | None) -> list[str]:
    """Return the first warnings about a configuration, one line each.

    has : the total capacity of all nodes
    accounts : where accounts and groups are looked up, which may block; None on a personal scheduler
    """
    found = []
    if configuration.settings.reserve_after is not None:
        found.append("scheduler.reserve_after is deprecated and ignored: idle_budget bounds what reservations keep idle")
    found += _over_committed(configuration.queues, has)
    found += _of_nothing(configuration.queues, has)
    if accounts is not None:
        found += _unknown_names(configuration, accounts)
    more = [f"and {len(found) - MOST_WARNINGS} more like these"] if len(found) > MOST_WARNINGS else []
    return found[:MOST_WARNINGS] + more


def _over_committed(queues: list[Queue], has: Quantities) -> list[str]:
    """Warn of guarantees that are scaled: they exceed the capacity, or the guarantee of a queue above."""
    found = []
    for queue, resource, guaranteed, there in over_committed(queues, has):
        promised, exists = round_quantity(resource, guaranteed), round_quantity(resource, there)
        if promised == exists:
            promised, exists = format_quantity(resource, guaranteed), format_quantity(resource, there)
        whom = f"queue {written(queue)!r}: is guaranteed {exists} {resource}, and those below it {promised}"
        if not queue:
            whom = f"all queues together are guaranteed {promised} {resource}, but usable nodes have {exists}"
        found.append(f"{whom}: each has {100 * there / guaranteed:.3g}% of its guarantee")
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


def _unknown_names(configuration: Configuration, accounts: Accounts) -> list[str]:
    lists = [
        (f"queue {written(queue.name)!r}: {key}", names)
        for queue in configuration.queues
        for key, names in (("submit", queue.submit or []), ("admin", queue.admin))
    ]
    return [
        f"{where} names {name!r}, {'a group' if name.startswith('@') else 'an account'} that does not exist here"
        for where, names in [*lists, ("operators", configuration.settings.operators)]
        for name in names
        if name != USERS and not accounts.knows(name)
    ]
