"""Batches whose bytes are whole and say another thing than their header, at each level of checks.

The checksum fits in all of them: a client computes it over whatever it made.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING

import pytest

from protocol.errors import ErrorCode
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.compression import NAMES, compress
from protocol.records.consistency import MOST_STEPS
from protocol.records.layout import (
    ATTRIBUTES_POSITION,
    HEADER_SIZE,
    INT16,
    INT32,
    INT64,
    LAST_OFFSET_DELTA_POSITION,
    LENGTH_POSITION,
    MAX_TIMESTAMP_POSITION,
    RECORD_COUNT_POSITION,
)
from protocol.records.validate import DEFAULT_VALIDATION, Validation
from tests.records.corpus import reseal
from tests.support.caller import NOW_MS, Caller, batch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocol.records.record import Record

INVALID = ErrorCode.INVALID_RECORD
CODECS = range(len(NAMES))
HOUR_MS, YEAR_MS = 3_600_000, 31_536_000_000


@pytest.fixture(scope="module", params=["auto", "header", "records", "strict"])
def settings(request: pytest.FixtureRequest) -> Mapping[str, str]:
    return {"validation.level": request.param}


@pytest.fixture
def level(settings: Mapping[str, str]) -> Validation:
    name = settings["validation.level"]
    return DEFAULT_VALIDATION if name == "auto" else Validation[name.upper()]


def counting(data: bytes, count: int) -> bytes:
    """A batch that claims to have so many records."""
    changed = bytearray(data)
    INT32.pack_into(changed, LAST_OFFSET_DELTA_POSITION, count - 1)
    INT32.pack_into(changed, RECORD_COUNT_POSITION, count)
    return bytes(reseal(changed))


def holding(data: bytes, codec: int, payload: bytes) -> bytes:
    """The header of a batch with something else behind it."""
    changed = bytearray(data[:HEADER_SIZE]) + payload
    INT32.pack_into(changed, LENGTH_POSITION, len(changed) - 12)
    INT16.pack_into(changed, ATTRIBUTES_POSITION, codec)
    return bytes(reseal(changed))


def until(data: bytes, max_timestamp: int) -> bytes:
    changed = bytearray(data)
    INT64.pack_into(changed, MAX_TIMESTAMP_POSITION, max_timestamp)
    return bytes(reseal(changed))


def see_it_refused(caller: Caller, topic: str, data: bytes) -> None:
    caller.produce(topic, batch(b"before"))
    refused = caller.produce(topic, data)
    assert (refused.error_code, refused.base_offset) == (INVALID, -1)
    assert refused.error_message
    assert caller.end_offset(topic) == 1
    assert caller.values(topic) == [b"before"]


@pytest.mark.parametrize("codec", CODECS)
def test_a_count_that_the_bytes_cannot_hold_is_refused_at_every_level(
    caller: Caller, topic: str, codec: int
) -> None:
    # 91 bytes: as many records of 7 bytes as max.decompressed.batch.bytes has room for.
    caller.create_topic(topic)
    claimed = counting(holding(batch(b"a"), codec, compress(codec, b"v" * 7).ljust(30)), 19_173_961)
    assert len(claimed) == 91
    see_it_refused(caller, topic, claimed)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_rubbish_that_claims_to_be_compressed_is_refused_by_default(
    caller: Caller, topic: str, codec: int, level: Validation
) -> None:
    caller.create_topic(topic)
    rubbish = holding(batch(b"a"), codec, bytes(range(0xA5, 0xE5)))
    if level is Validation.HEADER:
        assert caller.produce(topic, rubbish).error_code == 0
    else:
        see_it_refused(caller, topic, rubbish)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_cut_payload_is_refused_by_default(
    caller: Caller, topic: str, codec: int, level: Validation
) -> None:
    caller.create_topic(topic)
    whole = batch(*(b"value %d" % number for number in range(30)), codec=codec)
    cut = holding(whole, codec, whole[HEADER_SIZE:-6])
    if level is Validation.HEADER:
        assert caller.produce(topic, cut).error_code == 0
    else:
        see_it_refused(caller, topic, cut)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: holding(data, 0, b"\xa5" * 90),
        lambda data: holding(data, 0, bytes(90)),
        lambda data: holding(data, 0, data[HEADER_SIZE:] + b"\0"),
        lambda data: counting(data, 2),
        lambda data: counting(data, 4),
    ],
    ids=["noise", "zeros", "a byte more", "a record fewer counted", "a record more counted"],
)
def test_records_that_are_not_there_are_refused_by_default(
    caller: Caller, topic: str, spoil: object, level: Validation
) -> None:
    caller.create_topic(topic)
    assert callable(spoil)
    spoiled = spoil(batch(b"one", b"two", b"three"))
    if level is Validation.HEADER:
        assert caller.produce(topic, spoiled).error_code == 0
    else:
        see_it_refused(caller, topic, spoiled)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("wrong_by_ms", [-1, 1, -YEAR_MS, YEAR_MS, -NOW_MS - 1])
@pytest.mark.parametrize("count", [1, 3])
def test_searches_by_time_find_what_a_wrong_max_timestamp_would_hide(
    caller: Caller, topic: str, codec: int, wrong_by_ms: int, count: int, level: Validation
) -> None:
    """Kafka puts it right as well (`LogValidator`, see the vector wrong-max-timestamp-fixed)."""
    caller.create_topic(topic)
    right = batch(*(b"%d" % number for number in range(count)), codec=codec)
    last_ms = NOW_MS + count - 1

    sent = caller.produce(topic, until(right, last_ms + wrong_by_ms))

    assert (sent.error_code, sent.base_offset) == (0, 0)
    believed = level is Validation.HEADER or (
        level is Validation.RECORDS and codec and count > 1 and abs(wrong_by_ms) < HOUR_MS
    )
    stored = bytes(caller.fetch(topic).records or b"")
    (found,) = struct.unpack_from(">q", stored, MAX_TIMESTAMP_POSITION)
    assert found == last_ms + (wrong_by_ms if believed else 0)
    if not believed:
        assert stored[16:] == right[16:]
        assert caller.offset(topic, last_ms).offset == count - 1
        assert caller.offset(topic, last_ms + 1).offset == -1


def test_offset_deltas_that_do_not_count_up_are_put_right_by_default(
    caller: Caller, topic: str, level: Validation
) -> None:
    caller.create_topic(topic)
    plain = bytearray(build_batch([(NOW_MS, None, b"v", ())] * 3))
    size = (len(plain) - HEADER_SIZE) // 3
    plain[HEADER_SIZE + size + 3] = 0

    assert caller.produce(topic, bytes(reseal(plain))).error_code == 0

    offsets = [record.offset for record in records_of(caller, topic)]
    assert offsets == ([0, 0, 2] if level is Validation.HEADER else [0, 1, 2])


def records_of(caller: Caller, topic: str) -> list[Record]:
    return list(Batch(memoryview(bytes(caller.fetch(topic).records or b""))).records())


@pytest.mark.parametrize("codec", CODECS)
def test_a_good_batch_is_stored_as_it_was_sent(caller: Caller, topic: str, codec: int) -> None:
    caller.create_topic(topic)
    sent = batch(*(b"value %d" % number for number in range(500)), codec=codec)
    assert caller.produce(topic, sent).error_code == 0
    assert bytes(caller.fetch(topic).records or b"")[16:] == sent[16:]


@cache
def crowded() -> bytes:
    """A batch of more records than are walked while everybody waits."""
    rows = [(NOW_MS + index // 100, None, None, ()) for index in range(MOST_STEPS + 1)]
    return build_batch(rows)


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_too_large_to_be_walked_on_the_loop_is_checked_all_the_same(
    caller: Caller, topic: str, codec: int, level: Validation
) -> None:
    caller.create_topic(topic, max_message_bytes=str(8 << 20))
    good = holding(crowded(), codec, compress(codec, crowded()[HEADER_SIZE:]))
    assert caller.produce(topic, good).error_code == 0
    assert caller.end_offset(topic) == MOST_STEPS + 1
    assert bytes(caller.fetch(topic).records or b"")[16:] == good[16:]

    answer = caller.produce(topic, counting(good, MOST_STEPS + 2))

    seen = level is Validation.STRICT or (level is Validation.RECORDS and not codec)
    assert answer.error_code == (INVALID if seen else 0)
    assert answer.base_offset == (-1 if seen else MOST_STEPS + 1)
