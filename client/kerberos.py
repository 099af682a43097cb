"""GSSAPI (RFC 4752) on the client's side, by the package `gssapi` (triglot[kerberos]).

The ticket is one that kinit has got, or is got with a key from a keytab. The broker proves that it
is the service that was asked for; of the layers of security it offers, none is taken.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from client.errors import Refused, WrongUse

if TYPE_CHECKING:
    from client.security import ClientSecurity

NO_LAYER = 1
LAYER_BYTES = 4
"""The broker's offer: a mask of layers, and a size of three bytes."""


class Gssapi:
    """One authentication with the broker on a host, as it is dialled."""

    def __init__(self, security: ClientSecurity, host: str) -> None:
        """Raises WrongUse if the package, the keytab or a ticket is missing."""
        self._gssapi = gssapi = _package()
        self._context: Any = None
        self._established = False
        self.is_last = False
        service = f"{security.kerberos_service}@{host}".encode()
        try:
            self._name = gssapi.raw.import_name(service, gssapi.NameType.hostbased_service)
            self._credentials = self._ticket_of(security)
        except gssapi.exceptions.GSSError as error:
            raise WrongUse(
                f"there is no Kerberos ticket for {security.user or 'GSSAPI'} (kinit, or keyTab "
                f"and principal in sasl.jaas.config): {_why(error)}"
            ) from None

    def _ticket_of(self, security: ClientSecurity) -> Any:
        raw, name, store = self._gssapi.raw, None, {}
        kerberos = self._gssapi.MechType.kerberos
        if security.user:
            kind = self._gssapi.NameType.kerberos_principal
            name = raw.import_name(security.user.encode(), kind)
        if security.keytab_path:
            # One cache of this process for each key, which the library renews: such caches stay.
            which = f"{security.keytab_path}\0{security.user}".encode()
            store[b"ccache"] = b"MEMORY:" + hashlib.sha256(which).hexdigest().encode()
            store[b"client_keytab"] = b"FILE:" + security.keytab_path.encode()
        elif security.ticket_cache:
            store[b"ccache"] = security.ticket_cache.encode()
        return raw.acquire_cred_from(store, name, mechs=[kerberos], usage="initiate").creds

    def first(self) -> bytes:
        """Raises WrongUse if the KDC gives no ticket for the broker."""
        try:
            return self._next(None)
        except self._gssapi.exceptions.GSSError as error:
            raise WrongUse(
                f"Kerberos gives no ticket for the broker (sasl.kerberos.service.name): "
                f"{_why(error)}"
            ) from None

    def next(self, answer: bytes) -> bytes | None:
        if self.is_last:
            return None
        try:
            if not self._established:
                return self._next(answer)
            offer: bytes = self._gssapi.raw.unwrap(self._context, answer).message
            if len(offer) != LAYER_BYTES or not offer[0] & NO_LAYER:
                raise Refused("it asks for a layer of security, and SASL over Kafka has none")
            self.is_last = True
            choice = bytes((NO_LAYER, 0, 0, 0))
            chosen: bytes = self._gssapi.raw.wrap(self._context, choice, False).message
        except self._gssapi.exceptions.GSSError as error:
            raise Refused(f"it does not prove that it is the service: {_why(error)}") from None
        return chosen

    def _next(self, token: bytes | None) -> bytes:
        gssapi = self._gssapi
        found = gssapi.raw.init_sec_context(
            self._name,
            self._credentials,
            self._context,
            gssapi.MechType.kerberos,
            gssapi.RequirementFlag.mutual_authentication,
            input_token=token,
        )
        self._context = found.context
        self._established = not found.more_steps
        answer: bytes = found.token or b""
        return answer


def _why(error: Any) -> str:
    text: str = error.get_all_statuses(error.min_code, False)[-1]
    return text


def _package() -> Any:
    try:
        import gssapi
        import gssapi.exceptions
    except ImportError as error:
        raise WrongUse(
            "sasl.mechanism is GSSAPI, which needs pip install triglot[kerberos]; that is built "
            f"with MIT Kerberos (Debian, Ubuntu: apt install libkrb5-dev gcc): {error}"
        ) from None
    return gssapi
