"""The Delta table of a topic's newest values: a row for each key of a partition, merged by offset.

A micro-batch is one merge and one commit of the table's log. What it was is noted in the commit as
application transactions, which Delta keeps through checkpoints, optimize, vacuum and the clearing
of its log:

    <state id>                          the number of the last micro-batch that is in the table
    <state id>/<topic>/<partition>      the next offset of the partition; all below it are in

A row whose newest record is a tombstone is deleted. An older record never takes the place of a
newer one. A deleted key has nothing to compare with: so micro-batches that are in are not merged
again, and neither are offsets below those that are.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.dataset as ds

from pipeline.errors import Refused
from pipeline.filesystem import sync
from pipeline.schemas import RECORDS_AND_HEADERS
from pipeline.tables.delta import Delta
from pipeline.tables.durable import keep
from pipeline.tables.table import Stretch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from client.cluster import TopicPartition
    from pipeline.filesystem import Location
    from pipeline.reading.plan import Range

KEY = ("topic", "partition", "key")
"""What makes a row of the table one: a key is of its partition, as in Kafka's compaction."""
MERGE_BYTES = 1 << 30
"""A merge takes so much memory before it writes what it sorts to the disk."""
OFFSET_MAX = 2**63 - 1
_SAME = " AND ".join(f"t.{name} = s.{name}" for name in KEY)
_NEWER = "s.offset > t.offset"


class CurrentTable(Delta):
    """A Delta table of newest values, with the columns of an archive's records."""

    _synced: frozenset[str] = frozenset()
    """Files of the table that are known to be on the disk."""

    @property
    def last(self) -> int:
        """The last micro-batch that is in the table; -1 before the first. Raises Refused."""
        with self._refusing("cannot be read"):
            self._table.update_incremental()
            noted = self._table.transaction_version(self._state_id)
        return -1 if noted is None else int(noted)

    def end(self, partition: TopicPartition) -> int | None:
        """The offset up to which a partition's records are in the table; None if none ever were."""
        found = self._table.transaction_version(self._of(partition))
        return None if found is None else int(found)

    def rows_of(self, partition: TopicPartition) -> pa.Table:
        """The rows of a partition, in any order. Raises Refused, CorruptData."""
        names = RECORDS_AND_HEADERS.names
        found = list(self.version().rows(Stretch(*partition, "offset", 0, OFFSET_MAX), names))
        if not found:
            return RECORDS_AND_HEADERS.empty_table()
        return pa.Table.from_batches(found).select(names).cast(RECORDS_AND_HEADERS)

    def merge(
        self, batch_id: int, files: Sequence[Location], ranges: Mapping[TopicPartition, Range]
    ) -> None:
        """Take a micro-batch in, if it is not: `files` of records, in which a key comes only once,
        and the range of each partition that they are of. It is on the disk then. Raises Refused."""
        from deltalake import CommitProperties, Transaction

        if not self.has(batch_id):
            self._refuse_what_is_in(ranges)
            notes = [Transaction(self._state_id, batch_id)]
            notes += [
                Transaction(self._of(one), range_.end) for one, range_ in sorted(ranges.items())
            ]
            with self._refusing(f"does not take micro-batch {batch_id}"):
                merger = self._table.merge(
                    _reader(files),
                    _SAME,
                    source_alias="s",
                    target_alias="t",
                    max_spill_size=MERGE_BYTES,
                    commit_properties=CommitProperties(app_transactions=notes),
                )
                merger = merger.when_matched_delete(f"{_NEWER} AND s.value IS NULL")
                merger = merger.when_matched_update_all(_NEWER)
                merger.when_not_matched_insert_all("s.value IS NOT NULL").execute()
        self._bring_to_disk(batch_id)

    def _bring_to_disk(self, batch_id: int) -> None:
        """What the package leaves to the system, whose order may be another: the files of the
        table, and its log."""
        if not self._folder.is_local:
            return
        with self._refusing(f"does not keep micro-batch {batch_id}"):
            files = frozenset(unquote(urlparse(uri).path) for uri in self._table.file_uris())
            for path in files - self._synced:
                sync(path)
            for folder in {str(Path(path).parent) for path in files - self._synced}:
                sync(folder)
            self._synced = files
            self._kept = keep(self._folder.under("_delta_log"), self._kept)

    def _refuse_what_is_in(self, ranges: Mapping[TopicPartition, Range]) -> None:
        """The same offsets are planned again when a topic was deleted and made anew."""
        for partition, range_ in ranges.items():
            end = self.end(partition) or 0
            if range_.start < end:
                raise Refused(
                    f"the Delta table in {self._folder.path} has {partition} up to offset "
                    f"{end - 1:,} already, and was to get {range_.start:,} to {range_.end - 1:,}: "
                    "the topic has been made anew, or its offsets set back; make another table, "
                    "with another state"
                )

    def _of(self, partition: TopicPartition) -> str:
        return f"{self._state_id}/{partition.topic}/{partition.partition}"


def _reader(files: Iterable[Location]) -> pa.RecordBatchReader:
    """The rows of all files, a piece at a time."""
    places = list(files)
    dataset = ds.dataset(
        [place.path for place in places],
        RECORDS_AND_HEADERS,
        format="parquet",
        filesystem=places[0].filesystem,
    )
    return dataset.scanner().to_reader()
