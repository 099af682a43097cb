"""What the writer of archives chooses for the columns of a file."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.archiving.parquet_writer import SAMPLED_FROM_ROWS, ArchiveWriter, Compression

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA = pa.schema([("few", pa.string()), ("each", pa.int64()), ("half", pa.binary())])


def _encodings(rows: int) -> Mapping[str, tuple[str, ...]]:
    numbers = range(rows)
    columns = {
        "few": [f"{number % 7}" for number in numbers],
        "each": [number * 7919 for number in numbers],
        "half": [b"%d" % number if number % 2 else None for number in numbers],
    }
    stream = io.BytesIO()
    writer = ArchiveWriter(stream, "values", Compression(), schema=SCHEMA)
    writer.add(pa.RecordBatch.from_pydict(columns, SCHEMA))
    writer.close({})
    assert pq.read_table(stream).to_pydict() == columns
    group = pq.ParquetFile(stream).metadata.row_group(0)
    found = (group.column(number) for number in range(group.num_columns))
    return {column.path_in_schema: column.encodings for column in found}


def test_a_column_whose_values_are_all_different_has_no_dictionary() -> None:
    found = _encodings(SAMPLED_FROM_ROWS)
    with_dictionary = {name for name, encodings in found.items() if "RLE_DICTIONARY" in encodings}
    assert with_dictionary == {"few", "half"}


def test_of_a_small_file_that_is_not_looked_for() -> None:
    assert all("RLE_DICTIONARY" in encodings for encodings in _encodings(1000).values())
