"""A topic to be read, and what is stored in one, in a form that can be compared."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from client.cluster import EARLIEST, LATEST, Cluster, TopicPartition
from pipeline.columns.encode import encode_records
from protocol.records.compression import LZ4
from protocol.records.layout import LENGTH_POSITION, MAGIC_POSITION
from protocol.records.walk import walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

VALUE = (
    b'{"order":000000000000,"customer":"0000000000000000","note":"left at the door","total":000000}'
)
KEY_BYTES = 16
ROWS_AT_ONCE = 200_000
BATCH_BYTES = 49_152
"""Before compression, which makes some 16 KiB of it: what a Java producer collects by default
(batch.size is of the compressed batch, as it is estimated)."""
CUSTOMERS = 1_000_003
FIRST_MS = 1_790_000_000_000
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


class Stored(NamedTuple):
    """The content of a partition: records, bytes, and a digest of every entry but for the bytes
    that a broker sets (base offset and leader epoch), in order."""

    records: int
    bytes: int
    digest: str


def fill(
    cluster: Cluster, topic: str, records: int, partitions: int, *, keys: int = CUSTOMERS
) -> int:
    """As `fill_with`: each record has 93 bytes and one of so many keys."""
    rows = partial(_rows, key_count=keys)
    return fill_with(rows, cluster, topic, records, partitions)


def fill_with(
    rows: Callable[[int, int], Iterable[pa.RecordBatch]],
    cluster: Cluster,
    topic: str,
    records: int,
    partitions: int,
) -> int:
    """Make it, with so many records in all, lz4; `rows` makes those of a stretch of numbers. The
    bytes as sent."""
    cluster.create_topic(topic, partitions)
    sent = 0
    for partition in range(partitions):
        place = TopicPartition(topic, partition)
        first, end = (records * number // partitions for number in (partition, partition + 1))
        for some in rows(first, end):
            entries = encode_records(some, codec=LZ4, max_bytes=BATCH_BYTES)
            cluster.produce(place, entries)
            sent += sum(map(len, entries))
    return sent


def fill_many(cluster: Cluster, topics: Sequence[str], partitions: int, records: int) -> None:
    """Make them, with so many records in each partition, in one batch."""
    for number, topic in enumerate(topics):
        cluster.create_topic(topic, partitions)
        for partition in range(partitions):
            first = (number * partitions + partition) * records
            (rows,) = _rows(first, first + records)
            cluster.produce(TopicPartition(topic, partition), encode_records(rows, codec=LZ4))


def _rows(first: int, end: int, key_count: int = CUSTOMERS) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(first)
    for start in range(first, end, ROWS_AT_ONCE):
        numbers = np.arange(start, min(start + ROWS_AT_ONCE, end), dtype=np.int64)
        values = np.tile(np.frombuffer(VALUE, np.uint8), (len(numbers), 1))
        write_number(values, VALUE.index(b":0") + 1, 12, numbers)
        customers = rng.integers(0, 1 << 62, len(numbers)) % key_count
        keys = np.zeros((len(numbers), KEY_BYTES), np.uint8)
        write_number(keys, 0, KEY_BYTES, customers * 2_654_435_761)
        at = VALUE.index(b'"0') + 1
        values[:, at : at + KEY_BYTES] = keys
        write_number(values, VALUE.rindex(b":") + 1, 6, rng.integers(0, 999_999, len(numbers)))
        yield pa.record_batch(
            {
                "key": binary_column(keys),
                "value": binary_column(values),
                "timestamp": pa.array(
                    (FIRST_MS + numbers // 100) * 1000, pa.timestamp("us", "UTC")
                ),
            }
        )


def write_number(cells: np.ndarray, at: int, width: int, numbers: np.ndarray) -> None:
    """Write the last `width` decimal digits of each number into cells from the column `at` on."""
    rest = numbers.copy()
    for column in range(at + width - 1, at - 1, -1):
        cells[:, column] = _DIGITS[rest % 10]
        rest //= 10


def binary_column(cells: np.ndarray) -> pa.Array:
    """A value of each row of bytes."""
    count, width = cells.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    data = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(cells))]
    return pa.Array.from_buffers(pa.binary(), count, data)


def stored(cluster: Cluster, topic: str) -> list[Stored]:
    """The present content of each partition."""
    places = cluster.partitions([topic])
    starts, ends = cluster.offsets(places, EARLIEST), cluster.offsets(places, LATEST)
    return [_stored(cluster, place, starts[place], ends[place]) for place in places]


def _stored(cluster: Cluster, place: TopicPartition, start: int, end: int) -> Stored:
    size, digest, offset = 0, hashlib.sha256(), start
    while offset < end:
        entries = cluster.fetch(place, offset).entries
        for at, length, _ in walk(entries):
            digest.update(entries[at + LENGTH_POSITION : at + LENGTH_POSITION + 4])
            digest.update(entries[at + MAGIC_POSITION : at + length])
            base = int.from_bytes(entries[at : at + 8])
            offset = base + int.from_bytes(entries[at + 23 : at + 27]) + 1
        size += len(entries)
    return Stored(end - start, size, digest.hexdigest())
