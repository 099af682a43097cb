"""Routing to leaders: the connections to a cluster's brokers, and its metadata as last heard.

What is known is dropped at the first sign that it is no longer true (NOT_LEADER, an unknown topic,
a lost connection), and asked for again.
"""

from __future__ import annotations

import time
from threading import RLock
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from client.connection import Connection
from client.errors import (
    ConnectionLost,
    Failure,
    NoSuchTopic,
    NoVersion,
    Refused,
    Unreachable,
    WrongUse,
)
from protocol.client import said
from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.partitions import TopicPartition as TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from client.security import ClientSecurity

Result = TypeVar("Result")
Address = tuple[str, int]

DEFAULT_PORT = 9092
RETRY_S = 0.1
"""Between two attempts at what may soon be possible."""
UNKNOWN_TOPIC_S = 5.0
"""A topic that was there and is not is looked for so long: brokers hear of a change one by one."""
NOT_YET = frozenset({
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.LISTENER_NOT_FOUND,
})  # fmt: skip
"""Said in metadata of what is there, or about to be."""

# The first in which a request that names a topic need not make it (Kafka 0.11).
MAKES_NO_TOPICS = 4
# Null for all topics; before it that was an empty list.
NULL_IS_ALL = 1
# Internal topics are marked; before that they are known by their names.
TELLS_INTERNAL = 1
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class Topic(NamedTuple):
    """`leaders` has the node id of the leader of each partition, -1 for none. `topic_id` is 16 zero
    bytes where brokers have no ids (before Kafka 2.8)."""

    topic_id: bytes
    leaders: dict[int, int]
    internal: bool


class Again(Exception):
    """An attempt that failed in a way that another one may not; `failure` if none is left.

    With `patience_s` attempts end so many seconds after the first of this kind. Who is `held_back`
    was asked to wait by a broker that is well: there is no end to that.
    """

    def __init__(
        self, failure: Failure, *, patience_s: float | None = None, held_back: bool = False
    ) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.patience_s = patience_s
        self.held_back = held_back


class Router:
    """Connections are made when first needed, and kept. May be used by several threads."""

    def __init__(
        self,
        servers: str,
        *,
        timeout_s: float,
        client_id: bytes,
        reached: bool = False,
        reconnects: bool = True,
        reached_at: Mapping[int, str] | None = None,
        security: ClientSecurity | None = None,
    ) -> None:
        """`servers` is a list as in `addresses`; `timeout_s` bounds each request, in seconds.

        `reached`: brokers that do not answer are waited for, because they have answered. With
        `reconnects` False that never happens: a connection that is lost ends the attempt.
        `reached_at` has where brokers are reached by their ids, whatever addresses they tell
        clients.
        """
        self.servers = servers
        self.timeout_s = timeout_s
        self.reached = reached
        self._client_id = client_id
        self._reconnects = reconnects
        self._security = security
        self.cluster_id: str | None = None
        self.controller = -1
        self._bootstrap = addresses(servers)
        self._reached_at = {
            node_id: addresses(server)[0] for node_id, server in (reached_at or {}).items()
        }
        self._brokers: dict[int, Address] = dict(self._reached_at)
        self._topics: dict[str, Topic] = {}
        self._connections: dict[tuple[Address, str], Connection] = {}
        self._versions: dict[Address, Mapping[int, tuple[int, int]] | None] = {}
        self._lock = RLock()

    def patiently(self, attempt: Callable[[], Result]) -> Result:
        """The result of an attempt, which is made again, with fresh metadata, for the timeout after
        the first that failed: where a broker hangs, that one has taken as long by itself.

        Raises Unreachable, or the failure that the last attempt would have had.
        """
        began: float | None = None
        since: float | None = None
        while True:
            try:
                return attempt()
            except ConnectionLost as error:
                again = Again(Unreachable(str(error)))
                if not (self.reached and self._reconnects):
                    raise again.failure from None
            except NoVersion as error:
                raise Unreachable(str(error)) from None
            except Again as error:
                again = error
            now = time.monotonic()
            if began is None or again.held_back:
                began = now
            if again.patience_s is None:
                since, until = None, began + self.timeout_s
            else:
                # Failures of another kind before it do not count: a broker that comes back may
                # know of no topic at first.
                since = now if since is None else since
                until = since + min(again.patience_s, self.timeout_s)
            self.forget()
            if now + RETRY_S > until:
                raise again.failure
            time.sleep(RETRY_S)

    def forget(self) -> None:
        """Ask for metadata again before it is next used."""
        with self._lock:
            self._topics.clear()

    def any(self) -> Connection:
        """A connection to some broker of the cluster. Raises ConnectionLost."""
        with self._lock:
            known = dict.fromkeys((*self._brokers.values(), *self._bootstrap))
            for address in known:
                connection = self._connections.get((address, ""))
                if connection is not None and connection.usable:
                    return connection
            failures = []
            for address in known:
                try:
                    return self._connection(address)
                except ConnectionLost as error:
                    failures.append(str(error))
            raise ConnectionLost("; ".join(failures[: len(self._bootstrap)]))

    def node(self, node_id: int) -> Connection:
        """A connection to the broker of this id. Raises ConnectionLost, Again."""
        with self._lock:
            if node_id not in self._brokers:
                self.learn(())
            return self.at(self._brokers.get(node_id), f"node {node_id}")

    def at(self, address: Address | None, what: str, purpose: str = "") -> Connection:
        """A connection to an address that a broker named. One for another purpose is another one.

        Raises ConnectionLost, Again.
        """
        if address is None:
            raise Again(Unreachable(f"{what} is not among the brokers of {self.servers}"))
        with self._lock:
            try:
                return self._connection(address, purpose)
            except ConnectionLost as error:
                if address in self._bootstrap:
                    raise
                raise ConnectionLost(f"{error}; {self.servers} named that address") from None

    def leader(self, place: TopicPartition, purpose: str = "") -> tuple[Connection, bytes]:
        """A connection to the partition's leader, and the topic's id.

        Raises ConnectionLost, Again.
        """
        with self._lock:
            topic = self._topics.get(place.topic)
            if topic is None or place.partition not in topic.leaders:
                topic = self.learn((place.topic,)).get(place.topic)
            if topic is None or place.partition not in topic.leaders:
                missing = NoSuchTopic(f"there is no partition {place} on {self.servers}")
                raise Again(missing, patience_s=UNKNOWN_TOPIC_S)
            address = self._brokers.get(topic.leaders[place.partition])
            if address is None:
                raise Again(Unreachable(f"partition {place} has no leader"))
            return self.at(address, str(place), purpose), topic.topic_id

    def address_of(self, node_id: int, host: str, port: int) -> Address:
        """Where a broker is reached that is at this host and port for other clients."""
        return self._reached_at.get(node_id, (host, port))

    def brokers(self, but: Collection[int] = ()) -> list[Connection]:
        """A connection to each broker that the cluster has now, `but` those of these ids. Raises
        ConnectionLost, Again."""
        with self._lock:
            self.learn(())
            return [self.node(node_id) for node_id in self._brokers if node_id not in but]

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """The topics of these names that exist. Only those that are not known yet are asked for.

        Raises ConnectionLost, Again.
        """
        with self._lock:
            wanted = list(dict.fromkeys(names))
            missing = [name for name in wanted if name not in self._topics]
            if missing:
                self.learn(missing)
            return {name: self._topics[name] for name in wanted if name in self._topics}

    def learn(self, names: Collection[str] | None) -> dict[str, Topic]:
        """The topics of these names that exist; None means all. Creates none of them.

        Raises ConnectionLost, Again.
        """
        connection = self.any()
        version = connection.version(MetadataRequest)
        if version < MAKES_NO_TOPICS:
            names = None
        asked = None if names is None else [MetadataRequest.Topic(name=name) for name in names]
        if asked is None and version < NULL_IS_ALL:
            asked = []
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        answer = connection.call(request, MetadataResponse)
        if answer.error_code:
            raise Again(Unreachable(f"{connection.address}: Metadata: {said(answer.error_code)}"))
        found = {}
        for topic in answer.topics:
            if topic.error_code in NOT_YET or (topic.name and topic.error_code == 0):
                leaders = {entry.partition_index: entry.leader_id for entry in topic.partitions}
                internal = topic.is_internal or (
                    version < TELLS_INTERNAL and topic.name in INTERNAL_TOPICS
                )
                found[topic.name or ""] = Topic(topic.topic_id, leaders, internal)
            elif topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and names is not None:
                raise Refused(f"topic '{topic.name}': {said(topic.error_code)}")
        with self._lock:
            self.reached = True
            self.cluster_id, self.controller = answer.cluster_id, answer.controller_id
            self._brokers = {
                broker.node_id: self.address_of(broker.node_id, broker.host, broker.port)
                for broker in answer.brokers
            }
            self._topics.update(found)
        return found

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            for connection in self._connections.values():
                connection.close()
            self._connections.clear()
            self._topics.clear()

    def _connection(self, address: Address, purpose: str = "") -> Connection:
        connection = self._connections.get((address, purpose))
        if connection is not None and connection.usable:
            return connection
        if connection is not None:
            connection.close()
        known = self._versions.get(address)
        made = Connection(
            *address,
            timeout_s=self.timeout_s,
            client_id=self._client_id,
            versions=known,
            may_be_old=address not in self._versions,
            security=self._security,
        )
        self._versions[address] = None if made.tells_versions else made.versions
        self._connections[address, purpose] = made
        return made


def addresses(servers: str) -> list[Address]:
    """The brokers that a list `host:port,[::1]:port,host` names; a port that is left out is 9092.

    Raises WrongUse.
    """
    found = []
    for word in servers.split(","):
        text = word.strip().removeprefix("PLAINTEXT://")
        host, colon, port = text.rpartition(":")
        if not colon or text.endswith("]"):
            host, port = text, str(DEFAULT_PORT)
        bracketed = host.startswith("[") and host.endswith("]")
        host = host[1:-1] if bracketed else host
        number = int(port) if port.isascii() and port.isdecimal() and len(port) <= 5 else 0
        plain = bracketed or not set(host) & set(":/[]")
        if not host or not plain or not 0 < number < 65536:
            raise WrongUse(
                f"'{word.strip()}' is no address of a broker: wanted host:port, with an IPv6 "
                "address as in [::1]:9092 (TLS and authentication are set by security.protocol)"
            )
        found.append((host, number))
    return found
