"""One data directory: its lock, its identity, and every partition in it.

The broker takes the directory (`DataDirectory.take`), reads the topics, opens the logs
(`open_logs`), and closes it in the end. What was found on the way comes back as reports.

Order matters in three places. The clean shutdown marker is removed before a log is opened and
written after everything else is on the disk. A recovery point is checkpointed after the indexes
that cover it. A raised log start is checkpointed before anybody is told.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from storage.checkpoints import encode_clean_shutdown
from storage.clean_state import CleanStop
from storage.closing import close_all
from storage.deletion import Renaming, finish_deletions, remove_folder, rename_all, sort_out
from storage.errors import LockHeld
from storage.filesystem import parent_of
from storage.identity import ZERO_UUID, identify, uuid_text
from storage.layout import (
    CLEAN_SHUTDOWN,
    CLEAN_STATE,
    LOCK,
    PARTITION_METADATA,
    deleted_directory,
    partition_directory,
)
from storage.log import Log
from storage.new_partitions import NewFolders, name_topic, new_log
from storage.noted import Noted
from storage.offset_checkpoints import OffsetCheckpoints
from storage.owners import Owner, has_records, owner_of, topic_id_of
from storage.recovery import LastKnown, open_log
from storage.reports import RecoveryReport
from storage.segment import OPEN
from storage.start_offsets import StartOffsets
from storage.steps import AT_ONCE, run_here
from storage.syncing import SyncFile, SyncFolder, one_by_one
from storage.unavailable import log_elsewhere, unavailable_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from storage.filesystem import Filesystem, Lock
    from storage.identity import MetaProperties
    from storage.settings import LogSettings
    from storage.share import Share
    from storage.steps import Steps
    from storage.syncing import RunAll, SyncStep
    from storage.topics import Topic, TopicStore

    Partition = tuple[str, int]
    SettingsOf = Callable[[Topic], LogSettings]

STRAY_SUFFIX = "-stray"


class DataDirectory:
    """A locked data directory. `logs` holds the open partitions by (topic, partition), `starts`
    where they start, `checkpoints` what is noted of them."""

    def __init__(
        self,
        files: Filesystem,
        path: str,
        lock: Lock,
        identity: MetaProperties,
        new_uuid: Callable[[], bytes],
        share: Share | None = None,
    ) -> None:
        """`share` is what this process has of it, where several serve it."""
        self.path = path
        self.identity = identity
        self.logs: dict[Partition, Log] = {}
        sharing = None if share is None else share.sharing(files, path)
        self.starts = StartOffsets(files, path, self.logs, sharing)
        self.checkpoints = OffsetCheckpoints(files, path, self.logs, self.starts, sharing)
        self.share = share
        self.files = files
        self._lock = lock
        self._new_uuid = new_uuid
        self._topics: TopicStore | None = None
        self._found: tuple[Noted, set[str]]
        """What was noted at the last stop, and the names in the folder."""
        self._reports: list[RecoveryReport] = []
        # The checkpoints on disk may name a deleted topic; a new one must not take these offsets.
        self._names_deleted = False

    @classmethod
    def take(
        cls,
        files: Filesystem,
        path: str,
        *,
        node_id: int,
        new_uuid: Callable[[], bytes],
        cluster_id: str | None = None,
        for_processes: bool = False,
    ) -> DataDirectory:
        """Make the folder if needed, lock it, and check or write who it is.

        `cluster_id` None takes the directory's own, or a new one. What is taken `for_processes` is
        locked until the last of those that this one forks has gone. Raises LockHeld, or
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
            lock = files.lock(lock_path, inherited=for_processes)
        except BlockingIOError as error:
            raise LockHeld(f"{lock_path} is locked: another broker serves {path}") from error
        try:
            identity = identify(files, path, node_id, cluster_id, new_uuid)
        except BaseException:
            lock.release()
            raise
        return cls(files, path, lock, identity, new_uuid)

    def own(self, name: str) -> str:
        """The name of a file that each process has for itself: the first under this name."""
        return name if self.share is None else self.share.own(name)

    # Opening

    @property
    def files_are_scarce(self) -> bool:
        """Whether the log files that may be open are: each that is opened closes another."""
        return OPEN.is_full

    def open_logs(
        self, topics: TopicStore, settings_of: SettingsOf, *, now_ms: int
    ) -> list[RecoveryReport]:
        """Open every partition of every topic that is led here, to be led in the epochs that the
        store says. Raises OSError."""
        self.begin(topics)
        return run_here(self.opening(topics, settings_of, now_ms=now_ms))

    def begin(self, topics: TopicStore) -> None:
        """Read what was noted at the last stop, and put the folder in order, before any log is
        opened. Raises OSError."""
        share = self.share
        last_stop = None if share is None else share.last_stop
        noted = Noted(self.files, self.path, topics.led_since, last_stop)
        self._topics = topics
        if share is None or share.begins:
            finish_deletions(self.files, self.path, topics, self._new_uuid)
            names = sort_out(self.files, self.path, topics, noted.reports)
        else:
            names = set(self.files.list_dir(self.path))
        if share is not None:
            self._begin_sharing(share, noted, topics)
        self._found = noted, names

    def opening(
        self, topics: TopicStore, settings_of: SettingsOf, *, now_ms: int
    ) -> Steps[list[RecoveryReport]]:
        """The rest of `open_logs`, in steps of a log each."""
        noted, names = self._found
        reports = noted.reports
        for topic in topics.topics():
            settings = settings_of(topic)
            for number in range(topic.partition_count):
                if not self.leads(topic.name, number):
                    continue
                known = noted.of((topic.name, number), topic.topic_id)
                found = partition_directory(topic.name, number) in names
                if not found and known.high_watermark:
                    reports.append(
                        RecoveryReport(
                            partition_directory(topic.name, number),
                            "the folder is missing; the partition starts empty",
                            offsets_lost=known.high_watermark,
                        )
                    )
                reports += self.open_partition(topic, number, settings, known, found, now_ms)
                yield None
        self._names_deleted = not noted.is_all_of(self._all_partitions(topics))
        self.checkpoints.take_over(noted)
        # If only the process died, folders it made are here, but may not be on the disk.
        self.files.sync_dir(self.path)
        return reports

    def _begin_sharing(self, share: Share, noted: Noted, topics: TopicStore) -> None:
        from storage.share import LastStop, remove_clean_states  # most serve alone

        share.topics = topics.names()
        if share.begins:
            remove_clean_states(self.files, self.path)
            share.last_stop = LastStop(was_clean=noted.was_clean, led_alone=noted.led_alone)

    def _all_partitions(self, topics: TopicStore) -> Iterable[Partition]:
        """Those whose entries checkpoints may have."""
        if self.share is None:
            return self.logs
        return [
            (topic.name, number)
            for topic in topics.topics()
            for number in range(topic.partition_count)
        ]

    def leads(self, name: str, number: int) -> bool:
        """Whether a partition is led here."""
        share, topics = self.share, self._topics
        if share is None:
            return True
        assert topics is not None
        return topics.process(name, number) == share.number and not topics.moves(name, number)

    def open_partition(
        self,
        topic: Topic,
        number: int,
        settings: LogSettings,
        known: LastKnown,
        found: bool,
        now_ms: int,
        made: bool = False,
    ) -> list[RecoveryReport]:
        """Open the log of a partition, whose folder was `found` or not; `made` is for one that the
        topic has had only since this start."""
        folder = f"{self.path}/{partition_directory(topic.name, number)}"
        reports: list[RecoveryReport] = []
        is_named = found and topic_id_of(self.files, folder) == topic.topic_id
        owner = self._owner(folder, topic) if found and not is_named else Owner.TOPIC
        if owner is Owner.OTHER and not made:
            return [self._withhold(folder, topic, number, settings, known)]
        if owner is Owner.DELETED:
            remove_folder(self.files, self.path, topic.name, number, self._new_uuid().hex())
            found, known = False, LastKnown()
        elif made and (owner is Owner.OTHER or self._has_others_records(folder, owner)):
            reports.append(self._put_aside(folder))
            found = False
        steps: list[SyncStep] = []
        if not found:
            self.files.make_dir(folder)
            steps += [SyncFolder(self.files, self.path)]
        if not is_named:
            steps += name_topic(self.files, folder, topic, reports)
        elif known.clean is None:
            # If only the process died, it is here to be read and may not be on the disk.
            steps.append(SyncFile(self.files, f"{folder}/{PARTITION_METADATA}"))
        log, more = open_log(
            self.files,
            folder,
            settings,
            known=known,
            leader_epoch=self._leader_epoch(topic, number),
            now_ms=now_ms,
        )
        log.sync_next(*steps)
        if known.cleaned_to is not None and log.start_offset < known.cleaned_to <= log.next_offset:
            log.cleaned_to = known.cleaned_to
        self._add(topic, number, log)
        self.checkpoints.opened((topic.name, number), synced=min(known.synced, log.next_offset))
        return reports + more

    def _owner(self, folder: str, topic: Topic) -> Owner:
        found = topic_id_of(self.files, folder)
        if found == topic.topic_id or self._topics is None:
            return Owner.TOPIC
        known = {one.topic_id for one in self._topics.topics()}
        deleted = {one.topic_id for one in self._topics.deleted()}
        return owner_of(found, topic.topic_id, known=known, deleted=deleted)

    def _has_others_records(self, folder: str, owner: Owner) -> bool:
        """Whether records are in the folder of a partition that is only being made."""
        return owner is Owner.UNNAMED and has_records(self.files, folder)

    def _withhold(
        self, folder: str, topic: Topic, number: int, settings: LogSettings, known: LastKnown
    ) -> RecoveryReport:
        """Serve nothing of a folder that says it is another's; its offsets may be both's."""
        found, name = topic_id_of(self.files, folder), folder.rpartition("/")[2]
        reason = (
            f"{PARTITION_METADATA} says topic id {uuid_text(found or ZERO_UUID)}, topic "
            f"'{topic.name}' has {uuid_text(topic.topic_id)}: the partition is not served, and its "
            f"files are not touched. If the records are this topic's, remove {PARTITION_METADATA}; "
            f"if they are not, move the folder away; then start again"
        )
        log = unavailable_log(
            self.files,
            folder,
            settings,
            known=known,
            leader_epoch=self._leader_epoch(topic, number),
            reason=f"{name}: {reason}",
        )
        self._add(topic, number, log)
        return RecoveryReport(name, reason)

    def _put_aside(self, folder: str) -> RecoveryReport:
        """Rename a folder that has the name of a new partition; it may be all that is left of
        another topic."""
        aside = self._aside(folder)
        self.files.rename(folder, aside.target)
        assert aside.report is not None
        return aside.report

    def _aside(self, folder: str) -> Renaming:
        target = f"{folder}.{self._new_uuid().hex()}{STRAY_SUFFIX}"
        name = folder.rpartition("/")[2]
        reason = f"of another topic of this name; renamed to {target.rpartition('/')[2]}"
        return Renaming(folder, target, RecoveryReport(name, reason))

    def _leader_epoch(self, topic: Topic, number: int) -> int:
        return self._topics.leader_epoch(topic.name, number) if self._topics else 0

    def _add(self, topic: Topic, number: int, log: Log) -> None:
        self.logs[topic.name, number] = log
        if self.share is not None:
            self.share.opened.add((topic.name, number))
        self.starts.opened((topic.name, number))

    # Changing

    def new_folders(self, topic: Topic, first: int) -> NewFolders:
        """The folders of the partitions that a topic has from `first` on and that are led here, to
        be made."""
        numbers: Iterable[int] = range(first, topic.partition_count)
        if self.share is not None:
            numbers = [number for number in numbers if self.leads(topic.name, number)]
        return NewFolders(self.files, self.path, topic, numbers)

    def elsewhere(self, topic: Topic, number: int, settings: LogSettings) -> Log:
        """What stands for the log of a partition that another process leads."""
        return log_elsewhere(
            self.files,
            f"{self.path}/{partition_directory(topic.name, number)}",
            settings,
            leader_epoch=self._leader_epoch(topic, number),
        )

    def create_partition(
        self,
        topic: Topic,
        number: int,
        settings: LogSettings,
        *,
        now_ms: int,
        folders: NewFolders | None = None,
    ) -> Log:
        """Make and open one more partition of a topic that is in the store already; its folder,
        too, unless `folders` has made it.

        A folder of that name that is left of an earlier topic is put aside; `taken_reports` says
        so. Raises OSError.
        """
        self.forget_deleted()
        folder = f"{self.path}/{partition_directory(topic.name, number)}"
        if folders is not None and number in folders.made:
            epoch = self._leader_epoch(topic, number)
            log = new_log(self.files, folder, settings, leader_epoch=epoch, now_ms=now_ms)
            self._add(topic, number, log)
            self.checkpoints.opened((topic.name, number), synced=0)
        else:
            found = self.files.exists(folder)
            self._reports += self.open_partition(
                topic, number, settings, LastKnown(), found, now_ms, made=True
            )
            log = self.logs[topic.name, number]
        log.segments.gaps_below = 0
        return log

    def replace(self, name: str, number: int, log: Log) -> None:
        """The log of a partition was opened anew, and is on the disk as it is."""
        self.logs[name, number] = log
        self.starts.opened((name, number))
        self.checkpoints.opened((name, number), synced=log.next_offset)

    def let_go(self, name: str, number: int) -> None:
        """The log of a partition is another process's from now on."""
        self.logs.pop((name, number)).close(clean=False)
        self.checkpoints.deleted((name, number))
        assert self.share is not None
        self.share.opened.discard((name, number))

    def clear(self, topic: Topic, number: int) -> Steps[None]:
        """Remove the folder of a deleted topic that has the name of a new partition, if there is
        one. Raises OSError."""
        folder = f"{self.path}/{partition_directory(topic.name, number)}"
        if self.files.exists(folder) and self._owner(folder, topic) is Owner.DELETED:
            unique = self._new_uuid().hex()
            yield partial(remove_folder, self.files, self.path, topic.name, number, unique)

    def taken_reports(self) -> list[RecoveryReport]:
        """Reports on partitions made since the last call."""
        reports, self._reports = self._reports, []
        return reports

    def forget_deleted(self) -> None:
        """`forgetting_deleted`, at once."""
        if self._names_deleted:
            self.write_offsets()

    def forgetting_deleted(self) -> Steps[None]:
        """Have no checkpoint name a deleted topic; to be called before its name is stored again.
        Raises OSError."""
        if self._names_deleted:
            yield from self.noting()

    def delete_topic(self, topic: Topic) -> list[str]:
        """`deletion` of one topic, at once. Raises OSError."""
        (renamed,) = run_here(self.deletion([topic]))
        if isinstance(renamed, OSError):
            raise renamed
        return renamed

    def deletion(self, topics: Iterable[Topic]) -> Steps[list[list[str] | OSError]]:
        """Close and rename the folders of topics that are out of the store.

        Returns for each the renamed folders, or why they can't be renamed; `remove_deleted` removes
        them, now, later or at the next start. Slices that are being sent keep what they need.
        Raises OSError.
        """
        wanted: list[list[Renaming]] = []
        for topic in topics:
            wanted.append([])
            for number in range(topic.partition_count):
                if self.share is None or (topic.name, number) in self.logs:
                    wanted[-1].append(self._closed(topic.name, number))
                if number % AT_ONCE == 0:
                    yield None
        renamed, reports = yield partial(rename_all, self.files, self.path, wanted)
        self._reports += reports
        self._names_deleted = True
        with suppress(OSError):  # a full disk; to free it is what the deletion may be for
            yield from self.noting()
        found: list[list[str] | OSError] = renamed
        return found

    def _closed(self, name: str, number: int) -> Renaming:
        """Close the log of a partition that is deleted; what its folder is to be called."""
        log = self.logs.pop((name, number), None)
        self.checkpoints.deleted((name, number))
        if log is not None:
            log.close(clean=False)
        folder = f"{self.path}/{partition_directory(name, number)}"
        if log is not None and log.unavailable is not None:
            return self._aside(folder)  # another's, perhaps
        unique = self._new_uuid().hex()
        return Renaming(folder, f"{self.path}/{deleted_directory(name, number, unique)}")

    def remove_deleted(self, folder: str) -> None:
        """Remove a folder that `deletion` renamed. Any thread may do that."""
        self.files.remove_tree(folder)

    def write_offsets(self) -> None:
        """`noting`, at once. Raises OSError."""
        run_here(self.noting())

    def noting(self) -> Steps[None]:
        """Write the checkpoints, which name no deleted topic then. Raises OSError."""
        yield from self.checkpoints.write()
        self._names_deleted = False

    # Closing

    def release(self) -> None:
        """Unlock a directory of which nothing was opened."""
        self._lock.release()

    def close(self, *, broker_epoch: int = -1, run_all: RunAll = one_by_one) -> bool:
        """Close every log, note that the stop was clean if it was, and unlock.

        `run_all` runs what logs have to sync and returns when all of it is done. Returns whether
        the stop was clean: a log that failed, or a disk that refuses, leaves the marker out, and
        the next start looks through the logs. The marker comes last of all; where several processes
        serve the directory, whoever has taken the lock leaves it (`join_clean_states`).
        """
        states = close_all(self.logs.values(), run_all)
        whole = {name: state for name, state in states.items() if state is not None}
        clean = len(whole) == len(states)
        try:
            self.write_offsets()
            if clean:
                topics = self._topics.topics() if self._topics else ()
                topic_ids = {topic.name: uuid_text(topic.topic_id) for topic in topics}
                state = CleanStop(whole, topic_ids).encode()
                share = self.share
                name = CLEAN_STATE if share is None else share.clean_state
                self.files.write_atomic(f"{self.path}/{name}", state)
            if clean and self.share is None:
                marker = encode_clean_shutdown(broker_epoch)
                self.files.write_atomic(f"{self.path}/{CLEAN_SHUTDOWN}", marker)
        except OSError:
            clean = False
        finally:
            self._lock.release()
        return clean
