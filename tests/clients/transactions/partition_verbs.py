"""Verbs of scripts that write to partitions, or tell of what is in them."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Any

from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.describe_producers import DescribeProducersRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.produce import ProduceRequest
from protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from protocol.records.batch import Batch
from protocol.records.walk import walk
from tests.clients.transactions.conversation import code_name, partitions, until
from tests.support.caller import FETCH_BY_ID, PRODUCE_BY_ID, batch

if TYPE_CHECKING:
    from tests.clients.transactions.conversation import Conversation
    from tests.clients.transactions.scripts import Step

ISOLATION_LEVELS = {False: 0, True: 1}
TIMES = {"latest": -1, "earliest": -2, "max-timestamp": -3, "time": 1}
FETCH_WITH_ISOLATION = 4
MARKER = struct.Struct(">hh")
MESSAGE_VALUES = (18, 26)
"""Where the key's length stands in a message of format 0 and of format 1."""


def topic(talk: Conversation, step: Step) -> str:
    """A new topic with that many partitions, whose leaders are there afterwards."""
    name, *more = step.words
    count = int(more[0]) if more else 1
    talk.caller.create_topic(talk.own(name), count)
    assert until(
        lambda: all(
            talk.caller.offset(talk.own(name), -1, partition=number, version=5).error_code == 0
            for number in range(count)
        )
    )
    return "(made)"


def delete_topic(talk: Conversation, step: Step) -> str:
    """The topic is gone, for everybody who asks."""
    name = talk.own(step.words[0])
    (deleted,) = talk.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=5000), 5).responses
    until(lambda: talk.caller.offset(name, -1, version=5).error_code != 0)
    return code_name(deleted.error_code)


def delete_records(talk: Conversation, step: Step) -> str:
    """DeleteRecords before an offset."""
    ((name, (number,)),) = partitions(step.words).items()
    asked = DeleteRecordsRequest.Topic.Partition(
        partition_index=int(number), offset=int(step.words[1])
    )
    topics = [DeleteRecordsRequest.Topic(name=talk.own(name), partitions=[asked])]
    request = DeleteRecordsRequest(topics=topics, timeout_ms=1000)
    entry = talk.call(request, 2).topics[0].partitions[0]
    return f"{code_name(entry.error_code)} {entry.low_watermark}"


def produce(talk: Conversation, step: Step) -> str:
    """Produce of one batch to each of the partitions. `plain` is a batch of no transaction."""
    version = step.version or 0
    options = step.options
    producer_id, epoch = talk.producer(options.get("by"))
    target, *values = [word for word in step.words if word not in ("plain", "control")]
    records = batch(
        *values[0].encode().split(b","),
        timestamp_ms=int(time.time() * 1000),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=int(options.get("seq", -1)),
        transactional=not step.has("plain"),
        control=step.has("control"),
    )
    topics = [
        ProduceRequest.Topic(
            partition_data=[
                ProduceRequest.Topic.Partition(index=int(number), records=memoryview(records))
                for number in numbers
            ],
            **talk.named(name, version, PRODUCE_BY_ID),
        )
        for name, numbers in partitions([target]).items()
    ]
    name = options.get("id")
    request = ProduceRequest(
        transactional_id=None if name is None else talk.own(name),
        acks=int(options.get("acks", -1)),
        timeout_ms=5000,
        topic_data=topics,
    )
    answer = talk.call(request, version)
    entries = [entry for found in answer.responses for entry in found.partition_responses]
    return ", ".join(
        f"{code_name(entry.error_code)} at {entry.base_offset}"
        for entry in sorted(entries, key=lambda entry: int(entry.index))
    )


def fetch(talk: Conversation, step: Step) -> str:
    """Fetch of one partition: watermarks, aborted transactions, and every batch."""
    version = step.version or 0
    ((name, (number,)),) = partitions(step.words).items()
    wanted = FetchRequest.Topic.Partition(
        partition=int(number),
        fetch_offset=int(step.options.get("from", 0)),
        partition_max_bytes=1 << 20,
    )
    named = talk.named(name, version, FETCH_BY_ID)
    if "name" in named:
        named = {"topic": named["name"]}
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=ISOLATION_LEVELS[step.has("committed")],
        topics=[FetchRequest.Topic(partitions=[wanted], **named)],
    )
    answer = talk.call(request, version)
    if answer.error_code or not answer.responses:
        return code_name(answer.error_code)
    entry = answer.responses[0].partitions[0]
    words = [code_name(entry.error_code), f"hw={entry.high_watermark}"]
    if version >= FETCH_WITH_ISOLATION:
        words.append(f"lso={entry.last_stable_offset}")
        listed = entry.aborted_transactions
        if listed is not None:
            aborted = [f"{talk.label(one.producer_id)}@{one.first_offset}" for one in listed]
            words.append(f"aborted=[{', '.join(aborted)}]")
    return "; ".join([" ".join(words), *_batches(talk, bytes(entry.records or b""))])


def _batches(talk: Conversation, data: bytes) -> list[str]:
    whole = memoryview(bytearray(data))
    found = []
    for position, size, magic in walk(whole):
        view = whole[position : position + size]
        found.append(_batch(talk, Batch(view)) if magic == 2 else _message(bytes(view), magic))
    return found


def _batch(talk: Conversation, stored: Batch) -> str:
    first, last = stored.base_offset, stored.last_offset
    words = [str(first) if first == last else f"{first}-{last}"]
    if stored.producer_id >= 0:
        words.append(talk.producer_label(stored.producer_id, stored.producer_epoch))
    if stored.is_transactional:
        words.append("in a transaction")
    records = list(stored.records())
    if stored.is_control:
        _, kind = MARKER.unpack(records[0].key or b"")
        words.append({0: "ABORT", 1: "COMMIT"}.get(kind, f"marker {kind}"))
    else:
        words.append(",".join((record.value or b"").decode() for record in records))
    return " ".join(words)


def _message(entry: bytes, magic: int) -> str:
    """A message of an older format, uncompressed and without a key."""
    offset = int.from_bytes(entry[:8], "big")
    value = entry[MESSAGE_VALUES[magic] + 8 :]
    return f"{offset} format {magic} {value.decode()}"


def list_offsets(talk: Conversation, step: Step) -> str:
    """ListOffsets of one partition."""
    version = step.version or 0
    ((name, (number,)),) = partitions(step.words).items()
    (at,) = TIMES.keys() & set(step.words)
    asked = ListOffsetsRequest.Topic.Partition(partition_index=int(number), timestamp=TIMES[at])
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=ISOLATION_LEVELS[step.has("committed")],
        topics=[ListOffsetsRequest.Topic(name=talk.own(name), partitions=[asked])],
        timeout_ms=5000,
    )
    entry = talk.call(request, version).topics[0].partitions[0]
    offset = entry.offset if version else list(entry.old_style_offsets)
    stamp = " with a time" if entry.timestamp >= 0 else ""
    return f"{code_name(entry.error_code)} {offset}{stamp}"


def producers(talk: Conversation, step: Step) -> str:
    """DescribeProducers."""
    request = DescribeProducersRequest(
        topics=[
            DescribeProducersRequest.Topic(
                name=talk.own(name), partition_indexes=[*map(int, numbers)]
            )
            for name, numbers in partitions(step.words).items()
        ]
    )
    answer = talk.call(request, 0)
    found = sorted(
        f"{talk.plain(one.name)}:{entry.partition_index} {_active(talk, entry)}"
        for one in answer.topics
        for entry in one.partitions
    )
    return "; ".join(found)


def _active(talk: Conversation, entry: Any) -> str:
    if entry.error_code:
        return code_name(entry.error_code)
    active = sorted(
        f"{talk.producer_label(one.producer_id, one.producer_epoch)} sequence {one.last_sequence} "
        f"coordinator {one.coordinator_epoch} open from {one.current_txn_start_offset}"
        + ("" if one.last_timestamp > 0 else f" time {one.last_timestamp}")
        for one in entry.active_producers
    )
    return ", ".join(active) or "nobody"


def markers(talk: Conversation, step: Step) -> str:
    """WriteTxnMarkers of one producer; of none without `by`."""
    options = step.options
    asked = []
    if "by" in options:
        producer_id, epoch = talk.producer(options["by"])
        topics = [
            WriteTxnMarkersRequest.Marker.Topic(
                name=talk.own(name), partition_indexes=[*map(int, numbers)]
            )
            for name, numbers in partitions(step.words).items()
        ]
        marker = WriteTxnMarkersRequest.Marker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=step.has("commit"),
            topics=topics,
            coordinator_epoch=int(options.get("ce", 0)),
            transaction_version=int(options.get("tv", 0)),
        )
        asked.append(marker)
    answer = talk.call(WriteTxnMarkersRequest(markers=asked), step.version or 0)
    found = sorted(
        f"{talk.plain(one.name)}:{entry.partition_index} {code_name(entry.error_code)}"
        for marker in answer.markers
        for one in marker.topics
        for entry in one.partitions
    )
    return ", ".join(found) or "(nothing)"


VERBS = {
    "topic": topic,
    "delete-topic": delete_topic,
    "delete-records": delete_records,
    "produce": produce,
    "fetch": fetch,
    "list-offsets": list_offsets,
    "producers": producers,
    "markers": markers,
}
