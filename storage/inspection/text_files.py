"""The small files of a partition: whose it is, and which leader wrote what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.epochs import LeaderEpochs, as_written
from storage.errors import MalformedFile
from storage.identity import decode_partition_metadata
from storage.inspection.folder_names import KNOWN_TEXTS, QUORUM_STATE
from storage.layout import LEADER_EPOCHS, LOG, RECEIVE_TIMES, REPLACEMENT, file_name
from storage.layout import PARTITION_METADATA as PARTITION_METADATA
from storage.receive_times import decode as decode_times
from storage.swaps import Replacement

if TYPE_CHECKING:
    from storage.filesystem import Filesystem
    from storage.inspection.findings import Report
    from storage.scan import Entry

PARTITION_FILES = (PARTITION_METADATA, LEADER_EPOCHS, *KNOWN_TEXTS)

TEXT_BYTES_MAX = 16 * 1024 * 1024
"""A text file of a data directory is far smaller; a larger one is not read."""


def read_small(files: Filesystem, path: str) -> bytes:
    """The content of a small file. Raises MalformedFile if it cannot be read or is not small."""
    name = path.rpartition("/")[2]
    try:
        size = files.size_of(path)
        if size > TEXT_BYTES_MAX:
            raise MalformedFile(name, f"{size} bytes, wanted at most {TEXT_BYTES_MAX}")
        return files.read_bytes(path)
    except OSError as error:
        raise MalformedFile(name, error.strerror or str(error)) from error


def reason_of(error: MalformedFile, name: str) -> str:
    """The text of an error without the file name, which the finding has anyway."""
    return str(error).removeprefix(f"{name}: ")


def check_partition_metadata(files: Filesystem, folder: str, report: Report) -> bytes | None:
    """The topic id, None if the file does not say."""
    try:
        data = read_small(files, f"{folder}/{PARTITION_METADATA}")
        return decode_partition_metadata(data, PARTITION_METADATA)
    except MalformedFile as error:
        reason = reason_of(error, PARTITION_METADATA)
        report.error("partition-metadata", reason, file=PARTITION_METADATA)
        return None


def read_epochs(files: Filesystem, folder: str, report: Report) -> LeaderEpochs | None:
    """The content of the epoch file, None if it is malformed."""
    try:
        data = read_small(files, f"{folder}/{LEADER_EPOCHS}")
        whole = as_written(data, LEADER_EPOCHS)
        if whole != data:
            reason = "one bit is wrong, as the checksum shows"
            report.error("epochs", reason, file=LEADER_EPOCHS)
        return LeaderEpochs.decode(whole, LEADER_EPOCHS)
    except MalformedFile as error:
        report.error("epochs", reason_of(error, LEADER_EPOCHS), file=LEADER_EPOCHS)
        return None


class WrongEpoch:
    """A batch with a leader epoch that cannot be: it lies under no checksum. `right` is the one
    that it should have."""

    __slots__ = ("base_offset", "epoch", "offset", "position", "right")

    def __init__(self, entry: Entry, base_offset: int) -> None:
        self.epoch = entry.leader_epoch
        self.offset = entry.first_offset
        self.position = entry.position
        self.base_offset = base_offset
        self.right = -1


WRONG_EPOCHS_MAX = 10_000
"""Batches with a wrong epoch that are remembered for a repair."""


class EpochCheck:
    """Compares the epoch file with the epochs in the batches as they are gone through.

    From `excused_from` on the file may lag behind. Batches below `log_start` are of no interest.
    `epoch_max` is the highest that there can be, -1 if nobody knows. Epochs never fall: a batch
    that stands out between its neighbours is wrong, and counts for nothing else.
    """

    def __init__(
        self,
        epochs: LeaderEpochs | None,
        report: Report,
        *,
        excused_from: int = -1,
        log_start: int = -1,
        epoch_max: int = -1,
    ) -> None:
        self.missing = False
        """There is no such file."""
        self.right = LeaderEpochs()
        """The content that the file should have, as far as the batches tell."""
        self.wrong: list[WrongEpoch] = []
        self._entries = [] if epochs is None else epochs.entries()
        self._known = epochs is not None
        self._report = report
        self._excused_from = excused_from
        self._log_start = log_start
        self._epoch_max = epoch_max
        self._index = -1
        self._last_offset = -1
        self._next_start = self._entries[0][1] if self._entries else -1
        self._epoch = -1
        self._told = -2
        self._uncovered: tuple[int, int] | None = None
        self._unnamed = False
        self._settled = -1
        self._pending: tuple[Entry, int] | None = None

    def batch(self, entry: Entry, base_offset: int) -> None:
        """The next batch of the log, in the segment with this base offset."""
        epoch = entry.leader_epoch
        if self._pending is None:
            before = self._settled
        else:
            waiting, waiting_base = self._pending
            before = waiting.leader_epoch
            if epoch < before and epoch >= self._settled:
                right = epoch if self._settled < 0 else self._settled
                self._stands_out(WrongEpoch(waiting, waiting_base), right)
                before = epoch
            else:
                self._settle(waiting)
            self._pending = None
        if epoch < before:
            self._stands_out(WrongEpoch(entry, base_offset), max(before, 0))
        elif epoch == self._settled:
            self._settle(entry)
        else:
            self._pending = entry, base_offset

    @property
    def largest(self) -> int:
        """The highest epoch of a batch, -1 if there is none."""
        return self._settled

    def _filed(self, offset: int) -> int:
        """The epoch of an offset by the file, -1 if it does not say."""
        return max((epoch for epoch, start in self._entries if start <= offset), default=-1)

    def _stands_out(self, wrong: WrongEpoch, right: int) -> None:
        wrong.right = right
        if len(self.wrong) < WRONG_EPOCHS_MAX:
            self.wrong.append(wrong)
        self._report.error(
            "epoch",
            f"leader epoch {wrong.epoch}, the batches around it say {right}",
            file=file_name(wrong.base_offset, LOG),
            position=wrong.position,
            offset=wrong.offset,
        )

    def _settle(self, entry: Entry) -> None:
        """The batch's epoch is believed. Compare it with the file."""
        offset = entry.first_offset
        while 0 <= self._next_start <= offset:
            if self._log_start < self._next_start <= self._last_offset:
                self._report.error(
                    "epochs",
                    f"an epoch begins at offset {self._next_start}, inside a batch that ends at "
                    f"{self._last_offset}",
                    file=LEADER_EPOCHS,
                    offset=self._next_start,
                )
            self._index += 1
            self._epoch = self._entries[self._index][0]
            following = self._index + 1
            more = following < len(self._entries)
            self._next_start = self._entries[following][1] if more else -1
        self._last_offset = entry.last_offset
        self._settled = entry.leader_epoch
        if entry.leader_epoch > self.right.latest:
            self.right.assign(entry.leader_epoch, offset)
        if entry.leader_epoch == self._epoch or offset < self._log_start or self._settled == -1:
            return
        if offset >= self._excused_from >= 0:
            return
        self._unnamed = True
        if not self._known:
            return
        if self._index < 0:
            first = offset if self._uncovered is None else self._uncovered[0]
            self._uncovered = first, entry.last_offset
        elif self._told != self._index:
            self._told = self._index
            self._report.error(
                "epochs",
                f"epoch {self._epoch}, the batch there says {entry.leader_epoch}",
                file=LEADER_EPOCHS,
                offset=offset,
            )

    def legacy(self) -> None:
        """A message of format 0 or 1: Apache Kafka forgets all epochs when it appends one."""
        self._uncovered = None

    def finish(self, end: int) -> None:
        """The log ends at `end`."""
        if self._pending is not None:
            entry, base_offset = self._pending
            filed = self._filed(entry.first_offset)
            if max(self._settled, 0) <= filed <= self._epoch_max < entry.leader_epoch:
                self._stands_out(WrongEpoch(entry, base_offset), filed)
            else:
                self._settle(entry)
            self._pending = None
        if self._entries and self._entries[-1][0] > self._epoch_max >= 0:
            self._report.error(
                "epochs",
                f"epoch {self._entries[-1][0]}, the highest so far is {self._epoch_max}",
                file=LEADER_EPOCHS,
            )
        if self.missing and self._unnamed:
            self._report.warn(
                "epochs",
                "the file is missing; Apache Kafka would forget which epoch began where",
                file=LEADER_EPOCHS,
            )
        if self._uncovered is not None:
            first, last = self._uncovered
            self._report.warn(
                "epochs",
                f"no epoch for the batches of offsets {first}..{last}",
                file=LEADER_EPOCHS,
                offset=first,
            )
        for epoch, start in self._entries:
            if start > end:
                self._report.warn(
                    "epochs",
                    f"epoch {epoch} begins at offset {start}, the log ends at {end}",
                    file=LEADER_EPOCHS,
                    offset=start,
                )


def check_other(files: Filesystem, folder: str, name: str, report: Report) -> None:
    """Apache Kafka's `quorum-state`, and our own times at which segments were received."""
    try:
        data = read_small(files, f"{folder}/{name}")
        if name == RECEIVE_TIMES:
            _check_receive_times(data, report)
        elif name == REPLACEMENT:
            Replacement.decode(data, name)
            report.warn("left-over", "segments are being replaced; a start finishes it", file=name)
        elif name == QUORUM_STATE:
            _check_quorum_state(data, name)
    except MalformedFile as error:
        report.error("malformed", reason_of(error, name), file=name)


def _check_receive_times(data: bytes, report: Report) -> None:
    """The file is not synced while a broker runs, so a power cut may tear it."""
    try:
        decode_times(data, RECEIVE_TIMES)
    except MalformedFile as error:
        reason = reason_of(error, RECEIVE_TIMES)
        report.warn(
            "receive-times",
            f"{reason}; retention goes by the times of the segments' files",
            file=RECEIVE_TIMES,
        )


def _check_quorum_state(data: bytes, name: str) -> None:
    import json

    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MalformedFile(name, f"not JSON: {error}") from error
    if not isinstance(content, dict):
        raise MalformedFile(name, "wanted a JSON object")
    for field in ("leaderEpoch", "data_version"):
        if not isinstance(content.get(field), int):
            raise MalformedFile(name, f"{field} is {content.get(field)!r}, wanted a number")
    if content["data_version"] not in (0, 1):
        raise MalformedFile(name, f"data_version {content['data_version']}, known are 0 and 1")
