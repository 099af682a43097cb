"""Files in folders that Hive's readers know, read as if they were a table: there is no log."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from pipeline.errors import CorruptData
from pipeline.tables.table import DataFile, Stretch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pipeline.filesystem import Location


class FilesVersion(NamedTuple):
    """As pipeline.tables.table.TableVersion has it. Files are only ever added, whole."""

    folder: Location
    fields: tuple[pa.Field, ...]
    """The columns that the names of folders tell."""

    def files(self) -> list[DataFile]:
        """As TableVersion has it. Raises CorruptData."""
        with self._readable():
            return [_told(fragment) for fragment in self._opened().get_fragments()]

    def has_deleted_rows(self) -> bool:
        """As TableVersion has it."""
        return False

    def rows(self, stretch: Stretch, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """As TableVersion has it. Raises CorruptData."""
        counted = ds.field(stretch.column)
        wanted = (
            (ds.field("topic") == stretch.topic)
            & (ds.field("partition") == stretch.partition)
            & (counted >= stretch.start)
            & (counted < stretch.end)
        )
        with self._readable():
            yield from self._opened().to_batches(columns=list(columns), filter=wanted)

    def places(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """As TableVersion has it. Raises CorruptData."""
        with self._readable():
            yield from self._opened().to_batches(columns=list(columns))

    def _opened(self) -> Any:
        filesystem, path = self.folder
        # Hidden names are none of a reader's, those that are staged among them.
        found = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
        inside = len(path.rstrip("/")) + 1
        paths = [
            info.path
            for info in found
            if info.type == fs.FileType.File
            and info.path.endswith(".parquet")
            and not any(name[0] in "_." for name in info.path[inside:].split("/"))
        ]
        return ds.dataset(
            sorted(paths),
            filesystem=filesystem,
            format="parquet",
            partitioning=ds.partitioning(pa.schema(self.fields), flavor="hive"),
            partition_base_dir=path,
        )

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError, ValueError) as failure:
            line = " ".join(str(failure).split())
            raise CorruptData(f"the files in {self.folder.path} cannot be read: {line}") from None


def _told(fragment: Any) -> DataFile:
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    for group in fragment.row_groups:
        for name, bounds in (group.statistics or {}).items():
            low, high = bounds["min"], bounds["max"]
            least[name] = low if name not in least else min(least[name], low)
            greatest[name] = high if name not in greatest else max(greatest[name], high)
    told = ds.get_partition_keys(fragment.partition_expression)
    return DataFile(
        fragment.path,
        fragment.filesystem.get_file_info(fragment.path).size,
        fragment.metadata.num_rows,
        {**least, **told},
        {**greatest, **told},
    )
