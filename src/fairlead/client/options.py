"""What a call asks for."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypedDict, TypeVar

from fairlead.client.jobs import job_request

F = TypeVar("F", bound=Callable[..., Any])


class Asked(TypedDict, total=False):
    """The fields of :class:`Options` as arguments, for whoever reads a signature; a test holds the two to each other."""

    queue: str | None
    cpu: float | str
    memory: float | str
    gpu: int
    resources: dict[str, float | str]
    priority: int
    retries: int
    time_limit: float | None
    on: dict[str, str | list[str]]
    wait_for_node: bool


@dataclass(frozen=True)
class Options:
    """What is asked for with a call. Quantities are numbers or text such as ``"500m"`` and ``"4Gi"``.

    queue : the queue; None for the one that is everybody's own.
    resources : further resources by name.
    on : node labels, each with the value or values that will do.
    retries, time_limit, priority : as for any job; a call that raises has failed.
    wait_for_node : a call that no node that is up could hold, even empty, waits for one to join, instead of raising ServiceError.
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
    wait_for_node: bool = False

    def request(self) -> dict[str, Any]:
        """As the API takes it."""
        asked = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "wait_for_node"}
        return job_request(**asked)

    def key(self) -> str:
        """The same for options that are the same."""
        return repr(self)


def names_options(function: F) -> F:
    """Have `help`, notebooks and `inspect` show each option where a function takes ``**options``; type checkers see `Asked`."""
    signature = inspect.signature(function)
    named = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=parameter.default, annotation=parameter.annotation
        )
        for name, parameter in inspect.signature(Options).parameters.items()
    ]
    rest = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    function.__signature__ = signature.replace(parameters=[*rest, *named])  # type: ignore[attr-defined]
    return function
