"""TLS between a scheduler and the supervisors of other machines: each has a key of its own, and knows the other's certificate.

Nobody is trusted by a name or an authority: a supervisor lets in who has the key of the one certificate that it was given as its
scheduler's, and the scheduler talks to who has the key that it gave to that supervisor. Only the standard library.
"""

import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path


def between(own: Path, other: str, at_supervisor: bool) -> ssl.SSLContext:
    """Make a context for one side.

    Parameters
    ----------
    own : Path
        A file with one's certificate and its key, as PEM.
    other : str
        The certificate that the other side must have the key of, as PEM.
    at_supervisor : bool
        Whether this is the side that is connected to.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if at_supervisor else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # it is known by its key
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(own)
    context.load_verify_locations(cadata=other)
    return context


class TLSConnection:
    """A connection under TLS, used as a socket that does not block: what cannot be done now is a BlockingIOError."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext) -> None:
        connection.setblocking(False)
        self._tls = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)

    def fileno(self) -> int:
        return self._tls.fileno()

    def recv(self, most: int) -> bytes:
        """What has come; the other side is known before there is anything."""
        with _as_sockets_do():
            data = self._tls.recv(most)
            while data and self._tls.pending():  # nobody would be told of what was read and is not given on
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
