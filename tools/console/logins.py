"""Who uses the console, and the connections to the broker that are theirs.

A user logs in with what a Kafka client has, and all that is asked of the broker for that user goes
over connections with this login: the broker's rules of access hold here because it is the broker
that applies them. Passwords are in the memory of this process alone, as long as the login lasts.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from client.cluster import Cluster as Client
from client.security import ClientSecurity
from tools.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

CLIENT_ID = b"triglot-console"
TIMEOUT_S = 10.0
LOGINS_MAX = 1_000
"""Logins at a time; the one that was not used for longest ends for one more."""
LOGIN_LASTS_S = 8 * 3600.0
IDLE_MAX = 16
"""Connections that are kept for the next page."""
IDLE_S = 60.0
"""A connection is not used again after that; the broker may have closed it."""


class Door(NamedTuple):
    """Where the brokers are, `HOST:PORT` by their ids, the protocol that they speak there, and the
    mechanisms of SASL that users can log in by; none where nobody has to. `trusted` are the
    certificates of their TLS, as PEM."""

    brokers: Mapping[int, str]
    protocol: str
    mechanisms: tuple[str, ...]
    trusted: str

    def security(self, user: str, password: str, mechanism: str) -> ClientSecurity:
        """That of a user."""
        return ClientSecurity(
            protocol=self.protocol,
            mechanism=mechanism,
            user=user,
            password=password,
            ssl_truststore_type="PEM",
            ssl_truststore_certificates=self.trusted,
            # It is this broker's own certificate, whatever names it has.
            check_host=False,
        )


class Login(NamedTuple):
    """A user; `since_s` is on the clock of `Logins`."""

    user: str
    security: ClientSecurity | None
    since_s: float


ANYBODY = Login("", None, 0.0)
"""Where nobody logs in."""


class Logins:
    """The users who are logged in, by a secret that their browser keeps. For any thread."""

    def __init__(self, door: Door, clock_s: Callable[[], float]) -> None:
        self.door = door
        self._clock_s = clock_s
        self._logins: OrderedDict[str, Login] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def are_needed(self) -> bool:
        """Whether users have to log in."""
        return bool(self.door.mechanisms)

    def begin(self, user: str, security: ClientSecurity) -> str:
        """The secret of a new login."""
        secret = secrets.token_urlsafe(32)
        with self._lock:
            self._logins[secret] = Login(user, security, self._clock_s())
            if len(self._logins) > LOGINS_MAX:
                self._logins.popitem(last=False)
        return secret

    def of(self, secret: str) -> Login | None:
        """The login with this secret, unless it is over."""
        if not self.are_needed:
            return ANYBODY
        with self._lock:
            login = self._logins.get(secret)
            if login is None:
                return None
            if self._clock_s() - login.since_s > LOGIN_LASTS_S:
                del self._logins[secret]
                return None
            self._logins.move_to_end(secret)
            return login

    def end(self, secret: str) -> None:
        with self._lock:
            self._logins.pop(secret, None)


class Clusters:
    """Connections to the broker: each in one thread's hands at a time, some kept for the next. Of
    several processes any may die and come back: it is waited for, and one that does not answer is
    asked last."""

    def __init__(
        self,
        door: Door,
        clock_s: Callable[[], float],
        away: Callable[[], Collection[int]] = tuple,
    ) -> None:
        """`away` tells the ids of those that do not answer."""
        self._door = door
        self._away = away
        self._clock_s = clock_s
        self._idle: list[tuple[float, ClientSecurity | None, Cluster]] = []
        self._lock = threading.Lock()

    @contextmanager
    def cluster(self, security: ClientSecurity | None) -> Iterator[Cluster]:
        """One with this security. After a failure it is closed, and otherwise kept."""
        cluster = self._taken(security) or self._new(security)
        try:
            yield cluster
        except BaseException:
            cluster.close()
            raise
        self._keep(security, cluster)

    def client(self, security: ClientSecurity | None) -> Client:
        """A new one that writes; the caller closes it."""
        brokers = self._brokers()
        return Client(
            ",".join(brokers.values()),
            timeout_s=TIMEOUT_S,
            patient=len(brokers) > 1,
            client_id=CLIENT_ID,
            reached_at=brokers,
            security=security,
        )

    def _new(self, security: ClientSecurity | None) -> Cluster:
        brokers = self._brokers()
        host, _, port = next(iter(brokers.values())).rpartition(":")
        return Cluster(
            host.strip("[]"),
            int(port),
            timeout_s=TIMEOUT_S,
            client_id=CLIENT_ID,
            reached_at=brokers,
            patient=len(brokers) > 1,
            security=security,
        )

    def _brokers(self) -> dict[int, str]:
        """Those that answer first."""
        away = self._away()
        return dict(sorted(self._door.brokers.items(), key=lambda one: one[0] in away))

    def _taken(self, security: ClientSecurity | None) -> Cluster | None:
        found = None
        with self._lock:
            # One to a process that does not answer would be waited for.
            since = math.inf if self._away() else self._clock_s() - IDLE_S
            over = [one for one in self._idle if one[0] < since]
            self._idle = [one for one in self._idle if one[0] >= since]
            for number, (_, theirs, cluster) in enumerate(self._idle):
                if theirs is security:
                    found = cluster
                    del self._idle[number]
                    break
        for _, _, cluster in over:
            cluster.close()
        if found is not None:
            found.forget()  # topics may have gone, come and grown
        return found

    def _keep(self, security: ClientSecurity | None, cluster: Cluster) -> None:
        with self._lock:
            self._idle.append((self._clock_s(), security, cluster))
            over = self._idle[:-IDLE_MAX]
            self._idle = self._idle[-IDLE_MAX:]
        for _, _, one in over:
            one.close()
