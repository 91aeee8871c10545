"""The nodes: which there are, what they have in all, and which of them meet which constraints."""

import numpy as np
from msgspec import Struct, field

from fairlead.model.specs import Node
from fairlead.scheduler.tables import I64, NONE, Nodes, Offers, vector

Constraints = tuple[tuple[str, tuple[str, ...]], ...]


class Cluster(Struct, dict=True, forbid_unknown_fields=True):
    """Nodes by name, in the order in which they joined.

    Attributes
    ----------
    specs : list of Node
        By row.
    rows : dict of str to int
    constraints : list
        Distinct ones of the jobs; the first is none at all.
    masks : bool array, shape (at least constraints, at least nodes)
        Which nodes meet which.
    total : int64 array, shape (resources,)
        The capacity of the nodes that are up.
    """

    specs: list[Node] = field(default_factory=list)
    constraints: list[Constraints] = field(default_factory=lambda: [()])

    def __post_init__(self) -> None:
        self.rows = {node.name: row for row, node in enumerate(self.specs)}
        self.total: I64 = np.zeros(0, np.int64)
        self.masks = np.zeros((0, 0), np.bool_)
        self._masks_of = {constraints: row for row, constraints in enumerate(self.constraints)}
        self._fit_masks()

    def copy(self) -> "Cluster":
        """Another that knows the same."""
        found = Cluster()
        found.specs, found.rows, found.constraints = list(self.specs), dict(self.rows), list(self.constraints)
        found.total, found.masks, found._masks_of = self.total.copy(), self.masks.copy(), dict(self._masks_of)
        return found

    def join(self, spec: Node, table: Nodes, resources: list[str]) -> int:
        """Add a node, or have it back with what it has now; returns its row."""
        row = self.rows.get(spec.name)
        if row is None:
            row = self.rows[spec.name] = table.extend(1)
            table.hold[row] = table.task[row] = NONE
            self.specs.append(spec)
        else:
            self.specs[row] = spec
            table.free[row] -= table.capacity[row]
            if table.up[row]:
                self.total = self.total - table.capacity[row]
        capacity = vector(spec.capacity, resources)
        table.capacity[row] = capacity
        table.free[row] += capacity
        table.up[row], table.draining[row], table.forgotten[row] = True, False, False
        self._fit_masks()
        for number, constraints in enumerate(self.constraints):
            self.masks[number, row] = meets(spec.labels, constraints)
        self.total = self.total + capacity
        return row

    def count(self, table: Nodes) -> None:
        """Work out what there is in all."""
        n = table.n
        self.total = table.capacity[:n][table.up[:n]].sum(axis=0, dtype=np.int64)

    def mask_of(self, constraints: Constraints) -> int:
        """The row of `masks` for constraints."""
        row = self._masks_of.get(constraints)
        if row is None:
            row = self._masks_of[constraints] = len(self.constraints)
            self.constraints.append(constraints)
            self._fit_masks()
            self._fill(row)
        return row

    def _fit_masks(self) -> None:
        """Have a row for each constraint and a column for each node, and some more."""
        rows, columns = self.masks.shape
        if len(self.constraints) > rows or len(self.specs) > columns:
            self.masks = np.zeros(
                (max(2 * rows, len(self.constraints)), max(2 * columns, len(self.specs), 16)), np.bool_
            )
            for number in range(len(self.constraints)):
                self._fill(number)

    def _fill(self, number: int) -> None:
        self.masks[number, : len(self.specs)] = [meets(n.labels, self.constraints[number]) for n in self.specs]


def meets(labels: dict[str, str], constraints: Constraints) -> bool:
    """Whether a node with such labels will do."""
    return all(labels.get(label) in values for label, values in constraints)


def tasks_that_fit(room: I64, demand: I64) -> int:
    """How many tasks nodes have room for, all together: shapes (nodes, resources) and (resources,); something is asked for."""
    asked = demand > 0
    return int((np.maximum(0, room[:, asked]) // demand[asked]).min(axis=1).sum())


def offered_of(offers: Offers, nodes: int) -> I64:
    """What of each of so many nodes is offered to frameworks, and not answered: shape (nodes, resources)."""
    found = np.zeros((nodes, offers.rest.shape[1]), np.int64)
    np.add.at(found, offers.node[: offers.n], offers.rest[: offers.n])
    return found
