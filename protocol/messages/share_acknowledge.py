"""ShareAcknowledge (79): what became of records that a member of a share group took (KIP-932).

0  an early form of Kafka 4.0; not served
1  the first
2  keeping records for longer
"""

from __future__ import annotations

from protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uuid,
)


class ShareAcknowledgeRequest(Message, key=79, versions="1-2", flexible="0+"):
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

    group_id: str | None = string(nullable="", default=None)
    member_id: str | None = string(nullable="")
    share_session_epoch: int = int32()
    is_renew_ack: bool = boolean("2+", default=False)
    topics: list[Topic] = array(Topic)


class ShareAcknowledgeResponse(Message, key=79, versions="1-2", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            class LeaderIdAndEpoch(Struct):
                leader_id: int = int32()
                leader_epoch: int = int32()

            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="", default=None)
            current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch)

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
    acquisition_lock_timeout_ms: int = int32("2+", default=0)
    responses: list[Topic] = array(Topic)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)


def refused(request: ShareAcknowledgeRequest, code: int) -> ShareAcknowledgeResponse:
    """An answer of an error and nothing else."""
    return ShareAcknowledgeResponse(error_code=code, responses=[], node_endpoints=[])
