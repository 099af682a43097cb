"""The fetches of one range, one after the other, and what to make of their answers.

Offsets may be missing from a range for two reasons. Compaction, markers of transactions and
producers that gave up leave holes: there is no record to read, nor should there be, and nothing is
said of it. A gap are offsets that were there when the range was planned and that retention,
DeleteRecords or the loss of a log's end has taken away since. The broker's answers tell them apart:
a log that starts above, or ends below, what is asked for has a gap there.

The first entry of a range may begin below the start of the log, where DeleteRecords has moved that
into its midst, or below where reading was told to begin. Who takes whole entries gets it made anew,
without the records before (`pipeline.reading.edge_entries`).

Entries that cannot be batches at all, by length, format or offset, hide what comes after them. A
fetch from a later offset gets past them, since brokers find offsets by their indexes: it is looked
for with steps that double, and then narrowed down. Damage inside a batch is found by who decodes
it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING, NamedTuple

from client.cluster import EARLIEST, LATEST, OffsetOutOfRange
from pipeline.errors import CorruptData, NoSuchTopic, OffsetsGone
from pipeline.left_out import LeftOut
from pipeline.reading.edge_entries import entry_from
from pipeline.reading.plan import beyond, deleted
from protocol.errors import KafkaError
from protocol.records.entry_rows import ROW, entry_rows
from protocol.records.errors import CorruptBatch, InvalidRecord
from protocol.records.layout import ENTRY, MAGIC_POSITION
from protocol.records.legacy import read_messages
from protocol.records.walk import last_offset, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from client.cluster import Fetched
    from pipeline.reading.plan import Range
    from pipeline.reading.source import Source

OFFSET_MAX = 2**63 - 1
MAX_WAIT_MS = 500
PAUSE_S = 0.05
"""After an empty answer, which a broker is not obliged to delay."""
EMPTY_ANSWERS = 2
"""In a row, from a log that goes on: there may be nothing more below its end."""
LEAST_BYTES = 65_536
"""What is asked for at least: a little more costs a broker less than another fetch."""
GUESSED_BYTES = 256
"""Of an offset, before any was seen. Too little costs one more fetch."""
SLACK = 8
"""So much, as a part of what is expected, is asked for beyond it."""
PROBE_BYTES = 65_536
"""What a fetch asks for that only looks for an entry; one that is larger comes whole."""


@dataclass
class Meter:
    """The bytes of the entries of a range, as they are stored and compressed; an entry on the edge
    of two ranges counts for the one that has its last offset."""

    bytes: int = 0


class Chunk(NamedTuple):
    """Whole entries, which have all records of the offsets from `start` up to, without, `end`.

    The first and the last entry may have others too, but with `whole_entries` none that were
    deleted or are below where reading begins. `aborted` are the transactions to be left out
    as (producer id, first offset), with `committed_only`.
    """

    entries: memoryview
    start: int
    end: int
    aborted: tuple[tuple[int, int], ...]


@dataclass
class FetchLoop:
    """Goes through a range; `chunks` may be iterated over once, in any one thread."""

    source: Source
    range: Range
    skip_gaps: bool
    skip_corrupt: bool
    committed_only: bool
    whole_entries: bool
    fetch_bytes: int
    patience_s: float
    clock: Callable[[], float]
    begin: int = 0
    """No record below is wanted, not even with a whole entry; at most the range's start."""
    meter: Meter = field(default_factory=Meter)
    left_out: LeftOut = field(default_factory=LeftOut)
    stopped: Event = field(default_factory=Event)
    """Set by who does not want more."""

    def __post_init__(self) -> None:
        self.partition = self.range.topic_partition
        self.position = self.range.start
        self.end = self.range.end
        self._floor = 0
        """No entry that is still to come begins below."""
        self._seen_bytes = self._seen_offsets = self._largest = 0
        """Of the entries that were taken, by which the next fetch is measured."""
        self._trouble: str | None = None
        """Why what is stored at the position cannot be an entry."""
        self._readable = -1
        """The lowest offset that got past the damage that was met last."""
        self._waiting_since: float | None = None
        self._empty_answers = 0

    def chunks(self) -> Iterator[Chunk]:
        """Raises OffsetsGone, CorruptData, and what the source raises."""
        while self.position < self.end and not self.stopped.is_set():
            before = self.position
            chunk = self._next()
            if self.position > before:
                self._waiting_since, self._empty_answers = None, 0
            if chunk is not None:
                yield chunk

    def _next(self) -> Chunk | None:
        try:
            return self._read_on()
        except NoSuchTopic:
            self._topic_gone()
            return None

    def _read_on(self) -> Chunk | None:
        if self._trouble is not None:
            # Not asked for again: the broker may pass over it without a word.
            trouble, self._trouble = self._trouble, None
            self._damaged(trouble)
            return None
        try:
            # Above the position only behind damage.
            offset = max(self.position, self._readable)
            fetched = self._fetch(offset, self._bytes_wanted(offset), MAX_WAIT_MS)
        except OffsetOutOfRange:
            self._out_of_range()
            return None
        except (CorruptBatch, CorruptData) as error:
            self._damaged(str(error).removeprefix(f"{self.partition} offset {self.position}: "))
            return None
        return self._taken(fetched)

    def _bytes_wanted(self, offset: int) -> int:
        """About the bytes of the rest of the range, by what an offset of it had until now."""
        left = self.end - offset
        expected = left * GUESSED_BYTES
        if self._seen_offsets:
            expected = left * self._seen_bytes // self._seen_offsets
        wanted = expected + expected // SLACK + self._largest
        return min(self.fetch_bytes, max(wanted, LEAST_BYTES))

    def _fetch(self, offset: int, max_bytes: int, max_wait_ms: int) -> Fetched:
        return self.source.fetch(
            self.partition,
            offset,
            max_bytes=max_bytes,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            committed_only=self.committed_only,
        )

    def _taken(self, fetched: Fetched) -> Chunk | None:
        """The part of an answer that belongs to the range; the position is then behind it."""
        entries, end = fetched.entries, self.end
        if fetched.log_start_offset > self.position:
            # It was raised just now: what the answer has below it is deleted.
            self._gap(min(fetched.log_start_offset, end))
            if self.position >= end:
                return None
        begin, stop, inside, at, size, position = -1, 0, 0, 0, 0, self.position
        limit = fetched.high_watermark if fetched.high_watermark >= 0 else OFFSET_MAX
        first_size, first_last = 0, -1
        trouble: str | None = None
        try:
            for at, size, magic, first, last in ROW.iter_unpack(entry_rows(entries)):
                if magic < 2:
                    # Where a wrapper begins it does not tell.
                    first = min(position, last)
                if not first <= last < limit:
                    trouble = f"it is said to hold offsets {first} to {last}, which cannot be"
                    break
                if last < position:
                    if begin < 0:
                        self._floor = last + 1
                        continue  # brokers may begin below the offset asked for
                    trouble = f"it is said to hold offsets {first} to {last}, which came before"
                    break
                if first >= end or (self.whole_entries and last >= end):
                    position = end
                    break
                if begin < 0:
                    begin, first_size, first_last = at, size, last
                stop = at + size
                if last < end:
                    inside = stop
                position = last + 1
                if position >= end:
                    break
            else:
                # Raises for what comes next, if that cannot be an entry.
                next(walk(entries, at + size), None)
        except CorruptBatch as error:
            trouble = str(error)
        if trouble is None and not size and len(entries):
            trouble = "its length goes beyond what the broker sent"
        taken = entries[max(begin, 0) : stop]
        if begin >= 0 and self.whole_entries:
            edge = max(self.begin, fetched.log_start_offset)
            taken = self._from_edge(taken, first_size, first_last, edge)
        start, self.position = self.position, min(position, end)
        self._trouble = trouble
        if begin < 0:
            if trouble is None and self.position < end:
                self._nothing(fetched)
            return None
        self._floor = position
        self.meter.bytes += max(inside - begin, 0)
        self._seen_bytes += stop - begin
        self._seen_offsets += position - start
        self._largest = max(self._largest, size)
        return Chunk(taken, start, self.position, fetched.aborted)

    def _from_edge(self, entries: memoryview, size: int, last: int, edge: int) -> memoryview:
        """Entries whose first one, of `size` bytes and up to offset `last`, is without its records
        below `edge`: later ones begin behind it."""
        first, rest = entries[:size], entries[size:]
        floor = self._floor
        if first[MAGIC_POSITION] == 2:
            floor = ENTRY.unpack_from(first)[0]
        if floor >= edge:
            return entries
        try:
            kept = entry_from(first, edge)
        except (CorruptBatch, InvalidRecord) as error:
            self._damaged(f"its records before offset {edge} cannot be left out: {error}", last + 1)
            return rest
        return entries if kept is first else memoryview(bytearray().join((kept, rest)))

    def _nothing(self, fetched: Fetched) -> None:
        """An answer without entries."""
        readable = end = fetched.high_watermark
        if self.committed_only and fetched.last_stable_offset >= 0:
            readable = fetched.last_stable_offset
        if readable <= self.position < end:
            if self._impatient():
                raise OffsetsGone(
                    f"{self.partition}: offsets {self.position:,} to {self.end - 1:,} wait for a "
                    "transaction that is still open; read up to its beginning, or uncommitted"
                )
        elif readable > self.position:
            self._empty_answers += 1
            if self._empty_answers >= EMPTY_ANSWERS:
                self._hole(readable)
                return
        elif self._impatient():
            self._cut_off(end)
            return
        self.stopped.wait(PAUSE_S)

    def _hole(self, readable: int) -> None:
        """Kafka answers so when compaction has taken all records from here on."""
        following = self._behind_damage()
        if following is None:
            self.position = min(readable, self.end)
        else:
            self._damaged("the broker cannot read it", following)

    def _out_of_range(self) -> None:
        first = self.source.offsets([self.partition], EARLIEST)[self.partition]
        if self.position < first:
            self._gap(min(first, self.end))
            return
        last = self.source.offsets([self.partition], LATEST)[self.partition]
        if self._impatient():
            self._cut_off(last)
        else:
            self.stopped.wait(PAUSE_S)

    def _impatient(self) -> bool:
        """Whether there has been no progress for too long. A leader that has just taken over may
        not know yet how far its log is readable."""
        now = self.clock()
        if self._waiting_since is None:
            self._waiting_since = now
        return now - self._waiting_since >= self.patience_s

    # What is missing

    def _gap(self, following: int) -> None:
        """The offsets from the position up to, and without, `following` are gone."""
        if not self.skip_gaps:
            raise deleted(self.partition, self.position, following)
        self.left_out.missing(self.range, self.position, following)
        self.position = following

    def _cut_off(self, log_end: int) -> None:
        if not self.skip_gaps:
            raise beyond(self.partition, log_end, self.end)
        self._gap(self.end)

    def _topic_gone(self) -> None:
        if not self.skip_gaps:
            raise OffsetsGone(
                f"{self.partition} was deleted before offsets {self.position:,} to "
                f"{self.end - 1:,} were read; go on without them with onGap=skip (--on-gap skip)"
            ) from None
        self._gap(self.end)

    # What is corrupt

    def _damaged(self, reason: str, following: int | None = None) -> None:
        """There is no reading on at the position; with skip, go on behind it."""
        if not self.skip_corrupt:
            raise CorruptData(
                f"{self.partition} offset {self.position}: {reason}; go on without it with "
                "onCorrupt=skip (--on-corrupt skip)"
            )
        if following is None:
            following = self._behind_damage()
        if following is None:
            following = self.end
        self.left_out.corrupt(self.range, self.position, following - 1, reason)
        self.position = following

    def _behind_damage(self) -> int | None:
        """The first offset of the next entry behind the position that can be fetched; None if there
        is none in the range.

        It may not come from that offset: an index leads to an entry by its last offset. The offset
        from which it does, `_readable` holds afterwards.
        """
        begin = unreadable = max(self.position, self._readable)
        step = 1
        following: int | None = None
        while following is None:
            offset = min(begin + step, self.end - 1)
            if self.stopped.is_set() or offset <= unreadable:
                return None
            following = self._entry_at(offset)
            if following is None:
                unreadable, step = offset, step * 2
        readable = offset
        while readable - unreadable > 1 and not self.stopped.is_set():
            middle = (unreadable + readable) // 2
            found = self._entry_at(middle)
            if found is None:
                unreadable = middle
            else:
                readable, following = middle, found
        self._readable = readable
        return min(max(following, self.position), self.end)

    def _entry_at(self, offset: int) -> int | None:
        """The first offset of the entry that a fetch from `offset` gets; None if it gets none."""
        try:
            fetched = self._fetch(offset, PROBE_BYTES, 0)
            entries = fetched.entries
            for at, size, magic in walk(entries):
                last = last_offset(entries, at, magic)
                if last < offset:
                    continue
                first = first_offset(entries[at : at + size], magic, offset)
                plausible = first <= last and not last >= fetched.high_watermark >= 0
                return first if plausible else None
        except (CorruptBatch, CorruptData, OffsetOutOfRange):
            return None
        return None


def first_offset(entry: memoryview, magic: int, otherwise: int) -> int:
    """The offset of an entry's first record. A wrapper of formats 0 and 1 has to be opened for it;
    `otherwise` stands in where it cannot be."""
    if magic == 2:
        offset: int = ENTRY.unpack_from(entry, 0)[0]
        return offset
    try:
        return next(read_messages(entry)).offset
    except (KafkaError, StopIteration):
        return otherwise
