"""A directory in memory with transactions: batches and markers in partitions, records of ids.

contents = written([("orders", 0, BATCH)], [state("bank", 0)])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.logdata.transactions import (
    ENDS_HEADER,
    TransactionLogValue,
    TransactionState,
    encode_ends,
    encode_key,
    encode_value,
)
from protocol.records.builder import build_batch
from storage.data_dir import DataDirectory
from storage.inspection.transaction_states import STATE_TOPIC
from tests.storage.inspection.directories import TOP, contents_in, ids
from tests.storage.logs import NOW_MS, Settings, append, batch
from tests.support.memory_filesystem import MemoryFilesystem
from tests.support.topic_store import open_topics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.storage.inspection.directories import Contents

Place = tuple[str, int]
Record = tuple[int, bytes, bytes | None, tuple[tuple[str, bytes | None], ...]]
Done = tuple[int, int, str, int]
"""In a partition of `orders`: its number, the producer id, what was written ("batch", "commit" or
"abort") and in which epoch."""

ORDERS = "orders"
TIMEOUT_MS = 60_000
PRODUCER_IDS = 40
"""So many have been given out."""


def state(
    transactional_id: str,
    producer_id: int,
    status: TransactionState = TransactionState.ONGOING,
    *,
    epoch: int = 0,
    partitions: Sequence[int] = (0,),
    ends: Sequence[int] | None = None,
    led_in: int = 0,
    version: int = 0,
    **fields: int,
) -> Record:
    """A record of `__transaction_state`. `ends` are the next offsets in our header, that Apache
    Kafka has not, all in leader epoch `led_in`."""
    value = TransactionLogValue(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_timeout_ms=TIMEOUT_MS,
        transaction_status=status,
        transaction_partitions=[
            TransactionLogValue.PartitionsSchema(topic=ORDERS, partition_ids=list(partitions))
        ],
        transaction_last_update_timestamp_ms=NOW_MS,
        transaction_start_timestamp_ms=NOW_MS,
        **fields,
    )
    headers = () if ends is None else ((ENDS_HEADER, encode_ends((end, led_in) for end in ends)),)
    return NOW_MS, encode_key(transactional_id), encode_value(value, version), headers


def tombstone(transactional_id: str) -> Record:
    """The record with which an id is forgotten."""
    return NOW_MS, encode_key(transactional_id), None, ()


def state_batch(*records: Record) -> bytes:
    """The batch of these records."""
    return build_batch(list(records))


def written(
    done: Sequence[Done], records: Sequence[Record], *, state_topic: bool = True
) -> Contents:
    """What a clean stop leaves of two partitions of `orders` and of the state topic."""
    files, settings = MemoryFilesystem(), Settings()
    directory = DataDirectory.take(files, TOP, node_id=1, new_uuid=ids())
    topics = open_topics(files, TOP)
    topics.begin_epoch()
    for _ in range(PRODUCER_IDS):
        topics.next_producer_id()
    directory.open_logs(topics, lambda _: settings, now_ms=NOW_MS)
    topic = topics.create(ORDERS, ids(500)(), 2, {})
    logs = [directory.create_partition(topic, index, settings, now_ms=NOW_MS) for index in range(2)]
    for partition, producer_id, what, epoch in done:
        log = logs[partition]
        if what == "batch":
            sequence = 0 if log.producers.epoch_of(producer_id) != epoch else 1
            sent = batch(b"v", producer=(producer_id, epoch, sequence), transactional=True)
            append(log, sent)
        else:
            log.append_marker(
                producer_id, epoch, commit=what == "commit", coordinator_epoch=0, now_ms=NOW_MS
            )
        log.write()
    if state_topic:
        topic = topics.create(STATE_TOPIC, ids(600)(), 1, {})
        states = directory.create_partition(topic, 0, settings, now_ms=NOW_MS)
        for record in records:
            append(states, state_batch(record))
        states.write()
    assert directory.close()
    files.sync_all()
    return contents_in(files)
