"""Pieces of standard input on their way to tasks, and what the supervisor acknowledged."""

import base64
import contextlib
import threading
from collections.abc import Callable, Iterator

from fairlead.engines.local.instructions import message
from fairlead.engines.local.reports import Fed, Task


class Feeding:
    """The pieces of all tasks of an engine. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fed: dict[Task, Fed | None] = {}  # by task with a piece under way

    @contextlib.contextmanager
    def piece(
        self, send: Callable[[bytes], None], task: Task, offset: int, data: bytes, end: bool, size: tuple[int, int] | None
    ) -> Iterator[Callable[[], Fed | None]]:
        """Send a piece, and the size of the task's terminal. Yields a function that returns the latest acknowledgement.

        At most one at a time per task. `send` sends a message to the task's supervisor.
        """
        text = base64.b64encode(data).decode()
        with self._lock:
            self._fed[task] = None
        try:
            send(message("feed", task=task, offset=offset, data=text, end=end, size=size))
            yield lambda: self._fed.get(task)
        finally:
            with self._lock:
                self._fed.pop(task, None)

    def acknowledge(self, fed: Fed) -> None:
        """Take a supervisor's acknowledgement."""
        with self._lock:
            if fed.task in self._fed:
                self._fed[fed.task] = fed
