"""Compaction's output takes the place of a living log's segments, wherever the power fails."""

from __future__ import annotations

import copy
import errno
import random
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from protocol.records.builder import build_batch
from protocol.records.legacy import build_messages
from protocol.records.walk import last_offset, walk
from storage.checkpoints import encode_offsets
from storage.cleaning.cleaning import CleanedGroup, Cleaning
from storage.cleaning.plan import CleaningLag, CleaningRules, plan_cleaning
from storage.data_dir import DataDirectory
from storage.errors import StorageError
from storage.layout import CLEANED, DELETED, REPLACEMENT, SWAP
from storage.replacing import Replacing, cover_sealed, discard_all
from tests.storage.logs import NOW_MS, Settings, header_of, taken
from tests.storage.message_sets import message_set, records_in
from tests.support.checkpoints import write_checkpoints
from tests.support.memory_filesystem import MemoryFilesystem, PowerCut
from tests.support.record_deletion import delete_records
from tests.support.replacement import replace_segments
from tests.support.topic_store import open_topics

if TYPE_CHECKING:
    from storage.log import Log

PATH = "/data"
FOLDER = "/data/a-0"
SETTINGS = Settings(segment_bytes=700, index_interval_bytes=120)
RULES = CleaningRules(
    segment_bytes=1400,
    segment_index_bytes=1 << 20,
    index_interval_bytes=120,
    max_message_bytes=1 << 20,
    delete_retention_ms=0,
    map_bytes=1 << 20,
    max_decompressed_bytes=1 << 20,
    max_decompression_ratio=1000,
)
AT_ONCE = CleaningLag(0, 2**63 - 1, 0.0)
PRODUCER_ID = 9
OF_PRODUCER = b"q"
"""The key that the idempotent producer writes."""

Row = tuple[bytes, bytes | None]


class Model:
    """Every record that was appended, by offset, and what was promised about them."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.sequence = 0
        self.promised = 0
        self.allowed: list[set[int]] = []
        """Surviving offsets below the active segment, as they may be found now."""

    def newest(self, end: int) -> dict[bytes, int]:
        """The last offset of each key, among the records below `end`."""
        return {key: offset for offset, (key, _) in enumerate(self.rows[:end])}


def append(log: Log, model: Model, row: Row, form: str) -> None:
    """Append one record; with key `OF_PRODUCER` as the idempotent producer's."""
    base, (key, value) = len(model.rows), row
    rows = [(1000 + base, key, value, ())]
    if form == "2" or key == OF_PRODUCER:
        raw = bytearray(build_batch(rows))
        if key == OF_PRODUCER:
            raw = of_producer(rows, model.sequence)
            model.sequence += 1
        assert log.append(memoryview(raw), header_of(raw), now_ms=NOW_MS) == base
    else:
        raw = bytearray(build_messages(rows, magic=int(form), base_offset=base))
        assert log.append_messages(message_set(raw), now_ms=NOW_MS) == base
    model.rows.append(row)


def of_producer(rows: list[tuple[int, bytes, bytes | None, tuple[()]]], sequence: int) -> bytearray:
    return bytearray(
        build_batch(rows, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=sequence)
    )


def fill(log: Log, model: Model, rng: random.Random, *, count: int) -> None:
    """Mostly the same few keys; now and then a stretch of one format and of one key."""
    for _ in range(count):
        key = rng.choice((b"k1", b"k2", b"k3", b"k4", OF_PRODUCER))
        value = None if rng.random() < 0.2 else bytes(rng.randrange(1, 60))
        append(log, model, (key, value), rng.choice("0122"))
        log.write()


def survivors(log: Log, *, below: int | None = None) -> set[int]:
    """Offsets of the records that a reader gets from the log's start on."""
    end = log.written_offset if below is None else below
    offset, found = log.start_offset, set()
    while offset < log.written_offset:
        piece = log.read(offset, 1)
        if piece is None:
            break
        data = taken(piece)
        found |= {record.offset for record in records_in(data)}
        position, _, magic = next(iter(walk(data)))
        offset = last_offset(data, position, magic) + 1
    return {other for other in found if log.start_offset <= other < end}


def clean(directory: DataDirectory, log: Log, model: Model, files: MemoryFilesystem) -> None:
    """As the broker does it, one step after the other."""
    plan = plan_cleaning(log, RULES, AT_ONCE, now_ms=NOW_MS)
    if plan is None:
        return
    cover_sealed(log)
    log.sync()
    model.promised = log.recovery_point
    for step in directory.checkpoints.gaps(log, plan.end):
        step.sync()
    cleaning = Cleaning(files, plan)
    for group in cleaning.groups():
        before = survivors(log)
        kept = before_swapping(log, group, files)
        after = {offset for offset in before if not _is_in(offset, log, group)} | kept
        model.allowed = [before, after]
        assert replace_segments(log, group)
        assert survivors(log) == after
        model.allowed = [after]
    log.cleaned_to = cleaning.cleaned_to
    for step in directory.checkpoints.cleaned():
        step.sync()


def before_swapping(log: Log, group: CleanedGroup, files: MemoryFilesystem) -> set[int]:
    """The offsets in a group's output."""
    if group.empty:
        return set()
    data = files.read_bytes(f"{FOLDER}/{group.base_offset:020d}.log{CLEANED}")
    return {record.offset for record in records_in(data) if record.offset >= log.start_offset}


def _is_in(offset: int, log: Log, group: CleanedGroup) -> bool:
    later = [base for base in log.segments.base_offsets if base > group.sources[-1]]
    return group.sources[0] <= offset < min(later)


def begun(files: MemoryFilesystem, seed: int) -> tuple[DataDirectory, Log]:
    directory = DataDirectory.take(
        files, PATH, node_id=1, new_uuid=lambda: random.Random(seed).randbytes(16)
    )
    topics = open_topics(files, PATH)
    topics.begin_epoch()
    reports = directory.open_logs(topics, lambda _: SETTINGS, now_ms=NOW_MS)
    assert not [report for report in reports if report.bytes_cut and report.offsets_lost], reports
    if topics.get("a") is None:
        stored = topics.create("a", bytes(range(16)), 1, {})
        directory.create_partition(stored, 0, SETTINGS, now_ms=NOW_MS)
    return directory, directory.logs["a", 0]


def life(files: MemoryFilesystem, model: Model, seed: int, *, until: int = 3) -> None:
    rng = random.Random(seed)
    directory, log = begun(files, seed)
    for turn in range(until):
        fill(log, model, rng, count=30)
        log.sync()
        model.promised = log.recovery_point
        model.allowed = [survivors(log)]
        if turn == 1:
            delete_records(directory, "a", 0, rng.randrange(log.next_offset))
            model.allowed.append(survivors(log))
        clean(directory, log, model, files)
        if rng.random() < 0.3:
            write_checkpoints(directory)


def expect_what_was_promised(log: Log, model: Model, seed: str) -> None:
    end = log.next_offset
    assert log.failed is None, seed
    assert model.promised <= end <= len(model.rows), seed
    found = survivors(log)
    for offset in sorted(found):
        records = records_in(taken(log.read(offset, 1)))
        rows = {record.offset: (record.key, record.value) for record in records}
        assert rows[offset] == model.rows[offset], seed
    newest = model.newest(end)
    for key, offset in newest.items():
        if offset >= log.start_offset and model.rows[offset][1] is not None:
            assert offset in found, f"{seed}: the newest of {key!r} at {offset}"


def expect_indexes_to_be_right(log: Log, seed: str) -> None:
    for segment in map(log.segments.loaded_one, log.segments):
        data = segment.file.pread(segment.written_size, 0)
        boundaries = {position for position, _, _ in walk(data)}
        for position in range(0, segment.written_size, 40):
            assert segment.offsets.boundary(position) in boundaries, seed
        times = [record.timestamp_ms for record in records_in(data)]
        assert segment.max_timestamp >= max(times, default=-1), seed


def expect_the_producer_to_go_on(log: Log, model: Model, seed: str) -> None:
    sent = [o for o, (key, _) in enumerate(model.rows[: log.next_offset]) if key == OF_PRODUCER]
    raw = of_producer([(1, OF_PRODUCER, b"x", ())], len(sent))
    assert log.producers.check(header_of(raw)) is None, seed
    assert (PRODUCER_ID in log.producers) == bool(sent) or not model.promised, seed


def left_overs(files: MemoryFilesystem) -> list[str]:
    return [
        name
        for name in files.list_dir(FOLDER)
        if name.endswith((CLEANED, SWAP, DELETED, REPLACEMENT))
    ]


def test_compaction_keeps_what_is_below_a_log_start_that_is_not_on_the_disk() -> None:
    """Else a power cut puts the start back, and records are gone that nobody was told go."""
    files = MemoryFilesystem()
    directory, log = begun(files, 0)
    model = Model()
    for number in range(6):
        append(log, model, (b"k%d" % number, b"v"), "2")
    log.roll(now_ms=NOW_MS)
    log.sync()

    step = directory.starts.announce({log: 3})
    plan = plan_cleaning(log, RULES, AT_ONCE, now_ms=NOW_MS)
    assert plan is not None
    assert plan.start_offset == 0

    step.sync()
    directory.starts.settle({log: 3}, stored=True)
    plan = plan_cleaning(log, RULES, AT_ONCE, now_ms=NOW_MS)
    assert plan is not None
    assert plan.start_offset == 3


@pytest.mark.parametrize("seed", range(2))
def test_all_old_or_all_new_segments_are_there_wherever_the_power_fails(seed: int) -> None:
    whole, told = MemoryFilesystem(), Model()

    def cut_here() -> tuple[int, random.Random, MemoryFilesystem, Model] | None:
        cut_at = len(whole.calls) - 1
        if cut_at % 20 and not _is_of_a_swap(whole.calls[cut_at]):
            return None
        rng = random.Random(f"{seed} {cut_at}")
        return cut_at, rng, whole.power_cut(rng), copy.deepcopy(told)

    cuts = whole.at_every_call(lambda: life(whole, told, seed), cut_here)
    assert sum(map(_is_of_a_swap, whole.calls)) > 40
    for cut_at, rng, files, model in filter(None, cuts):
        if model.allowed:
            expect_all_old_or_all_new(files, model, rng, seed, f"seed {seed}, cut at {cut_at}")


def expect_all_old_or_all_new(
    files: MemoryFilesystem, model: Model, rng: random.Random, seed: int, name: str
) -> None:
    """In what a power cut left, perhaps of a start too."""
    if rng.random() < 0.5:
        # It fails again while the start makes order.
        files.cut_at = len(files.calls) + rng.randrange(30)
        with suppress(PowerCut):
            begun(files, seed)
        files = files.power_cut(rng)

    directory, log = begun(files, seed)

    expect_what_was_promised(log, model, name)
    ends = range(log.start_offset, model.promised)
    assert survivors(log) & set(ends) in [one & set(ends) for one in model.allowed], name
    expect_indexes_to_be_right(log, name)
    expect_the_producer_to_go_on(log, model, name)
    assert left_overs(files) == [], name
    clean(directory, log, model, files)
    expect_what_was_promised(log, model, name)
    assert directory.close(), name
    _, log = begun(files, seed + 1)
    expect_what_was_promised(log, model, name)


def _is_of_a_swap(call: str) -> bool:
    return any(suffix in call for suffix in (CLEANED, SWAP, DELETED, REPLACEMENT))


def filled(count: int = 60, seed: int = 1) -> tuple[MemoryFilesystem, DataDirectory, Log, Model]:
    files, model = MemoryFilesystem(), Model()
    directory, log = begun(files, seed)
    fill(log, model, random.Random(seed), count=count)
    log.sync()
    return files, directory, log, model


def first_group(files: MemoryFilesystem, log: Log) -> CleanedGroup:
    plan = plan_cleaning(log, RULES, AT_ONCE, now_ms=NOW_MS)
    assert plan is not None
    return next(group for group in Cleaning(files, plan).groups() if not group.empty)


def test_the_disk_may_refuse_any_call_and_the_log_is_what_it_was() -> None:
    files, _, log, _ = filled()
    group = first_group(files, log)
    begins = len(files.calls)
    assert replace_segments(log, group)
    calls = len(files.calls) - begins
    refused = 0
    for number in range(calls):
        files, directory, log, model = filled()
        group = first_group(files, log)
        before, after = survivors(log), before_swapping(log, group, files)
        later = {o for o in before if not _is_in(o, log, group)}
        files.faults = {len(files.calls) + number: errno.ENOSPC}
        try:
            replace_segments(log, group)
        except (OSError, StorageError):
            refused += 1
        files.faults = {}
        assert survivors(log) in (before, later | after), f"call {number} failed"
        assert log.failed is None
        fill(log, model, random.Random(number), count=3)
        discard_all(files, FOLDER)
        clean(directory, log, model, files)
        expect_what_was_promised(log, model, f"call {number} failed")
        # Only the last ones are not asked for: they remove what is no longer of use.
    assert refused >= calls - len(group.sources) * 4


def test_a_swap_that_cannot_be_undone_stops_the_log_and_the_next_start_finishes_it() -> None:
    files, directory, log, model = filled()
    group = first_group(files, log)
    after = before_swapping(log, group, files)
    later = {o for o in survivors(log) if not _is_in(o, log, group)}
    renames = [n for n, call in enumerate(probed(group)) if call.startswith("rename")]
    broken = len(files.calls) + renames[5]
    files.faults = dict.fromkeys(range(broken, broken + 500), errno.ENOSPC)

    with pytest.raises(StorageError, match="could not be undone"):
        replace_segments(log, group)

    assert log.failed is not None
    files.faults = {}
    directory.close()
    files.kill()
    _, log = begun(files, 1)
    assert survivors(log) == later | after
    expect_what_was_promised(log, model, "")
    assert left_overs(files) == []


def probed(group: CleanedGroup) -> list[str]:
    """The calls that replacing the same group in a twin makes."""
    files, _, log, _ = filled()
    assert first_group(files, log) == group
    begins = len(files.calls)
    replace_segments(log, group)
    return files.calls[begins:]


def test_a_group_whose_source_is_gone_is_discarded() -> None:
    files, directory, log, _ = filled()
    group = first_group(files, log)
    delete_records(directory, "a", 0, group.sources[0] + log.segments[1].base_offset + 1)
    before = survivors(log)
    assert group.sources[0] not in log.segments.base_offsets

    assert not replace_segments(log, group)

    assert survivors(log) == before
    assert left_overs(files) == []


def test_a_group_of_a_deleted_topic_is_discarded() -> None:
    files, _, log, _ = filled()
    group = first_group(files, log)
    log.close(clean=False)

    assert not replace_segments(log, group)
    assert left_overs(files) == []


def test_readers_go_on_with_the_slices_they_have() -> None:
    files, _, log, _ = filled()
    group = first_group(files, log)
    place = group.sources[0]
    slices = [log.read(offset, 200) for offset in range(place, place + 8)]
    entries = log.read_entries(place, 400)
    assert entries is not None
    before = [piece.read() for piece in slices if piece is not None]
    old_key = entries.key(entries.entries[0])

    assert replace_segments(log, group)
    log.sync()

    assert [piece.read() for piece in slices if piece is not None] == before
    assert entries.read(entries.entries[0])
    again = log.read_entries(place, 400)
    assert again is not None
    assert again.key(again.entries[0]) != old_key


def test_the_new_segment_is_as_old_as_the_last_one_it_replaces() -> None:
    files, _, log, _ = filled()
    files.mtime_ms += 5_000_000
    group = first_group(files, log)
    assert replace_segments(log, group)
    segment = next(one for one in log.segments if one.base_offset == group.base_offset)
    assert segment.modified_ms() == group.modified_ms < files.mtime_ms


def test_the_producer_snapshots_of_replaced_segments_go() -> None:
    files, _, log, _ = filled()
    plan = plan_cleaning(log, RULES, AT_ONCE, now_ms=NOW_MS)
    assert plan is not None
    for group in Cleaning(files, plan).groups():
        assert replace_segments(log, group)
    found = {int(name[:20]) for name in files.list_dir(FOLDER) if name.endswith(".snapshot")}
    assert found <= set(log.segments.base_offsets)
    assert log.active.base_offset in found


def test_an_emptied_head_keeps_the_first_offset_and_other_emptied_segments_vanish() -> None:
    files, directory, log, _ = filled()
    bases = log.segments.base_offsets
    for base, end in ((0, bases[1]), (bases[2], bases[3])):
        group = CleanedGroup(base, [base], empty=True, size=0, modified_ms=NOW_MS)
        gone = set(range(base, end))
        rest = survivors(log) - gone
        assert replace_segments(log, group)
        assert survivors(log) == rest
    assert log.segments.base_offsets == [base for base in bases if base != bases[2]]
    log.sync()
    for step in directory.checkpoints.gaps(log, bases[3]):
        step.sync()
    files.kill()
    _, log = begun(files, 1)
    assert log.start_offset == 0
    assert survivors(log) == rest


def test_how_far_a_log_is_clean_is_kept_with_its_topic() -> None:
    files, directory, log, model = filled()
    clean(directory, log, model, files)
    cleaned_to = log.cleaned_to
    assert cleaned_to == log.active.base_offset
    assert directory.close()

    directory, log = begun(files, 2)
    assert log.cleaned_to == cleaned_to
    assert f"a 0 {cleaned_to}" in files.read_bytes(f"{PATH}/cleaner-offset-checkpoint").decode()
    topics = open_topics(files, PATH)
    directory.delete_topic(topics.remove("a"))
    assert files.read_bytes(f"{PATH}/cleaner-offset-checkpoint") == encode_offsets({})


@pytest.mark.parametrize("noted", [-1, 10**6])
def test_a_checkpoint_outside_the_log_is_not_believed(noted: int) -> None:
    files, directory, log, _ = filled()
    assert directory.close()
    files.write_bytes(f"{PATH}/cleaner-offset-checkpoint", b"0\n1\na 0 %d\n" % noted)
    _, log = begun(files, 2)
    assert log.cleaned_to is None


def test_a_log_whose_new_segment_was_tidied_away_keeps_its_old_ones() -> None:
    files, _, log, _ = filled()
    group = first_group(files, log)
    before = survivors(log)
    Replacing(log, group).commit()
    for name in files.list_dir(FOLDER):
        if name.endswith(CLEANED):
            files.remove(f"{FOLDER}/{name}")
    files.kill()
    _, log = begun(files, 1)
    assert survivors(log) == before


@pytest.mark.parametrize(
    "content", [b"", b"1\n", b"0\n.log\n0\nend\n", b"0\n.log x\n0\nend\n", b"0\n\n\nend\n"]
)
def test_a_file_that_tells_of_no_replacement_changes_nothing(content: bytes) -> None:
    files, directory, log, _ = filled()
    before = survivors(log)
    directory.close()
    files.write_bytes(f"{FOLDER}/{REPLACEMENT}", content)
    _, log = begun(files, 1)
    assert survivors(log) == before
