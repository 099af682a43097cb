"""A cluster whose one broker says what a test wants it to, and the answers that it may give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from client.cluster import Cluster, TopicPartition
from protocol.messages.fetch import FetchResponse
from protocol.messages.list_offsets import ListOffsetsResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.produce import ProduceResponse
from protocol.records.builder import build_batch
from tests.support.scripted_broker import ScriptedBroker

if TYPE_CHECKING:
    from collections.abc import Callable

PRODUCE, FETCH, LIST_OFFSETS, METADATA, COMMIT, COORDINATOR, CREATE = 0, 1, 2, 3, 8, 10, 19
PLACE = TopicPartition("orders", 0)
TOPIC_ID = bytes(range(16))
BATCH = build_batch([(1, b"k", bytes(500), [])])
NEWEST = {PRODUCE: (0, 13), FETCH: (0, 18), LIST_OFFSETS: (0, 11), METADATA: (0, 13)}
NEWEST |= {COMMIT: (0, 10), COORDINATOR: (0, 6), CREATE: (0, 7)}
NOT_LEADER, TIMED_OUT, TOO_FEW_REPLICAS = 6, 7, 19


class Broker(ScriptedBroker):
    """Node 1, whose metadata has topic `orders` with one partition, led by `leader`."""

    def __init__(
        self,
        script: dict[int, Callable[[Any], Any]],
        versions: dict[int, tuple[int, int]] | None = None,
    ) -> None:
        super().__init__({METADATA: self._metadata, **script}, NEWEST | (versions or {}))
        self.nodes = {1: (self.host, self.port)}
        self.leader = 1
        self.topics = ["orders"]
        self.topic_id = TOPIC_ID

    def requests(self, key: int) -> list[Any]:
        return [request for asked, _, request in self.asked if asked == key]

    def version(self, key: int) -> int:
        return next(version for asked, version, _ in self.asked if asked == key)

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        kind = MetadataResponse.Topic
        partition = kind.Partition(
            error_code=0, partition_index=0, leader_id=self.leader, replica_nodes=[], isr_nodes=[]
        )
        wanted = {asked.name for asked in request.topics or ()} or set(self.topics)
        return MetadataResponse(
            brokers=[
                MetadataResponse.Broker(node_id=node, host=host, port=port)
                for node, (host, port) in self.nodes.items()
            ],
            topics=[
                kind(error_code=0, name=name, topic_id=self.topic_id, partitions=[partition])
                if name in self.topics
                else kind(error_code=3, name=name, partitions=[])
                for name in wanted
            ],
        )


def cluster(broker: Broker, *, timeout_s: float = 5.0) -> Cluster:
    return Cluster(broker.bootstrap, timeout_s=timeout_s)


def in_turn(*answers: Any) -> Callable[[Any], Any]:
    """Each answer once, the last one for ever; what is callable is given the request."""
    left = list(answers)

    def answer(request: Any) -> Any:
        found = left.pop(0) if len(left) > 1 else left[0]
        return found(request) if callable(found) else found

    return answer


def fetched(records: bytes = b"", error_code: int = 0, **more: Any) -> FetchResponse:
    kind = FetchResponse.Topic
    partition = kind.Partition(
        partition_index=0, error_code=error_code, high_watermark=9, records=records, **more
    )
    return FetchResponse(
        responses=[kind(topic="orders", topic_id=TOPIC_ID, partitions=[partition])]
    )


def produced(base_offset: int, error_code: int = 0) -> ProduceResponse:
    kind = ProduceResponse.Topic
    partition = kind.Partition(index=0, error_code=error_code, base_offset=base_offset)
    return ProduceResponse(
        responses=[kind(name="orders", topic_id=TOPIC_ID, partition_responses=[partition])]
    )


def listed(error_code: int = 0, **more: Any) -> ListOffsetsResponse:
    kind = ListOffsetsResponse.Topic
    partition = kind.Partition(partition_index=0, error_code=error_code, **more)
    return ListOffsetsResponse(topics=[kind(name="orders", partitions=[partition])])


def breaks(_: Any) -> Any:
    """Ends the connection instead of an answer."""
    raise OSError
