"""Metrics that real clients pushed to us, and what is none.

`otlp/` holds payloads of PushTelemetry as they came, in zstd: of the Java client 3.9.1 and of
librdkafka 2.16.1, asked for a few of a producer's metrics.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import Malformed
from protocol.otlp import Sample, samples
from protocol.records.compression import ZSTD, decompress

PUSHED = Path(__file__).with_name("otlp")


def pushed(name: str) -> bytes:
    return decompress(ZSTD, (PUSHED / f"{name}.zst").read_bytes(), limit=1 << 20)


def test_what_the_java_client_pushes_is_read() -> None:
    found = list(samples(pushed("java-3.9.1")))

    assert len(found) == 27
    named = [one for one in found if one.name == "org.apache.kafka.producer.record.send.total"]
    assert named == [Sample("org.apache.kafka.producer.record.send.total", (), 16.0, True)]
    (count,) = [one for one in found if one.name == "org.apache.kafka.producer.connection.count"]
    assert (count.value, count.monotonic) == (2.0, False)
    by_node = {
        one.attributes: one.value
        for one in found
        if one.name == "org.apache.kafka.producer.node.response.total"
    }
    assert by_node == {(("node_id", "node-1"),): 17.0, (("node_id", "node--1"),): 5.0}


def test_what_librdkafka_pushes_is_read() -> None:
    found = list(samples(pushed("librdkafka-2")))

    name = "org.apache.kafka.producer.node.request.latency"
    assert found == [
        Sample(f"{name}.avg", (("node.id", "1"),), 2.561, False),
        Sample(f"{name}.max", (("node.id", "1"),), 14, False),
    ]


def test_attributes_of_a_resource_are_of_all_its_metrics() -> None:
    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    def attribute(key: bytes, value: bytes) -> bytes:
        return field(1, key) + field(2, value)

    attributes = [
        attribute(b"group_id", field(1, b"readers")),
        attribute(b"busy", b"\x10\x01"),
        attribute(b"rack", b"\x18\x07"),
    ]
    point = field(1, b"\x31" + (-5).to_bytes(8, "little", signed=True))
    metric = field(1, b"lag") + field(5, point)
    resource = field(1, b"".join(field(1, one) for one in attributes))
    payload = field(1, resource + field(2, field(2, metric)))

    given = (("group_id", "readers"), ("busy", "true"), ("rack", "7"))
    assert list(samples(payload)) == [Sample("lag", given, -5, False)]


def test_nothing_is_no_metrics() -> None:
    assert list(samples(b"")) == []


def test_a_push_that_is_cut_or_spoiled_is_malformed_or_has_other_numbers_and_never_fails() -> None:
    whole = pushed("java-3.9.1")
    names = [one.name for one in samples(whole)]
    for size in range(len(whole)):
        try:
            found = [one.name for one in samples(whole[:size])]
        except Malformed:
            continue
        # The client sends each metric under a resource of its own.
        assert found == names[: len(found)]
    for position in range(len(whole)):
        for flip in (0x01, 0x80, 0xFF):
            spoiled = bytearray(whole)
            spoiled[position] ^= flip
            try:
                list(samples(bytes(spoiled)))
            except Malformed:
                continue


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\x00\x07", "a field of the number 0"),
        (b"\x0a\x7f", "ends 127 bytes behind its message"),
        (b"\x0a", "ends within a number"),
        (b"\xff" * 11, "a number of more than 10 bytes"),
        (b"\x0b", "a field of the wire type 3"),
        (b"\x08\x01", "a number where a message is wanted"),
    ],
)
def test_what_is_no_protobuf_is_malformed_with_the_reason(payload: bytes, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        list(samples(payload))
