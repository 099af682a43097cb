"""A topic of Avro values in Confluent's wire format, of one schema, made a column at a time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from bench.pipeline.topics import (
    CUSTOMERS,
    FIRST_MS,
    KEY_BYTES,
    ROWS_AT_ONCE,
    binary_column,
    fill_with,
    write_number,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from client.cluster import Cluster

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "note", "type": "string"},
        {"name": "total", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
NOTE = b"left at the door"
FIRST_ORDER = 1 << 27
"""From here on to 2**34 a number takes five bytes, and all values have one size."""
ORDER_BYTES, TIME_BYTES, TOTAL_BYTES = 5, 6, 8


def fill_avro(
    cluster: Cluster, topic: str, records: int, partitions: int, *, schema_id: int
) -> int:
    """As `fill_with`, by the schema of this id."""
    rows = partial(_rows, schema_id=schema_id)
    return fill_with(rows, cluster, topic, records, partitions)


def _rows(first: int, end: int, schema_id: int) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(first)
    for start in range(first, end, ROWS_AT_ONCE):
        numbers = np.arange(start, min(start + ROWS_AT_ONCE, end), dtype=np.int64)
        times = FIRST_MS + numbers // 100
        keys = np.zeros((len(numbers), KEY_BYTES), np.uint8)
        customers = rng.integers(0, 1 << 62, len(numbers)) % CUSTOMERS
        write_number(keys, 0, KEY_BYTES, customers * 2_654_435_761)
        totals = rng.integers(0, 999_999, len(numbers)) / 100
        values = np.concatenate(
            [
                _constant(b"\0" + schema_id.to_bytes(4, "big"), len(numbers)),
                _varint(FIRST_ORDER + numbers, ORDER_BYTES),
                _constant(bytes([KEY_BYTES << 1]), len(numbers)),
                keys,
                _constant(bytes([len(NOTE) << 1]) + NOTE, len(numbers)),
                totals.astype("<f8").view(np.uint8).reshape(-1, TOTAL_BYTES),
                _varint(times, TIME_BYTES),
            ],
            axis=1,
        )
        yield pa.record_batch(
            {
                "key": binary_column(keys),
                "value": binary_column(values),
                "timestamp": pa.array(times * 1000, pa.timestamp("us", "UTC")),
            }
        )


def _constant(data: bytes, count: int) -> np.ndarray:
    return np.tile(np.frombuffer(data, np.uint8), (count, 1))


def _varint(numbers: np.ndarray, width: int) -> np.ndarray:
    """Of numbers above 0 that all take so many bytes, zigzag."""
    shifts = np.arange(width, dtype=np.int64) * 7
    groups = ((numbers * 2)[:, None] >> shifts) & 0x7F
    groups[:, :-1] |= 0x80
    return groups.astype(np.uint8)
