"""DeleteTopics, versions 0 to 6."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from protocol.schema import ZERO_UUID
from tests.support.broker_process import BrokerProcess
from tests.support.caller import Caller, batch

VERSIONS = range(7)


def delete(caller: Caller, *names: str, version: int) -> list[DeleteTopicsResponse.Topic]:
    if version >= 6:
        by_name = [DeleteTopicsRequest.Topic(name=name, topic_id=ZERO_UUID) for name in names]
        request = DeleteTopicsRequest(topics=by_name, timeout_ms=0)
    else:
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=0)
    found: list[DeleteTopicsResponse.Topic] = caller.call(request, version).responses
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_a_deleted_topic_is_gone_and_its_name_is_free_at_once(
    caller: Caller, topic: str, version: int
) -> None:
    old_id = caller.create_topic(topic)
    caller.produce(topic, batch(b"old"))

    (deleted,) = delete(caller, topic, version=version)

    assert (deleted.name, deleted.error_code) == (topic, 0)
    assert deleted.topic_id == (old_id if version >= 6 else ZERO_UUID)
    assert caller.describe(topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert caller.create_topic(topic) != old_id
    assert caller.values(topic) == []
    assert caller.produce(topic, batch(b"new")).base_offset == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_topic_is_told_and_the_others_are_deleted(
    caller: Caller, topic: str, version: int
) -> None:
    caller.create_topic(topic)

    missing, deleted = delete(caller, "missing", topic, version=version)

    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert bool(missing.error_message) == (version >= 5)
    assert (deleted.name, deleted.error_code) == (topic, 0)


def test_version_6_deletes_by_id_too(caller: Caller, topic: str) -> None:
    topic_id = caller.create_topic(topic)
    asked = DeleteTopicsRequest.Topic
    request = DeleteTopicsRequest(
        topics=[
            asked(name=None, topic_id=topic_id),
            asked(name=None, topic_id=b"\x09" * 16),
            asked(name=topic, topic_id=topic_id),
            asked(name=None, topic_id=ZERO_UUID),
        ],
        timeout_ms=0,
    )

    answer = caller.call(request, 6).responses

    assert [(entry.name, entry.topic_id, entry.error_code) for entry in answer] == [
        (topic, topic_id, 0),
        (None, b"\x09" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
        (topic, topic_id, ErrorCode.INVALID_REQUEST),
        (None, ZERO_UUID, ErrorCode.INVALID_REQUEST),
    ]


# What Apache Kafka 3.9 answers: one entry, and nothing is deleted.
@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_named_twice_is_not_deleted_and_answered_once(
    caller: Caller, topic: str, version: int
) -> None:
    caller.create_topic(topic)

    (refused,) = delete(caller, topic, topic, version=version)

    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert caller.describe(topic).error_code == 0


def test_a_topic_named_by_its_name_and_by_its_id_is_named_twice(caller: Caller, topic: str) -> None:
    topic_id = caller.create_topic(topic)
    asked = DeleteTopicsRequest.Topic
    by_both = [asked(name=topic, topic_id=ZERO_UUID), asked(name=None, topic_id=topic_id)]

    (refused,) = caller.call(DeleteTopicsRequest(topics=by_both, timeout_ms=0), 6).responses

    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert caller.describe(topic).topic_id == topic_id


@pytest.mark.parametrize("version", [5, 6])
def test_an_unknown_topic_named_twice_is_refused_as_such(caller: Caller, version: int) -> None:
    (refused,) = delete(caller, "missing", "missing", version=version)

    assert refused.error_code == ErrorCode.INVALID_REQUEST


def test_where_deletion_is_disabled_the_code_is_one_the_client_knows(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    settings = {"delete.topic.enable": "false"}
    with (
        BrokerProcess(tmp_path_factory.mktemp("kept") / "data", settings=settings) as broker,
        Caller(broker.host, broker.port) as caller,
    ):
        caller.create_topic("t")
        codes = [delete(caller, "t", version=version)[0].error_code for version in VERSIONS]

    disabled = ErrorCode.TOPIC_DELETION_DISABLED
    assert codes == [ErrorCode.INVALID_REQUEST] * 3 + [disabled] * 4


def test_many_topics_of_one_request_go_and_stay_gone_after_a_kill(
    own_broker: BrokerProcess,
) -> None:
    own_broker.start()
    names = [f"t{number}" for number in range(200)]
    with Caller(own_broker.host, own_broker.port) as caller:
        ids = [
            caller.create_topic(name, partitions=1 + number % 2)
            for number, name in enumerate(names[:20])
        ]
        for name in names[20:]:
            caller.create_topic(name)
        deleted = delete(caller, *names[:-1], "missing", version=6)
        assert [entry.error_code for entry in deleted] == [0] * 199 + [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ]
        assert [entry.topic_id for entry in deleted[:20]] == ids
    own_broker.kill()
    own_broker.start()

    with Caller(own_broker.host, own_broker.port) as caller:
        for name in names[:-1:20]:
            assert caller.describe(name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert caller.describe(names[-1]).error_code == 0
        assert caller.create_topic(names[0]) not in ids
    assert not list(own_broker.data.glob("t1-*"))
