"""One data directory: its lock, its identity, and every partition in it.

The broker takes the directory (`DataDirectory.take`), reads the topics, opens the logs
(`open_logs`), and closes it in the end. What was found on the way comes back as reports.

Order matters in three places. The clean shutdown marker is removed before a log is opened and
written after everything else is on the disk. A recovery point is checkpointed after the indexes
that cover it. A raised log start is checkpointed before anybody is told.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from storage import clean_state
from storage.checkpoints import (
    CheckpointFile,
    encode_clean_shutdown,
    encode_offsets,
)
from storage.closing import close_all, store_for_recovery
from storage.deletion import finish_deletions, remove_folder, topic_id_of
from storage.errors import LockHeld, MalformedFile
from storage.filesystem import parent_of
from storage.identity import (
    decode_partition_metadata,
    encode_partition_metadata,
    identify,
    uuid_text,
)
from storage.layout import (
    CLEAN_SHUTDOWN,
    CLEAN_STATE,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOCK,
    LOG_STARTS,
    METADATA_LOG,
    OTHER_SUFFIXES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    TAKEN_OVER,
    deleted_directory,
    is_deleted_directory,
    partition_directory,
    partition_of,
)
from storage.log import Log
from storage.noted import Noted
from storage.recovery import LastKnown, open_log
from storage.removal import Removal
from storage.reports import RecoveryReport
from storage.syncing import SyncFile, SyncFolder, one_by_one, take_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from storage.filesystem import Filesystem, Lock
    from storage.identity import MetaProperties
    from storage.settings import LogSettings
    from storage.syncing import RunAll, SyncStep
    from storage.topics import Topic, TopicStore

    Partition = tuple[str, int]
    SettingsOf = Callable[[Topic], LogSettings]

STRAY_SUFFIX = "-stray"
KNOWN_FOLDERS = (METADATA_LOG, "remote-log-index-cache")
"""Folders that are no partitions of a topic; left alone without a word."""


class DataDirectory:
    """A locked data directory. `logs` holds the open partitions by (topic, partition)."""

    def __init__(
        self,
        files: Filesystem,
        path: str,
        lock: Lock,
        identity: MetaProperties,
        new_uuid: Callable[[], bytes],
    ) -> None:
        self.path = path
        self.identity = identity
        self.logs: dict[Partition, Log] = {}
        self._files = files
        self._lock = lock
        self._new_uuid = new_uuid
        self._leaving: set[Removal] = set()
        self._topics: TopicStore | None = None
        self._opened_at: dict[Partition, int] = {}
        # The checkpoints on disk may name a deleted topic; a new one must not take these offsets.
        self._names_deleted = False
        self._high_watermarks = CheckpointFile(files, f"{path}/{HIGH_WATERMARKS}")
        self._recovery_points = CheckpointFile(files, f"{path}/{RECOVERY_POINTS}")
        self._log_starts = CheckpointFile(files, f"{path}/{LOG_STARTS}")
        self._cleaner_offsets = CheckpointFile(files, f"{path}/{CLEANER_OFFSETS}")
        self._taken_over = CheckpointFile(files, f"{path}/{TAKEN_OVER}")
        self._ends_taken_over: dict[Partition, int] = {}

    @classmethod
    def take(
        cls,
        files: Filesystem,
        path: str,
        *,
        node_id: int,
        new_uuid: Callable[[], bytes],
        cluster_id: str | None = None,
    ) -> DataDirectory:
        """Make the folder if needed, lock it, and check or write who it is.

        `cluster_id` None takes the directory's own, or a new one. Raises LockHeld, or
        DataDirectoryError for a directory of another node or cluster.
        """
        made, folder = [], path
        while not files.is_dir(folder):
            made.append(folder)
            folder = parent_of(folder)
        if made:
            files.make_dir(path)
        for folder in made:
            files.sync_dir(parent_of(folder))
        lock_path = f"{path}/{LOCK}"
        try:
            lock = files.lock(lock_path)
        except BlockingIOError as error:
            raise LockHeld(f"{lock_path} is locked: another broker serves {path}") from error
        try:
            identity = identify(files, path, node_id, cluster_id, new_uuid)
        except BaseException:
            lock.release()
            raise
        return cls(files, path, lock, identity, new_uuid)

    # Opening

    def open_logs(
        self, topics: TopicStore, settings_of: SettingsOf, *, now_ms: int
    ) -> list[RecoveryReport]:
        """Open every partition of every topic, to be led in the epochs that the store says."""
        noted = Noted(self._files, self.path, topics.led_since)
        reports = noted.reports
        self._topics = topics
        finish_deletions(self._files, self.path, topics, self._new_uuid)
        names = self._sort_out(topics, reports)
        for topic in topics.topics():
            settings = settings_of(topic)
            for number in range(topic.partition_count):
                known = noted.of((topic.name, number))
                found = partition_directory(topic.name, number) in names
                if not found and known.high_watermark:
                    reports.append(
                        RecoveryReport(
                            partition_directory(topic.name, number),
                            "the folder is missing; the partition starts empty",
                            offsets_lost=known.high_watermark,
                        )
                    )
                reports += self._open_partition(topic, number, settings, known, found, now_ms)
        self._names_deleted = not noted.is_all_of(self.logs)
        self._take_over(noted)
        # If only the process died, folders it made are here, but may not be on the disk.
        self._files.sync_dir(self.path)
        return reports

    def _take_over(self, noted: Noted) -> None:
        """Note where logs end that were not made by us alone. A disk that refuses leaves it at
        that: then the next start believes as much as this one did."""
        self._ends_taken_over = noted.ends_of(self.logs)
        if noted.is_ours and self._ends_taken_over == noted.taken_over:
            return
        with suppress(OSError):
            self._taken_over.holding(encode_offsets(self._ends_taken_over)).sync()
            if not noted.has_points:
                # In this order: without the former, gaps above these points count as our own.
                for step in self.checkpoint_points():
                    step.sync()

    def _sort_out(self, topics: TopicStore, reports: list[RecoveryReport]) -> set[str]:
        """Remove what waits to be removed, and report what is nobody's. Returns all names."""
        names = set(self._files.list_dir(self.path))
        known = {
            partition_directory(topic.name, number)
            for topic in topics.topics()
            for number in range(topic.partition_count)
        }
        for name in sorted(names - known):
            path = f"{self.path}/{name}"
            if name in KNOWN_FOLDERS or name.startswith(".") or not self._files.is_dir(path):
                continue
            if is_deleted_directory(name):
                self._files.remove_tree(path)
            elif name.endswith(OTHER_SUFFIXES):
                reports.append(RecoveryReport(name, "put aside earlier; left alone"))
            elif partition_of(name):
                reports.append(RecoveryReport(name, "of no known topic; left alone"))
            else:
                reports.append(
                    RecoveryReport(name, "not a partition; left alone (Kafka would not start)")
                )
        return names

    def _open_partition(
        self,
        topic: Topic,
        number: int,
        settings: LogSettings,
        known: LastKnown,
        found: bool,
        now_ms: int,
    ) -> list[RecoveryReport]:
        folder = f"{self.path}/{partition_directory(topic.name, number)}"
        reports: list[RecoveryReport] = []
        if found and self._is_other_topic(folder, topic, number, reports):
            found, known = False, LastKnown()
        owed: list[SyncStep] = []
        if not found:
            self._files.make_dir(folder)
            owed += [SyncFolder(self._files, self.path)]
        owed += self._name_topic(folder, topic, reports, clean=known.clean is not None)
        log, more = open_log(
            self._files,
            folder,
            settings,
            known=known,
            leader_epoch=self._topics.leader_epoch(topic.name, number) if self._topics else 0,
            now_ms=now_ms,
        )
        log.owe(*owed)
        if known.cleaned_to is not None and log.start_offset < known.cleaned_to <= log.next_offset:
            log.cleaned_to = known.cleaned_to
        self.logs[topic.name, number] = log
        self._opened_at[topic.name, number] = log.start_offset
        return reports + more

    def _is_other_topic(
        self, folder: str, topic: Topic, number: int, reports: list[RecoveryReport]
    ) -> bool:
        """Put a folder of another topic with this name aside; it may be all that is left of it."""
        found = topic_id_of(self._files, folder)
        if found is None or found == topic.topic_id:
            return False
        if self._topics is not None and found in {one.topic_id for one in self._topics.deleted()}:
            remove_folder(self._files, self.path, topic.name, number, self._new_uuid().hex())
            return True
        aside = f"{folder}.{self._new_uuid().hex()}{STRAY_SUFFIX}"
        self._files.rename(folder, aside)
        reports.append(
            RecoveryReport(
                folder.rpartition("/")[2],
                f"belongs to topic id {uuid_text(found)}, not {uuid_text(topic.topic_id)}; "
                f"renamed to {aside.rpartition('/')[2]}",
            )
        )
        return True

    def _name_topic(
        self, folder: str, topic: Topic, reports: list[RecoveryReport], *, clean: bool
    ) -> list[SyncStep]:
        """Write `partition.metadata` where it is missing or malformed; returns what to sync.

        It reaches the disk with the first batch at the latest. Without it Kafka would not take
        the folder for a partition; we make it again.
        """
        path = f"{folder}/{PARTITION_METADATA}"
        try:
            decode_partition_metadata(self._files.read_bytes(path), path)
            # If only the process died, it is here to be read and may not be on the disk.
            return [] if clean else [SyncFile(self._files, path)]
        except FileNotFoundError:
            pass
        except MalformedFile as error:
            reports.append(RecoveryReport(folder.rpartition("/")[2], f"{error}; written again"))
        file = self._files.open_file(path, create=True)
        file.truncate(0)
        file.write_at([encode_partition_metadata(topic.topic_id)], 0)
        file.close()
        return [SyncFile(self._files, path), SyncFolder(self._files, folder)]

    # Changing

    def create_partition(
        self, topic: Topic, number: int, settings: LogSettings, *, now_ms: int
    ) -> Log:
        """Make and open one more partition of a topic that is in the store already.

        A folder of that name that is left of an earlier topic is put aside. Raises OSError.
        """
        self.forget_deleted()
        found = self._files.exists(f"{self.path}/{partition_directory(topic.name, number)}")
        self._open_partition(topic, number, settings, LastKnown(), found, now_ms)
        return self.logs[topic.name, number]

    def forget_deleted(self) -> None:
        """Have no checkpoint name a deleted topic; to be called before its name is stored again.
        Raises OSError."""
        if self._names_deleted:
            self._write_offsets()

    def delete_topic(self, topic: Topic) -> list[str]:
        """Close and rename the folders of a topic that is out of the store.

        Returns the renamed folders; `remove_deleted` removes them, now, later or at the next
        start. Slices that are being sent keep what they need. Raises OSError.
        """
        (renamed,) = self.delete_topics([topic])
        if isinstance(renamed, OSError):
            raise renamed
        return renamed

    def delete_topics(self, topics: Iterable[Topic]) -> list[list[str] | OSError]:
        """`delete_topic` of many with one write of what is noted. Where the folders of one can't
        be renamed the error is in their place. Raises OSError."""
        renamed: list[list[str] | OSError] = []
        for topic in topics:
            try:
                renamed.append(self._rename_deleted(topic))
            except OSError as error:
                renamed.append(error)
        self._files.sync_dir(self.path)
        self._names_deleted = True
        with suppress(OSError):  # a full disk; to free it is what the deletion may be for
            self._write_offsets()
        return renamed

    def _rename_deleted(self, topic: Topic) -> list[str]:
        renamed = []
        for number in range(topic.partition_count):
            log = self.logs.pop((topic.name, number), None)
            self._ends_taken_over.pop((topic.name, number), None)
            if log is not None:
                log.close(clean=False)
            folder = f"{self.path}/{partition_directory(topic.name, number)}"
            if not self._files.exists(folder):
                continue
            unique = self._new_uuid().hex()
            target = f"{self.path}/{deleted_directory(topic.name, number, unique)}"
            self._files.rename(folder, target)
            renamed.append(target)
        return renamed

    def remove_deleted(self, folder: str) -> None:
        """Remove a folder that `delete_topic` renamed. Any thread may do that."""
        self._files.remove_tree(folder)

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        """Raise a log's start (-1: to its high watermark), durably. Returns the new start.

        The checkpoint is on the disk before this returns, and before files are removed: losing
        it would bring deleted records back. Raises OffsetOutOfRange, StorageError, OSError.
        """
        log = self.logs[topic, partition]
        start = log.delete_records(offset)
        if log.recovery_point <= start:
            log.sync()
        self._log_starts.holding(self._encode_starts()).sync()
        removal = self.take_out((topic, partition))
        if removal is not None:
            removal.set_aside()
            removal.remove()
            self.has_left(removal)
        return start

    def take_out(self, partition: Partition) -> Removal | None:
        """Let a log go of the segments wholly below its start, which is in its checkpoint on the
        disk. Their files are the caller's; None if there are none."""
        log = self.logs[partition]
        segments = log.take_segments_below_start()
        if not segments:
            return None
        removal = Removal(partition, log, segments)
        self._leaving.add(removal)
        return removal

    def has_left(self, removal: Removal) -> None:
        """The files have been set aside: no start will find these segments any more."""
        self._leaving.discard(removal)

    # Checkpoints

    def checkpoint(self) -> list[SyncStep]:
        """The steps that note how far all logs are; to be taken in order, in any thread.

        None needs another, so all are to be taken even if one fails (`syncing.take_all`): the
        points that are noted were covered before. What is above them is read again after a crash.
        A `Cover` among the steps is told of its failure.
        """
        offsets = self.checkpoint_offsets()
        covers = [cover for log in self.logs.values() for cover in store_for_recovery(log)]
        return [*covers, *offsets]

    def checkpoint_offsets(self) -> list[SyncStep]:
        """The steps that note how far all logs are covered now, without covering more."""
        watermarks = self._high_watermarks.holding(self._encode_watermarks())
        return [*self.checkpoint_points(), watermarks]

    def checkpoint_starts(self) -> list[SyncStep]:
        """The step that notes where all logs start, likewise."""
        return [self._log_starts.holding(self._encode_starts())]

    def checkpoint_points(self) -> list[SyncStep]:
        """The step that notes the recovery points alone, before segments are replaced."""
        points = {key: log.covered_point for key, log in self.logs.items()}
        return [self._recovery_points.holding(encode_offsets(points))]

    def checkpoint_cleaned(self) -> list[SyncStep]:
        """The step that notes how far each log is compacted (`Log.cleaned_to`).

        To be taken when the folder of a log whose segments were replaced has been synced, or old
        segments that come back after a crash would count as clean.
        """
        known = {key: log.cleaned_to for key, log in self.logs.items()}
        cleaned = {key: offset for key, offset in known.items() if offset is not None}
        return [self._cleaner_offsets.holding(encode_offsets(cleaned))]

    def write_checkpoints(self) -> None:
        """Cover all logs, and note how far they are and where they start, here and now.

        Raises OSError.
        """
        for log in self.logs.values():
            for cover in store_for_recovery(log):
                try:
                    cover.sync()
                except OSError as error:
                    cover.failed(error)
        self._write_offsets()

    def _write_offsets(self) -> None:
        every = [
            *self.checkpoint_offsets(),
            *self.checkpoint_starts(),
            *self.checkpoint_cleaned(),
            self._taken_over.holding(encode_offsets(self._ends_taken_over)),
        ]
        for _, error in take_all(every):
            raise error
        self._names_deleted = False

    def _encode_watermarks(self) -> bytes:
        return encode_offsets({key: log.written_offset for key, log in self.logs.items()})

    def _encode_starts(self) -> bytes:
        leaving = {removal.partition for removal in self._leaving}
        noted: dict[Partition, int] = {}
        for key, log in self.logs.items():
            # After a crash the log may end at its recovery point, and must not start above that.
            start = min(log.start_offset, max(log.recovery_point, self._opened_at[key]))
            if start > log.segments[0].base_offset or key in leaving:
                noted[key] = start
        return encode_offsets(noted)

    # Closing

    def close(self, *, broker_epoch: int = -1, run_all: RunAll = one_by_one) -> bool:
        """Close every log, note that the stop was clean if it was, and unlock.

        `run_all` runs what logs have to sync and returns when all of it is done. Returns whether
        the stop was clean: a log that failed, or a disk that refuses, leaves the marker out, and
        the next start looks through the logs. The marker comes last of all.
        """
        states = close_all(self.logs.values(), run_all)
        whole = {name: state for name, state in states.items() if state is not None}
        clean = len(whole) == len(states)
        try:
            self._write_offsets()
            if clean:
                path = f"{self.path}/{CLEAN_STATE}"
                self._files.write_atomic(path, clean_state.encode(whole))
                marker = encode_clean_shutdown(broker_epoch)
                self._files.write_atomic(f"{self.path}/{CLEAN_SHUTDOWN}", marker)
        except OSError:
            clean = False
        finally:
            self._lock.release()
        return clean
