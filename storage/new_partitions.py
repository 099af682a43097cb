"""Partitions that a topic is given while the broker runs: their folders, and logs on them.

A folder holds nothing but `partition.metadata` until the first batch comes, which brings the log
file. It is made on any thread, thousands in one go; the log, which belongs to the loop, needs no
file for it. Nothing is synced: that is done with the first batch, and a start after a crash makes
what is missing of a topic that the store has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.epochs import LeaderEpochs
from storage.errors import MalformedFile
from storage.identity import decode_partition_metadata, encode_partition_metadata, uuid_text
from storage.layout import PARTITION_METADATA, partition_directory
from storage.log import Log
from storage.producers import ProducerStates
from storage.reports import RecoveryReport
from storage.segment import Segment
from storage.segments import Segments
from storage.syncing import SyncFile, SyncFolder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.filesystem import Filesystem
    from storage.settings import LogSettings
    from storage.syncing import SyncStep
    from storage.topics import Topic


class NewFolders:
    """The folders of new partitions of one topic. `make` may be called on any thread.

    `made` are the partitions that have theirs then, `error` is why another one has not. What is
    there already is left to `DataDirectory.create_partition`, which knows whose it may be.
    """

    def __init__(self, files: Filesystem, path: str, topic: Topic, numbers: Iterable[int]) -> None:
        """For the partitions of these numbers. `path` is the data directory."""
        self.made: set[int] = set()
        self.error: OSError | None = None
        self._files = files
        self._path = path
        self._numbers = numbers
        self._name = topic.name
        self._metadata = encode_partition_metadata(topic.topic_id)

    def make(self) -> None:
        for number in self._numbers:
            try:
                self._make(number)
            except OSError as error:
                self.error = error
                return

    def _make(self, number: int) -> None:
        files, folder = self._files, f"{self._path}/{partition_directory(self._name, number)}"
        if files.exists(folder):
            return
        files.make_dir(folder)
        file = files.open_file(f"{folder}/{PARTITION_METADATA}", create=True)
        file.write_at([self._metadata], 0)
        file.close()
        self.made.add(number)


def make_all(folders: Iterable[NewFolders]) -> None:
    """Make all of these; each has its own error. Any thread."""
    for one in folders:
        one.make()


def new_log(
    files: Filesystem, folder: str, settings: LogSettings, *, leader_epoch: int, now_ms: int
) -> Log:
    """An empty log on a folder of `NewFolders`. Touches no file."""
    segment = Segment.empty(
        files, folder, 0, interval_bytes=settings.index_interval_bytes, opened_ms=now_ms
    )
    segment.verified.inherit(0, 0)
    epochs = LeaderEpochs()
    log = Log(
        files,
        folder,
        Segments([segment], epochs),
        settings,
        start_offset=0,
        next_offset=0,
        recovery_point=0,
        leader_epoch=leader_epoch,
        epochs=epochs,
        producers=ProducerStates(),
    )
    log.sync_next(
        SyncFolder(files, folder.rpartition("/")[0]),
        SyncFile(files, f"{folder}/{PARTITION_METADATA}"),
    )
    return log


def name_topic(
    files: Filesystem, folder: str, topic: Topic, reports: list[RecoveryReport]
) -> list[SyncStep]:
    """Write the `partition.metadata` that is missing or damaged; returns what to sync.

    It reaches the disk with the first batch at the latest. Without it Kafka would not take
    the folder for a partition; we make it again.
    """
    path = f"{folder}/{PARTITION_METADATA}"
    try:
        found = decode_partition_metadata(files.read_bytes(path), path)
        reason = (
            f"{PARTITION_METADATA} says topic id {uuid_text(found)}, which no topic has, for "
            f"{uuid_text(topic.topic_id)}: it is damaged; written again"
        )
        reports.append(RecoveryReport(folder.rpartition("/")[2], reason))
    except FileNotFoundError:
        pass
    except MalformedFile as error:
        reports.append(RecoveryReport(folder.rpartition("/")[2], f"{error}; written again"))
    file = files.open_file(path, create=True)
    file.truncate(0)
    file.write_at([encode_partition_metadata(topic.topic_id)], 0)
    file.close()
    return [SyncFile(files, path), SyncFolder(files, folder)]
