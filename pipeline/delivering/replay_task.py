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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
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
from pipeline.delivering.pace import SYSTEM_CLOCK, TOGETHER_MS, Clock, Pace, Paced
from pipeline.delivering.placement import Placement
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
    begin: int
    """The offset at which to begin; below it all has been done."""
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
    by_key: bool = False
    """In transactions only: each record goes to the partition that its key chooses, of the topic of
    `place`."""
    security: ClientSecurity | None = None
    pace: Pace | None = None
    """When to send what, in a round; without it all is sent at once."""
    clock: Clock = SYSTEM_CLOCK

    def work(self) -> dict[str, Any]:
        """Raises Refused, Unreachable, ForeignState, NoSuchTopic, CorruptData."""
        first, last = self.files[0], self.files[-1]
        facts: dict[str, Any] = {
            "topic": first.topic,
            "partition": first.partition,
            "records": 0,
            "bytes": 0,
            "place": str(self.place),
        }
        paced = None if self.pace is None else Paced(self.pace, self.begin, self.clock)
        with Cluster(self.to, patient=True, security=self.security) as cluster:
            asked = terms(cluster, self._noted_place)
            counts: Counter[str] = Counter()
            if self.transactions is not None:
                self._deliver_in_transactions(
                    self.transactions, cluster, asked, facts, counts, paced
                )
                facts["landed"] = self.landing
            else:
                delivery = Delivery(
                    ClusterPartition(cluster, self.place),
                    self.landing,
                    doubtful=self.doubtful or tried_before(),
                    pacing=Pacing(wary=asked.wary),
                )
                sets = self._sets(self.begin, asked, counts, paced, None)
                delivery.deliver(metered(sets, facts))
                facts["landed"] = delivery.finish()
                counts += delivery.counts
        end = last.end if paced is None or paced.reached is None else paced.reached
        done = [file for file in self.files if self.begin < file.end <= end]
        return {
            **facts,
            "end": end,
            "offsets": sum(
                max(0, min(file.end, end) - max(file.start, self.begin)) for file in self.files
            ),
            "offsets_missing": sum(file.missing for file in done),
            "counts": dict(counts),
            "next_ms": None if paced is None else paced.next_ms,
            "behind_ms": None if paced is None else paced.behind_ms,
        }

    def _deliver_in_transactions(
        self,
        transactions: InTransactions,
        cluster: Cluster,
        asked: Terms,
        facts: dict[str, Any],
        counts: Counter[str],
        paced: Paced | None,
    ) -> None:
        end = self.files[-1].end
        placement = self._placement(cluster) if self.by_key else None
        with transactional_delivery(
            cluster, transactions, self._noted_place, asked, named=self.place
        ) as delivery:
            begin = delivery.start(self.begin, end)
            if paced is not None:
                paced.begin = begin
            sets = self._sets(begin, asked, counts, paced, placement)
            delivery.deliver(metered(sets, facts))
            left = None if paced is None else paced.reached
            delivery.finish(end if left is None else left)
        counts += delivery.counts

    @property
    def _noted_place(self) -> TopicPartition:
        """The destination may have fewer partitions than the archive, but always the first."""
        return self.place._replace(partition=0) if self.by_key else self.place

    def _placement(self, cluster: Cluster) -> Placement:
        return Placement(
            cluster, self.place.topic, turn=self.place.partition, batch_bytes=DEFAULT_MAX_BYTES
        )

    def _sets(
        self,
        begin: int,
        asked: Terms,
        counts: Counter[str],
        paced: Paced | None,
        placement: Placement | None,
    ) -> Iterator[RecordSet]:
        """Those of all files, from the entry on that ends at `begin` or later. Raises Refused."""
        if self.shift_ms and asked.magic != 2:
            raise Refused(
                f"{self.place} stores format {asked.magic}, and only batches of format 2 are sent "
                "with other times: replay into a topic without message.format.version"
            )
        made = self._sets_as_archived(begin, asked, counts, placement)
        for one in made if paced is None else paced.sets(made):
            yield one.shifted(self.shift_ms)

    def _sets_as_archived(
        self, begin: int, asked: Terms, counts: Counter[str], placement: Placement | None
    ) -> Iterator[RecordSet]:
        for file in self.files:
            if file.end <= begin or not self.wanted.may_have(file.earliest_ms, file.latest_ms):
                continue
            if file.shape == "batches":
                yield from self._batches(file, begin, asked, counts)
            else:
                yield from self._records(file, begin, asked, placement)

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
        for rows in rows_in_order(file, ["last_offset", "batch"], BATCHES_AT_ONCE, begin):
            offsets = rows["last_offset"]
            aborted = [
                (producer, first)
                for producer, first, end in self.aborted
                if end >= offsets[0].as_py() and first <= offsets[-1].as_py()
            ]
            yield from maker.sets(_joined(rows["batch"]), aborted)
        yield from maker.rest()
        counts.update(maker.counts)

    def _records(
        self, file: ArchiveFile, begin: int, asked: Terms, placement: Placement | None
    ) -> Iterator[RecordSet]:
        largest = min(DEFAULT_MAX_BYTES, asked.largest)
        columns = ["key", "value", "offset", "timestamp", "headers"]
        for rows in rows_in_order(file, columns, ROWS_AT_ONCE, begin):
            chosen = self._chosen(rows, begin)
            for some in (chosen,) if self.pace is None else close_in_time(chosen):
                if not some.num_rows:
                    continue
                # All of them end at one offset: they stay in one transaction.
                last = some["offset"][-1].as_py()
                for partition, rows_of in _placed(some, placement):
                    for entry in encode_records(rows_of, codec=self.codec, max_bytes=largest):
                        yield set_of_batch(entry, last)._replace(partition=partition)

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


def _placed(
    rows: pa.RecordBatch, placement: Placement | None
) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    """The rows of each partition that is chosen for them; all, where none is."""
    if placement is None:
        yield None, rows
        return
    for place, some in placement.split(rows):
        yield place.partition, some


def work_together(tasks: Sequence[ReplayTask]) -> list[dict[str, Any]]:
    """In a task of Spark's: the work of all of these at once, as each may have to wait. Raises what
    `ReplayTask.work` does."""
    with ThreadPoolExecutor(max(1, len(tasks))) as pool:
        return list(pool.map(ReplayTask.work, tasks))


def close_in_time(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Rows in pieces, each of them within one stretch of TOGETHER_MS, in their order; those without
    a time go with the row before."""
    stretch = pc.divide(rows["timestamp"].cast(pa.int64()), TOGETHER_MS * 1000)
    known = pc.fill_null(pc.fill_null_forward(stretch), -1)
    edges = pc.indices_nonzero(pc.not_equal(known[1:], known[:-1])).to_pylist()
    for begin, end in pairwise([0, *(edge + 1 for edge in edges), rows.num_rows]):
        yield rows.slice(begin, end - begin)


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
