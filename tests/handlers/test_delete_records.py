"""DeleteRecords, versions 0 to 2."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller, batch

VERSIONS = range(3)
Asked = DeleteRecordsRequest.Topic.Partition


def delete(
    caller: Caller, topic: str, offset: int, *, partition: int = 0, version: int = 2
) -> DeleteRecordsResponse.Topic.Partition:
    asked = Asked(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.Topic(name=topic, partitions=[asked])], timeout_ms=0
    )
    answer = caller.call(request, version)
    assert answer.topics[0].name == topic
    found: DeleteRecordsResponse.Topic.Partition = answer.topics[0].partitions[0]
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_the_log_start_moves_inside_a_batch_and_below_it_nothing_is_read(
    caller: Caller, topic: str, version: int
) -> None:
    caller.create_topic(topic)
    caller.produce(topic, batch(b"a", b"b", b"c"))

    deleted = delete(caller, topic, 2, version=version)

    assert (deleted.error_code, deleted.low_watermark) == (0, 2)
    assert caller.fetch(topic, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert caller.values(topic, 2) == [b"c"]
    assert caller.offset(topic, -2).offset == 2
    assert caller.fetch(topic, 2).log_start_offset == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_minus_1_is_the_high_watermark(caller: Caller, topic: str, version: int) -> None:
    caller.create_topic(topic)
    caller.produce(topic, batch(b"a", b"b"))

    assert delete(caller, topic, -1, version=version).low_watermark == 2
    assert caller.produce(topic, batch(b"c")).base_offset == 2
    assert caller.values(topic, 2) == [b"c"]


def test_a_lower_offset_changes_nothing(caller: Caller, topic: str) -> None:
    caller.create_topic(topic)
    caller.produce(topic, batch(b"a", b"b"))
    delete(caller, topic, 2)

    again = delete(caller, topic, 1)

    assert (again.error_code, again.low_watermark) == (0, 2)


@pytest.mark.parametrize("offset", [3, 2**62, -2])
def test_an_offset_outside_of_the_log_is_refused(caller: Caller, topic: str, offset: int) -> None:
    caller.create_topic(topic)
    caller.produce(topic, batch(b"a", b"b"))

    refused = delete(caller, topic, offset)

    assert (refused.error_code, refused.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_a_topic_that_is_only_compacted_keeps_its_records(caller: Caller, topic: str) -> None:
    caller.create_topic(topic, cleanup_policy="compact")
    caller.create_topic(f"{topic}-both", cleanup_policy="compact,delete")
    caller.create_topic(f"{topic}-neither", cleanup_policy="")

    assert delete(caller, topic, -1).error_code == ErrorCode.POLICY_VIOLATION
    assert delete(caller, f"{topic}-both", -1).error_code == 0
    assert delete(caller, f"{topic}-neither", -1).error_code == 0


def test_what_does_not_exist_is_told(caller: Caller, topic: str) -> None:
    caller.create_topic(topic)

    for name, partition in (("missing", 0), (topic, 1), (topic, -1)):
        refused = delete(caller, name, -1, partition=partition)
        assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_deleted_records_stay_deleted_after_a_kill(
    own_broker: BrokerProcess,
) -> None:
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        caller.create_topic("t")
        caller.produce("t", batch(b"a", b"b", b"c"))
        assert delete(caller, "t", 2).low_watermark == 2
    own_broker.kill()
    own_broker.start()
    with Caller(own_broker.host, own_broker.port) as caller:
        assert caller.offset("t", -2).offset == 2
        assert caller.values("t", 2) == [b"c"]
    own_broker.stop()
