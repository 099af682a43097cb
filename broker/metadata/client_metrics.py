"""Metrics that clients push of themselves (KIP-714): subscriptions, and the last push of each.

Subscriptions are records of the metadata log, of resource type 16. A client asks which of them are
for it, gets an id for the answer, and pushes at the interval that the answer says. Counters are
asked for as totals, so that the last push of a client is all there is to know: it is kept as it
came and opened when somebody looks (broker.metadata.client_metrics_page).

Codes and the order of checks are those of Kafka 3.9 and 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.regular_expressions import InvalidExpression, matching
from config import ConfigError
from config.client_metrics import (
    ALL_METRICS,
    CLIENT_FACTS,
    DEFAULT_INTERVAL_MS,
    MAX_INTERVAL_MS,
    MIN_INTERVAL_MS,
    ClientMetricsConfig,
    Condition,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, decompress
from protocol.records.crc import crc32c
from protocol.records.errors import InvalidRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


ACCEPTED_CODECS = (ZSTD, LZ4, GZIP, SNAPPY)
"""In the order in which clients are to prefer them."""
CLIENTS_MAX = 16_384
"""Clients remembered, as in Kafka; whoever was silent for longest goes first."""
PAYLOAD_BYTES_MAX = 16_777_216
"""Of all payloads that are kept, compressed as they came. Those pushed longest ago go first."""
EXPANDED_BYTES_MAX = 8_388_608
"""Largest expanded size of a payload: it is opened on the loop, to see that it can be."""
SILENT_INTERVALS, SILENT_MS = 3, 60_000
"""Time after its last push for which a client is shown: as many of its intervals, but no less than
this, for whoever looks once in a minute."""

NOBODY = bytes(16)


class ClientFacts(NamedTuple):
    """The client that pushes, under the names that `match` knows."""

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


assert ClientFacts._fields == CLIENT_FACTS


class Subscription(NamedTuple):
    """The metrics that one client is asked for. `metrics` are the beginnings of names."""

    subscription_id: int
    push_interval_ms: int
    metrics: tuple[str, ...]


class Push(NamedTuple):
    """The last push of a client, compressed as it came."""

    facts: ClientFacts
    codec: int
    payload: bytes
    at_ms: int


class Client:
    """An instance of a client. Times are ms on a clock that does not go back."""

    __slots__ = (
        "facts",
        "fault",
        "last_ms",
        "may_push",
        "push",
        "subscription",
        "terminating",
        "version",
    )

    def __init__(self, facts: ClientFacts, subscription: Subscription, version: int) -> None:
        self.facts = facts
        self.subscription = subscription
        self.version = version
        """Of all subscriptions together: another one means to look again."""
        self.last_ms: int | None = None
        self.may_push = True
        """Whether it may push before its interval is over: it has just been told its id."""
        self.fault: ErrorCode | None = None
        self.terminating = False
        self.push: Push | None = None

    def is_early(self, now_ms: int) -> bool:
        """Whether its interval is not over yet."""
        return (
            self.last_ms is not None and now_ms - self.last_ms < self.subscription.push_interval_ms
        )


class ClientMetrics:
    """Belongs to the loop."""

    def __init__(
        self,
        stored: Callable[[], Mapping[tuple[int, str], Mapping[str, str]]],
        resource_type: int,
        new_uuid: Callable[[], bytes],
        *,
        max_bytes: int,
    ) -> None:
        """`stored` gives all settings of the metadata log; subscriptions are those of
        `resource_type`. `max_bytes` is what one push may have, compressed."""
        self._stored = stored
        self._resource_type = resource_type
        self._new_uuid = new_uuid
        self.max_bytes = max_bytes
        self._configs: list[ClientMetricsConfig] | None = None
        self._version = 0
        self._clients: dict[bytes, Client] = {}  # whoever was silent for longest is first
        self._kept_bytes = 0
        self.pushes = 0
        self.refusals = 0

    def subscriptions_changed(self) -> None:
        """Look at the stored settings again."""
        self._configs = None
        self._version += 1

    def subscribe(
        self, instance_id: bytes, facts_of: Callable[[bytes], ClientFacts], now_ms: int
    ) -> tuple[bytes, Subscription]:
        """Subscribe a client to what it is asked for; one without an id is given one.

        Raises KafkaError: THROTTLING_QUOTA_EXCEEDED before its interval is over, unless it was told
        that its subscription is not known, or its codec.
        """
        if instance_id == NOBODY:
            instance_id = self._new_uuid()
        client = self._client(instance_id, facts_of)
        if client.is_early(now_ms) and client.fault not in (
            ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ):
            raise self._refused(client, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        client.last_ms = now_ms
        client.may_push = True
        client.fault = None
        return instance_id, client.subscription

    def take(
        self,
        instance_id: bytes,
        facts_of: Callable[[bytes], ClientFacts],
        subscription_id: int,
        codec: int,
        payload: bytes,
        now_ms: int,
        *,
        terminating: bool,
    ) -> None:
        """Keep what a client pushes, in place of what it pushed before.

        Raises KafkaError: INVALID_REQUEST without an id or after the last push,
        THROTTLING_QUOTA_EXCEEDED, UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE,
        TELEMETRY_TOO_LARGE, INVALID_RECORD for what cannot be opened.
        """
        if instance_id == NOBODY:
            self.refusals += 1
            raise KafkaError("a push without an id of the client", code=ErrorCode.INVALID_REQUEST)
        client = self._client(instance_id, facts_of)
        if client.terminating and not terminating:
            raise self._refused(client, ErrorCode.INVALID_REQUEST)
        if client.is_early(now_ms) and not (client.may_push or terminating):
            raise self._refused(client, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        client.last_ms = now_ms
        client.may_push = False
        client.terminating = terminating
        if subscription_id != client.subscription.subscription_id:
            raise self._refused(client, ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if codec not in (NONE, *ACCEPTED_CODECS):
            raise self._refused(client, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(payload) > self.max_bytes:
            raise self._refused(client, ErrorCode.TELEMETRY_TOO_LARGE)
        try:
            decompress(codec, payload, limit=EXPANDED_BYTES_MAX)
        except InvalidRecord:
            raise self._refused(client, ErrorCode.INVALID_RECORD) from None
        client.fault = None
        self.pushes += 1
        if payload:
            self._keep(client, Push(client.facts, codec, payload, now_ms))

    def last_pushes(self, now_ms: int) -> list[Push]:
        """The last push of every client that still pushes, or has stopped a moment ago."""
        return [
            client.push
            for client in self._clients.values()
            if client.push is not None
            and now_ms - client.push.at_ms
            <= max(SILENT_MS, SILENT_INTERVALS * client.subscription.push_interval_ms)
        ]

    @property
    def kept_bytes(self) -> int:
        """Of payloads."""
        return self._kept_bytes

    def __len__(self) -> int:
        """Clients that are remembered."""
        return len(self._clients)

    def _client(self, instance_id: bytes, facts_of: Callable[[bytes], ClientFacts]) -> Client:
        """As it is known, or new; with the subscription that is for it now."""
        client = self._clients.pop(instance_id, None)
        if client is None or client.version != self._version:
            facts = facts_of(instance_id)
            known, client = client, Client(facts, self._subscription(facts), self._version)
            if known is not None:
                client.push = known.push
        self._clients[instance_id] = client
        if len(self._clients) > CLIENTS_MAX:
            self._forget(self._clients.pop(next(iter(self._clients))))
        return client

    def _keep(self, client: Client, push: Push) -> None:
        self._forget(client)
        client.push = push
        self._kept_bytes += len(push.payload)
        for other in self._clients.values():
            if self._kept_bytes <= PAYLOAD_BYTES_MAX:
                break
            self._forget(other)

    def _forget(self, client: Client) -> None:
        """Forget its last push."""
        if client.push is not None:
            self._kept_bytes -= len(client.push.payload)
            client.push = None

    def _refused(self, client: Client, code: ErrorCode) -> KafkaError:
        self.refusals += 1
        client.fault = code
        return KafkaError(code=code)

    def _subscription(self, facts: ClientFacts) -> Subscription:
        """All that matches this client, together."""
        if self._configs is None:
            self._configs = [
                config
                for (kind, _), given in sorted(self._stored().items())
                if kind == self._resource_type and (config := _sound(given)) is not None
            ]
        metrics: dict[str, None] = {}
        interval_ms = DEFAULT_INTERVAL_MS
        for config in self._configs:
            if all(_holds(one, facts) for one in config.conditions):
                metrics.update(dict.fromkeys(config.metrics))
                interval_ms = min(interval_ms, config.interval_ms)
        names = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(metrics)
        said = f"{names} {interval_ms} {facts.client_instance_id}".encode()
        # The id is an int32 on the wire.
        return Subscription(crc32c(said) - 2**31, interval_ms, names)


def check_subscription(given: Mapping[str, str]) -> None:
    """Raise KafkaError unless a subscription can have these settings: INVALID_REQUEST for a key
    that there is not and an interval that is too short or too long, INVALID_CONFIG for the rest."""
    try:
        config = ClientMetricsConfig.of(given)
        for one in config.conditions:
            matching(one.expression, ())
    except ConfigError as error:
        known = error.key in ClientMetricsConfig.KEYS
        code = ErrorCode.INVALID_CONFIG if known else ErrorCode.INVALID_REQUEST
        raise KafkaError(str(error), code=code) from None
    except InvalidExpression as error:
        text = f"match: {error.expression} is no regular expression: {error}"
        raise KafkaError(text, code=ErrorCode.INVALID_CONFIG) from None
    if not config.interval_is_allowed:
        raise KafkaError(
            f"interval.ms: {config.interval_ms}, wanted {MIN_INTERVAL_MS} to {MAX_INTERVAL_MS}",
            code=ErrorCode.INVALID_REQUEST,
        )


def _sound(given: Mapping[str, str]) -> ClientMetricsConfig | None:
    """A stored subscription, or None for one that cannot be, which Kafka may have written."""
    try:
        check_subscription(given)
    except KafkaError:
        return None
    return ClientMetricsConfig.of(given)


def _holds(condition: Condition, facts: ClientFacts) -> bool:
    return bool(matching(condition.expression, [getattr(facts, condition.fact)]))
