"""Private keys and certificates as they are configured: PEM files, PEM in the settings, PKCS12
files.

What a file is is seen by its first bytes. PKCS12 is taken apart by the package `cryptography`; the
Java KeyStore format is not read. No error repeats a part of a key or a password.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple, Protocol

JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
PEM_MARK = b"-----BEGIN "
DER_SEQUENCE = b"\x30"
STORE_MAX_BYTES = 4 * 1024 * 1024
"""A truststore of all public authorities has a quarter of a MB."""


class Stores(Protocol):
    """Where a listener, or a client, has its keys: the settings of Kafka's keys of these names."""

    @property
    def ssl_keystore_type(self) -> str: ...
    @property
    def ssl_keystore_location(self) -> str | None: ...
    @property
    def ssl_keystore_password(self) -> str | None: ...
    @property
    def ssl_key_password(self) -> str | None: ...
    @property
    def ssl_keystore_key(self) -> str | None: ...
    @property
    def ssl_keystore_certificate_chain(self) -> str | None: ...
    @property
    def ssl_truststore_type(self) -> str: ...
    @property
    def ssl_truststore_location(self) -> str | None: ...
    @property
    def ssl_truststore_password(self) -> str | None: ...
    @property
    def ssl_truststore_certificates(self) -> str | None: ...


class Files(Protocol):
    """What reads files; failures are OSErrors."""

    def size_of(self, path: str) -> int: ...
    def read_bytes(self, path: str) -> bytes: ...


class KeystoreError(ValueError):
    """A key or a certificate cannot be used; the text says which file and why."""


class PrivateKey(NamedTuple):
    """A private key and its chain of certificates as PEM, and the key's password. No text of it
    has either."""

    pem: bytes
    password: str | None
    origin: str

    def __repr__(self) -> str:
        return f"PrivateKey({self.origin})"


Stamp = tuple[tuple[str, int, int, int], ...]
"""Path, inode, size and time of change of each file; another stamp is another content."""


def stamp_of(security: Stores) -> Stamp:
    """The stamp of the files of a listener; what is not there has zeros."""
    stamps = []
    for path in (security.ssl_keystore_location, security.ssl_truststore_location):
        if path:
            try:
                found = os.stat(path)  # noqa: PTH116 - of two files, every few seconds
                stamps.append((path, found.st_ino, found.st_size, found.st_mtime_ns))
            except OSError:
                stamps.append((path, 0, 0, 0))
    return tuple(stamps)


def read_private_key(files: Files, security: Stores) -> PrivateKey:
    """One's own key and certificates. Raises KeystoreError."""
    path = security.ssl_keystore_location
    if not path:
        key, chain = security.ssl_keystore_key, security.ssl_keystore_certificate_chain
        pem = f"{(key or '').strip()}\n{(chain or '').strip()}\n".encode()
        return PrivateKey(_with_lines(pem), security.ssl_key_password, "ssl.keystore.key")
    data = _read(files, path)
    require_private(path, "a private key")
    if data[:1] == DER_SEQUENCE:
        return PrivateKey(_key_of_pkcs12(path, data, security.ssl_keystore_password), None, path)
    password = security.ssl_key_password or security.ssl_keystore_password
    return PrivateKey(_pem(path, data, security.ssl_keystore_type), password, path)


def read_trusted(files: Files, security: Stores) -> str:
    """The trusted certificates as PEM, "" if there are none. Raises KeystoreError."""
    path = security.ssl_truststore_location
    if not path:
        return _with_lines((security.ssl_truststore_certificates or "").encode()).decode()
    data = _read(files, path)
    if os.stat(path).st_mode & stat.S_IWOTH:  # noqa: PTH116 - as above
        raise KeystoreError(
            f"{path} says who is trusted and can be written by every user of this machine; "
            f"chmod o-w {path}"
        )
    if data[:1] == DER_SEQUENCE:
        return _certificates_of_pkcs12(path, data, security.ssl_truststore_password)
    try:
        return _pem(path, data, security.ssl_truststore_type).decode("ascii")
    except UnicodeDecodeError:
        raise KeystoreError(f"{path} has other characters than those of PEM (ASCII)") from None


def _read(files: Files, path: str) -> bytes:
    try:
        if files.size_of(path) > STORE_MAX_BYTES:
            raise KeystoreError(
                f"{path} has more than {STORE_MAX_BYTES} bytes; that is no keystore"
            )
        return files.read_bytes(path)
    except OSError as error:
        raise KeystoreError(f"{path} can't be read: {error.strerror or error}") from None


def require_private(path: str, content: str) -> None:
    """Raises KeystoreError, which says what it has, if every user of this machine can read or write
    the file."""
    if os.stat(path).st_mode & (stat.S_IROTH | stat.S_IWOTH):  # noqa: PTH116 - as above
        raise KeystoreError(
            f"{path} has {content} and can be read or written by every user of this machine; "
            f"chmod o-rwx {path}"
        )


def _pem(path: str, data: bytes, kind: str) -> bytes:
    if data.startswith(JKS_MAGIC):
        raise KeystoreError(
            f"{path} is a Java KeyStore, which is not read here; convert it: keytool "
            f"-importkeystore -srckeystore {path} -destkeystore {path}.p12 -deststoretype PKCS12"
        )
    if PEM_MARK not in data:
        raise KeystoreError(f"{path} is neither PEM nor PKCS12 ({kind} by its setting)")
    return data


def _with_lines(pem: bytes) -> bytes:
    """PEM that was written on one line, with blanks for the ends of its lines, as Kafka takes
    it."""
    import re

    return re.sub(
        rb"(-----BEGIN [A-Z0-9 ]+-----)(.*?)(-----END [A-Z0-9 ]+-----)",
        lambda found: (
            found[0] if b"\n" in found[2] else b"\n".join((found[1], *found[2].split(), found[3]))
        ),
        pem,
        flags=re.DOTALL,
    )


def _key_of_pkcs12(path: str, data: bytes, password: str | None) -> bytes:
    from cryptography.hazmat.primitives import serialization

    key, certificate, others = _open_pkcs12(path, data, password)
    if key is None or certificate is None:
        raise KeystoreError(f"{path} has no private key with its certificate")
    pem: bytes = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    for one in (certificate, *others):
        pem += one.public_bytes(serialization.Encoding.PEM)
    return pem


def _certificates_of_pkcs12(path: str, data: bytes, password: str | None) -> str:
    from cryptography.hazmat.primitives import serialization

    _, certificate, others = _open_pkcs12(path, data, password)
    found = [one for one in (certificate, *others) if one is not None]
    if not found:
        raise KeystoreError(f"{path} has no certificates")
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in found).decode()


def _open_pkcs12(path: str, data: bytes, password: str | None):  # type: ignore[no-untyped-def]
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise KeystoreError(
            f"{path} is PKCS12, which needs pip install triglot[security]; or convert it: "
            f"openssl pkcs12 -in {path} -nodes -out {path}.pem"
        ) from None
    try:
        return pkcs12.load_key_and_certificates(data, password.encode() if password else None)
    except (ValueError, TypeError):
        raise KeystoreError(
            f"{path} can't be opened as PKCS12: its password is another, or it is damaged"
        ) from None
