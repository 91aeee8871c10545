"""Table 2 of the DRF paper (Ghodsi et al., NSDI 2011) for every policy, by search."""

from collections.abc import Callable, Sequence

from fairlead.audit.counterexamples import Verdict, search
from fairlead.audit.findings import PROPERTIES
from fairlead.policies.contract import PolicyError
from fairlead.policies.registry import find_policy, policy_names
from fairlead.processes import on_all_cores

SAMPLES = {"maxmin": "maxmin:cpu", "slots": "slots:4"}
"""Policies that need words after their name."""


def every_policy() -> list[str]:
    """Return all policies with their words, those of other packages last."""
    return [SAMPLES.get(name, name) for name in policy_names()]


def search_all(
    policies: Sequence[str], seed: int, cases: int, zeros: bool = False, told: Callable[[int, int], None] = lambda done, of: None
) -> list[Verdict]:
    """Search for counterexamples to each property of each policy, on all cores; see
    :func:`fairlead.audit.counterexamples.search`.

    `told` is called with the number of finished searches, and of all. Verdicts are by policy, then in the order of PROPERTIES:
    the same on any number of cores. Raises PolicyError for an unknown policy.
    """
    for policy in policies:
        find_policy(policy)
    wanted = [(policy, name, seed, cases, zeros) for policy in policies for name in PROPERTIES]
    found: dict[int, Verdict] = {}
    for place, verdict in on_all_cores(_search, wanted):
        found[place] = verdict
        told(len(found), len(wanted))
    return [found[place] for place in range(len(wanted))]


def search_one(policy: str, name: str, seed: int, cases: int, zeros: bool) -> Verdict:
    """Search for a counterexample by its name, such as ``asset`` and ``sharing-incentive``; PolicyError if it is unknown."""
    if name not in PROPERTIES:
        raise PolicyError(f"there is no property {name!r}: use one of {', '.join(PROPERTIES)}")
    return _search(policy, name, seed, cases, zeros)


def _search(policy: str, name: str, seed: int, cases: int, zeros: bool) -> Verdict:
    try:
        return search(find_policy(policy), name, seed, cases, zeros)
    except PolicyError:
        raise
    except Exception as error:  # a user's own policy must not stop the search of the others
        return Verdict(policy, name, 0, 0, 0.0, error=f"{type(error).__name__}: {error}")
