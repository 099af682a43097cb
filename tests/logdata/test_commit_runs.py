"""Ordinary commits, by the loop in Python and the one in C."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import pytest

from protocol.logdata import commit_runs
from protocol.logdata.commits import commit_batch
from protocol.logdata.offsets import OffsetCommitKey, OffsetCommitValue, encode_record
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.crc import crc32c
from protocol.records.layout import CHECKED_POSITION, CRC_POSITION, INT64, UINT32
from tests.records.loop_inputs import required

NOW_MS = 1_700_000_000_000


@pytest.fixture(params=["interpreted", "compiled"])
def read(request: pytest.FixtureRequest) -> Any:
    if request.param == "interpreted":
        return commit_runs.interpreted_ordinary_commits
    return required().ordinary_commits


def batch(
    group: str, *entries: tuple[str, int, int], base_offset: int = 0, **options: Any
) -> bytes:
    full = [(topic, partition, offset, 3, "", -1) for topic, partition, offset in entries]
    made = commit_batch(group, full, now_ms=NOW_MS, **options)
    INT64.pack_into(made, 0, base_offset)
    return bytes(made)


def sealed(data: bytearray) -> bytes:
    UINT32.pack_into(data, CRC_POSITION, Batch(memoryview(data)).checksum())
    return bytes(data)


def test_neighbours_of_one_topic_are_one_row(read: Any) -> None:
    one = batch("g", ("t", 0, 10), ("t", 1, 11), ("u", 0, 12), ("t", 2, 13))
    two = batch("ü", ("t", 2, 14))
    assert read(one + two, 0) == (
        len(one) + len(two),
        len(one),
        5,
        [
            ("g", "t", [0, 1], [10, 11], [3, 3], [NOW_MS, NOW_MS], ""),
            ("g", "u", 0, 12, 3, NOW_MS, ""),
            ("g", "t", 2, 13, 3, NOW_MS, ""),
            ("ü", "t", 2, 14, 3, NOW_MS, ""),
        ],
    )


def test_a_commit_of_a_thousand_partitions_is_one_row(read: Any) -> None:
    data = batch("g", *(("t", partition, -1) for partition in range(1000)))
    end, last, records, rows = read(data, 0)
    assert (end, last, records, len(rows)) == (len(data), 0, 1000, 1)
    assert rows[0][2] == list(range(1000))


def record_of(**changes: Any) -> tuple[bytes, bytes | None]:
    facts: dict[str, Any] = {"partition": 1, "metadata": "", "expire": -1} | changes
    key = OffsetCommitKey(group="g", topic="t", partition=facts["partition"])
    value = OffsetCommitValue(
        offset=1,
        leader_epoch=-1,
        metadata=facts["metadata"],
        commit_timestamp=NOW_MS,
        expire_timestamp=facts["expire"],
    )
    return encode_record((key, value))


def strange() -> dict[str, bytes]:
    key, value = record_of()
    assert value is not None
    plain = bytearray(batch("g", ("t", 1, 1)))
    damaged = bytearray(plain)
    damaged[-5] ^= 1
    other_version = bytearray(plain)
    other_version[16] = 1
    more_records, fewer_records = bytearray(plain), bytearray(batch("g", ("t", 1, 1), ("t", 2, 2)))
    more_records[60], fewer_records[60] = 2, 1
    record = (NOW_MS, key, value, ())
    return {
        "metadata of many bytes": build_batch([(NOW_MS, *record_of(metadata="m" * 8192), ())]),
        "expiry": build_batch([(NOW_MS, *record_of(expire=5), ())]),
        "tombstone": build_batch([(NOW_MS, key, None, ())]),
        "null key": build_batch([(NOW_MS, None, value, ())]),
        "key version 0": build_batch([(NOW_MS, b"\x00\x00" + key[2:], value, ())]),
        "negative partition": build_batch([(NOW_MS, *record_of(partition=-1), ())]),
        "bytes after the key": build_batch([(NOW_MS, key + b"\x00", value, ())]),
        "bytes after the value": build_batch([(NOW_MS, key, value + b"\x00", ())]),
        "headers": build_batch([(NOW_MS, key, value, (("h", b""),))]),
        "a later record": build_batch([record, (NOW_MS + 1, key, value, ())]),
        "compressed": build_batch([record] * 9, codec=1),
        "transactional": batch("g", ("t", 1, 1), producer_id=5, producer_epoch=0),
        "control": build_batch([record], control=True),
        "delete horizon": sealed(bytearray(plain[:22] + b"\x40" + plain[23:])),
        "strange attribute": sealed(bytearray(plain[:21] + b"\x01" + plain[22:])),
        "wrong checksum": bytes(damaged),
        "another format": sealed(other_version),
        "one record too few": sealed(more_records),
        "one record too many": sealed(fewer_records),
        "cut": bytes(plain[:-5]),
        "garbage": b"\x02" * 99,
    }


@pytest.mark.parametrize("name", strange())
def test_what_is_not_ordinary_is_left_where_it_is(name: str, read: Any) -> None:
    ordinary = batch("g", ("t", 0, 10))
    rows = [("g", "t", 0, 10, 3, NOW_MS, "")]
    data = ordinary + strange()[name] + ordinary
    assert read(data, 0) == (len(ordinary), 0, 1, rows)
    assert read(strange()[name], 0) == (0, -1, 0, [])


def test_commits_with_metadata_are_rows_of_their_own(read: Any) -> None:
    texts = ("", "", "m", "m", "x\udc80" * 2000, "", "")
    entries = [("t", partition, 5, 3, text, -1) for partition, text in enumerate(texts)]
    rows = read(bytes(commit_batch("g", entries, now_ms=NOW_MS)), 0)[3]
    assert [row[2] for row in rows] == [[0, 1], 2, 3, 4, [5, 6]]
    assert [row[6] for row in rows] == ["", "m", "m", "x\udc80" * 2000, ""]
    assert rows[2] == ("g", "t", 3, 5, 3, NOW_MS, "m")


def test_the_time_of_the_append_may_be_the_time_of_a_batch(read: Any) -> None:
    data = bytearray(batch("g", ("t", 0, 10)))
    Batch(memoryview(data)).stamp_log_append_time(NOW_MS + 9)
    assert read(bytes(data), 0)[2:] == (1, [("g", "t", 0, 10, 3, NOW_MS, "")])


def test_records_that_compaction_left_are_ordinary(read: Any) -> None:
    whole = bytearray(batch("g", *(("t", partition, partition) for partition in range(200))))
    records = list(Batch(memoryview(whole)).records())
    first, second = batch("g", ("t", 5, 5)), batch("g", ("t", 150, 150))
    assert len(records) == 200
    kept = bytearray(first[:61])
    kept += first[61:64] + b"\x0a" + first[65:]  # offset delta 5
    size = second[61]
    assert size < 0x7E  # even when a byte longer
    kept += bytes((size + 2,)) + second[62:64] + b"\xac\x02" + second[65:]  # offset delta 150
    kept[57:61] = (2).to_bytes(4, "big")
    kept[8:12] = (len(kept) - 12).to_bytes(4, "big")
    kept[23:27] = (199).to_bytes(4, "big")
    assert [r.offset for r in Batch(memoryview(sealed(kept))).records()] == [5, 150]
    assert read(sealed(kept), 0)[3] == [
        ("g", "t", [5, 150], [5, 150], [3, 3], [NOW_MS, NOW_MS], "")
    ]


def mutated(chance: random.Random) -> bytes:
    pieces = []
    for _ in range(chance.randrange(1, 4)):
        count = chance.choice((1, 1, 2, 5, 70))
        entries = [
            (
                chance.choice(("t", "t", "topic")),
                chance.randrange(9),
                5,
                3,
                chance.choice(("", "", "", "m", "m" * 70)),
                -1,
            )
            for _ in range(count)
        ]
        group = chance.choice(("g", "group" * 9, "\udc80"))
        made = commit_batch(group, entries, now_ms=NOW_MS)
        for _ in range(chance.choice((0, 1, 1, 2, 4))):
            position = chance.choice((chance.randrange(len(made)), chance.randrange(21, 75)))
            kind = chance.randrange(4)
            if kind < 2:
                made[position] = chance.choice(
                    (0, 1, 2, 0x30, 0x7F, 0x80, 0xFF, chance.randrange(256))
                )
            elif kind == 2:
                del made[position]
            else:
                made.insert(position, chance.randrange(256))
        if chance.random() < 0.8 and len(made) > 61:
            if chance.random() < 0.9:
                made[8:12] = (len(made) - 12).to_bytes(4, "big")
            UINT32.pack_into(made, CRC_POSITION, crc32c(memoryview(made)[CHECKED_POSITION:]))
        pieces.append(bytes(made))
    return b"".join(pieces)


def test_both_loops_take_the_same_of_whatever_there_is() -> None:
    chance = random.Random(2026)
    compiled, taken = required().ordinary_commits, 0
    for number in range(8000):
        data = mutated(chance)
        position = chance.choice((0, 0, 0, chance.randrange(len(data) + 1)))
        expected = commit_runs.interpreted_ordinary_commits(data, position)
        assert compiled(data, position) == expected, f"set {number} at {position}: {data.hex()}"
        taken += expected[1] >= 0
    assert 1000 < taken < 7000


def test_the_checksum_in_c_is_right_for_every_size() -> None:
    read = required().ordinary_commits
    for size in range(1, 100):
        data = batch("g" * size, ("t", 0, 1))
        assert read(data, 0)[0] == len(data)


def test_without_the_loops_in_c_the_one_in_python_is_used() -> None:
    program = """
import sys
sys.modules["protocol.records._loops"] = None
from protocol.logdata import commit_runs
print(commit_runs.ordinary_commits is commit_runs.interpreted_ordinary_commits)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"
