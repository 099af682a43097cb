"""pykafka 2.8, the last there was: it speaks Kafka 0.9 unless it is told a later release."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tests.clients.python.program import DEADLINE_S, Words, answer_commands, partitions, start
from tests.clients.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

# By name: the type checker does not have it.
pykafka: Any = import_module("pykafka")
common: Any = import_module("pykafka.common")

CODECS = {"none": "NONE", "gzip": "GZIP", "snappy": "SNAPPY"}


def produce(words: Words, records: list[Record]) -> None:
    chosen = [0]
    with _topic(words).get_producer(
        compression=getattr(common.CompressionType, CODECS[words["codec"]]),
        required_acks=-1,
        linger_ms=5,
        partitioner=lambda known, _key: next(one for one in known if one.id == chosen[0]),
        delivery_reports=True,
    ) as producer:
        for record in records:
            chosen[0] = record.partition
            producer.produce(record.value, partition_key=record.key)
        for _ in records:
            _, error = producer.get_delivery_report(timeout=DEADLINE_S)
            if error is not None:
                raise error


def consume(words: Words) -> Iterator[tuple[int, Record]]:
    ends = dict(zip(partitions(words), map(int, words["ends"].split(",")), strict=True))
    topic = _topic(words)
    for partition, end in ends.items():
        consumer = topic.get_simple_consumer(
            partitions=[topic.partitions[partition]],
            consumer_timeout_ms=int(DEADLINE_S * 1_000),
            fetch_wait_max_ms=100,
        )
        try:
            for message in consumer:
                if message.offset >= start(words):
                    key, value = message.partition_key, message.value
                    yield message.offset, Record(partition, -1, key, value)
                if message.offset + 1 >= end:
                    break
        finally:
            consumer.stop()


def _topic(words: Words) -> Any:
    client = pykafka.KafkaClient(hosts=words["bootstrap"])
    return client.topics[words["topic"].encode()]


if __name__ == "__main__":
    answer_commands(produce, consume)
