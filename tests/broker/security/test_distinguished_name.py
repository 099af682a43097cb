"""Subjects of certificates, as Java's X500Principal.getName writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from broker.security.distinguished_name import subject_of
from tests.support.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path

A = x509.NameAttribute
LONG = [
    A(NameOID.COUNTRY_NAME, "CH"),
    A(NameOID.STATE_OR_PROVINCE_NAME, "Bern"),
    A(NameOID.LOCALITY_NAME, "Thun"),
    A(NameOID.ORGANIZATION_NAME, "Müller, Söhne"),
    A(NameOID.ORGANIZATIONAL_UNIT_NAME, 'a+b"c\\d<e>f;g=h'),
    A(NameOID.STREET_ADDRESS, " x "),
    A(NameOID.DOMAIN_COMPONENT, "example"),
    A(NameOID.USER_ID, "#7"),
    A(NameOID.COMMON_NAME, "alice"),
]


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ([A(NameOID.COMMON_NAME, "alice")], "CN=alice"),
        (
            LONG,
            'CN=alice,UID=\\#7,DC=example,STREET=\\ x\\ ,OU=a\\+b\\"c\\\\d\\<e\\>f\\;g\\=h,'
            "O=Müller\\, Söhne,L=Thun,ST=Bern,C=CH",
        ),
        ([A(NameOID.COMMON_NAME, "a  b  ")], "CN=a  b\\ \\ "),
        # Names that Java has no word for here are numbers, and their values are DER.
        (
            [A(NameOID.COMMON_NAME, "a"), A(NameOID.EMAIL_ADDRESS, "a@b")],
            "1.2.840.113549.1.9.1=#1603614062,CN=a",
        ),
        ([A(NameOID.SERIAL_NUMBER, "12")], "2.5.4.5=#13023132"),
    ],
)
def test_a_subject_is_written_as_java_writes_it(
    tmp_path: Path, attributes: list[x509.NameAttribute[str]], text: str
) -> None:
    issued = Authority(tmp_path).issue("alice", subject=x509.Name(attributes))
    certificate = x509.load_pem_x509_certificate(issued.certificate.read_bytes())

    assert subject_of(certificate.public_bytes(Encoding.DER)) == text


def test_parts_of_several_attributes_stand_together(tmp_path: Path) -> None:
    both = x509.RelativeDistinguishedName(
        [A(NameOID.COMMON_NAME, "a"), A(NameOID.ORGANIZATION_NAME, "b")]
    )
    issued = Authority(tmp_path).issue("alice", subject=x509.Name([both]))
    certificate = x509.load_pem_x509_certificate(issued.certificate.read_bytes())

    assert set(subject_of(certificate.public_bytes(Encoding.DER)).split("+")) == {"CN=a", "O=b"}


def test_a_certificate_that_is_cut_is_no_certificate(tmp_path: Path) -> None:
    issued = Authority(tmp_path).issue("alice")
    whole = x509.load_pem_x509_certificate(issued.certificate.read_bytes())
    data = whole.public_bytes(Encoding.DER)
    for size in range(len(data)):
        with pytest.raises(ValueError, match=r"DER|length|subject"):
            subject_of(data[:size])
