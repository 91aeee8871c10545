"""Where a scheduler answers, and whether it is the one that it should be.

What is named comes first: a URL, then a data folder. Else it is the person's own scheduler, where one runs, and then the one
for all of the machine. Nothing is sent to a server that has not shown who it is: on a Unix socket and on a port of this
machine the kernel says whose it is, which must be root or oneself; from elsewhere a certificate does.
"""

import os
import socket
import ssl
import struct
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from fairlead.data_folder import SYSTEM_SOCKET, home_folder, mark_of, socket_of
from fairlead.locks import holding
from fairlead.sockets import is_loopback, socket_name, uid_of_peer

LISTENING = "0A"
"""The state of a socket that listens, as /proc/net/tcp writes it."""


class NotTrusted(RuntimeError):
    """A server that is not, or may not be, the one that was meant; the message says why and what to do."""


class Address(NamedTuple):
    """Where a scheduler answers.

    socket : the path of a Unix socket; None for a port.
    host, port, tls : else where, and whether by TLS.
    token : what is sent to a port; empty for nothing.
    """

    socket: Path | None
    host: str = "localhost"
    port: int = 0
    tls: bool = False
    token: str = ""


def find(home: Path | None) -> Address:
    """Where the scheduler is that is meant; it need not run. Raises NotTrusted for a URL that is none, or may not be used."""
    url = os.environ.get("FAIRLEAD_URL")
    if url and home is None:
        return _address_of(url)
    own = socket_of(home or home_folder())
    if home is not None or os.environ.get("FAIRLEAD_HOME") or answers(own) or is_starting(own):
        return Address(own)
    return Address(SYSTEM_SOCKET if SYSTEM_SOCKET.exists() else own)


def is_starting(path: Path) -> bool:
    """Whether a scheduler starts that is to answer at a Unix socket; nobody sees that of another person's."""
    try:
        return any(holding(mark_of(path)))
    except PermissionError:
        return False


def answers(path: Path) -> bool:
    """Whether somebody listens on a Unix socket."""
    try:
        connect_to(path, 2.0).close()
    except (OSError, NotTrusted):
        return False
    return True


def connect_to(path: Path, timeout: float | None) -> socket.socket:
    """A connection to a Unix socket, whose server is root's or one's own. Raises NotTrusted, OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Where very many connect at once the kernel has one wait; a socket with Python's own timeout it turns away.
        within = struct.pack("ll", *divmod(round((timeout or 0.0) * 10**6), 10**6))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, within)
        try:
            with socket_name(path) as name:
                connection.connect(name)
        except BlockingIOError:
            raise TimeoutError(f"{path}: nobody answers within {timeout} s") from None
        connection.settimeout(timeout)
        uid = uid_of_peer(connection)
        if uid not in (0, os.geteuid()):
            raise NotTrusted(f"{path}: uid {uid} answers there, who is neither root nor you: nothing was sent")
    except BaseException:
        connection.close()
        raise
    return connection


def check_port(host: str, port: int) -> None:
    """Raises NotTrusted unless root or oneself listens on a port of this machine."""
    owners = _listeners(port)
    if not owners:
        raise NotTrusted(
            f"{host}:{port}: nobody is seen to listen there: is it another port, or is no scheduler running?"
        )
    if strangers := owners - {0, os.geteuid()}:
        raise NotTrusted(
            f"{host}:{port}: uid {min(strangers)} listens there, who is neither root nor you: nothing was sent"
        )


def tls_context() -> ssl.SSLContext:
    """How a server elsewhere is known: by the system's authorities, or by the one that $FAIRLEAD_CA names. Raises NotTrusted."""
    own = os.environ.get("FAIRLEAD_CA")
    try:
        return ssl.create_default_context(cafile=own or None)
    except (OSError, ssl.SSLError) as error:
        raise NotTrusted(f"FAIRLEAD_CA={own}: no certificates: {error.strerror or error}") from None


def _address_of(url: str) -> Address:
    parts = urlsplit(url)
    if parts.scheme == "unix" and not parts.netloc and parts.path.startswith("/"):
        return Address(Path(unquote(parts.path)))
    try:
        host, port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        host, port = None, 0
    if parts.scheme not in ("http", "https") or not host or parts.path.strip("/"):
        raise NotTrusted(
            f"{url}: no URL of a scheduler: write unix:///path, https://host:port or http://127.0.0.1:port"
        )
    if parts.scheme == "http" and not is_loopback(host) and not os.environ.get("FAIRLEAD_INSECURE"):
        raise NotTrusted(
            f"{url}: others on the way could read all of it, and the token: use https, "
            "or set FAIRLEAD_INSECURE=1 if that is no matter"
        )
    return Address(None, host, port, parts.scheme == "https", os.environ.get("FAIRLEAD_TOKEN", ""))


def is_checked(address: Address) -> bool:
    """Whether the kernel can say who listens there."""
    return address.socket is None and not address.tls and is_loopback(address.host)


def _listeners(port: int) -> set[int]:
    """The uids of those who listen on a port of this machine, on any of its addresses."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(int(fields[7]))
    return found
