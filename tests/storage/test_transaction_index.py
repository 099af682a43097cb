"""The file of aborted transactions, and what a reader is told of it."""

from __future__ import annotations

import random
import struct

import pytest

from storage.transaction_index import (
    AbortedTransaction,
    TransactionIndex,
    collect,
    decode,
    decode_whole,
    encode,
)
from tests.storage.test_format_pages import blocks, hex_of

# Written by Apache Kafka 3.9: producer 1, offsets 7..8, last stable offset 9.
GOLDEN = bytes.fromhex(
    "0000" "0000000000000001" "0000000000000007" "0000000000000008" "0000000000000009"
)  # fmt: skip
ENTRIES = [
    AbortedTransaction(1, 7, 8, 9),
    AbortedTransaction(3, 12, 15, 10),  # another has been open since 10
    AbortedTransaction(2, 10, 20, 21),
]


def test_kafkas_entry_is_read_and_written_byte_for_byte() -> None:
    assert decode(GOLDEN, 0) == ENTRIES[:1]
    assert encode(ENTRIES[:1]) == GOLDEN


def test_the_bytes_on_the_page_are_kafkas() -> None:
    assert hex_of(blocks("transaction-index.md")[-1]) == GOLDEN


@pytest.mark.parametrize(
    "data",
    [
        GOLDEN[:-1],
        b"\0\1" + GOLDEN[2:],  # another version
        GOLDEN + bytes(34),  # zeros after a crash
        bytes(34),
        GOLDEN + GOLDEN,  # last offsets must rise
        encode([AbortedTransaction(1, 8, 8, 9)]),  # a marker is not its own first record
        encode([AbortedTransaction(1, 7, 8, 10)]),  # stable above the marker's end
        encode([AbortedTransaction(-1, 7, 8, 9)]),
        encode([AbortedTransaction(1, -7, 8, 9)]),
    ],
)
def test_what_cannot_be_an_index_is_not_taken_for_one(data: bytes) -> None:
    assert decode(data, 0) is None
    assert TransactionIndex.decode(data, 0) is None


def test_an_entry_below_the_segment_is_damage() -> None:
    assert decode(GOLDEN, 8) is not None
    assert decode(GOLDEN, 9) is None


def test_the_entries_before_a_torn_one_are_kept() -> None:
    data = encode(ENTRIES)
    for size in range(len(data) + 1):
        assert decode_whole(data[:size], 0) == ENTRIES[: size // 34]
    for count in range(len(ENTRIES) + 1):
        assert decode_whole(data[: count * 34] + bytes(40), 0) == ENTRIES[:count]


def test_a_reader_is_told_of_what_ends_at_or_after_its_offset_and_began_before_its_end() -> None:
    def told(offset: int, upper: int) -> list[int]:
        found: list[AbortedTransaction] = []
        collect(ENTRIES, offset, upper, found)
        return [entry.producer_id for entry in found]

    assert told(0, 7) == []
    assert told(0, 8) == [1]
    assert told(8, 9) == [1]
    assert told(9, 10) == []
    assert told(9, 11) == [2]
    assert told(9, 21) == [3, 2]
    assert told(16, 21) == [2]
    assert told(21, 30) == []


def test_the_search_goes_on_to_the_next_segment_until_an_entry_says_that_it_may_end() -> None:
    found: list[AbortedTransaction] = []
    assert not collect(ENTRIES[:2], 0, 11, found)
    assert collect(ENTRIES[2:], 0, 11, found)
    assert collect(ENTRIES[:2], 0, 9, [])


@pytest.mark.parametrize("seed", range(20))
def test_ending_the_search_early_leaves_out_nothing(seed: int) -> None:
    rng = random.Random(seed)
    opened: dict[int, int] = {}
    entries = []
    for offset in range(200):
        producer = rng.randrange(6)
        if producer in opened and rng.random() < 0.3:
            first = opened.pop(producer)
            stable = min(opened.values(), default=offset + 1)
            if rng.random() < 0.6:
                entries.append(AbortedTransaction(producer, first, offset, stable))
        elif rng.random() < 0.5:
            opened.setdefault(producer, offset)
    stable = min(opened.values(), default=200)
    for _ in range(50):
        upper = rng.randint(0, stable)
        offset = rng.randint(0, upper)
        found: list[AbortedTransaction] = []
        collect(entries, offset, upper, found)
        assert found == [
            entry for entry in entries if entry.last_offset >= offset and entry.first_offset < upper
        ], f"seed {seed}, {offset}..{upper}"


def test_entries_are_listed_as_answers_have_them_also_after_a_cut() -> None:
    index = TransactionIndex(ENTRIES)
    rows = [struct.pack(">qq", one.producer_id, one.first_offset) + b"\0" for one in ENTRIES]

    assert index.listed(0, 1) == rows[0]
    assert index.listed(1, 1) == b""
    assert index.listed(0, 1, [2]) == rows[0] + rows[2]
    index.cut_from(15)
    index.add(AbortedTransaction(9, 11, 15, 16))

    assert index.listed(0, 2) == rows[0] + struct.pack(">qq", 9, 11) + b"\0"
