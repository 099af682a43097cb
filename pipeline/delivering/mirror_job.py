"""Mirroring of a range, in a task, and of a micro-batch's ranges, in the driver.

A task has to know at which offset of the destination its first record is to land: where the
micro-batch before ended. The driver notes that in the state, before Spark counts the micro-batch as
done, and so a task that is repeated begins to compare where the first attempt began to write. In
transactions the destination itself knows how far the source has been copied.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from client.cluster import Cluster, TopicPartition
from pipeline.delivering.delivery import Delivery, Pacing
from pipeline.delivering.destination import ClusterPartition, Terms, make_like, renamed, terms
from pipeline.delivering.record_sets import SetMaker
from pipeline.delivering.transactional import transactional_delivery
from pipeline.errors import ForeignState, NoSuchTopic
from pipeline.left_out import LeftOut
from pipeline.reading.connections import Connections
from pipeline.reading.ranges import read_range

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from client.security import ClientSecurity
    from pipeline.delivering.record_sets import RecordSet
    from pipeline.delivering.transactional import Transactions
    from pipeline.reading.options import SourceOptions
    from pipeline.reading.plan import Range
    from pipeline.reading.ranges import Chunk
    from pipeline.reading.source import Source
    from pipeline.state import State

NOTE = "delivered"
BATCHES_KEPT = 3
"""Micro-batches whose ends stay noted. Only the last one can be repeated."""

Ends = dict[str, int]
"""The next offset of destination partitions, by their names as in "orders-3"."""


@dataclass
class Delivered:
    """The end of each destination partition: at first, and after each micro-batch."""

    start: Ends
    batches: dict[int, Ends] = field(default_factory=dict)

    def before(self, batch_id: int) -> Ends:
        """The ends where a micro-batch begins. Raises ForeignState for one that is long done."""
        if batch_id < min(self.batches, default=0):
            raise ForeignState(
                f"the state notes what was written up to micro-batch {max(self.batches)}, and is "
                f"to begin again with {batch_id}: its checkpoint was removed or replaced. Use an "
                "empty topic and another --state"
            )
        earlier = [number for number in self.batches if number < batch_id]
        return self.batches[max(earlier)] if earlier else self.start

    def add(self, batch_id: int, ends: Ends) -> None:
        """Note that a micro-batch is done."""
        self.batches[batch_id] = {**self.before(batch_id), **ends}
        for number in sorted(self.batches)[:-BATCHES_KEPT]:
            self.start = self.batches.pop(number)

    @classmethod
    def read(cls, state: State) -> Delivered | None:
        """None if nothing is noted yet."""
        noted = state.read(NOTE)
        if noted is None:
            return None
        return cls(noted["start"], {int(number): ends for number, ends in noted["batches"].items()})

    def write(self, state: State) -> None:
        batches = {str(number): ends for number, ends in self.batches.items()}
        state.write(NOTE, {"start": self.start, "batches": batches})


@dataclass(frozen=True)
class MirrorTask:
    """Passes a range on. Picklable: it holds no connection."""

    source: SourceOptions
    to: str
    rename: str | None
    keep_producers: bool
    delivered: Delivered
    doubtful: bool
    """Another run may have ended just now, with requests still on their way."""
    begins: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Of partitions that were to begin at an offset: no record below is wanted with a batch."""
    transactions: Transactions | None = None
    security: ClientSecurity | None = None
    """Of the client that writes."""

    def work(
        self, range_: Range, batch_id: int, connections: Connections | None = None
    ) -> dict[str, Any]:
        """Raises Refused, Unreachable, ForeignState, and what reading raises."""
        place = TopicPartition(renamed(self.rename, range_.topic), range_.partition)
        facts: dict[str, Any] = {
            "topic": range_.topic,
            "partition": range_.partition,
            "end": range_.end,
            "offsets": range_.size,
            "records": 0,
            "bytes": 0,
            "place": str(place),
        }
        if range_.start >= range_.end:
            return facts
        left_out = LeftOut()
        with contextlib.ExitStack() as own:
            connections = connections or own.enter_context(Connections())
            source = connections.get("source", self.source.source)
            cluster = connections.get("destination", self._destination)
            try:
                asked = terms(cluster, place)
            except NoSuchTopic:
                # A topic that the pattern has met since the job began.
                make_like(source, cluster, {range_.topic: place.topic})
                asked = terms(cluster, place)
            counts: Counter[str] = Counter()
            if self.transactions is not None:
                with transactional_delivery(
                    cluster, self.transactions, place, asked
                ) as in_transactions:
                    begin = in_transactions.start(range_.start, range_.end)
                    rest = range_._replace(start=begin)
                    if begin < range_.end:
                        sets = self._sets(source, rest, asked, left_out, counts)
                        in_transactions.deliver(metered(sets, facts))
                    in_transactions.finish(range_.end)
                counts += in_transactions.counts
            else:
                delivery = Delivery(
                    ClusterPartition(cluster, place),
                    # Of a partition that has been met since the mirror began nothing is noted
                    # before its first micro-batch is done: an attempt at that may have written all
                    # there is.
                    self.delivered.before(batch_id).get(str(place), 0),
                    doubtful=self.doubtful or tried_before(),
                    pacing=Pacing(wary=asked.wary),
                )
                sets = self._sets(source, range_, asked, left_out, counts)
                delivery.deliver(metered(sets, facts))
                facts["landed"] = delivery.finish()
                counts += delivery.counts
        return {**facts, **left_out.as_json(), "counts": dict(counts)}

    def _destination(self) -> Cluster:
        return Cluster(
            self.to, timeout_s=self.source.timeout_s, patient=True, security=self.security
        )

    def _sets(
        self,
        source: Source,
        range_: Range,
        asked: Terms,
        left_out: LeftOut,
        counts: Counter[str],
    ) -> Iterator[RecordSet]:
        maker = self._maker(range_, asked, left_out)
        with contextlib.closing(self._chunks(source, range_, left_out)) as chunks:
            for chunk in chunks:
                yield from maker.sets(chunk.entries, chunk.aborted)
        yield from maker.rest()
        counts.update(maker.counts)

    def _maker(self, range_: Range, asked: Terms, left_out: LeftOut) -> SetMaker:
        def corrupt(first: int, last: int, reason: str) -> None:
            left_out.corrupt(range_, first, last, reason)

        return SetMaker(
            str(range_.topic_partition),
            range_.start,
            range_.end,
            magic=asked.magic,
            largest=asked.largest,
            keep_producers=self.keep_producers,
            left_out=corrupt if self.source.on_corrupt == "skip" else None,
        )

    def _chunks(self, source: Source, range_: Range, left_out: LeftOut) -> Generator[Chunk]:
        return read_range(
            source,
            range_,
            on_gap=self.source.on_gap,
            on_corrupt=self.source.on_corrupt,
            committed_only=self.source.committed_only,
            whole_entries=True,
            begin=self.begins.get(range_.topic_partition, 0),
            left_out=left_out,
            fetch_bytes=self.source.fetch_bytes,
        )


def tried_before() -> bool:
    """Whether Spark has begun this task before; that attempt may have been given up alive."""
    if "pyspark" not in sys.modules:
        return False
    from pyspark import TaskContext

    task = TaskContext.get()
    return task is not None and task.attemptNumber() > 0


def metered(sets: Iterator[RecordSet], facts: dict[str, Any]) -> Iterator[RecordSet]:
    """The same sets; records and bytes are added to the facts."""
    for record_set in sets:
        facts["records"] += record_set.records
        facts["bytes"] += len(record_set.data)
        yield record_set


class MirrorJob:
    """The RangeJob of mirror. Only its task travels; the state is the driver's."""

    def __init__(self, task: MirrorTask, state: State | None) -> None:
        self.task = task
        self._state = state

    def work(
        self, range_: Range, batch_id: int, connections: Connections | None = None
    ) -> dict[str, Any]:
        """As RangeJob has it."""
        return self.task.work(range_, batch_id, connections)

    def commit(self, batch_id: int, results: list[dict[str, Any]]) -> None:
        """As RangeJob has it."""
        assert self._state is not None
        self._state.keep(batch_id)
        delivered = self.task.delivered
        delivered.add(
            batch_id, {facts["place"]: facts["landed"] for facts in results if "landed" in facts}
        )
        delivered.write(self._state)
        self.task = dataclasses.replace(self.task, doubtful=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return MirrorJob, (self.task, None)
