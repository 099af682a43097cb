"""The rules of compaction, applied to one entry after the other.

A record stays if it has a key and no newer record of the dirty part has the same. Without a value
it deletes its key, and goes itself once a reader has had `delete.retention.ms` to see it: in format
2 from when the batch was first cleaned, by the delete horizon that it then gets in place of its
base timestamp; in formats 0 and 1 by the age of the segment. Records above what the map of keys
has seen stay as they are.

Aborted records go at once, markers when nothing of their transaction is left and after the same
waiting time as tombstones. The last batch of a producer that is not forgotten stays without
records, because it tells the producer's last sequence; so does the last one of what is cleaned,
because it tells where the log ends.

An entry that cannot be opened, or expands beyond the limits, stays as it is and is counted.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from operator import le
from typing import TYPE_CHECKING

from protocol.records.compact import (
    control_type,
    emptied,
    entries_of,
    keys_in_batch,
    keys_in_wrapper,
    thinned,
    with_horizon,
)
from protocol.records.compression import decompress
from protocol.records.errors import CorruptBatch, InvalidRecord
from protocol.records.layout import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    INT64,
    LAST_OFFSET_DELTA,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
)
from protocol.records.legacy import Message
from protocol.records.record import INT64_MAX
from storage.cleaning.merge import KeptBatch, KeptWrapper, max_timestamp_of_entry

if TYPE_CHECKING:
    from protocol.records.compact import Keys
    from protocol.records.layout import Header
    from storage.cleaning.entries import SourceEntry
    from storage.cleaning.merge import Joiner
    from storage.cleaning.offset_map import OffsetMap
    from storage.cleaning.output import Output
    from storage.cleaning.plan import CleaningPlan, CleaningRules
    from storage.cleaning.stats import CleaningStats
    from storage.cleaning.transactions import Transactions


def records_of_batch(found: SourceEntry, header: Header, rules: CleaningRules) -> bytes:
    """The decompressed records. Raises InvalidRecord."""
    body = found.data[found.start + HEADER_SIZE : found.end]
    codec = header[ATTRIBUTES] & CODEC_MASK
    if not codec:
        return body
    return decompress(
        codec, body, limit=rules.max_decompressed_bytes, ratio=rules.max_decompression_ratio
    )


def keys_in(found: SourceEntry, rules: CleaningRules) -> Keys:
    """The records of a data batch or wrapper, or the run of messages as it is.

    Raises InvalidRecord or CorruptBatch for what cannot be read.
    """
    if found.run is not None:
        return found.run
    header = found.header
    if header is not None:
        records = records_of_batch(found, header, rules)
        return keys_in_batch(records, header[RECORD_COUNT], header[BASE_OFFSET])
    message = Message(memoryview(found.data)[found.start : found.end])
    if not message.codec:
        raise CorruptBatch("a field of the message runs out of it")
    payload = message.payload(
        limit=rules.max_decompressed_bytes, ratio=rules.max_decompression_ratio
    )
    return keys_in_wrapper(payload, found.magic, message.offset)


class Rewriter:
    """Takes the entries of all sources in order and passes on what stays.

    `latest` is the last offset that the map has seen, `last_entry` the last offset of the entry
    that ends there. `retain_deletes` says whether tombstones of formats 0 and 1 stay; it is set
    anew with each source.
    """

    def __init__(
        self,
        plan: CleaningPlan,
        keys: OffsetMap,
        transactions: Transactions,
        stats: CleaningStats,
        *,
        latest: int,
        last_entry: int,
    ) -> None:
        self.retain_deletes = True
        self._plan = plan
        self._keys = keys
        self._transactions = transactions
        self._stats = stats
        self._latest = latest
        self._last_entry = last_entry

    def take(self, found: SourceEntry, joiner: Joiner, output: Output) -> None:
        """Pass on what stays of an entry, or of a run of messages. Raises OSError."""
        self._stats.batches_read += 1 if found.run is None else len(found.run)
        try:
            if found.header is None:
                self._messages(found, joiner, output)
            elif found.header[ATTRIBUTES] & CONTROL_BIT:
                self._marker(found, found.header, joiner, output)
            else:
                self._batch(found, found.header, joiner)
        except (InvalidRecord, CorruptBatch):
            self._stats.unreadable += 1
            joiner.flush()
            self._copy(found, output)

    def _copy(self, found: SourceEntry, output: Output) -> None:
        time = max_timestamp_of_entry(found.data, found.start)
        output.copy(found.data, found.start, found.end, found.last_offset, time)

    # Which records stay

    def _kept(self, run: Keys, *, drop_tombstones: bool) -> list[int] | None:
        """The indexes of the records that stay; None for all of them."""
        self._stats.records_read += len(run)
        offsets, latest = run.offsets, self._latest
        newest = self._keys.newest(run)
        for index in run.keyless:
            gone = offsets[index] <= latest
            newest[index] = INT64_MAX if gone else -1
            self._stats.without_key += gone
        if drop_tombstones:
            for index in run.tombstones:
                if offsets[index] <= latest:
                    newest[index] = INT64_MAX
        if all(map(le, newest, offsets)):
            self._stats.records_kept += len(offsets)
            return None
        kept = [index for index, offset in enumerate(offsets) if newest[index] <= offset]
        self._stats.records_kept += len(kept)
        return kept

    # Batches

    def _batch(self, found: SourceEntry, header: Header, joiner: Joiner) -> None:
        aborted = self._transactions.is_aborted(header)
        if aborted or found.last_offset < self._plan.start_offset or header[RECORD_COUNT] < 1:
            self._stats.records_read += max(header[RECORD_COUNT], 0)
            self._nothing(found, header, joiner)
            return
        rules, now_ms = self._plan.rules, self._plan.now_ms
        run = keys_in(found, rules)
        has_horizon = bool(header[ATTRIBUTES] & DELETE_HORIZON_BIT)
        drop = has_horizon and header[BASE_TIMESTAMP] <= now_ms
        kept = self._kept(run, drop_tombstones=drop)
        if kept is None:
            entry = (found.data, found.start, found.end)
            records, tombstones = run.data, bool(run.tombstones)
        elif kept:
            entry = None
            records = run.taken(kept)
            header = thinned(header, records, len(kept))
            tombstones = not set(kept).isdisjoint(run.tombstones)
        else:
            self._nothing(found, header, joiner)
            return
        if tombstones and not has_horizon:
            entry = None
            header, records = with_horizon(header, records, now_ms + rules.delete_retention_ms)
        joiner.batch(KeptBatch(header, records, entry))

    def _nothing(self, found: SourceEntry, header: Header, joiner: Joiner) -> None:
        """No record stays; perhaps the header has to."""
        if found.last_offset == self._last_entry or self._is_last_of_producer(header):
            joiner.batch(KeptBatch(emptied(header), b"", None))

    def _is_last_of_producer(self, header: Header) -> bool:
        known = self._plan.producers.get(header[PRODUCER_ID])
        if known is None:
            return False
        epoch, last_offset = known
        if last_offset >= 0:
            return header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] == last_offset
        return bool(header[ATTRIBUTES] & CONTROL_BIT) and header[PRODUCER_EPOCH] == epoch

    def _marker(self, found: SourceEntry, header: Header, joiner: Joiner, output: Output) -> None:
        self._stats.records_read += max(header[RECORD_COUNT], 0)
        plan, count = self._plan, header[RECORD_COUNT]
        records = b"" if count < 1 else records_of_batch(found, header, plan.rules)
        useless, entry = True, None
        if count > 0:
            useless, entry = self._transactions.end(header, control_type(records, count))
        has_horizon = bool(header[ATTRIBUTES] & DELETE_HORIZON_BIT)
        if count < 1 or (useless and has_horizon and header[BASE_TIMESTAMP] <= plan.now_ms):
            self._nothing(found, header, joiner)
            return
        joiner.flush()
        if entry is not None:
            output.add_aborted(entry)
        self._stats.records_kept += count
        if useless and not has_horizon:
            horizon_ms = plan.now_ms + plan.rules.delete_retention_ms
            header, records = with_horizon(header, records, horizon_ms)
            joiner.batch(KeptBatch(header, records, None))
        else:
            self._copy(found, output)

    # Messages

    def _messages(self, found: SourceEntry, joiner: Joiner, output: Output) -> None:
        if found.last_offset < self._plan.start_offset:
            return
        run = keys_in(found, self._plan.rules)
        kept = self._kept(run, drop_tombstones=not self.retain_deletes)
        if kept is not None and run.offsets[0] <= self._last_entry <= run.offsets[-1]:
            # A message cannot be emptied. The last one stays until something comes after it.
            last = bisect_left(run.offsets, self._last_entry)
            if last not in kept:
                insort(kept, last)
                self._stats.records_kept += 1
        if found.run is None:
            self._wrapper(found, run, kept, joiner)
            return
        if kept is not None and not kept:
            return
        joiner.flush()
        pieces = [(found.start, found.end)] if kept is None else run.pieces(kept)
        for start, size in entries_of(found.data, pieces):
            (offset,) = INT64.unpack_from(found.data, start)
            time = max_timestamp_of_entry(found.data, start)
            output.copy(found.data, start, start + size, offset, time)

    def _wrapper(
        self, found: SourceEntry, run: Keys, kept: list[int] | None, joiner: Joiner
    ) -> None:
        message = Message(memoryview(found.data)[found.start : found.end])
        terms = {"magic": found.magic, "codec": message.codec}
        stamped_ms = message.timestamp_ms if message.timestamp_type else None
        if kept is None:
            whole = (found.data, found.start, found.end)
            joiner.wrapper(
                KeptWrapper(
                    run.data[: run.starts[-1]],
                    list(run.offsets),
                    whole,
                    **terms,
                    stamped_ms=stamped_ms,
                )
            )
        elif kept:
            offsets = [run.offsets[index] for index in kept]
            joiner.wrapper(
                KeptWrapper(run.taken(kept), offsets, None, **terms, stamped_ms=stamped_ms)
            )
