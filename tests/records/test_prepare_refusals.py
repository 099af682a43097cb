"""Produced sets that are not stored, and the error codes; for batches see test_validate."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from protocol.records.builder import build_batch
from protocol.records.errors import CorruptBatch
from protocol.records.layout import INT32
from protocol.records.prepare import prepare
from protocol.records.validate import ProduceRules
from tests.records.appending import (
    NEXT_OFFSET,
    NOW_MS,
    RECORDS,
    THREE_CONTENTS,
    contents,
    crc_of,
    placed,
    read,
    refused,
    sent,
    three,
)
from tests.support.old_sets import STAMPED, message, messages, wrapper

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("data", [b"", bytes(5), three(1)[:30], build_batch(RECORDS)[:-1]])
def test_no_complete_entry_is_nothing_or_from_v3_on_invalid(version: int, data: bytes) -> None:
    view = memoryview(bytearray(data))
    if version < 3:
        assert prepare(view, ProduceRules(), version=version, now_ms=1, next_offset=1) is None
    else:
        refusal = refused(data, ProduceRules(), version=version)
        assert refusal.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("cut", [1, 11, 12, 17, 25])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_half_a_message_at_the_end_is_dropped(magic: int, cut: int) -> None:
    data = message(b"whole", magic=1) + message(b"half", magic=1)[:cut]
    prepared = sent(data, ProduceRules(magic=magic))
    assert [(r.offset, r.value) for r in read(placed(prepared))] == [(NEXT_OFFSET, b"whole")]


@pytest.mark.parametrize("version", [3, 7, 13])
def test_from_v3_on_only_format_2_is_sent(version: int) -> None:
    for magic in (0, 1):
        refusal = refused(three(magic), ProduceRules(magic=magic), version=version)
        assert refusal.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("version", [0, 1, 2])
def test_before_v3_any_format_is_taken_for_what_it_is(version: int) -> None:
    for magic in (0, 1, 2):
        data = build_batch(RECORDS) if magic == 2 else three(magic)
        for topic in (0, 1, 2):
            stored = placed(sent(data, ProduceRules(magic=topic), version=version))
            assert contents(stored) == THREE_CONTENTS


BATCH = build_batch(RECORDS)
NESTED = wrapper(wrapper(three(1), magic=1, offset=2), magic=1)
INVALID = {
    "two batches": BATCH * 2,
    "a batch, then a message": BATCH + three(1),
    "a message, then a batch": three(1) + BATCH,
    "two formats": three(1) + three(0),
    "another format inside": wrapper(three(0), magic=1),
    "a batch inside": wrapper(BATCH, magic=1),
    "a wrapper in a wrapper": NESTED,
    "nothing inside": wrapper(b"", magic=1),
    "half a message inside": wrapper(message(b"v", magic=1)[:20], magic=1),
    "null inside": message(None, magic=1, attributes=GZIP),
    "no gzip": message(b"no gzip", magic=1, attributes=GZIP),
    "zstd": message(b"\x28\xb5\x2f\xfd", magic=1, attributes=ZSTD),
    "codec 5": message(b"v", magic=1, attributes=5),
    "codec 7 in format 0": message(b"v", magic=0, attributes=7),
    "codec 5 after a good message": three(1) + message(b"v", magic=1, attributes=5),
    "an empty wrapper after a good one": wrapper(three(1), magic=1) + wrapper(b"", magic=1),
    "an earlier wrapper offset too low": wrapper(three(1), magic=1, offset=1) + three(1),
}


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("what", INVALID)
def test_what_no_reader_could_read_is_invalid(what: str, magic: int) -> None:
    assert refused(INVALID[what], ProduceRules(magic=magic)).code == ErrorCode.INVALID_RECORD


def spoiled_crc(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


CORRUPT = {
    "size 13": bytes(8) + INT32.pack(13) + bytes(13),
    "size 13, cut": bytes(8) + INT32.pack(13),
    "negative size": bytes(8) + INT32.pack(-1) + bytes(30),
    "magic 3": message(b"v", magic=1)[:16] + b"\3" + bytes(14),
    "crc": spoiled_crc(message(b"v", magic=1)),
    "crc of the second": three(1) + spoiled_crc(message(b"v", magic=1)),
    "crc inside": wrapper(spoiled_crc(three(0)), magic=0),
    "crc inside, format 1": wrapper(spoiled_crc(message(b"v", magic=1)), magic=1),
    "a batch's crc": spoiled_crc(BATCH),
}


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("what", CORRUPT)
def test_damaged_bytes_are_corrupt(what: str, magic: int) -> None:
    assert refused(CORRUPT[what], ProduceRules(magic=magic)).code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [14, 21])
def test_a_message_that_no_consumer_could_read_is_corrupt_although_kafka_stores_it(
    length: int,
) -> None:
    body = b"\1\0" + bytes(length - 6)
    short = bytes(8) + INT32.pack(length) + crc_of(body) + body
    with pytest.raises(CorruptBatch):
        sent(short, ProduceRules(magic=1))
    entry = message(b"value", magic=1)
    body = entry[16:30] + INT32.pack(6) + entry[34:]
    past_its_end = entry[:12] + crc_of(body) + body
    for magic in (0, 1, 2):
        with pytest.raises(CorruptBatch):
            sent(past_its_end, ProduceRules(magic=magic))


@pytest.mark.parametrize("log_append_time", [False, True])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_the_type_bit_of_a_message_is_not_the_producers_to_set(
    magic: int, log_append_time: bool
) -> None:
    rules = ProduceRules(magic=magic, log_append_time=log_append_time)
    stamped = message(b"v", magic=1, attributes=STAMPED, timestamp_ms=5)
    wrapped = wrapper(three(1), magic=1, attributes=STAMPED)
    for data in (stamped, wrapped, three(1) + stamped):
        assert refused(data, rules).code == ErrorCode.INVALID_TIMESTAMP
    # That of an inner message is never looked at, and format 0 has none.
    sent(wrapper(stamped, magic=1), rules)
    sent(message(b"v", magic=0, attributes=STAMPED), rules)


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("source", [0, 1])
def test_a_message_of_a_compacted_topic_needs_a_key(source: int, magic: int) -> None:
    rules = ProduceRules(magic=magic, compacted=True)
    keyless = messages(b"a", b"b", magic=source, keys=(b"k", None))
    keyed = messages(b"a", None, magic=source, keys=(b"k", b""))
    for data in (keyless, wrapper(keyless, magic=source, key=b"this one does not count")):
        assert refused(data, rules).code == ErrorCode.INVALID_RECORD
    for data in (keyed, wrapper(keyed, magic=source)):
        assert contents(placed(sent(data, rules)))[1][1:] == (b"", None)


@pytest.mark.parametrize(
    ("timestamp_ms", "fits"),
    [(NOW_MS - 500, True), (NOW_MS - 501, False), (NOW_MS + 200, True), (NOW_MS + 201, False),
     (-1, True), (-2, False)],
)  # fmt: skip
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_the_window_holds_for_messages_inside_and_outside_of_wrappers(
    magic: int, timestamp_ms: int, fits: bool
) -> None:
    rules = ProduceRules(magic=magic, before_max_ms=500, after_max_ms=200)
    stamping = ProduceRules(magic=magic, before_max_ms=500, after_max_ms=200, log_append_time=True)
    plain = messages(b"a", b"b", magic=1, times_ms=(NOW_MS, timestamp_ms))
    for data in (plain, wrapper(plain, magic=1, timestamp_ms=0)):
        if fits:
            sent(data, rules)
        else:
            assert refused(data, rules).code == ErrorCode.INVALID_TIMESTAMP
        sent(data, stamping)


def test_a_time_at_fault_counts_more_than_a_key() -> None:
    rules = ProduceRules(magic=1, compacted=True, before_max_ms=500)
    data = messages(b"a", b"b", magic=1, keys=(None, b"k"), times_ms=(NOW_MS, 1))
    assert refused(data, rules).code == ErrorCode.INVALID_TIMESTAMP
