"""The compiled codecs: equal to the reference, and safe whatever the bytes are."""

from __future__ import annotations

import linecache
import random
import traceback
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import reference
from protocol.compiler import main
from protocol.errors import Malformed
from protocol.schema import Message, Struct, array, int8, int32, int64, string, struct
from tests.protocol.declarations import (
    CASES,
    QUICK,
    Data,
    Empty,
    EveryKind,
    Fixed,
    LogValue,
    Optional,
    Point,
    Tags,
    instances,
    sample,
)

if TYPE_CHECKING:
    pass

every_case = pytest.mark.parametrize(
    ("cls", "version"), CASES, ids=[f"{cls.__name__}-v{version}" for cls, version in CASES]
)
instance_of_any_version = st.sampled_from(CASES).flatmap(
    lambda case: st.tuples(st.just(case[1]), instances(*case))
)


def outcome(decode: Any, *arguments: Any) -> Any:
    """What a decoder makes of bytes: Malformed, or the bytes of the instance it returns.

    Instances are compared by their bytes because a NaN does not equal itself.
    """
    try:
        return decode(*arguments)
    except Malformed:
        return Malformed


# Equal to the reference.


@QUICK
@given(case=instance_of_any_version)
def test_both_codecs_write_the_same_bytes(case: tuple[int, Struct]) -> None:
    version, message = case
    assert message.encode(version) == reference.encode(message, version)


@QUICK
@given(case=instance_of_any_version)
def test_what_was_written_is_read_back_by_both_codecs(case: tuple[int, Struct]) -> None:
    version, message = case
    data = message.encode(version)
    for decoded in (
        type(message).decode(version, data),
        type(message).decode(version, bytearray(data)),
        reference.decode(type(message), version, data),
    ):
        assert reference.encode(decoded, version) == data
        assert repr(decoded) == repr(message)


@QUICK
@given(case=instance_of_any_version, before=st.binary(max_size=5), after=st.binary(max_size=5))
def test_a_message_is_read_from_the_middle_of_a_buffer(
    case: tuple[int, Struct], before: bytes, after: bytes
) -> None:
    version, message = case
    data = message.encode(version)
    buffer = bytearray(before + data + after)
    decoded, position = message.decoder(version)(buffer, len(before), len(before) + len(data))
    assert position == len(before) + len(data)
    assert reference.encode(decoded, version) == data


# Bytes that are not a message.


@every_case
@pytest.mark.parametrize("size", [1, 5])
def test_a_message_cut_anywhere_is_malformed(cls: type[Struct], version: int, size: int) -> None:
    data = sample(cls, version, size).encode(version)
    decode = cls.decoder(version)
    for end in range(len(data)):
        with pytest.raises(Malformed):
            decode(data[:end], 0, end)
        # The rest of the frame, or another one, lies behind `end` in the same buffer.
        with pytest.raises(Malformed):
            decode(bytearray(data), 0, end)
        with pytest.raises(Malformed):
            reference.decode(cls, version, data[:end])


@every_case
def test_changed_bytes_are_refused_or_read_as_the_reference_reads_them(
    cls: type[Struct], version: int
) -> None:
    chooser = random.Random(f"{cls.__name__} {version}")
    read = 0
    for attempt in range(400):
        data = sample(cls, version, (1, 2, 5)[attempt % 3]).encode(version)
        changed = bytearray(data)
        for _ in range(chooser.randint(1, 3)):
            position = chooser.randrange(len(data) + 1)
            match chooser.randrange(4):
                case 0:
                    changed[position : position + 1] = bytes([chooser.randrange(256)])
                case 1:
                    changed[position : position + 1] = chooser.choice([b"\0", b"\x80", b"\xff"])
                case 2:
                    del changed[position : position + chooser.randint(1, 4)]
                case _:
                    changed[position:position] = chooser.randbytes(chooser.randint(1, 4))
        frozen = bytes(changed)
        compiled = outcome(cls.decode, version, frozen)
        slow = outcome(reference.decode, cls, version, frozen)
        if compiled is Malformed or slow is Malformed:
            assert compiled is slow, frozen.hex()
        else:
            read += 1
            assert reference.encode(compiled, version) == reference.encode(slow, version)
    assert read or cls is Empty


@every_case
def test_random_bytes_are_refused_or_read(cls: type[Struct], version: int) -> None:
    chooser = random.Random(f"random {cls.__name__} {version}")
    for _ in range(400):
        noise = chooser.randbytes(chooser.randrange(60))
        compiled = outcome(cls.decode, version, noise)
        slow = outcome(reference.decode, cls, version, noise)
        assert (compiled is Malformed) == (slow is Malformed), noise.hex()


class Lists(Message, key=905, versions="0-1", flexible="1+"):
    class Row(Struct):
        name: str = string()
        words: list[str] = array(string)

    rows: list[Row] = array(Row)
    points: list[Point] = array(Point)


def test_a_count_that_cannot_fit_is_refused_before_anything_is_made() -> None:
    for count in (3, 1000, 0x7FFFFFFF, -2, -0x80000000):
        with pytest.raises(Malformed, match="rows"):
            Lists.decode(0, count.to_bytes(4, "big", signed=True) + bytes(10))


def test_more_than_a_million_elements_in_one_message_are_refused() -> None:
    # Three lists of half a million words each, every one of which would be allowed alone.
    words = (500_001).to_bytes(3, "big")
    half_a_million = bytes([words[2] & 0x7F | 0x80, (500_001 >> 7) & 0x7F | 0x80, 500_001 >> 14])
    row = b"\x01" + half_a_million + b"\x01" * 500_000 + b"\0"
    assert len(Lists.decode(1, b"\x02" + row + b"\x01\0").rows[0].words) == 500_000
    with pytest.raises(Malformed, match="more than 1000000 elements"):
        Lists.decode(1, b"\x04" + row * 3 + b"\x01\0")


def test_a_decoded_message_takes_a_small_multiple_of_its_bytes() -> None:
    def allocated(version: int, data: bytes) -> int:
        Lists.decoder(version)
        tracemalloc.start()
        try:
            message = Lists.decode(version, data)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            del message

    count = b"\xa1\x9c\x01"  # 20,000 in compact form
    strings = b"\x02" + b"\x01" + count + b"\x01" * 20_000 + b"\0" + b"\x01\0"
    assert allocated(1, strings) < 12 * len(strings)
    # The worst there is: structs of an empty string, an empty array and no tags.
    rows = count + b"\x01\x01\0" * 20_000 + b"\x01\0"
    assert allocated(1, rows) < 50 * len(rows)


def test_null_is_refused_where_the_version_does_not_allow_it() -> None:
    with pytest.raises(Malformed, match="rows"):
        Lists.decode(1, b"\0\x01\0")
    with pytest.raises(Malformed, match="rows"):
        Lists.decode(0, b"\xff\xff\xff\xff" + bytes(4))
    # The maybe-string of version 1 may not be null, that of version 2 may.
    message = sample(EveryKind, 2, 1)
    message.maybe = None
    assert EveryKind.decode(2, message.encode(2)).maybe is None
    with pytest.raises(ValueError, match=r"EveryKind\.maybe is None"):
        message.encode(1)


def test_a_string_above_32767_bytes_is_refused_in_compact_form_too() -> None:
    class Named(Message, key=906, versions="0", flexible="0+"):
        name: str = string()

    longest = b"\x80\x80\x02" + b"x" * 32767 + b"\0"
    assert len(Named.decode(0, longest).name) == 32767
    assert Named(name="x" * 32767).encode(0) == longest
    with pytest.raises(Malformed, match="32768 bytes"):
        Named.decode(0, b"\x81\x80\x02" + b"x" * 32768 + b"\0")
    with pytest.raises(ValueError, match=r"Named\.name"):
        Named(name="x" * 32768).encode(0)


def test_bytes_that_are_not_utf8_survive_the_way_there_and_back() -> None:
    data = b"\0\0\0\0\0\0\0\x05" + b"\0\x04\xff\xfe\xed\xa0"
    message = LogValue.decode(1, data)
    assert message.encode(1) == data


# Tag sections.


def tags(*entries: tuple[int, bytes]) -> bytes:
    """The end of a `Tags` v1 whose other fields are empty, with these tags at the top."""
    body = b"\0\0\0\x01" + b"\x01\0" + b"\x01"
    assert len(entries) < 128
    section = bytes([len(entries)])
    for tag, content in entries:
        section += bytes([tag]) if tag < 128 else bytes([tag & 0x7F | 0x80, tag >> 7])
        section += bytes([len(content)]) + content
    return body + section


def test_tags_are_read_in_any_order_and_unknown_ones_are_stepped_over() -> None:
    message = Tags.decode(1, tags((130, b"\x01"), (99, b"???"), (0, b"\x03no"), (2, b"later")))
    assert message == Tags(plain=1, text="no", flag=True, inner=Tags.Inner(), inners=[])


def test_tags_are_written_in_ascending_order_and_defaults_are_not_written() -> None:
    message = Tags(
        plain=1, words=["w"], text="t", flag=True, inner=Tags.Inner(), inners=[], ratio=0.0
    )
    expected = tags((0, b"\x02t"), (3, b"\x02\x02w"), (130, b"\x01"))
    assert message.encode(1) == reference.encode(message, 1) == expected


def test_a_default_given_explicitly_is_not_written_either() -> None:
    message = Tags(plain=1, point=Point(x=-1, y=-1), maybe_text="x", inner=Tags.Inner(), inners=[])
    assert message.encode(1) == tags()
    message.maybe_text = None
    assert message.encode(1) == tags((5, b"\0"))


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([(0, b"\x02a"), (0, b"\x02a")], "twice"),
        ([(0, b"\x02a!")], "ends at"),
        ([(0, b"\x03a")], "2 bytes wanted, 1 left"),
        ([(130, b"")], "ends too early"),
        ([(3, b"\x7f")], "126 elements claimed"),
    ],
)
def test_a_known_tag_comes_once_and_fills_its_size(
    entries: list[tuple[int, bytes]], problem: str
) -> None:
    data = tags(*entries)
    with pytest.raises(Malformed, match=problem):
        Tags.decode(1, data)
    with pytest.raises(Malformed):
        reference.decode(Tags, 1, data)


@pytest.mark.parametrize("tagged", [0, 3, 6])
def test_a_tag_in_one_of_many_rows_of_fixed_width_is_seen(tagged: int) -> None:
    rows = [
        Fixed.Row(identity=bytes([i]) * 16, flag=i % 2 == 0, number=i, note="x" * (i == tagged))
        for i in range(7)
    ]
    message = Fixed(points=[Point(x=i, y=i) for i in range(5)], rows=rows, name="end")
    data = message.encode(1)
    assert data == reference.encode(message, 1)
    assert Fixed.decode(1, data) == message
    # An unknown tag in the same place is stepped over.
    assert data.count(b"\x01\0\x02\x02x") == 1
    assert Fixed.decode(1, data.replace(b"\x01\0\x02\x02x", b"\x01\x09\x02??")).rows == [
        *rows[:tagged],
        Fixed.Row(identity=bytes([tagged]) * 16, flag=tagged % 2 == 0, number=tagged),
        *rows[tagged + 1 :],
    ]


def test_an_unknown_tag_may_come_twice() -> None:
    assert Tags.decode(1, tags((99, b""), (99, b"x"))).plain == 1


def test_a_tag_section_of_more_than_ten_thousand_entries_is_refused() -> None:
    allowed = Empty.decode(1, b"\x90\x4e" + b"\x01\0" * 10_000)
    assert allowed == Empty()
    with pytest.raises(Malformed, match="10001"):
        Empty.decode(1, b"\x91\x4e" + b"\x01\0" * 10_001)


@pytest.mark.parametrize("data", [b"\x80\x80\x80\x80\x80\x01", b"\xff\xff\xff\xff\x7f", b"\x80"])
def test_an_overlong_varint_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        Empty.decode(1, data)
    with pytest.raises(Malformed):
        Lists.decode(1, data + bytes(20))


# Records.


class FileSlice:
    """Bytes of a file as the broker passes them: a size, and nothing in memory."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.size = len(content)

    def read(self) -> bytes:
        return self.content


@pytest.mark.parametrize("version", [0, 1])
def test_records_are_windows_on_the_input(version: int) -> None:
    topic = Data.Topic(
        name="t", partitions=[Data.Topic.Partition(index=1, records=memoryview(b"batch"))]
    )
    buffer = bytearray(Data(topics=[topic], required=memoryview(b"more")).encode(version))
    decoded, _ = Data.decoder(version)(buffer, 0, len(buffer))
    window = decoded.topics[0].partitions[0].records
    assert window is not None
    window[0:5] = b"BATCH"
    assert b"BATCH" in buffer


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("size", [0, 5, 126, 127, 20_000])
def test_a_slice_of_a_file_is_announced_but_not_copied(version: int, size: int) -> None:
    content = FileSlice(b"s" * size)
    partitions = [
        Data.Topic.Partition(index=1, records=content),  # type: ignore[arg-type]
        Data.Topic.Partition(index=2, records=None),
        Data.Topic.Partition(index=3, records=memoryview(b"in memory")),
    ]
    message = Data(topics=[Data.Topic(name="t", partitions=partitions)], required=memoryview(b""))
    out = bytearray(b"header")
    slices: list[tuple[int, object]] = [(0, "earlier")]
    Data.encoder(version)(message, out, slices)
    (_, earlier), (position, announced) = slices
    assert (earlier, announced) == ("earlier", content)
    whole = bytes(out[6:position]) + content.read() + bytes(out[position:])
    assert whole == reference.encode(message, version)
    with pytest.raises(ValueError, match="file slice"):
        message.encode(version)


# Errors.


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"small": 128}, r"EveryKind\.small = 128 does not fit int8"),
        ({"text": None}, r"EveryKind\.text is None"),
        ({"text": b"bytes"}, r"EveryKind\.text = b'bytes' does not fit string"),
        ({"identity": b"short"}, r"EveryKind\.identity does not fit uuid.*not 5"),
        ({"identities": [bytes(16), bytes(17)]}, r"EveryKind\.identities\[1\].*not 17"),
        ({"numbers": [1, 1 << 31]}, r"EveryKind\.numbers\[1\]"),
        ({"matrix": [[1], [2, 70000]]}, r"EveryKind\.matrix\[1\]\[1\]"),
        ({"point": None}, r"EveryKind\.point is None"),
        ({"text": "\ud800"}, r"EveryKind\.text"),
    ],
)
def test_a_value_that_does_not_fit_is_named(change: dict[str, Any], path: str) -> None:
    message = sample(EveryKind, 5, 2)
    for name, value in change.items():
        setattr(message, name, value)
    with pytest.raises(ValueError, match=path):
        message.encode(5)


def test_a_value_deep_inside_is_named_by_its_path() -> None:
    message = sample(EveryKind, 5, 2)
    message.rows[1].cells[0].number = 40_000
    with pytest.raises(ValueError, match=r"EveryKind\.rows\[1\]\.cells\[0\]\.number = 40000"):
        message.encode(5)


def test_bytes_after_the_last_field_are_left_to_the_caller() -> None:
    _, position = LogValue.decoder(0)(bytes(11), 0, 11)
    assert position == 8
    with pytest.raises(Malformed, match="3 bytes after the last field"):
        LogValue.decode(0, bytes(11))


def test_a_version_that_does_not_exist_is_a_mistake_of_ours() -> None:
    for version in (-1, 6):
        with pytest.raises(ValueError, match="0-5"):
            EveryKind.decoder(version)
        with pytest.raises(ValueError, match="0-5"):
            EveryKind.encoder(version)


def test_a_codec_is_compiled_once() -> None:
    assert EveryKind.decoder(3) is EveryKind.decoder(3)
    assert EveryKind.encoder(3) is EveryKind.encoder(3)


# What a person sees.


def test_a_traceback_shows_the_generated_line() -> None:
    with pytest.raises(AttributeError) as caught:
        Optional.encoder(0)(object(), bytearray(), [])  # type: ignore[arg-type]
    shown = "".join(traceback.format_exception(caught.value))
    assert "<Optional v0 encode>" in shown
    assert "message.cursor" in shown
    linecache.checkcache()
    assert linecache.getline("<Optional v0 encode>", 1).startswith("def encode(")


def test_a_command_prints_the_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"{__name__}:Lists", "1", "decode"]) == 0
    source = capsys.readouterr().out
    assert source.startswith("def decode(buffer, position, end):\n")
    compile(source, "<printed>", "exec")
    assert main(["Lists", "1", "sideways"]) == 2
    assert main(["NoSuchRequest", "1", "decode"]) == 1
    assert main([f"{__name__}:Lists", "7", "decode"]) == 1
    assert "Lists has versions 0-1, not 7" in capsys.readouterr().out


def test_field_names_do_not_clash_with_the_names_of_the_generated_code() -> None:
    class Clash(Message, key=907, versions="0-1", flexible="1+"):
        class out(Struct):
            end: int = int8()

        n: list[out] = array(out)
        position: out = struct(out)
        data: out | None = struct(out, nullable="")
        buffer: list[int] = array(int64)
        message: str = string()
        view: int = int32()

    one = Clash.out(end=7)
    message = Clash(n=[one], position=one, data=one, buffer=[1, 2], message="m", view=9)
    for version in (0, 1):
        assert message.encode(version) == reference.encode(message, version)
        assert Clash.decode(version, message.encode(version)) == message
