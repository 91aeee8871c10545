"""Ray programs as jobs: they join the placement group that fairlead made, on the nodes that it chose."""

from fairlead.ray.joined import NotInGroup, inside, session

__all__ = ["NotInGroup", "inside", "session"]
