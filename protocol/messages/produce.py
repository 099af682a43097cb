"""Produce (0): a producer appends records.

0   message sets of format 0; the answer tells the base offset only
1   throttle time in the answer
2   message sets of format 1; the answer tells the append time of topics that stamp it
3   exactly one batch of format 2 for each partition; transactional ids
4   KAFKA_STORAGE_ERROR may be answered
5   the answer tells where the log starts
6   a throttled client waits by itself, after an answer that was not held back
7   zstd is allowed
8   the answer can name the records that were refused, and why
9   flexible
10  an answer of NOT_LEADER_OR_FOLLOWER names the new leader and its address
11  TRANSACTION_ABORTABLE may be answered
12  a partition joins its transaction by being written to (KIP-890)
13  topics go by id only
"""

from __future__ import annotations

from protocol.schema import (
    ZERO_UUID,
    Message,
    Struct,
    array,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uuid,
)


class ProduceRequest(Message, key=0, versions="0-13", flexible="9+"):
    class Topic(Struct):
        class Partition(Struct):
            index: int = int32()
            records: memoryview | None = records(nullable="")

        topic_id: bytes = uuid("13+", default=ZERO_UUID)
        name: str = string("0-12", default="")
        partition_data: list[Partition] = array(Partition)

    transactional_id: str | None = string("3+", nullable="3+", default=None)
    # -1 all, 0 no answer at all, 1 written by the leader.
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[Topic] = array(Topic)


class ProduceResponse(Message, key=0, versions="0-13", flexible="9+"):
    class Topic(Struct):
        class Partition(Struct):
            class RecordError(Struct):
                batch_index: int = int32()
                batch_index_error_message: str | None = string(nullable="", default=None)

            class LeaderIdAndEpoch(Struct):
                leader_id: int = int32(default=-1)
                leader_epoch: int = int32(default=-1)

            index: int = int32()
            error_code: int = int16()
            # -1 with an error, and for an empty set in versions 0 to 2.
            base_offset: int = int64()
            # -1 unless the topic stamps records with the time of their append.
            log_append_time_ms: int = int64("2+", default=-1)
            log_start_offset: int = int64("5+", default=-1)
            record_errors: list[RecordError] = array(RecordError, "8+", default=())
            error_message: str | None = string("8+", nullable="8+", default=None)
            current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "10+", tag=0, default=())

        topic_id: bytes = uuid("13+", default=ZERO_UUID)
        name: str = string("0-12", default="")
        partition_responses: list[Partition] = array(Partition)

    class NodeEndpoint(Struct):
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(nullable="", default=None)

    responses: list[Topic] = array(Topic)
    # Last but for the tags; in nearly every other response it comes first.
    throttle_time_ms: int = int32("1+", default=0)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0, default=())


def refused(request: ProduceRequest, code: int) -> ProduceResponse:
    """The answer in which every partition written to meets the same error."""
    topic = ProduceResponse.Topic
    return ProduceResponse(
        responses=[
            topic(
                topic_id=asked.topic_id,
                name=asked.name,
                partition_responses=[
                    topic.Partition(index=p.index, error_code=code, base_offset=-1)
                    for p in asked.partition_data
                ],
            )
            for asked in request.topic_data
        ]
    )
