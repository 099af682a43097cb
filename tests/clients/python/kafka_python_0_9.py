"""kafka-python 0.9.5: the message format of Kafka 0.8, and every request without being asked."""

from __future__ import annotations

import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tests.clients.python.program import DEADLINE_S, Words, answer_commands, partitions, start
from tests.clients.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

# By name: the type checker would find the release in the tests' own environment, not this one.
kafka: Any = import_module("kafka")
common: Any = import_module("kafka.common")
protocol: Any = import_module("kafka.protocol")

CODECS = {
    "none": protocol.CODEC_NONE,
    "gzip": protocol.CODEC_GZIP,
    "snappy": protocol.CODEC_SNAPPY,
}

#: Several messages in each compressed set, and several sets.
MESSAGES_IN_A_SET = 40

#: Less than a partition holds, so that answers end in the middle of a message.
FETCH_BYTES = 1 << 16

EARLIEST, LATEST = -2, -1

#: The acknowledgement that is waited for.
ALL = -1


def produce(words: Words, records: list[Record]) -> None:
    """As its own producer does; that one would only log what the broker answers."""
    client = kafka.KafkaClient(words["bootstrap"])
    topic = words["topic"].encode()
    client.ensure_topic_exists(topic)
    for first in range(0, len(records), MESSAGES_IN_A_SET):
        part = records[first : first + MESSAGES_IN_A_SET]
        (partition,) = {record.partition for record in part}
        # The key of a compressed set is that of its last message.
        messages = protocol.create_message_set(
            [(record.value, record.key) for record in part],
            CODECS[words["codec"]],
            part[-1].key,
        )
        request = common.ProduceRequest(topic, partition, messages)
        send(client, request)
    client.close()


def send(client: Any, request: Any) -> None:
    """Until it is taken. Apache Kafka leads a new topic a moment after its metadata says so."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            client.send_produce_request([request], acks=ALL, timeout=10_000)
        except common.NotLeaderForPartitionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def consume(words: Words) -> Iterator[tuple[int, Record]]:
    topic, wanted = words["topic"], partitions(words)
    consumer = kafka.KafkaConsumer(
        # Where to begin is said, so that no offset is looked up in a group.
        *[(topic, partition, start(words)) for partition in wanted],
        bootstrap_servers=[words["bootstrap"]],
        group_id=None,
        auto_commit_enable=False,
        auto_offset_reset="none",
        fetch_message_max_bytes=FETCH_BYTES,
    )
    try:
        name = topic.encode()
        for partition in wanted:
            (earliest,) = consumer.get_partition_offsets(name, partition, EARLIEST, 1)
            assert earliest == 0, f"partition {partition} starts at {earliest}"
        ends = {
            partition: consumer.get_partition_offsets(name, partition, LATEST, 1)[0]
            for partition in wanted
        }
        deadline = time.monotonic() + DEADLINE_S
        while True:
            positions = consumer.offsets("fetch")
            if all(positions[name, partition] >= ends[partition] for partition in wanted):
                return
            assert time.monotonic() < deadline, f"read up to {positions} of {ends}"
            for found in consumer.fetch_messages():
                yield found.offset, Record(found.partition, -1, found.key, found.value)
    finally:
        consumer.close()


if __name__ == "__main__":
    answer_commands(produce, consume)
