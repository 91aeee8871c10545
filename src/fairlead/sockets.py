"""Local sockets: their names, and the owner of the other end."""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path  # each worker of Python calls imports this module, and would wait for that

_CREDENTIALS = struct.Struct("3i")
"""The result of SO_PEERCRED: pid, uid, gid."""
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_ESTABLISHED, _LISTENING = "01", "0A"
"""States of a connection in those tables."""
_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _REQUEST, _STATE_AT, _UID_AT = 4, 20, 1, 17, 80
"""Of sock_diag(7): the protocol, the type of a message, the flag of a request, and where an answer has state and uid."""
MAPPED = "0000000000000000FFFF0000"
"""Before an IPv4 address in the table of an IPv6 socket that is connected to it."""


@contextmanager
def socket_name(path: "Path") -> Iterator[str]:
    """Yield a name to bind or connect a socket by, for a path of any length: the kernel takes less than 108 bytes."""
    if len(os.fsencode(path)) < 108:
        yield str(path)
        return
    fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{path.name}"
    finally:
        os.close(fd)


def abstract_names() -> str:
    """Name the boot and the network namespace in which this process can reach an abstract address."""
    with open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123 as below
        return f"{file.read(8)}-{os.stat('/proc/self/ns/net').st_ino}"  # noqa: PTH116


def uid_of_peer(connection: socket.socket) -> int:
    """Return the uid at the other end of a Unix socket, as the kernel reports it."""
    return int(_CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[1])


def pid_of_peer(connection: socket.socket) -> int:
    """Return the process at the other end of a Unix socket, as the kernel reports it."""
    return int(_CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[0])


def is_loopback(host: str) -> bool:
    """Return True for a host name or address that only this machine can reach."""
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def uid_of_caller(here: tuple[str, int], there: tuple[str, int]) -> int | None:
    """Return the uid at the other end of a local TCP connection, as the kernel reports it; None if unknown.

    here, there : addresses and ports of both ends. Only with loopback addresses is the other end certainly on this machine.
    """
    row = _row_of(here, there)
    return None if row is None else int(row[6])


def account_of_caller(here: tuple[Any, ...], there: tuple[Any, ...]) -> int | None:
    """Return the same at once, however many connections the machine has; None too if this kernel has no socket diagnostics.

    It asks the kernel for one socket, as `ss` does, and blocks for no longer than a system call.
    """
    if not (is_loopback(here[0]) and is_loopback(there[0])):
        return None
    family = socket.AF_INET6 if ":" in there[0] else socket.AF_INET
    ends = (socket.inet_pton(family, end[0]).ljust(16, b"\0") for end in (there, here))
    which = struct.pack("=4BI", family, socket.IPPROTO_TCP, 0, 0, 2**32 - 1) + struct.pack("!2H", there[1], here[1])
    asked = b"".join([which, *ends, struct.pack("=I", 0), b"\xff" * 8])  # of any interface, with any cookie
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as kernel:
            kernel.send(struct.pack("=I2H2I", 16 + len(asked), _SOCK_DIAG_BY_FAMILY, _REQUEST, 0, 0) + asked)
            answer = kernel.recv(4096, socket.MSG_DONTWAIT)  # it is there: the kernel answers while we send
    except OSError:
        return None
    if len(answer) < _UID_AT + 4 or struct.unpack_from("=H", answer, 4)[0] != _SOCK_DIAG_BY_FAMILY:
        return None
    is_open = answer[_STATE_AT] == int(_ESTABLISHED)  # a closed one is nobody's
    return int(struct.unpack_from("=I", answer, _UID_AT)[0]) if is_open else None


def inode_of_caller(here: tuple[str, int], there: tuple[str, int]) -> int | None:
    """Return the inode of the socket at the other end of a local TCP connection; None if unknown or 0."""
    row = _row_of(here, there)
    return None if row is None else int(row[8]) or None


def _row_of(here: tuple[str, int], there: tuple[str, int]) -> list[str] | None:
    """Return the row of the other end in the kernel's tables: the columns from its address on."""
    if not (is_loopback(here[0]) and is_loopback(there[0])):
        return None
    ends = in_table(*there), in_table(*here)
    rows = [f" {prefix}{ends[0]} {prefix}{ends[1]} {_ESTABLISHED} " for prefix in ("", MAPPED)]
    for table in _TABLES:
        try:
            with open(table, encoding="ascii") as file:  # noqa: PTH123 a worker does without pathlib
                text = file.read()
        except OSError:
            continue
        for row in rows:
            found = text.find(row)
            if found >= 0:
                return text[found:].split(maxsplit=9)
    return None


def listeners() -> dict[str, set[int]]:
    """Return the uids of the processes that listen on TCP ports here, by address and port as in the kernel's tables."""
    found: dict[str, set[int]] = {}
    for table in _TABLES:
        with suppress(OSError), open(table, encoding="ascii") as file:  # noqa: PTH123 as above
            for fields in map(str.split, file):
                if fields[3] == _LISTENING:
                    found.setdefault(fields[1], set()).add(int(fields[7]))
    return found


def in_table(host: str, port: int) -> str:
    """Format an address and a port as in the kernel's tables: words of four bytes in reverse order."""
    import ipaddress

    address = ipaddress.ip_address(host)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    packed = address.packed
    words = [packed[start : start + 4][::-1].hex().upper() for start in range(0, len(packed), 4)]
    return f"{''.join(words)}:{port:04X}"
