"""The records of a batch as tuples, by the loop in Python and the one in C."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from protocol.records import record_rows
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.errors import InvalidRecord
from protocol.records.record_rows import rows_of
from tests.records.loop_inputs import required

if TYPE_CHECKING:
    from collections.abc import Callable

INT64_MAX = (1 << 63) - 1
ROWS = [
    (5, b"key", b"value", ()),
    (3, None, b"v" * 20_000, ((b"a", b"1"), (b"\xff", None))),
    (5 + (1 << 40), b"", None, ()),
]


@pytest.fixture(params=["interpreted", "compiled"])
def read(request: pytest.FixtureRequest) -> Any:
    if request.param == "interpreted":
        return record_rows.interpreted_record_rows
    return required().record_rows


def test_a_record_is_a_row_with_its_own_offset_and_time(read: Any) -> None:
    batch = Batch(memoryview(build_batch(ROWS, base_offset=7)))
    assert read(batch.payload(), 3, 7, 5, None) == [
        (7, 5, b"key", b"value", ()),
        (8, 3, None, b"v" * 20_000, (("a", b"1"), ("\udcff", None))),
        (9, 5 + (1 << 40), b"", None, ()),
    ]


def test_times_are_the_brokers_where_it_gives_them(read: Any) -> None:
    batch = Batch(memoryview(build_batch(ROWS)))
    assert [row[1] for row in read(batch.payload(), 3, 0, 5, 9)] == [9, 9, 9]


def test_sums_of_times_wrap_as_in_java(read: Any) -> None:
    payload = Batch(memoryview(build_batch([(0, None, None, ()), (1, None, None, ())]))).payload()
    assert [row[1] for row in read(payload, 2, 0, INT64_MAX, None)] == [INT64_MAX, -INT64_MAX - 1]


@pytest.mark.parametrize(
    "change",
    [
        lambda payload: payload[:-1],
        lambda payload: payload + b"\0",
        lambda payload: b"\x02" + payload[1:],
        lambda payload: b"",
    ],
)
def test_what_does_not_fit_is_refused_whole(change: Callable[[bytes], bytes]) -> None:
    batch = Batch(memoryview(build_batch(ROWS)))
    with pytest.raises(InvalidRecord):
        rows_of(change(batch.payload()), batch.header())


def test_both_loops_give_the_same_rows_of_mutated_records() -> None:
    compiled, choice = required().record_rows, random.Random(5)
    payload = Batch(memoryview(build_batch([*ROWS[:1], *ROWS[2:]] * 3))).payload()
    agreed = 0
    for _ in range(3000):
        mutated = bytearray(payload)
        for _ in range(choice.randint(1, 3)):
            mutated[choice.randrange(len(mutated))] = choice.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
        found = compiled(bytes(mutated), 6, 1 << 61, 5, None)
        try:
            wanted = record_rows.interpreted_record_rows(bytes(mutated), 6, 1 << 61, 5, None)
        except InvalidRecord:
            assert found is None
        else:
            assert found == wanted
            agreed += 1
    assert agreed
