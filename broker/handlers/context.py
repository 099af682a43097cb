"""What a handler is given besides its request: the caller, the time, and what the broker holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker import logs
from broker.coordinator.effects import Caller
from config.listeners import UNROUTABLE_HOSTS

if TYPE_CHECKING:
    from broker.partitions.topics import Topic
    from broker.server import Broker
    from protocol.connection import Request
    from protocol.errors import KafkaError


class Context:
    """One per connection; handlers run one at a time, so `now_ms` is set once per burst."""

    __slots__ = (
        "_listener",
        "broker",
        "client_id",
        "local_host",
        "local_port",
        "misreads_old_entries",
        "now_ms",
        "peer_host",
        "peer_port",
        "refused_transactions",
        "routes",
        "software_name",
        "software_version",
    )

    def __init__(self, broker: Broker, listener: str, *, peer: Any, local: Any) -> None:
        self.broker = broker
        self._listener = listener
        self.routes = broker.routes_of(listener)
        """What is served to this client."""
        self.peer_host, self.peer_port = _host_and_port(peer)
        self.local_host, self.local_port = _host_and_port(local)
        self.client_id: str | None = None
        self.refused_transactions = False
        """Whether this client has asked for transactions before."""
        self.software_name = self.software_version = ""
        """Of the client, as it has said in ApiVersions (KIP-511)."""
        self.misreads_old_entries = False
        """Formats 0 and 1 are misread from Fetch v12 on, as far as anybody knows."""
        self.now_ms = 0

    def advertised(self) -> tuple[str, int]:
        """Where this client is told to connect: `advertised.listeners` if it is set, else the
        address that it has dialled, which it can evidently reach."""
        listener = self.broker.settings.advertised_listener(self._listener)
        if listener is None:
            return self.local_host, self.local_port
        host = self.local_host if listener.host in UNROUTABLE_HOSTS else listener.host
        return host, listener.port or self.local_port

    def caller(self, request: Request) -> Caller:
        """Who sends this request, as groups keep it."""
        return Caller(request.client_id or "", f"/{self.peer_host}", request.version)

    def created(self, topic: Topic) -> None:
        """Say in the log that this client created a topic."""
        logs.info(
            "topic created",
            topic=topic.name,
            partitions=len(topic.partitions),
            address=self.peer_host,
            client_id=self.client_id,
        )

    def deleted(self, topic: Topic) -> None:
        """Say in the log that this client deleted a topic."""
        logs.info(
            "topic deleted", topic=topic.name, address=self.peer_host, client_id=self.client_id
        )

    def failed(self, what: str, error: Exception, **facts: Any) -> None:
        """Say in the log that something this client asked for failed on our side."""
        if self.broker.disk.noticed(error):
            return  # which has been said, once
        logs.error("request failed", what=what, reason=str(error), address=self.peer_host, **facts)

    def refused_batch(
        self, topic: str, partition: int, error: KafkaError, *, client_id: str | None
    ) -> None:
        """Say in the log, once a minute, that a batch of this client was not stored."""
        logs.warn_once_a_minute(
            "batch refused",
            str(error),
            self.peer_host,
            code=error.code.name,
            topic=topic,
            partition=partition,
            client_id=client_id,
        )

    def refused_subscription(self, group: str, error: KafkaError, *, client_id: str | None) -> None:
        """Say in the log, once a minute, why a subscription was refused: clients end by it."""
        logs.warn_once_a_minute(
            "subscription refused", str(error), self.peer_host, group=group, client_id=client_id
        )

    def refused_commit(self, group: str, error: KafkaError, *, client_id: str | None) -> None:
        """Say in the log, once a minute, why a commit was refused, if that says more than its
        code does."""
        if str(error) != error.code.meaning and not self.broker.disk.noticed(error):
            logs.warn_once_a_minute(
                "commit refused", str(error), self.peer_host, group=group, client_id=client_id
            )


def _host_and_port(address: Any) -> tuple[str, int]:
    if isinstance(address, tuple) and len(address) >= 2:
        return str(address[0]), int(address[1])
    return "unknown", 0
