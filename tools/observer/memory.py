"""An observer without a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.metadata.following.effects import StoredState
from storage.metadata.snapshot_names import SnapshotId
from storage.metadata.snapshot_reading import read_snapshot_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.metadata.following.replay import State
    from storage.metadata.snapshots import SnapshotBatch


class InMemory:
    """Keeps nothing but the snapshot that is being downloaded. A truncation is a new beginning."""

    def __init__(self, cluster_id: str | None = None) -> None:
        self.cluster_id = cluster_id
        self.log_bytes = 0
        self._part = bytearray()

    def held(self) -> StoredState:
        return StoredState()

    def snapshot(self) -> Iterator[SnapshotBatch] | None:
        return None

    def log(self) -> bytes:
        return b""

    def know(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id

    def store_chunk(self, snapshot_id: SnapshotId, position: int, data: memoryview) -> None:
        del self._part[position:]
        self._part += data

    def drop_partial(self, snapshot_id: SnapshotId) -> None:
        self._part = bytearray()

    def read_partial(self, snapshot_id: SnapshotId) -> Iterator[SnapshotBatch]:
        return read_snapshot_bytes(bytes(self._part), f"memory/{snapshot_id.file_name}")

    def publish(self, snapshot_id: SnapshotId) -> None:
        self._part = bytearray()

    def compact(self, state: State, *, unique: str, now_ms: int) -> SnapshotId | None:
        return None

    def append(self, data: memoryview) -> None: ...

    def truncate(self, end_offset: int) -> int:
        return 0

    def reset(self) -> None:
        self._part = bytearray()

    def close(self) -> None: ...
