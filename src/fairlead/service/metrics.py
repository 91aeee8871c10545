"""Prometheus metrics: counters and timings of the scheduler, and the current usage of queues and nodes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, cast

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from fairlead.model.api_types import CardInfo, NodeInfo, QueueInfo, ReservationInfo
from fairlead.model.quantity import BYTE_RESOURCES
from fairlead.model.specs import Quantities
from fairlead.scheduler.facts import Fact, JobSubmitted, Outcome, TasksFinished, TasksPlaced, TasksRevoked

_FAST = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)

registry = CollectorRegistry()
decide_seconds = Histogram("fairlead_decide_seconds", "One decision.", buckets=_FAST, registry=registry)
commit_seconds = Histogram("fairlead_commit_seconds", "One commit to the journal.", buckets=_FAST, registry=registry)
step_seconds = Histogram("fairlead_step_seconds", "One step: observe, decide, record, act.", buckets=_FAST, registry=registry)
journal_lag = Gauge(
    "fairlead_journal_lag_seconds", "Age of the oldest unwritten fact; more than 0 when stalled.",
    registry=registry,
)  # fmt: skip
disk_free = Gauge("fairlead_disk_free_bytes", "Free space on the disk of the data folder.", registry=registry)
reserve = Gauge("fairlead_reserve_bytes", "Disk space reserved for when the disk is full.", registry=registry)
paused = Gauge("fairlead_paused_tasks", "Tasks paused because the disk has no room for their output.", registry=registry)
output_waiting = Gauge(
    "fairlead_output_waiting", "Tasks whose output is yet to be copied to the configured storage.", registry=registry
)
output_away = Gauge(
    "fairlead_output_away_seconds", "For how long that storage has been unavailable; 0 if it is not.", registry=registry
)
questions = Gauge("fairlead_questions_waiting", "Requests that wait for the scheduler's thread.", registry=registry)
outlooks = Counter(
    "fairlead_outlooks", "Jobs with a predicted start that started, by whether it was within the interval.", ["within"],
    registry=registry,
)  # fmt: skip
_submitted = Counter("fairlead_tasks_submitted", "Tasks submitted.", registry=registry)
_placed = Counter("fairlead_tasks_placed", "Placements decided.", registry=registry)
_revoked = Counter("fairlead_tasks_revoked", "Tasks revoked.", registry=registry)
_revoked_for = Counter(
    "fairlead_tasks_revoked_for", "Tasks revoked for others, by why: guarantee, fair share, priority.", ["why"],
    registry=registry,
)  # fmt: skip
_ended = Counter("fairlead_attempts_ended", "Attempts that ended, by outcome.", ["outcome"], registry=registry)
_facts = Counter("fairlead_facts", "Facts recorded.", registry=registry)


def timed(what: str) -> AbstractContextManager[object]:
    return {"decide": decide_seconds, "commit": commit_seconds}[what].time()


def count(facts: Sequence[Fact]) -> None:
    _facts.inc(len(facts))
    for fact in facts:
        match fact:
            case JobSubmitted(job=job):
                _submitted.inc(job.tasks)
            case TasksPlaced(job=jobs):
                _placed.inc(len(jobs))
            case TasksRevoked(job=jobs, claim=claim):
                _revoked.inc(len(jobs))
                if claim is not None:
                    _revoked_for.labels(claim.why).inc(len(jobs))
            case TasksFinished(outcome=outcome):
                for kind, number in enumerate(np.bincount(outcome)):
                    if number:
                        _ended.labels(Outcome(kind).name.lower()).inc(int(number))


def exposition(
    queues: Iterable[QueueInfo],
    nodes: Iterable[NodeInfo],
    idled: Iterable[dict[str, Any]] = (),
    reservations: Iterable[ReservationInfo] = (),
    cards: Mapping[str, Iterable[CardInfo]] = MappingProxyType({}),
) -> bytes:
    """Return all metrics in Prometheus' text format; `idled` and `reservations` come from the scheduler's reports."""
    now = CollectorRegistry()
    now.register(_Shares(queues, nodes))
    now.register(_Cards(cards))
    now.register(_Promises(idled, reservations))
    return generate_latest(registry) + generate_latest(now)


class _Shares:
    """Gauges of queues and nodes, in cores, bytes and devices, not thousandths."""

    def __init__(self, queues: Iterable[QueueInfo], nodes: Iterable[NodeInfo]) -> None:
        self._queues, self._nodes = queues, nodes

    def collect(self) -> Iterator[Metric]:
        share = GaugeMetricFamily("fairlead_queue_dominant_share", "Weighted dominant share.", labels=["queue"])
        running = GaugeMetricFamily("fairlead_queue_running_tasks", "Tasks that hold resources.", labels=["queue"])
        waiting = GaugeMetricFamily("fairlead_queue_waiting_tasks", "Tasks that wait.", labels=["queue"])
        labels = ["queue", "resource"]
        used = GaugeMetricFamily("fairlead_queue_used", "What a queue uses, and is offered.", labels=labels)
        offered = GaugeMetricFamily("fairlead_queue_offered", "Resources in unanswered offers to frameworks.", labels=labels)
        fair = GaugeMetricFamily(
            "fairlead_queue_fair_share", "What a queue should have: steady, instantaneous, within_demand.",
            labels=["queue", "resource", "kind"],
        )  # fmt: skip
        claims = GaugeMetricFamily(
            "fairlead_queue_claims", "1 if pending jobs of a queue may preempt others, by why.", labels=["queue", "why"]
        )
        for queue in self._queues:
            name = queue["name"]
            for why in queue["claims"]:
                claims.add_metric([name, why], 1)
            share.add_metric([name], queue["dominant_share"])
            running.add_metric([name], queue["running"])
            waiting.add_metric([name], queue["waiting"])
            for resource, amount in queue["used"].items():
                used.add_metric([name, resource], _in_units(resource, amount))
            for resource, amount in queue["offered"].items():
                offered.add_metric([name, resource], _in_units(resource, amount))
            for kind, amounts in queue["fair_share"].items():
                for resource, amount in cast("Quantities", amounts).items():
                    fair.add_metric([name, resource, kind], _in_units(resource, amount))
        yield from (share, running, waiting, used, offered, fair, claims)
        up = GaugeMetricFamily("fairlead_node_up", "1 if a node is up.", labels=["node"])
        capacity = GaugeMetricFamily("fairlead_node_capacity", "What a node has.", labels=["node", "resource"])
        taken = GaugeMetricFamily("fairlead_node_used", "What is used of a node.", labels=["node", "resource"])
        for node in self._nodes:
            up.add_metric([node["name"]], node["status"] != "lost")
            for resource, amount in node["capacity"].items():
                capacity.add_metric([node["name"], resource], _in_units(resource, amount))
                taken.add_metric([node["name"], resource], _in_units(resource, node["used"].get(resource, 0)))
        yield from (up, capacity, taken)


class _Cards:
    """Accelerator cards: whose each is."""

    def __init__(self, cards: Mapping[str, Iterable[CardInfo]]) -> None:
        self._cards = cards

    def collect(self) -> Iterator[Metric]:
        labels = ["node", "card", "status", "queue", "user", "job"]
        found = GaugeMetricFamily("fairlead_node_card", "1 for each card of a node, with who has it.", labels=labels)
        for node, cards in self._cards.items():
            for card in cards:
                whose = [card["queue"] or "", card["user"] or "", str(card["job"] or "")]
                found.add_metric([node, str(card["card"]), card["status"], *whose], 1)
        yield found


class _Promises:
    """Reservations: for whom, when they are expected to be used, and the free resources idle for them."""

    def __init__(self, idled: Iterable[dict[str, Any]], reservations: Iterable[ReservationInfo]) -> None:
        self._idled, self._reservations = idled, reservations

    def collect(self) -> Iterator[Metric]:
        total = CounterMetricFamily(
            "fairlead_queue_idled", "Free resources kept for jobs of a queue, times seconds.",
            labels=["queue", "resource"],
        )  # fmt: skip
        for queue in self._idled:
            for resource, amount in queue["idled"].items():
                total.add_metric([queue["name"], resource], _in_units(resource, 3600 * amount))
        labels = ["job", "queue", "why"]
        start = GaugeMetricFamily(
            "fairlead_reservation_start_seconds", "When a reservation is expected to be used.", labels=labels
        )
        slips = GaugeMetricFamily("fairlead_reservation_slips", "How often that was postponed.", labels=labels)
        idle = GaugeMetricFamily("fairlead_reservation_idle", "Free resources kept for a job now.", labels=[*labels, "resource"])
        so_far = GaugeMetricFamily("fairlead_reservation_idled", "The same so far, times seconds.", labels=[*labels, "resource"])
        for kept in self._reservations:
            whose = [str(kept["job"]), kept["queue"], kept["why"]]
            start.add_metric(whose, kept["start"])
            slips.add_metric(whose, kept["slips"])
            for resource, now in kept["idle"].items():
                idle.add_metric([*whose, resource], _in_units(resource, now))
            for resource, amount in kept["idled"].items():
                so_far.add_metric([*whose, resource], _in_units(resource, 3600 * amount))
        yield from (total, start, slips, idle, so_far)


def _in_units(resource: str, amount: float) -> float:
    return amount if resource in BYTE_RESOURCES else amount / 1000
