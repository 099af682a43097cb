"""`triglot certs`: an authority for development, and the certificates that a broker and its clients
need.

The keys are P-256. Whoever has ca.key can be anybody to those who trust ca.pem: it is for
development, and for a small team that keeps it safe.
"""

from __future__ import annotations

import argparse
import os
import sys
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from tools.arguments import DONE, NOT_DONE, whole_number
from tools.errors import NotDone
from tools.printing import print_json, print_lines, say

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )

    Arguments = argparse.Namespace
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

DAYS, CA_DAYS, DAYS_MAX = 365, 3650, 36_500
SKEW = timedelta(hours=1)
"""A certificate is valid from so long ago on, for clocks that are behind."""
CA, CA_KEY, SERVER = "ca.pem", "ca.key", "server"

CERTS_HELP = """\
Make what TLS needs, for development: an authority, and certificates of it for a broker and for
clients.

  triglot certs certs --host localhost --host 127.0.0.1
  triglot certs certs --client alice --client bob        certificates for clients, too

In the folder are then

  ca.pem         the authority: clients have it as ssl.truststore.location
  ca.key         its private key, to make more certificates with; nobody else needs it
  server.pem     the broker's private key and certificate: ssl.keystore.location
  alice.pem      those of a client; its principal is User:CN=alice

Files with keys can be read by their owner alone (0600). An authority that is there is used again:
the same command later renews the broker's certificate, which a running broker takes up by itself.
What to write into server.properties and client.properties is printed.
"""


def add_commands(commands: Commands) -> None:
    """Add `certs` to the command line's."""
    parser = commands.add_parser(
        "certs",
        help="make an authority and certificates for TLS",
        description=CERTS_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run_certs)
    parser.add_argument("folder", metavar="DIR", help="where to write them")
    parser.add_argument(
        "--host",
        action="append",
        metavar="HOST",
        help="a name or address that clients dial; default localhost and 127.0.0.1",
    )
    parser.add_argument(
        "--client", action="append", default=[], metavar="NAME", help="a client's certificate"
    )
    parser.add_argument(
        "--days",
        type=whole_number,
        default=DAYS,
        metavar="N",
        help=f"that certificates are valid; default {DAYS}",
    )
    parser.add_argument("--json", action="store_true", help="JSON, for machines")


def run_certs(arguments: Arguments) -> int:
    """`triglot certs`. The exit code."""
    try:
        _make(arguments)
    except NotDone as error:
        say(f"triglot: {error}", sys.stderr)
        return NOT_DONE
    except OSError as error:
        say(f"triglot: {error.filename or 'disk'}: {error.strerror or error}", sys.stderr)
        return NOT_DONE
    return DONE


def _make(arguments: Arguments) -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise NotDone("certificates need pip install triglot[security] (cryptography)") from None
    if not 0 < arguments.days <= DAYS_MAX:
        raise NotDone(f"--days is {arguments.days}, wanted 1 to {DAYS_MAX}")
    for name in arguments.client:
        if not name or not set(name) <= _FILE_CHARACTERS or name in (SERVER, "ca", ".", ".."):
            raise NotDone(f"--client is '{name}', wanted letters, digits, '-', '_' and '.'")
    hosts = arguments.host or ["localhost", "127.0.0.1"]
    folder = Path(arguments.folder).absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = _Authority.of(folder)
    made = [authority.issue(SERVER, hosts[0], hosts, arguments.days)]
    made += [authority.issue(name, name, [], arguments.days) for name in arguments.client]
    trusted = folder / CA
    if arguments.json:
        print_json({"ca": str(trusted), "server": str(made[0]), "clients": [*map(str, made[1:])]})
        return
    print_lines(_lines(trusted, made, hosts))


def _lines(trusted: Path, made: list[Path], hosts: list[str]) -> list[str]:
    host = f"[{hosts[0]}]" if ":" in hosts[0] else hosts[0]
    clients = [
        f"#   with a certificate of its own: ssl.keystore.type=PEM, ssl.keystore.location={path}"
        for path in made[1:]
    ]
    return [
        "# server.properties",
        f"listeners=SSL://{host}:9093",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={made[0]}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={trusted}",
        *(["ssl.client.auth=required"] if clients else []),
        "",
        "# client.properties",
        "security.protocol=SSL",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={trusted}",
        *clients,
    ]


_FILE_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


class _Authority:
    """Its key, and its certificate."""

    def __init__(
        self, folder: Path, key: EllipticCurvePrivateKey, certificate: x509.Certificate
    ) -> None:
        self._folder = folder
        self._key = key
        self._certificate = certificate

    @classmethod
    def of(cls, folder: Path) -> _Authority:
        """That of a folder, made if there is none. Raises NotDone."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key_path, path = folder / CA_KEY, folder / CA
        if key_path.exists() != path.exists():
            there, missing = (path, key_path) if path.exists() else (key_path, path)
            raise NotDone(f"{there} is there and {missing} is not: restore it, or remove both")
        if path.exists():
            try:
                key = serialization.load_pem_private_key(key_path.read_bytes(), None)
                certificate = x509.load_pem_x509_certificate(path.read_bytes())
            except (ValueError, TypeError):
                raise NotDone(f"{key_path} or {path} is no PEM without a password") from None
            if not isinstance(key, ec.EllipticCurvePrivateKey):
                raise NotDone(f"{key_path} is no key on an elliptic curve")
            return cls(folder, key, certificate)
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("triglot development authority")
        builder = _builder(name, name, key.public_key(), CA_DAYS).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        certificate = _with_usages(builder, signs=True).sign(key, hashes.SHA256())
        _write(key_path, _key_pem(key))
        _write(path, _pem(certificate), mode=0o644)
        return cls(folder, key, certificate)

    def issue(self, name: str, subject: str, hosts: list[str], days: int) -> Path:
        """A key with its certificate and that of the authority; the path of the file."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self._certificate.subject
        builder = _builder(_name(subject), issuer, key.public_key(), days).add_extension(
            x509.BasicConstraints(ca=False, path_length=None), critical=True
        )
        builder = _with_usages(builder, signs=False).add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
            critical=False,
        )
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if hosts:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False).sign(
            self._key, hashes.SHA256()
        )
        path = self._folder / f"{name}.pem"
        _write(path, _key_pem(key) + _pem(certificate) + _pem(self._certificate))
        return path


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise NotDone(f"--host is '{host}', no name of a host in ASCII, and no address") from None


def _name(common_name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    except ValueError:
        raise NotDone(f"'{common_name}' is longer than a certificate's name can be (64)") from None


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _with_usages(builder: x509.CertificateBuilder, *, signs: bool) -> x509.CertificateBuilder:
    from cryptography import x509

    usage = x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return builder.add_extension(usage, critical=True)


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """In one step, so that a broker that looks meanwhile sees the old file or the new one."""
    made = path.with_name(f".{path.name}.new")
    made.unlink(missing_ok=True)
    with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    made.replace(path)
