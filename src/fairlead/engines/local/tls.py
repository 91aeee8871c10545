"""TLS between a scheduler and the supervisors of other machines: both sides have keys and know the other's certificate.

No names or authorities are trusted. A supervisor accepts only the holder of the key to its scheduler's certificate; the
scheduler accepts only the key that it gave to that supervisor. Standard library only.
"""

import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path


def between(own: Path, other: str, at_supervisor: bool) -> ssl.SSLContext:
    """Make the context of one side.

    Parameters
    ----------
    own : Path
        PEM file with our certificate and key.
    other : str
        The certificate of the other side, as PEM.
    at_supervisor : bool
        True for the server side.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if at_supervisor else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # identified by its key
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(own)
    context.load_verify_locations(cadata=other)
    return context


class TLSConnection:
    """A TLS connection used as a non-blocking socket: raises BlockingIOError where it would block."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext) -> None:
        connection.setblocking(False)
        self._tls = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)

    def fileno(self) -> int:
        return self._tls.fileno()

    def recv(self, most: int) -> bytes:
        """Return what has come; nothing comes before the peer is authenticated."""
        with _as_sockets_do():
            data = self._tls.recv(most)
            while data and self._tls.pending():  # the selector does not report what TLS has buffered
                data += self._tls.recv(most)
            return data

    def send(self, data: bytes | bytearray) -> int:
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
