"""What a task reads as its standard input where that is handed on to it: a pipe, or a terminal of its own.

Pieces come with their offsets: one that comes twice is taken once, and one after a gap not at all, so whoever sends them goes on
from what was taken. The supervisor never waits for a task that does not read. Only the standard library.
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
    """One task's. A terminal is its output as well, which is copied to the file that is its output else.

    Parameters
    ----------
    terminal : bool
    person : Person or None
        Whose the terminal is to be; None for whose process this is.
    say : callable
        Told when what was taken has changed, or nothing more will be.

    Attributes
    ----------
    theirs : int
        The end that becomes the task's descriptor 0, until it is given away.
    taken : int
        So many bytes of the input are in the pipe or the terminal.
    """

    def __init__(
        self, selector: selectors.BaseSelector, terminal: bool, person: Person | None, say: Callable[[], None]
    ) -> None:
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
        """To be called before the task is started, which is to write to the open file `output`."""
        if self.terminal:
            self._file = os.dup(output)
        self._selector.register(self._ours, selectors.EVENT_READ, self._look)

    def give_away(self) -> None:
        """The task has its end, or is not started: it is not ours any more."""
        os.close(self.theirs)

    def is_over(self) -> bool:
        """Whether nothing more will be taken."""
        return self._ours < 0

    def feed(self, piece: Feed) -> None:
        """Take what is new of a piece; or give the terminal a size."""
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
        """Write down what the task has written to its terminal; what a full disk keeps from that waits, and so does the task."""
        while self.terminal and self._ours >= 0:
            try:
                while self._unwritten:
                    self._unwritten = self._unwritten[os.write(self._file, self._unwritten) :]
                self._unwritten = os.read(self._ours, PIECE)
            except BlockingIOError:  # nothing more was written
                self._listen()
                return
            except OSError as error:
                if error.errno == errno.EIO:  # nobody has the terminal open any more
                    self.close()
                else:
                    self._listen()
                return

    def close(self) -> None:
        """Take no more. The task reads to the end of what there is, and a terminal hangs up."""
        if self.is_over():
            return
        with contextlib.suppress(KeyError):  # it waits for a disk, or was never begun
            self._selector.unregister(self._ours)
        os.close(self._ours)
        self._ours = -1
        if self._file >= 0:
            os.close(self._file)
        self._pending.clear()
        self._say()

    def _look(self) -> None:
        """There is output to copy or room to write to; or, of a pipe, nobody reads any more."""
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
        except OSError:  # nobody reads any more
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
        """Be told of room where something waits for it, and of output unless what came before waits for a disk."""
        mask = (0 if self._unwritten else selectors.EVENT_READ) | (selectors.EVENT_WRITE if self._pending else 0)
        there = self._ours in self._selector.get_map()
        if mask and there:
            self._selector.modify(self._ours, mask, self._look)
        elif mask:
            self._selector.register(self._ours, mask, self._look)
        elif there:
            self._selector.unregister(self._ours)
