"""A batch that is not what it says is refused, and nothing of it is stored."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.records.crc import crc32c
from protocol.records.layout import (
    CHECKED_POSITION,
    CRC_POSITION,
    UINT32,
)
from protocol.registry import APIS
from tests.support.caller import Caller, batch, produce_request

if TYPE_CHECKING:
    from collections.abc import Callable

BASE_OFFSET, LENGTH, MAGIC, ATTRIBUTES, LAST_DELTA, COUNT = 0, 8, 16, 21, 23, 57
CORRUPT, INVALID = ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD


def put(layout: str, position: int, value: int, *, resealed: bool) -> Callable[[bytes], bytes]:
    """Write a number into a batch, and make the checksum fit again if asked to."""

    def spoil(sent: bytes) -> bytes:
        data = bytearray(sent)
        struct.pack_into(f">{layout}", data, position, value)
        if resealed:
            UINT32.pack_into(data, CRC_POSITION, crc32c(memoryview(data)[CHECKED_POSITION:]))
        return bytes(data)

    return spoil


def length_off_by(difference: int, data: bytes) -> bytes:
    return put("i", LENGTH, len(data) - 12 + difference, resealed=False)(data)


SPOILED: dict[str, tuple[Callable[[bytes], bytes], ErrorCode]] = {
    "crc": (put("I", CRC_POSITION, 0xDEADBEEF, resealed=False), CORRUPT),
    "last byte": (lambda data: data[:-1] + bytes([data[-1] ^ 1]), CORRUPT),
    "length too small": (put("i", LENGTH, 10, resealed=False), CORRUPT),
    "length 0": (put("i", LENGTH, 0, resealed=False), CORRUPT),
    "length negative": (put("i", LENGTH, -1, resealed=False), CORRUPT),
    "length one less": (lambda data: length_off_by(-1, data), CORRUPT),
    "length one more": (lambda data: length_off_by(1, data), INVALID),
    "length enormous": (put("i", LENGTH, 2**31 - 1, resealed=False), INVALID),
    "cut in the header": (lambda data: data[:40], INVALID),
    "cut in the records": (lambda data: data[:-1], INVALID),
    "magic 0": (put("b", MAGIC, 0, resealed=False), INVALID),
    "magic 1": (put("b", MAGIC, 1, resealed=False), INVALID),
    "magic 3": (put("b", MAGIC, 3, resealed=False), CORRUPT),
    "magic -1": (put("b", MAGIC, -1, resealed=False), CORRUPT),
    "count 0": (put("i", COUNT, 0, resealed=True), INVALID),
    "count -1": (put("i", COUNT, -1, resealed=True), INVALID),
    "count one more": (put("i", COUNT, 4, resealed=True), INVALID),
    "count enormous": (put("i", COUNT, 2**31 - 1, resealed=True), INVALID),
    "last delta one more": (put("i", LAST_DELTA, 3, resealed=True), INVALID),
    "last delta negative": (put("i", LAST_DELTA, -1, resealed=True), INVALID),
    "base offset not 0": (put("q", BASE_OFFSET, 5, resealed=True), INVALID),
    "codec 7": (put("h", ATTRIBUTES, 7, resealed=True), INVALID),
    "control batch": (put("h", ATTRIBUTES, 32, resealed=True), INVALID),
    "append time": (put("h", ATTRIBUTES, 8, resealed=True), ErrorCode.INVALID_TIMESTAMP),
    "noise": (lambda data: b"\xa5" * len(data), CORRUPT),
    "zeros": (lambda data: bytes(len(data)), CORRUPT),
}  # fmt: skip


@pytest.mark.parametrize("version", [3, 7, 8, 9, 13])
@pytest.mark.parametrize("how", SPOILED)
def test_a_spoiled_batch_is_refused_and_nothing_of_it_is_stored(
    caller: Caller, topic: str, how: str, version: int
) -> None:
    caller.create_topic(topic)
    caller.produce(topic, batch(b"before"))
    spoil, code = SPOILED[how]
    expected = CORRUPT if code == INVALID and version < 8 else code

    refused = caller.produce(topic, spoil(batch(b"a", b"b", b"c")), version=version)

    assert (refused.error_code, refused.base_offset) == (expected, -1)
    assert bool(refused.error_message) == (version >= 8)
    assert (caller.offset(topic, -1).offset, caller.offset(topic, -2).offset) == (1, 0)
    assert caller.values(topic) == [b"before"]
    assert caller.produce(topic, batch(b"after")).base_offset == 1
    assert caller.values(topic) == [b"before", b"after"]


def test_a_spoiled_batch_between_two_good_ones_of_one_write_leaves_no_hole(
    caller: Caller, topic: str
) -> None:
    caller.create_topic(topic)
    sent = [batch(b"a"), SPOILED["crc"][0](batch(b"x")), batch(b"b"), batch(b"y")[:50], batch(b"c")]

    caller.send_raw(
        b"".join(
            caller.frame(produce_request((topic, 0, records)), 9, number)
            for number, records in enumerate(sent)
        )
    )

    entries = [
        caller.receive(APIS[0], 9, number).responses[0].partition_responses[0]
        for number in range(len(sent))
    ]
    assert [entry.base_offset for entry in entries] == [0, -1, 1, -1, 2]
    assert caller.values(topic) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_rubbish_that_claims_to_be_compressed_is_refused_where_records_are_looked_at(
    caller: Caller, topic: str, codec: int
) -> None:
    caller.create_topic(topic, cleanup_policy="compact")
    rubbish = put("h", ATTRIBUTES, codec, resealed=True)(batch(b"\xa5" * 100))

    refused = caller.produce(topic, rubbish)

    assert refused.error_code in (CORRUPT, INVALID)
    assert caller.end_offset(topic) == 0
