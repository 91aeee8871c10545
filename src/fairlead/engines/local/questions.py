"""Questions to supervisors, and their answers."""

import itertools
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from fairlead.engines.local.instructions import message
from fairlead.engines.local.reports import OutputPiece, StreamAnswer


class Questions:
    """The questions of an engine that are not answered. Thread-safe."""

    def __init__(self) -> None:
        self._asked: dict[int, tuple[str, bytes, Future[Any]]] = {}
        self._numbers = itertools.count(time.time_ns() // 2000 * 2, 2)  # even; a supervisor may answer an earlier scheduler's

    def ask(self, send: Callable[[bytes], None], node: str, do: str, **what: Any) -> Future[Any]:
        """Send a question to a node's supervisor. A cancelled future is forgotten."""
        number, future = next(self._numbers), Future[Any]()
        line = message(do, ask=number, **what)
        self._asked[number] = node, line, future
        future.add_done_callback(lambda _: self._asked.pop(number, None))
        send(line)
        return future

    def unanswered(self, node: str) -> bytes:
        """Return the open questions to a node, as messages: they are repeated when its connection is renewed."""
        return b"".join(line for asked, line, _ in list(self._asked.values()) if asked == node)

    def answer(self, node: str, answer: OutputPiece | StreamAnswer) -> None:
        """Take an answer, if it comes from the node that was asked."""
        asked, _, future = self._asked.get(answer.ask, ("", b"", None))
        if future is not None and asked == node and future.set_running_or_notify_cancel():
            future.set_result(answer)
