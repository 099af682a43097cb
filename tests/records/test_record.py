from __future__ import annotations

import pytest

from protocol.records.builder import encode_varint
from protocol.records.errors import InvalidRecord
from protocol.records.record import (
    Record,
    read_fields,
    read_records,
    read_varint,
    read_varlong,
    short_varints,
)

KNOWN = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (-2, "03"),
    (63, "7e"),
    (-64, "7f"),
    (64, "8001"),
    (-65, "8101"),
    (300, "d804"),
    (8192, "808001"),
    (2**31 - 1, "feffffff0f"),
    (-(2**31), "ffffffff0f"),
]
KNOWN_LONG = [*KNOWN, (2**63 - 1, "fe" + "ff" * 8 + "01"), (-(2**63), "ff" * 9 + "01")]


def record(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


PLAIN = record(bytes((0, 0, 0, 1, 1, 0)))


@pytest.mark.parametrize(("number", "form"), KNOWN)
def test_varints_have_their_known_forms(number: int, form: str) -> None:
    assert encode_varint(number) == bytes.fromhex(form)
    assert read_varint(b"." + bytes.fromhex(form), 1) == (number, 1 + len(form) // 2)


def test_the_tables_of_short_varints_have_what_is_read_by_the_byte() -> None:
    one, two = short_varints()
    assert [(number, 1) for number in one] == [
        read_varint(bytes([byte]), 0) for byte in range(0x80)
    ]
    for first in range(0x80, 0x100):
        found = [read_varint(bytes([first, second]), 0) for second in range(0x80)]
        assert [(number, 2) for number in two[first]] == found


@pytest.mark.parametrize(("number", "form"), KNOWN_LONG)
def test_varlongs_have_their_known_forms(number: int, form: str) -> None:
    assert encode_varint(number) == bytes.fromhex(form)
    assert read_varlong(bytes.fromhex(form), 0) == (number, len(form) // 2)


def test_longer_forms_than_needed_are_read() -> None:
    assert read_varint(bytes.fromhex("8080808000"), 0) == (0, 5)
    assert read_varlong(bytes.fromhex("82" + "80" * 8 + "00"), 0) == (1, 10)


def test_bits_beyond_the_width_are_dropped() -> None:
    assert read_varint(bytes.fromhex("808080807f"), 0) == read_varint(
        bytes.fromhex("808080800f"), 0
    )
    assert read_varlong(b"\x80" * 9 + b"\x7f", 0) == read_varlong(b"\x80" * 9 + b"\x01", 0)


def test_a_varint_that_does_not_end_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="more than 5 bytes"):
        read_varint(b"\x80" * 6, 0)
    with pytest.raises(InvalidRecord, match="more than 10 bytes"):
        read_varlong(b"\x80" * 11, 0)


def test_the_smallest_record_has_seven_bytes() -> None:
    assert len(PLAIN) == 7
    assert list(read_fields(PLAIN * 2, 2)) == [
        (0, 0, 5, -1, 6, -1, ()),
        (0, 0, 12, -1, 13, -1, ()),
    ]


def test_any_negative_length_of_key_and_value_means_null() -> None:
    (fields,) = read_fields(record(bytes((0, 0, 0, 3, 5, 0))), 1)
    assert fields[3] < 0
    assert fields[5] < 0


@pytest.mark.parametrize(
    "body",
    [
        bytes((0, 0, 0, 1, 1)),  # no header count
        bytes((0, 0, 0, 1, 1, 0, 0)),  # a byte too many
        bytes((0, 0, 0, 4, 1, 0)),  # the key takes what follows it
        bytes((0, 0, 0, 1, 40, 0)),  # the value runs out of the record
        bytes((0, 0, 0, 1, 1, 1)),  # header count -1
        bytes((0, 0, 0, 1, 1, 126)),  # header count 63
        bytes((0, 0, 0, 1, 1, 2, 1, 1)),  # header name of length -1
        bytes((0, 0, 0, 1, 1, 2, 80, 1)),  # header name runs out of the record
        bytes((0, 0, 0, 1, 1, 2, 2, 65, 80)),  # header value runs out of the record
        b"",
    ],
)
def test_a_record_whose_fields_do_not_end_at_its_length_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRecord):
        list(read_fields(record(body) + PLAIN, 2))


def test_a_record_may_not_reach_into_the_next() -> None:
    # The first claims 7 bytes of body, and its fields do end there, inside the second record.
    reaching = bytes((12, 0, 0, 0, 1, 1, 0))
    assert list(read_fields(reaching, 1))
    with pytest.raises(InvalidRecord, match="should end at byte 8"):
        list(read_fields(bytes((14,)) + reaching[1:] + PLAIN, 2))


def test_bytes_after_the_last_record_are_refused() -> None:
    with pytest.raises(InvalidRecord, match="7 bytes are left"):
        list(read_fields(PLAIN * 2, 1))


def test_fewer_records_than_claimed_are_refused() -> None:
    with pytest.raises(InvalidRecord, match="runs past"):
        list(read_fields(record(bytes((0, 0, 0, 1, 40)) + bytes(20) + b"\0"), 2))


def test_a_count_that_cannot_fit_is_refused_before_anything_is_read() -> None:
    with pytest.raises(InvalidRecord, match="2147483647 records in 7 bytes"):
        next(read_fields(PLAIN, 2**31 - 1))


def test_header_names_that_are_not_utf8_keep_their_bytes() -> None:
    body = bytes((0, 0, 0, 1, 1, 2, 4, 0xFF, 0x41, 1))
    (fields,) = read_fields(record(body), 1)
    ((name, value),) = fields[6]
    assert name.encode("utf-8", "surrogateescape") == b"\xffA"
    assert value is None


def test_the_sum_of_timestamp_and_delta_wraps_as_in_java() -> None:
    header = (0, 0, 0, 2, 0, 0, 0, 2**63 - 1, 0, -1, -1, -1, 1)
    (read,) = read_records(record(bytes((0, 2, 0, 1, 1, 0))), header)
    assert read.timestamp_ms == -(2**63)


def test_records_are_equal_by_content() -> None:
    one = Record(1, 2, b"k", None, (("h", b"v"),))
    assert one == Record(1, 2, b"k", None, (("h", b"v"),))
    assert one != Record(1, 2, b"k", b"", (("h", b"v"),))
    assert one != (1, 2, b"k", None)
    assert "timestamp_ms=2" in repr(one)
