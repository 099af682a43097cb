"""A controller as far as an observer can tell, which does what a test says.

It answers by the rules of Apache Kafka 3.9 (storage.md 12.5, 12.6). `steps` are what happens when
an observer has all there is: the next one is taken then, and when there are none left, the
observer's connection ends with `Finished`.

`Line` is the way to it without a network: requests and answers are encoded and decoded as on a
wire. `serve` is the way with one.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from struct import Struct
from typing import TYPE_CHECKING, Any

from client.errors import ConnectionLost
from protocol.errors import ErrorCode
from protocol.logdata.metadata import (
    LeaderChangeMessage,
    MetadataRecord,
    PartitionRecord,
    TopicRecord,
    control_batch,
    encode_record,
    metadata_batch,
)
from protocol.logdata.metadata_names import METADATA_TOPIC, METADATA_TOPIC_ID
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from protocol.primitives import skip_tags
from protocol.records.batch import Batch
from protocol.registry import APIS
from protocol.schema import Message
from storage.metadata.image import MetadataImage
from storage.metadata.snapshots import SnapshotId, SnapshotWriter
from tests.support.memory_filesystem import MemoryFilesystem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    Fetched = FetchResponse.Topic.Partition
    Step = Callable[[], object]

CLUSTER = "dHJpZ2xvdC10ZXN0cy0wMQ"
DIRECTORY = bytes(15) + b"\x99"
FOLDER = "/controller"
SERVED = {FetchRequest: 17, FetchSnapshotRequest: 1, DescribeClusterRequest: 1}
ANSWERS: dict[int, type[Message]] = {
    1: FetchResponse,
    18: ApiVersionsResponse,
    59: FetchSnapshotResponse,
    60: DescribeClusterResponse,
}
REQUESTS: dict[int, type[Message]] = {
    1: FetchRequest,
    18: ApiVersionsRequest,
    59: FetchSnapshotRequest,
    60: DescribeClusterRequest,
}


class Finished(Exception):
    """Nothing more happens in this test."""


def topic(name: str, partitions: int = 1) -> list[MetadataRecord]:
    """The records of a new topic; its id is made of its name."""
    topic_id = topic_id_of(name)
    records: list[MetadataRecord] = [TopicRecord(name=name, topic_id=topic_id)]
    records += [
        PartitionRecord(
            partition_id=number,
            topic_id=topic_id,
            replicas=[1],
            isr=[1],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[DIRECTORY],
        )
        for number in range(partitions)
    ]
    return records


def topic_id_of(name: str) -> bytes:
    return name.encode().rjust(16, b"\x01")


class ScriptedController:
    """The leader, with id 1. `high_watermark` None means all there is."""

    def __init__(self, *, epoch: int = 1) -> None:
        self.cluster_id = CLUSTER
        self.epoch = epoch
        self.leader_id = 1
        self.nodes: dict[int, tuple[str, int]] = {}
        self.batches: list[bytes] = []
        self.epochs: list[tuple[int, int]] = []
        self.start_offset = self.end_offset = 0
        self.high_watermark: int | None = None
        self.snapshots: dict[SnapshotId, bytes] = {}
        self.image = MetadataImage()
        self.steps: list[Step] = []
        self.asked: list[Message] = []
        self.refusals: list[ErrorCode] = []
        """Codes for the next answers, whatever is asked."""
        self.spoil: Callable[[bytes], bytes] = bytes
        """What becomes of the bytes of a snapshot on their way."""
        self.grown = asyncio.Event()

    # What it does

    def lead(self, epoch: int) -> None:
        """Become leader anew."""
        self.epoch = epoch
        change = LeaderChangeMessage(leader_id=1, voters=[], granting_voters=[])
        self._add(control_batch([change], base_offset=self.end_offset, epoch=epoch, timestamp_ms=1))

    def append(self, *records: MetadataRecord) -> None:
        """One batch."""
        values = [encode_record(record) for record in records]
        for record in records:
            self.image.replay(record)
        self._add(
            metadata_batch(values, base_offset=self.end_offset, epoch=self.epoch, timestamp_ms=1)
        )

    def append_bytes(self, *values: bytes) -> None:
        """One batch of values that are perhaps no records."""
        self._add(
            metadata_batch(values, base_offset=self.end_offset, epoch=self.epoch, timestamp_ms=1)
        )

    def _add(self, batch: bytearray) -> None:
        if not self.epochs or self.epochs[-1][0] < self.epoch:
            self.epochs.append((self.epoch, self.end_offset))
        self.batches.append(bytes(batch))
        self.end_offset = Batch(memoryview(batch)).last_offset + 1
        self.grown.set()

    def snapshot(self, *, trim: bool = True) -> SnapshotId:
        """Take a snapshot of all there is; with `trim`, the log before it goes."""
        files = MemoryFilesystem()
        files.make_dir(FOLDER)
        made = SnapshotId(self.end_offset, self.epochs[-1][0])
        writer = SnapshotWriter(files, FOLDER, made, last_contained_ms=1, unique="x", now_ms=1)
        writer.append((None, encode_record(record)) for record in self.image.records())
        writer.finish()
        self.snapshots = {made: files.read_bytes(f"{FOLDER}/{made.file_name}")}
        if trim:
            self.start_offset = self.end_offset
            self.batches.clear()
        return made

    # What it answers

    def answer(self, request: Message) -> Message | None:
        """The answer; None if there is nothing to tell yet."""
        if isinstance(request, ApiVersionsRequest):
            return self._versions()
        if isinstance(request, DescribeClusterRequest):
            return DescribeClusterResponse(
                error_code=0, cluster_id=self.cluster_id, brokers=[], endpoint_type=2
            )
        if self.refusals:
            code = self.refusals.pop(0)
            if isinstance(request, FetchRequest):
                return self._fetched(error_code=code)
            return self._piece(error_code=code)
        if isinstance(request, FetchRequest):
            return self._fetch(request)
        assert isinstance(request, FetchSnapshotRequest)
        return self._fetch_snapshot(request)

    def _versions(self) -> ApiVersionsResponse:
        keys = {18: 3, **{kind.key: newest for kind, newest in SERVED.items()}}
        version = ApiVersionsResponse.ApiVersion
        return ApiVersionsResponse(
            error_code=0,
            api_keys=[
                version(api_key=key, min_version=0, max_version=newest)
                for key, newest in keys.items()
            ],
        )

    def _refusal(self, cluster_id: str | None, epoch: int) -> ErrorCode:
        if cluster_id not in (None, self.cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if self.leader_id == 1 else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _fetch(self, request: FetchRequest) -> FetchResponse | None:
        asked = request.topics[0].partitions[0]
        assert request.topics[0].topic_id == METADATA_TOPIC_ID
        assert 0 <= asked.last_fetched_epoch <= asked.current_leader_epoch, "INVALID_REQUEST"
        offset, epoch = asked.fetch_offset, asked.last_fetched_epoch
        refusal = self._refusal(request.cluster_id, asked.current_leader_epoch)
        if refusal is ErrorCode.INCONSISTENT_CLUSTER_ID:
            return FetchResponse(error_code=refusal, responses=[])
        if refusal:
            return self._fetched(error_code=refusal)
        oldest = min(self.snapshots, default=None)
        if oldest is not None and (
            offset == 0
            or offset < self.start_offset
            or (offset == self.start_offset and epoch != oldest.epoch)
            or epoch < oldest.epoch
        ):
            latest = max(self.snapshots)
            struct = FetchResponse.Topic.Partition.SnapshotId
            told = struct(end_offset=latest.end_offset, epoch=latest.epoch)
            return self._fetched(snapshot_id=told)
        known, end = self._end_of(epoch)
        if offset and (known != epoch or offset > end):
            diverging = FetchResponse.Topic.Partition.EpochEndOffset(epoch=known, end_offset=end)
            return self._fetched(diverging_epoch=diverging)
        return self._read(offset) or (None if request.max_wait_ms else self._fetched())

    def _read(self, offset: int) -> FetchResponse | None:
        wanted = [one for one in self.batches if Batch(memoryview(one)).last_offset >= offset]
        known = self.high_watermark
        if not wanted and (known is None or known == self.told):
            return None
        return self._fetched(records=b"".join(wanted))

    told: int | None = None

    def _end_of(self, epoch: int) -> tuple[int, int]:
        """The largest epoch at or below that one, and where it ended."""
        known = [entry for entry in self.epochs if entry[0] <= epoch]
        if not known:
            return self.epochs[0] if self.epochs else (epoch, 0)
        index = len(known)
        end = self.epochs[index][1] if index < len(self.epochs) else self.end_offset
        return known[-1][0], end

    def _fetched(self, **fields: Any) -> FetchResponse:
        kind = FetchResponse.Topic.Partition
        high_watermark = self.end_offset if self.high_watermark is None else self.high_watermark
        defaults = {"partition_index": 0, "error_code": 0, "records": b""}
        part = kind(**{**defaults, "high_watermark": high_watermark, **fields})
        part.current_leader = kind.LeaderIdAndEpoch(
            leader_id=self.leader_id, leader_epoch=self.epoch
        )
        self.told = high_watermark
        return FetchResponse(
            responses=[FetchResponse.Topic(topic_id=METADATA_TOPIC_ID, partitions=[part])],
            node_endpoints=[
                FetchResponse.NodeEndpoint(node_id=node, host=host, port=port)
                for node, (host, port) in self.nodes.items()
            ],
        )

    def _fetch_snapshot(self, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        asked = request.topics[0].partitions[0]
        refusal = self._refusal(request.cluster_id, asked.current_leader_epoch)
        if refusal:
            return self._piece(error_code=refusal)
        wanted = SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
        data = self.snapshots.get(wanted)
        if data is None:
            return self._piece(error_code=ErrorCode.SNAPSHOT_NOT_FOUND)
        if not 0 <= asked.position < len(data):
            return self._piece(error_code=ErrorCode.POSITION_OUT_OF_RANGE)
        piece = data[asked.position : asked.position + request.max_bytes]
        return self._piece(
            snapshot=wanted,
            size=len(data),
            position=asked.position,
            unaligned_records=self.spoil(piece),
        )

    def _piece(self, *, snapshot: SnapshotId | None = None, **fields: Any) -> FetchSnapshotResponse:
        kind = FetchSnapshotResponse.Topic.Partition
        told = snapshot or SnapshotId(0, 0)
        defaults: dict[str, Any] = {
            "index": 0,
            "error_code": 0,
            "snapshot_id": kind.SnapshotId(end_offset=told.end_offset, epoch=told.epoch),
            "size": 0,
            "position": 0,
            "unaligned_records": b"",
        }
        part = kind(**{**defaults, **fields})
        part.current_leader = kind.LeaderIdAndEpoch(
            leader_id=self.leader_id, leader_epoch=self.epoch
        )
        topics = [FetchSnapshotResponse.Topic(name=METADATA_TOPIC, partitions=[part])]
        return FetchSnapshotResponse(error_code=0, topics=topics)


class Line:
    """Connections to scripted controllers, by host name."""

    def __init__(self, **controllers: ScriptedController) -> None:
        self.controllers = controllers
        self.opened: list[str] = []
        self.lose: Callable[[Message], bool] = lambda request: False
        """Whether the connection breaks at the answer to this request."""

    def connect(self, host: str, port: int, *, timeout_s: float) -> LineConnection:
        self.opened.append(host)
        if host not in self.controllers:
            raise ConnectionLost(f"cannot connect to {host}:{port}: refused")
        return LineConnection(self, self.controllers[host], f"{host}:{port}")


class LineConnection:
    """One of them."""

    def __init__(self, line: Line, controller: ScriptedController, address: str) -> None:
        self.address = address
        self._line = line
        self._controller = controller

    def offers(self, kind: type[Message], oldest: int = 0) -> bool:
        return True

    def call(self, request: Message, kind: Any, *, oldest: int = 0) -> Any:
        version = SERVED[type(request)]
        controller = self._controller
        asked = type(request).decode(version, request.encode(version))
        controller.asked.append(asked)
        if self._line.lose(asked):
            raise ConnectionLost(f"{self.address} closed the connection")
        while (answered := controller.answer(asked)) is None:
            if not controller.steps:
                raise Finished
            controller.steps.pop(0)()
        return kind.decode(version, answered.encode(version))

    def close(self) -> None: ...


_REQUEST = Struct(">hhih")


@asynccontextmanager
async def serve(controller: ScriptedController) -> AsyncIterator[int]:
    """Let it be asked over TCP; the port. Fetches wait for as long as they allow."""

    talks: set[asyncio.Task[None] | None] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.add(asyncio.current_task())
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                while True:
                    size = int.from_bytes(await reader.readexactly(4))
                    writer.write(await _reply(controller, await reader.readexactly(size)))
                    await writer.drain()
        finally:
            talks.discard(asyncio.current_task())
            writer.transport.abort()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        server.close()
        for one in filter(None, talks):
            one.cancel()  # since Python 3.12 a server waits for its connections


async def _reply(controller: ScriptedController, frame: bytes) -> bytes:
    key, version, correlation_id, id_size = _REQUEST.unpack_from(frame)
    position = _REQUEST.size + id_size
    flexible = version >= APIS[key].first_flexible
    if flexible:
        position = skip_tags(frame, position, len(frame))
    request, _ = REQUESTS[key].decoder(version)(frame, position, len(frame))
    controller.asked.append(request)
    while (answer := controller.answer(request)) is None:
        controller.grown.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                await controller.grown.wait()
    head = correlation_id.to_bytes(4) + b"\0" * (flexible and key != 18)
    body: bytes = head + answer.encode(version)
    return len(body).to_bytes(4) + body
