"""Finds the scheduler's address, and checks who answers there.

In this order: `$FAIRLEAD_URL`, the data folder if one is named, your own scheduler if it runs, the machine-wide one. Nothing is
sent to an unverified server. On a Unix socket or a local port, the kernel reports its owner, which must be root or you; a remote
server must have a valid certificate.
"""

import os
import socket
import ssl
import struct
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from fairlead.client.service_error import ServiceError
from fairlead.data_folder import SYSTEM_SOCKET, home_folder, mark_of, socket_of
from fairlead.failure import failing
from fairlead.locks import holding
from fairlead.sockets import MAPPED, in_table, is_loopback, listeners, socket_name, uid_of_peer

LOCALHOST = ("127.0.0.1", "::1")
"""The addresses of `localhost`."""


class NotTrusted(ServiceError):
    """A server that is, or may be, not the scheduler; the message gives the reason and the remedy."""


class Address(NamedTuple):
    """The address of a scheduler.

    socket : path of a Unix socket; None for a port.
    host, port, tls : the port, and True if it uses TLS.
    token : the access token sent to a port; may be empty.
    """

    socket: Path | None
    host: str = "localhost"
    port: int = 0
    tls: bool = False
    token: str = ""


def find(home: Path | None) -> Address:
    """Return the scheduler's address; it need not be running. Raises NotTrusted for an invalid or unsafe URL."""
    url = os.environ.get("FAIRLEAD_URL")
    if url and home is None:
        return _address_of(url)
    own = socket_of(home or home_folder())
    if home is not None or os.environ.get("FAIRLEAD_HOME") or answers(own) or is_starting(own):
        return Address(own)
    return Address(SYSTEM_SOCKET if SYSTEM_SOCKET.exists() else own)


def is_starting(path: Path) -> bool:
    """Return True if a scheduler is starting at a Unix socket; always False for another user's."""
    try:
        return any(holding(mark_of(path)))
    except PermissionError:
        return False


def answers(path: Path) -> bool:
    """Return True if a process listens on a Unix socket."""
    try:
        connect_to(path, 2.0).close()
    except (OSError, NotTrusted):
        return False
    return True


def connect_to(path: Path, timeout: float | None) -> socket.socket:
    """Connect to a Unix socket whose server is root's or yours. Raises NotTrusted, OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # If the backlog is full, the kernel lets a blocking socket wait, but refuses one with a Python timeout.
        within = struct.pack("ll", *divmod(round((timeout or 0.0) * 10**6), 10**6))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, within)
        try:
            with socket_name(path) as name:
                connection.connect(name)
        except BlockingIOError:
            raise TimeoutError(f"{path}: no answer within {timeout} s") from None
        connection.settimeout(timeout)
        uid = uid_of_peer(connection)
        if uid not in (0, os.geteuid()):
            raise NotTrusted(f"{path}: uid {uid} answers there, not root or you: nothing was sent")
    except BaseException:
        connection.close()
        raise
    return connection


def trusted_host(host: str, port: int) -> str:
    """Return the first address of a loopback host where only root or you listen at a port. Raises NotTrusted."""
    there, strangers = listeners(), set()
    for address in LOCALHOST if host == "localhost" else (host,):
        candidates = (set().union(*(there.get(each, ()) for each in same)) for same in _candidates(address, port))
        owners: set[int] = next(filter(None, candidates), set())
        others = owners - {0, os.geteuid()}
        if owners and not others:
            return address
        strangers |= others
    if strangers:
        raise NotTrusted(f"{host}:{port}: uid {min(strangers)} listens there, not root or you: nothing was sent")
    raise NotTrusted(f"{host}:{port}: nothing listens there: check the port, and that the scheduler runs")


def tls_context() -> ssl.SSLContext:
    """Return the context for remote servers, with the CAs of the system or of $FAIRLEAD_CA. Raises NotTrusted."""
    own = os.environ.get("FAIRLEAD_CA")
    with failing(f"FAIRLEAD_CA={own}: no certificates: ", OSError, to=NotTrusted):
        return ssl.create_default_context(cafile=own or None)


def _address_of(url: str) -> Address:
    parts = urlsplit(url)
    if parts.scheme == "unix" and not parts.netloc and parts.path.startswith("/"):
        return Address(Path(unquote(parts.path)))
    try:
        host, port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        host, port = None, 0
    if parts.scheme not in ("http", "https") or not host or parts.path.strip("/"):
        raise NotTrusted(f"{url}: not the URL of a scheduler: write unix:///path, https://host:port or http://127.0.0.1:port")
    if parts.scheme == "http" and not is_loopback(host) and not os.environ.get("FAIRLEAD_INSECURE"):
        raise NotTrusted(
            f"{url}: others on the network could read everything, including the token: use https, "
            "or set FAIRLEAD_INSECURE=1 to allow it"
        )
    return Address(None, host, port, parts.scheme == "https", os.environ.get("FAIRLEAD_TOKEN", ""))


def is_local_port(address: Address) -> bool:
    """Return True if the kernel can report who listens there."""
    return address.socket is None and not address.tls and is_loopback(address.host)


def _candidates(host: str, port: int) -> list[list[str]]:
    """Return the local addresses of listeners that get connections to an address, as the kernel writes them, preferred first.

    The kernel prefers a listener on the address itself to one on all addresses, so other listeners on the port do not matter.
    """
    address = ip_address(host)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return [[in_table(host, port)], [in_table("::", port)]]
    exact, every = in_table(host, port), in_table("0.0.0.0", port)  # noqa: S104
    return [[exact, MAPPED + exact], [every, MAPPED + every], [in_table("::", port)]]
