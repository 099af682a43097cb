"""A `WireClient` that knows the ordinary requests: create, produce, fetch, list offsets.

    with Caller(broker.host, broker.port) as caller:
        caller.create_topic("orders", partitions=2)
        assert caller.produce("orders", batch(b"a", b"b")).base_offset == 0

Every answer has been decoded to its last byte. Topics go by name or by id as the version wants.
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING, Any

from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.records.batch import Batch
from protocol.records.builder import build_batch
from protocol.records.walk import walk
from tests.support.wire_client import WireClient

if TYPE_CHECKING:
    Appended = ProduceResponse.Topic.Partition
    Fetched = FetchResponse.Topic.Partition

#: The first versions that name topics by id only.
PRODUCE_BY_ID, FETCH_BY_ID = 13, 13

NOW_MS = 1_700_000_000_000


def batch(*values: bytes, timestamp_ms: int = NOW_MS, **options: Any) -> bytes:
    """A batch of these values, without keys, a millisecond apart."""
    return build_batch(
        [(timestamp_ms + number, None, value, ()) for number, value in enumerate(values)],
        **options,
    )


def records_in(data: bytes | memoryview | None) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every record of fetched batches."""
    whole = memoryview(bytes(data or b""))
    return [
        (record.offset, record.value)
        for position, size, _ in walk(whole)
        for record in Batch(whole[position : position + size]).records()
    ]


class Target:
    """One partition of a fetch. `topic` is a name, or an id for the versions that want ids."""

    def __init__(
        self, topic: str | bytes, offset: int = 0, partition: int = 0, **more: Any
    ) -> None:
        self.topic = topic
        self.partition = FetchRequest.Topic.Partition(
            partition=partition,
            fetch_offset=offset,
            **{"partition_max_bytes": 1 << 20, **more},
        )


def fetch_request(*wanted: Target, **options: Any) -> FetchRequest:
    """A fetch that does not wait unless it is told to; neighbours of one topic share an entry."""
    topics: list[FetchRequest.Topic] = []
    last: str | bytes | None = None
    for item in wanted:
        if item.topic != last:
            names = (
                {"topic_id": item.topic} if isinstance(item.topic, bytes) else {"topic": item.topic}
            )
            topics.append(FetchRequest.Topic(partitions=[], **names))
            last = item.topic
        topics[-1].partitions.append(item.partition)
    return FetchRequest(topics=topics, **{"max_wait_ms": 0, "min_bytes": 1, **options})


def produce_request(
    *sent: tuple[str | bytes, int, bytes | None], acks: int = -1, **options: Any
) -> ProduceRequest:
    """(topic, partition, records) each; every one gets a topic entry of its own."""
    topics = [
        ProduceRequest.Topic(
            partition_data=[
                ProduceRequest.Topic.Partition(
                    index=index, records=None if records is None else memoryview(records)
                )
            ],
            **({"topic_id": topic} if isinstance(topic, bytes) else {"name": topic}),
        )
        for topic, index, records in sent
    ]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics, **options)


class Caller(WireClient):
    """The smallest client, and what every test asks of it."""

    def see_nothing_come(self, for_s: float = 0.1) -> None:
        """See that no answer comes during this time; what was sent before is being handled."""
        ready, _, _ = select.select([self.socket], [], [], for_s)
        assert not ready, "an answer came, or the connection was closed"

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        """Create a topic that must not exist; its id. `_` in a config's name stands for `.`."""
        request = CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.Topic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    assignments=[],
                    configs=[
                        CreateTopicsRequest.Topic.Config(name=key.replace("_", "."), value=value)
                        for key, value in configs.items()
                    ],
                )
            ]
        )
        (created,) = self.call(request).topics
        assert created.error_code == 0, created.error_message
        topic_id: bytes = created.topic_id
        return topic_id

    def delete_topic(self, name: str) -> None:
        (deleted,) = self.call(
            DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5
        ).responses
        assert deleted.error_code == 0, deleted.error_message

    def delete_records(self, topic: str, offset: int, *, partition: int = 0) -> int:
        """Move the log start up; the new one."""
        asked = DeleteRecordsRequest.Topic.Partition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsRequest.Topic(name=topic, partitions=[asked])], timeout_ms=0
        )
        entry = self.call(request, 2).topics[0].partitions[0]
        assert entry.error_code == 0
        low_watermark: int = entry.low_watermark
        return low_watermark

    def topic_id(self, name: str) -> bytes:
        topic_id: bytes = self.describe(name).topic_id
        return topic_id

    def describe(self, name: str) -> MetadataResponse.Topic:
        """What Metadata says of this topic; it is not created."""
        request = MetadataRequest(
            topics=[MetadataRequest.Topic(name=name)], allow_auto_topic_creation=False
        )
        found: MetadataResponse.Topic = self.call(request, 12).topics[0]
        return found

    def leader_of(self, topic: str, partition: int = 0) -> Caller:
        """A caller of the broker that leads a partition of a topic that is there."""
        answer: MetadataResponse = self.call(
            MetadataRequest(topics=[MetadataRequest.Topic(name=topic)]), 9
        )
        (found,) = answer.topics
        (leader,) = [one.leader_id for one in found.partitions if one.partition_index == partition]
        (broker,) = [one for one in answer.brokers if one.node_id == leader]
        return Caller(broker.host, broker.port)

    def coordinator_of(self, key: str, key_type: int) -> Caller:
        """A caller of the broker that coordinates a group (0) or a transactional id (1)."""
        found = self.call(FindCoordinatorRequest(key=key, key_type=key_type), 1)
        assert found.error_code == 0
        return Caller(found.host, found.port)

    def produce(
        self,
        topic: str,
        records: bytes | None,
        *,
        partition: int = 0,
        version: int = 12,
        acks: int = -1,
    ) -> Appended:
        """Produce to one partition; its entry in the answer."""
        named = self.topic_id(topic) if version >= PRODUCE_BY_ID else topic
        answer = self.call(produce_request((named, partition, records), acks=acks), version)
        ((entry,),) = [answered.partition_responses for answered in answer.responses]
        assert entry.index == partition
        appended: Appended = entry
        return appended

    def fetch(
        self, topic: str, offset: int = 0, *, partition: int = 0, version: int = 12, **options: Any
    ) -> Fetched:
        """Fetch one partition without a session; its entry in the answer."""
        named = self.topic_id(topic) if version >= FETCH_BY_ID else topic
        answer = self.call(fetch_request(Target(named, offset, partition), **options), version)
        ((entry,),) = [answered.partitions for answered in answer.responses]
        assert entry.partition_index == partition
        fetched: Fetched = entry
        return fetched

    def values(self, topic: str, offset: int = 0, *, partition: int = 0) -> list[bytes | None]:
        """The values of all records from `offset` on; one fetch ends at the end of a segment."""
        found: list[bytes | None] = []
        while True:
            fetched = self.fetch(topic, offset, partition=partition)
            assert fetched.error_code == 0
            records = records_in(fetched.records)
            found += [value for at, value in records if at >= offset]
            if not records:
                return found
            offset = records[-1][0] + 1

    def offset(
        self, topic: str, timestamp: int, *, partition: int = 0, version: int = 11
    ) -> ListOffsetsResponse.Topic.Partition:
        """The answer of ListOffsets to one question."""
        asked = ListOffsetsRequest.Topic.Partition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsRequest.Topic(name=topic, partitions=[asked])]
        )
        answer = self.call(request, version)
        found: ListOffsetsResponse.Topic.Partition = answer.topics[0].partitions[0]
        return found

    def end_offset(self, topic: str, partition: int = 0) -> int:
        return self.offset(topic, -1, partition=partition).offset


def by_partition(answer: FetchResponse) -> dict[tuple[str | bytes, int], Fetched]:
    """The entries of a fetch's answer, under (topic name or id, partition)."""
    return {
        (topic.topic or topic.topic_id, entry.partition_index): entry
        for topic in answer.responses
        for entry in topic.partitions
    }


def named(caller: Caller, topic: str, version: int) -> str | bytes:
    """What a Fetch of this version calls the topic."""
    return caller.topic_id(topic) if version >= FETCH_BY_ID else topic


def batches_in(records: Any) -> int:
    """How many batches were fetched."""
    return sum(1 for _ in walk(memoryview(bytes(records))))


class Timed:
    """The time that the block took, in ms."""

    def __enter__(self) -> Timed:
        self._start = time.monotonic()
        self.ms = 0.0
        return self

    def __exit__(self, *_: object) -> None:
        self.ms = (time.monotonic() - self._start) * 1000
