"""The state machine alone: facts in, facts out, under random histories."""

import os

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from fairlead.model.specs import After, Job, Node, Queue, Settings
from fairlead.scheduler import admission, snapshot
from fairlead.scheduler.decide import decide, settle_first
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import (
    Fact,
    JobCancelled,
    JobEdited,
    JobsDue,
    JobsForgotten,
    JobsPassedOver,
    NodeJoined,
    NodeLost,
    NodesClaimed,
    NodesReserved,
    ReservationDropped,
    SharesLooked,
    TasksCheckpointed,
    TasksFinished,
    TasksPlaced,
    TasksRevoked,
    TasksStarted,
    encode,
)
from fairlead.scheduler.growth import compact
from fairlead.scheduler.reports.preemptions import RevocationCheck
from fairlead.scheduler.snapshot import copy_of
from fairlead.scheduler.statuses import PLACED, RUNNING, SUCCEEDED
from fairlead.simulate.outlook import outlook
from worlds import (
    check_claims_are_served,
    check_invariants,
    placed_keeping_promises,
    placed_naively,
    placements,
    planned_as_naively,
    replay,
    same,
)

RESOURCES = ("cpu", "gpu", "memory")
LEAVES = ("a/x", "a/y", "b", "c/u/v")

amounts = st.fixed_dictionaries({}, optional={r: st.integers(0, 6) for r in RESOURCES})
demands = amounts.filter(lambda d: any(d.values()))
capacities = st.fixed_dictionaries({r: st.sampled_from([0, 0, 0, *range(4, 17)]) for r in RESOURCES})
zones = st.sampled_from(["east", "west"])
policies = st.sampled_from(
    [
        "drf",
        "drf",
        "fifo",
        "priority",
        "asset",
        "maxmin:cpu",
        "maxmin:memory",
        "hdrf",
        "hdrf",
        "ceei",
        "fairtree",
        "htcondor",
        "sdrf",
        "yarn-drf",
        "yarn-drf",
        "yarn-fair",
    ]
)
percent = st.dictionaries(st.sampled_from(["*", *RESOURCES]), st.sampled_from([12.5, 50.0, 100.0]), max_size=2)
histories = st.sampled_from([None, None, 0.0, 1.0, 5.0, 7200.0])
few = st.sampled_from([None, None, None, None, 1, 3])
rarely = st.sampled_from([False] * 9 + [True])
bounds = st.sampled_from([{}, {}, {}, {"k": 2, "*": 5}])


asked_for = st.fixed_dictionaries(
    {
        "queue": st.sampled_from([*LEAVES, "users"]),
        "user": st.sampled_from("kl"),
        "demand": demands,
        "tasks": st.integers(1, 6),
        "priority": st.integers(-1, 1),
        "gang": rarely,
        "on": st.sampled_from([None, None, None, ["east"], ["east", "west"]]),
        "retries": st.sampled_from([0, 0, 0, 1]),
        "time_limit": st.sampled_from([None, None, None, 2.0]),
        "retry_delay": st.sampled_from([0.0, 2.0]),
        "begin": st.sampled_from([None, None, None, 3.0]),
        "name": st.sampled_from(["", "", "p", "q"]),
        "singleton": st.booleans(),
        "after": st.sampled_from([None] * 5 + ["success", "failure", "end", "start", "index"]),
        "at_most": st.sampled_from([None, None, None, 1, 2]),
        "held": rarely,
        "revocable": rarely,
        "led": st.booleans(),
        "fit": st.sampled_from(["", "", "pack", "spread", "apart"]),
    }
)


@st.composite
def trees(draw):
    queues = []
    for name in ("", "a", "c", "c/u", *LEAVES):
        leaf = name in LEAVES
        guarantee, lends = draw(amounts) if leaf else {}, draw(rarely)
        weights = st.floats(0.25, 4) | st.dictionaries(st.sampled_from(RESOURCES), st.floats(0.25, 4)) | st.just(0.0)
        queues.append(
            Queue(
                name,
                weight=draw(weights) if name else 1.0,
                guarantee=guarantee,
                lend={r: draw(st.integers(0, 3)) for r in guarantee} if lends else {},
                limit={k: v + 4 for k, v in draw(amounts).items()} if name and draw(rarely) else {},
                max_jobs=draw(few),
                max_tasks=draw(few) and 8,
                policy="" if leaf else draw(policies | st.just("")),
                history=None if leaf else draw(histories),
                strict=leaf and draw(rarely),
                guarantee_percent=draw(percent) if leaf and draw(rarely) else {},
                limit_percent=draw(percent) if name and draw(rarely) else {},
                guarantee_timeout=draw(st.sampled_from([None, None, 0.0, 3.0])),
                fair_share_timeout=draw(st.sampled_from([None, None, None, 0.0, 2.0])),
                fair_share_threshold=draw(st.sampled_from([None, None, 1.0])),
                min_runtime=draw(st.sampled_from([None, None, 2.0])),
                revocable=not draw(rarely),
                priority_revokes=draw(st.sampled_from([None, None, None, True])) if leaf else None,
            )
        )
    queues.append(Queue("users", policy=draw(policies)))
    queues.append(Queue("users/*", weight=2.0, strict=draw(rarely)))
    return queues


class Histories(RuleBasedStateMachine):
    """Random facts; after each, everything the state says of itself is worked out again from the tasks."""

    @initialize(queues=trees(), idle_budget=st.sampled_from([0.0, 0.02, 0.5]), keep=st.sampled_from([0, 3, 1000]), most=bounds)
    def begin(self, queues, idle_budget, keep, most):
        self.now = 0.0
        self.facts: list[Fact] = []
        self.not_before: dict[tuple[int, int], float] = {}
        self.state = new_state()
        self.prefix = (0, b"")
        self.settings = Settings(idle_budget=idle_budget, max_losses=2, keep_jobs=keep, max_jobs_of=most)
        self.happen(admission.configure(self.state, queues, self.settings, self.now))
        for i in range(2):
            self.join(i, {"cpu": 16, "gpu": 8, "memory": 16}, "east")

    def happen(self, *facts):
        for fact in facts:
            if fact is not None:
                self.facts.append(fact)
                if isinstance(fact, TasksPlaced):
                    placed_keeping_promises(self.state, fact)
                else:
                    apply(self.state, fact)

    @rule(i=st.integers(0, 4), capacity=capacities, zone=zones)
    def join(self, i, capacity, zone):
        name = f"n{i}"
        row = self.state.cluster.rows.get(name)
        if row is None or not self.state.nodes.up[row]:
            self.happen(NodeJoined(at=self.now, node=Node(name, capacity, {"zone": zone})))

    @rule(i=st.integers(0, 4), really=rarely)
    def lose(self, i, really):
        row = self.state.cluster.rows.get(f"n{i}")
        if really and row is not None and self.state.nodes.up[row]:
            self.happen(NodeLost(at=self.now, node=f"n{i}"))

    @rule(i=st.integers(0, 1), away=rarely)
    def drain(self, i, away):
        make = admission.drain if away else admission.resume
        self.happen(make(self.state, f"n{i}", self.now))

    @rule(i=st.integers(0, 1), card=st.integers(0, 7), away=st.booleans())
    def drain_card(self, i, card, away):
        make = admission.drain if away else admission.resume
        self.happen(make(self.state, f"n{i}", self.now, [card], range(8)))

    @rule(jobs=st.lists(asked_for, min_size=1, max_size=8), together=st.booleans())
    def submit(self, jobs, together=False):
        """Submit jobs one by one, or together, which leads to the same state."""
        alone = snapshot.load(snapshot.dump(self.state)) if together else self.state
        kept = []
        for asked in jobs:
            job = self.job_of(**asked)
            try:
                (fact,) = admission.submit(alone, [job], self.now)
            except admission.Refused as refused:
                if "limit" not in str(refused):
                    raise
                continue
            kept.append(job)
            apply(alone, fact) if together else self.happen(fact)
        if together and kept:
            self.happen(*admission.submit(self.state, kept, self.now))
            both = [snapshot.load(snapshot.dump(state)) for state in (self.state, alone)]
            for state in both:
                apply(state, SharesLooked(at=self.now, short=[]))  # the next fact begins the ticks of new queues
            assert same(both[0]) == same(both[1])

    def job_of(
        self, queue, user, demand, tasks, priority, gang, on, retries, time_limit, after, at_most, held, revocable, led, fit,
        retry_delay, begin, name, singleton,
    ):  # fmt: skip
        leaf = admission.leaf_for(self.state, queue, user)
        known = sorted(self.state.index.specs)[-4:]
        before = [After(known[tasks % len(known)], after)] if after and known else []
        zone = {"zone": on} if on else {}
        job = Job(leaf, demand, tasks, zone, priority, gang, retries=retries, time_limit=time_limit, after=before)
        job = replace(job, at_most=None if gang else at_most, held=held, revocable=revocable, user=user)
        job = replace(job, fit="" if fit == "apart" and not gang else fit, led=gang and led, name=name)
        job = replace(job, begin=begin and self.now + begin, singleton=bool(name) and singleton)
        job = replace(job, retry_delay=retry_delay if retries else 0.0)
        if after == "index" and before:
            other = self.state.index.specs[before[0].job]
            job = replace(job, gang=False, led=False, tasks=min(tasks, other.tasks), fit="")
        return job

    @rule(seconds=st.sampled_from([0.5, 4.0]))
    def decide_soon(self, seconds):
        self.decide(seconds)

    @rule(jobs=st.lists(asked_for, min_size=3, max_size=8), data=st.data())
    def a_busy_moment(self, jobs, data):
        self.submit(jobs)
        self.decide(1.0)
        if len(self.state.held_rows()):
            self.end_some(data)
            self.decide(1.0)

    def decide(self, seconds):
        self.now += seconds
        before = same(self.state)
        expected = placed_naively(self.state, self.now)
        decision = decide(self.state, self.now)
        if not expected and all(isinstance(fact, (TasksPlaced, JobsForgotten)) for fact in decision.facts):
            expected = placed_naively(self.state, self.now, beyond=True)
        if any(isinstance(fact, (JobsDue, JobCancelled)) for fact in decision.facts):  # who waits then may go first
            expected = []
        again = decide(self.state, self.now)
        assert [encode(f) for f in decision.facts] == [encode(f) for f in again.facts]
        recovered = decide(snapshot.load(snapshot.dump(self.state)), self.now)  # it has no order yet
        assert [encode(f) for f in decision.facts] == [encode(f) for f in recovered.facts]
        assert same(self.state) == before, "deciding changed the state"
        settled = not any(isinstance(f, TasksRevoked) for f in decision.facts) and not decision.more
        before_all = len(settle_first(self.state, self.now))  # claims that are none any more, whoever is served
        room = (NodesReserved, ReservationDropped, NodesClaimed, JobsPassedOver)
        room_first = any(isinstance(f, room) for f in decision.facts[before_all:])
        placed = placements(decision.facts)
        cut_short = not room_first and decision.more and placed and placed != expected  # room is reserved before the others
        passed = any(isinstance(fact, JobsPassedOver) for fact in decision.facts)  # and others may have been placed at once
        right = [] if room_first else expected[: len(placed)] if cut_short else expected
        assert placed == right or (passed and placed == (expected[: len(placed)] if decision.more else expected))
        taken_over = any(isinstance(fact, ReservationDropped) for fact in decision.facts)
        for fact in decision.facts:
            if isinstance(fact, NodesReserved) and not taken_over:
                planned_as_naively(self.state, self.now, fact)
        check = RevocationCheck()
        for fact in again.facts:
            check.before(self.state, fact)
            self.happen(fact)
            check.after(self.state, fact)
        then = decide(self.state, self.now)
        assert not settled or not placements(then.facts), "a decision left something to place"
        assert not cut_short or then.facts, "a decision left something to place"
        if not then.facts and not then.more:
            check_claims_are_served(self.state)

    @precondition(lambda self: len(self.state.held_rows()))
    @rule(data=st.data())
    def end_some(self, data):
        rows = self.state.held_rows()
        chosen = np.array(sorted(data.draw(st.sets(st.sampled_from(rows.tolist()), min_size=1))), np.int64)
        jobs = self.state.job_rows_of(chosen)
        columns = {
            "job": self.state.jobs.id[jobs],
            "index": chosen - self.state.jobs.first[jobs],
            "attempt": self.state.tasks.attempt[chosen].astype(np.int64),
        }
        outcome = data.draw(st.sampled_from([(0, 0), (0, 1), (1, 9), (2, 9), (4, 0)]))
        self.now += 1
        if data.draw(st.booleans()):
            self.happen(TasksStarted(at=self.now, **columns))
        ends = np.tile(np.array(outcome, np.int64), (len(chosen), 1)).T
        failures = self.state.tasks.failures[chosen].tolist()
        self.happen(TasksFinished(at=self.now, **columns, outcome=ends[0].copy(), code=ends[1].copy()))
        for task, before, job, index in zip(chosen, failures, columns["job"].tolist(), columns["index"].tolist(), strict=True):
            if self.state.index.find(job) >= 0 and self.state.tasks.failures[task] > before:
                spec = self.state.index.specs[job]
                every = range(spec.tasks) if spec.gang else [index]
                self.not_before |= {(job, i): self.now + spec.retry_delay * 2**before for i in every}

    @precondition(lambda self: self.state.index.last)
    @rule(data=st.data())
    def cancel(self, data):
        known = sorted(self.state.index.specs)
        if known:
            job = data.draw(st.sampled_from(known))
            count = self.state.index.specs[job].tasks
            some = data.draw(st.none() | st.lists(st.integers(0, count - 1), min_size=1))
            self.happen(admission.cancel(self.state, job, some, self.now))

    @precondition(lambda self: self.state.index.last)
    @rule(data=st.data(), back=st.booleans())
    def hold(self, data, back):
        known = [j for j in sorted(self.state.index.specs) if self.state.jobs.waiting[self.state.job_row(j)]]
        if known:
            job = data.draw(st.sampled_from(known))
            make = admission.release if back else admission.hold
            self.happen(make(self.state, job, self.now))

    @precondition(lambda self: self.state.index.last)
    @rule(data=st.data(), asked=asked_for)
    def edit(self, data, asked):
        known = sorted(self.state.index.specs)
        if known:
            job = data.draw(st.sampled_from(known))
            leaf = admission.leaf_for(self.state, asked["queue"], asked["user"])
            some = {"queue": leaf, "at_most": asked["at_most"] or 0, "time_limit": asked["time_limit"] or 0.0}
            some |= {name: asked[name] for name in ("demand", "priority", "retries")} | {
                "begin": self.now + (asked["begin"] or 0.0)
            }
            chosen = data.draw(st.sets(st.sampled_from(sorted(some)), min_size=1))
            said = JobEdited(at=self.now, id=job, **{name: some[name] for name in chosen})
            try:
                self.happen(admission.edit(self.state, job, said))
            except admission.Refused as refused:
                if not any(word in str(refused) for word in ("limit", "has ended", "is running", "gang")):
                    raise

    @precondition(lambda self: len(self.state.held_rows()))
    @rule(data=st.data(), ago=st.integers(0, 3000))
    def checkpoint(self, data, ago):
        row = np.array([data.draw(st.sampled_from(self.state.held_rows().tolist()))])
        columns = self.state.task_columns(row)
        self.happen(TasksCheckpointed(at=self.now, **columns, ago=np.array([ago])))

    @precondition(lambda self: len(self.state.held_rows()))
    @rule(data=st.data())
    def revoke(self, data):
        rows = self.state.held_rows()
        status = self.state.tasks.status[rows]
        rows = rows[(status == PLACED) | (status == RUNNING)]
        if len(rows):
            row = np.array([data.draw(st.sampled_from(rows.tolist()))])
            job = self.state.job_rows_of(row)
            self.happen(
                TasksRevoked(
                    at=self.now,
                    job=self.state.jobs.id[job],
                    index=row - self.state.jobs.first[job],
                    attempt=self.state.tasks.attempt[row].astype(np.int64),
                )
            )

    @rule(queues=trees(), really=rarely, most=bounds)
    def configure(self, queues, really, most):
        if really:
            self.settings = replace(self.settings, max_jobs_of=most)
            self.happen(admission.configure(self.state, queues, self.settings, self.now))

    @rule()
    def compact(self):
        """As after a hundred thousand forgotten tasks, without waiting for them. What follows must not notice."""
        copy = snapshot.load(snapshot.dump(self.state))
        compact(copy)
        check_invariants(copy)
        there = [encode(f) for f in decide(self.state, self.now).facts]
        assert [encode(f) for f in decide(copy, self.now).facts] == there

    @rule(data=st.data())
    def copy_and_look_ahead(self, data):
        before = same(self.state)
        copy = copy_of(self.state)
        assert same(copy) == before
        there = [encode(f) for f in decide(self.state, self.now).facts]
        assert [encode(f) for f in decide(copy, self.now).facts] == there
        known = [j for j in sorted(self.state.index.specs) if self.state.jobs.waiting[self.state.job_row(j)]]
        if known:
            told = outlook(copy, data.draw(st.sampled_from(known)), self.now, runs=2)
            assert told.reason in ("expected", "never", "unknown", "over")  # over: a gang whose leader is
            assert told.earliest is None or self.now <= told.earliest <= (told.latest or np.inf)
        assert same(copy) == before == same(self.state)

    def waited(self, fact, job, index):
        """A task that starts waited for all that its job waits for, by what the facts so far say."""
        spec, rows = self.state.index.specs[job], self.state.index
        over = {other: not np.isnan(self.state.jobs.finished_at[rows.find(other)]) for other in rows.specs}
        assert spec.begin is None or fact.at >= spec.begin
        mine = [o for o, s in rows.specs.items() if o < job and (s.user, s.name) == (spec.user, spec.name)]
        assert not spec.singleton or all(over[other] for other in mine), f"job {job} runs beside {mine}"
        for after in spec.after:
            row = rows.find(after.job)
            if after.how == "index" and row >= 0:
                assert self.state.tasks.status[self.state.jobs.first[row] + index] == SUCCEEDED
        assert fact.at >= self.not_before.get((job, index), 0.0)

    @rule()
    def remember(self):
        self.prefix = (len(self.facts), same(self.state))

    @invariant()
    def holds(self):
        if hasattr(self, "state"):
            check_invariants(self.state)
            placed = [f for f in self.facts[-1:] if isinstance(f, TasksPlaced)]
            for fact in placed:
                self.never_over_a_limit(fact)
                for job, index in zip(fact.job.tolist(), fact.index.tolist(), strict=True):
                    self.waited(fact, job, index)

    def never_over_a_limit(self, fact):
        queues, jobs = self.state.queues, self.state.jobs
        for row in self.state.job_rows(fact.job):
            assert not jobs.at_most[row] or jobs.holding[row] <= jobs.at_most[row]
        rows = {int(q) for q in self.state.jobs.queue[self.state.job_rows(fact.job)]}
        rows |= {int(queues.parent[q]) for q in rows if queues.parent[q] >= 0}
        served = np.zeros(len(self.state.resources), np.bool_)
        for shape in self.state.jobs.shape_row[self.state.job_rows(fact.job)]:
            served |= self.state.shapes.demand[shape] > 0
        revocable = jobs.revocable[self.state.job_rows(fact.job)]
        for q in rows:
            bound = queues.used[q] - queues.spare[q]
            assert (bound <= queues.limit[q])[served].all() or not served.any() or revocable.all()
            assert queues.tasks[q] <= queues.max_tasks[q]

    def teardown(self):
        if not hasattr(self, "state"):
            return
        count, then = self.prefix
        if count:
            assert same(replay(self.facts[:count])) == then, "a prefix replayed gives another state"
        assert same(replay(self.facts)) == same(self.state)
        rows = self.state.held_rows()
        if len(rows):
            jobs = self.state.job_rows_of(rows)
            zeros = np.zeros(len(rows), np.int64)
            attempt = self.state.tasks.attempt[rows].astype(np.int64)
            index = rows - self.state.jobs.first[jobs]
            apply(
                self.state,
                TasksFinished(at=self.now, job=self.state.jobs.id[jobs], index=index, attempt=attempt, outcome=zeros, code=zeros),
            )
        assert not self.state.queues.used.any(), "not everything released adds up to zero"
        assert (self.state.nodes.free == self.state.nodes.capacity).all()


rounds = int(os.environ.get("FAIRLEAD_FUZZ", "0")) // 20 or 8
TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=rounds, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
