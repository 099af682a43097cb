"""The state loaded from a metadata log, and refusals: never less than was acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.logdata.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    encode_record,
)
from storage.metadata.loading import Loaded, MetadataRefused, load
from tests.storage.metadata.metadata_files import (
    BATCHES,
    ENDS,
    LEVEL,
    PATH,
    batch,
    flipped,
    leader_change,
    log_path,
    raw_batch,
    removal,
    topic,
    topics_after,
    with_log,
    write_snapshot,
)
from tests.storage.metadata.snapshot_files import FOLDER, memory

if TYPE_CHECKING:
    from tests.support.memory_filesystem import MemoryFilesystem

LOG = b"".join(BATCHES)
STARTS = [sum(map(len, BATCHES[:index])) for index in range(len(BATCHES) + 1)]
UNCHECKED = range(16)
"""Of each batch: base offset, length and leader epoch, which no checksum covers."""
SECTOR = 512


def loaded(data: bytes, base: int = 0) -> Loaded:
    return load(with_log(data, base), PATH)


def refusal(files: MemoryFilesystem) -> str:
    with pytest.raises(MetadataRefused) as raised:
        load(files, PATH)
    return str(raised.value)


def topics(found: Loaded) -> list[str]:
    return sorted(found.image.topics)


# A log that is whole


def test_a_log_gives_its_state_and_where_it_ends() -> None:
    found = loaded(LOG)

    assert topics(found) == ["t0", "t1", "t2"]
    assert found.image.features == {"metadata.version": 21}
    assert (found.start_offset, found.end_offset, found.epoch, found.leader_id) == (0, 9, 1, 1)
    assert (found.replayed_records, found.replayed_bytes) == (9, len(LOG))
    assert found.has_log
    assert found.torn is None
    assert found.snapshot is None


def test_nothing_is_an_empty_state() -> None:
    files = memory()
    assert load(files, PATH).empty
    assert load(files, "/elsewhere").empty
    files.write_bytes(log_path(), b"")
    assert load(files, PATH).empty


def test_segments_follow_each_other() -> None:
    files = with_log(b"".join(BATCHES[:2]))
    files.write_bytes(log_path(4), BATCHES[2])
    files.write_bytes(log_path(7), BATCHES[3])
    files.write_bytes(log_path(9), b"")

    found = load(files, PATH)

    assert (topics(found), found.end_offset) == (["t0", "t1", "t2"], 9)


def test_m6_a_log_of_epoch_0_without_a_leader_change() -> None:
    found = loaded(batch(0, [LEVEL, *topic(0)], epoch=0))
    assert (topics(found), found.epoch) == (["t0"], 0)


def test_m14_partitions_of_a_log_that_names_no_directories() -> None:
    values = [encode_record(record, level=14) for record in [LEVEL, *topic(0)]]
    (state,) = loaded(raw_batch(0, values)).image.topics["t0"].partitions.values()
    assert (state.directories, state.isr) == ((), (1,))


# Damage


@pytest.mark.parametrize("index", range(len(BATCHES)))
def test_a_flipped_bit_is_refused_with_file_and_position_or_is_harmless(index: int) -> None:
    harmless = set()
    for place in range(len(BATCHES[index])):
        for bit in range(8):
            position = STARTS[index] + place
            try:
                found = loaded(flipped(LOG, position, bit))
            except MetadataRefused as error:
                told = str(error)
                assert log_path() in told, (position, bit)
                # A changed epoch may show only where the next batch has a lower one.
                assert any(f"position {STARTS[at]}:" in told for at in (index, index + 1)), told
                assert "copy" in told
            else:
                harmless.add(place)
                assert place in UNCHECKED, (position, bit)
                assert topics(found) == topics_after(4)
                assert (found.end_offset, found.torn) == (9, None)
                assert found.epoch >= 1, "an epoch that was begun is not begun again"
    assert harmless <= set(range(12, 16)), "only the epoch does not matter"


@pytest.mark.parametrize("size", range(len(LOG)))
def test_a_log_cut_anywhere_loses_the_append_that_was_cut_and_says_so(size: int) -> None:
    whole = sum(start <= size for start in STARTS[1:])

    found = loaded(LOG[:size])

    assert topics(found) == topics_after(whole)
    assert found.end_offset == ([0, *ENDS][whole])
    rest = size - STARTS[whole]
    if rest:
        assert found.torn is not None
        torn = (found.torn.file, found.torn.position, found.torn.size)
        assert torn == ("00000000000000000000.log", STARTS[whole], rest)
    else:
        assert found.torn is None


@pytest.mark.parametrize("sectors", range(3))
def test_sectors_of_zeros_are_an_append_that_never_got_there(sectors: int) -> None:
    """Of the last append only the first sectors are on the disk, though the file has its size."""
    last = batch(9, topic(3, 20))
    data = bytearray(LOG + last)
    kept = len(LOG) - len(LOG) % SECTOR + sectors * SECTOR if sectors else len(LOG)
    assert len(data) - kept > SECTOR
    data[kept:] = bytes(len(data) - kept)

    found = loaded(bytes(data))

    assert topics(found) == topics_after(4)
    assert found.torn is not None
    assert (found.torn.position, found.torn.size) == (len(LOG), len(last))


def test_a_sector_of_zeros_amid_the_last_append_was_never_acknowledged() -> None:
    last = batch(9, topic(3, 20))
    data = bytearray(LOG + last)
    first = len(LOG) + SECTOR - len(LOG) % SECTOR
    data[first : first + SECTOR] = bytes(SECTOR)

    found = loaded(bytes(data))

    assert found.torn is not None
    assert found.end_offset == 9


@pytest.mark.parametrize("size", [1, 11, 12, 16, 61, 511, 512, 4096, 100_000])
def test_zeros_after_the_last_batch_are_cut(size: int) -> None:
    found = loaded(LOG + bytes(size))
    assert found.torn is not None
    assert (found.end_offset, found.torn.size) == (9, size)


@pytest.mark.parametrize("size", [1, 20, 61, 700, 5000])
def test_m4_garbage_after_the_last_batch_is_cut(size: int) -> None:
    garbage = bytes(17 + index * 73 % 211 for index in range(size))
    found = loaded(LOG + garbage)
    assert found.torn is not None
    assert (found.end_offset, found.torn.size) == (9, size)


def test_a_log_that_is_nothing_but_zeros_or_garbage_is_no_first_start() -> None:
    for spoilt in (bytes(10_000), b"garbage " * 1000):
        told = refusal(with_log(spoilt))
        assert "position 0" in told


@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("how", ["zeros", "noise", "length"])
def test_a_whole_batch_after_damage_always_refuses(index: int, how: str) -> None:
    start, end = STARTS[index], STARTS[index + 1]
    spoilt = bytearray(LOG)
    if how == "zeros":
        spoilt[start:end] = bytes(end - start)
    elif how == "noise":
        spoilt[start + 16 : end] = bytes(7 + at % 91 for at in range(end - start - 16))
    else:
        spoilt[start + 8 : start + 12] = b"\x7f\xff\xff\xff"

    told = refusal(with_log(bytes(spoilt)))

    assert f"{log_path()}, position {start}" in told


@pytest.mark.parametrize("index", [1, 2])
def test_a_batch_that_is_not_there_refuses(index: int) -> None:
    told = refusal(with_log(LOG[: STARTS[index]] + LOG[STARTS[index + 1] :]))
    assert f"{log_path()}, position {STARTS[index]}" in told


def test_a_whole_batch_in_the_middle_of_zeros_still_refuses() -> None:
    told = refusal(with_log(LOG + bytes(9000) + batch(12, topic(5)) + bytes(3000)))
    assert f"position {len(LOG)}" in told


def test_m5_a_damaged_segment_that_is_not_the_last_is_never_cut() -> None:
    files = with_log(b"".join(BATCHES[:2])[:-5])
    files.write_bytes(log_path(4), BATCHES[2])

    told = refusal(files)

    assert f"{log_path()}, position {STARTS[1]}" in told
    assert "restore the file from a copy" in told


def test_a_batch_that_repeats_or_leaves_out_offsets_is_refused() -> None:
    for wrong in (BATCHES[3], batch(5, topic(1))):
        told = refusal(with_log(b"".join(BATCHES[:2]) + wrong))
        assert f"position {STARTS[2]}" in told
        assert "wanted 4" in told


def test_epochs_do_not_go_back_and_do_not_end() -> None:
    first = leader_change(epoch=5)
    told = refusal(with_log(first + batch(1, [LEVEL], epoch=4)))
    assert "epoch 4 after one of 5" in told
    for epoch in (-1, 2**31 - 1):
        told = refusal(with_log(first + batch(1, [LEVEL], epoch=epoch)))
        assert f"a batch of epoch {epoch}" in told


# What is not understood


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (b"\x02\x02\x00", "frame of version 2"),
        (b"\x01\x63\x00\x00", "api key 99"),
        (b"\x01\x02\x09" + encode_record(topic(0)[0])[3:], "TopicRecord of version 9"),
        (encode_record(topic(0)[0]) + b"\x00", "garbage"),
        (b"\x01\x02\x00", "TopicRecord v0"),
        (b"", "frame"),
        (encode_record(removal(7)[0]), "unknown topic"),
    ],
)
def test_m1_m2_a_record_that_is_not_understood_is_refused_with_its_place(
    value: bytes, told: str
) -> None:
    start = batch(0, [LEVEL])
    said = refusal(with_log(start + raw_batch(1, [value])))

    assert f"{log_path()}, position {len(start)}: " in said
    assert told in said


def test_m1_a_record_with_a_time_of_its_own_is_refused() -> None:
    from protocol.records.crc import crc32c

    spoilt = bytearray(batch(0, [LEVEL, NoOpRecord()]))
    at = spoilt.rindex(encode_record(NoOpRecord())) - 4
    assert spoilt[at - 1 : at + 1] == b"\x00\x00", "attributes, timestamp delta"
    assert spoilt[at + 1] == 2, "offset delta 1"
    spoilt[at] = 2
    spoilt[17:21] = crc32c(memoryview(spoilt)[21:]).to_bytes(4, "big")

    assert "a time of its own" in refusal(with_log(bytes(spoilt)))


def test_a_level_of_a_later_kafka_is_refused() -> None:
    level = FeatureLevelRecord(name="metadata.version", feature_level=34)
    assert "metadata.version is 34" in refusal(with_log(batch(0, [level, *topic(0)])))
    ok = FeatureLevelRecord(name="metadata.version", feature_level=33)
    assert topics(loaded(batch(0, [ok, *topic(0)]))) == ["t0"]

    files = memory()
    write_snapshot(files, 9, [level])
    said = refusal(files)
    assert "metadata.version is 34" in said
    assert ".checkpoint" in said


# Transactions


def test_m3_a_transaction_that_did_not_end_is_seen_and_counts_for_nothing() -> None:
    begun = batch(9, [BeginTransactionRecord(name="half"), *topic(3)])
    more = batch(12, topic(4))
    found = loaded(LOG + begun + more)
    assert topics(found) == topics_after(4)
    assert found.image.transaction is not None
    assert len(found.image.transaction) == 4

    ended = loaded(LOG + begun + more + batch(14, [EndTransactionRecord()]))
    assert topics(ended) == ["t0", "t1", "t2", "t3", "t4"]
    aborted = loaded(LOG + begun + more + batch(14, [AbortTransactionRecord()]))
    assert topics(aborted) == topics_after(4)
    assert aborted.image.transaction is None


# Snapshots


def test_m8_a_snapshot_alone_is_enough() -> None:
    files = memory()
    write_snapshot(files, 9, [LEVEL, *topic(0), *topic(1)], epoch=4)

    found = load(files, PATH)

    assert topics(found) == ["t0", "t1"]
    assert (found.start_offset, found.end_offset, found.epoch) == (9, 9, 4)
    assert not found.has_log
    files.write_bytes(log_path(), b"")
    assert not load(files, PATH).has_log, "nor does an empty log beside it matter"


def test_the_log_goes_on_where_the_snapshot_ends() -> None:
    files = with_log(BATCHES[3], base=7)
    write_snapshot(files, 7, [LEVEL, *topic(0), *topic(1, 2)])
    found = load(files, PATH)
    assert topics(found) == ["t0", "t1", "t2"]
    assert (found.start_offset, found.end_offset, found.replayed_records) == (7, 9, 2)

    files = with_log(LOG)
    write_snapshot(files, 7, [LEVEL, *topic(0), *topic(1, 2)])
    found = load(files, PATH)
    assert topics(found) == ["t0", "t1", "t2"]
    assert (found.start_offset, found.replayed_records) == (0, 2), "what is in it is not replayed"


def test_m7_a_log_that_begins_above_0_needs_a_snapshot() -> None:
    for base, data in ((4, BATCHES[2]), (61, b"")):
        told = refusal(with_log(data, base))
        assert f"{log_path(base)}: the log begins at offset {base} and needs a snapshot" in told
        assert "there is none" in told

    files = with_log(BATCHES[3], base=7)
    write_snapshot(files, 4, [LEVEL, *topic(0)])
    assert "the newest reaches to 4" in refusal(files)


def test_a_segment_that_is_missing_in_the_middle_is_refused() -> None:
    files = with_log(b"".join(BATCHES[:2]))
    files.write_bytes(log_path(7), BATCHES[3])

    told = refusal(files)

    assert log_path(7) in told
    assert "ends at offset 4" in told


def test_m9_unfinished_and_removed_snapshots_count_for_nothing() -> None:
    files = with_log(LOG)
    stem = f"{FOLDER}/00000000000000000007-0000000001"
    files.write_bytes(f"{stem}-abc.checkpoint.part", b"half")
    files.write_bytes(f"{stem}.checkpoint.part", b"half")
    files.write_bytes(f"{stem}.checkpoint.deleted", b"removed")
    assert topics(load(files, PATH)) == ["t0", "t1", "t2"]


def test_m10_a_damaged_newest_snapshot_is_done_without_where_the_log_says_the_same() -> None:
    for older in (None, 4):
        files = with_log(LOG)
        if older:
            write_snapshot(files, older, [LEVEL, *topic(0)])
        path = write_snapshot(files, 7, [LEVEL, *topic(0), *topic(1, 2)])
        files.write_bytes(path, flipped(files.read_bytes(path), 200, 3))

        found = load(files, PATH)

        assert topics(found) == ["t0", "t1", "t2"]
        assert [damaged.path for damaged in found.damaged] == [path]
        assert (found.snapshot.end_offset if found.snapshot else None) == older


@pytest.mark.parametrize("base", [None, 7])
def test_m10_a_damaged_newest_snapshot_is_missed_where_the_log_does_not_go_back(
    base: int | None,
) -> None:
    files = memory() if base is None else with_log(BATCHES[3], base)
    write_snapshot(files, 4, [LEVEL, *topic(0)])
    path = write_snapshot(files, 7, [LEVEL, *topic(0), *topic(1, 2)])
    files.write_bytes(path, flipped(files.read_bytes(path), 200, 3))

    told = refusal(files)

    assert f"{path}, position " in told
    assert "restore" in told


@pytest.mark.parametrize("data", [b"", BATCHES[0], b"".join(BATCHES[:2])])
def test_m10_a_damaged_newest_snapshot_is_missed_where_the_log_does_not_reach_it(
    data: bytes,
) -> None:
    files = with_log(data)
    write_snapshot(files, 1, [])
    path = write_snapshot(files, 7, [LEVEL, *topic(0), *topic(1, 2)])
    files.write_bytes(path, files.read_bytes(path)[:-1])

    assert path in refusal(files)


def test_every_flipped_bit_of_the_only_snapshot_is_refused() -> None:
    files = memory()
    path = write_snapshot(files, 9, [LEVEL, *topic(0)], epoch=3)
    whole = files.read_bytes(path)
    for position in range(len(whole)):
        for bit in range(8):
            files.write_bytes(path, flipped(whole, position, bit))
            assert path in refusal(files), (position, bit)


def test_a_snapshot_from_the_future_is_refused() -> None:
    files = with_log(LOG)
    path = write_snapshot(files, 50, [LEVEL, *topic(0)])

    told = refusal(files)

    assert path in told
    assert "the log ends at 9" in told


def test_a_log_that_ends_torn_before_its_snapshot_is_refused_and_not_thrown_away() -> None:
    for spoilt in (bytes(300), BATCHES[0][:-1], BATCHES[0] + bytes(300)):
        files = with_log(spoilt)
        path = write_snapshot(files, 7, [LEVEL, *topic(0), *topic(1, 2)])
        assert path in refusal(files)


def test_a_snapshot_of_another_epoch_is_refused() -> None:
    for end in (7, 9):
        files = with_log(LOG)
        path = write_snapshot(files, end, [LEVEL], epoch=3)
        told = refusal(files)
        assert path in told
        assert "is of epoch 3" in told

    files = with_log(BATCHES[3], base=7)
    path = write_snapshot(files, 7, [LEVEL], epoch=3)
    assert "after that" in refusal(files), "the next batch is of epoch 1"


def test_a_snapshot_that_ends_within_a_batch_is_refused() -> None:
    files = with_log(LOG)
    path = write_snapshot(files, 6, [LEVEL])
    told = refusal(files)
    assert "ends within the batch of 4 to 6" in told
    assert log_path() in told
    assert path


def test_a_snapshot_that_is_not_understood_is_no_reason_to_take_an_older_one() -> None:
    files = with_log(LOG)
    write_snapshot(files, 4, [LEVEL, *topic(0)])
    path = write_snapshot(files, 7, [LEVEL, *topic(0), *topic(1, 2)])
    data = files.read_bytes(path)
    name = encode_record(topic(1)[0])
    spoilt = data.replace(name, b"\x01\x3f" + name[2:])  # api key 63
    assert spoilt != data
    files.write_bytes(path, _with_sums(spoilt))

    told = refusal(files)

    assert path in told
    assert "api key 63" in told


def _with_sums(data: bytes) -> bytes:
    """These batches with right checksums."""
    from protocol.records.crc import crc32c

    out, at = bytearray(data), 0
    while at < len(out):
        size = 12 + int.from_bytes(out[at + 8 : at + 12], "big")
        out[at + 17 : at + 21] = crc32c(memoryview(bytes(out))[at + 21 : at + size]).to_bytes(
            4, "big"
        )
        at += size
    return bytes(out)
