"""Environment variables of a Ray program."""

GROUP_WANTED = "FAIRLEAD_RAY_WANTED"
"""JSON: the bundle, and the node ids, of the placement group to make."""
GROUP = "FAIRLEAD_RAY_GROUP"
"""Id of the placement group."""
