"""TLS: contexts made of the settings and files of a listener, and what a connection says of its
peer.

Every new connection takes the context as it is then. When a file has changed a new one is made, on
a thread; if that fails the old one stays.
"""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING, Any

from broker import logs
from broker.security.distinguished_name import subject_of
from broker.security.keystores import (
    KeystoreError,
    read_private_key,
    read_trusted,
    stamp_of,
)
from broker.security.principal import ANONYMOUS, USER, Principal
from config.principal_rules import name_of, parse_rules

if TYPE_CHECKING:
    from broker.security.keystores import PrivateKey
    from broker.workers import Worker
    from config.listener_security import ListenerSecurity
    from storage.filesystem import Filesystem

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
PLAINTEXT_REASONS = (
    *("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "UNKNOWN_PROTOCOL"),
    *("PACKET_LENGTH_TOO_LONG", "RECORD_TOO_LARGE", "RECORD_LAYER_FAILURE", "BAD_RECORD_TYPE"),
)
"""What OpenSSL calls bytes that are no TLS."""


class NoPrincipal(Exception):
    """A certificate whose subject no rule makes a name of."""


class Tls:
    """TLS of one listener. Belongs to the loop."""

    def __init__(self, files: Filesystem, listener: str, security: ListenerSecurity) -> None:
        """Raises KeystoreError."""
        self._files = files
        self._listener = listener
        self._security = security
        self._rules = parse_rules(security.ssl_principal_mapping_rules)
        self._stamp = stamp_of(security)
        self._looking = False
        self.context = new_context(files, security)

    def look(self, worker: Worker) -> None:
        """Make a new context if a file has changed. A periodic task."""
        if self._looking:
            return
        self._looking = True
        worker.run(self._changed, self._take, self._failed)

    def _changed(self) -> ssl.SSLContext | None:
        stamp = stamp_of(self._security)
        if stamp == self._stamp:
            return None
        self._stamp = stamp  # what is wrong with these files is said once
        try:
            return new_context(self._files, self._security)
        except KeystoreError as error:
            raise OSError(str(error)) from None

    def _take(self, context: ssl.SSLContext | None) -> None:
        self._looking = False
        if context is not None:
            self.context = context
            logs.info("certificates were renewed", listener=self._listener)

    def _failed(self, error: Exception) -> None:
        self._looking = False
        logs.error(
            "changed certificates can't be used; those of before stay",
            listener=self._listener,
            reason=str(error),
        )

    def principal(self, transport: Any) -> Principal:
        """In whose name the peer of an established connection acts. Raises NoPrincipal."""
        certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        if not certificate:
            return ANONYMOUS
        try:
            subject = subject_of(certificate)
        except ValueError as error:
            raise NoPrincipal(f"its certificate can't be read: {error}") from None
        name = name_of(subject, self._rules)
        if name is None:
            raise NoPrincipal(f"no rule of ssl.principal.mapping.rules is for {subject}")
        return Principal(USER, name)


def new_context(files: Filesystem, security: ListenerSecurity) -> ssl.SSLContext:
    """The context of a listener. Raises KeystoreError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    offered = [VERSIONS[name] for name in security.ssl_enabled_protocols if name in VERSIONS]
    context.minimum_version, context.maximum_version = min(offered), max(offered)
    _choose_ciphers(context, security.ssl_cipher_suites)
    _load_key(context, read_private_key(files, security))
    context.verify_mode = CLIENT_AUTH[security.ssl_client_auth]
    if security.ssl_client_auth != "none":
        # As in Java, whoever is in the truststore is trusted, an authority of its own or not.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(cadata=read_trusted(files, security))
        except (ssl.SSLError, ValueError) as error:
            where = security.ssl_truststore_location or "ssl.truststore.certificates"
            raise KeystoreError(f"{where}: {_why(error)}") from None
    return context


def _load_key(context: ssl.SSLContext, key: PrivateKey) -> None:
    """OpenSSL takes files alone, so what is in memory becomes one there."""
    with os.fdopen(os.memfd_create("keystore", os.MFD_CLOEXEC), "wb") as file:
        file.write(key.pem)
        file.flush()
        try:
            # Without a password OpenSSL would ask for it at the terminal.
            context.load_cert_chain(
                f"/proc/self/fd/{file.fileno()}", password=lambda: key.password or ""
            )
        except ssl.SSLError as error:
            raise KeystoreError(f"{key.origin}: {_why_not_loaded(error, key)}") from None


def _why_not_loaded(error: ssl.SSLError, key: PrivateKey) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "its first certificate is not that of its private key"
    if b"PRIVATE KEY-----" not in key.pem:
        return "there is no private key in it"
    if b"BEGIN CERTIFICATE-----" not in key.pem:
        return "there is no certificate in it"
    if b"ENCRYPTED" in key.pem:
        return "its private key can't be opened with ssl.key.password"
    return f"OpenSSL can't use it ({_why(error)})"


def _why(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)


def _choose_ciphers(context: ssl.SSLContext, suites: tuple[str, ...]) -> None:
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


def why_failed(error: BaseException) -> str:
    """Why a handshake failed, for the log."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    reason = getattr(error, "reason", None)
    if reason in PLAINTEXT_REASONS:
        return "it speaks plaintext; this listener speaks TLS"
    if isinstance(error, ssl.SSLError) and reason:
        return f"the TLS handshake failed: {reason.replace('_', ' ').lower()}"
    if isinstance(error, TimeoutError) or "took longer than" in str(error):
        return "the TLS handshake took too long"
    return "it went away during the TLS handshake"
