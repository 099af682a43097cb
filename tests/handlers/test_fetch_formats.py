"""Fetch v0 to v18 of logs of every format: each reader gets all records in a form it knows.

The table is records.md 9, rows FE-1 to FE-3; numbers of cases are those of its section 14.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.compression import GZIP, LZ4, NAMES, SNAPPY, ZSTD
from protocol.records.legacy import Message, build_messages
from tests.records.oracle import MemoryRecords
from tests.support.old_reader import Shelf, emptied, magics_of, records_of, with_trailing_hole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOW_MS = 1_700_000_000_000
ROWS = [
    (NOW_MS, b"k", b"v", [("h", b"1"), ("h", None)]),
    (NOW_MS - 5, None, b"", []),
    (NOW_MS + 7, b"", None, []),
]
KEYS_AND_VALUES = [(key, value) for _, key, value, _ in ROWS]
CODECS = [0, GZIP, SNAPPY, LZ4]
#: By Fetch version, the newest format its readers know.
KNOWN = {0: 0, 1: 0, 2: 1, 3: 1, 4: 2, 9: 2, 10: 2, 18: 2}


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    with Shelf(tmp_path / "data") as shelf:
        shelf.topic("t")
        yield shelf


def stored(magic: int, codec: int, base_offset: int = 0) -> bytes:
    """The rows as a topic of this format stores them."""
    if magic == 2:
        return build_batch(ROWS, codec=codec)
    absolute = base_offset if codec and not magic else 0
    return build_messages(ROWS, magic=magic, codec=codec, base_offset=absolute)


def file_bytes(shelf: Shelf) -> bytes:
    active = shelf.log("t").active
    return active.file.pread(active.written_size, 0)


@pytest.mark.parametrize("codec", CODECS, ids=NAMES.__getitem__)
@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("version", KNOWN)
def test_a_reader_gets_stored_bytes_or_the_newest_format_it_knows(
    shelf: Shelf, version: int, magic: int, codec: int
) -> None:
    shelf.store("t", stored(magic, codec), stored(magic, codec, 3))

    entry = shelf.fetch("t", version=version)

    assert (entry.error_code, entry.high_watermark) == (0, 6)
    known = KNOWN[version]
    if magic <= known:
        assert bytes(entry.records) == file_bytes(shelf)
    assert set(magics_of(entry.records)) == {min(magic, known)}
    records = records_of(entry.records)
    assert [record.offset for record in records] == list(range(6))
    assert [(record.key, record.value) for record in records] == KEYS_AND_VALUES * 2
    times = [row[0] for row in ROWS] * 2 if min(magic, known) else [-1] * 6
    assert [record.timestamp_ms for record in records] == times
    assert not any(record.headers for record in records) or min(magic, known) == 2


@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY], ids=NAMES.__getitem__)
@pytest.mark.parametrize("version", [0, 2])
def test_kafka_python_reads_what_is_sent(shelf: Shelf, version: int, codec: int) -> None:
    shelf.store("t", stored(2, codec), stored(1, codec))

    found = []
    offset = 0
    while offset < 6:
        reading = MemoryRecords(bytes(shelf.fetch("t", offset, version=version).records))
        while reading.has_next():
            batch = reading.next_batch()
            assert batch.validate_crc()
            found += [(record.offset, record.key, record.value) for record in batch]
        assert found[-1][0] >= offset, "no progress"
        offset = found[-1][0] + 1

    wanted = [(number, *row) for number, row in enumerate(KEYS_AND_VALUES * 2)]
    assert found == wanted


@pytest.mark.parametrize("version", KNOWN)
def test_all_formats_in_one_segment_read_the_same_for_everybody(shelf: Shelf, version: int) -> None:
    """Cases 30 and 33: a topic went from one format to another and back."""
    base_offset = 0
    for magic, codec in ((2, GZIP), (1, 0), (2, 0), (0, LZ4), (1, SNAPPY), (0, 0), (2, ZSTD)):
        shelf.store("t", stored(magic, codec, base_offset))
        base_offset += len(ROWS)

    for max_bytes in (1 << 20, 150):
        records = shelf.read_all("t", version=version, max_bytes=max_bytes)

        assert [record.offset for record in records] == list(range(21))
        assert [(record.key, record.value) for record in records] == KEYS_AND_VALUES * 7


def test_headers_are_absent_for_a_reader_of_format_1_and_whole_for_one_of_format_2(
    shelf: Shelf,
) -> None:
    """Case 32."""
    shelf.store("t", stored(2, GZIP))

    old, new = (records_of(shelf.fetch("t", version=version).records) for version in (3, 4))

    assert [record.headers for record in old] == [(), (), ()]
    assert [record.headers for record in new] == [(("h", b"1"), ("h", None)), (), ()]


@pytest.mark.parametrize("codec", CODECS, ids=NAMES.__getitem__)
def test_log_append_time_is_told_to_readers_of_format_1(shelf: Shelf, codec: int) -> None:
    """Case 31."""
    shelf.store("t", build_batch(ROWS, codec=codec, log_append_time_ms=5555))

    data = shelf.fetch("t", version=2).records

    first = Message(memoryview(bytes(data)))
    assert (first.timestamp_type, first.timestamp_ms) == (1, 5555)
    assert {record.timestamp_ms for record in records_of(data)} == {5555}


# Where an answer begins


def test_without_a_codec_the_first_message_is_the_one_asked_for(shelf: Shelf) -> None:
    """Case 24: some versions of librdkafka rely on it."""
    shelf.store("t", stored(2, 0), stored(2, 0))

    for offset in range(6):
        records = records_of(shelf.fetch("t", offset, version=1).records)
        assert [record.offset for record in records] == list(range(offset, 6))


def test_with_a_codec_the_whole_wrapper_comes(shelf: Shelf) -> None:
    """Case 25."""
    shelf.store("t", stored(2, GZIP))

    records = records_of(shelf.fetch("t", 2, version=1).records)

    assert [record.offset for record in records] == [0, 1, 2]


# What an older reader is not to see


MARKER = build_batch([(NOW_MS, b"\0\0\0\1", b"\0\0\0\0\0\0", ())], control=True, transactional=True)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize("codec", [0, GZIP], ids=NAMES.__getitem__)
def test_markers_and_emptied_batches_are_stepped_over(
    shelf: Shelf, version: int, codec: int
) -> None:
    """Case 26."""
    shelf.store("t", MARKER, emptied(stored(2, 0)), MARKER, stored(2, codec), MARKER)

    for offset in range(6):
        entry = shelf.fetch("t", offset, version=version)
        assert [record.offset for record in records_of(entry.records)] == [5, 6, 7], offset
    assert shelf.read_all("t", version=version)[-1].offset == 7


@pytest.mark.parametrize("version", [4, 18])
def test_readers_of_format_2_get_markers_and_emptied_batches(shelf: Shelf, version: int) -> None:
    shelf.store("t", MARKER, emptied(stored(2, 0)), stored(2, 0))

    assert bytes(shelf.fetch("t", version=version).records) == file_bytes(shelf)


def test_markers_are_stepped_over_into_the_next_segments(tmp_path: Path) -> None:
    with Shelf(tmp_path / "data") as shelf:
        shelf.topic("t", segment_bytes="200")
        shelf.store("t", stored(2, 0), *[MARKER] * 7, stored(2, 0), MARKER)
        assert len(shelf.log("t").segments) > 3

        entry = shelf.fetch("t", 3, version=0)

        assert [record.offset for record in records_of(entry.records)] == [10, 11, 12]


@pytest.mark.parametrize("codec", [0, GZIP], ids=NAMES.__getitem__)
def test_the_trailing_hole_of_a_batch_leads_to_the_next_batch(shelf: Shelf, codec: int) -> None:
    """Case 27: offsets 0 to 9, of which compaction left 0 to 2."""
    shelf.store("t", with_trailing_hole(stored(2, codec), 7), stored(2, codec))

    for offset in (3, 6, 9, 10):
        records = records_of(shelf.fetch("t", offset, version=1).records)
        assert [record.offset for record in records] == [10, 11, 12]


def test_more_markers_than_one_turn_of_the_loop_goes_through_do_not_stall(shelf: Shelf) -> None:
    log = shelf.log("t")
    for _ in range(5000):
        view = memoryview(bytearray(MARKER))
        log.append(view, Batch(view).header(), now_ms=NOW_MS)
    log.write()
    shelf.store("t", stored(2, 0))

    entry = shelf.fetch("t", 0, version=2)

    assert [record.offset for record in records_of(entry.records)] == [5000, 5001, 5002]


# zstd


@pytest.mark.parametrize("version", [0, 3, 4, 9])
def test_zstd_reaches_readers_that_do_not_know_it_as_gzip(shelf: Shelf, version: int) -> None:
    """Case 22, ours: Kafka answers 76."""
    shelf.store("t", stored(2, SNAPPY), stored(2, ZSTD), stored(2, SNAPPY))

    records = shelf.read_all("t", version=version)
    entry = shelf.fetch("t", 3, version=version)

    assert [(record.key, record.value) for record in records] == KEYS_AND_VALUES * 3
    view = memoryview(bytes(entry.records))
    codec = Batch(view).codec if version >= 4 else Message(view).codec
    assert codec == GZIP
    assert [record.offset for record in records_of(entry.records)] == list(range(3, 9))


@pytest.mark.parametrize("version", [10, 12, 18])
def test_zstd_goes_untouched_to_readers_that_know_it(shelf: Shelf, version: int) -> None:
    shelf.store("t", stored(2, ZSTD))

    assert bytes(shelf.fetch("t", version=version).records) == file_bytes(shelf)
    assert shelf.conversions.converted_entries == shelf.conversions.misses == 0


def test_the_batches_in_front_of_zstd_go_untouched(shelf: Shelf) -> None:
    """Case 23, ours: the next fetch brings what Kafka answers 76 for."""
    shelf.store("t", stored(2, GZIP), stored(2, ZSTD))

    first, second = (shelf.fetch("t", offset, version=4) for offset in (0, 3))

    assert bytes(first.records) == file_bytes(shelf)[: len(stored(2, GZIP))]
    assert [record.offset for record in records_of(second.records)] == [3, 4, 5]


# Conversion switched off, and what cannot be converted


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (0, ErrorCode.UNSUPPORTED_VERSION),
        (3, ErrorCode.UNSUPPORTED_VERSION),
        (4, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (9, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_where_conversion_is_switched_off_it_is_told(
    shelf: Shelf, version: int, code: ErrorCode
) -> None:
    shelf.topic("as-is", message_downconversion_enable="false")
    shelf.store("as-is", stored(0, 0), MARKER, stored(2, ZSTD))

    as_is = shelf.fetch("as-is", 0, version=version)
    refused = shelf.fetch("as-is", 4, version=version)
    at_end = shelf.fetch("as-is", 7, version=version)

    assert [record.offset for record in records_of(as_is.records)] == [0, 1, 2]
    assert (as_is.error_code, at_end.error_code, refused.error_code) == (0, 0, code)
    assert (refused.high_watermark, bytes(refused.records)) == (-1, b"")
    assert shelf.conversions.converted_entries == 0


def damaged(data: bytes) -> bytes:
    changed = bytearray(data)
    changed[-1] ^= 1
    return bytes(changed)


@pytest.mark.parametrize("codec", [0, GZIP, ZSTD], ids=NAMES.__getitem__)
@pytest.mark.parametrize("version", [0, 2, 3])
def test_what_comes_before_a_damaged_batch_is_sent_and_then_an_error(
    shelf: Shelf, version: int, codec: int
) -> None:
    shelf.store("t", stored(2, codec), damaged(stored(2, codec)), stored(2, codec))

    before, at, behind = (shelf.fetch("t", offset, version=version) for offset in (0, 3, 6))

    assert [record.offset for record in records_of(before.records)] == [0, 1, 2]
    assert at.error_code == ErrorCode.CORRUPT_MESSAGE
    assert [record.offset for record in records_of(behind.records)] == [6, 7, 8]
    assert shelf.conversions.failures == 1, "a failure is remembered"


def test_a_bomb_is_an_error_for_a_reader_that_needs_it_converted(tmp_path: Path) -> None:
    with Shelf(tmp_path / "data", max_decompressed_batch_bytes="2000000") as shelf:
        shelf.topic("t")
        shelf.store("t", build_batch([(NOW_MS, None, bytes(3_000_000), ())], codec=GZIP))

        old, new = (shelf.fetch("t", version=version) for version in (2, 4))

    assert old.error_code == ErrorCode.CORRUPT_MESSAGE
    assert new.error_code == 0
    assert len(new.records) > 0


@pytest.mark.parametrize("version", [0, 3, 4])
def test_offsets_outside_of_the_log_are_told(shelf: Shelf, version: int) -> None:
    shelf.store("t", stored(2, GZIP))

    codes = [shelf.fetch("t", offset, version=version).error_code for offset in (-1, 3, 4)]

    assert codes == [ErrorCode.OFFSET_OUT_OF_RANGE, 0, ErrorCode.OFFSET_OUT_OF_RANGE]
