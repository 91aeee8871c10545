"""Names of variables in the environment of a program of Ray."""

GROUP_WANTED = "FAIRLEAD_RAY_WANTED"
"""The bundle and the ids of the nodes of the placement group that is to be made, as JSON."""
GROUP = "FAIRLEAD_RAY_GROUP"
"""The id of the placement group that was made."""
