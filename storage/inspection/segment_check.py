"""One segment: its log file against its indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from protocol.records.layout import PRODUCER_ID
from storage.inspection.index_files import OffsetIndexCheck, TimeIndexCheck
from storage.inspection.log_walk import ORDER, TORN, ZEROS
from storage.inspection.producer_watch import (
    MARKER_BYTES_MAX,
    TransactionIndexCheck,
    is_marker,
    marker_of,
)
from storage.layout import INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX, file_name

if TYPE_CHECKING:
    from storage.filesystem import File, Filesystem
    from storage.inspection.context import Context
    from storage.inspection.findings import Report
    from storage.inspection.folder_names import FolderNames
    from storage.inspection.log_walk import Damage, LogWalk
    from storage.inspection.producer_watch import ProducerWatch
    from storage.scan import Entry
    from storage.transaction_index import AbortedTransaction


class Partition(Protocol):
    """The partition that is being checked (`PartitionCheck`), as far as its segments go."""

    after_damage: bool
    context: Context
    files: Filesystem
    folder: str
    log_start: int
    names: FolderNames
    report: Report
    watch: ProducerWatch

    def follow(self, entry: Entry, walk: LogWalk, file: str) -> None:
        """Compare an entry with all but the indexes of its segment."""


class SegmentCheck:
    """Compares a segment's files with each other while the partition is gone through."""

    def __init__(self, partition: Partition, base_offset: int, file: File, *, active: bool) -> None:
        self.partition = partition
        self.file_name = file_name(base_offset, LOG)
        self.active = active
        self._file = file
        self._base = base_offset
        self._last_offset = base_offset - 1
        self._opened: list[File] = []
        report, context = partition.report, partition.context
        self._clean = context.clean
        offsets, times = self._open(INDEX), self._open(TIME_INDEX)
        name = file_name(base_offset, INDEX)
        self._offsets: OffsetIndexCheck | None = None
        if offsets is not None:
            self._offsets = OffsetIndexCheck(offsets, name, base_offset, report)
        name = file_name(base_offset, TIME_INDEX)
        self._times: TimeIndexCheck | None = None
        if times is not None:
            self._times = TimeIndexCheck(times, name, base_offset, report)
        self._aborted = TransactionIndexCheck(
            self._open(TRANSACTION_INDEX),
            base_offset,
            report,
            excused_from=context.excused_from(),
            log_start=partition.log_start,
        )

    def _open(self, suffix: str) -> File | None:
        partition = self.partition
        name = file_name(self._base, suffix)
        if name not in partition.names.present:
            before_time = partition.context.old and not partition.names.has_time_indexes
            # A log's first segment is given them with the first entries that are stored.
            not_yet = self.active and not self._clean
            if not not_yet and (suffix == INDEX or (suffix == TIME_INDEX and not before_time)):
                partition.report.warn(
                    "index-missing", "the file is missing; a start makes it again", file=name
                )
            return None
        try:
            file = partition.files.open_to_read(f"{partition.folder}/{name}")
        except OSError as error:
            partition.report.error("unreadable", f"{error.strerror}", file=name)
            return None
        self._opened.append(file)
        return file

    def entry(self, entry: Entry, walk: LogWalk) -> None:
        # Of most entries an index has nothing to say; the question is cheaper than the call.
        offsets, times, last = self._offsets, self._times, entry.last_offset
        if offsets is not None and (
            entry.position >= offsets.next_position or last >= offsets.wanted
        ):
            offsets.entry(entry, self._last_offset)
        self._last_offset = last
        if times is not None and (last >= times.next_offset or entry.max_timestamp > times.largest):
            times.entry(entry)
        self.partition.follow(entry, walk, self.file_name)
        header = entry.header
        if header is None or header[PRODUCER_ID] < 0:
            return
        watch = self.partition.watch
        if not is_marker(header):
            watch.entry(header, entry.first_offset)
            return
        data = walk.bytes_of(entry) if entry.size <= MARKER_BYTES_MAX else memoryview(b"")
        marker = marker_of(entry, data)
        aborted = watch.marker(header, entry.last_offset, marker)
        self._aborted.marker(header, entry.last_offset, marker, aborted, complete=watch.complete)

    def damage(self, damage: Damage, size: int) -> None:
        partition, context = self.partition, self.partition.context
        after = damage.last_offset + 1
        reason = f"{damage.size} bytes: {damage.reason}"
        tell = partition.report.error
        tail = self.active and damage.end == size
        if tail and not context.clean and after >= (context.recovery_point or 0):
            reason += "; above the recovery point, a start cuts them off"
            if context.recovery_point is not None and damage.kind in (TORN, ZEROS):
                tell = partition.report.warn
        tell(damage.kind, reason, file=self.file_name, position=damage.position, offset=after)
        if self._offsets is not None:
            self._offsets.damage(damage)
        if self._times is not None:
            self._times.damage(damage)
        if damage.kind != ORDER:
            self._aborted.blurred = True
        partition.watch.complete = False
        partition.after_damage = True

    def finish(self) -> list[AbortedTransaction]:
        """Compare what is left, and return what belongs into the `.txnindex`."""
        settled = not self.active or self._clean
        if self._offsets is not None:
            self._offsets.finish(self._file.size(), settled=settled, clean=self._clean)
        if self._times is not None:
            self._times.finish(settled=settled, clean=self._clean)
        self._aborted.finish()
        for file in self._opened:
            file.close()
        return self._aborted.right
