"""A producer of which no batch is stored twice, whatever has to be sent again (KIP-98).

The broker gives it an id, and the batches of a partition are numbered: one that comes again is
known by that. It takes record format 2, and so Kafka 0.11.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from client import committing, producing
from client.errors import Failure, Refused
from client.producing import ProduceUnknown
from client.routing import RETRY_S
from client.transactions import ONE_PHASE
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.records.builder import NO_PRODUCER, stamp_producer
from protocol.records.layout import HEADER, RECORD_COUNT

if TYPE_CHECKING:
    from client.producing import Producing
    from client.routing import Router
    from protocol.partitions import TopicPartition

NUMBERED_FORMAT = 2
SEQUENCE_MASK = 0x7FFF_FFFF
FORGOTTEN = frozenset({
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
})  # fmt: skip
"""Said of a batch that is not stored, to a producer that was silent for longer than a broker
remembers one."""


class Flight(NamedTuple):
    """A batch on its way; `producer` is the id, epoch and sequence that it has."""

    partition: TopicPartition
    batch: bytearray
    magic: int
    producer: tuple[int, int, int]
    sent: Producing


class IdempotentProducer:
    """Writes to all replicas, one batch of a partition at a time. For one thread.

        flight = producer.begin(place, batch, magic=2)
        base_offset = producer.finish(flight)

    Batches go without numbers in formats 0 and 1, to topics that store these, and for a user to
    whom the broker gives no id (before Kafka 2.8 that is a right of its own, IdempotentWrite).
    """

    def __init__(self, router: Router) -> None:
        self._router = router
        self._new: tuple[int, int, int] | None = None
        """Of a partition to which nothing is sent yet; None before an id is asked for."""
        self._next: dict[TopicPartition, tuple[int, int, int]] = {}
        """The producer of the next batch of each partition: id, epoch and sequence."""

    def begin(self, partition: TopicPartition, batch: bytearray, *, magic: int) -> Flight:
        """Send a batch, in which its number is set, and leave the answer to `finish`.

        Raises Refused, Unreachable, NoSuchTopic.
        """
        producer = NO_PRODUCER
        if magic == NUMBERED_FORMAT:
            if self._new is None:
                self._new = self._router.patiently(self._given)
            producer = self._next.setdefault(partition, self._new)
            stamp_producer(batch, producer)
        return Flight(partition, batch, magic, producer, self._sent(partition, batch, magic))

    def finish(self, flight: Flight) -> int:
        """Wait until the batch is stored: the offset of its first record, -1 where the broker tells
        no more than that it has the batch.

        Sends it again for the timeout after the first failure: without a number only what is
        certainly not stored. Raises what `begin` does, and ProduceUnknown.
        """
        deadline = 0.0
        unknown: ProduceUnknown | None = None
        while True:
            try:
                return self._stored(flight, producing.finish(flight.sent))
            except Refused as refused:
                if refused.code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    return self._stored(flight, -1)
                if unknown is not None:
                    raise unknown from None
                flight = self._begun_anew(flight, refused)
                continue
            except ProduceUnknown as error:
                if not error.may_send_rest:
                    unknown = error
                now = time.monotonic()
                deadline = deadline or now + self._router.timeout_s
                if now > deadline or (unknown is not None and flight.producer == NO_PRODUCER):
                    raise unknown or error.in_the_end() from None
            self._router.forget()
            time.sleep(RETRY_S)
            try:
                sent = self._sent(flight.partition, flight.batch, flight.magic)
            except Failure:
                if unknown is not None:
                    raise unknown from None
                raise
            flight = flight._replace(sent=sent)

    def _begun_anew(self, flight: Flight, refused: Refused) -> Flight:
        """The batch sent with another number, or without, if that is what it was refused for; if
        not, raises the refusal."""
        *_, sequence = flight.producer
        if refused.code in FORGOTTEN and sequence > 0:
            producer = self._router.patiently(self._given)
        elif refused.code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT and sequence >= 0:
            producer = NO_PRODUCER
        else:
            raise refused
        self._next[flight.partition] = producer
        return self.begin(flight.partition, flight.batch, magic=flight.magic)

    def _stored(self, flight: Flight, base_offset: int) -> int:
        producer_id, epoch, sequence = flight.producer
        if sequence >= 0:
            sequence += HEADER.unpack_from(flight.batch)[RECORD_COUNT]
            self._next[flight.partition] = producer_id, epoch, sequence & SEQUENCE_MASK
        return base_offset

    def _sent(self, partition: TopicPartition, batch: bytearray, magic: int) -> Producing:
        return self._router.patiently(
            lambda: producing.begin(self._router, partition, [batch], magic=magic)
        )

    def _given(self) -> tuple[int, int, int]:
        """A new producer id, with its first sequence. Raises Refused, Again, ConnectionLost."""
        connection = self._router.any()
        if not connection.offers(InitProducerIdRequest):
            return NO_PRODUCER
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=SEQUENCE_MASK)
        answer = connection.call(request, InitProducerIdResponse, newest=ONE_PHASE)
        if answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return NO_PRODUCER
        if answer.error_code:
            raise committing.failed(f"a producer id of {connection.address}", answer.error_code)
        return answer.producer_id, answer.producer_epoch, 0
