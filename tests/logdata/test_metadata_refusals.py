"""Bytes that are no metadata: a clear refusal, and nothing but `Malformed` whatever they are."""

from __future__ import annotations

import contextlib
import os
from random import Random
from typing import TYPE_CHECKING

import pytest

from protocol.errors import Malformed
from protocol.logdata.metadata import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    MetadataRecord,
    TopicRecord,
    UnknownRecord,
    control_batch,
    decode_control,
    decode_record,
    encode_control,
    encode_record,
    metadata_batch,
    read_batch,
)
from protocol.records.builder import build_batch, wrap_records
from protocol.records.crc import crc32c
from protocol.records.layout import (
    ATTRIBUTES_POSITION,
    CHECKED_POSITION,
    CRC_POSITION,
    HEADER_SIZE,
    INT32,
    LAST_OFFSET_DELTA_POSITION,
    LENGTH_POSITION,
    RECORD_COUNT_POSITION,
    UINT32,
)
from tests.logdata.test_metadata_golden import (
    BOOTSTRAP_BATCH,
    CHECKPOINT,
    CONTROL,
    LEADER_BATCH,
    RECORDS,
)

if TYPE_CHECKING:
    from protocol.records.builder import RecordFields

SEED = int(os.environ.get("FUZZ_SEED", "20266"))
ROUNDS = 6_000 * int(os.environ.get("TEST_FUZZ_FACTOR", "1"))
EDGES = (0, 1, 2, 3, 0x7F, 0x80, 0xFF)

TOPIC = encode_record(TopicRecord(name="t1", topic_id=bytes(range(16))))
NOW_MS = 1_700_000_000_000


def batch_of(count: int, *, base_offset: int = 40) -> bytearray:
    values = [TOPIC] * count
    return metadata_batch(values, base_offset=base_offset, epoch=3, timestamp_ms=NOW_MS)


def sealed(data: bytearray) -> bytearray:
    UINT32.pack_into(data, CRC_POSITION, crc32c(memoryview(data)[CHECKED_POSITION:]))
    return data


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"", "0 bytes without a whole frame"),
        (b"\x01\x02", "2 bytes without a whole frame"),
        (b"\x00\x14\x00\x00", "frame of version 0, known is 1"),
        (b"\x02\x14\x00\x00", "frame of version 2, known is 1"),
        (b"\x01\x06\x00\x00", "api key 6, known are 0, 1, 2, 3, 4, 5, 7"),
        (b"\x01\x1e\x00\x00", "api key 30"),
        (b"\x01\xac\x02\x00\x00", "api key 300"),
        (b"\x01\x02\x01" + TOPIC[3:], "TopicRecord of version 1, known are 0"),
        (b"\x01\x03\x03" + bytes(60), "PartitionRecord of version 3, known are 0-2"),
        (b"\x01\x02\x80\x80\x04" + TOPIC[3:], "TopicRecord of version 65536, known are 0"),
        (TOPIC + b"\x00", "TopicRecord v0: 1 bytes of garbage after the message"),
        (TOPIC[:-4], "TopicRecord v0: "),
        (b"\x01\x02\x00\x00" + TOPIC[6:], "TopicRecord v0: "),
    ],
)
def test_a_value_that_is_no_known_record_is_refused_by_what_was_found(
    value: bytes, said: str
) -> None:
    for data in (value, memoryview(value), bytearray(value)):
        with pytest.raises(UnknownRecord, match=said):
            decode_record(data)


def test_a_frame_in_longer_varints_is_read_as_kafka_reads_it() -> None:
    value = b"\x81\x00\x82\x80\x00\x80\x00" + TOPIC[3:]
    assert decode_record(value) == decode_record(TOPIC)
    with pytest.raises(UnknownRecord, match="TopicRecord v0: 2 bytes of garbage"):
        decode_record(value + b"\x00\x00")


LEADER_KEY, LEADER_VALUE = (bytes.fromhex(text) for text in CONTROL["leader"][1:])


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (None, LEADER_VALUE, "without a key"),
        (LEADER_KEY, None, "without a value"),
        (LEADER_KEY + b"\x00", LEADER_VALUE, "has 5 bytes, not 4"),
        (b"\x00\x01\x00\x02", LEADER_VALUE, "type 2 with a key of version 1"),
        (b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00", "type 1 with a key of version 0"),
        (b"\x00\x00\x00\x07", b"\x00\x00\x00", "type 7"),
        (LEADER_KEY, b"\x00", "LeaderChangeMessage of 1 bytes"),
        (LEADER_KEY, b"\x00\x02" + LEADER_VALUE[2:], "version 2, known are 0-1"),
        (LEADER_KEY, LEADER_VALUE + b"\x00", "LeaderChangeMessage v0: 1 bytes after"),
        (LEADER_KEY, LEADER_VALUE[:-1], "LeaderChangeMessage v0: "),
    ],
)
def test_a_control_record_that_is_not_known_is_refused_by_what_was_found(
    key: bytes | None, value: bytes | None, said: str
) -> None:
    with pytest.raises(UnknownRecord, match=said):
        decode_control(key, value)


def test_a_control_record_names_its_version() -> None:
    voter = LeaderChangeMessage.Voter(voter_id=1, voter_directory_id=bytes(range(16)))
    change = LeaderChangeMessage(version=1, leader_id=1, voters=[voter], granting_voters=[voter])
    assert decode_control(*encode_control(change)) == change
    with pytest.raises(ValueError, match=r"version=2.*versions are 0-1"):
        encode_control(LeaderChangeMessage(version=2, leader_id=1, voters=[], granting_voters=[]))
    with pytest.raises(ValueError, match="k_raft_version"):
        encode_control(KRaftVersionRecord(k_raft_version=1 << 20))


@pytest.mark.parametrize("count", [1, 63, 64, 65, 1024, 9000])
def test_a_batch_of_any_size_is_read_back(count: int) -> None:
    batch = read_batch(batch_of(count))
    assert batch[:5] == (40, 39 + count, 3, NOW_MS, False)
    assert batch.records == [decode_record(TOPIC)] * count
    entries = [(NOW_MS, None, TOPIC, ())] * count
    assert batch_of(count) == build_batch(entries, base_offset=40, leader_epoch=3)


def test_an_empty_batch_is_not_made() -> None:
    for make in (metadata_batch, control_batch):
        with pytest.raises(ValueError, match="at least one record"):
            make([], base_offset=0, epoch=0, timestamp_ms=0)


def test_a_compressed_batch_is_read() -> None:
    made = build_batch([(NOW_MS, None, TOPIC, ())] * 40, codec=4)
    assert len(made) < len(batch_of(40))
    assert read_batch(made).records == [decode_record(TOPIC)] * 40


def spoiled(position: int, number: int, *, size: int = 4) -> bytearray:
    data = batch_of(3)
    data[position : position + size] = number.to_bytes(size, "big", signed=True)
    return sealed(data)


def with_unsealed_flip() -> bytearray:
    data = batch_of(3)
    data[-3] ^= 1
    return data


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "0 bytes, its header alone has 61"),
        (batch_of(1)[: HEADER_SIZE - 1], "60 bytes"),
        (batch_of(3)[:-1], "at offset 40 claims"),
        (batch_of(3) + b"\x00", "at offset 40 claims"),
        (spoiled(LENGTH_POSITION, 49), "at offset 40 claims 61 bytes"),
        (spoiled(16, 1, size=1), "at offset 40 has magic 1, wanted is 2"),
        (with_unsealed_flip(), "at offset 40 has the checksum"),
        (spoiled(RECORD_COUNT_POSITION, 2), "2 records up to offset 42"),
        (spoiled(RECORD_COUNT_POSITION, -1), "-1 records up to offset 42"),
        (spoiled(LAST_OFFSET_DELTA_POSITION, 5), "3 records up to offset 45"),
        (sealed(batch_of(3)[:HEADER_SIZE] + b"\x10" * 75), "at offset 40"),
        (spoiled(ATTRIBUTES_POSITION, 7, size=2), "at offset 40: codec 7"),
        (spoiled(ATTRIBUTES_POSITION, 0x20, size=2), "40: control record 0 has no key"),
    ],
)
def test_what_is_no_whole_sound_batch_is_refused_with_its_offset(
    data: bytes | bytearray, said: str
) -> None:
    with pytest.raises(Malformed, match=said):
        read_batch(data)


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ((NOW_MS + 5, None, TOPIC, ()), "a time of its own, 5 ms"),
        ((NOW_MS, b"k", TOPIC, ()), "record 1 has a key of 1 bytes"),
        ((NOW_MS, b"", TOPIC, ()), "record 1 has a key of 0 bytes"),
        ((NOW_MS, None, None, ()), "record 1 has no value"),
        ((NOW_MS, None, TOPIC, [("h", b"v")]), "record 1 has 1 headers"),
    ],
)
def test_a_record_that_is_none_of_metadata_is_refused(second: RecordFields, said: str) -> None:
    made = build_batch([(NOW_MS, None, TOPIC, ()), second], base_offset=7)
    with pytest.raises(Malformed, match=f"batch at offset 7: .*{said}"):
        read_batch(made)


def test_an_offset_that_is_not_the_next_is_refused() -> None:
    record = bytes((2 * (6 + len(TOPIC)), 0, 0, 8, 1, 2 * len(TOPIC), *TOPIC, 0))
    made = wrap_records(record, 1, attributes=0, base_timestamp=0, max_timestamp=0, base_offset=7)
    with pytest.raises(Malformed, match="batch at offset 7: record 0 has the offset delta 4"):
        read_batch(made)


def test_a_record_that_is_refused_is_named_by_its_offset() -> None:
    values = [TOPIC, TOPIC, b"\x01\x40\x00\x00"]
    made = metadata_batch(values, base_offset=100, epoch=0, timestamp_ms=0)
    with pytest.raises(UnknownRecord, match=r"record at offset 102: .*api key 64"):
        read_batch(made)
    control = build_batch([(0, b"\x00\x00\x00\x09", b"\x00\x00", ())], base_offset=9, control=True)
    with pytest.raises(UnknownRecord, match=r"record at offset 9: .*type 9"):
        read_batch(control)


def changed(rng: Random, seed: bytes, first: int = 0) -> bytearray:
    data = bytearray(seed)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(min(first, len(data)), len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            data[at : at + 1] = rng.choice(EDGES).to_bytes(1, "big")
        elif kind == 1:
            data[at : at + 1] = rng.randbytes(1)
        elif kind == 2:
            data[at:at] = rng.randbytes(rng.randrange(1, 5))
        elif kind == 3:
            del data[at : at + rng.randrange(1, 6)]
        else:
            data[at:at] = b"\xff\xff\xff\xff\x0f"
    return data


def test_any_bytes_are_a_record_or_malformed() -> None:
    rng = Random(SEED)
    seeds = [bytes.fromhex(value) for _, value in RECORDS.values()]
    read = 0
    for round_ in range(ROUNDS):
        value = bytes(changed(rng, rng.choice(seeds)))
        if round_ % 4 == 0:
            value = bytes((1, rng.randrange(32), rng.randrange(5))) + rng.randbytes(
                rng.randrange(80)
            )
        try:
            record = decode_record(value)
        except Malformed:
            continue
        except Exception as error:
            raise AssertionError(f"FUZZ_SEED={SEED}, value {value.hex()}") from error
        read += 1
        assert isinstance(record, MetadataRecord), value.hex()
    assert read > ROUNDS // 20, f"only {read} of {ROUNDS} were read: nothing is tried"


def test_any_bytes_are_a_batch_or_malformed() -> None:
    rng = Random(SEED + 1)
    seeds = [LEADER_BATCH, BOOTSTRAP_BATCH, CHECKPOINT[:83], bytes(batch_of(3))]
    seeds.append(build_batch([(NOW_MS, None, TOPIC, ())] * 40, codec=2))
    read = 0
    for round_ in range(ROUNDS):
        first = 0 if round_ % 4 == 0 else HEADER_SIZE
        data = changed(rng, rng.choice(seeds), first)
        if len(data) >= HEADER_SIZE and rng.random() < 0.9:
            INT32.pack_into(data, LENGTH_POSITION, len(data) - 12)
            sealed(data)
        try:
            read_batch(data)
        except Malformed:
            continue
        except Exception as error:
            raise AssertionError(f"FUZZ_SEED={SEED}, batch {data.hex()}") from error
        read += 1
    assert read > ROUNDS // 100, f"only {read} of {ROUNDS} were read: nothing is tried"


def test_any_bytes_are_a_control_record_or_malformed() -> None:
    rng = Random(SEED + 2)
    seeds = [(bytes.fromhex(key), bytes.fromhex(value)) for _, key, value in CONTROL.values()]
    for _ in range(ROUNDS // 4):
        key, value = rng.choice(seeds)
        with contextlib.suppress(Malformed):
            decode_control(key, changed(rng, value))
