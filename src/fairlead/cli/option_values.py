"""Completes the values of options and arguments in a shell.

A shell offers file names if it gets no completion. So a number or a name gets a blank, which the bash completion in `share/`
removes; other shells need none.
"""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import get_args

import typer

Offer = Callable[..., list[str]]

TIMEOUT_SECONDS = 2.0
"""How long a completion waits for the scheduler."""
MOST_OFFERED = 100
"""Jobs offered, the newest."""


def no_files(incomplete: str) -> list[str]:
    """Offer no file names for a number or a name."""
    return [incomplete or (" " if os.environ.get("_FAIRLEAD_COMPLETE", "").endswith("bash") else "")]


def _matching(values: Iterable[str], incomplete: str) -> list[str]:
    """Return the values that begin with what was typed."""
    return [value for value in values if value.startswith(incomplete)] or no_files(incomplete)


def one_of(*values: str) -> Offer:
    return lambda incomplete: _matching(values, incomplete)


def statuses_of_jobs() -> tuple[str, ...]:
    from fairlead.model.api_types import JobStatus

    return get_args(JobStatus)


def task_statuses(incomplete: str) -> list[str]:
    from fairlead.model.api_types import TaskStatus

    return _matching(get_args(TaskStatus), incomplete)


def some_of(values: Callable[[], Iterable[str]]) -> Offer:
    """Offer values for a list separated by commas."""

    def offer(ctx: typer.Context, incomplete: str) -> list[str]:
        before, comma, _ = incomplete.rpartition(",")
        offered = [f"{before}{comma}{value}" for value in values() if value not in before.split(",")]
        return _matching(offered, incomplete)

    return offer


def policies() -> list[str]:
    from fairlead.policies.registry import policy_names

    return policy_names()


def all_policies() -> list[str]:
    from fairlead.policies.registry import ORDERS_ONLY

    return [*policies(), *ORDERS_ONLY, "fifo-strict", "easy", "conservative"]


def _listed(what: str, key: str = "name", query: str = "") -> Offer:
    """Offer what the scheduler lists, by a key of each; nothing if it does not answer at once."""

    def offer(ctx: typer.Context, incomplete: str) -> list[str]:
        from fairlead.client.connection import Connection
        from fairlead.client.service_error import ServiceError

        if url := ctx.find_root().params.get("url"):
            os.environ["FAIRLEAD_URL"] = url
        found: list[str] = []
        with suppress(ServiceError), Connection(retry_seconds=0, timeout=TIMEOUT_SECONDS) as connection:
            found = [str(each[key]) for each in connection.get(f"/v1/{what}{query}")[what]]
        return _matching(found, incomplete)

    return offer


queues, nodes, jobs = _listed("queues"), _listed("nodes"), _listed("jobs", "id", f"?limit={MOST_OFFERED}")
