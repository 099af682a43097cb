"""The files of a range while they are written: staged, and gone again unless all is finished."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from pipeline.archiving import archive_files
from pipeline.archiving.parquet_writer import ROW_GROUP_BYTES, ArchiveWriter, Compression
from pipeline.archiving.stretches import COUNTED
from pipeline.filesystem import Location, refusing, sync
from pipeline.tables.added import told_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    import pyarrow as pa

    from pipeline.archiving.layout import Layout
    from pipeline.reading.plan import Range
    from pipeline.tables.added import Told

OPEN_FILES = 32
"""Of a range with more values that have folders of their own, one is ended for the next."""


class StagedFile:
    """A file that is being written; gone again unless it was finished. Raises Refused."""

    def __init__(
        self, folder: Location, name: str, shape: str, compression: Compression, **rest: Any
    ) -> None:
        self._folder = folder
        self._place = folder.under(name)
        self._what = f"write {self._place.path}"
        self._shape = shape
        self._compression = compression
        self._rest = rest
        self._finished = False
        self._size = self._changed_ms = 0

    def __enter__(self) -> Self:
        with refusing(self._what):
            self._folder.make()
            self._stream = self._place.filesystem.open_output_stream(self._place.path)
        self._writer = ArchiveWriter(self._stream, self._shape, self._compression, **self._rest)
        return self

    @property
    def waiting_bytes(self) -> int:
        """In memory, of rows that are not written yet."""
        return self._writer.waiting_bytes

    @property
    def written_bytes(self) -> int:
        """In the file by now."""
        return int(self._stream.tell())

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows, in the order of their offsets."""
        with refusing(self._what):
            self._writer.add(rows)

    def flush(self) -> None:
        """End a row group."""
        with refusing(self._what):
            self._writer.flush()

    def finish(self, metadata: Mapping[bytes, bytes]) -> int:
        """Bring it to the disk whole. Its size in bytes."""
        with refusing(self._what):
            self._writer.close(metadata)
            self._stream.close()
            if self._place.is_local:
                sync(self._place.path)
            info = self._place.filesystem.get_file_info(self._place.path)
        self._size, self._changed_ms = int(info.size), (info.mtime_ns or 0) // 1_000_000
        self._finished = True
        return self._size

    def told(self) -> Told:
        """What a table is told of one that was finished."""
        return told_of(self._size, self._changed_ms, self._writer.footer)

    def remove(self) -> None:
        """Remove one that was finished, if that is possible."""
        with contextlib.suppress(OSError):
            self._place.filesystem.delete_file(self._place.path)

    def __exit__(self, *_: object) -> None:
        if self._finished:
            return
        self._writer.abandon()
        with contextlib.suppress(OSError):
            self._stream.close()
        self.remove()


class _Open:
    """A file of a range, and the offsets in it."""

    def __init__(self, file: StagedFile, staged: str) -> None:
        self.file = file
        self.staged = staged
        self.first: int | None = None
        self.last = -1


class RangeFiles:
    """The files of a range in a layout, whose coverage is kept apart; `files` when it is finished.

    Rows of all files that wait to be written are together bounded by ROW_GROUP_BYTES.
    """

    def __init__(
        self, staging: Location, range_: Range, layout: Layout, compression: Compression
    ) -> None:
        self._staging = staging
        self._range = range_
        self._layout = layout
        self._compression = compression
        self._counted = COUNTED[layout.shape]
        self._open: dict[str, _Open] = {}
        """By folder, that which was written to last at the end."""
        self._ended: list[StagedFile] = []
        self._metadata: Mapping[bytes, bytes] = {}
        self.files: dict[str, str] = {}
        """By their names below the archive's folder, what they are staged as."""
        self.size = 0
        """In bytes, of all of them."""
        self.told: dict[str, Told] = {}
        """By their names, what a table is told of them."""

    def __enter__(self) -> Self:
        return self

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows, in the order of their offsets. Raises Refused."""
        for folder, some in self._layout.split(rows):
            one = self._open.pop(folder, None) or self._begin()
            self._open[folder] = one
            one.file.add(some)
            bounds = pc.min_max(some[self._counted]).as_py()
            one.first = bounds["min"] if one.first is None else one.first
            one.last = bounds["max"]
            limit = self._layout.file_bytes
            if limit is not None and one.file.written_bytes >= limit:
                self._end(folder)
        while len(self._open) > OPEN_FILES:
            self._end(next(iter(self._open)))
        while sum(one.file.waiting_bytes for one in self._open.values()) > ROW_GROUP_BYTES:
            max(self._open.values(), key=lambda one: one.file.waiting_bytes).file.flush()

    def finish(self, metadata: Mapping[bytes, bytes]) -> None:
        """Bring all to the disk whole. Raises Refused."""
        self._metadata = metadata
        for folder in list(self._open):
            self._end(folder)

    def __exit__(self, kind: object, *_: object) -> None:
        for one in self._open.values():
            one.file.__exit__()
        if kind is not None:
            for file in self._ended:
                file.remove()

    def _begin(self) -> _Open:
        # A task that was given up may still write while its second attempt does.
        staged = f"{self._range.topic[:100]}-{self._range.partition}.{uuid.uuid4().hex}"
        file = StagedFile(
            self._staging,
            staged,
            self._layout.shape,
            self._compression,
            schema=self._layout.file_schema,
            sort_by=self._layout.sort_by,
        )
        return _Open(file.__enter__(), staged)

    def _end(self, folder: str) -> None:
        one = self._open.pop(folder)
        self.size += one.file.finish(self._metadata)
        self._ended.append(one.file)
        assert one.first is not None
        name = archive_files.name_of(
            self._range.topic, self._range.partition, one.first, one.last + 1
        )
        name = f"{self._layout.folder}{folder}{name}"
        self.files[name] = one.staged
        if self._layout.table != "parquet":
            self.told[name] = one.file.told()
