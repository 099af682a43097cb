"""Fetch v12 and later of clients that misread entries of format 0 and 1: they get format 2.

librdkafka 2.6.0 sends at least v12 whatever it is offered; other programs around librdkafka do not
say which release of it is inside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.compression import GZIP, LZ4, NAMES, SNAPPY, ZSTD
from protocol.records.legacy import build_messages
from tests.handlers.test_fetch_formats import CODECS, KEYS_AND_VALUES, NOW_MS, ROWS, stored
from tests.support.old_reader import Shelf, magics_of, records_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.old_reader import Reader

NO_SESSION, NEW_SESSION = -1, 0


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    with Shelf(tmp_path / "data") as shelf:
        shelf.topic("t", message_downconversion_enable="false")
        yield shelf


def client(shelf: Shelf, name: str = "librdkafka", release: str = "2.6.0") -> Reader:
    reader = shelf.reader()
    reader.introduce(name, release)
    return reader


@pytest.mark.parametrize("codec", CODECS, ids=NAMES.__getitem__)
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("version", [12, 16])
def test_old_entries_are_sent_as_batches(
    shelf: Shelf, version: int, magic: int, codec: int
) -> None:
    shelf.store("t", stored(magic, codec), stored(magic, codec, 3))

    entry = shelf.fetch("t", version=version, reader=client(shelf))

    assert (entry.error_code, entry.high_watermark) == (0, 6)
    assert set(magics_of(entry.records)) == {2}
    assert Batch(memoryview(bytes(entry.records))).codec == codec
    records = records_of(entry.records)
    assert [record.offset for record in records] == list(range(6))
    assert [(record.key, record.value) for record in records] == KEYS_AND_VALUES * 2
    times = [row[0] if magic else -1 for row in ROWS] * 2
    assert [record.timestamp_ms for record in records] == times


@pytest.mark.parametrize("max_bytes", [1 << 20, 150])
def test_all_formats_in_one_segment_are_read_from_any_offset(shelf: Shelf, max_bytes: int) -> None:
    base_offset = 0
    for magic, codec in ((2, GZIP), (1, 0), (0, 0), (2, 0), (0, LZ4), (1, SNAPPY), (2, ZSTD)):
        shelf.store("t", stored(magic, codec, base_offset))
        base_offset += len(ROWS)
    reader = client(shelf)

    for start in range(base_offset):
        offset, found = start, []
        while offset < base_offset:
            entry = shelf.fetch("t", offset, version=16, max_bytes=max_bytes, reader=reader)
            records = [one for one in records_of(entry.records) if one.offset >= offset]
            assert set(magics_of(entry.records)) == {2}
            assert records, "no progress"
            found += [(one.offset, one.key, one.value) for one in records]
            offset = records[-1].offset + 1

        wanted = [(n, *row) for n, row in enumerate(KEYS_AND_VALUES * (base_offset // 3))]
        assert found == wanted[start:]


@pytest.mark.parametrize("codec", [0, GZIP], ids=NAMES.__getitem__)
def test_a_time_that_the_broker_gave_is_marked_so(shelf: Shelf, codec: int) -> None:
    for time_ms in (NOW_MS, NOW_MS + 5):
        shelf.store("t", build_messages(ROWS, magic=1, codec=codec, append_time_ms=time_ms))

    entry = shelf.fetch("t", version=16, reader=client(shelf))

    data = memoryview(bytes(entry.records))
    first = Batch(data)
    for batch, time_ms in ((first, NOW_MS), (Batch(data[first.size :]), NOW_MS + 5)):
        assert (batch.timestamp_type, batch.max_timestamp, batch.record_count) == (1, time_ms, 3)


@pytest.mark.parametrize(
    ("name", "release", "epoch", "magic"),
    [
        ("librdkafka", "2.5.0", NO_SESSION, 2),
        ("confluent-kafka-dotnet", "2.6.0", NO_SESSION, 2),
        ("ClickHouse", "ClickHouse-25.8", NO_SESSION, 2),
        ("nobody-knows", "1.0", NO_SESSION, 2),
        ("nobody-knows", "1.0", NEW_SESSION, 1),
        ("librdkafka", "2.15.1", NO_SESSION, 1),
        ("librdkafka", "2.4.0", NO_SESSION, 1),
        ("apache-kafka-java", "2.6.0", NO_SESSION, 1),
    ],
)
def test_who_may_misread_them_is_told_by_name_release_and_session(
    shelf: Shelf, name: str, release: str, epoch: int, magic: int
) -> None:
    shelf.store("t", stored(1, 0))

    entry = shelf.fetch("t", version=16, reader=client(shelf, name, release), session_epoch=epoch)

    assert set(magics_of(entry.records)) == {magic}


def test_up_to_v11_everybody_gets_them_as_they_are_stored(shelf: Shelf) -> None:
    shelf.store("t", stored(1, 0))

    assert set(magics_of(shelf.fetch("t", version=11, reader=client(shelf)).records)) == {1}


def test_batches_come_out_of_the_file_as_they_are(shelf: Shelf) -> None:
    shelf.store("t", build_batch(ROWS, codec=ZSTD), build_batch(ROWS))

    entry = shelf.fetch("t", version=16, reader=client(shelf))

    active = shelf.log("t").active
    assert bytes(entry.records) == active.file.pread(active.written_size, 0)
    assert shelf.conversions.converted_entries == 0
