"""Sets the results and exceptions of calls on their futures."""

import pickle
from concurrent.futures import BrokenExecutor, Future
from typing import Any


class CallFailed(RuntimeError):
    """The worker process ended before the function returned."""


class SchedulerGone(BrokenExecutor):
    """The scheduler stopped and did not come back."""


class RemoteTraceback(Exception):
    """The traceback in the worker, as the cause of a call's exception."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


def set_outcome(future: Future[Any], event: dict[str, Any]) -> None:
    """Set a call's result or exception on its future; the event's ``body`` is the result as the worker wrote it."""
    body = event.get("body")
    name = f"call {event['job']}.{event['index']}"
    if body is None or (event["status"] == "failed" and body[:1] == b"+"):
        reasons = {"out of memory": "used more memory than requested", "time limit": "was stopped at its time limit"}
        how = f"ended with status {event['exit']} ({event['reason']})"
        future.set_exception(
            CallFailed(f"{name}: its process {reasons.get(event['reason'], how)}: see `fairlead logs {name[5:]}`")
        )
        return
    try:
        value = pickle.loads(memoryview(body)[1:])
    except BaseException as why:
        future.set_exception(why)
        return
    if body[:1] == b"+":
        future.set_result(value)
    else:
        future.set_exception(raised_in_worker(*value))


def raised_in_worker(pickled: bytes, trace: str) -> BaseException:
    """Return a call's exception, with its traceback as the cause."""
    try:
        raised: BaseException = pickle.loads(pickled)
    except BaseException as why:
        raised = RuntimeError(f"{trace.splitlines()[-1]} (the exception itself cannot be unpickled here: {why!r})")
    raised.__cause__ = RemoteTraceback(trace)
    return raised


def fail(future: Future[Any], error: BaseException) -> None:
    """Set an exception on a future, unless it is done."""
    if future.running() or (not future.done() and future.set_running_or_notify_cancel()):
        future.set_exception(error)
