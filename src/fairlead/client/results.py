"""What calls come to: the results and exceptions that their futures are given."""

import pickle
from concurrent.futures import BrokenExecutor, Future
from typing import Any


class CallFailed(RuntimeError):
    """The process that called the function ended before the function did."""


class SchedulerGone(BrokenExecutor):
    """The scheduler went away, and did not come back."""


class RemoteTraceback(Exception):
    """The traceback of an exception in its worker, as the cause of that exception."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


def settle(future: Future[Any], event: dict[str, Any]) -> None:
    """Give a future what its call came to. `event` is what happened, with the result as it was written, its ``body``."""
    body = event.get("body")
    name = f"call {event['job']}.{event['index']}"
    if body is None or (event["status"] == "failed" and body[:1] == b"+"):
        reasons = {"out of memory": "used more memory than it asked for", "time limit": "was stopped at its time limit"}
        how = f"ended with status {event['exit']} ({event['reason']})"
        future.set_exception(
            CallFailed(f"{name}: its process {reasons.get(event['reason'], how)}: see `fairlead logs {name[5:]}`")
        )
        return
    try:
        told = pickle.loads(memoryview(body)[1:])
    except BaseException as why:
        future.set_exception(why)
        return
    if body[:1] == b"+":
        future.set_result(told)
    else:
        future.set_exception(_raised(*told))


def _raised(pickled: bytes, trace: str) -> BaseException:
    """The exception of a call, with its traceback as its cause."""
    try:
        raised: BaseException = pickle.loads(pickled)
    except BaseException as why:
        raised = RuntimeError(f"{trace.splitlines()[-1]} (the exception itself cannot be read here: {why!r})")
    raised.__cause__ = RemoteTraceback(trace)
    return raised


def fail(future: Future[Any], error: BaseException) -> None:
    """Give a future an exception, unless it is done."""
    if future.running() or (not future.done() and future.set_running_or_notify_cancel()):
        future.set_exception(error)
