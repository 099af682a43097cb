"""One client's conversation without any I/O."""

from __future__ import annotations

import pytest

from protocol import registry
from protocol.connection import Routes, Served, ServerConnection, UnservedRequest
from protocol.errors import ErrorCode, Malformed
from protocol.messages.api_versions import ApiVersionsResponse
from protocol.messages.fetch import FetchResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse

API_VERSIONS_V0 = bytes.fromhex("0000000b 0012 0000 00000001 0001 74")
UNKNOWN_API_VERSIONS_ANSWER = bytes.fromhex("00000010 00000001 0023 00000001 0012 0000 0005")
API_VERSIONS_V3 = bytes.fromhex("00000011 0012 0003 00000002 0001 74 00 0261 0231 00")


def served(*keys: int) -> Routes:
    return Routes(
        {
            key: Served(
                registry.APIS[key],
                None,
                registry.APIS[key].min_version,
                registry.APIS[key].max_version,
            )
            for key in keys
        }
    )


def connect(*keys: int) -> ServerConnection:
    return ServerConnection(served(*(keys or (0, 1, 3, 18))), max_frame_bytes=1_000_000)


def frame(
    key: int, version: int, correlation_id: int, body: bytes, client_id: bytes | None = b"t"
) -> bytes:
    head = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True)
    head += correlation_id.to_bytes(4, "big", signed=True)
    if client_id is None:
        head += b"\xff\xff"
    else:
        head += len(client_id).to_bytes(2, "big") + client_id
    if version >= registry.APIS[key].first_flexible:
        head += b"\0"
    return (len(head) + len(body)).to_bytes(4, "big") + head + body


def metadata_frame(correlation_id: int, version: int = 9) -> bytes:
    body = MetadataRequest(topics=None).encode(version)
    return frame(3, version, correlation_id, body)


EMPTY_METADATA = MetadataResponse(brokers=[], topics=[])


def sent(connection: ServerConnection) -> bytes:
    return b"".join(bytes(buffer) for buffer in connection.outgoing())


def test_the_first_bytes_of_the_specification_are_understood() -> None:
    connection = connect()

    first, second = connection.receive(API_VERSIONS_V0 + API_VERSIONS_V3)

    assert (first.version, first.correlation_id, first.client_id) == (0, 1, "t")
    assert second.version == 3
    assert second.message.client_software_name == "a"
    assert second.message.client_software_version == "1"


def test_api_versions_of_an_unknown_version_is_answered_in_version_0_with_our_range() -> None:
    connection = connect()
    garbage = b"\x00\x12\x00\x63\x00\x00\x00\x01" + b"\xee" * 30

    (request,) = connection.receive(len(garbage).to_bytes(4, "big") + garbage)
    assert request.message is None
    connection.respond(
        request,
        ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=5)],
        ),
    )

    assert sent(connection) == UNKNOWN_API_VERSIONS_ANSWER


def test_api_versions_answers_with_the_oldest_header_in_a_flexible_version() -> None:
    connection = connect()
    (request,) = connection.receive(API_VERSIONS_V3)

    connection.respond(request, ApiVersionsResponse(error_code=0, api_keys=[]))

    assert sent(connection) == bytes.fromhex("0000000c 00000002 0000 01 00000000 00")


def test_answers_leave_in_the_order_of_the_requests_whatever_the_order_they_are_given_in() -> None:
    connection = connect()
    requests = connection.receive(b"".join(metadata_frame(n) for n in (7, -3, 7, 9)))

    connection.respond(requests[2], EMPTY_METADATA)
    connection.respond(requests[1], EMPTY_METADATA)
    assert sent(connection) == b""
    connection.respond(requests[0], EMPTY_METADATA)
    three = sent(connection)
    connection.respond(requests[3], EMPTY_METADATA)

    size = int.from_bytes(three[:4], "big") + 4
    ids = [
        int.from_bytes(three[at + 4 : at + 8], "big", signed=True)
        for at in range(0, len(three), size)
    ]
    assert ids == [7, -3, 7]
    assert int.from_bytes(sent(connection)[4:8], "big") == 9
    assert connection.unanswered == 0


def test_no_answer_is_no_bytes_and_holds_nothing_back() -> None:
    connection = connect()
    first, second = connection.receive(metadata_frame(1) + metadata_frame(2))

    connection.respond(second, EMPTY_METADATA)
    connection.respond(first, None)

    assert int.from_bytes(sent(connection)[4:8], "big") == 2


class Slice:
    """Stands for bytes in a file."""

    def __init__(self, size: int) -> None:
        self.size = size


def test_a_file_slice_is_passed_on_between_the_bytes_around_it_and_counts_in_the_length() -> None:
    connection = connect()
    (request,) = connection.receive(frame(1, 4, 5, bytes(4 + 4 + 4 + 4 + 1 + 4)))
    piece = Slice(1000)
    partition = FetchResponse.Topic.Partition(
        partition_index=0, error_code=0, high_watermark=9, records=piece
    )

    connection.respond(
        request, FetchResponse(responses=[FetchResponse.Topic(topic="t", partitions=[partition])])
    )
    buffers = connection.outgoing()

    assert buffers[-1] is piece
    head = bytes(buffers[0])
    assert int.from_bytes(head[:4], "big") == len(head) - 4 + 1000
    assert int.from_bytes(head[-4:], "big") == 1000


def test_a_key_or_version_that_is_not_served_ends_the_conversation() -> None:
    for key, version in ((300, 0), (3, 50), (3, -1), (8, 2)):
        connection = connect()
        head = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + bytes(8)
        with pytest.raises(UnservedRequest):
            connection.receive(len(head).to_bytes(4, "big") + head)


@pytest.mark.parametrize(
    "client_id",
    [None, b"", b"x" * 32_000, b"\xff\xfe not utf-8"],
    ids=["null", "empty", "long", "no utf-8"],
)
def test_any_client_id_is_taken(client_id: bytes | None) -> None:
    (request,) = connect().receive(frame(3, 1, 1, b"\xff\xff\xff\xff", client_id))

    expected = None if client_id is None else client_id.decode("utf-8", "replace")
    assert request.client_id == expected
    assert request.message.topics is None


def test_unknown_tags_in_header_and_body_are_stepped_over() -> None:
    tags = bytes.fromhex("03 00 01 aa 05 00 7f 02 bbbb")
    head = bytes.fromhex("0003 000c 00000001 0001 74") + tags
    body = bytes.fromhex("00 01 00 00") + tags[:]
    body = b"\x00" + b"\x01" + b"\x00" + tags
    whole = head + body

    (request,) = connect().receive(len(whole).to_bytes(4, "big") + whole)

    assert request.message.topics is None
    assert request.message.allow_auto_topic_creation is True


def test_bytes_after_the_last_field_are_ignored_and_counted() -> None:
    connection = connect()

    connection.receive(frame(3, 1, 1, b"\xff\xff\xff\xff" + b"more"))

    assert connection.trailing_bytes == 4


@pytest.mark.parametrize(
    "body",
    [
        "00030001",  # ends inside the header
        "0003 0001 00000001 7fff 74",  # the client id runs past the frame
        "0003 0001 00000001 0001 74 7fffffff",  # 2147483647 topics
        "0003 0009 00000001 0001 74 00 ffffffff0f",  # the same, in compact form
        "0003 0009 00000001 0001 74 00 ffffffffff01",  # a varint of six bytes
        "0003 0009 00000001 0001 74 01 00 7f",  # a tag of 127 bytes in the header
        "0003 0009 00000001 0001 74 ffff7f",  # too many tags in the header
        "0003 0001 00000001 0001 74 00000001 ffff",  # a null name
        "0003 0001 00000001 0001 74 00000001 0005 61",  # a name that is cut off
        "0003 0001 00000001 0001 74 fffffffe",  # a count of -2
    ],
)
def test_what_cannot_be_understood_is_malformed(body: str) -> None:
    raw = bytes.fromhex(body)
    with pytest.raises(Malformed):
        connect().receive(len(raw).to_bytes(4, "big") + raw)
