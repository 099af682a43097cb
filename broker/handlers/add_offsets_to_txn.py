"""AddOffsetsToTxn: the partition with the offsets of a group becomes part of a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator.transactions.transaction import TV1
from broker.partitions.internal_topics import OFFSETS_TOPIC
from protocol.eras import ADD_OFFSETS_TO_TXN, code_for
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.offsets import shard_of
from protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    refused,
)

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request


def add_offsets_to_txn(request: Request, ctx: Context) -> AddOffsetsToTxnResponse:
    message: AddOffsetsToTxnRequest = request.message
    groups = ctx.groups.runtime
    groups.require_topic()
    try:
        ctx.transactions.runtime.add(
            message.transactional_id,
            message.producer_id,
            message.producer_epoch,
            [(OFFSETS_TOPIC, shard_of(message.group_id, len(groups.shards)))],
            client_version=TV1,
        )
    except KafkaError as error:
        return refused(message, code_for(ADD_OFFSETS_TO_TXN, request.version, error.code))
    return AddOffsetsToTxnResponse(error_code=ErrorCode.NONE)
