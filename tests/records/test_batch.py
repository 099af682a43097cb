from __future__ import annotations

import pytest

from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.errors import InvalidRecord
from protocol.records.layout import DELETE_HORIZON_BIT, HEADER
from tests.records.corpus import reference_crc32c

# Two records at 1500000000000 and 3 ms before it; the first has a header without a value.
BATCH = bytes.fromhex(
    "000000000000000000000044ffffffff02f7483f720000000000010000015d3ef798000000015d3ef79800"
    "ffffffffffffffffffffffffffff00000002"
    "16000000026b027602026801"
    "0c000502010000"
)


def view_of(data: bytes | bytearray) -> Batch:
    return Batch(memoryview(bytearray(data)))


def test_every_field_is_read_where_it_stands() -> None:
    values = (11, 900, 3, 2, 0xFFFFFFFE, 0x34, 6, -5, 77, 1 << 40, 8, 2147483645, 7)
    batch = view_of(HEADER.pack(*values))
    assert batch.header() == values
    assert (batch.base_offset, batch.size, batch.leader_epoch, batch.magic) == (11, 912, 3, 2)
    assert (batch.crc, batch.attributes, batch.codec) == (0xFFFFFFFE, 0x34, 4)
    assert (batch.is_transactional, batch.is_control, batch.timestamp_type) == (True, True, 0)
    assert (batch.last_offset_delta, batch.last_offset) == (6, 17)
    assert (batch.base_timestamp, batch.max_timestamp) == (-5, 77)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (1 << 40, 8, 2**31 - 3)
    assert batch.record_count == 7
    assert not batch.attributes & DELETE_HORIZON_BIT


def test_sequences_go_on_at_zero_after_the_largest() -> None:
    five = [(0, None, None, ())] * 5
    batch = view_of(build_batch(five, producer_id=1, producer_epoch=0, base_sequence=2147483646))
    assert batch.last_sequence == 2
    assert view_of(build_batch(five)).last_sequence == -1


def test_the_records_of_a_known_batch_are_read() -> None:
    first, second = view_of(BATCH).records()
    assert (first.offset, first.timestamp_ms, first.key, first.value) == (
        0,
        1_500_000_000_000,
        b"k",
        b"v",
    )
    assert first.headers == (("h", None),)
    assert (second.offset, second.timestamp_ms) == (1, 1_499_999_999_997)
    assert (second.key, second.value, second.headers) == (None, b"", ())


def test_placing_a_batch_changes_twelve_bytes_and_no_checksum() -> None:
    batch = view_of(BATCH)
    batch.place(1 << 40, 9)
    assert batch.base_offset == 1 << 40
    assert batch.last_offset == (1 << 40) + 1
    assert batch.leader_epoch == 9
    assert batch.is_intact()
    changed = bytes(batch.view)
    assert changed[8:12] == BATCH[8:12]
    assert changed[16:] == BATCH[16:]


def test_log_append_time_becomes_the_time_of_every_record() -> None:
    batch = view_of(BATCH)
    header = batch.stamp_log_append_time(1_700_000_000_000)
    assert header == batch.header()
    assert batch.timestamp_type == 1
    assert batch.crc == reference_crc32c(bytes(batch.view[21:]))
    assert [record.timestamp_ms for record in batch.records()] == [1_700_000_000_000] * 2
    assert bytes(batch.view[61:]) == BATCH[61:]
    assert batch.base_timestamp == 1_500_000_000_000


def test_stamping_the_same_time_again_changes_nothing() -> None:
    batch = view_of(BATCH)
    first = batch.stamp_log_append_time(7)
    assert batch.stamp_log_append_time(7) == first


def test_a_batch_with_something_after_it_ends_where_its_length_says() -> None:
    batch = view_of(BATCH + b"\xff" * 9)
    assert batch.size == len(BATCH)
    assert batch.is_intact()
    assert len(list(batch.records())) == 2


def test_damage_shows_in_the_checksum() -> None:
    for position in (21, 40, 61, len(BATCH) - 1):
        data = bytearray(BATCH)
        data[position] ^= 1
        assert not view_of(data).is_intact()


def test_a_batch_emptied_by_compaction_has_no_records() -> None:
    header = HEADER.pack(6000, 49, 3, 2, 0, 1, 9, -1, 15, 7, 1, 40, 0)
    batch = view_of(header)
    assert list(batch.records()) == []
    assert batch.last_offset == 6009


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_records_under_an_unknown_codec_are_refused(codec: int) -> None:
    data = bytearray(BATCH)
    data[22] = codec
    with pytest.raises(InvalidRecord, match=f"codec {codec}"):
        list(view_of(data).records())


def test_records_are_not_expanded_beyond_the_callers_limit() -> None:
    batch = view_of(build_batch([(0, None, bytes(100_000), ())], codec=1))
    assert len(list(batch.records(limit=100_100))) == 1
    with pytest.raises(InvalidRecord, match=r"beyond 100000 bytes \(max.decompressed.batch.bytes"):
        batch.records(limit=100_000)
