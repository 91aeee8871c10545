"""The table of the DRF paper (Ghodsi et al., NSDI 2011, Table 2), for every policy that there is, found by search."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from fairlead.audit.findings import PROPERTIES
from fairlead.audit.search import Verdict, search
from fairlead.policies.contract import PolicyError
from fairlead.policies.registry import find_policy, policy_names

SAMPLES = {"maxmin": "maxmin:cpu", "slots": "slots:4"}
"""Policies that are written with words after their name."""


def every_policy() -> list[str]:
    """The policies that there are, those of other packages last, as they are tried."""
    return [SAMPLES.get(name, name) for name in policy_names()]


def search_all(
    policies: Sequence[str],
    seed: int = 0,
    cases: int = 600,
    zeros: bool = False,
    told: Callable[[int, int], None] = lambda done, of: None,
) -> list[Verdict]:
    """Search for counterexamples to each property of each policy, on all cores.

    Parameters
    ----------
    policies : list of str
    seed, cases, zeros
        See :func:`fairlead.audit.search.search`.
    told : function
        Called with how many searches are done, of how many.

    Returns
    -------
    list of Verdict
        By policy, then in the order of :data:`fairlead.audit.findings.PROPERTIES`; the same on any number of cores.

    Raises
    ------
    PolicyError
        There is no such policy.
    """
    for policy in policies:
        find_policy(policy)
    wanted = [(policy, name) for policy in policies for name in PROPERTIES]
    found: dict[tuple[str, str], Verdict] = {}
    workers = min(
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, len(wanted)
    )
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(_search, policy, name, seed, cases, zeros): (policy, name) for policy, name in wanted}
        try:
            for future in as_completed(running):
                found[running[future]] = future.result()
                told(len(found), len(wanted))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [found[key] for key in wanted]


def search_one(policy: str, name: str, seed: int = 0, cases: int = 600, zeros: bool = False) -> Verdict:
    """Search for a counterexample by its name, such as ``asset`` and ``sharing-incentive``.

    Raises
    ------
    PolicyError
        There is no such policy or property.
    """
    if name not in PROPERTIES:
        raise PolicyError(f"there is no property {name!r}: use one of {', '.join(PROPERTIES)}")
    return _search(policy, name, seed, cases, zeros)


def _search(policy: str, name: str, seed: int, cases: int, zeros: bool) -> Verdict:
    try:
        return search(find_policy(policy), name, seed, cases, zeros)
    except PolicyError:
        raise
    except Exception as error:  # somebody else's policy: the others are still told of
        return Verdict(policy, name, 0, 0, 0.0, error=f"{type(error).__name__}: {error}")
