"""Small batches that have become neighbours are joined, and so are small wrappers.

Compaction leaves batches of one or two records where there were a hundred: each with a header of
61 bytes, and compressed by itself. What may be joined is alike in all that a batch says of its
records: format, codec, timestamp type, leader epoch, and the time itself under LogAppendTime. A
batch of a producer that is still known, of a transaction, with a delete horizon or without records
stays alone. Plain messages stay plain.

An entry is small below an eighth of `JOINED_BYTES` of records, and a run ends once it has them all.
So what was joined to the full is never small, and the next cleaning leaves it alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.records.compact import joined_batches, made_batch, made_wrapper
from protocol.records.layout import (
    ATTRIBUTES,
    BASE_OFFSET,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    INT32,
    INT64,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    MAGIC_POSITION,
    MAX_TIMESTAMP,
    MAX_TIMESTAMP_POSITION,
    MESSAGE_TIMESTAMP_POSITION,
    NO_TIMESTAMP,
    PRODUCER_ID,
    RECORD_COUNT,
    RECORD_COUNT_POSITION,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from storage.offset_index import RELATIVE_OFFSET_MAX

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from protocol.records.layout import Header
    from storage.cleaning.output import Output

JOINED_BYTES = 65_536
SMALL_PART = 8

ALONE = TRANSACTIONAL_BIT | CONTROL_BIT | DELETE_HORIZON_BIT


class KeptBatch:
    """A batch with the records that stay. `entry` is it as it was, if all of them do."""

    __slots__ = ("entry", "first_offset", "header", "kind", "last_offset", "records")

    def __init__(
        self, header: Header, records: bytes, entry: tuple[bytes, int, int] | None
    ) -> None:
        self.header = header
        self.records = records
        self.entry = entry
        self.first_offset = header[BASE_OFFSET]
        self.last_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
        attributes = header[ATTRIBUTES]
        stamped = header[MAX_TIMESTAMP] if attributes & TIMESTAMP_TYPE_BIT else None
        self.kind = (2, attributes & CODEC_MASK, stamped, header[LEADER_EPOCH])

    def may_be_joined(self, known: Container[int]) -> bool:
        """Whether nothing says that it must stay by itself; `known` are producer ids."""
        header = self.header
        if header[ATTRIBUTES] & ALONE or header[RECORD_COUNT] < 1:
            return False
        return header[PRODUCER_ID] < 0 or header[PRODUCER_ID] not in known

    def made(self) -> bytes:
        """The entry with what stays."""
        return made_batch(self.records, self.header)

    @staticmethod
    def joined(parts: Sequence[KeptBatch]) -> bytes:
        """One batch of several."""
        return joined_batches([(part.header, part.records) for part in parts])


class KeptWrapper:
    """A wrapper with the messages that stay, at least one, and their offsets."""

    __slots__ = ("codec", "entry", "kind", "magic", "offsets", "records", "stamped_ms")

    def __init__(
        self,
        records: bytes,
        offsets: list[int],
        entry: tuple[bytes, int, int] | None,
        *,
        magic: int,
        codec: int,
        stamped_ms: int | None,
    ) -> None:
        self.records = records
        self.offsets = offsets
        self.entry = entry
        self.magic = magic
        self.codec = codec
        self.stamped_ms = stamped_ms
        self.kind = (magic, codec, stamped_ms, -1)

    @property
    def first_offset(self) -> int:
        return self.offsets[0]

    @property
    def last_offset(self) -> int:
        return self.offsets[-1]

    def made(self) -> bytes:
        """The entry with what stays."""
        return self.joined([self])

    @staticmethod
    def joined(parts: Sequence[KeptWrapper]) -> bytes:
        """One wrapper of several."""
        first = parts[0]
        return made_wrapper(
            b"".join([part.records for part in parts]),
            [offset for part in parts for offset in part.offsets],
            magic=first.magic,
            codec=first.codec,
            stamped_ms=first.stamped_ms,
        )


class Joiner:
    """Stands before an output and holds back small entries until it is clear what follows."""

    def __init__(self, output: Output, known: Container[int], *, max_message_bytes: int) -> None:
        self.joined = 0
        """Entries that are no longer there by themselves."""
        self._output = output
        self._known = known
        self._max_bytes = max_message_bytes
        self._wanted = min(JOINED_BYTES, max_message_bytes // 2)
        self._small = self._wanted // SMALL_PART
        self._run: list[KeptBatch] | list[KeptWrapper] = []
        self._size = 0

    def batch(self, kept: KeptBatch) -> None:
        """Take a batch of which something stays, or which stays empty."""
        if len(kept.records) >= self._small or not kept.may_be_joined(self._known):
            self.flush()
            self._alone(kept)
        else:
            self._hold(kept)

    def wrapper(self, kept: KeptWrapper) -> None:
        """Take a wrapper of which something stays."""
        if len(kept.records) >= self._small:
            self.flush()
            self._alone(kept)
        else:
            self._hold(kept)

    def _hold(self, kept: KeptBatch | KeptWrapper) -> None:
        run = self._run
        if run and (
            run[0].kind != kept.kind or kept.last_offset - run[0].first_offset > RELATIVE_OFFSET_MAX
        ):
            self.flush()
        if kept.entry is not None:
            # A copy, so that what is held back does not hold on to the piece it came with.
            data, start, end = kept.entry
            kept.entry = data[start:end], 0, end - start
        self._run.append(kept)  # type: ignore[arg-type]  # of one kind, so of one class
        self._size += len(kept.records)
        if self._size >= self._wanted:
            self.flush()

    def flush(self) -> None:
        """Hand on what is held back; to be called before anything else goes to the output."""
        run = self._run
        if not run:
            return
        self._run, self._size = [], 0
        if len(run) > 1:
            entry = type(run[0]).joined(run)  # type: ignore[arg-type]
            if len(entry) <= self._max_bytes:
                self._add(entry, run[-1].last_offset)
                self.joined += len(run)
                return
        for kept in run:
            self._alone(kept)

    def _alone(self, kept: KeptBatch | KeptWrapper) -> None:
        if kept.entry is None:
            self._add(kept.made(), kept.last_offset)
        else:
            data, start, end = kept.entry
            time = max_timestamp_of_entry(data, start)
            self._output.copy(data, start, end, kept.last_offset, time)

    def _add(self, entry: bytes, last_offset: int) -> None:
        self._output.add(entry, last_offset, max_timestamp_of_entry(entry, 0))


def max_timestamp_of_entry(data: bytes, start: int) -> int:
    """Max timestamp in the header of the entry at `start`, in ms; -1 in format 0 and without
    records, as in `storage.scan.Entry`."""
    magic = data[start + MAGIC_POSITION]
    if not magic:
        return NO_TIMESTAMP
    position = MESSAGE_TIMESTAMP_POSITION
    if magic == 2:
        position = MAX_TIMESTAMP_POSITION
        if not INT32.unpack_from(data, start + RECORD_COUNT_POSITION)[0]:
            return NO_TIMESTAMP
    value: int = INT64.unpack_from(data, start + position)[0]
    return value
