"""Fetches of the metadata log, and what is in their answers."""

from __future__ import annotations

from typing import Any

from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.schema import ZERO_UUID

VERSIONS = range(13, 19)
"""Those in which Kafka's followers fetch it."""
LONG_MS = 8_000
"""Longer than any answer that comes at once takes on a busy machine."""
METADATA_ID = bytes(15) + b"\x01"
NOTHING = (-1, -1)
Entry = FetchResponse.Topic.Partition


def asking(
    offset: int,
    last_epoch: int,
    epoch: int,
    *,
    wait_ms: int = 0,
    replica_id: int = -1,
    directory_id: bytes = ZERO_UUID,
    max_bytes: int = 0,
    partition_max_bytes: int = 0,
    topic_id: bytes = METADATA_ID,
    name: str = "__cluster_metadata",
    index: int = 0,
    partitions: int = 1,
    topics: int = 1,
    **options: Any,
) -> FetchRequest:
    """A follower's fetch that sets no bounds."""
    known = {"high_watermark": options.pop("high_watermark")} if "high_watermark" in options else {}
    asked = [
        FetchRequest.Topic.Partition(
            partition=index,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            partition_max_bytes=partition_max_bytes,
            replica_directory_id=directory_id,
            **known,
        )
        for _ in range(partitions)
    ]
    return FetchRequest(
        replica_id=replica_id,
        replica_state=FetchRequest.ReplicaState(replica_id=replica_id),
        max_wait_ms=wait_ms,
        min_bytes=0,
        max_bytes=max_bytes,
        topics=[
            FetchRequest.Topic(topic_id=topic_id, topic=name, partitions=asked)
            for _ in range(topics)
        ],
        **options,
    )


def entry_of(answer: FetchResponse) -> Entry:
    """The one partition of an answer that has no error of its own."""
    assert (answer.error_code, answer.session_id) == (0, 0)
    ((entry,),) = [topic.partitions for topic in answer.responses]
    assert answer.responses[0].topic_id == METADATA_ID
    assert entry.partition_index == 0
    return entry


def told(entry: Entry) -> tuple[tuple[int, int], tuple[int, int]]:
    """(end offset, epoch) of the snapshot, and (epoch, end offset) where the logs part."""
    snapshot, diverging = entry.snapshot_id, entry.diverging_epoch
    return (snapshot.end_offset, snapshot.epoch), (diverging.epoch, diverging.end_offset)
