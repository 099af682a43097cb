"""Values as they go to Spark's decoders: Confluent's header, and a mark at the end.

    magic       int8, 0
    schema id   int32, as the registry counts
    payload     the rest

An Avro payload does not say where it ends: bytes that are left over, or a value that another schema
wrote, often decode to something. MARK is put behind it, and decoded as one more field; only a value
of exactly these bytes ends before it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

HEADER_SIZE = 5
MARK = b"\x8ctriglot"
"""Eight bytes; no text in UTF-8 has the first one as its beginning."""


def schema_ids(values: pa.BinaryArray) -> pa.Int32Array:
    """The schema id of each value; null where there is no header of Confluent's."""
    lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
    has_header = lengths >= HEADER_SIZE
    ids = np.zeros(len(values), np.int32)
    if has_header.any():
        content = np.frombuffer(values.buffers()[2], np.uint8)
        offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset :][: len(values)]
        starts = offsets[has_header]
        header = content[starts[:, None] + np.arange(HEADER_SIZE)]
        ids[has_header] = header[:, 1:].copy().view(">i4")[:, 0]
        has_header[has_header] = header[:, 0] == 0
    return pa.array(ids, mask=~has_header)


def marked(values: pa.BinaryArray) -> pa.BinaryArray:
    """Values with MARK behind them; null for null."""
    mark, nothing = pa.scalar(MARK, values.type), pa.scalar(b"", values.type)
    return pc.binary_join_element_wise(values, mark, nothing)
