"""TxnOffsetCommit (28): offsets that count if the transaction is committed.

0  the first
1  a throttled client waits by itself
2  leader epochs
3  flexible; generation and member are checked
4  TRANSACTION_ABORTABLE may be answered
5  does the work of AddOffsetsToTxn by itself (KIP-890)
6  topics go by id only
"""

from __future__ import annotations

from protocol.schema import ZERO_UUID, Message, Struct, array, int16, int32, int64, string, uuid


class TxnOffsetCommitRequest(Message, key=28, versions="0-6", flexible="3+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            committed_offset: int = int64()
            committed_leader_epoch: int = int32("2+", default=-1)
            committed_metadata: str | None = string(nullable="")

        topic_id: bytes = uuid("6+", default=ZERO_UUID)
        name: str = string("0-5", default="")
        partitions: list[Partition] = array(Partition)

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    # -1 for a commit by no member of the group.
    generation_id_or_member_epoch: int = int32("3+", default=-1)
    member_id: str = string("3+", default="")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: list[Topic] = array(Topic)


class TxnOffsetCommitResponse(Message, key=28, versions="0-6", flexible="3+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            error_code: int = int16()

        topic_id: bytes = uuid("6+", default=ZERO_UUID)
        name: str = string("0-5", default="")
        partitions: list[Partition] = array(Partition)

    throttle_time_ms: int = int32(default=0)
    topics: list[Topic] = array(Topic)


def refused(request: TxnOffsetCommitRequest, code: int) -> TxnOffsetCommitResponse:
    """The answer in which every partition named meets the same error."""
    topic = TxnOffsetCommitResponse.Topic
    return TxnOffsetCommitResponse(
        topics=[
            topic(
                topic_id=asked.topic_id,
                name=asked.name,
                partitions=[
                    topic.Partition(partition_index=p.partition_index, error_code=code)
                    for p in asked.partitions
                ],
            )
            for asked in request.topics
        ]
    )
