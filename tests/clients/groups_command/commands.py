"""Helpers of the tests of `triglot groups`: the command, and groups for it to look at."""

from __future__ import annotations

import contextlib
import time
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from tests.support import typed_command

with warnings.catch_warnings():
    # kafka-python 3.0 reads its own files by a function that Python calls outdated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.caller import Caller

HOUR_MS = 3_600_000
PRODUCE_VERSION = 9
COMMIT_VERSION = 8
JOIN_TIMEOUT_S = 30.0
POLL_MS = 5000


run = partial(typed_command.run, "groups")
asked = partial(typed_command.asked, "groups")
refused = partial(typed_command.refused, "groups")


def moves_of(bootstrap: str, *arguments: str) -> dict[int, tuple[int | None, int | None]]:
    """From where to where a reset would move, or moves, each partition."""
    answer = asked(bootstrap, "reset", *arguments)
    return {entry["partition"]: (entry["old"], entry["new"]) for entry in answer["partitions"]}


def committed(bootstrap: str, group: str) -> dict[int, int]:
    answer = asked(bootstrap, "describe", group)
    return {entry["partition"]: entry["committed"] for entry in answer["partitions"]}


def commit(caller: Caller, group: str, topic: str, offsets: dict[int, int], note: str = "") -> None:
    """As a client without membership; again while the coordinator is only about to be one."""
    asked = OffsetCommitRequest.Topic.Partition
    entries = [
        asked(partition_index=p, committed_offset=offset, committed_metadata=note)
        for p, offset in offsets.items()
    ]
    request = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequest.Topic(name=topic, partitions=entries)]
    )
    deadline = time.monotonic() + JOIN_TIMEOUT_S
    while True:
        caller.call(FindCoordinatorRequest(key=group), 3)  # Kafka makes the topic of offsets by it
        answer = caller.call(request, COMMIT_VERSION)
        codes = {entry.error_code for entry in answer.topics[0].partitions}
        if codes == {0}:
            return
        assert codes <= {14, 15, 16}, codes
        assert time.monotonic() < deadline
        time.sleep(0.1)


def produce(caller: Caller, topic: str, partition: int, records: bytes) -> None:
    """Again while the leader does not know yet that it is one, as Kafka's after CreateTopics."""
    deadline = time.monotonic() + JOIN_TIMEOUT_S
    while caller.produce(topic, records, partition=partition, version=PRODUCE_VERSION).error_code:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def delete_records(caller: Caller, topic: str, offset: int) -> None:
    """Of partition 0; Kafka needs more time than none."""
    asked = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=offset)
    topics = [DeleteRecordsRequest.Topic(name=topic, partitions=[asked])]
    answer = caller.call(DeleteRecordsRequest(topics=topics, timeout_ms=10_000), 2)
    assert answer.topics[0].partitions[0].error_code == 0


@contextlib.contextmanager
def kafka_python_member(bootstrap: str, group: str, topic: str) -> Iterator[Any]:
    """A consumer of the classic protocol that has joined."""
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        client_id="reader",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    try:
        deadline = time.monotonic() + JOIN_TIMEOUT_S
        while not consumer.assignment():
            # 3.0.12 never takes its share if a poll ends between its SyncGroup and the answer.
            consumer.poll(timeout_ms=POLL_MS)
            assert time.monotonic() < deadline, "no assignment"
        yield consumer
    finally:
        consumer.close()


def commit_one(consumer: Any, topic: str) -> None:
    """By a consumer of kafka-python: it has read one record of partition 0."""
    consumer.commit({kafka.TopicPartition(topic, 0): kafka.OffsetAndMetadata(1, "", -1)})


def joined(caller: Caller, group: str, topic: str) -> tuple[str, int]:
    """A member of the newer protocol that has all of the topic; its id and its epoch.

    By hand, because librdkafka does not speak the version that Kafka 3.9 does.
    """
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="",
        member_epoch=0,
        instance_id=None,
        rack_id=None,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=[topic],
        server_assignor=None,
        topic_partitions=[],
    )
    answer = caller.call(request, 0)
    assert answer.error_code == 0, answer.error_message
    member_id: str = answer.member_id
    return member_id, answer.member_epoch


def left(caller: Caller, group: str, member_id: str) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=-1,
        instance_id=None,
        rack_id=None,
        subscribed_topic_names=None,
        server_assignor=None,
        topic_partitions=None,
    )
    assert caller.call(request, 0).error_code == 0
