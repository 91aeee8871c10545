"""CPython's own tests of executors, from the interpreter's `test` package, with a client in the place of its pools."""

import pytest

import fairlead

executor = pytest.importorskip("test.test_concurrent_futures.executor", reason="this Python has no `test` package, or an old one")
as_completed = pytest.importorskip("test.test_concurrent_futures.test_as_completed")
wait = pytest.importorskip("test.test_concurrent_futures.test_wait")
util = pytest.importorskip("test.test_concurrent_futures.util")


class _Fairlead(util.ExecutorMixin):
    @pytest.fixture(autouse=True)
    def _in(self, shared):
        type(self).executor_type = staticmethod(lambda max_workers: fairlead.Client(shared.home, queue="A", memory="256MiB"))


class TestExecutor(_Fairlead, executor.ExecutorTest, util.BaseTestCase):
    test_max_workers_negative = None  # a client has no such parameter


class TestAsCompleted(_Fairlead, as_completed.AsCompletedTests, util.BaseTestCase):
    pass


class TestWait(_Fairlead, wait.WaitTests, util.BaseTestCase):
    pass
