"""`Client.map`: calls that are sent together, against the built-in `map`."""

import os
import threading
import time
from concurrent.futures import CancelledError

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairlead
from called import nap, square
from conftest import until
from fairlead.calls import wire
from fairlead.calls.direct import DirectWorker
from fairlead.client.call_future import CallFuture
from fairlead.client.mapped import Mapped
from fairlead.client.results import fail


@pytest.fixture(scope="module")
def world(shared):
    return shared


@pytest.fixture
def client(world):
    with fairlead.Client(world.home, queue="A", memory="256MiB") as client:
        yield client


class Odd:
    """Equal by value, and not one of the types that are sent as they are."""

    def __init__(self, value):
        self.value = value


def call(argument):
    """What the calls of the histories do; who fails at what is in the argument."""
    value, fails = argument
    if fails:
        raise LookupError(value)
    return Odd(value) if value % 2 else value


class Worker:
    """Runs messages as a leased worker does, for as many calls as it is told."""

    def __init__(self, made):
        self.made = made

    def start(self, chunk, room):
        """Make the first calls of a message; return what it answers."""
        function, (fn, arguments), _ = wire.Message(1, wire.CALL, 0.0, chunk.packed).value()
        assert function.__name__ == "call_many"
        results, failure = [], None
        for each in arguments[: max(1, room)]:
            self.made.append(each[0][0])
            try:
                value = fn(*each)
                results.append(value if type(value) is int else (wire.pickle.dumps(value),))
            except LookupError as error:
                failure = (wire.pickle.dumps(error), "Traceback")
                break
        return results, failure


def message(value):
    return wire.Message(1, wire.PARTLY, 0.0, wire.pack(value))


@given(st.data())
def test_a_map_is_the_built_in_one_however_its_messages_are_cut(data):
    fails = data.draw(st.lists(st.sampled_from([False] * 9 + [True]), max_size=60))
    elements = [((value, each),) for value, each in enumerate(fails)]
    mapped = Mapped(call, elements, lambda: CallFuture(lambda f: f.cancel_here(), lambda f: f.cancel_here()), threading.RLock())
    made, under_way = [], []
    worker = Worker(made)
    while mapped.items or under_way:
        if mapped.items and (not under_way or data.draw(st.booleans(), "send")):
            chunk = mapped.pack(mapped.take(data.draw(st.integers(1, 20))))
            chunk.future.set_running_or_notify_cancel()
            under_way.append((chunk, *worker.start(chunk, data.draw(st.integers(1, 20)))))
        else:
            chunk, results, failure = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
            if data.draw(st.booleans(), "partly"):
                # It was asked for its results while its last call ran; after it, it starts no more.
                sent = results if failure is not None else results[:-1]
                chunk.partly(message(sent))()
                results = results[len(sent) :]
            mapped.learn(data.draw(st.sampled_from([1e-5, 0.003, 0.5])), max(1, len(results)))
            chunk.future.set_result((results, failure))
    found, expected = [], []
    for seen, values in ((found, mapped.results(0)), (expected, map(call, (each for (each,) in elements)))):
        try:
            seen.extend(each.value if isinstance(each, Odd) else each for each in values)
        except LookupError as error:
            seen.append(str(error))
    assert found == expected
    assert sorted(made) == list(range(len(elements))), "each once, also those after one that failed"
    if elements:
        assert mapped.whole.done() is not mapped.whole.cancelled()


def test_messages_grow_at_once_after_a_first_call_that_took_long():
    mapped = Mapped(square, [(x,) for x in range(99)], lambda: CallFuture(CallFuture.cancel_here, CallFuture.cancel_here), None)
    mapped.learn(3.0, 1)  # it imported
    assert mapped.take() == range(1)
    mapped.learn(1e-4, 1)
    assert mapped.take() == range(1, 17)
    mapped.learn(1e-4, 16)
    assert mapped.mean < 0.5
    assert mapped.take() == range(17, 99)


def test_a_map_whose_rest_fails_yields_what_had_arrived():
    mapped = Mapped(
        square, [(x,) for x in range(9)], lambda: CallFuture(CallFuture.cancel_here, CallFuture.cancel_here), threading.RLock()
    )
    chunk = mapped.pack(mapped.take(3))
    chunk.future.set_running_or_notify_cancel()
    chunk.future.set_result(([0, 1, 4], None))
    fail(mapped.whole, fairlead.SchedulerGone("it is gone"))
    results = mapped.results(None)
    assert [next(results) for _ in range(3)] == [0, 1, 4]
    with pytest.raises(fairlead.SchedulerGone, match="it is gone"):
        next(results)
    with pytest.raises(StopIteration):
        next(results)


@pytest.mark.parametrize("unheard", [0, 3])
def test_a_call_that_takes_longer_than_those_before_keeps_nobody_waiting(client, tmp_path, monkeypatch, unheard):
    """Results before it arrive, and those after it are of other workers. Who has not begun hears nothing, and is asked again."""
    release, asked, hurry = tmp_path / "release", [], DirectWorker.hurry

    def ask(worker):
        asked.append(worker)
        if len(asked) > unheard:
            hurry(worker)

    monkeypatch.setattr(DirectWorker, "hurry", ask)

    def wait_at(i):
        while i == 3000 and not release.exists():
            time.sleep(0.005)
        return os.getpid()

    results = client.map(wait_at, range(4000), timeout=60)
    before = [next(results) for _ in range(3000)]
    release.touch()
    assert len(before + list(results)) == 4000


def test_a_map_starts_each_call_once_though_a_worker_dies(client, tmp_path):
    def mark(i):
        with (tmp_path / str(i)).open("a") as file:
            file.write("x")
        if i == 150:
            os._exit(3)
        return i

    results = client.map(mark, range(300))
    found = []
    with pytest.raises(fairlead.CallFailed):
        found.extend(results)
    assert found == list(range(len(found)))
    assert {path.read_text() for path in tmp_path.iterdir()} <= {"x", ""}  # another worker may be about to write


def test_what_cannot_be_pickled_fails_where_it_is(client):
    def lock_at(i):
        return threading.Lock() if i == 5 else i

    for function, arguments in ((square, [0, 1, 2, 3, 4, threading.Lock()]), (lock_at, range(6))):
        results = client.map(function, arguments)
        assert [next(results) for _ in range(5)] == [function(x) for x in range(5)]
        with pytest.raises(TypeError, match="cannot pickle"):
            next(results)


def test_a_map_that_nobody_goes_on_with_starts_no_more_calls(client, tmp_path):
    def mark(i):
        (tmp_path / str(i)).touch()
        time.sleep(0.01)

    results = client.map(mark, range(5000))
    next(results)
    results.close()
    client.submit(nap, 0).result(timeout=60)
    assert len(list(tmp_path.iterdir())) < 1000


def test_a_map_of_a_client_that_cancels_what_waits(world):
    client = fairlead.Client(world.home, queue="A", memory="256MiB")
    results = client.map(nap, [0.2] * 500)
    next(results)
    client.shutdown(cancel_futures=True)
    with pytest.raises(CancelledError):
        list(results)


def test_large_arguments_of_a_map(client):
    blocks = [bytes([i]) * 2**20 for i in range(30)]
    assert list(client.map(len, blocks)) == [2**20] * 30
    assert list(client.map(bytes.swapcase, blocks)) == [block.swapcase() for block in blocks]


def test_a_refused_map_says_why(client):
    with pytest.raises(fairlead.ServiceError, match="there is no queue 'nowhere'"):
        list(client.map(square, range(9), queue="nowhere"))


class Pickled:
    """Arrives as 3; runs code of its own while it is pickled."""

    def __init__(self, meanwhile):
        self.meanwhile = meanwhile

    def __reduce__(self):
        self.meanwhile()
        return int, (3,)


def test_a_map_whose_first_message_takes_a_while_to_make_is_not_forgotten_and_has_one_lease(client):
    asked = client._caller._ask
    found = []
    client._caller.leases._ask = lambda *of: (found.append(of), asked(*of))
    assert list(client.map(square, [Pickled(lambda: time.sleep(1.5))], timeout=60)) == [9]
    assert len(found) == 1


@pytest.mark.parametrize("error", [None, LookupError, KeyboardInterrupt])
def test_a_map_that_is_dropped_while_its_message_is_made_never_runs_and_keeps_nobody(world, error):
    begun, go = threading.Event(), threading.Event()

    def meanwhile():
        begun.set()
        assert go.wait(60)
        if error is not None:
            raise error

    made = []
    client = fairlead.Client(world.home, queue="A", memory="256MiB", cpu=1)
    mapping = threading.Thread(target=lambda: made.append(raised_by(lambda: client.map(square, [Pickled(meanwhile), 1]))))
    mapping.start()
    assert begun.wait(60)
    (mapped,) = next(iter(client._caller.leases._shapes.values())).maps
    mapped.cancel()
    go.set()
    mapping.join(60)
    assert made[0] in (None, KeyboardInterrupt)
    client.shutdown()
    assert mapped.whole.done()


def raised_by(work):
    try:
        work()
    except BaseException as error:
        return type(error)
    return None


def test_a_map_that_raises_is_not_made_and_others_are(client):
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(client.map(square, [Pickled(interrupt), 2]))  # the client's thread may have been first
    assert list(client.map(square, [3])) == [9]
    assert client._caller.leases.counts()[1] == 0


def test_the_garbage_collector_ends_no_map_in_code_that_holds_the_lock(client):
    results = client.map(nap, [0.0, *[0.3] * 100])
    next(results)
    (mapped,) = next(iter(client._caller.leases._shapes.values())).maps
    with client._caller.leases.lock:
        before = list(mapped.items), set(mapped.under_way)
        results.close()
        assert (list(mapped.items), set(mapped.under_way)) == before
    until(mapped.whole.done)


def test_what_is_pickled_may_itself_keep_values(client):
    class Keeps:
        def __reduce__(self):
            return list, (client.put([1, 2]),)

    assert client.submit(lambda *of: of, Keeps(), client.put(3), Keeps()).result(timeout=60) == ([1, 2], 3, [1, 2])
