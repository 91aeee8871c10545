"""The keys by which the scheduler and its nodes authenticate each other, and tokens to join.

HOME/keys/scheduler.pem is the scheduler's own key, which nodes trust. It signs the key of each start of the scheduler, so what
goes over the network changes with each start. A node's key speaks for that node alone, and never leaves its machine. Which
machines are nodes, the journal has (:class:`fairlead.scheduler.facts.NodeAdmitted`).
"""

import base64
import datetime
import hashlib
import secrets
import ssl
from pathlib import Path
from typing import Any

from fairlead import tls
from fairlead.data_folder import write_private
from fairlead.failure import Failure

YEARS = 20
"""Validity of a certificate."""
PREFIX = "fairlead-node"


class NotAdmitted(Failure, ValueError):
    """A node may not join; the message says why."""


class KeyRing:
    """The scheduler's key, made in `folder` if needed, and the certificates of those who may connect.

    certificate : what nodes trust, as PEM
    is_new : True if there was no key in the folder: nodes from before know another
    context : the scheduler's side of TLS
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        own, serving = folder / "scheduler.pem", folder / "serving.pem"
        self.is_new = not own.exists()
        if self.is_new:
            write_private(own, make_certificate("fairlead scheduler"), durable=True)
        write_private(serving, make_certificate(f"fairlead {secrets.token_hex(8)}", own.read_text()))
        self.certificate = certificate_in(own.read_text())
        self.context = tls.answering(serving)
        self._names: dict[bytes, str] = {}  # by certificate, as DER
        self._certificates: dict[str, bytes] = {}
        self._made: dict[tuple[str, str], str] = {}

    def name_of(self, certificate: bytes) -> str:
        """Return whose certificate this is, as DER; empty if nobody's."""
        return self._names.get(certificate, "")

    def admit(self, node: str, certificate: str) -> None:
        """Let a node connect with this certificate, as PEM, and no other."""
        self.remove(node)
        self.context.load_verify_locations(cadata=certificate)
        self._certificates[node] = der(certificate)
        self._names[self._certificates[node]] = node

    def remove(self, node: str) -> None:
        """Let a node connect no more."""
        self._names.pop(self._certificates.pop(node, b""), None)

    def made_for(self, node: str, start: str = "") -> str:
        """Return a node's certificate and key, made here once for each start of the scheduler and of the node."""
        if (node, start) not in self._made:
            self._made[node, start] = make_certificate(f"fairlead {secrets.token_hex(8)}")
            self.admit(node, certificate_in(self._made[node, start]))
        return self._made[node, start]

    def new_token(self) -> tuple[str, str]:
        """Return a new token, which pins the scheduler's key so that a node sends its secret to nobody else, and its hash."""
        secret = secrets.token_urlsafe(24)
        return f"{PREFIX}.{secret}.{fingerprint(self.certificate)}", hash_of(secret)


def secret_and_fingerprint(token: str) -> tuple[str, str]:
    """Return the parts of a token. Raises NotAdmitted."""
    prefix, _, rest = token.strip().partition(".")
    secret, _, pinned = rest.partition(".")
    if prefix != PREFIX or not secret or not pinned:
        raise NotAdmitted("this is no token that `fairlead node token` printed")
    return secret, pinned


def fingerprint(certificate: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(der(certificate)).digest()).decode().rstrip("=")


def certificate_in(pem: str) -> str:
    """Return only the certificate from PEM with a key."""
    return pem[pem.index("-----BEGIN CERTIFICATE-----") :]


def der(pem: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificate_in(pem))


def hash_of(secret: str) -> str:
    """Return what the journal has of a token's secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def normal(certificate: str) -> str:
    """Return a certificate as the journal has it. Raises NotAdmitted."""
    try:
        found = ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert(certificate))
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=found)
    except (ValueError, ssl.SSLError):
        raise NotAdmitted("its certificate cannot be read") from None
    return found


def check_proof(before: str, certificate: str, proof: str) -> None:
    """Check that the key of `before`, which has not expired, has signed a new certificate. Raises NotAdmitted."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.x509 import load_pem_x509_certificate

    try:
        old: Any = load_pem_x509_certificate(before.encode())
        old.public_key().verify(base64.b64decode(proof), der(certificate), _signature())
    except (ValueError, InvalidSignature):
        raise NotAdmitted("its new certificate is not signed with its key") from None
    if old.not_valid_after_utc < datetime.datetime.now(datetime.UTC):
        raise NotAdmitted("its certificate has expired: join with a token of `fairlead node token --name NODE`")


def _signature() -> Any:
    """Return how keys sign."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.ECDSA(hashes.SHA256())


def sign(own: str, certificate: str) -> str:
    """Sign a new certificate with the key in `own`, both as PEM."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key: Any = load_pem_private_key(own.encode(), None)
    return base64.b64encode(key.sign(der(certificate), _signature())).decode()


def make_certificate(name: str, signed_by: str = "") -> str:
    """Make a key and its certificate, as PEM; self-signed, unless the certificate and key of an authority are given."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    signing: Any = key
    if signed_by:
        issuer = x509.load_pem_x509_certificate(certificate_in(signed_by).encode()).subject
        signing = serialization.load_pem_private_key(signed_by.encode(), None)
    encrypts = ("key_encipherment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only")
    no = dict.fromkeys((*encrypts, "content_commitment", "crl_sign"), False)
    usage = x509.KeyUsage(digital_signature=True, key_cert_sign=not signed_by, **no)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC))  # clocks of machines differ
        .not_valid_after(datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=365 * YEARS))
        .add_extension(x509.BasicConstraints(ca=not signed_by, path_length=None if signed_by else 0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(signing, hashes.SHA256())
    )
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return (secret + certificate.public_bytes(serialization.Encoding.PEM)).decode()
