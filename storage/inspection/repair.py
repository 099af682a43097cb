"""Putting a data directory right, as far as that can be done without deciding for a person.

Nothing is thrown away but indexes, which hold nothing that the log does not: what is cut out or
replaced is set aside in its folder (`setting_aside`). The log of Apache Kafka's metadata is not
touched. Without `apply` nothing is, and the changes are only named.

The clean shutdown marker goes before anything else changes, and the checkpoints change last: after
a crash in between, a start reads more than it would have to, and a second repair does the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.checkpoints import decode_offsets, encode_offsets
from storage.errors import MalformedFile
from storage.identity import decode_partition_metadata, uuid_text
from storage.inspection.directory_check import NotCheckable as NotCheckable
from storage.inspection.directory_check import (
    context_of,
    kind_of,
    partition_folder,
)
from storage.inspection.findings import NOTE, Report, no_progress
from storage.inspection.partition_repair import PartitionRepair
from storage.inspection.setting_aside import Change, keep_copy, put_aside
from storage.inspection.text_files import read_small
from storage.inspection.top_files import BOOTSTRAP, CHECKPOINTS, TopFiles
from storage.layout import (
    CLEAN_SHUTDOWN,
    CLEAN_STATE,
    CLIENTS,
    CLOCK,
    HIGH_WATERMARKS,
    META_PROPERTIES,
    METADATA_LOG,
    OTHER_SUFFIXES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    SYNCED_POINTS,
    TAKEN_OVER,
    partition_of,
    shared_name,
)
from storage.owners import Owner, owner_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.filesystem import Filesystem
    from storage.inspection.findings import Progress

    Partition = tuple[str, int]


def repair(
    files: Filesystem, path: str, *, apply: bool, progress: Progress = no_progress
) -> Iterator[Change]:
    """Repair a data directory that nobody else has open. Raises NotCheckable, OSError."""
    if kind_of(files, path) != "directory":
        raise NotCheckable(f"{path} is not a data directory, which is what can be repaired")
    yield from DirectoryRepair(files, path, apply=apply, progress=progress).run()


class DirectoryRepair:
    """The steps of repairing one directory, in the order of `run`."""

    def __init__(
        self, files: Filesystem, path: str, *, apply: bool, progress: Progress = no_progress
    ) -> None:
        self.files = files
        self.path = path
        self.apply = apply
        self.progress = progress
        self.report = Report()
        names = files.list_dir(path)
        self.names = sorted(names)
        self.top = TopFiles(files, path, frozenset(names), self.report)
        self._promises = [name for name in (CLEAN_SHUTDOWN, CLEAN_STATE) if name in names]
        self._ends: dict[Partition, int] = {}
        self._raised: set[Partition] = set()
        self._gaps_below: dict[Partition, int] = {}

    def run(self) -> Iterator[Change]:
        """Yields each change after it was made, or before it would be."""
        self.top.check()
        yield from self._left_alone()
        planned = [name for name in self.names if self._is_ours(name)]
        owners = {name: self._owner(name) for name in planned}
        stray = [name for name in planned if owners[name] is Owner.OTHER]
        for name in stray:
            yield from self._unmark("a partition is put aside")
            yield from self._put_partition_aside(name)
        for name in planned:
            if name not in stray:
                yield from self._partition(name, wrong_id=owners[name] is Owner.DAMAGED)
        self.top.finish()
        found = self.report.taken()
        for finding in found:
            if finding.kind == "topic-id" and owners[finding.file] is Owner.UNNAMED:
                yield Change(finding.file, PARTITION_METADATA, finding.reason, left=True)
        if any(finding.kind == "marker" and finding.severity != NOTE for finding in found):
            yield from self._unmark("it promises what is not so")
        yield from self._own_files()
        yield from self._believe_gaps()
        for name in CHECKPOINTS:
            yield from self._checkpoint(name)

    def _is_ours(self, name: str) -> bool:
        return (
            name != METADATA_LOG
            and not name.endswith(OTHER_SUFFIXES)
            and partition_folder(name)
            and self.files.is_dir(f"{self.path}/{name}")
        )

    def _left_alone(self) -> Iterator[Change]:
        for name in (META_PROPERTIES, METADATA_LOG):
            if name in self.top.malformed:
                yield Change("", name, "damaged; restore it from a copy", left=True)
        if BOOTSTRAP in self.top.malformed:
            yield Change("", BOOTSTRAP, "damaged; Apache Kafka reads it only once", left=True)
        if META_PROPERTIES not in self.names and not self.top.old:
            yield Change("", META_PROPERTIES, "missing; restore it from a copy", left=True)

    # The marker

    def _unmark(self, why: str) -> Iterator[Change]:
        """Remove what promises that files are whole, before the first of them changes."""
        malformed = {CLEAN_STATE} & self.top.malformed  # it promises nothing, and is put aside
        promises = [name for name in self._promises if name not in malformed]
        self._promises = []
        if self.apply and promises:
            for name in promises:
                self.files.remove(f"{self.path}/{name}")
            self.files.sync_dir(self.path)
        for name in promises:
            yield Change("", name, f"removed: {why}")

    def _own_files(self) -> Iterator[Change]:
        """Files of ours that a start can do without."""
        own = (CLEAN_STATE, CLIENTS, CLOCK, SYNCED_POINTS, TAKEN_OVER)
        for file in sorted(one for one in self.top.names if shared_name(one) in own):
            if file in self.top.malformed:
                name = file + ".damaged"
                if self.apply:
                    name = put_aside(self.files, f"{self.path}/{file}")
                yield Change("", file, f"malformed; put aside as {name}")
            elif file in self.top.set_right:
                if self.apply:
                    content = encode_offsets(self.top.offsets[file])
                    self.files.write_atomic(f"{self.path}/{file}", content)
                yield Change("", file, "the wrong bit is set right")

    # Partitions

    def _topic_id(self, name: str) -> bytes | None:
        """The topic id that a folder should have: the metadata log's, or its neighbours'."""
        partition = partition_of(name)
        if partition is None:
            return None
        if self.top.metadata is not None:
            topic = self.top.metadata.topics.get(partition[0])
            return None if topic is None else topic.topic_id
        found = {
            self._stated_id(other)
            for other in self.names
            if (near := partition_of(other)) is not None and near[0] == partition[0]
        } - {None}
        return found.pop() if len(found) == 1 else None

    def _stated_id(self, name: str) -> bytes | None:
        try:
            data = read_small(self.files, f"{self.path}/{name}/{PARTITION_METADATA}")
            return decode_partition_metadata(data, PARTITION_METADATA)
        except MalformedFile:
            return None

    def _owner(self, name: str) -> Owner:
        """The owner of a folder, as far as the metadata log tells."""
        wanted = self._topic_id(name)
        if self.top.metadata is None or wanted is None:
            return Owner.UNNAMED
        # What is left of a deleted topic is another's here as well.
        known = self.top.metadata.topics_by_id
        return owner_of(self._stated_id(name), wanted, known=known, deleted=())

    def _put_partition_aside(self, name: str) -> Iterator[Change]:
        """The records may be all that is left of that topic. A broker would not serve them, and
        the partition begins anew."""
        topic_id = self._stated_id(name) or b""
        target = f"{name}.{topic_id.hex()}-stray"
        if self.files.exists(f"{self.path}/{target}"):
            yield Change(name, "", f"another topic's, and there is a {target}", left=True)
            return
        if self.apply:
            self.files.rename(f"{self.path}/{name}", f"{self.path}/{target}")
            self.files.sync_dir(self.path)
        yield Change(name, "", f"of topic id {uuid_text(topic_id)}; renamed to {target}")

    def _partition(self, name: str, *, wrong_id: bool) -> Iterator[Change]:
        work = PartitionRepair(
            self.files,
            f"{self.path}/{name}",
            context_of(self.top, name),
            apply=self.apply,
            topic_id=self._topic_id(name),
            wrong_id=wrong_id,
            progress=self.progress,
        )
        work.examine()
        self.top.compare(work.check)
        if work.is_due and not work.check.names.in_replacement:
            yield from self._unmark(f"{name} needs repair")
        yield from work.run()
        partition = partition_of(name)
        if partition is None:
            return
        self._ends[partition] = work.end_offset()
        # What was taken out above the recovery point would look like the work of a crash, and the
        # next start would cut the log there.
        point = self.top.offsets.get(RECOVERY_POINTS, {}).get(partition, 0)
        if work.changed or point < work.check.gap_end:
            self._raised.add(partition)
            work.sync()
        if work.changed or self.top.gaps_below(partition) < work.check.gap_end:
            self._gaps_below[partition] = self._ends[partition]

    def _believe_gaps(self) -> Iterator[Change]:
        """Have starts believe that offsets are missing where they are: what is lost was told, and
        readers may go past it."""
        known = self.top.offsets.get(TAKEN_OVER, {})
        wanted = known | {
            partition: max(below, known.get(partition, 0))
            for partition, below in self._gaps_below.items()
        }
        if not self.top.led_alone or wanted == known:
            return
        if self.apply:
            self.files.write_atomic(f"{self.path}/{TAKEN_OVER}", encode_offsets(wanted))
        yield Change("", TAKEN_OVER, "missing offsets are noted, so that readers go past them")

    # What the top says of partitions

    def _checkpoint(self, name: str) -> Iterator[Change]:
        """Entries that cannot be true go, or are brought down to the log's end."""
        if name not in self.names and not (name == RECOVERY_POINTS and self._raised):
            return
        malformed = name in self.top.malformed
        known = self._whole_lines(name) if malformed else self.top.offsets.get(name, {})
        wanted: dict[Partition, int] = {}
        for partition, offset in known.items():
            end = self._ends.get(partition)
            if end is None or offset < 0:
                continue
            if offset <= end:
                wanted[partition] = offset
            elif name in (RECOVERY_POINTS, HIGH_WATERMARKS):
                wanted[partition] = end
        raised = dict.fromkeys(self._raised, 0) if name == RECOVERY_POINTS else {}
        for partition in raised:
            if wanted.get(partition, 0) < self._ends[partition]:
                wanted[partition] = self._ends[partition]
        damaged = malformed or name in self.top.repeated or name in self.top.set_right
        if wanted == known and not damaged:
            return
        path = f"{self.path}/{name}"
        lost = malformed or any(
            partition not in wanted or wanted[partition] < offset
            for partition, offset in known.items()
        )
        aside = ""
        if lost and self.files.exists(path):
            aside = "; the old one is kept aside"
            if self.apply:
                keep_copy(self.files, path)
        if self.apply:
            self.files.write_atomic(path, encode_offsets(wanted))
        yield Change("", name, f"written anew with {len(wanted)} entries{aside}")

    def _whole_lines(self, name: str) -> dict[Partition, int]:
        """The entries of a malformed checkpoint that can still be read."""
        found: dict[Partition, int] = {}
        try:
            data = read_small(self.files, f"{self.path}/{name}")
        except MalformedFile:
            return found
        for line in data.split(b"\n")[2:]:
            try:
                found |= decode_offsets(b"0\n1\n" + line, name)
            except MalformedFile:
                continue
        return found
