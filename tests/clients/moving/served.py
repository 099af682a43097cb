"""A broker as its clients see it: metadata, every record, every committed offset.

Values of two brokers on the same data can be compared; only epochs of leaders may have grown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import confluent_kafka
from confluent_kafka import KafkaError, TopicPartition

from tests.support.administrator import Administrator, Facts

if TYPE_CHECKING:
    from tests.support.group_caller import Found, Place
    from tests.support.server_process import ServerProcess

    Records = dict[Place, list["Record"]]

#: Kafka's own, with records in formats of its own.
INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")
PATIENCE_S = 30.0


class Record(NamedTuple):
    """One record as a client of today sees it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: tuple[int, int]
    headers: tuple[tuple[str, bytes], ...]


class Served(NamedTuple):
    """All that was asked for."""

    facts: Facts
    records: Records
    #: The same for a reader that wants committed records alone.
    committed_records: Records
    offsets: dict[str, dict[Place, Found]]


def served(server: ServerProcess, groups: list[str]) -> Served:
    with Administrator(server.host, server.port, timeout_s=PATIENCE_S) as admin:
        facts = admin.facts()
        offsets = {group: admin.committed_when_ready(group) for group in groups}
    places = [
        (name, number)
        for name, topic in sorted(facts.topics.items())
        if name not in INTERNAL
        for number in range(len(topic.partitions))
    ]
    return Served(
        facts,
        read(server, places, isolation="read_uncommitted"),
        read(server, places, isolation="read_committed"),
        offsets,
    )


def read(
    server: ServerProcess, places: list[Place], *, isolation: str
) -> dict[Place, list[Record]]:
    """Every record that a reader of this isolation gets, to the end of each partition."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "reads-all",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "log_level": 0,
        }
    )
    found: Records = {place: [] for place in places}
    left = set(places)
    try:
        consumer.assign(
            [TopicPartition(*place, confluent_kafka.OFFSET_BEGINNING) for place in places]
        )
        while left:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"nothing more of {left}"
            place: Any = (message.topic(), message.partition())
            error = message.error()
            if error is None:
                found[place].append(_record(message))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left.discard(place)
    finally:
        consumer.close()
    return found


def _record(message: Any) -> Record:
    return Record(
        message.offset(),
        message.key(),
        message.value(),
        message.timestamp(),
        tuple(message.headers() or ()),
    )


def assert_carried_over(before: Served, after: Served) -> None:
    """The second has all that the first had, and nothing else."""
    now, then = without_epochs(after.facts), without_epochs(before.facts)
    for part in Facts._fields:
        assert getattr(now, part) == getattr(then, part), part
    for name, topic in before.facts.topics.items():
        epochs = [partition[1] for partition in after.facts.topics[name].partitions]
        assert all(
            epoch >= earlier[1] for epoch, earlier in zip(epochs, topic.partitions, strict=True)
        ), name
    assert after.records == before.records
    assert after.committed_records == before.committed_records
    assert after.offsets == before.offsets


def without_epochs(facts: Facts) -> Facts:
    """Each broker begins epochs of leaders as it likes; 3.9 keeps kraft.version to itself."""
    topics = {
        name: topic._replace(partitions=[(p[0], 0, *p[2:]) for p in topic.partitions])
        for name, topic in facts.topics.items()
    }
    features = {name: level for name, level in facts.features.items() if name != "kraft.version"}
    return facts._replace(topics=topics, features=features)
