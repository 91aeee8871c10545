"""The configuration that a workload is simulated under: from a file, a journal, and assignments of single keys."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from fairlead.model.assignments import as_document, with_changes
from fairlead.model.documents import Configuration, read_configuration, read_table
from fairlead.model.specs import ROOT, Queue, Settings, with_ancestors
from fairlead.policies.registry import find_policy
from fairlead.scheduler.facts import Configured, Fact, NodeDrained, NodeJoined, NodeLost, NodeResumed
from fairlead.simulate.workload import TraceError, Workload, synthetic_nodes

ABOUT_NODES = (NodeJoined, NodeLost, NodeDrained, NodeResumed)


def configured(
    workload: Workload, nodes: int = 0, node: str = "", config: Path | None = None, changes: Sequence[str] = ()
) -> Workload:
    """Give a workload other machines, another configuration, or both.

    The machines are `nodes` of the capacity `node`; with 0, those of the configuration, else of the trace. `config` is a
    fairlead.toml in place of the trace's own configuration, and `changes` are assignments to its keys
    (:mod:`fairlead.model.assignments`). Raises TraceError if a job has no queue there, or `node` is not a capacity; DocumentError
    for an invalid configuration.
    """
    machines = synthetic_nodes(nodes, node) if nodes else []
    if config is not None:
        found = read_configuration(config, find_policy)
        if changes:
            found = with_changes(read_table(config)[1], changes, find_policy)
        _check_queues(workload, config, {queue.name for queue in found.queues})
        workload = reconfigured(replace(workload, changes=without(workload.changes, Configured)), lambda *_: found)
        machines = machines or found.nodes
    elif changes:
        names = workload.leaves if any(change.startswith("queue.") for change in changes) else []
        declared = [Queue(path) for path in sorted(with_ancestors(names) - {ROOT})]
        workload = reconfigured(
            workload, lambda queues, its: with_changes(as_document(queues or declared, its), changes, find_policy)
        )
    return replace(workload, nodes=machines, changes=without(workload.changes, *ABOUT_NODES)) if machines else workload


def without(changes: Sequence[Fact], *kinds: type[Fact]) -> list[Fact]:
    """Return the changes that are not of these kinds."""
    return [fact for fact in changes if not isinstance(fact, kinds)]


def reconfigured(workload: Workload, change: Callable[[list[Queue], Settings], Configuration]) -> Workload:
    """Change a workload's queues and settings, and those that are in force later."""
    found, changes = change(workload.queues, workload.settings), [*workload.changes]
    for place, fact in enumerate(changes):
        if isinstance(fact, Configured):
            then = change(fact.queues, fact.settings)
            changes[place] = Configured(at=fact.at, queues=then.queues, settings=then.settings)
    return replace(workload, queues=found.queues, settings=found.settings, changes=changes)


def _check_queues(workload: Workload, config: Path, declared: set[str]) -> None:
    """Raise TraceError if a job has no leaf queue in a configuration."""
    for name in sorted({*workload.leaves} - declared):
        beside = "/".join([*name.split("/")[:-1], "*"])
        if beside not in declared:
            raise TraceError(f"{config}: has no leaf queue for {name!r} of the trace: declare it, or {beside}")


def own_policy(workload: Workload) -> str:
    """Return the policy at the root of a workload's configuration."""
    return next((queue.policy for queue in workload.queues if queue.name == ROOT and queue.policy), "drf")


NOT_USED = ("operators", "root_tasks", "bounds", "placement", "ports")
"""Settings that decide about people and frameworks, of which a simulation has none."""
NOT_USED_OF_QUEUES = ("submit", "admin", "private")


def unused(workload: Workload, offers: bool) -> list[str]:
    """Return a note on configured keys that a simulation does not use, if there are any."""
    settings, queues, default, plain = workload.settings, workload.queues, Settings(), Queue(ROOT)
    found = [key for key in NOT_USED if getattr(settings, key) != getattr(default, key)]
    found += [key for key in NOT_USED_OF_QUEUES if any(getattr(q, key) != getattr(plain, key) for q in queues)]
    if not offers and settings.offer_timeout != default.offer_timeout:
        found.append("offer_timeout")
    if not offers and (settings.offer_most, *(q.offer_most for q in queues)) != (None,) * (1 + len(queues)):
        found.append("offer")
    if settings.max_jobs_of and not names_users(workload):
        found.append("max_jobs_of, since no job names its user")
    if settings.reserve_after is not None:
        found.append("reserve_after, which is deprecated: idle_budget bounds what reservations keep idle")
    return [f"configuration: a simulation does not use {', '.join(found)}"] if found else []


def names_users(workload: Workload) -> bool:
    """Return True if some job names its user."""
    return any(job.user for job in workload.templates)
