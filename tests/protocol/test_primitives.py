"""The basic types of the wire: known bytes, the limits of each, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import primitives
from protocol.errors import ErrorCode, KafkaError, Malformed
from tests.protocol.declarations import QUICK

if TYPE_CHECKING:
    from collections.abc import Callable

UVARINTS = [
    (0, "00"),
    (1, "01"),
    (127, "7f"),
    (128, "8001"),
    (300, "ac02"),
    (16383, "ff7f"),
    (16384, "808001"),
    (0xFFFFFFFF, "ffffffff0f"),
]
VARINTS = [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (64, "8001"), (-(1 << 31), "ffffffff0f")]
VARLONGS = [
    *VARINTS,
    ((1 << 63) - 1, "feffffffffffffffff01"),
    (-(1 << 63), "ffffffffffffffffff01"),
]


def write_varlong(out: bytearray, value: int) -> None:
    """Zig-zag of 64 bits, which of what fits 32 makes the same as of 32."""
    left = value << 1 ^ value >> 63
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)


def written(write: Callable[..., None], *arguments: Any, **options: Any) -> bytes:
    out = bytearray()
    write(out, *arguments, **options)
    return bytes(out)


def whole(read: Callable[..., tuple[Any, int]], data: bytes, **options: bool) -> Any:
    """What a reader makes of these bytes; it must go to their end and not beyond."""
    value, position = read(b"??" + data + b"??", 2, 2 + len(data), **options)
    assert position == 2 + len(data)
    return value


@pytest.mark.parametrize(("value", "data"), UVARINTS)
def test_unsigned_varints_have_seven_bits_a_byte_low_group_first(value: int, data: str) -> None:
    assert written(primitives.write_uvarint, value).hex() == data
    assert whole(primitives.read_uvarint, bytes.fromhex(data)) == value


@pytest.mark.parametrize(("value", "data"), VARINTS)
def test_varints_are_zig_zag(value: int, data: str) -> None:
    assert written(write_varlong, value).hex() == data
    assert whole(primitives.read_varint, bytes.fromhex(data)) == value


@pytest.mark.parametrize(("value", "data"), VARLONGS)
def test_varlongs_take_up_to_ten_bytes(value: int, data: str) -> None:
    assert written(write_varlong, value).hex() == data
    assert whole(primitives.read_varlong, bytes.fromhex(data)) == value


@QUICK
@given(
    short=st.integers(-(1 << 31), (1 << 31) - 1),
    long=st.integers(-(1 << 63), (1 << 63) - 1),
)
def test_every_varint_comes_back(short: int, long: int) -> None:
    unsigned = short & 0xFFFFFFFF
    assert whole(primitives.read_uvarint, written(primitives.write_uvarint, unsigned)) == unsigned
    assert whole(primitives.read_varint, written(write_varlong, short)) == short
    assert whole(primitives.read_varlong, written(write_varlong, long)) == long


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (primitives.read_uvarint, "8080808080"),  # the fifth byte promises a sixth
        (primitives.read_uvarint, "808080808001"),
        (primitives.read_uvarint, "ffffffff1f"),  # 33 bits
        (primitives.read_varint, "ffffffffff01"),
        (primitives.read_varlong, "80808080808080808080"),
        (primitives.read_varlong, "ffffffffffffffffff02"),  # 65 bits
    ],
)
def test_a_varint_longer_than_its_type_is_refused(
    read: Callable[..., tuple[int, int]], data: str
) -> None:
    with pytest.raises(Malformed, match="bits"):
        read(bytes.fromhex(data) + b"\0\0", 0, len(data) // 2 + 2)


@pytest.mark.parametrize("value", [-1, 1 << 32])
def test_what_is_no_unsigned_varint_is_not_written(value: int) -> None:
    with pytest.raises(ValueError, match=str(value)):
        written(primitives.write_uvarint, value)


STRINGS = [
    (None, False, "ffff"),
    ("", False, "0000"),
    ("hé", False, "000368c3a9"),
    (None, True, "00"),
    ("", True, "01"),
    ("hé", True, "0468c3a9"),
]


@pytest.mark.parametrize(("text", "compact", "data"), STRINGS)
def test_strings_have_a_length_of_two_bytes_or_a_compact_one(
    text: str | None, compact: bool, data: str
) -> None:
    assert written(primitives.write_string, text, compact=compact).hex() == data
    assert whole(primitives.read_string, bytes.fromhex(data), compact=compact) == text


@pytest.mark.parametrize(
    ("data", "compact", "content"),
    [
        ("ffffffff", False, None),
        ("00000000", False, b""),
        ("000000020102", False, b"\x01\x02"),
        ("00", True, None),
        ("01", True, b""),
        ("030102", True, b"\x01\x02"),
    ],
)
def test_bytes_have_a_length_of_four_bytes_or_a_compact_one(
    data: str, compact: bool, content: bytes | None
) -> None:
    assert written(primitives.write_bytes, content, compact=compact).hex() == data
    assert whole(primitives.read_bytes, bytes.fromhex(data), compact=compact) == content


@pytest.mark.parametrize("compact", [False, True])
@QUICK
@given(raw=st.binary(max_size=300))
def test_a_string_of_any_bytes_comes_back(compact: bool, raw: bytes) -> None:
    text = raw.decode("utf-8", "surrogateescape")
    data = written(primitives.write_string, text, compact=compact)
    assert data.endswith(raw)
    assert whole(primitives.read_string, data, compact=compact) == text


@pytest.mark.parametrize("compact", [False, True])
def test_a_string_may_have_32767_bytes_and_no_more(compact: bool) -> None:
    data = written(primitives.write_string, "é" * 16383 + "x", compact=compact)
    assert len(whole(primitives.read_string, data, compact=compact)) == 16384
    with pytest.raises(ValueError, match="32768 bytes"):
        written(primitives.write_string, "é" * 16384, compact=compact)


def test_a_compact_string_that_claims_more_than_32767_bytes_is_refused() -> None:
    with pytest.raises(Malformed, match="32768 bytes"):
        whole(primitives.read_string, b"\x81\x80\x02" + b"x" * 32768, compact=True)


@pytest.mark.parametrize(
    ("read", "data", "compact"),
    [
        (primitives.read_string, "fffe", False),
        (primitives.read_string, "8000", False),
        (primitives.read_bytes, "fffffffe", False),
        (primitives.read_bytes, "80000000", False),
        (primitives.read_string, "000261", False),
        (primitives.read_string, "0361", True),
        (primitives.read_bytes, "7fffffff00", False),
        (primitives.read_bytes, "ffffffff0f00", True),
    ],
)
def test_a_length_that_lies_is_refused(
    read: Callable[..., tuple[Any, int]], data: str, compact: bool
) -> None:
    with pytest.raises(Malformed):
        whole(read, bytes.fromhex(data), compact=compact)


def test_a_value_that_ends_behind_the_end_is_refused_although_the_buffer_goes_on() -> None:
    readers: list[tuple[Callable[..., tuple[Any, int]], bytes, dict[str, bool]]] = [
        (primitives.read_int16, b"\x01\x02", {}),
        (primitives.read_int32, b"\x01\x02\x03\x04", {}),
        (primitives.read_uvarint, b"\xac\x02", {}),
        (primitives.read_varint, b"\xac\x02", {}),
        (primitives.read_varlong, b"\xac\x02", {}),
        (primitives.read_string, b"\x00\x02ab", {"compact": False}),
        (primitives.read_string, b"\x03ab", {"compact": True}),
        (primitives.read_bytes, b"\x00\x00\x00\x02ab", {"compact": False}),
        (primitives.read_bytes, b"\x03ab", {"compact": True}),
    ]
    for read, data, options in readers:
        assert read(data, 0, len(data), **options)[1] == len(data)
        for end in range(len(data)):
            with pytest.raises(Malformed):
                read(data, 0, end, **options)


@pytest.mark.parametrize(
    ("length", "options", "data"),
    [
        (None, {"compact": True}, "00"),
        (126, {"compact": True}, "7f"),
        (127, {"compact": True}, "8001"),
        (None, {"compact": False, "short": True}, "ffff"),
        (None, {"compact": False}, "ffffffff"),
        (5, {"compact": False}, "00000005"),
    ],
)
def test_lengths(length: int | None, options: dict[str, bool], data: str) -> None:
    assert written(primitives.write_length, length, **options).hex() == data
    assert whole(primitives.read_length, bytes.fromhex(data), **options) == length


@pytest.mark.parametrize(("short", "length"), [(True, 1 << 15), (False, 1 << 31)])
def test_a_length_that_does_not_fit_is_not_written(short: bool, length: int) -> None:
    with pytest.raises(ValueError, match=str(length)):
        written(primitives.write_length, length, compact=False, short=short)


def test_a_tag_section_is_stepped_over() -> None:
    data = b"\x03" + b"\x07\x02hi" + b"\x00\x00" + b"\x80\x01\x01!"
    assert primitives.skip_tags(data, 0, len(data)) == len(data)
    assert primitives.skip_tags(b"\0", 0, 1) == 1


@pytest.mark.parametrize("end", range(10))
def test_a_tag_section_that_is_cut_is_not_stepped_over(end: int) -> None:
    data = b"\x02" + b"\x07\x02hi" + b"\x80\x01\x02no"
    assert len(data) == 10
    with pytest.raises(Malformed):
        primitives.skip_tags(data, 0, end)


def test_a_tag_section_has_at_most_ten_thousand_entries() -> None:
    entry = b"\x01\x00"
    assert primitives.skip_tags(b"\x90\x4e" + entry * 10_000, 0, 20_002) == 20_002
    with pytest.raises(Malformed, match="10001"):
        primitives.skip_tags(b"\x91\x4e" + entry * 10_001, 0, 20_004)


# The error codes live at the same depth and have no file of their own.


def test_error_codes_are_numbers_with_a_name_and_a_meaning() -> None:
    assert [code.value for code in ErrorCode] == list(range(-1, 137))
    assert int(ErrorCode.THROTTLING_QUOTA_EXCEEDED) == 89
    assert ErrorCode(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len({code.meaning for code in ErrorCode}) == 138
    assert all(code.meaning.endswith(".") for code in ErrorCode)


def test_java_clients_retry_what_another_attempt_may_cure() -> None:
    assert ErrorCode.NOT_ENOUGH_REPLICAS.retriable
    assert ErrorCode.UNKNOWN_TOPIC_ID.retriable
    assert not ErrorCode.NONE.retriable
    assert not ErrorCode.TOPIC_AUTHORIZATION_FAILED.retriable


def test_an_error_carries_a_code_of_its_class_or_of_its_own() -> None:
    class Fenced(KafkaError):
        code = ErrorCode.PRODUCER_FENCED

    assert KafkaError("why").code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert KafkaError("why", code=ErrorCode.INVALID_CONFIG).code is ErrorCode.INVALID_CONFIG
    assert (Fenced().code, str(Fenced())) == (90, ErrorCode.PRODUCER_FENCED.meaning)
    assert str(Fenced("producer 7")) == "producer 7"
