"""Opening a partition: what to trust, what to scan, what to cut.

After a clean stop nothing is scanned: the facts noted when the log was closed are compared with
the sizes of its last files, and that is all. Nor is a log after a crash that nobody has appended to
since the last clean stop: most of thousands are idle.

Otherwise the log is read from its recovery point on: headers and checksums of every batch, to the
first that a crash has left unfinished. The log ends there, and what is cut off is kept beside it
(`storage.cut_tails`). What was synced once is never cut: where it is damaged, that is not a crash's
doing, and costs the damaged batch and nothing behind it (`storage.segment_recovery`).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from protocol.records.layout import ATTRIBUTES, CONTROL_BIT
from storage.cut_tails import Cut
from storage.epochs import LeaderEpochs, as_written
from storage.errors import MalformedFile, is_disk_full
from storage.layout import (
    INDEX,
    LARGEST_OFFSET,
    LEADER_EPOCHS,
    LOG,
    OFFSET_DIGITS,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    file_name,
    offset_of,
)
from storage.log import Log
from storage.producer_recovery import ProducerRecovery
from storage.reports import RecoveryReport
from storage.scan import Entry
from storage.segment import Segment
from storage.segment_recovery import End, SegmentRecovery
from storage.segments import Segments
from storage.swaps import finish_renames
from storage.syncing import SyncFile, SyncFolder
from storage.transaction_index import NOTHING

if TYPE_CHECKING:
    from storage.clean_state import CleanState
    from storage.filesystem import Filesystem
    from storage.producers import ProducerStates
    from storage.settings import LogSettings
    from storage.syncing import SyncStep

QUARANTINED = ".damaged"
"""Appended to the name of a segment file that contradicts the ones before it; never deleted."""


class LastKnown(NamedTuple):
    """The state of one partition as the checkpoints noted it.

    `recovery_point`, below which batches and indexes were synced, `synced`, below which batches
    were, and `high_watermark`; `start_offset`, if the log does not start at its first segment;
    `clean`, the state in which the last stop in good order left it. If the last one was not
    (`was_clean`), that state still holds if nothing was appended in between.

    `cleaned_to` is the offset up to which compaction has been, None if it has not.

    `gaps_below`: what lies above this offset was written by us, and not by another broker. A gap
    between two segments that is above it and above the recovery point means that the end of
    a segment never reached the disk while the next segment did; the log ends before the gap, so
    that it stays a prefix of what was appended. Unknown means that every gap has to be believed
    (`storage.noted`).
    """

    recovery_point: int = 0
    high_watermark: int = 0
    start_offset: int | None = None
    clean: CleanState | None = None
    was_clean: bool = True
    cleaned_to: int | None = None
    gaps_below: int = LARGEST_OFFSET
    synced: int = 0


def open_log(
    files: Filesystem,
    folder: str,
    settings: LogSettings,
    *,
    known: LastKnown | None = None,
    leader_epoch: int = 0,
    now_ms: int = 0,
) -> tuple[Log, list[RecoveryReport]]:
    """Open the log in an existing folder; an empty folder becomes an empty log. Raises OSError."""
    opening = Opening(files, folder, settings, known or LastKnown(), leader_epoch, now_ms)
    return opening.run(), opening.reports


class Opening:
    """The steps of opening one log, in the order of `run`."""

    def __init__(
        self,
        files: Filesystem,
        folder: str,
        settings: LogSettings,
        known: LastKnown,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        self.files = files
        self.folder = folder
        self.name = folder.rpartition("/")[2]
        self.settings = settings
        self.known = known
        self.leader_epoch = leader_epoch
        self.now_ms = now_ms
        self.reports: list[RecoveryReport] = []
        self.segments: list[Segment] = []
        self.scanned: list[Segment] = []
        self.next_offset = 0
        self.damage: str | None = None
        self.epochs = LeaderEpochs()
        self.epochs_stored = False
        self.stored: list[SyncStep] = []
        self.markers_from = LARGEST_OFFSET  # the first one at or above the recovery point
        self.clean = False

    def run(self) -> Log:
        names = finish_renames(self.files, self.folder, self.files.list_dir(self.folder))
        self._find_segments(names)
        created = not self.segments
        if created:
            self._create_first()
        self.clean = not created and self._is_as_it_was_left(names)
        self.epochs_stored = self._load_epochs(names)
        without_epochs = not len(self.epochs)
        if self.clean and self.known.clean is not None:
            self.next_offset = self.known.clean.next_offset
        elif not created:
            self._recover()
        if not created:
            active = self.segments[-1]
            active.verified.inherit(active.byte_size(), self.next_offset)
        start_offset = self._start_offset()
        if without_epochs and self.next_offset > start_offset:
            self._rebuild_epochs()
        self.epochs.cut_end(self.next_offset)
        self.epochs.cut_start(start_offset)
        recovery_point = self.next_offset if self.clean else self.known.recovery_point
        log = Log(
            self.files,
            self.folder,
            Segments(self.segments, self.epochs),
            self.settings,
            start_offset=start_offset,
            next_offset=self.next_offset,
            recovery_point=min(recovery_point, self.next_offset),
            leader_epoch=self.leader_epoch,
            epochs=self.epochs,
            producers=self._load_producers(names),
        )
        log.epochs_stored = self.epochs_stored
        self._hand_over(log)
        return log

    def _hand_over(self, log: Log) -> None:
        """Give the log what it has to know, and what it has to sync before it promises anything.

        If only the process died, all it wrote is there to be read, and none of it may be on the
        disk: not the names of its files, nor the segments that it sealed.
        """
        if self.clean:
            log.clean_state = self.known.clean
        else:
            sealed = [segment for segment in self.scanned if segment is not log.active]
            log.sync_next(*sealed, *self.stored)
            if not log.active.is_new:  # else the first batch does
                log.sync_next(SyncFolder(self.files, self.folder))
            if len(log.epochs) and not log.epochs_stored:
                log.store_epochs()
            if self.damage is None:
                log.received.cut_file()
        if self.damage is not None:
            log.fail(self.damage)
        log.active.count_entries()
        log.active.release_file()  # opened again when needed; there may be thousands of logs

    # Finding the files

    def _segment(self, base_offset: int) -> Segment:
        return Segment(
            self.files,
            self.folder,
            base_offset,
            interval_bytes=self.settings.index_interval_bytes,
        )

    def _find_segments(self, names: list[str]) -> None:
        bases = {base for name in names if (base := offset_of(name, LOG)) is not None}
        with_aborted = set()
        for name in names:
            suffix = name[OFFSET_DIGITS:]
            if suffix not in (INDEX, TIME_INDEX, TRANSACTION_INDEX):
                continue
            base = offset_of(name, suffix)
            if base is not None and base not in bases:
                self.files.remove(f"{self.folder}/{name}")
            elif suffix == TRANSACTION_INDEX:
                with_aborted.add(base)
        self.segments = [self._segment(base) for base in sorted(bases)]
        for segment in self.segments:
            if segment.base_offset not in with_aborted:
                segment.aborted = NOTHING

    def _create_first(self) -> None:
        """An empty log; it begins where the checkpoint says the old one was cut off, if it does."""
        self.next_offset = self.known.start_offset or 0
        # One at offset 0 says nothing that its folder does not say.
        make = Segment.create if self.next_offset else Segment.empty
        self.segments = [
            make(
                self.files,
                self.folder,
                self.next_offset,
                interval_bytes=self.settings.index_interval_bytes,
                opened_ms=self.now_ms,
            )
        ]

    def _is_as_it_was_left(self, names: list[str]) -> bool:
        """Whether the last files have the sizes noted at the clean stop. Looks into none."""
        clean = self.known.clean
        if clean is None or not (self.known.was_clean or self._may_be_untouched(clean)):
            return False
        found = clean.difference(self.files, self.segments[-1], frozenset(names))
        if found is not None and self.known.was_clean:  # else a crash explains it
            self._report(f"clean stop, but {found.reason}", file=found.file)
        return found is None

    def _may_be_untouched(self, clean: CleanState) -> bool:
        """Whether nothing else tells of appends since a clean stop that a crash followed."""
        noted = max(self.known.recovery_point, self.known.high_watermark, self.known.synced)
        return self.segments[-1].base_offset == clean.base_offset and noted <= clean.next_offset

    def _start_offset(self) -> int:
        first = self.segments[0].base_offset
        start = self.known.start_offset
        if start is None or start <= first:
            return first
        if start > self.next_offset:
            # Kafka would delete the whole log here. A checkpoint is not worth that much.
            self._report(
                f"the checkpointed log start {start} is above the log's end {self.next_offset}; "
                f"it is ignored"
            )
            return first
        return start

    def _report(self, reason: str, *, file: str = "") -> None:
        self.reports.append(
            RecoveryReport(self.name, reason, file=file, next_offset=self.next_offset)
        )

    # Reading what a crash may have spoilt

    def _recover(self) -> None:
        """Read from the recovery point to the end and cut what a crash left unfinished."""
        point = self.known.recovery_point
        bases = [segment.base_offset for segment in self.segments]
        # The segment that ends just at the recovery point may have been sealed after it was
        # reached; its indexes are then not to be believed to their end.
        first = max(bisect_right(bases, point - 1) - 1, 0)
        self.next_offset = bases[first]
        kept = self.segments[:first]
        is_closed = is_damaged = False
        for index in range(first, len(self.segments)):
            segment = self.segments[index]
            if index > first and segment.base_offset < self.next_offset:
                self._quarantine(segment)
                continue
            end = self._gap_before(segment, kept[-1]) if index > first else None
            if end is not None:
                segment = kept[-1]
            else:
                kept.append(segment)
                self.scanned.append(segment)
                self.next_offset = max(self.next_offset, segment.base_offset)
                next_base = bases[index + 1] if index + 1 < len(bases) else None
                end, is_closed, is_damaged = self._recover_segment(segment, next_base)
            if end is not None:
                later = [other for other in self.segments[index:] if other not in kept]
                self._cut(segment, end, later)
                break
            if index + 1 < len(self.segments):
                segment.finish_times()
                if not is_damaged:  # else the files may know more
                    self._store_indexes(segment)
        self.segments = kept
        if is_closed:
            self._begin_behind_damage()
        # The active segment's index files may go on with entries of batches that were cut. They
        # must be gone before the recovery point passes their offsets, or they will be believed.
        self._store_indexes(kept[-1])
        if self.next_offset < point:
            self._report(f"the recovery point {point} is above the log's end")

    def _begin_behind_damage(self) -> None:
        """Begin a segment: the one before ends in damaged records, and how many is not known but
        for those that had been synced."""
        self.next_offset = max(self.next_offset, self.known.high_watermark)
        sealed = self.segments[-1]
        sealed.finish_times()
        self._store_indexes(sealed)
        try:
            segment = Segment.create(
                self.files,
                self.folder,
                self.next_offset,
                interval_bytes=self.settings.index_interval_bytes,
                opened_ms=self.now_ms,
            )
        except OSError as error:
            if not is_disk_full(error):
                raise
            self.damage = f"{self.name}: no room to go on behind damaged records: {error}"
            return
        self.segments.append(segment)

    def _store_indexes(self, segment: Segment) -> None:
        below = self.known.recovery_point - segment.base_offset
        if segment.offsets.count_below(below, segment.size) > segment.offsets.stored:
            segment.replace_indexes()
        else:
            self.stored += segment.store_indexes()

    def _gap_before(self, segment: Segment, previous: Segment) -> End | None:
        """The end of the log before a segment that does not begin where the one before it ends;
        None if the gap is allowed."""
        base, known = segment.base_offset, self.known
        if base <= max(
            self.next_offset,
            known.recovery_point,
            known.gaps_below,
            known.start_offset or 0,  # of the segments below, any may have gone
        ):
            return None
        reason = f"offsets {self.next_offset}..{base - 1} are missing"
        return End(previous.written_size, reason)

    def _recover_segment(
        self, segment: Segment, next_base: int | None
    ) -> tuple[End | None, bool, bool]:
        """Read one segment; returns where it has to end, whether it takes no more appends, and
        whether there are damaged records in it."""
        reading = SegmentRecovery(
            segment,
            recovery_point=self.known.recovery_point,
            synced=self.known.synced,
            gaps_below=self.known.gaps_below,
            epochs=self.epochs,
            leader_epoch=self.leader_epoch,
            next_base=next_base,
        )
        for entry in reading:
            segment.note(entry)
            self._note_epoch(entry)
            if entry.header is not None and entry.header[ATTRIBUTES] & CONTROL_BIT:
                self.markers_from = min(self.markers_from, entry.last_offset)
        self.next_offset = max(self.next_offset, reading.next_offset)
        for damage in reading.damages:
            self.reports.append(
                RecoveryReport(
                    self.name,
                    f"damaged records, which are not served: {damage.reason}",
                    file=file_name(segment.base_offset, LOG),
                    position=damage.position,
                    next_offset=self.next_offset,
                    offsets_lost=damage.next_offset - damage.first_offset,
                )
            )
        return reading.end, reading.is_closed, bool(reading.damages)

    def _note_epoch(self, entry: Entry) -> None:
        if entry.leader_epoch > self.epochs.latest:
            self.epochs.assign(entry.leader_epoch, entry.first_offset)
            self.epochs_stored = False

    def _cut(self, segment: Segment, end: End, later: list[Segment]) -> None:
        """End the log there. What is taken off is kept beside it, and named."""
        cut = Cut(self.files, self.folder, self.next_offset, self.known.high_watermark)
        self.reports += cut.run(segment, end.position, end.reason, later)

    def _quarantine(self, segment: Segment) -> None:
        """Put aside a file whose offsets the segment before it holds already.

        An empty one comes from a roll that failed, and nobody misses it.
        """
        if not segment.byte_size():
            for suffix in SEGMENT_SUFFIXES:
                self.files.remove(segment.path(suffix))
            return
        path = segment.path()
        self.files.rename(path, path + QUARANTINED)
        for suffix in (INDEX, TIME_INDEX, TRANSACTION_INDEX):
            self.files.remove(segment.path(suffix))
        self._report(
            f"begins below the end {self.next_offset} of the segment before it; put aside",
            file=file_name(segment.base_offset, LOG),
        )

    # Epochs and producers

    def _load_epochs(self, names: list[str]) -> bool:
        """Read the checkpoint; returns whether the file can stay as it is."""
        if LEADER_EPOCHS not in names:
            return False
        path = f"{self.folder}/{LEADER_EPOCHS}"
        data = self.files.read_bytes(path)
        try:
            whole = as_written(data, path)
            self.epochs = LeaderEpochs.decode(whole, path)
        except MalformedFile as error:
            self._report(f"{error}; epochs are taken from the batches", file=LEADER_EPOCHS)
            return False
        if whole != data:
            self._report(
                "one bit is wrong, as the checksum shows; it is set right", file=LEADER_EPOCHS
            )
        return not self.epochs.cut_above(self.leader_epoch) and whole == data

    def _rebuild_epochs(self) -> None:
        """Read all headers of the log: only they know when which epoch began. Recovery has done
        that where the recovery point is not above the log's first offset."""
        if len(self.epochs) and self.known.recovery_point <= self.segments[0].base_offset:
            return
        self.epochs = LeaderEpochs()
        for segment in self.segments:
            segment.byte_size()
            for entry in segment.verified.entries(0):
                if isinstance(entry, Entry) and entry.leader_epoch <= self.leader_epoch:
                    self._note_epoch(entry)
            if segment is not self.segments[-1]:
                segment.release_file()

    def _load_producers(self, names: list[str]) -> ProducerStates:
        """Producer states from the snapshots and the log; puts the transaction indexes in order."""
        recovery = ProducerRecovery(self.files, self.folder, self.segments, self._report_snapshot)
        if self.damage is None:
            offsets = (offset_of(name, SNAPSHOT) for name in names)
            self._remove_snapshots([at for at in offsets if at and at > self.next_offset])
            point = self.known.recovery_point
            for segment in self.scanned:
                recovery.believe_below(segment, point, markers_from=self.markers_from)
        for base in self._lost_transaction_indexes(names):
            recovery.make_anew(base)
        keep_at = -1
        if not self.known.was_clean and self.damage is None:
            # What was synced before that was noted has been answered.
            keep_at = min(max(self.known.synced, self.known.recovery_point), self.next_offset)
        producers = recovery.run(names, self.next_offset, keep_at=keep_at)
        self.stored += [SyncFile(self.files, path) for path in recovery.unsynced]
        if recovery.snapshot is not None:
            self.stored.append(recovery.snapshot)
        return producers

    def _lost_transaction_indexes(self, names: list[str]) -> list[int]:
        """Segments whose transaction index was there at the last clean stop."""
        clean, present = self.known.clean, set(names)
        lost = []
        # Since a stop that a crash followed, compaction may have removed some.
        for base in clean.aborted if clean is not None and self.known.was_clean else ():
            name = file_name(base, TRANSACTION_INDEX)
            if name not in present and file_name(base, LOG) in present:
                self._report("aborted transactions are taken from the batches", file=name)
                lost.append(base)
        return lost

    def _report_snapshot(self, name: str, error: MalformedFile) -> None:
        self._report(f"{error}; removed", file=name)

    def _remove_snapshots(self, offsets: list[int]) -> None:
        """Remove the snapshots of a log that was longer.

        Durably: if one came back after another crash, when the log has grown past its offset again
        with other batches, it would tell of producers what was true of the lost ones.
        """
        for offset in offsets:
            self.files.remove(f"{self.folder}/{file_name(offset, SNAPSHOT)}")
        if offsets:
            self.files.sync_dir(self.folder)
