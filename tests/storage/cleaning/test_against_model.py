"""Seeded random logs of all formats and codecs are cleaned, and held against naive rules."""

from __future__ import annotations

from array import array
from struct import Struct
from typing import TYPE_CHECKING

import pytest

from protocol.records.layout import CONTROL_BIT, MAGIC_POSITION
from protocol.records.walk import last_offset
from storage.cleaning import cleaning as cleaning_module
from storage.layout import INDEX, TIME_INDEX
from storage.scan import Scan
from storage.segment import Segment
from tests.storage.cleaning.histories import History, survivors
from tests.storage.cleaning.partition import (
    FOLDER,
    NOW_MS,
    RETENTION_MS,
    Partition,
    marker,
    records_of,
    rules,
)

if TYPE_CHECKING:
    from protocol.records.compact import Keys

SEEDS = range(40)
JOINED = 1 << 20
COMMITTED = marker(0, 10, commit=True)[-14:]

OFFSET_ENTRY, TIME_ENTRY = Struct(">ii"), Struct(">qi")


def forced(partition: Partition, before: list[bytes], end: int) -> set[int]:
    """The last message below the end stays whatever it is, because it cannot be emptied."""
    last = [entry for entry in before if last_offset(entry, 0, entry[MAGIC_POSITION]) < end][-1]
    return {last_offset(last, 0, 0)} if last[MAGIC_POSITION] < 2 else set()


def assert_sound(partition: Partition, *, cleaned_to: int = 2**63) -> None:
    """Segments are whole, offsets rise, and the indexes say what those say that a rebuild gives,
    and of batches with missing offsets beside them where they end."""
    for base in partition.bases:
        segment = Segment(partition.files, FOLDER, base, interval_bytes=4096)
        size = segment.byte_size()
        scan = Scan(segment.file, 0, size, last_offset=base - 1, checked=True)
        entries = [(entry.first_offset, entry.last_offset, entry.position) for entry in scan]
        assert entries
        assert scan.trouble is None
        dated = {entry.last_offset: entry.max_timestamp for entry in Scan(segment.file, 0, size)}
        segment.rebuild()
        index = set(OFFSET_ENTRY.iter_unpack(partition.file(base, INDEX)))
        rebuilt = set(OFFSET_ENTRY.iter_unpack(segment.offsets.encode()))
        assert rebuilt <= index <= {(last - base, position) for _, last, position in entries}
        around = zip([(0, base - 1, 0), *entries], entries, [*entries[1:], None], strict=False)
        beside = {
            (one[1] - base, one[2])
            for before, one, after in around
            if before[1] + 1 < one[0] or (after is not None and one[1] + 1 < after[0])
        }
        assert beside - {(0, 0)} <= index or base >= cleaned_to
        times = list(TIME_ENTRY.iter_unpack(partition.file(base, TIME_INDEX)))
        assert set(TIME_ENTRY.iter_unpack(segment.times.encode())) <= set(times)
        assert times == sorted(times)
        assert all(dated[base + relative] == timestamp for timestamp, relative in times)


@pytest.mark.parametrize("max_message_bytes", [0, 300, JOINED])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_stays_is_the_newest_of_each_key_as_it_was(seed: int, max_message_bytes: int) -> None:
    history = History(seed)
    partition, before = history.partition, history.records
    wanted = survivors(before, history.aborted_offsets, first_dirty=0, end=partition.end)
    wanted |= forced(partition, partition.entries(), partition.end)

    done = partition.clean(
        partition.plan(rules(max_message_bytes=max_message_bytes), producers=history.producers)
    )

    after = history.records
    assert sorted(after) == sorted(wanted), f"seed {seed}"
    assert all(record == before[offset] for offset, record in after.items()), f"seed {seed}"
    assert_sound(partition)
    assert done.cleaned_to == partition.end
    assert done.stats.unreadable == 0
    assert done.stats.bytes_read == done.stats.bytes_mapped
    assert done.stats.batches_written == len(partition.entries())


@pytest.mark.parametrize("seed", SEEDS)
def test_the_last_batch_of_every_producer_and_of_the_log_is_still_there(seed: int) -> None:
    history = History(seed)
    partition, end = history.partition, history.partition.end
    partition.clean(partition.plan(rules(max_message_bytes=JOINED), producers=history.producers))
    ends = {header[9]: header[0] + header[6] for header in partition.headers()}
    for producer_id, (_, last) in history.producers.items():
        data = [
            header[0] + header[6]
            for header in partition.headers()
            if header[9] == producer_id and not header[5] & 0x20
        ]
        assert last == max(data), f"seed {seed}"
    assert ends
    newest = partition.entries()[-1]
    assert last_offset(newest, 0, newest[MAGIC_POSITION]) == end - 1, f"seed {seed}"


@pytest.mark.parametrize("seed", SEEDS)
def test_the_dirty_part_alone_decides_what_is_newest(seed: int) -> None:
    history = History(seed, entries=80)
    partition, before = history.partition, history.records
    bases = partition.bases
    first_dirty, end = bases[len(bases) // 3], bases[-1]
    if first_dirty == end:
        return
    entries = partition.entries()
    beyond = partition.aborted(end) if partition.has(end, ".txnindex") else []

    done = partition.clean(
        partition.plan(
            first_dirty=first_dirty,
            end=end,
            aborted=[entry for entry in beyond or [] if entry.first_offset < end],
        )
    )

    # The segment above the end has not been looked at: its aborted records are all there.
    aborted = {offset for offset in history.aborted_offsets if offset < end}
    wanted = survivors(before, aborted, first_dirty=first_dirty, end=end)
    last = forced(partition, entries, end)
    assert set(history.records) | last == wanted | last, f"seed {seed}"
    assert all(record == before[offset] for offset, record in history.records.items())
    assert done.cleaned_to == end


@pytest.mark.parametrize("max_message_bytes", [0, JOINED])
@pytest.mark.parametrize("seed", SEEDS)
def test_cleaning_again_past_every_horizon_changes_nothing_more(
    seed: int, max_message_bytes: int
) -> None:
    history = History(seed)
    partition = history.partition
    how = rules(max_message_bytes=max_message_bytes)
    images = []
    for round_number in range(6):
        now_ms = NOW_MS + round_number * (RETENTION_MS + 1)
        partition.clean(partition.plan(how, now_ms=now_ms))
        images.append([partition.file(base) for base in partition.bases])
    assert images[4] == images[5], f"seed {seed}"
    batches = [entry for entry in partition.entries() if entry[MAGIC_POSITION] == 2]
    assert not [row for entry in batches for row in records_of(entry) if row.value is None]
    markers = [entry for entry in batches if entry[22] & CONTROL_BIT and entry[60]]
    assert all(entry.endswith(COMMITTED) for entry in markers), f"seed {seed}"


class DictMap:
    """Any exact map will do: here a dict that takes so many keys."""

    limit = 1 << 30

    def __init__(self, max_bytes: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self.byte_size = 0

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, run: Keys, low: int, high: int) -> int:
        for row, (key, offset) in enumerate(zip(self._keys(run), run.offsets, strict=True)):
            if row in run.keyless or not low <= offset < high:
                continue
            if key not in self._offsets and len(self._offsets) >= self.limit:
                return row
            self._offsets[key] = offset
        return len(run)

    def newest(self, run: Keys) -> array[int]:
        return array("q", [self._offsets.get(key, -1) for key in self._keys(run)])

    def _keys(self, run: Keys) -> list[bytes]:
        return [run.digests[at : at + 16] for at in range(0, len(run.digests), 16)]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_result_does_not_depend_on_the_map(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    images = []
    for map_bytes in (1 << 20, 11 * 24, 0):
        with monkeypatch.context() as patch:
            if not map_bytes:
                patch.setattr(cleaning_module, "OffsetMap", DictMap)
            history = History(seed)
            partition = history.partition
            how = rules(map_bytes=map_bytes, max_message_bytes=JOINED)
            cleaned_to = 0
            rounds = 0
            while cleaned_to < partition.end:
                before, rounds = cleaned_to, rounds + 1
                cleaned_to = partition.clean(
                    partition.plan(how, first_dirty=cleaned_to, producers=history.producers)
                ).cleaned_to
                assert cleaned_to > before
            images.append((rounds, partition.records()))
    assert images[0] == images[2] == (1, images[1][1]), f"seed {seed}"
    assert images[1][0] > 1, "the small map should have needed several rounds"


def test_a_full_map_ends_the_run_inside_a_segment_and_its_rest_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cleaning_module, "OffsetMap", DictMap)
    for limit in range(1, 8):
        monkeypatch.setattr(DictMap, "limit", limit)
        history = History(3)
        partition, before = history.partition, history.records
        done = partition.clean()
        end = done.cleaned_to
        assert 0 < end < partition.end
        assert done.stats.keys == limit
        wanted = survivors(before, history.aborted_offsets, first_dirty=0, end=end)
        behind = {offset for offset in history.aborted_offsets if offset not in history.records}
        assert behind
        untouched = set(history.records) & history.aborted_offsets
        assert set(history.records) == wanted | untouched, f"{limit} keys, end {end}"
        assert_sound(partition, cleaned_to=end)
