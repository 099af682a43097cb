"""Sets of records of every form, to be appended in a simulation and recognized afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.records.builder import build_batch
from protocol.records.layout import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL_BIT,
    HEADER,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    MAGIC_POSITION,
    MAX_TIMESTAMP,
    Header,
)
from protocol.records.legacy import build_messages
from protocol.records.markers import Marker, encode_marker
from protocol.records.walk import walk
from storage.log import PLACE
from tests.storage.message_sets import message_set, records_in

if TYPE_CHECKING:
    import random

    from protocol.records.legacy import MessageSet

BATCH_CODECS = (0, 0, 0, 0, 0, 1, 2, 3, 4)
WRAPPER_CODECS = (1, 2, 3)
KEYS = tuple(b"k%d" % number for number in range(12))


class Record(NamedTuple):
    """A record as a reader gets it. `timestamp_ms` is -1 in format 0."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class Entry:
    """A batch or top-level message as it is in a log, and what it says.

    `header` and `epoch` are those of a batch; `whole` if it was appended alone, and not as one of a
    set; `control` of a marker: whether it commits. What compaction left may hold no record.
    """

    __slots__ = (
        "base", "control", "epoch", "header", "last", "magic", "max_timestamp", "raw",
        "received_ms", "records", "whole",
    )  # fmt: skip

    def __init__(
        self,
        raw: bytes,
        records: list[Record],
        *,
        magic: int,
        whole: bool = True,
        control: bool | None = None,
    ) -> None:
        self.raw = raw
        self.records = records
        self.magic = magic
        self.whole = whole
        self.control = control
        self.received_ms = -1
        self.header: Header | None = None
        self.epoch = -1
        if magic == 2:
            self.header = HEADER.unpack_from(raw)
            self.epoch = self.header[LEADER_EPOCH]
            self.base = self.header[BASE_OFFSET]
            self.last = self.base + self.header[LAST_OFFSET_DELTA]
            self.max_timestamp: int = self.header[MAX_TIMESTAMP] if records else -1
        else:
            self.base, self.last = records[0].offset, records[-1].offset
            self.max_timestamp = max(record.timestamp_ms for record in records)

    def __repr__(self) -> str:
        return f"Entry({self.base}..{self.last}, magic {self.magic}, {len(self.raw)} bytes)"


class Sender(NamedTuple):
    """A producer id, its epoch, the next sequence, and whether it is in a transaction."""

    producer_id: int
    epoch: int
    sequence: int
    transactional: bool = False


NOBODY = Sender(-1, -1, -1)


def some_records(rng: random.Random, offset: int, count: int, now_ms: int) -> list[Record]:
    """Records whose values say where they were meant to be; times mostly rise, keys repeat."""
    keyed = rng.random() < 0.8
    found = []
    for number in range(offset, offset + count):
        chance = rng.random()
        time = now_ms - rng.randrange(5) if chance < 0.8 else now_ms - rng.randrange(100_000)
        key = KEYS[int(rng.random() ** 2 * len(KEYS))] if keyed else None
        value: bytes | None = b"%d/%d " % (number, rng.randrange(1000)) + b"." * rng.randrange(60)
        if key is not None and rng.random() < 0.1:
            value = None
        found.append(Record(number, max(time, 0), key, value))
    return found


def batch_of(records: list[Record], sender: Sender, codec: int) -> tuple[bytearray, Header]:
    raw = bytearray(
        build_batch(
            [(record.timestamp_ms, record.key, record.value, ()) for record in records],
            codec=codec,
            producer_id=sender.producer_id,
            producer_epoch=sender.epoch,
            base_sequence=sender.sequence,
            transactional=sender.transactional,
        )
    )
    return raw, HEADER.unpack_from(raw)


def messages_of(records: list[Record], *, magic: int, codec: int) -> MessageSet:
    rows = [(record.timestamp_ms, record.key, record.value, ()) for record in records]
    return message_set(
        build_messages(rows, magic=magic, codec=codec, base_offset=records[0].offset)
    )


def entries_of_messages(placed: bytes, records: list[Record], *, magic: int) -> list[Entry]:
    """The entries that a set of messages became."""
    if not magic:
        records = [record._replace(timestamp_ms=-1) for record in records]
    parts = list(walk(placed))
    if len(parts) == 1:
        return [Entry(placed, records, magic=magic)]
    return [
        Entry(placed[position : position + size], [record], magic=magic, whole=False)
        for (position, size, _), record in zip(parts, records, strict=True)
    ]


def read_entry(raw: bytes) -> Entry:
    """An entry as it was found in a log."""
    magic = raw[MAGIC_POSITION]
    found = records_in(raw)
    records = [Record(r.offset, r.timestamp_ms, r.key, r.value) for r in found]
    control = None
    if magic == 2 and HEADER.unpack_from(raw)[ATTRIBUTES] & CONTROL_BIT:
        control = bool(records) and records[0].key == b"\0\0\0\1"
        records = [record._replace(key=None, value=None) for record in records]
    return Entry(raw, records, magic=magic, whole=False, control=control)


def marker_of(
    offset: int, sender: Sender, *, commit: bool, leader_epoch: int, now_ms: int
) -> Entry:
    """The entry that a marker becomes at an offset."""
    raw = encode_marker(
        sender.producer_id, sender.epoch, marker=Marker(commit, 1), timestamp_ms=now_ms
    )
    PLACE.pack_into(raw, 0, offset, len(raw) - 12, leader_epoch)
    return Entry(bytes(raw), [Record(offset, now_ms, None, None)], magic=2, control=commit)
