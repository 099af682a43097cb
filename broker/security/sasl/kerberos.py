"""The broker as a service of Kerberos: its keys from a keytab, and security contexts of MIT's
library, by the package `gssapi` (triglot[kerberos]).

krb5.conf is that of the machine, or the one that KRB5_CONFIG names. Keys that are added to the
keytab are used at once: the library looks for a ticket's key in the file. It also remembers the
tickets' authenticators (by default in a file in /var/tmp), so that none is taken twice.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from broker.security.sasl.gssapi import GssapiExchange
from broker.security.sasl.mechanism import BadToken
from config.jaas import kerberos_keytab
from config.kerberos_rules import parse_kerberos_rules
from config.keystores import KeystoreError, require_private

if TYPE_CHECKING:
    from collections.abc import Callable

    from config.listener_security import ListenerSecurity

WHY_MAX_CHARACTERS = 200


def exchanges(security: ListenerSecurity) -> Callable[[], GssapiExchange]:
    """What begins the exchanges of a listener, whose settings are sound. Raises KeystoreError if
    the keytab, or the package, is not there or can't be used."""
    keytab = kerberos_keytab(security.sasl_jaas_config or "")
    rules = parse_kerberos_rules(security.sasl_kerberos_principal_to_local_rules)
    service = Service(keytab.path, keytab.principal)
    return lambda: GssapiExchange(service.new_context(), rules, service.realm)


class Service:
    """A principal with its keys. Used by several threads."""

    def __init__(self, path: str, principal: str) -> None:
        """Raises KeystoreError."""
        self._gssapi = gssapi = _package()
        try:
            require_private(path, "keys of Kerberos")
        except OSError as error:
            raise KeystoreError(f"{path} can't be read: {error.strerror or error}") from None
        if not os.access(path, os.R_OK):
            raise KeystoreError(f"{path} can't be read by the user that the broker runs as")
        kerberos = gssapi.MechType.kerberos
        try:
            name = gssapi.raw.import_name(principal.encode(), gssapi.NameType.kerberos_principal)
            self._credentials = gssapi.raw.acquire_cred_from(
                {b"keytab": b"FILE:" + path.encode()}, name, mechs=[kerberos], usage="accept"
            ).creds
        except gssapi.exceptions.GSSError as error:
            raise KeystoreError(
                f"{path} can't be used as the keytab of {principal}: {_why(error)}"
            ) from None
        try:
            name = gssapi.raw.import_name(b"any", gssapi.NameType.kerberos_principal)
            name = gssapi.raw.canonicalize_name(name, kerberos)
            self.realm = gssapi.raw.display_name(name, False).name.decode().rpartition("@")[2]
            """default_realm of krb5.conf; "" if there is none, as in Kafka."""
        except gssapi.exceptions.GSSError:
            self.realm = ""

    def new_context(self) -> Context:
        return Context(self._gssapi, self._credentials)


class Context:
    """One security context, by which a client proves who it is."""

    def __init__(self, gssapi: Any, credentials: Any) -> None:
        self._raw = gssapi.raw
        self._error: type[Exception] = gssapi.exceptions.GSSError
        self._credentials = credentials
        self._context: Any = None
        self._name: Any = None
        self._established = False

    def established(self) -> bool:
        return self._established

    @property
    def initiator(self) -> str:
        try:
            name: bytes = self._raw.display_name(self._name, False).name
            return name.decode()
        except (self._error, UnicodeDecodeError):
            raise BadToken("the principal of a ticket can't be written") from None

    def accept(self, token: bytes) -> bytes | None:
        if not token:
            raise BadToken("an empty token where a ticket is wanted")
        try:
            found = self._raw.accept_sec_context(token, self._credentials, self._context)
        except self._error as error:
            raise BadToken(f"a ticket is not accepted: {_why(error)}") from None
        self._context, self._name = found.context, found.initiator_name
        self._established = not found.more_steps
        answer: bytes | None = found.token
        return answer

    def wrap(self, data: bytes) -> bytes:
        try:
            wrapped: bytes = self._raw.wrap(self._context, data, False).message
        except self._error as error:
            raise BadToken(f"no message can be wrapped: {_why(error)}") from None
        return wrapped

    def unwrap(self, token: bytes) -> bytes:
        # The library moves the bytes that it is given about.
        own = bytes(bytearray(token))
        try:
            message: bytes = self._raw.unwrap(self._context, own).message
        except self._error as error:
            raise BadToken(f"a wrapped message is not what it was: {_why(error)}") from None
        return message


def _why(error: Any) -> str:
    """The library's words. Those for a ticket may have names that a client has made up."""
    text = ""
    if error.min_code:
        text = error.get_all_statuses(error.min_code, False)[-1]
    if text in ("", "Success"):
        text = error.get_all_statuses(error.maj_code, True)[0]
    printable = "".join(one if one.isprintable() else "?" for one in text)
    return printable[:WHY_MAX_CHARACTERS]


def _package() -> Any:
    try:
        import gssapi
        import gssapi.exceptions
    except ImportError as error:
        raise KeystoreError(
            "GSSAPI needs pip install triglot[kerberos], which is built with MIT Kerberos (Debian, "
            f"Ubuntu: apt install libkrb5-dev gcc): {error}"
        ) from None
    return gssapi
