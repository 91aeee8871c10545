"""Pieces of standard input that are on their way to tasks, and what came of them."""

import base64
import contextlib
import threading
from collections.abc import Callable, Iterator

from fairlead.engines.local.instructions import message
from fairlead.engines.local.reports import Fed, Task


class Feeding:
    """Of all tasks of an engine; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fed: dict[Task, Fed | None] = {}  # of those that are being fed

    @contextlib.contextmanager
    def piece(
        self,
        tell: Callable[[bytes], None],
        task: Task,
        offset: int,
        data: bytes,
        end: bool,
        size: tuple[int, int] | None,
    ) -> Iterator[Callable[[], Fed | None]]:
        """Send a piece, and the size of the task's terminal; what this gives says what came of it so far.

        No two at once for one task. `tell` sends a message to the supervisor that has the task.
        """
        text = base64.b64encode(data).decode()
        with self._lock:
            self._fed[task] = None
        try:
            tell(message("feed", task=task, offset=offset, data=text, end=end, size=size))
            yield lambda: self._fed.get(task)
        finally:
            with self._lock:
                self._fed.pop(task, None)

    def hear(self, fed: Fed) -> None:
        """What a supervisor says came of a piece."""
        with self._lock:
            if fed.task in self._fed:
                self._fed[fed.task] = fed
