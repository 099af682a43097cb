"""TLS: contexts made of the settings and files of a listener, and what a connection says of its
peer.

Every new connection takes the context as it is then. When a file has changed a new one is made, on
a thread; if that fails the old one stays.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from broker import logs
from broker.security.distinguished_name import subject_of
from broker.security.principal import ANONYMOUS, USER, Principal
from config.keystores import (
    KeystoreError,
    read_private_key,
    read_trusted,
    stamp_of,
)
from config.principal_rules import name_of, parse_rules
from config.tls_context import choose_ciphers, choose_versions, load_key, why

if TYPE_CHECKING:
    from broker.workers import Worker
    from config.listener_security import ListenerSecurity
    from storage.filesystem import Filesystem

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
        try:
            certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        except ValueError:  # asyncio's own loop tells of it only after this
            raise NoPrincipal("the connection has failed right after its handshake") from None
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
    choose_versions(context, security.ssl_enabled_protocols)
    choose_ciphers(context, security.ssl_cipher_suites)
    load_key(context, read_private_key(files, security))
    context.verify_mode = CLIENT_AUTH[security.ssl_client_auth]
    if security.ssl_client_auth != "none":
        # As in Java, whoever is in the truststore is trusted, an authority of its own or not.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(cadata=read_trusted(files, security))
        except (ssl.SSLError, ValueError) as error:
            where = security.ssl_truststore_location or "ssl.truststore.certificates"
            raise KeystoreError(f"{where}: {why(error)}") from None
    return context


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
