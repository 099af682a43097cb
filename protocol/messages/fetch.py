"""Fetch (1): a consumer reads records, waiting for them if need be.

0   message sets of format 0, cut off at the size asked for
1   throttle time in the answer
2   message sets of format 1
3   a size for the whole answer; partitions are filled in the order asked, the first one always
4   batches of format 2; isolation levels and aborted transactions
5   the answer tells where the log starts
6   KAFKA_STORAGE_ERROR may be answered
7   fetch sessions: only what changed is asked and answered; an error for the whole request
8   a throttled client waits by itself
9   the client's idea of the leader epoch is checked
10  zstd may be sent
11  the client's rack; the answer may prefer another replica
12  flexible; the answer tells where the client's log diverges
13  topics go by id only
14  tiered storage may answer OFFSET_MOVED_TO_TIERED_STORAGE to a follower
15  the follower's id moves into a tagged struct, with its epoch
16  the addresses of leaders that are named
17  the directory of a follower's replica
18  the follower's high watermark
"""

from __future__ import annotations

from typing import Any

from protocol.schema import (
    ZERO_UUID,
    Message,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uuid,
)


class FetchRequest(Message, key=1, versions="0-18", flexible="12+"):
    class ReplicaState(Struct):
        replica_id: int = int32(default=-1)
        replica_epoch: int = int64(default=-1)

    class Topic(Struct):
        class Partition(Struct):
            partition: int = int32()
            current_leader_epoch: int = int32("9+", default=-1)
            fetch_offset: int = int64()
            # -1 when the client does not know.
            last_fetched_epoch: int = int32("12+", default=-1)
            log_start_offset: int = int64("5+", default=-1)
            partition_max_bytes: int = int32()
            replica_directory_id: bytes = uuid("17+", tag=0, default=ZERO_UUID)
            high_watermark: int = int64("18+", tag=1, default=9223372036854775807)

        topic_id: bytes = uuid("13+", default=ZERO_UUID)
        topic: str = string("0-12", default="")
        partitions: list[Partition] = array(Partition)

    class ForgottenTopic(Struct):
        topic_id: bytes = uuid("13+", default=ZERO_UUID)
        topic: str = string("7-12", default="")
        partitions: list[int] = array(int32)

    # -1 a consumer, -2 a consumer that debugs, otherwise a follower.
    replica_id: int = int32("0-14", default=-1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32("3+", default=2147483647)
    isolation_level: int = int8("4+", default=0)
    session_id: int = int32("7+", default=0)
    session_epoch: int = int32("7+", default=-1)
    topics: list[Topic] = array(Topic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+", default=())
    rack_id: str = string("11+", default="")
    cluster_id: str | None = string("12+", nullable="12+", tag=0, default=None)
    # Absent for a consumer.
    replica_state: ReplicaState = struct(ReplicaState, "15+", tag=1, default=())


class FetchResponse(Message, key=1, versions="0-18", flexible="12+"):
    class Topic(Struct):
        class Partition(Struct):
            class EpochEndOffset(Struct):
                epoch: int = int32(default=-1)
                end_offset: int = int64(default=-1)

            class LeaderIdAndEpoch(Struct):
                leader_id: int = int32(default=-1)
                leader_epoch: int = int32(default=-1)

            class SnapshotId(Struct):
                end_offset: int = int64(default=-1)
                epoch: int = int32(default=-1)

            class AbortedTransaction(Struct):
                producer_id: int = int64()
                first_offset: int = int64()

            partition_index: int = int32()
            error_code: int = int16()
            high_watermark: int = int64()
            last_stable_offset: int = int64("4+", default=-1)
            log_start_offset: int = int64("5+", default=-1)
            # Null, not empty, unless the isolation level is read_committed.
            aborted_transactions: list[AbortedTransaction] | None = array(
                AbortedTransaction, "4+", nullable="4+", default=()
            )
            preferred_read_replica: int = int32("11+", default=-1)
            # Bytes, or a slice of a file to be sent unread. The first batch may begin before the
            # offset asked for.
            records: Any = records(nullable="")
            diverging_epoch: EpochEndOffset = struct(EpochEndOffset, "12+", tag=0, default=())
            current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "12+", tag=1, default=())
            snapshot_id: SnapshotId = struct(SnapshotId, "12+", tag=2, default=())

        topic_id: bytes = uuid("13+", default=ZERO_UUID)
        topic: str = string("0-12", default="")
        partitions: list[Partition] = array(Partition)

    class NodeEndpoint(Struct):
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(nullable="", default=None)

    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16("7+", default=0)
    session_id: int = int32("7+", default=0)
    responses: list[Topic] = array(Topic)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0, default=())


def refused(request: FetchRequest, code: int) -> FetchResponse:
    """The answer in which the request and every partition in it meet the same error.

    Before version 7 there is no place for an error of the whole request, so it is said
    for each partition; an incremental fetch may name no partition at all, so it is said
    for the whole as well.
    """
    topic = FetchResponse.Topic
    return FetchResponse(
        error_code=code,
        responses=[
            topic(
                topic_id=asked.topic_id,
                topic=asked.topic,
                partitions=[
                    topic.Partition(
                        partition_index=p.partition,
                        error_code=code,
                        high_watermark=-1,
                        aborted_transactions=None,
                        records=b"",
                    )
                    for p in asked.partitions
                ],
            )
            for asked in request.topics
        ],
    )
