"""Fetch: the metadata log, for those who follow it (KIP-595, KIP-630), on the controller's port.

Versions 13 to 18, which name the log by its id; the older ones, and any other log, are refused as
by Apache Kafka. A follower is told at once

- of the latest snapshot, if the log does not go back as far as it asks, or it has nothing yet;
- where its log and ours part, if they do;
- the records from its offset on, as they are on the disk. Whatever there is makes an answer, no
  matter what `min_bytes` says.

Otherwise it waits for as long as it wants to. Every answer names leader and epoch.

Unlike Kafka 3.9, which ignores the sizes asked for, we keep to those that are above zero (a first
batch comes whole all the same). Kafka's own followers send none for the partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.fetching.waiting import FetchProgress, FetchWait
from broker.handlers.quorum import is_other_cluster, leader_endpoint, leader_fault, metadata_leader
from protocol.acls import CLUSTER_NAME, Operation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.logdata.metadata_names import METADATA_PARTITION, METADATA_TOPIC_ID
from protocol.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from broker.fetching.waiting import Missing
    from broker.handlers.context import Context
    from broker.partitions.topic import Partition
    from protocol.connection import Request
    from storage.metadata.snapshots import SnapshotId
    from storage.slices import FileSlice

TOPIC_IDS_SINCE = 13
REPLICA_STATE_SINCE = 15
ANSWER_MAX_BYTES = 8 * 1024 * 1024
"""The most of the log in one answer; a batch of it is no larger."""

PartitionResult = FetchResponse.Topic.Partition
Asked = FetchRequest.Topic.Partition


def fetch_metadata(request: Request, ctx: Context) -> FetchResponse | FetchWait:
    message: FetchRequest = request.general_message()
    ctx.require(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    if is_other_cluster(ctx, message.cluster_id):
        raise KafkaError(code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    if not _is_of_metadata(request):
        raise KafkaError("not the metadata log, by its id", code=ErrorCode.INVALID_REQUEST)
    look = _Look(request, ctx)
    if look.is_enough() or message.max_wait_ms <= 0:
        return look.response()
    return FetchWait(
        ctx.loop,
        ctx.conversions.begin,
        FetchProgress(),
        lambda: _Look(request, ctx),
        look,
        max_wait_ms=message.max_wait_ms,
    )


def _is_of_metadata(request: Request) -> bool:
    """Whether the request is for the metadata log and for nothing else."""
    message: FetchRequest = request.message
    return (
        request.version >= TOPIC_IDS_SINCE
        and len(message.topics) == 1
        and message.topics[0].topic_id == METADATA_TOPIC_ID
        and len(message.topics[0].partitions) == 1
        and message.topics[0].partitions[0].partition == METADATA_PARTITION
    )


class _Look:
    """One look at the log for one follower: a broker.fetching.waiting.ReadPass."""

    def __init__(self, request: Request, ctx: Context) -> None:
        message: FetchRequest = request.message
        self._ctx = ctx
        self._message = message
        self._asked: Asked = message.topics[0].partitions[0]
        self._replica_id = (
            message.replica_id
            if request.version < REPLICA_STATE_SINCE
            else message.replica_state.replica_id
        )
        controller = metadata_leader(ctx)
        self._partition: Partition = controller.partition
        self.found_bytes = 0
        self._answers_at_once = True
        self.watched: list[Partition] = [self._partition]
        self.missing: Missing = []
        self.unfinished = False
        fault = self._fault()
        self._entry = self._refused(fault) if fault is not None else self._found_for_it()
        self._entry.current_leader = PartitionResult.LeaderIdAndEpoch(
            leader_id=controller.leader_id, leader_epoch=controller.epoch
        )

    @property
    def missing_bytes(self) -> int:
        return 1

    def is_enough(self) -> bool:
        return self._answers_at_once

    def forget(self) -> None:
        """There is nothing to give back: a look that found records is never followed by another."""

    def response(self) -> FetchResponse:
        response = FetchResponse(
            responses=[FetchResponse.Topic(topic_id=METADATA_TOPIC_ID, partitions=[self._entry])]
        )
        leader = leader_endpoint(self._ctx)
        if leader is not None:
            response.node_endpoints = [FetchResponse.NodeEndpoint(**leader._asdict())]
        return response

    def _fault(self) -> ErrorCode | None:
        """Why there is nothing for this follower. What makes no sense comes first, as in Kafka."""
        asked = self._asked
        if (
            self._message.max_wait_ms < 0
            or asked.fetch_offset < 0
            or not 0 <= asked.last_fetched_epoch <= asked.current_leader_epoch
            or self._replica_id == self._ctx.node_id
        ):
            return ErrorCode.INVALID_REQUEST
        ctx = self._ctx
        return leader_fault(ctx.controller, ctx.node_id, asked.current_leader_epoch)

    def _refused(self, code: ErrorCode) -> PartitionResult:
        return PartitionResult(
            partition_index=METADATA_PARTITION,
            error_code=code,
            high_watermark=-1,
            log_start_offset=self._partition.log.start_offset,
            records=b"",
        )

    def _found_for_it(self) -> PartitionResult:
        """The answer for this follower as of now."""
        partition, asked = self._partition, self._asked
        entry = self._refused(ErrorCode.NONE)
        entry.high_watermark = partition.high_watermark
        snapshot_id = self._snapshot()
        if snapshot_id is not None:
            entry.snapshot_id = PartitionResult.SnapshotId(
                end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch
            )
            return entry
        diverging = self._diverging()
        if diverging is not None:
            entry.diverging_epoch = PartitionResult.EpochEndOffset(
                epoch=diverging[0], end_offset=diverging[1]
            )
            return entry
        try:
            found = self._read()
        except KafkaError as error:
            return self._refused(error.code)
        except OSError as error:
            refused = self._ctx.disk.read_failed(partition.log, error)
            return self._refused(refused.code)
        self._note()
        if found is not None:
            entry.records = found
            self.found_bytes = found.size
        self._answers_at_once = (
            found is not None
            # From v18 on a follower says how far it knows the log to be agreed upon.
            or asked.high_watermark < partition.high_watermark
        )
        return entry

    def _snapshot(self) -> SnapshotId | None:
        """The snapshot that a follower has to load before it can follow the log, if it has to."""
        snapshots, log = metadata_leader(self._ctx).snapshots, self._partition.log
        offset, epoch = self._asked.fetch_offset, self._asked.last_fetched_epoch
        latest = snapshots.latest
        if latest is None or latest.end_offset == 0:
            return None
        oldest = snapshots.ids[0]
        if (
            offset == 0
            or offset < log.start_offset
            or (offset == log.start_offset and epoch != oldest.epoch)
            or epoch < oldest.epoch
        ):
            return latest
        return None

    def _diverging(self) -> tuple[int, int] | None:
        """The largest epoch at or below the follower's and its end, if the follower's log is not
        a part of ours."""
        log, snapshots = self._partition.log, metadata_leader(self._ctx).snapshots
        offset, asked_epoch = self._asked.fetch_offset, self._asked.last_fetched_epoch
        if offset == 0 and asked_epoch == 0:
            return None  # it has nothing, and all of the log is there
        epoch, end_offset = log.end_offset_for(asked_epoch)
        if epoch < 0:
            epoch, end_offset = log.epochs.latest, self._partition.high_watermark
        elif snapshots.ids and end_offset == snapshots.ids[0].end_offset:
            # The log may begin there, and not know the epochs before.
            epoch = min(epoch, snapshots.ids[0].epoch)
        if epoch == asked_epoch and offset <= end_offset:
            return None
        return epoch, end_offset

    def _read(self) -> FileSlice | None:
        """Whole batches from the offset on. Raises KafkaError, OSError."""
        partition, message, asked = self._partition, self._message, self._asked
        sizes = (message.max_bytes, asked.partition_max_bytes, ANSWER_MAX_BYTES)
        return partition.log.read(
            asked.fetch_offset,
            min(size for size in sizes if size > 0),
            end_offset=partition.high_watermark,
            at_least_one=True,
        )

    def _note(self) -> None:
        if self._replica_id >= 0:
            metadata_leader(self._ctx).observers.fetched(
                self._replica_id,
                self._asked.replica_directory_id,
                offset=self._asked.fetch_offset,
                leader_end_offset=self._partition.high_watermark,
                now_ms=self._ctx.clock_ms(),
            )
