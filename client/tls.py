"""TLS of a client: whom it trusts, and its own certificate. Imported where TLS is wanted."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from client.errors import ConnectionLost, Refused, WrongUse
from config.keystores import KeystoreError, read_private_key, read_trusted
from config.tls_context import choose_ciphers, choose_versions, load_key, why

if TYPE_CHECKING:
    import socket

    from client.errors import Failure
    from client.security import ClientSecurity

Error = ssl.SSLError
NOT_READY = (ssl.SSLWantReadError, ssl.SSLWantWriteError)

SPEAKS_PLAINTEXT = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "UNKNOWN_PROTOCOL",
    "RECORD_LAYER_FAILURE",
)
WANTS_CERTIFICATE = ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE")
"""How the alerts of a broker end that does not get the certificate that it wants."""


class Disk:
    """Files as they are read once."""

    def size_of(self, path: str) -> int:
        return Path(path).stat().st_size

    def read_bytes(self, path: str) -> bytes:
        return Path(path).read_bytes()


def new_context(security: ClientSecurity) -> ssl.SSLContext:
    """Raises WrongUse for files that can't be used."""
    files = Disk()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = security.check_host
    try:
        choose_versions(context, security.ssl_enabled_protocols)
        choose_ciphers(context, security.ssl_cipher_suites)
        if security.ssl_truststore_location or security.ssl_truststore_certificates:
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as Java does
            context.load_verify_locations(cadata=read_trusted(files, security))
        else:
            context.load_default_certs()
        if security.ssl_keystore_location or security.ssl_keystore_key:
            load_key(context, read_private_key(files, security))
    except KeystoreError as error:
        raise WrongUse(str(error)) from None
    except (ssl.SSLError, ValueError) as error:
        where = security.ssl_truststore_location or "ssl.truststore.certificates"
        raise WrongUse(f"{where} has no certificates that can be used: {why(error)}") from None
    return context


def secured(
    plain: socket.socket, host: str, address: str, context: ssl.SSLContext
) -> ssl.SSLSocket:
    """The socket with TLS on it; it is closed on failure. Raises ConnectionLost, Refused."""
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except OSError as error:
        plain.close()
        raise failure(address, error) from None


def failure(address: str, error: OSError) -> Failure:
    """What went wrong with TLS at an address, and the key that it hangs on."""
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message.rstrip(".")
        key = (
            "ssl.endpoint.identification.algorithm is https, so the certificate has to be for this "
            "name"
            if "ismatch" in said or "not valid for" in said
            else "ssl.truststore.location names whom to trust"
        )
        return Refused(f"the certificate of {address} is not accepted: {said} ({key})")
    reason = getattr(error, "reason", None) or ""
    if reason in SPEAKS_PLAINTEXT:
        return ConnectionLost(f"{address} speaks no TLS (security.protocol)")
    if reason.endswith(WANTS_CERTIFICATE):
        return Refused(
            f"{address} refuses a client without a certificate that it trusts "
            f"(ssl.keystore.location): {_words(reason)}"
        )
    if reason and "EOF" not in reason:
        return ConnectionLost(f"TLS with {address} failed: {_words(reason)}")
    if isinstance(error, TimeoutError):
        return ConnectionLost(f"{address} did not end the TLS handshake in time")
    return ConnectionLost(
        f"{address} closed the connection during the TLS handshake: it may speak none "
        "(security.protocol)"
    )


def _words(reason: str) -> str:
    return reason.replace("_", " ").lower()
