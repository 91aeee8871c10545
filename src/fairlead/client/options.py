"""The options of a call."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypedDict, TypeVar

from fairlead.client.jobs import job_request

F = TypeVar("F", bound=Callable[..., Any])


class CallOptions(TypedDict, total=False):
    """The fields of :class:`Options`, for the types of ``**options``; a test compares the two."""

    queue: str | None
    cpu: float | str
    memory: float | str
    gpu: int
    resources: dict[str, float | str]
    priority: int
    retries: int
    time_limit: float | None
    on: dict[str, str | list[str]]
    prefer: dict[str, str | list[str]]
    wait_for_node: bool


@dataclass(frozen=True)
class Options:
    """The options of a call. Quantities are numbers or text such as ``"500m"`` and ``"4Gi"``.

    queue : the queue; None for your own.
    resources : further resources by name.
    on : node labels, with the value or values allowed for each. prefer : the same, for nodes that go before others.
    retries, time_limit, priority : as for jobs; a call that raises has failed.
    wait_for_node : if no node that is up could hold the call, wait for one to join instead of raising ServiceError.
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
    prefer: dict[str, str | list[str]] = field(default_factory=dict)
    wait_for_node: bool = False

    def request(self) -> dict[str, Any]:
        return job_request(**{name: getattr(self, name) for name in self.__dataclass_fields__ if name != "wait_for_node"})

    def are_counted(self) -> bool:
        """Return whether each call is watched by itself, so that none are sent together."""
        return bool(self.retries) or self.time_limit is not None


def names_options(function: F) -> F:
    """Show each option in the signature of a function with ``**options``; type checkers see `CallOptions`."""
    signature = inspect.signature(function)
    named = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=parameter.default, annotation=parameter.annotation)
        for name, parameter in inspect.signature(Options).parameters.items()
    ]
    rest = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    function.__signature__ = signature.replace(parameters=[*rest, *named])  # type: ignore[attr-defined]
    return function
