"""What TLS of a listener and TLS of a client have in common: a key, versions, cipher suites."""

from __future__ import annotations

import os
import ssl
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from config.keystores import KeystoreError
from config.platforms import PORTABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from config.keystores import PrivateKey

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def choose_versions(context: ssl.SSLContext, names: Iterable[str]) -> None:
    """Offer these versions; those before TLS 1.2 are left out. At least one has to be known."""
    offered = [VERSIONS[name] for name in names if name in VERSIONS]
    context.minimum_version, context.maximum_version = min(offered), max(offered)


def load_key(context: ssl.SSLContext, key: PrivateKey) -> None:
    """Have a context prove itself by this key. Raises KeystoreError."""
    with _as_file(key.pem) as path:
        try:
            # Without a password OpenSSL would ask for it at the terminal.
            context.load_cert_chain(path, password=lambda: key.password or "")
        except ssl.SSLError as error:
            raise KeystoreError(f"{key.origin}: {_why_not_loaded(error, key)}") from None


@contextmanager
def _as_file(pem: bytes) -> Iterator[str]:
    """OpenSSL takes files alone, so what is in memory becomes one there; elsewhere than on Linux it
    is a temporary file of the user's for a moment."""
    if sys.platform == "linux" and not PORTABLE:
        with os.fdopen(os.memfd_create("keystore", os.MFD_CLOEXEC), "wb") as file:
            file.write(pem)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
        return
    import tempfile

    descriptor, path = tempfile.mkstemp(prefix="triglot-", suffix=".pem")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
        yield path
    finally:
        os.unlink(path)  # noqa: PTH108 - pathlib costs start-up time


def _why_not_loaded(error: ssl.SSLError, key: PrivateKey) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "its first certificate is not that of its private key"
    if b"PRIVATE KEY-----" not in key.pem:
        return "there is no private key in it"
    if b"BEGIN CERTIFICATE-----" not in key.pem:
        return "there is no certificate in it"
    if b"ENCRYPTED" in key.pem:
        return "its private key can't be opened with ssl.key.password"
    return f"OpenSSL can't use it ({why(error)})"


def why(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)


def choose_ciphers(context: ssl.SSLContext, suites: tuple[str, ...]) -> None:
    """Offer these suites alone. Python can't choose among those of TLS 1.3: all or none of them."""
    if not suites:
        return
    newest = [suite for suite in suites if suite.startswith("TLS_") and "_WITH_" not in suite]
    older = [_name_in_openssl(suite) for suite in suites if suite not in newest]
    if not newest:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if context.minimum_version > context.maximum_version:
        raise KeystoreError(
            "ssl.cipher.suites has no suite of the versions in ssl.enabled.protocols"
        )
    if older:
        try:
            context.set_ciphers(":".join(older))
        except ssl.SSLError:
            raise KeystoreError(
                f"ssl.cipher.suites: OpenSSL knows none of {', '.join(older)}"
            ) from None


def _name_in_openssl(suite: str) -> str:
    """TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256 there."""
    if "_WITH_" not in suite:
        return suite
    exchange, _, cipher = suite.partition("_")[2].partition("_WITH_")
    for name, plain in (("AES_128", "AES128"), ("AES_256", "AES256"), ("_CBC", "")):
        cipher = cipher.replace(name, plain)
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305").replace("_", "-")
    return cipher if exchange == "RSA" else f"{exchange.replace('_', '-')}-{cipher}"
