"""Records in `__consumer_offsets` that nobody can read: left out and named, and nothing else is."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from protocol.logdata.offsets import OffsetCommitKey, OffsetCommitValue, encode_record
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.walk import walk
from tests.support.group_caller import Found, GroupCaller, Member, rebalance

if TYPE_CHECKING:
    from pathlib import Path

    from protocol.records.builder import RecordFields
    from tests.support.broker_process import BrokerProcess

NOW_MS = 1_700_000_000_000
LOG = "__consumer_offsets-0/00000000000000000000.log"
SKIPPED = "a record of groups was skipped"


@pytest.fixture
def own_broker(own_broker: BrokerProcess) -> BrokerProcess:
    """With one partition of groups, so that a test knows the file."""
    own_broker.settings = {"offsets.topic.num.partitions": "1"}
    own_broker.start()
    with GroupCaller(own_broker.host, own_broker.port) as groups:
        groups.create_topic("t", partitions=4)
    return own_broker


def commit_record(group: str, offset: int) -> RecordFields:
    record = (
        OffsetCommitKey(group=group, topic="t", partition=0),
        OffsetCommitValue(offset=offset, metadata="", commit_timestamp=NOW_MS),
    )
    return (NOW_MS, *encode_record(record), ())


def append(path: Path, *batches: list[RecordFields]) -> list[int]:
    """Write batches behind what the log of a stopped broker holds; the offsets of their records."""
    data = memoryview(path.read_bytes())
    ends = [Batch(data[at : at + size]).last_offset + 1 for at, size, _ in walk(data)]
    offset = ends[-1] if ends else 0
    offsets: list[int] = []
    with path.open("ab") as file:
        for records in batches:
            file.write(build_batch(records, base_offset=offset, leader_epoch=0))
            offsets += range(offset, offset + len(records))
            offset += len(records)
    return offsets


KEY = encode_record((OffsetCommitKey(group="foreign", topic="t", partition=0), None))[0]
VALUE = commit_record("foreign", 1)[2]

STRANGE: dict[str, tuple[bytes | None, bytes | None]] = {
    "no key": (None, VALUE),
    "an empty key": (b"", VALUE),
    "a key of one byte": (b"\x00", VALUE),
    "a key of an unknown version": (struct.pack(">h", 99) + KEY[2:], VALUE),
    "a key of a negative version": (struct.pack(">h", -1) + KEY[2:], VALUE),
    "a key of a share group": (struct.pack(">hh", 11, 7) + b"foreign", b"\x00\x00\x00\x00\x00\x05"),
    "a key cut short": (KEY[:-3], VALUE),
    "a key that claims too much": (struct.pack(">hh", 1, 32_767) + b"foreign", VALUE),
    "a value of an unknown version": (KEY, struct.pack(">h", 77) + (VALUE or b"")[2:]),
    "a value cut short": (KEY, (VALUE or b"")[:-9]),
    "an empty value": (KEY, b""),
    "a group of a value that is garbage": (
        struct.pack(">hh", 2, 7) + b"foreign",
        b"\x00\x03\xff\xff",
    ),
    "a group that claims 2**31 - 1 members": (
        struct.pack(">hh", 2, 7) + b"foreign",
        struct.pack(">hh8sihhqi", 3, 8, b"consumer", 1, -1, -1, NOW_MS, 2**31 - 1),
    ),
    "a member of a group that does not exist": (
        struct.pack(">hh", 8, 7) + b"foreign" + struct.pack(">h", 1) + b"m",
        b"\x00\x00\xff",
    ),
}


def test_each_is_skipped_alone_and_named(own_broker: BrokerProcess) -> None:
    with GroupCaller(own_broker.host, own_broker.port) as groups:
        groups.commit("before", {("t", 0): 1, ("t", 1): 2})
        member = Member.connect(own_broker, "members")
        rebalance(member)
        member.commit({("t", 2): 3})
    own_broker.kill()
    # Between neighbours in one batch, which are sound.
    numbered = list(enumerate(STRANGE.items()))
    offsets = append(
        own_broker.data / LOG,
        *(
            [commit_record(f"a{at}", at), (NOW_MS, key, value, ()), commit_record(f"z{at}", at)]
            for at, (_, (key, value)) in numbered
        ),
    )

    own_broker.start()

    with GroupCaller(own_broker.host, own_broker.port) as groups:
        assert groups.committed("before", None) == {("t", 0): Found(1), ("t", 1): Found(2)}
        assert groups.committed("members", None) == {("t", 2): Found(3)}
        for at, (what, _) in numbered:
            for name in (f"a{at}", f"z{at}"):
                assert groups.committed(name, None) == {("t", 0): Found(at)}, what
        assert groups.committed("foreign", None) == {}
        member.close()
        member.caller = groups
        assert member.heartbeat() == 0
        assert groups.commit("after", {("t", 0): 9}) == {("t", 0): 0}
    lines = [line for line in own_broker.output().splitlines() if SKIPPED in line]
    for offset, (what, _) in zip(offsets[1::3], STRANGE.items(), strict=True):
        named = [line for line in lines if f"offset={offset} " in line]
        assert len(named) == 1, f"{what}: {lines}"
        assert "reason=" in named[0]
        assert "__consumer_offsets-0" in named[0]
    assert len(lines) == len(STRANGE)


def test_a_batch_that_was_damaged_where_it_lies_is_lost_alone(own_broker: BrokerProcess) -> None:
    names = [f"g{number}" for number in range(9)]
    with GroupCaller(own_broker.host, own_broker.port) as groups:
        for number, name in enumerate(names):
            groups.commit(name, {("t", 0): number, ("t", 1): number})
    assert own_broker.stop() == 0
    path = own_broker.data / LOG
    data = bytearray(path.read_bytes())
    places = [(at, size) for at, size, _ in walk(memoryview(data))]
    assert len(places) == len(names)
    at, size = places[4]
    data[at + size - 12] ^= 0x40
    path.write_bytes(data)

    own_broker.start()

    with GroupCaller(own_broker.host, own_broker.port) as groups:
        for number, name in enumerate(names):
            found = groups.committed(name, None)
            lost = number == 4
            assert found == ({} if lost else {("t", 0): Found(number), ("t", 1): Found(number)}), (
                name
            )
        assert groups.commit("g4", {("t", 0): 7}) == {("t", 0): 0}
        assert groups.committed("g4", None) == {("t", 0): Found(7)}
    lines = [line for line in own_broker.output().splitlines() if SKIPPED in line]
    assert len(lines) == 1, own_broker.output()
    # The last one of the batch, whose own offsets are not under the checksum.
    assert "offset=9 " in lines[0]


def test_a_commit_that_a_crash_has_cut_is_gone_whole_and_is_named(
    own_broker: BrokerProcess,
) -> None:
    with GroupCaller(own_broker.host, own_broker.port) as groups:
        for number in range(5):
            groups.commit("g", {("t", at): number for at in range(4)})
    own_broker.kill()
    path = own_broker.data / LOG
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - 7)

    own_broker.start()

    with GroupCaller(own_broker.host, own_broker.port) as groups:
        assert groups.committed("g", None) == {("t", at): Found(3) for at in range(4)}
    (line,) = [line for line in own_broker.output().splitlines() if "a torn commit was cut" in line]
    assert "'g'" in line
