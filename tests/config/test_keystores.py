"""Keys and certificates in every form, and those that cannot be used."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest

from broker.network.tls import new_context
from config import load
from config.keystores import KeystoreError
from config.listener_security import ListenerSecurity
from storage.disk import DiskFilesystem
from tests.support.certificates import PASSWORD, Authority, encrypted

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.certificates import Issued

LOCATION = "ssl.keystore.location"
KEY, CHAIN = "ssl.keystore.key", "ssl.keystore.certificate.chain"


def context_of(**settings: str) -> ssl.SSLContext:
    given = {"listeners": "SSL://127.0.0.1:0", **settings}
    return new_context(DiskFilesystem(), ListenerSecurity(load(overrides=given), "SSL"))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def issued(authority: Authority) -> Issued:
    return authority.issue("broker")


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """A whole handshake in memory. Raises SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
    ]
    for _ in range(6):
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)
    assert not ends


def test_a_key_may_be_given_in_any_form(authority: Authority, issued: Issued) -> None:
    key, chain = issued.key_text, issued.certificate_text
    forms: list[dict[str, str]] = [
        {LOCATION: str(issued.pem)},
        {LOCATION: str(issued.pem), "ssl.keystore.type": "PEM"},
        {LOCATION: str(issued.pkcs12), "ssl.keystore.password": PASSWORD},
        {KEY: key, CHAIN: chain},
        {KEY: key.replace("\n", " "), CHAIN: chain.replace("\n", " ")},
        {KEY: encrypted(issued.key, "of-a-key"), CHAIN: chain, "ssl.key.password": "of-a-key"},
    ]
    for form in forms:
        client = ssl.create_default_context(cafile=str(authority.certificate))
        handshake(context_of(**form), client)


@pytest.mark.parametrize("form", ["PEM", "PKCS12", "text"])
def test_a_truststore_may_be_given_in_any_form(
    authority: Authority, issued: Issued, form: str
) -> None:
    trust = {
        "PEM": {"ssl.truststore.location": str(authority.certificate)},
        "PKCS12": {
            "ssl.truststore.location": str(issued.pkcs12),
            "ssl.truststore.password": PASSWORD,
        },
        "text": {"ssl.truststore.certificates": authority.certificate.read_text()},
    }[form]
    server = context_of(**{LOCATION: str(issued.pem), "ssl.client.auth": "required", **trust})
    client = ssl.create_default_context(cafile=str(authority.certificate))
    client.maximum_version = ssl.TLSVersion.TLSv1_2  # which tells in the handshake itself

    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        handshake(server, client)
    client.load_cert_chain(authority.issue("alice").pem)
    handshake(server, client)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("others may read", "can be read or written by every user of this machine; chmod o-rwx"),
        ("absent", "can't be read: No such file"),
        ("jks", "is a Java KeyStore, which is not read here; convert it: keytool -importkeystore"),
        ("text", "is neither PEM nor PKCS12"),
        ("no key", "there is no private key in it"),
        ("no certificate", "there is no certificate in it"),
        ("of another", "its first certificate is not that of its private key"),
        ("wrong password", "can't be opened as PKCS12: its password is another"),
        ("no password", "its private key can't be opened with ssl.key.password"),
    ],
)
def test_a_key_that_cannot_be_used_is_refused_and_not_shown(
    authority: Authority, issued: Issued, tmp_path: Path, what: str, reason: str
) -> None:
    other = authority.issue("other")
    path, settings = tmp_path / "keystore", {}
    contents = {
        "jks": b"\xfe\xed\xfe\xed\0\0\0\2",
        "text": b"hello",
        "no key": issued.certificate.read_bytes(),
        "no certificate": issued.key.read_bytes(),
        "of another": issued.key.read_bytes() + other.certificate.read_bytes(),
        "no password": encrypted(issued.key, "x").encode() + issued.certificate.read_bytes(),
        "others may read": issued.pem.read_bytes(),
        "wrong password": issued.pkcs12.read_bytes(),
    }
    if what in contents:
        path.write_bytes(contents[what])
        path.chmod(0o644 if what == "others may read" else 0o600)
    if what == "wrong password":
        settings["ssl.keystore.password"] = "tell-nobody"

    with pytest.raises(KeystoreError, match=reason) as error:
        context_of(**{LOCATION: str(path), **settings})
    assert "tell-nobody" not in str(error.value)
    assert "PRIVATE KEY" not in str(error.value)


def test_a_suite_that_nobody_knows_is_refused(issued: Issued) -> None:
    for suites in ("TLS_NO_WITH_SUCH_SUITE", "TLS_RSA_WITH_NULL_NO"):
        with pytest.raises(KeystoreError, match="OpenSSL knows none of"):
            context_of(**{LOCATION: str(issued.pem), "ssl.cipher.suites": suites})
    with pytest.raises(KeystoreError, match="no suite of the versions"):
        context_of(
            **{
                LOCATION: str(issued.pem),
                "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384",
                "ssl.enabled.protocols": "TLSv1.2",
            }
        )
