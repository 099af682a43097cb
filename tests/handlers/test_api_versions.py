"""ApiVersions and what is not served."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from broker.network.dispatch import HANDLERS
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.registry import APIS
from tests.support.wire_client import ConnectionClosed

if TYPE_CHECKING:
    from tests.support.caller import Caller

API_VERSIONS = APIS[18]
FETCH = 1
ANSWER_TO_V99 = bytes.fromhex("00000010 00000001 0023 00000001 0012 0000 0005")


def ask(**fields: object) -> ApiVersionsRequest:
    return ApiVersionsRequest(
        **{"client_software_name": "apache-kafka-java", "client_software_version": "4.4", **fields}  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("version", range(6))
def test_every_version_lists_what_is_served_and_nothing_else(caller: Caller, version: int) -> None:
    answer = caller.call(ask(), version)

    assert (answer.error_code, answer.throttle_time_ms) == (0, 0)
    listed = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
    assert listed == {key: (APIS[key].min_version, APIS[key].max_version) for key in HANDLERS}
    assert list(listed) == sorted(listed)
    assert len(answer.api_keys) == len(listed)


LIBRDKAFKA_THAT_MISREADS_OLD_ENTRIES = [
    ("librdkafka", "2.5.0"),
    ("librdkafka", "v2.12.1"),
    ("confluent-kafka-python", "2.14.0-rdkafka-2.14.0"),
    ("confluent-kafka-python", "2.15.1-rdkafka-2.15.0"),
    ("confluent-kafka-dotnet", "2.15.0-RC1"),
    ("confluent-kafka-go", "2.8.0"),
    ("confluent-kafka-javascript", "v1.4.0-librdkafka-2.11.0"),
    ("karafka", "v2.4.0-rdkafka-ruby-v0.19.0-librdkafka-v2.6.1"),
    ("something", "1.0-librdkafka-2.9.0"),
]

OTHERS = [
    ("librdkafka", "2.4.0"),
    ("librdkafka", "2.15.1"),
    ("librdkafka", "2.16.1"),
    ("librdkafka", "3.6.0"),
    ("librdkafka", "unknown"),
    ("confluent-kafka-python", "2.5.0-rdkafka-2.4.0"),
    ("confluent-kafka-python", "2.15.0-rdkafka-2.16.1"),
    ("apache-kafka-java", "2.8.2"),
    ("kgo", "2.6.0"),
    ("sarama", "2.10.0"),
    ("ClickHouse", "ClickHouse-25.8.1.1"),
]


@pytest.mark.parametrize(("name", "release"), LIBRDKAFKA_THAT_MISREADS_OLD_ENTRIES)
def test_who_misreads_old_entries_from_fetch_v12_on_is_offered_v11(
    caller: Caller, name: str, release: str
) -> None:
    for version in (3, 4):
        answer = caller.call(
            ask(client_software_name=name, client_software_version=release), version
        )

        offered = {
            entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys
        }
        served = {key: (APIS[key].min_version, APIS[key].max_version) for key in HANDLERS}
        assert offered == {**served, FETCH: (0, 11)}


@pytest.mark.parametrize(("name", "release"), OTHERS)
def test_all_others_are_offered_every_fetch(caller: Caller, name: str, release: str) -> None:
    answer = caller.call(ask(client_software_name=name, client_software_version=release), 3)

    (fetch,) = [entry for entry in answer.api_keys if entry.api_key == FETCH]
    assert fetch.max_version == APIS[FETCH].max_version


@pytest.mark.parametrize("version", [6, 9, 99, 32767, -1, -32768])
def test_an_unknown_version_is_answered_in_version_0_with_our_range(
    caller: Caller, version: int
) -> None:
    head = b"\0\x12" + version.to_bytes(2, "big", signed=True) + b"\0\0\0\1"
    for rest in (b"", os.urandom(7), os.urandom(300)):
        caller.send_raw((len(head) + len(rest)).to_bytes(4, "big") + head + rest)

        assert caller.recv_frame() == ANSWER_TO_V99[4:]


def test_after_an_unknown_version_the_connection_goes_on_in_order(caller: Caller) -> None:
    unknown = b"\0\0\0\x10\0\x12\0\x63\0\0\0\1" + b"\xee" * 8

    caller.send_raw(
        unknown + caller.frame(ask(), 3, 2) + caller.frame(MetadataRequest(topics=[]), 12, 3)
    )

    assert caller.recv_frame() == ANSWER_TO_V99[4:]
    assert caller.receive(API_VERSIONS, 3, 2).error_code == 0
    assert caller.receive(APIS[3], 12, 3).brokers


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("name", ["", "-java", "java-", "ja va", "jävä", ".", "a/b"])
def test_a_software_name_or_version_that_is_none_is_an_invalid_request(
    caller: Caller, version: int, name: str
) -> None:
    for request in (ask(client_software_name=name), ask(client_software_version=name)):
        answer = caller.call(request, version)

        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert [entry.api_key for entry in answer.api_keys] == [18]


@pytest.mark.parametrize("name", ["a", "9", "a.b-c", "librdkafka", "2.16.1-RC3"])
def test_letters_and_digits_with_dots_and_dashes_inside_are_a_name(
    caller: Caller, name: str
) -> None:
    request = ask(client_software_name=name, client_software_version=name)

    assert caller.call(request, 3).error_code == 0


def test_version_5_says_whether_it_reached_the_cluster_it_meant(caller: Caller) -> None:
    metadata = caller.call(MetadataRequest(topics=[]), 12)
    cluster_id, node_id = metadata.cluster_id, metadata.brokers[0].node_id

    def code(cluster_id: str | None, node_id: int) -> int:
        found: int = caller.call(ask(cluster_id=cluster_id, node_id=node_id), 5).error_code
        return found

    assert code(None, -1) == 0
    assert code(cluster_id, node_id) == 0
    assert code(cluster_id, node_id + 1) == ErrorCode.REBOOTSTRAP_REQUIRED
    assert code("another-cluster", node_id) == ErrorCode.REBOOTSTRAP_REQUIRED
    assert code(cluster_id, -1) == ErrorCode.INVALID_REQUEST
    assert code(None, node_id) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("key", "version"), [(300, 0), (3, 50), (3, -1), (-1, 0), (7, 0), (59, 0)])
def test_what_is_not_served_closes_the_connection_and_what_is_behind_it_is_not_answered(
    caller: Caller, key: int, version: int
) -> None:
    first = caller.frame(ask(), 0, 1)
    frame = bytearray(caller.frame(MetadataRequest(topics=[]), 12, 2))
    frame[4:6] = key.to_bytes(2, "big", signed=True)
    frame[6:8] = version.to_bytes(2, "big", signed=True)

    caller.send_raw(first + bytes(frame) + caller.frame(MetadataRequest(topics=[]), 12, 3))

    assert caller.receive(API_VERSIONS, 0, 1).error_code == 0
    with pytest.raises(ConnectionClosed, match="after 0"):
        caller.recv_frame()


def test_a_version_1_answer_ends_with_the_throttle_time(caller: Caller) -> None:
    caller.send_raw(caller.frame(ask(), 1, 1))

    body = caller.recv_frame()[4:]

    assert len(body) == 2 + 4 + 6 * len(HANDLERS) + 4
    assert body[-4:] == bytes(4)
