"""One cleaning: two ways through the sources.

The first, through the dirty part, enters the newest offset of every key into the map, up to the
end or until the map is full. The second goes through all that lies below where the first has come
to, group by group of segments that make one new segment, and writes what stays.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from protocol.records.compact import control_type
from protocol.records.errors import CorruptBatch, InvalidRecord
from protocol.records.layout import (
    ATTRIBUTES,
    CONTROL_BIT,
    MAGIC_POSITION,
    RECORD_COUNT,
)
from storage.cleaning.entries import SourceReader
from storage.cleaning.merge import Joiner
from storage.cleaning.offset_map import OffsetMap
from storage.cleaning.output import Output
from storage.cleaning.rewrite import Rewriter, keys_in, records_of_batch
from storage.cleaning.stats import CleaningStats
from storage.cleaning.transactions import AbortedTransactions, Transactions
from storage.layout import LOG, file_name
from storage.offset_index import RELATIVE_OFFSET_MAX
from storage.time_index import ENTRY_SIZE as TIME_INDEX_ENTRY_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.cleaning.entries import SourceEntry
    from storage.cleaning.plan import CleaningPlan, Source
    from storage.filesystem import Filesystem


class CleanedGroup(NamedTuple):
    """A new segment, complete and synced under its `.cleaned` names, or none if nothing stayed."""

    base_offset: int
    sources: list[int]
    """Base offsets of the segments it takes the place of."""
    empty: bool
    """Nothing stayed, and there are no files."""
    size: int
    modified_ms: int
    """Modification time of its files: that of the last source."""


class Cleaning:
    """Does what a plan says. `cleaned_to` is the next plan's first dirty offset, once `groups` is
    through; before that it is this one's."""

    def __init__(self, files: Filesystem, plan: CleaningPlan) -> None:
        self.stats = CleaningStats()
        self.cleaned_to = plan.first_dirty
        self._files = files
        self._plan = plan
        self._keys = OffsetMap(plan.rules.map_bytes)
        self._bases = [source.base_offset for source in plan.sources]
        self._aborted = AbortedTransactions(files, plan)
        self._last_entry = -1
        """Last offset of the last entry of what is mapped."""

    def groups(self) -> Iterator[CleanedGroup]:
        """Clean. Each group is ready to take the place of its sources when it is yielded.

        Raises OSError, and CorruptBatch for a damaged entry of a source or a damaged index of
        aborted transactions, with file and position. What was being written is removed then;
        groups that were yielded are good.
        """
        cleaned_to = self._fill_map()
        self.stats.keys, self.stats.map_bytes = len(self._keys), self._keys.byte_size
        if cleaned_to > self._plan.first_dirty:
            yield from self._write_all(cleaned_to)
            self.cleaned_to = cleaned_to

    # The first way

    def _fill_map(self) -> int:
        """Returns the first offset that is not in the map."""
        plan = self._plan
        transactions = Transactions()
        reader = SourceReader(self._files, plan.folder)
        ends = [*self._bases[1:], plan.end]
        for index, source in enumerate(plan.sources):
            if ends[index] <= plan.first_dirty:
                continue
            transactions.expect(self._aborted.of_source(index))
            for entries in reader.pieces(source):
                for found in entries:
                    if found.last_offset < plan.first_dirty:
                        continue
                    if found.last_offset >= plan.end and found.run is None:
                        return plan.end
                    next_offset = self._map(found, transactions)
                    if next_offset is not None:
                        self._last_entry = -1  # its entry stays: the rest of it is not mapped
                        return next_offset
                    self._last_entry = found.last_offset
                    if found.run is not None and found.last_offset >= plan.end:
                        offsets = found.run.offsets
                        self._last_entry = offsets[bisect_left(offsets, plan.end) - 1]
                        return plan.end
                self.stats.bytes_mapped += entries[-1].end
        return plan.end

    def _map(self, found: SourceEntry, transactions: Transactions) -> int | None:
        """Enter the records of an entry. Returns the offset of the first that was not taken."""
        header, rules = found.header, self._plan.rules
        try:
            if header is not None:
                if header[ATTRIBUTES] & CONTROL_BIT:
                    count = header[RECORD_COUNT]
                    if count > 0:
                        records = records_of_batch(found, header, rules)
                        transactions.end(header, control_type(records, count))
                    return None
                if transactions.is_aborted(header) or header[RECORD_COUNT] < 1:
                    return None
            run = keys_in(found, rules)
        except (InvalidRecord, CorruptBatch):
            return None  # it is kept as it is, and its keys do not count
        row = self._keys.add(run, self._plan.first_dirty, self._plan.end)
        return None if row == len(run) else run.offsets[row]

    # The second way

    def _write_all(self, cleaned_to: int) -> Iterator[CleanedGroup]:
        plan = self._plan
        transactions = Transactions()
        rewriter = Rewriter(
            plan,
            self._keys,
            transactions,
            self.stats,
            latest=cleaned_to - 1,
            last_entry=self._last_entry,
        )
        clean = bisect_left(self._bases, plan.first_dirty)
        kept_since_ms = 0
        if clean:
            kept_since_ms = plan.sources[clean - 1].modified_ms - plan.rules.delete_retention_ms
        reader = SourceReader(self._files, plan.folder)
        for group in self._grouped(cleaned_to):
            base_offset = self._bases[group[0]]
            output = Output(
                self._files,
                plan.folder,
                base_offset,
                interval_bytes=plan.rules.index_interval_bytes,
                index_bytes=plan.rules.segment_index_bytes,
            )
            try:
                joiner = Joiner(
                    output, plan.producers, max_message_bytes=plan.rules.max_message_bytes
                )
                for index in group:
                    source = plan.sources[index]
                    transactions.expect(self._aborted.of_source(index))
                    rewriter.retain_deletes = source.modified_ms > kept_since_ms
                    for entries in reader.pieces(source):
                        for found in entries:
                            rewriter.take(found, joiner, output)
                        output.drain()
                        self.stats.bytes_read += entries[-1].end
                joiner.flush()
                output.finish()
            except Exception:
                output.discard()
                raise
            self.stats.bytes_written += output.size
            self.stats.batches_written += output.entries
            self.stats.batches_merged += joiner.joined
            yield CleanedGroup(
                base_offset=base_offset,
                sources=[self._bases[index] for index in group],
                empty=not output.size,
                size=output.size,
                modified_ms=plan.sources[group[-1]].modified_ms,
            )

    def _grouped(self, cleaned_to: int) -> Iterator[list[int]]:
        """Indexes of the sources that are to become one segment.

        As in Kafka, by what they have now: neither the log file nor an index can then be too large,
        and no offset too far from the first. Beyond Kafka, a segment that begins with another
        record format begins a group: see `storage.rolling.begins_otherwise`.
        """
        plan, rules = self._plan, self._plan.rules
        ends = [*self._bases[1:], plan.end]
        group: list[int] = []
        size = entries = 0
        magic = -1
        for index, source in enumerate(plan.sources):
            if source.base_offset >= cleaned_to:
                break
            more = source.size // max(rules.index_interval_bytes, 1) + 1
            begins = self._first_magic(source)
            if group and (
                size + source.size > rules.segment_bytes
                or (entries + more) * TIME_INDEX_ENTRY_SIZE > rules.segment_index_bytes
                or ends[index] - 1 - self._bases[group[0]] > RELATIVE_OFFSET_MAX
                or (begins >= 0 and magic >= 0 and begins != magic)
            ):
                yield group
                group, size, entries, magic = [], 0, 0, -1
            group.append(index)
            size += source.size
            entries += more
            magic = begins if magic < 0 else magic
        if group:
            yield group

    def _first_magic(self, source: Source) -> int:
        """The format of the first entry, -1 if there is none."""
        if source.size <= MAGIC_POSITION:
            return -1
        path = f"{self._plan.folder}/{file_name(source.base_offset, LOG)}"
        file = self._files.open_to_read(path)
        try:
            magic = file.pread(1, MAGIC_POSITION)
        finally:
            file.close()
        if not magic:
            # The topic was deleted and made again since this was planned.
            raise CorruptBatch(f"{path}: the file has not the {source.size} bytes of the plan")
        return magic[0]
