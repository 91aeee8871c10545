"""How a machine asks to join: one request over TLS, before it has a certificate that the scheduler knows.

The scheduler is the one with the certificate whose fingerprint is in the token; nobody else receives the token's secret.
"""

import socket
import ssl
import time

import msgspec

import fairlead
from fairlead.engines.local.messages import OLDEST_PROTOCOL, PROTOCOL
from fairlead.engines.remote.keys import NotAdmitted, fingerprint, secret_and_fingerprint

DEFAULT_PORT = 7374
WITHIN = 20.0
"""Seconds for an answer."""
LONGEST_ANSWER = 2**16


class Request(msgspec.Struct):
    """A request to join, by the account that the node's supervisor runs as; it speaks `protocol` and those from `oldest` on.

    A member that rotates its key sends its present certificate in `before`, and its signature of the new one in `proof`.
    """

    secret: str
    name: str
    certificate: str
    account: str
    uid: int
    protocol: int = PROTOCOL
    oldest: int = OLDEST_PROTOCOL
    before: str = ""
    proof: str = ""
    version: str = fairlead.__version__


class Answer(msgspec.Struct):
    """The scheduler's answer: why not, if `refused`; else the node's name, and what it needs to know.

    clock : the scheduler's wall clock; seconds since the epoch.
    as_people : True if tasks run as the people who submitted them.
    only : the account whose tasks alone run there, since the node is not root's; empty for everybody's.
    """

    refused: str = ""
    name: str = ""
    journal: str = ""
    clock: float = 0.0
    as_people: bool = False
    only: str = ""
    version: str = fairlead.__version__


class Joined(msgspec.Struct):
    """What a machine knows after it joined; `ahead` is how many seconds its clock is ahead of the scheduler's."""

    answer: Answer
    scheduler: str  # its certificate, as PEM
    ahead: float


def ask_to_join(host: str, port: int, token: str, request: Request) -> Joined:
    """Join. Raises NotAdmitted, OSError."""
    request.secret, pinned = secret_and_fingerprint(token)
    return ask(host, port, pinned, request)


def ask(host: str, port: int, pinned: str, request: Request) -> Joined:
    """Send a request to the scheduler whose certificate has this fingerprint. Raises NotAdmitted, OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # identified by the fingerprint
    with socket.create_connection((host, port), WITHIN) as plain, context.wrap_socket(plain) as line:
        certificate = line.getpeercert(binary_form=True)
        if certificate is None or fingerprint(certificate) != pinned:
            raise NotAdmitted(f"{host}:{port} is not the scheduler that made the token: check the address")
        before = time.time()
        line.sendall(msgspec.json.encode(request) + b"\n")
        received = b""
        while not received.endswith(b"\n") and len(received) < LONGEST_ANSWER and (data := line.recv(2**14)):
            received += data
        after = time.time()
    try:
        answer = msgspec.json.decode(received, type=Answer)
    except msgspec.DecodeError:
        raise NotAdmitted(f"{host}:{port} gave no answer: see the scheduler's log") from None
    if answer.refused:
        raise NotAdmitted(answer.refused)
    return Joined(answer, ssl.DER_cert_to_PEM_cert(certificate), (before + after) / 2 - answer.clock)
