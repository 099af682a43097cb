"""Clients that attack TLS: certificates of the wrong chain, renegotiation, sessions of another
listener, bytes from the middle."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from protocol.messages.metadata import MetadataRequest
from tests.support.caller import Caller, batch, produce_request
from tests.support.certificates import Authority
from tests.support.secured import SecuredBroker
from tests.support.wire_client import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.wire_client import WireClient

TOPIC = "t"
REFUSED = (ssl.SSLError, ConnectionClosed, ConnectionResetError, BrokenPipeError)
PEM = serialization.Encoding.PEM
KEY_FORM = (PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {"listener.name.ssl.ssl.client.auth": "required"}
    with SecuredBroker(tmp_path_factory.mktemp("secured"), settings) as broker:
        with Caller(broker.host, broker.ports["PLAINTEXT"]) as admin:
            admin.create_topic(TOPIC)
        yield broker
        said = broker.output()
        assert "Traceback" not in said, said[-3000:]


def is_served(client: WireClient) -> bool:
    return bool(client.call(MetadataRequest(topics=[]), 9).brokers)


def lets_in(broker: SecuredBroker, chain: Path) -> bool:
    context = broker.context()
    context.load_cert_chain(chain)
    with broker.connect("SSL", context) as client:
        return is_served(client)


Signer = tuple[x509.Name, ec.EllipticCurvePrivateKey]


def signer_of(pem: bytes) -> tuple[Signer, x509.Certificate]:
    """Who has this key and certificate, as one who signs others."""
    certificate = x509.load_pem_x509_certificate(pem)
    key = serialization.load_pem_private_key(pem, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return (certificate.subject, key), certificate


def certificate_of(
    name: str, signer: Signer | None, *, is_authority: bool = False, usage: x509.ObjectIdentifier
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """A key with a certificate, by itself where nobody else signs it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer, issuer_key = signer or (subject, key)
    now = datetime.now(UTC)
    return key, (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )


def written(path: Path, key: ec.EllipticCurvePrivateKey, *certificates: x509.Certificate) -> Path:
    path.write_bytes(
        key.private_bytes(*KEY_FORM) + b"".join(one.public_bytes(PEM) for one in certificates)
    )
    return path


def by_itself(broker: SecuredBroker, folder: Path) -> Path:
    """Under the name of a user, and signed by nobody else."""
    key, own = certificate_of("alice", None, usage=ExtendedKeyUsageOID.CLIENT_AUTH)
    return written(folder / "own.pem", key, own)


def by_a_namesake_of_the_authority(broker: SecuredBroker, folder: Path) -> Path:
    return Authority(folder, "authority").issue("alice").pem


def by_a_user(broker: SecuredBroker, folder: Path) -> Path:
    """Mallory has a certificate of the authority, and is none herself."""
    mallory, hers = signer_of(broker.authority.issue("mallory").pem.read_bytes())
    key, made = certificate_of("alice", mallory, usage=ExtendedKeyUsageOID.CLIENT_AUTH)
    return written(folder / "made.pem", key, made, hers)


def by_an_intermediate_that_is_missing(broker: SecuredBroker, folder: Path) -> Path:
    usage = ExtendedKeyUsageOID.CLIENT_AUTH
    authority = (broker.authority._name, broker.authority._key)
    middle_key, middle = certificate_of("middle", authority, is_authority=True, usage=usage)
    key, made = certificate_of("alice", (middle.subject, middle_key), usage=usage)
    assert lets_in(broker, written(folder / "whole.pem", key, made, middle))
    return written(folder / "missing.pem", key, made)


def of_a_server(broker: SecuredBroker, folder: Path) -> Path:
    """One that the authority has signed, for servers alone."""
    signer = (broker.authority._name, broker.authority._key)
    key, made = certificate_of("alice", signer, usage=ExtendedKeyUsageOID.SERVER_AUTH)
    return written(folder / "server.pem", key, made)


@pytest.mark.parametrize(
    "made",
    [
        by_itself,
        by_a_namesake_of_the_authority,
        by_a_user,
        by_an_intermediate_that_is_missing,
        of_a_server,
    ],
)
def test_a_certificate_of_the_wrong_chain_lets_nobody_in(
    secured: SecuredBroker, tmp_path: Path, made: object
) -> None:
    assert callable(made)
    with pytest.raises(REFUSED):
        lets_in(secured, made(secured, tmp_path))
    assert lets_in(secured, secured.authority.issue("alice").pem)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_of_a_listener_that_asks_for_no_certificate_is_of_no_use_on_another(
    secured: SecuredBroker, version: ssl.TLSVersion
) -> None:
    context = secured.context()
    context.minimum_version = context.maximum_version = version
    with secured.connect("SASL_SSL", context) as client:
        client.socket.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            client.socket.recv(1)  # the tickets of TLS 1.3 come by themselves
        assert isinstance(client.socket, ssl.SSLSocket)
        session = client.socket.session
    with pytest.raises(REFUSED):
        is_served_with(session, secured, context)


def is_served_with(
    session: ssl.SSLSession | None, broker: SecuredBroker, context: ssl.SSLContext
) -> bool:
    with broker.connect("PLAINTEXT") as client:
        client.socket.close()
        client.socket = context.wrap_socket(
            broker.socket("SSL"), server_hostname=broker.host, session=session
        )
        assert not client.socket.session_reused
        return is_served(client)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="renegotiates by the openssl command")
def test_nobody_renegotiates(secured: SecuredBroker) -> None:
    command = [
        *("openssl", "s_client", "-connect", f"{secured.host}:{secured.ports['SASL_SSL']}"),
        *("-tls1_2", "-CAfile", str(secured.authority.certificate)),
    ]
    told = subprocess.run(command, input=b"R\n", capture_output=True, timeout=30, check=False)
    assert b"RENEGOTIATING" in told.stderr
    assert b"no renegotiation" in told.stderr


def end_offset(broker: SecuredBroker) -> int:
    with Caller(broker.host, broker.ports["PLAINTEXT"]) as admin:
        offset: int = admin.fetch(TOPIC).high_watermark
        return offset


def test_bytes_that_were_put_into_a_connection_end_it(secured: SecuredBroker) -> None:
    before, context = end_offset(secured), secured.context()
    context.load_cert_chain(secured.authority.issue("alice").pem)
    with secured.connect("SSL", context) as client:
        assert is_served(client)
        injected = client.frame(produce_request((TOPIC, 0, batch(b"v")), acks=1), 9, 8)
        assert isinstance(client.socket, ssl.SSLSocket)
        bare = socket.socket(fileno=client.socket.detach())
        with bare:
            bare.settimeout(10)
            bare.sendall(injected)
            found = b"more"
            with contextlib.suppress(ConnectionResetError):
                while found:
                    found = bare.recv(65_536)
        client.socket = secured.socket("PLAINTEXT")
    assert end_offset(secured) == before
