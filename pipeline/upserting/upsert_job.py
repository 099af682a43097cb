"""A micro-batch of a table of newest values: ranges reduced in tasks, merged by the driver."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.archiving.archive_files import STAGING
from pipeline.archiving.parquet_writer import Compression
from pipeline.archiving.staged import StagedFile
from pipeline.left_out import LeftOut
from pipeline.reading.connections import Connections
from pipeline.reading.plan import Range
from pipeline.reading.ranges import Meter, records_of
from pipeline.upserting.debezium import DEBEZIUM, rows_of_events
from pipeline.upserting.newest import Counted, newest_of, with_keys

if TYPE_CHECKING:
    from pipeline.filesystem import Location
    from pipeline.reading.options import SourceOptions
    from pipeline.upserting.current_table import CurrentTable

STAGED = Compression("lz4")
"""Of files that are read once, at once: the table's own are the package's."""


@dataclass(frozen=True)
class UpsertTask:
    """Stages the newest record of each key of a range. Picklable: it holds no connection."""

    source: SourceOptions
    """Its shape is `ranges`, and it cuts no partition into several in a micro-batch: what is merged
    must have a key only once."""
    folder: Location
    envelope: str | None = None
    """What values are in: DEBEZIUM, or None for values as they are."""
    merged: int = -1
    """The last micro-batch that is in the table: it is not to be read again."""

    def work(
        self, range_: Range, batch_id: int, connections: Connections | None = None
    ) -> dict[str, Any]:
        """Fetch a range and stage a file with the newest record of each key, tombstones too.

        Memory is twice that of these records, and a few fetches. Raises CorruptData, unless
        onCorrupt is skip, for a record without a key and for a newest one that is not in the
        envelope; Refused; and what reading raises.
        """
        facts = {
            "topic": range_.topic,
            "partition": range_.partition,
            "start": range_.start,
            "end": range_.end,
            "offsets": range_.size,
            "records": 0,
            "bytes": 0,
        }
        if batch_id <= self.merged:
            return facts
        left_out, meter = LeftOut(), Meter()
        with contextlib.ExitStack() as own:
            connections = connections or own.enter_context(Connections())
            source = connections.get("source", self.source.source)
            records = Counted(
                records_of(
                    source,
                    range_,
                    headers=True,
                    on_gap=self.source.on_gap,
                    on_corrupt=self.source.on_corrupt,
                    committed_only=self.source.committed_only,
                    left_out=left_out,
                    meter=meter,
                    fetch_bytes=self.source.fetch_bytes,
                )
            )
            skip = left_out if self.source.on_corrupt == "skip" else None
            newest = newest_of(with_keys(records, range_, skip))
        if self.envelope == DEBEZIUM:
            newest = rows_of_events(newest, range_, skip)
        # A task that was given up may still write while its second attempt does.
        staged = f"{range_.topic[:100]}-{range_.partition}.{uuid.uuid4().hex}"
        with StagedFile(
            self.folder.under(STAGING, str(batch_id)), staged, "records", STAGED
        ) as file:
            for some in newest.to_batches():
                file.add(some)
            size = file.finish({})
        return {
            **facts,
            "staged": staged,
            "records": records.rows,
            "newest": newest.num_rows,
            "bytes": meter.bytes,
            "file_bytes": size,
            **left_out.as_json(),
        }


class UpsertJob:
    """The RangeJob of a table of newest values. Only its task travels; merging is the driver's."""

    def __init__(self, task: UpsertTask, table: CurrentTable | None) -> None:
        self.task = task
        self._table = table

    def work(
        self, range_: Range, batch_id: int, connections: Connections | None = None
    ) -> dict[str, Any]:
        """As RangeJob has it."""
        return self.task.work(range_, batch_id, connections)

    def commit(self, batch_id: int, results: list[dict[str, Any]]) -> None:
        """As RangeJob has it. Raises Refused."""
        assert self._table is not None
        staging = self.task.folder.under(STAGING, str(batch_id))
        files = [staging.under(facts["staged"]) for facts in results if "staged" in facts]
        told = [
            Range(facts["topic"], facts["partition"], facts["start"], facts["end"])
            for facts in results
        ]
        if files:
            self._table.merge(batch_id, files, {one.topic_partition: one for one in told})
        if staging.exists():
            staging.filesystem.delete_dir(staging.path)

    def __reduce__(self) -> tuple[Any, ...]:
        return UpsertJob, (self.task, None)
