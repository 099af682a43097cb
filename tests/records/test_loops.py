"""The loops over records, in Python and in C: what they give, and what they refuse.

With `TEST_REQUIRE_COMPILED` set, tests of the loops in C fail instead of being skipped. That both
agree on everything else is in tests/fuzz/test_loops.py.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from protocol.errors import ErrorCode
from protocol.records import loops, transcode
from protocol.records.builder import build_batch
from protocol.records.errors import CorruptBatch, InvalidRecord
from protocol.records.layout import HEADER_SIZE
from protocol.records.record import INT64_MAX, INT64_MIN, read_fields
from tests.records.loop_inputs import message, outcome, record, required

if TYPE_CHECKING:
    from protocol.errors import KafkaError
    from tests.records.loop_inputs import Call

CHECKOUT = Path(__file__).resolve().parents[2]
ALL = {"max_entry_bytes": 1 << 20, "oldest_ms": INT64_MIN, "newest_ms": INT64_MAX}
AS_THEY_ARE = {"append_time_ms": None, "min_offset": INT64_MIN}

V0 = bytes.fromhex("0000000000000005000000101fecd70a0000000000016b0000000176")
V1 = bytes.fromhex("0000000000000005000000173335d11501000000015d3ef79800ffffffff0000000176")
V1_TIME = 1_500_000_000_000
RECORDS = bytes.fromhex("16000000026b0276020268010c000502010000")
"""records.md 3.2: k=v with the header h=null, then null with the value "" 3 ms before."""


@pytest.fixture(params=["interpreted", "compiled"])
def twin(request: pytest.FixtureRequest) -> Any:
    return loops if request.param == "interpreted" else required()


# What they give.


@pytest.mark.parametrize("data", [V0, V1])
def test_a_scan_reports_the_message_of_the_specification(twin: Any, data: bytes) -> None:
    magic = data[16]
    found = transcode.MessageScan._make(twin.scan_messages(data + V0[:20], magic, **ALL))
    assert found.count == 1
    assert found.end == len(data)
    assert found.last_offset == 5
    assert (found.codecs, found.stamped, found.contiguous) == (1, False, False)
    assert (found.max_timestamp, found.max_index) == ((V1_TIME, 0) if magic else (-1, -1))
    assert found.null_key_index == (0 if magic else -1)
    assert found.bad_time_index == -1


def test_a_scan_of_nothing_finds_nothing(twin: Any) -> None:
    for data in (b"", V1[:-1], V1[:11]):
        found = twin.scan_messages(data, 1, **ALL)
        assert tuple(found) == (0, 0, 0, False, True, -1, -1, -1, -1, -1)


def test_a_scan_names_the_first_message_of_each_kind(twin: Any) -> None:
    times = [-1, 40, 70, 70, -5, 10]
    data = b"".join(
        message(1, index, time, None if index > 3 else b"k", attributes=(0, 8, 2)[index % 3])
        for index, time in enumerate(times)
    )
    found = transcode.MessageScan._make(
        twin.scan_messages(data, 1, max_entry_bytes=100, oldest_ms=0, newest_ms=69)
    )
    assert found.contiguous
    assert (found.codecs, found.stamped) == (0b101, True)
    assert (found.max_timestamp, found.max_index) == (70, 2)
    assert found.null_key_index == 4
    assert found.bad_time_index == 2


def test_the_window_includes_its_ends_and_spares_messages_without_a_time(twin: Any) -> None:
    data = b"".join(message(1, 0, time) for time in (5, 9, -1))
    assert twin.scan_messages(data, 1, max_entry_bytes=99, oldest_ms=5, newest_ms=9)[-1] == -1
    assert twin.scan_messages(data, 1, max_entry_bytes=99, oldest_ms=6, newest_ms=9)[-1] == 0
    assert twin.scan_messages(data, 1, max_entry_bytes=99, oldest_ms=5, newest_ms=8)[-1] == 1


def test_a_bound_may_lie_beyond_64_bits(twin: Any) -> None:
    bounds = {"oldest_ms": INT64_MIN - 5, "newest_ms": INT64_MAX + 1_700_000_000_000}
    assert twin.scan_messages(V1, 1, max_entry_bytes=1 << 70, **bounds)[-1] == -1
    assert twin.scan_records(RECORDS, 2, V1_TIME, **bounds)[3] == -1
    ends = message(1, 0, INT64_MIN) + message(1, 1, INT64_MAX)
    assert twin.scan_messages(ends, 1, max_entry_bytes=1 << 70, **bounds)[-1] == -1


def test_records_become_the_messages_of_the_specification(twin: Any) -> None:
    terms = {"base_offset": 7, "base_timestamp": V1_TIME, **AS_THEY_ARE}
    both = message(1, 7, V1_TIME, b"k", b"v") + message(1, 8, V1_TIME - 3, None, b"")
    assert twin.messages_from_records(RECORDS, 2, magic=1, **terms) == (both, 2)
    both = message(0, 7, key=b"k") + message(0, 8, value=b"")
    assert twin.messages_from_records(RECORDS, 2, magic=0, **terms) == (both, 2)


def test_an_append_time_is_the_time_of_every_message_and_sets_its_bit(twin: Any) -> None:
    terms = {"magic": 1, "append_time_ms": 99, "min_offset": 8}
    one = message(1, 8, 99, None, b"", attributes=8)
    records = twin.messages_from_records(RECORDS, 2, base_offset=7, base_timestamp=5, **terms)
    assert records == (one, 1)
    source = message(1, 0, 5, value=b"x") + message(1, 1, 6, value=b"")
    moved = {"source_magic": 1, "offset": 7, "renumber": False}
    assert twin.messages_from_messages(source, **moved, **terms) == (one, 1)


def test_times_wrap_at_64_bits_as_in_java(twin: Any) -> None:
    (run, _) = twin.messages_from_records(
        record(1, 0, None, b"v"), 1, base_offset=0, base_timestamp=INT64_MAX, magic=1, **AS_THEY_ARE
    )
    assert run == message(1, 0, INT64_MIN)
    source = message(1, 0, INT64_MIN) + message(1, 0, INT64_MAX)
    records, count, base, largest, end = twin.records_from_messages(
        source, 0, magic=1, max_bytes=99
    )
    assert (count, base, largest, end) == (2, INT64_MIN, INT64_MAX, len(source))
    assert records == record(0, 0, None, b"v") + record(-1, 1, None, b"v")


def test_offsets_are_kept_moved_or_given_anew(twin: Any) -> None:
    source = message(1, 3, 5) + message(1, 8, 6, b"k", None, spare=b"spare") + message(1, 9)[:-1]

    def moved(offset: int, *, renumber: bool, magic: int) -> object:
        return twin.messages_from_messages(
            source, source_magic=1, magic=magic, offset=offset, renumber=renumber, **AS_THEY_ARE
        )

    again = message(1, 13, 5) + message(1, 18, 6, b"k", None)
    assert moved(10, renumber=False, magic=1) == (again, 2)
    assert moved(10, renumber=True, magic=0) == (message(0, 10) + message(0, 11, -1, b"k", None), 2)


def test_a_message_without_a_time_gets_none(twin: Any) -> None:
    result = twin.messages_from_messages(
        V0, source_magic=0, magic=1, offset=0, renumber=False, **AS_THEY_ARE
    )
    assert result == (message(1, 5, -1, b"k"), 1)


def test_any_negative_size_is_null_and_written_as_minus_one(twin: Any) -> None:
    source = message(0, 0, value=None).replace(b"\xff" * 4, b"\x80\0\0\1")
    same = {"source_magic": 0, "magic": 0, "offset": 0, "renumber": True}
    assert twin.messages_from_messages(source, **same, **AS_THEY_ARE)[0] == message(
        0, 0, value=None
    )
    records, *_ = twin.records_from_messages(source, 0, magic=0, max_bytes=99)
    assert records == record(0, 0, None, None)


def test_messages_become_records_in_pieces_of_at_most_so_many_bytes(twin: Any) -> None:
    source = b"".join(message(1, 0, 100 + index, b"k", bytes(20)) for index in range(5))
    one = len(record(0, 0, b"k", bytes(20)))
    for max_bytes, counts in ((one, [1] * 5), (2 * one + 1, [2, 2, 1]), (-1, [1] * 5)):
        position = 0
        for expected in counts:
            records, count, base, largest, position = twin.records_from_messages(
                source, position, magic=1, max_bytes=max_bytes
            )
            assert count == expected
            assert largest == base + count - 1
            rows = [(base + index, b"k", bytes(20), ()) for index in range(count)]
            assert records == build_batch(rows)[HEADER_SIZE:]
        assert position == len(source)
    nothing = twin.records_from_messages(source, position, magic=1, max_bytes=99)
    assert nothing == (b"", 0, -1, -1, position)


def test_placing_writes_offsets_and_nothing_else(twin: Any) -> None:
    run = bytearray(V0 + V1 + V1[:-1])
    assert twin.place_messages(memoryview(run), INT64_MAX >> 1) == 2
    expected = (INT64_MAX >> 1).to_bytes(8) + V0[8:] + (1 << 62).to_bytes(8) + V1[8:] + V1[:-1]
    assert run == expected


def test_skipping_finds_the_first_message_that_is_not_too_old(twin: Any) -> None:
    run = message(1, 3) + message(1, 7) + message(1, 9)
    size = len(message(1, 3))
    found = [twin.skip_messages(run + run[:-1], offset) for offset in (INT64_MIN, 3, 4, 8)]
    assert found == [0, 0, size, 2 * size]
    assert twin.skip_messages(run[:-1], 9) == 3 * size - 1


def test_renumbered_records_keep_all_but_their_place() -> None:
    rows = [(9, b"k", None, [(b"h", b"x"), (b"", None)]), (-3, None, b"v" * 70, [])]
    source = b"".join(record(t, 900 - i, k, v, h, pad=1) for i, (t, k, v, h) in enumerate(rows))
    found = loops.renumber_records(source, 2)
    fields = [row[:2] + row[6:] for row in read_fields(found, 2)]
    assert fields == [(9, 0, (("h", b"x"), ("", None))), (-3, 1, ())]
    canonical = b"".join(record(t, i, k, v, h) for i, (t, k, v, h) in enumerate(rows))
    assert loops.renumber_records(canonical, 2) == canonical


# What they refuse.

WITH_LENGTH = struct.Struct(">i")


def changed(data: bytes, position: int, new: bytes) -> bytes:
    return data[:position] + new + data[position + len(new) :]


def resealed(data: bytes) -> bytes:
    return changed(data, 12, zlib.crc32(data[16:]).to_bytes(4))


SHORT_V1 = resealed(changed(V1, 8, WITH_LENGTH.pack(21))[:33])

REFUSED = [
    (changed(V1, 8, WITH_LENGTH.pack(13)), CorruptBatch, 2, "length 13, wanted 14"),
    (changed(V1, 8, WITH_LENGTH.pack(-1))[:12], CorruptBatch, 2, "length -1, wanted 14"),
    (changed(V1, 8, WITH_LENGTH.pack(1 << 30) + bytes(4) + b"\3"), CorruptBatch, 2, "magic 3"),
    (changed(V1, 16, b"\x81"), CorruptBatch, 2, "magic 129"),
    (changed(V1, 16, b"\2"), CorruptBatch, 2, "wanted 49 or more"),
    (changed(bytes(61), 8, WITH_LENGTH.pack(49) + bytes(4) + b"\2"), InvalidRecord, 87, "magic 2"),
    (V0, InvalidRecord, 87, "magic 0 in a set of magic 1"),
    (message(1, 0, value=bytes(70)), InvalidRecord, 10, "has 104 bytes, the limit is 100"),
    (changed(V1, 34, b"w"), CorruptBatch, 2, "does not fit its CRC"),
    (SHORT_V1, CorruptBatch, 2, "length 21, wanted 22"),
    (resealed(changed(V1, 26, WITH_LENGTH.pack(2))), CorruptBatch, 2, "runs out of its 35 bytes"),
    (resealed(changed(V1, 26, WITH_LENGTH.pack(2**31 - 1))), CorruptBatch, 2, "runs out"),
    (resealed(changed(V1, 30, WITH_LENGTH.pack(2))), CorruptBatch, 2, "runs out"),
    (resealed(changed(V1, 30, WITH_LENGTH.pack(2**31 - 1))), CorruptBatch, 2, "runs out"),
]


@pytest.mark.parametrize("before", [b"", V1])
@pytest.mark.parametrize(("data", "kind", "code", "text"), REFUSED, ids=[row[3] for row in REFUSED])
def test_a_scan_refuses(
    before: bytes, data: bytes, kind: type[KafkaError], code: int, text: str
) -> None:
    bounds = {**ALL, "max_entry_bytes": 100}
    for scan in (loops.scan_messages, transcode.scan_messages):
        with pytest.raises(kind, match=text) as caught:
            scan(before + data, 1, **bounds)
        assert type(caught.value) is kind
        assert caught.value.code == ErrorCode(code)


def test_the_end_of_a_cut_set_is_no_error_whatever_is_cut(twin: Any) -> None:
    for cut in (V0[:-1], V0[:17], changed(bytes(60), 8, WITH_LENGTH.pack(49) + bytes(4) + b"\2")):
        assert twin.scan_messages(V1 + cut, 1, **ALL)[:2] == (1, len(V1))


UNREADABLE = [
    (RECORDS + b"\0", 2),
    (RECORDS, 1),
    (RECORDS, 3),
    (RECORDS[:-1], 2),
    (RECORDS, 2**31 - 1),
    (b"", 1),
    (changed(RECORDS, 0, b"\x80" * 5), 2),
    (record(0, 0, None, None, pad=5), 1),
    (changed(record(0, 0, None, None, [(b"h", b"")]), 7, b"\1"), 1),
]


@pytest.mark.parametrize(("data", "count"), UNREADABLE)
def test_records_that_are_malformed_are_refused(data: bytes, count: int) -> None:
    terms = {"base_offset": 0, "base_timestamp": 0, "magic": 1, **AS_THEY_ARE}
    calls: list[Call] = [
        ("scan_records", (data, count, 0), {"oldest_ms": 0, "newest_ms": 0}),
        ("messages_from_records", (data, count), terms),
    ]
    for call in calls:
        (kind, code, text) = outcome(call, loops)
        assert (kind, code) == (InvalidRecord, ErrorCode.INVALID_RECORD)
        assert outcome(call, transcode) == (kind, code, text)
    with pytest.raises(InvalidRecord):
        loops.renumber_records(data, count)


@pytest.mark.parametrize(
    "data", [row[0] for row in REFUSED if row[3].startswith(("runs", "length"))]
)
def test_messages_whose_fields_run_out_are_refused_by_every_loop(data: bytes) -> None:
    moved = {"source_magic": 1, "magic": 0, "offset": 0, "renumber": True, **AS_THEY_ARE}
    calls: list[Call] = [
        ("messages_from_messages", (V1 + data,), moved),
        ("records_from_messages", (V1 + data, 0), {"magic": 1, "max_bytes": 999}),
        ("records_from_messages", (data, 0), {"magic": 1, "max_bytes": 999}),
    ]
    for call in calls:
        (kind, code, text) = outcome(call, loops)
        assert (kind, code) == (CorruptBatch, ErrorCode.CORRUPT_MESSAGE)
        assert outcome(call, transcode) == (kind, code, text)


def test_a_length_that_no_message_has_stops_placing_and_skipping() -> None:
    data = V1 + changed(V1, 8, WITH_LENGTH.pack(13))
    for module in (loops, transcode):
        with pytest.raises(CorruptBatch, match="position 35 has length 13"):
            module.place_messages(memoryview(bytearray(data)), 0)
        with pytest.raises(CorruptBatch, match="position 35 has length 13"):
            module.skip_messages(data, 6)


def test_offsets_that_could_overflow_are_refused() -> None:
    terms = {"base_timestamp": 0, "magic": 1, **AS_THEY_ARE}
    for module in (loops, transcode):
        for offset in ((1 << 62) + 1, -(1 << 62) - 1, 1 << 70):
            with pytest.raises(InvalidRecord, match="not within 2\\^62 of zero"):
                module.messages_from_records(RECORDS, 2, base_offset=offset, **terms)
            with pytest.raises(InvalidRecord, match="not within 2\\^62 of zero"):
                module.place_messages(memoryview(bytearray(V1)), offset)


def test_without_the_loops_in_c_those_in_python_are_used() -> None:
    program = """
import sys
sys.modules["protocol.records._loops"] = None
from protocol.records import loops, transcode
print(transcode.IMPLEMENTATION, transcode.scan_messages is loops.scan_messages)
"""
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert run.stdout == "interpreted True\n"


def test_the_loops_in_c_are_used_where_they_are_built() -> None:
    required()
    assert transcode.IMPLEMENTATION == "compiled"


def test_the_loop_in_c_tells_where_the_one_in_python_has_to_look() -> None:
    sound_records = required().sound_records
    good = [record(0, index, b"k" * index, b"v") for index in range(100)]
    before = b"".join(good)
    bad = b"\x12" + bytes(9)
    assert sound_records(before, 100) == (100, len(before))
    assert sound_records(before, 40) == (40, len(b"".join(good[:40])))
    assert sound_records(before + bad, 101) == (100, len(before))
    assert sound_records(memoryview(bad + before), 101) == (0, 0)
    assert sound_records(before[:-1], 100) == (99, len(b"".join(good[:-1])))
    assert sound_records(b"", 5) == sound_records(before, -1) == (0, 0)
    assert sound_records("text", 1) is None
