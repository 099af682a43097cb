"""Produced sets that stay as they came or are made anew, and their content then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.records import compression
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.layout import (
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    INT32,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    MAX_TIMESTAMP_POSITION,
    PRODUCER_ID,
)
from protocol.records.validate import ProduceRules, Validation
from tests.records.appending import (
    NEXT_OFFSET,
    NOW_MS,
    RECORDS,
    THREE_CONTENTS,
    TIMES,
    contents,
    crc_of,
    header_of,
    placed,
    read,
    refused,
    sent,
    stays,
    three,
    time_index_entry,
    times,
)
from tests.records.corpus import raw, reseal, sets
from tests.support.old_sets import STAMPED, entries, message, messages, wrapper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.records.builder import RecordFields


GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4

# Format 0 and 1, in place.


@pytest.mark.parametrize("offsets", [(0, 1, 2), (0, 0, 0), (-1, -1, -1), (9, 7, 8)])
@pytest.mark.parametrize("magic", [0, 1])
def test_plain_messages_of_the_topics_format_get_their_offsets_where_they_lie(
    magic: int, offsets: Sequence[int]
) -> None:
    data = three(magic, offsets=offsets)
    stored = placed(stays(data, ProduceRules(magic=magic)))
    assert contents(stored) == THREE_CONTENTS
    assert stored == three(magic, offsets=range(NEXT_OFFSET, NEXT_OFFSET + 3))


@pytest.mark.parametrize("log_append_time", [False, True])
@pytest.mark.parametrize("wrapper_offset", [0, 2])
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_a_wrapper_with_inner_offsets_from_0_is_placed_without_recompression(
    codec: int, wrapper_offset: int, log_append_time: bool
) -> None:
    payload = three(1)
    data = wrapper(payload, magic=1, codec=codec, offset=wrapper_offset, timestamp_ms=0)
    prepared = stays(data, ProduceRules(magic=1, log_append_time=log_append_time))
    stored = placed(prepared)
    # Timestamp, type, offset and checksum are all that changes, and they lie before byte 26.
    assert stored[26:] == data[26:]
    (entry,) = entries(stored)
    assert entry.offset == NEXT_OFFSET + 2
    assert entry.stamped == log_append_time
    assert entry.timestamp_ms == (NOW_MS if log_append_time else max(TIMES))
    assert contents(stored) == THREE_CONTENTS
    assert times(stored) == ([NOW_MS] * 3 if log_append_time else list(TIMES))
    assert time_index_entry(prepared) == (entry.timestamp_ms, NEXT_OFFSET + 2)


def test_a_wrapper_that_says_the_truth_keeps_its_checksum() -> None:
    data = wrapper(three(1), magic=1, offset=2, timestamp_ms=max(TIMES))
    stored = placed(stays(data, ProduceRules(magic=1)))
    assert stored[8:] == data[8:]


def test_plain_messages_under_log_append_time_are_stamped_one_by_one() -> None:
    data = three(1)
    prepared = stays(data, ProduceRules(magic=1, log_append_time=True))
    stored = placed(prepared)
    assert contents(stored) == THREE_CONTENTS
    assert {(entry.timestamp_ms, entry.attributes) for entry in entries(stored)} == {
        (NOW_MS, STAMPED)
    }
    assert time_index_entry(prepared) == (NOW_MS, NEXT_OFFSET)


def test_format_0_has_no_time_to_stamp() -> None:
    rules = ProduceRules(magic=0, log_append_time=True)
    prepared = stays(three(0), rules)
    assert placed(prepared) == three(0, offsets=range(NEXT_OFFSET, NEXT_OFFSET + 3))
    assert time_index_entry(prepared) == (-1, -1)


def test_the_time_index_names_the_first_of_the_newest_plain_messages() -> None:
    data = messages(b"a", b"b", b"c", magic=1, times_ms=(3, 7, 7))
    assert time_index_entry(stays(data, ProduceRules(magic=1))) == (7, NEXT_OFFSET + 1)


# Format 0 and 1, made anew.


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_a_wrapper_of_format_0_gets_absolute_offsets_inside(codec: int) -> None:
    for inner in ((0, 1, 2), (0, 0, 0)):  # librdkafka's, and those of Java 0.8 and kafka-python
        data = wrapper(three(0, offsets=inner), magic=0, codec=codec, key=b"a key means nothing")
        prepared = sent(data, ProduceRules(magic=0))
        assert prepared.rebuilt
        assert prepared.built_for == NEXT_OFFSET
        stored = placed(prepared)
        (entry,) = entries(stored)
        assert (entry.offset, entry.codec, entry.key) == (NEXT_OFFSET + 2, codec, None)
        assert [one.offset for one in entry.inner()] == [
            NEXT_OFFSET,
            NEXT_OFFSET + 1,
            NEXT_OFFSET + 2,
        ]
        assert contents(stored) == THREE_CONTENTS


@pytest.mark.parametrize(
    ("wrapper_offset", "inner"),
    [(5, (0, 1, 2)), (100, (0, 1, 2)), (0, (0, 0, 0)), (2, (0, 1, 2, 0)), (4, (0, 2, 4)),
     (2, (-1, 0, 1)), (0, (1, 2, 3)), (9, (2, 1, 0))],
)  # fmt: skip
def test_other_inner_offsets_are_made_to_count_from_0(
    wrapper_offset: int, inner: tuple[int, ...]
) -> None:
    values = [bytes([65 + index]) for index in range(len(inner))]
    payload = messages(*values, magic=1, offsets=inner)
    prepared = sent(wrapper(payload, magic=1, offset=wrapper_offset), ProduceRules(magic=1))
    assert prepared.rebuilt
    assert prepared.built_for is None
    stored = placed(prepared)
    (entry,) = entries(stored)
    assert [one.offset for one in entry.inner()] == list(range(len(inner)))
    assert entry.offset == NEXT_OFFSET + len(inner) - 1
    assert [record.value for record in read(stored)] == values


@pytest.mark.parametrize("wrapper_offset", [1, -1, -(2**63)])
def test_a_wrapper_offset_below_the_last_inner_one_is_invalid_unless_it_is_0(
    wrapper_offset: int,
) -> None:
    data = wrapper(three(1), magic=1, offset=wrapper_offset)
    for magic in (0, 1, 2):
        assert refused(data, ProduceRules(magic=magic)).code == ErrorCode.INVALID_RECORD
    # The offset of a format 0 wrapper is no promise of anything.
    sent(wrapper(three(0), magic=0, offset=wrapper_offset), ProduceRules(magic=0))


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("source", [0, 1])
def test_several_wrappers_are_flattened_in_their_order(source: int, magic: int) -> None:
    # As brokers of 0.8 did for their producers; later ones refuse the set.
    first, second = messages(b"a", b"b", magic=source), messages(b"d", b"e", magic=source)
    plain = messages(b"c", magic=source)
    data = (
        wrapper(first, magic=source, codec=SNAPPY)
        + plain
        + wrapper(second, magic=source, codec=GZIP)
        + messages(b"f", b"g", magic=source)
    )
    prepared = sent(data + data[:20], ProduceRules(magic=magic))
    assert prepared.rebuilt
    stored = placed(prepared)
    assert [(record.offset, record.value) for record in read(stored)] == [
        (NEXT_OFFSET + index, bytes([97 + index])) for index in range(7)
    ]
    # The codec of the last wrapper is the set's.
    codec = Batch(memoryview(stored)).codec if magic == 2 else entries(stored)[0].codec
    assert codec == GZIP
    if magic == 1 == source:
        newest = max(record.timestamp_ms for record in read(stored))
        assert time_index_entry(prepared) == (newest, NEXT_OFFSET + 6)


@pytest.mark.parametrize("spare", [b"\0", b"spare bytes"])
def test_spare_bytes_after_a_value_are_dropped_when_a_set_is_made_anew(spare: bytes) -> None:
    entry = message(b"v", magic=1, key=b"k", timestamp_ms=5)
    body = entry[16:] + spare
    spoiled = entry[:8] + INT32.pack(len(body) + 4) + crc_of(body) + body
    assert placed(sent(spoiled, ProduceRules(magic=1)))[8:] == spoiled[8:]
    for magic in (0, 2):
        (record,) = read(placed(sent(spoiled, ProduceRules(magic=magic))))
        assert (record.key, record.value) == (b"k", b"v")
    stamped = placed(sent(spoiled * 2, ProduceRules(magic=1, log_append_time=True)))
    assert [(entry.value, entry.timestamp_ms) for entry in entries(stamped)] == [(b"v", NOW_MS)] * 2


# From one format to another.


def test_lz4_of_java_0_8_with_its_broken_checksum_is_readable_in_every_format() -> None:
    (vector,) = [v for v in sets(0) if v["id"] == "java-0.8.2.2-v0-lz4-basic3"]
    data = raw(vector["bytes"])
    assert data[26:33].hex() == "04224d1860401a"
    expected = [record["key"] for entry in vector["expect"] for record in entry["records"]]
    for magic, checksum in ((0, "1a"), (1, "82"), (2, "82")):
        stored = placed(sent(data, ProduceRules(magic=magic), version=0))
        payload_at = (26, 34, 61)[magic]
        assert stored[payload_at : payload_at + 7].hex() == "04224d186040" + checksum
        assert len(read(stored)) == len(expected)


def test_the_lz4_checksum_counts_from_format_1_on() -> None:
    for magic in (0, 1):
        frame = compression.compress(LZ4, three(magic), magic=magic)
        wrong = frame[:6] + bytes([frame[6] ^ 0xFF]) + frame[7:]
        data = message(wrong, magic=magic, attributes=LZ4)
        if magic:
            assert refused(data, ProduceRules(magic=1)).code == ErrorCode.INVALID_RECORD
        else:
            assert contents(placed(sent(data, ProduceRules(magic=0)))) == THREE_CONTENTS


def test_lz4_with_linked_blocks_is_refused_as_kafkas_readers_would() -> None:
    import lz4.frame

    payload = messages(bytes(100_000), magic=1)
    linked = lz4.frame.compress(payload, block_linked=True)
    data = message(linked, magic=1, attributes=LZ4)
    assert refused(data, ProduceRules(magic=1)).code == ErrorCode.INVALID_RECORD
    free = lz4.frame.compress(payload, block_linked=False)
    stays(message(free, magic=1, attributes=LZ4), ProduceRules(magic=1))


def test_snappy_is_read_raw_and_in_blocks_whatever_their_framing_says() -> None:
    import cramjam

    payload = messages(b"value " * 900, magic=1, times_ms=(1,))
    header = b"\x82SNAPPY\0"
    blocks = [
        bytes(cramjam.snappy.compress_raw(payload[at : at + 1024]))
        for at in range(0, len(payload), 1024)
    ]
    framed = b"".join(INT32.pack(len(block)) + block for block in blocks)
    streams = {
        "raw": bytes(cramjam.snappy.compress_raw(payload)),
        "blocks of 1 KiB": header + INT32.pack(1) * 2 + framed,
        "versions in the wrong byte order": header + b"\1\0\0\0" * 2 + framed,
    }
    for stream in streams.values():
        data = message(stream, magic=1, attributes=SNAPPY, timestamp_ms=0)
        stored = placed(stays(data, ProduceRules(magic=1)))
        assert [record.value for record in read(stored)] == [b"value " * 900]


@pytest.mark.parametrize("log_append_time", [False, True])
@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4])
@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("source", [0, 1, 2])
def test_any_format_becomes_the_topics_with_nothing_lost_that_has_a_place(
    source: int, magic: int, codec: int, log_append_time: bool
) -> None:
    if source == 2:
        data = build_batch(RECORDS, codec=codec)
    else:
        data = wrapper(three(source), magic=source, codec=codec) if codec else three(source)
    rules = ProduceRules(magic=magic, log_append_time=log_append_time)
    prepared = sent(data, rules)
    stored = placed(prepared)
    assert contents(stored) == THREE_CONTENTS
    if magic == 0:
        assert set(times(stored)) == {-1}
    elif log_append_time:
        assert set(times(stored)) == {NOW_MS}
    elif source == 0:
        assert set(times(stored)) == {-1}
    else:
        assert times(stored) == list(TIMES)
    assert prepared.rebuilt == (source != magic or (magic == 0 and codec > 0))


def test_a_batch_made_of_messages_has_the_first_ones_time_as_base_also_under_log_append_time() -> (
    None
):
    header = header_of(sent(three(1), ProduceRules(log_append_time=True)))
    assert (header[BASE_TIMESTAMP], header[MAX_TIMESTAMP]) == (TIMES[0], NOW_MS)
    header = header_of(sent(three(0), ProduceRules(log_append_time=True)))
    assert (header[BASE_TIMESTAMP], header[MAX_TIMESTAMP]) == (-1, NOW_MS)
    header = header_of(sent(three(0), ProduceRules()))
    assert (header[BASE_TIMESTAMP], header[MAX_TIMESTAMP]) == (-1, -1)


@pytest.mark.parametrize("timestamp_ms", [-2, -1000, -(2**63), 2**63 - 1])
@pytest.mark.parametrize("magic", [1, 2])
def test_a_time_before_1970_is_kept(magic: int, timestamp_ms: int) -> None:
    data = messages(b"a", b"b", magic=1, times_ms=(timestamp_ms, 5))
    for codec in (None, GZIP):
        stored = placed(sent(data, ProduceRules(magic=magic, codec=codec)))
        assert times(stored) == [timestamp_ms, 5]


@pytest.mark.parametrize("magic", [0, 1])
def test_what_a_topics_format_has_no_place_for_has_a_code_of_its_own(magic: int) -> None:
    rules = ProduceRules(magic=magic)
    for data in (
        build_batch(RECORDS, producer_id=7, producer_epoch=0, base_sequence=0),
        build_batch(RECORDS, transactional=True),
        build_batch([(NOW_MS, b"k", b"v", [("name", b"value")])], codec=GZIP),
    ):
        refusal = refused(data, rules, version=9)
        assert refusal.code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        sent(data, ProduceRules(), version=9)


# Format 2.


@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("wanted", [0, GZIP, SNAPPY, LZ4, ZSTD])
def test_a_batch_in_another_codec_than_the_topics_is_compressed_anew(
    codec: int, wanted: int
) -> None:
    ids = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 5, "transactional": True}
    headers = [("name", b"value"), ("", None), ("name", b"")]
    records: list[RecordFields] = [(time, key, value, headers) for time, key, value, _ in RECORDS]
    data = build_batch(records, codec=codec, **ids)  # type: ignore[arg-type]
    prepared = sent(data, ProduceRules(codec=wanted), version=9)
    assert prepared.rebuilt == (codec != wanted)
    stored = placed(prepared, leader_epoch=3)
    batch = Batch(memoryview(stored))
    assert (batch.codec, batch.leader_epoch, batch.is_transactional) == (wanted, 3, True)
    assert batch.header()[PRODUCER_ID : BASE_SEQUENCE + 1] == (7, 2, 5)
    assert list(batch.records()) == list(
        Batch(memoryview(build_batch(records, base_offset=NEXT_OFFSET))).records()
    )


def test_zstd_needs_produce_v7_and_format_2() -> None:
    data = build_batch(RECORDS, codec=ZSTD)
    for version, magic in ((2, 2), (3, 2), (6, 2), (7, 0), (7, 1), (9, 1)):
        refusal = refused(data, ProduceRules(magic=magic), version=version)
        assert refusal.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    sent(data, ProduceRules(), version=7)
    assert sent(data, ProduceRules(magic=1, codec=GZIP), version=7).rebuilt


def with_deltas(*deltas: int) -> bytearray:
    data = bytearray(build_batch([(5 * index, b"k", b"v", ()) for index in range(len(deltas))]))
    size = (len(data) - 61) // len(deltas)
    for index, delta in enumerate(deltas):
        data[61 + index * size + 3] = delta * 2
    return reseal(data)


@pytest.mark.parametrize("deltas", [(0, 0, 0), (2, 1, 0), (0, 1, 5)])
def test_wrong_deltas_of_a_plain_batch_are_put_right_where_records_are_walked(
    deltas: tuple[int, ...],
) -> None:
    # Kafka stores them, and its consumers see offsets twice or out of order.
    data = with_deltas(*deltas)
    for validation in (Validation.RECORDS, Validation.STRICT):
        prepared = sent(data, ProduceRules(validation=validation), version=9)
        assert prepared.rebuilt
        assert placed(prepared) == placed(sent(with_deltas(0, 1, 2), ProduceRules(), version=9))
    stays(data, ProduceRules(validation=Validation.HEADER), version=9)
    for magic in (0, 1):
        stored = placed(sent(data, ProduceRules(magic=magic), version=9))
        assert [record.offset for record in read(stored)] == [1000, 1001, 1002]
    coded = placed(sent(data, ProduceRules(codec=GZIP), version=9))
    assert [record.offset for record in read(coded)] == [1000, 1001, 1002]


@pytest.mark.parametrize("codec", [0, GZIP])
def test_log_append_time_is_written_into_the_header_of_a_batch_only(codec: int) -> None:
    data = build_batch(RECORDS, codec=codec)
    prepared = stays(
        data, ProduceRules(log_append_time=True, validation=Validation.STRICT), version=9
    )
    stored = placed(prepared)
    assert stored[61:] == data[61:]
    assert header_of(prepared)[BASE_TIMESTAMP] == TIMES[0]
    assert times(stored) == [NOW_MS] * 3


def test_a_wrong_max_timestamp_is_put_right_and_the_payload_stays() -> None:
    data = bytearray(build_batch(RECORDS, codec=GZIP))
    for wrong in (b"\0" * 8, b"\x7f" * 8):
        data[MAX_TIMESTAMP_POSITION : MAX_TIMESTAMP_POSITION + 8] = wrong
        for validation in (Validation.RECORDS, Validation.STRICT):
            rules = ProduceRules(validation=validation)
            stored = placed(stays(bytes(reseal(data)), rules, version=9))
            assert Batch(memoryview(stored)).is_intact()
            assert Batch(memoryview(stored)).max_timestamp == max(TIMES)
            assert stored[61:] == data[61:]


def test_sequences_may_pass_the_largest_number() -> None:
    data = build_batch(RECORDS * 2, producer_id=7, producer_epoch=0, base_sequence=2**31 - 2)
    header = header_of(stays(data, ProduceRules(validation=Validation.STRICT), version=9))
    assert (header[BASE_SEQUENCE], header[LAST_OFFSET_DELTA]) == (2**31 - 2, 5)
