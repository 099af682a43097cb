"""The files of an observer: the latest snapshot that it downloaded or wrote, and the log after it.

    __cluster_metadata-0/
        <end offset>-<epoch>.checkpoint          as the controller has it, byte for byte
        <end offset>-<epoch>.checkpoint.part     one that is being downloaded
        <end offset>.log                         the batches from there on, as they were fetched

These are the files of a controller, and the same tools read them. Nothing of them is precious: what
is torn, damaged or does not belong together is thrown away, and fetched again. So the log is not
synced; after a crash it ends before the first batch that is not whole. A snapshot is synced before
it gets its name, and only then goes what was there before. What if all is lost: it is downloaded
again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from broker.metadata.following.effects import StoredState
from protocol.logdata.metadata_names import SnapshotId
from protocol.records.batch import Batch
from protocol.records.walk import walk
from storage.layout import LOG, METADATA_LOG, file_name, offset_of
from storage.metadata.image_snapshot import write_image
from storage.metadata.snapshot_names import PART, snapshot_id_of
from storage.metadata.snapshots import DamagedSnapshot, read_snapshot
from storage.scan import Scan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from broker.metadata.following.replay import State
    from storage.filesystem import File, Filesystem
    from storage.metadata.snapshots import SnapshotBatch


class Keeping(Protocol):
    """A store of snapshot and log. Offsets are those of the log, positions bytes. All methods
    but `begin` may raise OSError."""

    cluster_id: str | None
    log_bytes: int

    def held(self) -> StoredState:
        """The stored state, for the machine."""

    def snapshot(self) -> Iterator[SnapshotBatch] | None:
        """The batches of the snapshot that is held; None if there is none."""

    def log(self) -> bytes:
        """All batches of the log that is held."""

    def know(self, cluster_id: str) -> None:
        """Remember whose metadata these are."""

    def store_chunk(self, snapshot_id: SnapshotId, position: int, data: memoryview) -> None:
        """Put bytes in place; what is there from `position` on goes."""

    def drop_partial(self, snapshot_id: SnapshotId) -> None: ...

    def read_partial(self, snapshot_id: SnapshotId) -> Iterator[SnapshotBatch]:
        """The batches of a downloaded snapshot. Raises DamagedSnapshot on the way."""

    def publish(self, snapshot_id: SnapshotId) -> None:
        """Put the snapshot that was read to its end in the place of all there is."""

    def compact(self, state: State, *, unique: str, now_ms: int) -> SnapshotId | None:
        """Put a snapshot of this state in the place of all there is, if any is kept at all."""

    def append(self, data: memoryview) -> None: ...

    def truncate(self, end_offset: int) -> int:
        """Cut the log there or lower; returns where it ends now, 0 if nothing could be kept."""

    def reset(self) -> None:
        """Forget snapshot and log."""

    def close(self) -> None: ...


class MetadataFolder:
    """See the module. Made by `open`; one thread at a time."""

    def __init__(self, files: Filesystem, path: str) -> None:
        self.folder = f"{path}/{METADATA_LOG}"
        self.cluster_id: str | None = None
        self.log_bytes = 0
        self._files = files
        self._snapshot_id: SnapshotId | None = None
        self._partial: tuple[SnapshotId, int] | None = None
        self._part_file: File | None = None
        self._log_file: File | None = None
        self._entries: list[_LogEntry] = []

    @classmethod
    def open(cls, files: Filesystem, path: str) -> Self:
        """Take the folder in the data directory `path`, make it if needed, and throw away what is
        of no use in it. Nobody else may use it. Raises OSError."""
        kept = cls(files, path)
        files.make_dir(kept.folder)
        files.sync_dir(path)
        kept._tidy()
        return kept

    # What is there

    def held(self) -> StoredState:
        start = self._snapshot_id.end_offset if self._snapshot_id else 0
        epochs = [(self._snapshot_id.epoch, start)] if self._snapshot_id else []
        for entry in self._entries:
            if not epochs or entry.epoch > epochs[-1][0]:
                epochs.append((entry.epoch, entry.base_offset))
        return StoredState(start, self._end_offset, tuple(epochs), self._partial)

    def snapshot(self) -> Iterator[SnapshotBatch] | None:
        snapshot_id = self._snapshot_id
        if snapshot_id is None:
            return None
        return read_snapshot(self._files, f"{self.folder}/{snapshot_id.file_name}")

    def log(self) -> bytes:
        return self._log_file.pread(self.log_bytes, 0) if self._log_file else b""

    @property
    def _start_offset(self) -> int:
        return self._snapshot_id.end_offset if self._snapshot_id else 0

    @property
    def _end_offset(self) -> int:
        return self._entries[-1].end_offset if self._entries else self._start_offset

    def know(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id

    def _tidy(self) -> None:
        """Find the newest snapshot that is whole, the log that follows it, and the newest partial
        one. All else goes."""
        names = self._files.list_dir(self.folder)
        found = [known for name in names if (known := snapshot_id_of(name))]
        for known in sorted(found, key=lambda one: one.age, reverse=True):
            if self._is_whole(known):
                self._snapshot_id = known
                break
        wanted = {file_name(self._start_offset, LOG)}
        if self._snapshot_id is not None:
            wanted.add(self._snapshot_id.file_name)
        parts = [known for name in names if (known := _partial_id(name))]
        newest = max(parts, key=lambda one: one.age, default=None)
        if newest is not None:
            wanted.add(newest.file_name + PART)
            size = self._files.size_of(self._part_path(newest))
            self._partial = newest, size
        self._remove_all_but(wanted)
        self._open_log()

    def _is_whole(self, known: SnapshotId) -> bool:
        try:
            for _ in read_snapshot(self._files, f"{self.folder}/{known.file_name}"):
                pass
        except DamagedSnapshot:
            return False
        return True

    def _remove_all_but(self, wanted: set[str]) -> None:
        """Of what an observer writes. A log goes before the snapshot that it needs."""
        names = sorted(self._files.list_dir(self.folder), key=lambda name: not name.endswith(LOG))
        for name in names:
            if name not in wanted and _is_ours(name):
                self._files.remove(f"{self.folder}/{name}")

    def _open_log(self) -> None:
        """Go through the log and cut off what is not whole or does not follow."""
        try:
            file = self._files.open_file(self._log_path)
        except FileNotFoundError:
            return
        size = file.size()
        scan = Scan(file, 0, size, last_offset=self._start_offset - 1, checked=True)
        epoch = self._snapshot_id.epoch if self._snapshot_id else 0
        end = 0
        for entry in scan:
            follows = entry.first_offset == self._end_offset and entry.leader_epoch >= epoch
            if entry.magic != 2 or not follows:
                break
            self._entries.append(
                _LogEntry(entry.first_offset, entry.last_offset + 1, entry.leader_epoch, end)
            )
            end, epoch = entry.end, entry.leader_epoch
        if end < size:
            file.truncate(end)
            file.sync()
        self._log_file, self.log_bytes = file, end

    @property
    def _log_path(self) -> str:
        return f"{self.folder}/{file_name(self._start_offset, LOG)}"

    def _part_path(self, snapshot_id: SnapshotId) -> str:
        return f"{self.folder}/{snapshot_id.file_name}{PART}"

    # Snapshots

    def store_chunk(self, snapshot_id: SnapshotId, position: int, data: memoryview) -> None:
        if self._part_file is None:
            path = self._part_path(snapshot_id)
            self._part_file = self._files.open_file(path, create=True)
        file = self._part_file
        if file.size() > position:
            file.truncate(position)
        file.write_at([data], position)
        self._partial = snapshot_id, position + len(data)

    def drop_partial(self, snapshot_id: SnapshotId) -> None:
        self._close_part()
        self._partial = None
        self._files.remove(self._part_path(snapshot_id))

    def read_partial(self, snapshot_id: SnapshotId) -> Iterator[SnapshotBatch]:
        return read_snapshot(self._files, self._part_path(snapshot_id))

    def publish(self, snapshot_id: SnapshotId) -> None:
        part = self._part_path(snapshot_id)
        file = self._part_file or self._files.open_file(part)
        file.sync()
        self._close_part()
        # Before the snapshot has its name: a log that ends below a snapshot does not belong to it.
        self._close_log()
        self._files.remove(self._log_path)
        path = f"{self.folder}/{snapshot_id.file_name}"
        self._files.rename(part, path)
        self._files.sync_dir(self.folder)
        # Not before the name lasts: a run after a power cut may have to write to the part.
        self._files.make_read_only(path)
        self._partial = None
        self._begin_after(snapshot_id)

    def compact(self, state: State, *, unique: str, now_ms: int) -> SnapshotId | None:
        snapshot_id = SnapshotId(state.end_offset, state.epoch)
        write_image(
            self._files,
            self.folder,
            snapshot_id,
            state.image,
            list(state.controls.values()),
            last_contained_ms=state.last_timestamp_ms,
            unique=unique,
            now_ms=now_ms,
        )
        self._begin_after(snapshot_id)
        return snapshot_id

    def _begin_after(self, snapshot_id: SnapshotId) -> None:
        """The log begins anew at the end of a snapshot that has just been published."""
        self._close_log()
        self._snapshot_id = snapshot_id
        wanted = {snapshot_id.file_name}
        if self._partial is not None:
            wanted.add(self._partial[0].file_name + PART)
        self._remove_all_but(wanted)

    def _close_part(self) -> None:
        if self._part_file is not None:
            self._part_file.close()
            self._part_file = None

    # The log

    def append(self, data: memoryview) -> None:
        if self._log_file is None:
            self._log_file = self._files.open_file(self._log_path, create=True)
        position = self.log_bytes
        self._log_file.write_at([data], position)
        for found in _entries_of(data, position):
            self._entries.append(found)
        self.log_bytes = position + len(data)

    def truncate(self, end_offset: int) -> int:
        while self._entries and self._entries[-1].end_offset > end_offset:
            self.log_bytes = self._entries.pop().position
        if self._log_file is not None:
            self._log_file.truncate(self.log_bytes)
            # Else a crash could have old batches follow the ones that take their place.
            self._log_file.sync()
        return self._end_offset

    def reset(self) -> None:
        self._close_log()
        self._close_part()
        self._partial = self._snapshot_id = None
        self._remove_all_but(set())

    def _close_log(self) -> None:
        if self._log_file is not None:
            self._log_file.close()
        self._log_file, self.log_bytes = None, 0
        self._entries.clear()

    def close(self) -> None:
        self._close_part()
        if self._log_file is not None:
            self._log_file.close()
            self._log_file = None


class _LogEntry(NamedTuple):
    base_offset: int
    end_offset: int
    epoch: int
    position: int


def _entries_of(data: memoryview, position: int) -> Iterator[_LogEntry]:
    for at, size, _ in walk(data):
        batch = Batch(data[at : at + size])
        yield _LogEntry(batch.base_offset, batch.last_offset + 1, batch.leader_epoch, position + at)


def _partial_id(name: str) -> SnapshotId | None:
    """The id of a snapshot that was being downloaded; one that we were writing has another name."""
    return snapshot_id_of(name.removesuffix(PART)) if name.endswith(PART) else None


def _is_ours(name: str) -> bool:
    return ".checkpoint" in name or offset_of(name, LOG) is not None
