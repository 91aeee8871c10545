"""Host header checks, against DNS rebinding: a foreign web page may let a browser reach this machine under its own name."""

import contextlib
import socket
import ssl
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from fairlead.service.connections.listening import Where, tls_context
from fairlead.sockets import is_loopback

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_NO_CHECK_TIME = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME: an expired certificate still has its names."""
_KINDS = ("DNS", "IP Address")


def accepted_names(where: Where) -> set[str]:
    """Return the host names of requests to accept; ``*.example`` is any one label before it, as in certificates."""
    names = {*where.names, "localhost"}
    if where.certificate is not None:
        names |= set(certified_names(where.certificate, where.key))
    if where.port is not None:
        names |= {where.host, *LOOPBACK} | ({socket.gethostname(), socket.getfqdn()} if not is_loopback(where.host) else set())
    return {name.lower().rstrip(".") for name in names}


def certified_names(certificate: Path, key: Path | None) -> list[str]:
    """Return the names and addresses in a certificate (its subjectAltName); raises Refused for an invalid one.

    Python parses only the certificate of a verified peer, so this makes a handshake with itself.
    """
    server = tls_context(certificate, key)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.load_verify_locations(certificate)
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True))
    for end in (*ends, *ends):
        with contextlib.suppress(ssl.SSLWantReadError):  # the other end must continue
            end.do_handshake()
    said: Any = (ends[0].getpeercert() or {}).get("subjectAltName", ())
    return [str(ip_address(name)) if kind == "IP Address" else name for kind, name in said if kind in _KINDS]


def name_in(header: str) -> str:
    """Return the name in a Host header: in lower case, without port or the brackets of an IPv6 address."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].rstrip(".").lower()


def is_accepted(name: str, hosts: set[str]) -> bool:
    """True if `hosts` has this name, or a wildcard for it such as ``*.lab.example``."""
    return bool({name, f"*.{name.partition('.')[2]}"} & hosts)
