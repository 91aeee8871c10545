"""Check a policy or an allocation for the properties of a fair one: the public face of the room."""

from collections.abc import Mapping
from typing import Any

from fairlead.audit.allocation import check_allocation
from fairlead.audit.counterexamples import Verdict, search
from fairlead.audit.findings import PROPERTIES, Finding
from fairlead.audit.given import give, give_whole, suited, taken
from fairlead.audit.policy import check_policy
from fairlead.model.problems import as_problem
from fairlead.policies.contract import DividingPolicy, OrderingPolicy, PolicyError
from fairlead.policies.registry import find_policy

__all__ = ["PROPERTIES", "Finding", "Verdict", "audit_allocation", "audit_policy", "search"]


def audit_policy(problem: Any, policy: str | DividingPolicy = "drf", *, lies: int = 200, discrete: bool = False) -> list[Finding]:
    """Check a policy on a problem.

    Parameters
    ----------
    problem : Problem, path, or dict
        As for :func:`fairlead.allocate`.
    policy : str or object
    lies : int
        Lies to try per user.
    discrete : bool
        Whole tasks: check only the properties of an allocation, within one task.

    Returns
    -------
    list of Finding
        The eight properties in the order of the paper, then the gap between shares, which is a number, not a property.

    Raises
    ------
    DocumentError, PolicyError
        As for :func:`fairlead.allocate`.

    Examples
    --------
    >>> from fairlead.audit import audit_policy
    >>> for finding in audit_policy("examples/paper.toml", "asset"):
    ...     if finding.holds is False:
    ...         print(finding.property, finding.user)
    resource-monotonicity B
    """
    numbers = as_problem(problem).exact()
    chosen = find_policy(policy) if isinstance(policy, str) else policy
    numbers = suited(numbers, chosen)
    if not discrete:
        return check_policy(numbers, lambda p: give(p, chosen), lies)
    if not isinstance(chosen, OrderingPolicy):
        raise PolicyError(f"{chosen.name}: has no order for indivisible tasks: leave out discrete")
    return check_allocation(give_whole(numbers, chosen))


def audit_allocation(problem: Any, tasks: Mapping[str, Any], *, discrete: bool = False) -> list[Finding]:
    """Check an allocation from any source.

    Parameters
    ----------
    problem : Problem, path, or dict
    tasks : dict
        The number of tasks of each user: whole numbers, fractions, or decimals, which count as accurate to 1e-6.
    discrete : bool
        True if tasks are whole: fair then means within one task.

    Returns
    -------
    list of Finding
        Sharing incentive, envy-freeness, Pareto efficiency, and the gap between shares.
    """
    numbers = as_problem(problem).exact()
    return check_allocation(taken(numbers, [tasks[user] for user in numbers.users], discrete))
