"""The nodes: their specs, total capacity, and which of them meet which constraints."""

from collections import Counter
from collections.abc import Set

import numpy as np
from msgspec import Struct, field

from fairlead.model.cards import cards_of
from fairlead.model.specs import Constraints, Job, Node, as_constraints
from fairlead.scheduler.tables import I64, NONE, Nodes, Offers, vector

ACCOUNT = "account/"
"""Before a user's name: a label of a node where they have no account of theirs; its value says why."""
ONLY_ACCOUNT = "only-account"
"""Label of a node that runs the tasks of one user only."""
OLDER = "older-fairlead"
"""Label of a node whose supervisor cannot start all jobs yet; its value says what it is."""
OPEN_TO, NEWEST = "", "newest"
"""In constraints, instead of a label: the node is to be open to this user; with the word, and not to be an older one."""


class Cluster(Struct, dict=True, forbid_unknown_fields=True):
    """Nodes by name, in the order they joined.

    specs : by row
    constraints : distinct constraints of jobs; the first is none
    masks : bool array, shape (at least constraints, at least nodes): which nodes meet which constraints
    closed : rows of nodes that are up and drain
    capacity : int64 array, shape (resources,): of the nodes that are up
    open : int64 array, shape (resources,): of those that take tasks: what can be guaranteed
    total : int64 array, shape (resources,): `open`, and what is in use on those that drain: what is shared
    closed_to, only_to : users for whom some node is closed, and those for whom alone some node is open
    older : True if some node has an older supervisor
    members : the certificates, as PEM, of the machines that may connect, by the names of their nodes
    node_tokens : until when a machine may join with a token, and as which node, by the hash of its secret
    """

    specs: list[Node] = field(default_factory=list)
    constraints: list[Constraints] = field(default_factory=lambda: [()])
    members: dict[str, str] = field(default_factory=dict)
    node_tokens: dict[str, tuple[float, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rows = {node.name: row for row, node in enumerate(self.specs)}
        self.capacity: I64 = np.zeros(0, np.int64)
        self.open, self.total, self.closed = self.capacity, self.capacity, set[int]()
        self.masks = np.zeros((0, 0), np.bool_)
        self._masks_of = {constraints: row for row, constraints in enumerate(self.constraints)}
        self._account_labels = Counter(label for spec in self.specs for label in _about_accounts(spec.labels))
        self._note_accounts()
        self._fit_masks()

    def join(self, spec: Node, table: Nodes, resources: list[str]) -> int:
        """Add a node, or replace the spec of one that is back; returns its row."""
        row, before = self.rows.get(spec.name), dict[str, str]()
        if row is None:
            row = self.rows[spec.name] = table.extend(1)
            table.hold[row] = table.task[row] = NONE
            self.specs.append(spec)
        else:
            before, self.specs[row] = self.specs[row].labels, spec
            table.free[row] -= table.capacity[row]
            if table.up[row]:
                self.capacity = self.capacity - table.capacity[row]
        capacity = vector(spec.capacity, resources)
        table.capacity[row] = capacity
        table.free[row] += capacity
        table.up[row], table.draining[row], table.forgotten[row] = True, False, False
        was, now = _about_accounts(before), _about_accounts(spec.labels)
        if was != now:
            self._account_labels.subtract(was)
            self._account_labels.update(now)
            self._account_labels = +self._account_labels
            self._note_accounts()
        self._fit_masks()
        for number, constraints in enumerate(self.constraints):
            self.masks[number, row] = meets(spec.labels, constraints)
        self.capacity = self.capacity + capacity
        self.closed.discard(row)
        self.count_closed(table)
        return row

    def count_drained(self, row: int, in_use: Set[int], table: Nodes, resources: list[str]) -> bool:
        """Keep the drained cards of a node that are not `in_use` out of its capacity, as far as it is free.

        So no task is placed for which no card is left. Returns True if that changed the capacity.
        """
        if "gpu" not in resources:
            return False
        gpu, whole = resources.index("gpu"), self.specs[row].capacity.get("gpu", 0)
        free = whole - int(table.capacity[row, gpu] - table.free[row, gpu])
        drained = {*cards_of(table.drained_cards[row].tolist())}
        less = min(1000 * len(drained - in_use), max(0, free))
        change = whole - less - int(table.capacity[row, gpu])
        table.capacity[row, gpu] += change
        table.free[row, gpu] += change
        if change:
            self.count(table)
        return change != 0

    def count(self, table: Nodes) -> None:
        """Recompute the capacity of all nodes."""
        n = table.n
        self.capacity = table.capacity[:n][table.up[:n]].sum(axis=0, dtype=np.int64)
        self.closed = {*np.flatnonzero(table.up[:n] & table.draining[:n]).tolist()}
        self.count_closed(table)

    def count_closed(self, table: Nodes) -> bool:
        """Recompute `open` and `total` after the use of nodes that drain changed. Returns True if the total changed."""
        before, closed = self.total, [*self.closed]
        self.open = self.capacity - table.capacity[closed].sum(axis=0, dtype=np.int64)
        self.total = self.capacity - table.free[closed].sum(axis=0, dtype=np.int64)
        return not np.array_equal(self.total, before)

    def _note_accounts(self) -> None:
        labels = self._account_labels
        self.closed_to = frozenset(name.removeprefix(ACCOUNT) for name, _ in labels if name.startswith(ACCOUNT))
        self.only_to = frozenset(user for name, user in labels if name == ONLY_ACCOUNT)
        self.older = any(name == OLDER for name, _ in labels)

    def constraints_of(self, job: Job) -> Constraints:
        """Return the constraints of a job: its labels, and its user if some node is closed to them or to the job."""
        wanted = list(as_constraints(job.on))
        newest = self.older and needs_newest(job)
        if (newest or job.user in self.closed_to or self.only_to - {job.user}) and not job.framework:
            wanted.append((OPEN_TO, (job.user, NEWEST) if newest else (job.user,)))
        return tuple(sorted(wanted))

    def mask_of(self, constraints: Constraints) -> int:
        """Return the row of `masks` for constraints, created if needed."""
        row = self._masks_of.get(constraints)
        if row is None:
            row = self._masks_of[constraints] = len(self.constraints)
            self.constraints.append(constraints)
            self._fit_masks()
            self._fill(row)
        return row

    def _fit_masks(self) -> None:
        """Grow `masks` to all constraints and nodes, with spare rows and columns."""
        rows, columns = self.masks.shape
        if len(self.constraints) > rows or len(self.specs) > columns:
            self.masks = np.zeros((max(2 * rows, len(self.constraints)), max(2 * columns, len(self.specs), 16)), np.bool_)
            for number in range(len(self.constraints)):
                self._fill(number)

    def _fill(self, number: int) -> None:
        self.masks[number, : len(self.specs)] = [meets(n.labels, self.constraints[number]) for n in self.specs]


def _about_accounts(labels: dict[str, str]) -> list[tuple[str, str]]:
    """Return the labels that say who may use a node; without reasons, of which there may be as many as nodes."""
    return [
        (name, value if name == ONLY_ACCOUNT else "")
        for name, value in labels.items()
        if name in (ONLY_ACCOUNT, OLDER) or name.startswith(ACCOUNT)
    ]


def meets(labels: dict[str, str], constraints: Constraints) -> bool:
    return all(
        labels.get(label) in values if label != OPEN_TO else not why_closed(labels, values[0], NEWEST in values[1:])
        for label, values in constraints
    )


def needs_newest(job: Job) -> bool:
    """Return whether a supervisor of protocol 1 cannot start a job as it should: it does not know all that the job asks for."""
    work = job.work
    return job.fit == "apart" or work.call is not None or work.port is not None or bool(work.idle or work.input)


def why_closed(labels: dict[str, str], user: str, newest: bool = False) -> str:
    """Return why a node takes no tasks of a user, of a job that needs the newest protocol or not; empty if it does."""
    if newest and OLDER in labels:
        return f"runs {labels[OLDER]}, too old for this job: install the scheduler's there and start it again"
    if (only := labels.get(ONLY_ACCOUNT, user)) != user:
        return f"runs only tasks of {only}"
    why = labels.get(f"{ACCOUNT}{user}", "")
    return why and f"has {why} for {user}"


def tasks_that_fit(room: I64, demand: I64, apart: bool = False) -> int:
    """Count the tasks, of some demand, that fit on nodes together, one on each if `apart`. Room is (nodes, resources)."""
    asked = demand > 0
    most = (np.maximum(0, room[:, asked]) // demand[asked]).min(axis=1)
    return int((np.minimum(most, 1) if apart else most).sum())


def offered_of(offers: Offers, nodes: int) -> I64:
    """Return what is offered and unanswered on each node; shape (nodes, resources)."""
    found = np.zeros((nodes, offers.rest.shape[1]), np.int64)
    np.add.at(found, offers.node[: offers.n], offers.rest[: offers.n])
    return found
