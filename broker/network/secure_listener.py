"""A listener that asks for TLS, SASL or both: what it offers, and who is on the way through it.

Those who are not known yet are bounded: in number (connections.authenticating.max, beyond which the
oldest goes, so that one who stalls keeps nobody out), in time
(connections.authentication.timeout.ms) and in what they may send (sasl.server.max.receive.size).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

from broker import logs
from config.listener_security import ListenerSecurity

if TYPE_CHECKING:
    import asyncio
    from collections import Counter

    from broker.network.tls import Tls
    from broker.security.delegation_tokens import DelegationTokens
    from broker.security.sasl.mechanism import Mechanism
    from broker.security.sasl.mechanisms import ScramCredentials
    from broker.workers import Worker
    from config import BrokerSettings
    from protocol.connection import Routes
    from storage.filesystem import Filesystem

TO_AUTHENTICATE = (17, 18, 36)
"""SaslHandshake, ApiVersions and SaslAuthenticate: all that is served before authentication."""
TO_AUTHENTICATE_AGAIN = (17, 36)
OVER_TLS = "SSL"
"""In place of a mechanism: what the TLS handshake decides."""


class Outcome(NamedTuple):
    """What is counted of an authentication. `mechanism` is one that is enabled, OVER_TLS, or "" of
    who named none of them; `again` tells those within a session (KIP-368)."""

    listener: str
    mechanism: str
    succeeded: bool
    again: bool


def _no_token(_: str) -> None:
    """Until when a delegation token is good where there are none."""


class Arriving(Protocol):
    """A connection whose client is not known yet."""

    def cut_off(self, cause: str) -> None:
        """Close it at once, and say why."""

    def shake_hands(self, first: bytes) -> None:
        """Begin the TLS handshake, with the client's first bytes."""


class SecureListener:
    """Belongs to the loop. Made anew when its settings change; connections keep that which they
    began with."""

    def __init__(
        self,
        settings: BrokerSettings,
        name: str,
        *,
        loop: asyncio.AbstractEventLoop,
        files: Filesystem,
        logins: Worker,
        routes: Routes,
        credentials: ScramCredentials,
        delegation_tokens: DelegationTokens | None,
        outcomes: Counter[Outcome],
    ) -> None:
        """`routes` is what is served once a client is known. Authentications are counted in
        `outcomes`, slow mechanisms' steps are made by `logins`. Raises KeystoreError."""
        security = ListenerSecurity(settings, name)
        self.name = name
        self._outcomes = outcomes
        self.protocol = settings.security_protocol(name) or ""
        self.logins = logins
        self.timeout_s = security.connections_authentication_timeout_ms / 1000
        self.failure_delay_s = security.connection_failed_authentication_delay_ms / 1000
        self.max_receive_bytes = security.sasl_server_max_receive_size
        self.tls: Tls | None = None
        self.delegation_tokens = delegation_tokens
        self.mechanisms: dict[str, Mechanism] | None = None
        if self.protocol.endswith("SSL"):
            from broker.network.tls import Tls

            self.tls = Tls(files, name, security)
        if self.protocol.startswith("SASL"):
            from broker.security.sasl.mechanisms import mechanisms_of

            self.mechanisms = mechanisms_of(settings, name, credentials, delegation_tokens)
        self.token_ends = delegation_tokens.ends if delegation_tokens else _no_token
        self.routes_before = routes.only(TO_AUTHENTICATE, when="before authentication")
        self.routes_expired = routes.only(
            TO_AUTHENTICATE_AGAIN, when="after the end of a session, without authenticating again"
        )
        self._loop = loop
        self._arriving_max = security.connections_authenticating_max
        self._arriving: dict[Arriving, None] = {}
        self._shaking: deque[tuple[Arriving, bytes]] = deque()

    def arrived(self, connection: Arriving) -> None:
        """A connection whose client is not known yet. The oldest of them goes if they are too
        many."""
        self._arriving[connection] = None
        if len(self._arriving) > self._arriving_max:
            oldest = next(iter(self._arriving))
            self.left(oldest)
            oldest.cut_off(
                f"more than {self._arriving_max} connections are not authenticated yet "
                "(connections.authenticating.max), and it was the oldest"
            )

    def left(self, connection: Arriving) -> None:
        """Its client is known, or it is closed."""
        self._arriving.pop(connection, None)

    def shake_hands(self, connection: Arriving, first: bytes) -> None:
        """Have it begin its TLS handshake in a turn of the loop in which no other does: each takes
        a millisecond, and others are not to wait for a hundred of them."""
        self._shaking.append((connection, first))
        if len(self._shaking) == 1:
            self._loop.call_soon(self._next_handshake)

    def _next_handshake(self) -> None:
        connection, first = self._shaking.popleft()
        connection.shake_hands(first)
        if self._shaking:
            self._loop.call_soon(self._next_handshake)

    def succeeded(self, mechanism: str, *, again: bool = False) -> None:
        """A client has authenticated."""
        self._outcomes[Outcome(self.name, mechanism, True, again)] += 1

    def refused(self, cause: str, address: str, mechanism: str, *, again: bool = False) -> None:
        """Say in the log, once a minute, why a client is not let in."""
        self._outcomes[Outcome(self.name, mechanism, False, again)] += 1
        logs.warn_once_a_minute("authentication failed", cause, address, listener=self.name)
