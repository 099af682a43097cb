"""Fetches of one partition that find at once what they ask for.

Everything else about such a fetch, errors first of all, is for the general way in
`broker.handlers.fetch`, which then begins anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import KafkaError
from protocol.primitives import Written
from protocol.single_fetch import TOPIC_IDS_SINCE, SingleFetch, SingleRecords

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.partitions.topics import Topics

READ_COMMITTED = 1
ANY_EPOCH = -1
NONE_ABORTED = Written(0, b"")


def find_records(
    message: SingleFetch,
    version: int,
    topics: Topics,
    *,
    max_bytes: int,
    may_read: Callable[[str], bool],
) -> SingleRecords | None:
    """The answer, if there are as many bytes as asked for and nothing else has to be said.

    `max_bytes` is what an answer may have at most, whatever the client asks for; `may_read` is
    asked whether the client may read the topic of this name.
    """
    named, index = message.topic, message.index
    topic = topics.by_id.get(named) if version >= TOPIC_IDS_SINCE else topics.by_utf8.get(named)
    if topic is None or not 0 <= index < len(topic.partitions) or not may_read(topic.name):
        return None
    partition = topic.partitions[index]
    log = partition.log
    if message.current_leader_epoch not in (ANY_EPOCH, log.leader_epoch):
        return None
    if message.last_fetched_epoch != ANY_EPOCH:
        return None
    offset, stable = message.fetch_offset, log.last_stable_offset
    committed_only = message.isolation_level == READ_COMMITTED
    try:
        found = log.read(
            offset,
            min(message.partition_max_bytes, message.max_bytes, max_bytes),
            end_offset=stable if committed_only else log.written_offset,
        )
    except (KafkaError, OSError):
        return None
    if found is None or found.size < message.min_bytes:
        return None
    aborted = NONE_ABORTED if committed_only else None
    if committed_only and log.segments.with_aborted(offset):
        try:
            aborted = Written(*log.aborted_listed_in(offset, found))
        except OSError:
            return None
    partition.bytes_out += found.size
    return SingleRecords(
        named,
        index,
        high_watermark=log.written_offset,
        last_stable_offset=stable,
        log_start_offset=log.start_offset,
        aborted=aborted,
        records=found,
    )
