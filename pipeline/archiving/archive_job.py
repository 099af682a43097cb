"""Archiving of a range, in a task, and of a micro-batch's ranges, in the driver."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipeline.archiving import archive_files
from pipeline.archiving.archive_files import STAGING
from pipeline.archiving.by_topic import TOPIC
from pipeline.archiving.coverage import Covered
from pipeline.archiving.staged import RangeFiles, StagedFile
from pipeline.columns.decode_batches import record_count
from pipeline.filesystem import locate
from pipeline.reading.connections import Connections
from pipeline.reading.ranges import LeftOut, Meter, batches_of, records_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from client.cluster import TopicPartition
    from pipeline.archiving.by_topic import TopicPublications
    from pipeline.archiving.layout import Layout
    from pipeline.archiving.parquet_writer import Compression
    from pipeline.archiving.publication import Publication
    from pipeline.filesystem import Location
    from pipeline.reading.options import SourceOptions
    from pipeline.reading.plan import Range
    from pipeline.reading.source import Source
    from pipeline.tables.added import Told


@dataclass(frozen=True)
class ArchiveTask:
    """Writes a range into staged files. Picklable: it holds no connection."""

    source: SourceOptions
    """Its shape is `ranges`; how its offsets are to be read is in here as well."""
    folder: Location
    layout: Layout
    cluster: str | None
    compression: Compression
    published: int = -1
    """The last micro-batch that is part of the archive: it is not to be read again."""
    by_topic: str | None = None
    """The name of a topic's folder, where each has one; `folder` is not used then."""
    topics_published: Mapping[str, int] = field(default_factory=dict)
    """The same as `published`, by topic."""
    begins: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Of partitions that were to begin at an offset: no record below is wanted with a batch."""

    def work(
        self, range_: Range, batch_id: int, connections: Connections | None = None
    ) -> dict[str, Any]:
        """Fetch a range and stage its files. In a plain archive that is one, of no rows if there is
        no record in the range.

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
        if batch_id <= self.topics_published.get(range_.topic, self.published):
            return facts
        staging = self._folder_of(range_.topic).under(STAGING, str(batch_id))
        left_out = LeftOut()
        meter = Meter()
        told: dict[str, Told] = {}
        with contextlib.ExitStack() as own:
            connections = connections or own.enter_context(Connections())
            source = connections.get("source", self.source.source)
            if self.layout.apart:
                with RangeFiles(staging, range_, self.layout, self.compression) as files:
                    records = self._copy(source, range_, files, left_out, meter)
                    files.finish(self._metadata(range_, batch_id, left_out))
                written, size, told = files.files, files.size, files.told
            else:
                name = archive_files.name_of(
                    range_.topic, range_.partition, range_.start, range_.end
                )
                # A task that was given up may still write while its second attempt does.
                staged = f"{name}.{uuid.uuid4().hex[:8]}"
                with StagedFile(staging, staged, self.layout.shape, self.compression) as file:
                    records = self._copy(source, range_, file, left_out, meter)
                    size = file.finish(self._metadata(range_, batch_id, left_out))
                written = {name: staged}
        return {
            **facts,
            "files": written,
            "told": told,
            "records": records,
            "bytes": meter.bytes,
            "file_bytes": size,
            **left_out.as_json(),
        }

    def _folder_of(self, topic: str) -> Location:
        return self.folder if self.by_topic is None else locate(self.by_topic.replace(TOPIC, topic))

    def _copy(
        self,
        source: Source,
        range_: Range,
        file: StagedFile | RangeFiles,
        left_out: LeftOut,
        meter: Meter,
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
        if self.layout.shape == "records":
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
            shape=self.layout.shape,
            topic=range_.topic,
            partition=range_.partition,
            start=range_.start,
            end=range_.end,
            cluster=self.cluster,
            batch=batch_id,
            missing=left_out.offsets_missing + left_out.offsets_corrupt,
        )


class ArchiveJob:
    """The RangeJob of archive. Only its task travels; publishing is the driver's."""

    def __init__(
        self, task: ArchiveTask, publication: Publication | TopicPublications | None
    ) -> None:
        self.task = task
        self._publication = publication

    def work(
        self, range_: Range, batch_id: int, connections: Connections | None = None
    ) -> dict[str, Any]:
        """As RangeJob has it."""
        return self.task.work(range_, batch_id, connections)

    def commit(self, batch_id: int, results: list[dict[str, Any]]) -> None:
        """As RangeJob has it. Raises Refused, ForeignState."""
        assert self._publication is not None
        done = [facts for facts in results if "files" in facts]
        for publication, some in self._publication.shares(done):
            files = {name: staged for facts in some for name, staged in facts["files"].items()}
            told = {name: tuple(one) for facts in some for name, one in facts["told"].items()}
            publication.publish(batch_id, files, [covered_by(facts) for facts in some], told)

    def __reduce__(self) -> tuple[Any, ...]:
        return ArchiveJob, (self.task, None)


def covered_by(facts: Mapping[str, Any]) -> Covered:
    """What a task has covered."""
    missing = LeftOut.of_json(facts)
    return Covered(
        facts["topic"],
        facts["partition"],
        facts["end"] - facts["offsets"],
        facts["end"],
        missing.offsets_missing + missing.offsets_corrupt,
    )
