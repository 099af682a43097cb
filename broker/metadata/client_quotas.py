"""Quotas that act: which one applies to a client, and how long who is above it has to wait.

A client is a user and a client id. The quota that is found first applies, as in Kafka:

    user and client id; user, any client id; user; any user, client id; any user and client id;
    any user; client id; any client id

What a client does is counted for those whom the quota is for: a quota of a user counts all of the
user's client ids and connections together, one of a client id all users and connections.

The waiting is done by others (`broker.network.connection`). As long as no quota is set, `active` is
False and nobody asks for more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.metadata.rates import Rate, TokenBucket
    from config import BrokerSettings
    from storage.metadata.image import QuotaEntity

    Client = tuple[str, str]
    """User and client id."""

USER, CLIENT_ID, IP = "user", "client-id", "ip"
"""What entities are made of."""

PRODUCED, FETCHED = "producer_byte_rate", "consumer_byte_rate"
REQUESTS, MUTATIONS = "request_percentage", "controller_mutation_rate"
CONNECTIONS = "connection_creation_rate"

SENSORS_MAX = 10_000
"""Clients of each key whose rates are kept. Further ones that the same quota is for share a rate,
so that nobody gets more by using more names."""

IDLE_MAX_MS = 3_600_000
"""A rate that nothing was added to for so long is forgotten. Kafka's figure."""

EXPIRE_EVERY_S = 600.0

UNLIMITED_BYTES = 2**31 - 1


class Throttled:
    """How often somebody was told to wait, and for how long in all."""

    __slots__ = ("count", "total_ms")

    def __init__(self) -> None:
        self.count = self.total_ms = 0

    def add(self, throttle_ms: int) -> int:
        """Count a wait, if it is one."""
        if throttle_ms:
            self.count += 1
            self.total_ms += throttle_ms
        return throttle_ms


Counted = TypeVar("Counted", "Rate", "TokenBucket")


class _Sensors(Generic[Counted]):
    """The rates of one key, by whom they are of."""

    __slots__ = ("_found", "_new")

    def __init__(self, new: Callable[[], Counted]) -> None:
        self._new: Callable[[], Counted] = new
        self._found: dict[object, Counted] = {}

    def __len__(self) -> int:
        return len(self._found)

    def get(self, whose: object, quota_of: QuotaEntity) -> Counted:
        """The rate of this one; where there are too many, that of all others with this quota."""
        found = self._found.get(whose)
        if found is None:
            if len(self._found) >= SENSORS_MAX:
                whose = quota_of, "the others"
                found = self._found.get(whose)
            if found is None:
                found = self._found[whose] = self._new()
        return found

    def expire(self, now_ms: float) -> None:
        idle = [key for key, one in self._found.items() if now_ms - one.used_ms >= IDLE_MAX_MS]
        for key in idle:
            del self._found[key]


class Limit:
    """A quota that applies to a client: the number, the entity that it was set for, and for whom
    the client's doings are counted."""

    __slots__ = ("quota", "quota_of", "whose")

    def __init__(self, quota: float, quota_of: QuotaEntity, whose: object) -> None:
        self.quota = quota
        self.quota_of = quota_of
        self.whose = whose


class QuotaTable:
    """The quotas that are set. Kafka's order of precedence."""

    __slots__ = ("_by_key",)

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        self._by_key: dict[str, dict[QuotaEntity, float]] = {}
        for entity, values in quotas.items():
            for key, value in values.items():
                self._by_key.setdefault(key, {})[_normal(entity)] = value

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def has(self, key: str) -> bool:
        """Whether anybody has a quota of this key."""
        return key in self._by_key

    def find(self, key: str, client: Client) -> Limit | None:
        """The quota of this key that applies to a client."""
        by_entity = self._by_key.get(key)
        if by_entity is None:
            return None
        user, client_id = client
        for user_name in (user, None):
            for id_name in (client_id, None):
                entity: QuotaEntity = ((CLIENT_ID, id_name), (USER, user_name))
                if entity in by_entity:
                    return Limit(by_entity[entity], entity, client)
            entity = ((USER, user_name),)
            if entity in by_entity:
                return Limit(by_entity[entity], entity, (user, None))
        for id_name in (client_id, None):
            entity = ((CLIENT_ID, id_name),)
            if entity in by_entity:
                return Limit(by_entity[entity], entity, (None, client_id))
        return None

    def find_for_address(self, address: str) -> Limit | None:
        """The quota of connections from this address."""
        by_entity = self._by_key.get(CONNECTIONS, {})
        for name in (address, None):
            entity: QuotaEntity = ((IP, name),)
            if entity in by_entity:
                return Limit(by_entity[entity], entity, address)
        return None


class ClientQuotas:
    """Belongs to the loop. `active` says whether there is any quota; only then the methods need to
    be called, which give the time (ms) that the client has to wait."""

    def __init__(self, settings: BrokerSettings, monotonic_s: Callable[[], float]) -> None:
        self._settings = settings
        self._window_ms = settings.quota_window_size_seconds * 1000
        self._monotonic_s = monotonic_s
        self._rates: dict[str, _Sensors[Rate]] = {}
        self._buckets: _Sensors[TokenBucket]
        self._table = QuotaTable({})
        self.active = False
        self.throttled: dict[str, Throttled] = {}
        """Who had to wait, by the key of the quota."""

    def configure(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """These are the quotas from now on. What has been counted stays."""
        self._table = QuotaTable(quotas)
        self.active = bool(self._table)
        if self.active and not self._rates:
            self._begin()

    def _begin(self) -> None:
        from broker.metadata.rates import Rate, TokenBucket, Windows  # most brokers have no quotas

        settings = self._settings
        windows = Windows(settings.quota_window_num, self._window_ms)
        of_changes = Windows(
            settings.controller_quota_window_num,
            settings.controller_quota_window_size_seconds * 1000,
        )
        for key in (PRODUCED, FETCHED, REQUESTS, CONNECTIONS):
            self._rates[key] = _Sensors(lambda: Rate(windows))
            self.throttled[key] = Throttled()
        self.throttled[MUTATIONS] = Throttled()
        self._buckets = _Sensors(lambda: TokenBucket(of_changes))
        self._full_s = windows.full_s or self._window_ms / 1000

    def produced(self, client: Client, size: int) -> int:
        """A Produce request of so many bytes has come."""
        return self._told(PRODUCED, self._record(PRODUCED, client, size))

    def fetched(self, client: Client, size: int) -> int:
        """Records of so many bytes are to be sent. If that has to wait, nothing is counted: they
        are not sent, and asked for once more. A batch that is larger than all windows may hold
        passes when there is nothing else in them, where Kafka never sends it."""
        limit = self._table.find(FETCHED, client)
        if limit is None:
            return 0
        return self._told(FETCHED, self._count_unless_throttled(FETCHED, limit, size))

    def handled(self, client: Client, seconds: float) -> int:
        """The loop has worked so long for a request. No wait is longer than a window."""
        throttle_ms = self._record(REQUESTS, client, seconds * 100)
        return self._told(REQUESTS, min(throttle_ms, self._window_ms))

    def fetch_max_bytes(self, client: Client) -> int:
        """The most that one fetch may ask for and ever get."""
        limit = self._table.find(FETCHED, client)
        if limit is None:
            return UNLIMITED_BYTES
        return min(int(limit.quota * self._full_s), UNLIMITED_BYTES)

    def connected(self, address: str) -> int:
        """There is a new connection. One that has to wait is to be closed, and is not counted. No
        wait is longer than a window."""
        limit = self._table.find_for_address(address)
        if limit is None:
            return 0
        throttle_ms = self._count_unless_throttled(CONNECTIONS, limit, 1)
        return self._told(CONNECTIONS, min(throttle_ms, self._window_ms))

    def mutations(self, client: Client, *, strict: bool) -> Mutations:
        """The quota on changes, for one request."""
        limit = self._table.find(MUTATIONS, client)
        if limit is None:
            return Mutations()
        bucket = self._buckets.get(limit.whose, limit.quota_of)
        counted = self.throttled[MUTATIONS]
        return _Limited(bucket, limit.quota, self._monotonic_s, counted, strict=strict)

    def expire(self) -> None:
        """Forget the rates of clients that have been idle for long."""
        if not self._rates:
            return
        now_ms = self._monotonic_s() * 1000
        for sensors in self._rates.values():
            sensors.expire(now_ms)
        self._buckets.expire(now_ms)

    def _told(self, key: str, throttle_ms: int) -> int:
        return self.throttled[key].add(throttle_ms) if throttle_ms else 0

    def _record(self, key: str, client: Client, amount: float) -> int:
        limit = self._table.find(key, client)
        if limit is None:
            return 0
        now_ms = self._monotonic_s() * 1000
        rate = self._rates[key].get(limit.whose, limit.quota_of)
        rate.record(amount, now_ms)
        return rate.throttle_ms(limit.quota, now_ms)

    def _count_unless_throttled(self, key: str, limit: Limit, amount: float) -> int:
        now_ms = self._monotonic_s() * 1000
        rate = self._rates[key].get(limit.whose, limit.quota_of)
        is_first = rate.amount(now_ms) <= 0
        rate.record(amount, now_ms)
        throttle_ms = 0 if is_first else rate.throttle_ms(limit.quota, now_ms)
        if throttle_ms:
            rate.record(-amount, now_ms)
        return throttle_ms


class Mutations:
    """The changes of one request, where no quota applies."""

    throttle_ms = 0
    """How long the client has to wait, when all of them have been recorded."""

    def record(self, partitions: int) -> None:
        """So many partitions are to be created or deleted. Raises KafkaError: the change may not be
        made now (THROTTLING_QUOTA_EXCEEDED)."""


class _Limited(Mutations):
    """The same where one does (KIP-599). Clients that know the error get it for all that comes
    while tokens are owed; the changes of others are made, and they wait afterwards."""

    def __init__(
        self,
        bucket: TokenBucket,
        quota: float,
        monotonic_s: Callable[[], float],
        throttled: Throttled,
        *,
        strict: bool,
    ) -> None:
        self._bucket = bucket
        self._throttled = throttled
        self._quota = quota
        self._monotonic_s = monotonic_s
        self._strict = strict

    def record(self, partitions: int) -> None:
        bucket, quota, now_ms = self._bucket, self._quota, self._monotonic_s() * 1000
        if not self._strict:
            bucket.take(partitions, quota, now_ms)
            self._wait(bucket.throttle_ms(quota, now_ms))
            return
        self._wait(bucket.throttle_ms(quota, now_ms))
        if self.throttle_ms:
            raise KafkaError(
                f"more partitions than {MUTATIONS}={quota:g} are created and deleted; again in "
                f"{self.throttle_ms} ms",
                code=ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            )
        bucket.take(partitions, quota, now_ms)

    def _wait(self, throttle_ms: int) -> None:
        """The request waits so long, whatever was said before: it is counted once."""
        before_ms, self.throttle_ms = self.throttle_ms, throttle_ms
        if throttle_ms:
            self._throttled.count += not before_ms
            self._throttled.total_ms += max(throttle_ms - before_ms, 0)


def _normal(entity: QuotaEntity) -> QuotaEntity:
    """An address as sockets write it."""
    ((kind, name), *_) = entity
    if kind != IP or name is None:
        return entity
    from ipaddress import ip_address  # every import delays the start

    try:
        return ((IP, str(ip_address(name))),)
    except ValueError:  # the name of a host, as Kafka wrote it
        return entity
