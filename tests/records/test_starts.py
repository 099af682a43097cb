"""Starts of records: the loop in Python and the one in C, and what both refuse."""

from __future__ import annotations

import os
import random
from array import array
from typing import TYPE_CHECKING, Any

import pytest

from protocol.records import starts as module
from protocol.records.builder import build_batch
from protocol.records.errors import InvalidRecord
from protocol.records.layout import HEADER_SIZE
from protocol.records.starts import interpreted_record_starts, record_starts
from tests.records.loop_inputs import record, required, varint

if TYPE_CHECKING:
    from collections.abc import Sequence

SEED = int(os.environ.get("FUZZ_SEED", "20261122"))
MUTANTS = 20_000 * int(os.environ.get("TEST_FUZZ_FACTOR", "1"))

SIZES = (0, 1, 50, 58, 59, 60, 8_170, 8_190, 8_200, 1_100_000)
RECORDS = [record(0, index, b"k", bytes(size)) for index, size in enumerate(SIZES)]


def spans(*numbers: tuple[int, int, int]) -> bytes:
    return array("i", [number for span in numbers for number in span]).tobytes()


def positions(found: bytes) -> list[int]:
    return array("i", found).tolist()


def starts_of(records: Sequence[bytes], begin: int = 0) -> list[int]:
    return [begin + sum(map(len, records[:index])) for index in range(len(records))]


@pytest.fixture(params=["interpreted", "compiled"])
def twin(request: pytest.FixtureRequest) -> Any:
    if request.param == "interpreted":
        return interpreted_record_starts
    return required().record_starts


def test_every_record_of_every_payload_is_found(twin: Any) -> None:
    first, second = b"".join(RECORDS), b"".join(RECORDS[::-1])
    data = b"gap" + first + b"gap" + second
    begin = 6 + len(first)
    wanted = [
        (3, 3 + len(first), len(RECORDS)),
        (3, 3, 0),
        (begin, begin + len(second), len(RECORDS)),
    ]
    found = positions(twin(data, spans(*wanted)))
    assert found == starts_of(RECORDS, 3) + starts_of(RECORDS[::-1], begin)
    assert twin(memoryview(data), spans(*wanted)) == twin(data, spans(*wanted))


def test_lengths_may_be_longer_than_they_need_to_be(twin: Any) -> None:
    records = [record(0, index, b"k", bytes(index), pad=index % 4) for index in range(8)]
    data = b"".join(records)
    assert positions(twin(data, spans((0, len(data), 8)))) == starts_of(records)


def test_no_payloads_have_no_records(twin: Any) -> None:
    assert twin(b"", b"") == b""
    assert twin(b"", spans((0, 0, 0), (0, 0, -1))) == b""


ONE = record(0, 0, b"k", b"v")
BACKWARDS = varint(-2) + bytes(18) + varint(20)
"""From byte 0 to byte -1, and from there, if that is the last byte, to the end."""


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (ONE + b"\0", 1),
        (ONE, 0),
        (ONE, -1),
        (ONE + ONE, 3),
        (ONE[:-1], 1),
        (b"\x80" * 9, 1),
        (varint(2**31 - 1) + ONE, 1),
        (ONE, 2**31 - 1),
        (b"\x80\x80\x80\x80\x80\x00" + ONE, 1),
        (BACKWARDS, 2),
    ],
)
def test_lengths_that_do_not_lead_to_the_end_are_refused(data: bytes, count: int) -> None:
    for wrong in (spans((0, len(data), count)), spans((0, 0, 0), (0, len(data), count))):
        with pytest.raises(InvalidRecord):
            record_starts(data, wrong)
        with pytest.raises(InvalidRecord):
            interpreted_record_starts(data, wrong)


def test_the_loop_in_c_gives_up_on_spans_that_are_none() -> None:
    compiled = required().record_starts
    assert compiled(ONE, spans((0, len(ONE), 1))) == spans((0, 0, 0))[:4]
    for wrong in ((-1, len(ONE), 1), (0, len(ONE) + 1, 1), (5, 4, 0), (0, 2**31 - 1, 1)):
        assert compiled(ONE, spans(wrong)) is None
    assert compiled(ONE, b"12345") is None
    assert compiled("text", b"") is None
    assert compiled(ONE, bytearray(12)) is None


def test_mutants_are_followed_or_refused_by_both_alike() -> None:
    compiled = required().record_starts
    rng = random.Random(SEED)
    whole = build_batch([(index, b"k", bytes(index * 9), ()) for index in range(12)])
    payload = whole[HEADER_SIZE:]
    agreed = 0
    for _ in range(MUTANTS):
        data = bytearray(payload)
        for _ in range(rng.choice((0, 1, 1, 2))):
            data[rng.randrange(len(data))] = rng.choice(
                (0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256))
            )
        wanted = spans((0, len(data), rng.choice((12, 12, 12, 11, 13))))
        found = compiled(bytes(data), wanted)
        try:
            interpreted = interpreted_record_starts(bytes(data), wanted)
        except InvalidRecord:
            assert found is None
        else:
            assert found == interpreted
            agreed += 1
    assert MUTANTS * 0.1 < agreed < MUTANTS * 0.9


def test_the_loop_in_c_is_the_one_in_use_where_it_is_built() -> None:
    required()
    assert module.record_starts is not interpreted_record_starts
