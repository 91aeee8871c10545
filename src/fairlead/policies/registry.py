"""The policies by name: those here, and those that other packages offer as entry points in the group `fairlead.policies`."""

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points

from fairlead.model.arrays import shown
from fairlead.policies.contract import DividingPolicy, PolicyError

HERE = {
    "drf": "drf",
    "hdrf": "hdrf",
    "tsf": "tsf",
    "asset": "asset[:RESOURCE=WORTH]",
    "ceei": "ceei",
    "maxmin": "maxmin:RESOURCE",
    "slots": "slots:K[:overcommit]",
    "fifo": "fifo",
    "priority": "priority",
    "tasks": "tasks",
    "naive": "naive",
    "collapsed": "collapsed",
}
"""Those that divide a problem, each with how it is written."""

OVER_TIME = {"fairtree": "fairtree[:RESOURCE]", "htcondor": "htcondor", "sdrf": "sdrf"}
"""Those that go by what was used before, and only order queues; each with how it is written."""

ORDERS_ONLY = {**OVER_TIME, "yarn-fair": "yarn-fair", "yarn-drf": "yarn-drf", "mesos": "mesos"}
"""All that only order queues."""

LONGEST = 300
"""Characters of a policy with its words."""


def find_policy(written: str, besides: Sequence[str] = ()) -> DividingPolicy:
    """Find a policy: ``drf``, ``maxmin:memory``, ``slots:4``, or one that an installed package offers.

    `besides` are others that whoever asks knows, which are named where there is none. Raises PolicyError where there is none, or
    the words after its name are wrong.
    """
    if not isinstance(written, str) or len(written) > LONGEST:
        raise PolicyError(f"{shown(written)} is no policy: write one as `fairlead policies` lists them")
    name, *words = written.strip().split(":")
    if name in HERE or name in ORDERS_ONLY:
        make = import_module(f"fairlead.policies.{name.replace('-', '_')}").policy
    else:
        others = entry_points(group="fairlead.policies", name=name)
        if not others:
            known = ", ".join([*policy_names(), *ORDERS_ONLY, *besides])
            raise PolicyError(f"there is no policy {name!r}: use one of {known}")
        make = next(iter(others)).load()
    try:
        found: DividingPolicy = make(*words)
    except TypeError:
        raise PolicyError(f"{written!r}: {name} is written {(HERE | ORDERS_ONLY).get(name, name)}") from None
    return found


def policy_names() -> list[str]:
    """The names of the policies that divide, those of other packages last."""
    others = sorted({point.name for point in entry_points(group="fairlead.policies")} - set(HERE) - set(ORDERS_ONLY))
    return [*HERE, *others]
