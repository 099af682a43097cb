"""Every file of one partition, compared with its log.

The log files are gone through once, in order, in large pieces; the indexes, the epochs, the
transactions and the producers are compared on the way. Memory does not grow with the files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.logdata.metadata_names import METADATA_TOPIC
from storage.errors import MalformedFile
from storage.inspection import text_files
from storage.inspection.context import Context
from storage.inspection.facts import (
    OPENED_BYTES_MAX,
    faults,
    faults_inside,
    first_offset_inside,
    is_ordinary,
)
from storage.inspection.findings import Report, no_progress
from storage.inspection.folder_names import FolderNames
from storage.inspection.index_files import NOWHERE
from storage.inspection.log_walk import Damage, LogWalk
from storage.inspection.metadata_rows import check_snapshot, metadata_faults
from storage.inspection.producer_watch import (
    ProducerWatch,
    SnapshotCheck,
    read_snapshot,
)
from storage.inspection.segment_check import SegmentCheck
from storage.inspection.transaction_states import STATE_TOPIC, TransactionStates
from storage.layout import (
    LOG,
    METADATA_LOG,
    SNAPSHOT,
    file_name,
    partition_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.filesystem import Filesystem
    from storage.inspection.findings import Finding, Progress
    from storage.scan import Entry
    from storage.transaction_index import AbortedTransaction

SNAPSHOT_BYTES_MAX = 64 * 1024 * 1024
"""A larger `.snapshot` is not read: it would be of more than a million producers."""

DAMAGES_MAX = 10_000
"""Damaged places of one segment that are remembered; a repair of more is not tried."""

COMPACTED_TOPICS = ("__consumer_offsets", STATE_TOPIC)


class PartitionCheck:
    """Use `run`; afterwards the attributes say what the log is like.

    `next_offset` is the log's end, `first_base` its first segment's base offset (-1 if there is
    no segment). `damages` has the damaged places by the base offset of their segment, and `aborted`
    the transactions that belong into its `.txnindex`; `gap_end` is where the last segment begins
    that does not follow the one before it, `overlaps` are the bases of those that begin before the
    end of it. `states` has the records of a partition of `__transaction_state`, None of others.
    """

    def __init__(
        self,
        files: Filesystem,
        folder: str,
        *,
        context: Context | None = None,
        deep: bool = False,
        progress: Progress = no_progress,
        only: frozenset[str] | None = None,
    ) -> None:
        self.files = files
        self.folder = folder
        self.name = folder.rpartition("/")[2]
        self.context = context or Context()
        self.deep = deep
        self.progress = progress
        self.report = Report(self.name)
        self.names = FolderNames(files, folder, only)
        self.next_offset = self.names.bases[0] if self.names.bases else 0
        self.first_base = self.names.bases[0] if self.names.bases else -1
        self.topic_id: bytes | None = None
        self.damages: dict[int, list[Damage]] = {}
        self.too_much_damage = False
        self.aborted: dict[int, list[AbortedTransaction]] = {}
        self.gap_end = -1
        self.overlaps: list[int] = []
        self.log_start = max(self.first_base, self.context.log_start)
        self.watch = ProducerWatch(self.log_start, gaps_below=self.context.gaps_below)
        topic = partition_of(self.name)
        of_transactions = topic is not None and topic[0] == STATE_TOPIC
        self.states = TransactionStates() if of_transactions else None
        self.of_metadata = topic is not None and topic[0] == METADATA_TOPIC
        self.compacted = self.context.compacted or (
            topic is not None and topic[0] in COMPACTED_TOPICS
        )
        if self.names.in_replacement:
            self.compacted = True
        self.after_damage = False
        self._base = -1
        self._last_damage: Damage | None = None
        self._whole = only is None
        self.epochs = text_files.EpochCheck(None, self.report)
        self._snapshots: list[int] = []
        self._next_snapshot = NOWHERE

    def run(self) -> Iterator[Finding]:
        """Yields the findings, file by file."""
        self.names.tell(self.report)
        self._text_files()
        yield from self._ended()
        self._begin_with_producers()
        for index, base in enumerate(self.names.bases):
            yield from self._segment(index, base)
            yield from self._ended()
        while self._next_snapshot <= self.next_offset:
            self._compare_snapshot()
        self._end()
        yield from self._ended()
        for name in self.names.checkpoints:
            yield from check_snapshot(self.files, self.folder, name, self.name, self.progress)

    def _ended(self) -> list[Finding]:
        self.report.end_file()
        return self.report.taken()

    # Small files

    def _needs_metadata(self) -> bool:
        """Every partition has the file but that of the metadata log, whose id is fixed."""
        expected = self.name != METADATA_LOG and not self.context.old
        return self._whole and bool(self.names.bases) and expected

    def _text_files(self) -> None:
        report = self.report
        if self.names.has_metadata:
            self.topic_id = text_files.check_partition_metadata(self.files, self.folder, report)
        elif self._needs_metadata():
            report.warn(
                "partition-metadata",
                "the file is missing; Apache Kafka would put the partition aside",
                file=text_files.PARTITION_METADATA,
            )
        if self.names.has_epochs:
            epochs = text_files.read_epochs(self.files, self.folder, report)
            self.epochs = text_files.EpochCheck(
                epochs,
                report,
                excused_from=self.context.excused_from(),
                log_start=self.context.log_start,
                epoch_max=self.context.epoch_max,
            )
        elif self._whole:
            self.epochs.missing = True
        for name in self.names.others:
            text_files.check_other(self.files, self.folder, name, report)

    # Producers

    def _begin_with_producers(self) -> None:
        self._snapshots = self.names.snapshots
        if self.compacted or self.context.cleaned_to > 0:
            self.watch.complete = False
        if self.first_base > 0:
            states = None
            if self.first_base in self._snapshots:
                states = self._read_snapshot(self.first_base, quiet=True)
            if states is None:
                self.watch.complete = False
            else:
                self.watch.begin_with(states.states)
        self._take_next_snapshot()

    def _take_next_snapshot(self) -> None:
        self._next_snapshot = self._snapshots.pop(0) if self._snapshots else NOWHERE

    def _read_snapshot(self, offset: int, *, quiet: bool = False) -> SnapshotCheck | None:
        name = file_name(offset, SNAPSHOT)
        path = f"{self.folder}/{name}"
        try:
            size = self.files.size_of(path)
            if size > SNAPSHOT_BYTES_MAX:
                raise MalformedFile(name, f"{size} bytes are too many for a snapshot")
            states = read_snapshot(self.files.read_bytes(path), name)
            return SnapshotCheck(states, offset)
        except (MalformedFile, OSError) as error:
            if not quiet:
                reason = str(error).removeprefix(f"{name}: ")
                # One that a crash cut short; the next start does without it.
                torn = offset > self.context.excused_from()
                tell = self.report.warn if torn else self.report.error
                tell("snapshot", reason, file=name)
            return None

    def _compare_snapshot(self) -> None:
        """The log has been gone through up to the next snapshot's offset."""
        snapshot = self._read_snapshot(self._next_snapshot)
        if snapshot is not None and self.first_base >= 0 and snapshot.offset > self.first_base:
            snapshot.compare(self.watch, self.report)
        self._take_next_snapshot()

    # Segments

    def _segment(self, index: int, base: int) -> Iterator[Finding]:
        bases = self.names.bases
        if index and base < self.next_offset:
            tell = self.report.warn if self.names.in_replacement else self.report.error
            tell(
                "overlap",
                f"begins at offset {base}, the segment before ends at {self.next_offset}",
                file=file_name(base, LOG),
                offset=base,
            )
            self.overlaps.append(base)
            self.watch.complete = False
        elif base > self.next_offset:
            if self._last_damage is not None:
                self._last_damage.next_offset = base
                self._last_damage = None
            self._gap(base, file_name(base, LOG), -1)
            self.next_offset = base
        active = index + 1 == len(bases)
        self._base = base
        path = f"{self.folder}/{file_name(base, LOG)}"
        try:
            file = self.files.open_to_read(path)
            size = file.size()
        except OSError as error:
            self.report.error("unreadable", f"{error.strerror}", file=file_name(base, LOG))
            return
        segment = SegmentCheck(self, base, file, active=active)
        following = None if active else bases[index + 1]
        walk = LogWalk(file, size, lowest=base, following=following, progress=self.progress)
        try:
            for found in walk:
                if isinstance(found, Damage):
                    segment.damage(found, size)
                    self._remember(base, found)
                else:
                    segment.entry(found, walk)
                if self.report.pending:
                    yield from self.report.taken()
        except OSError as error:
            self.report.error("unreadable", f"{error.strerror}", file=file_name(base, LOG))
        self.next_offset = max(self.next_offset, base, walk.last_offset + 1)
        self.aborted[base] = segment.finish()
        file.close()

    def _remember(self, base: int, damage: Damage) -> None:
        """Keep a damage for whoever repairs; neighbours are one."""
        damages = self.damages.setdefault(base, [])
        if damages and damages[-1].end == damage.position:
            damages[-1].end = damage.end
        elif len(damages) < DAMAGES_MAX:
            damages.append(damage)
            self._last_damage = damage
        else:
            self.too_much_damage = True

    def follow(self, entry: Entry, walk: LogWalk, file: str) -> None:
        """Compare an entry with all but its segment's indexes; `SegmentCheck` calls it for each."""
        if entry.first_offset >= self._next_snapshot:
            self.next_offset = max(self.next_offset, entry.first_offset)
            while entry.first_offset >= self._next_snapshot:
                self._compare_snapshot()
        expected = self.next_offset
        first_offset = entry.first_offset
        if entry.header is None and entry.codec:
            first_offset = self._open_wrapper(entry, walk, file)
        if first_offset > expected:
            self._gap(first_offset, file, entry.position)
        if self._last_damage is not None:
            self._last_damage.next_offset = entry.first_offset
            self._last_damage = None
        self.after_damage = False
        self.next_offset = max(expected, entry.last_offset + 1)
        if not is_ordinary(entry):
            for wrong, reason in faults(entry):
                self._fact(entry, file, reason, wrong=wrong)
        if self.deep and entry.header is not None and entry.size <= OPENED_BYTES_MAX:
            for wrong, reason in faults_inside(entry, walk.bytes_of(entry)):
                self._fact(entry, file, reason, wrong=wrong)
        if self.of_metadata and entry.size <= OPENED_BYTES_MAX:
            for wrong, reason in metadata_faults(walk.bytes_of(entry)):
                self._fact(entry, file, reason, wrong=wrong)
        if self.states is not None and entry.header is not None:
            self._feed(self.states, entry, walk, file)
        if entry.header is None:
            self.epochs.legacy()
            return
        self.epochs.batch(entry, self._base)

    def _feed(self, states: TransactionStates, entry: Entry, walk: LogWalk, file: str) -> None:
        if entry.size > OPENED_BYTES_MAX:
            states.complete = False
            return
        for offset, fault in states.feed(walk.bytes_of(entry)):
            reason = f"{fault}; a start passes over it, Apache Kafka 3.9 may load for ever"
            self.report.warn(
                "transaction-state", reason, file=file, position=entry.position, offset=offset
            )

    def _open_wrapper(self, entry: Entry, walk: LogWalk, file: str) -> int:
        """The first offset inside, -1 if it cannot be told. A wrapper states only its last one, and
        that under no checksum, so it is opened without being asked."""
        if entry.size > OPENED_BYTES_MAX:
            return -1
        data = walk.bytes_of(entry)
        for wrong, reason in faults_inside(entry, data):
            self._fact(entry, file, reason, wrong=wrong)
        return first_offset_inside(data)

    def _fact(self, entry: Entry, file: str, reason: str, *, wrong: bool) -> None:
        tell = self.report.error if wrong else self.report.warn
        tell("batch", reason, file=file, position=entry.position, offset=entry.first_offset)

    def _gap(self, until: int, file: str, position: int) -> None:
        """Offsets that are nowhere, from the log's end so far up to `until`."""
        first = self.next_offset
        self.watch.complete = False
        # Below the log start any segment may have gone already.
        if self.compacted or until <= max(self.context.cleaned_to, self.context.log_start):
            return
        if position < 0:
            self.gap_end = until
        if self.after_damage:
            return
        if self.names.were_taken_out(first, until):
            self.report.note(
                "gap",
                f"offsets {first}..{until - 1} were set aside",
                file=file,
                position=position,
                offset=first,
            )
            return
        unserved = position < 0 and until > self.context.gaps_below
        tell = self.report.error if unserved else self.report.warn
        tell(
            "gap",
            f"offsets {first}..{until - 1} are missing"
            + ("; a broker answers CORRUPT_MESSAGE for them" if unserved else ""),
            file=file,
            position=position,
            offset=first,
        )

    def _end(self) -> None:
        report, end = self.report, self.next_offset
        self.epochs.finish(end)
        while self._next_snapshot != NOWHERE:
            if self.names.bases:
                report.warn(
                    "snapshot",
                    f"of offset {self._next_snapshot}, the log ends at {end}",
                    file=file_name(self._next_snapshot, SNAPSHOT),
                    offset=self._next_snapshot,
                )
            self._take_next_snapshot()
        if (
            self.context.clean
            and self._whole
            and self.watch.states
            and not self.names.snapshots_seen
        ):
            report.error(
                "snapshot",
                "no producer snapshot after a clean stop, but the log has producers: Apache Kafka "
                "would know none of them",
            )
