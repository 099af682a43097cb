"""The records of partitions, from where reading begins to where it ends, or as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.clock import monotonic_s, sleep
from client.cluster import LATEST
from client.errors import CorruptData
from pipeline.left_out import LeftOut
from pipeline.reading.fetch_loop import FetchLoop
from pipeline.reading.plan import Range
from protocol.errors import KafkaError
from protocol.records.aborted import AbortedBatches
from protocol.records.batch import MAX_DECOMPRESSED_BYTES, Batch
from protocol.records.entry_rows import ROW, entry_rows
from protocol.records.record_rows import OFFSET
from tools.fetched import FetchedEntry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from client.cluster import Cluster, TopicPartition
    from pipeline.reading.fetch_loop import Chunk
    from protocol.records.record_rows import Row

FETCH_BYTES = 4 << 20
POLL_S = 0.2
"""Between two looks at logs that have not grown."""
PATIENCE_S = 30.0
"""For a leader that does not show what its log has."""
FORMAT_2 = 2


class Reader:
    """Reads partitions side by side; what is read is behind `positions`.

    What was deleted while it was read, and with `skip_corrupt` what is damaged, is left out and
    counted in `left_out`.
    """

    def __init__(
        self,
        client: Cluster,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int] | None,
        *,
        committed_only: bool,
        skip_corrupt: bool,
    ) -> None:
        """`ends` are the first offsets that are not read any more; without them it never ends."""
        self._client = client
        self._ends = ends
        self._committed_only = committed_only
        self._skip_corrupt = skip_corrupt
        self.positions = dict(starts)
        self.left_out = LeftOut()

    def records(self) -> Iterator[tuple[TopicPartition, list[Row]]]:
        """The records of a batch, and then those of the next. No records where more is waited for,
        in any partition.

        Raises CorruptData, Failure.
        """
        while left := self._left():
            log_ends = self._client.offsets(left, LATEST, committed_only=self._committed_only)
            reading = [
                self._range(place, min(log_ends[place], self._end(place)))
                for place in left
                if self.positions[place] < min(log_ends[place], self._end(place))
            ]
            if not reading:
                yield left[0], []
                sleep(POLL_S)
            while reading:
                # A chunk of each in turn.
                for one in list(reading):
                    found = next(one, None)
                    if found is None:
                        reading.remove(one)
                    else:
                        yield from found

    def _left(self) -> list[TopicPartition]:
        return [place for place, at in self.positions.items() if at < self._end(place)]

    def _end(self, place: TopicPartition) -> int:
        return 1 << 63 if self._ends is None else self._ends[place]

    def _range(
        self, place: TopicPartition, end: int
    ) -> Iterator[Iterator[tuple[TopicPartition, list[Row]]]]:
        loop = FetchLoop(
            self._client,
            Range(*place, self.positions[place], end),
            skip_gaps=True,
            skip_corrupt=self._skip_corrupt,
            committed_only=self._committed_only,
            whole_entries=False,
            fetch_bytes=FETCH_BYTES,
            patience_s=PATIENCE_S,
            clock=monotonic_s,
            left_out=self.left_out,
        )
        for chunk in loop.chunks():
            yield self._of_chunk(loop, chunk)
        self.positions[place] = end

    def _of_chunk(
        self, loop: FetchLoop, chunk: Chunk
    ) -> Iterator[tuple[TopicPartition, list[Row]]]:
        place = loop.partition
        aborted = AbortedBatches(chunk.aborted) if chunk.aborted else None
        for at, size, magic, first, last in ROW.iter_unpack(entry_rows(chunk.entries)):
            entry = FetchedEntry(chunk.entries[at : at + size], magic, last)
            try:
                found = _rows(entry, aborted)
            except KafkaError as error:
                if not self._skip_corrupt:
                    raise CorruptData(
                        f"{place} offset {first}: {error}; go on without it with --on-corrupt skip"
                    ) from None
                self.left_out.corrupt(loop.range, first, last, str(error))
                continue
            if magic < FORMAT_2 or first < chunk.start or last >= chunk.end:
                found = [row for row in found if chunk.start <= row[OFFSET] < chunk.end]
            if found:
                self.positions[place] = found[-1][OFFSET] + 1
                yield place, found
        self.positions[place] = chunk.end


def _rows(entry: FetchedEntry, aborted: AbortedBatches | None) -> list[Row]:
    """The records of an entry, as a consumer sees them. Raises KafkaError."""
    if aborted is not None and entry.magic == FORMAT_2:
        batch = Batch(entry.view)
        if batch.is_transactional and aborted.covers(batch.header(), entry.view):
            return []
    if entry.is_control:
        return []
    # Kafka bounds the size of what it has stored, and not how well it may be compressed.
    return entry.rows(ratio=MAX_DECOMPRESSED_BYTES)
