"""How busy the NVIDIA cards of a machine are, measured by a process of its own: a driver that hangs delays nothing else.

    python -m fairlead.engines.local.card_use

prints a line of JSON every few seconds, with a list for each card: its index, the percentage of the last second in which it
worked, and its memory in bytes, used and in all. It ends at once on a machine without NVIDIA's library, and when nobody reads.
"""

import contextlib
import json
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

EVERY = 5.0
"""Seconds between two measurements."""
MOST_UNREAD = 2**20
"""Bytes of a line."""


class CardWatch:
    """Runs that process while a scheduler wants to know; `report` is called with each list of cards that it prints."""

    command = (sys.executable, "-I", "-m", "fairlead.engines.local.card_use")

    def __init__(self, selector: selectors.BaseSelector, report: Callable[[list[Any]], None]) -> None:
        self._selector, self._report = selector, report
        self._pid, self._pipe, self._line = 0, -1, b""

    def begin(self) -> None:
        """Start to measure, unless that goes on already."""
        if self._pipe >= 0:
            return
        try:
            read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return
        try:
            os.set_blocking(write, True)
            given = [(os.POSIX_SPAWN_DUP2, write, 1), (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
            self._pid = os.posix_spawn(sys.executable, self.command, os.environ, file_actions=given, setsid=True)
        except OSError:  # no memory, or no process: the next inventory tries again
            os.close(read)
            return
        finally:
            os.close(write)
        self._pipe, self._line = read, b""
        self._selector.register(read, selectors.EVENT_READ, self._read)

    def end(self) -> None:
        """Stop; the supervisor reaps the process, as it does all its children."""
        if self._pipe >= 0:
            self._selector.unregister(self._pipe)
            os.close(self._pipe)
            self._pipe = -1
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def _read(self) -> None:
        data = os.read(self._pipe, 65536)
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            self._report(json.loads(line))
        if not data or len(self._line) > MOST_UNREAD:
            self.end()


def measured() -> list[list[int | None]]:
    """Return what the cards do now; without those that NVML cannot read. Raises pynvml.NVMLError without a driver."""
    import pynvml

    found: list[list[int | None]] = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            card = pynvml.nvmlDeviceGetHandleByIndex(index)
            memory = pynvml.nvmlDeviceGetMemoryInfo(card)
        except pynvml.NVMLError:  # it fell off the bus
            continue
        try:
            busy = int(pynvml.nvmlDeviceGetUtilizationRates(card).gpu)
        except pynvml.NVMLError:  # a card that is divided into instances does not say
            busy = None
        found.append([index, busy, int(memory.used), int(memory.total)])
    return found


def main() -> None:
    import pynvml

    with contextlib.suppress(pynvml.NVMLError, BrokenPipeError):
        pynvml.nvmlInit()
        while True:
            sys.stdout.write(json.dumps(measured()) + "\n")
            sys.stdout.flush()
            time.sleep(EVERY)


if __name__ == "__main__":
    main()
