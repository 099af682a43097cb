"""The loops over keys, in Python and in C: what they see, enter and find.

That both agree on everything else is in tests/fuzz/test_key_loops.py.
"""

from __future__ import annotations

import subprocess
import sys
from array import array
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import KafkaError
from protocol.records import compact, key_loops
from protocol.records.errors import InvalidRecord
from protocol.records.key_loops import KEYLESS, NO_KEY, SLOT_SIZE, TOMBSTONE
from tests.records.loop_inputs import message, record, required

CHECKOUT = Path(__file__).resolve().parents[2]
EVERYTHING = (0, 1 << 62)


@pytest.fixture(params=["interpreted", "compiled"])
def twin(request: pytest.FixtureRequest) -> Any:
    return key_loops if request.param == "interpreted" else required()


def digest(key: bytes | None) -> bytes:
    return NO_KEY if key is None else blake2b(key, digest_size=16).digest()


def columns(starts: list[int], keys: list[bytes | None], offsets: list[int], flags: bytes) -> Any:
    digests = b"".join(map(digest, keys))
    return array("i", starts).tobytes(), digests, array("q", offsets).tobytes(), flags


def test_records_are_seen_by_place_key_offset_and_what_they_lack(twin: Any) -> None:
    data = record(0, 0, b"k", b"v") + record(-5, 3, None, None, [(b"h", b"x")])
    data += record(1 << 40, 70, b"", b"", pad=1) + record(0, 71, b"l" * 300, None)
    lengths = [0, len(record(0, 0, b"k", b"v"))]
    lengths.append(lengths[-1] + len(record(-5, 3, None, None, [(b"h", b"x")])))
    lengths.append(lengths[-1] + len(record(1 << 40, 70, b"", b"", pad=1)))
    keys = [b"k", None, b"", b"l" * 300]
    flags = bytes((0, TOMBSTONE | KEYLESS, 0, TOMBSTONE))
    wanted = columns([*lengths, len(data)], keys, [10, 13, 80, 81], flags)
    assert tuple(twin.keys_of_records(data, 4, 10)) == wanted
    assert tuple(twin.keys_of_records(b"", 0, 10)) == columns([0], [], [], b"")


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_are_seen_up_to_what_is_no_plain_one(twin: Any, magic: int) -> None:
    run = message(magic, 7, key=b"k") + message(magic, 9, value=None)
    size = len(message(magic, 7, key=b"k"))
    wanted = columns([5, 5 + size, 5 + len(run)], [b"k", None], [7, 9], b"\0\3")
    damaged = bytearray(message(magic, 10, key=b"k"))
    damaged[-1] ^= 1
    for after in (
        b"",
        message(magic, 10)[:-1],
        message(magic, 10, attributes=1),
        message(1 - magic, 10),
        bytes(damaged),
        bytes(80),
        message(magic, 10)[:8] + b"\xff" * 4 + bytes(30),
    ):
        assert tuple(twin.keys_of_messages(bytes(5) + run + after, 5, magic)) == wanted


def test_a_table_keeps_the_last_offset_of_a_key_and_gives_away_no_more_than_its_room(
    twin: Any,
) -> None:
    keys = [b"a", b"b", None, b"a", b"c", b"b"]
    digests, offsets = b"".join(map(digest, keys)), array("q", range(6)).tobytes()
    tables, rooms = [bytearray(7 * SLOT_SIZE)], array("q", [2])
    assert twin.enter_keys(digests, offsets, 0, *EVERYTHING, tables, rooms) == 4
    assert twin.enter_keys(digests, offsets, 5, *EVERYTHING, tables, rooms) == 6
    assert rooms[0] == 0
    found = array("q", twin.newest_offsets(digests, tables))
    assert [*found] == [3, 5, -1, 3, -1, 5]


def test_only_offsets_inside_of_the_range_are_entered(twin: Any) -> None:
    digests = b"".join(digest(b"%d" % n) for n in range(9))
    offsets = array("q", range(9)).tobytes()
    tables, rooms = [bytearray(11 * SLOT_SIZE) for _ in range(3)], array("q", [9] * 3)
    assert twin.enter_keys(digests, offsets, 1, 3, 7, tables, rooms) == 9
    assert 27 - sum(rooms) == 4
    assert [*array("q", twin.newest_offsets(digests, tables))] == [-1, -1, -1, 3, 4, 5, 6, -1, -1]


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (record(0, 0, b"k", b"v") + b"\0", 1),
        (record(0, 0, b"k", b"v"), 2),
        (record(0, 0, b"k", b"v")[:-1], 1),
        (b"\x80" * 9, 1),
        (b"\x10\0\0\0\x7e\2\2\2\0", 1),
        (b"\x10\0\0\0\2k\x7e\2\0", 1),
        (b"\1" * 9, 1),
        (b"", 1 << 40),
        (b"", -1),
    ],
)
def test_records_whose_lengths_do_not_fit_are_refused(data: bytes, count: int) -> None:
    for loop in (key_loops.keys_of_records, compact.keys_of_records):
        with pytest.raises(InvalidRecord):
            loop(data, count, 0)
    assert required().keys_of_records(data, count, 0) is None


def test_offsets_that_could_overflow_are_refused() -> None:
    for offset in ((1 << 62) + 1, -(1 << 62) - 1, 1 << 70):
        with pytest.raises(KafkaError, match="not within 2\\^62 of zero"):
            compact.keys_of_records(record(0, 0, b"k", b"v"), 1, offset)


def test_tables_that_are_none_are_not_written_to() -> None:
    compiled, one = required(), digest(b"k")
    offset, rooms = array("q", [1]).tobytes(), array("q", [1])
    for tables in ([], [b"x" * SLOT_SIZE * 3], [bytearray(5)], [bytearray(SLOT_SIZE)]):
        assert compiled.enter_keys(one, offset, 0, *EVERYTHING, tables, rooms) is None
        assert [*array("q", compiled.newest_offsets(one, tables))] == [-1]
    full = bytearray(b"\1" * SLOT_SIZE * 3)
    assert compiled.enter_keys(one, offset, 0, *EVERYTHING, [full], rooms) is None
    assert compiled.enter_keys(one, b"", 0, *EVERYTHING, [full], rooms) is None
    assert compiled.enter_keys(one, offset, -1, *EVERYTHING, [full], rooms) is None
    assert rooms[0] == 1


def test_without_the_loops_in_c_those_in_python_are_used() -> None:
    program = """
import sys
sys.modules["protocol.records._loops"] = None
from protocol.records import compact, key_loops
print(compact.keys_of_records is key_loops.keys_of_records)
"""
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert run.stdout == "True\n"
