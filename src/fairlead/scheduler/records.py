"""The records of a state: its tables, and their rows by name. The order and the kernels see only this part of a state."""

from math import inf, nan

import numpy as np

from fairlead.model.specs import Settings
from fairlead.scheduler import tables
from fairlead.scheduler.cluster import Cluster
from fairlead.scheduler.framework_index import Frameworks
from fairlead.scheduler.queue_tree import QueueTree


class Records:
    """The tables, and queues, nodes and frameworks by name.

    resources : the columns of every array of quantities
    nodes, queues, shapes, groups, jobs, tasks, holds, offers, refusals, hours, histograms : tables: see
        :mod:`fairlead.scheduler.tables`
    tree, cluster, frameworks : queues, nodes and frameworks by name
    ended : int64 array: the numbers of the jobs that have ended, oldest end first
    times : float64 array: time of the first fact, of the next change of history, ...: see :mod:`fairlead.scheduler.kernel.view`
    grain : int64 array: binary digits that history drops, by resource: see `kernel/history.pxi`
    moves : counts how often an array was replaced
    """

    def __init__(self) -> None:
        self.resources: list[str] = []
        self.moves = [0]
        self.nodes, self.queues, self.shapes = tables.Nodes(self.moves), tables.Queues(self.moves), tables.Shapes(self.moves)
        self.groups, self.jobs, self.tasks = tables.PendingGroups(self.moves), tables.Jobs(self.moves), tables.Tasks(self.moves)
        self.holds, self.histograms = tables.Holds(self.moves), tables.DurationHistograms(self.moves)
        self.offers, self.refusals, self.hours = tables.Offers(self.moves), tables.Refusals(self.moves), tables.Hours(self.moves)
        self.tree, self.cluster, self.frameworks = QueueTree(), Cluster(), Frameworks()
        self.ended: tables.I64 = np.zeros(0, np.int64)
        self.times: tables.F64 = np.array(
            [nan, -inf, inf, -inf, -inf, inf, Settings().idle_budget, -inf, -inf, -inf, -inf, -inf, inf, -inf, -inf]
        )
        self.grain: tables.I64 = np.zeros(0, np.int64)
