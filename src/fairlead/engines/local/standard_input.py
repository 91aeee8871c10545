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
from collections.abc import Callable

from fairlead.engines.local.messages import Feed, Person

PIECE = 65536


class StandardInput:
    """The input of one task. A terminal is its output too, which is copied to its output file.

    Parameters
    ----------
    terminal : bool
    person : Person or None
        Owner of the terminal; None for the supervisor's user.
    say : callable
        Called when `taken` changed or no more will be taken.

    Attributes
    ----------
    theirs : int
        The end that becomes the task's descriptor 0, until `give_away`.
    taken : int
        Bytes of input written to the pipe or terminal.
    """

    def __init__(self, selector: selectors.BaseSelector, terminal: bool, person: Person | None, say: Callable[[], None]) -> None:
        self.terminal, self.taken = terminal, 0
        self._selector, self._say = selector, say
        self._pending, self._ends = bytearray(), False
        self._file, self._unwritten = -1, b""
        if terminal:
            self._ours, self.theirs = os.openpty()
            if person is not None:
                os.fchown(self.theirs, person.uid, -1)
        else:
            self.theirs, self._ours = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._ours, False)

    def begin(self, output: int) -> None:
        """Start forwarding; call it before the task starts. `output` is the file open for its output."""
        if self.terminal:
            self._file = os.dup(output)
        self._selector.register(self._ours, selectors.EVENT_READ, self._look)

    def give_away(self) -> None:
        """Close the task's end here, once the task has it or is not started."""
        os.close(self.theirs)

    def is_over(self) -> bool:
        """Return whether no more input will be taken."""
        return self._ours < 0

    def feed(self, piece: Feed) -> None:
        """Take what is new of a piece; resize the terminal."""
        if self.is_over():
            return
        if piece.size is not None and self.terminal:
            fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("4H", *piece.size, 0, 0))
        known = self.taken + len(self._pending)
        if piece.offset <= known <= piece.offset + len(piece.data) and len(self._pending) < len(piece.data) + PIECE:
            self._pending += piece.data[known - piece.offset :]
            self._ends |= piece.end
        self._write()

    def copy_output(self) -> None:
        """Copy what the task wrote to its terminal. On a full disk that waits, and so does the task."""
        while self.terminal and self._ours >= 0:
            try:
                while self._unwritten:
                    self._unwritten = self._unwritten[os.write(self._file, self._unwritten) :]
                self._unwritten = os.read(self._ours, PIECE)
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
        if self.is_over():
            return
        with contextlib.suppress(KeyError):  # it waits for the disk, or was never registered
            self._selector.unregister(self._ours)
        os.close(self._ours)
        self._ours = -1
        if self._file >= 0:
            os.close(self._file)
        self._pending.clear()
        self._say()

    def _look(self) -> None:
        """Handle readiness: output to copy or room to write; a readable pipe means that its reader closed it."""
        self.copy_output()
        if not self.terminal and not self._pending:
            self.close()
        self._write()

    def _write(self) -> None:
        before = self.taken
        try:
            while self._pending and self._ours >= 0:
                count = os.write(self._ours, self._pending[:PIECE])
                self.taken += count
                del self._pending[:count]
        except BlockingIOError:
            pass
        except OSError:  # the reader closed it
            self.close()
            return
        if self._ours < 0:
            return
        if self._ends and not self._pending and not self.terminal:
            self.close()
            return
        self._listen()
        if self.taken != before:
            self._say()

    def _listen(self) -> None:
        """Select for writing while input waits, and for output unless earlier output waits for the disk."""
        mask = (0 if self._unwritten else selectors.EVENT_READ) | (selectors.EVENT_WRITE if self._pending else 0)
        there = self._ours in self._selector.get_map()
        if mask and there:
            self._selector.modify(self._ours, mask, self._look)
        elif mask:
            self._selector.register(self._ours, mask, self._look)
        elif there:
            self._selector.unregister(self._ours)
