"""Archiving of a range, in a task, and of a micro-batch's ranges, in the driver."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipeline.archiving import archive_files
from pipeline.archiving.archive_files import STAGING
from pipeline.archiving.parquet_writer import ArchiveWriter, Compression
from pipeline.columns.decode_batches import record_count
from pipeline.filesystem import Location, refusing, sync
from pipeline.reading.ranges import LeftOut, Meter, batches_of, records_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    import pyarrow as pa

    from client.cluster import TopicPartition
    from pipeline.archiving.publication import Publication
    from pipeline.reading.options import SourceOptions
    from pipeline.reading.plan import Range, Source


@dataclass(frozen=True)
class ArchiveTask:
    """Writes a range into one staged file. Picklable: it holds no connection."""

    source: SourceOptions
    """Its shape is `ranges`; how its offsets are to be read is in here as well."""
    folder: Location
    shape: str
    cluster: str | None
    compression: Compression
    published: int = -1
    """The last micro-batch that is part of the archive: it is not to be read again."""
    begins: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Of partitions that were to begin at an offset: no record below is wanted with a batch."""

    def work(self, range_: Range, batch_id: int) -> dict[str, Any]:
        """Fetch a range and stage its file, of no rows if there is no record in the range.

        Memory is that of a row group and of a few fetches, whatever the size of the range. Raises
        Refused if the file cannot be written, and what reading raises.
        """
        facts = {
            "topic": range_.topic,
            "partition": range_.partition,
            "end": range_.end,
            "offsets": range_.size,
            "records": 0,
            "bytes": 0,
        }
        if batch_id <= self.published:
            return facts
        name = archive_files.name_of(range_.topic, range_.partition, range_.start, range_.end)
        # A task that was given up may still write while its second attempt does.
        staged = f"{name}.{uuid.uuid4().hex[:8]}"
        folder = self.folder.under(STAGING, str(batch_id))
        left_out = LeftOut()
        with (
            contextlib.closing(self.source.source()) as source,
            StagedFile(folder, staged, self.shape, self.compression) as file,
        ):
            meter = Meter()
            records = self._copy(source, range_, file, left_out, meter)
            size = file.finish(self._metadata(range_, batch_id, left_out))
        return {
            **facts,
            "name": name,
            "staged": staged,
            "records": records,
            "bytes": meter.bytes,
            "file_bytes": size,
            **left_out.as_json(),
        }

    def _copy(
        self, source: Source, range_: Range, file: StagedFile, left_out: LeftOut, meter: Meter
    ) -> int:
        """Write a range to `file`; returns the number of records."""
        told: dict[str, Any] = {
            "on_gap": self.source.on_gap,
            "on_corrupt": self.source.on_corrupt,
            "committed_only": self.source.committed_only,
            "fetch_bytes": self.source.fetch_bytes,
            "left_out": left_out,
            "meter": meter,
        }
        records = 0
        if self.shape == "records":
            for rows in records_of(source, range_, headers=True, **told):
                file.add(rows)
                records += rows.num_rows
            return records
        begin = self.begins.get(range_.topic_partition, 0)
        for rows in batches_of(source, range_, begin=begin, **told):
            file.add(rows)
            records += record_count(rows)
        return records

    def _metadata(self, range_: Range, batch_id: int, left_out: LeftOut) -> dict[bytes, bytes]:
        return archive_files.metadata(
            shape=self.shape,
            topic=range_.topic,
            partition=range_.partition,
            start=range_.start,
            end=range_.end,
            cluster=self.cluster,
            batch=batch_id,
            missing=left_out.offsets_missing + left_out.offsets_corrupt,
        )


class StagedFile:
    """A file that is being written; gone again unless it was finished. Raises Refused."""

    def __init__(self, folder: Location, name: str, shape: str, compression: Compression) -> None:
        self._folder = folder
        self._place = folder.under(name)
        self._what = f"write {self._place.path}"
        self._shape = shape
        self._compression = compression
        self._finished = False

    def __enter__(self) -> Self:
        with refusing(self._what):
            self._folder.make()
            self._stream = self._place.filesystem.open_output_stream(self._place.path)
        self._writer = ArchiveWriter(self._stream, self._shape, self._compression)
        return self

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows, in the order of their offsets."""
        with refusing(self._what):
            self._writer.add(rows)

    def finish(self, metadata: Mapping[bytes, bytes]) -> int:
        """Bring it to the disk whole. Its size in bytes."""
        with refusing(self._what):
            self._writer.close(metadata)
            self._stream.close()
            if self._place.is_local:
                sync(self._place.path)
            size = self._place.filesystem.get_file_info(self._place.path).size
        self._finished = True
        return int(size)

    def __exit__(self, *_: object) -> None:
        if self._finished:
            return
        self._writer.abandon()
        with contextlib.suppress(OSError):
            self._stream.close()
        with contextlib.suppress(OSError):
            self._place.filesystem.delete_file(self._place.path)


class ArchiveJob:
    """The RangeJob of archive. Only its task travels; publishing is the driver's."""

    def __init__(self, task: ArchiveTask, publication: Publication | None) -> None:
        self.task = task
        self._publication = publication

    def work(self, range_: Range, batch_id: int) -> dict[str, Any]:
        """As RangeJob has it."""
        return self.task.work(range_, batch_id)

    def commit(self, batch_id: int, results: list[dict[str, Any]]) -> None:
        """As RangeJob has it. Raises Refused, ForeignState."""
        assert self._publication is not None
        files = {facts["name"]: facts["staged"] for facts in results if "name" in facts}
        self._publication.publish(batch_id, files)

    def __reduce__(self) -> tuple[Any, ...]:
        return ArchiveJob, (self.task, None)
