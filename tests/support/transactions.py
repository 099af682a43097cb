"""Transactions against a broker in the test's process, with a coordinator that the test plays.

known = KnownTransactions.of(broker)
known.begin("bank", 7, ("orders", 0))
client = TransactionalClient(broker, "bank", 7)
assert client.send("orders", b"a", version=11).error_code == 0
known.end("bank", commit=True)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from protocol.errors import ErrorCode, KafkaError
from protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.layout import TRANSACTIONAL_BIT
from protocol.records.walk import walk
from storage.steps import run_here
from tests.support.caller import (
    PRODUCE_BY_ID,
    Target,
    fetch_request,
    produce_request,
)
from tests.support.in_process_client import Asker

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from broker.coordinator.transactions.coordinator import TransactionCoordinator
    from broker.partitions.topic import Partition
    from tests.support.fake_connection import InProcessBroker

READ_COMMITTED = 1

Place = tuple[str, int]


class KnownTransactions:
    """A coordinator that says what the test has told it. `asked` are the places of each question,
    and whether they were to be added."""

    def __init__(self, broker: InProcessBroker) -> None:
        self._broker = broker
        self.open: dict[str, tuple[int, int, list[Place]]] = {}
        self.asked: list[tuple[list[Place], bool]] = []
        self.refusal: ErrorCode | None = None

    @classmethod
    def of(cls, broker: InProcessBroker) -> KnownTransactions:
        """The coordinator of this broker, for the connections that are made from now on."""
        known = cls(broker)
        broker.running.broker.parts.transactions = cast("TransactionCoordinator", known)
        return known

    def begin(
        self, transactional_id: str, producer_id: int, *places: Place, epoch: int = 0
    ) -> None:
        self.open[transactional_id] = (producer_id, epoch, list(places))

    def places(self, transactional_id: str) -> list[Place]:
        return self.open[transactional_id][2]

    def includes(
        self, transactional_id: str, producer_id: int, epoch: int, partition: Place
    ) -> bool:
        """Every question goes to `verify`, and is counted there."""
        return False

    def ask_first(self, *_: object, add: bool) -> None:
        """Nobody has to be asked."""

    def ended(self, producer_id: int, partitions: Iterable[Place]) -> None:
        """The test knows of it."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[Place],
        *,
        add: bool,
    ) -> None:
        self.asked.append((list(partitions), add))
        if self.refusal is not None:
            raise KafkaError(code=self.refusal)
        known = self.open.get(transactional_id)
        if known is None or known[0] != producer_id:
            raise KafkaError(code=ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if known[1] != epoch:
            raise KafkaError(code=ErrorCode.PRODUCER_FENCED)
        missing = [place for place in partitions if place not in known[2]]
        if missing and not add:
            raise KafkaError(code=ErrorCode.TRANSACTION_ABORTABLE)
        known[2].extend(missing)

    def end(
        self, transactional_id: str, *, commit: bool, raised: int = 0, coordinator_epoch: int = 0
    ) -> list[Place]:
        """End a transaction; what could not be written. `raised` is how far the epoch goes up."""
        producer_id, epoch, places = self.open.pop(transactional_id)
        return self._broker.running.broker.markers.write_markers(
            producer_id,
            epoch + raised,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            partitions=places,
        )


class TransactionalClient:
    """A producer whose sequences are counted, on a connection of its own, and a reader."""

    def __init__(self, broker: InProcessBroker, transactional_id: str, producer_id: int) -> None:
        self.broker = broker
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.epoch = 0
        self.asker = Asker(broker)
        self.sequences: dict[Place, int] = {}

    def set_of(
        self,
        topic: str,
        *values: bytes,
        partition: int = 0,
        key: bytes | None = None,
        **options: Any,
    ) -> bytes:
        """The next batch of the transaction for this partition. Its records are of now, or else a
        marker of now would begin a segment."""
        place = topic, partition
        sequence = self.sequences.get(place, 0)
        self.sequences[place] = sequence + len(values)
        given: dict[str, Any] = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "base_sequence": sequence,
            "transactional": True,
            **options,
        }
        now_ms = given.pop("timestamp_ms", self.broker.running.broker.now_ms())
        return build_batch([(now_ms, key, value, ()) for value in values], **given)

    def next_epoch(self) -> None:
        """The transaction has been ended under the rules of transaction.version 2."""
        self.epoch += 1
        self.sequences.clear()

    def send(
        self, topic: str, *values: bytes, partition: int = 0, version: int = 11, **options: Any
    ) -> Any:
        """Produce a batch; the entry of the answer."""
        return self.send_sets(
            (topic, partition, self.set_of(topic, *values, partition=partition, **options)),
            version=version,
        )[0]

    def send_sets(
        self, *sent: tuple[str, int, bytes], version: int = 11, **options: Any
    ) -> list[Any]:
        """Produce these in one request; the entries of the answer."""
        answer = self.asker.call(self.request(*sent, version=version, **options), version)
        return [entry for topic in answer.responses for entry in topic.partition_responses]

    def request(self, *sent: tuple[str, int, bytes], version: int = 11, **options: Any) -> Any:
        topics = self.broker.running.broker.topics.by_name
        named = [
            (topics[topic].topic_id if version >= PRODUCE_BY_ID else topic, index, data)
            for topic, index, data in sent
        ]
        options.setdefault("transactional_id", self.transactional_id)
        return produce_request(*named, **options)

    def fetch(self, topic: str, offset: int = 0, *, partition: int = 0, **options: Any) -> Any:
        """Committed records, unless told otherwise; the entry of the answer."""
        options.setdefault("isolation_level", READ_COMMITTED)
        version = options.pop("version", 11)
        request = fetch_request(Target(topic, offset, partition), **options)
        return self.asker.call(request, version).responses[0].partitions[0]

    def committed(self, topic: str, *, partition: int = 0) -> list[bytes | None]:
        """What a reader of committed records hands out."""
        found = self.fetch(topic, partition=partition)
        aborted = [(one.producer_id, one.first_offset) for one in found.aborted_transactions]
        return handed_out(bytes(found.records), aborted)

    def commit_offsets(
        self, group: str, offsets: dict[Place, int], *, version: int = 3, **more: Any
    ) -> dict[Place, int]:
        """TxnOffsetCommit by names; the code of each partition."""
        topic = TxnOffsetCommitRequest.Topic
        by_id = version >= 6
        topics = []
        for (name, index), offset in offsets.items():
            known = self.broker.running.broker.topics.by_name.get(name)
            entry = topic.Partition(
                partition_index=index, committed_offset=offset, committed_metadata=more.get("m", "")
            )
            topics.append(
                topic(
                    name="" if by_id else name,
                    topic_id=known.topic_id if by_id and known is not None else bytes(16),
                    partitions=[entry],
                )
            )
        more.pop("m", None)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=topics,
            **more,
        )
        answer = self.asker.call(request, version)
        codes = [entry.error_code for one in answer.topics for entry in one.partitions]
        return dict(zip(offsets, codes, strict=True))


def handed_out(records: bytes, aborted: Iterable[tuple[int, int]]) -> list[bytes | None]:
    """The values that a client hands out, told what was aborted: it drops the batches of that
    producer from the first offset on, until its next marker."""
    waiting = sorted(aborted, key=lambda one: one[1])
    dropped: set[int] = set()
    found: list[bytes | None] = []
    for position, size, _ in walk(memoryview(records)):
        one = Batch(memoryview(records)[position : position + size])
        while waiting and waiting[0][1] <= one.base_offset + one.last_offset_delta:
            dropped.add(waiting.pop(0)[0])
        if one.is_control:
            dropped.discard(one.producer_id)
        elif one.producer_id not in dropped or not one.attributes & TRANSACTIONAL_BIT:
            found += [record.value for record in one.records()]
    return found


def create_topic(broker: InProcessBroker, name: str, partitions: int = 1, **configs: str) -> None:
    overrides = {key.replace("_", "."): value for key, value in configs.items()}
    run_here(broker.running.broker.topics.create(name, partitions, overrides))


def partition_of(broker: InProcessBroker, topic: str, index: int = 0) -> Partition:
    found = broker.running.broker.topics.partition(topic, index)
    assert found is not None
    return found
