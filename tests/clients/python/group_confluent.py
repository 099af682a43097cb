"""Members of groups in confluent-kafka, in either protocol."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import confluent_kafka
from confluent_kafka import TopicPartition

from tests.clients.python.group_host import Committed, Notes, ThreadMember, Words, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Give = Callable[[Iterable[int]], None]

#: For one call.
TIMEOUT_S = 20.0

POLL_RECORDS = 500


class Consumer:
    def __init__(self, words: Words, notes: Notes, give: Give) -> None:
        self._words = words
        self._notes = notes
        self._give = give

    def open(self) -> None:
        words, notes = self._words, self._notes
        settings: dict[str, Any] = {}
        if words["protocol"] == "classic":
            # In the other protocol the broker sets these.
            settings["session.timeout.ms"] = int(words["session_ms"])
            settings["heartbeat.interval.ms"] = int(words["heartbeat_ms"])
        if "instance" in words:
            settings["group.instance.id"] = words["instance"]
        if "assignor" in words:
            settings["partition.assignment.strategy"] = words["assignor"]
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": words["bootstrap"],
                "group.id": words["group"],
                "group.protocol": words["protocol"],
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
                **settings,
            }
        )
        self._consumer.subscribe(
            [words["topic"]],
            on_assign=lambda _, partitions: notes.gained(numbers(partitions)),
            on_revoke=lambda _, partitions: self._give(numbers(partitions)),
            on_lost=lambda _, partitions: notes.gave(numbers(partitions), "lost"),
        )

    def read(self) -> None:
        found: list[Any] = []
        for message in self._consumer.consume(POLL_RECORDS, 0.1):
            error = message.error()
            # What librdkafka tells of a broker that is away, it gets over by itself.
            if error is None:
                found.append(message)
            elif error.fatal():
                raise confluent_kafka.KafkaException(error)
        found.sort(key=lambda message: (message.partition(), message.offset()))
        for number, messages in itertools.groupby(found, lambda message: message.partition()):
            run = list(messages)
            self._notes.read(number, run[0].offset(), [item.value().decode() for item in run])

    def commit(self, offsets: dict[int, int]) -> None:
        commit(self._consumer, positions(self._words["topic"], offsets, ""))

    def close(self) -> None:
        self._consumer.close()


def numbers(partitions: Iterable[Any]) -> list[int]:
    return [partition.partition for partition in partitions]


def positions(topic: str, offsets: dict[int, int], metadata: str) -> list[Any]:
    # Metadata is sent with the byte that ends a string in C; even of none there would be that.
    more: list[Any] = [metadata] if metadata else []
    return [
        TopicPartition(topic, partition, offset, *more) for partition, offset in offsets.items()
    ]


def commit(consumer: Any, wanted: list[Any]) -> None:
    for answer in consumer.commit(offsets=wanted, asynchronous=False):
        if answer.error is not None:
            raise confluent_kafka.KafkaException(answer.error)


def consumer_of(words: Words) -> Any:
    settings = {"bootstrap.servers": words["bootstrap"], "group.id": words["group"], "log_level": 0}
    return confluent_kafka.Consumer(settings)


def put(words: Words, offsets: dict[int, int]) -> None:
    consumer = consumer_of(words)
    try:
        commit(consumer, positions(words["topic"], offsets, words["metadata"]))
    finally:
        consumer.close()


def get(words: Words, partitions: list[int]) -> list[Committed]:
    consumer = consumer_of(words)
    try:
        asked = [TopicPartition(words["topic"], number) for number in partitions]
        found = consumer.committed(asked, TIMEOUT_S)
        return [
            (answer.partition, max(answer.offset, -1), answer.metadata)
            for answer in found
            if answer.error is None
        ]
    finally:
        consumer.close()


def join(words: Words, notes: Notes) -> ThreadMember:
    return ThreadMember(notes, lambda give: Consumer(words, notes, give))


if __name__ == "__main__":
    serve(join, put, get)
