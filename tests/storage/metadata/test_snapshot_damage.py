"""A snapshot that is not byte for byte what was written is refused, with the position."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocol.logdata.metadata import (
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    control_batch,
    metadata_batch,
)
from protocol.records.builder import build_batch
from protocol.records.walk import walk
from storage.errors import DataDirectoryError
from storage.metadata import snapshot_reading
from storage.metadata.snapshots import DamagedSnapshot, SnapshotId
from tests.storage.metadata.snapshot_files import ENTRIES, FOLDER, ID, entries_of, memory, write
from tests.storage.metadata.test_snapshots import BOOTSTRAP

if TYPE_CHECKING:
    from tests.support.memory_filesystem import MemoryFilesystem

PATH = f"{FOLDER}/{ID.file_name}"
HEADER = SnapshotHeaderRecord(last_contained_log_timestamp=1)


def whole(files: MemoryFilesystem) -> bytes:
    """A snapshot of a header, two batches of data and a footer."""
    return files.read_bytes(write(files, ID, ENTRIES[:2], ENTRIES[2:]))


def refusal(data: bytes, path: str = PATH) -> DamagedSnapshot:
    """What is said of a file with this content."""
    files = memory()
    files.write_bytes(path, data)
    with pytest.raises(DamagedSnapshot) as caught:
        entries_of(files, path)
    error = caught.value
    assert isinstance(error, DataDirectoryError)
    assert str(error) == f"{path}, position {error.position}: {error.reason}"
    return error


def place(base_offset: int, epoch: int = ID.epoch) -> dict[str, int]:
    return {"base_offset": base_offset, "epoch": epoch, "timestamp_ms": 1}


def footer(base_offset: int) -> bytearray:
    return control_batch([SnapshotFooterRecord()], **place(base_offset))


@pytest.mark.parametrize("kind", ["ours", "Kafka's bootstrap.checkpoint"])
def test_a_flipped_bit_anywhere_is_refused_at_the_batch_it_is_in(kind: str) -> None:
    data = whole(memory()) if kind == "ours" else BOOTSTRAP
    path = PATH if kind == "ours" else "/data/bootstrap.checkpoint"
    starts = [position for position, _, _ in walk(data)]
    assert len(starts) >= 3
    for position in range(len(data)):
        batch = max(start for start in starts if start <= position)
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            error = refusal(bytes(damaged), path)
            assert error.position == batch, f"bit {bit} of byte {position}: {error}"


@pytest.mark.parametrize("kind", ["ours", "Kafka's bootstrap.checkpoint"])
def test_a_file_cut_anywhere_is_refused(kind: str) -> None:
    data = whole(memory()) if kind == "ours" else BOOTSTRAP
    path = PATH if kind == "ours" else "/data/bootstrap.checkpoint"
    for size in range(len(data)):
        assert refusal(data[:size], path).position <= size


def test_a_file_cut_between_two_batches_is_no_smaller_cluster() -> None:
    data = whole(memory())
    last = [position for position, _, _ in walk(data)][-1]
    error = refusal(data[:last])
    assert (error.position, error.reason) == (
        last,
        "the file ends here, but a snapshot ends with a footer",
    )


def test_bytes_after_the_footer_are_refused() -> None:
    data = whole(memory())
    assert "1 bytes follow the footer" in str(refusal(data + b"\0"))
    assert "follow the footer" in str(refusal(data + data))


def test_a_missing_batch_leaves_a_gap_of_offsets() -> None:
    data = whole(memory())
    batches = [data[start : start + size] for start, size, _ in walk(data)]
    error = refusal(b"".join((batches[0], *batches[2:])))
    assert error.position == len(batches[0])
    assert error.reason == "the batch begins at offset 3, not at 1"
    swapped = refusal(b"".join((batches[0], batches[2], batches[1], batches[3])))
    assert swapped.reason == "the batch begins at offset 3, not at 1"
    twice = refusal(b"".join((*batches[:2], *batches[1:])))
    assert twice.reason == "the batch begins at offset 1, not at 3"


def test_a_file_under_the_name_of_another_epoch_is_refused() -> None:
    data = whole(memory())
    error = refusal(data, f"{FOLDER}/{SnapshotId(123, 5).file_name}")
    assert error.reason == "the batch is of epoch 4, the snapshot of 5"


def test_a_fetched_file_is_checked_under_its_unfinished_name_too() -> None:
    data = whole(memory())
    files = memory()
    path = f"{FOLDER}/{ID.file_name}.part"
    files.write_bytes(path, data)
    assert entries_of(files, path) == ENTRIES
    error = refusal(data, f"{FOLDER}/{SnapshotId(123, 5).file_name}.part")
    assert error.reason == "the batch is of epoch 4, the snapshot of 5"


def test_the_first_record_has_to_be_the_header() -> None:
    data = whole(memory())
    second = [position for position, _, _ in walk(data)][1]
    only_data = metadata_batch([b"value"], **place(0)) + footer(1)
    only_footer = footer(0)
    for content in (data[second:], bytes(only_data), bytes(only_footer)):
        assert refusal(content).position == 0
    assert "the first record is not the header" in str(refusal(bytes(only_data)))
    assert "the first record is not the header" in str(refusal(bytes(only_footer)))


def test_a_control_batch_that_is_no_footer_is_refused() -> None:
    head = control_batch([HEADER], **place(0))
    change = control_batch(
        [LeaderChangeMessage(leader_id=1, voters=[], granting_voters=[])], **place(1)
    )
    assert "LeaderChangeMessage" in str(refusal(bytes(head + change + footer(2))))
    again = control_batch([HEADER], **place(1))
    assert "SnapshotHeaderRecord" in str(refusal(bytes(head + again + footer(2))))
    two = control_batch([SnapshotFooterRecord(), SnapshotFooterRecord()], **place(1))
    assert "only a footer" in str(refusal(bytes(head + two)))


def test_an_unknown_control_record_is_refused() -> None:
    unknown = build_batch([(1, b"\0\0\0\x63", b"\0\0\0", ())], leader_epoch=4, control=True)
    assert "99" in str(refusal(unknown + bytes(footer(1))))


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([(1, None, b"a", ()), (2, None, b"b", ())], "record 1 has timestamp delta 1"),
        ([(1, b"k", None, ())], "value of -1 bytes"),
        ([(1, None, b"a", (("name", b"x"),))], "1 headers"),
    ],
)
def test_records_that_no_snapshot_has_are_refused(
    records: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]],
    reason: str,
) -> None:
    head = bytes(control_batch([HEADER], **place(0)))
    batch = build_batch(records, base_offset=1, leader_epoch=4)
    error = refusal(head + batch + bytes(footer(1 + len(records))))
    assert error.position == len(head)
    assert reason in error.reason


def test_a_compressed_batch_is_refused() -> None:
    head = bytes(control_batch([HEADER], **place(0)))
    batch = build_batch([(1, None, b"a" * 100, ())], base_offset=1, leader_epoch=4, codec=1)
    assert "compressed (codec 1)" in refusal(head + batch + bytes(footer(2))).reason


def test_nothing_is_read_for_a_claim_that_the_file_cannot_keep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = bytearray(whole(memory()))
    data[8:12] = (50_000_000).to_bytes(4, "big")
    files = memory()
    files.write_bytes(PATH, bytes(data))
    with pytest.raises(DamagedSnapshot, match="is cut"):
        entries_of(files, PATH)
    assert max(size for _, _, size in files.reads) == 61

    monkeypatch.setattr(snapshot_reading, "LARGEST_BATCH_BYTES", 90)
    data[8:12] = (100).to_bytes(4, "big")
    assert "61 to 90 are possible" in refusal(bytes(data)).reason
