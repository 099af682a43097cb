"""Partitions whose folder says another topic, and offsets whose segment is missing: who is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from broker import logs
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from storage.identity import encode_partition_metadata
from storage.steps import run_here
from tests.broker.background.test_log_starts import delete_records
from tests.broker.network.test_connection import framed
from tests.broker.producing.test_failing_disk import (
    ACKS_ALL,
    ACKS_LEADER,
    BAD,
    GOOD,
    answers,
    fetch,
    produce,
)
from tests.support.fake_connection import InProcessBroker

if TYPE_CHECKING:
    from pathlib import Path

OTHER_ID = bytes(range(16))


def left_behind(data: Path, **settings: str) -> None:
    """A directory with two topics of four records each, stopped in good order."""
    with InProcessBroker(data) as broker:
        for name in (GOOD, BAD):
            run_here(broker.running.broker.topics.create(name, 1, settings))
        client = broker.connect()
        for _ in range(4):
            client.feed(produce(ACKS_LEADER, GOOD, BAD))


def told(monkeypatch: pytest.MonkeyPatch, name: str) -> list[dict[str, Any]]:
    """What is logged by `broker.logs.<name>` from now on."""
    lines: list[dict[str, Any]] = []
    monkeypatch.setattr(logs, name, lambda event, **facts: lines.append({"event": event} | facts))
    return lines


def test_a_partition_whose_folder_is_anothers_is_refused_to_all_and_no_other_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_behind(tmp_path / "data")
    folder = tmp_path / "data" / f"{BAD}-0"
    (folder / "partition.metadata").write_bytes(encode_partition_metadata(OTHER_ID))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    lines = told(monkeypatch, "warning")

    with InProcessBroker(tmp_path / "data") as broker:
        fetched = fetch(broker, GOOD, BAD)
        assert fetched[BAD] == (ErrorCode.KAFKA_STORAGE_ERROR, b"")
        assert fetched[GOOD][0] == ErrorCode.NONE
        assert fetch(broker, BAD, offset=4)[BAD][0] == ErrorCode.KAFKA_STORAGE_ERROR, "at its end"
        assert fetch(broker, BAD, version=3)[BAD][0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        for acks in (ACKS_ALL, ACKS_LEADER):
            client = broker.connect()
            client.feed(produce(acks, GOOD, BAD))
            broker.turn_until(lambda client=client: bool(client.writes))  # type: ignore[misc]
            (answer,) = answers(client, 9)
            assert answer[BAD] == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
            assert answer[GOOD][0] == ErrorCode.NONE
        for timestamp in (-2, -1, 0):
            assert offset_code(broker, timestamp) == ErrorCode.KAFKA_STORAGE_ERROR
        assert delete_records(broker, BAD)[BAD] == (ErrorCode.KAFKA_STORAGE_ERROR, -1)

    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    (line,) = [line["finding"] for line in lines if "finding" in line]
    assert f"{BAD}-0" in line
    assert "remove partition.metadata" in line


def offset_code(broker: InProcessBroker, timestamp: int) -> int:
    asked = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=timestamp)
    topics = [ListOffsetsRequest.Topic(name=BAD, partitions=[asked])]
    client = broker.connect()
    client.feed(framed(ListOffsetsRequest(replica_id=-1, topics=topics), 5, 1))
    answer = ListOffsetsResponse.decode(5, b"".join(client.writes)[8:])
    return int(answer.topics[0].partitions[0].error_code)


def test_groups_whose_partition_is_not_served_are_not_served_as_new_ones(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "data", offsets_topic_num_partitions="1") as broker:
        run_here(broker.running.broker.topics.create_automatically("__consumer_offsets"))
    folder = tmp_path / "data" / "__consumer_offsets-0"
    (folder / "partition.metadata").write_bytes(encode_partition_metadata(OTHER_ID))

    with InProcessBroker(tmp_path / "data") as broker:
        with pytest.raises(KafkaError) as refused:
            broker.running.broker.groups.existing_shard("readers")
        assert refused.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_offsets_of_a_missing_segment_are_told_as_damage_and_named_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_behind(tmp_path / "data", **{"segment.bytes": "100"})
    (tmp_path / "data" / f"{BAD}-0" / "00000000000000000001.log").unlink()
    lines = told(monkeypatch, "error")

    with InProcessBroker(tmp_path / "data") as broker:
        for version in (2, 9, 12):
            fetched = fetch(broker, GOOD, BAD, offset=1, version=version)
            assert fetched[BAD] == (ErrorCode.CORRUPT_MESSAGE, b"")
            assert fetched[GOOD][0] == ErrorCode.NONE
        for offset in (0, 2, 3):
            assert fetch(broker, BAD, offset=offset)[BAD][0] == ErrorCode.NONE

    (line,) = lines
    assert line["log"] == f"{BAD}-0"
    assert "00000000000000000002.log: the segment before it is missing" in line["reason"]
