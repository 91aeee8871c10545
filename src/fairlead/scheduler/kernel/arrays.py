"""Arrays that kernels take besides the view of a state, each with type and number of dimensions; see `declarations`.

Arrays of records are structs in a kernel.
"""

from typing import Any, Final

from fairlead.scheduler.tables import fields

Declared = dict[str, tuple[Any, int]]

PREEMPTION_PLAN: Final[Declared] = {
    "left": ("i8", 2), "bound": ("i8", 2), "kept": ("i8", 2), "room": ("i8", 2), "entitled": ("f8", 1), "above": ("f8", 1),
    "depth": ("i8", 1),
    "runs": (fields(
        task="i8", job="i8", leaf="i8", node="i8", first="i8", last="i8", count="i8", lost="f8", begun="f8", protected="?",
        revocable="?", preempted="?", barred="?", recovering="?",
    ), 1),
    "at": ("i8", 1), "by_node": ("i8", 1), "own_child": ("i8", 1), "asks": ("?", 1), "is_eligible_victim": ("?", 1),
    "had": ("i8", 2), "picked": ("i8", 1), "gains": ("i8", 1), "keys": ("f8", 2), "hosts": ("i8", 1), "work": ("i8", 1),
    "rescinded": ("i8", 1), "wider": ("?", 1),
}  # fmt: skip
"""A preemption plan: the state after preemptions, and who may be preempted.

left : shape (queues, resources): what queues will use, without what is kept for claims
bound : shape (queues, resources): the same without revocable jobs
kept : shape (queues, resources): what is kept for claims
room : shape (nodes, resources): free and not kept for claims
entitled, above : by queue, the dominant share it is entitled to, and how far it will be above that, in 1 / SHARE_STEPS
depth : by queue; 0 for the root
runs : in task order, so those of a gang are adjacent. task, job, leaf, node: rows
    first, last : the runs `first` to `last` are preempted together; `count`: how many
    lost : lost work of all of them, seconds since the last checkpoint times the dominant share of one
    begun : start, seconds; `protected`: by min_runtime
    recovering : preempted as oversized itself before, and has not run its usual time since
    revocable : of a revocable job; `preempted`: in the plan; `barred`: not to be picked, as another is swapped for it
at, by_node : the runs of node n are by_node[at[n]:at[n + 1]]
own_child : for the current claim: of each queue above its leaf, the child on the path; NONE
asks : by queue on that path, True if its siblings may be victims
is_eligible_victim : by leaf
had : shape (queues, resources): what they would have without preemptions for the current claim
picked : the victims so far, rows of `runs`
gains, keys : by node, how many tasks of the claim it would gain, and its sort key
hosts : by node, tasks of the claim
work : runs that may still be looked at to swap victims: in this decision, for this claim
rescinded : by offer: KEPT, NOW_RESCINDED (for the current claim), or RESCINDED (for an earlier one)
wider : shape (1,): True if, for a guarantee, oversized tasks may be victims; by priority, also runs of other leaves
"""

TREE: Final[Declared] = {
    "queues": (fields(
        parent="i8", first="i8", last="i8", most="f8", tasks="f8", speed="f8", level="f8", climb="f8", pace="f8", rate="f8",
        low="f8", free="?", rising="?", below="?", promised="?",
    ), 1),
    "demand": ("f8", 2), "weight": ("f8", 2), "guarantee": ("f8", 2), "bound": ("f8", 2), "used": ("f8", 2),
    "growth": ("f8", 2), "needs": ("i8", 2), "capacity": ("f8", 1), "children": ("i8", 1),
}  # fmt: skip
"""A tree of queues to divide resources among. Rows are queues, parents before their children, the root first.

queues
    parent : row; -1 for the root. first, last : its children are `children[first:last]`
    most : tasks that a leaf can use; finite. tasks : tasks that it has
    speed : tasks per level; 0 for inner queues and leaves that take no part
    level : weighted dominant share. climb : its change per unit of the queue's time: 1, or 0 while it stands
    pace : time of its rising children per unit of its own. rate : its time per unit of the root's
    low : level of its rising children; inf if they rise alone because it stands
    free : may still rise. rising : rises among its siblings. below : has less than its guarantee of what it needs
    promised : some child is below its guarantee
demand : of one task of a leaf; zeros for inner queues
weight, guarantee, bound : shape (queues, resources); bound is inf for no limit, the root's is the capacity
used, growth : what it uses, and the growth per unit of its time
needs : how many leaves below it that may rise need each resource
capacity : shape (resources,): denominators of shares; inf for a resource without shares
"""
