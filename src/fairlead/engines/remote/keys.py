"""The keys by which the scheduler and the supervisors of other machines authenticate each other, kept in the scheduler's
folder.

HOME/keys has a file per side with its certificate and key: `scheduler.pem` and one per node. A node gets its own and the
scheduler's certificate without the key, so no node can pose as the scheduler or as another node.
"""

import datetime
import hashlib
import ssl
import threading
from pathlib import Path

from fairlead.data_folder import write_private
from fairlead.engines.local import tls
from fairlead.engines.local.member import Keys

YEARS = 20
"""Validity of a certificate; removing its file renews it."""


class KeyRing:
    """The keys of one scheduler. Thread-safe. Makes `folder` if needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._lock = threading.Lock()

    def of(self, node: str) -> Keys:
        """Return the keys of a node's supervisor."""
        return Keys(self._made(node).read_text(), _certificate(self._made("").read_text()))

    def context(self, node: str) -> ssl.SSLContext:
        """Return the context for connections to a node's supervisor."""
        if node not in self._contexts:
            theirs = _certificate(self._made(node).read_text())
            self._contexts[node] = tls.between(self._made(""), theirs, at_supervisor=False)
        return self._contexts[node]

    def _made(self, node: str) -> Path:
        """Return the file of a node, or of the scheduler for an empty name."""
        name = f"node-{hashlib.sha256(node.encode()).hexdigest()[:24]}" if node else "scheduler"
        path = self._folder / f"{name}.pem"
        with self._lock:
            if path.exists():
                return path
            write_private(path, _make(f"fairlead {node or 'scheduler'}"[:60]), durable=True)
        return path


def _certificate(pem: str) -> str:
    """Return only the certificate from PEM with a key."""
    begin = pem.index("-----BEGIN CERTIFICATE-----")
    return pem[begin:]


def _make(name: str) -> str:
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
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return (secret + certificate.public_bytes(serialization.Encoding.PEM)).decode()
