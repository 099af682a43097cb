"""Batches of one record, by the loop in Python and the one in C."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from protocol.records import sole_records
from protocol.records.batch import Batch
from protocol.records.builder import build_batch, interpreted_sole_batch
from protocol.records.layout import CRC_POSITION, HEADER_SIZE, INT64, UINT32
from protocol.records.legacy import build_messages
from protocol.records.markers import Marker, encode_marker
from tests.records.loop_inputs import required

if TYPE_CHECKING:
    from protocol.records.record import RecordHeaders

NOW_MS = 1_700_000_000_000


@pytest.fixture(params=["interpreted", "compiled"])
def read(request: pytest.FixtureRequest) -> Any:
    if request.param == "interpreted":
        return sole_records.interpreted_sole_records
    return required().sole_records


def batch(
    key: bytes | None,
    value: bytes | None,
    headers: RecordHeaders = (),
    *,
    offset: int = 0,
    **options: Any,
) -> bytes:
    made = bytearray(build_batch([(NOW_MS, key, value, headers)], **options))
    INT64.pack_into(made, 0, offset)
    return bytes(made)


def sealed(data: bytearray) -> bytes:
    UINT32.pack_into(data, CRC_POSITION, Batch(memoryview(data)).checksum())
    return bytes(data)


def test_each_batch_of_one_record_is_a_row(read: Any) -> None:
    headers = (("a", b"1"), ("\udcff\u00fc", None), ("", b""))
    one = batch(b"k", b"v" * 20_000, offset=7)
    two, three = batch(None, None, offset=9), batch(b"", b"", headers, offset=2**63 - 1)
    assert read(one + two + three, 0) == (
        len(one + two + three),
        len(one + two),
        [
            (7, b"k", b"v" * 20_000, ()),
            (9, None, None, ()),
            (2**63 - 1, b"", b"", headers),
        ],
    )
    assert read(one + two, len(one)) == (len(one + two), len(one), [(9, None, None, ())])
    assert read(one, len(one)) == (len(one), -1, [])


@pytest.mark.parametrize(
    "other",
    [
        build_batch([(NOW_MS, b"a", b"b", ()), (NOW_MS, b"a", b"c", ())]),
        build_batch([(NOW_MS, b"a", b"b" * 99, ())], codec=1),
        build_batch([(NOW_MS, b"a", b"b", ())], producer_id=1, transactional=True),
        encode_marker(1, 0, marker=Marker(True, 0), timestamp_ms=NOW_MS),
        build_messages([(NOW_MS, b"a", b"b", ())], magic=1),
        batch(b"a", b"b")[:-1] + b"\x07",
        batch(b"a", b"b")[:-1],
        batch(b"a", b"b")[: HEADER_SIZE - 1],
        b"",
        b"\xff" * 200,
    ],
)
def test_whatever_is_none_ends_the_run(read: Any, other: bytes) -> None:
    one = batch(b"k", b"v")
    assert read(one + bytes(other), 0) == (len(one), 0, [(0, b"k", b"v", ())])


def test_of_bytes_with_a_right_checksum_both_take_the_same() -> None:
    chance = random.Random(8)
    compiled, taken = required().sole_records, 0
    good = batch(b"key", b"value", (("name", b"content"), ("n", None)))
    for _ in range(20_000):
        spoiled = bytearray(good)
        for _ in range(chance.randint(1, 3)):
            spoiled[chance.randrange(HEADER_SIZE - 4, len(good))] = chance.choice(
                (0, 1, 2, 3, 0x7F, 0x80, 0xFF, chance.randrange(256))
            )
        data = sealed(spoiled)
        found = compiled(data, 0)
        assert found == sole_records.interpreted_sole_records(data, 0)
        taken += found[1] == 0
    assert 1_000 < taken < 19_000


@pytest.mark.parametrize(
    "arguments",
    [
        (NOW_MS, b"key", b"value"),
        (NOW_MS, None, None, ((b"name", None), (b"", b"c" * 9_000))),
        (-1, b"", b"v" * 70_000, (), 2**62, 2**15 - 1),
        (2**63 - 1, b"\0\0\0\1", b"\0" * 6, (), 0, 0, True),
    ],
)
def test_a_batch_of_one_record_is_made_of_the_same_bytes_in_c(arguments: tuple[Any, ...]) -> None:
    made = required().sole_batch(*arguments)

    assert made == interpreted_sole_batch(*arguments)
    assert Batch(memoryview(made)).is_intact()


@pytest.mark.parametrize(
    "arguments",
    [
        (2**63, b"", b"", ()),
        (NOW_MS, "key", b"", ()),
        (NOW_MS, b"", b"", ((b"name",),)),
        (NOW_MS, b"", b"", (), 1, 2**15),
    ],
)
def test_what_the_loop_in_c_cannot_make_is_left_to_the_other(arguments: tuple[Any, ...]) -> None:
    assert required().sole_batch(*arguments) is None
