"""TxnOffsetCommit: offsets that are shown when their transaction is committed, to nobody before.

Versions 0 to 6. The coordinator of the transaction is asked first, whether the offsets partition of
the group belongs to it; from v5 on it is added by this (KIP-890). Generation, member and instance
are checked from v3 on (KIP-447). What can be stored is stored as one batch, and is on the disk
before the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.handlers.offset_commit import metadata_length
from broker.partitions.internal_topics import OFFSETS_TOPIC
from broker.pending import Durable
from protocol.acls import Operation, ResourceType
from protocol.eras import TXN_OFFSET_COMMIT, code_for
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    refused,
)

if TYPE_CHECKING:
    from collections.abc import Container

    from broker.coordinator.shard import Shard
    from broker.handlers.context import Context
    from protocol.connection import Request
    from protocol.logdata.commits import Entry
    from storage.log import Log

ADDED_SINCE = 5
"""The first version that joins the transaction by itself (transaction.version 2)."""
TOPIC_IDS_SINCE = 6

Answered = TxnOffsetCommitResponse.Topic

COORDINATOR_CODES = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""What a code of the transaction's coordinator is here; both are retriable, or lead to an abort."""


def txn_offset_commit(request: Request, ctx: Context) -> Any:
    message: TxnOffsetCommitRequest = request.message
    accepted: list[Entry] = []
    answered: list[Answered] = []
    try:
        if not message.group_id:
            raise KafkaError("a group needs an id", code=ErrorCode.INVALID_GROUP_ID)
        answered = _sort_out(message, request.version, ctx, accepted)
        if not any(_is_known(entry.error_code) for one in answered for entry in one.partitions):
            return TxnOffsetCommitResponse(topics=answered)
        shard = ctx.groups.shard(message.group_id)
        _join(message, request.version, shard, ctx)
        ctx.offsets.check_transactional(shard, message)
        if accepted:
            ctx.offsets.commit(
                shard,
                message.group_id,
                accepted,
                now_ms=ctx.now_ms,
                producer=(message.producer_id, message.producer_epoch),
            )
    except KafkaError as error:
        ctx.refused_commit(message.group_id, error, client_id=request.client_id)
        return _refused_but_closed(request, error.code, answered)
    response = TxnOffsetCommitResponse(topics=answered)
    if shard.is_durable:
        return response
    return Durable(response, [shard.partition], _not_synced)


def _is_known(code: int) -> bool:
    return code not in (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    )


def _join(message: TxnOffsetCommitRequest, version: int, shard: Shard, ctx: Context) -> None:
    """Raises KafkaError unless the offsets partition is part of the transaction."""
    adds = version >= ADDED_SINCE
    if not adds and not ctx.settings.current.transaction_partition_verification_enable:
        return
    who = message.transactional_id, message.producer_id, message.producer_epoch
    places = [(OFFSETS_TOPIC, shard.partition.index)]
    ctx.transactions.ask_first(*who, places, add=adds)
    try:
        ctx.transactions.verify(*who, places, add=adds)
    except KafkaError as error:
        raise KafkaError(str(error), code=COORDINATOR_CODES.get(error.code, error.code)) from error


def _sort_out(
    message: TxnOffsetCommitRequest, version: int, ctx: Context, accepted: list[Entry]
) -> list[Answered]:
    """The answer; what may be committed is added to `accepted`."""
    topics = ctx.topics
    by_id = version >= TOPIC_IDS_SINCE
    metadata_max = ctx.settings.current.offset_metadata_max_bytes
    answered = []
    for asked in message.topics:
        topic = topics.by_id.get(asked.topic_id) if by_id else topics.by_name.get(asked.name)
        count = 0 if topic is None else len(topic.partitions)
        name = topic.name if topic is not None else asked.name
        allowed = not name or ctx.allows(Operation.READ, ResourceType.TOPIC, name)
        entries = []
        for one in asked.partitions:
            index, metadata = one.partition_index, one.committed_metadata
            code = ErrorCode.NONE
            if not allowed:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif topic is None or not 0 <= index < count:
                code = (
                    ErrorCode.UNKNOWN_TOPIC_ID
                    if by_id and topic is None
                    else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
            elif metadata and metadata_length(metadata) > metadata_max:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                accepted.append(
                    (topic.name, index, one.committed_offset, one.committed_leader_epoch,
                     metadata, -1)
                )  # fmt: skip
            entries.append(Answered.Partition(partition_index=index, error_code=code))
        answered.append(Answered(topic_id=asked.topic_id, name=asked.name, partitions=entries))
    return answered


def _refused(request: Request, code: int) -> TxnOffsetCommitResponse:
    return refused(request.message, code_for(TXN_OFFSET_COMMIT, request.version, code))


def _refused_but_closed(
    request: Request, code: int, answered: list[Answered]
) -> TxnOffsetCommitResponse:
    """Topics that the client may not read keep their own code."""
    response = _refused(request, code)
    for told, found in zip(response.topics, answered, strict=False):
        for entry, own in zip(told.partitions, found.partitions, strict=True):
            if own.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                entry.error_code = own.error_code
    return response


def _not_synced(
    request: Request, durable: Durable, failed: Container[Log]
) -> TxnOffsetCommitResponse:
    return _refused(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
