"""The exceptions of calls, and how they reach futures."""

import pickle
from concurrent.futures import BrokenExecutor, CancelledError, Future
from typing import Any


class CallFailed(RuntimeError):
    """The worker process ended before the function returned."""


class SchedulerGone(BrokenExecutor):
    """The scheduler stopped and did not come back."""


class RemoteTraceback(Exception):
    """The traceback in the worker, as the cause of a call's exception."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


def error_of(event: dict[str, Any]) -> BaseException | None:
    """Return why an attempt of a lease's task ended; None if it ended well."""
    name, reason = f"{event['job']}.{event['index']}", event["reason"]
    if event["status"] == "succeeded":
        return None
    if event["status"] == "cancelled":
        return CancelledError(f"call {name} was cancelled while it ran")
    how = {
        "out of memory": "used more memory than requested",
        "lost": "was lost with its node, or with the supervisor there",
        "preempted": "was preempted",
    }
    return failed(name, how.get(reason, f"ended with status {event['exit']} ({reason})"))


def failed(task: str, how: str) -> CallFailed:
    """Return the exception of a call whose process did not end well."""
    return CallFailed(f"call {task}: its process {how}: see `fairlead logs {task}`")


def raised_in_worker(log: str, pickled: bytes, trace: str) -> BaseException:
    """Return a call's exception, with its traceback as the cause, and a note with how to print what the call wrote."""
    try:
        raised: BaseException = pickle.loads(pickled)
    except BaseException as why:
        raised = RuntimeError(f"{trace.splitlines()[-1]} (the exception itself cannot be unpickled here: {why!r})")
    raised.__cause__ = RemoteTraceback(trace)
    raised.add_note(f"what the call wrote: `fairlead logs {log}`")
    return raised


def fail(future: Future[Any], error: BaseException) -> None:
    """Set an exception on a future, unless it is done."""
    if future.running() or (not future.done() and future.set_running_or_notify_cancel()):
        future.set_exception(error)
