"""The policies by name: the built-in ones, and the entry points of other packages in the group `fairlead.policies`."""

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points

from fairlead.model.arrays import shown
from fairlead.policies.contract import DividingPolicy, OrderingPolicy, PolicyError

HERE = {
    "drf": ("drf:POLICY", "drf"),
    "hdrf": ("tree:HDRF", "hdrf"),
    "tsf": ("tsf:POLICY", "tsf"),
    "asset": ("asset:policy", "asset[:RESOURCE=WORTH]"),
    "ceei": ("ceei:Ceei", "ceei"),
    "maxmin": ("maxmin:MaxMin", "maxmin:RESOURCE"),
    "slots": ("slots:policy", "slots:K[:overcommit]"),
    "fifo": ("in_turn:FIFO", "fifo"),
    "priority": ("in_turn:PRIORITY", "priority"),
    "tasks": ("tasks:MostTasks", "tasks"),
    "naive": ("tree:NAIVE", "naive"),
    "collapsed": ("tree:COLLAPSED", "collapsed"),
}
"""Policies that divide a problem: name to the policy, or what makes it (``module:name``, imported on use), and syntax."""
ORDERS_ONLY = {
    "fairtree": ("fairtree:policy", "fairtree[:RESOURCE]"),
    "htcondor": ("htcondor:POLICY", "htcondor"),
    "sdrf": ("sdrf:POLICY", "sdrf"),
    "yarn-fair": ("yarn:FAIR", "yarn-fair"),
    "yarn-drf": ("yarn:DRF", "yarn-drf"),
    "mesos": ("mesos:POLICY", "mesos"),
}
"""Policies that only order queues."""
LONGEST = 300
"""Longest name of a policy with its words, in characters."""


def find_policy(written: str, besides: Sequence[str] = ()) -> DividingPolicy:
    """Find a policy: ``drf``, ``maxmin:memory``, ``slots:4``, or one of an installed package.

    `besides` are names that only the caller knows; the error message lists them too. Raises PolicyError for an unknown name, or
    wrong words after it.
    """
    if not isinstance(written, str) or len(written) > LONGEST:
        raise PolicyError(f"{shown(written)} is not a policy: write one as `fairlead policies` lists them")
    name, *words = written.strip().split(":")
    if name in HERE or name in ORDERS_ONLY:
        module, _, function = (HERE | ORDERS_ONLY)[name][0].partition(":")
        make = getattr(import_module(f"fairlead.policies.{module}"), function)
    else:
        others = entry_points(group="fairlead.policies", name=name)
        if not others:
            known = ", ".join([*policy_names(), *ORDERS_ONLY, *besides])
            raise PolicyError(f"there is no policy {name!r}: use one of {known}")
        point = next(iter(others))
        try:
            make = point.load()
        except Exception as error:
            why = f"its module {point.module} cannot be loaded: {type(error).__name__}: {error}"
            raise PolicyError(f"{name}: {why}: mend the package, or name another policy") from None
    try:
        found: DividingPolicy = make(*words) if words or callable(make) else make
    except TypeError:
        raise PolicyError(f"{written!r}: {name} is written {syntax(name)}") from None
    if not hasattr(found, "name") or not (hasattr(found, "divide") or isinstance(found, OrderingPolicy)):
        raise PolicyError(f"{name}: is not a policy: it needs a name, and a method divide(problem) or indivisible(problem)")
    return found


def syntax(name: str) -> str:
    """Return how a policy is written, with its words."""
    return (HERE | ORDERS_ONLY).get(name, ("", name))[1]


def policy_names() -> list[str]:
    """Return the names of the policies that divide, those of other packages last."""
    others = sorted({point.name for point in entry_points(group="fairlead.policies")} - set(HERE) - set(ORDERS_ONLY))
    return [*HERE, *others]
