"""The effects of an observer's machine, and the state that it starts from.

The machine writes nothing and waits for nothing: it returns effects, in the order in which they are
to happen. Of two it must be told the outcome before it says what to ask next: of `LoadSnapshot`
(`loaded` or `damaged`) and of `Truncate` (`truncated`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from protocol.logdata.metadata_names import SnapshotId


class StoredState(NamedTuple):
    """The snapshot and log that an observer has from an earlier run.

    `start_offset` is the end of its snapshot, 0 without one; `end_offset` that of its log. `epochs`
    are (epoch, first offset), oldest first; after a snapshot the first one is the snapshot's epoch,
    at `start_offset`. `partial` is a snapshot that was being loaded, and how many bytes of it there
    are.
    """

    start_offset: int = 0
    end_offset: int = 0
    epochs: tuple[tuple[int, int], ...] = ()
    partial: tuple[SnapshotId, int] | None = None


class StoreChunk(NamedTuple):
    """Bytes of a snapshot, which has `size` in all, to be put at `position` of what there is of it;
    whatever is there from `position` on goes. `data` must be copied if it is kept."""

    snapshot_id: SnapshotId
    position: int
    data: memoryview
    size: int


class DropPartial(NamedTuple):
    """The downloaded part of a snapshot is of no use any more."""

    snapshot_id: SnapshotId


class LoadSnapshot(NamedTuple):
    """All `size` bytes are there: check them, and if they are good, put the snapshot in the place
    of all state and log. Then tell `loaded`, or `damaged`."""

    snapshot_id: SnapshotId
    size: int


class Append(NamedTuple):
    """Whole batches with checked sums, to be added to the log as they are. `data` as above."""

    base_offset: int
    end_offset: int
    data: memoryview


class Commit(NamedTuple):
    """Everything below `end_offset` is agreed upon and to be replayed, if it is not yet."""

    end_offset: int


class Truncate(NamedTuple):
    """The leader does not have the log from this offset on. Cut it there, or lower, and then tell
    `truncated` where it ends now."""

    end_offset: int


class Reset(NamedTuple):
    """Forget snapshot, log and state: none of it is the leader's."""

    reason: str


class Retry(NamedTuple):
    """Wait a little before the next request; longer each time that this comes in a row."""

    reason: str


class GoTo(NamedTuple):
    """Ask another node: this one, which is the leader, or with None any other that is known."""

    node_id: int
    host: str | None
    port: int


Effect = (
    StoreChunk
    | DropPartial
    | LoadSnapshot
    | Append
    | Commit
    | Truncate
    | Reset
    | Retry
    | GoTo
)  # fmt: skip


class ObserverStopped(Exception):
    """Why it makes no sense to go on, in one sentence for the operator."""
