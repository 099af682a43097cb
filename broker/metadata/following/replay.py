"""Batches of the metadata log into an image.

A snapshot makes a new image, which takes the place of the old one as a whole. Batches of the log
wait until the leader says that they are agreed upon, then their records are replayed one by one, as
at the start of a controller. Those of a transaction are told of when it ends; of one that is
aborted nobody hears.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from broker.metadata.following.effects import ObserverStopped
from protocol.errors import Malformed
from protocol.logdata.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    KRaftVersionRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    decode_record,
    read_batch,
)
from protocol.records.batch import Batch
from protocol.records.walk import walk
from storage.metadata.image import MetadataError, MetadataImage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from protocol.logdata.metadata import ControlRecord, MetadataRecord
    from storage.metadata.snapshots import SnapshotBatch

    Changed = Callable[[int, MetadataRecord, MetadataImage], None]


class State:
    """The state below `end_offset`. `epoch` and `last_timestamp_ms` are those of the last batch;
    `controls` is what a snapshot of it has to say besides: version and voters."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.end_offset = 0
        self.epoch = 0
        self.last_timestamp_ms = -1
        self.controls: dict[type[ControlRecord], ControlRecord] = {}

    def note(self, control: ControlRecord) -> None:
        """Keep what a snapshot repeats."""
        if isinstance(control, KRaftVersionRecord | VotersRecord):
            self.controls[type(control)] = control


def state_of_snapshot(
    batches: Iterable[SnapshotBatch], *, end_offset: int, epoch: int, where: str
) -> State:
    """The state that a snapshot holds. May take seconds, and needs nothing but what it is given,
    so that a thread can do it. Raises ObserverStopped for a record that is not known, and what the
    reading of the batches raises."""
    state = State()
    replay = state.image.replay
    for batch in batches:
        for control in batch.controls:
            if isinstance(control, SnapshotHeaderRecord):
                state.last_timestamp_ms = control.last_contained_log_timestamp
            state.note(control)
        try:
            for _, value in batch.records:
                replay(decode_record(value))
        except (Malformed, MetadataError) as error:
            raise _not_understood(f"{where}, position {batch.position}", error) from error
    state.end_offset, state.epoch = end_offset, epoch
    return state


class Replay:
    """The state, and the batches that wait to become part of it."""

    def __init__(self, changed: Changed | None = None, *, keeps_removed: bool = False) -> None:
        """`changed` is called with the offset of each record that counts from now on, the record,
        and the image as it was before: before the whole transaction if it is part of one.
        `keeps_removed` is for who has folders of topics that were removed."""
        self.state = State()
        self.changed = changed
        self._keeps_removed = keeps_removed
        self._waiting: deque[bytes] = deque()
        self._in_transaction: list[tuple[int, MetadataRecord]] = []

    @property
    def image(self) -> MetadataImage:
        return self.state.image

    @property
    def at_rest(self) -> bool:
        """Whether nothing waits, neither for the leader nor for the end of a transaction."""
        return not self._waiting and self.image.transaction is None

    def replace(self, state: State) -> None:
        """Take another state; nothing waits then."""
        self.state = state
        self._waiting.clear()
        self._in_transaction.clear()

    def wait(self, data: bytes | bytearray | memoryview) -> None:
        """Whole batches that follow those before them. They are copied."""
        self._waiting.extend(
            bytes(data[position : position + size]) for position, size, _ in walk(data)
        )

    def cut(self, end_offset: int) -> None:
        """Forget the batches that wait from there on."""
        while self._waiting and Batch(memoryview(self._waiting[-1])).last_offset >= end_offset:
            self._waiting.pop()

    def commit(self, end_offset: int) -> None:
        """Replay what waits below that offset. Raises ObserverStopped for what is not understood;
        the record, and all after it, have not been replayed then."""
        waiting = self._waiting
        while waiting and Batch(memoryview(waiting[0])).last_offset < end_offset:
            self._replay(waiting.popleft())

    def _replay(self, data: bytes) -> None:
        state = self.state
        offset = Batch(memoryview(data)).base_offset
        try:
            batch = read_batch(data)
            for record in batch.records:
                if batch.is_control:
                    state.note(record)  # type: ignore[arg-type]
                else:
                    self._tell(offset, record)  # type: ignore[arg-type]
                    state.image.replay(record)  # type: ignore[arg-type]
                offset += 1
        except (Malformed, MetadataError) as error:
            raise _not_understood(f"offset {offset} of the log", error) from error
        if not self._keeps_removed:
            state.image.removed.clear()
        state.end_offset = batch.last_offset + 1
        state.epoch, state.last_timestamp_ms = batch.epoch, batch.timestamp_ms

    def _tell(self, offset: int, record: MetadataRecord) -> None:
        """Say what counts from now on. What is in a transaction is remembered in any case: whoever
        listens may begin to before it ends."""
        counting: list[tuple[int, MetadataRecord]] = []
        if isinstance(record, BeginTransactionRecord | AbortTransactionRecord):
            self._in_transaction.clear()
        elif self.image.transaction is None:
            counting = [(offset, record)]
        elif isinstance(record, EndTransactionRecord):
            counting, self._in_transaction = self._in_transaction, counting
        else:
            self._in_transaction.append((offset, record))
        if self.changed is not None:
            for one in counting:
                self.changed(*one, self.image)


def _not_understood(where: str, error: Exception) -> ObserverStopped:
    return ObserverStopped(
        f"{where}: {error}. The controller may be a later one than is known here: use a later "
        "triglot to follow it"
    )
