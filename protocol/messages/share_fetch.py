"""ShareFetch (78): a member of a share group takes records for a while, and says what became of
those it had (KIP-932).

0  an early form of Kafka 4.0; not served
1  the first
2  how records are acquired; keeping records for longer
"""

from __future__ import annotations

from typing import Any

from protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uuid,
)


class ShareFetchRequest(Message, key=78, versions="1-2", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            class AcknowledgementBatch(Struct):
                first_offset: int = int64()
                last_offset: int = int64()
                # For each offset, or one for all: 0 gap, 1 accept, 2 release, 3 reject, 4 renew.
                acknowledge_types: list[int] = array(int8)

            partition_index: int = int32()
            acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)

        topic_id: bytes = uuid()
        partitions: list[Partition] = array(Partition)

    class ForgottenTopic(Struct):
        topic_id: bytes = uuid()
        partitions: list[int] = array(int32)

    group_id: str | None = string(nullable="", default=None)
    member_id: str | None = string(nullable="")
    share_session_epoch: int = int32()
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2147483647)
    max_records: int = int32()
    batch_size: int = int32()
    share_acquire_mode: int = int8("2+", default=0)
    is_renew_ack: bool = boolean("2+", default=False)
    topics: list[Topic] = array(Topic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic)


class ShareFetchResponse(Message, key=78, versions="1-2", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            class LeaderIdAndEpoch(Struct):
                leader_id: int = int32()
                leader_epoch: int = int32()

            class AcquiredRecords(Struct):
                first_offset: int = int64()
                last_offset: int = int64()
                delivery_count: int = int16()

            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="", default=None)
            acknowledge_error_code: int = int16()
            acknowledge_error_message: str | None = string(nullable="", default=None)
            current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch)
            # Bytes, or a slice of a file to be sent unread.
            records: Any = records()
            acquired_records: list[AcquiredRecords] = array(AcquiredRecords)

        topic_id: bytes = uuid()
        partitions: list[Partition] = array(Partition)

    class NodeEndpoint(Struct):
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(nullable="", default=None)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="", default=None)
    acquisition_lock_timeout_ms: int = int32()
    responses: list[Topic] = array(Topic)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)


def refused(request: ShareFetchRequest, code: int) -> ShareFetchResponse:
    """An answer of an error and nothing else."""
    return ShareFetchResponse(
        error_code=code, acquisition_lock_timeout_ms=0, responses=[], node_endpoints=[]
    )
