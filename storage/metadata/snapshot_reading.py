"""Reading a snapshot, all of which is checked before it may be believed.

Kafka checks the header and the checksums. Here the offsets count without a gap from 0, every batch
has the epoch of the file's name, which no checksum covers, and the footer is the last thing in the
file: without it, a file cut between two batches would be a whole snapshot of a smaller cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import KafkaError, Malformed
from protocol.logdata.metadata import SnapshotFooterRecord, SnapshotHeaderRecord, decode_control
from protocol.records.crc import crc32c
from protocol.records.layout import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    CHECKED_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    CRC,
    ENTRY_OVERHEAD,
    HEADER,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LENGTH,
    MAGIC,
    MIN_BATCH_LENGTH,
    RECORD_COUNT,
)
from protocol.records.record import read_fields
from storage.errors import DataDirectoryError
from storage.metadata.snapshot_names import BOOTSTRAP, PART, snapshot_id_of
from storage.metadata.snapshot_writing import SNAPSHOT_BATCH_BYTES

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from protocol.logdata.metadata import ControlRecord
    from protocol.records.layout import Header
    from storage.filesystem import File, Filesystem
    from storage.metadata.snapshot_writing import Entry

LARGEST_BATCH_BYTES = 8 * SNAPSHOT_BATCH_BYTES
"""A claim of more is damage: no writer makes such batches, whatever its settings. Until its sum
is checked, a batch of this size is held in memory if the file has as many bytes."""


class DamagedSnapshot(DataDirectoryError):
    """A snapshot is not what was written: `reason` says what is wrong at `position` (bytes)."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path}, position {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class SnapshotBatch(NamedTuple):
    """One checked batch. The header's has `controls`, SnapshotHeaderRecord first; the others have
    `records`, keys and values; what is not there is empty. Position in bytes."""

    position: int
    base_offset: int
    timestamp_ms: int
    controls: tuple[ControlRecord, ...]
    records: list[Entry]


def read_snapshot(files: Filesystem, path: str) -> Generator[SnapshotBatch, None, None]:
    """The batches of a snapshot: the header's, then those of data. The footer's is not among them.

    Only when the iterator has ended is it known that the file is whole: until then, nothing that
    it gave may take the place of anything. Raises DamagedSnapshot at the first thing that is
    wrong, and OSError.

    The epoch is that of the name; of `bootstrap.checkpoint`, 0; of a file with another name, that
    of its first batch.
    """
    file = files.open_to_read(path)
    try:
        yield from _Reading(file, path).batches()
    finally:
        file.close()


def read_snapshot_bytes(data: bytes, name: str) -> Iterator[SnapshotBatch]:
    """The same of a snapshot that is in memory, with the name that its file would have."""
    return _Reading(_Bytes(data), name).batches()


def last_contained_ms(files: Filesystem, path: str) -> int:
    """The append time of the last batch of the log that a snapshot has, by its header.

    Nothing else of the file is read. Raises DamagedSnapshot, OSError.
    """
    batches = read_snapshot(files, path)
    try:
        header = next(batches).controls[0]
    finally:
        batches.close()
    assert isinstance(header, SnapshotHeaderRecord)
    return header.last_contained_log_timestamp


class _Bytes:
    """As much of a file as the reader uses."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def size(self) -> int:
        return len(self._data)

    def pread(self, size: int, position: int) -> bytes:
        return self._data[position : position + size]


class _Reading:
    """The way through one file."""

    def __init__(self, file: File | _Bytes, path: str) -> None:
        self._file = file
        self._path = path
        self._size = file.size()
        self._position = 0
        self._next_offset = 0
        self._epoch = _epoch_of(path)

    def batches(self) -> Iterator[SnapshotBatch]:
        while True:
            position, header, data = self._next_batch()
            entries = self._entries(header, data)
            base_offset, time = header[BASE_OFFSET], header[BASE_TIMESTAMP]
            control: tuple[ControlRecord, ...] = ()
            if header[ATTRIBUTES] & CONTROL_BIT:
                control, entries = self._control(entries), []
            if not position:
                if not control or not isinstance(control[0], SnapshotHeaderRecord):
                    raise self._damaged("the first record is not the header of a snapshot")
            elif control:
                self._check_end(control, position + len(data) + HEADER_SIZE)
                return
            self._position += HEADER_SIZE + len(data)
            self._next_offset += header[RECORD_COUNT]
            yield SnapshotBatch(position, base_offset, time, control, entries)

    def _damaged(self, reason: str) -> DamagedSnapshot:
        return DamagedSnapshot(self._path, self._position, reason)

    def _next_batch(self) -> tuple[int, Header, bytes]:
        """Position, header and records of the batch here, checked but for the records."""
        position, left = self._position, self._size - self._position
        if not left:
            raise self._damaged("the file ends here, but a snapshot ends with a footer")
        head = self._file.pread(HEADER_SIZE, position)
        if len(head) < HEADER_SIZE:
            raise self._damaged(f"{len(head)} bytes are not enough for a batch")
        header: Header = HEADER.unpack(head)
        size = header[LENGTH] + ENTRY_OVERHEAD
        if header[MAGIC] != 2:
            raise self._damaged(f"a batch of format {header[MAGIC]}, but 2 is wanted")
        if header[LENGTH] < MIN_BATCH_LENGTH or size > LARGEST_BATCH_BYTES:
            raise self._damaged(
                f"a batch of {size} bytes, but {HEADER_SIZE} to {LARGEST_BATCH_BYTES} are possible"
            )
        if size > left:
            raise self._damaged(f"a batch of {size} bytes is cut, {left} are there")
        data = self._file.pread(size - HEADER_SIZE, position + HEADER_SIZE)
        if len(data) != size - HEADER_SIZE:
            raise self._damaged("the file has become shorter while it was read")
        found = crc32c(data, crc32c(memoryview(head)[CHECKED_POSITION:]))
        if found != header[CRC]:
            raise self._damaged(
                f"the checksum is {found:08x}, but the batch states {header[CRC]:08x}"
            )
        self._check_header(header)
        return position, header, data

    def _check_header(self, header: Header) -> None:
        if self._epoch is None:
            self._epoch = header[LEADER_EPOCH]
        if header[BASE_OFFSET] != self._next_offset:
            raise self._damaged(
                f"the batch begins at offset {header[BASE_OFFSET]}, not at {self._next_offset}"
            )
        if header[LEADER_EPOCH] != self._epoch:
            raise self._damaged(
                f"the batch is of epoch {header[LEADER_EPOCH]}, the snapshot of {self._epoch}"
            )
        if header[ATTRIBUTES] & CODEC_MASK:
            raise self._damaged(
                f"the batch is compressed (codec {header[ATTRIBUTES] & CODEC_MASK}), "
                f"which no batch of a snapshot is"
            )
        if header[RECORD_COUNT] < 1 or header[LAST_OFFSET_DELTA] != header[RECORD_COUNT] - 1:
            raise self._damaged(
                f"{header[RECORD_COUNT]} records with a last offset delta of "
                f"{header[LAST_OFFSET_DELTA]}, but one or more without a gap are wanted"
            )

    def _entries(self, header: Header, data: bytes) -> list[Entry]:
        entries: list[Entry] = []
        try:
            for index, fields in enumerate(read_fields(data, header[RECORD_COUNT])):
                time, offset, key_at, key_size, value_at, value_size, headers = fields
                if time or offset != index or value_size < 0 or headers:
                    raise self._damaged(
                        f"record {index} has timestamp delta {time}, offset delta {offset}, a "
                        f"value of {value_size} bytes and {len(headers)} headers"
                    )
                key = None if key_size < 0 else data[key_at : key_at + key_size]
                entries.append((key, data[value_at : value_at + value_size]))
        except KafkaError as error:
            raise self._damaged(str(error)) from None
        return entries

    def _control(self, entries: list[Entry]) -> tuple[ControlRecord, ...]:
        try:
            return tuple(decode_control(key or b"", value) for key, value in entries)
        except Malformed as error:
            raise self._damaged(str(error)) from None

    def _check_end(self, control: tuple[ControlRecord, ...], end: int) -> None:
        if len(control) != 1 or not isinstance(control[0], SnapshotFooterRecord):
            names = ", ".join(type(record).__name__ for record in control)
            raise self._damaged(f"control records ({names}) where only a footer may be")
        if end != self._size:
            raise self._damaged(f"{self._size - end} bytes follow the footer")


def _epoch_of(path: str) -> int | None:
    name = path.rpartition("/")[2]
    if name == BOOTSTRAP:
        return 0
    snapshot_id = snapshot_id_of(name.removesuffix(PART))
    return None if snapshot_id is None else snapshot_id.epoch
