"""A log of `__consumer_offsets` read back: what Kafka and we write, and what nobody should."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.coordinator.classic.group import ClassicGroup
from broker.coordinator.consumer.group import ConsumerGroup
from broker.coordinator.effects import GroupRules
from broker.coordinator.loading import replaying as loading
from broker.coordinator.loading.replaying import MAX_REASONS, ShardLoader
from broker.coordinator.shard_state import ShardState
from protocol.logdata.commit_runs import interpreted_ordinary_commits
from protocol.logdata.commits import commit_batch
from protocol.logdata.offsets import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_record,
)
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.layout import CRC_POSITION, INT32, INT64, UINT32
from protocol.records.legacy import build_messages
from protocol.records.markers import Marker, encode_marker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.coordinator.loading.replaying import LoadReport
    from broker.coordinator.offsets.commit import Committed
    from protocol.logdata.offsets import Record

NOW_MS = 1_700_000_000_000
OFFSET_KEY = OffsetCommitKey(group="g", topic="t", partition=0)


class LogOfGroups:
    """Batches one after the other, each with the offsets that are next."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.next_offset = 0

    def add(self, batch: bytes | bytearray) -> LogOfGroups:
        placed = bytearray(batch)
        Batch(memoryview(placed)).place(self.next_offset, 0)
        self.next_offset = Batch(memoryview(placed)).last_offset + 1
        self.data += placed
        return self

    def commit(
        self, group: str, offset: int, partition: int = 0, *, producer: int = -1, metadata: str = ""
    ) -> LogOfGroups:
        entry = ("t", partition, offset, 3, metadata, -1)
        epoch = 0 if producer >= 0 else -1
        return self.add(
            commit_batch(group, [entry], now_ms=NOW_MS, producer_id=producer, producer_epoch=epoch)
        )

    def records(self, *records: Record, codec: int = 0) -> LogOfGroups:
        raw = [(NOW_MS, *encode_record(record), ()) for record in records]
        return self.add(build_batch(raw, codec=codec))

    def raw(self, key: bytes | None, value: bytes | None) -> LogOfGroups:
        return self.add(build_batch([(NOW_MS, key, value, ())]))

    def marker(self, producer: int, *, commit: bool) -> LogOfGroups:
        return self.add(encode_marker(producer, 0, marker=Marker(commit, 0), timestamp_ms=NOW_MS))


def new_state() -> ShardState:
    return ShardState(GroupRules(), lambda prefix: f"{prefix}-1")


def load(
    *pieces: bytes | bytearray, end_offset: int | None = None
) -> tuple[ShardState, LoadReport]:
    state = new_state()
    loader = ShardLoader(state, "__consumer_offsets-0", now_ms=0, end_offset=end_offset)
    for piece in pieces:
        before = loader.next_offset
        loader.feed(memoryview(piece))
        assert loader.next_offset > before
    return state, loader.report()


def offset_of(state: ShardState, group: str, partition: int = 0) -> int | None:
    found = state.offsets.get(group, "t", partition)
    return None if found is None else found.offset


def everything(state: ShardState) -> dict[str, list[tuple[str, int, Committed]]]:
    offsets = state.offsets
    return {group: sorted(offsets.entries(group)) for group in sorted(offsets.groups())}


def classic(group: str, generation: int = 1) -> Record:
    member = GroupMetadataValue.Member(
        member_id="m",
        client_id="c",
        client_host="/h",
        session_timeout=10_000,
        subscription=b"",
        assignment=b"",
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=generation,
        protocol="range",
        leader="m",
        current_state_timestamp=NOW_MS,
        members=[member],
    )
    return GroupMetadataKey(group=group), value


def consumer(group: str) -> Record:
    return ConsumerGroupMetadataKey(group_id=group), ConsumerGroupMetadataValue(epoch=4)


def test_the_last_commit_of_each_partition_counts() -> None:
    log = LogOfGroups().commit("g", 5).commit("g", 8, 1).commit("h", 1).commit("g", 6)
    state, report = load(log.data)
    assert [offset_of(state, "g"), offset_of(state, "g", 1), offset_of(state, "h")] == [6, 8, 1]
    assert report == ("__consumer_offsets-0", 4, 3, 0, [], 0)


def test_what_a_commit_carries_is_kept() -> None:
    entry = ("t", 0, 5, 7, "what it is", NOW_MS + 9000)
    state, _ = load(commit_batch("g", [entry], now_ms=NOW_MS), LogOfGroups().commit("h", 1).data)
    assert state.offsets.get("g", "t", 0) == (5, -1, "what it is", NOW_MS, NOW_MS + 9000)
    assert state.offsets.get("h", "t", 0) == (1, 3, "", NOW_MS, -1)


def test_the_quick_way_and_the_careful_way_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogOfGroups()
    for number in range(300):
        group = f"g{number % 7}"
        entries = [
            (f"t{p % 3}", p, number + p, p % 5 - 1, "m" if number % 4 == 1 else "", -1)
            for p in range(number % 90 + 1)
        ]
        log.add(commit_batch(group, entries, now_ms=NOW_MS + number))
    quick = everything(load(log.data)[0])
    assert sum(map(len, quick.values())) > 500
    monkeypatch.setattr(loading, "ordinary_commits", interpreted_ordinary_commits)
    assert everything(load(log.data)[0]) == quick
    monkeypatch.setattr(loading, "ordinary_commits", lambda data, position: (position, -1, 0, []))
    assert everything(load(log.data)[0]) == quick


def test_pieces_of_a_log_give_the_same_as_all_of_it() -> None:
    log = LogOfGroups().commit("g", 5).records(classic("g")).commit("g", 6, metadata="m")
    middle = Batch(memoryview(log.data)).size
    assert everything(load(log.data[:middle], log.data[middle:])[0]) == everything(
        load(log.data)[0]
    )


@pytest.mark.parametrize("codec", range(5))
def test_compressed_batches_are_opened(codec: int) -> None:
    value = OffsetCommitValue(offset=9, metadata="", commit_timestamp=NOW_MS)
    log = LogOfGroups().records((OFFSET_KEY, value), classic("g"), codec=codec)
    state, report = load(log.data)
    assert offset_of(state, "g") == 9
    assert isinstance(state.groups["g"], ClassicGroup)
    assert (report.records, report.offsets, report.groups) == (2, 1, 1)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_sets_of_old_kafka_are_read(magic: int, codec: int) -> None:
    name = b"\x00\x01g\x00\x01t" + INT32.pack(0)
    times = INT64.pack(NOW_MS)
    zero = b"\x00\x00" + INT64.pack(11) + b"\x00\x00" + times
    one = b"\x00\x01" + INT64.pack(12) + b"\x00\x01m" + times + INT64.pack(NOW_MS + 5)
    group = encode_record(classic("h"))
    data = build_messages(
        [(NOW_MS, b"\x00\x00" + name, zero, ()), (NOW_MS, *group, ())], magic=magic, codec=codec
    )
    state, report = load(data)
    assert state.offsets.get("g", "t", 0) == (11, -1, "", NOW_MS, -1)
    assert isinstance(state.groups["h"], ClassicGroup)
    assert report.skipped_count == 0
    data += build_messages([(NOW_MS, b"\x00\x01" + name, one, ())], magic=magic, base_offset=2)
    assert load(data)[0].offsets.get("g", "t", 0) == (12, -1, "m", NOW_MS, NOW_MS + 5)


def test_a_tombstone_removes_an_offset_and_a_group() -> None:
    log = LogOfGroups().commit("g", 5).commit("g", 6, 1).records(classic("g"), consumer("h"))
    log.records((OFFSET_KEY, None), (GroupMetadataKey(group="g"), None))
    log.records((ConsumerGroupMetadataKey(group_id="h"), None))
    state, report = load(log.data)
    assert (offset_of(state, "g"), offset_of(state, "g", 1)) == (None, 6)
    assert not state.groups
    assert report.skipped_count == 0


# Transactions: storage.md 8.4 and the cases O15 to O17 and G5


def test_an_offset_in_an_open_transaction_is_pending_and_the_old_one_stays() -> None:
    state, _ = load(LogOfGroups().commit("g", 11).commit("g", 17, producer=5).data)
    assert offset_of(state, "g") == 11
    assert state.offsets.is_pending("g", "t", 0)
    assert list(state.offsets.pending_producers()) == [5]


@pytest.mark.parametrize(("commit", "expected"), [(True, 17), (False, 11)])
def test_a_marker_says_what_becomes_of_it(commit: bool, expected: int) -> None:
    log = LogOfGroups().commit("g", 11).commit("g", 17, producer=5).commit("h", 1, producer=6)
    state, report = load(log.marker(5, commit=commit).data)
    assert offset_of(state, "g") == expected
    assert not state.offsets.is_pending("g", "t", 0)
    assert state.offsets.is_pending("h", "t", 0), "another producer's is still open"
    assert report.skipped_count == 0


def test_a_plain_commit_after_it_wins_over_a_commit_in_a_transaction() -> None:
    log = LogOfGroups().commit("g", 10, producer=5).commit("g", 12).marker(5, commit=True)
    assert offset_of(load(log.data)[0], "g") == 12


def test_a_marker_whose_batch_compaction_has_emptied_changes_nothing() -> None:
    emptied = bytes.fromhex(
        "000000000000000100000031000000000200200982000000000001ffffffffffffffff000001a1f86e9294"
        "00000000000001f400020000000100000000"
    )  # written by Kafka
    marker = bytes.fromhex(
        "000000000000000600000042000000000257d15e49003000000000000001a1f886e435000001a1f886e435"
        "00000000000000010000ffffffff000000012000000008000000010c00000000000000"
    )
    log = LogOfGroups().commit("g", 11)
    state, report = load(log.data + emptied + marker + marker)
    assert offset_of(state, "g") == 11
    assert report.skipped_count == 0


def test_what_kafka_never_writes_in_a_transaction_is_skipped() -> None:
    removal = [(NOW_MS, *encode_record((OFFSET_KEY, None)), ())]
    log = LogOfGroups().commit("g", 11)
    log.add(
        build_batch(removal, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    )
    nobodys = [(NOW_MS, *encode_record((OFFSET_KEY, commit_value(3))), ())]
    log.add(build_batch(nobodys, transactional=True))
    state, report = load(log.data)
    assert offset_of(state, "g") == 11
    assert [offset for offset, _ in report.skipped] == [1, 2]


def commit_value(offset: int) -> OffsetCommitValue:
    return OffsetCommitValue(offset=offset, metadata="", commit_timestamp=NOW_MS)


# Foreign records and damage


FOREIGN: dict[str, tuple[bytes | None, bytes | None]] = {
    "an unknown key": (b"\x00\x63\x00\x01g", b"\x00\x00"),
    "a share group": (b"\x00\x0b\x00\x01g", b"\x00\x00" + bytes(4) + b"\x00"),
    "no key": (None, b"\x00\x03"),
    "no key and no value": (None, None),
    "an empty key": (b"", b""),
    "an unknown value": (encode_record((OFFSET_KEY, None))[0], b"\x00\x05" + bytes(30)),
    "a short value": (encode_record((OFFSET_KEY, None))[0], b"\x00\x03\x00"),
    "a negative partition": encode_record(
        (OffsetCommitKey(group="g", topic="t", partition=-1), commit_value(1))
    ),
    "garbage": (b"\x02garbage", b"more of it"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_record_is_skipped_alone_and_named(name: str) -> None:
    log = LogOfGroups().commit("g", 11).records(classic("h"))
    raw = [
        (NOW_MS, *encode_record((OFFSET_KEY, commit_value(12))), ()),
        (NOW_MS, *FOREIGN[name], ()),
    ]
    log.add(build_batch([*raw, (NOW_MS, *encode_record(consumer("i")), ())]))
    state, report = load(log.data)
    assert offset_of(state, "g") == 12
    assert sorted(state.groups) == ["h", "i"]
    assert report.records == 4
    ((offset, reason),) = report.skipped
    assert (offset, report.skipped_count) == (3, 1)
    assert len(reason) > 5


def test_reasons_are_bounded_and_their_number_is_not() -> None:
    log = LogOfGroups()
    for _ in range(MAX_REASONS + 7):
        log.raw(b"\x00\x63", None)
    _, report = load(log.data)
    assert (len(report.skipped), report.skipped_count) == (MAX_REASONS, MAX_REASONS + 7)


def test_a_record_that_its_group_cannot_take_harms_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        raise KeyError("member")

    log = LogOfGroups().records(consumer("a")).commit("g", 11).records(classic("b"))
    monkeypatch.setattr(ConsumerGroup, "replay", fails)
    state, report = load(log.data)
    assert sorted(state.groups) == ["b"]
    assert offset_of(state, "g") == 11
    assert report.skipped == [(0, "KeyError: 'member'")]


def three_commits() -> tuple[bytearray, int]:
    """And the size of each of their batches."""
    log = LogOfGroups().commit("a", 1).commit("b", 2).commit("c", 3)
    return log.data, len(log.data) // 3


@pytest.mark.parametrize(
    ("name", "position", "value"),
    [
        ("payload", 70, b"\xff"),
        ("checksum", 17, b"\x00\x00\x00\x00"),
        ("length below any", 8, INT32.pack(3)),
        ("length below a batch's", 8, INT32.pack(20)),
        ("length a bit short", 8, INT32.pack(60)),
        ("length up to within the next", 8, INT32.pack(120)),
        ("length beyond the end", 8, INT32.pack(1 << 30)),
        ("negative length", 8, INT32.pack(-1)),
        ("magic", 16, b"\x09"),
        ("magic of old Kafka", 16, b"\x01"),
        ("offset and payload", 0, bytes(75)),
    ],
)
def test_a_damaged_batch_is_skipped_alone(name: str, position: int, value: bytes) -> None:
    data, size = three_commits()
    data[size + position : size + position + len(value)] = value
    state, report = load(data, end_offset=3)
    assert [offset_of(state, group) for group in "abc"] == [1, None, 3], name
    assert report.skipped_count == 1
    assert report.records == 2
    data, size = three_commits()
    data[position : position + len(value)] = value
    state, report = load(data, end_offset=3)
    assert [offset_of(state, group) for group in "abc"] == [None, 2, 3], name


def test_a_torn_commit_leaves_the_earlier_values_of_all_its_partitions() -> None:
    log = LogOfGroups().commit("g", 1, 0).commit("g", 2, 1)
    whole = len(log.data)
    log.add(commit_batch("g", [("t", p, 9, 0, "", -1) for p in range(2)], now_ms=NOW_MS))
    for end in range(whole + 1, len(log.data)):
        state, report = load(log.data[:end])
        assert [offset_of(state, "g", partition) for partition in range(2)] == [1, 2]
        assert report.skipped_count == 1


def test_two_damaged_batches_are_two() -> None:
    data, size = three_commits()
    data[70] ^= 0xFF
    data[size + 70] ^= 0xFF
    state, report = load(data)
    assert offset_of(state, "c") == 3
    assert [offset for offset, _ in report.skipped] == [0, 1]
    assert "checksum" in report.skipped[0][1]


def test_a_damaged_message_of_old_kafka_is_skipped_alone() -> None:
    messages = [
        build_messages(
            [
                (
                    NOW_MS,
                    *encode_record(
                        (OffsetCommitKey(group=g, topic="t", partition=0), commit_value(n))
                    ),
                    (),
                )
            ],
            magic=1,
            base_offset=n,
        )
        for n, g in enumerate("abc")
    ]
    data = bytearray(b"".join(messages))
    data[len(messages[0]) + 40] ^= 0xFF
    state, report = load(data)
    assert [offset_of(state, group) for group in "abc"] == [0, None, 2]
    assert [offset for offset, _ in report.skipped] == [1]


def test_a_payload_that_does_not_expand_is_skipped_alone() -> None:
    log = LogOfGroups().records((OFFSET_KEY, commit_value(1)), codec=1)
    log.data[70:80] = bytes(10)
    seal(log.data)
    state, report = load(log.data, LogOfGroups().commit("h", 4).data)
    assert (offset_of(state, "g"), offset_of(state, "h")) == (None, 4)
    assert report.skipped_count == 1


def seal(data: bytearray) -> None:
    UINT32.pack_into(data, CRC_POSITION, Batch(memoryview(data)).checksum())


def test_records_before_a_broken_one_of_a_batch_are_loaded() -> None:
    log = LogOfGroups().records((OFFSET_KEY, commit_value(7)), consumer("h"))
    INT32.pack_into(log.data, 57, 3)  # a third record, which is not there
    seal(log.data)
    state, report = load(log.data)
    assert offset_of(state, "g") == 7
    assert list(state.groups) == ["h"]
    assert report.skipped_count == 1


def test_an_offset_beyond_the_end_is_not_where_reading_goes_on() -> None:
    data, size = three_commits()
    INT64.pack_into(data, 2 * size, 1 << 60)  # no checksum covers it
    state = new_state()
    loader = ShardLoader(state, "log", now_ms=0, end_offset=3)
    loader.feed(data)
    assert loader.next_offset <= 3
    assert offset_of(state, "c") == 3, "the commit itself is whole"


def test_reading_goes_on_whatever_was_fed() -> None:
    state = new_state()
    loader = ShardLoader(state, "log", now_ms=0, start_offset=40)
    pieces: Iterable[bytes] = (b"\x00", bytes(16), b"\xff" * 100, b"\x02" * 300)
    for number, piece in enumerate(pieces):
        loader.feed(piece)
        assert loader.next_offset == 41 + number
    assert loader.report().skipped_count == 4
