"""Arrays that kernels take beside the view of a state; see `declarations`. Of each its type and its number of dimensions.

Rows of one type are structs in a kernel.
"""

from typing import Any, Final

from fairlead.scheduler.tables import fields

Declared = dict[str, tuple[Any, int]]

PREEMPTION_PLAN: Final[Declared] = {
    "left": ("i8", 2), "bound": ("i8", 2), "kept": ("i8", 2), "room": ("i8", 2), "entitled": ("f8", 1), "above": ("f8", 1),
    "depth": ("i8", 1),
    "runs": (fields(
        task="i8", job="i8", leaf="i8", node="i8", first="i8", last="i8", count="i8", lost="f8", begun="f8", safe="?",
        spare="?", gone="?",
    ), 1),
    "at": ("i8", 1), "by_node": ("i8", 1), "own_child": ("i8", 1), "asks": ("?", 1), "is_eligible_victim": ("?", 1), "had": ("i8", 2),
    "picked": ("i8", 1), "gains": ("i8", 1), "keys": ("f8", 2), "hosts": ("i8", 1), "work": ("i8", 1),
    "rescinded": ("i8", 1),
}  # fmt: skip
"""What there will be, and who may preempt; rows of `runs` are in the order of the tasks, so those of a gang lie together.

left : shape (queues, resources): what they will use, without what is kept for claims; `bound`: without revocable jobs, too
kept : shape (queues, resources): that
room : shape (nodes, resources): free, and not kept for claims
entitled, above : of each queue the dominant share that it is entitled to, and how far it will be above that
depth : of each queue; 0 for the root
runs : task, job, leaf, node: rows; first, last: those that preempt with it; count: how many these are; lost: seconds of all of
    them times the dominant share of one, since they last said that they have kept what they did; begun: seconds; safe: it
    began too short a while ago; spare: of a revocable job; gone: it pays
at, by_node : the runs of node n are by_node[at[n]:at[n + 1]]
own_child : for the claim that is looked at: of each queue above its leaf, the one below it on the way there; NONE
asks : of each queue on that way whether its siblings may be asked
is_eligible_victim : of each leaf
had : shape (queues, resources): what they would have if nobody paid for the claim that is looked at
picked : runs that preempt, so far
gains, keys : of each node, what it would add to the claim, and its place among the nodes
hosts : of each node, tasks of the claim
work : how much may be done yet to find sets that preempt, in all
rescinded : of each offer, whether it is: KEPT, for the claim that is looked at (NOW_RESCINDED), or for one before
"""

TREE: Final[Declared] = {
    "queues": (fields(
        parent="i8", first="i8", last="i8", most="f8", tasks="f8", speed="f8", level="f8", climb="f8", pace="f8", rate="f8",
        low="f8", free="?", rising="?", below="?", promised="?",
    ), 1),
    "demand": ("f8", 2), "weight": ("f8", 2), "guarantee": ("f8", 2), "bound": ("f8", 2), "used": ("f8", 2),
    "growth": ("f8", 2), "needs": ("i8", 2), "capacity": ("f8", 1), "children": ("i8", 1),
}  # fmt: skip
"""What is divided among whom; rows are queues, parents before their children, the root first.

queues
    parent : row; -1 for the root. first, last : its children are `children[first:last]`
    most : tasks that a leaf can use; finite. tasks : that it has. speed : tasks a level; 0: not a leaf that takes part
    level : weighted dominant share. climb : how that changes in a unit of the queue's time: 1, or 0 while it stands
    pace : how much time passes for its children that rise in a unit of its own. rate : of its time in one of the root's
    low : the level of its children that rise; infinite where they rise alone because it stands
    free : it may rise yet. rising : it does among its siblings. below : it has less than it is guaranteed of what it needs.
    promised : some child is below
demand : of one task of a leaf; zeros for inner queues
weight, guarantee, bound : shape (queues, resources); a bound is infinite where there is none, the root's is what there is
used, growth : what it uses, and how that grows in a unit of its time
needs : how many leaves below it that may rise need what
capacity : shape (resources,): what shares are parts of; infinite for what has no share
"""
