"""Transactions where several processes lead the partitions.

Partitions and groups are asked as Apache Kafka's brokers ask each other, and it is the same for
those of the coordinator's own process:

    a batch -> AddPartitionsToTxn, on the disk -> appended      the first of a transaction there
    Prepare on the disk -> WriteTxnMarkers, on the disk -> told -> Complete

So nothing is in a partition that its coordinator could have forgotten, and no end is complete
before its markers are on the disk: a start has to write those of ends that were decided, and no
others (`settling` finds out more, where one process has the whole of it). A record that decides
does not say where its partitions ended, and so is what Kafka's are for whoever settles it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from broker import logs
from broker.coordinator.transactions import transaction as machine
from broker.coordinator.transactions.coordinator import TransactionCoordinator
from broker.coordinator.transactions.ends import COMPLETE_WITHIN_S, Ends
from broker.coordinator.transactions.runtime import TransactionRuntime, shard_number
from broker.coordinator.transactions.settling import is_on_disk
from broker.partitions.internal_topics import TRANSACTION_TOPIC
from broker.pending import AskedFirst
from broker.producing.markers import NOT_NEEDED
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    Topic,
)
from protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from broker.coordinator.transactions.coordinator import Kind
    from broker.coordinator.transactions.ends import Done
    from broker.coordinator.transactions.shard import TransactionShard
    from broker.coordinator.transactions.transaction import Transaction
    from broker.neighbours import Neighbours
    from broker.partitions.topic import Partition
    from broker.partitions.topics import Topics
    from protocol.logdata.transactions import End

    Place = tuple[str, int]


class _Asked:
    """What the coordinator has been asked of a partition; `code` when it has answered."""

    __slots__ = ("answered", "code")

    def __init__(self, answered: asyncio.Future[None]) -> None:
        self.code: int | None = None
        self.answered = answered


class SharedTransactions(TransactionCoordinator):
    """All transactional ids of which this process leads the partition; and what the partitions of
    this process know of the transactions of all."""

    def __init__(
        self,
        topics: Topics,
        make_runtime: Callable[[Kind], TransactionRuntime],
        loop: asyncio.AbstractEventLoop,
        neighbours: Neighbours,
    ) -> None:
        super().__init__(topics, make_runtime)
        self._loop = loop
        self._neighbours = neighbours
        self._asked: dict[tuple[int, Place], dict[int, _Asked]] = {}
        """By producer id and partition, and by epoch: instances of one producer that come at once
        are asked for side by side. Until the marker comes or the partition goes: as many as are in
        open transactions."""
        self._tasks: set[asyncio.Task[None]] = set()

    def _kind(self) -> Kind:
        return partial(SharedRuntime, self._neighbours)

    def includes(
        self, transactional_id: str, producer_id: int, epoch: int, partition: Place
    ) -> bool:
        asked = self._found(producer_id, epoch, partition)
        is_known = asked is not None and asked.code == ErrorCode.NONE
        return is_known or self._is_open(producer_id, epoch, partition)

    def _found(self, producer_id: int, epoch: int, place: Place) -> _Asked | None:
        of_producer = self._asked.get((producer_id, place))
        return None if of_producer is None else of_producer.get(epoch)

    def _is_open(self, producer_id: int, epoch: int, place: Place) -> bool:
        """Whether a batch of the transaction is in the partition, so that it was asked for."""
        partition = self._topics.partition(*place)
        if partition is None:
            return False
        producers = partition.log.producers
        return producers.open_since(producer_id) >= 0 and producers.epoch_of(producer_id) == epoch

    def ask_first(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Iterable[Place],
        *,
        add: bool,
    ) -> None:
        missing = [
            place for place in partitions if not self._is_answered(producer_id, epoch, place)
        ]
        if missing:
            who = transactional_id, producer_id, epoch
            raise AskedFirst(partial(self._ask, who, missing, add))

    def _is_answered(self, producer_id: int, epoch: int, place: Place) -> bool:
        asked = self._found(producer_id, epoch, place)
        if asked is not None:
            return asked.code is not None
        return self._is_open(producer_id, epoch, place)

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[Place],
        *,
        add: bool,
    ) -> None:
        """By what the coordinator has answered. Several partitions have all been asked for, and
        each is told of when it is admitted."""
        if len(partitions) > 1:
            return
        (place,) = partitions
        asked = self._found(producer_id, epoch, place)
        if asked is None or asked.code is None:
            if self._is_open(producer_id, epoch, place):
                return
            raise KafkaError(
                f"the coordinator of {transactional_id!r} has yet to be asked",
                code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
            )
        if asked.code:
            self._forget(producer_id, epoch, place)
            code = ErrorCode(asked.code)
            if code is ErrorCode.PRODUCER_FENCED:
                code = ErrorCode.INVALID_PRODUCER_EPOCH
            raise KafkaError(f"the coordinator of {transactional_id!r}: {code.name}", code=code)

    def ended(self, producer_id: int, partitions: Iterable[Place]) -> None:
        for place in partitions:
            for asked in self._asked.pop((producer_id, place), {}).values():
                if not asked.answered.done():
                    asked.answered.set_result(None)  # and asked again

    def _forget(self, producer_id: int, epoch: int, place: Place) -> None:
        of_producer = self._asked[producer_id, place]
        del of_producer[epoch]
        if not of_producer:
            del self._asked[producer_id, place]

    def left(self, partitions: Iterable[Place]) -> None:
        # Their markers come elsewhere, and what was answered would outlive the transactions.
        gone = frozenset(partitions)
        for producer_id, place in list(self._asked):
            if place in gone:
                self.ended(producer_id, [place])

    def moved(self, partition: Partition) -> None:
        if isinstance(self._runtime, SharedRuntime):
            self._runtime.moved(partition)

    def stop(self) -> None:
        super().stop()
        for task in self._tasks:
            task.cancel()

    def _ask(
        self,
        who: tuple[str, int, int],
        partitions: Sequence[Place],
        add: bool,
        then: Callable[[], None],
    ) -> None:
        """Have the coordinator asked for these, but for those that it is being asked for already;
        `then` is called when it has answered."""
        _, producer_id, epoch = who
        waited: list[asyncio.Future[None]] = []
        asked: dict[Place, _Asked] = {}
        for place in partitions:
            known = self._found(producer_id, epoch, place)
            if known is None or known.answered.done():
                known = asked[place] = _Asked(self._loop.create_future())
                self._asked.setdefault((producer_id, place), {})[epoch] = known
            waited.append(known.answered)

        async def wait() -> None:
            if asked:
                await self._answer(who, asked, add)
            await asyncio.wait(waited)
            then()

        task = self._loop.create_task(wait())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(
        self, who: tuple[str, int, int], asked: dict[Place, _Asked], add: bool
    ) -> None:
        codes: dict[Place, int] = {}
        try:
            codes = await self._codes(who, list(asked), add)
        except ConnectionError:
            pass  # it comes back, and the client asks again
        except Exception as error:  # whatever it is, there are requests that wait
            logs.fault_once_a_minute("a coordinator was not asked", error, TRANSACTION_TOPIC)
        for place, one in asked.items():
            one.code = codes.get(place, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if not one.answered.done():
                one.answered.set_result(None)

    async def _codes(
        self, who: tuple[str, int, int], partitions: Sequence[Place], add: bool
    ) -> dict[Place, int]:
        """What the coordinator says of each. Raises ConnectionError."""
        transactional_id, producer_id, epoch = who
        topic = self._topics.by_name.get(TRANSACTION_TOPIC)
        if topic is None:
            return dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        of_state = topic.partitions[shard_number(transactional_id, len(topic.partitions))]
        transaction = AddPartitionsToTxnRequest.Transaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            verify_only=not add,
            topics=[
                Topic(name=name, partitions=indexes)
                for name, indexes in _by_topic(partitions).items()
            ],
        )
        answer = await self._neighbours.peers.ask(
            self._neighbours.process_of(of_state.leader_id),
            AddPartitionsToTxnRequest(transactions=[transaction]),
            AddPartitionsToTxnResponse,
        )
        return {
            (found.name, one.partition_index): one.partition_error_code
            for result in answer.results_by_transaction
            for found in result.topic_results
            for one in found.results_by_partition
        }


class SharedEnds(Ends):
    """Ends whose markers are asked for, of whoever leads the partitions."""

    def __init__(self, neighbours: Neighbours, **parts: Any) -> None:
        super().__init__(**parts)
        self._neighbours = neighbours
        self._asking: set[asyncio.Task[list[Place]]] = set()

    def stop(self) -> None:
        super().stop()
        for task in self._asking:
            task.cancel()

    def _ends_of(self, decided: Transaction) -> list[End] | None:
        return None

    def _carry_out(
        self, shard: TransactionShard, transactional_id: str, decided: Transaction, done: Done
    ) -> None:
        """Who is told finds all of it, unless a process has just gone: it is decided, too. Where
        the partition has moved meanwhile, the next coordinator carries it out, and tells who asks
        again."""
        if shard.has_resigned:
            done(ErrorCode.NOT_COORDINATOR, -1, -1)
            return
        shard.states[transactional_id] = decided
        del shard.ending[transactional_id]

        def told() -> None:
            done(ErrorCode.NONE, *machine.next_of(decided))

        self._ask(shard, transactional_id, list(decided.partitions), told)

    def finish(
        self, shard: TransactionShard, transactional_id: str, partitions: list[Place]
    ) -> None:
        self._ask(shard, transactional_id, partitions, lambda: None)

    def _ask(
        self,
        shard: TransactionShard,
        transactional_id: str,
        partitions: list[Place],
        then: Callable[[], None],
    ) -> None:
        """Have the markers of an end written. `then` is called when that has been tried."""
        decided = shard.get(transactional_id)
        assert decided is not None
        self._unfinished.pop(transactional_id, None)

        def ended(task: asyncio.Task[list[Place]]) -> None:
            self._asking.discard(task)
            if self._stopped or task.cancelled():
                return
            if shard.has_resigned:
                then()
                return
            left = task.result()
            if left:
                self._unfinished[transactional_id] = shard, left
                self._try_later()
            else:
                completed = machine.completed(decided, now_ms=self._wall_ms())
                shard.states[transactional_id] = completed
                self.unwritten[transactional_id] = shard
                self._write_completed_later(COMPLETE_WITHIN_S)
            then()

        task = self._loop.create_task(self._marked(shard.epoch, decided, partitions))
        self._asking.add(task)
        task.add_done_callback(ended)

    async def _marked(
        self, coordinator_epoch: int, decided: Transaction, partitions: Sequence[Place]
    ) -> list[Place]:
        """Ask all processes that lead some of these; the partitions that have no marker yet."""
        by_process: dict[int, list[Place]] = {}
        for place in partitions:
            partition = self._topics.partition(*place)
            if partition is not None:
                by_process.setdefault(self._neighbours.process_of(partition.leader_id), []).append(
                    place
                )
        found = await asyncio.gather(
            *(
                self._marked_by(process, coordinator_epoch, decided, places)
                for process, places in by_process.items()
            )
        )
        return [place for left in found for place in left]

    async def _marked_by(
        self, process: int, coordinator_epoch: int, decided: Transaction, places: list[Place]
    ) -> list[Place]:
        marker = WriteTxnMarkersRequest.Marker
        request = WriteTxnMarkersRequest(
            markers=[
                marker(
                    producer_id=decided.producer_id,
                    producer_epoch=decided.epoch,
                    transaction_result=decided.is_commit,
                    coordinator_epoch=coordinator_epoch,
                    topics=[
                        marker.Topic(name=name, partition_indexes=indexes)
                        for name, indexes in _by_topic(places).items()
                    ],
                )
            ]
        )
        try:
            answer = await self._neighbours.peers.ask(process, request, WriteTxnMarkersResponse)
        except ConnectionError:
            return places
        except Exception as error:  # whatever it is, the end is decided and must come about
            logs.fault_once_a_minute("markers were not written", error, TRANSACTION_TOPIC)
            return places
        done = {
            (topic.name, one.partition_index)
            for written in answer.markers
            for topic in written.topics
            for one in topic.partitions
            if one.error_code in NOT_NEEDED
        }
        return [place for place in places if place not in done]


class SharedRuntime(TransactionRuntime):
    """The shards of which this process leads the partition."""

    def __init__(self, neighbours: Neighbours, **parts: Any) -> None:
        self._neighbours = neighbours
        super().__init__(**parts)

    def _make_ends(self, **parts: Any) -> Ends:
        return SharedEnds(self._neighbours, **parts)

    def moved(self, partition: Partition) -> None:
        """A partition of the topic is led by another process from now on, and the coordinator of
        its ids resigns; or by this one, and is loaded. Each time of leading has a shard of its
        own, so that nothing of an earlier one is taken for what the log says."""
        if partition.index >= len(self.shards):
            return  # nobody has looked for an id here
        before = self.shards[partition.index]
        shard = self.shards[partition.index] = self._new_shard(partition)
        before.resign()
        self.loads.give_up(before)
        self.ends.left(before)
        for transactional_id in before.states:
            self._deadlines_ms.pop(transactional_id, None)
        self._read = [one for one in self._read if one is not before]
        if not partition.led_elsewhere:
            self.loads.add(shard)

    def _settle(self) -> None:
        """Finish the ends that were decided; there is nothing else that a crash can leave half
        done."""
        self._decided_ends = {}
        self._damaged.clear()
        for shard in self._read:
            ending, shard.ending = shard.ending, {}
            if ending and not is_on_disk(shard):
                shard.ending = ending
            else:
                for transactional_id, decided in ending.items():
                    self.ends.finish(shard, transactional_id, list(decided.partitions))
            shard.loaded = True
        self._read.clear()


def _by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, index in places:
        found.setdefault(name, []).append(index)
    return found
