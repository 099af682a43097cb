"""Sets that are large or expand to what is: split, refused, or left for a caller with more time."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.layout import MAX_TIMESTAMP
from protocol.records.prepare import TooMuch, prepare
from protocol.records.validate import ProduceRules, Validation
from tests.records.appending import (
    NEXT_OFFSET,
    NOW_MS,
    RECORDS,
    contents,
    placed,
    read,
    refused,
    sent,
    stays,
    three,
)
from tests.records.bombs import BOMBS
from tests.support.old_sets import message, messages, wrapper

GZIP, SNAPPY, LZ4 = 1, 2, 3
KILOBYTE = bytes(range(250)) * 4


def noise(count: int, size: int = 1_000) -> list[bytes]:
    """Values that no codec can shorten."""
    rng = random.Random(count)
    return [rng.randbytes(size) for _ in range(count)]


def in_one_batch_each(stored: bytes) -> list[int]:
    sizes = []
    while stored:
        batch = Batch(memoryview(stored))
        sizes.append(batch.size)
        stored = stored[batch.size :]
    return sizes


@pytest.mark.parametrize("source", [0, 1])
def test_messages_that_make_too_large_a_batch_together_become_several(source: int) -> None:
    # Each was within the limit for itself. Kafka refuses the set.
    values = [KILOBYTE] * 1_100
    prepared = sent(messages(*values, magic=source), ProduceRules())
    stored = placed(prepared)
    sizes = in_one_batch_each(stored)
    assert len(sizes) == len(prepared.batches) == 2
    assert max(sizes) <= ProduceRules().max_message_bytes
    # The first is as full as it can be.
    assert sizes[0] + 1_100 > ProduceRules().max_message_bytes
    assert [record.offset for record in read(stored)] == list(
        range(NEXT_OFFSET, NEXT_OFFSET + 1_100)
    )
    assert prepared.record_count == 1_100


@pytest.mark.parametrize("log_append_time", [False, True])
@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4])
def test_a_split_keeps_every_record_and_every_batch_within_the_limit(
    codec: int, log_append_time: bool
) -> None:
    values = [*noise(40), *[KILOBYTE] * 40, b"", b"end"]
    times = [NOW_MS + index * 7 % 50 for index in range(len(values))]
    data = messages(*values, magic=1, times_ms=times)
    rules = ProduceRules(max_message_bytes=5_000, codec=codec, log_append_time=log_append_time)
    prepared = sent(data, rules)
    stored = placed(prepared)
    assert len(prepared.batches) > 8
    assert max(in_one_batch_each(stored)) <= 5_000
    assert [record.value for record in read(stored)] == values
    assert [record.offset for record in read(stored)] == [NEXT_OFFSET + i for i in range(82)]
    if log_append_time:
        assert {header[MAX_TIMESTAMP] for _, header in prepared.batches} == {NOW_MS}
    else:
        assert [record.timestamp_ms for record in read(stored)] == times


def test_a_set_that_compresses_well_stays_one_batch() -> None:
    data = messages(*[KILOBYTE] * 300, magic=1)
    prepared = sent(data, ProduceRules(max_message_bytes=20_000, codec=GZIP))
    assert len(prepared.batches) == 1


def test_a_message_that_is_too_large_alone_in_the_topics_codec_is_too_large() -> None:
    payload = messages(bytes(10_000), magic=1)
    data = wrapper(payload, magic=1)
    for magic in (0, 1, 2):
        rules = ProduceRules(magic=magic, codec=0, max_message_bytes=9_000)
        assert refused(data, rules).code == ErrorCode.MESSAGE_TOO_LARGE
        sent(data, ProduceRules(magic=magic, max_message_bytes=9_000))
    for large in (build_batch([(NOW_MS, b"k", bytes(10_000), ())], codec=GZIP), data):
        rules = ProduceRules(codec=0, max_message_bytes=9_000)
        assert refused(large, rules).code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_an_entry_above_the_limit_is_too_large_as_it_came(magic: int) -> None:
    data = build_batch(RECORDS) if magic == 2 else message(b"v" * 100, magic=magic)
    just = ProduceRules(magic=magic, max_message_bytes=len(data))
    small = ProduceRules(magic=magic, max_message_bytes=len(data) - 1)
    stays(data, just)
    assert refused(data, small).code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_message_may_outgrow_the_limit_by_the_timestamp_it_is_given() -> None:
    data = message(b"v" * 100, magic=0)
    assert (
        refused(data, ProduceRules(magic=1, max_message_bytes=len(data) + 7)).code
        == ErrorCode.MESSAGE_TOO_LARGE
    )
    assert sent(data, ProduceRules(magic=1, max_message_bytes=len(data) + 8)).rebuilt


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("source", [0, 1])
def test_a_set_above_a_segment_has_a_code_of_its_own(source: int, magic: int) -> None:
    for data in (three(source), wrapper(three(source), magic=source)):
        size = sent(data, ProduceRules(magic=magic)).size
        sent(data, ProduceRules(magic=magic, segment_bytes=size))
        refusal = refused(data, ProduceRules(magic=magic, segment_bytes=size - 1))
        assert refusal.code == ErrorCode.RECORD_LIST_TOO_LARGE


# Bombs.

BOUND = 1 << 22


def bomb(codec: int, magic: int) -> bytes:
    if magic < 2:
        return message(BOMBS[codec](), magic=magic, attributes=codec)
    data = bytearray(build_batch([(0, None, None, ())])[:61] + BOMBS[codec]())
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    Batch(memoryview(data)).rewrite(codec, -1)
    return bytes(data)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_set_that_expands_to_a_gibibyte_is_too_large_and_takes_little_memory(
    magic: int, codec: int
) -> None:
    data = bytearray(bomb(codec, magic))
    rules = ProduceRules(codec=0, max_message_bytes=1 << 28, max_decompressed_bytes=BOUND, magic=1)
    view = memoryview(data)
    tracemalloc.start()
    try:
        with pytest.raises(KafkaError) as refusal:
            prepare(view, rules, version=2, now_ms=NOW_MS, next_offset=0)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert peak_bytes < 8 * BOUND + len(data)


def test_the_bound_is_that_of_the_whole_set_and_not_of_each_wrapper() -> None:
    one = wrapper(messages(bytes(100_000), magic=1), magic=1)
    sent(one, ProduceRules(magic=1, max_decompressed_bytes=150_000))
    rules = ProduceRules(magic=1, max_decompressed_bytes=150_000)
    assert refused(one * 2, rules).code == ErrorCode.MESSAGE_TOO_LARGE
    sent(one * 2, ProduceRules(magic=1, max_decompressed_bytes=201_000))


def test_the_ratio_bounds_what_a_small_set_may_expand_to() -> None:
    data = wrapper(messages(bytes(2_000_000), magic=1), magic=1)
    for ratio, accepted in ((10, False), (2_000, True)):
        rules = ProduceRules(magic=1, max_message_bytes=3_000_000, max_decompression_ratio=ratio)
        if accepted:
            sent(data, rules)
        else:
            refusal = refused(data, rules)
            assert refusal.code == ErrorCode.MESSAGE_TOO_LARGE
            assert "max.decompression.ratio" in str(refusal)


# For a caller that has little time.


def too_much(data: bytes, rules: ProduceRules, expand_max: int) -> bool:
    view = memoryview(bytearray(data))
    terms: dict[str, Any] = {"version": 2, "now_ms": NOW_MS, "next_offset": NEXT_OFFSET}
    try:
        prepare(view, rules, expand_max=expand_max, **terms)
    except TooMuch:
        assert view == data, "a set that was left for later was written to"
        # The same call without the limit is what the caller makes next.
        assert prepare(view, rules, **terms) is not None
        return True
    return False


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("source", [0, 1])
def test_messages_are_gone_through_up_to_what_the_caller_has_time_for(
    source: int, magic: int
) -> None:
    data = three(source)
    assert not too_much(data, ProduceRules(magic=magic), len(data))
    assert too_much(data, ProduceRules(magic=magic), len(data) - 1)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_wrappers_are_opened_up_to_what_the_caller_has_time_for(magic: int) -> None:
    payload = messages(bytes(10_000), magic=1)
    data = wrapper(payload, magic=1)
    assert len(data) < 1_000
    assert not too_much(data, ProduceRules(magic=magic), len(payload))
    assert too_much(data, ProduceRules(magic=magic), len(payload) - 1)
    # All wrappers of a set count together.
    assert too_much(data * 2, ProduceRules(magic=magic), len(payload) * 2 - 1)


@pytest.mark.parametrize("codec", [0, GZIP])
def test_a_batch_takes_time_only_where_its_records_are_looked_at(codec: int) -> None:
    data = build_batch([(NOW_MS, b"k", bytes(10_000), ())], codec=codec)
    keys = ProduceRules(compacted=True)
    for rules in (ProduceRules(), ProduceRules(log_append_time=True)):
        # What is not compressed and comes here was not taken by `quick_header`.
        assert too_much(data, rules, 0) == (codec == 0)
    assert not too_much(data, ProduceRules(validation=Validation.HEADER), 0)
    for rules in (keys, ProduceRules(magic=1), ProduceRules(codec=LZ4)):
        assert too_much(data, rules, 9_000)
        assert not too_much(data, rules, 11_000)
    assert contents(placed(sent(data, keys)))[0][1] == b"k"
