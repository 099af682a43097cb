"""Members of groups in kafka-python, from 1.4 to 3."""

from __future__ import annotations

import time
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tests.clients.python.group_host import (
    REST_S,
    Committed,
    Notes,
    ThreadMember,
    Words,
    serve,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Give = Callable[[Iterable[int]], None]

POLL_MS = 500
JOIN_MS = 5000
"""A poll of 3.0.12 that ends between SyncGroup and its answer can leave it without partitions."""

# By name: the type checker would find the release in the tests' own environment, not this one.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    kafka: Any = import_module("kafka")
    errors: Any = import_module("kafka.errors")
    structs: Any = import_module("kafka.structs")


class Consumer:
    def __init__(self, words: Words, notes: Notes, give: Give) -> None:
        self._words = words
        self._notes = notes
        self._give = give

    def open(self) -> None:
        words = self._words
        settings: dict[str, Any] = {}
        if "instance" in words:
            settings["group_instance_id"] = words["instance"]
        if "assignor" in words:
            assignors = import_module("kafka.coordinator.assignors.cooperative_sticky")
            settings["partition_assignment_strategy"] = [getattr(assignors, words["assignor"])]
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=words["bootstrap"],
            group_id=words["group"],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=int(words["session_ms"]),
            heartbeat_interval_ms=int(words["heartbeat_ms"]),
            reconnect_backoff_max_ms=500,
            **settings,
        )
        self._consumer.subscribe([words["topic"]], listener=listener(self._notes, self._give))

    def read(self) -> None:
        try:
            found = self._consumer.poll(
                timeout_ms=POLL_MS if self._consumer.assignment() else JOIN_MS
            )
        except errors.KafkaError as error:
            # From 3.0 on poll tells of a broker that is away.
            if not error.retriable:
                raise
            time.sleep(REST_S)
            return
        for partition, messages in found.items():
            values = [message.value.decode() for message in messages]
            self._notes.read(partition.partition, messages[0].offset, values)

    def commit(self, offsets: dict[int, int]) -> None:
        self._consumer.commit(positions(self._words["topic"], offsets, ""))

    def close(self) -> None:
        self._consumer.close(autocommit=False)


def listener(notes: Notes, give: Give) -> Any:
    """Tells of the partitions that come and go."""

    class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            give(partition.partition for partition in revoked)

        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            notes.gained(partition.partition for partition in assigned)

        def on_partitions_lost(self, lost: Iterable[Any]) -> None:
            notes.gave((partition.partition for partition in lost), "lost")

    return Listener()


def positions(topic: str, offsets: dict[int, int], metadata: str) -> dict[Any, Any]:
    # From 3.0 on there is a leader epoch.
    rest = [-1] if "leader_epoch" in structs.OffsetAndMetadata._fields else []
    return {
        kafka.TopicPartition(topic, partition): structs.OffsetAndMetadata(offset, metadata, *rest)
        for partition, offset in offsets.items()
    }


def consumer_of(words: Words) -> Any:
    return kafka.KafkaConsumer(
        bootstrap_servers=words["bootstrap"], group_id=words["group"], enable_auto_commit=False
    )


def put(words: Words, offsets: dict[int, int]) -> None:
    consumer = consumer_of(words)
    try:
        consumer.assign([kafka.TopicPartition(words["topic"], number) for number in offsets])
        consumer.commit(positions(words["topic"], offsets, words["metadata"]))
    finally:
        consumer.close(autocommit=False)


def get(words: Words, partitions: list[int]) -> list[Committed]:
    consumer = consumer_of(words)
    # 1.4.7 shows no metadata.
    shows = {} if kafka.__version__.startswith("1.") else {"metadata": True}
    try:
        found: list[Committed] = []
        for number in partitions:
            answer = consumer.committed(kafka.TopicPartition(words["topic"], number), **shows)
            if answer is None:
                found.append((number, -1, None))
            elif shows:
                found.append((number, answer.offset, answer.metadata))
            else:
                found.append((number, answer, None))
        return found
    finally:
        consumer.close(autocommit=False)


def join(words: Words, notes: Notes) -> ThreadMember:
    return ThreadMember(notes, lambda give: Consumer(words, notes, give))


if __name__ == "__main__":
    serve(join, put, get)
