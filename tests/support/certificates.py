"""A certificate authority of a test's own, and what it certifies: files in PEM and PKCS12.

authority = Authority(tmp_path)
server, alice = authority.issue("localhost"), authority.issue("alice")
settings = {"ssl.keystore.location": str(server.pem), ...}
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from pathlib import Path

PASSWORD = "of-a-store"
PEM, PKCS8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8


class Issued(NamedTuple):
    """A private key with its certificate."""

    pem: Path
    """Both in one file, as Kafka has them."""
    key: Path
    certificate: Path
    pkcs12: Path
    """Both, under `PASSWORD`."""

    @property
    def key_text(self) -> str:
        return self.key.read_text()

    @property
    def certificate_text(self) -> str:
        return self.certificate.read_text()


class Authority:
    """Issues certificates that are valid for a day."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(self._name, self._name, self._key.public_key())
        self._certificate = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        ).sign(self._key, hashes.SHA256())
        self.certificate = folder / f"{name}.pem"
        """The file that those who trust this authority have."""
        self.certificate.write_bytes(self._certificate.public_bytes(PEM))

    def issue(
        self, name: str, *, subject: x509.Name | None = None, days: int = 1, file: str = ""
    ) -> Issued:
        """A certificate for a host, or a client, of this name; -1 day is one that has ended."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = subject or x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = _builder(subject, self._name, key.public_key(), days=days)
        certificate = (
            builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        plain = key.private_bytes(PEM, PKCS8, serialization.NoEncryption())
        public = certificate.public_bytes(PEM)
        file = file or name
        issued = Issued(*(self._folder / f"{file}.{end}" for end in ("pem", "key", "crt", "p12")))
        secret = serialization.BestAvailableEncryption(PASSWORD.encode())
        for path, data in (
            (issued.pem, plain + public),
            (issued.key, plain),
            (issued.certificate, public),
            (
                issued.pkcs12,
                pkcs12.serialize_key_and_certificates(
                    name.encode(), key, certificate, [self._certificate], secret
                ),
            ),
        ):
            path.touch(mode=0o600)
            path.write_bytes(data)
        return issued


def encrypted(key: Path, password: str) -> str:
    """A private key in PEM, under a password."""
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    secret = serialization.BestAvailableEncryption(password.encode())
    return loaded.private_bytes(PEM, PKCS8, secret).decode()


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, days: int = 1
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + timedelta(days=days))
    )
