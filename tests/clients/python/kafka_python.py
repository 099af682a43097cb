"""kafka-python 1.x and 2.0, which guess the release of the broker."""

from __future__ import annotations

import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tests.clients.python.program import (
    DEADLINE_S,
    Words,
    answer_commands,
    client_settings,
    partitions,
    start,
)
from tests.clients.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

# By name: the type checker would find the release in the tests' own environment, not this one.
kafka: Any = import_module("kafka")


def produce(words: Words, records: list[Record]) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=words["bootstrap"],
        acks="all",
        max_in_flight_requests_per_connection=1,
        compression_type=None if words["codec"] == "none" else words["codec"],
        linger_ms=5,
        **client_settings(words),
    )
    try:
        acks = [
            producer.send(
                words["topic"],
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
            )
            for record in records
        ]
        producer.flush(DEADLINE_S)
        for ack in acks:
            ack.get(DEADLINE_S)
    finally:
        producer.close(timeout=1)


def consume(words: Words) -> Iterator[tuple[int, Record]]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=words["bootstrap"],
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",
        check_crcs=True,
        **client_settings(words),
    )
    try:
        wanted = [kafka.TopicPartition(words["topic"], number) for number in partitions(words)]
        consumer.assign(wanted)
        for partition in wanted:
            consumer.seek(partition, start(words))
        starts, ends = consumer.beginning_offsets(wanted), consumer.end_offsets(wanted)
        assert set(starts.values()) == {0}, starts
        deadline = time.monotonic() + DEADLINE_S
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            positions = {partition: consumer.position(partition) for partition in wanted}
            assert time.monotonic() < deadline, f"read up to {positions} of {ends}"
            for messages in consumer.poll(500, max_records=10_000).values():
                yield from map(_read, messages)
    finally:
        consumer.close()


def _read(message: Any) -> tuple[int, Record]:
    # Format 0 has no timestamp: None here, -1 with every other client.
    timestamp_ms = -1 if message.timestamp is None else message.timestamp
    return message.offset, Record(
        message.partition, timestamp_ms, message.key, message.value, tuple(message.headers)
    )


if __name__ == "__main__":
    answer_commands(produce, consume)
