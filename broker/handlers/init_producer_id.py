"""InitProducerId: a producer id for an idempotent producer, a new one every time.

The transaction timeout is not looked at without a transactional id: Java sends the largest int32.
Transactional ids are refused until there is a transaction coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ErrorCode, KafkaError
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from broker.context import Context
    from protocol.connection import Request


def init_producer_id(request: Request, ctx: Context) -> InitProducerIdResponse:
    message: InitProducerIdRequest = request.message
    if message.transactional_id is not None:
        if not message.transactional_id:
            raise KafkaError("an empty transactional id", code=ErrorCode.INVALID_REQUEST)
        raise KafkaError(
            "transactions are not served", code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        )
    try:
        producer_id = ctx.broker.controller.store.next_producer_id()
    except OSError as error:
        ctx.failed("reserving producer ids", error)
        raise KafkaError(code=ErrorCode.COORDINATOR_NOT_AVAILABLE) from None
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
    )
