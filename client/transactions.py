"""A transactional producer: batches to many partitions and offsets of groups, all of them or none.

Two generations are spoken. Of the older one (Kafka 0.11 on) every partition and group is added to
the transaction before it is written to. Where the cluster has finalized `transaction.version` at 2
(Kafka 4, KIP-890) Produce and TxnOffsetCommit do that by themselves, and the producer's epoch grows
with each transaction.

Errors that are soon over are met with the same request, all others end the transaction's life:
whoever tries again begins anew, with `initialize`, which also ends what was left open.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple

from client import committing, producing
from client.committing import GROUP, TRANSACTION
from client.errors import ConnectionLost, Failure, Refused, Unreachable
from client.routing import RETRY_S, Again
from protocol.client import said
from protocol.errors import RETRIABLE, ErrorCode
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from protocol.messages.add_partitions_to_txn import Topic as AddedTopic
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from protocol.partitions import TopicPartition, by_topic
from protocol.records.builder import stamp_producer
from protocol.records.layout import HEADER, RECORD_COUNT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

    from client.committing import Committed
    from client.connection import Connection
    from client.producing import EntryBytes, Producing
    from client.routing import Router

TIMEOUT_MS = 60_000
"""The default of Kafka's producer: so long a transaction may stay open."""
IN_FLIGHT = 5
"""Batches of a partition without an answer. Of so many a broker knows each one that comes twice."""
IN_FLIGHT_BYTES = 16 << 20
"""The bytes of all that has no answer, unless a single batch is larger."""

FEATURE, ADDS_BY_ITSELF = "transaction.version", 2
# The last version of each request by which a client of the older generation is known.
OLD_PRODUCE, OLD_ADD_PARTITIONS, OLD_COMMIT, OLD_END = 11, 3, 4, 4
# The last with topics by name, and without the two-phase commits of KIP-939.
COMMIT_BY_NAME, ONE_PHASE = 5, 5

TAKEN_OVER = frozenset({
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
})  # fmt: skip
"""Said to a producer after which another one came, or whose transaction the broker has ended."""


class _Flight(NamedTuple):
    partition: TopicPartition
    batch: bytearray
    sent: Producing


class Prepared(NamedTuple):
    """A transaction that is written, and left for somebody else to end. Picklable."""

    transactional_id: str
    producer_id: int
    epoch: int


class TransactionalProducer:
    """The one producer of a transactional id, once it is initialized. For one thread.

        with TransactionalProducer(router, "copies-3", timeout_ms=60_000) as producer:
            producer.initialize()
            producer.send(place, batch)
            producer.send_offsets("copies", {place: Committed(8, "")})
            producer.commit()

    What is open when it is closed is aborted. All methods raise Refused, with the broker's `code`,
    Unreachable and NoSuchTopic; a transaction that has met any of them cannot be committed.
    """

    def __init__(
        self,
        router: Router,
        transactional_id: str,
        *,
        timeout_ms: int = TIMEOUT_MS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`timeout_ms` is how long the broker leaves a transaction open before it aborts it."""
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self._router = router
        self._clock = clock
        self._sleep = sleep
        self._coordinators: dict[tuple[str, int], Connection] = {}
        self._producer_id, self._epoch = -1, -1
        self._new_generation = False
        self._sequences: Counter[TopicPartition] = Counter()
        self._known_to: set[TopicPartition] = set()
        """Partitions that have a batch of this producer id."""
        self._in_flight: deque[_Flight] = deque()
        self._in_flight_of: Counter[TopicPartition] = Counter()
        self._in_flight_bytes = 0
        self._added: set[TopicPartition] = set()
        self._began: float | None = None
        self._failed = False
        self._resumed = False

    @property
    def open_s(self) -> float:
        """The seconds since the transaction's first request; 0 if there has been none."""
        return 0.0 if self._began is None else self._clock() - self._began

    def initialize(self) -> None:
        """Take the transactional id over: who had it before can write no more, and the transaction
        that it left open is ended. Waits for that end."""

        def attempt() -> None:
            connection = self._coordinator(self.transactional_id, TRANSACTION)
            request = InitProducerIdRequest(
                transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms
            )
            answer = connection.call(request, InitProducerIdResponse, newest=ONE_PHASE)
            self._check(answer.error_code)
            self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
            self._new_generation = connection.features.get(FEATURE, 0) >= ADDS_BY_ITSELF

        self._patiently(attempt)
        self._sequences.clear()
        self._known_to.clear()
        self._ended()

    def send(self, partition: TopicPartition, batch: EntryBytes) -> None:
        """Send a batch of format 2 without holes, as part of the transaction, and leave its answer
        for later. Its producer, and the checksum over that, are set; its records stay as they are,
        compressed or not."""
        self._begin()
        self._add(partition)
        data, records = self._stamped(partition, batch)
        self._sequences[partition] += records
        while self._in_flight and not self._may_send(partition, len(data)):
            self._take_answer()
        self._in_flight.append(self._sent(partition, data))
        self._in_flight_of[partition] += 1
        self._in_flight_bytes += len(data)

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Commit offsets for a group that has no members, as part of the transaction. The
        partitions must be there."""
        self._begin()
        if not self._new_generation:
            self._patiently(lambda: self._add_group(group))
        self._patiently(lambda: self._commit_offsets(group, offsets))

    def prepare(self) -> Prepared | None:
        """Wait for all answers, and leave the transaction open for `resume`, by another process
        too; None if it is empty. The broker still aborts it when its time is up."""
        self._expect_no_failure()
        while self._in_flight:
            self._take_answer()
        if self._began is None:
            return None
        self._ended()
        return Prepared(self.transactional_id, self._producer_id, self._epoch)

    def resume(self, prepared: Prepared) -> None:
        """Be the producer of a transaction that is written, to commit or abort it."""
        self._producer_id, self._epoch = prepared.producer_id, prepared.epoch
        self._resumed = True
        self._begin()

    def commit(self) -> None:
        """Wait for all answers, and make everything count. If that is Unreachable, only
        `initialize`, and what the group has then, tells whether it does."""
        self._expect_no_failure()
        while self._in_flight:
            self._take_answer()
        if self._began is not None:
            self._end(committed=True)

    def abort(self) -> None:
        """Let nothing of the transaction count."""
        while self._in_flight:
            # A batch that comes behind the end would be left open.
            producing.outcomes(self._in_flight.popleft().sent)
        if self._began is not None:
            self._end(committed=False)

    def close(self) -> None:
        """Abort what is open, as far as the broker lets us: else the next one does, or its end
        comes after `timeout_ms`."""
        with contextlib.suppress(Failure):
            self.abort()

    # The transaction.

    @property
    def _name(self) -> str:
        return f"the transaction of '{self.transactional_id}'"

    def _expect_no_failure(self) -> None:
        if self._failed:
            raise Refused(f"{self._name} has failed before: it can only be aborted")

    def _begin(self) -> None:
        self._expect_no_failure()
        if self._began is None:
            self._began = self._clock()
            connection = self._coordinator_patiently()
            self._new_generation = connection.features.get(FEATURE, 0) >= ADDS_BY_ITSELF

    def _ended(self) -> None:
        self._began = None
        self._failed = False
        self._added.clear()
        self._in_flight.clear()
        self._in_flight_of.clear()
        self._in_flight_bytes = 0

    def _end(self, *, committed: bool) -> None:
        newest = None if self._new_generation else OLD_END

        def attempt() -> None:
            request = EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                committed=committed,
            )
            connection = self._coordinator(self.transactional_id, TRANSACTION)
            answer = connection.call(request, EndTxnResponse, newest=newest)
            self._check(answer.error_code)
            if answer.producer_id >= 0:
                if answer.producer_id != self._producer_id:
                    self._known_to.clear()
                self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
                self._sequences.clear()

        self._patiently(attempt)
        self._ended()

    def _add(self, partition: TopicPartition) -> None:
        if partition in self._added:
            return
        if not self._new_generation:
            self._patiently(lambda: self._add_partition(partition))
        self._added.add(partition)

    def _add_partition(self, partition: TopicPartition) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[
                AddedTopic(name=partition.topic, partitions=[partition.partition])
            ],
        )
        connection = self._coordinator(self.transactional_id, TRANSACTION)
        answer = connection.call(request, AddPartitionsToTxnResponse, newest=OLD_ADD_PARTITIONS)
        for topic in answer.results_by_topic_v3_and_below:
            for entry in topic.results_by_partition:
                self._check(entry.partition_error_code, f", topic '{topic.name}'")

    def _add_group(self, group: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            group_id=group,
        )
        connection = self._coordinator(self.transactional_id, TRANSACTION)
        answer = connection.call(request, AddOffsetsToTxnResponse)
        self._check(answer.error_code, f", group '{group}'")

    def _commit_offsets(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        kind = TxnOffsetCommitRequest.Topic
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            generation_id_or_member_epoch=-1,
            topics=[
                kind(
                    name=topic,
                    partitions=[
                        kind.Partition(
                            partition_index=index,
                            committed_offset=offsets[TopicPartition(topic, index)].offset,
                            committed_metadata=offsets[TopicPartition(topic, index)].metadata,
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(offsets).items()
            ],
        )
        newest = COMMIT_BY_NAME if self._new_generation else OLD_COMMIT
        connection = self._coordinator(group, GROUP)
        answer = connection.call(request, TxnOffsetCommitResponse, newest=newest)
        for topic in answer.topics:
            for entry in topic.partitions:
                self._check(entry.error_code, f", topic '{topic.name}', group '{group}'")

    # Batches.

    def _may_send(self, partition: TopicPartition, size: int) -> bool:
        # Of a producer that it does not know a leader takes any sequence first: were the first
        # batch refused and the one behind it not, the first could not be stored any more.
        most = IN_FLIGHT if partition in self._known_to else 1
        return (
            self._in_flight_of[partition] < most and self._in_flight_bytes + size <= IN_FLIGHT_BYTES
        )

    def _stamped(self, partition: TopicPartition, batch: EntryBytes) -> tuple[bytearray, int]:
        """The batch as one of this producer, and how many records it has."""
        data = bytearray(batch)
        sequence = self._sequences[partition] & 0x7FFFFFFF
        stamp_producer(data, (self._producer_id, self._epoch, sequence), transactional=True)
        return data, HEADER.unpack_from(data)[RECORD_COUNT]

    def _sent(self, partition: TopicPartition, data: bytearray) -> _Flight:
        newest = None if self._new_generation else OLD_PRODUCE
        try:
            sent = self._router.patiently(
                lambda: producing.begin(
                    self._router,
                    partition,
                    [data],
                    magic=2,
                    transactional_id=self.transactional_id,
                    newest=newest,
                )
            )
        except BaseException:
            self._failed = True
            raise
        return _Flight(partition, data, sent)

    def _take_answer(self) -> None:
        """Wait for the oldest answer. What is not stored, and all behind it of its partition, is
        sent again: a broker knows by the sequences what it has."""
        oldest = self._in_flight.popleft()
        self._answered(oldest)
        why = self._not_stored(oldest)
        if why is None:
            return
        behind = [one for one in self._in_flight if one.partition == oldest.partition]
        others = [one for one in self._in_flight if one.partition != oldest.partition]
        self._in_flight = deque(others)
        self._answered(*behind)
        for one in behind:
            # Refused for its sequence where the one before it is missing, else there already.
            producing.outcomes(one.sent)
        for one in (oldest, *behind):
            self._send_again(one, why)

    def _answered(self, *flights: _Flight) -> None:
        for one in flights:
            self._in_flight_of[one.partition] -= 1
            self._in_flight_bytes -= len(one.batch)

    def _send_again(self, flight: _Flight, why: str) -> None:
        deadline = self._clock() + self._router.timeout_s
        while self._clock() < deadline:
            self._router.forget()
            self._sleep(RETRY_S)
            found = self._not_stored(self._sent(flight.partition, flight.batch))
            if found is None:
                return
            why = found
        self._failed = True
        raise Unreachable(f"{flight.partition}: a batch could not be written: {why}")

    def _not_stored(self, flight: _Flight) -> str | None:
        """Why it has to be sent again; None if it has not. Raises Refused for what no repetition
        helps against."""
        found, lost = producing.outcomes(flight.sent)
        if not found:
            return lost
        code = found[0].code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._known_to.add(flight.partition)
            return None
        if code in RETRIABLE or code in producing.MAYBE_STORED | producing.NOT_NOW:
            return said(code)
        self._failed = True
        if code in TAKEN_OVER:
            raise self._taken_over(code)
        raise producing.refusal(flight.partition, code, found[0].message)

    # Answers.

    def _patiently(self, attempt: Callable[[], None]) -> None:
        def fresh() -> None:
            try:
                attempt()
            except (Again, ConnectionLost):
                # It may be another broker's by now.
                self._coordinators.clear()
                raise

        try:
            self._router.patiently(fresh)
        except BaseException:
            self._failed = True
            raise

    def _coordinator(self, key: str, kind: int) -> Connection:
        known = self._coordinators.get((key, kind))
        if known is None or not known.usable:
            known = committing.coordinator(self._router, key, kind)
            self._coordinators[key, kind] = known
        if not known.offers(InitProducerIdRequest):
            raise Refused(
                f"{known.address} has no transactions: they came with Kafka 0.11",
                ErrorCode.UNSUPPORTED_VERSION,
            )
        return known

    def _coordinator_patiently(self) -> Connection:
        return self._router.patiently(lambda: self._coordinator(self.transactional_id, TRANSACTION))

    def _check(self, code: int, about: str = "") -> None:
        """Raises Refused, and Again for what may soon be over; `about` says what else the request
        was about."""
        if code == 0:
            return
        if code in TAKEN_OVER:
            raise self._taken_over(code)
        if code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise Refused(
                f"transactional id '{self.transactional_id}': the broker leaves no transaction "
                f"open for {self.timeout_ms / 1000:g} s: ask for less, or raise its "
                f"transaction.max.timeout.ms; {said(code)}",
                code,
            )
        raise committing.failed(f"transactional id '{self.transactional_id}'{about}", code)

    def _taken_over(self, code: int) -> Refused:
        if self._resumed:
            return Refused(
                f"{self._name} is not open any more: it took longer than "
                f"{self.timeout_ms / 1000:g} s, and the broker has aborted it, or a later attempt "
                f"has taken it over; {said(code)}",
                code,
            )
        if self.open_s * 1000 >= self.timeout_ms:
            return Refused(
                f"{self._name} was open for {self.open_s:.0f} s, and the broker aborts it after "
                f"{self.timeout_ms / 1000:g} s: let it have more time, or write less in it; "
                f"{said(code)}",
                code,
            )
        return Refused(
            f"transactional id '{self.transactional_id}' has been taken over: by a later attempt "
            f"of the same task, or by somebody else who uses it; {said(code)}",
            code,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
