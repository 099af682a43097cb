"""The columns of the three shapes that topics are read in and written from.

Each is given as an Arrow schema; Spark's is derived from it. What a data frame has in column
`timestamp` and Arrow as microseconds is milliseconds in a log; -1, no timestamp, is null.

records   one row per record, with the columns of Spark's own Kafka connector
batches   one row per stored batch (format 2) or message or wrapper (formats 0 and 1), its bytes
          as the log has them
ranges    one row per piece of a partition that a task is to work through by itself
"""

from __future__ import annotations

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)

RECORDS = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", TIMESTAMP),
        pa.field("timestampType", pa.int32(), nullable=False),
    ]
)
"""`timestampType`: 0 CreateTime, 1 LogAppendTime, -1 none (format 0), as in the connector."""

RECORDS_AND_HEADERS = RECORDS.append(pa.field("headers", HEADERS))
"""With includeHeaders. Null for a record without headers, as in the connector."""

BATCHES = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("base_offset", pa.int64()),
        pa.field("last_offset", pa.int64(), nullable=False),
        pa.field("records", pa.int32()),
        pa.field("magic", pa.int32(), nullable=False),
        pa.field("codec", pa.string(), nullable=False),
        pa.field("timestamp_type", pa.int32(), nullable=False),
        pa.field("first_timestamp", TIMESTAMP),
        pa.field("max_timestamp", TIMESTAMP),
        pa.field("producer_id", pa.int64()),
        pa.field("producer_epoch", pa.int32()),
        pa.field("base_sequence", pa.int32()),
        pa.field("transactional", pa.bool_(), nullable=False),
        pa.field("control", pa.bool_(), nullable=False),
        pa.field("leader_epoch", pa.int32()),
        pa.field("crc", pa.int64(), nullable=False),
        pa.field("size", pa.int32(), nullable=False),
        pa.field("batch", pa.binary(), nullable=False),
    ]
)
"""`base_offset` and `records` are null for a wrapper of formats 0 and 1: only opening it would
tell. The producer's columns are null where there is none, or the format has none. `size` is that
of `batch` in bytes; `codec` is a name of `protocol.records.compression.NAMES`."""

RANGES = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("start_offset", pa.int64(), nullable=False),
        pa.field("end_offset", pa.int64(), nullable=False),
        pa.field("topic_id", pa.string()),
    ]
)
"""From `start_offset` up to, and without, `end_offset`. `topic_id` is null where there is none."""
