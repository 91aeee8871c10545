"""Prometheus metrics: counters and timings of the scheduler, and the current usage of queues and nodes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from fairlead.model.api_types import NodeListed, QueueInfo, ReservationInfo
from fairlead.model.quantity import BYTE_RESOURCES
from fairlead.model.specs import Quantities
from fairlead.scheduler.facts import Fact, JobSubmitted, Outcome, TasksFinished, TasksPlaced, TasksRevoked, TasksStarted
from fairlead.scheduler.state import State

_FAST = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)

registry = CollectorRegistry()
_counter, _gauges = partial(Counter, registry=registry), partial(Gauge, registry=registry)
_times = partial(Histogram, buckets=_FAST, registry=registry)

decide_seconds = _times("fairlead_decide_seconds", "One decision.")
commit_seconds = _times("fairlead_commit_seconds", "One commit to the journal.")
step_seconds = _times("fairlead_step_seconds", "One step: observe, decide, record, act.")
_start_seconds = Histogram(
    "fairlead_start_seconds", "From a job's submission to the first start of each of its tasks.", registry=registry,
    buckets=(*_FAST, 60, 600, 3600, 6 * 3600, 24 * 3600),
)  # fmt: skip
journal_lag = _gauges("fairlead_journal_lag_seconds", "Age of the oldest unwritten fact; more than 0 when stalled.")
disk_free = _gauges("fairlead_disk_free_bytes", "Free space on the disk of the data folder.")
reserve = _gauges("fairlead_reserve_bytes", "Disk space reserved for when the disk is full.")
paused = _gauges("fairlead_paused_tasks", "Tasks paused because the disk has no room for their output.")
output_waiting = _gauges("fairlead_output_waiting", "Tasks whose output is yet to be copied to the configured storage.")
output_away = _gauges("fairlead_output_away_seconds", "For how long that storage has been unavailable; 0 if it is not.")
questions = _gauges("fairlead_questions_waiting", "Requests that wait for the scheduler's thread.")
outlooks = _counter(
    "fairlead_outlooks", "Jobs with a predicted start that started, by whether it was within the interval.", ["within"]
)
_submitted = _counter("fairlead_tasks_submitted", "Tasks submitted.")
_placed = _counter("fairlead_tasks_placed", "Placements decided.")
_revoked = _counter("fairlead_tasks_revoked", "Tasks revoked.")
_revoked_for = _counter(
    "fairlead_tasks_revoked_for", "Tasks revoked for others, by why: guarantee, fair share, priority.", ["why"]
)
_ended = _counter("fairlead_attempts_ended", "Attempts that ended, by outcome.", ["outcome"])
_facts = _counter("fairlead_facts", "Facts recorded.")


def timed(what: str) -> AbstractContextManager[object]:
    return {"decide": decide_seconds, "commit": commit_seconds}[what].time()


def count(facts: Sequence[Fact], state: State | None = None) -> None:
    """Count facts; with the state after them, also how long tasks waited for their start."""
    _facts.inc(len(facts))
    for fact in facts:
        match fact:
            case JobSubmitted():
                _submitted.inc(fact.columns.tasks)
            case TasksStarted(at=at, job=jobs, attempt=attempt, ago=ago) if state is not None:
                waited = at - state.jobs.submitted_at[state.job_rows(jobs)] - (ago / 1000 if len(ago) else 0.0)
                for seconds in waited[attempt == 1].tolist():
                    _start_seconds.observe(max(0.0, seconds))
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
    nodes: Iterable[NodeListed],
    idled: Iterable[dict[str, Any]] = (),
    reservations: Iterable[ReservationInfo] = (),
) -> bytes:
    """Return all metrics in Prometheus' text format; `idled` and `reservations` come from the scheduler's reports."""
    return generate_latest(registry) + generate_latest(_Now([*queues], [*nodes], [*idled], [*reservations]))


class _Now(NamedTuple):
    """Gauges of queues, nodes, cards and reservations as they are now, in cores, bytes and devices, not thousandths."""

    queues: list[QueueInfo]
    nodes: list[NodeListed]
    idled: list[dict[str, Any]]
    reservations: list[ReservationInfo]

    def collect(self) -> Iterator[Metric]:
        yield from self._of_queues()
        yield from self._of_nodes()
        yield from self._of_reservations()

    def _of_queues(self) -> Iterator[Metric]:
        all_ = [(queue["name"], queue) for queue in self.queues]
        yield _gauge("queue_dominant_share", "Weighted dominant share.", "queue", ((q, of["dominant_share"]) for q, of in all_))
        yield _gauge("queue_running_tasks", "Tasks that hold resources.", "queue", ((q, of["running"]) for q, of in all_))
        yield _gauge("queue_waiting_tasks", "Tasks that wait.", "queue", ((q, of["waiting"]) for q, of in all_))
        used, offered = (_amounts([((q,), of[what]) for q, of in all_]) for what in ("used", "offered"))
        yield _gauge("queue_used", "What a queue uses, and is offered.", "queue resource", used)
        yield _gauge("queue_offered", "Resources in unanswered offers to frameworks.", "queue resource", offered)
        kinds = [((q, kind), cast("Quantities", amounts)) for q, of in all_ for kind, amounts in of["fair_share"].items()]
        fair = ((q, resource, kind, amount) for q, kind, resource, amount in _amounts(kinds))
        what = "What a queue should have: steady, instantaneous, within_demand."
        yield _gauge("queue_fair_share", what, "queue resource kind", fair)
        what = "1 if pending jobs of a queue may preempt others, by why."
        yield _gauge("queue_claims", what, "queue why", ((q, why, 1) for q, of in all_ for why in of["claims"]))

    def _of_nodes(self) -> Iterator[Metric]:
        all_ = [(node["name"], node) for node in self.nodes]
        known = [(name, node) for name, node in all_ if node["version"] is not None]
        yield _gauge("node_up", "1 if a node is up.", "node", ((name, node["status"] != "lost") for name, node in all_))
        yield _gauge("node_capacity", "What a node has.", "node resource", _amounts(((n,), of["capacity"]) for n, of in all_))
        used = (((name,), {each: node["used"].get(each, 0) for each in node["capacity"]}) for name, node in all_)
        yield _gauge("node_used", "What is used of a node.", "node resource", _amounts(used))
        heard, ahead = ([(name, node[what] or 0.0) for name, node in known] for what in ("heard", "clock_ahead"))
        yield _gauge("node_heard_seconds", "Age of a node's last message.", "node", heard)
        yield _gauge("node_clock_ahead_seconds", "How far a node's clock is ahead of the scheduler's.", "node", ahead)
        version = InfoMetricFamily("fairlead_node", "The version of fairlead on a node.", labels=["node"])
        for name, node in known:
            version.add_metric([name], {"version": str(node["version"])})
        yield version
        cards = [(name, card["card"], card) for name, node in all_ for card in node["cards"]]
        whose = ((n, card, of["status"], of["queue"] or "", of["user"] or "", of["job"] or "", 1) for n, card, of in cards)
        what = "1 for each card of a node, with who has it."
        yield _gauge("node_card", what, "node card status queue user job", whose)
        busy = ((name, card, of["busy"]) for name, card, of in cards if of["busy"] is not None)
        yield _gauge("node_card_busy", "Part of a second in which a card worked.", "node card", busy)
        memory = ((name, card, of["memory_used"]) for name, card, of in cards if of["memory_used"] is not None)
        yield _gauge("node_card_memory_used_bytes", "Memory used of a card.", "node card", memory)

    def _of_reservations(self) -> Iterator[Metric]:
        """For whom resources are reserved, when they are expected to be used, and the free resources idle for them."""
        total = CounterMetricFamily(
            "fairlead_queue_idled", "Free resources kept for jobs of a queue, times seconds.", labels=["queue", "resource"]
        )
        for *whose, amount in _amounts((((queue["name"],), queue["idled"]) for queue in self.idled), 3600):
            total.add_metric(whose, amount)
        yield total
        all_ = [((each["job"], each["queue"], each["why"]), each) for each in self.reservations]
        start, slips = ([(*w, each[what]) for w, each in all_ if each[what] is not None] for what in ("start", "slips"))
        yield _gauge("reservation_start_seconds", "When a reservation is expected to be used.", "job queue why", start)
        yield _gauge("reservation_slips", "How often that was postponed.", "job queue why", slips)
        idle, so_far = _amounts((w, r["idle"]) for w, r in all_), _amounts(((w, r["idled"]) for w, r in all_), 3600)
        yield _gauge("reservation_idle", "Free resources kept for a job now.", "job queue why resource", idle)
        yield _gauge("reservation_idled", "The same so far, times seconds.", "job queue why resource", so_far)


def _gauge(name: str, what: str, labels: str, samples: Iterable[tuple[Any, ...]]) -> GaugeMetricFamily:
    """Return a gauge; each sample has the values of its labels, and its own."""
    found = GaugeMetricFamily(f"fairlead_{name}", what, labels=labels.split())
    for *whose, value in samples:
        found.add_metric([str(each) for each in whose], value)
    return found


def _amounts(by: Iterable[tuple[tuple[Any, ...], Mapping[str, float]]], times: float = 1) -> Iterator[tuple[Any, ...]]:
    units = ((whose, name, amount, 1 if name in BYTE_RESOURCES else 1000) for whose, each in by for name, amount in each.items())
    return ((*whose, name, times * amount / unit) for whose, name, amount, unit in units)
