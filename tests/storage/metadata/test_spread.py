"""Partitions are spread over the processes of one directory, and Kafka's records tell which."""

from __future__ import annotations

from collections import Counter

import pytest

from protocol.logdata.metadata import (
    NO_LEADER,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
    decode_record,
    encode_record,
)
from storage.metadata.image import MetadataImage
from storage.metadata.spread import Spread
from storage.metadata.store import MetadataStore
from tests.support.memory_filesystem import MemoryFilesystem
from tests.support.topic_store import open_topics

ID = bytes(range(16))
OTHER_ID = bytes(range(16, 32))


def opened(files: MemoryFilesystem, processes: int) -> MetadataStore:
    topics = open_topics(files, "/data", processes=processes)
    topics.begin_epoch()
    return topics


@pytest.fixture
def files() -> MemoryFilesystem:
    files = MemoryFilesystem()
    files.make_dir("/data")
    return files


def led_by(topics: MetadataStore, name: str) -> list[int]:
    partitions = topics.image.topics[name].partitions
    return [topics.leader_id(name, number) for number in sorted(partitions)]


def test_no_process_leads_more_than_one_more_than_another() -> None:
    spread, led = Spread(3), Counter({0: 0, 1: 0, 2: 0})
    for _ in range(20):
        led[spread.next()] += 1
        assert max(led.values()) - min(led.values()) <= 1


def test_a_topic_goes_round_and_the_next_one_goes_on_where_the_fewest_are(
    files: MemoryFilesystem,
) -> None:
    topics = opened(files, 3)
    topics.create("orders", ID, 4, {})
    topics.create("other", OTHER_ID, 2, {})
    topics.set_partition_count("orders", 6)

    assert led_by(topics, "orders") == [1, 2, 3, 1, 1, 2]
    assert led_by(topics, "other") == [2, 3]


def test_a_start_with_another_number_spreads_anew_and_one_process_takes_all_back(
    files: MemoryFilesystem,
) -> None:
    topics = opened(files, 2)
    topics.create("orders", ID, 4, {})
    assert led_by(topics, "orders") == [1, 2, 1, 2]

    assert led_by(opened(files, 4), "orders") == [1, 2, 3, 4]
    assert led_by(opened(files, 1), "orders") == [1] * 4


def test_a_partition_without_a_leader_is_nobodys_and_then_that_of_the_one_that_is_named() -> None:
    image = MetadataImage()
    image.replay(TopicRecord(name="orders", topic_id=ID))
    image.replay(PartitionRecord(topic_id=ID, partition_id=0, replicas=[1], isr=[1], leader=1))
    led = []
    for change in (
        PartitionChangeRecord(topic_id=ID, partition_id=0, leader=1, process=2),
        PartitionChangeRecord(topic_id=ID, partition_id=0, isr=[1]),
        PartitionChangeRecord(topic_id=ID, partition_id=0, leader=NO_LEADER),
        PartitionChangeRecord(topic_id=ID, partition_id=0, leader=1, process=3),
    ):
        image.replay(change)
        state = image.topics["orders"].partitions[0]
        led.append((state.leader, state.process))

    assert led == [(1, 2), (1, 2), (NO_LEADER, 0), (1, 3)]


def test_the_log_names_the_node_alone_so_that_kafka_finds_its_own(files: MemoryFilesystem) -> None:
    topics = opened(files, 4)
    topics.create("orders", ID, 4, {})

    states = topics.image.topics["orders"].partitions.values()

    assert {(one.replicas, one.isr, one.leader) for one in states} == {((1,), (1,), 1)}


def test_a_snapshot_keeps_which_process_leads(files: MemoryFilesystem) -> None:
    topics = opened(files, 2)
    topics.create("orders", ID, 3, {})
    again = MetadataImage()
    for record in topics.image.records():
        again.replay(decode_record(encode_record(record)))

    assert again.topics == topics.image.topics


def test_one_process_writes_what_was_written_before_there_were_several() -> None:
    for record in (
        PartitionRecord(topic_id=ID, partition_id=0, replicas=[1], isr=[1], leader=1),
        PartitionChangeRecord(topic_id=ID, partition_id=0, leader=1),
    ):
        assert b"\x90\x4e" not in encode_record(record)
        record.process = 1
        assert b"\x90\x4e\x02\x00\x01" in encode_record(record)
