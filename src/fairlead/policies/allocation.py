"""What a policy gives each user of a problem, and why: the answer of :func:`fairlead.allocate`."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from fairlead.charts import Axis, Chart, Series, percent
from fairlead.model.arrays import WIDEST, Numbers, shown
from fairlead.model.problems import Problem, as_problem
from fairlead.model.quantity import BYTE_RESOURCES, is_written_exactly, round_quantity
from fairlead.policies import contract
from fairlead.policies.discrete import Placement, Step, place
from fairlead.policies.filling import ByFilling
from fairlead.policies.registry import ORDERS_ONLY, find_policy
from fairlead.text_tables import folded, printed

if TYPE_CHECKING:
    import pandas

MOST_STEPS_SHOWN = 1000
MOST_IN_FRACTIONS = 1000
"""Most users for whom fractions replace untrustworthy floating point unasked."""
_STOPS = {
    contract.DEMAND: "its demand is met",
    contract.LIMIT: "its limit",
    contract.NOT_TAKEN: "it takes no part",
    contract.SLOT: "no slot left",
}
MOST_SHOWN = 40
"""Most users in a printed table."""
MOST_DRAWN = 60
"""Most users in a plot."""


@dataclass(frozen=True)
class Allocation:
    """Who gets what under one policy.

    Attributes
    ----------
    problem : Problem
    policy : str
    division : Division
        `tasks` has one number per user, in the order of `problem.users`; `prices` are CEEI's.
    indivisible : bool
        True if tasks are whole.
    steps : list of Step
        With whole tasks: one per task.
    """

    problem: Problem
    policy: str
    division: contract.Division
    indivisible: bool = False
    steps: list[Step] = field(default_factory=list)

    @property
    def tasks(self) -> Numbers:
        """Tasks of each user, shape (users,); float64 or fractions."""
        return self.division.tasks

    @cached_property
    def resources(self) -> Numbers:
        """Quantities that each user has, shape (users, resources)."""
        return self.problem.demand * self.tasks[:, None]

    @cached_property
    def shares(self) -> Numbers:
        """Fractions of the capacity, shape (users, resources); 0 of a resource of capacity 0."""
        capacity = self.problem.capacity
        return self.resources / np.where(capacity > 0, capacity, capacity * 0 + 1)

    @cached_property
    def weighted(self) -> Numbers:
        """Shares divided by the weights."""
        return self.shares / self.problem.weight

    @property
    def dominant_shares(self) -> Numbers:
        """The largest weighted share of each user, shape (users,)."""
        return self.weighted.max(axis=1, initial=self.problem.capacity[0] * 0)

    def dominant_resource(self, user: int) -> str:
        """Return the dominant resource of a user, the first among equals. It does not depend on the number of tasks."""
        problem, there = self.problem, self.problem.capacity > 0
        one_task = problem.demand[user] / np.where(there, problem.capacity, 1) / problem.weight[user]
        return problem.resources[int(np.argmax(np.where(there, one_task, -1)))]

    @cached_property
    def used(self) -> Numbers:
        """Use of each resource, shape (resources,)."""
        return self.resources.sum(axis=0) if len(self.tasks) else self.problem.capacity * 0

    @property
    def left(self) -> Numbers:
        """Capacity left of each resource; negative if a policy overcommits it."""
        return self.problem.capacity - self.used

    def stopped_by(self, user: int) -> str:
        """Return why a user has no more: its demand, its limit, or a saturated resource and its round."""
        stop, at = int(self.division.stop[user]), int(self.division.round[user])
        if stop <= contract.NO_SLOT:
            return f"a slot has too little {self.problem.resources[contract.NO_SLOT - stop]} for a task"
        if stop < 0:
            return _STOPS[stop]
        resource = self.problem.resources[stop]
        if self.indivisible:
            apart = self.problem.nodes > 1 and self.left[stop] >= self.problem.demand[user, stop]
            return "no machine has room for another task" if apart else f"too little {resource} for another task"
        return self._saturated(user, stop) + (f" (round {at})" if at else "")

    def _saturated(self, user: int, stop: int) -> str:
        """Describe how a scarce resource stops a user: what is left may be on machines of no use to it."""
        machines, resource = self.problem.machines, self.problem.resources[stop]
        if machines is None or self.division.placed is None:
            return f"{resource} is saturated"
        capacity, mine = machines.capacity[:, stop] * machines.count, machines.allowed[user]
        left = capacity - (self.division.placed * self.problem.demand[:, stop, None]).sum(axis=0)
        close = capacity.sum() * (0 if left.dtype == object else 1e-6)
        if left[mine].sum() > close:
            return "no machine has all that it needs"
        return f"{resource} is saturated" + (" where it may run" if left.sum() > close else "")

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; fractions are strings such as "63/25"."""
        problem = self.problem
        dominant = self.dominant_shares
        users = [
            {
                "name": problem.users[i],
                "tasks": _plain(self.tasks[i]),
                "resources": _named(problem, self.resources[i]),
                "shares": _named(problem, self.shares[i]),
                "dominant_resource": self.dominant_resource(i),
                "dominant_share": _plain(dominant[i]),
                "stopped_by": self.stopped_by(i),
            }
            for i in range(len(self.tasks))
        ]
        resources = [
            {"name": name, "capacity": _plain(problem.capacity[j]), "used": _plain(self.used[j]), "left": _plain(self.left[j])}
            for j, name in enumerate(problem.resources)
        ]
        found: dict[str, Any] = {"policy": self.policy, "users": users, "resources": resources, "notes": self.division.notes}
        if self.division.prices is not None:
            found["prices"] = _named(problem, self.division.prices)
        return found

    def steps_to_list(self) -> list[dict[str, Any]]:
        """Return the steps of whole tasks as plain data for JSON: the user, the machine, and the use after it."""
        users = self.problem.users
        return [
            {"serves": users[step.user], "node": step.node, "used": [_plain(used) for used in step.used]} for step in self.steps
        ]

    def to_frame(self) -> "pandas.DataFrame":
        """Return a pandas data frame, one row per user. Needs pandas: `pip install fairlead[frames]`."""
        import pandas

        columns: dict[str, Any] = {"user": list(self.problem.users), "tasks": self.tasks}
        for j, name in enumerate(self.problem.resources):
            columns[name] = self.resources[:, j]
            columns[f"{name} share"] = self.shares[:, j]
        columns["dominant share"] = self.dominant_shares
        columns["dominant resource"] = [self.dominant_resource(i) for i in range(len(self.tasks))]
        columns["stopped by"] = [self.stopped_by(i) for i in range(len(self.tasks))]
        return pandas.DataFrame(columns).set_index("user")

    def plot(self) -> Chart:
        """Draw the users' shares as stacked bars, as in Figure 3 of the DRF paper. `fairlead.charts.picture` makes a file."""
        return draw([self])[0]

    def __str__(self) -> str:
        return table([self])


def _chosen(policy: Any, placement: object) -> contract.DividingPolicy:
    """Return the policy itself, or the one of that name. Raises PolicyError for an unknown policy or placement."""
    if placement not in get_args(Placement):
        raise contract.PolicyError(f"placement: {shown(placement)}: write one of {', '.join(get_args(Placement))}")
    return policy if hasattr(policy, "name") and not isinstance(policy, str) else find_policy(policy)


def allocate(
    problem: Any,
    policy: str | contract.DividingPolicy = "drf",
    *,
    exact: bool = False,
    discrete: bool = False,
    placement: Placement = "first",
) -> Allocation:
    """Compute a fair allocation.

    Parameters
    ----------
    problem : Problem, path, or dict
        The problem; a path to a problem.toml or .json; or the same document as a dictionary.
    policy : str or object
        A name, such as ``"drf"``, ``"maxmin:memory"`` or ``"slots:4"``; or an object with ``name`` and ``divide(problem)``.
    exact : bool
        Compute in fractions, without rounding. All policies here but CEEI can.
    discrete : bool
        Place whole tasks, one after another (Algorithm 1 of the paper). The answer has the steps.
    placement : {"first", "best", "worst"}
        With `discrete`: which of several machines gets a task.

    Raises
    ------
    DocumentError
        The document is not a valid problem; the message names the key.
    PolicyError
        The policy is unknown, or cannot divide this problem.

    Examples
    --------
    The first example of the paper (Ghodsi et al., NSDI 2011, section 4.1):

    >>> import fairlead
    >>> users = [{"name": "A", "demand": {"cpu": 1, "memory": "4G"}}, {"name": "B", "demand": {"cpu": 3, "memory": "1G"}}]
    >>> found = fairlead.allocate({"capacity": {"cpu": 9, "memory": "18G"}, "user": users})
    >>> found.tasks.tolist()
    [3.0, 2.0]
    """
    problem = as_problem(problem)
    chosen = _chosen(policy, placement)
    if not len(problem.users):
        nobody = contract.Division(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64))
        return Allocation(problem.floats(), chosen.name, nobody)
    _check_policy(problem, chosen, discrete)
    numbers, steps = problem.exact() if exact or discrete else problem.floats(), list[Step]()
    if discrete and isinstance(chosen, contract.OrderingPolicy):
        division, steps = place(numbers, chosen, placement)
    else:
        spread = 1.0 if exact else numbers.spread()
        division = chosen.divide(numbers) if spread <= WIDEST else _divide_wide(chosen, problem, spread)
    if over := numbers.overpromised():
        note = f"more {over} is guaranteed than exists: guarantees are scaled down"
        division = replace(division, notes=[*division.notes, note])
    return Allocation(numbers, chosen.name, division, discrete, steps)


def _check_policy(problem: Problem, chosen: contract.DividingPolicy, discrete: bool) -> None:
    """Raise PolicyError if a policy does not divide a problem so."""
    if chosen.name.partition(":")[0] in ORDERS_ONLY:
        chosen.divide(problem.floats())  # raises, with the reason
    if discrete:
        if not isinstance(chosen, contract.OrderingPolicy):
            raise contract.PolicyError(f"{chosen.name}: has no order for indivisible tasks: leave out discrete")
        return
    if problem.machines is not None and not isinstance(chosen, ByFilling):
        message = f"{chosen.name}: divides only machines that are alike, without constraints: use drf, tsf or asset"
        raise contract.PolicyError(message)
    if not hasattr(chosen, "divide"):
        raise contract.PolicyError(f"{chosen.name}: gives whole tasks only: ask for discrete")


def _divide_wide(chosen: contract.DividingPolicy, problem: Problem, spread: float) -> contract.Division:
    """Divide in fractions, because demands differ too much for floating point; returns float64. Note it if that fails."""
    apart = f"tasks' demands differ by a factor of up to {spread:.0e}: "
    try:
        if len(problem.users) > MOST_IN_FRACTIONS:
            raise contract.PolicyError(f"more than {MOST_IN_FRACTIONS:,} users")
        found = chosen.divide(problem.exact())
    except contract.PolicyError as error:
        found = chosen.divide(problem.floats())
        return replace(found, notes=[*found.notes, f"{apart}floating point may be wrong here; in fractions: {error}"])
    placed = None if found.placed is None else found.placed.astype(np.float64)
    notes = [*found.notes, f"{apart}computed in fractions"]
    return replace(found, tasks=found.tasks.astype(np.float64), placed=placed, notes=notes)


def table(allocations: list[Allocation], width: int = 200) -> str:
    """Format allocations of one problem as text tables, one below another. Narrow terminals get wrapped or split tables."""
    return printed(*table_parts(allocations, width), width=width)


def table_parts(allocations: list[Allocation], width: int) -> list[Any]:
    """Return these tables, and the lines between them."""
    parts: list[Any] = []
    for found in allocations:
        columns, users = _columns(found)
        rows = folded(columns, width, wraps=("user", "stopped by"), ends=(users,))
        parts += ([""] if parts else []) + [found.policy, *rows, *found.division.notes]
    return parts


def _columns(found: Allocation) -> tuple[dict[str, list[str]], int]:
    """Return the columns of an allocation's table, and the number of user rows before the sums."""
    problem, shown = found.problem, range(min(len(found.tasks), MOST_SHOWN))
    more = [f"and {len(found.tasks) - MOST_SHOWN:,} more"] if len(found.tasks) > MOST_SHOWN else []
    below: list[tuple[str, Any]] = [("used", found.used), ("left", found.left)]
    prices = found.division.prices
    if prices is not None:
        below.append(("price of all", prices * problem.capacity))
    empty, dominant = [""] * len(more), found.dominant_shares
    none = [*empty, *[""] * len(below)]
    columns = {
        "user": [*(problem.users[i] for i in shown), *more, *(what for what, _ in below)],
        ">tasks": [*(number(found.tasks[i]) for i in shown), *none],
    }
    for j, name in enumerate(problem.resources):
        sums = [number(of[j]) if what == "price of all" else amount(problem, j, of[j]) for what, of in below]
        columns[f">{name}"] = [*(amount(problem, j, found.resources[i, j]) for i in shown), *empty, *sums]
    columns[">dominant share"] = [*(f"{number(dominant[i])} {found.dominant_resource(i)}" for i in shown), *none]
    columns["stopped by"] = [*map(found.stopped_by, shown), *none]
    return columns, len(shown) + len(more)


def steps_table(found: Allocation, width: int = 200) -> str:
    """Format the steps of whole tasks as Table 1 of the DRF paper."""
    problem = found.problem
    stands = [f"{user} {what}" for user in problem.users for what in ("shares", "dominant")]
    used = [f">{name} used" for name in problem.resources]
    heads = [">step", "serves", *([">node"] if problem.nodes > 1 else []), *stands, *used]
    rows: list[list[str]] = []
    capacity = np.where(problem.capacity > 0, problem.capacity, 1)
    for at, step in enumerate(found.steps[:MOST_STEPS_SHOWN], 1):
        shares = [problem.demand[i] * tasks / capacity for i, tasks in enumerate(step.tasks)]
        cells = []
        for i, share in enumerate(shares):
            cells += ["<" + ", ".join(number(s) for s in share) + ">", number(max(share / problem.weight[i]))]
        parts = [number(u / c) for u, c in zip(step.used, capacity, strict=True)]
        node = [str(step.node)] if problem.nodes > 1 else []
        rows.append([str(at), problem.users[step.user], *node, *cells, *parts])
    columns = {head: [row[k] for row in rows] for k, head in enumerate(heads)}
    wraps = ["serves", *(f"{user} shares" for user in problem.users)]
    return printed(*folded(columns, width, keys=2, wraps=wraps), width=width)


def number(value: Any) -> str:
    """Format a number: short fractions in full, others as ≈ and about four digits. A small number is never shown as 0."""
    exact = isinstance(value, Fraction | int)
    if exact and len(str(value)) <= 15:
        return str(value)
    text = f"{float(value):.4f}".rstrip("0").rstrip(".")
    if text in ("0", "-0"):
        text = f"{float(value):.3g}" if exact and value else "0"
    return f"≈{text}" if exact else text


def amount(problem: Problem, column: int, value: Any) -> str:
    """Format a quantity in its resource's units; a fraction that is rounded gets a ≈."""
    if not problem.quantities:
        return number(value)
    resource = problem.resources[column]
    text = round_quantity(resource, round(value))
    if not isinstance(value, Fraction):
        return text
    if text == "0" and value:
        text = f"{float(value if resource in BYTE_RESOURCES else value / 1000):.3g}"
    return text if is_written_exactly(resource, value, text) else f"≈{text}"


def _plain(value: Any) -> float | str:
    return str(value) if isinstance(value, Fraction) else float(value) + 0.0  # and no -0


def _named(problem: Problem, values: Numbers) -> dict[str, float | str]:
    return {name: _plain(value) for name, value in zip(problem.resources, values, strict=True)}


def draw(allocations: Sequence[Allocation]) -> list[Chart]:
    """Draw allocations of one problem, a chart each, as in Figure 3 of the DRF paper; of many users, the largest."""
    problem = allocations[0].problem
    size = np.sum([found.dominant_shares.astype(float) for found in allocations], axis=0)
    drawn = sorted(sorted(range(len(problem.users)), key=lambda i: -size[i])[:MOST_DRAWN])
    places = range(len(problem.resources))
    return [
        Chart(
            found.policy,
            [Series(problem.users[i], places, found.shares.astype(float)[i], "bar") for i in drawn],
            Axis(names=problem.resources),
            Axis(form=percent),
            stacked=True,
        )
        for found in allocations
    ]
