"""A leased worker as those see it who send it calls: its program, or its relay."""

import os
import signal
import socket
from contextlib import suppress

from fairlead.calls import wire
from fairlead.sockets import pid_of_peer


class DirectWorker:
    """A worker on this machine.

    line, process : from the worker, and its pidfd; values that it keeps are sent here, and never taken back
    calls, copy : where calls are sent, and a copy of the worker's end
    """

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        try:
            self._process = os.pidfd_open(pid_of_peer(line))
        except OSError:  # it has ended, or the kernel has none
            self._process = -1
        self._calls, self._copy = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._calls.setblocking(False)
        self._copy.setblocking(False)
        with suppress(OSError):  # it has ended, which is heard
            socket.send_fds(line, [b"\0"], [self._copy.fileno()])
        line.setblocking(False)

    def send(self, number: int, kind: int, packed: wire.Packed) -> bool:
        """Send a message; return False if its socket is full, or it has ended, which is heard."""
        try:
            wire.send(self._calls if kind == wire.CALL else self.line, number, kind, packed)
        except OSError:
            return False
        return True

    def withdraw(self) -> list[wire.Message]:
        unread = []
        with suppress(OSError):  # there are no more
            while message := wire.receive(self._copy):
                unread.append(message)
        return unread

    def hurry(self) -> None:
        with suppress(OSError):
            signal.pidfd_send_signal(self._process, wire.FLUSH)

    def finish(self) -> None:
        close(self._calls)

    def close(self) -> None:
        self._copy.close()
        for each in (self._calls, self.line):
            close(each)
        if self._process >= 0:
            os.close(self._process)


def close(line: socket.socket) -> None:
    """Close a socket for its peer too where a process that was forked from this one still has it."""
    with suppress(OSError):  # it is closed
        line.shutdown(socket.SHUT_RDWR)
    line.close()
