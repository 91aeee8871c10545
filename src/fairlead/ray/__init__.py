"""Ray programs as jobs: :func:`session` joins the placement group that fairlead made, on the nodes that it chose."""

from fairlead.ray.joined import NotInGroup, session

__all__ = ["NotInGroup", "session"]
