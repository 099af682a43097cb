"""From the files of a metadata log to its state; what a start, `triglot metadata show` and the
checks of a stopped directory share.

The newest snapshot that is whole gives the state at its end offset, the log gives the rest. A
start never makes do with less than was acknowledged: whatever is damaged or missing is refused,
with the file, the position and what to do. Two things are not damage: an append that a power cut
tore (it was never acknowledged; the log ends before it), and a newest snapshot that is damaged
while an older one and the log still give all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from protocol.errors import Malformed
from protocol.logdata.metadata import (
    MAX_METADATA_VERSION,
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotHeaderRecord,
    VotersRecord,
    decode_record,
    read_batch,
)
from protocol.records.crc import crc32c
from protocol.records.layout import (
    BASE_OFFSET,
    CHECKED_POSITION,
    CRC_POSITION,
    ENTRY_OVERHEAD,
    HEADER,
    HEADER_SIZE,
    INT32,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LENGTH_POSITION,
    MAGIC_POSITION,
    UINT32,
)
from storage.errors import DataDirectoryError
from storage.layout import LOG, METADATA_LOG, offset_of
from storage.metadata.image import MetadataError, MetadataImage
from storage.metadata.snapshot_names import LARGEST_EPOCH
from storage.metadata.snapshots import DamagedSnapshot, Snapshots, read_snapshot, snapshot_id_of
from storage.metadata.torn import is_torn, lacks_beginning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocol.logdata.metadata import MetadataRecord
    from protocol.records.layout import Header
    from storage.filesystem import File, Filesystem
    from storage.metadata.snapshots import SnapshotId

READ_BYTES = 4 * 1024 * 1024
AFTER_FIRST_LEADER = 1
"""A log may begin at this offset, as it may for Apache Kafka: what every log has at offset 0 is the
record of its first leader, which says nothing of topics or settings."""


class MetadataRefused(DataDirectoryError):
    """The metadata in this directory cannot be trusted, or not be understood."""


class Torn:
    """The end of a log that an append did not get to: `size` bytes from `position` on."""

    __slots__ = ("file", "position", "size")

    def __init__(self, file: str, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size


class Loaded:
    """The content of a metadata log's files.

    `snapshot` is the one that was read, None without one. The log goes from `start_offset` to
    `end_offset`, exclusive; both are the snapshot's end where there is no log. `epoch` is that of
    the last batch. `replayed_bytes` and `replayed_records` came from the log, after the snapshot.
    `damaged` are newer snapshots that could be done without.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.image = MetadataImage()
        self.snapshot: SnapshotId | None = None
        self.start_offset = 0
        self.end_offset = 0
        self.epoch = 0
        self.leader_id = -1
        self.last_timestamp_ms = -1
        self.replayed_bytes = 0
        self.replayed_records = 0
        self.has_log = False
        self.kraft_version = 0
        self.voters: VotersRecord | None = None
        self.torn: Torn | None = None
        self.damaged: list[DamagedSnapshot] = []

    @property
    def empty(self) -> bool:
        """There is neither a log nor a snapshot that says anything."""
        return self.end_offset == 0


def load(files: Filesystem, path: str) -> Loaded:
    """Read the metadata log of the data directory `path`; without one, an empty `Loaded`.

    Nothing is written. Raises MetadataRefused, OSError.
    """
    loading = _Loading(files, f"{path}/{METADATA_LOG}")
    loading.run()
    return loading.loaded


class _Loading:
    def __init__(self, files: Filesystem, folder: str) -> None:
        self.files = files
        self.folder = folder
        self.loaded = Loaded(folder)
        self.bases: list[int] = []

    def run(self) -> None:
        if not self.files.is_dir(self.folder):
            return
        names = self.files.list_dir(self.folder)
        found = (offset_of(name, LOG) for name in names)
        self.bases = sorted(offset for offset in found if offset is not None)
        self._load_snapshot(Snapshots(self.files, self.folder).ids)
        self._load_log()
        self._check_covered()
        self._check_level(self.folder)

    # Snapshots

    def _load_snapshot(self, ids: list[SnapshotId]) -> None:
        damaged: list[DamagedSnapshot] = []
        for snapshot in reversed(ids):
            try:
                self._read_snapshot(snapshot)
            except DamagedSnapshot as error:
                damaged.append(error)
                self.loaded = Loaded(self.folder)
            else:
                break
        loaded = self.loaded
        loaded.damaged = damaged
        end = loaded.snapshot.end_offset if loaded.snapshot else 0
        if self.bases and self.bases[0] > end:
            raise self._beginning_is_missing(end)
        if damaged and not self.bases:
            raise MetadataRefused(
                f"{damaged[0]}; there is no log that it could be made again from: "
                f"restore the file, or the whole directory, from a copy"
            )

    def _beginning_is_missing(self, end: int) -> MetadataRefused:
        first = f"{self.folder}/{self.bases[0]:020d}{LOG}"
        if self.loaded.damaged:
            return MetadataRefused(
                f"{self.loaded.damaged[0]}; the log begins at offset {self.bases[0]} only, so what "
                f"the snapshot said is nowhere else: restore it from a copy"
            )
        have = f"the newest reaches to {end}" if self.loaded.snapshot else "there is none"
        return MetadataRefused(
            f"{first}: the log begins at offset {self.bases[0]} and needs a snapshot that reaches "
            f"at least there, but {have}: restore the `.checkpoint` file, or start with an empty "
            f"directory; without it topics would be forgotten"
        )

    def _read_snapshot(self, snapshot: SnapshotId) -> None:
        path = f"{self.folder}/{snapshot.file_name}"
        loaded = self.loaded
        for batch in read_snapshot(self.files, path):
            for control in batch.controls:
                if isinstance(control, SnapshotHeaderRecord):
                    loaded.last_timestamp_ms = control.last_contained_log_timestamp
                self._control(control)
            for _, value in batch.records:
                where = f"{path}, position {batch.position}"
                try:
                    loaded.image.replay(decode_record(value))
                except (Malformed, MetadataError) as error:
                    raise self._not_understood(where, error) from error
        loaded.snapshot = snapshot
        loaded.start_offset = loaded.end_offset = snapshot.end_offset
        loaded.epoch = snapshot.epoch
        self._check_level(path)

    # The log

    def _load_log(self) -> None:
        loaded = self.loaded
        if not self.bases:
            return
        snapshot_end, expected = loaded.end_offset, self.bases[0]
        epoch: int | None = None
        for base in self.bases:
            path = f"{self.folder}/{base:020d}{LOG}"
            if base != expected:
                raise MetadataRefused(
                    f"{path}: the log before it ends at offset {expected}, so a file is missing "
                    f"between them: restore it from a copy"
                )
            for position, view in self._batches(path, expected):
                header: Header = HEADER.unpack_from(view)
                expected = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
                if not 0 <= header[LEADER_EPOCH] < LARGEST_EPOCH:
                    raise MetadataRefused(
                        f"{path}, position {position}: a batch of epoch {header[LEADER_EPOCH]}, "
                        f"wanted 0 to {LARGEST_EPOCH - 1}: restore the file from a copy"
                    )
                if epoch is not None and header[LEADER_EPOCH] < epoch:
                    raise MetadataRefused(
                        f"{path}, position {position}: a batch of epoch {header[LEADER_EPOCH]} "
                        f"after one of {epoch}: restore the file from a copy"
                    )
                if expected <= snapshot_end:
                    epoch = header[LEADER_EPOCH]
                    continue
                if header[BASE_OFFSET] == snapshot_end:
                    self._check_fits(epoch, header[LEADER_EPOCH])
                elif header[BASE_OFFSET] < snapshot_end:
                    raise MetadataRefused(
                        f"{path}, position {position}: the snapshot that ends at offset "
                        f"{snapshot_end} ends within the batch of {header[BASE_OFFSET]} to "
                        f"{expected - 1}; it is not of this log: remove it, or restore the log"
                    )
                epoch = header[LEADER_EPOCH]
                self._replay(view, f"{path}, position {position}")
        if expected < snapshot_end:
            if expected > self.bases[0] or loaded.torn is not None:
                raise self._from_the_future(expected)
            return  # nothing was appended since a snapshot took the place of the log
        if expected == snapshot_end:
            self._check_fits(epoch, None)
        loaded.has_log, loaded.start_offset, loaded.end_offset = True, self.bases[0], expected

    def _check_fits(self, last: int | None, following: int | None) -> None:
        """The batch that the snapshot ends with is of the epoch in its name, if it is there, and
        the one after it of that one or a later."""
        snapshot = self.loaded.snapshot
        if snapshot is None:
            return
        found = last if last is not None else following
        if found is None or found == snapshot.epoch or (last is None and found > snapshot.epoch):
            return
        where = "" if last is not None else " after that"
        raise MetadataRefused(
            f"{self.folder}/{snapshot.file_name}: it says that the log up to offset "
            f"{snapshot.end_offset} is of epoch {snapshot.epoch}, but in the log{where} that is "
            f"{found}: one of them is not of this directory; remove the snapshot if the log "
            f"is complete, or restore both from a copy"
        )

    def _check_covered(self) -> None:
        """Refuse a log that ends before one of the damaged snapshots does."""
        for damaged in self.loaded.damaged:
            snapshot = snapshot_id_of(damaged.path.rpartition("/")[2])
            if snapshot is not None and snapshot.end_offset > self.loaded.end_offset:
                raise MetadataRefused(
                    f"{damaged}; the log ends at offset {self.loaded.end_offset}, before it, so "
                    f"what it said is nowhere else: restore the file, or the whole directory, from "
                    f"a copy"
                )

    def _from_the_future(self, end: int) -> MetadataRefused:
        snapshot = self.loaded.snapshot
        assert snapshot is not None
        return MetadataRefused(
            f"{self.folder}/{snapshot.file_name}: it ends at offset {snapshot.end_offset}, but the "
            f"log ends at {end}, before it: one of them is of another time. To go on with the "
            f"snapshot, move the `.log` files away; to go on with the log, move the snapshot away"
        )

    def _batches(self, path: str, expected: int) -> Iterator[tuple[int, memoryview]]:
        """Each batch of a file and its position; its checksum is right and its offset expected."""
        file = self.files.open_to_read(path)
        file.reread(0)  # the last process may have ended because a sync failed
        try:
            for position, view, fault in _entries(file, file.size()):
                if fault:
                    self._end_or_damage(file, path, position, expected, fault)
                    return
                header: Header = HEADER.unpack_from(view)
                if expected == 0 and header[BASE_OFFSET] == AFTER_FIRST_LEADER:
                    expected = AFTER_FIRST_LEADER
                if header[BASE_OFFSET] != expected:
                    if self._is_last(path) and lacks_beginning(file, position, expected):
                        self._note_torn(file, path, position)
                        return
                    raise MetadataRefused(
                        f"{path}, position {position}: a batch of offset {header[BASE_OFFSET]}, "
                        f"wanted {expected}: restore the file from a copy"
                    )
                yield position, view
                expected += header[LAST_OFFSET_DELTA] + 1
        finally:
            file.close()

    def _end_or_damage(
        self, file: File, path: str, position: int, expected: int, fault: str
    ) -> None:
        """Note the torn end of the log, or refuse what is no such end."""
        if self._is_last(path) and is_torn(file, position, expected):
            self._note_torn(file, path, position)
            return
        raise MetadataRefused(
            f"{path}, position {position}: the batch of offset {expected} is damaged ({fault}), "
            f"and it is not the end of an append that a crash cut off: restore the file from a "
            f"copy. To go on without it and what follows, cut the file there "
            f"({file.size() - position} bytes); topics and settings changed since are then "
            f"forgotten"
        )

    def _is_last(self, path: str) -> bool:
        return offset_of(path.rpartition("/")[2], LOG) == self.bases[-1]

    def _note_torn(self, file: File, path: str, position: int) -> None:
        self.loaded.torn = Torn(path.rpartition("/")[2], position, file.size() - position)

    def _replay(self, view: memoryview, where: str) -> None:
        loaded = self.loaded
        try:
            batch = read_batch(view)
            if batch.is_control:
                for control in batch.records:
                    self._control(control)
            else:
                for record in cast("list[MetadataRecord]", batch.records):
                    loaded.image.replay(record)
        except (Malformed, MetadataError) as error:
            raise self._not_understood(where, error) from error
        loaded.epoch = batch.epoch
        loaded.last_timestamp_ms = batch.timestamp_ms
        loaded.replayed_bytes += len(view)
        loaded.replayed_records += batch.last_offset - batch.base_offset + 1

    def _control(self, control: object) -> None:
        loaded = self.loaded
        if isinstance(control, KRaftVersionRecord):
            loaded.kraft_version = control.k_raft_version
        elif isinstance(control, VotersRecord):
            loaded.voters = control
        elif isinstance(control, LeaderChangeMessage):
            loaded.leader_id = control.leader_id

    def _check_level(self, where: str) -> None:
        level = self.loaded.image.metadata_version
        if level > MAX_METADATA_VERSION:
            raise MetadataRefused(
                f"{where}: metadata.version is {level}, known are 1 to {MAX_METADATA_VERSION}: "
                f"it was written by a later Kafka; use a later triglot"
            )

    def _not_understood(self, where: str, error: Exception) -> MetadataRefused:
        return MetadataRefused(
            f"{where}: {error}. A later Kafka or triglot may have written it: use that, or a "
            f"copy of the directory from before"
        )


def _entries(file: File, end: int) -> Iterator[tuple[int, memoryview, str]]:
    """Position and bytes of each entry of a file, or, last of all, where it stops and why."""
    position, start, buffer = 0, 0, b""
    while position < end:
        at = position - start
        if len(buffer) - at < HEADER_SIZE:
            buffer, start, at = file.pread(READ_BYTES, position), position, 0
        if len(buffer) - at < HEADER_SIZE:
            yield position, memoryview(b""), f"{len(buffer) - at} bytes, too few for a batch"
            return
        size = INT32.unpack_from(buffer, at + LENGTH_POSITION)[0] + ENTRY_OVERHEAD
        if size < HEADER_SIZE or size > end - position:
            fault = f"a length of {size - ENTRY_OVERHEAD} bytes, {end - position} are left"
            yield position, memoryview(b""), fault
            return
        if len(buffer) - at < size:
            buffer, start, at = file.pread(max(size, READ_BYTES), position), position, 0
        view = memoryview(buffer)[at : at + size]
        if view[MAGIC_POSITION] != 2:
            yield position, view, f"format {view[MAGIC_POSITION]}, wanted 2"
            return
        if crc32c(view[CHECKED_POSITION:]) != UINT32.unpack_from(view, CRC_POSITION)[0]:
            yield position, view, "its checksum is wrong"
            return
        yield position, view, ""
        position += size
