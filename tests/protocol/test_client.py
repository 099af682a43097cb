"""The client's side of a connection, against our own encoders and bytes by hand."""

from __future__ import annotations

import pytest

from protocol.client import (
    Conversation,
    OutOfStep,
    VersionsNotTold,
    WrongAnswer,
    said,
    written,
)
from protocol.messages.api_versions import ApiVersionsResponse
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.metadata import MetadataRequest

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def conversation() -> Conversation:
    return Conversation(b"tests", max_answer_bytes=1000)


def told(*, error_code: int = 0, **versions: tuple[int, int]) -> bytes:
    """The body of an ApiVersions answer, for version 3."""
    known = {"produce": 0, "fetch": 1, "metadata": 3, "heartbeat": 12}
    api = ApiVersionsResponse.ApiVersion
    keys = [
        api(api_key=known[name], min_version=first, max_version=last)
        for name, (first, last) in versions.items()
    ]
    return ApiVersionsResponse(error_code=error_code, api_keys=keys).encode(3)


def learned(body: bytes) -> Conversation:
    talk = conversation()
    sent, _ = talk.ask_versions()
    assert talk.learn_versions(sent, b"\0\0\0\1" + body) is None
    return talk


def test_a_request_has_its_length_key_version_number_and_name_before_it() -> None:
    talk = conversation()
    sent, frame = talk.request(HEARTBEAT, 1)
    body = HEARTBEAT.encode(1)
    head = b"\x00\x0c\x00\x01" + b"\x00\x00\x00\x01" + b"\x00\x05tests"
    assert frame == (len(head) + len(body)).to_bytes(4) + head + body
    assert (sent.api.name, sent.version, sent.correlation_id) == ("Heartbeat", 1, 1)
    assert talk.request(HEARTBEAT, 1)[0].correlation_id == 2


def test_a_flexible_request_has_a_tag_section_before_its_body() -> None:
    _, frame = conversation().request(HEARTBEAT, 4)
    assert frame.endswith(b"tests\0" + HEARTBEAT.encode(4))


def test_a_value_that_does_not_fit_is_named() -> None:
    wrong = HeartbeatRequest(group_id="g", generation_id=1 << 40, member_id="m")
    with pytest.raises(ValueError, match="generation_id"):
        conversation().request(wrong, 1)


@pytest.mark.parametrize("version", [1, 4])
def test_an_answer_is_read_behind_the_header_of_its_version(version: int) -> None:
    talk = conversation()
    sent, _ = talk.request(HEARTBEAT, version)
    tags = b"\0" if version == 4 else b""
    answer = HeartbeatResponse(error_code=27)
    frame = b"\0\0\0\1" + tags + answer.encode(version)
    assert talk.answer(sent, HeartbeatResponse, frame) == answer


@pytest.mark.parametrize(
    ("frame", "wrong"),
    [
        (b"\0\0\0\2\0\0\0\0\0\0", "answered another request than Heartbeat"),
        (b"\0\0\0\1\0\0\0\0\0\0!", "sent 1 bytes after its answer"),
        (b"\0\0\0\1\0\0", "sent a malformed answer: "),
    ],
)
def test_what_is_no_answer_to_the_request_is_told(frame: bytes, wrong: str) -> None:
    talk = conversation()
    sent, _ = talk.request(HEARTBEAT, 1)
    with pytest.raises(WrongAnswer, match=wrong):
        talk.answer(sent, HeartbeatResponse, frame)


@pytest.mark.parametrize("length", [b"HTTP", b"\xff\xff\xff\xff", b"\0\0\0\3", b"\0\0\3\xe9"])
def test_a_length_that_no_answer_has_is_another_protocols(length: bytes) -> None:
    with pytest.raises(OutOfStep):
        conversation().size(length)


def test_the_newest_version_that_both_know_is_taken_within_bounds() -> None:
    talk = learned(told(metadata=(2, 6)))
    assert talk.version(3) == 6
    assert talk.version(3, newest=4) == 4
    assert talk.version(3, newest=1) is None
    assert talk.version(3, oldest=7) is None
    assert talk.lacking(3, 7) == "speaks versions 2 to 6 of Metadata, wanted one of 7 to 13"
    assert learned(told(metadata=(0, 99))).version(3) == 13
    assert talk.version(12) is None
    assert talk.lacking(12) == "speaks no version of Heartbeat, wanted one of 0 to 4"


def test_a_broker_that_does_not_know_the_version_is_asked_in_version_0() -> None:
    talk = conversation()
    sent, _ = talk.ask_versions()
    refused = ApiVersionsResponse(error_code=35, api_keys=[]).encode(0)
    step = talk.learn_versions(sent, b"\0\0\0\1" + refused)
    assert step is not None
    sent, frame = step
    assert (sent.version, sent.correlation_id) == (0, 2)
    assert frame[4:8] == b"\0\x12\0\0"
    entry = ApiVersionsResponse.ApiVersion(api_key=3, min_version=0, max_version=1)
    answer = ApiVersionsResponse(error_code=0, api_keys=[entry]).encode(0)
    assert talk.learn_versions(sent, b"\0\0\0\2" + answer) is None
    assert talk.versions == {3: (0, 1)}


def test_what_kafka_4_lists_and_refuses_is_left_out() -> None:
    old, new = told(produce=(0, 11), fetch=(0, 17)), told(produce=(0, 12), fetch=(4, 17))
    assert learned(old).versions[0] == (0, 11)
    assert learned(new).versions[0] == (3, 12)


def test_an_error_with_versions_is_told_and_they_are_learned() -> None:
    talk = conversation()
    sent, _ = talk.ask_versions()
    with pytest.raises(VersionsNotTold, match=r"INVALID_REQUEST \(42\)"):
        talk.learn_versions(sent, b"\0\0\0\1" + told(error_code=42, metadata=(0, 5)))
    assert talk.version(MetadataRequest.key) == 5


def test_codes_and_addresses_are_written_for_people() -> None:
    assert said(6).startswith("NOT_LEADER_OR_FOLLOWER (6): ")
    assert said(9999) == "error 9999, which is not known here"
    assert written("::1", 9092) == "[::1]:9092"
    assert written("localhost", 9092) == "localhost:9092"
