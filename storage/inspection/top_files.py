"""The files at the top of a data directory, compared with the partitions below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.checkpoints import as_written, decode_rows
from storage.clean_state import CleanStop
from storage.clients_file import decode_clients
from storage.errors import DataDirectoryError, MalformedFile
from storage.identity import MetaProperties, decode_properties, uuid_text
from storage.inspection.context import Context
from storage.inspection.findings import no_progress
from storage.inspection.metadata_rows import check_snapshot
from storage.inspection.text_files import read_small, reason_of
from storage.layout import (
    CHECKPOINTS_TURN,
    CLEAN_SHUTDOWN,
    CLEAN_STATE,
    CLEANER_OFFSETS,
    CLIENTS,
    CLOCK,
    HIGH_WATERMARKS,
    INDEX,
    LARGEST_OFFSET,
    LOCK,
    LOG,
    LOG_STARTS,
    META_PROPERTIES,
    METADATA_LOG,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    RESERVE,
    SYNCED_POINTS,
    TAKEN_OVER,
    TIME_INDEX,
    TRANSACTION_INDEX,
    file_name,
    partition_directory,
    partition_of,
    shared_name,
)
from storage.metadata.image import TOPIC_RESOURCE
from storage.metadata.loading import load
from storage.metadata.lost_topics import lost_partitions
from storage.metadata.quorum_state import read_quorum_state
from storage.noted import METADATA
from storage.trusted_time import ClockState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from storage.clean_state import CleanState
    from storage.filesystem import Filesystem
    from storage.inspection.findings import Report
    from storage.inspection.partition_check import PartitionCheck
    from storage.metadata.image import MetadataImage
    from storage.metadata.loading import Loaded

    Partition = tuple[str, int]

BOOTSTRAP = "bootstrap.checkpoint"
CHECKPOINTS = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, CLEANER_OFFSETS)
OWN_CHECKPOINTS = (SYNCED_POINTS, TAKEN_OVER)
AT_THE_END = (RECOVERY_POINTS, HIGH_WATERMARKS)
"""Checkpoints that have an entry for every log after a clean stop."""
EMPTY_FILES = (LOCK, RESERVE, CHECKPOINTS_TURN)


class TopFiles:
    """The files at the top of a directory. `check` reads, `compare` is told of each partition, and
    `finish` says what is left."""

    def __init__(self, files: Filesystem, path: str, names: frozenset[str], report: Report) -> None:
        self.files = files
        self.path = path
        self.names = names
        self.report = report
        self.clean = CLEAN_SHUTDOWN in names
        self.old = METADATA_LOG not in names
        """Of an Apache Kafka with ZooKeeper, from 0.8 to 3.9; `check` looks closer."""
        self.offsets: dict[str, dict[Partition, int]] = {}
        self.malformed: set[str] = set()
        self.repeated: set[str] = set()
        """Checkpoints that name a partition twice."""
        self.set_right: set[str] = set()
        """Checkpoints with one wrong bit; `offsets` has what they said before."""
        self._contents: dict[str, bytes] = {}
        self.states: Mapping[str, CleanState] = {}
        """States noted by our last stop, if no other broker has run since."""
        self.stopped_by_us = CLEAN_STATE in names
        self.led_alone = False
        """No other broker has led this directory since `taken-over-checkpoint` was written."""
        self.metadata: MetadataImage | None = None
        self._seen: set[str] = set()
        self._lost: list[str] = []
        self._topic_ids: dict[str, tuple[bytes, str]] = {}

    def check(self) -> bool:
        """Read and judge every file. Returns whether any was known."""
        known = False
        readers: dict[str, Callable[[bytes], None]] = {
            META_PROPERTIES: self._meta_properties,
            CLEAN_SHUTDOWN: self._marker,
            **{name: self._checkpoint(name) for name in (*CHECKPOINTS, *OWN_CHECKPOINTS)},
            CLIENTS: self._clients,
            CLOCK: self._clock,
        }
        for name in sorted(self.names):
            if shared_name(name) in readers:
                known = True
                try:
                    readers[shared_name(name)](read_small(self.files, f"{self.path}/{name}"))
                except MalformedFile as error:
                    self.malformed.add(name)
                    self.report.error("malformed", reason_of(error, name), file=name)
            elif name == BOOTSTRAP:
                known = True
                for finding in check_snapshot(self.files, self.path, name, "", no_progress):
                    self.malformed.add(name)
                    self.report.add(
                        finding.severity,
                        finding.kind,
                        finding.reason,
                        file=name,
                        position=finding.position,
                    )
            elif name == CLEAN_STATE:
                known = True
                self._clean_state()
            elif shared_name(name) in EMPTY_FILES:
                known = True
            elif not self.files.is_dir(f"{self.path}/{name}"):
                self._stranger(name)
        if METADATA_LOG in self.names:
            self._load_metadata()
        self._missing()
        return known

    def _clock(self, data: bytes) -> None:
        ClockState.decode(data, CLOCK)

    def _clients(self, data: bytes) -> None:
        decode_clients(data, CLIENTS)

    def _stranger(self, name: str) -> None:
        if name.endswith(".tmp"):
            self.report.note("left-over", "was being written", file=name)
        elif ".damaged" in name:
            self.report.note("set-aside", "was put aside by a repair", file=name)
        else:
            self.report.note("foreign", "not a file of a data directory", file=name)

    def _missing(self) -> None:
        if len(self.names) == 1:
            return
        if META_PROPERTIES not in self.names and not self.old:
            self.report.error(
                "missing", "the file is missing; no broker starts without it", file=META_PROPERTIES
            )
        if not self.clean:
            self.report.note(
                "not-clean", "the last stop was not clean; a start reads the ends of the logs"
            )

    # One file each

    def _meta_properties(self, data: bytes) -> None:
        if decode_properties(data, META_PROPERTIES).get("version", "0") == "0" and self.old:
            return  # every property is optional there
        self.old = False
        MetaProperties.decode(data, META_PROPERTIES)

    def _marker(self, data: bytes) -> None:
        import json

        if not data and METADATA_LOG not in self.names:
            return  # Apache Kafka wrote nothing into it before 3.7
        try:
            content = json.loads(data)
            if not isinstance(content["version"], int) or not isinstance(
                content["brokerEpoch"], int
            ):
                raise ValueError("version and brokerEpoch are wanted as numbers")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            self.report.warn("marker", f"cannot be understood: {error}", file=CLEAN_SHUTDOWN)

    def _clean_state(self) -> None:
        try:
            data = read_small(self.files, f"{self.path}/{CLEAN_STATE}")
            self.states = CleanStop.decode(data).states
        except MalformedFile as error:
            self._bad_state(reason_of(error, CLEAN_STATE))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self._bad_state(f"cannot be understood: {error!r}")

    def _bad_state(self, reason: str) -> None:
        self.malformed.add(CLEAN_STATE)
        tell = self.report.warn if self.clean else self.report.note
        tell("marker", f"{reason}; a start reads all logs", file=CLEAN_STATE)

    def _load_metadata(self) -> None:
        try:
            loaded = load(self.files, self.path)
        except DataDirectoryError as error:
            self.malformed.add(METADATA_LOG)
            reason = str(error).removeprefix(f"{self.path}/")
            self.report.error("metadata", reason, file=METADATA_LOG)
            return
        if not loaded.empty:
            self.metadata = loaded.image
            self._lost = lost_partitions(self.files, self.path, loaded.image)
        self._compare_leader(loaded)

    def _compare_leader(self, loaded: Loaded) -> None:
        """Believe what our last stop noted as a start does: unless Apache Kafka has run since."""
        self._compare_checksum(TAKEN_OVER)
        state = read_quorum_state(self.files, loaded.folder)
        since = state.led_alone_since(loaded.epoch)
        self.stopped_by_us = self.led_alone = (
            since > 0 and self.offsets.get(TAKEN_OVER, {}).get(METADATA) == since
        )
        if self.led_alone:
            for name in (*CHECKPOINTS, SYNCED_POINTS):
                self._compare_checksum(name)
        if self.states and not self.stopped_by_us:
            self.states = {}
            self.report.note(
                "marker",
                "of a stop before another broker ran here; a start passes over it",
                file=CLEAN_STATE,
            )

    def _checkpoint(self, name: str) -> Callable[[bytes], None]:
        def read(data: bytes) -> None:
            self._contents[name] = data
            rows = decode_rows(data, name)
            self.offsets[name] = dict(rows)
            if len(rows) != len(self.offsets[name]):
                self.repeated.add(name)
                self.report.warn("checkpoint", "names a partition twice", file=name)

        return read

    def _compare_checksum(self, name: str) -> None:
        """See that a checkpoint which only we have written is as it was written."""
        data = self._contents.get(name, b"")
        try:
            before = as_written(data, name)
        except MalformedFile as error:
            if name not in self.malformed:
                self.malformed.add(name)
                self.report.error("malformed", reason_of(error, name), file=name)
            return
        if before == data:
            return
        if name not in self.malformed:
            self.report.error("malformed", "one bit is wrong, by the checksum", file=name)
        self.malformed.discard(name)
        self.set_right.add(name)
        self.offsets[name] = dict(decode_rows(before, name))

    # Partitions

    def context_of(self, folder: str) -> Context:
        """Everything known of the partition in a folder."""
        partition = partition_of(folder)
        if partition is None:
            return Context(recovery_point=0)
        policy, epoch_max = "", -1
        if self.metadata is not None:
            topic = self.metadata.topics.get(partition[0])
            settings = self.metadata.configs.get((TOPIC_RESOURCE, partition[0]), {})
            policy = settings.get("cleanup.policy", "")
            if topic is not None and partition[1] in topic.partitions:
                epoch_max = topic.partitions[partition[1]].leader_epoch
        return Context(
            clean=self.clean,
            recovery_point=self._offset(RECOVERY_POINTS, partition, 0),
            log_start=self._offset(LOG_STARTS, partition, -1),
            cleaned_to=self._offset(CLEANER_OFFSETS, partition, -1),
            gaps_below=self.gaps_below(partition),
            compacted="compact" in policy,
            old=self.old,
            ours=METADATA_LOG in self.names,
            epoch_max=epoch_max,
        )

    def gaps_below(self, partition: Partition) -> int:
        """Offset from which on a start takes missing offsets between segments for damage."""
        return self._offset(TAKEN_OVER, partition, 0) if self.led_alone else LARGEST_OFFSET

    def _offset(self, name: str, partition: Partition, absent: int) -> int:
        return self.offsets.get(name, {}).get(partition, absent)

    def compare(self, check: PartitionCheck) -> None:
        """Compare with a partition that has been gone through."""
        folder = check.name
        partition = partition_of(folder)
        if partition is None:
            return
        self._seen.add(folder)
        self._compare_offsets(check, partition)
        self._compare_topic(check, partition)
        state = self.states.get(folder)
        if self.clean and state is not None:
            self._compare_state(check, state)
        elif self.clean and self.states:
            self.report.error(
                "marker", f"says nothing of {folder}, which is there", file=CLEAN_STATE
            )

    def _compare_offsets(self, check: PartitionCheck, partition: Partition) -> None:
        end, clean = check.next_offset, self.clean
        for name in CHECKPOINTS:
            offset = self.offsets.get(name, {}).get(partition)
            where = f"{partition[0]} {partition[1]}"
            if offset is None:
                known = name not in self.malformed and (name in self.names or not self.old)
                if clean and end and known and name in AT_THE_END:
                    self.report.warn(
                        "checkpoint", f"no entry for {where} after a clean stop", file=name
                    )
                continue
            if offset < 0:
                self.report.error("checkpoint", f"{where} is at {offset}", file=name)
            elif offset > end:
                tell = self.report.error if name == LOG_STARTS else self.report.warn
                more = "; Apache Kafka would delete the log" if name == LOG_STARTS else ""
                tell(
                    "checkpoint",
                    f"{where} is at {offset}, the log ends at {end}{more}",
                    file=name,
                    offset=offset,
                )
            elif offset < end and clean and self._is_end(name):
                self.report.warn(
                    "checkpoint",
                    f"{where} is at {offset} after a clean stop, the log ends at {end}",
                    file=name,
                    offset=offset,
                )

    def _is_end(self, name: str) -> bool:
        """Whether a clean stop notes the log's end there. With several replicas, which only
        Apache Kafka has, the high watermark may be lower."""
        return name == RECOVERY_POINTS or (name == HIGH_WATERMARKS and self.stopped_by_us)

    def _compare_topic(self, check: PartitionCheck, partition: Partition) -> None:
        name, number = partition
        report, folder = self.report, check.name
        known: tuple[bytes, str] | None = None
        if self.metadata is not None:
            topic = self.metadata.topics.get(name)
            if topic is None or number not in topic.partitions:
                if folder in self._lost:
                    reason = f"{folder} is of no topic there and has records; no broker starts"
                    report.error("unknown-partition", reason, file=METADATA_LOG)
                else:
                    reason = f"{folder} is of no topic there"
                    report.warn("unknown-partition", reason, file=METADATA_LOG)
                return
            known = (topic.topic_id, METADATA_LOG)
            epoch = topic.partitions[number].leader_epoch
            if check.epochs.largest > epoch:
                report.error(
                    "epochs",
                    f"{folder} is led in epoch {epoch} and has batches of epoch "
                    f"{check.epochs.largest}",
                    file=METADATA_LOG,
                )
            if check.watch.largest_id >= self.metadata.next_producer_id:
                report.warn(
                    "producers",
                    f"the next producer id is {self.metadata.next_producer_id}, {folder} has "
                    f"batches of producer {check.watch.largest_id}",
                    file=METADATA_LOG,
                )
        if check.topic_id is None:
            return
        wanted = known or self._topic_ids.get(name)
        if wanted is not None and wanted[0] != check.topic_id:
            report.error(
                "topic-id",
                f"{folder}/{PARTITION_METADATA} says {uuid_text(check.topic_id)}, {wanted[1]} "
                f"says {uuid_text(wanted[0])}",
                file=folder,
            )
        self._topic_ids.setdefault(name, (check.topic_id, folder))

    def _compare_state(self, check: PartitionCheck, state: CleanState) -> None:
        if not check.names.bases:
            return
        last = check.names.bases[-1]
        wanted = ((LOG, state.log_size), (INDEX, state.index_size))
        for suffix, size in (*wanted, (TIME_INDEX, state.time_index_size)):
            name = file_name(last, suffix)
            present = name in check.names.present
            found = self.files.size_of(f"{check.folder}/{name}") if present else -1
            if found != size:
                self.report.error(
                    "marker",
                    f"a lie: {check.name}/{name} had {size} bytes at the stop and has "
                    f"{'gone' if found < 0 else found}",
                    file=CLEAN_SHUTDOWN,
                )
        if state.next_offset != check.next_offset:
            self.report.error(
                "marker",
                f"a lie: {check.name} ended at offset {state.next_offset} and ends at "
                f"{check.next_offset}",
                file=CLEAN_SHUTDOWN,
            )
        for base in state.aborted:
            name = file_name(base, TRANSACTION_INDEX)
            if base in check.names.bases and name not in check.names.present:
                self.report.error(
                    "marker", f"a lie: {check.name}/{name} is missing", file=CLEAN_SHUTDOWN
                )
        if state.snapshot and state.snapshot not in check.names.present:
            self.report.error(
                "marker", f"a lie: {check.name}/{state.snapshot} is missing", file=CLEAN_SHUTDOWN
            )

    def finish(self) -> None:
        """Report partitions that have entries here and no folder."""
        report = self.report
        for name, offsets in self.offsets.items():
            for topic, number in offsets:
                folder = partition_directory(topic, number)
                if folder not in self._seen and folder != METADATA_LOG:
                    report.warn("checkpoint", f"has an entry of {folder}: no folder", file=name)
        if self.clean:
            for folder in sorted(self.states.keys() - self._seen):
                report.error("marker", f"a lie: {folder} is missing", file=CLEAN_SHUTDOWN)
        if self.metadata is None:
            return
        for known in self.metadata.topics.values():
            for number in known.partitions:
                folder = partition_directory(known.name, number)
                if folder not in self._seen:
                    report.warn(
                        "missing",
                        f"there is no folder {folder}; it would start empty",
                        file=METADATA_LOG,
                    )
