"""InitProducerId (22): an id and an epoch for a producer, so that retries can be told apart.

0  a new id, or the next epoch of a transactional id
1  a throttled client waits by itself
2  flexible
3  the producer says which id and epoch it has, to have the epoch raised
4  PRODUCER_FENCED may be answered
5  TRANSACTION_ABORTABLE may be answered
6  two-phase commit (KIP-939); Kafka 4.3 offers it where unstable.api.versions.enable is set
"""

from __future__ import annotations

from protocol.schema import Message, boolean, int16, int32, int64, string


class InitProducerIdRequest(Message, key=22, versions="0-6", flexible="2+"):
    transactional_id: str | None = string(nullable="")
    # Without meaning, and often the largest int32, when the transactional id is null.
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    # The transactions of this producer have no time-out.
    enable2_pc: bool = boolean("6+", default=False)
    # A transaction that is open stays open, for this instance to end.
    keep_prepared_txn: bool = boolean("6+", default=False)


class InitProducerIdResponse(Message, key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    # Those of the transaction that was kept, -1 where none is open.
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)


def refused(request: InitProducerIdRequest, code: int) -> InitProducerIdResponse:
    """An answer of an error and no producer id."""
    return InitProducerIdResponse(error_code=code, producer_epoch=-1)
