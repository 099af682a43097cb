"""The task of a replay with files of an archive: record sets of what is in them.

Batches go back as they were stored, without being decompressed; records are encoded, in the same
batches each time. Either way a task that is repeated recognises what it has written. In
transactions it does not have to: the destination knows how far it has got.

An archive of batches has those of aborted transactions too. Their markers are among the batches,
perhaps files later and behind all that is wanted, so that they are looked for first; without any
transactional batch that costs a few small columns.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from client.cluster import Cluster, TopicPartition
from pipeline.archiving.archive_files import ArchiveFile
from pipeline.archiving.reading import parts, rows_in_order
from pipeline.columns.encode import DEFAULT_MAX_BYTES, encode_records
from pipeline.delivering.delivery import Delivery, Pacing
from pipeline.delivering.destination import ClusterPartition, Terms, terms
from pipeline.delivering.mirror_job import metered, tried_before
from pipeline.delivering.record_sets import SetMaker, set_of_batch
from pipeline.delivering.remade import Selection
from pipeline.delivering.transactional import transactional_delivery
from pipeline.errors import Refused
from protocol.records.markers import decode_marker
from protocol.records.record import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from client.security import ClientSecurity
    from pipeline.delivering.record_sets import RecordSet
    from pipeline.delivering.transactional import Transactions as InTransactions

ROWS_AT_ONCE = 65_536
"""Of records. Batches are encoded of no more, so that it decides what they hold."""
BATCHES_AT_ONCE = 512
"""Of batches, which may have a megabyte each."""

Transactions = tuple[tuple[int, int, int], ...]
"""Of each: the producer's id, the first offset, and that of the marker."""

_SEEN = ["base_offset", "producer_id", "transactional", "control"]


@dataclass(frozen=True)
class ReplayTask:
    """Writes one partition's next files. Picklable: it holds no connection."""

    to: str
    place: TopicPartition
    files: tuple[ArchiveFile, ...]
    """In the order of their offsets, without overlap."""
    missing: int
    """Offsets that the archive lacks before and between these files."""
    aborted: Transactions
    """To be left out."""
    wanted: Selection
    codec: int
    keep_producers: bool
    landing: int
    """The destination's offset at which the first record is to land."""
    doubtful: bool
    shift_ms: int = 0
    """Of all times: so much later than in the archive."""
    transactions: InTransactions | None = None
    security: ClientSecurity | None = None

    def work(self) -> dict[str, Any]:
        """Raises Refused, Unreachable, ForeignState, NoSuchTopic, CorruptData."""
        first, last = self.files[0], self.files[-1]
        facts: dict[str, Any] = {
            "topic": first.topic,
            "partition": first.partition,
            "end": last.end,
            "offsets": sum(file.end - file.start for file in self.files),
            "records": 0,
            "bytes": 0,
            "place": str(self.place),
            "offsets_missing": self.missing + sum(file.missing for file in self.files),
        }
        with Cluster(self.to, patient=True, security=self.security) as cluster:
            asked = terms(cluster, self.place)
            counts: Counter[str] = Counter()
            if self.transactions is not None:
                self._deliver_in_transactions(self.transactions, cluster, asked, facts, counts)
                return {**facts, "landed": self.landing, "counts": dict(counts)}
            delivery = Delivery(
                ClusterPartition(cluster, self.place),
                self.landing,
                doubtful=self.doubtful or tried_before(),
                pacing=Pacing(wary=asked.wary),
            )
            delivery.deliver(metered(self._sets(first.start, asked, counts), facts))
            facts["landed"] = delivery.finish()
        return {**facts, "counts": dict(delivery.counts + counts)}

    def _deliver_in_transactions(
        self,
        transactions: InTransactions,
        cluster: Cluster,
        asked: Terms,
        facts: dict[str, Any],
        counts: Counter[str],
    ) -> None:
        end = self.files[-1].end
        with transactional_delivery(cluster, transactions, self.place, asked) as delivery:
            begin = delivery.start(self.files[0].start, end)
            delivery.deliver(metered(self._sets(begin, asked, counts), facts))
            delivery.finish(end)
        counts += delivery.counts

    def _sets(self, begin: int, asked: Terms, counts: Counter[str]) -> Iterator[RecordSet]:
        """Those of all files, from the entry on that ends at `begin` or later. Raises Refused."""
        if self.shift_ms and asked.magic != 2:
            raise Refused(
                f"{self.place} stores format {asked.magic}, and only batches of format 2 are sent "
                "with other times: replay into a topic without message.format.version"
            )
        for made in self._sets_as_archived(begin, asked, counts):
            yield made.shifted(self.shift_ms)

    def _sets_as_archived(
        self, begin: int, asked: Terms, counts: Counter[str]
    ) -> Iterator[RecordSet]:
        for file in self.files:
            if file.end <= begin or not self.wanted.may_have(file.earliest_ms, file.latest_ms):
                continue
            if file.shape == "batches":
                yield from self._batches(file, begin, asked, counts)
            else:
                yield from self._records(file, begin, asked)

    def _batches(
        self, file: ArchiveFile, begin: int, asked: Terms, counts: Counter[str]
    ) -> Iterator[RecordSet]:
        maker = SetMaker(
            f"{file.location.path}: {file.topic}-{file.partition}",
            max(begin, file.start),
            file.end,
            magic=asked.magic,
            largest=asked.largest,
            keep_producers=self.keep_producers,
            wanted=self.wanted,
        )
        for rows in rows_in_order(file, ["last_offset", "batch"], BATCHES_AT_ONCE):
            offsets = rows["last_offset"]
            aborted = [
                (producer, first)
                for producer, first, end in self.aborted
                if end >= offsets[0].as_py() and first <= offsets[-1].as_py()
            ]
            yield from maker.sets(_joined(rows["batch"]), aborted)
        yield from maker.rest()
        counts.update(maker.counts)

    def _records(self, file: ArchiveFile, begin: int, asked: Terms) -> Iterator[RecordSet]:
        largest = min(DEFAULT_MAX_BYTES, asked.largest)
        columns = ["key", "value", "offset", "timestamp", "headers"]
        for rows in rows_in_order(file, columns, ROWS_AT_ONCE):
            chosen = self._chosen(rows, begin)
            if not chosen.num_rows:
                continue
            last = chosen["offset"][-1].as_py()
            for entry in encode_records(chosen, codec=self.codec, max_bytes=largest):
                yield set_of_batch(entry, last)

    def _chosen(self, rows: pa.RecordBatch, begin: int) -> pa.RecordBatch:
        wanted = self.wanted
        mask = pc.and_(
            pc.greater_equal(rows["offset"], max(begin, wanted.first)),
            pc.less(rows["offset"], wanted.end),
        )
        times = rows["timestamp"].cast(pa.int64())
        if wanted.since_ms is not None:
            mask = pc.and_(mask, pc.greater_equal(times, wanted.since_ms * 1000))
        if wanted.until_ms is not None:
            mask = pc.and_(mask, pc.less(times, wanted.until_ms * 1000))
        mask = pc.fill_null(mask, False)
        return rows if pc.all(mask).as_py() else rows.filter(mask)


def aborted_transactions(files: Sequence[ArchiveFile], wanted: Selection) -> Transactions:
    """The transactions with something wanted in a partition's files, all of them in order, that
    were aborted, or have no end in there: their marker is at INT64_MAX."""
    began: dict[int, int] = {}
    aborted: list[tuple[int, int, int]] = []
    for file in files:
        if file.start >= wanted.end and not began:
            break
        if file.shape != "batches" or file.end <= wanted.first:
            continue
        for read in parts(file):
            if not pc.any(read(_SEEN)["transactional"]).as_py():
                continue
            whole = read([*_SEEN, "batch"])
            for row in whole.filter(whole["transactional"]).to_batches():
                _follow(row, began, aborted, wanted.end)
    aborted += [(producer, first, INT64_MAX) for producer, first in began.items()]
    return tuple(sorted(aborted, key=lambda transaction: transaction[1]))


def _follow(
    rows: pa.RecordBatch,
    began: dict[int, int],
    aborted: list[tuple[int, int, int]],
    wanted_end: int,
) -> None:
    for index in range(rows.num_rows):
        producer = rows["producer_id"][index].as_py()
        offset = rows["base_offset"][index].as_py()
        if not rows["control"][index].as_py():
            if offset < wanted_end:
                began.setdefault(producer, offset)
            continue
        first = began.pop(producer, None)
        marker = decode_marker(rows["batch"][index].as_buffer())
        if first is not None and marker is not None and not marker.commit:
            aborted.append((producer, first, offset))


def _joined(batches: pa.Array) -> memoryview:
    """The bytes of all the stored entries, one after the other, as Arrow holds them."""
    _, places, data = batches.buffers()
    if not len(batches) or data is None:
        return memoryview(b"")
    begins = memoryview(places).cast("i")
    return memoryview(data)[begins[batches.offset] : begins[batches.offset + len(batches)]]
