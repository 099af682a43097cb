"""The producers and transactions of a log, compared with the files beside it.

The state is followed batch by batch as a broker follows it. Where the log does not begin with its
first offset, or compaction has been, some of the past is missing; then less can be said, and less
is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.records.crc import crc32c
from protocol.records.layout import (
    ATTRIBUTES,
    CONTROL_BIT,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL_BIT,
)
from protocol.records.markers import decode_marker
from storage.errors import MalformedFile
from storage.inspection.index_files import IndexEntries
from storage.layout import LARGEST_OFFSET, SNAPSHOT, TRANSACTION_INDEX, file_name
from storage.producers import (
    SEQUENCE_MASK,
    SNAPSHOT_CHECKED_POSITION,
    SNAPSHOT_ENTRY,
    SNAPSHOT_HEAD,
    SNAPSHOT_VERSION,
)
from storage.transaction_index import ENTRY, VERSION, AbortedTransaction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocol.records.layout import Header
    from protocol.records.markers import Marker
    from storage.filesystem import File
    from storage.inspection.findings import Report
    from storage.scan import Entry

PRODUCERS_MAX = 1_000_000
"""Producers that are followed; about 300 bytes of memory each. With more, none is."""

ABORTED_MAX = 100_000
"""Aborted transactions of one segment that a repair could write down again."""

MARKER_BYTES_MAX = 4096
"""A control batch holds a few small records."""

NONE = -1


class Known:
    """One producer: the facts that a snapshot keeps."""

    __slots__ = ("coordinator", "delta", "epoch", "last_offset", "opened", "sequence", "timestamp")

    def __init__(
        self,
        epoch: int,
        sequence: int,
        last_offset: int,
        delta: int,
        timestamp: int,
        coordinator: int,
        opened: int,
    ) -> None:
        self.epoch = epoch
        self.sequence = sequence
        self.last_offset = last_offset
        self.delta = delta
        self.timestamp = timestamp
        self.coordinator = coordinator
        self.opened = opened


def read_snapshot(data: bytes, path: str) -> dict[int, Known]:
    """The content of a `.snapshot`. Raises MalformedFile."""
    if len(data) < SNAPSHOT_HEAD.size:
        raise MalformedFile(path, f"{len(data)} bytes, a snapshot has at least 10")
    version, checksum, count = SNAPSHOT_HEAD.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise MalformedFile(path, f"version {version}, known is {SNAPSHOT_VERSION}")
    found = crc32c(memoryview(data)[SNAPSHOT_CHECKED_POSITION:])
    if found != checksum:
        raise MalformedFile(path, f"the checksum is {checksum:#010x}, the bytes have {found:#010x}")
    if count < 0 or len(data) != SNAPSHOT_HEAD.size + count * SNAPSHOT_ENTRY.size:
        raise MalformedFile(path, f"{count} entries do not fill {len(data)} bytes")
    states = {}
    for fields in SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[SNAPSHOT_HEAD.size :]):
        states[fields[0]] = Known(*fields[1:])
    if len(states) != count:
        raise MalformedFile(path, "a producer is in it twice")
    return states


def write_snapshot(states: dict[int, Known]) -> bytes:
    """The bytes of a `.snapshot`."""
    body = bytearray(SNAPSHOT_HEAD.pack(SNAPSHOT_VERSION, 0, len(states)))
    for producer_id, known in sorted(states.items()):
        body += SNAPSHOT_ENTRY.pack(
            producer_id,
            known.epoch,
            known.sequence,
            known.last_offset,
            known.delta,
            known.timestamp,
            known.coordinator,
            known.opened,
        )
    checksum = crc32c(memoryview(body)[SNAPSHOT_CHECKED_POSITION:])
    SNAPSHOT_HEAD.pack_into(body, 0, SNAPSHOT_VERSION, checksum, len(states))
    return bytes(body)


def marker_of(entry: Entry, data: memoryview) -> Marker | None:
    """The transaction marker in a control batch; None if there is none, or it was emptied."""
    return decode_marker(data) if entry.size <= MARKER_BYTES_MAX and not entry.codec else None


class ProducerWatch:
    """Follows producers through the log. `complete` is False while some of their past is unknown.

    `open` has the open transactions, producer id to first offset, the oldest first; `led_in` the
    leader epoch of that offset, where the batch was seen. A start does
    not look at what lies below `log_start`: so a broker may know nothing of a transaction whose
    data is all down there, and of another only what is above. Below `gaps_below` compaction may
    have been, as in `Context`.
    """

    def __init__(self, log_start: int = -1, *, gaps_below: int = LARGEST_OFFSET) -> None:
        self.log_start = log_start
        self.gaps_below = gaps_below
        self.states: dict[int, Known] = {}
        self.open: dict[int, int] = {}
        self.led_in: dict[int, int] = {}
        self.complete = True
        self.too_many = False
        self.largest_id = NONE

    def begin_with(self, states: dict[int, Known]) -> None:
        """Start from a snapshot at the log's first offset."""
        self.states = states
        opened = sorted((known.opened, id_) for id_, known in states.items() if known.opened >= 0)
        self.open = {producer_id: first for first, producer_id in opened}

    def entry(self, header: Header, first_offset: int) -> None:
        """A batch with a producer id that is no control batch."""
        producer_id, epoch, sequence = header[PRODUCER_ID:-1]
        delta = header[LAST_OFFSET_DELTA]
        known = self.states.get(producer_id)
        if known is None:
            if len(self.states) >= PRODUCERS_MAX:
                self._give_up()
            if self.too_many:
                return
            known = self.states[producer_id] = Known(epoch, 0, 0, 0, 0, NONE, NONE)
            self.largest_id = max(self.largest_id, producer_id)
        known.epoch = epoch
        known.sequence = (sequence + delta) & SEQUENCE_MASK
        known.last_offset = first_offset + delta
        known.delta = delta
        known.timestamp = header[MAX_TIMESTAMP]
        if header[ATTRIBUTES] & TRANSACTIONAL_BIT and known.opened < 0:
            known.opened = self.open[producer_id] = first_offset
            self.led_in[producer_id] = header[LEADER_EPOCH]

    def marker(
        self, header: Header, offset: int, marker: Marker | None
    ) -> AbortedTransaction | None:
        """A control batch that ends a transaction. Returns what an abort left of one.

        A marker that compaction has emptied tells no more than that there is none open.
        """
        producer_id, epoch = header[PRODUCER_ID], header[PRODUCER_EPOCH]
        known = self.states.get(producer_id)
        if known is None or known.epoch != epoch:
            opened = NONE if known is None else known.opened
            if known is None and (self.too_many or len(self.states) >= PRODUCERS_MAX):
                return None
            known = Known(epoch, NONE, NONE, 0, 0, NONE, opened)
            self.states[producer_id] = known
        opened, known.opened = known.opened, NONE
        self.open.pop(producer_id, None)
        self.led_in.pop(producer_id, None)
        known.timestamp = header[MAX_TIMESTAMP]
        if marker is not None:
            known.coordinator = marker.coordinator_epoch
        if opened < 0 or marker is None or marker.commit:
            return None
        if max(opened, known.last_offset) < self.log_start:
            return None
        stable = next(iter(self.open.values()), offset + 1)
        return AbortedTransaction(producer_id, opened, offset, stable)

    def _give_up(self) -> None:
        self.states, self.open, self.led_in = {}, {}, {}
        self.too_many, self.complete = True, False


def is_marker(header: Header) -> bool:
    """Whether a batch ends a transaction, if its record says so; the metadata log has others."""
    return bool(header[ATTRIBUTES] & CONTROL_BIT) and header[PRODUCER_ID] >= 0


class TransactionIndexCheck:
    """Compares a segment's `.txnindex`, if there is one, with the abort markers in the log.

    `excused_from` is the offset from which an entry may not have reached the file yet; transactions
    that ended below `log_start` need none.
    """

    def __init__(
        self,
        file: File | None,
        base_offset: int,
        report: Report,
        *,
        excused_from: int,
        log_start: int,
    ) -> None:
        self.name = file_name(base_offset, TRANSACTION_INDEX)
        self.base_offset = base_offset
        self.report = report
        self.excused_from = excused_from
        self.log_start = log_start
        self.blurred = False
        self.right: list[AbortedTransaction] = []
        """Entries that the file should have, as far as the log and the file together tell."""
        self._entries = None if file is None else IndexEntries(file, ENTRY)
        self._iterator: Iterator[tuple[int, tuple[int, ...]]] = iter(self._entries or ())
        self._position = 0
        self._fields: tuple[int, ...] | None = None
        self._before = -1
        self._advance()

    def _error(self, reason: str, offset: int = -1) -> None:
        self.report.error(
            "txn-index", reason, file=self.name, position=self._position, offset=offset
        )

    def _advance(self) -> None:
        while True:
            self._position, self._fields = next(self._iterator, (self._position, None))
            if self._fields is None:
                return
            version, _, first, last, stable = self._fields
            if version != VERSION:
                self._error(f"version {version}, known is {VERSION}")
            elif not first <= last or last <= self._before or last < self.base_offset:
                self._error(
                    f"a transaction of offsets {first}..{last} after one that ended at "
                    f"{self._before}"
                )
            elif stable > last + 1:
                self._error(f"last stable offset {stable}, the marker is at {last}")
            else:
                self._before = last
                return

    def marker(
        self,
        header: Header,
        offset: int,
        marker: Marker | None,
        aborted: AbortedTransaction | None,
        *,
        complete: bool,
    ) -> None:
        """A marker in the log, with what the watch knows of the transaction."""
        while self._fields is not None and self._fields[3] < offset:
            self._unmatched()
            self._advance()
        fields = self._fields
        if fields is None or fields[3] != offset:
            if aborted is not None:
                self._keep(aborted)
            wanted_below = self.log_start <= offset < self.excused_from
            if aborted is not None and wanted_below and not self.blurred:
                self.report.error(
                    "txn-index",
                    f"the aborted transaction of producer {aborted.producer_id}, offsets "
                    f"{aborted.first_offset}..{offset}, is missing: it would be read",
                    file=self.name,
                    offset=offset,
                )
            return
        if marker is None or marker.commit or fields[1] != header[PRODUCER_ID]:
            if aborted is not None:
                self._keep(aborted)
            said = "an empty" if marker is None else "a commit" if marker.commit else "an abort"
            self._error(
                f"an abort of producer {fields[1]}; in the log is {said} marker of producer "
                f"{header[PRODUCER_ID]}",
                offset,
            )
        elif complete and aborted is not None and not self.blurred:
            self._keep(aborted)
            wanted = (aborted.first_offset, aborted.last_stable_offset)
            if not all(map(self._fits, (fields[2], fields[4]), wanted)):
                self._error(
                    f"first offset {fields[2]} and last stable offset {fields[4]}, the log says "
                    f"{wanted[0]} and {wanted[1]}",
                    offset,
                )
        else:
            self._keep(AbortedTransaction(*fields[1:]))
        self._advance()

    def _fits(self, stored: int, known: int) -> bool:
        return stored == known or known < min(self.log_start, stored)

    def _keep(self, aborted: AbortedTransaction) -> None:
        if len(self.right) < ABORTED_MAX:
            self.right.append(aborted)

    def _unmatched(self) -> None:
        if self._fields is not None and not self.blurred:
            self._error(f"no abort marker at offset {self._fields[3]}", self._fields[3])

    def finish(self) -> None:
        while self._fields is not None:
            self._unmatched()
            self._advance()
        if self._entries is None:
            return
        if self._entries.odd_bytes or self._entries.zero_bytes:
            self.report.error(
                "txn-index",
                f"{self._entries.odd_bytes + self._entries.zero_bytes} bytes at the end are no "
                f"entry",
                file=self.name,
                position=self._entries.size - self._entries.odd_bytes - self._entries.zero_bytes,
            )


class SnapshotCheck:
    """Compares one `.snapshot` with the producers as the log knows them at its offset."""

    def __init__(self, states: dict[int, Known], offset: int) -> None:
        self.states = states
        self.offset = offset
        self.name = file_name(offset, SNAPSHOT)

    def compare(self, watch: ProducerWatch, report: Report) -> None:
        """To be called when the log has been gone through up to the snapshot's offset."""
        log_start = watch.log_start
        if watch.too_many:
            return
        for producer_id, stored in self.states.items():
            known = watch.states.get(producer_id)
            # Compaction joins batches of producers that nobody needs any more, and its checkpoint
            # may not tell that it was there.
            if known is None or known.last_offset < stored.last_offset < watch.gaps_below:
                if watch.complete and max(stored.last_offset, stored.opened) >= log_start:
                    report.note(
                        "snapshot",
                        f"producer {producer_id} with offset {stored.last_offset} is not in the "
                        f"log",
                        file=self.name,
                    )
                continue
            differs = _difference(stored, known, log_start)
            if differs and (watch.complete or known.last_offset > stored.last_offset >= 0):
                report.error("snapshot", f"producer {producer_id} has {differs}", file=self.name)
        for producer_id, first in watch.open.items():
            last = max(first, watch.states[producer_id].last_offset)
            if producer_id not in self.states and last >= log_start:
                report.error(
                    "snapshot",
                    f"producer {producer_id} is missing, its transaction from offset {first} is "
                    f"open: it would be read",
                    file=self.name,
                )


def _difference(stored: Known, known: Known, log_start: int) -> str:
    pairs = [("epoch", stored.epoch, known.epoch)]
    # Of a producer whose batches lie below the log start a broker may know the marker alone.
    if stored.last_offset >= 0 or known.last_offset >= log_start:
        pairs += [
            ("last sequence", stored.sequence, known.sequence),
            ("last offset", stored.last_offset, known.last_offset),
        ]
    # Of a transaction that began below the log start a broker may know the rest alone, or nothing.
    if not 0 <= known.opened < log_start or 0 <= stored.opened < known.opened:
        pairs.append(("open transaction from", stored.opened, known.opened))
    return ", ".join(f"{name} {a}, the log says {b}" for name, a, b in pairs if a != b)
