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
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"
"""How those tables call a connection that both ends have."""


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


def uid_of_caller(here: tuple[str, int], there: tuple[str, int], tables: tuple[Path, ...] = _TABLES) -> int | None:
    """Whose socket of this machine is at the other end of a TCP connection, by the kernel's word; None where that is not told.

    Parameters
    ----------
    here, there : tuple of str and int
        Both ends' addresses and ports. Only for a loopback address is it certain that the other end is on this machine.
    """
    told = _told_of(here, there, tables)
    return None if told is None else int(told[6])


def inode_of_caller(here: tuple[str, int], there: tuple[str, int], tables: tuple[Path, ...] = _TABLES) -> int | None:
    """The inode of the socket at the other end of a TCP connection of this machine; None where that is not told, or is 0."""
    told = _told_of(here, there, tables)
    return None if told is None else int(told[8]) or None


def _told_of(here: tuple[str, int], there: tuple[str, int], tables: tuple[Path, ...]) -> list[str] | None:
    """The row of the kernel's tables that is of the other end of a connection: its columns from its own address on."""
    if not (is_loopback(here[0]) and is_loopback(there[0])):
        return None
    ends = f" {_in_table(*there)} {_in_table(*here)} {_ESTABLISHED} "
    for table in tables:
        try:
            text = table.read_text("ascii")
        except OSError:
            continue
        found = text.find(ends)
        if found >= 0:
            return text[found:].split(maxsplit=9)
    return None


def _in_table(host: str, port: int) -> str:
    """An address and a port as the kernel's tables write them: words of four bytes, each the wrong way round."""
    address = ipaddress.ip_address(host)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    packed = address.packed
    words = [packed[start : start + 4][::-1].hex().upper() for start in range(0, len(packed), 4)]
    return f"{''.join(words)}:{port:04X}"
