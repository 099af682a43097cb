"""The listeners that ask for TLS or SASL, by name: made of the settings, and made anew with them.

What they need is imported with the first of them: most brokers serve PLAINTEXT on loopback alone.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from broker import logs
from config import ConfigError
from config.errors import Problem

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from broker.current_settings import CurrentSettings
    from broker.network.secure_listener import Outcome, SecureListener
    from broker.security.delegation_tokens import DelegationTokens
    from broker.security.sasl.mechanisms import ScramCredentials
    from broker.workers import Worker
    from config import BrokerSettings, Listener
    from protocol.connection import Routes
    from storage.filesystem import Filesystem

PLAINTEXT = "PLAINTEXT"
LOOK_EVERY_S = 2.0
"""How often files of certificates are looked at."""


class SecureListeners:
    """Belongs to the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: CurrentSettings,
        files: Filesystem,
        worker: Worker,
        *,
        logins: Worker,
        routes_of: Callable[[str], Routes],
        credentials: ScramCredentials,
        delegation_tokens: Callable[[], DelegationTokens | None],
    ) -> None:
        """`worker` reads files that have changed, `logins` makes steps of slow mechanisms.
        `routes_of` gives what is served on a listener, `credentials` those of SCRAM as they are
        now, `delegation_tokens` where they are used what knows them."""
        self._loop = loop
        self._settings = settings
        self._files = files
        self._worker = worker
        self._logins = logins
        self._routes_of = routes_of
        self._credentials = credentials
        self._delegation_tokens = delegation_tokens
        self._by_name: dict[str, SecureListener] = {}
        self.outcomes: Counter[Outcome] = Counter()
        """Authentications since the start."""
        settings.subscribe(self._configure)

    def get(self, name: str) -> SecureListener | None:
        """That of a listener; None if it is PLAINTEXT."""
        if self._settings.current.security_protocol(name) == PLAINTEXT:
            return None
        return self._by_name[name]

    def open(self) -> None:
        """Make those of the settings. Raises ConfigError."""
        self._by_name = self._made_of(self._settings.current)

    def check(self, settings: BrokerSettings) -> None:
        """Whether the listeners of other settings could be made. Raises ConfigError."""
        current = self._settings.current
        if _security_of(current) == _security_of(settings):
            return
        known = {one.name for one in current.served_listeners}
        for listener in settings.served_listeners:
            name = listener.name
            before, after = current.security_protocol(name), settings.security_protocol(name)
            if name in known and before != after:
                key = "listener.security.protocol.map"
                reason = f"{name} speaks {before} and can't change that while it is open"
                raise ConfigError([Problem("", key, None, reason)])
        self._made_of(settings)

    def look(self) -> None:
        """Have files that have changed read again. A periodic task."""
        for listener in self._by_name.values():
            if listener.tls is not None:
                listener.tls.look(self._worker)

    def _made_of(self, settings: BrokerSettings) -> dict[str, SecureListener]:
        names = [
            one.name
            for one in settings.served_listeners
            if settings.security_protocol(one.name) != PLAINTEXT
        ]
        if not names:
            return {}
        from broker.network.secure_listener import SecureListener
        from config.keystores import KeystoreError

        found = {}
        for name in names:
            try:
                found[name] = SecureListener(
                    settings,
                    name,
                    loop=self._loop,
                    files=self._files,
                    logins=self._logins,
                    routes=self._routes_of(name),
                    credentials=self._credentials,
                    delegation_tokens=self._delegation_tokens(),
                    outcomes=self.outcomes,
                )
            except KeystoreError as error:
                raise ConfigError([Problem("", f"listener {name}", None, str(error))]) from None
        return found

    def _configure(self, before: BrokerSettings, settings: BrokerSettings) -> None:
        if _security_of(before) == _security_of(settings):
            return
        try:
            self._by_name = self._made_of(settings)
        except ConfigError as error:
            logs.error("changed TLS or SASL settings can't be used", reason=str(error))
        known = set(before.served_listeners)
        warn_of_open_listeners(
            settings, [one for one in settings.served_listeners if one not in known]
        )


def _security_of(settings: BrokerSettings) -> Any:
    """What listeners are made of."""
    return (
        settings.served_listeners,
        settings.listener_security_protocol_map,
        settings.security_given,
        settings.as_version,
        settings.as_version_client_ids,
    )


def warn_of_open_listeners(settings: BrokerSettings, listeners: Iterable[Listener]) -> None:
    """Say of each listener that other machines reach and that lets in whoever comes."""
    for listener in listeners:
        if not is_loopback(listener.host) and not _authenticates(settings, listener.name):
            logs.warning(
                "whoever reaches this listener may do everything: other machines can, and it "
                "asks for no authentication",
                listener=str(listener),
                security_protocol=settings.security_protocol(listener.name),
            )


def _authenticates(settings: BrokerSettings, name: str) -> bool:
    protocol = settings.security_protocol(name) or ""
    if protocol != "SSL":
        return protocol.startswith("SASL")
    from config.listener_security import ListenerSecurity

    return ListenerSecurity(settings, name).ssl_client_auth == "required"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address. A name counts as reached by others."""
    if host in ("127.0.0.1", "::1", "localhost"):
        return True
    from ipaddress import ip_address  # no start on loopback needs it

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
