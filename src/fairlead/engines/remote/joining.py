"""How a machine asks to join: one request over TLS, before it has a certificate that the scheduler knows.

The token has the fingerprint of the scheduler's certificate, which a first connection asks for. The second one is made to its
holder alone, and only that one carries the token's secret.
"""

import socket
import ssl
import time

import msgspec

import fairlead
from fairlead import tls
from fairlead.engines.local.messages import OLDEST_PROTOCOL, PROTOCOL
from fairlead.engines.remote.keys import NotAdmitted, fingerprint, normal, secret_and_fingerprint

DEFAULT_PORT = 7374
WITHIN = 20.0
"""Seconds for an answer."""
LONGEST_ANSWER = 2**22
WHO = b"\n"
"""The request for the scheduler's certificate."""


class Request(msgspec.Struct):
    """A request to join, by the account that the node's supervisor runs as; it speaks `protocol` and those from `oldest` on.

    A member that rotates its key sends its present certificate in `before`, and its signature of the new one in `proof`. If both
    are the same, it asks only whether its key is known.
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
    people : those who have work and may run there, with their uids.
    folders : where they work; each character stands for a byte.
    """

    refused: str = ""
    name: str = ""
    journal: str = ""
    clock: float = 0.0
    as_people: bool = False
    only: str = ""
    people: dict[str, int] = {}
    folders: list[str] = []
    version: str = fairlead.__version__


class Joined(msgspec.Struct):
    """What a machine knows after it joined; `ahead` is how many seconds its clock is ahead of the scheduler's."""

    answer: Answer
    scheduler: str  # its certificate, as PEM
    ahead: float


def ask_to_join(host: str, port: int, token: str, request: Request) -> Joined:
    """Join. Raises NotAdmitted, OSError."""
    request.secret, pinned = secret_and_fingerprint(token)
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.minimum_version = ssl.TLSVersion.TLSv1_3
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE  # identified by the fingerprint
    wrong = NotAdmitted(f"{host}:{port} is not the scheduler that made the token: check the address")
    try:
        certificate = normal(_answer(host, port, anybody, WHO).decode())
        if fingerprint(certificate) != pinned:
            raise wrong
        return ask(host, port, certificate, request)
    except (ssl.SSLCertVerificationError, UnicodeDecodeError):
        raise wrong from None


def ask(host: str, port: int, scheduler: str, request: Request) -> Joined:
    """Send a request to the scheduler with this certificate, as PEM. Raises NotAdmitted, OSError."""
    before = time.time()
    received = _answer(host, port, tls.dialing(None, scheduler), msgspec.json.encode(request) + b"\n")
    after = time.time()
    try:
        answer = msgspec.json.decode(received, type=Answer)
    except msgspec.DecodeError:
        raise NotAdmitted(f"{host}:{port} gave no answer: see the scheduler's log") from None
    if answer.refused:
        raise NotAdmitted(answer.refused)
    return Joined(answer, scheduler, (before + after) / 2 - answer.clock)


def _answer(host: str, port: int, context: ssl.SSLContext, request: bytes) -> bytes:
    with socket.create_connection((host, port), WITHIN) as plain, context.wrap_socket(plain) as line:
        line.sendall(request)
        received = b""
        while not received.endswith(b"\n") and len(received) < LONGEST_ANSWER and (data := line.recv(2**14)):
            received += data
    return received
