"""UnregisterBroker: the metadata log forgets a broker that has gone for good.

A directory of Kafka may know others than this one. This one itself is refused, where Kafka would
forget it and serve nobody from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.metadata_changes import changed, make_change
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.metadata import UnregisterBrokerRecord
from protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from broker.metadata.changes import ChangeWait
    from protocol.connection import Request
    from storage.steps import Steps


def unregister_broker(request: Request, ctx: Context) -> ChangeWait:
    return changed(_answer(request, ctx), ctx)


def _answer(request: Request, ctx: Context) -> Steps[UnregisterBrokerResponse]:
    message: UnregisterBrokerRequest = request.message
    broker_id = message.broker_id
    registered = ctx.controller.image.brokers.get(broker_id)
    if broker_id == ctx.node_id:
        return UnregisterBrokerResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"Broker ID {broker_id} is this broker, which is running",
        )
    if registered is None:
        return UnregisterBrokerResponse(
            error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
            error_message=f"Broker ID {broker_id} is not currently registered",
        )
    record = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=registered.broker_epoch)
    try:
        yield from make_change("unregistering a broker", [record], ctx)
    except KafkaError as error:
        return UnregisterBrokerResponse(error_code=error.code, error_message=str(error))
    return UnregisterBrokerResponse(error_code=ErrorCode.NONE)
