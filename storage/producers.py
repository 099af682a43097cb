"""The idempotent producers of a partition: their state, and the files that keep it.

A producer numbers its records. Per producer id the log remembers the epoch, the last sequence
and the last five batches, five being the client's limit of requests in flight: a batch that
comes twice is answered with the offset it got the first time.

Snapshot file (`<offset>.snapshot`): the state after all records below the offset in its name.
    0..1    int16   version, 1
    2..5    uint32  CRC-32C of everything after this field
    6..9    int32   number of entries
    then per producer 46 bytes:
    0..7    int64   producer id
    8..9    int16   producer epoch
    10..13  int32   last sequence, -1 if only a marker was seen
    14..21  int64   last offset, -1 likewise
    22..25  int32   last offset minus first offset of the last batch
    26..33  int64   timestamp (ms) of the last batch or marker
    34..37  int32   coordinator epoch, -1 until a marker was seen
    38..45  int64   first offset of the open transaction, -1 for none

What if it is lost: an older one is taken and the log scanned from there, at worst from its start.
"""

from __future__ import annotations

from collections import OrderedDict
from struct import Struct
from typing import TYPE_CHECKING

from protocol.records.crc import crc32c
from protocol.records.layout import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    CONTROL_BIT,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL_BIT,
    Header,
)
from storage.errors import (
    CoordinatorFenced,
    MalformedFile,
    OutOfOrderSequence,
    OutsideTransaction,
    ProducerFenced,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

SNAPSHOT_VERSION = 1
SNAPSHOT_HEAD = Struct(">hIi")
SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
SNAPSHOT_CHECKED_POSITION = 6

REMEMBERED_BATCHES = 5
SEQUENCE_MASK = 0x7FFF_FFFF
"""After sequence 2147483647 comes 0."""
NONE = -1

assert SNAPSHOT_HEAD.size == 10
assert SNAPSHOT_ENTRY.size == 46

Remembered = tuple[int, int, int, int, int]
"""First and last sequence, base and last offset, max timestamp of one batch."""

Producer = tuple[int, int, tuple[Remembered, ...], int, int, int]
"""Epoch, last sequence, last batches (newest last), timestamp, coordinator epoch, first offset of
the open transaction. A tuple, so that going back after a failed write is putting the old one
in its place."""


class Duplicate:
    """A batch that is in the log already, at these offsets and with this timestamp (ms).

    It may not be on disk yet: an answer that promises durability waits for `last_offset`.
    """

    __slots__ = ("base_offset", "last_offset", "timestamp")

    def __init__(self, base_offset: int, last_offset: int, timestamp: int) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.timestamp = timestamp


class ProducerStates:
    """The producers of one partition. Their number is bounded by expiry (`expire`), which the
    broker calls once in every `producer.id.expiration.check.interval.ms`."""

    __slots__ = ("_closed_from", "_open", "_producers", "_replaced", "_silent")

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self._replaced: list[tuple[int, Producer | None]] = []
        # Per producer with an open transaction its first offset; offsets rise in this order.
        self._open: OrderedDict[int, int] = OrderedDict()
        # The lowest first offset of a transaction that was closed since the last `settle`.
        self._closed_from = NONE
        # What was known of a producer when it was last looked at, and since when (ms).
        self._silent: dict[int, tuple[Producer, int]] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._producers

    def known(self) -> Iterable[tuple[int, Producer]]:
        """Every producer by its id."""
        return self._producers.items()

    def check(self, header: Header) -> Duplicate | None:
        """Whether a batch may be appended. To be asked before `Log.append`, for batches with a
        producer id.

        Returns None if it may and the earlier copy if there is one. Raises ProducerFenced (47)
        for an epoch older than the last, OutOfOrderSequence (45) for a gap, OutsideTransaction
        (48) for a batch outside of the open transaction. A producer of whom nothing is known may
        begin anywhere: retention may have removed its state.
        """
        producer = self._producers.get(header[PRODUCER_ID])
        if producer is None:
            return None
        if producer[5] != NONE and not header[ATTRIBUTES] & TRANSACTIONAL_BIT:
            raise OutsideTransaction(
                f"producer {header[PRODUCER_ID]} sends a batch outside of its transaction, which "
                f"is open since offset {producer[5]}"
            )
        first, epoch = header[BASE_SEQUENCE], header[PRODUCER_EPOCH]
        if epoch == producer[0]:
            if first == (producer[1] + 1) & SEQUENCE_MASK:
                return None
            last = (first + header[LAST_OFFSET_DELTA]) & SEQUENCE_MASK
            for batch in producer[2]:
                if batch[0] == first and batch[1] == last:
                    return Duplicate(batch[2], batch[3], batch[4])
            raise OutOfOrderSequence(
                f"producer {header[PRODUCER_ID]} epoch {epoch} sends sequence {first}, "
                f"expected {(producer[1] + 1) & SEQUENCE_MASK}"
            )
        if epoch < producer[0]:
            raise ProducerFenced(
                f"producer {header[PRODUCER_ID]} sends epoch {epoch}, seen was {producer[0]}"
            )
        if first:
            raise OutOfOrderSequence(
                f"producer {header[PRODUCER_ID]} starts epoch {epoch} with sequence {first}, not 0"
            )
        return None

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        """Whether a transaction may be ended by this coordinator.

        Raises ProducerFenced (47) for a producer epoch older than the last, CoordinatorFenced (91)
        for a coordinator epoch older than the last.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return
        if epoch < producer[0]:
            raise ProducerFenced(
                f"a marker for producer {producer_id} has epoch {epoch}, seen was {producer[0]}"
            )
        if coordinator_epoch < producer[4]:
            raise CoordinatorFenced(
                f"a marker for producer {producer_id} comes from coordinator epoch "
                f"{coordinator_epoch}, seen was {producer[4]}"
            )

    def epoch_of(self, producer_id: int) -> int:
        """The newest epoch that was seen of this producer, -1 for none."""
        producer = self._producers.get(producer_id)
        return NONE if producer is None else producer[0]

    def open_since(self, producer_id: int) -> int:
        """The first offset of this producer's open transaction, -1 for none."""
        return self._open.get(producer_id, NONE)

    @property
    def oldest_open(self) -> int:
        """The first offset of the oldest open transaction, -1 for none."""
        return next(iter(self._open.values()), NONE)

    @property
    def oldest_unsettled(self) -> int:
        """The same as if no marker had been entered since the last `settle`."""
        opened = next(iter(self._open.values()), NONE)
        closed = self._closed_from
        return opened if closed == NONE or NONE < opened < closed else closed

    def last_batches(self) -> dict[int, tuple[int, int]]:
        """Epoch and last offset of the last batch by producer id; -1 if only a marker was seen.

        Compaction must leave the headers of these batches in the log.
        """
        return {
            producer_id: (producer[0], producer[2][-1][3] if producer[2] else NONE)
            for producer_id, producer in self._producers.items()
        }

    def update(self, header: Header, base_offset: int) -> None:
        """Enter a batch that has been given its offsets, or was found in the log.

        Of a marker, the epoch of the coordinator is entered with `led_by` afterwards.
        """
        producer_id, epoch, first = header[9:12]
        delta, timestamp = header[LAST_OFFSET_DELTA], header[MAX_TIMESTAMP]
        producers = self._producers
        before = producers.get(producer_id)
        self._replaced.append((producer_id, before))
        attributes = header[ATTRIBUTES]
        if attributes & CONTROL_BIT or (
            attributes & TRANSACTIONAL_BIT and (before is None or before[5] == NONE)
        ):
            producers[producer_id] = self._transactional(header, base_offset, before)
            return
        last = (first + delta) & SEQUENCE_MASK
        batch = (first, last, base_offset, base_offset + delta, timestamp)
        if before is not None and before[0] == epoch:
            batches = (*before[2][1 - REMEMBERED_BATCHES :], batch)
            producers[producer_id] = (epoch, last, batches, timestamp, before[4], before[5])
        else:
            coordinator, opened = (NONE, NONE) if before is None else before[4:6]
            producers[producer_id] = (epoch, last, (batch,), timestamp, coordinator, opened)

    def led_by(self, producer_id: int, coordinator_epoch: int) -> None:
        """The marker entered last is this producer's, and came from a coordinator of this epoch."""
        producer = self._producers[producer_id]
        self._producers[producer_id] = (*producer[:4], coordinator_epoch, producer[5])

    def _transactional(self, header: Header, base_offset: int, before: Producer | None) -> Producer:
        """The producer after the first batch of a transaction, or after the marker that ends it."""
        producer_id, epoch, first = header[9:12]
        timestamp = header[MAX_TIMESTAMP]
        known = before if before is not None and before[0] == epoch else None
        coordinator = NONE if before is None else before[4]
        batches = () if known is None else known[2]
        if header[ATTRIBUTES] & CONTROL_BIT:
            opened = self._open.pop(producer_id, NONE)
            if opened != NONE and not NONE < self._closed_from < opened:
                self._closed_from = opened
            last = NONE if known is None else known[1]
            return (epoch, last, batches, timestamp, coordinator, NONE)
        delta = header[LAST_OFFSET_DELTA]
        last = (first + delta) & SEQUENCE_MASK
        batch = (first, last, base_offset, base_offset + delta, timestamp)
        batches = (*batches[1 - REMEMBERED_BATCHES :], batch)
        opened = self._open.setdefault(producer_id, base_offset)
        return (epoch, last, batches, timestamp, coordinator, opened)

    def settle(self) -> None:
        """Keep what was entered so far; `back` no longer undoes it."""
        if self._replaced:
            self._replaced.clear()
            self._closed_from = NONE

    def back(self) -> None:
        """Forget what was entered since the last `settle`."""
        for producer_id, before in reversed(self._replaced):
            if before is None:
                self._producers.pop(producer_id, None)
            else:
                self._producers[producer_id] = before
        self._replaced.clear()
        self._closed_from = NONE
        self._find_open()

    def _find_open(self) -> None:
        found = [(p[5], producer_id) for producer_id, p in self._producers.items() if p[5] != NONE]
        self._open = OrderedDict((producer_id, opened) for opened, producer_id in sorted(found))

    def silent_since(self, ms: int) -> None:
        """All producers known now have written nothing since this moment by our clock."""
        self._silent = {producer_id: (p, ms) for producer_id, p in self._producers.items()}

    def expire(self, *, now_ms: int, after_ms: int) -> int:
        """Drop producers that have written nothing for `after_ms`, unless a transaction is open.
        Returns how many went.

        Silence is judged by what earlier calls saw, not by timestamps as Kafka does: those are the
        producers' own, and a producer that replays old records would be forgotten while it writes.
        It counts from the first call that finds a producer as it is; for one that was loaded, from
        when its snapshot was written.
        """
        if not self._producers:
            return 0
        seen, silent = self._silent, {}
        gone = []
        for producer_id, producer in self._producers.items():
            before = seen.get(producer_id)
            # Should the clock be put back, the silence begins anew: rather too late than too early.
            since_ms = now_ms
            if before is not None and before[0] is producer:
                since_ms = min(before[1], now_ms)
                if now_ms - since_ms >= after_ms and producer[5] == NONE:
                    gone.append(producer_id)
                    continue
            silent[producer_id] = (producer, since_ms)
        for producer_id in gone:
            del self._producers[producer_id]
        if gone:
            self._replaced = [entry for entry in self._replaced if entry[0] in self._producers]
        self._silent = silent
        return len(gone)

    def encode(self) -> bytes:
        """The content of a snapshot file."""
        body = bytearray(SNAPSHOT_HEAD.pack(SNAPSHOT_VERSION, 0, len(self._producers)))
        for producer_id, producer in sorted(self._producers.items()):
            epoch, last_sequence, batches, timestamp, coordinator, opened = producer
            _, _, base, last, _ = batches[-1] if batches else (NONE, NONE, NONE, NONE, NONE)
            body += SNAPSHOT_ENTRY.pack(
                producer_id,
                epoch,
                last_sequence if batches else NONE,
                last,
                last - base,
                timestamp,
                coordinator,
                opened,
            )
        checksum = crc32c(memoryview(body)[SNAPSHOT_CHECKED_POSITION:])
        SNAPSHOT_HEAD.pack_into(body, 0, SNAPSHOT_VERSION, checksum, len(self._producers))
        return bytes(body)

    @classmethod
    def decode(cls, data: bytes, path: str) -> ProducerStates:
        """Read a snapshot file. Raises MalformedFile if it is not one, or is damaged."""
        if len(data) < SNAPSHOT_HEAD.size:
            raise MalformedFile(path, f"{len(data)} bytes are not enough for a snapshot")
        version, checksum, count = SNAPSHOT_HEAD.unpack_from(data)
        if version != SNAPSHOT_VERSION:
            raise MalformedFile(path, f"version {version}, known is {SNAPSHOT_VERSION}")
        if crc32c(memoryview(data)[SNAPSHOT_CHECKED_POSITION:]) != checksum:
            raise MalformedFile(path, "the checksum does not fit")
        if len(data) - SNAPSHOT_HEAD.size != count * SNAPSHOT_ENTRY.size:
            raise MalformedFile(path, f"{count} entries do not fill {len(data)} bytes")
        states = cls()
        for entry in SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[SNAPSHOT_HEAD.size :]):
            producer_id, epoch, sequence, last, delta, timestamp, coordinator, opened = entry
            batches: tuple[Remembered, ...] = ()
            if sequence != NONE:
                first = (sequence - delta) & SEQUENCE_MASK
                batches = ((first, sequence, last - delta, last, timestamp),)
            states._producers[producer_id] = (
                epoch, sequence, batches, timestamp, coordinator, opened,
            )  # fmt: skip
        states._find_open()
        return states
