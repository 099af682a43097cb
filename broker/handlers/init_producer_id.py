"""InitProducerId: a producer id for an idempotent producer, a new one every time, or id and epoch
of a transactional one, which fence every other instance of it.

The transaction timeout is not looked at without a transactional id: Java sends the largest int32.
An instance that comes while a transaction is open has it aborted, and is told to come again.

From version 3 on an instance that had an error says which id and epoch it has, and goes on if it
still is the last (KIP-360).

From version 6 on a producer may take part in a two-phase commit, where
transaction.two.phase.commit.enable is true, and an instance may keep a transaction that it finds
open, to end what the one before it had prepared: it is told that transaction's id and epoch besides
its own (KIP-939). Apache Kafka 4.3 offers this version behind a switch, and keeps none yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.coordinator.waits import GroupWait
from broker.pending import Durable, coordinator_not_available
from protocol.acls import Operation, ResourceType
from protocol.eras import INIT_PRODUCER_ID, code_for
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    refused,
)

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request

NONE = -1


def init_producer_id(request: Request, ctx: Context) -> Any:
    message: InitProducerIdRequest = request.message
    if (message.producer_id == NONE) != (message.producer_epoch == NONE):
        raise KafkaError("a producer id without an epoch", code=ErrorCode.INVALID_REQUEST)
    if message.transactional_id is not None:
        try:
            _require_right(message, message.transactional_id, ctx)
            return _transactional(request, message, message.transactional_id, ctx)
        except KafkaError as error:
            return refused(message, code_for(INIT_PRODUCER_ID, request.version, error.code))
    if not ctx.may_write_idempotently():
        raise KafkaError(code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=ctx.producer_ids.new(), producer_epoch=0
    )


def _require_right(message: InitProducerIdRequest, transactional_id: str, ctx: Context) -> None:
    ctx.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    if message.enable2_pc:
        ctx.require(Operation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, transactional_id)


def _transactional(
    request: Request, message: InitProducerIdRequest, transactional_id: str, ctx: Context
) -> Any:
    wait = GroupWait(request)

    def aborted(code: ErrorCode) -> None:
        wait.answer(refused(message, code_for(INIT_PRODUCER_ID, request.version, code)))

    begun = ctx.transactions.runtime.initialize(
        transactional_id,
        timeout_ms=message.transaction_timeout_ms,
        expected=_expected(message),
        aborted=aborted,
        two_phase=message.enable2_pc,
        keep=message.keep_prepared_txn,
    )
    if begun is None:
        return wait.result()
    partition, now = begun
    producer_id, epoch = now.client
    response = InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=epoch
    )
    if now.is_kept:
        response.ongoing_txn_producer_id = now.producer_id
        response.ongoing_txn_producer_epoch = now.epoch
    if ctx.settings.current.log_flush_policy != "ack":
        return response
    return Durable(response, [partition], coordinator_not_available)


def _expected(message: InitProducerIdRequest) -> tuple[int, int] | None:
    """The producer id and epoch that the instance has, if it says so."""
    if message.producer_id == NONE:
        return None
    return message.producer_id, message.producer_epoch
