"""After a start: the ends and transactions that a crash or a stop has left half done.

What the state topic says last may be more, or less, than what the partitions hold, for only the
decision of an end was waited for. So, of every producer of ours with something open in a partition:

- it was ended by a decision that the log still has: the marker was lost, and is written again;
- its id is in the same epoch: it belongs to the transaction of now, whose record was lost. That is
  open as it was for its client, and has its time;
- its id has gone on to another epoch: whoever wrote it was fenced, and it is aborted.

A producer that no transactional id here has is none of our business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker import logs
from broker.coordinator.transactions import transaction as machine
from broker.coordinator.transactions.loading import end_of
from protocol.errors import KafkaError
from protocol.logdata.transactions import TransactionState, glance
from storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from broker.coordinator.transactions.ends import Ends
    from broker.coordinator.transactions.loading import RawEnd
    from broker.coordinator.transactions.shard import TransactionShard
    from broker.coordinator.transactions.transaction import Transaction
    from broker.partitions.topic import Topic

    Place = tuple[str, int]
    Opened = dict[Place, tuple[int, int, int]]
    """Of one producer, by partition: its epoch, since which offset it has something open, and the
    leader epoch in which that was written."""


class Runtime(Protocol):
    """The part of `TransactionRuntime` that settling needs."""

    @property
    def shards(self) -> list[TransactionShard]: ...

    def adopt(
        self,
        shard: TransactionShard,
        transactional_id: str,
        now: Transaction,
        partitions: Sequence[Place],
    ) -> None: ...


def settle(
    runtime: Runtime,
    ends: Ends,
    topics: Iterable[Topic],
    decided_ends: Mapping[str, Sequence[RawEnd]],
    damaged: Collection[TransactionShard],
) -> None:
    """Bring state topic and partitions together. Of shards that are `damaged` only ends that were
    decided are finished: what else is missing may have been in the records that were lost."""
    opened = open_transactions(topics)
    shards = [
        shard
        for shard in runtime.shards
        if shard.ending or (opened and shard.states)
        if is_on_disk(shard)
    ]
    for shard in shards:
        for transactional_id, decided in list(shard.ending.items()):
            del shard.ending[transactional_id]
            *before, last = decided_ends[transactional_id]
            _mend(ends, shard, transactional_id, before, opened)
            of_producer = opened.get(decided.producer_id, {})
            ended = _ended_by(last, decided, of_producer)
            ends.finish(shard, transactional_id, ended)
            for place in ended:
                of_producer.pop(place, None)
    if not opened:
        return
    for shard in shards:
        for transactional_id in shard.states:
            _mend(ends, shard, transactional_id, decided_ends.get(transactional_id, ()), opened)
        if shard not in damaged:
            for transactional_id in _with_something_open(shard, opened):
                _go_on(runtime, ends, shard, transactional_id, opened)


def is_on_disk(shard: TransactionShard) -> bool:
    """Sync what decides from here on; whether that could be. Where only the process has died, it
    may still be lost with the machine, and a marker that goes by it be kept."""
    log = shard.partition.log
    if log.recovery_point >= log.written_offset:
        return True
    try:
        log.sync()
    except StorageError as error:  # the log takes no more; the next start settles this
        logs.error("transactions not settled", log=log.name, reason=str(error))
        return False
    return True


def open_transactions(topics: Iterable[Topic]) -> dict[int, Opened]:
    """What is open in all partitions, by producer id."""
    found: dict[int, Opened] = {}
    for topic in topics:
        for partition in topic.partitions:
            producers = partition.log.producers
            if producers.oldest_open < 0:
                continue
            for producer_id, producer in producers.known():
                epoch, opened = producer[0], producer[5]
                if opened >= 0:
                    place = (topic.name, partition.index)
                    led_in = partition.log.epochs.epoch_of(opened)
                    found.setdefault(producer_id, {})[place] = epoch, opened, led_in
    return found


def _ended_by(raw: RawEnd, decided: Transaction, opened: Opened) -> list[Place]:
    """The partitions that have yet to get the marker of a decision. Where Kafka wrote it, all."""
    end = end_of(raw)
    if end is None or end.ends is None:
        return list(decided.partitions)
    return [place for place, since in opened.items() if end.reaches(place, *since)]


def _with_something_open(shard: TransactionShard, opened: Mapping[int, Opened]) -> list[str]:
    """The ids of a shard whose producer has something open."""
    return [
        transactional_id
        for transactional_id, found in shard.states.items()
        if (glance(found)[0] if isinstance(found, bytes) else found.producer_id) in opened
    ]


def _mend(
    ends: Ends,
    shard: TransactionShard,
    transactional_id: str,
    raw_ends: Iterable[RawEnd],
    opened: Mapping[int, Opened],
) -> None:
    """Write the markers that were lost of ends that are complete. They are given in their order:
    what is open was ended by the first that reaches so far."""
    for raw in raw_ends:
        end = end_of(raw) if glance(raw[0])[0] in opened else None
        if end is None:
            continue
        of_producer = opened[end.decided.producer_id]
        lost = [place for place, since in of_producer.items() if end.reaches(place, *since)]
        if not lost:
            continue
        ends.mend(shard, transactional_id, end.decided, lost)
        logs.info(
            "markers that were lost are written again",
            transactional_id=transactional_id,
            partitions=len(lost),
        )
        for place in lost:
            del of_producer[place]


def _go_on(
    runtime: Runtime,
    ends: Ends,
    shard: TransactionShard,
    transactional_id: str,
    opened: Mapping[int, Opened],
) -> None:
    """Take up what is open and was not ended: the transaction of now, or that of somebody who was
    fenced."""
    now = shard.get(transactional_id)
    if now is None or now.state in machine.PREPARED:
        return  # the disk refused its markers, which are tried again
    of_producer = opened[now.producer_id]
    mine = [place for place, (epoch, *_) in of_producer.items() if epoch == now.epoch]
    old = [place for place, (epoch, *_) in of_producer.items() if epoch < now.epoch]
    if old:
        aborted = now._replace(state=TransactionState.PREPARE_ABORT)
        ends.mend(shard, transactional_id, aborted, old)
        logs.info(
            "what a fenced producer had open is aborted",
            transactional_id=transactional_id,
            partitions=len(old),
        )
    if mine:
        try:
            runtime.adopt(shard, transactional_id, now, mine)
        except KafkaError as error:
            logs.error_once_a_minute("transaction not resumed", str(error), transactional_id)
