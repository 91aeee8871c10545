"""Sockets of this machine, as the scheduler and its clients both know them: their names, and who is at the other end."""

import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CREDENTIALS = struct.Struct("3i")
"""What SO_PEERCRED tells: pid, uid, gid."""


@contextmanager
def socket_name(path: Path) -> Iterator[str]:
    """A name by which a socket is bound or connected to, however long its path is: 108 bytes are all that the kernel takes."""
    if len(os.fsencode(path)) < 108:
        yield str(path)
        return
    fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{path.name}"
    finally:
        os.close(fd)


def uid_of_peer(connection: socket.socket) -> int:
    """Whose process is at the other end of a Unix socket, by the kernel's word."""
    _pid, uid, _gid = _CREDENTIALS.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return int(uid)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine and no other can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
