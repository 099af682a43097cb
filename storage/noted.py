"""The checkpoints at the top of a data directory, as they are read when it is opened.

They are the offset checkpoints, the state at a clean stop, and one of our own:

File (`taken-over-checkpoint`), an offset checkpoint with an entry `__cluster_metadata 0 <epoch>`:
the first epoch of the metadata log in which this directory was led by us alone. The others say
below which offset of a log offsets may be missing between two segments: where it ended when it was
taken over from another broker, or how far compaction has been since, whichever is more. In a log
without an entry, or above it, a segment ends where the next one begins.

It is believed only while `quorum-state` names that same epoch. Once Apache Kafka has run here it
does not, and at our next start the file is written anew, before anything is appended.

Why it matters who wrote a log: between our own segments offsets are missing only below the recovery
point (`storage.replacing` sees to that). Above it, a gap means that the end of a segment never
reached the disk while the next segment did. Apache Kafka compacts without moving its checkpoints
first, and a follower of a compacted log has gaps anywhere: what it wrote has to be believed.

And with every log: a gap that nobody made is a segment that somebody removed (`storage.segments`).

What if it is lost: every gap is believed, as if the directory came from Apache Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.checkpoints import as_written, decode_offsets
from storage.clean_state import CleanStop
from storage.errors import MalformedFile
from storage.identity import uuid_text
from storage.layout import (
    CLEAN_SHUTDOWN,
    CLEAN_STATE,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LARGEST_OFFSET,
    LOG_STARTS,
    METADATA_LOG,
    RECOVERY_POINTS,
    SYNCED_POINTS,
    TAKEN_OVER,
    partition_directory,
    partition_of,
)
from storage.recovery import LastKnown
from storage.reports import RecoveryReport

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from storage.filesystem import Filesystem
    from storage.log import Log
    from storage.share import LastStop

    Partition = tuple[str, int]

METADATA = ("__cluster_metadata", 0)
assert partition_of(METADATA_LOG) == METADATA
NOTHING_NOTED = CleanStop({}, {})


class Noted:
    """Read once, when the directory is opened; the clean shutdown marker is gone afterwards.

    `led_since` is the epoch of the metadata log since which no other broker has led. `reports`
    tell of files that were malformed, which count as absent. `taken_over` is that file's content;
    `is_ours` says whether it is to be believed. Raises OSError.

    What another process has found of the last stop is given (`last_stop`), and the marker has gone.
    """

    def __init__(
        self, files: Filesystem, path: str, led_since: int, last_stop: LastStop | None = None
    ) -> None:
        self.reports: list[RecoveryReport] = []
        self._files = files
        self._path = path
        self._led_since = led_since
        self._led_alone = True  # no other broker writes the one that comes first
        self.taken_over = self._read_offsets(TAKEN_OVER) or {}
        led_alone = self.taken_over.get(METADATA) == led_since
        if last_stop is not None:
            led_alone = last_stop.led_alone
        self.led_alone = self._led_alone = led_alone
        self.was_clean, clean = self._take_clean_stop(led_alone=led_alone)
        if last_stop is not None:
            self.was_clean = last_stop.was_clean
        points = self._read_offsets(RECOVERY_POINTS)
        self.clean = NOTHING_NOTED if points is None else clean
        self.points = points or {}
        self.watermarks = self._read_offsets(HIGH_WATERMARKS) or {}
        self.starts = self._read_offsets(LOG_STARTS) or {}
        self.cleaned = self._read_offsets(CLEANER_OFFSETS) or {}
        synced = self._read_offsets(SYNCED_POINTS) or {}
        # Another broker may have cut a log, or made it again, and does not know of this file.
        self.synced = synced if led_alone else {}
        self.has_points = points is not None and self._has_content(RECOVERY_POINTS)
        # Without the recovery points the gaps that compaction left would all lie above them.
        self.is_ours = self.has_points and led_alone

    def of(self, partition: Partition, topic_id: bytes | None = None) -> LastKnown:
        """The last known state of a partition of the topic with this id.

        After a crash, what was noted at the stop before it may be of a deleted topic that had the
        name: without an id it is left out.
        """
        clean = self.clean.states.get(partition_directory(*partition))
        if not self.was_clean:
            noted = self.clean.topic_ids.get(partition[0])
            if topic_id is None or noted != uuid_text(topic_id):
                clean = None
        return LastKnown(
            recovery_point=self.points.get(partition, 0),
            high_watermark=self.watermarks.get(partition, 0),
            start_offset=self.starts.get(partition),
            clean=clean,
            was_clean=self.was_clean,
            cleaned_to=self.cleaned.get(partition),
            gaps_below=self.taken_over.get(partition, 0) if self.is_ours else LARGEST_OFFSET,
            synced=self.synced.get(partition, 0),
        )

    def is_all_of(self, partitions: Iterable[Partition]) -> bool:
        """Whether no other partition is named."""
        named = (
            self.points, self.watermarks, self.starts, self.cleaned, self.taken_over, self.synced,
        )  # fmt: skip
        return set().union(*named) <= {METADATA, *partitions}

    def ends_of(self, logs: Mapping[Partition, Log]) -> dict[Partition, int]:
        """New content of `taken-over-checkpoint`, for when all logs are open and nothing has been
        appended."""
        ends = {
            key: LARGEST_OFFSET if log.unavailable else log.next_offset  # nobody has looked
            for key, log in logs.items()
        }
        if self.is_ours:  # a log may have lost some of what was taken over
            ends = {
                key: min(end, max(self.taken_over.get(key, 0), self.cleaned.get(key, 0)))
                for key, end in ends.items()
            }
        return {METADATA: self._led_since} | {key: end for key, end in ends.items() if end}

    def _take_clean_stop(self, *, led_alone: bool) -> tuple[bool, CleanStop]:
        """Whether the last stop was clean, and what our last clean one noted; nothing if another
        broker has run since. Removes the marker."""
        files = self._files
        stop = NOTHING_NOTED
        marker, notes = f"{self._path}/{CLEAN_SHUTDOWN}", f"{self._path}/{CLEAN_STATE}"
        was_clean = files.exists(marker)
        try:
            if led_alone:
                stop = CleanStop.decode(files.read_bytes(notes))
        except FileNotFoundError:
            if was_clean:
                self._report(CLEAN_STATE, "missing after a clean stop; logs are checked")
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            if was_clean:
                self._report(CLEAN_STATE, f"{error}; logs are checked")
        if was_clean:
            files.remove(marker)
            files.sync_dir(self._path)
        return was_clean, stop

    def _read_offsets(self, name: str) -> dict[Partition, int] | None:
        """A checkpoint's content; None if the file is malformed. What another broker may have
        changed is not compared with its checksum."""
        path = f"{self._path}/{name}"
        try:
            data = self._files.read_bytes(path)
            if self._led_alone:
                found, data = data, as_written(data, path)
                if found != data:
                    self._report(name, "one bit is wrong, as the checksum shows; it is set right")
            return decode_offsets(data, path)
        except FileNotFoundError:
            return {}
        except MalformedFile as error:
            self._report(name, f"{error}; taken for absent")
            return None

    def _has_content(self, name: str) -> bool:
        path = f"{self._path}/{name}"
        return self._files.exists(path) and self._files.size_of(path) > 0

    def _report(self, name: str, reason: str) -> None:
        self.reports.append(RecoveryReport("", reason, file=name))
