"""FetchSnapshot: a piece of a snapshot of the metadata log, for those who follow it (KIP-630).

Versions 0 and 1, on the controller's listener. The answer holds a slice of the snapshot's file, as
Fetch's does of a segment: it is sent by the kernel, and a snapshot that is removed meanwhile is
sent to the end of the piece all the same.

Apache Kafka 3.9 means to answer the same errors, but its answers with an error cannot be encoded,
and clients get UNKNOWN_SERVER_ERROR; a negative `max_bytes`, a topic without partitions and a
request in the name of the leader itself end its process. Here they are INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.quorum import is_other_cluster, leader_endpoint, leader_fault, metadata_leader
from protocol.acls import CLUSTER_NAME, Operation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.metadata_names import METADATA_PARTITION, METADATA_TOPIC
from protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from storage.metadata.snapshots import SnapshotId
from storage.slices import FileSlice

if TYPE_CHECKING:
    from broker.handlers.context import Context
    from protocol.connection import Request

PIECE_MAX_BYTES = 8 * 1024 * 1024
"""The most of a snapshot in one answer, which holds back other answers on its connection: what
Apache Kafka's followers ask for. `size` tells them to come back for the rest."""
BEFORE_THE_FIRST_RECORD = (0, 0)
"""The id of what a new cluster begins with, which is in the log as well and is not handed out."""

Answer = FetchSnapshotResponse.Topic.Partition
Asked = FetchSnapshotRequest.Topic.Partition


def fetch_snapshot(request: Request, ctx: Context) -> FetchSnapshotResponse:
    message: FetchSnapshotRequest = request.message
    ctx.require(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    if is_other_cluster(ctx, message.cluster_id):
        raise KafkaError(code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    if len(message.topics) != 1 or len(message.topics[0].partitions) != 1:
        raise KafkaError("one partition is asked for at a time", code=ErrorCode.INVALID_REQUEST)
    if message.max_bytes < 0 or message.replica_id == ctx.node_id:
        raise KafkaError(code=ErrorCode.INVALID_REQUEST)
    (topic,), (asked,) = message.topics, message.topics[0].partitions
    if topic.name != METADATA_TOPIC or asked.partition != METADATA_PARTITION:
        return _answer(topic.name, _refused(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    answer = _piece(asked, message, ctx)
    controller = metadata_leader(ctx)
    answer.current_leader = Answer.LeaderIdAndEpoch(
        leader_id=controller.leader_id, leader_epoch=controller.epoch
    )
    response = _answer(topic.name, answer)
    leader = leader_endpoint(ctx)
    if leader is not None:
        response.node_endpoints = [FetchSnapshotResponse.NodeEndpoint(**leader._asdict())]
    return response


def _piece(asked: Asked, message: FetchSnapshotRequest, ctx: Context) -> Answer:
    """The answer with the snapshot's bytes from the position on, or with the error."""
    controller = metadata_leader(ctx)
    fault = leader_fault(controller, ctx.node_id, asked.current_leader_epoch)
    if fault is not None:
        return _refused(asked, fault)
    wanted = SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
    if wanted == BEFORE_THE_FIRST_RECORD or wanted not in controller.snapshots.ids:
        return _refused(asked, ErrorCode.SNAPSHOT_NOT_FOUND)
    try:
        file = controller.snapshots.open_to_read(wanted)
        size = file.size()
    except FileNotFoundError:
        return _refused(asked, ErrorCode.SNAPSHOT_NOT_FOUND)
    except OSError as error:
        ctx.failed("reading a snapshot", error, snapshot=wanted.file_name)
        return _refused(asked, ErrorCode.KAFKA_STORAGE_ERROR)
    if not 0 <= asked.position < size:
        file.close()
        return _refused(asked, ErrorCode.POSITION_OUT_OF_RANGE)
    if message.replica_id >= 0:
        controller.observers.loads(
            message.replica_id,
            asked.replica_directory_id,
            end_offset=wanted.end_offset,
            now_ms=ctx.now_ms,
        )
    answer = _refused(asked, ErrorCode.NONE)
    answer.size = size
    piece_size = min(message.max_bytes, PIECE_MAX_BYTES, size - asked.position)
    if piece_size:
        answer.unaligned_records = FileSlice(file, asked.position, piece_size)
    else:
        file.close()
    return answer


def _refused(asked: Asked, code: ErrorCode) -> Answer:
    """An answer without bytes, which is about the same piece as the request."""
    return Answer(
        index=asked.partition,
        error_code=code,
        snapshot_id=Answer.SnapshotId(
            end_offset=asked.snapshot_id.end_offset, epoch=asked.snapshot_id.epoch
        ),
        size=0,
        position=asked.position,
        unaligned_records=b"",
    )


def _answer(name: str, partition: Answer) -> FetchSnapshotResponse:
    return FetchSnapshotResponse(
        error_code=ErrorCode.NONE,
        topics=[FetchSnapshotResponse.Topic(name=name, partitions=[partition])],
    )
