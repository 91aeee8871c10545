"""What a call asks for."""

from dataclasses import dataclass, field
from typing import Any

from fairlead.client.jobs import job_request


@dataclass(frozen=True)
class Options:
    """What is asked for with a call. Quantities are numbers or text such as ``"500m"`` and ``"4Gi"``.

    queue : the queue; None for the one that is everybody's own.
    resources : further resources by name.
    on : node labels, each with the value or values that will do.
    retries, time_limit, priority : as for any job; a call that raises has failed.
    """

    queue: str | None = None
    cpu: float | str = 1
    memory: float | str = "1GiB"
    gpu: int = 0
    resources: dict[str, float | str] = field(default_factory=dict)
    priority: int = 0
    retries: int = 0
    time_limit: float | None = None
    on: dict[str, str | list[str]] = field(default_factory=dict)

    def request(self) -> dict[str, Any]:
        """As the API takes it."""
        return job_request(**{name: getattr(self, name) for name in self.__dataclass_fields__})

    def key(self) -> str:
        """The same for options that are the same."""
        return repr(self)
