"""Parquet as an archive has it, from record batches of any size, in little memory.

row groups    of ROW_GROUP_BYTES in memory or ROW_GROUP_ROWS, whichever is reached first
statistics    on offsets, timestamps, topic and partition only, unless values are columns: a reader
              can leave out row groups by them, and those of keys and values would be large and
              prune nothing
encodings     numbers that grow by little are stored as differences, values as they are
compression   zstd, of everything but batches that the log has compressed already
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.errors import WrongUse
from pipeline.schemas import BATCHES, RECORDS_AND_HEADERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMAS = {"records": RECORDS_AND_HEADERS, "batches": BATCHES}

ROW_GROUP_BYTES = 64 << 20
ROW_GROUP_ROWS = 1 << 20

CODECS = ("zstd", "snappy", "gzip", "lz4", "none")
ZSTD_LEVEL = 3
"""Spark's default; that of Arrow is 1."""

_PRUNED_BY = {
    "records": ("topic", "partition", "offset", "timestamp"),
    "batches": (
        "topic",
        "partition",
        "base_offset",
        "last_offset",
        "first_timestamp",
        "max_timestamp",
    ),
}
_GROWING = {
    "records": ("offset", "timestamp"),
    "batches": ("base_offset", "last_offset", "first_timestamp", "max_timestamp"),
    "values": ("_offset", "_timestamp"),
}
_WITHOUT_DICTIONARY = {"value", "batch", "crc", "headers.list.element.value"}
SAMPLED_ROWS, MOSTLY = 8192, 0.95
"""The first rows of a file, and the part of them that is different where a column gets no
dictionary: it would be larger than its limit of a MiB, and be given up when most is in it."""
SAMPLED_FROM_ROWS = 8 * SAMPLED_ROWS
"""In a smaller file looking for that takes longer than it saves."""


@dataclass(frozen=True)
class Compression:
    """The compression of columns: one of CODECS, and its level (None: the usual one)."""

    codec: str = "zstd"
    level: int | None = None

    def check(self) -> None:
        """Raises WrongUse for a codec or level that is not known here."""
        if self.codec not in CODECS:
            raise WrongUse(f"no such codec of Parquet: {self.codec!r}; known: {', '.join(CODECS)}")
        if self.codec != "none" and not pa.Codec.is_available(self._arrow):
            raise WrongUse(f"this build of pyarrow has no {self.codec}: choose another codec")
        if self.level is None:
            return
        if self.codec not in ("zstd", "gzip"):
            raise WrongUse(f"{self.codec} has no levels: leave the level out")
        lowest, highest = (
            pa.Codec.minimum_compression_level(self._arrow),
            pa.Codec.maximum_compression_level(self._arrow),
        )
        if not lowest <= self.level <= highest:
            raise WrongUse(
                f"{self.codec} has levels from {lowest} to {highest}, and {self.level} is none"
            )

    @property
    def _arrow(self) -> str:
        # In Parquet, plain `lz4` is a framing that few can read.
        return "lz4_raw" if self.codec == "lz4" else self.codec

    def of(self, columns: list[str], *, stored: str | None) -> dict[str, Any]:
        """The arguments of Arrow's writer; column `stored` is not compressed."""
        level = ZSTD_LEVEL if self.codec == "zstd" and self.level is None else self.level
        chosen = {name: self.codec for name in columns if name != stored}
        return {
            "compression": {**chosen, **({stored: "none"} if stored else {})},
            "compression_level": None if level is None else dict.fromkeys(chosen, level),
        }


class ArchiveWriter:
    """Writes one file of an archive to an open stream; `close` ends it, the caller the stream."""

    def __init__(
        self,
        sink: Any,
        shape: str,
        compression: Compression,
        *,
        schema: pa.Schema | None = None,
        sort_by: Sequence[str] = (),
    ) -> None:
        """The columns of a `schema` are written, by default those of the shape. Rows are sorted in
        each row group by the columns `sort_by`, or left as they come."""
        self._sink = sink
        self._shape = shape
        self._compression = compression
        self._schema = SCHEMAS[shape] if schema is None else schema
        self._sort_by = sort_by
        self._waiting: list[pa.RecordBatch] = []
        self.waiting_bytes = 0
        """In memory, of rows that are not written yet."""
        self._waiting_rows = 0
        self._writer: pq.ParquetWriter | None = None
        self._footers: list[pq.FileMetaData] = []

    @property
    def footer(self) -> pq.FileMetaData:
        """Of a file that is closed."""
        return self._footers[0]

    def add(self, batch: pa.RecordBatch) -> None:
        """Rows, in the order of their offsets."""
        if not batch.num_rows:
            return
        self._waiting.append(batch.select(self._schema.names))
        self.waiting_bytes += batch.nbytes
        self._waiting_rows += batch.num_rows
        if self.waiting_bytes >= ROW_GROUP_BYTES or self._waiting_rows >= ROW_GROUP_ROWS:
            self.flush()

    def close(self, metadata: Mapping[bytes, bytes]) -> None:
        """Write what is left and the footer, with these keys and values."""
        if self._waiting or self._writer is None:
            self.flush()
        assert self._writer is not None
        self._writer.add_key_value_metadata(metadata)
        self._writer.close()
        self._writer = None

    def abandon(self) -> None:
        """Leave the file as it is; it is no Parquet file then."""
        self._waiting.clear()
        if self._writer is not None:
            # Without this its finalizer would write the footer to a stream that is gone.
            self._writer.is_open = False
            self._writer = None

    def flush(self) -> None:
        """Write a row group of the rows that wait."""
        table = pa.Table.from_batches(self._waiting, self._schema)
        if self._writer is None:
            self._writer = self._open(table)
        if table.num_rows:
            if self._sort_by:
                table = table.sort_by([(name, "ascending") for name in self._sort_by])
            self._writer.write_table(table, row_group_size=table.num_rows)
        self._waiting.clear()
        self.waiting_bytes = self._waiting_rows = 0

    def _open(self, first: pa.Table) -> pq.ParquetWriter:
        columns = _leaves(self._schema)
        stored = "batch" if self._shape == "batches" and _mostly_compressed(first) else None
        growing = [name for name in _GROWING[self._shape] if name in columns]
        return pq.ParquetWriter(
            self._sink,
            self._schema,
            write_statistics=self._statistics(columns),
            use_dictionary=[
                name
                for name in columns
                if name not in _WITHOUT_DICTIONARY
                and name not in growing
                and not _mostly_different(first, name)
            ],
            column_encoding=dict.fromkeys(growing, "DELTA_BINARY_PACKED"),
            metadata_collector=self._footers,
            **self._compression.of(columns, stored=stored),
        )

    def _statistics(self, columns: list[str]) -> list[str]:
        wanted = _PRUNED_BY.get(self._shape)
        if wanted is None:
            # Those of values are there to be asked for, but as a whole, not by what is in them.
            return [name for name in columns if "." not in name]
        return [name for name in wanted if name in columns]


def _mostly_different(rows: pa.Table, name: str) -> bool:
    """Whether hardly a value comes twice, of a column that is no part of another."""
    if rows.num_rows < SAMPLED_FROM_ROWS or "." in name:
        return False
    sampled = rows[name].slice(0, SAMPLED_ROWS)
    return int(pc.count_distinct(sampled, "only_valid").as_py()) > MOSTLY * SAMPLED_ROWS


def _mostly_compressed(batches: pa.Table) -> bool:
    """Whether more than half of the bytes are of batches with a codec."""
    sizes = batches["size"]
    plain = pc.sum(sizes.filter(pc.equal(batches["codec"], "none"))).as_py() or 0
    return bool(batches.num_rows) and 2 * plain < pc.sum(sizes).as_py()


def _leaves(schema: pa.Schema) -> list[str]:
    """Every column's name in Parquet, those inside of lists and structures too."""
    names: list[str] = []
    for field in schema:
        _add_leaves(names, field.name, field.type)
    return names


def _add_leaves(names: list[str], path: str, kind: pa.DataType) -> None:
    if pa.types.is_list(kind):
        _add_leaves(names, f"{path}.list.element", kind.value_type)
    elif pa.types.is_map(kind):
        _add_leaves(names, f"{path}.key_value.key", kind.key_type)
        _add_leaves(names, f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            _add_leaves(names, f"{path}.{field.name}", field.type)
    else:
        names.append(path)
