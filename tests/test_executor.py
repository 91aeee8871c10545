"""The executor: the contract of concurrent.futures, side by side with the standard library's, and what is fairlead's own."""

import asyncio
import concurrent.futures as cf
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Unpack, get_type_hints

import joblib
import pytest

import fairlead
from called import fail, nap, square, until_it_is_there
from conftest import until
from fairlead.client import caller, code_folder, session
from fairlead.client.call_future import CallFuture
from fairlead.client.code_folder import pack_folder
from fairlead.client.options import CallOptions, Options
from fairlead.client.results import RemoteTraceback
from fairlead.scheduler.effects import new_state


@pytest.fixture(scope="module")
def world(shared):
    return shared


@pytest.fixture
def client(world):
    with fairlead.Client(world.home, queue="A", memory="256MiB") as client:
        yield client


@pytest.fixture(params=["threads", "processes", "fairlead"])
def make(request, world):
    """Something that makes an executor with two workers."""
    if request.param == "threads":
        return lambda: cf.ThreadPoolExecutor(2)
    if request.param == "processes":
        return lambda: cf.ProcessPoolExecutor(2)
    return lambda: fairlead.Client(world.home, queue="A", cpu=4.5, memory="256MiB")


class TestContract:
    def test_results_and_arguments(self, make):
        with make() as executor:
            assert executor.submit(square, 7).result(timeout=60) == 49
            assert executor.submit(dict, [("a", 1)], b=2).result(timeout=60) == {"a": 1, "b": 2}

    def test_exceptions_come_with_their_type(self, make):
        with make() as executor:
            future = executor.submit(fail, "lost")
            with pytest.raises(LookupError, match="lost"):
                future.result(timeout=60)
            assert isinstance(future.exception(), LookupError)
            assert (future.done(), future.running(), future.cancelled()) == (True, False, False)

    def test_as_completed_and_wait(self, make, tmp_path):
        with make() as executor:
            slow, fast = executor.submit(until_it_is_there, tmp_path / "go"), executor.submit(nap, 0, "fast")
            assert next(cf.as_completed([slow, fast])) is fast
            done, pending = cf.wait([slow, fast], return_when=cf.FIRST_COMPLETED)
            assert (done, pending) == ({fast}, {slow})
            (tmp_path / "go").touch()
            assert cf.wait([slow, fast]).not_done == set()

    def test_map_keeps_the_order(self, make):
        with make() as executor:
            assert list(executor.map(square, range(50))) == [x * x for x in range(50)]
            assert list(executor.map(pow, [2, 3], [5, 2])) == [32, 9]
            assert list(executor.map(square, range(20), chunksize=6)) == [x * x for x in range(20)]
            assert list(executor.map(square, [])) == []

    def test_map_raises_where_the_call_did(self, make):
        with make() as executor:
            results = executor.map(int, ["1", "x", "3"])
            assert next(results) == 1
            with pytest.raises(ValueError, match="invalid literal"):
                next(results)

    def test_timeouts(self, make):
        with make() as executor:
            with pytest.raises(TimeoutError):
                executor.submit(nap, 0.6).result(timeout=0.05)
            with pytest.raises(TimeoutError):
                list(executor.map(nap, [0.6], timeout=0.05))

    def test_what_runs_cannot_be_cancelled_what_waits_can(self, make, tmp_path):
        with make() as executor:
            running = [executor.submit(until_it_is_there, tmp_path / "go") for _ in range(2)]
            until(lambda: all(f.running() for f in running))
            waiting = [executor.submit(nap, 0) for _ in range(8)]
            assert waiting[-1].cancel()
            assert waiting[-1].cancelled()
            assert waiting[-1].done()
            assert waiting[-1].cancel(), "again"
            assert not running[0].cancel()
            with pytest.raises(cf.CancelledError):
                waiting[-1].result(timeout=60)
            (tmp_path / "go").touch()
            assert cf.wait([waiting[-1]], timeout=60).done
            assert [f.result(timeout=60) for f in running] == [None, None]
            assert not running[0].cancel()

    def test_callbacks_may_submit_more(self, make):
        with make() as executor:
            found, second = [], threading.Event()

            def more(future):
                found.append(future.result())
                executor.submit(square, 5).add_done_callback(lambda f: (found.append(f.result()), second.set()))

            executor.submit(square, 4).add_done_callback(more)
            assert second.wait(60)
            assert found == [16, 25]

    def test_after_shutdown_nothing_is_taken(self, make):
        executor = make()
        future = executor.submit(nap, 0.3, "kept")
        executor.shutdown()
        assert future.done()
        assert future.result() == "kept"
        with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
            executor.submit(square, 1)
        executor.shutdown()

    def test_shutdown_may_leave_what_runs_and_cancel_what_waits(self, make, tmp_path):
        executor = make()
        running = [executor.submit(until_it_is_there, tmp_path / "go") for _ in range(2)]
        until(lambda: all(f.running() for f in running))
        waiting = [executor.submit(square, 1) for _ in range(12)]
        executor.shutdown(wait=False, cancel_futures=True)
        assert not any(f.done() for f in running)
        until(waiting[-1].cancelled)
        (tmp_path / "go").touch()
        assert [f.result(timeout=60) for f in running] == [None, None]

    def test_asyncio_runs_in_it(self, make):
        async def main(executor):
            loop = asyncio.get_running_loop()
            return await asyncio.gather(*(loop.run_in_executor(executor, square, x) for x in range(5)))

        with make() as executor:
            assert asyncio.run(main(executor)) == [0, 1, 4, 9, 16]

    def test_a_shut_down_executor_that_did_nothing(self, make):
        make().shutdown()


def test_the_traceback_of_the_worker_is_the_cause(client, world):
    error = client.submit(fail, "deep").exception(timeout=60)
    assert isinstance(error.__cause__, RemoteTraceback)
    assert "in fail" in str(error.__cause__)
    job = client._connection.get("/v1/jobs", limit=1)["jobs"][0]
    assert "LookupError: deep" in world.call("logs", str(job["id"])).stderr


def talk(word):
    print(word)
    print(word.upper(), file=sys.stderr)
    if word == "bad":
        raise LookupError(word)


@pytest.mark.parametrize("options", [{}, {"retries": 1}])
def test_the_output_of_a_call_is_found_by_its_future(world, client, options):
    """On a leased worker, whose output many calls share, and as a task of its own."""
    words = ["é", "two", "bad", "four"]
    with client.executor(**options) as executor:
        futures = {word: executor.submit(talk, word) for word in words}
    for word, future in futures.items():
        error = future.exception(timeout=60)
        found = world.call("logs", future.log)
        assert found.returncode == 0
        assert "".join(dict.fromkeys(found.stdout.splitlines())) == word
        assert set(found.stderr.splitlines()) & {each.upper() for each in words} == {word.upper()}
        assert future.log.startswith("{}.{}".format(*future.task))
        assert (error is None) == (word != "bad")
    assert futures["bad"].exception().__notes__ == [f"what the call wrote: `fairlead logs {futures['bad'].log}`"]


def test_an_error_in_a_map_says_where_its_output_is(world, client):
    with pytest.raises(LookupError) as raised:
        list(client.map(talk, ["one", "bad"]))
    (note,) = raised.value.__notes__
    assert "bad" in world.ok("logs", note.split()[-1].rstrip("`")).splitlines()


def test_a_wrong_place_of_a_call_is_refused_or_empty(world, client):
    future = client.submit(talk, "one")
    future.result(timeout=60)
    task = "{}.{}".format(*future.task)
    assert world.ok("logs", f"{task}@900-1000,5-2") == ""
    for wrong in (f"{task}@1-2", f"{future.task[0]}@1-2,3-4", f"{task}@a-b,1-2", f"{task}@1-2,3-4,5"):
        refused = world.call("logs", wrong)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "is not a job: write a number or name" in refused.stderr


def test_progress_counts_calls_and_failures(world, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as if on a terminal
    with fairlead.Client(world.home, queue="A", progress=True) as client:
        futures = [client.submit(talk, word) for word in ("good", "bad")]
        list(client.map(abs, range(40)))
        assert [future.exception(timeout=60) is None for future in futures] == [True, False]
    last = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err).split("\r")[-1]
    assert "42/42" in last
    assert "1 failed" in last


@pytest.mark.parametrize("in_task", [False, True])
def test_a_first_call_that_waits_says_why_once(world, monkeypatch, capsys, in_task):
    monkeypatch.setattr(session, "BUSY_POLL_SECONDS", 0.1)
    monkeypatch.setattr(caller, "PATIENCE_SECONDS", 0.2)
    asked, ask = [], caller.sentence_of_waiting
    monkeypatch.setattr(caller, "sentence_of_waiting", lambda *job: asked.append(ask(*job)) or asked[-1])
    polls, poll = [], session.Session.next_events
    monkeypatch.setattr(session.Session, "next_events", lambda *counts: (polls.append(counts), poll(*counts))[1])
    if in_task:
        monkeypatch.setenv("FAIRLEAD_JOB", "1")
    before = world.submit("-q", "A", "--cpu", "9", "--", "sleep", "600")
    world.until(lambda: world.job(before)["running"])
    with fairlead.Client(world.home, queue="A") as client:
        first = client.submit(abs, -1)
        until(lambda: asked or (in_task and len(polls) > 6))
        seen = len(polls)
        until(lambda: len(polls) > seen + 3)
        world.ok("cancel", str(before))
        assert first.result(timeout=60) == 1
    said = capsys.readouterr().err.splitlines()
    assert said == ([] if in_task else [f"fairlead: {each}" for each in asked])
    assert len(asked) == (not in_task)
    assert all(re.match(r"job [0-9]+ waits.*; ", each) for each in asked)


def test_progress_of_asynchronous_calls(world, monkeypatch, capsys):
    async def main():
        async with fairlead.AsyncClient(world.home, queue="A", progress=True) as client:
            assert await client.submit(abs, -1) == 1

    monkeypatch.setenv("FORCE_COLOR", "1")
    asyncio.run(main())
    assert "1/1" in capsys.readouterr().err


def test_a_worker_is_warm_and_isolated_by_queue_and_shape(world, client):
    first = {client.submit(os.getpid).result(timeout=60) for _ in range(5)}
    assert len(first) == 1
    other_queue = client.submit(os.getpid, queue="B").result(timeout=60)
    other_shape = client.submit(os.getpid, cpu=2).result(timeout=60)
    with fairlead.Client(world.home, queue="A", memory="256MiB") as another:
        other_program = another.submit(os.getpid).result(timeout=60)
    assert len({*first, other_queue, other_shape, other_program}) == 4


def test_calls_are_tasks_like_any_other(world, client):
    future = client.submit(nap, 0, queue="B")
    assert future.result(timeout=60) is None
    lease = world.job(future.task[0])
    assert (lease["name"], lease["queue"]) == ("nap", "B")
    until(lambda: world.job(lease["id"])["status"] == "succeeded")
    future = client.submit(print, "hello")
    future.result(timeout=60)
    assert world.ok("logs", str(future.task[0])) == "hello\n"


def test_code_goes_along_as_it_was_and_without_what_is_left_out(world, tmp_path, monkeypatch):
    for name, text in {
        "src/travelled.py": "from pathlib import Path\nword = Path('../word').read_text()\n",
        "word": "first",
        ".gitignore": "*.dat\n!kept.dat\n/build/\n",
        "a.dat": "",
        "kept.dat": "",
        "src/.gitignore": "!here.dat\nword\n",
        "src/here.dat": "",
        "src/word": "",
        "build/made": "",
        ".git/config": "",
        "src/__pycache__/x.pyc": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "link").symlink_to("src/here.dat")
    (tmp_path / "out").symlink_to("/somewhere")
    monkeypatch.chdir(tmp_path / "src")
    monkeypatch.syspath_prepend(str(tmp_path / "src"))

    def told():
        import travelled

        return travelled.word, sorted(map(str, Path("..").rglob("*"))), str(Path.cwd())

    with fairlead.Client(world.home, queue="A", memory="256MiB", working_dir="..") as client:
        (tmp_path / "word").write_text("second")
        word, names, folder = client.submit(told).result(timeout=60)
    assert word == "first"
    left = {".gitignore", "kept.dat", "link", "out", "src", "src/.gitignore", "src/here.dat", "src/travelled.py", "word"}
    assert {name.removeprefix("../") for name in names if "__pycache__" not in name} == left
    until(lambda: not Path(folder).exists())


def test_what_is_no_folder_or_too_large_does_not_go_along(tmp_path, monkeypatch):
    monkeypatch.setattr(code_folder, "MOST_BYTES", 2**21)
    with pytest.raises(ValueError, match="no such folder"):
        pack_folder(tmp_path / "none")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "large").write_bytes(bytes(2**21 + 1))
    with pytest.raises(ValueError, match=r"2 MiB are sent: most are in data \(2 MiB\): exclude"):
        pack_folder(tmp_path)
    (tmp_path / ".gitignore").write_text("data\n")
    before = pack_folder(tmp_path)
    os.utime(tmp_path / ".gitignore", (0, 0))
    assert pack_folder(str(tmp_path)) == before
    (tmp_path / ".gitignore").write_text("data/")
    assert pack_folder(tmp_path).name != before.name
    (tmp_path / ".fairleadignore").write_text("data")
    assert pack_folder(tmp_path).data


def test_a_folder_of_which_nothing_travels_is_there_and_empty(world, tmp_path):
    with fairlead.Client(world.home, queue="A", memory="256MiB", working_dir=tmp_path) as client:
        assert client.submit(os.listdir).result(timeout=60) == []


def test_patterns_are_read_as_git_reads_them(tmp_path):
    names = ["first", "second", "third"]
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_bytes(b"\xef\xbb\xbffirst\na\\\n!\nthird\n")
    assert set(code_folder._files(tmp_path)) == {".gitignore", "second"}


def test_functions_of_main_lambdas_and_closures_travel(client):
    base = 10
    assert client.submit(lambda x: x + base, 5).result(timeout=60) == 15
    assert client.submit(partial(pow, 2), 3).result(timeout=60) == 8


def test_large_arguments_and_results(client):
    block = os.urandom(20 * 2**20)
    assert client.submit(bytes.swapcase, block).result(timeout=60) == block.swapcase()


def test_a_function_with_arguments_of_these_names(client):
    assert client.executor(cpu=2).submit(dict, cpu=1, queue="x").result(timeout=60) == {"cpu": 1, "queue": "x"}


def test_a_worker_that_dies_fails_its_call_alone(client):
    dead = client.submit(os._exit, 7)
    assert "ended with status 7" in str(dead.exception(timeout=60))
    assert isinstance(dead.exception(), fairlead.CallFailed)
    killed = client.submit(lambda: os.kill(os.getpid(), signal.SIGKILL))
    assert "ended with status 137" in str(killed.exception(timeout=60))
    assert client.submit(square, 3).result(timeout=60) == 9


def test_a_call_that_uses_too_much_memory_is_told_so(client):
    error = client.executor(memory="64MiB").submit(lambda: len(bytearray(200 * 2**20))).exception(timeout=60)
    assert isinstance(error, fairlead.CallFailed)
    assert "more memory than requested" in str(error)


def test_retries_and_time_limits(client, tmp_path):
    def third_time():
        with (tmp_path / "tries").open("a") as file:
            file.write("x")
        if len((tmp_path / "tries").read_text()) < 3:
            raise OSError("not yet")
        return "done"

    assert client.executor(retries=2).submit(third_time).result(timeout=60) == "done"
    error = client.executor(time_limit=0.4).submit(nap, 60).exception(timeout=60)
    assert "time limit" in str(error)


def test_what_cannot_be_pickled(client):
    with pytest.raises(TypeError, match="cannot pickle"):
        client.submit(square, threading.Lock())
    with pytest.raises(TypeError, match="cannot pickle"):
        client.submit(threading.Lock).result(timeout=60)

    class Odd(Exception):
        def __init__(self, a, b):
            super().__init__(f"{a} and {b}")

    def odd():
        raise Odd(1, 2)

    assert "1 and 2" in str(client.submit(odd).exception(timeout=60))


def test_a_refused_call_is_told_by_its_future_alone(client):
    futures = [client.submit(square, 1), client.submit(square, 2, queue="nowhere"), client.submit(square, 3)]
    assert [futures[0].result(timeout=60), futures[2].result(timeout=60)] == [1, 9]
    with pytest.raises(fairlead.ServiceError, match="there is no queue 'nowhere'"):
        futures[1].result(timeout=60)


def test_a_call_that_is_cancelled_by_somebody_else_while_it_runs(client, world):
    future = client.submit(nap, 60)
    until(future.running)
    job, _ = future.task
    world.ok("cancel", str(job))
    with pytest.raises(cf.CancelledError, match="while it ran"):
        future.result(timeout=60)


def test_a_call_that_runs_has_its_task(client, monkeypatch):
    begins, seen = CallFuture.set_running_or_notify_cancel, []
    monkeypatch.setattr(CallFuture, "set_running_or_notify_cancel", lambda future: seen.append(future.task) or begins(future))
    future = client.submit(square, 3)
    assert future.result(timeout=60) == 9
    assert seen == [future.task]
    assert future.task is not None


def test_nothing_is_left_of_a_program_that_ended(world):
    with fairlead.Client(world.home, queue="A") as client:
        assert list(client.map(square, range(300))) == [x * x for x in range(300)]
        folder = world.home / "calls" / client._caller.session.id
        pid = client.submit(os.getpid).result(timeout=60)
        assert folder.exists()
    assert not folder.exists()
    until(lambda: not Path(f"/proc/{pid}").exists())


def test_results_that_were_fetched_are_dropped(world, client):
    list(client.map(square, range(200)))
    folder = world.home / "calls" / client._caller.session.id
    client.submit(nap, 0.2).result(timeout=60)
    until(lambda: len(list(folder.iterdir())) <= 4)


def test_a_restart_of_the_scheduler_in_the_middle(live, tmp_path):
    with fairlead.Client(live.home, queue="A") as client:
        marks = tmp_path / "marks"
        marks.mkdir()

        def mark(i):
            time.sleep(0.3)
            with (marks / str(i)).open("a") as file:
                file.write("x")
            return i

        futures = [client.submit(mark, i) for i in range(40)]
        until(lambda: any(f.done() for f in futures))
        live.kill()
        time.sleep(0.5)
        live.up()
        assert [f.result(timeout=60) for f in futures] == list(range(40))
        assert {p.read_text() for p in marks.iterdir()} == {"x"}, "none ran twice"


def test_dask_runs_on_it(client):
    dask = pytest.importorskip("dask")
    with dask.config.set(scheduler=client):
        lazy = [dask.delayed(square)(x) for x in range(20)]
        total = dask.delayed(sum)(lazy)
        assert dask.compute(total, lazy[3]) == (sum(x * x for x in range(20)), 9)
        with pytest.raises(ZeroDivisionError):
            dask.compute(dask.delayed(divmod)(1, 0))
    assert client._caller.leases.thread is not None


def test_joblib_runs_on_it(world):
    fairlead.register_joblib()
    with joblib.parallel_config("fairlead", home=str(world.home), queue="A", memory="256MiB"):
        assert joblib.Parallel()(joblib.delayed(square)(x) for x in range(100)) == [x * x for x in range(100)]
        assert joblib.Parallel(n_jobs=2)(joblib.delayed(square)(x) for x in range(5)) == [0, 1, 4, 9, 16]
        with pytest.raises(LookupError, match="lost"):
            joblib.Parallel(n_jobs=2)(joblib.delayed(fail)("lost") for _ in range(3))
        workers = [set(joblib.Parallel(n_jobs=2)(joblib.delayed(os.getpid)() for _ in range(9))) for _ in range(2)]
        assert workers[0] & workers[1], "they stay from one to the next"


def test_a_parallel_of_joblib_takes_the_parameters_of_a_client(world):
    fairlead.register_joblib()
    calls = [joblib.delayed(square)(x) for x in range(3)]
    home = {"home": str(world.home), "memory": "256MiB"}
    assert joblib.Parallel(2, "fairlead", queue="A", **home)(calls) == [0, 1, 4]
    with pytest.raises(fairlead.ServiceError, match="nobody"):
        joblib.Parallel(2, "fairlead", queue="nobody", **home)(calls)
    with joblib.parallel_config("fairlead", queue="A", **home):
        with pytest.raises(fairlead.ServiceError, match="no node has zone=nowhere"):
            joblib.Parallel(2, on={"zone": "nowhere"})(calls)
        assert joblib.Parallel(2)(calls) == [0, 1, 4]
    with pytest.raises(TypeError, match="quue"):
        joblib.Parallel(2, "fairlead", quue="A", **home)(calls)


def test_the_async_twin(world):
    async def main():
        async with fairlead.AsyncClient(world.home, queue="A") as client:
            assert await client.submit(square, 6) == 36
            assert [x async for x in client.map(square, range(5))] == [0, 1, 4, 9, 16]
            with pytest.raises(LookupError):
                await client.submit(fail, "x")
            job = await client.submit_job(["sh", "-c", "echo $FAIRLEAD_INDEX {index}"], tasks=2)
            assert (await client.wait(job, timeout=60))["status"] == "succeeded"
            assert job.output(1) == b"1 1\n"

    asyncio.run(main())


def test_a_call_is_stopped_while_it_waits_and_while_it_runs(client, world):
    future = client.submit(nap, 60)
    until(future.running)
    assert not future.cancel()
    assert future.stop()
    with pytest.raises(cf.CancelledError, match="while it ran"):
        future.result(timeout=60)
    assert not future.stop(), "there is nothing left to stop"
    waits = client.executor(on={"zone": "nowhere"}, wait_for_node=True).submit(nap, 60)
    job = lambda: client._connection.get("/v1/jobs", limit=1)["jobs"][0]  # noqa: E731
    until(lambda: job()["status"] == "waiting")
    assert waits.stop()
    until(lambda: job()["status"] == "cancelled")
    with pytest.raises(cf.CancelledError):
        waits.result(timeout=60)
    assert client.submit(square, 3).result(timeout=60) == 9


def test_a_call_that_no_node_could_hold_says_so_at_once(client):
    with pytest.raises(fairlead.ServiceError, match="no node is large enough for cpu=999 memory=256Mi"):
        client.submit(square, 3, cpu=999).result(timeout=60)
    with pytest.raises(fairlead.ServiceError, match="no node has zone=nowhere"):
        client.executor(on={"zone": "nowhere"}).submit(square, 3).result(timeout=60)


def test_tasks_of_asyncio_are_calls_and_stop_theirs(world, tmp_path):
    stopped = []

    def mark():
        (tmp_path / "mark").touch()
        time.sleep(60)

    async def main():
        async with fairlead.AsyncClient(world.home, queue="A", memory="256MiB") as client:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(client.submit(square, x)) for x in range(5)]
            assert [task.result() for task in tasks] == [0, 1, 4, 9, 16]
            going = asyncio.create_task(client.submit(mark, cpu=2))
            under_way = client._client._caller.leases
            while not (tmp_path / "mark").exists():
                await asyncio.sleep(0.01)
            (future,) = under_way.pending()
            stopped.append(future.task[0])
            going.cancel()
            with pytest.raises(asyncio.CancelledError):
                await going
            async for x in client.map(nap, [0, 60, 60], [1, 2, 3]):
                assert x == 1
                break

    asyncio.run(main())  # which waits until all has ended: nothing naps on
    assert world.job(stopped[0])["status"] == "cancelled"


PROGRAMS = {
    "with": """
with fairlead.Client(queue="A", memory="256MiB") as client:
    futures = [client.submit(nap, 600) for _ in range(40)]
    told(futures)
    futures[0].result()
""",
    "without": """
client = fairlead.Client(queue="A", memory="256MiB")
futures = [client.submit(nap, 600) for _ in range(40)]
told(futures)
futures[0].result()
""",
    "at its end": """
client = fairlead.Client(queue="A", memory="256MiB")
futures = [client.submit(nap, 600) for _ in range(40)]
told(futures)
""",
    "after its last line": """
import threading
client = fairlead.Client(queue="A", memory="256MiB")
futures = [client.submit(nap, 600) for _ in range(40)]
threading._register_atexit(lambda: (told(futures), nap(600)))
""",
    "in a finalizer": """
class Slow:
    def __del__(self):
        told(futures)
        nap(600)
client = fairlead.Client(queue="A", memory="256MiB")
futures = [client.submit(nap, 600) for _ in range(40)]
slow = Slow()
del slow
futures[0].result()
""",
    "executor": """
client = fairlead.Client(queue="A", memory="256MiB")
with client.executor(cpu=2) as executor:
    futures = [executor.submit(nap, 600) for _ in range(40)]
    told(futures)
    futures[0].result()
""",
    "asyncio": """
async def main():
    async with fairlead.AsyncClient(queue="A", memory="256MiB") as client:
        async with asyncio.TaskGroup() as group:
            for _ in range(40):
                group.create_task(client.submit(nap, 600))
            await asyncio.sleep(0)
            await asyncio.to_thread(told, client._client._caller.leases.pending())
asyncio.run(main())
""",
}
BEGINNING = """
import asyncio, time
import fairlead
nap = time.sleep
def told(futures):
    while not any(future.running() for future in futures):
        time.sleep(0.01)
    time.sleep(0.1)  # others are being asked for
    print(*sorted({future.task[0] for future in futures if future.running()}), flush=True)
"""


@pytest.mark.parametrize("how", PROGRAMS)
def test_a_program_that_is_interrupted_ends_and_leaves_nothing(world, how):
    program = subprocess.Popen(
        [sys.executable, "-c", BEGINNING + PROGRAMS[how]], env={**os.environ, "FAIRLEAD_HOME": str(world.home)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    jobs = [int(job) for job in program.stdout.readline().split()]
    assert jobs
    program.send_signal(signal.SIGINT)
    _, said = program.communicate(timeout=60)
    assert "KeyboardInterrupt" in said, (program.returncode, said)
    assert "internal error" not in said
    for job in jobs:  # a lease ends well if its only call, of 600 s, was taken back before the worker read it
        until(lambda job=job: world.job(job)["status"] in ("cancelled", "succeeded"))


@pytest.mark.parametrize(
    "function",
    [fairlead.Client, fairlead.Client.executor, fairlead.Client.map, fairlead.Client.submit_job, fairlead.AsyncClient,
     fairlead.AsyncClient.map],
)  # fmt: skip
def test_options_are_named_where_they_may_be_given(function):
    fields = set(Options.__dataclass_fields__)
    assert fields <= set(inspect.signature(function).parameters)
    assert set(get_type_hints(CallOptions)) == fields
    method = function.__init__ if inspect.isclass(function) else function
    assert get_type_hints(method)["options"] == Unpack[CallOptions]


def test_jobs_from_a_program(world, client):
    job = client.submit_job(["sh", "-c", "echo out; echo err >&2; exit 3"], name="three", cpu="500m")
    with pytest.raises(TimeoutError):
        client.submit_job(["sleep", "30"], name="nap").wait(timeout=0.1)
    with pytest.raises(TypeError, match='a command is a list of words: \\["sh", "-c", "echo x"\\] runs a line'):
        client.submit_job("echo x")
    assert job.wait(timeout=60)["status"] == "failed"
    assert (job.output(), job.output(stream="err")) == (b"out\n", b"err\n")
    assert [task["exit"] for task in job.tasks()] == [3]
    many = client.submit_job(["sh", "-c", "test {index} != 2"], tasks=5, cpu="100m", memory="16Mi")
    assert many.wait(timeout=60)["failed"] == 1
    for asked, told in (({}, [0, 1, 2, 3, 4]), ({"indices": range(1, 3)}, [1, 2]), ({"indices": range(0)}, [])):
        assert [task["index"] for task in many.tasks(**asked)] == told
    assert [task["index"] for task in many.tasks("failed", indices=range(1, 9))] == [2]
    after = client.submit_job(["true"], after=[(job.id, "failure")])
    assert after.wait(timeout=60)["status"] == "succeeded"
    nap_job = next(j for j in client._connection.get("/v1/jobs")["jobs"] if j["name"] == "nap")
    nap_job = client.job(nap_job["id"])
    assert nap_job.cancel()
    assert nap_job.wait(timeout=60)["status"] == "cancelled"
    with pytest.raises(fairlead.ServiceError, match="no node is large enough"):
        client.submit_job(["true"], cpu=999, strict=True)
    waiting = client.submit_job(["true"], cpu=999)
    assert waiting.why()["reason"] == "too large"
    waiting.cancel()
    with pytest.raises(fairlead.ServiceError, match="there is no job 99999"):
        client.job(99999)


def test_no_scheduler(tmp_path):
    with pytest.raises(fairlead.ServiceError, match="start one with `fairlead up`"):
        fairlead.Client(tmp_path)


def test_a_scheduler_that_never_comes_back(live):
    client = fairlead.Client(live.home, queue="A")
    client._connection.retry_seconds = 0.5
    future = client.submit(nap, 60)
    until(future.running)
    live.kill()
    with pytest.raises(fairlead.SchedulerGone, match="no scheduler runs"):
        future.result(timeout=60)
    with pytest.raises(fairlead.SchedulerGone):
        client.submit(square, 1)
    client.shutdown()


def test_the_session_of_a_program_that_was_killed_is_closed(world, monkeypatch):
    from fairlead.people.accounts import myself
    from fairlead.scheduler.admission import Unknown
    from fairlead.service import sessions as module
    from fairlead.service.wakeups import Wakeups

    sessions = module.Sessions(world.folder / "calls", Wakeups())
    sessions.recover(new_state())
    name = sessions.create({"argv": ["x"], "cwd": "/", "env": {}, "encoding": "utf-8", "path": []}, myself())
    assert sessions.touch(name, os.geteuid()) == world.folder / "calls" / name
    with pytest.raises(Unknown):  # a person is told no more of another's than of one that there is not
        sessions.touch(name, os.geteuid() + 1)
    assert sessions.silent() == []
    monkeypatch.setattr(module, "LEASE_SECONDS", -1.0)
    assert sessions.silent() == [name]
    sessions.close(name)
    assert not (world.folder / "calls" / name).exists()
    assert json.dumps(sessions.silent()) == "[]"


def test_workers_import_what_is_preloaded_before_calls_come(world, tmp_path, monkeypatch):
    """As soon as the client exists, and once in each worker; the import is no call, whose time would ask for more leases."""
    (tmp_path / "slow_to_import.py").write_text(
        "import os, time\ntime.sleep(0.5)\n"
        f"with open({str(tmp_path / 'imported')!r}, 'a') as file:\n    file.write(f'{{os.getpid()}}\\n')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with fairlead.Client(world.home, queue="A", memory="64MiB", preload=["slow_to_import"]) as client:
        until((tmp_path / "imported").exists)
        first = client.submit(lambda: (os.getpid(), "slow_to_import" in sys.modules)).result(timeout=60)
        calls = [client.submit(os.getpid) for _ in range(300)]
        workers = {call.result(timeout=60) for call in calls} | {first[0]}
        assert first[1]
        assert len(workers) <= 4
    imported = (tmp_path / "imported").read_text().split()
    assert len(imported) == len(set(imported))
    assert workers <= set(map(int, imported))


def test_what_cannot_be_preloaded_fails_the_calls(world):
    with (
        fairlead.Client(world.home, queue="A", memory="64MiB", preload=["no_such_module"]) as client,
        pytest.raises(ModuleNotFoundError, match="no_such_module"),
    ):
        client.submit(square, 3).result(timeout=60)
    with pytest.raises(TypeError, match=r"preload=\['numpy'\]"):
        fairlead.Client(world.home, queue="A", preload="numpy")


def test_workers_that_wait_do_not_outlive_a_killed_supervisor(live):
    with fairlead.Client(live.home, queue="A", memory="256MiB") as client:
        worker = client.submit(os.getpid).result(timeout=60)
        (supervisor,) = live.supervisor()
        supervisor.kill()
        until(lambda: not Path(f"/proc/{worker}").exists())
        assert client.submit(os.getpid).result(timeout=60) != worker


def test_a_function_that_writes_where_its_worker_answers_fails_alone(client):
    def meddle():
        os.write(3, b"what\n")
        time.sleep(60)

    with pytest.raises(fairlead.CallFailed):
        client.submit(meddle).result(timeout=60)
    assert client.submit(square, 3).result(timeout=60) == 9


def test_a_callback_may_shut_its_executor_down(world):
    client = fairlead.Client(world.home, queue="A", memory="256MiB")
    done = threading.Event()
    client.submit(square, 2).add_done_callback(lambda f: (client.shutdown(), done.set()))
    assert done.wait(60)
    with pytest.raises(RuntimeError):
        client.submit(square, 3)


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_forked_process_keeps_no_worker_and_makes_and_stops_no_calls(world, tmp_path):
    with fairlead.Client(world.home, queue="A", cpu=9, memory=0) as client:
        results = client.map(square, [2])
        assert next(results) == 4
        running = client.submit(until_it_is_there, tmp_path / "go")
        until(running.running)
        (said, say), (hold, go) = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            try:
                client.submit(square, 3)
            except RuntimeError as error:
                os.write(say, str(error).encode())
            results.close()
            stopped = running.stop()
            client.shutdown()  # that of the program is not closed
            os.write(say, f", {stopped}, {client.capacity()}".encode())  # over a connection of its own
            os.close(go)
            os.read(hold, 1)
            os._exit(0)
        found = b""
        while not found.endswith(b"make one here, False, 1"):
            found += os.read(said, 1000)
        (tmp_path / "go").touch()
        running.result(timeout=60)
        assert client.submit(square, 3, cpu=8.5).result(timeout=60) == 9  # once the first worker has ended
        os.close(go)
        assert os.waitpid(child, 0)[1] == 0
    for each in (said, say, hold):
        os.close(each)
