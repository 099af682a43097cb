"""The words in which a test speaks to any client."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.clients.records import Abilities, Record, Stored

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

#: The longest that a client may take for one call before the test fails.
CALL_TIMEOUT_S = 60.0

#: Old timestamps are used in the tests; a topic must not delete them for that.
KEEP_FOR_EVER = {"retention.ms": "-1"}


class Refused(Exception):
    """The server's answer to the client was an error."""

    def __init__(self, code: int, text: object) -> None:
        super().__init__(f"{code}: {text}")
        #: Kafka's error code.
        self.code = code


class TopicFacts(NamedTuple):
    #: The topic id as text; clients print it differently, and some do not know of it.
    topic_id: str | None
    partitions: list[int]
    leaders: set[int]


class Delivery(NamedTuple):
    """What a client told of one record."""

    #: The error; "" if it was delivered.
    error: str
    #: The longest throttle time that it told of; None if it tells nobody.
    throttle_ms: float | None


class ClusterFacts(NamedTuple):
    cluster_id: str | None
    #: `host:port` of each.
    brokers: list[str]


#: Where to look for an offset: "earliest", "latest", "max-timestamp", or milliseconds.
At = str | int


class Driver(Protocol):
    """One client library. Each call makes its own connections and closes them."""

    #: Name and version, for the documentation.
    name: str
    abilities: Abilities
    #: Whether it changes one key of a configuration, or can only replace the whole.
    changes_single_configs: bool

    def create_topic(
        self, bootstrap: str, topic: str, *, partitions: int, configs: Mapping[str, str]
    ) -> None:
        """Through the client's own admin interface, as everything below. Raises `Refused`."""

    def produce(
        self, bootstrap: str, topic: str, records: list[Record], *, codec: str, idempotent: bool
    ) -> None:
        """Write them in this order, each to its partition, and wait for every ack (acks=all)."""

    def begin_transactions(self, bootstrap: str, transactional_id: str) -> None:
        """Make a transactional producer ready. Raises `Refused`."""

    def consume(
        self, bootstrap: str, topic: str, partitions: Sequence[int] | None = None
    ) -> Stored:
        """Read from the first record to the present end, without a group; None is all of them."""

    def list_topics(self, bootstrap: str) -> set[str]: ...

    def describe_topic(self, bootstrap: str, topic: str) -> TopicFacts: ...

    def describe_configs(self, bootstrap: str, topic: str) -> dict[str, str]:
        """At least the keys that were set for this topic."""

    def alter_config(self, bootstrap: str, topic: str, key: str, value: str | None) -> None:
        """Set a key; None takes the setting away, where single keys can be changed."""

    def create_partitions(self, bootstrap: str, topic: str, count: int) -> None: ...

    def offset_at(self, bootstrap: str, topic: str, at: At) -> int | None:
        """Of partition 0: the offset, or None where no record is as late."""

    def delete_records(self, bootstrap: str, topic: str, before: int) -> None:
        """Of partition 0, those below an offset."""

    def delete_topic(self, bootstrap: str, topic: str) -> None: ...

    def describe_cluster(self, bootstrap: str) -> ClusterFacts: ...


class DeliveringDriver(Driver, Protocol):
    """One that tells what became of a record."""

    def deliver(self, bootstrap: str, topic: str, value: bytes, *, give_up_ms: int) -> Delivery:
        """Send a record as the client does by itself, but for the time after which it gives up."""
