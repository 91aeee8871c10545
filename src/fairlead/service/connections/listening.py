"""Listening sockets: a Unix socket, and optionally a TCP port.

The Host header of requests is checked, against DNS rebinding: a foreign web page may let a browser reach this machine under its
own name.
"""

import contextlib
import resource
import socket
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fairlead.data_folder import check_folder
from fairlead.scheduler.admission import Refused
from fairlead.service.connections.slots import MOST_CONNECTIONS
from fairlead.sockets import is_loopback, socket_name

DEFAULT_PORT = 7373
FILES_PER_SLOT = 4
"""File descriptors per slot: most are for connections without one, which are asked to come back."""
BACKLOG = 4096
"""Connections that may wait for the next iteration of the event loop; the kernel may allow fewer."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class CannotListen(OSError):
    """The address is in use, or cannot be listened on."""


class Where(NamedTuple):
    """The addresses to listen on.

    socket : path of the Unix socket.
    shared : True if everybody may connect to it, False for its owner only.
    host, port : TCP address; no port for none.
    certificate, key : files for TLS; None for plain HTTP.
    names : further names of this machine.
    mesos : host and port for Mesos frameworks; None for none.
    principals : the file of their names and secrets; None to identify them by their processes.
    """

    socket: Path
    shared: bool = False
    host: str = "127.0.0.1"
    port: int | None = None
    certificate: Path | None = None
    key: Path | None = None
    names: tuple[str, ...] = ()
    mesos: tuple[str, int] | None = None
    principals: Path | None = None


def open_socket(path: Path, shared: bool) -> socket.socket:
    """Listen on a Unix socket, replacing one that a dead scheduler left. Raises CannotListen."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755 if shared else 0o700)
        for folder in (path.parent.resolve(), *path.parent.resolve().parents):
            check_folder(folder, path)
        with socket_name(path) as name:
            _make_way(path, name)
            listener.bind(name)
            Path(name).chmod(0o666 if shared else 0o600)  # before listening, so nobody connects with the old mode
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if isinstance(error, CannotListen):
            raise
        why = error.strerror or error
        raise CannotListen(f"cannot listen on {path}: {why}: choose another path with --socket") from None
    return listener


def _make_way(path: Path, name: str) -> None:
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise CannotListen(f"cannot listen on {path}: that file is not a socket: move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(2.0)
        try:
            caller.connect(name)
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
    raise CannotListen(f"cannot listen on {path}: another scheduler answers there: stop it, or use another --socket")


def open_port(host: str, port: int) -> socket.socket:
    """Listen on a TCP port; 0 for any free one. Raises CannotListen."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise CannotListen(f"cannot listen on {host}:{port}: {error.strerror}: name another port, or 0 for any") from None
    return listener


class Listener(NamedTuple):
    """A listening socket, its URL, and its TLS context, if any."""

    socket: socket.socket
    url: str
    tls: ssl.SSLContext | None = None


@contextlib.contextmanager
def listening(where: Where) -> Iterator[list[Listener]]:
    """Listen; on exit remove the Unix socket. Raises CannotListen, Refused."""
    found = [_at_port(where, where.host, where.port)] if where.port is not None else []
    found.append(Listener(open_socket(where.socket, where.shared), f"unix://{where.socket}"))
    try:
        yield found[::-1]
    finally:
        where.socket.unlink(missing_ok=True)
        for listener in found:
            listener.socket.close()


@contextlib.contextmanager
def listening_for_frameworks(where: Where) -> Iterator[Listener | None]:
    """Listen for Mesos frameworks, if configured. Raises CannotListen, Refused."""
    listener = _at_port(where, *where.mesos) if where.mesos is not None else None
    with contextlib.nullcontext() if listener is None else listener.socket:
        yield listener


def _at_port(where: Where, host: str, port: int) -> Listener:
    tls = tls_context(where.certificate, where.key) if where.certificate is not None else None
    opened, shown = open_port(host, port), host if ":" not in host else f"[{host}]"
    return Listener(opened, f"{'https' if tls else 'http'}://{shown}:{opened.getsockname()[1]}", tls)


def make_room() -> int:
    """Raise the limit on open files for the maximum of connections; return the number of slots.

    Call it after the tasks' supervisor has started: tasks must keep the normal limit, which some programs depend on.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_PER_SLOT * MOST_CONNECTIONS
    wanted = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted // FILES_PER_SLOT


def tls_context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """Return the TLS context of a port. Raises Refused for a certificate that does not match the key."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        why = error.strerror or error
        raise Refused(f"{certificate}: not a certificate that matches the key {key or 'in it'}: {why}") from None
    return context


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
