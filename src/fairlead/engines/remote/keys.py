"""The keys by which the scheduler and its nodes authenticate each other, kept in the scheduler's folder, and tokens to join.

======================  ================================================================
HOME/keys/scheduler.pem  the scheduler's certificate and key
HOME/keys/nodes/ID.json  a node's name and certificate; with its key if the scheduler made it
HOME/keys/tokens.json    the hashes of unused tokens
======================  ================================================================

A node's key speaks for that node alone, and a node never has the scheduler's.
"""

import base64
import datetime
import hashlib
import os
import secrets
import ssl
import threading
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from fairlead.data_folder import open_plain, write_private
from fairlead.engines.local import tls

YEARS = 20
"""Validity of a certificate."""
MOST_TOKENS = 1000
"""Unused tokens at a time."""
MOST_NODES = 10_000
"""Nodes that may have joined."""
PREFIX = "fairlead-node"


class NotAdmitted(ValueError):
    """A node may not join; the message says why."""


class _Known(msgspec.Struct):
    name: str
    own: str  # its certificate as PEM, and its key if it was made here


class _Token(msgspec.Struct):
    hash: str
    expires: float
    name: str  # of the node that may join with it; empty for any new one


class KeyRing:
    """The keys of one scheduler. Thread-safe. Makes `folder` if needed."""

    def __init__(self, folder: Path) -> None:
        self._nodes, self._tokens = folder / "nodes", folder / "tokens.json"
        for each in (folder, self._nodes):
            each.mkdir(mode=0o700, exist_ok=True)
        own = folder / "scheduler.pem"
        if not own.exists():
            write_private(own, make_certificate("fairlead scheduler"), durable=True)
        self.certificate = certificate_in(own.read_text())
        self.context = tls.answering(own)
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._names: dict[bytes, str] = {}  # by certificate, as DER
        for path in self._nodes.iterdir():
            with suppress(msgspec.DecodeError):  # torn: the node joins again
                self._note(msgspec.json.decode(path.read_bytes(), type=_Known))

    def names(self) -> list[str]:
        """Return the nodes that have a key."""
        with self._lock:
            return sorted(self._known)

    def name_of(self, certificate: bytes) -> str:
        """Return whose certificate this is, as DER; empty if nobody's."""
        return self._names.get(certificate, "")

    def made_for(self, node: str) -> str:
        """Return a node's certificate and key, made here once."""
        with self._lock:
            if node not in self._known:
                self._keep(_Known(node, make_certificate(f"fairlead {secrets.token_hex(8)}")))
            return self._known[node].own

    def remove(self, node: str) -> None:
        """Forget a node's key: it may not connect any more."""
        with self._lock:
            known = self._known.pop(node, None)
            if known is not None:
                self._path(node).unlink(missing_ok=True)
                del self._names[_der(known.own)]

    def new_token(self, node: str, seconds: float) -> str:
        """Make a token that one node may join with, once: the node of this name, or any new one if it is empty.

        It has the fingerprint of the scheduler's certificate, so that the node sends its secret to nobody else.
        """
        secret, now = secrets.token_urlsafe(24), time.time()
        with self._lock:
            kept = [token for token in self._read_tokens() if token.expires > now]
            if len(kept) >= MOST_TOKENS:
                raise NotAdmitted(f"{MOST_TOKENS} tokens are unused: wait until some expire")
            self._write_tokens([*kept, _Token(_hash(secret), now + seconds, node)])
        return f"{PREFIX}.{secret}.{fingerprint(ssl.PEM_cert_to_DER_cert(self.certificate))}"

    def admit(self, token: str, wanted: str, certificate: str) -> str:
        """Use up a token for a node with this certificate; return its name. Raises NotAdmitted."""
        try:
            der = ssl.PEM_cert_to_DER_cert(certificate)
            certificate = ssl.DER_cert_to_PEM_cert(der)
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=certificate)
        except (ValueError, ssl.SSLError):
            raise NotAdmitted("its certificate cannot be read") from None
        now = time.time()
        with self._lock:
            tokens = self._read_tokens()
            found = next((each for each in tokens if each.hash == _hash(token) and each.expires > now), None)
            if found is None:
                raise NotAdmitted("the token is unknown, used or expired: make another with `fairlead node token`")
            name = found.name or wanted
            if not found.name and name in self._known:
                raise NotAdmitted(
                    f"there is a node {name!r} already: give another name with --name; if this is the same machine, make the "
                    f"token with `fairlead node token --name {name}`"
                )
            if der in self._names or len(self._known) >= MOST_NODES:
                raise NotAdmitted(f"its certificate is in use, or there are {MOST_NODES} nodes")
            self._write_tokens([each for each in tokens if each is not found and each.expires > now])
            self._keep(_Known(name, certificate))
        return name

    def _keep(self, known: _Known) -> None:
        write_private(self._path(known.name), msgspec.json.encode(known).decode(), durable=True)
        self._note(known)

    def _note(self, known: _Known) -> None:
        before = self._known.get(known.name)
        if before is not None:
            del self._names[_der(before.own)]
        self.context.load_verify_locations(cadata=certificate_in(known.own))
        self._known[known.name], self._names[_der(known.own)] = known, known.name

    def _path(self, node: str) -> Path:
        return self._nodes / f"{hashlib.sha256(node.encode()).hexdigest()[:24]}.json"

    def _read_tokens(self) -> list[_Token]:
        try:
            with open_plain(self._tokens, os.geteuid()) as file:
                return msgspec.json.decode(file.read(), type=list[_Token])
        except FileNotFoundError:
            return []

    def _write_tokens(self, tokens: list[_Token]) -> None:
        write_private(self._tokens, msgspec.json.encode(tokens).decode(), durable=True)


def secret_and_fingerprint(token: str) -> tuple[str, str]:
    """Return the parts of a token. Raises NotAdmitted."""
    prefix, _, rest = token.strip().partition(".")
    secret, _, pinned = rest.partition(".")
    if prefix != PREFIX or not secret or not pinned:
        raise NotAdmitted("this is no token that `fairlead node token` printed")
    return secret, pinned


def fingerprint(certificate: bytes) -> str:
    """Return the fingerprint of a certificate, given as DER."""
    return base64.urlsafe_b64encode(hashlib.sha256(certificate).digest()).decode().rstrip("=")


def certificate_in(pem: str) -> str:
    """Return only the certificate from PEM with a key."""
    return pem[pem.index("-----BEGIN CERTIFICATE-----") :]


def _der(pem: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificate_in(pem))


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def make_certificate(name: str) -> str:
    """Make a key and its self-signed certificate, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=2))  # clocks of machines differ
        .not_valid_after(now + datetime.timedelta(days=365 * YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return (secret + certificate.public_bytes(serialization.Encoding.PEM)).decode()
