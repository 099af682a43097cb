"""EndTxn: a transaction is committed or aborted.

The answer comes when the decision is on the disk, and nothing else is handled before the markers
are written, so that a client that reads what it has committed finds it. From version 5 on the epoch
grows with each end, and the answer says which one the next transaction has (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.coordinator.transactions.transaction import TV1, TV2
from broker.coordinator.waits import GroupWait
from protocol.eras import END_TXN, code_for
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse, refused

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request

EPOCH_GROWS_SINCE = 5


def end_txn(request: Request, ctx: Context) -> Any:
    message: EndTxnRequest = request.message
    version = request.version
    wait = GroupWait(request)

    def done(code: ErrorCode, producer_id: int, epoch: int) -> None:
        if code is ErrorCode.NONE:
            wait.answer(
                EndTxnResponse(error_code=code, producer_id=producer_id, producer_epoch=epoch)
            )
        else:
            wait.answer(refused(message, code_for(END_TXN, version, code)))

    try:
        ctx.transactions.runtime.end(
            message.transactional_id,
            message.producer_id,
            message.producer_epoch,
            commit=message.committed,
            client_version=TV2 if version >= EPOCH_GROWS_SINCE else TV1,
            done=done,
        )
    except KafkaError as error:
        return refused(message, code_for(END_TXN, version, error.code))
    return wait.result()
