"""Leased workers: what becomes of calls when their worker, their lease or the program's room is taken away."""

import os
import time

import numpy as np
import pytest

import fairlead
from called import nap, square
from fairlead.calls import wire


@pytest.fixture(scope="module")
def world(shared):
    return shared


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


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
        until((tmp_path / "mark").exists)
        (supervisor,) = live.supervisor()
        supervisor.kill()
        with pytest.raises(fairlead.CallFailed):
            future.result(timeout=60)
        assert client.submit(square, 3).result(timeout=60) == 9
    assert (tmp_path / "mark").read_text() == "x"


def test_many_calls_take_few_leases(world):
    with fairlead.Client(world.home, queue="A", memory="256MiB") as client:
        futures = [client.submit(square, x) for x in range(2000)]
        assert [future.result(timeout=60) for future in futures] == [x * x for x in range(2000)]
        assert len({future.task for future in futures}) <= 20


def test_a_lease_ends_soon_after_others_wait(world):
    with fairlead.Client(world.home, queue="A", cpu=9, memory="256MiB") as client:
        futures = [client.submit(nap, 0.05) for _ in range(100)]
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


def test_parts_of_a_message_make_the_same_call():
    packed = wire.pack((np.add, (np.ones(300_000), 1), {}))
    assert len(packed.sizes) == 2
    assert (wire.call(wire.parts(packed)) == 2).all()
    assert wire.call(wire.parts(wire.pack((pow, (2, 5), {})))) == 32


def test_calls_are_tasks_where_workers_cannot_reach_the_program(world):
    with fairlead.Client(world.home, queue="A", memory="256MiB") as client:
        client._caller.leases._begin()
        client._caller.leases._address = "nobody"
        assert list(client.map(square, range(5))) == [0, 1, 4, 9, 16]
        assert client.submit(np.sum, np.ones(300_000)).result(timeout=60) == 300_000
        assert client._caller.leases.unreachable
