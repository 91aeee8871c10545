"""An allocation problem: the capacity, and each user's demand for one task. Made from arrays or from a document.

Numbers are float64, or exact fractions in object arrays. Documents have quantities, kept in base units; arrays have the caller's
units. -1 means "no bound".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import AfterValidator, BeforeValidator, Field

from fairlead.model import arrays, documents
from fairlead.model.faults import shortened
from fairlead.model.quantity import LARGEST, total_of
from fairlead.model.specs import USERS


@dataclass(frozen=True)
class Machines:
    """Machines by kind, and the kinds that each user can use.

    capacity : shape (kinds, resources), of one machine
    count : int64, shape (kinds,)
    allowed : bool, shape (users, kinds)
    """

    capacity: arrays.Numbers
    count: NDArray[np.int64]
    allowed: NDArray[np.bool_]


@dataclass(frozen=True)
class Problem:
    """A capacity, and the users who share it.

    Attributes
    ----------
    resources : tuple of str
    users : sequence of str
    capacity : shape (resources,)
        Of all nodes together.
    demand : shape (users, resources)
        Of one task.
    tasks : shape (users,)
        Tasks that each user can use; -1: any number.
    weight : shape (users, resources)
        Positive; a share of the resource is divided by it.
    guarantee : shape (users, resources)
    limit : shape (users, resources)
        -1: none.
    priority : int64, shape (users,)
    queues : sequence of str
        The queue path of each user; the root is "".
    nodes : int
        Number of equal machines behind the capacity.
    quantities : bool
        True if numbers are base units of the named resources.
    machines : Machines, optional
        Set if machines differ, or a user can use only some of them.
    """

    resources: tuple[str, ...]
    users: Sequence[str]
    capacity: arrays.Numbers
    demand: arrays.Numbers
    tasks: arrays.Numbers
    weight: arrays.Numbers
    guarantee: arrays.Numbers
    limit: arrays.Numbers
    priority: NDArray[np.int64]
    queues: Sequence[str]
    nodes: int = 1
    quantities: bool = False
    machines: Machines | None = None

    @classmethod
    def from_arrays(
        cls,
        capacity: ArrayLike,
        demand: ArrayLike,
        *,
        tasks: ArrayLike | None = None,
        weight: ArrayLike | None = None,
        guarantee: ArrayLike | None = None,
        limit: ArrayLike | None = None,
        priority: ArrayLike | None = None,
        queues: Sequence[str] | None = None,
        users: Sequence[str] | None = None,
        resources: Sequence[str] | None = None,
        nodes: int = 1,
        machines: Machines | None = None,
    ) -> "Problem":
        """Make a problem from arrays; see the attributes. A weight may be one number per user.

        With `machines`, the capacity is that of all of them together.

        Raises
        ------
        ValueError
            Shapes that do not fit; a number that is NaN, negative, infinite or out of range; an invalid or repeated name; a user
            without a demand. The message names the place: ``user[3].tasks: ...``
        """
        d = np.asarray(demand, None if isinstance(demand, np.ndarray) else object)
        if d.ndim != 2:
            raise arrays.Fault("demand", None, f"has shape {d.shape}, not (users, resources)")
        n, m = d.shape
        if resources is not None:
            arrays.check_list("resources", resources, m, "columns of demand")
        resources = tuple(f"r{j}" for j in range(m)) if resources is None else tuple(resources)
        if not m:
            raise arrays.Fault("capacity", None, "there is nothing to share: name a resource, such as cpu = 9")
        arrays.check_names("resources", resources, _check_name)
        c = capacity if isinstance(capacity, np.ndarray) else np.asarray(capacity, object)
        if c.shape != (m,):
            raise arrays.Fault("capacity", None, f"has shape {c.shape}, not ({m},), the number of resources in demand")
        found = cls(
            resources=resources, users=users if users is not None else _Names(n, "u{}"),
            capacity=arrays.amounts_of("capacity", capacity, (m,), resources),
            demand=arrays.amounts_of("demand", demand, (n, m), resources), tasks=arrays.tasks_of(tasks, n),
            weight=arrays.weights_of(weight, (n, m), resources),
            guarantee=arrays.amounts_of("guarantee", guarantee, (n, m), resources, none=0),
            limit=arrays.amounts_of("limit", limit, (n, m), resources, none=-1), priority=arrays.priorities_of(priority, n),
            queues=queues if queues is not None else _Names(n, ""), nodes=arrays.machines_of(nodes), machines=machines,
        )  # fmt: skip
        if users is not None:
            arrays.check_list("users", users, n, "users")
            arrays.check_names("name", users, _check_name)
        if queues is not None:
            arrays.check_list("queues", queues, n, "users")
            _check_queues(queues)
        if machines is not None and not isinstance(machines, Machines):
            raise arrays.Fault("machines", None, f"{arrays.shown(machines)} is not a Machines object")
        nothing = np.flatnonzero(~(found.demand > 0).any(axis=1))
        if len(nothing):
            raise arrays.Fault("demand", int(nothing[0]), "asks for nothing: name something of some resource")
        if guarantee is not None:
            _check_guarantees(found)
        return found

    def exact(self) -> "Problem":
        """Return the problem in fractions; a float is read as its decimal notation."""
        return self._each(arrays.fractions_of)

    def floats(self) -> "Problem":
        """Return the problem in float64."""
        return self._each(lambda values: values.astype(np.float64))

    def _each(self, change: Callable[[arrays.Numbers], arrays.Numbers]) -> "Problem":
        changed: dict[str, Any] = {name: change(getattr(self, name)) for name in _ARRAYS}
        if self.machines is not None:
            changed["machines"] = replace(self.machines, capacity=change(self.machines.capacity))
        return replace(self, **changed)

    def spread(self) -> float:
        """Return the ratio of the largest to the smallest weighted share that one task takes of a resource."""
        least, largest = np.inf, 0.0
        for j in np.flatnonzero(self.capacity > 0):
            taken, weight = self.demand[:, j], self.weight[:, j]
            parts = (taken if weight.strides == (0,) else taken / weight).astype(np.float64) / float(self.capacity[j])
            largest = max(largest, float(parts.max(initial=0.0)))
            least = min(least, float(parts.min(where=parts > 0, initial=np.inf)))
        return largest / least if largest else 1.0

    def overpromised(self) -> str:
        """Return the first resource whose guarantees exceed the capacity; empty if there is none."""
        near = 1 if self.guarantee.dtype == object else 1 + 1e-9  # float sums are rounded
        over = self.guarantee.sum(axis=0) > self.capacity * near
        return self.resources[int(np.argmax(over))] if len(self.users) and over.any() else ""

    def most(self) -> tuple[arrays.Numbers, NDArray[np.bool_]]:
        """Return each user's most tasks (-1: any number), and True if that is its limit, not its demand."""
        if not (self.limit >= 0).any():
            return self.tasks.copy(), np.zeros(len(self.users), np.bool_)
        bound = tasks_with(np.where(self.limit < 0, np.inf, self.limit), self.demand)
        limited = (bound < np.inf) & ((self.tasks < 0) | (bound < self.tasks))
        return np.where(limited, bound, self.tasks), limited

    def guaranteed(self) -> arrays.Numbers:
        """Return the tasks with which each user reaches its guarantees of all resources that it needs."""
        if not (self.guarantee > 0).any():
            return self.tasks * 0
        return np.divide(self.guarantee, self.demand, out=self.demand * 0, where=self.demand > 0).max(axis=1)

    def promised(self) -> arrays.Numbers:
        """Return the tasks that each user gets before others: those of its guarantee, or its most if that is less."""
        (most, _), guaranteed = self.most(), self.guaranteed()
        return np.where((most >= 0) & (most < guaranteed), most, guaranteed)


_ARRAYS = ("capacity", "demand", "tasks", "weight", "guarantee", "limit")


def tasks_with(amounts: arrays.Numbers, demand: arrays.Numbers) -> arrays.Numbers:
    """Return the tasks that run with some amounts: min over the needed resources, the last axis, of amount / demand."""
    # By column, which numpy reduces faster than many short rows.
    none = np.full(np.broadcast_shapes(amounts.shape, demand.shape), np.inf, amounts.dtype, order="F")
    return np.divide(amounts, demand, out=none, where=demand > 0).min(axis=-1)


class _Names(Sequence[str]):
    """A text with the number of each of n users, made on access."""

    def __init__(self, n: int, text: str) -> None:
        self._n, self._text = n, text

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, i: Any) -> Any:
        found = range(self._n)[i]  # raises IndexError at the end
        return self._text.format(found) if isinstance(found, int) else [*map(self._text.format, found)]


def _check_queues(queues: Sequence[str]) -> None:
    """Raise a fault for the first that is not the queue of a user."""
    there = {""}
    for row, queue in enumerate(queues):
        if queue not in there:
            try:
                _check_place(queue)
            except ValueError as error:
                raise arrays.Fault("queue", row, str(error)) from None
            there.add(queue)


def _check_guarantees(problem: Problem) -> None:
    """Raise a fault for the first guarantee above its user's limit."""
    above = np.argwhere((problem.limit >= 0) & (problem.guarantee > problem.limit))
    if len(above):
        row, j = above[0].tolist()
        raise arrays.Fault("guarantee", row, f"guarantees more {problem.resources[j]} than the limit allows")


def _check_tasks(value: float) -> float:
    if not 0 <= value < LARGEST:  # so that NaN is refused too
        raise ValueError(f"{shortened(str(value))} is not a number of tasks: use 0 or more, below 2**62")
    return value


def _check_name(name: str) -> str:
    if not name.isprintable():
        raise ValueError(f"{name!r} has characters that cannot be printed: choose another name")
    return name


def _check_place(name: str) -> str:
    if documents.check_queue_name(name).endswith(USERS):
        raise ValueError(f"{name!r}: a user of a problem is in one queue: write its own name instead of {USERS!r}")
    return name


Values = Annotated[list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value), Field(min_length=1)]


class UserTable(documents.Table):
    """One user of a problem document."""

    name: Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_check_name)]
    demand: documents.Amounts
    tasks: Annotated[Annotated[int, Field(strict=True)] | documents.Strict, AfterValidator(_check_tasks)] | None = None
    weight: documents.PositiveWeight = 1.0
    guarantee: documents.Amounts = Field(default_factory=dict)
    limit: documents.Amounts = Field(default_factory=dict)
    priority: Annotated[int, Field(ge=-1_000_000, le=1_000_000, strict=True)] = 0
    queue: Annotated[str, AfterValidator(_check_place)] = ""
    on: dict[str, Values] = Field(default_factory=dict)


class ProblemDocument(documents.Table):
    capacity: documents.Amounts | None = None
    user: list[UserTable] = Field(default_factory=list, max_length=1_000_000)
    node: list[documents.NodeTable] = Field(default_factory=list, max_length=documents.MOST_NODES)


def read_problem(source: Path | str | Mapping[str, Any]) -> Problem:
    """Read a problem.toml, or the same document as ``.json`` or as a dictionary.

    Raises DocumentError with the file, the line (for TOML), the key and the remedy of the first few errors.
    """
    if isinstance(source, Mapping):
        path, text, raw = Path("problem"), "", dict(source)
    else:
        path = Path(source)
        text, raw = documents.read_table(path)
    if "queue" in raw and "user" not in raw:
        why = f"{path}: is a scheduler's configuration: an allocation problem has [[user]] in place of [[queue]]"
        raise documents.DocumentError(why)
    document = documents.validated(ProblemDocument, path, text, raw)
    for location, message in _faults(document):
        raise documents.DocumentError(documents.fault(path, text, location, message, ""))
    users = document.user
    if document.capacity is not None:
        total, nodes = document.capacity, 1
    else:
        capacities = ({name: amount * node.count for name, amount in node.capacity.items()} for node in document.node)
        total, nodes = total_of(capacities), sum(node.count for node in document.node)
    resources = tuple(total)

    def table(of: str, absent: int) -> arrays.Numbers:
        rows = [[getattr(user, of).get(name, absent) for name in resources] for user in users]
        return arrays.exact_array(Fraction(x) for row in rows for x in row).reshape(len(users), len(resources))

    weights = [user.weight if isinstance(user.weight, dict) else dict.fromkeys(resources, user.weight) for user in users]
    try:
        found = Problem.from_arrays(
            arrays.exact_array(Fraction(total[name]) for name in resources),
            table("demand", 0),
            tasks=arrays.fractions_of(arrays.exact_array(-1 if user.tasks is None else user.tasks for user in users)),
            weight=arrays.fractions_of(
                np.array([w.get(name, 1.0) for w in weights for name in resources]).reshape(len(users), len(resources))
            ),
            guarantee=table("guarantee", 0),
            limit=table("limit", -1),
            priority=[user.priority for user in users],
            queues=[user.queue for user in users],
            users=[user.name for user in users],
            resources=resources,
            nodes=nodes,
        )
    except arrays.Fault as wrong:
        raise documents.DocumentError(documents.fault(path, text, wrong.place, wrong.message, "")) from None
    return replace(found, quantities=True, machines=_machines(document, resources))


def as_problem(problem: Any) -> Problem:
    """Return a problem itself, or read it from a path or a dictionary. Raises DocumentError."""
    if isinstance(problem, Problem):
        return problem
    if not isinstance(problem, str | Path | Mapping):
        message = f"{arrays.shown(problem)} is not a problem: give a Problem, a path, or a document as a dictionary"
        raise documents.DocumentError(message)
    return read_problem(Path(problem) if isinstance(problem, str) else problem)


def _meets(node: documents.NodeTable, user: UserTable) -> bool:
    """Return True if a user can use a kind of machine."""
    return all(node.labels.get(label) in values for label, values in user.on.items())


def _machines(document: ProblemDocument, resources: tuple[str, ...]) -> Machines | None:
    """Return the kinds of machines; None if all are equal and no user has constraints."""
    kinds, users = document.node, document.user
    if not any(user.on for user in users) and all(node.capacity == kinds[0].capacity for node in kinds):
        return None
    rows = [[Fraction(node.capacity.get(name, 0)) for name in resources] for node in kinds]
    allowed = [[_meets(node, user) for node in kinds] for user in users]
    capacity = arrays.exact_array(x for row in rows for x in row).reshape(len(kinds), len(resources))
    return Machines(capacity, np.array([node.count for node in kinds], np.int64), np.array(allowed, np.bool_))


def _faults(document: ProblemDocument) -> list[tuple[tuple[str | int, ...], str]]:
    """Return the errors of a problem as a whole: place and message."""
    if (document.capacity is None) == (not document.node):
        return [(("capacity",), 'nothing to share: write either capacity = { cpu = 9, memory = "18Gi" } or [[node]] tables')]
    if not document.user:
        return [(("user",), "there are no users: write [[user]] tables with name and demand")]
    there = {*(document.capacity or ()), *(name for node in document.node for name in node.capacity)}
    if not there:
        return [(("capacity",), "there is nothing to share: name a resource, such as cpu = 9")]
    for number, key, message in documents.name_faults(document.node):
        return [(("node", number, key), message)]
    for number, user in enumerate(document.user):
        if user.on and not document.node:
            return [(("user", number, "on"), "there are no machines with labels: write [[node]] tables")]
        for key in ("demand", "guarantee", "limit"):
            unknown = sorted(set(getattr(user, key)) - there)
            if unknown:
                message = f"there is no {unknown[0]!r} to share: use {', '.join(sorted(there))}, or add it to the capacity"
                return [(("user", number, key), message)]
        weighed = sorted(set(user.weight) - there) if isinstance(user.weight, dict) else []
        if weighed:
            return [(("user", number, "weight"), f"there is no {weighed[0]!r} to weigh: use {', '.join(sorted(there))}")]
        if user.on and not any(_meets(node, user) for node in document.node):
            return [(("user", number, "on"), "no [[node]] has these labels: the user could get nothing")]
    return []
