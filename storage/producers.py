"""What a partition knows of its idempotent producers, and the files that keep it.

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

from struct import Struct

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
from storage.errors import MalformedFile, OutOfOrderSequence, ProducerFenced

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
    broker calls once in every `producer.id.expiration.ms`."""

    __slots__ = ("_at_last_expiry", "_producers", "_replaced")

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self._replaced: list[tuple[int, Producer | None]] = []
        self._at_last_expiry: dict[int, Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._producers

    def check(self, header: Header) -> Duplicate | None:
        """Whether a batch may be appended. To be asked before `Log.append`, for batches with a
        producer id.

        Returns None if it may and the earlier copy if there is one. Raises ProducerFenced (47)
        for an epoch older than the last, OutOfOrderSequence (45) for a gap. A producer of whom
        nothing is known may begin anywhere: retention may have removed its state.
        """
        producer = self._producers.get(header[PRODUCER_ID])
        if producer is None:
            return None
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

    def update(self, header: Header, base_offset: int) -> None:
        """Enter a batch that has been given its offsets, or was found in the log."""
        producer_id, epoch, first = header[9:12]
        delta, timestamp = header[LAST_OFFSET_DELTA], header[MAX_TIMESTAMP]
        producers = self._producers
        before = producers.get(producer_id)
        self._replaced.append((producer_id, before))
        if header[ATTRIBUTES] & (TRANSACTIONAL_BIT | CONTROL_BIT):
            producers[producer_id] = self._transactional(header, base_offset, before)
            return
        last = (first + delta) & SEQUENCE_MASK
        batch = (first, last, base_offset, base_offset + delta, timestamp)
        if before is not None and before[0] == epoch:
            batches = (*before[2][1 - REMEMBERED_BATCHES :], batch)
            producers[producer_id] = (epoch, last, batches, timestamp, before[4], before[5])
        else:
            coordinator = NONE if before is None else before[4]
            producers[producer_id] = (epoch, last, (batch,), timestamp, coordinator, NONE)

    def _transactional(self, header: Header, base_offset: int, before: Producer | None) -> Producer:
        """The producer after a batch of a transaction, or after the marker that ends it."""
        epoch, first = header[PRODUCER_EPOCH], header[BASE_SEQUENCE]
        timestamp = header[MAX_TIMESTAMP]
        known = before if before is not None and before[0] == epoch else None
        coordinator = NONE if before is None else before[4]
        batches = () if known is None else known[2]
        if header[ATTRIBUTES] & CONTROL_BIT:
            last = NONE if known is None else known[1]
            return (epoch, last, batches, timestamp, coordinator, NONE)
        delta = header[LAST_OFFSET_DELTA]
        last = (first + delta) & SEQUENCE_MASK
        batch = (first, last, base_offset, base_offset + delta, timestamp)
        opened = NONE if before is None else before[5]
        return (
            epoch,
            last,
            (*batches[1 - REMEMBERED_BATCHES :], batch),
            timestamp,
            coordinator,
            base_offset if opened == NONE else opened,
        )

    def settle(self) -> None:
        """What was entered so far stays."""
        if self._replaced:
            self._replaced.clear()

    def back(self) -> None:
        """Forget what was entered since the last `settle`."""
        for producer_id, before in reversed(self._replaced):
            if before is None:
                self._producers.pop(producer_id, None)
            else:
                self._producers[producer_id] = before
        self._replaced.clear()

    def expire(self) -> int:
        """Drop producers that have written nothing since the last call, unless a transaction is
        open. Returns how many went.

        Silence is judged by the calls, not by timestamps as Kafka does: those are the producers'
        own, and a producer that replays old records would be forgotten while it writes.
        """
        gone = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer[5] == NONE and self._at_last_expiry.get(producer_id) is producer
        ]
        for producer_id in gone:
            del self._producers[producer_id]
        if gone:
            self._replaced = [entry for entry in self._replaced if entry[0] in self._producers]
        self._at_last_expiry = dict(self._producers)
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
        return states
