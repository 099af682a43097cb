"""GSSAPI (RFC 4752) with Kerberos 5, as Kafka speaks it: authentication, and no layer of security.

    client  AP-REQ                                      broker  AP-REP
    client  (nothing)                                   broker  wrapped 01 01 00 00
    client  wrapped 01, maximum size, authzid           broker  nothing

01 is the layer "none", the only one that is offered. The size is that of Java's servers: clients
are known to take it, where RFC 4752 wants 0. What a client says of its own size is not looked at,
nor as whom it wants to act: as with Kafka it acts as the one whose ticket it has. Clients are
known to name the broker there (kafka-python, aiokafka).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker.security.principal import USER, Principal
from broker.security.sasl.mechanism import BadToken, Challenge, Done
from config.kerberos_rules import short_name

if TYPE_CHECKING:
    from config.kerberos_rules import KerberosRule

NAME = "GSSAPI"
NO_LAYER = 1
OFFER = bytes((NO_LAYER, 1, 0, 0))
LAYER_BYTES = 4
"""A mask of layers, and a size of three bytes."""
TOKENS_MAX = 4
"""Of the client until the context stands. Kerberos has one, with DCE's extension two."""


class SecurityContext(Protocol):
    """The broker's side of a security context of GSSAPI. Its methods raise BadToken."""

    def established(self) -> bool: ...
    @property
    def initiator(self) -> str:
        """The client's principal, as `alice@EXAMPLE.COM`, once the context is established."""

    def accept(self, token: bytes) -> bytes | None:
        """Our answer to a token of the client, None if there is none."""

    def wrap(self, data: bytes) -> bytes: ...
    def unwrap(self, token: bytes) -> bytes: ...


class GssapiExchange:
    """One client's."""

    def __init__(
        self, context: SecurityContext, rules: tuple[KerberosRule, ...], realm: str
    ) -> None:
        """`realm` is ours, whose principals the rule DEFAULT is for."""
        self._context = context
        self._rules = rules
        self._realm = realm
        self._token_count = 0
        self._offered = False

    def step(self, token: bytes) -> Challenge | Done:
        """Take the client's next token. Raises BadToken."""
        context = self._context
        if self._offered:
            return self._chosen(context.unwrap(token))
        if context.established():
            if token:
                raise BadToken("a token of GSSAPI where the client has to wait for the layers")
            return self._offer()
        self._token_count += 1
        if self._token_count > TOKENS_MAX:
            raise BadToken(f"no context of GSSAPI after {TOKENS_MAX} tokens")
        answer = context.accept(token)
        if answer:
            return Challenge(answer)
        if not context.established():  # MIT's library says so of a token that is none of Kerberos
            raise BadToken("a token of GSSAPI that no other can follow")
        return self._offer()

    def _offer(self) -> Challenge:
        self._offered = True
        return Challenge(self._context.wrap(OFFER))

    def _chosen(self, choice: bytes) -> Done:
        if len(choice) < LAYER_BYTES:
            raise BadToken(f"a choice of layers of {len(choice)} bytes, wanted {LAYER_BYTES}")
        if choice[0] != NO_LAYER:
            raise BadToken(f"the client chose layer {choice[0]}, and {NO_LAYER} (none) was offered")
        principal = self._context.initiator
        name = short_name(principal, self._rules, self._realm)
        if name is None:
            raise BadToken(
                f"no rule has a name for {principal} (sasl.kerberos.principal.to.local.rules)"
            )
        return Done(None, Principal(USER, name))
