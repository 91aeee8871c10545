"""Leased workers: what becomes of calls when their worker, their lease or the program's room is taken away."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

import fairlead
from called import nap, square
from conftest import until
from fairlead.calls import wire
from fairlead.calls.relay import Relay
from fairlead.calls.stream import Stream
from fairlead.client.mapped import Chunk
from fairlead.model.specs import Call, Job, Node, Queue, Settings, Work
from fairlead.people.accounts import Person
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import (
    Configured,
    JobCancelled,
    JobsForgotten,
    JobSubmitted,
    NodeJoined,
    Outcome,
    TasksFinished,
    TasksPlaced,
    TasksStarted,
)
from fairlead.service.relays import Relays
from fairlead.service.sessions import ENDED, Sessions
from fairlead.service.wakeups import Wakeups


@pytest.fixture(scope="module")
def world(shared):
    return shared


def test_each_call_starts_once_though_workers_die(world, tmp_path):
    def mark(i):
        with (tmp_path / str(i)).open("a") as file:
            file.write("x")
        if i % 40 == 20:
            os._exit(3)
        return i

    with fairlead.Client(world.home, queue="A", memory="256MiB") as client:
        futures = [client.submit(mark, i) for i in range(160)]
        failed = [i for i, future in enumerate(futures) if isinstance(future.exception(timeout=60), fairlead.CallFailed)]
        assert failed == [20, 60, 100, 140]
        assert all(future.result() == i for i, future in enumerate(futures) if i not in failed)
    assert {path.read_text() for path in tmp_path.iterdir()} == {"x"}
    assert len(list(tmp_path.iterdir())) == 160


def test_a_call_whose_task_starts_again_fails_and_starts_once(live, tmp_path):
    def mark():
        with (tmp_path / "mark").open("a") as file:
            file.write("x")
        time.sleep(60)

    with fairlead.Client(live.home, queue="A", memory="256MiB") as client:
        future = client.submit(mark)
        until(lambda: (tmp_path / "mark").exists() and (tmp_path / "mark").read_text())
        (supervisor,) = live.supervisor()
        supervisor.kill()
        with pytest.raises(fairlead.CallFailed, match="its process was lost with its node, or with the supervisor there: see"):
            future.result(timeout=60)
        assert client.submit(square, 3).result(timeout=60) == 9
    assert (tmp_path / "mark").read_text() == "x"


def test_many_calls_take_few_leases(world):
    with fairlead.Client(world.home, queue="A", memory="256MiB") as client:
        futures = [client.submit(square, x) for x in range(2000)]
        assert [future.result(timeout=60) for future in futures] == [x * x for x in range(2000)]
        assert len({future.task for future in futures}) <= 20


def test_why_shows_the_calls_that_a_lease_is_for(idle):
    with fairlead.Client(idle.home, queue="A", cpu=9, memory="256MiB") as client:
        calls = [client.submit(nap, 20) for _ in range(7)]
        until(lambda: "6 waiting" in idle.call("why", str(calls[0].task[0] if calls[0].task else 1)).stdout)
        assert "a worker for Python calls" in (said := idle.ok("why", str(calls[0].task[0]))), said
        assert " its program had 1 call at workers, and 6 waiting" in said
        client._caller.abandon()


def test_a_lease_ends_soon_after_others_wait(world):
    with fairlead.Client(world.home, queue="A", cpu=9, memory="256MiB") as client:
        futures = [client.submit(nap, 0.05) for _ in range(600)]
        until(futures[0].done)
        job = client.submit_job(["true"], cpu=9, queue="B")
        job.wait(timeout=60)
        assert not futures[-1].done(), "the job waited for all calls"
        for future in futures:
            future.stop()


def test_arrays_are_as_they_were_and_can_be_written(world):
    def doubled(array):
        array *= 2
        return array

    with fairlead.Client(world.home, queue="A", memory="256MiB") as client:
        array = np.ones(300_000)
        future = client.submit(doubled, array)
        array[:] = 7
        result = future.result(timeout=60)
        assert (result == 2).all()
        result[0] = 5
        assert client.submit(len, b"x" * 3 * 2**20).result(timeout=60) == 3 * 2**20


def test_results_that_a_program_keeps_are_memory_of_its_own(client):
    def held():
        count = Path("/proc/self/maps").read_text().count("/memfd:fairlead")
        for fd in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                count += "memfd:fairlead" in str(fd.readlink())
        return count

    before = held()
    results = [client.submit(np.full, 300_000, k).result(timeout=60) for k in range(5)]
    assert all((result == k).all() and result.flags.writeable for k, result in enumerate(results))
    until(lambda: held() <= before)


STOPPED = """
import os, sys, time
import fairlead
home, marks, where = sys.argv[1:]

def mark(i):
    time.sleep(0.02)
    with open(f"{marks}/{i}", "a") as file:
        file.write("x")
    return i

with fairlead.Client(home, queue="A", cpu=5, memory="256MiB") as client:
    client._caller.leases._begin()
    client._caller.leases.address = where or client._caller.leases.address
    futures = [client.submit(mark, i) for i in range(150)]
    futures[20].result()
    print("ready", flush=True)
    failed = [i for i, future in enumerate(futures) if future.exception() is not None]
    assert all(isinstance(futures[i].exception(), fairlead.CallFailed) for i in failed), futures[failed[0]].exception()
    print(len(failed), flush=True)
"""


@pytest.mark.parametrize("where", ["", "nobody"])
def test_a_stopped_program_keeps_no_lease_that_is_due(idle, tmp_path, where):
    """Of its calls only those that had started fail; a killed one is heard of on this machine only."""
    (tmp_path / "marks").mkdir()
    argv = [sys.executable, "-c", STOPPED, str(idle.home), str(tmp_path / "marks"), where]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout.readline() == "ready\n"
        program.send_signal(signal.SIGSTOP)
        try:
            idle.ok("run", "-q", "B", "--cpu", "5", "--memory", "64Mi", "--", "true")
            assert len(list((tmp_path / "marks").iterdir())) < 150
        finally:
            program.send_signal(signal.SIGCONT)
        assert int(program.stdout.readline()) <= 10
    assert program.returncode == 0
    assert {path.read_text() for path in (tmp_path / "marks").iterdir()} == {"x"}


def test_the_calls_of_a_long_lease_are_in_the_journal_while_there_are_more(idle, monkeypatch):
    monkeypatch.setattr("fairlead.client.leases.LONGEST_SECONDS", 0.3)
    with fairlead.Client(idle.home, queue="A", memory="256MiB") as client:
        calls = [client.submit(nap, 0.02) for _ in range(2000)]
        until(lambda: any(job["calls"] for job in idle.ask("jobs")["jobs"]))
        assert not calls[-1].done()
        assert all(call.cancel() or call.done() or call.running() for call in calls)


@pytest.fixture
def client(world):
    with fairlead.Client(world.home, queue="A", memory="256MiB") as client:
        yield client


@pytest.fixture
def relayed(world):
    """A client that its workers cannot reach."""
    with fairlead.Client(world.home, queue="A", memory="256MiB") as client:
        client._caller.leases._begin()
        client._caller.leases.address = "nobody"
        yield client


def test_calls_over_a_relay(relayed):
    assert relayed.submit(square, 3).result(timeout=60) == 9
    assert list(relayed.map(square, range(500))) == [x * x for x in range(500)]
    with pytest.raises(ZeroDivisionError):
        relayed.submit(divmod, 1, 0).result(timeout=60)
    array = np.arange(3_000_000)
    assert (relayed.submit(np.negative, array).result(timeout=60) == -array).all()
    assert relayed._caller._relays.threads


def test_over_a_relay_each_call_starts_once_though_workers_die(relayed, tmp_path):
    def mark(i):
        with (tmp_path / str(i)).open("a") as file:
            file.write("x")
        if i % 20 == 10:
            os._exit(3)
        return i

    futures = [relayed.submit(mark, i) for i in range(40)]
    errors = {i: future.exception(timeout=60) for i, future in enumerate(futures)}
    failed = {i for i, error in errors.items() if isinstance(error, fairlead.CallFailed)}
    assert {10, 30} <= failed, errors
    assert all(future.result() == i for i, future in enumerate(futures) if i not in failed)
    assert {path.read_text() for path in tmp_path.iterdir()} == {"x"}


def test_over_a_relay_what_a_long_call_holds_up_is_given_back(relayed):
    results = relayed.map(nap, [0.0] * 200 + [5] + [0.0] * 200)
    assert [next(results) for _ in range(200)] == [None] * 200
    results.close()
    future, others = relayed.submit(nap, 600), [relayed.submit(nap, 0) for _ in range(50)]
    assert [other.result(timeout=60) for other in others] == [None] * 50
    assert future.stop()


def test_over_a_relay_what_a_worker_had_made_of_a_map_counts_though_its_end_is_heard_at_once(relayed, monkeypatch):
    executor, receive = relayed.executor(cpu=4), Chunk.partly
    worker = executor.submit(os.getpid).result(timeout=60)

    def late(chunk, message):
        os.kill(worker, signal.SIGKILL)
        for _ in range(30):
            time.sleep(0.0 if chunk.future.done() else 0.1)
        return receive(chunk, message)

    monkeypatch.setattr(Chunk, "partly", late)
    results = executor.map(nap, [0.0] * 50 + [100.0] + [0.0] * 50, timeout=60)
    assert [next(results) for _ in range(50)] == [None] * 50
    with pytest.raises(fairlead.CallFailed):
        next(results)
    until(lambda: not relayed._caller.leases.pending())


def test_others_of_a_queue_are_next_when_a_program_has_many_requests(idle):
    """A job, and another program: of the first, only the lease that runs then goes before them."""
    whole = {"queue": "A", "memory": "256MiB", "cpu": 5}  # one at a time
    asks = ["-q", "A", "--cpu", "5", "--memory", "64Mi", "--", "true"]
    with fairlead.Client(idle.home, **whole) as client, fairlead.Client(idle.home, **whole) as other:
        calls = [client.submit(nap, 0.05) for _ in range(600)]
        until(lambda: sum(job["status"] == "waiting" for job in idle.ask("jobs")["jobs"]) > 5)
        first = int(idle.ok("submit", *asks))
        idle.ok("wait", str(first))
        assert other.submit(square, 3).result(timeout=60) == 9
        last = int(idle.ok("submit", *asks))
        idle.ok("wait", str(last))
        client.shutdown(wait=False, cancel_futures=True)
        assert not all(call.done() and not call.cancelled() for call in calls)
    jobs = idle.ask("jobs", limit=1000)["jobs"]
    for job in (job for job in jobs if job["id"] in (first, last)):
        ran = [each for each in jobs if each["status"] == "succeeded" and each["finished_at"] > job["submitted_at"]]
        ahead = [each for each in ran if each["id"] != job["id"] and each["finished_at"] < job["finished_at"]]
        assert len(ahead) <= 3, "the one that ran, one of the other program, and one that was granted meanwhile"


def test_over_a_relay_the_result_of_a_call_that_uses_its_grace_arrives(world, relayed, tmp_path):
    def linger():
        stopped = []
        signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
        (tmp_path / "began").write_text(str(os.getpid()))
        until(lambda: stopped)
        time.sleep(2.5)  # longer than a relay waits for its program
        return b"x" * 2**25

    before = world.config.read_text()
    world.config.write_text(before.replace('name = "A"', 'name = "A"\ngrace = 100'))  # the result takes as long as it takes
    world.ok("reload")
    future, leases = relayed.submit(linger), relayed._caller.leases
    until((tmp_path / "began").exists)
    with leases.lock:
        ((shape, lease),) = leases._by_number.values()
        leases._give_back(shape, lease)  # as if it were due: the worker ends with the call
    world.ok("cancel", str(future.task[0]))
    assert len(future.result(timeout=60)) == 2**25
    os.kill(int((tmp_path / "began").read_text()), signal.SIGKILL)  # the call took the signal that would have ended its worker
    world.config.write_text(before)
    world.ok("reload")


def test_a_relay_that_is_to_stop_goes_on_while_the_program_takes_what_its_worker_left(monkeypatch):
    now = 100.0
    monkeypatch.setattr("fairlead.calls.relay.time", SimpleNamespace(monotonic=lambda: now))
    pairs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET), socket.socketpair()
    with pairs[0][0] as line, pairs[0][1], pairs[1][0] as net, pairs[1][1]:
        net.setblocking(False)
        relay = Relay(line, {})
        relay.hurry()
        relay._line, relay._net, relay._unsent, relay._stream.live = None, net, memoryview(b"a piece"), True
        relay._stream.send(1, wire.RETURNED, wire.Packed(b"left"))
        now += 1.5
        relay._hear_or_send()
        assert relay._is_needed(now + 1.5)
        assert not relay._is_needed(now + 2.5), "nothing was taken for so long"


def test_a_relay_that_is_stopped_ends_its_call_which_starts_again_only_with_retries(relayed, monkeypatch, tmp_path):
    for each in ("lease", "leases"):
        monkeypatch.setattr(f"fairlead.client.{each}.PATIENCE", 5.0)

    def mark(path, seconds):
        began = path.exists()
        with path.open("a") as file:
            file.write(f"{os.getpid()} ")
        time.sleep(0 if began else seconds)
        return "again" if began else "first"

    assert relayed.submit(mark, tmp_path / "long", 7).result(timeout=60) == "first", "its relay answers meanwhile"
    for retries in (0, 1):
        path = tmp_path / str(retries)
        call = relayed.executor(retries=retries).submit(mark, path, 1000)
        until(lambda path=path: path.exists() and path.read_text().endswith(" "))
        (relay,) = psutil.Process(int(path.read_text())).children()
        relay.suspend()
        if retries:
            assert call.result(timeout=60) == "again"
        else:
            with pytest.raises(fairlead.CallFailed, match="its process was stopped, as its relay did not answer for 5 seconds"):
                call.result(timeout=60)
        assert len(path.read_text().split()) == 1 + retries


def test_over_a_relay_calls_go_on_while_the_scheduler_restarts(live, tmp_path):
    def mark(i):
        time.sleep(0.2)
        with (marks / str(i)).open("a") as file:
            file.write("x")
        return i

    marks = tmp_path / "marks"
    marks.mkdir()
    with fairlead.Client(live.home, queue="A", memory="256MiB") as client:
        client._caller.leases._begin()
        client._caller.leases.address = "nobody"
        futures = [client.submit(mark, i) for i in range(30)]
        until(futures[0].done)
        live.kill()
        time.sleep(0.5)
        live.up()
        assert [future.result(timeout=60) for future in futures] == list(range(30))
    assert {path.read_text() for path in marks.iterdir()} == {"x"}


@pytest.mark.parametrize("where", ["client", "relayed"])
def test_what_is_put_travels_once_to_a_worker(where, request):
    client = request.getfixturevalue(where)
    array = np.ones(300_000)
    kept = client.put([client.put(array)])
    array[:] = 7
    results = [client.submit(at, (kept, each)).result(timeout=60) for each in range(20)]
    assert {total for total, _, _ in results} == {300_000}
    assert not any(writable for _, writable, _ in results)
    assert len({pid for _, _, pid in results}) >= len({place for _, _, place in results})
    assert list(client.map(partial(np.multiply, kept), [2, 3]))[1][0][0] == 3
    with pytest.raises(TypeError, match="cannot pickle"):
        client.put(threading.Lock())


@pytest.mark.parametrize("where", ["client", "relayed"])
def test_a_large_argument_that_comes_again_travels_once_and_is_each_calls_own(where, request, monkeypatch):
    client = request.getfixturevalue(where)
    made = []
    append = wire.Memfd.append
    monkeypatch.setattr(wire.Memfd, "append", lambda file, data: (made.append(len(data)), append(file, data))[1])
    array, other = np.ones(300_000), np.zeros(200_000)
    assert [client.submit(doubled_sum, array, k).result(timeout=60) for k in range(5)] == [600_000 + k for k in range(5)]
    assert client.submit(doubled_sum, array[:], other[0]).result(timeout=60) == 600_000
    assert list(client.map(np.sum, [array] * 3)) == [300_000] * 3
    if where == "client":  # else a relay sends it in pieces
        assert sum(size == array.nbytes for size in made) == 1
    array[0] = 5
    assert client.submit(doubled_sum, array, other, other).result(timeout=60) == 600_008
    assert client.submit(doubled_sum, other, array).result(timeout=60).sum() == 300_004
    array.flags.writeable = False
    assert [client.submit(is_writable, array).result(timeout=60) for _ in range(2)] == [False, False]


def test_equal_arrays_of_one_call_are_the_calls_own_each(client):
    def equal():
        return np.zeros(2**18)

    for _ in range(3):
        assert client.submit(changed_first, equal(), equal()).result(timeout=60) == [1, 0]
        assert list(client.map(changed_first, [equal(), equal()], [equal(), equal()])) == [[1, 0]] * 2
        arrays = {"a": equal(), "b": equal(), "c": equal()}
        assert client.submit(lambda arrays: changed_first(*arrays.values()), arrays).result(timeout=60) == [1, 0, 0]


def changed_first(array, *others):
    array += 1
    return [each[0] for each in (array, *others)]


def doubled_sum(array, *more):
    array *= 2
    return array.sum() + sum(np.max(each) for each in more[:1]) if len(more) != 1 or np.ndim(more[0]) == 0 else more[0]


def is_writable(array):
    return array.flags.writeable


def test_what_is_put_has_a_bound(client, monkeypatch):
    monkeypatch.setattr("fairlead.client.caller.MOST_KEPT_BYTES", 5 * 2**20)
    kept = [client.put(np.ones(2**18)) for _ in range(2)]  # each by itself, though equal
    with pytest.raises(ValueError, match="4 MiB of values are kept, and at most 5 MiB can be: drop a handle"):
        client.put(np.zeros(2**18))
    assert client.submit(len, kept.pop()).result(timeout=60) == 2**18
    client.put(np.zeros(2**18))


def test_threads_put_values_at_once(client):
    def put():
        try:
            for k in range(2000):
                kept.append(client.put(k))
        except RuntimeError as error:
            failed.append(error)

    kept, failed = [], []
    threads = [threading.Thread(target=put) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len({each.number for each in kept}) == 8000


@pytest.mark.parametrize("where", ["client", "relayed"])
def test_a_worker_forgets_what_its_program_forgot(where, request, monkeypatch):
    client = request.getfixturevalue(where)
    monkeypatch.setattr("fairlead.client.repeated.MOST_BUFFERS", 3)
    lasting = client.put(np.ones(2**17))
    for k in range(12):
        array = np.full(2**17, k)
        assert {client.submit(np.sum, array).result(timeout=60) for _ in range(2)} == {k * 2**17}
        kept, other = client.put(np.full(2**17, k)), client.put(bytes(40_000))
        assert client.submit(at, ([kept], [other, lasting])).result(timeout=60)[0] == k * 2**17
        del kept, other
    values, descriptors = client.submit(held).result(timeout=60)
    assert values <= 3 + 1 + 2, "the arrays that are remembered, the lasting value, and at most the last two"
    assert descriptors <= values
    unread = [client.submit(at, ([client.put(np.full(2**17, k))], k)) for k in range(30)]  # some are taken back
    slow = client.submit(nap, 0.1)
    assert [future.result(timeout=60)[0] for future in unread] == [k * 2**17 for k in range(30)]
    assert slow.result(timeout=60) is None


def test_calls_have_their_values_though_they_are_taken_back_while_the_worker_reads(client, monkeypatch):
    received = wire.receive

    def slowly(line, *flags):
        message = received(line, *flags)
        if message is not None and message.number >= 2**62:  # a value: its worker has time to read on
            time.sleep(0.08)
        return message

    client.submit(nap, 0).result(timeout=60)
    monkeypatch.setattr(wire, "receive", slowly)
    for k in range(3):
        first = client.submit(nap, 0.05)  # the next calls are taken back while it runs
        array, value = np.full(2**17, k), client.put(k)
        calls = [client.submit(np.sum, array), client.submit(pow, value, 2), client.submit(np.max, array)]
        assert first.result(timeout=60) is None
        assert [each.result(timeout=60) for each in calls] == [k * 2**17, k**2, k]


@pytest.mark.parametrize("where", ["client", "relayed"])
def test_a_call_may_need_many_values(where, request):
    executor = request.getfixturevalue(where).executor(cpu=4)  # all that there is
    assert executor.submit(square, 3).result(timeout=60) == 9
    values = [request.getfixturevalue(where).put(os.urandom(30_000)) for _ in range(60)]
    busy, call = executor.submit(nap, 0.3), executor.submit(lambda values: sum(map(len, values)), values)
    assert busy.result(timeout=60) is None
    assert call.result(timeout=60) == 60 * 30_000


@pytest.mark.parametrize("where", ["client", "relayed"])
def test_a_call_that_waits_at_a_worker_is_stopped_and_the_one_that_runs_goes_on(where, request, tmp_path):
    executor = request.getfixturevalue(where).executor(cpu=4)  # all that there is
    assert executor.submit(square, 3).result(timeout=60) == 9
    began, go = str(tmp_path / "began"), str(tmp_path / "go")
    runs = executor.submit(began_and_wait_for, began, go)
    stopped, last = executor.submit(square, 4), executor.submit(square, 5)
    assert stopped.stop()
    with pytest.raises(CancelledError):
        stopped.result(timeout=60)
    Path(go).touch()
    assert runs.result(timeout=60) == go
    assert last.result(timeout=60) == 25


def test_a_call_whose_answer_is_on_its_way_counts_and_no_other_is_lost_with_the_lease_that_is_stopped(
    client, monkeypatch, tmp_path
):
    executor, leases = client.executor(cpu=4), client._caller.leases  # all that there is
    words = [str(tmp_path / name) for name in ("first", "began", "second", "first_began")]
    first = executor.submit(began_and_wait_for, words[3], words[0])
    until(lambda: Path(words[3]).exists())  # else the worker may not have read it, and it is taken back
    cancel, others = leases._cancel, []

    def cancel_late(*what):
        if not what[1] and not others:  # not for requests that wait
            Path(words[0]).touch()
            assert first.result(timeout=60) == words[0]
            others.append(executor.submit(began_and_wait_for, *words[1:3]))
            until(lambda: Path(words[1]).exists())
        return cancel(*what)

    monkeypatch.setattr(leases, "_cancel", cancel_late)
    first.stop()
    Path(words[2]).touch()
    assert others[0].result(timeout=60) == words[2]


def wait_for(path):
    until(Path(path).exists)
    return path


def began_and_wait_for(began, path):
    Path(began).touch()
    return wait_for(path)


def test_over_a_relay_a_call_whose_answer_is_on_its_way_is_not_stopped_and_its_worker_is_kept(relayed, monkeypatch):
    executor, leases, held, take = relayed.executor(cpu=4), relayed._caller.leases, [], []
    pid, receive = executor.submit(os.getpid).result(timeout=60), leases.relayed

    def late(*what):
        with leases.lock:
            (take[0] if take else held.append)(what)

    monkeypatch.setattr(leases, "relayed", late)
    future = executor.submit(bytes, 20_000)
    until(lambda: sum(len(data) for _, data in held) > 20_000)
    assert future.stop()
    with leases.lock:
        take.append(lambda what: receive(*what))
        for what in held:
            take[0](what)
    assert future.result(timeout=60) == bytes(20_000)
    assert executor.submit(os.getpid).result(timeout=60) == pid
    runs = executor.submit(nap, 100)
    until(runs.running)
    assert runs.stop()
    with pytest.raises(CancelledError):
        runs.result(timeout=60)


def held():
    """Return how many values a worker has, and descriptors of memory."""
    files = [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]
    return len(wire.kept), sum("memfd:fairlead" in each for each in files)


def at(argument):
    ((array,), _) = argument
    return array.sum(), array.flags.writeable, os.getpid()


@given(st.data())
def test_a_stream_loses_nothing_and_takes_nothing_twice(data):
    """Two ends, a connection that breaks anywhere, and what was on its way with it."""
    ends, sent, got = (Stream(), Stream()), ([], []), ([], [])
    ways = [bytearray(), bytearray()]  # to each end
    for _ in range(data.draw(st.integers(1, 30))):
        match data.draw(st.sampled_from(["send", "send", "move", "move", "cut"])):
            case "send":
                end = data.draw(st.integers(0, 1))
                body = b"y" * data.draw(st.sampled_from([0, 1, 50_000, 100_000]))
                sent[end].append(body)
                ends[end].send(len(sent[end]), wire.CALL, wire.pack(body))
            case "move":
                move(ends, ways, got, data.draw(st.integers(0, 1)), data.draw(st.integers(0, 120_000)))
            case "cut":
                connect(ends, ways)
    connect(ends, ways)
    for _ in range(8):
        move(ends, ways, got, 0, 2**30)
        move(ends, ways, got, 1, 2**30)
    assert [len(each) for each in got[1]] == [len(each) for each in sent[0]]
    assert [len(each) for each in got[0]] == [len(each) for each in sent[1]]
    assert not ends[0].owes()
    assert not ends[1].owes()


def connect(ends, ways):
    """A new connection, on which the relay, end 1, says what it has seen."""
    for end, way in zip(ends, ways, strict=True):
        end.cut()
        way.clear()
    ends[1].say(wire.RESUME)


def move(ends, ways, got, to, count):
    """Send all that there is; `count` bytes of it arrive."""
    for frame in ends[1 - to].take(2**20):
        ways[to] += b"".join(frame.pieces(ends[1 - to].seen))
    for message in ends[to].receive(bytes(ways[to][:count])):
        if message.kind == wire.RESUME:
            ends[to].say(wire.RESUMED)
            ends[to].resume()
        elif message.kind == wire.RESUMED:
            ends[to].resume()
        elif message.kind == wire.CALL:
            got[to].append(message.value())
    del ways[to][:count]


def test_what_a_worker_said_last_arrives_though_it_ended_without_reading_all():
    """Linux raises an error first then, and the program would not know why the worker ended."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        wire.send(ours, 1, wire.CALL, wire.Packed(b"unread"))
        wire.send(theirs, 1, wire.RAISED, wire.Packed(b"why"))
        theirs.close()
        assert (wire.receive(ours).kind, wire.receive(ours)) == (wire.RAISED, None)


def test_what_is_sent_to_a_relay_that_went_away_is_ignored():
    """It is no error of the scheduler's: the relay connects again and asks for it, or the worker has ended."""

    async def sent() -> bool:
        relays = Relays(lambda secret: "session", Wakeups())
        ours, theirs = socket.socketpair()
        await relays._attach_socket("session", 1, ours)
        answer = relays.received("session")
        await anext(answer)

        async def pieces():
            yield b"a word"
            theirs.close()
            for _ in range(3):
                yield bytes(2**20)

        found = await asyncio.wait_for(relays.send("session", 1, pieces()), 60)
        relays.close("session")
        await answer.aclose()
        return found

    assert asyncio.run(sent()) is False


def test_a_relay_may_connect_again_while_it_is_sent_something():
    async def sent():
        relays = Relays(lambda secret: "session", Wakeups())
        lines = [socket.socketpair() for _ in range(2)]
        await relays._attach_socket("session", 1, lines[0][0])
        answer = relays.received("session")
        await anext(answer)

        async def pieces():
            yield b"a word"
            await relays._attach_socket("session", 1, lines[1][0])
            await asyncio.sleep(0.05)
            yield b"another"

        found = await asyncio.wait_for(relays.send("session", 1, pieces()), 60)
        relays.close("session")
        await answer.aclose()
        return found

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(sent()) is False


def test_the_end_of_a_lease_says_how_many_calls_it_made(live):
    with fairlead.Client(live.home, queue="A", memory="256MiB") as client:
        assert len(list(client.map(square, range(300)))) == 300
        futures = [client.submit(nap, 0.01) for _ in range(5)]
        killed = client.submit(nap, 1.5)
        assert [future.result(timeout=60) for future in futures] == [None] * 5
        futures += [client.submit(os._exit, 1)]
        assert killed.result(timeout=60) is None
        with pytest.raises(fairlead.CallFailed):
            futures[-1].result(timeout=60)
    jobs = live.ask("jobs")["jobs"]
    assert sum(job["calls"] or 0 for job in jobs) == 306
    assert sum(job["call_seconds"] or 0 for job in jobs) > 1.5
    (used,) = live.ask("usage")["usage"]
    assert used["calls"] == 306
    assert used["call_hours"] > 1.5 / 3600
    assert "306" in live.ok("usage")
    live.kill()
    live.up()
    assert sum(job["calls"] or 0 for job in live.ask("jobs")["jobs"]) == 306


def test_relays_end_with_their_session_and_when_they_are_to_stop(live):
    def relays():
        (supervisor,) = live.supervisor()
        found = []
        for process in supervisor.children(recursive=True):
            with suppress(psutil.Error):
                found += [process] if "relay.main()" in " ".join(process.cmdline()) else []
        return found

    with fairlead.Client(live.home, queue="A", memory="256MiB") as client:
        client._caller.leases._begin()
        client._caller.leases.address = "nobody"
        future = client.submit(nap, 60)
        until(relays)
        until(future.running)
        (relay,) = relays()
        relay.terminate()
        client._caller.leases.break_off(fairlead.SchedulerGone("over"))
        client._caller.session.close()
        until(lambda: not relays())


def a_job_of(session, **more):
    return Job("q", {"cpu": 1000}, work=Work(call=Call(session, "c" * 32, **more)), tasks=1, retries=0, uid=os.geteuid())


class Told:
    """Sessions, and what a program hears of its leases; jobs are forgotten in the step in which they end."""

    def __init__(self, folder):
        self.state, self.sessions, self.at = new_state(), Sessions(folder / "calls", Wakeups()), 0
        self.sessions.recover(self.state)
        self.me = Person("me", os.geteuid(), os.getegid())
        self.name = self.sessions.create({"argv": ["-"]}, self.me)
        node, declared = Node("n", {"cpu": 4000}), [Queue("q")]
        self.step(Configured(at=0, queues=declared, settings=Settings(keep_jobs=0)), NodeJoined(at=0, node=node))

    def step(self, *facts):
        for fact in facts:
            apply(self.state, fact)
        if forgotten := [number for number in self.state.ended_jobs().tolist() if number in self.state.index.specs]:
            facts += (JobsForgotten(at=0, ids=forgotten),)
            apply(self.state, facts[-1])
        self.sessions.recorded(self.state, facts)

    def submitted(self, number, **more):
        return JobSubmitted(at=0, id=number, job=a_job_of(more.pop("session", self.name), **more))

    def start(self, number):
        one, zero = np.ones(1, np.int64), np.zeros(1, np.int64)
        self.step(self.submitted(number), TasksPlaced(at=0, job=number * one, index=zero, attempt=one, node=zero))
        self.step(TasksStarted(at=0, job=number * one, index=zero, attempt=one))

    def ended(self, number, outcome, code):
        one, zero = np.ones(1, np.int64), np.zeros(1, np.int64)
        return TasksFinished(
            at=0, job=number * one, index=zero, attempt=one, outcome=np.array([outcome]), code=np.array([code])
        )  # fmt: skip

    def ends(self):
        _, events = self.sessions.events(self.name, self.me.uid, self.sessions.epoch, 0, 1000)
        return [(each["job"], each["status"], each["exit"], each["reason"]) for each in events if each["status"] in ENDED]


def test_the_end_of_a_lease_that_is_forgotten_at_once_is_told(tmp_path):
    told = Told(tmp_path)
    told.step(told.submitted(1))
    told.step(JobCancelled(at=0, id=1))
    told.step(told.submitted(2), JobCancelled(at=0, id=2, indices=[0]))
    ends = {
        3: (Outcome.EXITED, 0),
        4: (Outcome.EXITED, 5),
        5: (Outcome.UNUSED, 0),
        6: (Outcome.SIGNALLED, 15),
        7: (Outcome.LOST, 1),
    }
    for number in (3, 4, 5, 6):
        told.start(number)
        if number == 6:
            told.step(JobCancelled(at=0, id=6))
        told.step(told.ended(number, *ends[number]))
    told.start(7)
    told.step(told.ended(7, *ends[7]), JobCancelled(at=0, id=7))
    assert told.ends() == [
        (1, "cancelled", None, None), (2, "cancelled", None, None), (3, "succeeded", 0, "exited"), (4, "failed", 5, "exited"),
        (5, "succeeded", 0, "idle"), (6, "cancelled", 143, "signalled"), (7, "cancelled", 1, "lost"),
    ]  # fmt: skip
    assert told.state.index.specs == {}


def test_a_folder_of_a_job_that_is_forgotten_at_once_does_not_stay(tmp_path):
    told = Told(tmp_path)
    sent = told.sessions.create({"argv": ["-"]}, told.me)
    told.step(told.submitted(1, session=sent, fetch=[]))
    told.sessions._sessions[sent].heard_at -= 1000
    assert told.sessions.silent() == []
    told.step(JobCancelled(at=0, id=1))
    told.sessions._sessions[sent].heard_at -= 1
    assert told.sessions.silent() == [sent]


def test_a_lease_that_is_cancelled_when_the_scheduler_restarts_is_told_as_such(tmp_path):
    told = Told(tmp_path)
    told.start(1)
    told.step(JobCancelled(at=0, id=1))
    told.sessions = Sessions(tmp_path / "calls", Wakeups())
    told.sessions.recover(told.state)
    told.step(told.ended(1, Outcome.SIGNALLED, 15))
    assert told.ends() == [(1, "cancelled", 143, "signalled")]
