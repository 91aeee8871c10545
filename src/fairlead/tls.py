"""TLS between a scheduler and the supervisors of its nodes: both sides have keys and know the other's certificate.

No names or authorities are trusted. A supervisor talks only to the holder of the key to its scheduler's certificate; the
scheduler knows each node by its own certificate. Standard library only.
"""

import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path


def dialing(own: Path | None, scheduler: str) -> ssl.SSLContext:
    """Make the context of a node.

    own : PEM file with its certificate and key; None for a node that is about to join
    scheduler : the scheduler's certificate, as PEM
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # identified by its key
    if own is not None:
        context.load_cert_chain(own)
    context.load_verify_locations(cadata=scheduler)
    return context


def answering(own: Path) -> ssl.SSLContext:
    """Make the context of the scheduler, whose certificate and key are in `own`. It trusts no node yet.

    Who presents no certificate is a stranger, and may only ask to join.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_cert_chain(own)
    return context


class TLSConnection:
    """A TLS connection used as a non-blocking socket: raises BlockingIOError where it would block.

    With `handshake`, its handshake is over when it is made.
    """

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, handshake: bool = False) -> None:
        connection.setblocking(handshake)
        self._tls = context.wrap_socket(connection, do_handshake_on_connect=handshake)
        self._tls.setblocking(False)

    def fileno(self) -> int:
        return self._tls.fileno()

    def recv(self, most: int) -> bytes:
        """Return what has come; nothing comes before the peer is authenticated."""
        with _as_sockets_do():
            data = self._tls.recv(most)
            while data and self._tls.pending():  # the selector does not report what TLS has buffered
                data += self._tls.recv(most)
            return data

    def send(self, data: bytes | bytearray | memoryview) -> int:
        with _as_sockets_do():
            return self._tls.send(data)

    def close(self) -> None:
        self._tls.close()


@contextlib.contextmanager
def _as_sockets_do() -> Iterator[None]:
    try:
        yield
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        raise BlockingIOError from None
