"""InitProducerId: a producer id for an idempotent producer, a new one every time.

The transaction timeout is not looked at without a transactional id: Java sends the largest int32.
Transactional ids are refused until there is a transaction coordinator. The code is one that no
client takes for a wrong permission, and that all but one take as final: Java 0.11 to 4.3, franz-go,
sarama, kafkajs, aiokafka, kafka-python. librdkafka asks again every 0.5 s for as long as the caller
lets it, unless the code is one of five; so whoever asks again is told the most harmless of these,
that no transaction is short enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker import logs
from broker.handlers.metadata_changes import changed
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request
    from storage.steps import Steps


def init_producer_id(request: Request, ctx: Context) -> Any:
    message: InitProducerIdRequest = request.message
    if message.transactional_id is not None:
        if not message.transactional_id:
            raise KafkaError("an empty transactional id", code=ErrorCode.INVALID_REQUEST)
        raise KafkaError(code=_no_transactions(message.transactional_id, request, ctx))
    if ctx.controller.store.has_producer_ids:
        return _new(ctx)
    return changed(_reserved(ctx), ctx)


def _new(ctx: Context) -> InitProducerIdResponse:
    producer_id = ctx.controller.store.next_producer_id()
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
    )


def _reserved(ctx: Context) -> Steps[InitProducerIdResponse]:
    """The answer when ids have been reserved. Raises KafkaError."""
    try:
        yield from ctx.controller.store.reservation()
    except OSError as error:
        ctx.failed("reserving producer ids", error)
        raise KafkaError(code=ErrorCode.COORDINATOR_NOT_AVAILABLE) from None
    return _new(ctx)


def _no_transactions(transactional_id: str, request: Request, ctx: Context) -> ErrorCode:
    """The code for this client, and the line of the log that says what it is about."""
    again, ctx.refused_transactions = ctx.refused_transactions, True
    logs.warn_once_a_minute(
        "transactional id refused",
        f"there are no transactions yet, and {request.client_id} asks for '{transactional_id}'",
        ctx.peer_host,
        client_id=request.client_id,
    )
    return ErrorCode.INVALID_TRANSACTION_TIMEOUT if again else ErrorCode.UNSUPPORTED_VERSION
