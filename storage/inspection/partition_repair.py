"""Repairing one partition: what is no entry goes out of its log, and the files beside it follow.

The order is one that a crash may interrupt anywhere: what goes out is on the disk under another
name first; indexes go before the log that they belong to changes; then the log; then new indexes.
A second repair finds whatever is left to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.records.layout import INT32, LEADER_EPOCH_POSITION
from storage.identity import encode_partition_metadata, uuid_text
from storage.inspection.context import Context
from storage.inspection.findings import ERROR, NOTE, no_progress
from storage.inspection.folder_names import QUORUM_STATE
from storage.inspection.log_walk import Damage, LogWalk
from storage.inspection.partition_check import PartitionCheck
from storage.inspection.producer_watch import write_snapshot
from storage.inspection.setting_aside import (
    DAMAGED,
    Change,
    copy_pieces,
    free_name,
    keep_copy,
    put_aside,
)
from storage.layout import (
    INDEX,
    LEADER_EPOCHS,
    LOG,
    PARTITION_METADATA,
    RECEIVE_TIMES,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    file_name,
    offset_of,
)
from storage.offset_index import OffsetIndex
from storage.syncing import SyncFile
from storage.time_index import TimeIndex
from storage.transaction_index import encode as encode_aborted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.filesystem import Filesystem
    from storage.inspection.findings import Finding, Progress

INDEX_INTERVAL_BYTES = 4096
"""Bytes of a log between two entries of an index that is made again; Kafka's default."""

PIECES_MAX = 100
"""From more damaged places in a segment, its whole old file is put aside instead of the pieces."""

INDEX_KINDS = ("index", "index-missing", "index-zeros", "time-index-end")


DUE_KINDS = (*INDEX_KINDS, "txn-index", "snapshot", "epochs", "epoch")


class PartitionRepair:
    """Use `examine`, then `run`. `check` has the partition as it was found; `changed` tells whether
    its log or an index was, or would be, touched."""

    def __init__(
        self,
        files: Filesystem,
        folder: str,
        context: Context,
        *,
        apply: bool,
        topic_id: bytes | None,
        wrong_id: bool = False,
        progress: Progress = no_progress,
    ) -> None:
        """`topic_id` is the right one; `wrong_id` that partition.metadata says a damaged one."""
        self.files = files
        self.folder = folder
        self.name = folder.rpartition("/")[2]
        self.apply = apply
        self.check = PartitionCheck(files, folder, context=context, progress=progress)
        self.changed = False
        self._topic_id = topic_id
        self._wrong_id = wrong_id
        self._findings: list[Finding] = []

    def examine(self) -> None:
        """Go through the partition; nothing is changed yet."""
        self._findings = [f for f in self.check.run() if f.severity != NOTE]

    @property
    def is_due(self) -> bool:
        """Whether `run` will change files of which a clean stop says that they are whole."""
        if self.check.too_much_damage:
            return False
        found = any(finding.kind in DUE_KINDS for finding in self._findings)
        return found or bool(self.check.damages or self.check.overlaps)

    def end_offset(self) -> int:
        """The log's end as it is now."""
        if not (self.apply and self.check.overlaps):
            return self.check.next_offset
        again = PartitionCheck(self.files, self.folder)
        for _ in again.run():
            continue
        return again.next_offset

    def sync(self) -> None:
        """Everything that the recovery point will cover reaches the disk."""
        if not self.apply:
            return
        for name in self.files.list_dir(self.folder):
            if any(offset_of(name, suffix) is not None for suffix in SEGMENT_SUFFIXES):
                SyncFile(self.files, self._path(name)).sync()
        self.files.sync_dir(self.folder)

    def run(self) -> Iterator[Change]:
        """Yields each change after it was made, or before it would be."""
        if self.check.too_much_damage:
            yield self._left("", "too many damaged places; restore the partition from a copy")
            return
        if self.check.names.in_replacement:
            if self.is_due:
                yield self._left("", "segments are being replaced; start a broker on it once")
            return
        for base in self.check.overlaps:
            yield from self._put_segment_aside(base)
        yield from self._wrong_epochs()
        for base in self.check.names.bases:
            if base not in self.check.overlaps:
                yield from self._segment(base)
        yield from self._epochs()
        yield from self._snapshots()
        yield from self._metadata()
        for finding in self._findings:
            if finding.severity == ERROR and finding.kind in ("batch", "unreadable"):
                yield self._left(
                    finding.file, f"position {finding.position}: {finding.reason}: nothing is done"
                )
            elif finding.file in (QUORUM_STATE, RECEIVE_TIMES):
                yield self._aside(finding.file, "malformed; it is done without")

    def _found(self, *kinds: str, file: str) -> bool:
        return any(f.file == file and f.kind in kinds for f in self._findings)

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def _change(self, file: str, what: str) -> Change:
        return Change(self.name, file, what)

    def _left(self, file: str, what: str) -> Change:
        return Change(self.name, file, what, left=True)

    def _aside(self, name: str, why: str) -> Change:
        target = put_aside(self.files, self._path(name)) if self.apply else name + DAMAGED
        return self._change(name, f"{why}; put aside as {target}")

    # Log files

    def _put_segment_aside(self, base: int) -> Iterator[Change]:
        self.changed = True
        name = file_name(base, LOG)
        yield self._aside(name, "repeats offsets of the segment before it")
        if self.apply:
            self._remove_indexes(base)

    def _wrong_epochs(self) -> Iterator[Change]:
        """Write the right leader epoch into batches: those four bytes are under no checksum."""
        for wrong in self.check.epochs.wrong:
            self.changed = True
            name = file_name(wrong.base_offset, LOG)
            if self.apply:
                path = self._path(name)
                modified_ms = self.files.modified_ms(path)
                file = self.files.open_file(path)
                file.write_at([INT32.pack(wrong.right)], wrong.position + LEADER_EPOCH_POSITION)
                file.sync()
                file.close()
                self.files.set_modified_ms(path, modified_ms)
            yield self._change(
                name,
                f"position {wrong.position}: the leader epoch is made {wrong.right}, it was "
                f"{wrong.epoch}",
            )

    def _segment(self, base: int) -> Iterator[Change]:
        damages = self.check.damages.get(base, [])
        if damages:
            self.changed = True
            yield from self._cut_out(base, damages)
        yield from self._indexes(base, anew=bool(damages))

    def _cut_out(self, base: int, damages: list[Damage]) -> Iterator[Change]:
        name = file_name(base, LOG)
        path = self._path(name)
        file = self.files.open_to_read(path)
        size = file.size()
        for target, pieces, what in self._pieces(name, damages, size):
            length = sum(end - position for position, end in pieces)
            free = free_name(self.files, self._path(target), length)
            if self.apply:
                copy_pieces(self.files, file, pieces, free)
            yield self._change(name, f"{what}; put aside as {free.rpartition('/')[2]}")
        if not self.apply:
            file.close()
            return
        self._remove_indexes(base)
        modified_ms = self.files.modified_ms(path)
        if len(damages) == 1 and damages[0].end == size:
            whole = self.files.open_file(path)
            whole.truncate(damages[0].position)
            whole.sync()
            whole.close()
        else:
            kept = []
            position = 0
            for damage in damages:
                kept.append((position, damage.position))
                position = damage.end
            copy_pieces(self.files, file, [*kept, (position, size)], path)
        file.close()
        # Retention and searches by time may go by it.
        self.files.set_modified_ms(path, modified_ms)

    def _pieces(
        self, name: str, damages: list[Damage], size: int
    ) -> Iterator[tuple[str, list[tuple[int, int]], str]]:
        """(name to put it aside under, what of the file, a sentence)."""
        if len(damages) > PIECES_MAX:
            yield name + DAMAGED, [(0, size)], f"{len(damages)} damaged places are cut out"
            return
        for damage in damages:
            first = damage.last_offset + 1
            after = damage.next_offset
            until = "end" if after < 0 else str(after)
            yield (
                f"{name}{DAMAGED}-{first}-{until}",
                [(damage.position, damage.end)],
                f"position {damage.position}: {damage.size} bytes are cut out: {damage.reason}",
            )

    def _remove_indexes(self, base: int) -> None:
        for suffix in SEGMENT_SUFFIXES[1:]:
            self.files.remove(self._path(file_name(base, suffix)))
        self.files.sync_dir(self.folder)

    def _indexes(self, base: int, *, anew: bool) -> Iterator[Change]:
        names = [file_name(base, suffix) for suffix in (INDEX, TIME_INDEX)]
        if anew or any(self._found(*INDEX_KINDS, file=name) for name in names):
            self.changed = True
            if self.apply:
                self._rebuild(base)
            yield self._change(names[0], "made again from the log")
            yield self._change(names[1], "made again from the log")
        name = file_name(base, TRANSACTION_INDEX)
        aborted = self.check.aborted.get(base, [])
        if self._found("txn-index", file=name) or (anew and aborted):
            self.changed = True
            if self.apply and aborted:
                self.files.write_atomic(self._path(name), encode_aborted(aborted))
            elif self.apply:
                self.files.remove(self._path(name))
                self.files.sync_dir(self.folder)
            yield self._change(name, "made again from the markers in the log")

    def _rebuild(self, base: int) -> None:
        """Both indexes, as they would be if every entry had been appended alone."""
        offsets, times = OffsetIndex(), TimeIndex()
        indexed, largest, largest_offset = 0, -1, base
        file = self.files.open_to_read(self._path(file_name(base, LOG)))
        for found in LogWalk(file, file.size(), lowest=base):
            if isinstance(found, Damage):
                continue
            if found.max_timestamp > largest:
                largest, largest_offset = found.max_timestamp, found.last_offset
            if found.position - indexed > INDEX_INTERVAL_BYTES:
                offsets.add(found.last_offset - base, found.position)
                times.add(largest, largest_offset - base)
                indexed = found.position
        times.add(largest, largest_offset - base)
        file.close()
        self.files.write_atomic(self._path(file_name(base, INDEX)), offsets.encode())
        self.files.write_atomic(self._path(file_name(base, TIME_INDEX)), times.encode())

    # The files beside

    def _epochs(self) -> Iterator[Change]:
        if not self._found("epochs", file=LEADER_EPOCHS):
            return
        path = self._path(LEADER_EPOCHS)
        if self.apply:
            if self.files.exists(path):
                keep_copy(self.files, path)
            self.files.write_atomic(path, self.check.epochs.right.encode())
        yield self._change(LEADER_EPOCHS, "made again from the batches")

    def _snapshots(self) -> Iterator[Change]:
        """Wrong ones go; a start makes the state from an older one and the log."""
        wrong = sorted({f.file for f in self._findings if f.kind == "snapshot" and f.file})
        for name in wrong:
            if offset_of(name, SNAPSHOT) is not None and self.files.exists(self._path(name)):
                yield self._aside(name, "not what the log says of producers")
        watch, end = self.check.watch, self.check.next_offset
        name = file_name(end, SNAPSHOT)
        missing = any(f.kind == "snapshot" for f in self._findings)
        if missing and watch.complete and (name in wrong or name not in self.check.names.present):
            if self.apply:
                self.files.write_atomic(self._path(name), write_snapshot(watch.states))
            yield self._change(name, "made from the log")

    def _metadata(self) -> Iterator[Change]:
        if not self._wrong_id and not self._found("partition-metadata", file=PARTITION_METADATA):
            return
        if self._topic_id is None:
            yield self._left(PARTITION_METADATA, "nothing says which topic id it has had")
            return
        path = self._path(PARTITION_METADATA)
        if self.apply:
            if self.files.exists(path):
                keep_copy(self.files, path)
            self.files.write_atomic(path, encode_partition_metadata(self._topic_id))
        yield self._change(PARTITION_METADATA, f"written with topic id {uuid_text(self._topic_id)}")
