"""The scheduler's thread: answers come after the commit, a full disk stops new work and no more, questions are bounded."""

import asyncio
import errno
import json
import shutil
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.memory_store import MemoryStore

from fairlead.cli import node
from fairlead.engines.local.member import write_membership
from fairlead.engines.remote import joining
from fairlead.engines.remote.joined import JoinedEngine
from fairlead.engines.remote.keys import KeyRing, NotAdmitted, certificate_in
from fairlead.engines.step import Lost, Scheduler, Stalled
from fairlead.failure import Failure
from fairlead.journal import Journal, JournalFull, JournalLost
from fairlead.model.specs import Job, Node, Queue, Settings
from fairlead.people.accounts import myself
from fairlead.people.rules import Caller, rules_of
from fairlead.scheduler import admission, facts
from fairlead.scheduler.facts import JobSubmitted, decode
from fairlead.service import loop as loops
from fairlead.service.api import submitting
from fairlead.service.api.requests import JobRequest
from fairlead.service.api.state_client import StateClient
from fairlead.service.api.submitting import PIECE, JobSubmission, Submitter
from fairlead.service.loop import Busy, HappensLater, Loop
from fairlead.service.serve import _Stop
from fairlead.service.unfinished_jobs import Exports, UnfinishedJobs
from fairlead.service.wakeups import Wakeups
from fake_engine import FakeEngine, Killed
from random_cases import cases
from worlds import list_jobs


class FillingJournal(Journal):
    full = lost = False

    def append(self, facts, by=()):
        if self.lost and facts:
            raise JournalLost("its log was deleted")
        if self.full and facts:
            raise JournalFull("there is no room: make some")
        super().append(facts, by)


@pytest.fixture
def world():
    journal = FillingJournal(MemoryStore())
    engine = FakeEngine(Random(1), [Node("n", {"cpu": 2000})], faults=False)
    engine.now = time.time()

    def make(wake):
        scheduler = Scheduler(journal, engine, time.time)
        scheduler.step([lambda state, now: [admission.configure(state, [Queue("A")], Settings(), now)]])
        return scheduler

    loop = Loop(make)
    loop.start()
    loop.ready.result(timeout=60)
    yield loop, journal, engine
    journal.full = False
    loop.stop()
    loop.join(timeout=60)
    assert loop.failure is None


def submit(state, now):
    facts = admission.submit(state, [Job("A", {"cpu": 1000})], now)
    return facts, facts[0].id


def look(state, now):
    return [], [job["status"] for job in list_jobs(state)["jobs"]]


def test_reports_of_the_engine_wait_for_the_rest_after_a_step_and_requests_do_not(request, monkeypatch):
    monkeypatch.setattr("fairlead.service.loop.IDLE_SECONDS", 1e6)
    loop, *_ = request.getfixturevalue("world")
    loop.ask(submit, changes=True).result(timeout=60)
    loop.ask(look).result(timeout=60)
    loop._rested_at, before = time.monotonic() + 1e6, loop.stepped_at
    loop.hear()
    loop.ask(look).result(timeout=60)
    assert loop.stepped_at == before, "it rests"
    loop.ask(submit, changes=True).result(timeout=60)
    assert loop.stepped_at > before
    assert loop._rested_at < before + 1e5, "no task ended, so there is no rest"
    stepped = threading.Event()
    monkeypatch.setattr("fairlead.service.metrics.questions", SimpleNamespace(set=lambda count: stepped.set()))
    loop.hear()
    assert stepped.wait(60)


def held_up(loop, answer=None):
    """Hold up the scheduler's thread in a question. Return where its answer comes, and the event that lets it go on."""
    held, go = threading.Event(), threading.Event()

    def hold(state, now):
        held.set()
        go.wait(60)
        return [], answer

    answered = loop.ask(hold)
    assert held.wait(60)
    return answered, go


def test_an_answer_is_given_when_the_journal_has_it(world):
    loop, journal, _ = world
    number = loop.ask(submit, changes=True).result(timeout=60)
    assert any(b'"JobSubmitted"' in body and f'"id":{number}'.encode() in body for _, body in journal.look(0, 100))


def test_who_caused_a_fact_is_recorded_with_it(world):
    loop, journal, _ = world
    loop.ask(submit, changes=True, by="ada").result(timeout=60)
    loop.ask(submit, changes=True).result(timeout=60)
    deadline = time.monotonic() + 60
    while (found := causes(journal))["TasksStarted"] != {"(engine)"}:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    assert found == {
        "NodeJoined": {"(engine)"},
        "Configured": {""},
        "JobSubmitted": {"ada", ""},
        "TasksPlaced": {""},
        "TasksStarted": {"(engine)"},
    }


def causes(journal):
    """By kind of fact: who caused those that are recorded."""
    found = defaultdict(set)
    for envelope, body in journal._store.read(0, 100):
        found[json.loads(body)["type"]].add(envelope.by)
    return found


def test_a_refusal_is_an_answer(world):
    loop, _, _ = world

    def ask(state, now):
        return admission.submit(state, [Job("A", {"cpu": 1000}, tasks=0)], now), None

    with pytest.raises(admission.Refused):
        loop.ask(ask, changes=True).result(timeout=60)
    assert loop.ask(look).result(timeout=60) == []


def test_a_full_disk_stops_new_work_loses_nothing_and_goes_on_when_there_is_room(world):
    loop, journal, engine = world
    loop.ask(submit, changes=True).result(timeout=60)
    journal.full = True
    with pytest.raises(HappensLater, match=r"there is no room.*do not repeat it"):
        loop.ask(submit, changes=True).result(timeout=60)
    with pytest.raises(Stalled, match="there is no room") as refused:
        loop.ask(submit, changes=True).result(timeout=60)
    assert not isinstance(refused.value, HappensLater), "that one was not taken"
    assert len(loop.ask(look).result(timeout=60)) == 2, "looking is answered"
    assert sum(engine.runs.values()) == 1, "nothing was started that the journal does not know"
    journal.full = False
    deadline = time.monotonic() + 60
    while sum(engine.runs.values()) < 2:
        loop.ask(look).result(timeout=60)
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert loop.ask(submit, changes=True).result(timeout=60) == 3
    assert sorted(Scheduler(journal, engine, time.time).state.index.specs) == [1, 2, 3]


def test_what_a_journal_that_is_lost_cannot_take_is_not_promised_and_whoever_stops_it_is_not_kept(world):
    loop, journal, engine = world
    loop.ask(submit, changes=True).result(timeout=60)
    while not sum(engine.runs.values()):
        loop.ask(look).result(timeout=60)
    journal.lost = True
    for _ in range(2):
        with pytest.raises(Lost, match="its log was deleted") as refused:
            loop.ask(submit, changes=True).result(timeout=60)
        assert not isinstance(refused.value, HappensLater)
    loop.stop(when=lambda state: False)
    assert loop.stopped.wait(timeout=60)
    assert sum(engine.runs.values()) == 1, "what ran goes on"


def test_who_stops_it_at_once_is_not_kept_by_a_disk_that_stays_full(world):
    loop, journal, _ = world
    journal.full = True
    with pytest.raises(HappensLater):
        loop.ask(submit, changes=True).result(timeout=60)
    loop.stop(when=lambda state: False, patience=0.1)
    assert loop.stopped.wait(timeout=60)


def test_a_fault_in_one_question_is_its_answer_and_no_more(world):
    loop, _, _ = world

    def faulty(state, now):
        raise KeyError("a fault")

    with pytest.raises(KeyError):
        loop.ask(faulty).result(timeout=60)
    assert loop.ask(submit, changes=True).result(timeout=60) == 1


def test_questions_are_bounded(world, monkeypatch):
    loop, _, _ = world
    _, go = held_up(loop)
    answers = [loop.ask(look) for _ in range(loops.MOST_QUESTIONS)]
    with pytest.raises(Busy, match="try again"):
        loop.ask(look)
    go.set()
    assert all(answer.result(timeout=60) == [] for answer in answers)


def test_two_threads_may_turn_questions_away_at_once():
    loop = Loop(lambda wake: None)
    answers = [loop.ask(look) for _ in range(3)]
    first, second = (loops._taken(loop._inboxes[False]) for _ in range(2))
    assert len([next(first), *second, *first]) == len(answers)


def test_a_read_waits_for_no_change_that_is_not_recorded_yet(world):
    """It is answered from the recorded state; who made a change and was answered reads it."""
    loop, journal, _ = world
    _, go = held_up(loop)
    made, before = loop.ask(submit, changes=True), journal.position
    seen = loop.ask(lambda state, now: ([], (look(state, now)[1], journal.position)))
    go.set()
    assert seen.result(timeout=60) == ([], before)
    assert made.result(timeout=60) == 1
    assert len(loop.ask(look).result(timeout=60)) == 1


def test_whoever_asked_may_go_away(world):
    loop, _, _ = world
    late, go = held_up(loop, "late")
    gone = loop.ask(submit, changes=True)
    assert gone.cancel()
    assert not late.cancel(), "it is being answered"
    go.set()
    assert late.result(timeout=60) == "late"
    assert loop.ask(look).result(timeout=60) == [], "what was taken back did not happen"


def test_many_at_once_are_recorded_together(world):
    loop, journal, _ = world
    before = journal.position
    answers = [loop.ask(submit, changes=True) for _ in range(500)]
    assert sorted(answer.result(timeout=60) for answer in answers) == list(range(1, 501))
    assert journal.position >= before + 500


def test_submissions_that_come_together_are_one_fact_and_each_has_its_own_answer(world, tmp_path):
    loop, journal, _ = world
    held, go, authenticator = threading.Event(), threading.Event(), SimpleNamespace(rules=None)

    def hold(state, now):
        authenticator.rules = rules_of(state, True)
        held.set()
        go.wait(60)
        return [], None

    async def submitted():
        loop.ask(hold)
        assert held.wait(60)
        client = StateClient(loop, Wakeups(), authenticator, None)
        submitter = Submitter(client, UnfinishedJobs(Exports(tmp_path)))

        def task(key="", **more):
            request = JobRequest(argv=["true"], queue="A", **{"demand": {"cpu": "1"}, **more})
            asked = [JobSubmission(request, *request.work()[:1], False, request.work()[1], {})]
            return asyncio.create_task(submitter.submit(Caller(myself()), asked, key))

        tasks = [task(f"k{number}") for number in range(4)]
        tasks += [task(demand={"gpu": "1"}), task("k0"), task(priority=5), task("k0", priority=5), task(after=[{"job": 1}])]
        gone = task()
        await asyncio.sleep(0.01)
        gone.cancel()
        before = journal.position
        go.set()
        return before, await asyncio.gather(*tasks, return_exceptions=True)

    before, answers = asyncio.run(submitted())
    told = [answer[0]["id"] if isinstance(answer, list) else type(answer) for answer in answers]
    assert told == [1, 2, 3, 4, admission.Refused, 1, 5, admission.Conflict, 6]
    facts = [decode(body) for _, body in journal.look(before, 100)]
    assert [1 + len(fact.more) for fact in facts if isinstance(fact, JobSubmitted)] == [4, 1, 1]


class DyingJournal(Journal):
    """Its scheduler is killed at a commit: before it is written, or after."""

    commits, written = -1, False

    def append(self, facts, by=()):
        self.commits -= bool(facts)
        if self.commits != 0 or not facts:
            super().append(facts, by)
            return
        if self.written:
            super().append(facts, by)
        raise Killed


def begun(store, engine):
    """A scheduler over what is stored."""
    journal = DyingJournal(store)

    def make(wake):
        scheduler = Scheduler(journal, engine, time.time)
        queues = [Queue("A"), Queue("B"), Queue("C")]
        scheduler.step([lambda state, now: filter(None, [admission.configure(state, queues, Settings(), now)])])
        return scheduler

    loop = Loop(make)
    loop.start()
    loop.ready.result(timeout=60)
    return loop, journal


async def submitted(loop, asked, folder, counted=lambda question: question):
    """Submit jobs at the same moment, each some with a key of their own; return the answers, None where there is none."""
    rules = await asyncio.wrap_future(loop.ask(lambda state, now: ([], rules_of(state, True))))
    client = StateClient(loop, Wakeups(), SimpleNamespace(rules=rules), None)
    put = client.put
    client.put = lambda answer, question, *more: put(answer, counted(question), *more)
    submitter = Submitter(client, UnfinishedJobs(Exports(folder)))
    jobs = [[JobSubmission(each, *each.work()[:1], False, each.work()[1], {}) for each in some] for some in asked]
    answers = [asyncio.create_task(submitter.submit(Caller(myself()), some, f"k{n}")) for n, some in enumerate(jobs)]
    while not (loop.stopped.is_set() or all(answer.done() for answer in answers)):
        await asyncio.sleep(0.002)
    for answer in answers:
        answer.cancel()  # what is answered stays so
    found = await asyncio.gather(*answers, return_exceptions=True)
    return [None if isinstance(each, Busy | asyncio.CancelledError) else [job["id"] for job in each] for each in found]


@settings(max_examples=cases(15), deadline=None)
@given(sizes=st.lists(st.integers(1, 700), min_size=1, max_size=4), commits=st.integers(1, 5), written=st.booleans())
def test_a_submission_happens_as_a_whole_or_not_at_all_wherever_the_scheduler_is_killed(sizes, commits, written):
    """Repeated with its key it happens once; what it starts belongs to whole submissions."""
    store, engine = MemoryStore(), FakeEngine(Random(1), [Node("n", {"cpu": 2000})], faults=False)
    engine.now = time.time()
    asked = [[JobRequest(argv=["true"], queue="ABC"[n % 3], demand={"cpu": "1"})] * size for n, size in enumerate(sizes)]
    with tempfile.TemporaryDirectory() as folder:
        loop, journal = begun(store, engine)
        journal.commits, journal.written = commits, written
        first = asyncio.run(submitted(loop, asked, Path(folder)))
        loop.stop()
        loop.join(timeout=60)
        assert loop.failure is None or isinstance(loop.failure, Killed)
        loop, _ = begun(store, engine)
        specs, keys = loop.ask(lambda state, now: ([], (dict(state.index.specs), dict(state.index.keys)))).result(timeout=60)
        there = {int(key.rpartition("k")[2]): number for key, number in keys.items()}
        assert sorted(specs) == sorted(number + k for n, number in there.items() for k in range(sizes[n]))
        assert {attempt.job for attempt in engine.runs} <= set(specs)
        again = asyncio.run(submitted(loop, asked, Path(folder)))
        assert [numbers[0] for n, numbers in enumerate(again) if n in there] == [there[n] for n in sorted(there)]
        assert all(numbers in (None, again[n]) for n, numbers in enumerate(first))
        assert [len(numbers) for numbers in again] == sizes
        assert len({number for numbers in again for number in numbers}) == sum(sizes)
        assert len(loop.ask(lambda state, now: ([], dict(state.index.specs))).result(timeout=60)) == sum(sizes)
        assert max(engine.runs.values(), default=0) <= 1
        loop.stop()
        loop.join(timeout=60)


def test_a_bulk_is_checked_in_pieces_and_the_rest_is_computed_in_another_thread(world, tmp_path, monkeypatch):
    loop, journal, _ = world
    checked, computed, unfinished, columns_of = [], [], submitting.unfinished, submitting.columns_of
    found, find_memory = [], submitting.find_memory

    def counted(question):
        def asked(state, now):
            checked.append(0)
            return question(state, now)

        return asked

    def counting(job, exports):
        checked[-1] += 1
        return unfinished(job, exports)

    def noting(jobs, known=()):
        computed.append((len(jobs), threading.current_thread().name))
        return columns_of(jobs, known)

    def finding(memory):
        found.append(threading.current_thread().name)
        find_memory(memory)

    monkeypatch.setattr(submitting, "unfinished", counting)
    monkeypatch.setattr(submitting, "find_memory", finding)
    for module in (submitting, facts):
        monkeypatch.setattr(module, "columns_of", noting)
    size, before = 7 * PIECE + 1, journal.position
    bulk = [JobRequest(argv=["true"], queue="A", demand={"cpu": "1"}, name=f"n{number}") for number in range(size)]
    assert asyncio.run(submitted(loop, [bulk], tmp_path, counted)) == [list(range(1, size + 1))]
    assert (max(checked), sum(checked), len(checked)) == (PIECE, size, 7 + 1 + 1 + 1)
    assert [(jobs, name == "scheduler") for jobs, name in computed] == [(size, False)]
    assert [name == "scheduler" for name in found] == [False]
    stored = [decode(body) for _, body in journal.look(before, 100)]
    (fact,) = (each for each in stored if isinstance(each, JobSubmitted))
    assert [job.name for _, job in fact.numbered()] == [f"n{number}" for number in range(size)]
    assert (fact.job.key != "", fact.job.digest != "", {job.digest for job in fact.more}) == (True, True, {""})


def test_who_stops_at_once_waits_for_no_node_that_is_not_heard(world):
    """And not before what runs was told to stop; who does not say so waits."""
    loop, journal, engine = world
    loop.ask(submit, changes=True).result(timeout=60)
    deadline = time.monotonic() + 60
    while loop.ask(look).result(timeout=60) != ["running"]:
        assert time.monotonic() < deadline
    engine.silence = {"n": 12.0}

    async def leave():
        stop = _Stop(StateClient(loop, Wakeups(), None, None), engine, lambda running: None)
        stop(now=False)
        assert [await asyncio.to_thread(loop.ask(look).result, 60) for _ in range(3)] == [["running"]] * 3
        stop(now=True)
        assert await asyncio.to_thread(loop.stopped.wait, 60)

    asyncio.run(leave())
    assert any(b'"TasksRevoked"' in body for _, body in journal.look(0, 100))


def joining_engine(loop, journal, folder, monkeypatch):
    """Return a token for each call of it: of an engine that `node.join` asks, and whose facts the loop records."""
    engine = object.__new__(JoinedEngine)
    engine._ring, engine._own, engine._account = KeyRing(folder / "keys"), Node("own", {}), myself().name
    engine._as_people, engine._journal, engine.ask = False, "j", loop.ask
    engine._lock, engine._members = threading.Lock(), {}

    def append(facts, by=()):
        FillingJournal.append(journal, facts, by)
        engine.recorded(facts)

    journal.append = append
    monkeypatch.setattr(joining, "_answer", lambda host, port, context, request: engine._hear_stranger(request))

    def new_token():
        token, hashed = engine._ring.new_token()
        made = loop.ask(lambda s, now: ([admission.make_node_token(s, hashed, "", now + 99.0, now)], None), changes=True)
        made.result(60)
        return token

    return new_token


def test_a_token_is_spent_when_the_journal_has_the_new_node_and_not_before(world, tmp_path, monkeypatch):
    loop, journal, _ = world
    token = joining_engine(loop, journal, tmp_path, monkeypatch)()

    def join():
        return node.join("localhost", token, "n1", tmp_path / "home", None)

    journal.full = True
    for _ in range(2):
        with pytest.raises(NotAdmitted, match=r"^the scheduler cannot record it now: see its log. The token is still valid"):
            join()
    journal.full = False
    loop.wake()
    deadline = time.monotonic() + 60
    while loop.stalled:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    member = join()
    assert member.about["name"] == "n1"
    members = loop.ask(lambda s, now: ([], dict(s.cluster.members))).result(60)
    assert members == {"n1": certificate_in(member.own)}, "no other key was spent"
    write_membership(tmp_path / "home" / "node" / "supervisor", member)
    with pytest.raises(NotAdmitted, match="unknown, used or expired"):
        join()


def test_machines_of_one_image_in_which_a_join_failed_are_two_nodes(world, tmp_path, monkeypatch):
    loop, journal, _ = world
    new_token = joining_engine(loop, journal, tmp_path, monkeypatch)
    tokens, answer = [new_token(), new_token()], joining._answer

    def gone(*asked):
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    monkeypatch.setattr(joining, "_answer", gone)
    with pytest.raises(Failure, match="no scheduler takes nodes there: Connection refused"):
        node.join("localhost", tokens[0], None, tmp_path / "image", None)
    monkeypatch.setattr(joining, "_answer", answer)
    keys = {}
    for name, token in zip(("n0", "n1"), tokens, strict=True):
        shutil.copytree(tmp_path / "image", tmp_path / name)
        keys[name] = certificate_in(node.join("localhost", token, name, tmp_path / name, None).own)
    assert loop.ask(lambda s, now: ([], dict(s.cluster.members))).result(60) == keys
    assert keys["n0"] != keys["n1"]


@pytest.mark.parametrize("full", [False, True])
def test_a_job_is_rerun_where_its_kind_is_one_more_than_are_remembered(world, tmp_path, full, monkeypatch):
    loop, _, _ = world
    monkeypatch.setattr(submitting, "MOST_KINDS", 3)
    rules = loop.ask(lambda state, now: ([], rules_of(state, True))).result(60)
    client = StateClient(loop, Wakeups(), SimpleNamespace(rules=rules), None)
    submitter = Submitter(client, UnfinishedJobs(Exports(tmp_path)))

    async def submit_and_rerun():
        request = JobRequest(argv=["true"], queue="A", demand={"cpu": "1"})
        tasks, work = request.work()
        asked = [JobSubmission(request, tasks, False, work, {})]
        (submitted,) = await submitter.submit(Caller(myself()), asked, "")
        found = submitter._kinds.popitem()[1]
        submitter._kinds.update({b"%d" % k: found for k in range(3 * full)})
        return submitted["id"], await submitter.rerun(Caller(myself()), submitted["id"], False, "")

    number, again = asyncio.run(submit_and_rerun())
    assert again["id"] == number + 1
