"""Transactions as clients write them, and what a reader of each isolation level is handed out."""

from __future__ import annotations

from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING

from client.cluster import LATEST, Cluster, TopicPartition
from pipeline.reading.plan import Range
from pipeline.reading.ranges import records_of
from tests.clients.drivers.driver import CALL_TIMEOUT_S

Row = tuple[int, bytes]
"""Offset and value."""

OPEN_MS = 600_000
"""So long transactions stay open, and with them what tests look at."""


def producer(bootstrap: str, name: str | None = None) -> confluent_kafka.Producer:
    settings: dict[str, str | int] = {"bootstrap.servers": bootstrap, "linger.ms": 0}
    if name is None:
        return confluent_kafka.Producer(settings)
    settings |= {"transactional.id": name, "transaction.timeout.ms": OPEN_MS}
    made = confluent_kafka.Producer(settings)
    made.init_transactions(CALL_TIMEOUT_S)
    made.begin_transaction()
    return made


def _write(to: confluent_kafka.Producer, topic: str, name: str, batches: int) -> None:
    for number in range(batches):
        value = b"%s %d " % (name.encode(), number) + b"x" * 300
        to.produce(topic, value, partition=0)
        # Each is a batch of its own.
        assert to.flush(CALL_TIMEOUT_S) == 0


def write_history(bootstrap: str, topic: str) -> confluent_kafka.Producer:
    """Into partition 0, interleaved: transactions of 12 batches that are committed, aborted, and
    aborted again by the same producer; then one that stays open, whose producer this returns, and a
    committed one above it."""
    plain = producer(bootstrap)
    committed, aborted = producer(bootstrap, f"{topic}-c"), producer(bootstrap, f"{topic}-a")
    for part in range(4):
        _write(plain, topic, f"plain {part}", 2)
        _write(committed, topic, f"committed {part}", 3)
        _write(aborted, topic, f"aborted {part}", 3)
    committed.commit_transaction(CALL_TIMEOUT_S)
    aborted.abort_transaction(CALL_TIMEOUT_S)
    _write(plain, topic, "between", 2)
    aborted.begin_transaction()
    committed.begin_transaction()
    _write(aborted, topic, "again", 12)
    _write(committed, topic, "while the other aborts", 2)
    aborted.abort_transaction(CALL_TIMEOUT_S)
    committed.commit_transaction(CALL_TIMEOUT_S)
    _write(plain, topic, "before the open one", 2)
    opened = producer(bootstrap, f"{topic}-o")
    _write(opened, topic, "open", 6)
    committed.begin_transaction()
    _write(committed, topic, "above the open one", 2)
    committed.commit_transaction(CALL_TIMEOUT_S)
    _write(plain, topic, "last", 2)
    return opened


def written_values(bootstrap: str, place: TopicPartition, *, committed: bool) -> list[Any]:
    """The values that our own reading gives."""
    with Cluster(bootstrap) as cluster:
        end = cluster.offsets([place], LATEST, committed_only=committed)[place]
        rows = records_of(cluster, Range(*place, 0, end), committed_only=committed)
        return [value for batch in rows for value in batch["value"].to_pylist()]


def consume(bootstrap: str, topic: str, isolation: str, partition: int = 0) -> list[Row]:
    """What librdkafka hands out, up to the end that it is told."""
    found = consumed(bootstrap, topic, isolation, partition)
    return [(message.offset() or 0, message.value() or b"") for message in found]


def consumed(
    bootstrap: str, topic: str, isolation: str, partition: int = 0
) -> list[confluent_kafka.Message]:
    """The same with all that there is of each."""
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False,
        "enable.partition.eof": True, "isolation.level": isolation, "fetch.wait.max.ms": 10,
    })  # fmt: skip
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found: list[confluent_kafka.Message] = []
    while True:
        message = consumer.poll(CALL_TIMEOUT_S)
        assert message is not None, f"{isolation}: nothing after {len(found)} messages"
        error = message.error()
        if error is None:
            found.append(message)
        elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            break
    consumer.close()
    return found
