"""Host header checks, against DNS rebinding: a foreign web page may let a browser reach this machine under its own name."""

import socket
from pathlib import Path

from fairlead.scheduler.admission import Refused
from fairlead.service.connections.listening import Where
from fairlead.sockets import is_loopback

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def accepted_names(where: Where) -> set[str]:
    """Return the host names of requests to accept; ``*.example`` is any one label before it, as in certificates."""
    names = {*where.names, "localhost"}
    if where.certificate is not None:
        names |= set(certified_names(where.certificate))
    if where.port is not None:
        names |= {where.host, *LOOPBACK} | ({socket.gethostname(), socket.getfqdn()} if not is_loopback(where.host) else set())
    return {name.lower().rstrip(".") for name in names}


def certified_names(certificate: Path) -> list[str]:
    """Return the names and addresses in a certificate (its subjectAltName); raises Refused for an invalid one."""
    from cryptography import x509  # only with TLS

    try:
        said = x509.load_pem_x509_certificate(certificate.read_bytes()).extensions
        names = said.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    except ValueError as error:
        raise Refused(f"{certificate}: its names cannot be read: {error}") from None
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]


def name_in(header: str) -> str:
    """Return the name in a Host header: in lower case, without port or the brackets of an IPv6 address."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].rstrip(".").lower()


def is_accepted(name: str, hosts: set[str]) -> bool:
    """True if `hosts` has this name, or a wildcard for it such as ``*.lab.example``."""
    return bool({name, f"*.{name.partition('.')[2]}"} & hosts)
