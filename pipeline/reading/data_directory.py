"""A data directory that no broker serves, ours or Apache Kafka's, read like a cluster.

Logs are opened as a broker's start opens them, up to and including what it does after a crash: the
torn end is not there, renames that were interrupted are finished. But all of that happens in memory
(`reading.overlay`), and the directory is not changed. So what is read here is what the broker will
serve when it starts again.

A log that turned out damaged below its recovery point is served up to there, and the rest of what
is known to have been in it counts as corrupt.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from client.cluster import (
    EARLIEST,
    LATEST,
    Fetched,
    OffsetOutOfRange,
    TopicPartition,
    no_topic,
)
from pipeline.errors import CorruptData, NoSuchTopic, WrongUse
from pipeline.reading.overlay import Overlay
from pipeline.reading.stored_log import stored_log
from protocol.errors import KafkaError
from protocol.records.errors import CorruptBatch
from storage.errors import MalformedFile
from storage.errors import OffsetOutOfRange as OutsideLog
from storage.filesystem import parent_of
from storage.identity import decode_properties
from storage.layout import (
    LOCK,
    LOG,
    META_PROPERTIES,
    METADATA_LOG,
    offset_of,
    partition_directory,
    partition_of,
)
from storage.locking import DiskLock
from storage.metadata.image import TOPIC_RESOURCE
from storage.metadata.loading import MetadataRefused, load
from storage.metadata.quorum_state import read_quorum_state
from storage.noted import Noted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pipeline.reading.stored_log import StoredLog
    from storage.metadata.image import MetadataImage

INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")
LOGS_MAX = 256
"""Logs of a directory that are open at once; the one opened first is closed for another."""
# struct flock of Linux: type, whence, start, length, process.
FLOCK = struct.Struct("hhqqi4x")

_AT_A_TIME = Lock()
"""Open segments are counted over all logs of the process, by one thread at a time."""


class DataDirectory:
    """A `pipeline.reading.source.Source`. A pickled copy looks at the directory anew.

    Raises WrongUse if there is none or a broker holds its lock; that is looked at once, and a
    broker that starts later makes what is read here a picture of the past, or breaks it off.
    """

    def __init__(self, path: str) -> None:
        self.path = str(Path(path).absolute())
        self._forget()
        self._open()

    def _forget(self) -> None:
        self._files = Overlay()
        self._noted: Noted | None = None
        self._identity: str | None = None
        self._numbers: dict[str, list[int]] = {}
        self._logs: dict[TopicPartition, StoredLog] = {}
        self._metadata: MetadataImage | None = None

    def __getstate__(self) -> str:
        return self.path

    def __setstate__(self, path: str) -> None:
        self.path = path
        self._forget()

    def __enter__(self) -> DataDirectory:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        with _AT_A_TIME:
            for opened in self._logs.values():
                opened.let_go()
        self._forget()

    # What there is

    def cluster_id(self) -> str | None:
        """None in a directory from before Kafka 0.10.1."""
        self._open()
        return self._identity

    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic here; internal topics are left out."""
        self._open()
        return {
            topic: len(numbers)
            for topic, numbers in sorted(self._numbers.items())
            if topic not in INTERNAL_TOPICS
        }

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """The partitions of these topics that have a folder here. Raises NoSuchTopic."""
        self._open()
        found = []
        for topic in set(topics):
            if topic not in self._numbers:
                raise no_topic(topic, f"in {self.path}", self.topics())
            found += [TopicPartition(topic, number) for number in self._numbers[topic]]
        return sorted(found)

    def topic_configs(self, name: str, *, own: bool = False) -> dict[str, str]:
        """The settings of a topic in the metadata log; without one, as with ZooKeeper, none.

        `own` changes nothing: what a broker adds of its own is not in the directory. Raises
        NoSuchTopic, CorruptData.
        """
        self.partitions([name])
        if self._metadata is None:
            try:
                self._metadata = load(self._files, self.path).image
            except MetadataRefused as error:
                raise CorruptData(str(error)) from None
        return dict(self._metadata.configs.get((TOPIC_RESOURCE, name), {}))

    def offsets(
        self,
        partitions: Iterable[TopicPartition],
        timestamp_ms: int,
        *,
        committed_only: bool = False,
    ) -> dict[TopicPartition, int]:
        """For EARLIEST, LATEST, or a time: the first offset at or after it, else the end, which
        with `committed_only` is where the first open transaction begins.

        Raises NoSuchTopic, CorruptData if a batch has to be opened for its times and cannot be.
        """
        with _AT_A_TIME:
            return {
                one: self._offset(one, timestamp_ms, committed_only=committed_only)
                for one in partitions
            }

    def no_later(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        """As `Source` has it. Raises what `offsets` does."""
        return self.offsets(partitions, timestamp_ms)

    def _offset(self, partition: TopicPartition, timestamp_ms: int, *, committed_only: bool) -> int:
        opened = self._log(partition)
        if timestamp_ms == EARLIEST:
            return opened.log.start_offset
        end = opened.stable_end if committed_only else opened.end
        if timestamp_ms == LATEST:
            return end
        try:
            found = opened.log.offset_for_timestamp(timestamp_ms)
        except KafkaError as error:
            raise CorruptData(f"{partition}: looking for {timestamp_ms} ms: {error}") from None
        return end if found is None else min(found[1], end)

    # Reading

    def fetch(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_bytes: int = 8 << 20,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        committed_only: bool = False,
    ) -> Fetched:
        """Whole entries from the one on that holds `offset` or the next there is; nothing at the
        end. There is never a wait.

        Raises OffsetOutOfRange, NoSuchTopic, CorruptData.
        """
        with _AT_A_TIME:
            opened = self._log(partition)
            log = opened.log
            limit = log.last_stable_offset if committed_only else None
            entries = b""
            aborted: tuple[tuple[int, int], ...] = ()
            if offset > opened.end:
                raise OffsetOutOfRange(partition, offset)
            if opened.damage is not None and offset >= log.written_offset:
                raise CorruptData(f"{partition} offset {offset}: {opened.damage}")
            try:
                piece = log.read(offset, max_bytes, end_offset=limit)
            except OutsideLog:
                raise OffsetOutOfRange(partition, offset) from None
            except CorruptBatch as error:
                raise CorruptData(f"{partition} offset {offset}: {error}") from None
            if piece is not None:
                entries = piece.read()
                if committed_only:
                    aborted = tuple(
                        (one.producer_id, one.first_offset) for one in log.aborted_in(offset, piece)
                    )
                opened.keep_one(log.segments.of_file(piece.file))
        return Fetched(
            memoryview(entries), opened.end, log.start_offset, opened.stable_end, aborted
        )

    # Opening

    def _open(self) -> None:
        """Look at the directory once. Raises WrongUse."""
        if self._noted is not None:
            return
        if not self._files.is_dir(self.path):
            raise WrongUse(f"{self.path} is no folder on this machine; wanted is a data directory")
        properties = self._properties()
        numbers: dict[str, list[int]] = {}
        for name in self._files.list_dir(self.path):
            named = partition_of(name)
            folder = f"{self.path}/{name}"
            if not named or name == METADATA_LOG or not self._files.is_dir(folder):
                continue
            # A name alone tells little: an /etc may have a dbus-1.
            if properties is not None or self._has_log(folder):
                numbers.setdefault(named[0], []).append(named[1])
        if properties is None and not numbers:
            raise WrongUse(f"{self.path} is no data directory: {self._what_is_missing()}")
        holder = lock_holder(f"{self.path}/{LOCK}")
        if holder is not None:
            who = "a broker" if holder < 0 else f"process {holder}"
            raise WrongUse(
                f"{self.path} is in use by {who}: stop that broker, or read from it with "
                "kafka.bootstrap.servers"
            )
        since = read_quorum_state(self._files, f"{self.path}/{METADATA_LOG}").since
        self._identity = (properties or {}).get("cluster.id")
        self._numbers = {topic: sorted(found) for topic, found in numbers.items()}
        self._noted = Noted(self._files, self.path, since)

    def _properties(self) -> dict[str, str] | None:
        path = f"{self.path}/{META_PROPERTIES}"
        try:
            return decode_properties(self._files.read_bytes(path), path)
        except FileNotFoundError:
            return None
        except MalformedFile as error:
            raise WrongUse(str(error)) from None

    def _has_log(self, folder: str) -> bool:
        return any(offset_of(name, LOG) is not None for name in self._files.list_dir(folder))

    def _what_is_missing(self) -> str:
        if self._has_log(self.path):
            return f"it is a partition's folder, name the one above it: {parent_of(self.path)}"
        return f"it has neither {META_PROPERTIES} nor a folder of a partition"

    def _log(self, partition: TopicPartition) -> StoredLog:
        opened = self._logs.get(partition)
        if opened is not None:
            return opened
        self._open()
        assert self._noted is not None
        if partition.partition not in self._numbers.get(partition.topic, ()):
            raise NoSuchTopic(f"{self.path} has no partition {partition}")
        known = self._noted.of((partition.topic, partition.partition))
        opened = stored_log(f"{self.path}/{partition_directory(*partition)}", known)
        while len(self._logs) >= LOGS_MAX:
            self._logs.pop(next(iter(self._logs))).let_go()
        self._logs[partition] = opened
        return opened


def lock_holder(path: str) -> int | None:
    """The process that holds the lock of a data directory; -1 where several have it together; None
    if nobody does.

    Nothing is locked, for the directory may be read-only, and a broker that starts meanwhile is to
    find it free.
    """
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        return None
    # To close a descriptor of a file gives up all locks of this process on it.
    if (status.st_dev, status.st_ino) in DiskLock.held:
        return os.getpid()
    if sys.platform == "win32":
        return None  # Spark's jobs are not run there
    descriptor = os.open(path, os.O_RDONLY)
    try:
        asked = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer: Any = fcntl.fcntl(descriptor, fcntl.F_GETLK, asked)
        kind, _, _, _, holder = FLOCK.unpack(answer)
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else int(holder)
