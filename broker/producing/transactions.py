"""Transactional batches in Produce: whether the coordinator knows them as part of a transaction.

A batch of a transaction that its coordinator knows nothing of would stay open in the log for good,
and hold back all readers of committed records. So no such batch is appended: the coordinator is
asked right before each append, on the loop, when nothing can come between (KIP-890). Producers of
Produce v12 and later leave it to this question to have the partition added.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from protocol.errors import ErrorCode, KafkaError
from protocol.records.layout import (
    ATTRIBUTES_POSITION,
    BASE_SEQUENCE,
    HEADER,
    HEADER_SIZE,
    MAGIC_POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL_BIT,
)
from storage.errors import OutOfOrderSequence

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from broker.partitions.topic import Partition
    from protocol.messages.produce import ProduceRequest
    from protocol.records.layout import Header
    from protocol.single_produce import SingleProduce

ADDED_BY_PRODUCE_SINCE = 12
"""The first version whose batches join the transaction by themselves (transaction.version 2)."""

Place = tuple[str, int]
"""Topic and partition."""

UNKNOWN_FOR_NOW = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Codes of a coordinator that Produce cannot have. A producer sends the batch again for
NOT_ENOUGH_REPLICAS, without looking for another leader."""


class Coordinator(Protocol):
    """The coordinator of transactions, as far as partitions and groups ask it."""

    def includes(
        self, transactional_id: str, producer_id: int, epoch: int, partition: Place
    ) -> bool:
        """Whether this partition is known to belong to the open transaction of this producer. If it
        is not, `verify` says why, or makes it so."""

    def ask_first(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Iterable[Place],
        *,
        add: bool,
    ) -> None:
        """See that `verify` can be answered. Raises AskedFirst where another process has to be
        asked."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[Place],
        *,
        add: bool,
    ) -> None:
        """Whether these partitions belong to the open transaction of this producer; with `add`
        they are made so. Raises KafkaError with the coordinator's code."""


class ProduceTransaction:
    """The transaction that the transactional batches of one Produce request belong to."""

    __slots__ = ("_adds", "_coordinator", "_transactional_id", "_verifies")

    def __init__(
        self, coordinator: Coordinator, transactional_id: str, *, adds: bool, verifies: bool
    ) -> None:
        """`adds`: the batches join the transaction. If not, `verifies` says whether the coordinator
        is asked (transaction.partition.verification.enable)."""
        self._coordinator = coordinator
        self._transactional_id = transactional_id
        self._adds = adds
        self._verifies = verifies

    def ask_first(self, places: Iterable[Place], producer: tuple[int, int]) -> None:
        """See that batches can be admitted to these partitions, before any is appended. `producer`
        is its id and epoch. Raises AskedFirst."""
        if self._adds or self._verifies:
            self._coordinator.ask_first(self._transactional_id, *producer, places, add=self._adds)

    def add_all(self, places: Sequence[Place], producer: tuple[int, int]) -> None:
        """Have several partitions join with one change of the coordinator's state. If they may
        not, each is told so when it is admitted. `producer` is its id and epoch."""
        if self._adds and len(places) > 1:
            with suppress(KafkaError):
                self._coordinator.verify(self._transactional_id, *producer, places, add=True)

    def admit(self, partition: Partition, header: Header) -> None:
        """Let a batch into its partition. Raises KafkaError with a code of Produce's, or that of a
        partition which is not served here.

        A batch that is in the log already is asked for like any other: after a loss of power it may
        be there, and the coordinator not know of it.
        """
        adds = self._adds
        if not adds and not self._verifies:
            return
        partition.log.require_available()  # a producer would look for no other leader
        place = (partition.topic.name, partition.index)
        producer_id, epoch = header[PRODUCER_ID], header[PRODUCER_EPOCH]
        transactional_id, coordinator = self._transactional_id, self._coordinator
        if not coordinator.includes(transactional_id, producer_id, epoch, place):
            try:
                coordinator.verify(transactional_id, producer_id, epoch, [place], add=adds)
            except KafkaError as error:
                raise self._translated(error) from None
        if adds and header[BASE_SEQUENCE] and producer_id not in partition.log.producers:
            # The epoch is of this transaction alone: nothing of it can have been forgotten.
            raise OutOfOrderSequence(
                f"producer {producer_id} begins a transaction with sequence "
                f"{header[BASE_SEQUENCE]}, not 0"
            )

    def _translated(self, error: KafkaError) -> KafkaError:
        """The error for the producer when its coordinator says this."""
        code = error.code
        if code in UNKNOWN_FOR_NOW or (
            code == ErrorCode.CONCURRENT_TRANSACTIONS and not self._adds
        ):
            return KafkaError(
                f"the coordinator cannot say yet whether the partition is in the transaction of "
                f"'{self._transactional_id}': {code.name}",
                code=ErrorCode.NOT_ENOUGH_REPLICAS,
            )
        if code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE):
            return KafkaError(
                f"the partition is not in the transaction of '{self._transactional_id}'", code=code
            )
        if code == ErrorCode.PRODUCER_FENCED:
            # Which would be fatal; for this the producer aborts and goes on.
            return KafkaError(str(error), code=ErrorCode.INVALID_PRODUCER_EPOCH)
        return error


def single_transaction(
    message: SingleProduce, version: int, coordinator: Coordinator, *, verifies: bool
) -> ProduceTransaction | None:
    """The same as `transaction_of` for the commonest shape of requests. A transactional batch
    without a transactional id is refused when it is looked at."""
    if message.transactional_id is None or not _is_transactional(message.records):
        return None
    adds = version >= ADDED_BY_PRODUCE_SINCE
    return ProduceTransaction(coordinator, message.transactional_id, adds=adds, verifies=verifies)


def transaction_of(
    message: ProduceRequest, version: int, coordinator: Coordinator, *, verifies: bool
) -> ProduceTransaction | None:
    """The transaction of a request; None if there are no transactional batches in it.

    Raises KafkaError for the whole request: TRANSACTIONAL_ID_AUTHORIZATION_FAILED if they come
    without a transactional id, INVALID_PRODUCER_ID_MAPPING if they are of several producers.
    """
    producer: tuple[int, int] | None = None
    for topic in message.topic_data:
        for sent in topic.partition_data:
            found = transactional_producer(sent.records)
            if found is None:
                continue
            if message.transactional_id is None:
                raise no_transactional_id()
            if producer not in (None, found):
                raise KafkaError(
                    "transactional batches of several producers",
                    code=ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                )
            producer = found
    if producer is None:
        return None
    assert message.transactional_id is not None
    adds = version >= ADDED_BY_PRODUCE_SINCE
    return ProduceTransaction(coordinator, message.transactional_id, adds=adds, verifies=verifies)


def transactional_producer(records: memoryview | None) -> tuple[int, int] | None:
    """Id and epoch of the producer of a set that begins with a transactional batch; None for
    others. Nothing of the set has been checked."""
    if records is None or not _is_transactional(records):
        return None
    header = HEADER.unpack_from(records)
    return header[PRODUCER_ID], header[PRODUCER_EPOCH]


def _is_transactional(records: memoryview) -> bool:
    """Whether a set begins with a transactional batch. Nothing of it has been checked."""
    return (
        len(records) >= HEADER_SIZE
        and records[MAGIC_POSITION] == 2
        and bool(records[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_BIT)
    )


def no_transactional_id() -> KafkaError:
    """The error for a transactional batch in a request without a transactional id."""
    return KafkaError(
        "a transactional batch in a request without a transactional id",
        code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )
