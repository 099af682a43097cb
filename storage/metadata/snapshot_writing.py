"""Writing a snapshot, which any thread may do.

A snapshot is a file of format 2 batches with offsets of their own from 0 on, all of the snapshot's
epoch and none compressed (KIP-630 as Kafka has it, storage.md 12.1):

    control batch    SnapshotHeader, and what else has to come first
    batches of data  up to 1024 records each, in not more than 8 MiB
    control batch    SnapshotFooter

It becomes one by its name: only a file that is whole and on the disk gets it.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from protocol.logdata.metadata import SnapshotFooterRecord, SnapshotHeaderRecord, control_batch
from protocol.records.builder import encode_varint, wrap_records
from protocol.records.layout import HEADER_SIZE
from storage.metadata.snapshot_names import CHECKPOINT, PART

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

    from protocol.logdata.metadata import ControlRecord
    from storage.filesystem import Filesystem
    from storage.metadata.snapshot_names import SnapshotId

    Entry = tuple[bytes | None, bytes]
    """Key and value."""

SNAPSHOT_BATCH_RECORDS = 1024
"""Records of one batch of data, as many as Kafka appends at once."""
SNAPSHOT_BATCH_BYTES = 8 << 20
"""The largest batch in bytes, as large as Kafka's metadata log takes one."""
SYNC_BYTES = 1 << 20
"""Bytes after which a snapshot is synced while it is being written. A journalling file system
makes every sync wait for what other files have written: so nobody's acknowledgement does for more
than this."""

_DELTAS = tuple(encode_varint(index) for index in range(SNAPSHOT_BATCH_RECORDS))
_FRAME_BYTES = 5 + 2 + 2 + 5 + 5 + 1
"""Bytes of a record besides key and value, at most: its length, attributes and timestamp delta,
offset delta, the sizes of key and value, and the count of headers."""


class SnapshotWriter:
    """One snapshot being written, until `finish` or `abandon`. It is abandoned at the end of a
    `with` block that has not finished it.

    `last_contained_ms` is the append time of the last batch of the log that the state has;
    `unique` makes the unfinished file's name this writer's own. `first_records` come after the
    header in its batch. All batches have the time `now_ms`.

    Raises FileExistsError if there is such a snapshot, and OSError; the unfinished file is removed
    then if that is possible, or at the next start.
    """

    def __init__(
        self,
        files: Filesystem,
        folder: str,
        snapshot_id: SnapshotId,
        *,
        last_contained_ms: int,
        unique: str,
        first_records: Sequence[ControlRecord] = (),
        now_ms: int,
    ) -> None:
        self.snapshot_id = snapshot_id
        self.path = f"{folder}/{snapshot_id.file_name}"
        self.size = 0
        """Bytes so far."""
        self._files = files
        self._folder = folder
        self._part = f"{folder}/{snapshot_id}-{unique}{CHECKPOINT}{PART}"
        self._now_ms = now_ms
        self._next_offset = 0
        self._synced = 0
        self._open = True
        if files.exists(self.path):
            raise FileExistsError(errno.EEXIST, "there is such a snapshot", self.path)
        self._file = files.open_file(self._part, create=True)
        header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_contained_ms)
        try:
            self._control([header, *first_records])
        except OSError:
            self.abandon()
            raise

    def append(self, records: Iterable[Entry]) -> None:
        """Write records, in batches that are as large as allowed; a last one may be small.

        Raises ValueError for a record that no batch can hold, and OSError. Then there is nothing
        left to do but to abandon it.
        """
        rest = iter(records)
        carried: list[Entry] = []
        while batch := carried + list(islice(rest, SNAPSHOT_BATCH_RECORDS - len(carried))):
            count = _fitting(batch)
            data = wrap_records(
                _encode(batch[:count] if count < len(batch) else batch),
                count,
                attributes=0,
                base_timestamp=self._now_ms,
                max_timestamp=self._now_ms,
                base_offset=self._next_offset,
                leader_epoch=self.snapshot_id.epoch,
            )
            self._write(data, count)
            carried = batch[count:]

    def finish(self) -> None:
        """Write the footer and publish the file; when this returns, it outlives a power cut.

        Raises OSError. The snapshot may be there all the same if it came from the last step.
        """
        self._control([SnapshotFooterRecord(version=0)])
        self._file.sync()
        self._file.close()
        self._files.make_read_only(self._part)
        self._files.rename(self._part, self.path)
        self._open = False
        self._files.sync_dir(self._folder)

    def abandon(self) -> None:
        """Remove what there is of it; what the disk does not let go the next start removes."""
        if self._open:
            self._open = False
            self._file.close()
            with suppress(OSError):
                self._files.remove(self._part)

    def __enter__(self) -> SnapshotWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.abandon()

    def _control(self, records: Sequence[ControlRecord]) -> None:
        batch = control_batch(
            records,
            base_offset=self._next_offset,
            epoch=self.snapshot_id.epoch,
            timestamp_ms=self._now_ms,
        )
        self._write(batch, len(records))

    def _write(self, batch: bytearray, count: int) -> None:
        self._file.write_at([batch], self.size)
        self.size += len(batch)
        self._next_offset += count
        if self.size - self._synced >= SYNC_BYTES:
            self._file.sync()
            self._synced = self.size


def _fitting(batch: Sequence[Entry]) -> int:
    """Count of these records that one batch may hold, at least one. Raises ValueError if none."""
    room = SNAPSHOT_BATCH_BYTES - HEADER_SIZE
    size = 0
    for index, (key, value) in enumerate(batch):
        size += (len(key) if key else 0) + len(value) + _FRAME_BYTES
        if size > room:
            if not index:
                raise ValueError(
                    f"a record of {size} bytes; a batch of a snapshot has {SNAPSHOT_BATCH_BYTES}"
                )
            return index
    return len(batch)


def _encode(batch: Sequence[Entry]) -> bytes:
    """The records with offset deltas from 0 and timestamp deltas 0.

    Put together by hand: a snapshot of 100,000 partitions is written beside the running broker.
    """
    parts: list[bytes] = []
    add = parts.extend
    for delta, (key, value) in zip(_DELTAS, batch, strict=False):
        if key is None:
            start, middle = _without_key(len(delta), len(value))
            add((start, delta, middle, value, b"\0"))
        else:
            start, middle, last = _with_key(len(delta), len(key), len(value))
            add((start, delta, middle, key, last, value, b"\0"))
    return b"".join(parts)


@lru_cache(maxsize=1024)
def _without_key(delta_size: int, value_size: int) -> tuple[bytes, bytes]:
    """The bytes before the offset delta, and between it and the value."""
    middle = encode_varint(-1) + encode_varint(value_size)
    return encode_varint(delta_size + len(middle) + value_size + 3) + b"\0\0", middle


@lru_cache(maxsize=1024)
def _with_key(delta_size: int, key_size: int, value_size: int) -> tuple[bytes, bytes, bytes]:
    """The bytes before the offset delta, between it and the key, and before the value."""
    middle, last = encode_varint(key_size), encode_varint(value_size)
    size = delta_size + len(middle) + key_size + len(last) + value_size + 3
    return encode_varint(size) + b"\0\0", middle, last
