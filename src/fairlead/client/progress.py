"""Bars on standard error, on a terminal and in a notebook."""

import threading
from concurrent.futures import Future
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


def progress_bars() -> Progress:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, disable=not (console.is_terminal or console.is_jupyter))


class ProgressBar:
    """Shows how many calls have ended, and how many of them failed. Thread-safe."""

    def __init__(self) -> None:
        self._bars, self._lock = progress_bars(), threading.Lock()
        self._calls = self._bars.add_task("calls", total=0)
        self._total = self._failed = 0
        self.stop = self._bars.stop

    def add(self, count: int) -> None:
        with self._lock:
            self._total += count
            self._bars.start()
            self._bars.update(self._calls, total=self._total)

    def ended(self, count: int, failed: bool) -> None:
        with self._lock:
            self._failed += failed
            name = f"calls, {self._failed} failed" if self._failed else "calls"
            self._bars.update(self._calls, advance=count, description=name)

    def future_ended(self, future: Future[Any]) -> None:
        self.ended(1, future.cancelled() or future.exception(0) is not None)
