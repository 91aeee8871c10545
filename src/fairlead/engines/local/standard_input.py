"""Standard input that is forwarded to a task: a pipe, or a terminal of its own.

Pieces have offsets: a repeated piece is taken once, and one after a gap is dropped, so a sender continues from what was taken.
The supervisor never waits for a task that does not read. Standard library only.
"""

import contextlib
import errno
import fcntl
import os
import selectors
import struct
import termios
from collections.abc import Callable, Sequence

from fairlead.engines.local.messages import Feed, Person

PIECE = 65536


def listen(selector: selectors.BaseSelector, fd: int, mask: int, callback: Callable[[], None]) -> None:
    """Select a descriptor for these events, or for none."""
    there = fd in selector.get_map()
    if mask and there:
        selector.modify(fd, mask, callback)
    elif mask:
        selector.register(fd, mask, callback)
    elif there:
        selector.unregister(fd)


class Feeder:
    """A pipe, terminal or socket that is fed piece by piece. A subclass says how it stops, and what else it selects for.

    answer : called with the question that came with the last piece, once all of it is taken, or no more will be; or another
        came

    theirs : the end that becomes a program's descriptor 0
    """

    def __init__(self, selector: selectors.BaseSelector, answer: Callable[..., None], terminal: bool = False) -> None:
        self._selector, self._answer, self.terminal = selector, answer, terminal
        self._writer = self.theirs = -1
        self._taken, self._pending, self._ends = 0, bytearray(), False
        self._asked, self._least = 0, 0

    def feed(self, piece: Feed) -> None:
        """Take what is new of a piece; resize the terminal."""
        self._reply(always=True)
        self._asked, self._least = piece.ask, piece.offset + len(piece.data)
        if piece.size is not None and self.terminal and self._writer >= 0:
            self._resize(piece.size)
        known = self._taken + len(self._pending)
        if piece.offset <= known <= self._least and len(self._pending) < len(piece.data) + PIECE and self._writer >= 0:
            self._pending += piece.data[known - piece.offset :]
            self._ends |= piece.end
        self._write()

    def _resize(self, size: Sequence[int]) -> None:
        fcntl.ioctl(self._writer, termios.TIOCSWINSZ, struct.pack("4H", *size, 0, 0))

    def _write(self) -> None:
        try:
            while self._pending and self._writer >= 0:
                count = os.write(self._writer, self._pending[:PIECE])
                self._taken += count
                del self._pending[:count]
        except BlockingIOError:
            pass
        except OSError:  # nobody reads it
            self._stop_writing()
        if self._ends and not self._pending and not self.terminal and self._writer >= 0:
            self._stop_writing()
        self._reply()
        self._listen()

    def _reply(self, always: bool = False) -> None:
        if self._asked and (always or self._writer < 0 or self._taken >= self._least):
            ask, self._asked = self._asked, 0
            self._answer(ask, taken=self._taken, over=self._writer < 0)

    def _stop_writing(self) -> None:
        raise NotImplementedError

    def _listen(self) -> None:
        raise NotImplementedError


class StandardInput(Feeder):
    """The input of one task. A terminal is its output too, which is copied to its output file.

    person : owner of the terminal; None for the supervisor's user
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        terminal: bool,
        person: Person | None,
        answer: Callable[..., None],
        size: tuple[int, ...] = (),
    ) -> None:
        super().__init__(selector, answer, terminal)
        self._file, self._unwritten = -1, b""
        if terminal:
            self._writer, self.theirs = os.openpty()
            if size:
                self._resize(size)
            if person is not None:
                os.fchown(self.theirs, person.uid, -1)
        else:
            self.theirs, self._writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._writer, False)

    def begin(self, output: int) -> None:
        """Start forwarding; call it before the task starts. `output` is the file open for its output."""
        if self.terminal:
            self._file = os.dup(output)
        self._selector.register(self._writer, selectors.EVENT_READ, self._look)

    def copy_output(self) -> None:
        """Copy what the task wrote to its terminal. On a full disk that waits, and so does the task."""
        while self.terminal and self._writer >= 0:
            try:
                while self._unwritten:
                    self._unwritten = self._unwritten[os.write(self._file, self._unwritten) :]
                self._unwritten = os.read(self._writer, PIECE)
            except BlockingIOError:  # nothing more was written
                self._listen()
                return
            except OSError as error:
                if error.errno == errno.EIO:  # no process has the terminal open
                    self.close()
                else:
                    self._listen()
                return

    def close(self) -> None:
        """Take no more. The task reads the rest; a terminal hangs up."""
        if self._writer < 0:
            return
        with contextlib.suppress(KeyError):  # it waits for the disk, or was never registered
            self._selector.unregister(self._writer)
        os.close(self._writer)
        self._writer = -1
        if self._file >= 0:
            os.close(self._file)
        self._pending.clear()
        self._reply()

    def _stop_writing(self) -> None:
        self.close()

    def _look(self) -> None:
        """Handle readiness: output to copy or room to write; a readable pipe means that its reader closed it."""
        self.copy_output()
        if not self.terminal and not self._pending:
            self.close()
        self._write()

    def _listen(self) -> None:
        """Select for writing while input waits, and for output unless earlier output waits for the disk."""
        if self._writer >= 0:
            mask = (0 if self._unwritten else selectors.EVENT_READ) | (selectors.EVENT_WRITE if self._pending else 0)
            listen(self._selector, self._writer, mask, self._look)
